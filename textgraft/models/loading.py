"""The loader of all kinds of models: from a folder or name to its models, or to the predictor of their task.

Modules of a kind of model are imported with the first of them: an exported graph does not need torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.models import model_folder

if TYPE_CHECKING:
    from textgraft.models.artifact import Artifact, Predictor

NETWORK, ENSEMBLE = "encoder", "members"
FORMATS = {
    "vectors": "textgraft.word_embeddings.text_means:MeanOfWords.from_folder",
    "linear": "textgraft.linear.artifact:from_folder",
    "onnx": "textgraft.models.graph:from_folder",
    NETWORK: "textgraft.models.artifact:from_folder",
}
"""The loader of each kind of model, by a key of config.json; the first that is present decides, else a network."""
CHECKPOINT = "textgraft.conversion.hub:load"
"""The loader of other libraries' checkpoints (`hf:…`, `tf:…`, `elmo:…`)."""
TASK_OF = "textgraft.tasks.registry:task_of"
NO_NETWORK = {
    ENSEMBLE: ("this is an ensemble of several models.", "Name the folder of one of its members."),
    "vectors": (
        "these are word vectors, not a network.",
        "Use them with textgraft vectors and embed, or name a language model.",
    ),
    "linear": (
        "this is a linear classifier, not a network.",
        "Use it with predict, evaluate, explain or serve. A network is what finetune trains with a recipe.",
    ),
    "onnx": (
        "this is an exported graph, not a network.",
        "Use it with predict, evaluate, tag or qa, or name the model that it was exported from.",
    ),
}
"""Message and remedy for other kinds of models, where a network is required."""
MEMBERS = {
    NETWORK: "networks",
    "linear": "linear classifiers",
    "vectors": "means of word vectors",
    "onnx": "exported graphs",
}
"""The kinds of models as members of an ensemble."""


@dataclass(frozen=True)
class OpenedModels:
    """The members of an ensemble, or a single model.

    Attributes:
        name: The folder or name that was opened.
        members: The models.
        weights: Of the members, scaled to a mean of 1.
        run: The content of run.json of the whole.
        folders: Names of an ensemble's members.
        saved_weights: Weights of an ensemble as in config.json; None if it has none.
    """

    name: str
    members: list[Predictor]
    weights: list[float]
    run: dict[str, Any] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    saved_weights: list[float] | None = None

    @property
    def head_name(self) -> str:
        """Name of the models' head, which determines their task (tasks.registry)."""
        return self.members[0].head_name


def load(*names: str | Path, precision: str = "auto", device: str = "cpu") -> Any:
    """Load the predictor of a trained model.

    Args:
        names: A folder, or the name of a bundled model or of another library's checkpoint (`hf:…`). Several
            classifiers of the same labels predict as one ensemble.
        precision: A name of nn.cpu.precision: "auto", "fp32", "bf16" or "int8".
        device: A name of core.device.DEVICES, for networks.

    Returns:
        A Classifier, Tagger, QAModel or Translator, by the task that the model was trained for.

    Raises:
        UserError: For a model without a predictor, such as a language model, for missing, altered or later files, and
            for a device that is not there.
    """
    opened = [open_models(name, device=device) for name in names]
    members = [member for one in opened for member in one.members]
    weights = [weight for one in opened for weight in one.weights]
    models = OpenedModels(" + ".join(map(str, names)), members, weights)
    return predictor_of(models, precision=precision)


def predictor_of(models: OpenedModels, *, precision: str = "auto", **options: Any) -> Any:
    """The predictor of opened models.

    Args:
        models: Of one task.
        precision: A name of nn.cpu.precision.
        options: Further arguments of the predictor's constructor.

    Raises:
        UserError: The task has no predictor.
    """
    task = resolve(TASK_OF)(models.head_name)
    if task.predictor is None:
        raise UserError(f"this model has no predictor: {task.description}.", where=models.name, remedy=task.remedy)
    return resolve(task.predictor)(models, precision=precision, **options)


def open_models(name: str | Path, *, device: str = "cpu") -> OpenedModels:
    """Open a folder or name: the members of an ensemble, or a single model.

    Args:
        name: As in `load`.
        device: Of networks; linear classifiers and word vectors always run on the CPU.

    Raises:
        UserError: As `load`.
    """
    if device not in ("auto", "cpu"):
        _resolved(device)  # an unknown one is reported before any file is read
    if model_folder.is_checkpoint_name(name):
        return _single(name, _on_device(load_network(name), device))
    folder = model_folder.find(name)
    config = model_folder.read_config(folder)
    if ENSEMBLE not in config:
        return _single(name, _open(folder, config, device))
    files = model_folder.read_files(folder, config)
    weights = _weights(config, folder / "config.json")
    inside = [folder / member for member in config[ENSEMBLE]]
    members = [_open(one, model_folder.read_config(one), device) for one in inside]
    run = model_folder.run_record(files) if "run.json" in files else {}
    return OpenedModels(str(name), members, weights, run, list(config[ENSEMBLE]), config.get("weights"))


