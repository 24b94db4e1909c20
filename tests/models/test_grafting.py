"""One way for a pretrained encoder to come under a fresh head: whose weights it has, what is drawn, what is dropped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from made_up_questions import encoder

from textgraft.heads.span import SpanConfig
from textgraft.models.model import Model, build, build_fresh, graft, graft_on_positions

HEAD: dict[str, Any] = {"name": "span", **asdict(SpanConfig(16))}


@pytest.fixture(scope="module")
def source() -> Model:
    return encoder("bert").model


def test_fresh_weights_are_those_of_the_seed_and_nothing_else_is_drawn(source: Model) -> None:
    before = torch.get_rng_state()
    made = build_fresh(source.describe(), 7)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = build(source.describe()).values()
    assert all(torch.equal(expected[name], value) for name, value in made.values().items())


def test_the_head_is_drawn_as_if_all_were_fresh_and_the_encoder_is_the_given_one(source: Model) -> None:
    description = {**source.describe(), "head": HEAD}
    made, fresh = graft(source.encoder, description, 3), build_fresh(description, 3)
    theirs = source.encoder.state_dict()
    assert made.encoder.state_dict().keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in made.encoder.state_dict().items())
    assert not all(torch.equal(value, theirs[name]) for name, value in fresh.encoder.state_dict().items())
    heads = zip(made.head.parameters(), fresh.head.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in heads)
    shared = {p.data_ptr() for p in made.parameters()} & {p.data_ptr() for p in source.parameters()}
    assert not shared


def test_on_positions_a_pooler_stays_behind_and_every_dropout_is_multiplied(source: Model) -> None:
    assert any(name.startswith("pooler.") for name in source.encoder.state_dict())
    before = source.describe()
    made = graft_on_positions(source, HEAD, dropout=0.5, seed=0)
    assert not any(name.startswith("pooler.") for name in made.encoder.state_dict())
    assert source.describe() == before
    assert made.describe()["head"] == {**HEAD, "input_dropout": HEAD["input_dropout"] / 2}
    rates = {key: value for key, value in before["encoder"].items() if key.endswith("_dropout")}
    assert {key: made.describe()["encoder"][key] for key in rates} == {key: rate / 2 for key, rate in rates.items()}
    assert any(rates.values())
