"""A corpus in a file to token ids on disk, by MiniLM's WordPiece."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from given import Given, first_characters
from race import Measure, Quality, Row, Turn
from timing import clocks, since

ROW = Row(
    title="Wikipedia to token ids on disk",
    peer="datasets map over a fast tokenizer",
    environment="huggingface",
    measures={"speed": Measure("MB/s", 1.5, 3), "memory": Measure("MB", 1, 2)},
    quality=Quality("tokens counted alike", "same", 1.0),
    means="words that were cut before are remembered; ids are written as they are, two bytes each, without a table",
)


def prepare(given: Given) -> dict[str, Any]:
    file = given.work / "corpus.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for text in first_characters(given.articles(), given.size(12_000_000, 2_000)):
            out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    theirs = None if given.smoke else str(given.plain)
    return {"file": str(file), "body": given.body, "theirs": theirs, "work": str(given.work)}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from datasets import disable_progress_bars, load_dataset
    from transformers import AutoTokenizer

    disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(task["theirs"])
    tokenizer.model_max_length = 10**9
    folder = Path(task["work"], "arrow")

    def encoded(rows: dict[str, list[str]]) -> dict[str, Any]:
        return {"input_ids": tokenizer(rows["text"], add_special_tokens=False)["input_ids"]}

    def turn(number: int) -> Turn:
        shutil.rmtree(folder, ignore_errors=True)
        start = clocks()
        data = load_dataset("json", data_files=task["file"], split="train", cache_dir=str(folder))
        found = data.map(encoded, batched=True, remove_columns=["text"])
        spent = since(start)
        counted = sum(len(row) for row in found.with_format("numpy")["input_ids"])
        return {"speed": {"units": megabytes(task), **spent}, "answers": [counted]}

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from textgraft.data.readers import read_texts
    from textgraft.data.streams.shards import build_corpus
    from textgraft.models.loading import load_network

    tokenizer, folder = load_network(task["body"]).tokenizer, Path(task["work"], "shards")
    written = tokenizer.to_json()
    marks = len(tokenizer.corpus_ids(["a"])[0]) - len(tokenizer.bodies(["a"])[0])

    def turn(number: int) -> Turn:
        shutil.rmtree(folder, ignore_errors=True)
        fresh = type(tokenizer).from_json(written)  # one that remembers no words of the last turn
        start = clocks()
        corpus = build_corpus(read_texts([task["file"]]), fresh, folder, source_description="bench", progress=False)
        spent = since(start)
        return {
            "speed": {"units": megabytes(task), **spent},
            "answers": [corpus.num_tokens - marks * corpus.num_documents],
        }

    return turn


def megabytes(task: dict[str, Any]) -> float:
    return Path(task["file"]).stat().st_size / 1e6
