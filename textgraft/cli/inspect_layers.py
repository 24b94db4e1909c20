"""textgraft inspect words, geometry, weights and layer aggregations: what the layers of a model know, and what tasks
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.conll import Tagged
    from textgraft.data.examples import Examples

Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")]
Source = Annotated[
    str, typer.Argument(help="A model that ships, by name, the path of a folder, or word vectors.", metavar="MODEL")
]
Read = Annotated[int, typer.Option("--read", min=1, help="Sample from the first so many sentences of the texts.")]


def words(
    model: Source,
    out: Out,
    texts: Annotated[list[Path] | None, typer.Argument(help="Files, folders or globs of plain text.")] = None,
    word: Annotated[list[str] | None, typer.Option("--word", help="A word to look at; may be repeated.")] = None,
    sentence: Annotated[
        list[str] | None, typer.Option("--sentence", help="A sentence with such a word in it; may be repeated.")
    ] = None,
    occurrences: Annotated[int, typer.Option("--occurrences", min=1, help="Of each word, in other sentences.")] = 12,
    neighbours: Annotated[int, typer.Option("--neighbours", min=1, help="Nearest words of each occurrence.")] = 5,
    pool: Annotated[
        int, typer.Option("--pool", min=0, help="Sentences whose words may be neighbours, beside the words' own.")
    ] = 1000,
    read: Read = 20_000,
    projection: Annotated[str, typer.Option("--projection", help="How maps are drawn: pca or tsne.")] = "pca",
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """One word in several sentences: its nearest neighbours and a map of its occurrences, layer by layer.

    After Peters et al. 2018, table 4. Capitals make no difference in --word.
    """
    from textgraft.cli.train import resumable
    from textgraft.experiments.word_contexts import WordOptions, inspect_words

    _check_out(out)
    o.use_threads(threads)
    if not texts and not sentence:
        raise UserError("there is no text.", where="TEXTS", remedy="Name files, or give sentences (--sentence).")
    options = WordOptions(
        occurrences=occurrences,
        neighbours=neighbours,
        pool=pool,
        read=read,
        projection=projection,
        seed=seed,
        precision=precision,
    )
    found = _texts(texts, text, encoding)
    with resumable(out):
        asked: dict[str, Any] = {"words": word or [], "sentences": sentence or [], "options": options}
        results = inspect_words(model, found, out, **asked, show=not quiet)
    if as_json:
        _print_json(out, results)
        return
    from textgraft.experiments.word_contexts_report import neighbour_rows  # here, because it loads matplotlib

    for one in results["words"]:
        print_table(*neighbour_rows(one, -1), title=f"{one['word']}: nearest words in {results['layers'][-1]}")
    _tell_written(out)


def geometry(
    model: Source,
    texts: Annotated[list[Path], typer.Argument(help="Files, folders or globs of plain text.")],
    out: Out,
    words: Annotated[int, typer.Option("--words", min=2, help="Different words to look at in several contexts.")] = 500,
    contexts: Annotated[int, typer.Option("--contexts", min=2, help="Sentences of each of them.")] = 5,
    random: Annotated[int, typer.Option("--random", min=2, help="Random words, for what chance would give.")] = 1000,
    sentences: Annotated[int, typer.Option("--sentences", min=2, help="Sentences to read all words of.")] = 100,
    read: Read = 20_000,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """How contextual is each layer, and how much of that is a cone in which all vectors lie?

    Self-similarity, intra-sentence similarity and maximum explainable variance after Ethayarajh 2019, before and after
    the mean is taken away.
    """
    from textgraft.cli.train import resumable
    from textgraft.experiments.geometry import GeometryOptions, inspect_geometry

    _check_out(out)
    o.use_threads(threads)
    amounts = {"words": words, "contexts": contexts, "random": random, "sentences": sentences, "read": read}
    options = GeometryOptions(**amounts, seed=seed, precision=precision)
    found = _texts(texts, text, encoding)
    with resumable(out):
        results = inspect_geometry(model, found, out, options=options, show=not quiet)
    if as_json:
        _print_json(out, results)
        return
    from textgraft.experiments.geometry_report import table_rows  # here, because it loads matplotlib

    for way, title in (("raw", "As it is"), ("centred", "Without the mean vector")):
        print_table(*table_rows(results, way), title=title)
    print("\n".join(results["verdict"]))
    _tell_written(out)


def weights(
    models: Annotated[list[str], typer.Argument(help="Folders fine-tuned with --layer-aggregation mix or elmo-mix.")],
    out: Out,
    as_json: o.AsJson = False,
) -> None:
    """What share each layer has in what a task has learned to read: softmax weights and gamma, model by model.

    After Peters et al. 2018, figure 2.
    """
    from textgraft.experiments.layer_weights import inspect_weights

    _check_out(out)
    results = inspect_weights(models, out)
    if as_json:
        _print_json(out, results)
        return
    from textgraft.experiments.layer_weights_report import table_rows  # here, because it loads matplotlib

    print_table(*table_rows(results))
    _tell_written(out)


def layer_aggregations(
    train: Annotated[Path, typer.Argument(help="Sentences with tags (CoNLL), or labelled texts (.csv .tsv .jsonl …).")],
    test: Annotated[Path, typer.Option("--test", help="The same to measure on; nothing is chosen by it.")],
    out: Out,
    model: o.DefaultModel = None,
    layer_aggregations: Annotated[
        str | None,
        typer.Option("--layer-aggregations", help="Which to try, with commas; else all that the model allows."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Trainings of each; report their spread.")] = 3,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Learn from so many sentences or texts.")
    ] = None,
    test_sample: Annotated[int | None, typer.Option("--test-sample", min=1, help="Measure on so many.")] = None,
    recipe: o.Recipe = "frozen",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts are cut, or windowed.")] = 256,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    kind: o.Kind = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Which layers serve a task best? A head on frozen features through each layer aggregation, several seeds each.

    After table 7 of Devlin et al. 2019, with the mixes that are learned beside the six.
    """
    from textgraft.cli.train import resumable
    from textgraft.experiments.layer_aggregation import LayerOptions, inspect_layers, sampled
    from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
    from textgraft.training.loop import Settings

    _check_out(out)
    o.use_threads(threads)
    options = LayerOptions(
        recipe=recipe,
        layer_aggregations=tuple(LAYER_AGGREGATIONS)
        if layer_aggregations is None
        else tuple(layer_aggregations.split(",")),
        seeds=seeds,
        max_tokens=max_tokens,
        settings=Settings(seed=seed, precision=precision, device=device),
    )
    columns = {"text": text, "text2": text2, "label": label, "kind": kind}
    learned = sampled(_examples(train, columns), sample)
    tested = sampled(_examples(test, columns), test_sample)
    with resumable(out):
        results = inspect_layers(learned, out, test=tested, model=model, options=options, show=not quiet)
    if as_json:
        _print_json(out, results)
        return
    from textgraft.experiments.layer_aggregation_report import table_rows  # here, because it loads matplotlib

    print_table(*table_rows(results))
    print("\n".join([*(f"Left out: {why}" for why in results["left_out"].values()), *results["verdict"]]))
    _tell_written(out)


def _examples(path: Path, columns: dict[str, Any]) -> Tagged | Examples:
    """Labelled texts where it is a table or a folder of classes, else sentences with tags."""
    from textgraft.data.conll import read_conll
    from textgraft.data.tables import TABLE_SUFFIXES
    from textgraft.data.text_files import format_of

    if path.is_dir() or format_of(path) in TABLE_SUFFIXES:
        return o.read_file(path, **columns)
    return read_conll(path)


def _texts(paths: Sequence[Path] | None, column: str | None, encoding: str | None) -> Any:
    from textgraft.data.readers import read_texts

    return read_texts(paths, text=column, encoding=encoding) if paths else ()


def _check_out(out: Path) -> None:
    from textgraft.core.files import validate_writable
    from textgraft.training.results_folder import refuse_existing

    refuse_existing(out)
    validate_writable(out)


def _print_json(out: Path, results: dict[str, Any]) -> None:
    print_json({"out": out, "report": out / "report.html", **results})


def _tell_written(out: Path) -> None:
    print(f"Written: {out / 'report.html'}, {out / 'results.json'}")
