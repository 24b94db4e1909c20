"""Do a sentence encoder's vectors equal those of sentence-transformers, and how fast are they?

    python benchmarks/sentence_embeddings.py hf:FOLDER [minilm] --texts a.csv b.jsonl --peer PYTHON

PYTHON is an interpreter that has sentence-transformers. Of each file as many first texts are taken as make `--count`
in all. Both programs encode them in processes of their own, one after the other, `--repeats` times, with the same
number of threads; loading does not count. Of the vectors the worst cosine between the two, the largest difference of
lengths and of coordinates are told. With `--back` the model is also written as a folder of that library, and what it
makes of it is compared too: that is how a model that textgraft has fine-tuned is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

PEER = """
import json, sys, time
import numpy as np, torch
from sentence_transformers import SentenceTransformer
folder, texts, out, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = SentenceTransformer(folder, device="cpu")
texts = json.load(open(texts, encoding="utf-8"))
model.encode(texts[:8])
began = time.perf_counter()
vectors = model.encode(texts, show_progress_bar=False)
print(json.dumps({"seconds": time.perf_counter() - began}))
np.save(out, vectors)
"""
OURS = """
import json, sys, time
import numpy as np, torch
import textgraft
from textgraft.models import loading
name, texts, out, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = loading.load_network(name)
texts = json.load(open(texts, encoding="utf-8"))
model.embed(texts[:8])
began = time.perf_counter()
vectors = model.embed(texts)
print(json.dumps({"seconds": time.perf_counter() - began}))
np.save(out, vectors)
"""


def texts_of(paths: list[Path], count: int) -> list[str]:
    """The first texts of each file, `count` in all."""
    from textgraft.data.examples import each_text
    from textgraft.data.readers import read

    each = -(-count // len(paths))
    found = [text for path in paths for text in list(each_text(read(path).texts))[:each]]
    if len(found) < count:
        raise SystemExit(f"There are only {len(found)} texts.")
    return found[:count]


def run(python: str, program: str, arguments: list[str], threads: int) -> float:
    """Seconds that encoding takes in a process of its own."""
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [python, "-c", program, *arguments, str(threads)], env={**os.environ, **offline}, stdout=subprocess.PIPE
    )
    if done.returncode:
        raise SystemExit(f"{python} failed on {arguments[0]}.")
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def differences(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """How far two tables of vectors are apart, in float64."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / (lengths[0] * lengths[1])
    return {
        "1 - worst cosine": float(1 - cosines.min()),
        "norm error": float(np.abs(lengths[0] - lengths[1]).max()),
        "largest difference": float(np.abs(a - b).max()),
    }


def folder_of(model: str) -> Path:
    """The folder that the peer opens for a name that textgraft takes."""
    from textgraft.conversion import hub
    from textgraft.models import packaged

    return packaged.find(model) if model in packaged.PACKAGED else hub.find(model)


def compare(model: str, texts: Path, asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """The figures of one model."""
    import textgraft

    ours, theirs = work / "ours.npy", work / "theirs.npy"
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    if asked.back:
        source = work / "written"
        textgraft.convert(model, source, to="sentence-transformers", overwrite=True)
    else:
        source = folder_of(model)
    for _ in range(asked.repeats):
        seconds["theirs"].append(run(asked.peer, PEER, [str(source), str(texts), str(theirs)], asked.threads))
        seconds["ours"].append(run(sys.executable, OURS, [model, str(texts), str(ours)], asked.threads))
    best = {name: min(values) for name, values in seconds.items()}
    found = differences(np.load(ours), np.load(theirs))
    return {"model": model, "written": asked.back, **found, "seconds": best, "ratio": best["theirs"] / best["ours"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--peer", required=True, help="a Python that has sentence-transformers")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--back", action="store_true", help="the peer opens what `convert` writes of the model")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(texts_of(asked.texts, asked.count)), encoding="utf-8")
        for model in asked.models:
            rows.append(compare(model, texts, asked, Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"texts": asked.count, "threads": asked.threads, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
