"""Conversion of published ELMo models, options.json and weights.hdf5, to textgraft and back.

The files were written by bilm-tf (Peters et al. 2018) and used by AllenNLP. Their matrices are input x output; an
LSTM's includes input and recurrent input, with gates in the order i, j, f, o (here i, f, g, o), without the 1 that
TensorFlow's cell adds to the forget gate. Character ids begin at 1, their table at 0. The files have neither a
vocabulary nor a softmax. Needs h5py (extra `[elmo]`).
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
from textgraft.models.model_folder import to_json, validate_new_path, write_folder
from textgraft.text.character_encoding import CHARACTERS, NUM_CHARACTERS

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"


@dataclass(frozen=True)
class Stored:
    """One published array: a view into a textgraft weight, and the conversions between the two."""

    view: Tensor
    to_theirs: Callable[[Tensor], Tensor]
    to_ours: Callable[[Tensor], Tensor]

    def value(self) -> Tensor:
        return self.to_theirs(self.view.detach()).contiguous()


def find(folder: Path) -> tuple[Path, Path]:
    """Options and weights in a folder, by their endings: published files have the model's name as a prefix.

    Raises:
        UserError: There is no such folder, or a file is missing or ambiguous.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder.", where=str(folder), remedy="Check the path.")
    files = []
    for ending in (OPTIONS, WEIGHTS):
        paths = sorted(folder.glob(f"*{ending}"))
        if len(paths) != 1:
            message = f"there are {len(paths)} files named …{ending} here, not one."
            raise UserError(message, where=str(folder), remedy=f"Put {OPTIONS} and {WEIGHTS} of one model there.")
        files.append(paths[0])
    return files[0], files[1]


def load(folder: Path | str) -> Model:
    """Load the encoder in a published folder, without a task, in float32 and eval mode.

    Raises:
        UserError: A file is missing or damaged, a setting is not supported, or weights do not match.
    """
    options, weights = find(Path(folder))
    try:
        content = json.loads(options.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"damaged ({error}).", where=str(options), remedy="Get the file again.") from error
    try:
        return from_published(content, read_weights(weights))
    except UserError as error:
        raise UserError(error.message, where=error.where or str(weights), remedy=error.remedy) from error
    except (KeyError, TypeError, AttributeError) as error:
        message = f"this does not describe an ELMo ({error!r})."
        raise UserError(message, where=str(options), remedy="Give the file that came with the weights.") from error


def save(model: Model, folder: Path | str, *, overwrite: bool = False) -> Path:
    """Write options.json and weights.hdf5 for AllenNLP; a language model's softmax is left out.

    Raises:
        UserError: The folder exists (without `overwrite`), or the model is not an ELMo.
    """
    h5py = _h5py()
    options, weights = to_published(model)
    validate_new_path(Path(folder), overwrite)
    data = BytesIO()
    with h5py.File(data, "w") as file:
        for name, value in weights.items():
            file.create_dataset(name, data=value.numpy())
    return write_folder(Path(folder), {OPTIONS: to_json(options), WEIGHTS: data.getvalue()})


def from_published(options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert options and weights to an encoder. Raises UserError where they do not match."""
    config = _config(options)
    head = {"name": "features", "input_dim": 2 * config["projection_dim"]}
    model = build({"encoder": config, "head": head})
    stored = _stored(model.encoder)
    missing, left_over = sorted(stored.keys() - weights.keys()), sorted(weights.keys() - stored.keys())
    if missing or left_over:
        message = f"these are not the weights of this ELMo (missing: {missing[:8]}; left over: {left_over[:8]})."
        raise UserError(message, remedy="Use both files of one model.")
    filled = 0
    with torch.no_grad():
        for name, target in stored.items():
            expected = tuple(target.value().shape)
            if tuple(weights[name].shape) != expected:
                raise UserError(f"'{name}' is {tuple(weights[name].shape)}, not {expected} as the options say.")
            target.view.copy_(target.to_ours(weights[name].float()))
            filled += target.view.numel()
    zero_row = config["character_dim"]  # the row of character 0, which is always zero
    assert filled + zero_row == sum(p.numel() for p in model.parameters())
    return model.eval()


def to_published(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Options and weights in the published format; the inverse of `from_published`."""
    encoder = model.encoder
    if not isinstance(encoder, ELMo):
        raise UserError("only an ELMo can be written as one.", remedy="Use an ELMo.")
    c = encoder.config
    options = {
        "lstm": {
            "cell_clip": c.cell_clip or None,
            "proj_clip": c.projection_clip or None,
            "use_skip_connections": c.skip_connections,
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
    """All arrays of an HDF5 file by path. Raises UserError without h5py, and for a damaged file."""
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
    """The encoder's configuration. Raises UserError for unsupported options."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    skips = lstm.get("use_skip_connections")
    requirements = (
        (skips in (None, False, True), f"'use_skip_connections' is {skips!r}, not true or false"),
        (cnn.get("max_characters_per_token", CHARACTERS) == CHARACTERS, f"words are not of {CHARACTERS} characters"),
        (cnn["n_characters"] in (NUM_CHARACTERS - 1, NUM_CHARACTERS), f"there are {cnn['n_characters']} characters"),
    )
    for fulfilled, problem in requirements:
        if not fulfilled:
            raise UserError(f"{problem}, which is not supported.", remedy="Use one of the published models.")
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
        "skip_connections": bool(skips),  # absent is false, as in bilm-tf
        "num_characters": NUM_CHARACTERS,  # bilm-tf writes 261 for a model in training
    }


def _stored(encoder: Any) -> dict[str, Stored]:
    """Published name of every weight, and its place in the encoder."""
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
            stored[f"{cell}/W_P_0"] = _transposed(layer.projection)
    return stored


def _same(view: Tensor) -> Stored:
    return Stored(view, lambda value: value, lambda value: value)


def _transposed(view: Tensor) -> Stored:
    return Stored(view, lambda value: value.t(), lambda value: value.t())


def _linear(group: str, name: str, linear: Any) -> dict[str, Stored]:
    return {f"{group}/W_{name}": _transposed(linear.weight), f"{group}/b_{name}": _same(linear.bias)}


def _swapped(gates: Tensor) -> Tensor:
    """(4H, …) with the second and third gate exchanged: i, f, g, o to i, g, f, o and back."""
    i, f, g, o = gates.chunk(4)
    return torch.cat([i, g, f, o])


def _forgetting(theirs: Tensor, change: float) -> Tensor:
    """The published bias (4H,) with `change` added to the forget gate's, the third."""
    i, g, f, o = theirs.chunk(4)
    return torch.cat([i, g, f + change, o])


def _to_our_bias(theirs: Tensor) -> Tensor:
    return _swapped(_forgetting(theirs, 1))
