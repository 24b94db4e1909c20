"""Encode a corpus to token shards and say how fast and in how much memory.

    python benchmarks/encode.py --tokenizer tokenizer.json train-00.jsonl.xz train-01.jsonl.xz
    python benchmarks/encode.py --json            # English Wikipedia in ../shared/data, where that is there

Files are JSON lines with a `text` field, or plain text with one document a line; either may be `.xz`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from textgraft.data.streams.shards import build_corpus
from textgraft.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1]
WIKIPEDIA = ROOT.parent / "shared" / "data" / "enwiki"
SHIPPED = ROOT / "pretrained" / "en-ulmfit" / "tokenizer.json"


def read(files: list[Path]) -> Iterator[str]:
    for path in files:
        opener = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"] if ".jsonl" in path.suffixes else line.rstrip("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="default: all training shards of English Wikipedia")
    parser.add_argument("--tokenizer", type=Path, default=SHIPPED, help="default: that of the model that ships")
    parser.add_argument("--out", type=Path, help="keep the shards in this folder (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no progress bar")
    arguments = parser.parse_args()
    files = arguments.files or sorted(WIKIPEDIA.glob("train-*.jsonl.xz"))
    if not files:
        sys.exit(f"no files given and none in {WIKIPEDIA}")
    tokenizer = Tokenizer.load(arguments.tokenizer)
    resident_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        corpus = build_corpus(
            read(files),
            tokenizer,
            arguments.out or Path(temporary) / "corpus",
            source_description=" ".join(str(path) for path in files),
            progress=not arguments.json,
        )
        seconds = time.perf_counter() - began
        result = {
            "files": len(files),
            "documents": corpus.num_documents,
            "words": corpus.num_words,
            "tokens": corpus.num_tokens,
            "million_characters": round(corpus.num_characters / 1e6, 1),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(time.process_time(), 1),
            "million_characters_per_second": round(corpus.num_characters / 1e6 / seconds, 2),
            "tokens_per_second": round(corpus.num_tokens / seconds),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
            "mb_before": round(resident_before / 1e6),
        }
    if arguments.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:>30}  {value:,}" for name, value in result.items()))


if __name__ == "__main__":
    main()
