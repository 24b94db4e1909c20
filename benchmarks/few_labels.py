"""How good is a classifier from few labels, and after how many minutes: textgraft's default beside what people use.

    python benchmarks/few_labels.py --method default ngrams --sets polarity trec --labels 100 --samples 5 --out FILE
    PEERS/bin/python benchmarks/few_labels.py --method frozen setfit trainer --model FOLDER …the same… --out FILE
    python benchmarks/few_labels.py --table FILE

Every line of FILE (JSON lines, appended to) is a training: data set, sample, method, minutes on the clock and of the
processor, and which of the test texts were right (a bit each, in hexadecimal), so that the table has intervals over
texts and samples and paired tests; research/kept/few-labels.jsonl has some. All methods have the same training samples
and the same test texts; `default` alone also has the unlabelled rest of the training texts, as a user would. The peers
(`peers/setfit.txt`) run in an environment of their own, on the same folder of all-MiniLM-L6-v2. SetFit and the Trainer
have their defaults; the Trainer five epochs. SetFit's defaults take hours for many classes: `setfit_20` limits its
pairs.

A sample has at least two texts of each class; of banking77 the same number a class.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import data_sets
import numpy as np
from data_sets import Rows
from record import machine

HERE = Path(__file__).parent
MAX_POOL = 10_000
MINUTES: float | None = None
"""Limit of `default` in place of its own, which would leave candidates out on a machine that does other work."""
ENCODER_CO_TRAINING = "bert-co-training"
"""The rung of co-training with the vectors of a BERT-like encoder as a view."""


def _split(rows: Rows, tests: int) -> tuple[Rows, Rows]:
    random.Random(7).shuffle(rows)
    return rows[:-tests], rows[-tests:]


SETS: dict[str, Callable[[Path], tuple[Rows, Rows]]] = {
    "polarity": lambda data: _split(data_sets.polarity(data), 2_000),
    "messages": lambda data: _split(data_sets.messages(data), 1_000),
    "trec": lambda data: (data_sets.trec(data), data_sets.trec(data, "test")),
    "banking77": lambda data: (data_sets.banking(data), data_sets.banking(data, "test")),
    "imdb": lambda data: (data_sets.imdb(data), data_sets.imdb(data, "test")),
    "movie-reviews": lambda data: _split(data_sets.movie_reviews(data), 1_000),
    "thai-calls": lambda data: (data_sets.thai_calls(data), data_sets.thai_calls(data, "test")),
}
"""Training and test texts."""
TITLES = {
    "polarity": "sentence polarity",
    "messages": "SMS spam",
    "trec": "TREC",
    "banking77": "banking77",
    "imdb": "IMDb",
    "movie-reviews": "film reviews (long)",
    "thai-calls": "Thai telephone calls",
}
METHOD_TITLES = {
    "ngrams": "n-grams, logistic regression",
    "frozen": "frozen, logistic regression",
    "trainer": "Trainer",
    "setfit": "SetFit",
    "setfit_20": "SetFit, 40 pairs a text",
    "default": "`finetune`",
}


def sample(rows: Rows, labels: int, seed: int, *, balanced: bool) -> tuple[Rows, list[str]]:
    """A training sample, and the texts that are left without their labels."""
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    each, counts = Counter(label for _, label in rows), Counter[str]()
    least = max(2, labels // len(each)) if balanced else 2
    chosen = []
    for index in order:
        if counts[rows[index][1]] < least:
            counts[rows[index][1]] += 1
            chosen.append(index)
    taken = set(chosen)
    chosen += [index for index in order if index not in taken][: max(0, labels - len(chosen))]
    taken = set(chosen)
    return [rows[i] for i in chosen], [rows[i][0] for i in order if i not in taken][:MAX_POOL]


def default(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """`textgraft finetune` on the texts and the pool; with it the rungs of its ladder, by their names."""
    return _finetuned(train, pool, tests, model, minutes=MINUTES)


def probe(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """The linear probe of the encoder alone."""
    return _finetuned(train, pool, tests, model, method="linear-probe")


def co_training(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """Co-training without the encoder."""
    return _finetuned(train, pool, tests, model, method="co-training")


def encoder_co_training(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """Co-training with vectors of the whole pool as a view; `linear`, which is fitted beside it, is left out."""
    answers, more = _finetuned(train, pool, tests, model, rungs={ENCODER_CO_TRAINING: len(pool)})
    return answers, more | {"right": more["rungs"][ENCODER_CO_TRAINING]}


def _finetuned(
    train: Rows, pool: list[str], tests: Rows, model: str, **options: Any
) -> tuple[list[str], dict[str, Any]]:
    from textgraft import load
    from textgraft.core.context import RunContext
    from textgraft.data.examples import Examples
    from textgraft.tasks.classification.finetune import FinetuneOptions, finetune

    def examples(rows: Rows, source: str) -> Examples:
        return Examples([text for text, _ in rows], [label for _, label in rows], "single", source=source)

    with tempfile.TemporaryDirectory() as folder:
        done = finetune(
            examples(train, "sample"),
            Path(folder) / "out",
            model=None if model == "default" or options.get("method") == "co-training" else model,
            unlabelled=pool,
            test=examples(tests, "tests"),
            options=FinetuneOptions(**options),
            context=RunContext(show=False),
        )
        made, answers = done.comparison, load(done.folder).predict([text for text, _ in tests])
        rungs = {one.name: made.scores(one)[0].astype(int).tolist() for one in (*made.outcomes[1:], *made.parts)}
        return [str(answer.label) for answer in answers], {"chosen": made.chosen, "rungs": rungs}


def ngrams(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """TF-IDF of words and logistic regression, as scikit-learn's users write it."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    made = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1_000))
    return made.fit(*zip(*train, strict=True)).predict([text for text, _ in tests]).tolist(), {}


