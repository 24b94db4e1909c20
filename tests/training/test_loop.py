"""The training loop: what a step does, what a phase trains, when it validates, stops and refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
from small_models import VOCAB, Tokens, classifier, copied, examples, language_model
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, pad
from textgraft.data.streams.base import ExampleStream, LanguageModelStream
from textgraft.models.model import Model, build
from textgraft.nn.cpu.denormals import are_flushed, flushed
from textgraft.training import loop
from textgraft.training.loop import Run, Scores, Step
from textgraft.training.phases import Phase, Stage
from textgraft.training.schedules import SCHEDULES, one_cycle_momentum
from textgraft.training.settings import Settings

PLAIN = Settings(clip=None, precision="fp32")


def trained(model: Model, phases: list[Phase], settings: Settings = PLAIN, **options) -> tuple[Run, list[Step]]:
    run = Run(model, phases, options.pop("stream", None) or examples(), settings, **options)
    return run, list(run.steps())


class Scripted:
    """A validation that answers with losses given beforehand, and remembers the weights that it was shown."""

    def __init__(self, *losses: float) -> None:
        self.losses, self.seen = iter(losses), []

    def __call__(self, model: Model) -> Scores:
        assert not model.training
        self.seen.append(copied(model))
        loss = next(self.losses)
        return {"loss": loss, "score": -loss}


def test_a_step_flushes_denormals_and_the_caller_does_not(monkeypatch) -> None:
    """Forward, back and in the optimizer, but between the steps a caller's own numbers are what they are."""
    run = Run(classifier(), [Phase("p", 1, 0.01)], examples(), PLAIN)
    flushing = []
    divide = run._divide_and_clip
    monkeypatch.setattr(run, "_divide_and_clip", lambda count: (flushing.append(are_flushed()), divide(count))[1])
    with flushed():
        able = are_flushed()
    for _ in run.steps():
        assert not are_flushed()
    assert set(flushing) == {able}


@pytest.mark.parametrize(("trainable", "only"), [(1, None), (2, None), (None, None), (None, 0), (None, 1), (None, -1)])
def test_a_phase_trains_exactly_the_groups_it_says(trainable: int | None, only: int | None) -> None:
    model = classifier()
    groups = model.layer_groups()
    phase = Phase("p", 2, 0.01, trainable=trainable, only=only, weight_decay=0.1)
    before = [[p.detach().clone() for p in group.parameters] for group in groups]
    trained(model, [phase])
    for group, old, rate in zip(groups, before, phase.rates(len(groups)), strict=True):
        same = [torch.equal(a, b) for a, b in zip(old, group.parameters, strict=True)]
        assert all(same) if rate is None else not any(same), group.name


def test_thawing_goes_group_by_group_and_back() -> None:
    """Frozen, trained, frozen again: each phase has an optimizer of its own and no gradient from the last one."""
    model = classifier()
    phases = [Phase("head", 1, 0.01, trainable=1), Phase("all", 1, 0.01), Phase("table", 1, 0.01, only=0)]
    run = Run(model, phases, examples(), PLAIN)
    changed: dict[str, set[str]] = {phase.name: set() for phase in phases}
    before = copied(model)
    for step in run.steps():
        after = copied(model)
        parameters = dict(model.named_parameters())
        changed[step.phase] |= {name for name in parameters if not torch.equal(before[name], after[name])}
        before = after
    encoder = {name for name, _ in model.named_parameters() if name.startswith("encoder")}
    assert changed["head"] == set(dict(model.named_parameters())) - encoder
    assert changed["all"] == set(dict(model.named_parameters()))
    assert changed["table"] == {"encoder.embedding.weight"}


def sgd(epochs: float = 1, lr: float = 0.1, **more) -> Phase:
    return Phase("p", epochs, lr, schedule="constant", warmup=0.0, optimizer="sgd", betas=(0.0, 0.9), **more)


class Given:
    """A stateless stream of batches given beforehand."""

    stateful = False

    def __init__(self, *batches: Batch) -> None:
        self.given = batches

    def length(self, epoch: int) -> int:
        return len(self.given)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return iter(self.given[start:])

    def rate_scale(self, batch: Batch) -> float:
        return 1.0


def windows(rows: int, seed: int = 0) -> Batch:
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, VOCAB, (rows, 9)))
    return Batch(ids=ids[:, :-1], mask=torch.ones(rows, 8, dtype=torch.bool), targets=ids[:, 1:])


