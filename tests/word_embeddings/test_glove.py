"""GloVe: counts beside brute force, gradients beside autograd, steps beside one pair at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from textgraft.word_embeddings.cooccurrence import PAIR, Pairs, count_pairs
from textgraft.word_embeddings.glove import ALPHA, X_MAX, GloVe, train


def brute_force(documents: list[list[int]], size: int, window: int) -> np.ndarray:
    """X (V, V), word by word: 1 / d for each neighbour at most `window` away, on both sides."""
    x = np.zeros((size, size))
    for ids in documents:
        for i, word in enumerate(ids):
            for j in range(max(0, i - window), min(len(ids), i + window + 1)):
                if i != j:
                    x[word, ids[j]] += 1 / abs(i - j)
    return x


def dense(pairs: Pairs, size: int) -> np.ndarray:
    x = np.zeros((size, size))
    everything = np.concatenate([np.fromfile(path, dtype=PAIR) for path in pairs.files])
    assert len(everything) == pairs.total
    assert len(np.unique(everything[["word", "context"]])) == len(everything)  # each entry once
    x[everything["word"], everything["context"]] = everything["count"]
    return x


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=6),
    window=st.integers(1, 5),
    in_memory=st.sampled_from([1, 3, 10, 1_000_000]),
)
def test_counts_are_those_of_brute_force(
    documents: list[list[int]], window: int, in_memory: int, tmp_path: Path
) -> None:
    given_ids = [np.array(ids, dtype=np.int32) for ids in documents]
    pairs = count_pairs(given_ids, 5, tmp_path, window=window, in_memory=in_memory)
    np.testing.assert_allclose(dense(pairs, 5), brute_force(documents, 5, window), rtol=1e-6)
    for path in tmp_path.iterdir():
        assert path in pairs.files  # the runs are gone
        path.unlink()


def test_what_is_spilled_is_what_is_counted_at_once(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    documents = [generator.integers(0, 60, size=n).astype(np.int32) for n in (500, 1, 0, 900, 30)]
    found = []
    for number, in_memory in enumerate((10**7, 900)):
        folder = tmp_path / str(number)
        folder.mkdir()
        pairs = count_pairs(documents, 60, folder, window=7, in_memory=in_memory)
        found.append(dense(pairs, 60))
        assert (len(pairs.files) > 5) == bool(number)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert (found[0] == found[0].T).all()


def test_an_unknown_word_takes_its_place(tmp_path: Path) -> None:
    pairs = count_pairs([np.array([0, -1, 1], dtype=np.int32)], 2, tmp_path, window=2)
    assert dense(pairs, 2).tolist() == [[0, 0.5], [0.5, 0]]


def test_each_time_all_pairs_come_once_in_another_order(tmp_path: Path) -> None:
    documents = [np.random.default_rng(0).integers(0, 9, size=300).astype(np.int32)]
    pairs = count_pairs(documents, 9, tmp_path, window=3, in_memory=20)
    generator = np.random.default_rng(0)
    first, second = (np.concatenate(list(pairs.shuffled(generator))) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first), np.sort(second))


def some_pairs(generator: np.random.Generator, size: int, number: int) -> tuple[torch.Tensor, ...]:
    word, context = (torch.from_numpy(generator.integers(0, size, number)) for _ in range(2))
    return word, context, torch.from_numpy(generator.uniform(0.1, 300, number)).float()


def test_gradients_are_autograds() -> None:
    word, context, count = some_pairs(np.random.default_rng(0), 7, 30)
    model = GloVe.begin(7, 4, 0)
    w, c, b, d = (value.clone().requires_grad_() for value in model._values())
    weight = torch.where(count < X_MAX, (count / X_MAX) ** ALPHA, torch.ones(()))
    error = (w[word] * c[context]).sum(1) + b[word] + d[context] - torch.log(count)
    loss = (weight * error**2).sum()
    loss.backward()
    found, gradients = model.gradients(word, context, count)
    assert found == pytest.approx(loss.item(), rel=1e-5)
    for value, gradient, place in zip((w, c, b, d), gradients, (word, context, word, context), strict=True):
        summed = torch.zeros_like(value).index_add_(0, place, gradient)
        assert value.grad is not None
        torch.testing.assert_close(2 * summed, value.grad)


def test_a_batch_of_one_is_adagrads_step() -> None:
    model = GloVe.begin(5, 3, 0)
    before = [value.clone() for value in model._values()]
    _, (gradient, *_) = model.gradients(torch.tensor([2]), torch.tensor([4]), torch.tensor([20.0]))
    model.step(torch.tensor([2]), torch.tensor([4]), torch.tensor([20.0]), 0.05)
    torch.testing.assert_close(model.words[2], before[0][2] - 0.05 * gradient[0])
    torch.testing.assert_close(model.squares[0][2], 1 + (0.05 * gradient[0]) ** 2)
    assert torch.equal(model.words[[0, 1, 3, 4]], before[0][[0, 1, 3, 4]])
    assert torch.equal(model.contexts[:4], before[1][:4])


def one_at_a_time(model: GloVe, pairs: Pairs, epochs: int, rate: float) -> list[float]:
    """The authors' loop: each pair a step, scaled by the squares of the steps before it."""
    values = [value.numpy().copy() for value in model._values()]
    squares = [np.ones_like(value) for value in values]
    generator = np.random.default_rng(0)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for block in pairs.shuffled(generator):
            for i, j, x in block.tolist():
                (w, c, b, d), at = values, (i, j, i, j)
                error = w[i] @ c[j] + b[i] + d[j] - np.log(x)
                slope = min(1.0, x / X_MAX) ** ALPHA * error
                total += slope * error
                gradients = (slope * c[j], slope * w[i], slope, slope)
                for value, square, gradient, place in zip(values, squares, gradients, at, strict=True):
                    value[place] -= rate * gradient / np.sqrt(square[place])
                    square[place] += (rate * gradient) ** 2
        losses.append(total / pairs.total)
    return losses


