"""The work on a block in whatever process it is: its rows through the model, and its file of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.bulk.blocks import TEXT_TYPE, Block, FileEnd
from textgraft.bulk.manifest import stored_run_hash
from textgraft.bulk.model_files import model_identity
from textgraft.bulk.workers import OpenedModel, TextWorker
from textgraft.bulk.writers import Rows, write_block
from textgraft.core.errors import UserError
from textgraft.core.memory import release_free_memory
from textgraft.data.output_rows import Kept, with_prediction
from textgraft.data.text_rows import TextRow

TITLES = {"predict": "Predicting", "embed": "Embedding", "tag predict": "Tagging"}
PROBABILITIES = "probabilities"


@dataclass(frozen=True)
class Written:
    """A block that is written: its file's number, its index, its rows and characters, and counts of special rows."""

    number: int
    index: int
    rows: int
    characters: int
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class BlockWork:
    """Work for an engine: from blocks to files of results.

    Attributes:
        worker: What is done with the rows.
        folder: The folder of results; absolute.
        output_format: A name in writers.WRITERS.
        kept: Columns of the input in the output.
        run_hash: The run's identity in short.
        model_hash: The model's identity, which must be the same in every process.
    """

    worker: TextWorker
    folder: str
    output_format: str
    kept: Kept
    run_hash: str
    model_hash: str

    @property
    def title(self) -> str:
        """Label of the progress bar."""
        return TITLES.get(self.worker.verb, self.worker.verb)

    @property
    def on_gpu(self) -> bool:
        """True unless the model is to run on the processor."""
        return self.worker.device != "cpu"

    def open(self) -> Callable[[Block | FileEnd], Written | FileEnd]:
        """Open the model.

        Raises:
            UserError: The model or the folder of results is not the same here as where the run was started.
        """
        if stored_run_hash(Path(self.folder)) != self.run_hash:
            remedy = "Write into a folder that every machine of the cluster shares, under the same path."
            raise UserError("the folder of results is not here.", where=self.folder, remedy=remedy)
        if model_identity(self.worker.model) != self.model_hash:
            remedy = "Put the same model there, or into a folder that every machine of the cluster shares."
            raise UserError(
                "this is not the model that the run was started with.", where=self.worker.model, remedy=remedy
            )
        return partial(self._process, self.worker.open())

    def _process(self, model: OpenedModel, block: Block | FileEnd) -> Written | FileEnd:
        """Write the results of a block; one that is there already, after a lost connection, is left as it is."""
        if isinstance(block, FileEnd):
            return block
        path = Path(self.folder) / block.source.output_name(block.index, self.output_format)
        characters = sum(len(text) for row in block.rows for text in row.texts)
        counts: Counter[str] = Counter()
        if not path.exists():
            results = model.process(block.rows)
            counts = results.counts
            rows = [
                with_prediction(self._beginning(row, block), self._flat(result))
                for row, result in zip(block.rows, results.rows, strict=True)
            ]
            write_block(path, self.output_format, Rows(rows, self._types(block, model.types)))
            release_free_memory()
        return Written(block.source.number, block.index, len(block.rows), characters, counts)

    def _beginning(self, row: TextRow, block: Block) -> dict[str, Any]:
        """The columns to keep, after the file and the place in it if the row's id is not among them."""
        cells = self.kept.of(row.cells)
        if row.id_column in cells:
            return cells
        place = row.key if row.id_column is not None else {"file": block.source.name} | row.key
        return place | cells

    def _flat(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result with a column for each probability, which JSON has as an object."""
        if self.output_format == "jsonl" or PROBABILITIES not in result:
            return result
        columns = {f"p({name})": value for name, value in (result.pop(PROBABILITIES) or {}).items()}
        return result | columns

    def _types(self, block: Block, of_results: Mapping[str, str]) -> dict[str, str]:
        """Types of all columns, in their order."""
        first = block.rows[0]
        beginning = {
            name: block.types.get(name, "BIGINT" if name == first.unit else TEXT_TYPE)
            for name in self._beginning(first, block)
        }
        return with_prediction(beginning, of_results)
