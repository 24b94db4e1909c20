"""Optimizers: parameter groups, rates, and NT-ASGD (Merity et al. 2018, Algorithm 1) against brute force."""

import copy
import json

import pytest
import torch
from torch import Tensor, nn

from textgraft.encoders.base import LayerGroup
from textgraft.training.optimizers import NTASGD, build_optimizer, set_rates
from textgraft.training.phases import Phase
from textgraft.training.uncompiled_optimizers import SGD, Adam, AdamW


def two_groups() -> list[LayerGroup]:
    torch.manual_seed(0)
    return [
        LayerGroup(name, (nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4)))) for name in ("body", "head")
    ]


@pytest.mark.parametrize(
    ("ours", "torchs", "settings"),
    [
        (Adam, torch.optim.Adam, {"betas": (0.8, 0.95), "fused": True}),
        (AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
        (SGD, torch.optim.SGD, {"momentum": 0.9}),
    ],
)
def test_steps_are_torchs_also_after_going_on_from_a_state(ours: type, torchs: type, settings: dict) -> None:
    torch.manual_seed(0)
    mine, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    mine.load_state_dict(theirs.state_dict())
    optimizers = [ours(mine.parameters(), lr=0.1, **settings), torchs(theirs.parameters(), lr=0.1, **settings)]
    for number in range(4):
        if number == 2:  # each from the other's state
            states = [copy.deepcopy(optimizer.state_dict()) for optimizer in reversed(optimizers)]
            for optimizer, state in zip(optimizers, states, strict=True):
                optimizer.load_state_dict(state)
        x = torch.randn(7, 5)
        for model, optimizer in zip((mine, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in model.parameters())
            model(x).square().sum().backward()
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "ntasgd", "muon"])
def test_param_groups_keep_name_and_peak_rate_and_spare_biases_from_decay(optimizer: str) -> None:
    groups = two_groups()
    phase = Phase("p", epochs=1, lr=0.1, lr_decay=2.0, optimizer=optimizer, weight_decay=0.01)  # type: ignore[arg-type]
    built = build_optimizer(groups, phase)
    found = [(g["name"], g["initial_lr"], g["weight_decay"], g["params"][0].ndim) for g in built.param_groups]
    assert found == [
        ("body", 0.05, 0.01, 2),
        ("body", 0.05, 0.0, 1),
        ("head", 0.1, 0.01, 2),
        ("head", 0.1, 0.0, 1),
    ]


def test_embeddings_can_be_spared_from_decay_too() -> None:
    groups = two_groups()
    table = groups[0].parameters[0]
    phase = Phase("p", epochs=1, lr=0.1, weight_decay=0.01)
    built = build_optimizer(groups, phase, undecayed=lambda p: p is table)
    spared = [p for g in built.param_groups if g["weight_decay"] == 0 for p in g["params"]]
    assert len(spared) == 1
    assert spared[0] is table


def test_frozen_groups_are_not_in_the_optimizer() -> None:
    built = build_optimizer(two_groups(), Phase("p", epochs=1, lr=0.1, trainable=1))
    assert [g["name"] for g in built.param_groups] == ["head"]


def test_set_rates_multiplies_the_peak_rate() -> None:
    phase = Phase("p", epochs=1, lr=0.1, lr_decay=2.0, schedule="stlr", optimizer="adam")
    built = build_optimizer(two_groups(), phase)
    assert set_rates(built, phase, 55, 100) == pytest.approx((1 + 0.5 * 31) / 32)
    half = set_rates(built, phase, 55, 100, scale=0.5)
    assert [g["lr"] for g in built.param_groups] == pytest.approx([0.05 * half / 2, 0.1 * half / 2])
    assert [g["initial_lr"] for g in built.param_groups] == [0.05, 0.1]


