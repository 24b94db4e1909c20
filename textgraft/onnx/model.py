"""A classifier that ONNX Runtime runs: numpy, tokenizers and onnxruntime are all that it imports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft import model_folder
from textgraft.data.labels import Labels
from textgraft.data.sequences import PairIds, TokenIds, budget_batches, encode_texts
from textgraft.errors import UserError
from textgraft.report.card import model_card
from textgraft.text.tokenizer import Tokenizer

GRAPH = "model.onnx"
OUTPUT = "answers"
TOKENS_PER_BATCH, ROWS = 16_384, 512
FILES = (GRAPH, "tokenizer.json", "labels.json", "run.json")


@dataclass
class OnnxModel:
    """The bytes of a graph from token ids to answers, with all it needs to be used; `run` is run.json's object."""

    graph: bytes
    tokenizer: Tokenizer
    labels: Labels
    max_tokens: int
    run: dict[str, Any] = field(default_factory=dict)
    both_orders: bool = False

    has_vectors = False

    def __post_init__(self) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            remedy = 'Install it by: pip install "textgraft[onnx]"'
            raise UserError("running an ONNX graph needs onnxruntime.", remedy=remedy) from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(self.graph, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """(N, C) probabilities in the order of `labels.names`, or (N,) standardised values."""
        sequences, _ = encode_texts(self.tokenizer, texts, self.max_tokens)
        found = np.zeros((len(sequences), self.labels.num_outputs))
        for indices in budget_batches([len(s) for s in sequences], tokens=TOKENS_PER_BATCH, rows=ROWS):
            found[indices] = self.answer([sequences[i] for i in indices])
        return found[:, 0] if self.labels.kind == "numeric" else found

    def answer(self, sequences: Sequence[TokenIds]) -> NDArray[np.float32]:
        """(B, C) what the graph says of these texts' token ids."""
        if self.both_orders:
            sequences = [row for s in sequences if isinstance(s, PairIds) for row in s.in_both_orders().rows]
        rows = [row.ids if isinstance(row, PairIds) else np.asarray(row) for row in sequences]
        lengths = np.array([len(row) for row in rows])[:, None]
        places = np.arange(lengths.max())
        ids = np.full((len(rows), len(places)), self.tokenizer.pad_id, dtype=np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        starts = np.array([s.start if isinstance(s, PairIds) else len(places) for s in sequences])[:, None]
        mask = places < lengths
        given = {"ids": ids, "mask": mask, "segments": ((places >= starts) & mask).astype(np.int64)}
        (answers,) = self._session.run([OUTPUT], {name: given[name] for name in self._inputs})
        return np.asarray(answers)

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = "last"
    ) -> NDArray[np.float32]:
        """Raises UserError: the graph gives answers."""
        remedy = "Embed with the model that it was exported from."
        raise UserError("an exported graph gives answers, and no vectors.", remedy=remedy)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of its folder by name; `half` changes nothing."""
        files = {
            GRAPH: self.graph,
            "tokenizer.json": self.tokenizer.to_json().encode(),
            "labels.json": self.labels.to_json().encode(),
            "run.json": model_folder.to_json(self.run),
        }
        described = {"max_tokens": self.max_tokens, "both_orders": self.both_orders}
        config = model_folder.config({"onnx": described}, files)
        return {**files, "config.json": config, "README.md": model_card(self.run).encode()}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> OnnxModel:
        """The one in a folder. Raises UserError for missing or altered files, and without onnxruntime."""
        absent = [name for name in FILES if name not in config["files"]]
        described = config["onnx"]
        if absent or not isinstance(described, dict) or not isinstance(described.get("max_tokens"), int):
            message = f"this describes no graph: '{(absent or ['max_tokens'])[0]}' is missing."
            raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
        files = model_folder.read_files(folder, config)
        return cls(
            files[GRAPH],
            Tokenizer.from_json(files["tokenizer.json"].decode(), where=str(folder / "tokenizer.json")),
            Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json")),
            described["max_tokens"],
            json.loads(files["run.json"]),
            bool(described.get("both_orders")),
        )
