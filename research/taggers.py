"""Taggers side by side: networks over one frozen source, over a stack of them, and one encoder that is fine-tuned.

    python research/taggers.py DATA/conll/train.conll --valid DATA/conll/dev.conll --test DATA/conll/test.conll \
        --stack glove.txt --stack en-ulmfit --stack glove.txt,en-ulmfit --finetuned hf:FOLDER --seeds 3

Without --test, as for ThaiNER, which has one file, a fifth of the sentences is held out (data.conll.split_sentences).
Each --stack is a row: what stands in `textgraft tag finetune --stack`. Every row sees the same sentences; seeds are of
the weights and the order. The table has the score of all seeds together with its 95 % interval over sentences, the
spread (standard deviation) over seeds, minutes to train, a stack's vectors among them, and sentences a second at
prediction. Each training is kept in OUT/taggers-unfinished.json as soon as it is done, and the same command goes on
from there; the table is OUT/taggers.json too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core import formatting
from textgraft.core.context import RunContext
from textgraft.data.conll import Tagged, read_conll, split_sentences
from textgraft.metrics.tagging import Ratio
from textgraft.models import loading
from textgraft.tasks.tagging.finetune import STACKED, TAGGER, TagOptions, tag_finetune
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.training.driver import weights_hash
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings
from textgraft.word_embeddings.stack import Stack

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from record import Record, write_json

HERE = Path(__file__).parent
HELD_OUT = 0.2


def trained(
    parts: dict[str, Tagged], name: str, seed: int, arguments: argparse.Namespace, *, stacked: bool
) -> dict[str, Any]:
    """What one tagger adds to both sides of its score, sentence by sentence, and its cost; it is not kept."""
    options = replace(
        STACKED if stacked else TagOptions(),
        recipe=arguments.recipe if stacked else arguments.finetuned_recipe,
        baseline=False,
        settings=Settings(seed=seed, precision=arguments.precision),
    )
    model = Stack.open(name.split(","), precision=arguments.precision) if stacked else name
    folder = arguments.out / "tagger"
    done = tag_finetune(model=model, out=folder, options=options, context=RunContext(overwrite=True), **parts)
    tagger, test = Tagger(folder, precision=arguments.precision), parts["test"]
    began = time.perf_counter()
    tagger.tag(test.sentences)
    speed = len(test) / (time.perf_counter() - began)
    shutil.rmtree(folder)
    found = done.scores[TAGGER]
    sides = {"part": found.headline.part.tolist(), "whole": found.headline.whole.tolist()}
    return {"metric": found.metric, **sides, "minutes": done.record["seconds"] / 60, "sentences_per_second": speed}


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Score with interval, spread over seeds, and what it cost."""
    own = [Ratio(np.array(run["part"]), np.array(run["whole"])).value or 0.0 for run in runs]
    interval = Ratio(*(np.sum([run[side] for run in runs], axis=0) for side in ("part", "whole"))).interval()
    return {
        "tagger": name,
        "seeds": len(runs),
        "score": None if interval is None else interval._asdict(),
        "spread": float(np.std(own, ddof=1)) if len(own) > 1 else None,
        "minutes": float(np.mean([run["minutes"] for run in runs])),
        "sentences_per_second": float(np.mean([run["sentences_per_second"] for run in runs])),
    }


def told(row: dict[str, Any], metric: str) -> str:
    score = row["score"]
    shown = formatting.NOT_KNOWN if score is None else formatting.interval(*score.values(), metric)
    spread = formatting.score(row["spread"], metric)
    cost = f"{row['minutes']:.1f} minutes, {row['sentences_per_second']:,.0f} sentences/s"
    return (
        f"{row['tagger']}: {formatting.metric_name(metric)} {shown}, spread {spread} over {row['seeds']} seeds, {cost}"
    )


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    paths = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
    parts = {name: read_conll(path) for name, path in paths.items() if path is not None}
    if arguments.test is None:
        parts["train"], parts["test"] = split_sentences(parts["train"], HELD_OUT)
    if arguments.sentences is not None:
        parts["train"] = parts["train"].sample(arguments.sentences)
    taggers = [(name, name, True) for name in arguments.stack]
    if arguments.finetuned:
        taggers.append((f"{arguments.finetuned}, fine-tuned", arguments.finetuned, False))
    if not taggers:
        raise SystemExit("name a --stack or a --finetuned encoder.")
    settings: dict[str, Any] = {"precision": arguments.precision}
    settings |= {name: part.content_hash() for name, part in parts.items()}
    settings["phases"] = [load_recipe(n).finetune.identity for n in (arguments.recipe, arguments.finetuned_recipe)]
    opened = [Stack.open(name.split(","), precision=arguments.precision) for name in arguments.stack]
    settings["weights"] = [[source.fingerprint for source in stack.sources] for stack in opened]
    if arguments.finetuned:
        settings["weights"].append(weights_hash(loading.load_network(arguments.finetuned).model))
    record = Record(arguments.out / "taggers-unfinished.json", settings)
    rows, metric = [], ""
    for called, name, stacked in taggers:
        runs = [
            record.once(f"{called} {s}", partial(trained, parts, name, s, arguments, stacked=stacked))
            for s in range(arguments.seeds)
        ]
        metric = runs[0]["metric"]
        rows.append(row(called, runs))
        print(told(rows[-1], metric), flush=True)
    write_json(arguments.out / "taggers.json", {"settings": settings, "metric": metric, "rows": rows})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="sentences with tags: CoNLL columns or CoNLL-U")
    parser.add_argument("--valid", type=Path, help="sentences to choose the epoch by")
    parser.add_argument("--test", type=Path, help="else a fifth of the training file")
    parser.add_argument("--stack", action="append", default=[], help="NAME,NAME@LAYERS,…; may be repeated")
    parser.add_argument("--finetuned", help="an encoder to fine-tune beside them")
    parser.add_argument("--sentences", type=int, help="learn from so many (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipe", default="tagger", help="of the stacks")
    parser.add_argument("--finetuned-recipe", default="transformer")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "taggers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
