"""Training of Neural Turing Machines beside an LSTM on one of the paper's tasks, and their cost on longer sequences."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import write_atomically
from textgraft.core.identity import identity_of
from textgraft.core.progress_bar import Bar
from textgraft.experiments.ntm import NTM, TASKS, NTMConfig, Task, Trace, Training, bits
from textgraft.metrics.classification import bootstrap_interval
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.results_folder import run_experiment, validate_new_path

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "ntm-lstm": {"controller": "lstm"},
    "ntm-feedforward": {"controller": "feedforward"},
    "lstm": {"controller": "lstm", "heads": 0, "controller_dim": 256},
}
"""Settings of NTMConfig by the names of the networks that are compared."""
SAVE_EVERY, POINT_EVERY, CHUNK = 500, 100, 32


@dataclass(frozen=True)
class NTMOptions:
    """Options of the experiment.

    Args:
        networks: Names in NETWORKS.
        steps: Training steps of each.
        batch_size: Sequences a step.
        learning_rate: Of Adam (the paper: RMSprop with momentum).
        heads: Heads that read and heads that write, of networks that have a memory.
        test_sequences: Sequences of each size that the trained networks are measured on.
        seed: Seed of weights and sequences.
    """

    networks: tuple[str, ...] = tuple(NETWORKS)
    steps: int = 10_000
    batch_size: int = 16
    learning_rate: float = 2e-3
    heads: int = 1
    test_sequences: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.networks:
            if name not in NETWORKS:
                raise UserError(f"there is no network '{name}'.", where="networks", remedy=did_you_mean(name, NETWORKS))
        for name in ("steps", "batch_size", "heads", "test_sequences"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")
        if not 0 < self.learning_rate < 1:
            raise UserError(f"learning_rate is {self.learning_rate}.", remedy="Give a number above 0 and below 1.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change the results."""
        return identity_of(self)


def inspect_ntm(
    task: str, out: Path | str, *, options: NTMOptions | None = None, context: RunContext | None = None
) -> dict[str, Any]:
    """Train Neural Turing Machines and an LSTM on a task; write `out`/results.json and report.html.

    Every network sees the same sequences. After an interruption the same call continues, with the same numbers.

    Args:
        task: A name in textgraft.experiments.ntm.TASKS.
        out: Folder to write; it must not exist.
        options: Networks, steps, seed.
        context: Whether progress is shown.

    Returns:
        The contents of results.json: for each network its learning curve in bits a sequence, its cost and wrong bits on
        new sequences of each size with 95 % intervals, and its attention in one of them.

    Raises:
        UserError: There is no such task, or `out` exists.
    """
    validate_new_path(Path(out))
    if task not in TASKS:
        raise UserError(f"there is no task '{task}'.", where="task", remedy=did_you_mean(task, TASKS))
    options, show = options or NTMOptions(), context is None or context.show

    def make_results(folder: Path) -> tuple[dict[str, Any], str]:
        networks = {name: _trained(name, task, options, folder, show=show) for name in options.networks}
        results = {"task": task, "about": TASKS[task].about, "options": options.identity(), "networks": networks}
        from textgraft.experiments.ntm_report import render_ntm  # here, because it loads matplotlib

        return results, render_ntm(results)

    return run_experiment(
        Path(out), {"stage": "inspect ntm", "task": task, "options": options.identity()}, make_results
    )


def new_network(name: str, task: Task, options: NTMOptions) -> NTM:
    """An untrained network of NETWORKS for a task."""
    config = NTMConfig(task.input_dim, task.output_dim, **NETWORKS[name])
    if config.heads:
        config = replace(config, heads=options.heads)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return NTM(config)