@pytest.mark.parametrize(("optimizer", "key"), [("adamw", "betas"), ("sgd", "momentum")])
def test_one_cycle_moves_the_momentum_against_the_rate(optimizer: str, key: str) -> None:
    phase = Phase("p", epochs=1, lr=0.1, schedule="one_cycle", warmup=0.25, optimizer=optimizer)  # type: ignore[arg-type]
    built = build_optimizer(two_groups(), phase)

    def momentum(step: int) -> float:
        set_rates(built, phase, step, 100)
        value = built.param_groups[0][key]
        return float(value[0] if key == "betas" else value)

    assert [momentum(0), momentum(25)] == pytest.approx([0.95, 0.85])


def algorithm_1_trigger(losses: list[float], n: int) -> int | None:
    """The first t at which Algorithm 1 fires: t > n and v > min over l in {0, ..., t-n-1} of logs[l]."""
    for t, v in enumerate(losses):
        if t > n and v > min(losses[i] for i in range(t - n)):
            return t
    return None


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0.5], None),
        ([5, 6, 6, 6, 6, 6, 6], 6),  # t = 5 is not > n yet, though worse than the first
        ([9, 5, 6, 7, 6, 6, 6, 6], 7),  # at t = 6 only logs[0] = 9 is old enough
        ([9, 8, 7, 6, 5, 4, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5], 11),  # a bump must last n observations
    ],
)
def test_ntasgd_trigger_is_algorithm_1s(losses: list[float], expected: int | None) -> None:
    optimizer = NTASGD([nn.Parameter(torch.ones(1))], lr=1.0)
    fired = [t for t, loss in enumerate(losses) if optimizer.observe(loss)]
    assert fired == ([] if expected is None else [expected])
    assert algorithm_1_trigger(losses, 5) == expected


def train(weight: nn.Parameter, optimizer: NTASGD, losses: list[float], *, first: int = 0) -> list[Tensor]:
    """A step down a seeded random gradient and one observation for each loss; returns the weights after each."""
    history = []
    for k, loss in enumerate(losses, start=first):
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(k), dtype=weight.dtype)
        optimizer.step()
        history.append(weight.detach().clone())
        optimizer.observe(loss)
    return history


LOSSES = [5.0, 4, 6, 6, 6, 6, 6, 6, 6, 6]


def test_ntasgd_averages_the_weights_from_the_trigger_on() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = NTASGD([weight], lr=0.1, weight_decay=0.05)
    history = train(weight, optimizer, LOSSES)
    trigger = algorithm_1_trigger(LOSSES, 5)
    assert trigger == 6
    expected = torch.stack(history[trigger:]).mean(0)
    with optimizer.averaged():
        torch.testing.assert_close(weight.detach(), expected)
    assert torch.equal(weight, history[-1])


def test_ntasgd_steps_as_torchs_sgd_does() -> None:
    weight, other = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    train(weight, NTASGD([weight], lr=0.1, weight_decay=0.05), LOSSES)
    reference = torch.optim.SGD([other], lr=0.1, weight_decay=0.05)
    for k in range(len(LOSSES)):
        other.grad = torch.randn(3, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
        reference.step()
    torch.testing.assert_close(weight, other)


@pytest.mark.parametrize("cut", [3, 8])
def test_ntasgd_resumes_exactly_from_tensors_and_plain_numbers(cut: int) -> None:
    whole = nn.Parameter(torch.ones(3))
    straight = NTASGD([whole], lr=0.1)
    train(whole, straight, LOSSES)

    part = nn.Parameter(torch.ones(3))
    stopped = NTASGD([part], lr=0.1)
    train(part, stopped, LOSSES[:cut])
    saved = copy.deepcopy(stopped.state_dict())
    assert all(isinstance(v, Tensor) for state in saved["state"].values() for v in state.values())
    resumed = NTASGD([part], lr=0.1)
    resumed.load_state_dict({**saved, "param_groups": json.loads(json.dumps(saved["param_groups"]))})
    train(part, resumed, LOSSES[cut:], first=cut)

    assert torch.equal(whole, part)
    with straight.averaged(), resumed.averaged():
        assert torch.equal(whole, part)


def test_ntasgd_averaged_before_the_trigger_changes_nothing() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = NTASGD([weight], lr=0.1)
    with optimizer.averaged():
        assert torch.equal(weight, torch.ones(3))
