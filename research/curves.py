"""Learning curves on real data sets: `python research/curves.py trec --labels 100,500,all --seeds 5`.

Reads a data set as it was published (--data: the folder that holds imdb, trec and so on), takes the published test set
or a fixed sample of it, and hands all to `textgraft compare`, whose report and results.json then lie in
research/results/curves/NAME. --keep adds its figures to research/kept/NAME.json, of which `research/tables.py` makes
the tables of docs/results.md. The pool is the training texts without their labels, and what was published without any.
`linear`, `lsa`, `vectors` and `co-training` take minutes; every other method of `textgraft compare --help` may be
named too.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import tables

from textgraft import compare
from textgraft.comparison.methods import METHODS, MethodOptions
from textgraft.data.examples import Examples

HERE = Path(__file__).parent
QUICK = ("linear", "lsa", "vectors", "co-training")
Rows = list[tuple[str, str]]
"""Texts with their labels; an empty label where there is none."""


def imdb(folder: Path) -> tuple[Rows, Rows, list[str]]:
    """Film reviews, pos or neg; the published split, without the test reviews that are also in training.

    The pool is the 50,000 published without labels and those to train on without theirs, as in ULMFiT's paper.
    """
    parts = {}
    for name in ("train", "test", "unsup"):
        with lzma.open(folder / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
            parts[name] = [(row["text"], row.get("label") or "") for row in map(json.loads, lines)]
    seen = {text for text, _ in parts["train"]}
    test = [row for row in parts["test"] if row[0] not in seen]
    return parts["train"], test, [text for name in ("unsup", "train") for text, _ in parts[name]]


def movie_reviews(folder: Path) -> tuple[Rows, Rows, list[str]]:
    """Long film reviews, pos or neg; a random half is the test set."""
    with tarfile.open(folder / "movie_reviews.tar.xz") as archive:
        rows = [
            (archive.extractfile(member).read().decode("utf-8", "replace"), Path(member.name).parent.name)  # type: ignore[union-attr]
            for member in sorted(archive.getmembers(), key=lambda m: m.name)
            if member.isfile() and Path(member.name).parent.name in ("neg", "pos")
        ]
    return halves(rows)


def sms_spam(folder: Path) -> tuple[Rows, Rows, list[str]]:
    """Text messages, ham or spam, each once; a random half is the test set."""
    lines = (folder / "SMSSpamCollection").read_text("utf-8").splitlines()
    rows = dict.fromkeys((text, label.lower()) for label, text in (line.split("\t", 1) for line in lines))
    return halves(list(rows))


def trec(folder: Path) -> tuple[Rows, Rows, list[str]]:
    """Questions by what they ask for, six classes; the published split."""
    parts = []
    for name in ("train", "test"):
        lines = (folder / f"{name}.txt").read_text("latin-1").splitlines()
        parts.append([(line.split(" ", 1)[1], line.split(":", 1)[0]) for line in lines])
    return parts[0], parts[1], [text for text, _ in parts[0]]


def truevoice(folder: Path) -> tuple[Rows, Rows, list[str]]:
    """Thai telephone calls by where they should be routed, seven classes; the published split."""
    parts = []
    with zipfile.ZipFile(folder / "mari-intent.zip") as archive:
        for name in ("train", "test"):
            lines = io.StringIO(archive.read(f"mari_{name}.csv").decode("utf-8-sig"))
            parts.append([(row["texts"], row["destination"]) for row in csv.DictReader(lines)])
    return parts[0], parts[1], [text for text, _ in parts[0]]


DATA: dict[str, tuple[str, Callable[[Path], tuple[Rows, Rows, list[str]]]]] = {
    "imdb": ("imdb", imdb),
    "movie-reviews": ("movie-reviews", movie_reviews),
    "sms-spam": ("sms-spam", sms_spam),
    "trec": ("trec", trec),
    "truevoice": ("truevoice-th", truevoice),
}
"""Folder and reader of each data set."""


def sample(rows: Rows, count: int) -> Rows:
    order = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[i] for i in order]


def halves(rows: Rows) -> tuple[Rows, Rows, list[str]]:
    shuffled = sample(rows, len(rows))
    middle = len(rows) // 2
    return shuffled[:middle], shuffled[middle:], [text for text, _ in shuffled[:middle]]


def examples(rows: Iterable[tuple[str, str]], source: str) -> Examples:
    texts, labels = zip(*rows, strict=True)
    return Examples(list(texts), list(labels), "single", source=source)


def so_many(given: str) -> int | None:
    """A number of texts, None for all."""
    if given != "all" and int(given) < 1:
        raise ValueError(given)
    return None if given == "all" else int(given)


def command(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """What to type for the same figures: what differs from the defaults, without what only says where files lie."""
    given = {name: value for name, value in vars(asked).items() if value != parser.get_default(name)}
    said = [
        f"--{name.replace('_', '-')} {'all' if value is None else f'{value:g}' if isinstance(value, float) else value}"
        for name, value in given.items()
        if name not in ("name", "data", "out", "reuse", "keep")
    ]
    return " ".join(["python research/curves.py", asked.name, *said])


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=DATA)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--labels", default="100,500,all")
    parser.add_argument("--methods", default=",".join(QUICK), help="with commas, of: " + ", ".join(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", help="default: each method's usual one")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--adapt-minutes", type=float)
    parser.add_argument("--minutes", type=float, help="what the language model's trainings may take in a blend")
    parser.add_argument(
        "--tested", type=so_many, default=5000, help="so many of the test texts, the same each time, or all"
    )
    parser.add_argument("--reuse", type=Path, help="another run, finished or not, whose answers are taken")
    parser.add_argument("--keep", action="store_true", help="add the figures to those of docs/results.md")
    parser.add_argument("--out", type=Path, help="default: research/results/curves/NAME")
    return parser


def main() -> None:
    parser = options()
    asked = parser.parse_args()
    folder, read = DATA[asked.name]
    train, test, pool = read(asked.data / folder)
    if asked.tested is not None and asked.tested < len(test):
        test = sample(test, asked.tested)
    results = compare(
        examples(train, asked.name),
        asked.out or HERE / "results" / "curves" / asked.name,
        test=examples(test, f"{asked.name} test"),
        unlabelled=pool,
        methods=asked.methods.split(","),
        labels=asked.labels.split(","),
        options=MethodOptions(
            seeds=asked.seeds,
            model=asked.model,
            recipe=asked.recipe,
            max_tokens=asked.max_tokens,
            adapt_minutes=asked.adapt_minutes,
            minutes=asked.minutes,
        ),
        reuse=asked.reuse,
    )
    if asked.keep:
        recipe = None if asked.recipe == parser.get_default("recipe") else asked.recipe
        tables.keep(results, command(asked, parser), tables.KEPT / f"{asked.name}.json", recipe)


if __name__ == "__main__":
    main()