def open_model(name: str | Path, *, device: str = "cpu") -> Predictor:
    """Open a folder or name of a single model.

    Raises:
        UserError: It is an ensemble, or as `load`.
    """
    models = open_models(name, device=device)
    if len(models.members) > 1:
        message, remedy = NO_NETWORK[ENSEMBLE]
        raise UserError(message, where=str(name), remedy=remedy)
    return models.members[0]


def load_network(name: str | Path) -> Artifact:
    """Load an encoder with its head, of any task, to train or export.

    Args:
        name: A folder, the name of a bundled model, or a checkpoint of another library: `hf:FOLDER` or `hf:NAME` of
            transformers, `tf:FOLDER` of a TensorFlow BERT, GPT-2 or Transformer-XL, `elmo:FOLDER` of a published ELMo.

    Returns:
        The artifact, its weights in float32 and the model in eval mode.

    Raises:
        UserError: For a model that is no network, and for missing, truncated, altered or later files.
    """
    if model_folder.is_checkpoint_name(name):
        checkpoint: Artifact = resolve(CHECKPOINT)(str(name))
        return checkpoint
    folder = model_folder.find(name)
    config = model_folder.read_config(folder)
    kind = kind_of(config)
    if kind != NETWORK:
        message, remedy = NO_NETWORK[kind]
        if kind == ENSEMBLE:
            message, remedy = _described_ensemble(folder, config)
        raise UserError(message, where=str(folder), remedy=remedy)
    network: Artifact = resolve(FORMATS[NETWORK])(folder, config)
    return network


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of model that a config.json describes: ENSEMBLE or a key of FORMATS."""
    return ENSEMBLE if ENSEMBLE in config else next((kind for kind in FORMATS if kind in config), NETWORK)


def members_by_kind(folder: Path, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of an ensemble's members by their kind: NETWORK or a key of FORMATS.

    Raises:
        UserError: The config of a folder is damaged.
    """
    _weights(config, folder / "config.json")
    kinds: dict[str, list[str]] = {}
    for name in config[ENSEMBLE]:
        kinds.setdefault(kind_of(model_folder.read_config(folder / name)), []).append(name)
    return kinds


def ensemble_of(kinds: Mapping[str, Sequence[str]]) -> str:
    """An ensemble's members in words, as in "an ensemble of networks (gpt) and linear classifiers (ngrams, lsa)"."""
    parts = [f"{MEMBERS[kind]} ({', '.join(names)})" for kind, names in kinds.items()]
    return f"an ensemble of {' and '.join(parts)}"


def _described_ensemble(folder: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Message and remedy where a network is required."""
    kinds = members_by_kind(folder, config)
    networks = [str(folder / name) for name in kinds.get(NETWORK, ())]
    remedy = f"Name a member that is a network: {', '.join(networks)}." if networks else NO_NETWORK["linear"][1]
    return f"this is {ensemble_of(kinds)}.", remedy


def _single(name: str | Path, model: Predictor) -> OpenedModels:
    return OpenedModels(str(name), [model], [1.0], model.run)


def _open(folder: Path, config: Mapping[str, Any], device: str) -> Predictor:
    if kind_of(config) == ENSEMBLE:
        message = "a member of an ensemble is an ensemble itself."
        raise UserError(message, where=str(folder), remedy=model_folder.RESTORE)
    model: Predictor = resolve(FORMATS[kind_of(config)])(folder, config)
    return _on_device(model, device) if kind_of(config) == NETWORK else model


def _on_device(network: Any, device: str) -> Any:
    network.model.to(_resolved(device))
    return network


def _resolved(device: str) -> Any:
    from textgraft.core.device import resolve_device  # imports torch

    return resolve_device(device)


LARGEST_WEIGHT = 1e300
"""Members' weights are below; their sum is a float."""


def _weights(config: Mapping[str, Any], path: Path) -> list[float]:
    """Weights of an ensemble's members, scaled to a mean of 1. Raises UserError if any is not a positive number."""
    members = config[ENSEMBLE]
    weights = config.get("weights", [1] * len(members) if isinstance(members, list) else None)
    valid = (
        isinstance(members, list)
        and isinstance(weights, list)
        and len(weights) == len(members) > 0
        and all(isinstance(name, str) for name in members)
        and all(isinstance(weight, int | float) and 0 < weight < LARGEST_WEIGHT for weight in weights)
    )
    if not valid:
        message = "this is not the config of an ensemble: it has names of members, and a positive weight each or none."
        raise UserError(message, where=str(path), remedy=model_folder.RESTORE)
    return [weight * len(weights) / sum(weights) for weight in weights]
