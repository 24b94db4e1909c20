"""What training on several processes costs: constants measured here, and a model of the time from two cores to 64 GPUs.

    python research/scale.py measure --out constants.json      (a few minutes; torchrun is started for the network)
    python research/scale.py model constants.json              (the tables of docs/scale.md)

The model: a step takes the time of its tokens on one process, and the time to sum the gradients of all, which overlaps
with the backward pass on GPUs but is added in full here. Copies of the model (DDP) send 2 (W - 1) / W times 4 bytes a
parameter, a model in parts (FSDP2) 3 (W - 1) / W times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPES = ("en-ulmfit", "en-bert-small", "en-gpt-small")
STATE = 16
"""Bytes a parameter of a checkpoint with AdamW: weights, best weights, two moments, in float32."""


@dataclass(frozen=True)
class Machines:
    """Processes, and the bandwidth of the slowest link between two of them in bytes a second."""

    name: str
    processes: int
    bandwidth: float
    gpu: bool


def measure(out: Path) -> None:
    """Tokens a second of each recipe on one thread, bytes a second of an all-reduce, and of a checkpoint."""
    import torch

    torch.set_num_threads(1)
    found: dict[str, Any] = {"recipes": {name: _tokens_per_second(name) for name in RECIPES}}
    with tempfile.TemporaryDirectory() as folder:
        found["checkpoint_bytes_per_second"] = _checkpoint(Path(folder) / "checkpoint")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "network"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    found["all_reduce_bytes_per_second"] = json.loads(done.stdout.strip().splitlines()[-1])
    out.write_text(json.dumps(found, indent=1) + "\n")


class RandomText:
    """Random ids, the same for the same place, so that a run on it can be sent to other processes."""

    num_tokens = 2_000_000

    def __init__(self, size: int) -> None:
        import numpy as np

        self.size, self.document_starts = size, np.arange(0, self.num_tokens, 500)

    def read(self, start: int, stop: int) -> Any:
        import numpy as np

        return np.random.default_rng(start).integers(10, self.size, stop - start)


def random_run(name: str, rows: int | None = None) -> Any:
    """A training of a pretraining recipe's model on random ids, with its own rows a batch or others."""
    import numpy as np

    from textgraft.data.streams.base import LanguageModelStream, ScatteredStream, Stream
    from textgraft.data.streams.masking import MaskedStream, MaskingTokens
    from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe, new_language_model
    from textgraft.training.loop import Run
    from textgraft.training.settings import Settings

    recipe = load_pretrain_recipe(name)
    size = int(recipe.tokenizer["vocab_size"])
    model, corpus = new_language_model(recipe, size, seed=0), RandomText(size)
    rows, width = rows or recipe.stage.batch_size, recipe.stage.bptt
    stream: Stream
    if "masked" in type(model.head).__name__.lower():
        special, head = np.arange(size) < 10, model.head.config
        tokens = MaskingTokens(0, 1, 2, 3, special=special, continues=np.zeros(size, dtype=bool))
        stream = MaskedStream(corpus, tokens, length=width, rows=rows, pairs=head.next_sentence, rate=head.masked)
    elif model.encoder.max_length is not None:
        stream = ScatteredStream(corpus, rows=rows, bptt=width)
    else:
        stream = LanguageModelStream(corpus, rows=rows, bptt=width, shuffle=False)
    return Run(model, recipe.stage.plan(len(model.layer_groups())), stream, Settings())


def _tokens_per_second(name: str) -> dict[str, float]:
    run = random_run(name)
    steps = run.steps()
    batch = next(steps).tokens
    seconds, tokens = run.progress.seconds, run.progress.tokens
    began = time.perf_counter()
    while time.perf_counter() - began < 20:
        next(steps)
    rate = (run.progress.tokens - tokens) / (run.progress.seconds - seconds)
    return {"tokens_per_second": rate, "parameters": sum(p.numel() for p in run.model.parameters()), "batch": batch}


