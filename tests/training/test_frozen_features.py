"""Where only the head learns, the encoder is asked once for each text, and the head learns the same."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_models import Tokens, classifier, classifier_that_reads_on, copied, examples, language_model
from torch import Tensor

from textgraft.core.processes import ALONE
from textgraft.data.batch import Batch
from textgraft.data.streams.base import LanguageModelStream, Stream
from textgraft.models import inference
from textgraft.models.model import Model, build
from textgraft.training import frozen_features, loop
from textgraft.training.driver import Stopped, drive
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

FP32 = Settings(precision="fp32")
HEAD = Phase("head", 4, 0.02, trainable=1, weight_decay=0.01)


def still(layer_aggregation: str = "last") -> Model:
    """A classifier whose encoder has no dropout; its head has."""
    description = classifier(below=0.0).describe()
    description["head"]["words_dim"] = 6
    if layer_aggregation != "last":
        description["encoder"]["hidden_dim"] = 6  # as wide as the table, so that layers can be added up
        description["head"] |= {"layer_aggregation": layer_aggregation, "words_dim": 0}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build(description)


def rows_read(model: Model) -> list[int]:
    """How many rows each call of the encoder reads from now on."""
    read: list[int] = []
    model.encoder.register_forward_pre_hook(lambda _, given: read.append(len(given[0].ids)))
    return read


def ended(run: Run) -> Run:
    for _ in run.steps():
        pass
    return run


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_head_learns_what_it_learned_from_texts_read_again_and_again(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases, settings = [HEAD, Phase("all", 1, 0.01)], Settings(precision=precision)
    once = ended(Run(still(), phases, examples(), settings))
    monkeypatch.setattr(loop, "extract_frozen_features", lambda *_: None)
    again = ended(Run(still(), phases, examples(), settings))
    expected, found = copied(again.model), copied(once.model)
    tolerance = 1e-5 if precision == "fp32" else 0.05
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert [row["tokens"] for row in once.progress.history] == [row["tokens"] for row in again.progress.history]
    assert any(not torch.equal(found[n], v) for n, v in copied(still()).items() if n.startswith("head.layers"))


def test_each_text_is_read_once_in_such_a_phase_and_again_where_more_learns() -> None:
    model = still()
    read = rows_read(model)
    ended(Run(model, [HEAD, Phase("all", 2, 0.01)], examples(count=40), FP32))
    assert sum(read) == 40 + 2 * 40


def test_the_encoder_stays_as_it_is() -> None:
    model = still()
    before = copied(model)
    ended(Run(model, [HEAD], examples(), FP32))
    after = copied(model)
    assert all(torch.equal(after[name], value) for name, value in before.items() if name.startswith("encoder"))


def test_ctrl_c_while_texts_are_read_stops_before_the_next_batch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "TOKENS_PER_BATCH", 60)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    whole = drive(Run(still(), [HEAD], examples(count=40), FP32), tmp_path / "whole", title="t", show=False)
    model = still()
    read = rows_read(model)
    model.encoder.register_forward_pre_hook(lambda *_: signal.raise_signal(signal.SIGINT) if len(read) == 1 else None)
    with pytest.raises(Stopped, match="same command"):
        drive(Run(model, [HEAD], examples(count=40), FP32), tmp_path / "c", title="t")
    signal.signal(signal.SIGINT, before)
    assert len(read) == 1
    assert sum(read) < 40
    assert "t: encoding" in capfd.readouterr().err
    again = drive(Run(still(), [HEAD], examples(count=40), FP32), tmp_path / "c", title="t", show=False)
    torch.testing.assert_close(copied(again.model), copied(whole.model), rtol=0, atol=0)


def seen_of(model: Model, stream: Stream, phase: Phase) -> Tensor | None:
    run = Run(model, [phase], stream, FP32)
    next(run.steps())
    return frozen_features.extract_frozen_features(run.model, stream, run._total_steps(phase, 0), "fp32", ALONE)


@pytest.mark.parametrize(
    ("model", "phase"),
    [
        (lambda: classifier(), HEAD),
        (classifier_that_reads_on, HEAD),
        (lambda: still("mix"), HEAD),
        (still, replace(HEAD, epochs=1)),
        (still, replace(HEAD, trainable=2)),
        (still, replace(HEAD, trainable=None, only=0)),
    ],
    ids=["dropout", "auxiliary", "a mix that learns", "one epoch", "a layer learns", "the table learns"],
)
def test_who_may_say_something_else_the_next_time_is_asked_again(model: Callable[[], Model], phase: Phase) -> None:
    assert seen_of(model(), examples(), phase) is None


def test_other_heads_are_asked_again() -> None:
    assert seen_of(language_model(), LanguageModelStream(Tokens(), rows=4, bptt=20), HEAD) is None


def test_another_layer_is_read_once_too() -> None:
    assert seen_of(still("second-to-last"), examples(), HEAD) is not None


def test_what_would_take_too_much_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    width = still().head.width
    monkeypatch.setattr(frozen_features, "MAX_BYTES", 4 * 40 * width - 1)
    assert seen_of(still(), examples(count=40), HEAD) is None
    monkeypatch.setattr(frozen_features, "MAX_BYTES", 4 * 40 * width)
    assert seen_of(still(), examples(count=40), HEAD) is not None


def test_parts_of_a_batch_keep_their_own() -> None:
    batch = next(iter(examples(count=8, rows=8).batches(0)))
    assert batch.rows is not None
    features = torch.arange(8.0)[:, None]
    batch = replace(batch, features=features[batch.rows])
    parts: list[Batch] = batch.parts(11)
    assert len(parts) > 1
    for part in parts:
        assert part.features is not None
        assert part.rows is not None
        assert part.features[:, 0].long().tolist() == part.rows.tolist()
