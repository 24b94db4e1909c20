"""GPT's auxiliary objective: a language-model loss beside the classification loss."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from textgraft.data.batch import IGNORE, Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder
from textgraft.heads.base import Loss
from textgraft.heads.language_model import LanguageModelHead


class AuxiliaryLanguageModel(nn.Module):
    """A language-model head beside a classifier's: L3 = L2 + λ L1.

    Both losses are sums over examples, which the loop divides by one count over all micro-batches and ranks: L1 is each
    row's mean over its tokens, then the mean over the rows of an example. Every token of a row but the first is a
    target (the last, for a right-to-left encoder), special tokens included. The head's regularisers (AR, TAR) are left
    out, since they are no part of L1; its output dropout is active.

    Source: Radford et al. 2018, §3.2, equation 5. The paper writes L1 and L2 as sums over the whole data; these means
    are those of the authors' code (train.py).
    """

    def __init__(self, head: LanguageModelHead, weight: float, direction: Direction) -> None:
        super().__init__()
        self.head, self.weight, self.direction = head, weight, direction

    def added(self, loss: Loss, encoded: Encoded, batch: Batch) -> Loss:
        """Add λ times the language model's loss to the classifier's.

        Returns:
            The total loss; `parts` has the sums over examples: `nll` (classifier) and `auxiliary_nll` (before λ).
        """
        targets = next_tokens(batch, self.direction)
        total = self.head.weighted_nll(encoded, targets, shares(targets, batch.groups))
        parts = {**loss.parts, "nll": float(loss.total.detach()), "auxiliary_nll": float(total.detach())}
        return replace(loss, total=loss.total + self.weight * total, parts=parts)

    def own(self, encoder: Encoder) -> tuple[nn.Parameter, ...]:
        """Parameters that are not shared with the encoder."""
        shared = {id(p) for p in encoder.parameters()}
        return tuple(p for p in self.parameters() if id(p) not in shared)


def next_tokens(batch: Batch, direction: Direction) -> Tensor:
    """Ids (B, T) of the next token in the same row, or the previous one for "right"; -100 where there is none."""
    targets = torch.full_like(batch.ids, IGNORE)
    both = batch.mask[:, 1:] & batch.mask[:, :-1]
    if direction == "right":
        targets[:, 1:] = batch.ids[:, :-1].masked_fill(~both, IGNORE)
    else:
        targets[:, :-1] = batch.ids[:, 1:].masked_fill(~both, IGNORE)
    return targets


def shares(targets: Tensor, groups: Tensor | None) -> Tensor:
    """Weights (B, T) in float32 that add up to 1 over each row's targets, or to 1 over the number of rows of its
    example.
    """
    tokens = (targets != IGNORE).sum(dim=1).clamp(min=1)
    rows = torch.ones_like(tokens) if groups is None else groups.bincount()[groups]
    return (1 / (tokens * rows).float())[:, None].expand(targets.shape)