def frozen(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """Frozen sentence vectors and logistic regression."""
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    encoder = SentenceTransformer(model, device="cpu")
    fitted = LogisticRegression(max_iter=1_000).fit(encoder.encode([t for t, _ in train]), [name for _, name in train])
    return fitted.predict(encoder.encode([text for text, _ in tests])).tolist(), {}


def setfit(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """SetFit with its defaults: pairs of all texts, as often as that oversamples the rarer kind of pair."""
    return _setfit(train, tests, model)


def setfit_20(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """SetFit with 20 positive and 20 negative pairs a text, as in its paper (arXiv:2209.11055, R = 20), not all."""
    return _setfit(train, tests, model, num_iterations=20)


def _setfit(train: Rows, tests: Rows, model: str, **options: Any) -> tuple[list[str], dict[str, Any]]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    names = sorted({name for _, name in train})
    data = Dataset.from_dict({"text": [t for t, _ in train], "label": [names.index(name) for _, name in train]})
    made = SetFitModel.from_pretrained(model, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        asked = TrainingArguments(
            output_dir=folder, report_to="none", save_strategy="no", show_progress_bar=False, **options
        )
        Trainer(model=made, args=asked, train_dataset=data).train()
    return [names[int(answer)] for answer in made.predict([text for text, _ in tests])], {}


def trainer(train: Rows, pool: list[str], tests: Rows, model: str) -> tuple[list[str], dict[str, Any]]:
    """Hugging Face's Trainer: all weights and a new head, five epochs."""
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        TrainingArguments,
    )
    from transformers import Trainer as HuggingFaceTrainer

    names, tokenizer = sorted({name for _, name in train}), AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(names))

    def encoded(texts: list[str], labels: list[int]) -> Any:
        return Dataset.from_dict({**tokenizer(texts, truncation=True, max_length=256), "labels": labels})

    data = encoded([t for t, _ in train], [names.index(name) for _, name in train])
    with tempfile.TemporaryDirectory() as folder:
        asked = TrainingArguments(folder, num_train_epochs=5, report_to="none", save_strategy="no", disable_tqdm=True)
        made = HuggingFaceTrainer(network, asked, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer))
        made.train()
        logits = made.predict(encoded([text for text, _ in tests], [0] * len(tests))).predictions
    return [names[int(answer)] for answer in np.argmax(logits, axis=1)], {}


METHODS = {
    made.__name__: made
    for made in (ngrams, frozen, trainer, setfit, setfit_20, probe, co_training, encoder_co_training, default)
}


def run(asked: argparse.Namespace) -> None:
    """Train and predict whatever FILE does not have yet."""
    done = {_cell(row) for row in _read(asked.out)}
    for seed in range(asked.samples):
        for name in asked.sets:
            train, test = SETS[name](asked.data)
            random.Random(8).shuffle(test)
            test = test[: asked.tests]
            chosen, pool = sample(train, asked.labels, seed, balanced=name == "banking77")
            for method in asked.method:
                about = {"set": name, "labels": asked.labels, "sample": seed, "method": method}
                about |= {"model": Path(asked.model).name}
                if _cell(about) in done:
                    continue
                began, cpu = time.monotonic(), time.process_time()
                answers, more = METHODS[method](chosen, pool, test, asked.model)
                minutes, cpu = (time.monotonic() - began) / 60, (time.process_time() - cpu) / 60
                right = [int(answer == label) for answer, (_, label) in zip(answers, test, strict=True)]
                row = {**about, "texts": len(chosen), "tests": len(test)}
                row |= {"minutes": round(minutes, 3), "cpu_minutes": round(cpu, 3)}
                row |= {"threads": len(os.sched_getaffinity(0)), "processor": machine()["processor"]}
                row |= {"right": right, **more}
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_packed(row)) + "\n")
                accuracy = 100 * sum(right) / len(right)
                print(f"{name:10} sample {seed} {method:8} {accuracy:5.1f} % {minutes:6.2f} min", file=sys.stderr)


