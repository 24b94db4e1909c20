"""The Neural Turing Machine, its tasks and its training: a network that reads and writes a memory by attention.

Source: Graves, Wayne & Danihelka 2014, arXiv:1410.5401; equation numbers are theirs. What the paper leaves open is as
in Collier & Beel 2018, arXiv:1807.08518: the memory begins with one small constant, and what is read first is learned.

Letters: B sequences, T steps, H heads (R that read, then W that write), N slots of width M, S shifts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean

FIRST_MEMORY = 1e-6
EPSILON = 1e-12
CONTROLLERS = ("lstm", "feedforward")


def content_weights(memory: Tensor, keys: Tensor, strengths: Tensor) -> Tensor:
    """Weights (B, H, N) by the cosine of keys (B, H, M) and slots (B, N, M), times strengths (B, H) (eq. 5, 6)."""
    cosines = F.normalize(keys, dim=-1, eps=EPSILON) @ F.normalize(memory, dim=-1, eps=EPSILON).transpose(1, 2)
    return torch.softmax(strengths[..., None] * cosines, dim=-1)


def interpolated(content: Tensor, previous: Tensor, gates: Tensor) -> Tensor:
    """Weights (B, H, N) between those by content, gates (B, H) of 1, and those of the step before, of 0 (eq. 7)."""
    return previous + gates[..., None] * (content - previous)


def shifted(weights: Tensor, shifts: Tensor) -> Tensor:
    """Circular convolution of weights (B, H, N) with distributions (B, H, S) over shifts around 0 (eq. 8)."""
    reach = shifts.shape[-1] // 2
    rolled = torch.stack([weights.roll(by, dims=-1) for by in range(-reach, reach + 1)], dim=-1)
    return (rolled @ shifts[..., None]).squeeze(-1)


def sharpened(weights: Tensor, powers: Tensor) -> Tensor:
    """Weights (B, H, N) to the power (B, H) of 1 or more, normalised (eq. 9)."""
    raised = (weights + EPSILON) ** powers[..., None]
    return raised / raised.sum(dim=-1, keepdim=True)


def read(memory: Tensor, weights: Tensor) -> Tensor:
    """Weighted means (B, R, M) of the slots (eq. 2)."""
    return weights @ memory


def written(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """The memory after all W heads have erased (eq. 3), then added (eq. 4): weights (B, W, N), vectors (B, W, M)."""
    kept = (1 - weights[..., None] * erase[:, :, None, :]).prod(dim=1)
    return memory * kept + weights.transpose(1, 2) @ add


@dataclass(frozen=True)
class NTMConfig:
    """Shape of a Neural Turing Machine.

    Args:
        input_dim: Width of the input.
        output_dim: Width of the output.
        controller: "lstm" or "feedforward".
        controller_dim: Width of the controller.
        slots: N.
        width: M.
        heads: Number of heads that read, and of heads that write; 0: the controller alone, without a memory.
        shifts: S, odd.
    """

    input_dim: int
    output_dim: int
    controller: str = "lstm"
    controller_dim: int = 100
    slots: int = 128
    width: int = 20
    heads: int = 1
    shifts: int = 3

    def __post_init__(self) -> None:
        if self.controller not in CONTROLLERS:
            remedy = did_you_mean(self.controller, CONTROLLERS)
            raise UserError(f"there is no controller '{self.controller}'.", remedy=remedy)
        if self.shifts % 2 == 0:
            raise UserError(f"shifts is {self.shifts}.", remedy="Give an odd number: 3 is one slot to either side.")


@dataclass
class Trace:
    """What happened in one sequence, for pictures: for each of T steps.

    Attributes:
        weights: (T, H, N).
        reads: (T, R, M).
        adds: (T, W, M).
    """

    weights: list[Tensor] = field(default_factory=list)
    reads: list[Tensor] = field(default_factory=list)
    adds: list[Tensor] = field(default_factory=list)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The same as arrays by name."""
        return {name: torch.stack(steps).numpy() for name, steps in vars(self).items() if steps}


