"""MPNet's biases by distance against a direct computation."""

from __future__ import annotations

import math

import pytest
import torch

from textgraft.data.batch import Batch
from textgraft.encoders.mpnet import MPNet, MPNetConfig, distance_buckets
from textgraft.nn.attention import attend

SMALL = {"vocab_size": 20, "embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8, "max_length": 16}


def test_scores_are_products_of_queries_and_keys_and_the_bias_of_their_distance() -> None:
    """Song et al. 2020, §2, one position and head at a time."""
    encoder = MPNet(MPNetConfig(**SMALL, num_buckets=8, max_distance=6)).eval()
    with torch.no_grad():
        encoder.distances.weight.normal_()
    query, key, value = torch.randn(3, 1, 2, 5, 4).unbind()
    found = attend(query, key, value, encoder.bias_by_distance(5)[None])
    for head in range(2):
        for i in range(5):
            scores = []
            for j in range(5):
                bucket = int(distance_buckets(torch.tensor(j - i), 8, 6))
                product = float(query[0, head, i] @ key[0, head, j]) / math.sqrt(4)
                scores.append(product + float(encoder.distances.weight[bucket, head].detach()))
            weights = torch.tensor(scores).softmax(0)
            torch.testing.assert_close(found[0, head, i], weights @ value[0, head], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_numbers_and_truths_mask_alike(dropout: float) -> None:
    """Both ways of computing attention: fused, and with dropout on a processor."""
    query, key, value = torch.randn(3, 2, 2, 5, 4).unbind()
    mask = (torch.arange(5) < torch.tensor([5, 3])[:, None])[:, None, None, :]
    number = torch.zeros(2, 1, 1, 5).masked_fill(~mask, torch.finfo(torch.float32).min)
    expected = attend(query, key, value, mask, dropout)
    torch.testing.assert_close(attend(query, key, value, number, dropout), expected)


def test_the_bias_depends_on_the_distance_alone() -> None:
    bias = MPNet(MPNetConfig(**SMALL)).bias_by_distance(16)
    assert bias.shape == (2, 16, 16)
    assert torch.equal(bias[:, 1:, 1:], bias[:, :-1, :-1])
    assert not torch.equal(bias, bias.transpose(1, 2))


def test_padding_does_not_change_a_text() -> None:
    encoder = MPNet(MPNetConfig(**SMALL)).eval()
    ids = torch.randint(20, (2, 9))
    mask = torch.arange(9) < torch.tensor([9, 4])[:, None]
    alone = encoder(Batch(ids[1:, :4], mask[1:, :4])).top
    torch.testing.assert_close(encoder(Batch(ids, mask)).top[1:, :4], alone, rtol=1e-5, atol=1e-6)
