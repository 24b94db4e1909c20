"""A model is an encoder and a head."""

from __future__ import annotations

from torch import nn

from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoder, LayerGroup, State
from textgraft.heads.base import Head, Loss


class Model(nn.Module):
    """What the training loop sees: `loss(batch, state)`, and layer groups from bottom to top."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def loss(self, batch: Batch, state: State | None = None) -> Loss:
        return self.head.loss(self.encoder(batch, state), batch)

    def layer_groups(self) -> list[LayerGroup]:
        """The encoder's groups and, last, the head's; a table that both share (weight tying) trains with the head.

        The groups are disjoint and cover every parameter exactly once.
        """
        of_head = tuple(self.head.parameters())
        shared = {id(p) for p in of_head}
        below = [
            LayerGroup(g.name, tuple(p for p in g.parameters if id(p) not in shared))
            for g in self.encoder.layer_groups()
        ]
        return [g for g in below if g.parameters] + [LayerGroup("head", of_head)]
