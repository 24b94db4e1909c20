"""Streamed pretraining text: memory and speed over gigabytes, and equal batches after kills at random moments.

    python research/streaming.py memory FILES --gigabytes 2 --tokenizer pretrained/en-bert-small/tokenizer.json
    python research/streaming.py speed FILES --tokenizer pretrained/en-bert-small/tokenizer.json
    python research/streaming.py resume FILES --blocks 40 --kills 12 --tokenizer pretrained/en-bert-small/tokenizer.json

`memory` reads the files as often as they are needed for so much text, makes all batches, trains nothing, and prints the
resident memory of the process and of those that tokenize at every tenth. `speed` writes token shards with one process
that tokenizes, and prints the processor time of it and of its parent, whose ratio is the number of processes that one
parent can feed. `resume` makes the batches of some blocks in a
process that is killed (SIGKILL) at random moments and started again, and compares their hashes with those of a process
that nobody disturbs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from textgraft.core.files import temporary_folder, write_atomically
from textgraft.data.readers import read_texts
from textgraft.data.streams.base import ScatteredStream
from textgraft.data.streams.blocks import BlockCorpus, BlockStream
from textgraft.data.streams.shards import build_corpus
from textgraft.tasks.language_modeling.streamed_text import StreamedText
from textgraft.text.tokenizer import Tokenizer


def stream_of(options: argparse.Namespace) -> BlockStream:
    text = StreamedText(options.files, processes=options.processes, block_tokens=options.block_tokens)
    reading = text.listed(None, tokens=None, seed=0).reading
    corpus = BlockCorpus(replace(reading, tokenizer=Tokenizer.load(options.tokenizer).to_json()))
    return BlockStream(ScatteredStream(corpus, rows=32, bptt=256, seed=0), corpus)


def hash_of(batch: object) -> str:
    return hashlib.sha256(batch.ids.numpy().tobytes()).hexdigest()  # type: ignore[attr-defined]


def memory(options: argparse.Namespace) -> None:
    stream, process = stream_of(options), psutil.Process()
    began, shown, number, tokens, highest = time.perf_counter(), 0, 0, 0, 0
    while shown < 10:
        for batch in stream.batches(number):
            tokens += batch.ids.numel()
        number += 1
        characters = sum(entry["characters"] for entry in stream.corpus.facts().values())
        parts = [process.memory_info().rss, *(child.memory_info().rss for child in process.children(recursive=True))]
        highest = max(highest, sum(parts))
        while shown < 10 and characters >= options.gigabytes * 1e8 * (shown + 1):
            shown += 1
            seconds = time.perf_counter() - began
            print(
                f"{10 * shown} %: {characters / 1e9:.2f} GB of text, {tokens / 1e6:,.0f} M tokens, {seconds:,.0f} s, "
                f"resident {parts[0] / 1e6:,.0f} MB and {sum(parts[1:]) / 1e6:,.0f} MB in {len(parts) - 1} processes",
                flush=True,
            )
    stream.corpus.close()
    print(f"most: {highest / 1e6:,.0f} MB; {tokens / (time.perf_counter() - began):,.0f} tokens a second")


def speed(options: argparse.Namespace) -> None:
    with temporary_folder() as folder:
        parent, before = time.process_time(), os.times()
        corpus = build_corpus(
            first_texts(options.files, 20_000_000),
            Tokenizer.load(options.tokenizer),
            folder / "corpus",
            source_description="speed",
            progress=False,
            processes=1,
        )
        parent, after = time.process_time() - parent, os.times()
        child = after.children_user + after.children_system - before.children_user - before.children_system
        rates = [f"{corpus.num_tokens / seconds:,.0f}" for seconds in (child, parent)]
        print(f"tokens a second: {rates[0]} a process, {rates[1]} through the parent, which feeds {child / parent:.1f}")


def first_texts(files: list[str], characters: int) -> Iterator[str]:
    for text in read_texts(files):
        yield text
        characters -= len(text)
        if characters < 0:
            return


def produce(options: argparse.Namespace) -> None:
    """Append the hash of every batch to a file; begin after the last one that it holds, at the cursor beside it."""
    stream, log, saved = stream_of(options), Path(options.log), Path(options.log + ".cursor")
    state = json.loads(saved.read_text()) if saved.exists() else {"block": 0, "batch": 0, "lines": 0}
    if "cursor" in state:
        stream.seek(state["cursor"])
    lines = log.read_text().splitlines()[: state["lines"]] if log.exists() else []
    with log.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
        count, first = len(lines), state["batch"]
        for block in range(state["block"], options.blocks):
            for number, batch in enumerate(stream.batches(block, first), first):
                file.write(f"{block} {number} {hash_of(batch)}\n")
                file.flush()
                count += 1
                cursor = stream.cursor(block, number + 1)
                state = {"block": block, "batch": number + 1, "lines": count, "cursor": cursor}
                write_atomically(saved, json.dumps(state).encode())
            first = 0
    stream.corpus.close()


def resume(options: argparse.Namespace) -> None:
    with temporary_folder() as folder:
        assert start(options, folder / "whole").wait() == 0
        whole, log = (folder / "whole").read_text(), folder / "killed"
        generator, total, kills = random.Random(0), len(whole.splitlines()), 0
        while kills < options.kills:
            child = start(options, log)
            further = generator.uniform(0, 1.5) * total / options.kills
            until = min(total - 1, lines_of(log) + further)
            while child.poll() is None and lines_of(log) <= until:
                time.sleep(0.02)
            time.sleep(generator.uniform(0, 0.5))
            if child.poll() is not None:
                break
            workers = psutil.Process(child.pid).children(recursive=True)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            gone, alive = psutil.wait_procs(workers, timeout=30)
            kills += 1
            print(
                f"kill {kills} after {lines_of(log)} batches; {len(gone)} workers gone, {len(alive)} left", flush=True
            )
        assert start(options, log).wait() == 0
        print(f"{total} batches in {options.blocks} blocks, {kills} kills: equal {log.read_text() == whole}")


def lines_of(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def start(options: argparse.Namespace, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "produce", *options.files, "--tokenizer", options.tokenizer, "--log", str(log)]
    for name in ("blocks", "processes", "block_tokens"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return subprocess.Popen(command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("memory", "speed", "resume", "produce"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--block-tokens", type=int, default=1 << 22)
    parser.add_argument("--log", default="")
    options = parser.parse_args()
    {"memory": memory, "speed": speed, "resume": resume, "produce": produce}[options.action](options)


if __name__ == "__main__":
    main()
