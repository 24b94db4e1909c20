"""The auxiliary language model beside a classifier, for every family that predicts the next token; BERT is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from families import ENCODERS, HEADS, V, direction, made, tied_head

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, pad
from textgraft.data.labels import Labels
from textgraft.data.sequences import PairIds, Rows, TokenIds
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    as_model,
    classifier_to_train,
    new_classifier,
    train_classifier,
)
from textgraft.text.tokenizer import PairMarks
from textgraft.training.phases import Phase, Stage
from textgraft.training.settings import Settings

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
LENGTHS = (9, 7, 2, 1, 5, 12, 3, 8)
PREDICTS = [name for name in ENCODERS if direction(name) != "both"]
every_family = pytest.mark.parametrize("encoder", PREDICTS)
KINDS = ("single", "both orders", "choice")
MARKS = PairMarks((2,), (3,))


def plan(encoder: str, *, kind: str = "single", head: str | None = None, weight: float = 0.5) -> Plan:
    """How a tiny classifier is to grow from a tiny language model; all dropouts are nothing."""
    labels = Labels("choice", ("A", "B")) if kind == "choice" else Labels("single", ("a", "b"))
    return Plan(
        language_model=made(encoder, head or tied_head(encoder), dropout=1.0, seed=4),
        from_scratch=False,
        stage=Stage(phases=(Phase("all", 1, 0.01),), batch_size=4, dropout=0.0, auxiliary_lm_weight=weight),
        settings=Settings(precision="fp32"),
        labels=labels,
        class_weights=None,
        pad_id=1,
        both_orders=kind == "both orders",
    )


def examples(kind: str = "single") -> list[TokenIds]:
    drawn = np.random.default_rng(3)

    def text(length: int) -> np.ndarray:
        return drawn.integers(4, V, length)

    if kind == "single":
        return [text(length) for length in LENGTHS]
    if kind == "both orders":
        return [PairIds(text(n), text(k), MARKS).in_both_orders() for n, k in ((1, 2), (5, 3), (4, 1), (2, 2))]
    counts = ((2, 3), (1, 4), (3, 3), (2, 1))
    return [Rows(tuple(PairIds(text(n), text(k), MARKS) for _ in range(2 + n % 2))) for n, k in counts]


def batch_of(some: list[TokenIds]) -> Batch:
    return replace(pad(some, 1), targets=torch.arange(len(some)) % 2)


def by_hand(model: Model, batch: Batch) -> torch.Tensor:
    """The sum over examples of the mean over rows of the mean over targets, one token at a time."""
    assert model.auxiliary is not None
    log_p = model.auxiliary.head(model.encoder(batch))
    groups = batch.groups if batch.groups is not None else torch.arange(len(batch.ids))
    total = torch.zeros(())
    for example in range(int(groups[-1]) + 1):
        rows = []
        for row in (groups == example).nonzero().flatten().tolist():
            length = int(batch.mask[row].sum())
            if model.encoder.direction == "right":
                seen = [log_p[row, t, batch.ids[row, t - 1]] for t in range(1, length)]
            else:
                seen = [log_p[row, t, batch.ids[row, t + 1]] for t in range(length - 1)]
            rows.append(-torch.stack(seen).mean() if seen else torch.zeros(()))
        total = total + torch.stack(rows).mean()
    return total


def alone(model: Model, batch: Batch) -> torch.Tensor:
    """The classifier's loss without the language model's."""
    encoded = replace(model.encoder(batch, keep=model.head.keep), groups=batch.groups)
    return model.head.loss(encoded, batch).total


@every_family
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_its_parts_each_computed_by_hand(encoder: str, kind: str) -> None:
    model = classifier_to_train(plan(encoder, kind=kind), seed=0).eval()
    batch = batch_of(examples(kind))
    loss = model.loss(batch)
    expected = by_hand(model, batch).detach()
    assert loss.count == len(examples(kind))
    assert loss.parts["auxiliary_nll"] == pytest.approx(float(expected), rel=1e-5)
    assert loss.parts["nll"] == float(alone(model, batch).detach())
    torch.testing.assert_close(loss.total, loss.parts["nll"] + 0.5 * expected, **CLOSE)


@every_family
def test_the_gradient_is_that_of_the_two_losses(encoder: str) -> None:
    """Of the classifier alone plus half of the language model's, which is computed by hand, for every parameter."""
    model = classifier_to_train(plan(encoder), seed=0).eval()
    batch = batch_of(examples())
    (alone(model, batch) + 0.5 * by_hand(model, batch)).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    model.loss(batch).total.backward()
    for name, parameter in model.named_parameters():
        assert expected[name] is not None, name
        torch.testing.assert_close(parameter.grad, expected[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("head", [name for name, config in HEADS.items() if config["name"] == "language_model"])
def test_every_output_layer_weighs_its_targets(head: str) -> None:
    """The sampled one too, which in evaluation is exact; nothing is nudged by the head's regularisers in training."""
    model = classifier_to_train(plan("gpt-pre", head=head), seed=0).eval()
    batch = batch_of(examples())
    assert model.loss(batch).parts["auxiliary_nll"] == pytest.approx(float(by_hand(model, batch).detach()), rel=1e-5)
    by_hand(model, batch).backward()
    expected = {name: p.grad for name, p in model.encoder.named_parameters()}
    model.zero_grad()
    model.train()  # all dropouts are nothing, and so many samples are all tokens
    alone(model, batch).backward()
    largest = max(float(p.grad.abs().max()) for p in model.encoder.parameters() if p.grad is not None)
    close = CLOSE | {"atol": 1e-6 * max(1.0, largest)}  # the difference of two gradients rounds as the larger one
    model.zero_grad()
    loss = model.loss(batch)
    ((loss.total - alone(model, batch)) / 0.5).backward()
    for name, parameter in model.encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], **close, msg=lambda m, name=name: f"{name}: {m}")


