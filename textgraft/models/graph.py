"""Models as ONNX graphs, run by ONNX Runtime without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.labels import Labels
from textgraft.data.sequences import Direction, PairIds, number_distinct
from textgraft.models import model_folder
from textgraft.models.card import model_card
from textgraft.models.shared_files import names_of_files
from textgraft.text import known_texts
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import FORMS, RAW, TextForm

GRAPH = "model.onnx"
_NONE = type(MISSING)  # the type of the default of a field without one
ROWS = 512
"""Maximum number of rows in a batch."""
FILES = (GRAPH, "tokenizer.json", "run.json")
IN_FILES = ("graph", "tokenizer", "labels", "run")
"""Attributes that are saved in files of their own, and not in config.json."""
TASK_OF = "textgraft.tasks.registry:task_of"


def from_folder(folder: Path, config: Mapping[str, Any]) -> OnnxModel:
    """Load the graph in a folder with this config.json.

    Raises:
        UserError: A file is missing or altered.
    """
    about = config["onnx"]
    head = about.get("task", "classification") if isinstance(about, dict) else None
    try:
        graph = resolve(TASK_OF)(head).graph
    except (KeyError, TypeError):  # a list has no place in a dictionary
        graph = None
    if graph is None:
        message = f"this is not the config of a graph: there are none for '{str(head)[:40]}'."
        raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
    model: OnnxModel = resolve(graph).load(folder, config)
    return model


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 < value < 1 << 31


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def ids_and_starts(rows: Sequence[NDArray | PairIds]) -> tuple[list[NDArray], list[int]]:
    """Token ids of texts and pairs, and the position of each second text, as `OnnxModel.run_graph` takes them."""
    ids = [row.ids if isinstance(row, PairIds) else row for row in rows]
    return ids, [row.start if isinstance(row, PairIds) else len(row) for row in rows]


@contextmanager
def _as_user_errors() -> Iterator[None]:
    """Convert errors of onnxruntime, of which each is of its own class, to UserError."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"damaged ({reason}).", where=GRAPH, remedy=model_folder.RESTORE) from error


@dataclass(kw_only=True)
class OnnxModel:
    """An ONNX graph with everything that is saved beside it.

    Attributes:
        graph: The graph in ONNX's format.
        tokenizer: Of the texts.
        max_tokens: Maximum length.
        tokens_per_batch: Positions per batch (inference.tokens_per_batch of the exported model).
        labels: Of a classifier or tagger.
        run: The content of run.json.
        text_form: The form in which it takes texts (text.visible).
        task: Name of the exported head.
        output_names: The graph's outputs.

    Raises:
        UserError: onnxruntime is not installed.
    """

    graph: bytes = field(repr=False)
    tokenizer: Tokenizer
    max_tokens: int
    tokens_per_batch: int = 16_384
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)
    text_form: TextForm = RAW

    task: ClassVar[str]
    output_names: ClassVar[tuple[str, ...]]
    has_vectors = False

    @property
    def head_name(self) -> str:
        """Name of the exported head."""
        return self.task

    def __post_init__(self) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            remedy = 'Install it by: pip install "textgraft[onnx]"'
            raise UserError("running an ONNX graph needs onnxruntime.", remedy=remedy) from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        threads = os.environ.get("OMP_NUM_THREADS", "")  # which torch uses too
        options.intra_op_num_threads = int(threads) if threads.isdecimal() else 0
        # Dequantize weights that are stored as int8 once, not for every text.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        with _as_user_errors():
            # Without the fallback, which prints on stdout and tries the same again.
            self._session = onnxruntime.InferenceSession(
                self.graph, options, providers=["CPUExecutionProvider"], enable_fallback=False
            )
            self._inputs = {value.name for value in self._session.get_inputs()}

    def run_graph(
        self, rows: Sequence[NDArray], starts: Sequence[int] | None = None, **more: NDArray
    ) -> list[NDArray[np.float32]]:
        """Run the graph on a batch.

        Args:
            rows: Token ids, (T,) each, or character-encoded words, (T, 50) each.
            starts: Position of the second text of each pair; None for single texts.
            more: Further inputs of the graph, by name.

        Returns:
            The arrays named by `output_names`.
        """
        inputs = dict(more)
        if rows[0].ndim == 2:
            rows, inputs["spellings"] = number_distinct(rows, self.tokenizer.pad_id + 1)
        lengths = np.array([len(row) for row in rows])[:, None]
        places = np.arange(lengths.max())
        ids = np.full((len(rows), len(places)), self.tokenizer.pad_id, dtype=np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        second = places >= (lengths if starts is None else np.array(starts)[:, None])
        mask = places < lengths
        inputs |= {"ids": ids, "mask": mask, "segments": (second & mask).astype(np.int64)}
        with _as_user_errors():
            return list(self._session.run(self.output_names, {name: inputs[name] for name in self._inputs}))

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """A classifier's outputs (artifact.Predictor.outputs)."""
        raise NotImplementedError

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts of which the tokenizer knows something (text.known_texts)."""
        return known_texts.knows(self.tokenizer, texts)

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = "last",
        prompt: str | None = None,
    ) -> NDArray[np.float32]:
        """Raise UserError: graphs do not have vectors as outputs."""
        remedy = "Embed with the model that it was exported from."
        raise UserError("an exported graph has predictions as outputs, and no vectors.", remedy=remedy)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of its folder by name; `half` has no effect."""
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
        """Load the graph in a folder.

        Raises:
            UserError: A file is missing or altered, or onnxruntime is not installed.
        """
        described = {name: value for name, value in config["onnx"].items() if name != "task"}
        invalid = [name for name in FILES if name not in names_of_files(config)]
        described.setdefault("tokens_per_batch", cls.tokens_per_batch)  # not in the config of older graphs
        invalid += [n for n in ("max_tokens", "tokens_per_batch") if not _is_size(described.get(n))]
        invalid += ["text_form"] * (described.get("text_form", RAW) not in tuple(FORMS))
        invalid += ["tags"] * (not _are_names(described.get("tags", [])))
        invalid += sorted(described.keys() - cls._described())
        defaults = {field.name: field.default for field in fields(cls)}
        invalid += [name for name, value in described.items() if type(defaults.get(name)) not in (type(value), _NONE)]
        invalid += ["direction"] * (described.get("direction", "both") not in get_args(Direction))
        if invalid:
            message = f"this is not the config of a graph: '{invalid[0]}' is missing or unknown."
            raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
        files, labels = model_folder.read_files(folder, config), None
        if "labels.json" in files:
            labels = Labels.from_json(files["labels.json"], where=str(folder / "labels.json"))
        return cls(
            graph=files[GRAPH],
            tokenizer=Tokenizer.from_json(files["tokenizer.json"], where=str(folder / "tokenizer.json")),
            labels=labels,
            run=model_folder.run_record(files),
            **described,
        )
