"""How right is `textgraft zero-shot`: similarity alone, and with self-training on the pool?

    python benchmarks/zero_shot.py [--labelled 0 1 4 8] [--model minilm] [--texts 1000] [--pool 2000] [--json FILE]

Of each data set `--texts` random texts are classified, once by the labels' names and once by descriptions, which were
written before the first run; their labels are used for nothing but the accuracy. The pool for self-training is these
texts and `--pool` others, without labels; with `--labelled`, some of the others have theirs, as the first labels of a
project, and scikit-learn's logistic regression on the vectors of these alone stands beside. The constants of the
method were chosen on TREC and SMS spam, so the rows of these flatter it. banking77 (names only) had a part in one:
n-grams take part from 100 texts a label on; sentence-polarity in another: from a pool of 1,000 texts on.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import Rows, banking, messages, polarity, trec
from sklearn.linear_model import LogisticRegression

from textgraft.core.formatting import interval, p_value
from textgraft.metrics.classification import bootstrap_interval, paired_test
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.tasks.classification.self_training import CO_TRAINING, SIMILARITY, ZeroShot
from textgraft.tasks.classification.zero_shot import cached_embedder, sentence_encoder

REGRESSION = "logistic regression"
DATA: dict[str, Callable[[Path], Rows]] = {
    "sentence-polarity": polarity,
    "trec": trec,
    "sms-spam": messages,
    "banking77": banking,
}
NAMES = {
    "trec": {
        "ABBR": "abbreviation",
        "DESC": "description",
        "ENTY": "entity",
        "HUM": "human",
        "LOC": "location",
        "NUM": "number",
    }
}
"""Names in place of codes; other labels are their own names."""
DESCRIPTIONS: dict[str, dict[str, list[str]]] = {
    "sentence-polarity": {
        "negative": ["negative", "A bad film: dull, clumsy, a disappointment.", "The critic dislikes the movie."],
        "positive": ["positive", "A good film: moving, funny, a pleasure.", "The critic likes the movie."],
    },
    "trec": {
        "ABBR": [
            "abbreviation",
            "What does an abbreviation stand for?",
            "The question asks for the meaning of an acronym.",
        ],
        "DESC": [
            "description",
            "What is the definition of a word? How or why does something happen?",
            "The question asks for a definition, a reason, or the way something is done.",
        ],
        "ENTY": [
            "entity",
            "Which animal, product, food, sport, colour, book, film or other thing?",
            "The question asks for a thing: an animal, a food, a product, a work of art, a word.",
        ],
        "HUM": [
            "human",
            "Who is a person? Which group or company?",
            "The question asks for a person or an organization.",
        ],
        "LOC": [
            "location",
            "Where is a place? Which city, country or mountain?",
            "The question asks for a place: a city, a country, a state.",
        ],
        "NUM": [
            "number",
            "How many, how much, how long, when?",
            "The question asks for a number, a date, a price or an amount.",
        ],
    },
    "sms-spam": {
        "ham": [
            "ham",
            "A personal message to a friend or to the family.",
            "An everyday chat: plans, news, greetings.",
        ],
        "spam": [
            "spam",
            "An advertisement or a scam: you have won a prize, call now.",
            "A commercial offer sent to many people: free, claim, text to a number.",
        ],
    },
}


def measured(
    model: str, name: str, rows: Rows, texts: int, pool: int, per_label: list[int]
) -> Iterator[dict[str, Any]]:
    """Accuracies of one data set, by names and by descriptions, with some labelled texts of the pool or none."""
    rows = list(dict(rows).items())  # each text once
    random.Random(0).shuffle(rows)
    tested, others = rows[:texts], rows[texts : texts + pool]
    labels = sorted({label for _, label in rows})
    embed = cached_embedder(sentence_encoder(model), show=True)
    began = time.monotonic()
    embed([text for text, _ in tested + others])
    most = Counter(label for _, label in tested).most_common(1)[0][1] / len(tested)
    common = {"data": name, "texts": len(tested), "pool": len(tested) + len(others), "labels": len(labels)}
    common |= {"most frequent": most, "seconds of embedding": time.monotonic() - began}
    forms: dict[str, Any] = {"names": NAMES.get(name) or labels}
    forms |= {"descriptions": DESCRIPTIONS[name]} if name in DESCRIPTIONS else {}
    for count in per_label:
        labelled = [row for label in labels for row in [row for row in others if row[1] == label][:count]]
        for form, of in forms.items():
            found = common | {"by": form, "labelled texts a label": count}
            yield found | accuracies(embed, LabelTexts.of(of), tested, others, labelled)


def accuracies(embed: Any, labels: LabelTexts, tested: Rows, others: Rows, labelled: Rows) -> dict[str, Any]:
    """Accuracy with its interval of each method; labelled texts are not in the pool."""
    texts = [text for text, _ in tested]
    pool = [*texts, *(text for text, _ in others if text not in dict(labelled))]
    few = [text for text, _ in labelled]
    targets = [labels.names.index(label) for _, label in labelled]
    found: dict[str, dict[str, Any]] = {}
    correct: dict[str, np.ndarray] = {}
    for method in (SIMILARITY, CO_TRAINING, REGRESSION):
        began = time.monotonic()
        if method == REGRESSION:
            if not few:
                continue
            outputs = LogisticRegression(max_iter=1000).fit(embed(few), targets).predict_proba(embed(texts))
            did = method
        else:
            model = ZeroShot(embed, method=method).fit(labels, pool, texts=few, targets=targets)
            outputs, did = model.outputs(texts), model.about
        names = [labels.names[i] for i in outputs.argmax(axis=1)]
        correct[method] = np.array([a == b for a, (_, b) in zip(names, tested, strict=True)], dtype=float)
        interval_of = bootstrap_interval(correct[method])._asdict()
        found[method] = {**interval_of, "seconds": time.monotonic() - began, "did": did}
    return {"accuracy": found, "p": paired_test(correct[CO_TRAINING], correct[SIMILARITY]).p}


def row_of(result: Mapping[str, Any]) -> str:
    """A line of the table in Markdown."""

    def score(method: str) -> str:
        found = result["accuracy"].get(method)
        return interval(found["mean"], found["low"], found["high"], "accuracy") if found else ""

    cells = [f"{result['data']}, by {result['by']}", str(result["labelled texts a label"])]
    cells += [f"{100 * result['most frequent']:.1f} %", score(REGRESSION), score(SIMILARITY), score(CO_TRAINING)]
    return "| " + " | ".join([*cells, result["accuracy"][CO_TRAINING]["did"], p_value(result["p"])]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--labelled", type=int, nargs="+", default=[0], help="labelled texts a label")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--pool", type=int, default=2000)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    head = [
        "data",
        "labelled texts a label",
        "most frequent label",
        REGRESSION,
        "similarity",
        "zero-shot",
        "method",
        "p",
    ]
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    results = []
    for name, rows_of in DATA.items():
        for result in measured(given.model, name, rows_of(given.data), given.texts, given.pool, given.labelled):
            results.append(result)
            print(row_of(result), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"model": given.model, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