def _trained(name: str, task_name: str, options: NTMOptions, folder: Path, *, show: bool) -> dict[str, Any]:
    """The results of one network, from its file in `folder` if there is one."""
    path, task = folder / f"{name}.json", TASKS[task_name]
    if not path.exists():
        network = new_network(name, task, options)
        curve, seconds = train(network, task, options, folder / f"{name}.safetensors", title=name if show else "")
        result = {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "seconds": seconds,
            "curve": curve,
            "tested": [tested(network, task, size, options) for size in task.tested],
        }
        if network.config.heads:
            result["trace"] = _trace(network, task, options.seed)
        write_atomically(path, json.dumps(result).encode())
    return dict(json.loads(path.read_text(encoding="utf-8")))


def train(
    network: NTM, task: Task, options: NTMOptions, checkpoint: Path, *, title: str = ""
) -> tuple[list[list[float]], float]:
    """Train a network, with its state in `checkpoint` every SAVE_EVERY steps, from which it continues.

    Returns:
        The learning curve, [sequences, mean bits a sequence] for each POINT_EVERY steps, and the duration in seconds.
    """
    training = Training(network, task, options.steps, options.batch_size, options.learning_rate, options.seed)
    curve, seconds = _restored(training, checkpoint)
    with Bar(show=bool(title)) as bar:
        bar_task = bar.add_task(title, total=options.steps, completed=training.step)
        began = time.monotonic()
        steps = training.run()
        while part := list(islice(steps, POINT_EVERY)):
            curve.append([part[-1].sequences, float(np.mean([step.bits for step in part]))])
            bar.update(bar_task, completed=training.step, description=f"{title} {curve[-1][1]:.3f} bits a sequence")
            if training.step % SAVE_EVERY == 0 or training.step == options.steps:
                _save(training, checkpoint, curve, seconds + time.monotonic() - began)
    return curve, seconds + time.monotonic() - began


def _save(training: Training, path: Path, curve: list[list[float]], seconds: float) -> None:
    tensors = {f"model.{name}": value for name, value in training.model.state_dict().items()}
    state = training.optimizer.state_dict()["state"]
    tensors |= {f"optimizer.{index}.{key}": value for index, of in state.items() for key, value in of.items()}
    save_checkpoint(path, tensors, {"step": training.step, "curve": curve, "seconds": seconds})


def _restored(training: Training, path: Path) -> tuple[list[list[float]], float]:
    """Continue from a checkpoint, where there is one: its learning curve and duration so far."""
    if not path.exists():
        return [], 0.0
    tensors, facts = load_checkpoint(path)
    training.model.load_state_dict({n.removeprefix("model."): v for n, v in tensors.items() if n.startswith("model.")})
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = value
    optimizer = training.optimizer
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    training.step = facts["step"]
    return facts["curve"], facts["seconds"]


@torch.no_grad()
def tested(network: NTM, task: Task, size: int, options: NTMOptions) -> dict[str, Any]:
    """Cost in bits a sequence, with its 95 % interval, and share of wrong bits on new sequences of one size."""
    generator = np.random.default_rng((options.seed, 1, size))
    costs, wrong = [], []
    for first in range(0, options.test_sequences, CHUNK):
        cost, errors = bits(network, task.batch(generator, min(CHUNK, options.test_sequences - first), size))
        costs += cost.tolist()
        wrong += errors.tolist()
    interval = bootstrap_interval(np.array(costs)[None])._asdict()
    return {"size": size, "bits": interval, "wrong": float(np.mean(wrong)), "sequences": len(costs)}


@torch.no_grad()
def _trace(network: NTM, task: Task, seed: int) -> dict[str, Any]:
    """One sequence of the largest size of training, what was answered, and the heads' weights and vectors."""
    sequences, trace = task.batch(np.random.default_rng((seed, 2)), 1, task.trained[1]), Trace()
    answer = torch.sigmoid(network(sequences.inputs, trace)[0, -sequences.targets.shape[1] :])
    arrays = {name: array.round(3).tolist() for name, array in trace.arrays().items()}
    shown = {"inputs": sequences.inputs[0], "targets": sequences.targets[0], "answers": answer}
    return arrays | {name: value.numpy().round(3).tolist() for name, value in shown.items()}
