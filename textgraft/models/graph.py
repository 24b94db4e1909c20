"""A model that ONNX Runtime runs: numpy, tokenizers and onnxruntime are all that it imports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.labels import Labels
from textgraft.data.sequences import number_distinct
from textgraft.models import model_folder
from textgraft.models.card import model_card
from textgraft.text.tokenizer import Tokenizer

GRAPH = "model.onnx"
ROWS = 512
"""The most in one batch."""
FILES = (GRAPH, "tokenizer.json", "run.json")
IN_FILES = ("graph", "tokenizer", "labels", "run")
"""What is no part of config.json."""


TASK_OF = "textgraft.tasks.registry:task_of"


def from_folder(folder: Path, config: Mapping[str, Any]) -> OnnxModel:
    """The graph in a folder with this config.json. Raises UserError for missing or altered files."""
    about = config["onnx"]
    head = about.get("task", "classification") if isinstance(about, dict) else None
    try:
        graph = resolve(TASK_OF)(head).graph
    except KeyError:
        graph = None
    if graph is None:
        message = f"this describes no graph: '{head}' is no task that has one."
        raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
    model: OnnxModel = resolve(graph).load(folder, config)
    return model


@dataclass(kw_only=True)
class OnnxModel:
    """The bytes of a graph, with all it needs to be used; `run` is run.json's object, the rest config.json's.

    `tokens_per_batch` is how many positions are best read together (inference.tokens_per_batch of what it was made of);
    `output_names` are the names of what the graph answers. Raises UserError without onnxruntime.
    """

    graph: bytes
    tokenizer: Tokenizer
    max_tokens: int
    tokens_per_batch: int = 16_384
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)

    task: ClassVar[str]
    output_names: ClassVar[tuple[str, ...]]
    has_vectors = False

    @property
    def head_name(self) -> str:
        """The head that the graph was made of."""
        return self.task

    def __post_init__(self) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            remedy = 'Install it by: pip install "textgraft[onnx]"'
            raise UserError("running an ONNX graph needs onnxruntime.", remedy=remedy) from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        asked = os.environ.get("OMP_NUM_THREADS", "")  # which torch goes by too
        options.intra_op_num_threads = int(asked) if asked.isdecimal() else 0
        # Weights that are stored as int8 become float32 once, not with every text.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        self._session = onnxruntime.InferenceSession(self.graph, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}

    def run_graph(
        self, rows: Sequence[NDArray], starts: Sequence[int] | None = None, **more: NDArray
    ) -> list[NDArray[np.float32]]:
        """What the graph `output_names` of rows of token ids, (T,) each, the second text of a pair from `starts` on."""
        given = dict(more)
        if rows[0].ndim == 2:
            rows, given["spellings"] = number_distinct(rows, self.tokenizer.pad_id + 1)
        lengths = np.array([len(row) for row in rows])[:, None]
        places = np.arange(lengths.max())
        ids = np.full((len(rows), len(places)), self.tokenizer.pad_id, dtype=np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        second = places >= (lengths if starts is None else np.array(starts)[:, None])
        mask = places < lengths
        given |= {"ids": ids, "mask": mask, "segments": (second & mask).astype(np.int64)}
        return list(self._session.run(self.output_names, {name: given[name] for name in self._inputs}))

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """What a classifier answers (artifact.Predictor); others have no labels and are not asked."""
        raise NotImplementedError

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
            "run.json": model_folder.to_json(self.run),
        }
        if self.labels is not None:
            files["labels.json"] = self.labels.to_json().encode()
        described = {name: value for name, value in vars(self).items() if name in self._described()}
        about = {"task": self.task, **described}
        config = model_folder.config({"onnx": about}, files)
        return {**files, "config.json": config, "README.md": model_card(self.run).encode()}

    @classmethod
    def _described(cls) -> set[str]:
        return {name for name in cls.__dataclass_fields__ if name not in IN_FILES}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """The one in a folder. Raises UserError for missing or altered files, and without onnxruntime."""
        described = {name: value for name, value in config["onnx"].items() if name != "task"}
        absent = [name for name in FILES if name not in config["files"]]
        described.setdefault("tokens_per_batch", cls.tokens_per_batch)  # graphs of before do not say
        absent += [n for n in ("max_tokens", "tokens_per_batch") if not isinstance(described.get(n), int)]
        absent += sorted(described.keys() - cls._described())
        if absent:
            message = f"this describes no graph: '{absent[0]}' is missing or strange."
            raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
        files, labels = model_folder.read_files(folder, config), None
        if "labels.json" in files:
            labels = Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json"))
        return cls(
            graph=files[GRAPH],
            tokenizer=Tokenizer.from_json(files["tokenizer.json"].decode(), where=str(folder / "tokenizer.json")),
            labels=labels,
            run=model_folder.run_record(files),
            **described,
        )
