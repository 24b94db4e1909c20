"""textgraft cove: contextual vectors from a trained translator (CoVe), and the translator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note, print_table
from textgraft.cli.groups import Verb, group_of
from textgraft.cli.input_texts import InputTexts
from textgraft.cli.output_files import validate_writable
from textgraft.cli.plots import Plot, validate_plot
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.translation.predictor import Alignment

Folder = Annotated[Path, typer.Argument(help="The folder of a model from `textgraft cove train`.")]
Source = Annotated[Path, typer.Argument(help="Sentences, one per line; also .gz, .xz, ….")]
Target = Annotated[Path, typer.Argument(help="Their translations, line by line.")]
Beams = Annotated[int, typer.Option("--beams", min=1, help="Beam search with this many beams.")]
MEASURES = ("loss", "perplexity", "bleu")


def train(
    source: Source,
    target: Target,
    out: o.OutFolder,
    valid: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--valid", help="Two files for the selection of the best epoch; else some pairs are held out."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option("--vectors", help="Word vectors to initialise with (GloVe, word2vec, fastText, …).")
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", help="A recipe for `cove train` from `textgraft recipes`, or a .toml file.")
    ] = "multi30k",
    score: Annotated[
        str | None,
        typer.Option(
            "--score",
            help="Attention score: additive, content, dot, general, location or scaled_dot; else the recipe's.",
        ),
    ] = None,
    reach: Annotated[
        str | None, typer.Option("--reach", help="Attention span: global, hard, local-m or local-p; else the recipe's.")
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=2, help="Longer sentences are left out.")] = 100,
    bleu: Annotated[
        bool, typer.Option("--bleu/--no-bleu", help="Compute BLEU on the held-out pairs after training.")
    ] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a translator on pairs of sentences; its encoder, CoVe, is a model for all other commands."""
    import textgraft
    from textgraft.cli.resumable import resumable, validate_out
    from textgraft.data.parallel import read_parallel
    from textgraft.tasks.translation.train import CoVeOptions, cove_train
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    settings = Settings(
        seed=seed,
        precision=precision,
        minutes=minutes,
        patience=patience,
        device=device,
        sharding=sharding,
        activation_checkpointing=activation_checkpointing,
    )
    options = CoVeOptions(recipe=recipe, score=score, reach=reach, max_tokens=max_tokens, bleu=bleu, settings=settings)
    pairs = read_parallel(source, target)
    held_out = None if valid is None else read_parallel(*valid)
    with resumable(out):
        record = cove_train(
            pairs,
            out,
            valid=held_out,
            vectors=None if vectors is None else textgraft.load_vectors(vectors),
            options=options,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    if as_json:
        keys = ("stage", "data", "vectors", "held_out", "seconds", "parameters")
        print_json({"out": out, **{name: record[name] for name in keys}})
        return
    _print_data(record)
    _print_scores(record["held_out"]["after"], f"{record['held_out']['pairs']:,} held-out pairs")
    print(f"Written: {out}")


def translate(
    model: Folder,
    file: Annotated[Path | None, typer.Argument(help="A file with a sentence per line.")] = None,
    input_text: InputTexts = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file to write, a translation per line.")] = None,
    beams: Beams = 1,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
) -> None:
    """Translate the lines of a file, or single sentences, to one line each."""
    from textgraft.core.files import writing_atomically
    from textgraft.tasks.translation.predictor import Translator

    if (file is None) == (not input_text):
        remedy = "For example: textgraft cove translate MODEL --input-text 'A dog runs.'"
        raise UserError("name either a file or --input-text.", remedy=remedy)
    if out is not None:
        validate_writable(out)
    o.use_threads(threads)
    translations = Translator(model, precision=precision).stream(_sentences(file, input_text), beams=beams)
    if out is None:
        for line in translations:
            print(line)
        return
    count = 0
    with writing_atomically(out) as written:
        for line in translations:
            written.write(f"{line}\n".encode("utf-8", "replace"))
            count += 1
    print_note(f"Written: {out} ({count:,} sentences)")


def evaluate(
    model: Folder,
    source: Source,
    target: Target,
    beams: Beams = 1,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Evaluate a translator on pairs of sentences: loss, perplexity, and BLEU with its interval."""
    from textgraft.data.parallel import read_parallel
    from textgraft.tasks.translation.predictor import Translator

    pairs = read_parallel(source, target)
    o.use_threads(threads)
    scores = Translator(model, precision=precision).evaluate(pairs, beams=beams)
    if as_json:
        print_json(scores)
        return
    _print_scores(scores, f"{scores['pairs']:,} pairs")
    print(scores["signature"])


def align(
    model: Folder,
    source: Annotated[str, typer.Argument(help="A sentence.")],
    target: Annotated[str | None, typer.Argument(help="Its translation; else the model's.")] = None,
    plot: Plot = None,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    as_json: o.AsJson = False,
) -> None:
    """Show the attention of a translator for each target word, as a table or a heat map."""
    from textgraft.tasks.translation.predictor import Translator

    validate_plot(plot)
    o.use_threads(threads)
    attention = Translator(model, precision=precision).align(source, target)
    if plot is not None:
        from textgraft.tasks.translation.alignment_page import alignment

        alignment(attention).save(plot)
    if as_json:
        print_json(attention.to_dict())
        return
    print_table(["word", "highest attention", "weight"], _highest_attention(attention))
    if plot is not None:
        print(f"Written: {plot}")


def _highest_attention(attention: Alignment) -> list[list[str]]:
    from textgraft.core.formatting import printable

    rows = zip(attention.target, attention.weights, strict=True)
    return [
        [printable(word), printable(attention.source[int(w.argmax())]), f"{float(w.max()):.2f}"] for word, w in rows
    ]


def _sentences(file: Path | None, texts: list[str] | None) -> Iterable[str]:
    from textgraft.data.text_files import lines

    return texts or () if file is None else (line.rstrip("\r\n") for line in lines(file))


def _print_data(record: Mapping[str, Any]) -> None:
    data, vectors = record["data"], record["vectors"]
    for reason in ("blank", "too long"):
        if data[f"left out, {reason}"]:
            print_note(f"textgraft: {data[f'left out, {reason}']:,} pairs were left out ({reason}).")
    if vectors is not None:
        initialised, total = vectors["found"], vectors["found"] + vectors["not_found"]
        print_note(
            f"textgraft: {initialised:,} of {total:,} words are initialised with the vectors, the others at random."
        )


def _print_scores(scores: Mapping[str, Any], evaluated_on: str) -> None:
    from textgraft.core import formatting

    rows = []
    for name in MEASURES:
        value = scores.get(name)
        if isinstance(value, Mapping):
            shown = formatting.interval(value["mean"], value["low"], value["high"], name)
            rows.append(["BLEU [95 % interval]", shown])
        elif value is not None:
            rows.append([name, formatting.score(value, name)])
    print_table([evaluated_on, "score"], rows)


VERBS: tuple[Verb, ...] = (
    ("train", train, "textgraft cove train train.en train.de --valid val.en val.de --vectors glove.txt --out cove"),
    ("translate", translate, "textgraft cove translate cove --text 'A dog runs.' --beams 5"),
    ("evaluate", evaluate, "textgraft cove evaluate cove test.en test.de --json"),
    ("align", align, "textgraft cove align cove 'A dog runs.' 'Ein Hund läuft.' --plot alignment.svg"),
)
"""Name, function and example of each verb, in the order of --help."""


def group() -> typer.Typer:
    """Return the group of commands `textgraft cove`."""
    return group_of(VERBS, "CoVe: contextual word vectors from a translation model; and the translator.")
