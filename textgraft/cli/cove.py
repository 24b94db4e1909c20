"""textgraft cove: an encoder that learns by translating, and its translator at work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table, say
from textgraft.cli.groups import Verb, group_of
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.translation.predictor import Alignment

Folder = Annotated[Path, typer.Argument(help="The folder of a model made by `textgraft cove train`.")]
Source = Annotated[Path, typer.Argument(help="Sentences, one a line; also .gz, .xz, ….")]
Target = Annotated[Path, typer.Argument(help="Their translations, line for line.")]
Beams = Annotated[int, typer.Option("--beams", min=1, help="Look for the likeliest translation with so many beams.")]
MEASURES = ("loss", "perplexity", "bleu")


def train(
    source: Source,
    target: Target,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")],
    valid: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--valid", help="Two files to choose the best epoch by; else some pairs are held out."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option("--vectors", help="Word vectors to start from (GloVe, word2vec, fastText, …).")
    ] = None,
    recipe: Annotated[str, typer.Option("--recipe", help="A name below recipes/cove, or a .toml file.")] = "multi30k",
    score: Annotated[
        str | None,
        typer.Option("--score", help="additive, content, dot, general, location or scaled_dot; else the recipe's."),
    ] = None,
    reach: Annotated[str | None, typer.Option("--reach", help="global, local-m or local-p; else the recipe's.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=2, help="Leave out longer sentences.")] = 100,
    bleu: Annotated[bool, typer.Option("--bleu/--no-bleu", help="BLEU of the held-out pairs at the end.")] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a translator on pairs of sentences; its encoder, CoVe, is a model that any other command takes."""
    import textgraft
    from textgraft.cli.train import check_out, resumable
    from textgraft.data.parallel import read_parallel
    from textgraft.tasks.translation.train import CoVeOptions, cove_train
    from textgraft.training.loop import Settings

    check_out(out, overwrite)
    o.use_threads(threads)
    settings = Settings(seed=seed, precision=precision, minutes=minutes, patience=patience, device=device)
    options = CoVeOptions(recipe=recipe, score=score, reach=reach, max_tokens=max_tokens, bleu=bleu, settings=settings)
    pairs = read_parallel(source, target)
    held = None if valid is None else read_parallel(*valid)
    with resumable(out):
        record = cove_train(
            pairs,
            out,
            valid=held,
            vectors=None if vectors is None else textgraft.load_vectors(vectors),
            options=options,
            overwrite=overwrite,
            show=not quiet,
        )
    if as_json:
        kept = ("stage", "data", "vectors", "held_out", "seconds", "parameters")
        print_json({"out": out, **{name: record[name] for name in kept}})
        return
    _tell_data(record)
    _tell(record["held_out"]["after"], f"{record['held_out']['pairs']:,} held-out pairs")
    print(f"Written: {out}")


def translate(
    model: Folder,
    file: Annotated[Path | None, typer.Argument(help="A file with a sentence a line.")] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A sentence itself; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file to write, a translation a line.")] = None,
    beams: Beams = 1,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
) -> None:
    """Translate the lines of a file, or sentences, one line each."""
    from textgraft.core.files import validate_writable, writing_atomically
    from textgraft.tasks.translation.predictor import Translator

    if (file is None) == (not text):
        remedy = "For example: textgraft cove translate MODEL --text 'A dog runs.'"
        raise UserError("name either a file or --text.", remedy=remedy)
    if out is not None:
        validate_writable(out)
    o.use_threads(threads)
    found = Translator(model, precision=precision).stream(_sentences(file, text), beams=beams)
    if out is None:
        for line in found:
            print(line)
        return
    count = 0
    with writing_atomically(out) as written:
        for line in found:
            written.write(f"{line}\n".encode("utf-8", "replace"))
            count += 1
    say(f"Written: {out} ({count:,} sentences)")


def evaluate(
    model: Folder,
    source: Source,
    target: Target,
    beams: Beams = 1,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Say how good a translator is on pairs of sentences: loss, perplexity, and BLEU with its interval."""
    from textgraft.data.parallel import read_parallel
    from textgraft.tasks.translation.predictor import Translator

    pairs = read_parallel(source, target)
    o.use_threads(threads)
    found = Translator(model, precision=precision).evaluate(pairs, beams=beams)
    if as_json:
        print_json(found)
        return
    _tell(found, f"{found['pairs']:,} pairs")
    print(found["signature"])


def align(
    model: Folder,
    source: Annotated[str, typer.Argument(help="A sentence.")],
    target: Annotated[str | None, typer.Argument(help="Its translation; else the model's own.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the heat map here, as .svg or .png.", dir_okay=False)
    ] = None,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Show where a translator looks as it writes each word: its attention, as a table or a heat map."""
    from textgraft.core.files import validate_writable
    from textgraft.tasks.translation.predictor import Translator

    if plot is not None:
        if plot.suffix not in (".svg", ".png"):
            raise UserError("a plot is a .svg or a .png file.", where=str(plot), remedy="Give it such a name.")
        validate_writable(plot)
    o.use_threads(threads)
    found = Translator(model, precision=precision).align(source, target)
    if plot is not None:
        from textgraft.tasks.translation.alignment_page import alignment

        alignment(found).save(plot)
    if as_json:
        print_json(found.listed())
        return
    print_table(["word", "looks most at", "weight"], _looks(found))
    if plot is not None:
        print(f"Written: {plot}")


def _looks(found: Alignment) -> list[list[str]]:
    from textgraft.core.formatting import printable

    rows = zip(found.target, found.weights, strict=True)
    return [[printable(word), printable(found.source[int(w.argmax())]), f"{float(w.max()):.2f}"] for word, w in rows]


def _sentences(file: Path | None, texts: list[str] | None) -> Iterable[str]:
    from textgraft.data.text_files import lines

    return texts or () if file is None else (line.rstrip("\r\n") for line in lines(file))


def _tell_data(record: Mapping[str, Any]) -> None:
    data, vectors = record["data"], record["vectors"]
    for why in ("blank", "too long"):
        if data[f"left out, {why}"]:
            say(f"textgraft: {data[f'left out, {why}']:,} pairs were left out ({why}).")
    if vectors is not None:
        found, all_words = vectors["found"], vectors["found"] + vectors["not_found"]
        say(f"textgraft: {found:,} of {all_words:,} words start from the vectors, the others at random.")


def _tell(found: Mapping[str, Any], measured_on: str) -> None:
    from textgraft.core import formatting

    rows = []
    for name in MEASURES:
        value = found.get(name)
        if isinstance(value, Mapping):
            shown = formatting.interval(value["mean"], value["low"], value["high"], name)
            rows.append(["BLEU [95 % interval]", shown])
        elif value is not None:
            rows.append([name, formatting.score(value, name)])
    print_table([measured_on, "score"], rows)


VERBS: tuple[Verb, ...] = (
    ("train", train, "textgraft cove train train.en train.de --valid val.en val.de --vectors glove.txt --out cove"),
    ("translate", translate, "textgraft cove translate cove --text 'A dog runs.' --beams 5"),
    ("evaluate", evaluate, "textgraft cove evaluate cove test.en test.de --json"),
    ("align", align, "textgraft cove align cove 'A dog runs.' 'Ein Hund läuft.' --plot alignment.svg"),
)
"""Name, function and an example for --help, in the order that help lists them."""


def group() -> typer.Typer:
    """`textgraft cove` with its verbs."""
    return group_of(VERBS, "CoVe: vectors of words in their context, learned by translating; and the translator.")
