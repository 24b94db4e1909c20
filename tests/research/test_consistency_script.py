"""UDA's consistency as bench/ablations.py measures it: what is replaced, and what the loss then asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import classifier
from torch.nn import functional as F

from textgraft.data.batch import Batch, pad

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # its modules are scripts beside each other, importable only from their own folder
from consistency import SURE, TEMPERATURE, Consistent, Replacing, pairs_of  # noqa: E402

sys.path.remove(str(BENCH))

FREQUENT, RARE, PAD = 1, 9, 0
TEXTS = [np.array([FREQUENT, FREQUENT, 2 + i % 5, RARE if i == 0 else 3, 4]) for i in range(40)]


def test_tokens_that_say_little_go_and_come() -> None:
    replacing, generator = Replacing(TEXTS, 12, kept=[PAD]), np.random.default_rng(0)
    changed = np.stack([replacing(TEXTS[0], generator) for _ in range(2_000)])
    gone = (changed != TEXTS[0]).mean(axis=0)
    assert gone[3] == 0  # what says most of all in the text
    assert 0.2 < gone[0] < 0.6
    arrived = np.bincount(changed[changed != TEXTS[0]], minlength=12)
    assert arrived[PAD] == arrived[10] == arrived[11] == 0  # kept, or never seen
    assert replacing.arriving.sum() == pytest.approx(1)


def test_so_many_go_as_asked() -> None:
    """Probabilities are scaled so that their mean is the rate, where none is cut at 1."""
    texts = [np.arange(1, 11) for _ in range(5)] + [np.array([i]) for i in range(1, 11) for _ in range(i)]
    replacing, generator = Replacing(texts, 12, rate=0.2), np.random.default_rng(0)
    idf = replacing.idf[texts[0]]
    room = idf.max() - idf
    expected = np.minimum(1, 0.2 * room / room.mean())
    same_again = replacing.arriving[texts[0]]
    changed = np.stack([replacing(texts[0], generator) != texts[0] for _ in range(5_000)]).mean(axis=0)
    np.testing.assert_allclose(changed, expected * (1 - same_again), atol=0.03)


def test_one_text_of_one_token_and_a_seed() -> None:
    replacing = Replacing([np.array([3]), np.array([3, 4])], 6)
    assert replacing(np.array([3]), np.random.default_rng(0)).shape == (1,)
    one, two = (next(pairs_of(TEXTS, Replacing(TEXTS, 12), PAD, rows=4, seed=5)) for _ in range(2))
    assert torch.equal(one[0].ids, two[0].ids)
    assert torch.equal(one[1].ids, two[1].ids)


def test_the_loss_is_the_labelled_one_and_the_divergence_of_sure_answers() -> None:
    inner = classifier()
    clean, changed = (
        pad([np.array([3, 4, 5]), np.array([6, 7])], PAD),
        pad([np.array([3, 9, 5]), np.array([8, 7])], PAD),
    )
    model = Consistent(inner, iter([(clean, changed)] * 4)).eval()
    with torch.no_grad():  # answers of which one is sure
        last = [m for m in model.head.modules() if isinstance(m, torch.nn.Linear)][-1]
        last.weight.mul_(2_000)
    labelled = Batch(ids=clean.ids, mask=clean.mask, targets=torch.tensor([0, 1]))
    own, whole = inner.loss(labelled), model.loss(labelled)
    logits, others = model(clean), model(changed)
    said = (logits / TEMPERATURE).softmax(dim=1)
    sure = logits.softmax(dim=1).amax(dim=1) > SURE
    assert sure.any()
    expected = sum(F.kl_div(others[i].log_softmax(0), said[i], reduction="sum") for i in range(2) if sure[i]) / 2
    torch.testing.assert_close(whole.total, own.total + own.count * expected)
    assert whole.count == own.count
    whole.total.backward()
    assert model.encoder.embedding.weight.grad[9].abs().sum() > 0  # by way of the changed text alone
    assert model.encoder.embedding.weight.grad[8].abs().sum() > 0 or not sure[1]


def test_what_was_read_once_teaches_the_head_alone() -> None:
    model = Consistent(classifier(), iter([]))
    batch = Batch(ids=torch.tensor([[3, 4]]), mask=torch.ones(1, 2, dtype=torch.bool), targets=torch.tensor([1]))
    seen = model.vectors(batch)
    model.eval()
    assert torch.isfinite(model.loss(Batch(**{**vars(batch), "seen": seen})).total)
