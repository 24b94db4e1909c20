"""Several fine-tunings of one language model made one classifier: the mean of their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
from torch import Tensor, nn

from textgraft.stages.members import Member
from textgraft.training.classifier import EncodedTexts, Trained, as_model, logits_of, mean_loss, read_trained


def can_be_averaged(member: Member) -> bool:
    """Whether its networks have no batch normalisation, whose statistics are of activations that their mean lacks.

    Heads of LSTMs have it (Howard & Ruder 2018, §3.3), those of transformers here do not.
    """
    return not any(isinstance(part, nn.BatchNorm1d) for part in as_model(member.plan, member.runs[0]).modules())


def souped(member: Member, train: EncodedTexts) -> list[Trained]:
    """For each of a member's runs the mean of its weights and those of the folds' classifiers.

    They began as the same network and saw most of the same labels, and so their mean, a "uniform soup", answers about
    as well as all of them together, at the price of one (Wortsman et al. 2022, arXiv:2203.05482, who average runs of
    many settings on the same texts). The folds are there anyway. Where networks have gone apart their mean knows
    nothing: one that has a greater loss on the texts of `train`, which it has learned, than the folds had on those that
    they had not seen, is not taken, and the run stays as it is. A soup has the history of its run and no logits.
    """
    held_out, targets, kind = member.folds.logits, train.targets, member.plan.labels.kind
    assert held_out is not None, "folds come first"
    assert targets is not None
    known = ~np.isnan(held_out[:, 0])
    bearable = mean_loss(held_out[known], targets[known], kind)
    found = []
    for run in member.runs:
        of_folds = (read_trained(path).values for path in member.folds.files)  # one after the other: they are large
        soup = replace(run, values=mean_of(chain([run.values], of_folds)), logits={})
        loss = mean_loss(logits_of(as_model(member.plan, soup), member.plan, train), targets, kind)
        found.append(soup if loss <= bearable else run)
    return found


def mean_of(networks: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight, by name."""
    total: dict[str, Tensor] = {}
    count = 0
    for network in networks:
        total = {name: total[name] + value if count else value for name, value in network.items()}
        count += 1
    return {name: value / count for name, value in total.items()}
