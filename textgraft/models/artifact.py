"""An artifact is a folder that anyone can read: config.json, model.safetensors, tokenizer.json, labels.json, run.json.

README.md in it is the model card; what holds of every model's folder is in model_folder.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.examples import TargetKind
from textgraft.data.labels import Labels
from textgraft.data.sequences import TokenIds, Truncation, encode_texts
from textgraft.metrics.calibration import probabilities
from textgraft.models.card import model_card
from textgraft.models.default_recipes import DEFAULT, recommended_recipe, with_bundled_recipe
from textgraft.models.inference import embed_sequences, predict_logits
from textgraft.models.model import Model, build_unfilled
from textgraft.models.model_folder import (
    RESTORE,
    bundled_name,
    config,
    read_config,
    read_files,
    run_record,
    to_json,
    validate_new_path,
    write_folder,
)
from textgraft.models.upgrade import upgraded_weights
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation
from textgraft.nn.pooling import pooled_dim
from textgraft.text.tokenizer import Tokenizer

STACK = "textgraft.word_embeddings.stack:Stack.load"
"""What opens the frozen models in a tagger's folder."""
FILES = ("model.safetensors", "tokenizer.json", "run.json")
"""What every artifact holds, beside config.json and README.md; a classifier has labels.json too."""
OF_STACK = ("/config.json", "/memory.json", "/memory.safetensors")
"""What of its sources' folders a tagger's config.json vouches for."""
TARGET = "target_tokenizer.json"
"""What a translator has too."""


class Predictor(Protocol):
    """A finished model of any kind, that answers for texts and that a folder can hold.

    `head_name` says what it was trained for (tasks.registry). `labels` is None for a language model, which has no
    `outputs`. These are (N, C) probabilities in the order of `labels.names`, or (N,) standardised values. `embed` gives
    (N, D) float32 vectors and raises UserError where `has_vectors` is False. `files` is what the folder holds, by name:
    config.json and the card too; `half` asks for float16 where that saves room.
    """

    run: dict[str, Any]

    @property
    def labels(self) -> Labels | None: ...

    @property
    def has_vectors(self) -> bool: ...

    @property
    def head_name(self) -> str: ...

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray: ...

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = LAST
    ) -> np.ndarray: ...

    def files(self, *, half: bool = False) -> dict[str, bytes]: ...


@dataclass
class Artifact:
    """A model with all it needs to be used again; `run` is what run.json says of how it came to be.

    `target` is the tokenizer of the language that a translator writes.
    `stack` holds the frozen models that a tagger over words reads; they are folders inside its own.
    """

    model: Model
    tokenizer: Tokenizer
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)
    target: Tokenizer | None = None
    stack: Any = None  # a word_embeddings.stack.Stack

    has_vectors = True

    @property
    def head_name(self) -> str:
        """The head, as models.model.HEADS names it."""
        return str(self.model.describe()["head"]["name"])

    def recommended_recipe(self, recipe: str, kind: TargetKind | None = None) -> str:
        """Return the recipe that `recipe` stands for with this model, to classify single texts with labels of a `kind`.

        "default" stands for the recommended one (models.default_recipes), any other name for itself.
        """
        if recipe != DEFAULT:
            return recipe
        compares = self.model.encoder.compares
        return recommended_recipe(self.run, self.model.family, compares=compares, kind=kind).recipe

    def encoded(self, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
        """The texts' token ids, no more of each than `max_tokens` and than the encoder can look at (inference)."""
        most = self.model.encoder.max_length or max_tokens
        return encode_texts(self.tokenizer, texts, min(max_tokens, most))

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray:
        """What a classifier answers: (N, C) temperature-scaled probabilities, or (N,) standardised values."""
        assert self.labels is not None, "a language model does not answer"
        sequences, _ = self.encoded(texts, self.run["max_tokens"])
        logits = predict_logits(self.model, sequences, self.tokenizer.pad_id, precision)
        if self.labels.kind == "numeric":
            return logits[:, 0]
        return probabilities(logits, self.labels.kind, self.run.get("temperature") or 1.0)

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = LAST
    ) -> np.ndarray:
        """(N, D) vectors of the top layer, or of what `layers` reads (nn.layer_aggregation), pooled.

        A classifier reads as much of a text as it was trained on.
        """
        sequences, _ = self.encoded(texts, self.run.get("max_tokens", max_tokens))
        if not sequences:
            width = new_layer_aggregation(layers, self.model.encoder.widths).output_dim
            return np.zeros((0, pooled_dim(pooling, width)), dtype=np.float32)
        return embed_sequences(self.model, sequences, self.tokenizer.pad_id, pooling, layers=layers)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the artifact's folder by name, config.json and the model card among them."""
        files: dict[str, bytes] = {
            "model.safetensors": weights(self.model, half=half),
            "tokenizer.json": self.tokenizer.to_json().encode(),
            "run.json": to_json(self.run),
        }
        if self.labels is not None:
            files["labels.json"] = self.labels.to_json().encode()
        if self.target is not None:
            files[TARGET] = self.target.to_json().encode()
        card = model_card(self.run).encode()
        description, below = self.model.describe(), {}
        if self.stack is not None:
            description["stack"], below = self.stack.described(), self.stack.files()
        # The config.json of each folder inside vouches for the rest of it, but for what the tagger's own has put there.
        vouched = files | {name: data for name, data in below.items() if name.endswith(OF_STACK)}
        return {**files, **below, "config.json": config(description, vouched), "README.md": card}


