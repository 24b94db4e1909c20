"""`process_files`: predict, embed or tag whole folders, block by block, on any engine."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textgraft import __version__
from textgraft.bulk.block_work import BlockWork
from textgraft.bulk.blocks import BLOCK_ROWS, BlockReader, FileEnd, SourceFile, find_sources, source_fingerprints
from textgraft.bulk.manifest import NAME, Manifest
from textgraft.bulk.model_files import absolute_name, model_identity
from textgraft.bulk.workers import TextWorker
from textgraft.bulk.writers import default_format, remove_temporary
from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import validate_writable
from textgraft.core.progress import Meter
from textgraft.data.column_files import parquet_count
from textgraft.data.members import format_of
from textgraft.data.output_rows import ALL, Kept
from textgraft.engines.base import Engine
from textgraft.engines.local import LOCAL
from textgraft.training.run_lock import locked


@dataclass(frozen=True)
class BulkOptions:
    """How files are read and results written.

    Attributes:
        columns: Names of columns ("text", "text2", "id"), "encoding" and "delimiter"; detected where None or missing.
        kept: Columns of the input in the output.
        output_format: "parquet", "jsonl" or "csv"; None: as the sources, where they are alike and the results fit.
        block_rows: Number of rows of a file of results.
        show: Show progress on stderr.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    kept: Kept = ALL
    output_format: str | None = None
    block_rows: int = BLOCK_ROWS
    show: bool = False


@dataclass(frozen=True, repr=False)
class Summary(Brief):
    """What a run has done.

    Attributes:
        out: The folder of results.
        files, blocks, texts: Numbers of files read, of files written, and of rows in them.
        output_format: Their format.
        earlier: Number of rows among them that were there before.
        counts: Rows of this run that are "empty" or "unknown", and "cut_words".
    """

    out: Path
    files: int
    blocks: int
    texts: int
    output_format: str
    earlier: int
    counts: Mapping[str, int]


def process_files(
    worker: TextWorker,
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    options: BulkOptions | None = None,
    engine: Engine = LOCAL,
) -> Summary:
    """Process the rows of files, and write a folder with a file of results for each block of rows.

    Every row has one row in the results, an empty text too. The files are written one by one, each whole or not at all:
    after an interruption of any kind the same call continues with those that are missing.

    Args:
        worker: PredictWorker, EmbedWorker or TagWorker.
        sources: Files, folders and glob patterns: Parquet, CSV, JSON and the other formats of `textgraft.read`.
        out: The folder, new or of the same run.
        options: How files are read and results written.
        engine: Where the work runs (engines.registry.open_engine).

    Returns:
        Numbers of files and rows.

    Raises:
        UserError: A source cannot be read, the model cannot be used, the folder has results of a run on other sources,
            with another model or other options, or another run is writing there.
    """
    out, options = Path(out), options or BulkOptions()
    paths = [sources] if isinstance(sources, str | Path) else list(sources)
    _validate_apart(out, paths)
    files = find_sources(paths)
    validate_writable(out)
    worker = replace(worker, model=absolute_name(worker.model))  # type: ignore[type-var]
    output_format = _chosen_format(options.output_format, worker, files)
    identity = _identity(worker, files, options, output_format)
    reader = BlockReader(dict(options.columns), options.kept, options.block_rows)
    existed = out.exists()
    try:
        with locked(out):
            manifest = Manifest.open(out, identity)
            work = BlockWork(
                worker, str(out.absolute()), output_format, options.kept, manifest.run_hash, identity["model"]["sha256"]
            )
            counts = _run(manifest, work, reader, files, engine, show=options.show)
    except BaseException:
        _remove_unstarted(out, existed)
        raise
    blocks, texts = (sum(end[i] for end in manifest.ends.values()) for i in (0, 1))
    earlier = texts - counts.pop("texts", 0)
    return Summary(out, len(files), blocks, texts, output_format, earlier, dict(counts))