def _checkpoint(path: Path) -> float:
    import torch

    from textgraft.training.checkpoint import save_checkpoint

    tensors = {str(i): torch.zeros(25_000_000) for i in range(4)}
    began = time.perf_counter()
    save_checkpoint(path, tensors, {})
    return 4e8 / (time.perf_counter() - began)


def network() -> None:
    """Bytes a second of an all-reduce of 40 MB between two processes of this machine, on process 0."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    values = torch.zeros(10_000_000)
    dist.all_reduce(values)
    began = time.perf_counter()
    for _ in range(10):
        dist.all_reduce(values)
    if dist.get_rank() == 0:
        print(json.dumps(10 * 4e7 / (time.perf_counter() - began)))


def step_seconds(parameters: float, batch: float, rate: float, machines: Machines, *, copies: bool = True) -> float:
    """Seconds of a step of `batch` tokens on all processes together."""
    share = (machines.processes - 1) / machines.processes
    sent = (2 if copies else 3) * share * 4 * parameters
    return batch / (rate * machines.processes) + sent / machines.bandwidth


def model(constants: dict[str, Any], gpu_flops: float, used: float) -> str:
    """The tables as Markdown."""
    loop = constants["all_reduce_bytes_per_second"]
    lines = [
        "| recipe | parameters | tokens/s, one core | sent a step and process | a checkpoint |",
        "|---|---|---|---|---|",
    ]
    for name, row in constants["recipes"].items():
        size = row["parameters"]
        seconds = STATE * size / constants["checkpoint_bytes_per_second"]
        sent = 4 * size / 1e6
        lines.append(
            f"| `{name}` | {size / 1e6:.1f} M | {row['tokens_per_second']:,.0f} | {sent:.0f} MB | {seconds:.1f} s |"
        )
    park = (
        Machines("2 cores", 2, loop, gpu=False),
        Machines("16 cores, 4 machines, 1 Gbit/s", 16, 1.25e8, gpu=False),
        Machines("8 GPUs, one machine", 8, 3e11, gpu=True),
        Machines("64 GPUs, 8 machines, 400 Gbit/s", 64, 5e10, gpu=True),
    )
    lines += ["", "| machines | model | a step of | seconds a step | efficiency | 10^9 tokens | 10^12 tokens |"]
    lines += ["|---|---|---|---|---|---|---|"]
    gpt = constants["recipes"]["en-gpt-small"]
    for machines in park:
        for label, parameters in (("10 M", gpt["parameters"]), ("124 M (GPT-2)", 124e6), ("7 B", 7e9)):
            rate = gpu_flops * used / (6 * parameters)
            if not machines.gpu:
                if parameters > 2e8:
                    continue
                rate = gpt["tokens_per_second"] * gpt["parameters"] / parameters
            batch = 500_000 if machines.gpu else 16_000
            seconds = step_seconds(parameters, batch, rate, machines, copies=parameters < 1e9)
            best = batch / (rate * machines.processes)
            cells = [machines.name, label, f"{batch:,} tokens", f"{seconds:.3g}", f"{best / seconds:.0%}"]
            cells += [_time(tokens / batch * seconds) for tokens in (1e9, 1e12)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, size in (("years", 365 * 86_400), ("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} seconds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("measure").add_argument("--out", type=Path, required=True)
    verbs.add_parser("network")
    table = verbs.add_parser("model")
    table.add_argument("constants", type=Path)
    table.add_argument("--gpu-flops", type=float, default=989e12, help="of the data sheet, in bfloat16")
    table.add_argument("--used", type=float, default=0.35, help="share of it that a training reaches")
    asked = parser.parse_args()
    if asked.verb == "measure":
        measure(asked.out)
    elif asked.verb == "network":
        network()
    else:
        print(model(json.loads(asked.constants.read_text("utf-8")), asked.gpu_flops, asked.used))


if __name__ == "__main__":
    main()
