"""textgraft vectors: training, conversion, queries and evaluation of word vectors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.groups import Verb, group_of
from textgraft.cli.output_files import validate_writable
from textgraft.cli.plots import validate_plot
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.word_embeddings.lines import Errors as Policy
    from textgraft.word_embeddings.options import Method
    from textgraft.word_embeddings.word_vectors import Neighbour, WordVectors

N_GRAMS = "fastText's n-grams"
Source = Annotated[str, typer.Argument(metavar="VECTORS", help="A folder, the name of bundled vectors, or a file.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="word2vec (and .vec), word2vec-binary, glove or fasttext (.bin); else detected."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Load only this many words, the most frequent.")]
Errors = Annotated[
    str, typer.Option("--errors", help="strict refuses words that are not UTF-8; replace puts U+FFFD for wrong bytes.")
]
Number = Annotated[int, typer.Option("--number", "-n", min=1, help="Number of words.")]


def train(
    files: Annotated[list[Path], typer.Argument(help="Texts: files, folders or globs, labelled or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    method: Annotated[str, typer.Option("--method", help="skipgram, cbow, fasttext or glove.")] = "skipgram",
    dimensions: Annotated[int, typer.Option("--dimensions", min=1, help="Size of a vector.")] = 100,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="Context words to each side; else 5, glove 10.")
    ] = None,
    min_count: Annotated[int, typer.Option("--min-count", min=1, help="Rarer words get no vector.")] = 5,
    vocabulary: Annotated[
        int | None, typer.Option("--vocabulary", min=2, help="The most words in the vocabulary.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Passes over the text; else 5, glove 25.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Learning rate; else 0.025 for skipgram, 0.05 for others.")
    ] = None,
    negative: Annotated[int, typer.Option("--negative", help="Negative samples per word.")] = 5,
    hierarchical: Annotated[
        bool, typer.Option("--hierarchical", help="Hierarchical softmax instead of negative sampling.")
    ] = False,
    sample: Annotated[float, typer.Option("--sample", min=0, help="Sub-sampling threshold; 0 is none.")] = 1e-3,
    minn: Annotated[int, typer.Option("--minn", min=1, help="Shortest n-gram.", rich_help_panel=N_GRAMS)] = 3,
    maxn: Annotated[int, typer.Option("--maxn", min=1, help="Longest n-gram.", rich_help_panel=N_GRAMS)] = 6,
    buckets: Annotated[
        int, typer.Option("--buckets", min=1, help="Hash buckets.", rich_help_panel=N_GRAMS)
    ] = 2_000_000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Keep upper and lower case apart.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store numbers as float16.")] = False,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    language: Annotated[str | None, typer.Option("--language", help="The language of the texts, for the card.")] = None,
    licence: Annotated[str | None, typer.Option("--licence", help="The licence of the vectors, for the card.")] = None,
    seed: o.Seed = 0,
    threads: Annotated[
        int,
        typer.Option(
            "--threads",
            min=1,
            help="Number of threads; results are reproducible with 1 only.",
            rich_help_panel=o.TRAINING,
        ),
    ] = 1,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train word vectors on text; all methods but glove use gensim, textgraft's extra "vectors"."""
    from textgraft.data.fingerprint import fingerprints
    from textgraft.data.readers import read_texts
    from textgraft.models.model_folder import validate_new_path
    from textgraft.word_embeddings.formats import save_vectors
    from textgraft.word_embeddings.options import VectorOptions
    from textgraft.word_embeddings.training import train_vectors

    validate_new_path(out, overwrite)
    validate_writable(out)
    settings: dict[str, Any] = {"dimensions": dimensions, "min_count": min_count, "vocabulary": vocabulary}
    settings |= {
        "window": window or 0,
        "epochs": epochs or 0,
        "rate": rate or 0.0,
        "negative": negative,
        "sample": sample,
    }
    settings |= {"hierarchical": hierarchical, "minn": minn, "maxn": maxn, "buckets": buckets}
    options = VectorOptions(lowercase=not keep_case, seed=seed, workers=threads, **settings)
    texts = read_texts(files, text=text, encoding=encoding)
    sources = [{k: f[k] for k in ("name", "bytes")} for f in fingerprints(files)]
    about = {"name": out.name, "language": language, "licence": licence, "data": {"files": sources}}
    vectors = train_vectors(
        texts, cast("Method", method), options=options, about=about, work=out.absolute().parent, show=not quiet
    )
    save_vectors(vectors, out, half=half, overwrite=overwrite)
    shape = {"words": len(vectors), "dimensions": vectors.dimensions, "tokens": vectors.run["tokens_seen"]}
    if as_json:
        print_json({"out": out, **shape, "seconds": vectors.run["seconds"]})
    else:
        size = f"{len(vectors):,} words, {vectors.dimensions} dimensions"
        print(f"Written: {out} ({size}, trained on {shape['tokens']:,} tokens)")


