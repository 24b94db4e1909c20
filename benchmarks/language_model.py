"""The row of AWD-LSTM language-model training: what is measured, in which order, and how it is shown."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

from sides import Side

SIZES = ("vocab_size", "embedding_dim", "hidden_dim", "num_layers", "rows", "bptt")
SHAPES = {
    "lm": dict(zip(SIZES, (30_000, 400, 1152, 3, 64, 70), strict=True)),
    "en-ulmfit": dict(zip(SIZES, (10_000, 320, 640, 3, 24, 70), strict=True)),
    "smoke": dict(zip(SIZES, (200, 8, 12, 2, 4, 10), strict=True)),
}
"""fastai's own (and ULMFiT's) sizes, those of the model that ships, and a test's."""
PEER = "fastai"
OURS = {  # name: (output layer, precision)
    "textgraft fp32, full softmax": ("chunked", "fp32"),
    "textgraft auto, full softmax": ("chunked", "auto"),
    "textgraft auto, sampled softmax": ("sampled", "auto"),
    "textgraft auto, adaptive softmax": ("adaptive", "auto"),
}
LEARN = ("textgraft auto, sampled softmax", PEER)
"""The sides whose loss after equal time is measured."""

Rows = dict[str, dict[str, Any]]
Once = Callable[[str, Callable[[], Any]], Any]


def measure(sides: dict[str, Side], once: Once, settings: dict[str, Any]) -> Rows:
    """Training speed in turns, the share of each part, and the loss after equal time, for each side.

    Every measurement passes through `once(name, measurement)`, which may know it already.
    """
    steps, clock = settings["steps"], settings["clock"]
    rows: Rows = {name: {"about": once(f"about {name}", lambda n=name: sides[n].ask("describe"))} for name in sides}
    turns = []
    for number in range(1, settings["rounds"] + 1):
        _say(f"speed: round {number} of {settings['rounds']}")
        turns.append(once(f"round {number}", lambda: {n: _after_a_step(s, "speed", steps) for n, s in sides.items()}))
    speeds = {name: [turn[name]["tokens"] / turn[name][clock] for turn in turns] for name in sides}
    for name, row in rows.items():
        row["tokens_per_second"] = _spread(speeds[name])
        if PEER in sides:
            row["ratio"] = _spread([a / b for a, b in zip(speeds[name], speeds[PEER], strict=True)])
        about = row["about"]
        used = about["flop_per_token"] * row["tokens_per_second"]["median"]
        row["share_of_peak"] = round(used / about["matmul_peak"][about["precision"]], 3)
        row["parts"] = once(f"parts {name}", lambda n=name: _after_a_step(sides[n], "parts", steps))
    for name in LEARN if settings["minutes"] else ():
        if name not in sides:
            continue
        per_step = settings["rows"] * settings["bptt"] / rows[name]["tokens_per_second"]["median"]
        count = max(2, round(settings["minutes"] * 60 / per_step))
        _say(f"loss after {settings['minutes']} minutes: {name}, {count} steps")
        learned = once(f"learn {name}", lambda s=sides[name], n=count: s.ask("learn", steps=n))
        rows[name]["equal_time"] = {**learned, "seconds": round(learned[clock], 1)}
    return rows


def _after_a_step(side: Side, command: str, steps: int) -> Any:
    """The answer after one step that is not counted: memory that lay idle while others had their turn comes back."""
    side.ask("speed", steps=1)
    return side.ask(command, steps=steps)


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def table(rows: Rows) -> str:
    heads = {"tokens/s": 9, "low": 7, "high": 7, "ratio": 7, "of peak": 9, "valid loss": 12, "after s": 9, "steps": 7}
    lines = [f"{'':34}" + "".join(f"{head:>{width}}" for head, width in heads.items())]
    for name, row in rows.items():
        speed, ratio, learned = row["tokens_per_second"], row.get("ratio"), row.get("equal_time")
        line = f"{name:34}{speed['median']:9,.0f}{speed['low']:7,.0f}{speed['high']:7,.0f}"
        line += f"{ratio['median']:7.2f}" if ratio else f"{'':7}"
        line += f"{row['share_of_peak']:9.0%}"
        line += f"{learned['valid_loss']:12.3f}{learned['seconds']:9.0f}{learned['steps']:7}" if learned else ""
        lines.append(line)
    lines.append("")
    for name, row in rows.items():
        parts = ", ".join(f"{part} {share:.0%}" for part, share in row["parts"].items())
        peak = row["about"]["matmul_peak"][row["about"]["precision"]]
        lines.append(f"{name:34}{parts}; matmul peak {peak / 1e9:,.0f} GFLOP/s")
    return "\n".join(lines)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