def save(
    artifact: Predictor,
    folder: Path | str,
    *,
    half: bool = False,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the artifact as a folder, all of it or nothing; `half` stores the weights as float16.

    `documents` are files for people to lie beside it, such as a report: config.json does not vouch for them.

    Raises UserError where `folder` exists (without `overwrite`) or cannot be written.
    """
    folder = Path(folder)
    validate_new_path(folder, overwrite)
    return write_folder(folder, {**artifact.files(half=half), **(documents or {})})


def weights(model: Model, *, half: bool = False) -> bytes:
    """The model's values as model.safetensors holds them, float16 with `half`."""
    values = {name: value.detach().contiguous() for name, value in model.values().items()}
    return to_safetensors({n: v.half() if half and v.is_floating_point() else v for n, v in values.items()})


def has_weights(folder: Path, expected: bytes) -> bool:
    """Whether `folder` is an artifact with just these weights."""
    if not (folder / "config.json").is_file():
        return False
    return bool(read_config(folder)["files"].get("model.safetensors") == hashlib.sha256(expected).hexdigest())


def from_folder(folder: Path, config: Mapping[str, Any]) -> Artifact:
    """The artifact in a folder of ours with this config.json; models.loading decides what a folder is.

    Raises UserError for a missing, truncated or altered file, and lists weights that do not fit.
    """
    files = read_files(folder, config)
    model = _built(config, folder / "config.json")
    where = str(folder / "model.safetensors")
    try:
        fill(model, upgraded_weights(from_safetensors(files["model.safetensors"])), where=where)
    except SafetensorError as error:
        raise UserError(f"damaged ({error}).", where=where, remedy=RESTORE) from error
    labels = None
    if "labels.json" in files:
        labels = Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json"))
    tokenizer = Tokenizer.from_json(files["tokenizer.json"].decode(), where=str(folder / "tokenizer.json"))
    target = Tokenizer.from_json(files[TARGET].decode(), where=str(folder / TARGET)) if TARGET in files else None
    run, bundled = run_record(files), bundled_name(folder)
    if bundled:
        run = with_bundled_recipe(run, bundled)
    stack = config.get("stack")
    stack = None if stack is None else resolve(STACK)(folder, stack)
    return Artifact(model.eval(), tokenizer, labels, run, target, stack)


def _built(config: Mapping[str, Any], path: Path) -> Model:
    """The model that `config` describes, its weights to be filled."""
    absent = [key for key in ("encoder", "head") if not isinstance(config.get(key), dict)]
    absent += [name for name in FILES if name not in config["files"]]
    if absent:
        message = f"this describes no model: '{absent[0]}' is missing."
        raise UserError(message, where=str(path), remedy=RESTORE)
    try:
        return build_unfilled({"encoder": config["encoder"], "head": config["head"]})
    except UserError as error:
        raise UserError(error.message, where=str(path), remedy=error.remedy or RESTORE) from error
    except (TypeError, ValueError, RuntimeError, KeyError) as error:  # a setting of the wrong kind or out of range
        raise UserError(f"this describes no model ({error}).", where=str(path), remedy=RESTORE) from error


def fill(model: Model, values: Mapping[str, Tensor], *, where: str) -> None:
    """Copy saved values into the model; every name and shape must match.

    Raises UserError listing what is missing, left over, or of another shape.
    """
    own = model.values()
    wrong = [f"missing: {n}" for n in own.keys() - values.keys()]
    wrong += [f"left over: {n}" for n in values.keys() - own.keys()]
    wrong += [
        f"{n} is {tuple(values[n].shape)}, not {tuple(own[n].shape)}"
        for n in own.keys() & values.keys()
        if own[n].shape != values[n].shape
    ]
    if wrong:
        raise UserError("the weights do not fit the config (" + "; ".join(sorted(wrong)[:8]) + ").", where=where)
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(values[name])
