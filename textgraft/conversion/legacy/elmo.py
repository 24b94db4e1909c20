"""ELMo as it was published: options.json and weights.hdf5, to ours and back, weight by weight.

Peters et al. 2018's bilm-tf wrote the files; AllenNLP read them. A kernel of theirs is input x output, and an LSTM's
reads the input and what is fed back in one, its gates in the order i, j, f, o (our i, f, g, o), without the 1 that
TensorFlow's cell adds to the forget gate. Characters begin at 1 in the ids that we all use, and their table at 0.
The files have neither a vocabulary nor a softmax. Needs h5py (extra `[elmo]`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.encoders.elmo import ELMo
from textgraft.models.model import Model, build
from textgraft.models.model_folder import refuse_existing, to_json, write_folder
from textgraft.text.character_encoding import CHARACTERS, NUM_CHARACTERS

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"


@dataclass(frozen=True)
class Stored:
    """One of their arrays: a view into ours, and what turns the one into the other."""

    view: Tensor
    to_theirs: Callable[[Tensor], Tensor]
    to_ours: Callable[[Tensor], Tensor]

    def value(self) -> Tensor:
        return self.to_theirs(self.view.detach()).contiguous()


def find(folder: Path) -> tuple[Path, Path]:
    """The options and the weights in a folder, by their endings: published ones have the model's name before them.

    Raises UserError where there is no such folder, either is missing or there are several.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder.", where=str(folder), remedy="Check the path.")
    found = []
    for ending in (OPTIONS, WEIGHTS):
        paths = sorted(folder.glob(f"*{ending}"))
        if len(paths) != 1:
            message = f"there are {len(paths)} files named …{ending} here, not one."
            raise UserError(message, where=str(folder), remedy=f"Put {OPTIONS} and {WEIGHTS} of one model there.")
        found.append(paths[0])
    return found[0], found[1]


def load(folder: Path | str) -> Model:
    """The encoder in a folder of theirs, without a task, in float32 and eval mode.

    Raises UserError for a missing or damaged file, a setting that we have not, and weights that do not fit.
    """
    options, weights = find(Path(folder))
    try:
        content = json.loads(options.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"damaged ({error}).", where=str(options), remedy="Get the file again.") from error
    try:
        return from_published(content, read_weights(weights))
    except UserError as error:
        raise UserError(error.message, where=error.where or str(weights), remedy=error.remedy) from error
    except (KeyError, TypeError, AttributeError) as error:
        message = f"this does not describe an ELMo ({error!r})."
        raise UserError(message, where=str(options), remedy="Give the file that came with the weights.") from error


def save(model: Model, folder: Path | str, *, overwrite: bool = False) -> Path:
    """Write options.json and weights.hdf5, which AllenNLP reads; a language model's softmax has no place there.

    Raises UserError where the folder exists (without `overwrite`), and for a model that is no ELMo.
    """
    h5py = _h5py()
    options, weights = to_published(model)
    refuse_existing(Path(folder), overwrite)
    data = BytesIO()
    with h5py.File(data, "w") as file:
        for name, value in weights.items():
            file.create_dataset(name, data=value.numpy())
    return write_folder(Path(folder), {OPTIONS: to_json(options), WEIGHTS: data.getvalue()})