def without_dropout() -> Model:
    """A language model whose loss is a plain sum over targets: no dropout, no AR, no TAR."""
    description = language_model().describe()
    for part in ("encoder", "head"):
        description[part] |= {name: 0.0 for name in description[part] if name.endswith("_dropout")}
    description["head"] |= {"alpha": 0.0, "beta": 0.0}
    model = build(description)
    model.load_state_dict(language_model().state_dict())
    return model


def test_accumulated_micro_batches_of_unequal_size_step_as_one_big_batch() -> None:
    """The sum is divided once, by the whole count: not a mean of means."""
    whole = windows(6)
    parts = [
        Batch(ids=whole.ids[a:b], mask=whole.mask[a:b], targets=whole.targets[a:b]) for a, b in ((0, 1), (1, 3), (3, 6))
    ]
    one, many = without_dropout(), without_dropout()
    _, (big,) = trained(one, [sgd()], stream=Given(whole))
    _, (small,) = trained(many, [sgd()], replace(PLAIN, accumulate=3), stream=Given(*parts))
    assert small.loss == pytest.approx(big.loss, rel=1e-6)
    assert small.tokens == big.tokens == 48
    for name, value in one.values().items():
        torch.testing.assert_close(many.values()[name], value, rtol=1e-5, atol=1e-7)


def transformer_classifier() -> Model:
    torch.manual_seed(3)
    shape = {"vocab_size": 40, "embedding_dim": 8, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 16}
    dropouts = dict.fromkeys(("hidden_dropout", "attention_dropout"), 0.0)
    head = {"name": "classification", "input_dim": 8, "outputs": 3, "kind": "single", "pooling": "mean"}
    head |= {"batch_norm": False, "hidden_dim": 0, "input_dropout": 0.0, "hidden_dropout": 0.0}
    return build({"encoder": {"name": "bert", "max_length": 16} | shape | dropouts, "head": head})


def test_a_step_by_parts_is_the_step_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pad([np.arange(5, 5 + length) for length in (3, 16, 7, 16, 1)], 0).with_targets(
        torch.tensor([0, 2, 1, 1, 0])
    )
    widths: list[list[int]] = []
    for positions in (10_000, 32, 1):
        monkeypatch.setattr(loop, "POSITIONS", {"fp32": positions})
        model, seen = transformer_classifier(), []
        model.encoder.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(list(given[0].ids.shape)))
        trained(model, [sgd()], stream=Given(batch))
        widths.append(seen)
        if positions == 10_000:
            whole = model.values()
        for name, value in model.values().items():
            torch.testing.assert_close(value, whole[name], rtol=1e-5, atol=1e-7)
    assert widths[0] == [[5, 16]]
    assert widths[1] == [[2, 16], [3, 7]]
    assert sorted(widths[2]) == [[1, 1], [1, 3], [1, 7], [1, 16], [1, 16]]


@pytest.mark.parametrize("recurrent", [True, False])
def test_rows_that_are_read_or_normalised_together_stay_together(
    recurrent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "POSITIONS", {"fp32": 1})
    model = classifier()  # which has a batch norm
    model.encoder.recurrent = recurrent
    rows: list[int] = []
    model.encoder.register_forward_pre_hook(lambda _, given: rows.append(len(given[0].ids)))
    trained(model, [sgd()], stream=examples())
    assert min(rows) > 1