class NTM(nn.Module):
    """A controller whose input includes what its heads have read, and whose output moves them.

    All heads address the memory as it was after the step before; reading comes before writing.
    """

    def __init__(self, config: NTMConfig) -> None:
        super().__init__()
        self.config, c = config, config
        reads = c.heads * c.width
        seen = c.input_dim + reads
        made: dict[str, Callable[[], nn.Module]] = {
            "lstm": lambda: nn.LSTMCell(seen, c.controller_dim),
            "feedforward": lambda: nn.Linear(seen, c.controller_dim),
        }
        self.controller = made[c.controller]()
        self.output = nn.Linear(c.controller_dim + reads, c.output_dim)
        if not c.heads:
            return
        self.addresses = nn.Linear(c.controller_dim, 2 * c.heads * (c.width + 3 + c.shifts))
        self.changes = nn.Linear(c.controller_dim, c.heads * 2 * c.width)
        self.first_reads = nn.Parameter(torch.randn(c.heads, c.width) * 0.05)
        first = torch.zeros(2 * c.heads, c.slots)
        first[:, 0] = math.log(10 * c.slots)  # nine tenths of the weight, so that heads begin at one slot
        self.first_weights = nn.Parameter(first)

    def forward(self, inputs: Tensor, trace: Trace | None = None) -> Tensor:
        """Logits (B, T, output_dim) of inputs (B, T, input_dim); `trace` records the first sequence."""
        c, size = self.config, len(inputs)
        state: tuple[Tensor, Tensor] | None = None
        if c.heads:
            memory = inputs.new_full((size, c.slots, c.width), FIRST_MEMORY)
            reads = torch.tanh(self.first_reads).expand(size, -1, -1)
            weights = torch.softmax(self.first_weights, dim=-1).expand(size, -1, -1)
        else:
            memory, reads, weights = (inputs.new_zeros(size, 0, 0) for _ in range(3))
        outputs = []
        for step in inputs.unbind(dim=1):
            hidden, state = self._controlled(torch.cat([step, reads.flatten(1)], dim=-1), state)
            if c.heads:
                weights = self.addressed(memory, weights, self.addresses(hidden))
                reads = read(memory, weights[:, : c.heads])
                erase, add = self.changes(hidden).view(size, c.heads, 2 * c.width).chunk(2, dim=-1)
                memory = written(memory, weights[:, c.heads :], torch.sigmoid(erase), torch.tanh(add))
                if trace is not None:
                    for steps, value in ((trace.weights, weights), (trace.reads, reads), (trace.adds, torch.tanh(add))):
                        steps.append(value[0].detach())
            outputs.append(self.output(torch.cat([hidden, reads.flatten(1)], dim=-1)))
        return torch.stack(outputs, dim=1)

    def addressed(self, memory: Tensor, previous: Tensor, parameters: Tensor) -> Tensor:
        """Weights (B, H, N) of all heads by the controller's parameters (B, H * (M + 3 + S)), figure 2 of the paper."""
        c = self.config
        parts = parameters.view(len(parameters), 2 * c.heads, -1).split([c.width, 1, 1, c.shifts, 1], dim=-1)
        keys, strengths, gates, shifts, powers = parts
        content = content_weights(memory, torch.tanh(keys), F.softplus(strengths).squeeze(-1))
        weights = interpolated(content, previous, torch.sigmoid(gates).squeeze(-1))
        weights = shifted(weights, torch.softmax(shifts, dim=-1))
        return sharpened(weights, 1 + F.softplus(powers).squeeze(-1))

    def _controlled(self, seen: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Any]:
        if self.config.controller == "lstm":
            state = self.controller(seen, state)
            assert state is not None
            return state[0], state
        return torch.tanh(self.controller(seen)), None


