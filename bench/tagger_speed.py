"""How fast a tagger over two character language models tags, beside Flair's of the same shape, in turn.

    python bench/tagger_speed.py DATA/wnut17/emerging.test.annotated --width 640 --width 2048

Both sides read the same language models (forward and backward, one LSTM of `width` cells over 300 characters, weights
drawn: what they say does not change how long it takes) and have a projection as wide as both together, a bidirectional
LSTM of 256, and a CRF over the BIOES tags of the sentences' types. In each round every side tags the same sentences.
A row has sentences a second, the median of the rounds, and the median ratio to Flair within a round. The peer's
environment is made on first use (peers/flair.txt).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from record import write_json
from sides import Side, peers_python
from timing import clocks, serve, since

from textgraft.conversion.convert import convert
from textgraft.data.conll import Tagged, read_conll
from textgraft.models import loading
from textgraft.models.artifact import Artifact, save
from textgraft.models.model import build_fresh
from textgraft.nn.cpu.int8 import int8_is_native
from textgraft.nn.cpu.precision import bf16_is_native
from textgraft.tasks.tagging.finetune import STACKED, tag_finetune
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.tasks.tagging.stacked import Network
from textgraft.word_embeddings.stack import Stack

HERE = Path(__file__).parent
OURS = {
    "textgraft, float32": "fp32",
    **({"textgraft, bfloat16": "bf16"} if bf16_is_native() else {}),
    **({"textgraft, int8": "int8"} if int8_is_native() else {}),
}
"""Sides by the precision of their products, where the processor has it."""


def language_models(width: int, folder: Path) -> tuple[list[str], list[str]]:
    """Folders of ours and Flair's files of the same two models, with drawn weights."""
    ours, theirs = [], []
    for direction in ("forward", "backward"):
        known = loading.load_network(f"en-flair-small-{direction}")
        shape = known.model.describe()
        shape["encoder"]["hidden_dim"] = shape["head"]["input_dim"] = width
        about = {"stage": "pretrain", "name": direction, "base": None}
        made = Artifact(build_fresh(shape, 0), known.tokenizer, None, about)
        ours.append(str(save(made, folder / direction)))
        theirs.append(str(convert(ours[-1], folder / f"{direction}.pt", to="flair")))
    return ours, theirs


def tagger_of(models: list[str], data: Tagged, width: int, folder: Path) -> Path:
    """A tagger of ours of Flair's default shape, hardly trained: on a few sentences, once."""
    network = Network(hidden_dim=256, projection_dim=2 * width, character_filters=0)
    options = replace(STACKED, baseline=False, network=network, recipe=str(folder / "once.toml"))
    (folder / "once.toml").write_text(
        'name = "once"\ndescription = "One epoch"\nsource = "Ours"\n'
        '[finetune]\nbatch_size = 8\n[[finetune.phases]]\nname = "all"\nepochs = 1\nlr = 0.001\n',
        "utf-8",
    )
    tag_finetune(data, folder / "tagger", model=Stack.open(models), options=options)
    return folder / "tagger"


def measured(sides: dict[str, Side], rounds: int, sentences: int, clock: str) -> list[dict[str, Any]]:
    """A row a side; one round before the others is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            spent = side.ask("speed")[clock]
            print(f"  round {number} {name}: {sentences / spent:,.1f} sentences/s", file=sys.stderr)
            if number:
                seconds[name].append(spent)
    peer = seconds.get("flair")
    return [
        {
            "side": name,
            "sentences_per_second": sentences / median(own),
            "ratio": peer and median(theirs / ours for ours, theirs in zip(own, peer, strict=True)),
        }
        for name, own in seconds.items()
    ]


def compared(width: int, data: Tagged, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one width."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = language_models(width, folder)
        tagger = tagger_of(ours, data.sample(64), width, folder)
        tags = sorted(Tagger(tagger).config.tags)
        chosen = data.sample(arguments.sentences)
        task = {"flair": theirs, "tagger": str(tagger), "tags": tags, "batch": arguments.batch}
        task |= {"sentences": [s.words for s in chosen.sentences], "threads": arguments.threads}
        (folder / "task.json").write_text(json.dumps(task), "utf-8")
        own = [sys.executable, str(Path(__file__)), "--side", str(folder / "task.json")]
        commands = {side: [*own, "--precision", precision] for side, precision in OURS.items()}
        if not arguments.smoke:
            flair = [str(peers_python("flair")), str(HERE / "tagger_flair.py"), str(folder / "task.json")]
            commands = {"flair": flair, **commands}
        sides = {side: Side(command, arguments.threads) for side, command in commands.items()}
        try:
            rows = measured(sides, arguments.rounds, len(chosen), arguments.clock)
        finally:
            for side in sides.values():
                side.close()
    return [{"width": width, **row} for row in rows]


def tagging(tagger: Tagger, sentences: list[list[str]]) -> Callable[[], dict[str, float]]:
    """What tags all sentences and says how long that took."""

    def speed() -> dict[str, float]:
        start = clocks()
        tagger.tag(sentences)
        return since(start)

    return speed


def serve_ours(task_file: Path, precision: str) -> None:
    """Our side: one tagger, asked again and again."""
    task = json.loads(task_file.read_text("utf-8"))
    torch.set_num_threads(task["threads"])
    serve({"speed": tagging(Tagger(task["tagger"], precision=precision), task["sentences"])})


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'width':>6}  {'side':<22}{'sentences/s':>12}{'times Flair':>12}"]
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f}"
        lines.append(f"{row['width']:>6}  {row['side']:<22}{row['sentences_per_second']:>12,.1f}{ratio:>12}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="sentences with tags, CoNLL columns")
    parser.add_argument("--width", type=int, action="append", help="cells of a language model (default: 640 and 2048)")
    parser.add_argument("--sentences", type=int, default=200, help="how many to tag in a round")
    parser.add_argument("--batch", type=int, default=32, help="Flair's mini_batch_size (its default: 32)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--smoke", action="store_true", help="without Flair: a test that it runs")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        return serve_ours(arguments.side, arguments.precision)
    if arguments.data is None:
        parser.error("name a file of sentences with tags.")
    data = read_conll(arguments.data)
    rows = [row for width in arguments.width or [640, 2048] for row in compared(width, data, arguments)]
    print(table(rows))
    settings = {name: getattr(arguments, name) for name in ("sentences", "batch", "rounds", "threads", "clock")}
    write_json(arguments.out / "tagger-speed.json", {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
