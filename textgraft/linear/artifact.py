"""A linear classifier as an artifact: the same folder as a language model's, its words and arrays in place of layers.

config.json says under "linear" what kind it is, its settings, and which files are its documents (vocabularies, word
lists, a tokenizer). Like any artifact it holds no code, and every file is checked against its hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from textgraft.data.examples import Pair
from textgraft.data.labels import Labels
from textgraft.linear.co_training import Views
from textgraft.linear.fitted import FeatureMapModel, Fitted, NgramModel
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
LEAST = 1e-9
"""Of a probability, before a temperature scales its logarithm."""


@dataclass
class LinearArtifact:
    """A fitted linear classifier with all it needs to be used again; `run` is what run.json says of how it came to be.

    `run` may have a "temperature", by which the answers are scaled.
    """

    model: Fitted
    labels: Labels
    run: dict[str, Any] = field(default_factory=dict)

    head_name = "classification"

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """(N, C) probabilities, or (N,) standardised values; `precision` is for models that have a choice."""
        return scaled(self.model.outputs(texts), self.labels, self.run.get("temperature"))

    @property
    def has_vectors(self) -> bool:
        return self.model.vectors([]) is not None

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = "last"
    ) -> NDArray[np.float32]:
        """(N, D) coordinates of the texts in the classifier's space; it has no layers, and nothing to pool or to cut.

        Raises UserError where it has none.
        """
        vectors = self.model.vectors(texts)
        if vectors is None:
            raise UserError(
                "this classifier counts n-grams and has no vectors of texts.",
                remedy="Embed with a language model, or with a classifier that has a space.",
            )
        return vectors.astype(np.float32)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the artifact's folder by name; what can be in half precision is so whatever `half` says."""
        state = self.model.state()
        arrays = {name: np.ascontiguousarray(array) for name, array in state.arrays.items()}
        documents = {f"{name}.json": value for name, value in state.documents.items()}
        files = {
            "model.safetensors": to_safetensors(arrays),
            "labels.json": self.labels.to_json().encode(),
            "run.json": model_folder.to_json(self.run),
            **{name: _document(value) for name, value in documents.items()},
        }
        description = {"linear": {"form": self.model.form, "settings": state.settings, "documents": list(documents)}}
        config = model_folder.config(description, files)
        return {**files, "config.json": config, "README.md": model_card(self.run).encode()}


def scaled(outputs: NDArray[np.float64], labels: Labels, temperature: float | None) -> NDArray[np.float64]:
    """Probabilities (N, C) with their logits divided by the temperature; as they are without one, and quantities."""
    if labels.kind == "numeric" or temperature is None:
        return outputs
    return probabilities(logits(outputs, labels), labels.kind, temperature)


def logits(outputs: NDArray[np.float64], labels: Labels) -> NDArray[np.float64]:
    """Logits (N, C) whose probabilities are `outputs`, but for those nearer than LEAST to 0 (or, for "multi", to 1)."""
    if labels.kind == "multi":
        return np.asarray(logit(np.clip(outputs, LEAST, 1 - LEAST)))
    return np.log(np.maximum(outputs, LEAST))


def from_folder(folder: Path, config: Mapping[str, Any]) -> LinearArtifact:
    """The linear classifier in a folder with this config.json.

    Raises UserError for a missing, truncated or altered file, and for values that do not fit together.
    """
    files = model_folder.read_files(folder, config)
    path = str(folder / "config.json")
    described = config.get("linear")
    absent = [name for name in FILES if name not in files]
    if not isinstance(described, dict) or absent:
        what = absent[0] if absent else "linear"
        raise UserError(f"this describes no model: '{what}' is missing.", where=path, remedy=model_folder.RESTORE)
    labels = Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json"))
    try:
        return LinearArtifact(_built(described, files, labels, folder), labels, model_folder.run_record(files))
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise UserError(f"this describes no model ({error}).", where=path, remedy=model_folder.RESTORE) from error


def _built(described: Mapping[str, Any], files: Mapping[str, bytes], labels: Labels, folder: Path) -> Fitted:
    """The fitted model that config.json describes. Raises UserError or ValueError for what does not fit together."""
    form, names = described["form"], described["documents"]
    if form not in FORMS:
        remedy = f"{did_you_mean(str(form), FORMS)} {model_folder.RESTORE}"
        raise UserError(f"unknown form '{form}'.", where=str(folder / "config.json"), remedy=remedy)
    missing = [name for name in names if name not in files]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    try:
        arrays = from_safetensors(files["model.safetensors"])
    except SafetensorError as error:
        where = str(folder / "model.safetensors")
        raise UserError(f"damaged ({error}).", where=where, remedy=model_folder.RESTORE) from error
    documents = {name.removesuffix(".json"): _read(folder / name, files[name]) for name in names}
    try:
        model: Fitted = FORMS[form].from_state(State(described["settings"], arrays, documents))
    except UserError as error:  # of a document that is no tokenizer, which does not know the folder
        raise UserError(error.message, where=str(folder), remedy=error.remedy) from error
    if model.width != labels.num_outputs:
        raise ValueError(f"it answers for {model.width} classes, and there are {labels.num_outputs}")
    known = model.state()
    if over := (arrays.keys() - known.arrays.keys()) | (documents.keys() - known.documents.keys()):
        raise ValueError(f"left over: {', '.join(sorted(over)[:8])}")
    # What fits by its shape may still not be numbers that can be multiplied. A pair is a text too.
    model.outputs([Pair("one text", "and another")])
    return model


def _document(value: Any) -> bytes:
    """JSON that people can read; words with half a surrogate pair in them, which UTF-8 has no room for, escaped."""
    try:
        return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(value, indent=0) + "\n").encode()


def _read(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy=model_folder.RESTORE) from error
