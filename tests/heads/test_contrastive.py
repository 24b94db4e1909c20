"""The contrastive loss beside sums written out, and its gradients in parts beside those of the whole batch."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.batch import Batch
from textgraft.heads.contrastive import contrastive_loss
from textgraft.models.model import Model, build
from textgraft.training.contrastive import contrastive_backward
from textgraft.training.engines import Single
from textgraft.training.loop import Run
from textgraft.training.phases import Phase, Stage

V = 30


def by_hand(vectors: torch.Tensor, targets: list[int], temperature: float) -> float:
    """Equation 2 of Khosla et al., one text after the other."""
    unit = [v / v.norm() for v in vectors.double()]
    total = 0.0
    for i, one in enumerate(unit):
        similar = {j: math.exp(float(one @ other) / temperature) for j, other in enumerate(unit) if j != i}
        alike = [j for j in similar if targets[j] == targets[i]]
        if alike:
            total += sum(-math.log(similar[j] / sum(similar.values())) for j in alike) / len(alike)
    return total


@settings(max_examples=60)
@given(targets=st.lists(st.integers(0, 3), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_the_loss_is_the_papers(targets: list[int], seed: int) -> None:
    vectors = torch.randn(len(targets), 5, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    loss = contrastive_loss(vectors, torch.tensor(targets), 0.3)
    assert float(loss.total.detach()) == pytest.approx(by_hand(vectors.detach(), targets, 0.3), rel=1e-4, abs=1e-4)
    assert loss.count == max(1, sum(targets.count(t) > 1 for t in targets))
    loss.total.backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_neither_the_vectors_lengths_nor_texts_without_another_of_their_class_count() -> None:
    vectors, targets = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 3])
    whole = contrastive_loss(vectors, targets, 0.1)
    assert float(contrastive_loss(vectors * 7, targets, 0.1).total) == pytest.approx(float(whole.total), rel=1e-5)
    assert whole.count == 4
    assert float(contrastive_loss(vectors[3:], targets[3:], 0.1).total) == 0.0


def classifier() -> Model:
    torch.manual_seed(0)
    encoder = {"name": "bert", "vocab_size": V, "embedding_dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 16}
    head = {"name": "classification", "input_dim": 8, "outputs": 3, "direction": "both", "pooling": "mean"}
    head |= {"hidden_dim": 0, "batch_norm": False}
    return build({"encoder": encoder | {"feed_forward_dim": 16, "hidden_dropout": 0.2}, "head": head}).train()


def batch() -> Batch:
    ids = torch.randint(4, V, (7, 10), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([10, 3, 8, 5, 10, 2, 6])
    mask = torch.arange(10) < lengths[:, None]
    return Batch(ids=ids.masked_fill(~mask, 0), mask=mask, targets=torch.tensor([0, 1, 2, 0, 1, 2, 0]))


def gradients(model: Model, parts: list[Batch]) -> tuple[float, int, dict[str, torch.Tensor]]:
    model.zero_grad()
    torch.manual_seed(3)
    loss = contrastive_backward(Single(model), parts)
    return float(loss.total), loss.count, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def test_parts_give_the_gradients_of_the_whole() -> None:
    model, whole = classifier().eval(), batch()
    model.contrastive_temperature = 0.2
    parts = whole.parts(20)
    assert len(parts) > 2
    loss, count, expected = gradients(model, [whole])
    in_parts, same, found = gradients(model, parts)
    assert (in_parts, same) == (pytest.approx(loss, rel=1e-5), count)
    assert found.keys() == expected.keys()
    assert not any(name.startswith("head") for name in found)  # which waits
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-6)


def test_rows_encoded_with_others_of_their_length_have_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for positions in (10_000, 20):
        monkeypatch.setattr("textgraft.models.model.CONTRASTED_POSITIONS", positions)
        model = classifier().eval()
        model.contrastive_temperature = 0.2
        loss = model.loss(batch())
        loss.total.backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append((float(loss.total.detach()), loss.count, grads))
    (whole, count, expected), (parts, same, grads) = found
    assert len(batch().parts(20)) > 1
    assert (parts, same) == (pytest.approx(whole, rel=1e-5), count)
    for name, grad in expected.items():
        torch.testing.assert_close(grads[name], grad, rtol=1e-4, atol=1e-6)


def test_padding_that_is_left_out_does_not_cost_a_second_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """70 positions of a rectangle, of which parts by length have fewer."""
    monkeypatch.setattr("textgraft.models.model.CONTRASTED_POSITIONS", 20)
    model, whole = classifier(), batch()
    positions = sum(part.ids.numel() for part in whole.parts(20))
    assert model.contrasted_positions(whole) == positions < whole.ids.numel() == 70

    def parts(limit: int, temperature: float) -> int:
        model.contrastive_temperature = temperature
        run: Any = SimpleNamespace(positions=limit, model=model)
        (of_one,) = Run._parts(run, [whole])
        return len(of_one)

    assert parts(positions, 0.2) == 1
    assert parts(positions - 1, 0.2) > 1
    assert parts(positions, 0.0) > 1  # no other loss encodes twice
    assert parts(70, 0.0) == 1


def test_dropout_is_the_same_in_both_readings() -> None:
    model = classifier()
    model.contrastive_temperature = 0.2
    parts = batch().parts(20)
    torch.manual_seed(3)
    known = [model.vectors(part) for part in parts]
    loss = contrastive_loss(torch.cat(known), torch.cat([p.targets for p in parts if p.targets is not None]), 0.2)
    model.zero_grad()
    loss.total.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    in_parts, _, found = gradients(model, parts)
    assert in_parts == pytest.approx(float(loss.total.detach()), rel=1e-5)
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-6)


def test_the_model_asks_the_head_again_when_the_contrast_is_over() -> None:
    model = classifier().eval()
    usual = model.loss(batch())
    model.contrastive_temperature = 0.1
    assert float(model.loss(batch()).total.detach()) == pytest.approx(
        by_hand(model.vectors(batch()).detach(), [0, 1, 2, 0, 1, 2, 0], 0.1), rel=1e-4
    )
    model.contrastive_temperature = 0.0
    assert torch.equal(model.loss(batch()).total, usual.total)


def test_what_cannot_be_contrasted_is_refused() -> None:
    phase = Phase("contrast", 1, 0.001, contrastive_temperature=0.1)
    stage = Stage((phase,))
    stage.validate_label_kind("single")
    with pytest.raises(UserError, match="these have a number"):
        stage.validate_label_kind("numeric")
    with pytest.raises(UserError, match="contrastive phases are for classifiers"):
        stage.validate_no_classifier_settings("recipe")
    for wrong in ({"trainable": 1}, {"only": -1}, {"contrastive_temperature": -0.1}):
        with pytest.raises(UserError):
            replace(phase, **wrong)


def test_another_temperature_is_another_stage() -> None:
    plain = Stage((Phase("all", 1, 0.001),))
    for temperature in (0.1, 0.2):
        other = Stage((Phase("all", 1, 0.001, contrastive_temperature=temperature),))
        assert changed_keys(other.identity(), plain.identity()) == ["phases.contrastive_temperature"]
