"""textgraft embed: the vectors of texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.bulk.workers import EmbedWorker
from textgraft.cli import bulk
from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.cli.input_texts import KeptColumns, keyed_texts
from textgraft.cli.output_files import validate_writable

if TYPE_CHECKING:
    from textgraft.core.progress import Meter


def embed(
    model: Annotated[Path, typer.Argument(help="A bundled model, by name, or a folder.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Texts; - is stdin, one text per line. Several files, folders and 'patterns*' with a folder for "
            "--out.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The .npz (`vectors`) or .npy file to write: (N, D), float32; or a folder."),
    ],
    pooling: Annotated[
        str | None,
        typer.Option("--pooling", help="mean, max, last, concat, …; else as the model describes itself, or mean."),
    ] = None,
    layers: Annotated[str, typer.Option("--layers", help=f"The layers to pool: {o.LAYER_AGGREGATIONS}.")] = "last",
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="One of the model's prompts by name, or a text before each text.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=8, help="Maximum length in tokens; else the model's, or 512.")
    ] = None,
    device: o.Device = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    id: o.IdColumn = None,
    keep: KeptColumns = "all",
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    format: bulk.Format = None,
    block_rows: bulk.BlockRows = bulk.BLOCK_ROWS,
    engine: bulk.Engine = "local",
    address: bulk.Address = None,
    workers: bulk.Workers = None,
    as_json: o.AsJson = False,
) -> None:
    """Compute vectors of texts: the pooled top layer of a model, or other layers; or the mean of word vectors.

    A sentence encoder says itself how it pools, and whether vectors have length 1. The mean is that of MODEL's word
    vectors where MODEL is a folder of them (textgraft vectors); a text without a word in the vocabulary is all zeros.
    Memory does not grow with the file; a .npy can be mapped (numpy.load(..., mmap_mode="r")).

    With a folder for --out, files of any number and size are read, and a file of rows with their vector is written for
    each block; the same command resumes an interrupted run:

    textgraft embed en-ulmfit reviews/ --out vectors --engine ray --address auto
    """
    from textgraft.api import embed_stream
    from textgraft.core.progress import Meter
    from textgraft.data.arrays import validate_suffix, write_rows

    columns = {"text": text, "text2": text2, "id": id, "encoding": encoding, "delimiter": delimiter}
    o.use_threads(threads)
    folder = bulk.BulkRun(files, out, engine, address, workers, threads, format, block_rows)
    if folder.is_named:
        worker = EmbedWorker(str(model), pooling, max_tokens, layers, prompt, device)
        folder.run(worker, columns, keep, as_json=as_json)
        return
    folder.validate_unused()
    validate_suffix(out)
    validate_writable(out)
    with Meter("Embedding", None, shown=sys.stderr.isatty() and not as_json, unit="texts") as meter:
        texts = _counted(keyed_texts(files[0], None, "texts", columns)[1], meter)
        options: dict[str, Any] = {"pooling": pooling, "max_tokens": max_tokens, "layers": layers, "device": device}
        options["prompt"] = prompt
        height, width = write_rows(out, embed_stream(str(model), texts, **options))
    if as_json:
        print_json({"out": out, "texts": height, "dimensions": width})
    else:
        print(f"Written: {out} ({height:,} vectors of {width:,} dimensions)")


def _counted(texts: Iterable[str], meter: Meter) -> Iterator[str]:
    for text in texts:
        meter.add(len(text))
        yield text
