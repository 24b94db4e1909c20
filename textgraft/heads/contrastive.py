"""Learning which texts have the same label before learning the labels: a supervised contrastive loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.heads.base import Loss

NEVER = -1e9
"""As good as minus infinity, but where a text is alone in its batch that would leave no number."""


def contrastive_loss(vectors: Tensor, targets: Tensor, temperature: float) -> Loss:
    """How badly each text's vector tells the texts of its class from the others of the batch, in nats, summed.

    Khosla et al. 2020 (arXiv:2004.11362), equation 2, for vectors (E, D) of any length and classes (E,), each text once
    and not in two views as there. A text without another of its class in the batch does not count. A hundred labels
    make thousands of pairs, which is why it serves few labels (Gunel et al. 2021, arXiv:2011.01403; with pairs one by
    one Tunstall et al. 2022, "SetFit", arXiv:2209.11055).
    """
    unit = F.normalize(vectors.float(), dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    similar = (unit @ unit.T / temperature).masked_fill(itself, NEVER)
    log_probability = similar - similar.logsumexp(dim=1, keepdim=True)
    alike = (targets[:, None] == targets[None, :]) & ~itself
    others = alike.sum(dim=1)
    nats = -log_probability.masked_fill(~alike, 0.0).sum(dim=1) / others.clamp(min=1)
    return Loss(total=nats.sum(), count=max(1, int((others > 0).sum())))
