"""An AWD-LSTM language model of fastai's sizes on wikitext-2's words, for as many steps as fit into equal time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn

ROW = Row(
    title="AWD-LSTM language model, widths 400 and 1152, 30,000 words",
    peer="fastai Learner",
    environment="fastai",
    measures={"speed": Measure("tokens/s", 2, 4), "memory": Measure("MB")},
    quality=Quality("held-out loss after equal time", "lower", 0.02),
    means="a softmax over sampled words; gates of all steps in one product; benchmarks/lm.py has the parts",
    rounds=1,
)
CLOCK = "cpu"
"""What equal time is measured by: a side's processor seconds, which do not stretch when the other is remembered."""


def prepare(given: Given) -> dict[str, Any]:
    from language_model import SHAPES
    from wikitext import write_tokens

    shape = SHAPES["smoke" if given.smoke else "lm"]
    tokens = write_tokens(None if given.smoke else given.data / "wikitext-2", shape["vocab_size"], given.work)
    (given.work / "shape.json").write_text(json.dumps(shape | tokens | {"lr": 3e-3}), "utf-8")
    return {"shape": str(given.work / "shape.json"), "seconds": given.size(240, 1)}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from lm_fastai import Side

    return _turns(Side(json.loads(Path(task["shape"]).read_text("utf-8"))), task)


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from lm_textgraft import Side

    return _turns(Side(json.loads(Path(task["shape"]).read_text("utf-8")), "sampled", "auto"), task)


def _turns(side: Any, task: dict[str, Any]) -> Callable[[int], Turn]:
    """The first turn finds out how many steps fit into the time, the others train for so many."""
    found: dict[str, int] = {}
    flop = side.describe()["flop_per_token"]

    def turn(number: int) -> Turn:
        if not number:
            side.speed(1)
            found["steps"] = max(2, round(task["seconds"] * 2 / (side.speed(2)[CLOCK] / task["threads"])))
            return {}
        learned = side.learn(found["steps"])
        spent = {clock: learned[clock] for clock in ("wall", "cpu")}
        speed = {"units": learned["tokens"], **spent, "flop": flop * learned["tokens"]}
        return {"speed": speed, "quality": learned["valid_loss"]}

    return turn