def _read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [_unpacked(json.loads(line)) for line in lines]


def _packed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its right and wrong answers as bits in hexadecimal."""

    def bits(right: list[int]) -> str:
        return np.packbits(np.array(right, dtype=bool)).tobytes().hex()

    packed = row | {"right": bits(row["right"])}
    if "rungs" in row:
        packed["rungs"] = {name: bits(right) for name, right in row["rungs"].items()}
    return packed


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """What `_packed` was given."""

    def right(bits: str) -> list[int]:
        answers: list[int] = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8), count=row["tests"]).tolist()
        return answers

    unpacked = row | {"right": right(row["right"])}
    if "rungs" in row:
        unpacked["rungs"] = {name: right(bits) for name, bits in row["rungs"].items()}
    return unpacked


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["set"], row["labels"], row["sample"], row["method"], row["model"]


def _encoder(row: dict[str, Any]) -> str:
    """The name of the encoder, where it is not the MiniLM of all other rows."""
    return "" if row["model"] in ("default", "model") else row["model"]


def _place(method_and_model: tuple[str, str]) -> tuple[str, int]:
    method, model = method_and_model
    return model, list(METHODS).index(method)


def _title(name: str, labels: int) -> str:
    """`TREC`, or `TREC, 500 labels`."""
    if name == "banking77":
        return f"{TITLES[name]}, {labels // 77} labels for each of 77 intents"
    return TITLES[name] if labels == 100 else f"{TITLES[name]}, {labels} labels"


def _minutes(rows: Sequence[dict[str, Any]]) -> str:
    """`7.06`, or `7.06 (4.93)` with the minutes on the clock."""
    of_processor, on_clock = (np.mean([row[key] for row in rows]) for key in ("cpu_minutes", "minutes"))
    several = all(row["threads"] > 1 for row in rows)
    return f"{of_processor:.2f} ({on_clock:.2f})" if several else f"{of_processor:.2f}"


def table(path: Path) -> str:
    """A Markdown table: accuracy with its interval, minutes of the processor, and what `finetune` is ahead by.

    Minutes on the clock stand in brackets, for rows of several threads.
    """
    from textgraft.core.formatting import p_value
    from textgraft.metrics.classification import bootstrap_interval, paired_test

    rows = _read(path)
    lines = ["| data | method | accuracy % [95 % interval] | processor minutes | samples | `finetune` ahead by |"]
    lines.append("|---|---|---|---|---|---|")
    for name, labels in sorted({(row["set"], row["labels"]) for row in rows}, key=_order):
        cells, title = [row for row in rows if (row["set"], row["labels"]) == (name, labels)], _title(name, labels)
        ours = {row["sample"]: row["right"] for row in cells if row["method"] == "default" and not _encoder(row)}
        for method, model in sorted({(row["method"], _encoder(row)) for row in cells}, key=_place):
            of = {row["sample"]: row for row in cells if (row["method"], _encoder(row)) == (method, model)}
            mean, low, high = bootstrap_interval(np.array([of[seed]["right"] for seed in sorted(of)], dtype=float))
            both, ahead = sorted(of.keys() & ours.keys()), ""
            if method != "default" and both:
                theirs = np.array([of[seed]["right"] for seed in both], dtype=float)
                test = paired_test(np.array([ours[seed] for seed in both], dtype=float), theirs)
                ahead = f"{100 * test.difference:+.1f} ({p_value(test.p)}{_on(both) if len(both) < len(of) else ''})"
            lines.append(
                f"| {title} | {METHOD_TITLES.get(method, method)}{f', {model}' if model else ''} "
                f"| {100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}] "
                f"| {_minutes([*of.values()])} | {len(of)} | {ahead} |".replace("  ", " ")
            )
            title = ""
    return "\n".join(lines)


def _on(samples: Sequence[int]) -> str:
    return f", {len(samples)} samples" if len(samples) > 1 else ", 1 sample"


def _order(name_and_labels: tuple[str, int]) -> tuple[bool, int, int]:
    name, labels = name_and_labels
    return labels == 500, list(SETS).index(name), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["default", "ngrams"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["polarity", "trec", "messages", "banking77"])
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--tests", type=int, default=1_000, help="at most so many test texts")
    parser.add_argument("--model", default="default", help="a folder of sentence-transformers; for `default` a name")
    parser.add_argument("--minutes", type=float, help="limit of `default`; else its own")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "few_labels.jsonl")
    parser.add_argument("--table", type=Path, help="print the table of this file, and train nothing")
    asked = parser.parse_args()
    global MINUTES
    MINUTES = asked.minutes
    if asked.table is not None:
        print(table(asked.table))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    run(asked)


if __name__ == "__main__":
    main()
