"""GPT's auxiliary objective: while a classifier learns, its language model goes on being one."""

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
    """A language-model head beside a classifier's: L3 = L2 + λ L1 (Radford et al. 2018, §3.2, equation 5).

    The paper writes L1 and L2 as sums over the whole data; the authors' code (train.py) takes for L1 each row's mean
    over its tokens, then the mean over rows, and for L2 the mean over examples. So do we. A row's mean belongs to its
    row and the mean over an example's rows to the example, so both losses are sums over examples, which the loop
    divides by one count over all micro-batches and ranks: no batch's mean is ever taken. Every token of a row but the
    first is a target (the last, for an encoder that reads from the right), marks and the extracted token among them,
    as there. The head's regularisers (AR, TAR) stay out: they are no part of L1. Its output dropout acts.
    """

    def __init__(self, head: LanguageModelHead, weight: float, direction: Direction) -> None:
        super().__init__()
        self.head, self.weight, self.direction = head, weight, direction

    def added(self, loss: Loss, encoded: Encoded, batch: Batch) -> Loss:
        """The classifier's loss of a batch with λ times the language model's; `parts` has both sums over examples.

        These are `nll` (the classifier's) and `auxiliary_nll` (before λ).
        """
        targets = next_tokens(batch, self.direction)
        total = self.head.weighted_nll(encoded, targets, shares(targets, batch.groups))
        parts = {**loss.parts, "nll": float(loss.total.detach()), "auxiliary_nll": float(total.detach())}
        return replace(loss, total=loss.total + self.weight * total, parts=parts)

    def own(self, encoder: Encoder) -> tuple[nn.Parameter, ...]:
        """The parameters that it does not share with the encoder."""
        shared = {id(p) for p in encoder.parameters()}
        return tuple(p for p in self.parameters() if id(p) not in shared)


def next_tokens(batch: Batch, direction: Direction) -> Tensor:
    """(B, T) the id that follows in the same row, or the one before for "right"; -100 where there is none."""
    targets = torch.full_like(batch.ids, IGNORE)
    both = batch.mask[:, 1:] & batch.mask[:, :-1]
    if direction == "right":
        targets[:, 1:] = batch.ids[:, :-1].masked_fill(~both, IGNORE)
    else:
        targets[:, :-1] = batch.ids[:, 1:].masked_fill(~both, IGNORE)
    return targets


def shares(targets: Tensor, groups: Tensor | None) -> Tensor:
    """(B, T) float32 such that each row's targets add up to 1, or to 1 over the number of rows of its example."""
    tokens = (targets != IGNORE).sum(dim=1).clamp(min=1)
    rows = torch.ones_like(tokens) if groups is None else groups.bincount()[groups]
    return (1 / (tokens * rows).float())[:, None].expand(targets.shape)
