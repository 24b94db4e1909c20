"""The loss of UDA's consistency training, which research/ablations.py measures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from small_models import classifier
from torch.nn import functional as F

from textgraft.data.batch import Batch, pad

RESEARCH = Path(__file__).parents[2] / "research"
sys.path.insert(0, str(RESEARCH))  # its modules are scripts beside each other, importable only from their own folder
from consistency import SURE, TEMPERATURE, Consistent  # noqa: E402

sys.path.remove(str(RESEARCH))

FREQUENT, RARE, PAD = 1, 9, 0
TEXTS = [np.array([FREQUENT, FREQUENT, 2 + i % 5, RARE if i == 0 else 3, 4]) for i in range(40)]


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
