"""A run that is stopped, saved and resumed ends bit-equal to one that was not, wherever it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import (
    Tokens,
    classifier,
    classifier_that_reads_on,
    copied,
    examples,
    language_model,
    masked_language_model,
    pairs,
)

from textgraft.core.errors import UserError
from textgraft.data.streams.base import LanguageModelStream, Stream
from textgraft.models.model import Model
from textgraft.training.loop import Progress, Run, Scores
from textgraft.training.optimizers import NTASGD
from textgraft.training.perplexity import language_model_validator
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

FP32 = Settings(precision="fp32")


class Held(Tokens):
    num_characters, num_words = 2000, 300


def examples_score(model: Model) -> Scores:
    batches = list(examples(count=12, seed=9).batches(0))
    loss = float(sum(model.loss(batch).total for batch in batches)) / 12
    return {"loss": loss, "score": -loss}


def text_stream() -> Stream:
    return LanguageModelStream(Tokens(), rows=4, bptt=20)


@dataclass(frozen=True)
class Scenario:
    """How to build one kind of run anew, as a new process would."""

    phases: list[Phase]
    settings: Settings = FP32
    model: Callable[[], Model] = language_model
    stream: Callable[[], Stream] = text_stream
    validate: Callable[[], Callable[[Model], Scores] | None] = lambda: None

    def build(self) -> Run:
        return Run(self.model(), self.phases, self.stream(), self.settings, self.validate())


def on_text() -> Callable[[Model], Scores]:
    return language_model_validator(Held(150), rows=2, window=20)  # type: ignore[arg-type]


def on_examples() -> Callable[[Model], Scores]:
    return examples_score


CLASSIFIER = {"model": classifier, "stream": examples}
THAWING = [
    Phase("head", 1, 0.02, trainable=1, schedule="one_cycle", weight_decay=0.01),
    Phase("top 2", 1, 0.01, trainable=2, lr_decay=2.6, schedule="one_cycle", weight_decay=0.01),
    Phase("all", 2, 0.01, lr_decay=2.6, schedule="stlr", optimizer="adam", betas=(0.7, 0.99)),
]
SCENARIOS = {
    "hidden state, two epochs": Scenario([Phase("p", 2, 0.01)]),
    "masked pairs, several batches a step": Scenario(
        [Phase("p", 2, 0.01)], Settings(precision="fp32", accumulate=2), masked_language_model, pairs
    ),
    "bf16": Scenario([Phase("p", 1, 0.01)], Settings(precision="bf16")),
    "two phases of a language model": Scenario(
        [Phase("head", 0.5, 0.01, trainable=1, schedule="stlr"), Phase("all", 1.3, 0.01, lr_decay=1.3)],
        validate=on_text,
    ),
    "NT-ASGD": Scenario(
        [Phase("p", 2, 20.0, schedule="constant", optimizer="ntasgd", weight_decay=1e-6)],
        Settings(precision="fp32", validate_every=2, clip=0.25),
        validate=on_text,
    ),
    "accumulation": Scenario([Phase("p", 2, 0.01)], Settings(precision="fp32", accumulate=4), validate=on_text),
    "momentum by one-cycle": Scenario([Phase("p", 2, 0.5, schedule="one_cycle", optimizer="sgd", betas=(0.9, 0.9))]),
    "SGD without momentum": Scenario([Phase("p", 1, 0.5, optimizer="sgd", betas=(0.0, 0.9))]),
    "Muon": Scenario([Phase("p", 2, 0.01, optimizer="muon", weight_decay=0.01)], validate=on_text),
    "QRNN": Scenario([Phase("p", 1, 0.01)], model=lambda: language_model(cell="qrnn")),
    "backward": Scenario([Phase("p", 2, 0.01)], model=lambda: language_model(direction="right")),
    "gradual unfreezing": Scenario(THAWING, **CLASSIFIER),
    "an encoder that is asked once": Scenario(
        [Phase("head", 3, 0.02, trainable=1), Phase("all", 1, 0.01)],
        model=lambda: classifier(below=0.0),
        stream=examples,
        validate=on_examples,
    ),
    "best state": Scenario(THAWING, validate=on_examples, **CLASSIFIER),
    "early stopping": Scenario(
        [Phase("head", 1, 0.01, trainable=1), Phase("all", 20, 1.0)],
        Settings(precision="fp32", patience=2, validate_every=3),
        validate=on_examples,
        **CLASSIFIER,
    ),
    "auxiliary language model": Scenario(
        THAWING, Settings(precision="fp32", accumulate=2), classifier_that_reads_on, examples, on_examples
    ),
    "chain-thaw": Scenario(
        [*[Phase(f"alone {i}", 1, 0.01, only=i) for i in range(3)], Phase("all", 1, 0.01)], **CLASSIFIER
    ),
}


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in history]


def end(run: Run) -> int:
    return sum(1 for _ in run.steps())


def assert_same(run: Run, whole: Run) -> None:
    expected, found = copied(whole.model), copied(run.model)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert timeless(run) == timeless(whole)


def timeless(run: Run) -> Progress:
    return replace(run.progress, seconds=0.0, history=without_times(run.progress.history))


@pytest.fixture(scope="module")
def whole_runs() -> dict[str, tuple[Run, int]]:
    """Every scenario run without a stop, and how many steps that took; made when first asked for."""
    return {}


def whole(name: str, made: dict[str, tuple[Run, int]]) -> tuple[Run, int]:
    if name not in made:
        run = SCENARIOS[name].build()
        made[name] = run, end(run)
    return made[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_stopped_after_every_step_and_resumed_the_end_is_bit_equal(
    name: str, tmp_path: Path, whole_runs: dict[str, tuple[Run, int]]
) -> None:
    """Each step by a new run on a new model: all borders between steps, epochs and phases in one go."""
    expected, steps = whole(name, whole_runs)
    checkpoint = tmp_path / "checkpoint.safetensors"
    for _ in range(steps):
        run = SCENARIOS[name].build()
        run.resume(checkpoint)
        assert len(list(islice(run.steps(), 1))) == 1
        run.save(checkpoint)
    last = SCENARIOS[name].build()
    assert last.resume(checkpoint)
    assert end(last) == 0
    assert_same(last, expected)


@pytest.mark.parametrize("name", SCENARIOS)
def test_stopped_once_the_rest_in_one_go_is_bit_equal(
    name: str, tmp_path: Path, whole_runs: dict[str, tuple[Run, int]]
) -> None:
    expected, steps = whole(name, whole_runs)
    for place in sorted({1, steps // 2}):
        stopped = SCENARIOS[name].build()
        for _ in islice(stopped.steps(), place):
            pass
        stopped.save(tmp_path / f"{place}")
        run = SCENARIOS[name].build()
        run.resume(tmp_path / f"{place}")
        assert place + end(run) == steps
        assert_same(run, expected)


def test_the_scenarios_reach_what_they_are_for(whole_runs: dict[str, tuple[Run, int]]) -> None:
    averaged = whole("NT-ASGD", whole_runs)[0].optimizer
    assert averaged is None  # it went with its phase; a run stopped before the end still has it
    run = SCENARIOS["NT-ASGD"].build()
    list(islice(run.steps(), whole("NT-ASGD", whole_runs)[1] - 1))
    assert isinstance(run.optimizer, NTASGD)
    assert run.optimizer.averaging
    stopped, steps = whole("early stopping", whole_runs)
    assert stopped.progress.stale == 2
    assert steps < 5 + 20 * 5
    best, _ = whole("best state", whole_runs)
    assert best.best
    _, steps = whole("accumulation", whole_runs)
    stream = text_stream()
    assert steps == sum(-(-stream.length(epoch) // 4) for epoch in range(2))


def test_a_finished_run_stays_finished(tmp_path: Path, whole_runs: dict[str, tuple[Run, int]]) -> None:
    for name in ("best state", "early stopping"):
        expected, _ = whole(name, whole_runs)
        expected.save(tmp_path / "done")
        again = SCENARIOS[name].build()
        again.resume(tmp_path / "done")
        assert end(again) == 0
        assert_same(again, expected)


def test_the_checkpoint_of_a_run_may_be_written_over_while_its_values_are_in_use(tmp_path: Path) -> None:
    """What was loaded must not lie in the memory map of a file that the next save replaces."""
    path = tmp_path / "checkpoint"
    first = SCENARIOS["best state"].build()
    list(islice(first.steps(), 7))
    first.save(path)
    run = SCENARIOS["best state"].build()
    run.resume(path)
    best = {name: value.clone() for name, value in run.best.items()}
    path.write_bytes(b"\0" * path.stat().st_size)
    assert best
    assert all(torch.equal(run.best[name], value) for name, value in best.items())


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    run = SCENARIOS["bf16"].build()
    before = copied(run.model)
    assert not run.resume(tmp_path / "none")
    assert all(torch.equal(before[name], value) for name, value in copied(run.model).items())


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"x" * 100])
def test_a_damaged_checkpoint_is_named(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    run = SCENARIOS["bf16"].build()
    run.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"checkpoint\.safetensors: this checkpoint is damaged .*Delete it"):
        run.resume(path)


def by_time(phases: list[Phase], minutes: float) -> tuple[Run, Callable[[float], None]]:
    """A run by time, and a function to say how much of it has passed."""
    run = Run(classifier(), phases, examples(), Settings(precision="fp32", minutes=minutes))

    def passed(seconds: float) -> None:
        run.progress.seconds = seconds

    return run, passed


def test_by_time_each_phase_gets_its_share_and_the_rate_follows_the_clock() -> None:
    run, passed = by_time([Phase("head", 1, 0.01, trainable=1), Phase("all", 3, 0.02, warmup=0.0)], minutes=10)
    seen = []
    for step in run.steps():
        seen.append(step)
        passed(50.0 * len(seen))  # of 600: 150 for the head, 450 for all
    assert [step.phase for step in seen] == ["head"] * 3 + ["all"] * 9
    # Set before each of these steps of 50 s, at 0, 50, ... of 450 s; what a step itself took is next to nothing.
    assert [step.lr for step in seen[3:]] == pytest.approx([0.02 * (1 - i / 9) for i in range(9)], rel=1e-3)
    assert run.progress.history[-1]["phase"] == "all"
    assert run.progress.finished


def test_by_time_a_resumed_run_has_what_is_left_of_its_time(tmp_path: Path) -> None:
    run, passed = by_time([Phase("p", 1, 0.01)], minutes=10)
    next(run.steps())
    passed(590.0)
    run.save(tmp_path / "checkpoint")
    again, passed = by_time([Phase("p", 1, 0.01)], minutes=10)
    again.resume(tmp_path / "checkpoint")
    rates = []
    for step in again.steps():
        assert step.step == 2 + len(rates)
        rates.append(step.lr)
        passed(590.0 + 5 * len(rates))
    assert len(rates) == 2
    assert rates[0] < 0.01 / 30
