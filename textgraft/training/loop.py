"""The training loop: a generator of steps; saving, progress output and stopping are the caller's.

A run's state is a few numbers and tensors (`Run.save`, `Run.resume`); everything else is a pure function of the seed. A
run that is killed and resumed from any checkpoint ends bit-equal, on one CPU, to an uninterrupted one. A checkpoint can
be loaded on every device: the run continues with the same batches and rates, though not bit-equal.

Several processes (core.processes) run the same loop, each with its share of every batch; `training.followers` keeps
them in step. Batches, rates and results do not depend on their number, but for dropout, which is drawn on each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.processes import ALONE, Processes, current
from textgraft.data.batch import Batch
from textgraft.data.streams.base import Seekable, Stream, ahead
from textgraft.encoders.base import State
from textgraft.heads.base import Loss
from textgraft.models.inference import ProgressCallback, no_progress
from textgraft.models.model import Model
from textgraft.nn.cpu.denormals import flushed
from textgraft.nn.cpu.precision import computing_in, resolve
from textgraft.training.contrastive import contrastive_backward
from textgraft.training.divergence import validate_finite
from textgraft.training.engines import Engine, Single, nothing
from textgraft.training.frozen_features import extract_frozen_features, with_features
from textgraft.training.optimizers import NTASGD, build_optimizer, set_rates
from textgraft.training.phases import Phase, set_trainable
from textgraft.training.run_state import (
    encoder_state,
    encoder_tensors,
    load_optimizer,
    load_run,
    load_values,
    optimizer_tensors,
    under,
)
from textgraft.training.settings import Settings

Scores = dict[str, float]
POSITIONS = {"fp32": 512, "bf16": 2048}
"""Positions per forward and backward pass on a CPU: larger products are hardly faster there, and the activations that
they keep for the backward pass are most of the memory of a fine-tuning. In bfloat16 these are half as large, and each
pass casts the weights again, which should be a small share of its cost."""


@dataclass(frozen=True)
class Step:
    """State of the training after an optimizer step; `scores` only after a validation."""

    phase: str
    epoch: int
    step: int
    progress: float  # of the phase, 0 to 1
    loss: float
    lr: float
    tokens: int
    seconds: float
    scores: Scores | None = None


@dataclass
class Progress:
    """Position of a run in its phases, saved as JSON in its checkpoint."""

    phase: int = 0
    epoch: int = 0  # within the phase
    batch: int = 0  # next batch of the epoch
    step: int = 0  # steps done in the phase
    tokens: int = 0
    seconds: float = 0.0
    epoch_loss: float = 0.0
    epoch_count: int = 0
    stale: int = 0
    best: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    annealed: float = 1.0  # factor of the phase's rates, by annealing
    level: float | None = None  # the phase's best score, for annealing
    flat: int = 0  # validations since then, or since the last annealing


class Run:
    """Training of a model in phases.

    Args:
        model: It is moved to the settings' device and stays there.
        phases: In order.
        stream: The training batches.
        settings: Of all phases.
        validate: From the model to scores; the weights with the highest "score" are restored at the end. None: the last
            weights are kept.
    """

    def __init__(
        self,
        model: Model,
        phases: Sequence[Phase],
        stream: Stream,
        settings: Settings,
        validate: Callable[[Model], Scores] | None = None,
    ) -> None:
        self.device = resolve_device(settings.device)
        whole = settings.sharding == "none" or not current().several  # a model in parts may not fit on one device
        self.model, self.phases, self.stream = model.to(self.device) if whole else model, phases, stream
        self.settings, self.validate = settings, validate
        self.processes: Processes = ALONE
        self.engine: Engine = Single(self.model)
        self.precision = resolve(settings.precision, self.device)
        self.positions = POSITIONS[self.precision] if self._splits_batches() else None
        self.progress = Progress()
        self.state: State | None = None
        self.best: dict[str, Tensor] = {}
        self.optimizer: torch.optim.Optimizer | None = None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.rng = torch.get_rng_state()

    def join(self, processes: Processes, engine: Engine) -> None:
        """Train together with other processes, all of which have the same run. To be called before `restore`."""
        self.processes, self.engine = processes, engine

    def steps(self, on_progress: ProgressCallback = no_progress) -> Iterator[Step]:
        """Train to the end of the last phase, yielding after every optimizer step.

        Args:
            on_progress: Called with the number of texts encoded, where a phase encodes them before its first step
                (training.frozen_features).

        Raises:
            UserError: The loss or a gradient is not finite, or the phase trains nothing that the head depends on.
        """
        if self.progress.finished:
            return
        while self.progress.phase < len(self.phases):
            phase = self.phases[self.progress.phase]
            if self.optimizer is None:
                self.optimizer = self._new_optimizer(phase)
            yield from self._phase_steps(phase, on_progress)
            if self.out_of_patience():
                break
            previous = self.progress
            self.progress = Progress(
                phase=previous.phase + 1,
                tokens=previous.tokens,
                seconds=previous.seconds,
                best=previous.best,
                history=previous.history,
            )
            self.optimizer, self.state = None, None
        if self.best:
            load_values(self.model, self.best, self.engine.like)
        self.model, self.optimizer, self.state = self.engine.end(), None, None
        if self.settings.activation_checkpointing:
            from textgraft.training.activation_checkpointing import keep_activations

            keep_activations(self.model)
        self.progress.finished = True

    def _splits_batches(self) -> bool:
        """True if a batch may be split: rows are independent, and of the same cost in batches of any size."""
        normalised = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        return self.device.type == "cpu" and not (self.stream.stateful or self.model.encoder.recurrent or normalised)

    def _new_optimizer(self, phase: Phase) -> torch.optim.Optimizer:
        def choose(model: Model) -> None:
            set_trainable(model.layer_groups(), phase)
            model.contrastive_temperature = phase.contrastive_temperature
            if self.settings.activation_checkpointing:
                from textgraft.training.activation_checkpointing import checkpoint_activations

                checkpoint_activations(model)

        self.model = self.engine.begin(choose)
        return build_optimizer(self.model.layer_groups(), phase, processes=self.processes)

    def _total_steps(self, phase: Phase, first_epoch: int) -> int:
        """Optimizer steps of the phase, at least one; an epoch's last step may have fewer micro-batches."""

        def steps(epoch: int) -> int:
            return math.ceil(self.stream.length(epoch) / self.settings.accumulate)

        whole = int(phase.epochs)
        rest = phase.epochs - whole
        count = sum(steps(first_epoch + e) for e in range(whole))
        return max(1, count + (round(rest * steps(first_epoch + whole)) if rest else 0))

    def _first_epoch(self) -> int:
        """Number of epochs of earlier phases, so that every epoch of a run has another order."""
        return sum(math.ceil(p.epochs) for p in self.phases[: self.progress.phase])

    def _time_slot(self, minutes: float) -> tuple[float, float]:
        """Start and length of the current phase in seconds, if the whole run has `minutes`."""
        epochs = [p.epochs for p in self.phases]
        second_per_epoch = minutes * 60 / sum(epochs)
        at = self.progress.phase
        return sum(epochs[:at]) * second_per_epoch, epochs[at] * second_per_epoch

    def _phase_steps(self, phase: Phase, on_progress: ProgressCallback) -> Iterator[Step]:
        at, settings = self.progress, self.settings
        first_epoch = self._first_epoch()
        total = self._total_steps(phase, first_epoch)
        slot = self._time_slot(settings.minutes) if settings.minutes is not None else None

        started = time.perf_counter()
        readers = ALONE if self.engine.in_parts else self.processes  # all have to compute a model in parts together
        features = extract_frozen_features(self.model, self.stream, total, self.precision, readers, on_progress)
        at.seconds += time.perf_counter() - started

        def done() -> float:
            return at.step / total if slot is None else min(1.0, max(0.0, at.seconds - slot[0]) / slot[1])

        while done() < 1 and not self._over(phase):
            epoch = first_epoch + at.epoch
            length = self.stream.length(epoch)
            batches = with_features(self._shares(epoch, at.batch), features)
            if self.device.type == "cuda":
                batches = ahead(batches)
            while at.batch < length and done() < 1:
                started = time.perf_counter()
                micro = list(islice(batches, settings.accumulate))
                loss, count, tokens, lr = self._step(micro, phase, done(), total)
                at.batch += len(micro)
                at.step += 1
                at.tokens += tokens
                at.epoch_loss += loss
                at.epoch_count += count
                at.seconds += time.perf_counter() - started
                if slot is not None:  # one clock decides
                    at.seconds = self.processes.from_first(at.seconds)
                ended = at.batch >= length or done() >= 1
                due = (
                    ended if settings.validate_every is None else at.step % settings.validate_every == 0 or done() >= 1
                )
                scores = self._validated(phase) if due else None
                shown_epoch, step = at.epoch, at.step
                if ended:
                    at.epoch, at.batch, at.epoch_loss, at.epoch_count = at.epoch + 1, 0, 0.0, 0
                    self.state = None
                yield Step(phase.name, shown_epoch, step, done(), loss / count, lr, at.tokens, at.seconds, scores)
                if self._over(phase):
                    return
                if ended:
                    break

    @flushed()
    def _step(self, micro: list[Batch], phase: Phase, done: float, total: int) -> tuple[float, int, int, float]:
        """One optimizer step over one or more batches: (summed loss, its count, tokens, the top group's rate)."""
        assert self.optimizer is not None
        on_gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_gpu else []):
            torch.set_rng_state(self.rng)
            if self.processes.several:  # one draw of the run's generator, whose state all save, seeds each in its way
                seed = int(torch.randint(2**62, ()))
                self.rng = torch.get_rng_state()
                torch.manual_seed(seed + self.processes.rank)
            if on_gpu:  # seeded by the CPU's generator, the only one whose state is saved
                torch.cuda.manual_seed(int(torch.randint(2**62, ())))
            loss_sum, count = self._backward(micro)
            if not self.processes.several:
                self.rng = torch.get_rng_state()
        local = sum(int(b.mask.sum()) for b in micro)
        loss_sum, *counts = self.processes.sums(loss_sum, count, local)
        count, tokens = (round(number) for number in counts)
        place = f"phase '{phase.name}', step {self.progress.step + 1}"
        validate_finite(loss_sum, "loss", place)
        validate_finite(self._divide_and_clip(count), "gradient", place)
        # With a time limit the number of steps is unknown: schedules count ten thousandths of the time.
        at = (self.progress.step, total) if self.settings.minutes is None else (int(done * 10_000), 10_000)
        scale = sum(self.stream.rate_scale(b) for b in micro) / len(micro)
        set_rates(self.optimizer, phase, *at, scale=scale * self.progress.annealed)
        lr = float(self.optimizer.param_groups[-1]["lr"])
        self.optimizer.step()
        # Fused optimizers do not increment the version of the weights, by which casts are cached (precision.Casts).
        torch.autograd.graph.increment_version([p for g in self.optimizer.param_groups for p in g["params"]])
        self.optimizer.zero_grad(set_to_none=True)
        return loss_sum, count, tokens, lr

    def _backward(self, micro: list[Batch]) -> tuple[float, int]:
        """Accumulate the gradients of the batches' summed losses: (summed loss, its count).

        The state is carried over. Batches of independent rows are split, so that few activations are in memory; for a
        contrastive loss texts are encoded twice for that.
        """
        self.model.train()
        loss_sum, count = 0.0, 0
        cut = self._parts(micro)
        if self.model.contrastive_temperature:
            for number, parts in enumerate(cut):
                with computing_in(self.precision, self.device):
                    loss = contrastive_backward(self.engine, parts, self.processes, last=number == len(cut) - 1)
                loss_sum, count = loss_sum + float(loss.total), count + loss.count
            return loss_sum, count
        flat = [part for parts in cut for part in parts]
        for number, part in enumerate(flat):
            with computing_in(self.precision, self.device):
                loss = self.engine.loss(partial(self._loss_of, part), last=number == len(flat) - 1)
            if not loss.total.requires_grad:
                phase = self.phases[self.progress.phase].name
                message = f"the head does not depend on any parameter that the phase '{phase}' trains."
                raise UserError(message, remedy="Use another recipe, or a layer aggregation of higher layers.")
            loss.total.backward()
            loss_sum, count = loss_sum + float(loss.total.detach()), count + loss.count
            if self.stream.stateful and loss.state is not None:
                self.state = tuple(tuple(t.detach() for t in layer) for layer in loss.state)
        return loss_sum, count

    def _loss_of(self, part: Batch, model: Model) -> Loss:
        if not len(part.ids):
            return nothing(model)
        return model.loss(part, self.state if self.stream.stateful else None)

    def _parts(self, micro: list[Batch]) -> list[list[Batch]]:
        """Each batch in parts of at most `positions` positions.

        For a contrastive loss, which costs a second pass over several parts, positions are counted without the padding
        that the model leaves out.
        """
        if self.positions is None:
            return [[batch] for batch in micro]
        whole = self.model.contrasted_positions if self.model.contrastive_temperature else (lambda b: b.ids.numel())
        return [[batch] if whole(batch) <= self.positions else batch.parts(self.positions) for batch in micro]

    def _shares(self, epoch: int, start: int) -> Iterator[Batch]:
        """This process's share of each batch."""
        for batch in self.stream.batches(epoch, start):
            if self.stream.stateful and len(batch.ids) < self.processes.size:  # on each of them, or the others wait
                message = (
                    f"{len(batch.ids)} contiguous streams of text are too few for {self.processes.size} processes."
                )
                raise UserError(message, remedy="Start fewer processes, or give more text or a larger batch_size.")
            yield batch.share(self.processes)

    def _divide_and_clip(self, count: int) -> float:
        """Turn the gradient of the sum into that of the mean, and clip it; returns its global norm before clipping."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = self.engine.norm(grads) * self.engine.factor / count
        clip = self.settings.clip
        scale = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        torch._foreach_mul_(grads, scale * self.engine.factor / count)
        return norm

    def _validated(self, phase: Phase) -> Scores | None:
        at = self.progress
        row: dict[str, Any] = {
            "phase": phase.name,
            "epoch": at.epoch + 1,
            "step": at.step,
            "tokens": at.tokens,
        }
        row |= {"seconds": round(at.seconds, 3), "train_loss": at.epoch_loss / max(1, at.epoch_count)}
        if self.validate is None:
            at.history.append(row)
            self._anneal(phase, -row["train_loss"])
            return None
        self.model.eval()
        averaged = self.optimizer.averaged() if isinstance(self.optimizer, NTASGD) else nullcontext()
        with averaged, torch.no_grad(), computing_in(self.precision, self.device):
            scores = self.validate(self.model)
            validate_finite(scores["score"], "validation score", f"phase '{phase.name}', step {at.step}")
            at.history.append(row | scores)
            if at.best is None or scores["score"] > at.best:
                at.best, at.stale = scores["score"], 0
                self.best = {name: value.detach().clone() for name, value in self.model.values().items()}
            else:
                at.stale += 1
        if isinstance(self.optimizer, NTASGD):
            self.optimizer.observe(scores["loss"])
        self._anneal(phase, scores["score"])
        return scores

    def _anneal(self, phase: Phase, score: float) -> None:
        """Lower the learning rate on a plateau of `score`: that of a validation, or else the negative training loss."""
        at, anneal = self.progress, phase.anneal
        if anneal is None:
            return
        if at.level is None or score > at.level:
            at.level, at.flat = score, 0
            return
        at.flat += 1
        if at.flat > anneal.patience:
            at.annealed, at.flat = at.annealed * anneal.factor, 0

    def _over(self, phase: Phase) -> bool:
        """True if patience or annealing ends the phase early."""
        annealed = phase.anneal is not None and phase.lr * self.progress.annealed < phase.anneal.least
        return annealed or self.out_of_patience()

    def out_of_patience(self) -> bool:
        """True after `settings.patience` validations without a better score."""
        return self.settings.patience is not None and self.progress.stale >= self.settings.patience

    def save(self, path: Path) -> None:
        """Write the whole state of the run, atomically. All processes have to call it at the same time.

        The first writes one file; of a model in parts, each process writes its own too (training.parts). A run can
        continue from either on any number of processes.
        """
        self.engine.save(path, *self.collect())

    def collect(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, as this process holds them, and plain values. All processes have to call it at the same time."""
        parts: dict[str, dict[str, Tensor]] = {"model": self.model.values(), "best": self.best}
        if self.optimizer is not None:
            parts["optimizer"] = optimizer_tensors(self.optimizer)
        tensors = {f"{part}.{name}": t for part, named in parts.items() for name, t in named.items()}
        tensors |= {f"state.{name}": t for name, t in encoder_tensors(self.state, self.processes).items()}
        tensors["rng"] = self.rng
        groups = None if self.optimizer is None else self.optimizer.state_dict()["param_groups"]
        state = {"progress": asdict(self.progress), "optimizer": groups}
        if isinstance(self.stream, Seekable):
            state["cursor"] = self.stream.cursor(self._first_epoch() + self.progress.epoch, self.progress.batch)
        return tensors, state

    def resume(self, path: Path) -> bool:
        """Restore a saved state, weights included; False if the file does not exist."""
        if not path.exists():
            return False
        self.restore(*load_run(path))
        return True

    def restore(self, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        """Continue from a state that `collect` returned, on any number of processes."""
        self.progress = Progress(**state["progress"])
        if isinstance(self.stream, Seekable):
            self.stream.seek(state["cursor"])
        load_values(self.model, under(tensors, "model."))
        self.rng = tensors["rng"]
        self.state = encoder_state(under(tensors, "state."), self.processes, self.device)
        if state["optimizer"] is not None:
            self.optimizer = self._new_optimizer(self.phases[self.progress.phase])
            load_optimizer(self.optimizer, under(tensors, "optimizer."), state["optimizer"], self.engine.like)
        values = self.model.values()
        self.best = {name: self.engine.like(best, values[name]) for name, best in under(tensors, "best.").items()}