@dataclass(frozen=True)
class Sequences:
    """Inputs (B, T, D), and targets (B, A, O) of 0 and 1 for the last A steps."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Task:
    """A task of the paper.

    Attributes:
        about: In a sentence.
        input_dim: D.
        output_dim: O.
        batch: From a generator, a number of sequences and a size of the problem to sequences of one length.
        trained: Sizes of training, smallest and largest.
        tested: Sizes that are measured; those beyond training show whether an algorithm was learned.
    """

    about: str
    input_dim: int
    output_dim: int
    batch: Callable[[np.random.Generator, int, int], Sequences]
    trained: tuple[int, int]
    tested: tuple[int, ...]

    def training_batch(self, generator: np.random.Generator, count: int) -> Sequences:
        """Sequences of a random size of training."""
        return self.batch(generator, count, int(generator.integers(self.trained[0], self.trained[1] + 1)))


BITS, ITEM_BITS, ITEM_LENGTH, MAX_REPEATS = 8, 6, 3, 10


def copy_task(generator: np.random.Generator, count: int, size: int) -> Sequences:
    """`size` random vectors, an end mark in a channel of its own; then the same vectors are asked for (§4.1)."""
    vectors = generator.integers(0, 2, (count, size, BITS))
    inputs = np.zeros((count, 2 * size + 1, BITS + 1))
    inputs[:, :size, :BITS] = vectors
    inputs[:, size, BITS] = 1
    return _sequences(inputs, vectors)


def repeat_copy(generator: np.random.Generator, count: int, size: int) -> Sequences:
    """Up to `size` vectors, and how often they are asked for, up to as often; then an end mark is (§4.2).

    The number is normalised to mean 0 and variance 1 over 1 to MAX_REPEATS.
    """
    length, repeats = (int(generator.integers(1, size + 1)) for _ in range(2))
    return repeated(generator, count, length, repeats)


def repeated(generator: np.random.Generator, count: int, length: int, repeats: int) -> Sequences:
    """`length` vectors that are asked for `repeats` times, then an end mark."""
    vectors = generator.integers(0, 2, (count, length, BITS))
    inputs = np.zeros((count, length + 1 + length * repeats + 1, BITS + 1))
    inputs[:, :length, :BITS] = vectors
    numbers = np.arange(1, MAX_REPEATS + 1)
    inputs[:, length, BITS] = (repeats - numbers.mean()) / numbers.std()
    targets = np.zeros((count, length * repeats + 1, BITS + 1))
    targets[:, :-1, :BITS] = np.tile(vectors, (1, repeats, 1))
    targets[:, -1, BITS] = 1
    return _sequences(inputs, targets)


def associative_recall(generator: np.random.Generator, count: int, size: int) -> Sequences:
    """`size` items of three vectors, each after a mark, then one of them again: the next is asked for (§4.3)."""
    items = generator.integers(0, 2, (count, size, ITEM_LENGTH, ITEM_BITS))
    asked = generator.integers(0, size - 1, count)
    each, rows = ITEM_LENGTH + 1, np.arange(count)
    inputs = np.zeros((count, size * each + each + 1 + ITEM_LENGTH, ITEM_BITS + 2))
    for i in range(size):
        inputs[:, i * each, ITEM_BITS] = 1
        inputs[:, i * each + 1 : (i + 1) * each, :ITEM_BITS] = items[:, i]
    query = size * each
    inputs[:, [query, query + each], ITEM_BITS + 1] = 1
    inputs[:, query + 1 : query + each, :ITEM_BITS] = items[rows, asked]
    return _sequences(inputs, items[rows, asked + 1])


def priority_sort(generator: np.random.Generator, count: int, size: int) -> Sequences:
    """`size` vectors with priorities from -1 to 1: the first four fifths by priority are asked for (§4.5: 16 of 20)."""
    vectors, priorities = generator.integers(0, 2, (count, size, BITS)), generator.uniform(-1, 1, (count, size))
    answers = max(1, size * 4 // 5)
    order = np.argsort(-priorities, axis=1)[:, :answers]
    inputs = np.zeros((count, size + 1 + answers, BITS + 2))
    inputs[:, :size, :BITS] = vectors
    inputs[:, :size, BITS] = priorities
    inputs[:, size, BITS + 1] = 1
    return _sequences(inputs, np.take_along_axis(vectors, order[..., None], axis=1))


def _sequences(inputs: NDArray, targets: NDArray) -> Sequences:
    return Sequences(*(torch.from_numpy(array.astype(np.float32)) for array in (inputs, targets)))


TASKS: Mapping[str, Task] = {
    "copy": Task("repeat random vectors once", BITS + 1, BITS, copy_task, (1, 20), (10, 20, 30, 50, 120)),
    "repeat-copy": Task("repeat vectors a given number of times", BITS + 1, BITS + 1, repeat_copy, (1, 10), (10, 20)),
    "associative-recall": Task(
        "name the item after a given one", ITEM_BITS + 2, ITEM_BITS, associative_recall, (2, 6), (6, 10, 15)
    ),
    "priority-sort": Task("sort vectors by priorities", BITS + 2, BITS, priority_sort, (20, 20), (20,)),
}
"""The tasks of the paper but dynamic n-grams, by name."""


def bits(model: NTM, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Cost in bits of each sequence's answer (B,), and the share of its bits that are wrong (B,)."""
    answers = model(sequences.inputs)[:, -sequences.targets.shape[1] :]
    cost = F.binary_cross_entropy_with_logits(answers, sequences.targets, reduction="none").sum(dim=(1, 2))
    return cost / math.log(2), ((answers > 0) != (sequences.targets > 0.5)).float().mean(dim=(1, 2))


@dataclass(frozen=True)
class Progress:
    """A step of training: sequences seen, and the mean cost of the last batch in bits a sequence."""

    step: int
    sequences: int
    bits: float


@dataclass
class Training:
    """Training of one network; its state can be saved and restored, and steps after that are the same.

    Args:
        model: The network.
        task: The task.
        steps: Number of steps in all. In their second half the learning rate falls to 0 in a line, without which the
            cost keeps rising and falling by several bits.
        batch_size: Sequences a step.
        learning_rate: Of Adam (the paper: RMSprop with momentum 0.9).
        seed: Seed of the sequences.
        step: Number of steps done.
    """

    model: NTM
    task: Task
    steps: int
    batch_size: int = 16
    learning_rate: float = 1e-3
    seed: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        # After thousands of almost perfect batches, with the usual eps one mistake moves each weight by many rates.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate, eps=1e-5)

    def run(self) -> Iterator[Progress]:
        """Train to the end."""
        while self.step < self.steps:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate * min(1.0, 2 * (1 - self.step / self.steps))
            sequences = self.task.training_batch(np.random.default_rng((self.seed, self.step)), self.batch_size)
            cost = bits(self.model, sequences)[0].mean()
            self.optimizer.zero_grad()
            (cost / sequences.targets[0].numel()).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1
            yield Progress(self.step, self.step * self.batch_size, float(cost.detach()))
