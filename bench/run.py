"""textgraft beside its peers, on the same data, in turn, in one command.

    python bench/run.py              # makes the peers' environment on first use; some 40 minutes
    python bench/run.py --smoke      # tiny sizes, ours only, seconds: does it run?

A table on the screen, all figures in bench/results/. Speeds are medians over rounds in which the sides take turns;
ratios are taken round by round. On a machine that does other things too, `--clock cpu` with one thread counts the
processor's seconds instead of the wall's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sides import Side, peers_python
from wikitext import write_tokens

HERE = Path(__file__).parent
SHAPE = {"vocab_size": 30_000, "embedding_dim": 400, "hidden_dim": 1152, "num_layers": 3, "rows": 64, "bptt": 70}
SMOKE_SHAPE = {"vocab_size": 200, "embedding_dim": 8, "hidden_dim": 12, "num_layers": 2, "rows": 4, "bptt": 10}
# name: (output layer, precision); the first learns for its own speed's sake, all are timed
OURS = {
    "textgraft fp32, full softmax": ("chunked", "fp32"),
    "textgraft auto, full softmax": ("chunked", "auto"),
    "textgraft auto, sampled softmax": ("sampled", "auto"),
    "textgraft auto, adaptive softmax": ("adaptive", "auto"),
}
PEER = "fastai"


def main() -> None:
    arguments = _arguments()
    if arguments.smoke:
        arguments.rounds, arguments.steps, arguments.minutes = 2, 2, 0.01
    with tempfile.TemporaryDirectory() as work:
        shape = _shape(arguments, Path(work))
        sides = _sides(shape, arguments)
        try:
            result = _language_model_row(sides, arguments)
        finally:
            for side in sides.values():
                side.close()
    result["settings"] = {n: v for n, v in vars(arguments).items() if n not in ("out", "data")}
    result["machine"] = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    print(_table(result))
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"language-model-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"written: {path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny and without peers: a test that it runs")
    parser.add_argument("--data", type=Path, help="folder of wikitext-2 (default: ../shared/data/wikitext-2)")
    parser.add_argument("--rounds", type=int, default=5, help="how many times the sides take turns (default 5)")
    parser.add_argument("--steps", type=int, default=2, help="training steps a side and round (default 2)")
    parser.add_argument("--minutes", type=float, default=5, help="equal training time for the losses; 0: skip it")
    parser.add_argument("--lr", type=float, default=5e-3, help="peak learning rate of both sides (default 0.005)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the figures")
    return parser.parse_args()


def _shape(arguments: argparse.Namespace, work: Path) -> Path:
    """The sizes, and the token files made for them, in a file that both sides read."""
    shape: dict[str, Any] = {**(SMOKE_SHAPE if arguments.smoke else SHAPE), "lr": arguments.lr}
    data = arguments.data or HERE.parents[1] / "shared" / "data" / "wikitext-2"
    if not arguments.smoke and not data.exists():
        sys.exit(f"{data}: no such folder; name one that holds wikitext-2 with --data.")
    shape |= write_tokens(None if arguments.smoke else data, shape["vocab_size"], work)
    path = work / "shape.json"
    path.write_text(json.dumps(shape), "utf-8")
    return path


def _sides(shape: Path, arguments: argparse.Namespace) -> dict[str, Side]:
    """A waiting process for each side, all on the same number of threads."""
    sides = {}
    if not arguments.smoke:
        sides[PEER] = Side([str(peers_python()), str(HERE / "lm_fastai.py"), str(shape)], arguments.threads)
    for name, (output_layer, precision) in OURS.items():
        command = [sys.executable, str(HERE / "lm_textgraft.py"), str(shape)]
        sides[name] = Side([*command, "--output-layer", output_layer, "--precision", precision], arguments.threads)
    return sides


def _language_model_row(sides: dict[str, Side], arguments: argparse.Namespace) -> dict[str, Any]:
    """Training speed in turns, the share of each part, and the loss after equal time."""
    about = {name: side.ask("describe") for name, side in sides.items()}
    for side in sides.values():
        side.ask("speed", steps=1)  # warm: memory, kernels, the optimizer's state
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        _say(f"speed: round {number + 1} of {arguments.rounds}")
        for name, side in sides.items():
            rounds[name].append(side.ask("speed", steps=arguments.steps))
    speeds = {n: [r["tokens"] / r[arguments.clock] for r in rows] for n, rows in rounds.items()}
    result = {}
    for name, side in sides.items():
        ratios = [a / b for a, b in zip(speeds[name], speeds[PEER], strict=True)] if PEER in sides else []
        result[name] = {
            "about": about[name],
            "rounds": rounds[name],
            "tokens_per_second": _spread(speeds[name]),
            "ratio": _spread(ratios) if ratios else None,
            "parts": side.ask("parts", steps=arguments.steps),
        }
    for name, side in sides.items():
        if arguments.minutes and not name.startswith("textgraft fp32"):
            seconds_per_step = statistics.median(r[arguments.clock] / arguments.steps for r in rounds[name])
            steps = max(2, round(arguments.minutes * 60 / seconds_per_step))
            _say(f"loss after {arguments.minutes} minutes: {name}, {steps} steps")
            result[name]["equal_time"] = side.ask("learn", steps=steps)
    return {"rows": result}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'':34}{'tokens/s':>10}{'low':>8}{'high':>8}{'ratio':>8}{'valid loss':>12}{'steps':>7}"]
    for name, row in result["rows"].items():
        speed, ratio, learned = row["tokens_per_second"], row["ratio"], row.get("equal_time")
        line = f"{name:34}{speed['median']:10,.0f}{speed['low']:8,.0f}{speed['high']:8,.0f}"
        line += f"{ratio['median']:8.2f}" if ratio else f"{'':8}"
        line += f"{learned['valid_loss']:12.3f}{learned['steps']:7}" if learned else ""
        lines.append(line)
    lines.append("")
    for name, row in result["rows"].items():
        parts = ", ".join(f"{part} {share:.0%}" for part, share in row["parts"].items())
        lines.append(f"{name:34}{parts}; matmul peak {row['about']['matmul_peak'] / 1e9:,.0f} GFLOP/s")
    return "\n".join(lines)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