@every_family
@pytest.mark.parametrize("kind", KINDS)
def test_four_and_four_is_eight(encoder: str, kind: str) -> None:
    """One batch, or two of other lengths whose sums are divided once: the same gradient to a millionth."""
    model = classifier_to_train(plan(encoder, kind=kind), seed=0).eval()
    some = examples(kind)
    half = len(some) // 2
    found = []
    for parts in ([some], [some[:half], some[half:]]):
        model.zero_grad()
        losses = [model.loss(batch_of(part)) for part in parts]
        for loss in losses:
            loss.total.backward()
        count = sum(loss.count for loss in losses)
        assert count == len(some)
        found.append({name: p.grad / count for name, p in model.named_parameters() if p.grad is not None})
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


@every_family
def test_in_bfloat16_it_is_close(encoder: str) -> None:
    model = classifier_to_train(plan(encoder), seed=0).eval()
    batch = batch_of(examples())
    exact = model.loss(batch)
    exact.total.backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with computing_in("bf16"):
        loss = model.loss(batch)
    loss.total.backward()
    assert loss.parts["auxiliary_nll"] == pytest.approx(exact.parts["auxiliary_nll"], rel=0.02)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    one, other = (
        torch.cat([g.flatten() for g in gs if g is not None]) for gs in (expected, [p.grad for p in model.parameters()])
    )
    assert torch.nn.functional.cosine_similarity(one, other, dim=0) > 0.99


@every_family
def test_its_own_weights_learn_with_the_lowest_group(encoder: str) -> None:
    with_it, without = (classifier_to_train(plan(encoder, weight=weight), seed=0) for weight in (0.5, 0.0))
    groups, plain = with_it.layer_groups(), without.layer_groups()
    assert with_it.auxiliary is not None
    assert [g.name for g in groups] == [g.name for g in plain]
    grouped = [id(p) for group in groups for p in group.parameters]
    assert sorted(grouped) == sorted({id(p) for p in with_it.parameters()})
    own = with_it.auxiliary.own(with_it.encoder)
    assert len(groups[0].parameters) == len(plain[0].parameters) + len(own)
    shared = {id(p) for p in with_it.auxiliary.parameters()} & {id(p) for p in with_it.encoder.parameters()}
    assert shared  # tied
    source = plan(encoder).language_model.head
    assert all(torch.equal(a, b) for a, b in zip(with_it.auxiliary.head.parameters(), source.parameters()))


@every_family
def test_what_is_trained_has_no_language_model_in_it(encoder: str, tmp_path: Path) -> None:
    made_plan = plan(encoder)
    data = EncodedTexts(examples(), np.arange(len(LENGTHS)) % 2)
    trained = train_classifier(
        made_plan, data, {"test": data}, title="seed 0", context=RunContext(tmp_path, 0, show=False)
    )
    model = as_model(made_plan, trained)
    assert trained.values.keys() == new_classifier(made_plan, 0).values().keys() == model.values().keys()
    assert not any("auxiliary" in name for name in trained.values)
    before = made_plan.language_model.encoder.embedding
    assert not torch.equal(next(model.encoder.embedding.parameters()), next(before.parameters()))


def test_from_scratch_the_language_model_is_fresh_too() -> None:
    scratch = classifier_to_train(replace(plan("gpt-post", head="lm-full-untied"), from_scratch=True), seed=0)
    assert scratch.auxiliary is not None
    known = plan("gpt-post", head="lm-full-untied").language_model.head
    assert not torch.equal(next(scratch.auxiliary.parameters()), next(known.parameters()))
    again = classifier_to_train(replace(plan("gpt-post", head="lm-full-untied"), from_scratch=True), seed=0)
    assert all(torch.equal(a, b) for a, b in zip(scratch.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("encoder", ["bert-pooler", "bert"])
def test_a_model_that_looks_both_ways_is_refused(encoder: str) -> None:
    head = "mlm-next-sentence" if encoder == "bert-pooler" else "mlm-tied"
    with pytest.raises(UserError, match=r"auxiliary: .*next token, and this model, which looks both ways"):
        classifier_to_train(plan(encoder, head=head), seed=0)
    assert classifier_to_train(plan(encoder, head=head, weight=0.0), seed=0).auxiliary is None


def test_an_encoder_by_itself_is_refused() -> None:
    from textgraft.heads.features import FeaturesConfig, FeaturesHead

    given = plan("gpt-pre")
    bare = Model(given.language_model.encoder, FeaturesHead(FeaturesConfig(6)))
    with pytest.raises(UserError, match="no head for that"):
        classifier_to_train(replace(given, language_model=bare), seed=0)
