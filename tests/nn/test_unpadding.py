"""Unpadding: encoders give the same vectors and gradients with padding and without."""

from __future__ import annotations

import pytest
import torch

from textgraft.data.batch import pad
from textgraft.encoders.base import Encoder
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.encoders.modernbert import ModernBERT, ModernBERTConfig
from textgraft.encoders.mpnet import MPNet, MPNetConfig
from textgraft.encoders.roberta import RoBERTa, RoBERTaConfig
from textgraft.nn import unpadding

SHAPE = {"vocab_size": 40, "embedding_dim": 16, "num_layers": 3, "num_heads": 2, "feed_forward_dim": 24}
ENCODERS = {
    "bert": lambda: BERT(BERTConfig(**SHAPE)),
    "roberta": lambda: RoBERTa(RoBERTaConfig(**SHAPE)),
    "mpnet": lambda: MPNet(MPNetConfig(**SHAPE)),
    "modernbert": lambda: ModernBERT(ModernBERTConfig(**SHAPE, window=2)),
    "modernbert, pooler": lambda: ModernBERT(ModernBERTConfig(**SHAPE, pooler="mean", transform=True)),
}
LENGTHS = (3, 17, 1, 9)
BATCH = pad([torch.arange(2, 2 + length).numpy() for length in LENGTHS], 0)


def encoded(encoder: Encoder, share: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[torch.Tensor], list]:
    """All layers at the positions with a token and the pooled vectors, and the gradients of their sum of squares."""
    monkeypatch.setattr(unpadding, "MIN_PADDING", share)
    encoder.zero_grad()
    done = encoder(BATCH, keep="all")
    vectors = [layer[BATCH.mask] for layer in (*done.layers, done.top)]
    vectors += [] if done.pooled is None else [done.pooled]
    sum((one**2).sum() for one in vectors).backward()
    return vectors, [None if p.grad is None else p.grad.clone() for p in encoder.parameters()]


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_and_gradients_are_those_of_the_padded_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = ENCODERS[name]().double().eval()
    expected, expected_grads = encoded(encoder, 1.1, monkeypatch)
    found, grads = encoded(encoder, 0.1, monkeypatch)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    for one, other in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_products_take_the_positions_with_a_token_only() -> None:
    encoder, rows = ENCODERS["bert"]().train(), []
    encoder.layers[0].feed_forward.register_forward_pre_hook(lambda module, inputs: rows.append(inputs[0].shape))
    encoder(BATCH)
    assert rows == [(sum(LENGTHS), 16)]


def test_little_padding_stays() -> None:
    assert unpadding.Unpadding.where_it_pays(torch.ones(4, 8, dtype=torch.bool)) is None
