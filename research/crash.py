"""Kill every stage at random moments with SIGKILL and see whether the finished weights are bit-equal.

    python research/crash.py                # 20 points
    python research/crash.py --points 100 --json
    python research/crash.py --stage tags --stage answers

A tiny model goes from text to a classifier: pretrain (tokenizer, token shards, word vectors where gensim is
installed, training), adapt (on a vocabulary of its own), fine-tuning on several seeds, fine-tuning on folds, and a
weighted ensemble with linear classifiers; then come the results of research/crash_tasks.py. Each result is made once
without interruption; then anew, by processes that are killed at random moments and repeated, until one comes to the
end. The weights, the tokenizer and all scores are compared by sha256 to those of the uninterrupted run. Exits with 1 if
anything differs.

Each life is a fork of this process, which has only imported the libraries, so that the moments fall on the work
itself. They are counted in processor time: on a busy machine wall time says little of how far a run has come.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import sklearn.metrics  # noqa: F401 (imported here, so that no life has to)
import torch
from crash_tasks import TASKS, prepare_tasks

import textgraft.tasks.classification.finetune_report  # noqa: F401 (this brings matplotlib)
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.training.settings import Settings

LIFE = 0.6
"""The longest that a life may last before it is killed, as a share of the time that the result takes in peace."""
KILLS = 2
"""After so many kills a result is brought to its end, and the next one begun: its first moments count too."""

PRETRAINING = """
name = "tiny"
description = "A model for crash tests"
language = "en"
licence = "none"
validate_every = 4
token_vectors = TOKEN_VECTORS

[tokenizer]
kind = "subword"
vocab_size = 150

[model]
embedding_dim = 12
hidden_dim = 16
num_layers = 2

[head]
output_layer = "full"

[stage]
batch_size = 8
bptt = 20
clip = 1.0

[[stage.phases]]
name = "pretrain"
epochs = 0.3
lr = 5.0
schedule = "wsd"
optimizer = "ntasgd"
"""

TUNING = """
name = "tiny"
description = "Every kind of phase that a checkpoint has to carry over"
source = "crash tests"

[adapt]
batch_size = 8
bptt = 20
clip = 1.0

[[adapt.phases]]
name = "head"
epochs = 0.5
trainable = 1
lr = 0.01
schedule = "stlr"
optimizer = "sgd"
betas = [0.9, 0.99]

[[adapt.phases]]
name = "all"
epochs = 1.5
lr = 0.004
lr_decay = 2.6
schedule = "one_cycle"
weight_decay = 0.01

[finetune]
batch_size = 8
clip = 1.0

[[finetune.phases]]
name = "head"
epochs = 2
trainable = 1
lr = 0.01
schedule = "one_cycle"
weight_decay = 0.01

[[finetune.phases]]
name = "all"
epochs = 3
lr = 0.002
lr_decay = 2.6
schedule = "one_cycle"
"""


def review(generator: random.Random, good: bool) -> str:
    praise = ["great", "wonderful", "superb", "lovely"] if good else ["awful", "terrible", "boring", "poor"]
    return "The film was " + " ".join(generator.choices([*praise, "the", "and", "movie", "it"], k=12)) + "."


def labelled(count: int, seed: int) -> Examples:
    generator = random.Random(seed)
    labels = ["good" if i % 2 else "bad" for i in range(count)]
    return Examples([review(generator, label == "good") for label in labels], labels, "single")


def prepare(folder: Path) -> None:
    """The input files that all lives share."""
    prepare_tasks(folder)
    pool = labelled(2500, seed=1).texts
    (folder / "pool.txt").write_text("\n".join(pool), encoding="utf-8")
    pretraining = PRETRAINING.replace("TOKEN_VECTORS", "20000" if find_spec("gensim") else "0")
    (folder / "pretraining.toml").write_text(pretraining, encoding="utf-8")
    (folder / "tuning.toml").write_text(TUNING, encoding="utf-8")


def make_lm(folder: Path, out: Path) -> None:
    settings = Settings(save_seconds=0.02)
    pretrain(
        [folder / "pool.txt"],
        out,
        options=PretrainOptions(recipe=str(folder / "pretraining.toml"), settings=settings),
        context=QUIET,
    )


def make_adapted(folder: Path, out: Path) -> None:
    texts = (folder / "pool.txt").read_text(encoding="utf-8").splitlines()[:300]
    settings = Settings(save_seconds=0.02, accumulate=2, validate_every=9)
    model, recipe = folder / "lm", str(folder / "tuning.toml")
    adapt(texts, out, model=model, recipe=recipe, own_vocabulary=True, settings=settings, context=QUIET)


def make_classifier(folder: Path, out: Path, *, seed: int = 0, seeds: int = 1, folds: int | None = None) -> None:
    """One classifier for each seed with early stopping on a validation set, or one for each fold as well."""
    valid = labelled(60, seed=3) if folds is None else None
    settings = Settings(seed=seed, save_seconds=0.0, patience=3)
    recipe = str(folder / "tuning.toml")
    options = FinetuneOptions(recipe=recipe, seeds=seeds, folds=folds, baselines=False, settings=settings)
    model = folder / "adapted"
    finetune(labelled(40, seed=2), out, model=model, valid=valid, options=options, context=QUIET)


def make_ensemble(folder: Path, out: Path) -> None:
    """A language model and linear classifiers, weighed by what they say of two folds."""
    options = FinetuneOptions(folds=2, settings=Settings(save_seconds=0.0))
    texts = (folder / "pool.txt").read_text(encoding="utf-8").splitlines()[:300]
    test = labelled(60, seed=3)
    model = folder / "adapted"
    finetune(labelled(40, seed=2), out, model=model, test=test, unlabelled=texts, options=options, context=QUIET)


STAGES: dict[str, Callable[[Path, Path], None]] = {
    "lm": make_lm,
    "adapted": make_adapted,
    "seeds": partial(make_classifier, seeds=2),
    "folds": partial(make_classifier, seed=7, folds=2),
    "ensemble": make_ensemble,
    **TASKS,
}
"""What makes each result, from those before it; the order is that of the pipeline."""


def live(task: Callable[[], None], log: Path, seconds: float = math.inf) -> float | None:
    """Run `task` in a process of its own, killed after `seconds` of processor time.

    Returns how much it took to its end, None if it was killed before. Raises RuntimeError with the process's own
    words if it failed.
    """
    process = os.fork()
    if process == 0:
        status = 1
        try:
            task()
            status = 0
        except BaseException:
            log.write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(status)
    watched = psutil.Process(process)
    used = 0.0
    while used < seconds and not (ended := os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        used = sum(watched.cpu_times()[:2])
        time.sleep(0.002)
    if not ended:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return None
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"the run failed:\n{log.read_text(encoding='utf-8')}")
    return used


KEPT = ("model.safetensors", "tokenizer.json", "vectors.safetensors", "predictions.conll", "predictions.json")


def finished(out: Path) -> bool:
    """Whether nothing is left to do for a result; one with work beside it is not done with."""
    return out.exists() and not work_path(out).exists()


def work_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.run")


def hashes(out: Path) -> dict[str, str]:
    """sha256 of what must not depend on how often a run was killed; of run.json without times and places.

    An ensemble has a folder for each of its members.
    """
    kept = [path for path in sorted(out.rglob("*")) if path.name in KEPT]
    files = {str(path.relative_to(out)): path.read_bytes() for path in kept}
    for name in ("run.json", "results.json"):
        if (out / name).is_file():
            record = lasting(json.loads((out / name).read_bytes()))
            files[name] = json.dumps(record, sort_keys=True).replace(str(out.parent), "").encode()
    assert files
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def lasting(record: Any) -> Any:
    """A value from run.json without what tells of one run's course, at any depth."""
    if isinstance(record, dict):
        passing = {"name", "recipe", "seconds", "minutes", "peak_mb", "texts_per_second", "speed_ratio", "verdict"}
        return {key: lasting(value) for key, value in record.items() if key not in passing}
    return [lasting(value) for value in record] if isinstance(record, list) else record


