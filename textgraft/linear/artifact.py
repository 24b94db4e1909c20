"""Linear classifiers as artifact folders: the same layout as a neural model's, with vocabularies and arrays for layers.

config.json holds under "linear" the form, its settings and the names of its documents (vocabularies, word lists, a
tokenizer). Like every artifact the folder holds no code, and every file is checked against its hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from scipy.special import logit

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.json_text import encode
from textgraft.data.examples import Pair, TargetKind
from textgraft.data.labels import Labels
from textgraft.linear.co_training import Views
from textgraft.linear.fitted import FeatureMapModel, FittedModel, NgramModel
from textgraft.linear.state import State
from textgraft.metrics.calibration import probabilities
from textgraft.models import model_folder
from textgraft.models.card import model_card

FORMS: dict[str, type[NgramModel] | type[FeatureMapModel] | type[Views]] = {
    NgramModel.form: NgramModel,
    FeatureMapModel.form: FeatureMapModel,
    Views.form: Views,
}
FILES = ("model.safetensors", "labels.json", "run.json")
MIN_PROBABILITY = 1e-9
"""Lower bound of a probability before a temperature scales its logarithm."""


@dataclass
class LinearArtifact:
    """A fitted linear classifier with its labels and its run record.

    Attributes:
        model: The fitted classifier or regressor.
        labels: The labels, in the order of the model's outputs.
        run: Contents of run.json. A "temperature" in it scales the probabilities.
    """

    model: FittedModel = field(repr=False)
    labels: Labels
    run: dict[str, Any] = field(default_factory=dict)

    head_name = "classification"

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """Predict a batch of texts.

        Args:
            texts: N raw texts.
            precision: Ignored; the argument that neural classifiers have.

        Returns:
            Probabilities (N, C), or standardised values (N,) of a numeric target.
        """
        return scaled(self.model.outputs(texts), self.labels, self.run.get("temperature"))

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which the classifier's vocabulary knows something."""
        return self.model.knows(texts)

    @property
    def has_vectors(self) -> bool:
        """True if `embed` is available: n-gram models have no dense vectors."""
        return self.model.vectors([]) is not None

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = "last",
        prompt: str | None = None,
    ) -> NDArray[np.float32]:
        """Transform texts into the classifier's feature map.

        Args:
            texts: N raw texts.
            pooling, max_tokens, layers, prompt: Ignored; a linear classifier has no layers to pool and no length limit.

        Returns:
            Coordinates (N, D), float32.

        Raises:
            UserError: The classifier counts n-grams and has no dense feature map.
        """
        vectors = self.model.vectors(texts)
        if vectors is None:
            raise UserError(
                "this classifier counts n-grams and has no text vectors.",
                remedy="Embed with a language model, or with a classifier on LSA, word vectors or paragraph vectors.",
            )
        return vectors.astype(np.float32)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The folder's files by name.

        Args:
            half: Ignored; feature maps are always stored in half precision and coefficients never.
        """
        state = self.model.state()
        arrays = {name: np.ascontiguousarray(array) for name, array in state.arrays.items()}
        documents = {f"{name}.json": value for name, value in state.documents.items()}
        files = {
            "model.safetensors": to_safetensors(arrays),
            "labels.json": self.labels.to_json().encode(),
            "run.json": model_folder.to_json(self.run),
            **{name: _document(value) for name, value in documents.items()},
            **state.files,
        }
        linear = {"form": self.model.form, "settings": state.settings, "documents": list(documents)}
        if state.files:
            linear["files"] = list(state.files)
        description = {"linear": linear}
        config = model_folder.config(description, files)
        return {**files, "config.json": config, "README.md": model_card(self.run).encode()}


def scaled(outputs: NDArray[np.float64], labels: Labels, temperature: float | None) -> NDArray[np.float64]:
    """Apply a temperature to predicted probabilities.

    Args:
        outputs: Probabilities (N, C), or values (N,).
        labels: The labels that `outputs` belong to.
        temperature: Divisor of the logits; None for none.

    Returns:
        Probabilities (N, C); `outputs` itself without a temperature and for numeric labels.
    """
    if not labels.target.has_classes or temperature is None:
        return outputs
    return probabilities(logits(outputs, labels), labels.kind, temperature)


def logits(outputs: NDArray[np.float64], labels: Labels) -> NDArray[np.float64]:
    """Logits of probabilities, clipped at MIN_PROBABILITY.

    Args:
        outputs: Probabilities (N, C).
        labels: Their labels; of kind "multi" each column is a logit of its own, clipped near 1 too.

    Returns:
        Logits (N, C).
    """
    return LOGITS[labels.kind](outputs)


def _of_softmax(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(outputs, MIN_PROBABILITY))


def _of_sigmoids(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(logit(np.clip(outputs, MIN_PROBABILITY, 1 - MIN_PROBABILITY)))


LOGITS: Mapping[TargetKind, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "single": _of_softmax,
    "multi": _of_sigmoids,
    "choice": _of_softmax,
}


def from_folder(folder: Path, config: Mapping[str, Any]) -> LinearArtifact:
    """The linear classifier in a folder with this config.json.

    Raises:
        UserError: A file is missing, truncated or altered, or its values are inconsistent.
    """
    files = model_folder.read_files(folder, config)
    path = str(folder / "config.json")
    description = config.get("linear")
    missing = [name for name in FILES if name not in files]
    if not isinstance(description, dict) or missing:
        key = missing[0] if missing else "linear"
        raise UserError(f"not a linear model: '{key}' is missing.", where=path, remedy=model_folder.RESTORE)
    labels = Labels.from_json(files["labels.json"], where=str(folder / "labels.json"))
    try:
        return LinearArtifact(
            _restored_model(description, files, labels, folder), labels, model_folder.run_record(files)
        )
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise UserError(f"not a linear model ({error}).", where=path, remedy=model_folder.RESTORE) from error


def _restored_model(
    description: Mapping[str, Any], files: Mapping[str, bytes], labels: Labels, folder: Path
) -> FittedModel:
    """The fitted model that config.json describes. Raises UserError or ValueError for inconsistent files."""
    form, names, others = description["form"], description["documents"], description.get("files", [])
    if form not in FORMS:
        remedy = f"{did_you_mean(str(form), FORMS)} {model_folder.RESTORE}"
        raise UserError(f"unknown form '{form}'.", where=str(folder / "config.json"), remedy=remedy)
    missing = [name for name in (*names, *others) if name not in files]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    try:
        arrays = from_safetensors(files["model.safetensors"])
    except SafetensorError as error:
        where = str(folder / "model.safetensors")
        raise UserError(f"damaged ({error}).", where=where, remedy=model_folder.RESTORE) from error
    documents = {name.removesuffix(".json"): _parsed_json(folder / name, files[name]) for name in names}
    try:
        whole = State(description["settings"], arrays, documents, {name: files[name] for name in others})
        model: FittedModel = FORMS[form].from_state(whole)
    except UserError as error:  # a document that is not a tokenizer; the error lacks the folder
        raise UserError(error.message, where=str(folder), remedy=error.remedy) from error
    if model.width != labels.num_outputs:
        raise ValueError(f"the model has {model.width} outputs, and there are {labels.num_outputs} labels")
    state = model.state()
    if unused := (arrays.keys() - state.arrays.keys()) | (documents.keys() - state.documents.keys()):
        raise ValueError(f"unused: {', '.join(sorted(unused)[:8])}")
    # Arrays of the right shape may still have a type that cannot be multiplied. A pair works for single texts too.
    model.outputs([Pair("one text", "and another")])
    return model


def _document(value: Any) -> bytes:
    """JSON as UTF-8; escaped where a word holds half a surrogate pair, which UTF-8 cannot encode."""
    return encode(value, indent=0) + b"\n"


def _parsed_json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy=model_folder.RESTORE) from error
