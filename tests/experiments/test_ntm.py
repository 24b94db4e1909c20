"""The Neural Turing Machine: each formula against a loop, the tasks, learning, and continuing after a kill."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from textgraft import UserError
from textgraft.cli.app import main
from textgraft.core.context import QUIET
from textgraft.experiments import ntm, ntm_training
from textgraft.experiments.ntm import NTM, TASKS, NTMConfig, Trace, Training, bits
from textgraft.experiments.ntm_training import NTMOptions, inspect_ntm, new_network

B, H, N, M, S = 2, 3, 5, 4, 3


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def distribution(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.softmax(3 * random(*shape, seed=seed), dim=-1)


def test_content_addressing_is_a_softmax_of_cosines_times_the_strength() -> None:
    memory, keys, strengths = random(B, N, M) - 0.5, random(B, H, M, seed=1) - 0.5, 5 * random(B, H, seed=2)
    found = ntm.content_weights(memory, keys, strengths)
    for b in range(B):
        for h in range(H):
            k = keys[b, h]
            cosines = [float(k @ memory[b, n] / (k.norm() * memory[b, n].norm())) for n in range(N)]
            raised = [math.exp(float(strengths[b, h]) * cosine) for cosine in cosines]
            np.testing.assert_allclose(found[b, h], np.array(raised) / sum(raised), rtol=1e-5)


def test_interpolation_keeps_what_the_gate_does_not_let_through() -> None:
    content, previous, gates = distribution(B, H, N), distribution(B, H, N, seed=1), random(B, H, seed=2)
    found = ntm.interpolated(content, previous, gates)
    for b in range(B):
        for h in range(H):
            g = float(gates[b, h])
            for n in range(N):
                expected = g * float(content[b, h, n]) + (1 - g) * float(previous[b, h, n])
                assert float(found[b, h, n]) == pytest.approx(expected, rel=1e-5)


def test_shifts_are_a_circular_convolution() -> None:
    weights, shifts = distribution(B, H, N), distribution(B, H, S, seed=1)
    found = ntm.shifted(weights, shifts)
    for b in range(B):
        for h in range(H):
            for i in range(N):
                # equation 8: sum over j of w(j) s(i - j), the shift i - j counted from -1 to 1
                expected = sum(float(weights[b, h, (i - by) % N]) * float(shifts[b, h, by + 1]) for by in (-1, 0, 1))
                assert float(found[b, h, i]) == pytest.approx(expected, rel=1e-5)
    one = torch.zeros(1, 1, N).index_fill_(2, torch.tensor([N - 1]), 1.0)
    forward = torch.tensor([[[0.0, 0.0, 1.0]]])
    assert ntm.shifted(one, forward)[0, 0].tolist() == [1, 0, 0, 0, 0]  # past the last slot comes the first


def test_sharpening_is_a_normalised_power() -> None:
    weights, powers = distribution(B, H, N), 1 + 3 * random(B, H, seed=1)
    found = ntm.sharpened(weights, powers)
    for b in range(B):
        for h in range(H):
            raised = [float(w) ** float(powers[b, h]) for w in weights[b, h]]
            np.testing.assert_allclose(found[b, h], np.array(raised) / sum(raised), rtol=1e-5)
    certain = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    ntm.sharpened(certain, torch.tensor([[2.0]])).sum().backward()
    assert certain.grad is not None
    assert torch.isfinite(certain.grad).all()


def test_reading_erasing_and_adding() -> None:
    memory, weights = random(B, N, M), distribution(B, H, N, seed=1)
    erase, add = random(B, H, M, seed=2), random(B, H, M, seed=3) - 0.5
    reads, after = ntm.read(memory, weights), ntm.written(memory, weights, erase, add)
    for b in range(B):
        for h in range(H):
            expected = sum(float(weights[b, h, n]) * memory[b, n] for n in range(N))
            np.testing.assert_allclose(reads[b, h], expected, rtol=1e-5)
        for n in range(N):
            slot = memory[b, n].clone()
            for h in range(H):
                slot *= 1 - float(weights[b, h, n]) * erase[b, h]
            for h in range(H):
                slot += float(weights[b, h, n]) * add[b, h]
            np.testing.assert_allclose(after[b, n], slot, rtol=1e-5, atol=1e-7)


def test_heads_begin_at_one_slot_and_weights_stay_distributions() -> None:
    model, trace = NTM(NTMConfig(9, 8, heads=2, slots=16)), Trace()
    with torch.no_grad():
        model(TASKS["copy"].batch(np.random.default_rng(0), 3, 5).inputs, trace)
    arrays = trace.arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        "weights": (11, 4, 16),
        "reads": (11, 2, 20),
        "adds": (11, 2, 20),
    }
    np.testing.assert_allclose(arrays["weights"].sum(axis=-1), 1, rtol=1e-5)
    assert torch.softmax(model.first_weights, dim=-1)[:, 0].min() > 0.85


def test_copy_asks_for_the_same_vectors() -> None:
    made = TASKS["copy"].batch(np.random.default_rng(0), 4, 6)
    assert made.inputs.shape == (4, 13, 9)
    assert torch.equal(made.inputs[:, :6, :8], made.targets)
    assert made.inputs[:, 6].sum().item() == made.inputs[:, 6, 8].sum().item() == 4
    assert made.inputs[:, 7:].abs().sum() == 0


def test_repeat_copy_ends_with_a_mark() -> None:
    made = ntm.repeated(np.random.default_rng(0), 2, 3, 10)
    assert made.targets.shape == (2, 31, 9)
    assert all(torch.equal(made.targets[:, 3 * i : 3 * i + 3, :8], made.inputs[:, :3, :8]) for i in range(10))
    assert made.targets[0, :, 8].tolist() == [0] * 30 + [1]
    assert made.inputs[0, 3, 8].item() == pytest.approx((10 - 5.5) / np.std(range(1, 11)))


def test_associative_recall_asks_for_the_item_after_the_query() -> None:
    made = TASKS["associative-recall"].batch(np.random.default_rng(0), 20, 4)
    items = torch.stack([made.inputs[:, 4 * i + 1 : 4 * i + 4, :6] for i in range(4)], dim=1)
    query = made.inputs[:, 17:20, :6]
    for row in range(20):
        followers = [i + 1 for i in range(3) if torch.equal(items[row, i], query[row])]
        assert any(torch.equal(items[row, i], made.targets[row]) for i in followers)
    assert made.inputs[:, [16, 20], 7].sum().item() == 40


def test_priority_sort_asks_for_the_highest_first() -> None:
    made = TASKS["priority-sort"].batch(np.random.default_rng(0), 3, 20)
    assert made.targets.shape == (3, 16, 8)
    for row in range(3):
        order = sorted(range(20), key=lambda i: -float(made.inputs[row, i, 8]))[:16]
        assert torch.equal(made.targets[row], made.inputs[row, order, :8])


def test_the_cost_of_knowing_nothing_is_one_bit_a_bit() -> None:
    model = NTM(NTMConfig(9, 8, slots=8))
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
        cost, _ = bits(model, TASKS["copy"].batch(np.random.default_rng(0), 2, 5))
    np.testing.assert_allclose(cost, 40, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ntm_training.NETWORKS)
def test_every_network_learns_short_copies(name: str) -> None:
    """With each of the memories, and by the LSTM, which needs none for two vectors."""
    task = replace(TASKS["copy"], trained=(1, 2))
    config = replace(new_network(name, task, NTMOptions()).config, slots=8, width=10, controller_dim=64)
    torch.manual_seed(0)
    costs = [step.bits for step in Training(NTM(config), task, steps=150, learning_rate=1e-2).run()]
    assert np.mean(costs[-20:]) < 0.7 * np.mean(costs[:20])


@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntm_training, "SAVE_EVERY", 4)
    monkeypatch.setattr(ntm_training, "POINT_EVERY", 2)
    options = NTMOptions(("ntm-feedforward", "lstm"), steps=10, batch_size=2, test_sequences=3)
    whole = inspect_ntm("copy", tmp_path / "whole", options=options, context=QUIET)
    real, calls = ntm_training._save, []

    def killed(*values: object) -> None:
        real(*values)  # type: ignore[arg-type]
        calls.append(values)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ntm_training, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            inspect_ntm("copy", tmp_path / "killed", options=options, context=QUIET)
    again = inspect_ntm("copy", tmp_path / "killed", options=options, context=QUIET)
    for results in (whole, again):
        for network in results["networks"].values():
            del network["seconds"]
    assert again == whole
    assert [point[0] for point in whole["networks"]["lstm"]["curve"]] == [4, 8, 12, 16, 20]


@pytest.mark.slow  # a hundred sequences of 120 vectors
def test_the_command_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["inspect", "ntm", "copy", "--out", str(out), "--steps", "3", "--networks", "ntm-lstm,lstm", "--quiet"]
    with pytest.raises(SystemExit) as done:
        main(command)
    assert done.value.code == 0
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") == 2  # curves, and the memory of the network that has one
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert [test["size"] for test in results["networks"]["lstm"]["tested"]] == [10, 20, 30, 50, 120]


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("copi", {}, "no task 'copi'"),
        ("copy", {"networks": ("ntm",)}, "no network 'ntm'"),
        ("copy", {"steps": 0}, "0"),
        *(("copy", {"learning_rate": rate}, "learning_rate is") for rate in (-1.0, math.nan, 1e30)),
    ],
)
def test_mistakes_are_told(task: str, options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        inspect_ntm(task, tmp_path / "out", options=NTMOptions(**options), context=QUIET)
    assert not (tmp_path / "out").exists()
