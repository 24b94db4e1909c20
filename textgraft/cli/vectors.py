"""textgraft vectors: word vectors made, converted, asked and measured."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.groups import Verb, group_of
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.word_embeddings.options import Method
    from textgraft.word_embeddings.word_vectors import Neighbour

N_GRAMS = "fastText's n-grams"
Source = Annotated[str, typer.Argument(metavar="VECTORS", help="A folder, the name of vectors that ship, or a file.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="word2vec (and .vec), word2vec-binary, glove or fasttext (.bin); else told by its look."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Read the most frequent words only.")]
Number = Annotated[int, typer.Option("--number", "-n", min=1, help="How many words to give.")]


def train(
    files: Annotated[list[Path], typer.Argument(help="Texts: files, folders or globs, labelled or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    method: Annotated[str, typer.Option("--method", help="skipgram, cbow, fasttext or glove.")] = "skipgram",
    dimensions: Annotated[int, typer.Option("--dimensions", min=1)] = 100,
    window: Annotated[int | None, typer.Option("--window", min=1, help="Words to each side; else 5, glove 10.")] = None,
    min_count: Annotated[int, typer.Option("--min-count", min=1, help="Words seen less often have no vector.")] = 5,
    vocabulary: Annotated[int | None, typer.Option("--vocabulary", min=2, help="The most words.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Else 5, glove 25.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Else 0.025 for skipgram, 0.05.")] = None,
    negative: Annotated[int, typer.Option("--negative", help="Negative samples for each word.")] = 5,
    hierarchical: Annotated[bool, typer.Option("--hierarchical", help="Hierarchical softmax instead.")] = False,
    sample: Annotated[float, typer.Option("--sample", min=0, help="Sub-sampling threshold; 0 is none.")] = 1e-3,
    minn: Annotated[int, typer.Option("--minn", min=1, rich_help_panel=N_GRAMS)] = 3,
    maxn: Annotated[int, typer.Option("--maxn", min=1, rich_help_panel=N_GRAMS)] = 6,
    buckets: Annotated[int, typer.Option("--buckets", min=1, rich_help_panel=N_GRAMS)] = 2_000_000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Tell Turkey from turkey.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store numbers as float16.")] = False,
    text: o.TextColumn = None,
    encoding: o.Encoding = None,
    language: Annotated[str | None, typer.Option("--language", help="Of the texts, for the card.")] = None,
    licence: Annotated[str | None, typer.Option("--licence", help="Of the vectors, for the card.")] = None,
    seed: o.Seed = 0,
    threads: Annotated[
        int,
        typer.Option("--threads", min=1, help="With 1 the same seed gives the same bits.", rich_help_panel=o.TRAINING),
    ] = 1,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Learn word vectors from text; all methods but glove are trained by gensim, textgraft's extra "vectors"."""
    from textgraft.core.files import validate_writable
    from textgraft.data.fingerprint import fingerprints
    from textgraft.data.readers import read_texts
    from textgraft.models.model_folder import refuse_existing
    from textgraft.word_embeddings.formats import save_vectors
    from textgraft.word_embeddings.options import VectorOptions
    from textgraft.word_embeddings.training import train_vectors

    refuse_existing(out, overwrite)
    validate_writable(out)
    given: dict[str, Any] = {"dimensions": dimensions, "min_count": min_count, "vocabulary": vocabulary}
    given |= {"window": window or 0, "epochs": epochs or 0, "rate": rate or 0.0, "negative": negative, "sample": sample}
    given |= {"hierarchical": hierarchical, "minn": minn, "maxn": maxn, "buckets": buckets}
    options = VectorOptions(lowercase=not keep_case, seed=seed, workers=threads, **given)
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
        print(f"Written: {out} ({len(vectors):,} words of {shape['tokens']:,} read, {vectors.dimensions} dimensions)")