def from_published(options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """The encoder whose options and weights these are. Raises UserError where they do not fit each other or us."""
    config = _config(options)
    head = {"name": "features", "input_dim": 2 * config["projection_dim"]}
    model = build({"encoder": config, "head": head})
    stored = _stored(model.encoder)
    missing, left_over = sorted(stored.keys() - weights.keys()), sorted(weights.keys() - stored.keys())
    if missing or left_over:
        message = f"these are not the weights of this ELMo (missing: {missing[:8]}; left over: {left_over[:8]})."
        raise UserError(message, remedy="Take both files from one model.")
    covered = 0
    with torch.no_grad():
        for name, target in stored.items():
            expected = tuple(target.value().shape)
            if tuple(weights[name].shape) != expected:
                raise UserError(f"'{name}' is {tuple(weights[name].shape)}, not {expected} as the options say.")
            target.view.copy_(target.to_ours(weights[name].float()))
            covered += target.view.numel()
    nothing = config["character_dim"]  # the row of the character 0, which stays zero
    assert covered + nothing == sum(p.numel() for p in model.parameters())
    return model.eval()


def to_published(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The options and the weights by which the original code knows this encoder; the inverse of `from_published`."""
    encoder = model.encoder
    if not isinstance(encoder, ELMo):
        raise UserError("only an ELMo can be written as one.", remedy="Name an ELMo.")
    c = encoder.config
    options = {
        "lstm": {
            "cell_clip": c.cell_clip or None,
            "proj_clip": c.projection_clip or None,
            "use_skip_connections": True,
            "n_layers": c.num_layers,
            "dim": c.hidden_dim,
            "projection_dim": c.projection_dim,
        },
        "char_cnn": {
            "activation": c.activation,
            "embedding": {"dim": c.character_dim},
            "filters": c.filters,
            "n_highway": c.num_highways,
            "n_characters": c.num_characters,
            "max_characters_per_token": CHARACTERS,
        },
        "dropout": c.hidden_dropout,
    }
    return options, {name: target.value().clone() for name, target in _stored(encoder).items()}


def read_weights(path: Path) -> dict[str, Tensor]:
    """All arrays of an HDF5 file by their paths. Raises UserError without h5py, and for a damaged file."""
    h5py = _h5py()
    values: dict[str, Tensor] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            values[name] = torch.from_numpy(item[...])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(keep)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy="Get the file again.") from error
    return values


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        remedy = "Install it: pip install 'textgraft[elmo]'."
        raise UserError("ELMo's published weights are HDF5, which needs h5py.", remedy=remedy) from error
    return h5py


def _config(options: Mapping[str, Any]) -> dict[str, Any]:
    """Our config for their options. Raises UserError for what we have no layer for."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    wanted = (
        (lstm.get("use_skip_connections", False) or lstm["n_layers"] == 1, "use_skip_connections is false"),
        (cnn.get("max_characters_per_token", CHARACTERS) == CHARACTERS, f"words are not of {CHARACTERS} characters"),
        (cnn["n_characters"] in (NUM_CHARACTERS - 1, NUM_CHARACTERS), f"there are {cnn['n_characters']} characters"),
    )
    for known, what in wanted:
        if not known:
            raise UserError(f"{what}, for which we have no ELMo.", remedy="Take one of the published models.")
    return {
        "name": "elmo",
        "character_dim": cnn["embedding"]["dim"],
        "filters": cnn["filters"],
        "num_highways": cnn.get("n_highway") or 0,
        "projection_dim": lstm["projection_dim"],
        "hidden_dim": lstm["dim"],
        "num_layers": lstm["n_layers"],
        "activation": cnn["activation"],
        "cell_clip": lstm.get("cell_clip") or 0.0,
        "projection_clip": lstm.get("proj_clip") or 0.0,
        "hidden_dropout": options.get("dropout", 0.1),
        "num_characters": NUM_CHARACTERS,  # bilm-tf says 261 of a model in training
    }


def _stored(encoder: Any) -> dict[str, Stored]:
    """Their name of every weight, and where it is in ours."""
    cnn = encoder.characters
    stored = {"char_embed": _same(cnn.embedding.weight[1:])}
    for i, convolution in enumerate(cnn.filters):
        stored[f"CNN/W_cnn_{i}"] = Stored(
            convolution.weight,
            lambda ours: ours.permute(2, 1, 0)[None],
            lambda theirs: theirs[0].permute(2, 1, 0),
        )
        stored[f"CNN/b_cnn_{i}"] = _same(convolution.bias)
    for i, highway in enumerate(cnn.highways):
        stored |= _linear(f"CNN_high_{i}", "carry", highway.gate)
        stored |= _linear(f"CNN_high_{i}", "transform", highway.transform)
    stored |= _linear("CNN_proj", "proj", cnn.projection)
    for side, layers in enumerate((encoder.forwards, encoder.backwards)):
        for i, layer in enumerate(layers):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            stored[f"{cell}/W_0"] = Stored(layer.weight, lambda w: _swapped(w).t(), lambda w: _swapped(w.t()))
            stored[f"{cell}/B"] = Stored(layer.bias, lambda b: _forgetting(_swapped(b), -1), _to_our_bias)
            stored[f"{cell}/W_P_0"] = _turned(layer.projection)
    return stored


def _same(view: Tensor) -> Stored:
    return Stored(view, lambda value: value, lambda value: value)


def _turned(view: Tensor) -> Stored:
    return Stored(view, lambda value: value.t(), lambda value: value.t())


def _linear(group: str, name: str, linear: Any) -> dict[str, Stored]:
    return {f"{group}/W_{name}": _turned(linear.weight), f"{group}/b_{name}": _same(linear.bias)}


def _swapped(gates: Tensor) -> Tensor:
    """(4H, …) with the second and the third gate exchanged: i, f, g, o to i, g, f, o and back."""
    i, f, g, o = gates.chunk(4)
    return torch.cat([i, g, f, o])


def _forgetting(theirs: Tensor, change: float) -> Tensor:
    """Their bias (4H,) with `change` added to the forget gate's, the third."""
    i, g, f, o = theirs.chunk(4)
    return torch.cat([i, g, f + change, o])


def _to_our_bias(theirs: Tensor) -> Tensor:
    return _swapped(_forgetting(theirs, 1))
