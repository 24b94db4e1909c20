"""Which layers make the best features? A tagger on an encoder that does not learn, through each of the seven readouts.

    python bench/readouts.py TRAIN.conllu --test TEST.conllu --model hf:FOLDER --sentences 600 --seeds 3

Table 7 of Devlin et al. 2019, on any file of sentences with tags and any encoder. Where we differ: the tagger is one
linear layer, theirs two layers of LSTM; sums are plain; and a learned mix of all layers stands beside their six. The
recipe is `frozen`, in which the encoder's dropouts act while the head learns; --recipe names another, such as one that
fine-tunes all. Seeds are of the head and the order of sentences; all see the same sentences. The table has the score of
all seeds together with its 95 % interval over sentences, the spread (standard deviation) over seeds, and a paired test
against `last`. Each training is kept in OUT/readouts-unfinished.json as soon as it is done, and the same command goes
on from there; the table is OUT/readouts.json too.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run import Record, write_json

from textgraft import opening
from textgraft.data.conll import Tagged, read_conll
from textgraft.errors import UserError
from textgraft.nn.readout import LAST, READOUTS, new_readout
from textgraft.report import wording
from textgraft.stages.tagging import TAGGER, TagOptions, tag_finetune
from textgraft.training.loop import Settings
from textgraft.training.phases import load_recipe
from textgraft.training.session import weights_hash
from textgraft.training.tag_metrics import Ratio, paired_ratio_test

HERE = Path(__file__).parent


def trained(train: Tagged, test: Tagged, readout: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What one tagger adds to both sides of its score, sentence by sentence; the tagger itself is not kept."""
    options = TagOptions(
        recipe=arguments.recipe,
        max_tokens=arguments.max_tokens,
        readout=readout,
        baseline=False,
        settings=Settings(seed=seed, precision=arguments.precision, device=arguments.device),
    )
    folder = arguments.out / f"tagger-{readout}-{seed}"
    done = tag_finetune(train, folder, model=arguments.model, test=test, options=options, overwrite=True)
    found = done.scores[TAGGER]
    shutil.rmtree(folder)
    sides = {"part": found.headline.part.tolist(), "whole": found.headline.whole.tolist()}
    return {"metric": found.metric, **sides, "minutes": done.record["seconds"] / 60}


def summary(cells: dict[str, list[dict[str, Any]]], widths: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row a readout: score with interval, spread over seeds, the test against `last`, what it cost."""
    ratios = {name: _together(runs) for name, runs in cells.items()}
    rows = []
    for name, runs in cells.items():
        own = [Ratio(np.array(run["part"]), np.array(run["whole"])).value or 0.0 for run in runs]
        interval = ratios[name].interval()
        row: dict[str, Any] = {"readout": name, "width": new_readout(name, widths).output_dim, "seeds": len(runs)}
        row |= {"score": None if interval is None else interval._asdict()}
        row |= {"spread": float(np.std(own, ddof=1)) if len(own) > 1 else None}
        comparable = LAST in ratios and name != LAST and None not in (ratios[name].value, ratios[LAST].value)
        row |= {"against_last": paired_ratio_test(ratios[name], ratios[LAST])._asdict() if comparable else None}
        rows.append(row | {"minutes": float(np.mean([run["minutes"] for run in runs]))})
    return rows


def _together(runs: list[dict[str, Any]]) -> Ratio:
    """The score of all seeds as one: both sides added up, sentence by sentence."""
    return Ratio(*(np.sum([run[side] for run in runs], axis=0) for side in ("part", "whole")))


def table(rows: list[dict[str, Any]], metric: str) -> str:
    head = [
        "readout",
        "width",
        f"{wording.metric_name(metric)} [95 % interval]",
        "spread",
        "seeds",
        "p, last",
        "minutes",
    ]
    lines = [head]
    for row in rows:
        score, test = row["score"], row["against_last"]
        shown = wording.NOT_KNOWN if score is None else wording.interval(*score.values(), metric)
        p = wording.NOT_KNOWN if test is None else f"{test['p']:.3f}"
        spread = wording.score(row["spread"], metric)
        lines.append([row["readout"], str(row["width"]), shown, spread, str(row["seeds"]), p, f"{row['minutes']:.1f}"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    train, test = read_conll(arguments.train), read_conll(arguments.test)
    train = train if arguments.sentences is None else train.sample(arguments.sentences)
    test = test if arguments.test_sentences is None else test.sample(arguments.test_sentences)
    model = opening.load(arguments.model).model
    widths = model.encoder.widths
    names = ("model", "recipe", "max_tokens", "precision")
    settings = {name: getattr(arguments, name) for name in names} | {"weights": weights_hash(model)}
    settings |= {"phases": repr(load_recipe(arguments.recipe).finetune), "sentences": [len(train), len(test)]}
    settings |= {"train": train.content_hash(), "test": test.content_hash()}
    record = Record(arguments.out / "readouts-unfinished.json", settings)
    cells: dict[str, list[dict[str, Any]]] = {}
    for readout in arguments.readouts:
        try:
            new_readout(readout, widths)
        except UserError as error:
            print(f"left out: {error.message}", flush=True)
            continue
        for seed in range(arguments.seeds):
            cell = record.once(f"{readout} {seed}", lambda r=readout, s=seed: trained(train, test, r, s, arguments))
            cells.setdefault(readout, []).append(cell)
    if not cells:
        raise SystemExit("none of these readouts is possible with this model.")
    rows, metric = summary(cells, widths), next(iter(cells.values()))[0]["metric"]
    print(f"{len(train):,} sentences to learn from, {len(test):,} of {test.words:,} words to measure on")
    print(table(rows, metric))
    write_json(arguments.out / "readouts.json", {"settings": settings, "metric": metric, "rows": rows})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="sentences with tags: CoNLL columns or CoNLL-U")
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--readouts", type=lambda text: text.split(","), default=list(READOUTS))
    parser.add_argument("--sentences", type=int, help="learn from so many (default: all)")
    parser.add_argument("--test-sentences", type=int, help="measure on so many (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipe", default="frozen")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "readouts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