def convert(
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder (textgraft) or file to write.")],
    to: Annotated[
        str, typer.Option("--to", help="textgraft, word2vec (and .vec), word2vec-binary, glove or fasttext (.bin).")
    ] = "textgraft",
    format: Format = None,
    limit: Limit = None,
    errors: Errors = "strict",
    half: Annotated[bool, typer.Option("--half", help="Store textgraft's numbers as float16.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder or file at --out.")] = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Convert vectors to another format, block by block; textgraft's own is memory-mapped and loads at once."""
    from textgraft.word_embeddings.formats import VectorSource, convert_vectors
    from textgraft.word_embeddings.progress import Bar

    written = [0]
    with ExitStack() as open_bars:
        bar = open_bars.enter_context(Bar("Converting", limit or 0, shown=not quiet))

        def seen(words: int) -> None:
            written[0] += words
            bar.add(words, f"{written[0]:,} words")

        given = VectorSource(source, format, limit, cast("Policy", errors))
        convert_vectors(given, out, to=to, half=half, overwrite=overwrite, seen=seen)
    if as_json:
        print_json({"out": out, "format": to})
    else:
        print(f"Written: {out}")


def _load(source: str, format: str | None, limit: int | None, errors: str) -> WordVectors:
    from textgraft.word_embeddings.formats import load_vectors

    return load_vectors(source, format=format, limit=limit, errors=cast("Policy", errors))


def neighbours(
    source: Source,
    words: Annotated[list[str], typer.Argument(help="The words to look up.")],
    number: Number = 10,
    format: Format = None,
    limit: Limit = None,
    errors: Errors = "strict",
    as_json: o.AsJson = False,
) -> None:
    """Print the nearest neighbours of each word, by cosine."""
    vectors = _load(source, format, limit, errors)
    neighbours_of = {word: vectors.neighbours(word, number) for word in words}
    if as_json:
        print_json({"neighbours": {word: _rows(near) for word, near in neighbours_of.items()}})
        return
    for word, near in neighbours_of.items():
        _print_neighbours(near, word)


def analogy(
    source: Source,
    a: Annotated[str, typer.Argument(help="As in: man is to")],
    b: Annotated[str, typer.Argument(help="king as")],
    c: Annotated[str, typer.Argument(help="woman is to …")],
    number: Number = 5,
    format: Format = None,
    limit: Limit = None,
    errors: Errors = "strict",
    as_json: o.AsJson = False,
) -> None:
    """Solve A : B = C : ?, by the nearest neighbours of B - A + C, the three words excluded."""
    answers = _load(source, format, limit, errors).analogy(a, b, c, number)
    if as_json:
        print_json({"answers": _rows(answers)})
    else:
        _print_neighbours(answers, f"{a} : {b} = {c} : …")


def evaluate(
    source: Source,
    similarity: Annotated[
        list[Path] | None,
        typer.Option("--similarity", help="A file with two words and a score per line; may be repeated."),
    ] = None,
    analogies: Annotated[Path | None, typer.Option("--analogies", help="Google's format, with sections.")] = None,
    restrict: Annotated[
        int, typer.Option("--restrict", min=1, help="Search for answers among this many of the most frequent words.")
    ] = 300_000,
    format: Format = None,
    limit: Limit = None,
    errors: Errors = "strict",
    as_json: o.AsJson = False,
) -> None:
    """Evaluate vectors: rank correlation with human similarity scores, accuracy of analogies by section."""
    from textgraft.word_embeddings import evaluation

    if not similarity and analogies is None:
        raise UserError("there is nothing to evaluate on.", remedy="Name --similarity files, --analogies, or both.")
    similarities = {path: evaluation.read_similarities(path) for path in similarity or ()}
    sections = evaluation.read_analogies(analogies) if analogies else None
    vectors = _load(source, format, limit, errors)
    results: dict[str, Any] = {}
    if similarities:
        results["similarity"] = {
            path.name: evaluation.similarity(vectors, pairs) for path, pairs in similarities.items()
        }
    if sections is not None:
        results["analogies"] = evaluation.analogies(vectors, sections, restrict=restrict)
    if as_json:
        print_json(results)
        return
    if similarities:
        head = ["similarity", "Spearman", "95 % interval", "pairs", "unknown", "by n-grams"]
        print_table(head, [_similarity_row(name, scores) for name, scores in results["similarity"].items()])
    if sections is not None:
        scores = results["analogies"]
        rows = [*scores["sections"], *({"name": kind, **scores[kind]} for kind in ("semantic", "syntactic", "total"))]
        print_table(["analogies", "accuracy", "right", "questions", "unknown"], [_section_row(row) for row in rows])


def _similarity_row(name: str, scores: dict[str, Any]) -> list[str]:
    rho = "–" if scores["spearman"] is None else f"{scores['spearman']:.3f}"
    interval = "–" if scores["low"] is None else f"{scores['low']:.3f} to {scores['high']:.3f}"
    return [name, rho, interval, *(f"{scores[key]:,}" for key in ("pairs", "unknown", "out_of_vocabulary"))]


def _section_row(row: dict[str, Any]) -> list[str]:
    share = "–" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %"
    return [row["name"], share, *(f"{row[key]:,}" for key in ("right", "questions", "unknown"))]


def plot(
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .svg or .png file to write.")],
    word: Annotated[list[str] | None, typer.Option("--word", "-w", help="A word on the map; may be repeated.")] = None,
    words: Annotated[Path | None, typer.Option("--words", help="A file with a word per line.")] = None,
    number: Annotated[
        int, typer.Option("--number", "-n", min=4, help="Without words, this many of the most frequent.")
    ] = 100,
    method: Annotated[str, typer.Option("--method", help="pca or tsne.")] = "pca",
    seed: o.Seed = 0,
    format: Format = None,
    limit: Limit = None,
    errors: Errors = "strict",
    as_json: o.AsJson = False,
) -> None:
    """Plot words in two dimensions."""
    from textgraft.data.text_files import lines
    from textgraft.word_embeddings.word_map import plot_vectors

    validate_plot(out)
    vectors = _load(source, format, limit, errors)
    requested = [*(word or ()), *([line.strip() for line in lines(words)] if words else ())]
    candidates = [each for each in requested if each] or [
        w for w in vectors.words[: 2 * number] if any(map(str.isalpha, w))
    ]
    selection = candidates if requested else candidates[:number]
    plot_vectors(vectors, selection, method=method, seed=seed).save(out)
    if as_json:
        print_json({"out": out, "words": len(selection), "method": method})
    else:
        print(f"Written: {out}")


def _rows(near: list[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": word, "cosine": cosine} for word, cosine in near]


def _print_neighbours(near: list[Neighbour], title: str) -> None:
    print_table(["word", "cosine"], [[word, f"{cosine:.3f}"] for word, cosine in near], title=title)


VERBS: tuple[Verb, ...] = (
    (
        "train",
        train,
        "textgraft vectors train wiki/*.jsonl.xz --method glove --out en-vectors --vocabulary 50000 --half",
    ),
    ("convert", convert, "textgraft vectors convert wiki.en.bin --out wiki-vectors --half"),
    ("neighbours", neighbours, "textgraft vectors neighbours glove.6B.100d.txt frog --limit 50000"),
    ("analogy", analogy, "textgraft vectors analogy en-vectors man king woman"),
    ("evaluate", evaluate, "textgraft vectors evaluate en-vectors --similarity ws353.txt --analogies questions.txt"),
    ("plot", plot, "textgraft vectors plot en-vectors -w cat -w dog -w one -w two --out words.svg"),
)
"""Name, function and example of each verb, in the order of --help."""


def group() -> typer.Typer:
    """Return the group of commands `textgraft vectors`."""
    return group_of(
        VERBS, "Word vectors: word2vec, GloVe and fastText; training, formats, neighbours, analogies, evaluation."
    )
