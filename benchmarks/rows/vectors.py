"""Skip-gram vectors of the English Wikipedia's words, three epochs; what they know of words' likeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given, first_characters
from race import Measure, Quality, Row, Turn
from timing import clocks, since

ROW = Row(
    title="skip-gram of Wikipedia, 100 dimensions, words of all epochs",
    peer="gensim Word2Vec, on words that are cut already",
    environment=None,
    measures={"speed": Measure("words/s", 1, 1.5), "memory": Measure("MB")},
    quality=Quality("SimLex-999 and WordSim-353, mean rho", "higher", 0.03),
    means="gensim's own loop trains ours too; what is counted here is cutting the text as well",
    rounds=2,
)
SETTINGS = {"dimensions": 100, "vocabulary": 30_000, "min_count": 5, "epochs": 3}


def prepare(given: Given) -> dict[str, Any]:
    texts = list(first_characters(given.articles(), given.size(12_000_000, 1_000)))
    tests = [] if given.smoke else [str(path) for path in sorted((given.data / "word-similarity").glob("EN-*.txt"))]
    tests = [path for path in tests if "SIMLEX" in path.upper() or "WS-353-ALL" in path.upper()]
    return {"texts": texts, "tests": tests, "threads": 1, "least": given.size(5, 1)}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from gensim.models import Word2Vec

    from textgraft import WordVectors
    from textgraft.text.words import split_words

    lines = [[text[a:b].lower() for a, b in split_words(text)] for text in task["texts"]]
    words = SETTINGS["epochs"] * sum(map(len, lines))

    def turn(number: int) -> Turn:
        start = clocks()
        model = Word2Vec(
            lines,
            vector_size=SETTINGS["dimensions"],
            min_count=task["least"],
            max_final_vocab=SETTINGS["vocabulary"],
            sg=1,
            epochs=SETTINGS["epochs"],
            workers=1,
            seed=number,
        )
        spent = since(start)
        return {"speed": {"units": words, **spent}} | known(WordVectors(model.wv.index_to_key, model.wv.vectors), task)

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from textgraft import VectorOptions, train_vectors
    from textgraft.text.words import split_words

    words = SETTINGS["epochs"] * sum(len(split_words(text)) for text in task["texts"])
    options = SETTINGS | {"min_count": task["least"]}

    def turn(number: int) -> Turn:
        start = clocks()
        vectors = train_vectors(task["texts"], "skipgram", options=VectorOptions(**options, seed=number))
        spent = since(start)
        return {"speed": {"units": words, **spent}} | known(vectors, task)

    return turn


def known(vectors: Any, task: dict[str, Any]) -> dict[str, float]:
    """The mean rank correlation with what people said."""
    from textgraft.word_embeddings.evaluation import read_similarities, similarity

    found = [similarity(vectors, read_similarities(path))["spearman"] for path in task["tests"]]
    return {"quality": sum(found) / len(found)} if found else {}
