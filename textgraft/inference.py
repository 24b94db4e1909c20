"""From texts to logits and vectors: length-sorted token-budget batches inside, the caller's order outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from textgraft.data.batch import budget_batches, iterate
from textgraft.model import Model
from textgraft.nn.pooling import POOLINGS
from textgraft.nn.precision import computing_in
from textgraft.text.tokenizer import Tokenizer

TOKENS_PER_BATCH = 16_384


@dataclass(frozen=True)
class Truncation:
    """How much text a model never saw because documents were longer than it reads."""

    texts: int
    cut_texts: int
    tokens: int
    lost_tokens: int

    @property
    def share(self) -> float:
        """Of all tokens, how many were lost."""
        return self.lost_tokens / max(1, self.tokens)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> tuple[list[np.ndarray], Truncation]:
    """The texts' token ids, each at most `max_tokens`, and what this cut off.

    A long text keeps its first quarter of the limit and its last three: reviews and articles say what they are at
    the beginning and what they think at the end (Sun et al. 2019, arXiv:1905.05583, "head + tail").
    """
    sequences = tokenizer.encode_batch(texts)
    over = [len(s) - max_tokens for s in sequences if len(s) > max_tokens]
    truncation = Truncation(len(sequences), len(over), sum(len(s) for s in sequences), sum(over))
    head = max_tokens // 4
    cut = [s if len(s) <= max_tokens else np.concatenate([s[:head], s[head - max_tokens :]]) for s in sequences]
    return cut, truncation


@torch.no_grad()
def predict_logits(model: Model, sequences: Sequence[np.ndarray], pad_id: int, precision: str = "auto") -> np.ndarray:
    """(N, outputs) float32 logits of the head, one row a text in the order given."""
    return _over_batches(model, sequences, pad_id, precision, pooling=None)


@torch.no_grad()
def embed_sequences(
    model: Model, sequences: Sequence[np.ndarray], pad_id: int, pooling: str = "mean", precision: str = "auto"
) -> np.ndarray:
    """(N, D) float32 vectors: the encoder's top layer, pooled (nn.pooling.POOLINGS)."""
    return _over_batches(model, sequences, pad_id, precision, pooling=pooling)


def _over_batches(
    model: Model, sequences: Sequence[np.ndarray], pad_id: int, precision: str, pooling: str | None
) -> np.ndarray:
    was_training = model.training
    model.eval()
    results: list[Tensor] = []
    rows: list[int] = []
    batches = budget_batches([len(s) for s in sequences], tokens=TOKENS_PER_BATCH, rows=512)
    for indices, batch in zip(batches, iterate(sequences, batches, pad_id), strict=True):
        with computing_in(precision, model.device):
            if pooling is None:
                result = model(batch)
            else:
                encoded = model.encoder(batch.to(model.device))
                result = POOLINGS[pooling](encoded.top, encoded.mask, model.encoder.direction)
            results.append(result.float().cpu())
        rows += indices
    model.train(was_training)
    output = torch.cat(results)
    ordered = torch.empty_like(output)
    ordered[torch.tensor(rows)] = output
    return ordered.numpy()