MARKS = {
    "*.safetensors": "training",
    "candidates/*.safetensors": "linear candidates",
    "spaces/*.safetensors": "linear candidates",
    "vectors.f32": "before the first checkpoint",
    "valid/index.json": "before the first checkpoint",
    "train": "token shards",
    "tokenizer.json": "after the tokenizer",
    "plan.json": "tokenizer, or before the first checkpoint",
}


def standing(out: Path) -> str:
    """How far a killed run had come, by the furthest mark that it left."""
    if out.exists():
        return "done but for clearing up"
    reached = (place for mark, place in MARKS.items() if any(work_path(out).glob(mark)))
    return next(reached, "before its folder")


def crash_stage(name: str, points: int, generator: random.Random, folder: Path) -> dict[str, object]:
    """Make one result in peace, then again through `points` kills, as often as that takes; what differs."""
    make, log = STAGES[name], folder / "log"
    seconds = live(partial(make, folder, folder / name), log)
    assert seconds is not None
    expected = hashes(folder / name)
    places: Counter[str] = Counter()
    different: list[str] = []
    results = 0
    while places.total() < points:
        out = folder / f"{name}-{results}"
        killed = 0
        while not finished(out):
            again = killed < KILLS and places.total() < points
            # Squared, because much that can go wrong is in the first moments.
            span = LIFE * seconds * generator.random() ** 2 if again else math.inf
            if live(partial(make, folder, out), log, span) is None:
                places[standing(out)] += 1
                killed += 1
        found = hashes(out)
        different += [f"{out.name}/{file}" for file, digest in expected.items() if found[file] != digest]
        results += 1
    kills = dict(sorted(places.items()))
    return {"cpu_seconds_in_peace": round(seconds, 2), "killed": kills, "results": results, "different": different}


def crash(points: int, seed: int, folder: Path, chosen: Sequence[str] = ()) -> dict[str, object]:
    """The whole test in `folder`, the points shared out evenly among the stages, or those that are chosen.

    What a chosen stage begins from is made in peace.
    """
    prepare(folder)
    generator = random.Random(seed)
    began = time.monotonic()
    killed = [name for name in STAGES if name in chosen or not chosen]
    shares = {name: len(range(i, points, len(killed))) for i, name in enumerate(killed)}
    last = max(list(STAGES).index(name) for name in killed)
    stages = {name: crash_stage(name, shares.get(name, 0), generator, folder) for name in list(STAGES)[: last + 1]}
    different = [place for stage in stages.values() for place in stage["different"]]  # type: ignore[attr-defined]
    return {"kills": points, "different": different, "stages": stages, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20, help="how many kills (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--stage", action="append", choices=STAGES, default=[], help="kill these only; repeat")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # the first optimizer imports much of torch
    with tempfile.TemporaryDirectory() as folder:
        result = crash(arguments.points, arguments.seed, Path(folder), arguments.stage)
    if arguments.json:
        print(json.dumps(result))
    else:
        print(json.dumps(result, indent=2))
    sys.exit(1 if result["different"] else 0)


if __name__ == "__main__":
    main()
