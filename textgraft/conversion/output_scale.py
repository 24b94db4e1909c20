"""A classifier's temperature, or the unit of a number, as part of its last layer: other libraries have neither."""

from __future__ import annotations

import torch
from torch import nn

from textgraft.core.errors import UserError
from textgraft.heads.classification import ClassificationHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.models.artifact import Artifact


def fold_output_scale(source: Artifact) -> None:
    """Change the last layer of a classifier so that its logits need no temperature, and a number no unit.

    Args:
        source: The model; one that is no classifier is left as it is.

    Raises:
        UserError: A number's mean needs a bias, and the layer has none.
    """
    head, labels = source.model.head, source.labels
    head = head.score if isinstance(head, ChoiceHead) else head
    if labels is None or not isinstance(head, ClassificationHead):
        return
    last = head.layers[-1]
    assert isinstance(last, nn.Linear)
    numeric = labels.num_classes is None
    factor = labels.std if numeric else 1.0 / (source.run.get("temperature") or 1.0)
    if numeric and labels.mean and last.bias is None:
        message = "this classifier's last layer has no bias, which the mean of its number would be."
        raise UserError(message, remedy="Keep the model in textgraft's format.")
    with torch.no_grad():
        last.weight.mul_(factor)
        if last.bias is not None:
            last.bias.mul_(factor).add_(labels.mean if numeric else 0.0)