def convert(
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder (textgraft) or file to write.")],
    to: Annotated[
        str, typer.Option("--to", help="textgraft, word2vec (and .vec), word2vec-binary, glove or fasttext (.bin).")
    ] = "textgraft",
    format: Format = None,
    limit: Limit = None,
    half: Annotated[bool, typer.Option("--half", help="Store textgraft's numbers as float16.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out already.")] = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Write vectors in another format, block by block; in textgraft's they open at once and stay on disk."""
    from textgraft.word_embeddings.formats import convert_vectors
    from textgraft.word_embeddings.progress import Bar

    written = [0]
    with ExitStack() as open_bars:
        bar = open_bars.enter_context(Bar("Converting", limit or 0, shown=not quiet))

        def seen(words: int) -> None:
            written[0] += words
            bar.add(words, f"{written[0]:,} words")

        convert_vectors(source, out, to=to, format=format, limit=limit, half=half, overwrite=overwrite, seen=seen)
    if as_json:
        print_json({"out": out, "format": to})
    else:
        print(f"Written: {out}")


def neighbours(
    source: Source,
    words: Annotated[list[str], typer.Argument(help="Words to ask for.")],
    number: Number = 10,
    format: Format = None,
    limit: Limit = None,
    as_json: o.AsJson = False,
) -> None:
    """The words nearest to each word, by cosine."""
    from textgraft.word_embeddings.formats import load_vectors

    vectors = load_vectors(source, format=format, limit=limit)
    found = {word: vectors.neighbours(word, number) for word in words}
    if as_json:
        print_json({"neighbours": {word: _rows(near) for word, near in found.items()}})
        return
    for word, near in found.items():
        _tell(near, word)


def analogy(
    source: Source,
    a: Annotated[str, typer.Argument(help="As in: man is to")],
    b: Annotated[str, typer.Argument(help="king as")],
    c: Annotated[str, typer.Argument(help="woman is to …")],
    number: Number = 5,
    format: Format = None,
    limit: Limit = None,
    as_json: o.AsJson = False,
) -> None:
    """What is to C as B is to A: the words nearest to B - A + C, none of the three among them."""
    from textgraft.word_embeddings.formats import load_vectors

    found = load_vectors(source, format=format, limit=limit).analogy(a, b, c, number)
    if as_json:
        print_json({"answers": _rows(found)})
    else:
        _tell(found, f"{a} : {b} = {c} : …")


def evaluate(
    source: Source,
    similarity: Annotated[
        list[Path] | None, typer.Option("--similarity", help="Lines of two words and a score; may be repeated.")
    ] = None,
    analogies: Annotated[Path | None, typer.Option("--analogies", help="Google's format, with sections.")] = None,
    restrict: Annotated[
        int, typer.Option("--restrict", min=1, help="Look for answers among so many of the most frequent words.")
    ] = 300_000,
    format: Format = None,
    limit: Limit = None,
    as_json: o.AsJson = False,
) -> None:
    """Say how good vectors are: rank correlation with people's judgements, analogies by section."""
    from textgraft.word_embeddings import evaluation
    from textgraft.word_embeddings.formats import load_vectors

    if not similarity and analogies is None:
        raise UserError("there is nothing to measure on.", remedy="Name --similarity files, --analogies, or both.")
    judged = {path: evaluation.read_similarities(path) for path in similarity or ()}
    sections = evaluation.read_analogies(analogies) if analogies else None
    vectors = load_vectors(source, format=format, limit=limit)
    results: dict[str, Any] = {}
    if judged:
        results["similarity"] = {path.name: evaluation.similarity(vectors, pairs) for path, pairs in judged.items()}
    if sections is not None:
        results["analogies"] = evaluation.analogies(vectors, sections, restrict=restrict)
    if as_json:
        print_json(results)
        return
    if judged:
        head = ["similarity", "Spearman", "95 % interval", "pairs", "unknown", "by n-grams"]
        print_table(head, [_judged_row(name, found) for name, found in results["similarity"].items()])
    if sections is not None:
        found = results["analogies"]
        rows = [*found["sections"], *({"name": kind, **found[kind]} for kind in ("semantic", "syntactic", "total"))]
        print_table(["analogies", "accuracy", "right", "questions", "unknown"], [_section_row(row) for row in rows])


def _judged_row(name: str, found: dict[str, Any]) -> list[str]:
    rho = "–" if found["spearman"] is None else f"{found['spearman']:.3f}"
    interval = "–" if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}"
    return [name, rho, interval, *(f"{found[key]:,}" for key in ("pairs", "unknown", "out_of_vocabulary"))]


def _section_row(row: dict[str, Any]) -> list[str]:
    share = "–" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %"
    return [row["name"], share, *(f"{row[key]:,}" for key in ("right", "questions", "unknown"))]


def plot(
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .svg or .png file to write.")],
    word: Annotated[list[str] | None, typer.Option("--word", "-w", help="A word to show; may be repeated.")] = None,
    words: Annotated[Path | None, typer.Option("--words", help="A file with a word a line.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=4, help="With neither, the most frequent words.")] = 100,
    method: Annotated[str, typer.Option("--method", help="pca or tsne.")] = "pca",
    seed: o.Seed = 0,
    format: Format = None,
    limit: Limit = None,
    as_json: o.AsJson = False,
) -> None:
    """Draw a map of words in two dimensions."""
    from textgraft.core.files import validate_writable
    from textgraft.data.text_files import lines
    from textgraft.word_embeddings.formats import load_vectors
    from textgraft.word_embeddings.word_map import plot_vectors

    if out.suffix not in (".svg", ".png"):
        raise UserError("plots are written as .svg or .png.", where=str(out), remedy="Name such a file.")
    validate_writable(out)
    vectors = load_vectors(source, format=format, limit=limit)
    asked = [*(word or ()), *([line.strip() for line in lines(words)] if words else ())]
    shown = [each for each in asked if each] or [w for w in vectors.words[: 2 * number] if any(map(str.isalpha, w))]
    chosen = shown if asked else shown[:number]
    plot_vectors(vectors, chosen, method=method, seed=seed).save(out)
    if as_json:
        print_json({"out": out, "words": len(chosen), "method": method})
    else:
        print(f"Written: {out}")


def _rows(near: list[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": word, "cosine": cosine} for word, cosine in near]


def _tell(near: list[Neighbour], title: str) -> None:
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
"""Name, function and an example for --help, in the order that help lists them."""


def group() -> typer.Typer:
    """`textgraft vectors` with its verbs."""
    return group_of(VERBS, "Word vectors: word2vec, GloVe and fastText; their files, neighbours, analogies and scores.")
