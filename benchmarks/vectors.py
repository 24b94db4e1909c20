"""Word vectors of the same text by our commands' functions and by gensim alone: words a second, and what they know.

    python benchmarks/vectors.py DATA/enwiki/train-0*.jsonl.xz --words 10000000 \
        --similarity DATA/word-similarity/EN-*.txt --analogies DATA/word-similarity/questions-words.txt

Every side trains on the same words in the same order, on one thread, with the same dimensions and vocabulary. Words a
second are those read, all epochs together, by the processor's clock, which others' work on the same machine does not
stretch; cutting text into words is left out and told apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from textgraft import VectorOptions, WordVectors, train_vectors
from textgraft.core.files import write_atomically
from textgraft.data.readers import read_texts
from textgraft.word_embeddings.corpus import WordFile
from textgraft.word_embeddings.evaluation import analogies, read_analogies, read_similarities, similarity

METHODS = ("skipgram", "cbow", "fasttext", "glove")
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Print one row a side, and write them with --json."""
    options = arguments()
    if set(options.methods) != {"glove"}:
        import gensim.models  # noqa: F401  (here, so that nobody is charged with the seconds that it takes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        corpus = WordFile.write(
            first_words(read_texts(options.files), options.words), Path(folder) / "words", lowercase=True
        )
        words = sum(corpus.counts.values())
        print(f"{words:,} words, {words / (time.process_time() - began):,.0f} words/s to cut")
        texts = [" ".join(line) for line in corpus.sentences()]
        rows = {}
        for name, side in sides(options, corpus, texts).items():
            vectors, seconds, epochs = side()
            rows[name] = {"words_per_second": words * epochs / seconds, "epochs": epochs, "seconds": seconds}
            rows[name] |= {"vocabulary": len(vectors)} | scores(vectors, options)
            print(told(name, rows[name]))
    if options.json:
        settings = {"words": words, "dimensions": options.dimensions, "vocabulary": options.vocabulary}
        content = {"settings": settings | {"min_count": options.min_count}, "rows": rows}
        write_atomically(options.json, (json.dumps(content, indent=1) + "\n").encode())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="texts, as textgraft.read takes them")
    parser.add_argument("--words", type=int, default=10_000_000, help="of the texts, from the beginning")
    parser.add_argument("--dimensions", type=int, default=100)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0, help="else each method's own")
    parser.add_argument("--methods", nargs="+", default=["skipgram", "glove"], choices=METHODS)
    parser.add_argument("--similarity", nargs="*", default=[])
    parser.add_argument("--analogies")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def first_words(texts: Iterable[str], most: int) -> Iterator[str]:
    """Whole texts, until about so many words have been seen."""
    seen = 0
    for text in texts:
        yield text
        seen += len(text.split())
        if seen >= most:
            return


Side = Callable[[], tuple[WordVectors, float, int]]


def sides(options: argparse.Namespace, corpus: WordFile, texts: list[str]) -> dict[str, Side]:
    """Ours by method, and gensim's Word2Vec with its own vocabulary; each gives vectors, seconds and epochs."""
    chosen = VectorOptions(
        dimensions=options.dimensions,
        vocabulary=options.vocabulary,
        min_count=options.min_count,
        epochs=options.epochs,
    )

    def ours(method: Any) -> tuple[WordVectors, float, int]:
        began = time.process_time()
        vectors = train_vectors(texts, method, options=chosen)
        return vectors, time.process_time() - began - cutting(texts), vectors.run["settings"]["epochs"]

    found: dict[str, Side] = {f"textgraft {name}": lambda name=name: ours(name) for name in options.methods}
    if {"skipgram", "cbow"} & set(options.methods):
        found["gensim Word2Vec, skip-gram"] = lambda: gensim_alone(corpus, options)
    return found


def cutting(texts: list[str]) -> float:
    """Seconds that cutting these texts takes, which a training is not to be charged with."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        WordFile.write(texts, Path(folder) / "words", lowercase=True)
        return time.process_time() - began


def gensim_alone(corpus: WordFile, options: argparse.Namespace) -> tuple[WordVectors, float, int]:
    from gensim.models import Word2Vec

    epochs = options.epochs or 5
    began = time.process_time()
    model = Word2Vec(
        corpus_file=str(corpus.path),
        vector_size=options.dimensions,
        min_count=options.min_count,
        max_final_vocab=options.vocabulary,
        sg=1,
        epochs=epochs,
        workers=1,
        seed=0,
    )
    seconds = time.process_time() - began
    return WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors)), seconds, epochs


def scores(vectors: WordVectors, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in options.similarity:
        found[Path(path).stem] = similarity(vectors, read_similarities(path))
    if options.analogies:
        answered = analogies(vectors, read_analogies(options.analogies))
        found["analogies"] = {kind: answered[kind] for kind in ("semantic", "syntactic", "total")}
    return found


def told(name: str, row: dict[str, Any]) -> str:
    """One row of a table in markdown."""
    cells = [name, f"{row['words_per_second']:,.0f} words/s", f"{row['vocabulary']:,} words"]
    for test, found in row.items():
        if isinstance(found, dict) and "spearman" in found:
            rho = "–" if found["spearman"] is None else f"{found['spearman']:.3f}"
            interval = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
            cells.append(f"{test} {rho}{interval}, {found['pairs']:,} pairs")
    if "analogies" in row:
        for kind, found in row["analogies"].items():
            share = "–" if found["accuracy"] is None else f"{100 * found['accuracy']:.1f} %"
            cells.append(f"{kind} {share} of {found['questions']:,}")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