@pytest.mark.parametrize("clip", [None, 0.0, 0.01, 1000.0])
def test_clipping_is_by_the_norm_of_the_mean_gradient(clip: float | None) -> None:
    batch, model, reference = windows(5), without_dropout(), without_dropout()
    before = copied(model)
    loss = reference.loss(batch)
    (loss.total / loss.count).backward()
    norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), clip or math.inf)
    assert norm > 0.02
    trained(model, [sgd(lr=0.5)], replace(PLAIN, clip=clip), stream=Given(batch))
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(model.values()[name], before[name] - 0.5 * parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_stages_own_bound_on_the_gradient_goes_first() -> None:
    assert Settings(clip=0.5).of(Stage(clip=2.0)).clip == 2.0
    assert Settings(clip=0.5).of(Stage()).clip == 0.5
    assert Settings(clip=None).of(Stage()).clip is None


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize(("epochs", "accumulate", "steps"), [(3, 1, 15), (2.4, 1, 12), (0.05, 1, 1), (3, 2, 9)])
def test_the_rate_of_each_step_is_the_schedules_closed_form(
    schedule: str, epochs: float, accumulate: int, steps: int
) -> None:
    """Five batches an epoch; accumulated by two, an epoch is three steps, the last one of a single batch."""
    phase = Phase("p", epochs, 0.01, lr_decay=2.6, schedule=schedule, warmup=0.25)
    run = Run(classifier(), [phase], examples(), replace(PLAIN, accumulate=accumulate))
    seen = 0
    for number, step in enumerate(run.steps()):
        multiplier = SCHEDULES[schedule](number, steps, 0.25)
        assert step.lr == pytest.approx(0.01 * multiplier, abs=1e-12)
        assert run.optimizer is not None
        for distance, group in enumerate(reversed(run.optimizer.param_groups[::2])):
            assert group["lr"] == pytest.approx(group["initial_lr"] * multiplier, abs=1e-12), distance
        if schedule == "one_cycle":
            assert run.optimizer.param_groups[0]["betas"][0] == one_cycle_momentum(number, steps, 0.25)
        seen += 1
    assert seen == steps


def test_variable_windows_scale_the_rate_of_their_step() -> None:
    """Merity et al. 2018, section 4.1: the rate is rescaled by the window's length over the mean one."""
    stream = LanguageModelStream(Tokens(), rows=4, bptt=20)
    lengths = [batch.ids.shape[1] for batch in stream.batches(0)]
    _, steps = trained(language_model(), [sgd(lr=0.3)], stream=stream)
    assert len(set(lengths)) > 3
    assert [step.lr for step in steps] == pytest.approx([0.3 * length / 20 for length in lengths])
    _, merged = trained(language_model(), [sgd(lr=0.3)], replace(PLAIN, accumulate=2), stream=stream)
    means = [np.mean(lengths[i : i + 2]) for i in range(0, len(lengths), 2)]
    assert [step.lr for step in merged] == pytest.approx([0.3 * mean / 20 for mean in means])


class Watching:
    """Notes what state each call of the model's loss got and gave."""

    def __init__(self, model: Model) -> None:
        self.calls: list[tuple[Tensor | None, Tensor]] = []
        self.loss, model.loss = model.loss, self  # type: ignore[method-assign]

    def __call__(self, batch: Batch, state=None):
        loss = self.loss(batch, state)
        self.calls.append((None if state is None else state[0][0], loss.state[0][0].detach()))
        return loss


def test_the_state_is_carried_from_window_to_window_and_dropped_at_the_end_of_an_epoch() -> None:
    model, stream = language_model(), LanguageModelStream(Tokens(), rows=4, bptt=20)
    watch = Watching(model)
    trained(model, [sgd(2)], stream=stream)
    first, second = stream.length(0), stream.length(1)
    assert len(watch.calls) == first + second
    fresh = [number for number, (given, _) in enumerate(watch.calls) if given is None]
    assert fresh == [0, first]
    for number, ((_, left), (given, _)) in enumerate(pairwise(watch.calls), start=1):
        if number not in fresh:
            assert given is not None
            assert torch.equal(given, left)
            assert not given.requires_grad


def test_every_epoch_of_a_run_has_its_own_order_whatever_its_phase() -> None:
    class Noting(ExampleStream):
        epochs: ClassVar[list[int]] = []

        def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
            self.epochs.append(epoch)
            return super().batches(epoch, start)

    given = examples()
    stream = Noting(given.sequences, given.targets, pad_id=1, rows=8)
    phases = [Phase("a", 1, 0.01), Phase("b", 1.4, 0.01), Phase("c", 2, 0.01)]
    trained(classifier(), phases, stream=stream)
    assert stream.epochs == [0, 1, 2, 3, 4]


def test_patience_stops_and_the_best_state_is_what_remains() -> None:
    model, validate = classifier(), Scripted(0.9, 0.5, 0.6, 0.55, 0.1)
    run, _ = trained(model, [Phase("p", 5, 0.01)], replace(PLAIN, patience=2), validate=validate)
    assert len(validate.seen) == 4
    assert run.progress.finished
    assert run.progress.best == -0.5
    for name, value in model.values().items():
        assert torch.equal(value, validate.seen[1][name]), name


def test_a_best_state_of_an_earlier_phase_is_kept() -> None:
    model, validate = classifier(), Scripted(0.2, 0.5, 0.4)
    trained(model, [Phase("a", 1, 0.01), Phase("b", 2, 0.01)], validate=validate)
    for name, value in model.values().items():
        assert torch.equal(value, validate.seen[0][name]), name
    assert not torch.equal(validate.seen[0]["encoder.embedding.weight"], validate.seen[2]["encoder.embedding.weight"])


def test_without_validation_the_last_state_remains_and_every_epoch_has_its_row() -> None:
    run, steps = trained(classifier(), [Phase("a", 1, 0.01), Phase("b", 1.4, 0.01)])
    rows = run.progress.history
    assert [(row["phase"], row["epoch"], row["step"]) for row in rows] == [("a", 1, 5), ("b", 1, 5), ("b", 2, 7)]
    assert rows[0]["train_loss"] == pytest.approx(np.mean([s.loss for s in steps[:5]]), rel=1e-6)
    assert rows[-1]["tokens"] == steps[-1].tokens
    assert all(set(row) == {"phase", "epoch", "step", "tokens", "seconds", "train_loss"} for row in rows)


def test_validations_by_step_have_their_rows_and_scores() -> None:
    validate = Scripted(0.9, 0.8, 0.7, 0.6)
    run, steps = trained(classifier(), [Phase("p", 2, 0.01)], replace(PLAIN, validate_every=3), validate=validate)
    assert [row["step"] for row in run.progress.history] == [3, 6, 9, 10]
    assert [row["loss"] for row in run.progress.history] == [0.9, 0.8, 0.7, 0.6]
    assert [step.step for step in steps if step.scores] == [3, 6, 9, 10]


def test_ntasgd_validates_and_keeps_its_average() -> None:
    """Merity et al. 2018, algorithm 1: once triggered, what is validated and kept is the mean of the weights."""
    model = language_model()
    validate = Scripted(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.5)
    phase = Phase("p", 2, 1.0, schedule="constant", warmup=0.0, optimizer="ntasgd")
    stream = LanguageModelStream(Tokens(), rows=4, bptt=20)
    run = Run(model, [phase], stream, replace(PLAIN, validate_every=2), validate)
    weights = []
    for _ in run.steps():
        weights.append(copied(model)["encoder.embedding.weight"])
        if len(validate.seen) == 8:
            break
    # The seventh loss is the first to have one that is five older than its predecessor, 1.0, which it exceeds.
    mean = torch.stack(weights[13:16]).mean(dim=0)
    assert torch.equal(validate.seen[6]["encoder.embedding.weight"], weights[13])
    torch.testing.assert_close(validate.seen[7]["encoder.embedding.weight"], mean)
    torch.testing.assert_close(run.best["encoder.embedding.weight"], mean)
    assert torch.equal(copied(model)["encoder.embedding.weight"], weights[-1])


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_loss_that_is_not_finite_is_the_users_to_mend(clip: float | None) -> None:
    model = classifier()
    with torch.no_grad():
        model.values()["head.layers.6.bias"].fill_(math.nan)
    before = torch.get_rng_state()
    with pytest.raises(UserError, match=r"phase 'p', step 1: the loss is not a finite number.*learning rate"):
        trained(model, [Phase("p", 1, 0.01)], replace(PLAIN, clip=clip))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_gradient_that_is_not_finite_never_reaches_the_weights() -> None:
    model = classifier()
    model.values()["encoder.embedding.weight"].register_hook(lambda grad: grad * math.inf)  # type: ignore[no-untyped-call]
    before = copied(model)
    with pytest.raises(UserError, match="the gradient is not a finite number"):
        trained(model, [Phase("p", 1, 0.01)])
    assert all(torch.equal(before[name], value) for name, value in model.named_parameters())


def test_a_validation_that_is_not_finite_is_refused() -> None:
    with pytest.raises(UserError, match=r"step 5: the validation score is not a finite number"):
        trained(classifier(), [Phase("p", 1, 0.01)], validate=Scripted(math.nan))


def test_one_text_left_over_joins_another_batch() -> None:
    """Batch normalisation cannot learn from a single text."""
    stream = examples(count=33, rows=8)
    sizes = [len(batch.ids) for batch in stream.batches(0)]
    assert sorted(sizes) == [8, 8, 8, 9]
    trained(classifier(), [Phase("p", 1, 0.01)], stream=stream)


def test_the_random_state_of_the_caller_stays_as_it_was() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for _ in Run(classifier(), [Phase("p", 1, 0.01)], examples(), PLAIN).steps():
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(3)  # what the caller draws between steps is of no account
        torch.set_rng_state(before)


def test_the_seed_alone_decides() -> None:
    def weights(seed: int, drawn: int) -> dict[str, Tensor]:
        torch.rand(drawn)
        model = classifier()
        trained(model, [Phase("p", 2, 0.01)], replace(PLAIN, seed=seed), stream=examples(seed=seed))
        return copied(model)

    first, again, other = weights(0, 1), weights(0, 7), weights(1, 1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.embedding.weight"], other["encoder.embedding.weight"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("accumulate", 0),
        ("patience", 0),
        ("validate_every", 0),
        ("clip", -1.0),
        ("minutes", 0),
        ("minutes", math.nan),
    ],
)
def test_settings_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} is {value}"):
        Settings(**{name: value})
