"""Layers that keep only their inputs for the backward pass, and compute the rest again (Chen et al. 2016)."""

from __future__ import annotations

from torch import nn
from torch.distributed._composable import checkpoint

from textgraft.core.errors import UserError
from textgraft.models.model import Model

_MARK = "_checkpointed"


def layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model: the items of its longest list of modules; none where it has no list."""
    lists = [list(m) for m in model.modules() if isinstance(m, nn.ModuleList)]
    return max(lists, key=len, default=[])


def checkpoint_activations(model: Model) -> None:
    """Let each layer of an encoder compute its activations again in the backward pass, with the same dropout.

    Raises:
        UserError: The encoder has no layers to do so.
    """
    found = layers(model.encoder)
    if not found:
        message = "this encoder has no list of layers whose activations could be computed again."
        raise UserError(message, where="activation_checkpointing", remedy="Leave it out.")
    for layer in found:
        if not hasattr(layer, _MARK):
            setattr(layer, _MARK, True)
            checkpoint(layer)
        checkpoint.state(layer).enable_hook = True


def keep_activations(model: Model) -> None:
    """Undo `checkpoint_activations`."""
    for layer in layers(model.encoder):
        if hasattr(layer, _MARK):
            checkpoint.state(layer).enable_hook = False
