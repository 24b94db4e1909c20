"""Supervised contrastive loss: pull texts of one class together before training a classifier."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.heads.base import Loss

MASKED = -1e9
"""Used in place of minus infinity, which would give NaN where a text is alone in its batch."""


def contrastive_loss(vectors: Tensor, targets: Tensor, temperature: float) -> Loss:
    """Supervised contrastive loss in nats, summed over texts.

    Args:
        vectors: (E, D), of any length.
        targets: Classes (E,).
        temperature: Contrastive temperature.

    Returns:
        The summed loss; a text without another of its class in the batch does not count.

    Source: Khosla et al. 2020 (arXiv:2004.11362), equation 2, with each text once instead of in two views. A hundred
    labels make thousands of pairs, which helps with few labels (Gunel et al. 2021, arXiv:2011.01403; with single pairs:
    Tunstall et al. 2022, "SetFit", arXiv:2209.11055).
    """
    unit = F.normalize(vectors.float(), dim=1)
    diagonal = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    similarities = (unit @ unit.T / temperature).masked_fill(diagonal, MASKED)
    log_probability = similarities - similarities.logsumexp(dim=1, keepdim=True)
    same_class = (targets[:, None] == targets[None, :]) & ~diagonal
    others = same_class.sum(dim=1)
    nats = -log_probability.masked_fill(~same_class, 0.0).sum(dim=1) / others.clamp(min=1)
    return Loss(total=nats.sum(), count=max(1, int((others > 0).sum())))
