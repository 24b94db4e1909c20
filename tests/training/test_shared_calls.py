"""The model's calls in a validation, divided over processes: together they are the call on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import several_processes
import torch

from textgraft import UserError
from textgraft.core.processes import Processes
from textgraft.data.batch import Batch, pad
from textgraft.data.sequences import Rows
from textgraft.data.streams.base import ExampleStream
from textgraft.models.model import Model, build_fresh
from textgraft.training.followers import _received
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings
from textgraft.training.shared_calls import METHODS, Shared, _computed, take_part


class Several:
    """Process 0 of several; the shares of the others are computed here too, one after another."""

    rank, several, first = 0, True, True

    def __init__(self, size: int, model: Model, failing: int | None = None) -> None:
        self.size, self.model, self.failing, self.call = size, model, failing, None

    def share(self, count: int) -> slice:
        return Processes(0, self.size).share(count)

    def from_first(self, value: Any) -> Any:
        self.call = value
        return value

    def gather(self, value: Any) -> list[Any]:
        assert self.call is not None
        name, batch, state = self.call
        results = [value]
        for rank in range(1, self.size):
            own = Processes(rank, self.size)
            rows = state and tuple(tuple(t[own.share(len(t))] if t.ndim else t for t in layer) for layer in state)
            results.append(None if rank == self.failing else _computed((name, batch.share(own), rows), run_of(self)))
        return results


def run_of(processes: Any) -> Any:
    """A training of the processes' model."""
    stream = several_processes.examples(ExampleStream)
    run = Run(processes.model.eval(), [Phase("p", 1, 0.01)], stream, Settings(precision="fp32"))
    run.join(processes, run.engine)
    return run


def shared(model: Model, size: int, failing: int | None = None) -> Shared:
    return Shared(run_of(Several(size, model, failing)))


def texts(count: int) -> Batch:
    generator = np.random.default_rng(0)
    batch = pad([generator.integers(4, several_processes.V, n) for n in generator.integers(2, 9, count)], pad_id=1)
    return batch.with_targets(torch.arange(count) % 3)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", [*METHODS, "__call__"])
def test_a_divided_call_is_the_whole_one(name: str, size: int) -> None:
    model, batch = several_processes.classifier("bert", 0.0).eval(), texts(7)
    with torch.no_grad():
        whole: Any = getattr(model, name)(batch)
    together: Any = getattr(shared(model, size), name)(batch)
    if name == "loss":
        assert together.count == whole.count == 7
        whole, together = whole.total, together.total
    if name == "forward_with_state":
        assert (whole[1], together[1]) == (None, None)
        whole, together = whole[0], together[0]
    torch.testing.assert_close(together, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["lstm", "transformer_xl", "gpt"])
def test_texts_go_on_from_their_states(family: str) -> None:
    model, (first, second) = several_processes.language_model(family, 0.0).eval(), windows()
    together: Any = shared(model, 3)
    with torch.no_grad():
        state = model.encoder.initial_state(5)
        one = model.loss(first, state)
        two = model.loss(second, one.state)
        divided = together.loss(second, together.loss(first, state).state)
    assert divided.count == two.count
    assert divided.parts == pytest.approx(two.parts, rel=1e-5)
    torch.testing.assert_close(divided.state, two.state, rtol=1e-4, atol=1e-5)


def windows() -> tuple[Batch, Batch]:
    ids = torch.from_numpy(np.random.default_rng(1).integers(4, several_processes.V, (5, 17)))
    return tuple(  # type: ignore[return-value]
        Batch(ids[:, a:b], torch.ones(5, b - a, dtype=torch.bool), targets=ids[:, a + 1 : b + 1])
        for a, b in ((0, 8), (8, 16))
    )


def test_questions_with_different_numbers_of_options() -> None:
    head = {"name": "choice", "input_dim": several_processes.D, "hidden_dim": 4, "direction": "both"}
    model = build_fresh({"encoder": several_processes.ENCODERS["bert"], "head": head}, seed=1).eval()
    generator = np.random.default_rng(2)
    options = [Rows(tuple(generator.integers(4, 50, 5) for _ in range(count))) for count in (2, 4, 2, 3)]
    batch = pad(options, pad_id=1)
    with torch.no_grad():
        whole = model(batch)
    together = shared(model, 2)(batch)
    assert whole.shape == (4, 4)
    assert torch.isinf(together).equal(torch.isinf(whole))
    torch.testing.assert_close(together, whole, rtol=1e-5, atol=1e-6)


def test_a_contrastive_loss_compares_all_texts() -> None:
    model, batch = several_processes.classifier("bert", 0.0).eval(), texts(7)
    model.contrastive_temperature = 0.1
    with torch.no_grad():
        whole = model.loss(batch)
    together = shared(model, 3).loss(batch)
    assert together.count == whole.count
    assert float(together.total) == pytest.approx(float(whole.total), rel=1e-5)


def test_few_texts_are_left_to_the_first_process() -> None:
    model, batch = several_processes.classifier("bert", 0.0).eval(), texts(2)
    processes = Several(3, model)
    Shared(run_of(processes))(batch)
    assert processes.call is None


def test_a_failure_on_another_process_is_one_here() -> None:
    model = several_processes.classifier("bert", 0.0)
    with pytest.raises(UserError, match="failed on another process"):
        shared(model, 3, failing=2)(texts(6))


def test_a_failure_here_is_told_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model, told = several_processes.classifier("bert", 0.0), []
    processes = Several(2, model)
    monkeypatch.setattr(processes, "gather", lambda value: told.append(value) or [value, value])
    wrong = texts(4).with_targets(torch.zeros(1, dtype=torch.long))
    with pytest.raises(ValueError, match="batch_size"):
        take_part(("loss", wrong, None), run_of(processes))
    assert told == [None]


def test_after_a_failure_another_process_waits_for_what_the_first_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the two would be in different calls of torch.distributed."""
    model = several_processes.classifier("bert", 0.0)
    processes = Several(2, model)
    wrong = ("loss", texts(4).with_targets(torch.zeros(1, dtype=torch.long)), None)
    said = [wrong, ("scores", None)]
    monkeypatch.setattr(processes, "from_first", lambda value=None: said.pop(0))
    monkeypatch.setattr(processes, "gather", lambda value: [value, value])
    validate = _received(run_of(processes), processes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="validation of process 0 has failed"):
        validate(model)
    assert said == []