def _run(
    manifest: Manifest, work: BlockWork, reader: BlockReader, files: Sequence[SourceFile], engine: Engine, *, show: bool
) -> Counter[str]:
    """Write what is missing; return the counts of this run, with its number of "texts"."""
    counts: Counter[str] = Counter()
    pending = manifest.unfinished(files)
    if manifest.complete and not pending:
        return counts
    remove_temporary(manifest.folder)
    seen: set[tuple[int, int]] = set()
    with Meter(work.title, _total(files), shown=show, unit="texts") as meter:
        meter.skip(_rows_done(manifest, pending, reader.block_rows))
        for result in engine.stream(work, reader, pending):
            if isinstance(result, FileEnd):
                manifest.note(result)
            elif (result.number, result.index) not in seen:  # an engine may do a block again after losing a machine
                seen.add((result.number, result.index))
                counts += result.counts
                counts["texts"] += result.rows
                meter.add(result.characters, documents=result.rows)
    _validate_complete(manifest, files)
    manifest.complete = True
    manifest.save()
    return counts


def _rows_done(manifest: Manifest, pending: Sequence[SourceFile], block_rows: int) -> int:
    """About how many rows earlier runs have done."""
    left = {source.number for source in pending}
    whole = sum(rows for number, (_, rows) in manifest.ends.items() if number not in left)
    return whole + sum(len(source.done) * block_rows for source in pending)


def _validate_complete(manifest: Manifest, files: Sequence[SourceFile]) -> None:
    missing = manifest.unfinished(files)
    if missing:
        remedy = "Run the same command again: it continues with the blocks that are missing."
        message = f"results of {len(missing):,} files are not all there."
        raise UserError(message, where=str(manifest.folder), remedy=remedy)


def _total(files: Sequence[SourceFile]) -> int | None:
    """Number of rows, where the files say it themselves."""
    paths = [Path(source.path) for source in files]
    if not all(format_of(path) == ".parquet" and path.is_file() and path.suffix == ".parquet" for path in paths):
        return None
    return sum(map(parquet_count, paths))


def _chosen_format(name: str | None, worker: TextWorker, files: Sequence[SourceFile]) -> str:
    if name is None:
        return default_format(files, worker.formats)
    if name not in worker.formats:
        message = f"results of {worker.verb} are not written as '{name}'."
        raise UserError(message, where="format", remedy=did_you_mean(name, worker.formats))
    return name


def _identity(
    worker: TextWorker, files: Sequence[SourceFile], options: BulkOptions, output_format: str
) -> dict[str, Any]:
    """Everything that the files of results depend on."""
    return {
        "textgraft": __version__,
        "verb": worker.verb,
        "model": {"name": Path(worker.model).name, "sha256": model_identity(worker.model)},
        "options": worker.identity(),
        "columns": {name: value for name, value in sorted(options.columns.items()) if value is not None},
        "keep": None if options.kept.columns is None else list(options.kept.columns),
        "block_rows": options.block_rows,
        "format": output_format,
        "sources": source_fingerprints(files),
    }


def _validate_apart(out: Path, paths: Iterable[str | Path]) -> None:
    """Raise UserError where the folder of results lies in a source, or a source in it: a later run would mix them."""
    folder = out.resolve()
    for path in map(Path, paths):
        place = path.resolve()
        if place.is_relative_to(folder) or (path.is_dir() and folder.is_relative_to(place)):
            remedy = "Name a folder for the results that is not among the sources."
            raise UserError("the sources and the results are in one folder.", where=str(path), remedy=remedy)


def _remove_unstarted(out: Path, existed: bool) -> None:
    """Remove a folder that has a record and nothing else."""
    with suppress(OSError):
        if {path.name for path in out.iterdir()} <= {NAME}:
            if existed:
                (out / NAME).unlink(missing_ok=True)
            else:
                shutil.rmtree(out)