def test_batches_learn_as_fast_as_single_pairs(tmp_path: Path) -> None:
    """The loss after each of five times over the pairs is that of the authors' loop, within a twentieth."""
    generator = np.random.default_rng(0)
    share = 1 / np.arange(1, 81)
    documents = [generator.choice(80, size=400, p=share / share.sum()).astype(np.int32) for _ in range(5)]
    pairs = count_pairs(documents, 80, tmp_path, window=5)
    alone = one_at_a_time(GloVe.begin(80, 8, 0), pairs, 5, 0.05)
    losses = train(GloVe.begin(80, 8, 0), pairs, epochs=5, rate=0.05, seed=0)
    assert losses == pytest.approx(alone, rel=0.05)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]


def test_several_workers_learn_the_same_to_the_eye(tmp_path: Path) -> None:
    """Workers that write over one another lose a step now and then, so equality is of the course, not of the digits."""
    documents = [np.random.default_rng(0).integers(0, 400, size=8_000).astype(np.int32)]
    pairs = count_pairs(documents, 400, tmp_path, window=5)
    alone, together = (
        train(GloVe.begin(400, 8, 0), pairs, epochs=4, rate=0.05, seed=0, workers=workers) for workers in (1, 4)
    )
    assert together == pytest.approx(alone, rel=0.05)
    assert together == sorted(together, reverse=True)


def test_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    documents = [np.random.default_rng(0).integers(0, 20, size=500).astype(np.int32)]
    pairs = count_pairs(documents, 20, tmp_path, window=3)
    found = []
    for seed in (0, 0, 1):
        model = GloVe.begin(20, 4, seed)
        train(model, pairs, epochs=2, rate=0.05, seed=seed)
        found.append(model.vectors())
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
