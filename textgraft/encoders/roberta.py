"""RoBERTa: BERT trained longer, on more text, without next sentence prediction and without segments.

The network is BERT's. XLM-R (Conneau et al. 2020) and CamemBERT (Martin et al. 2020) are the same over SentencePiece
vocabularies, and DistilRoBERTa is one of six layers. As published, the first token of a text has the position after the
padding token's id; here positions start at 0, and conversion leaves out the rows of the table that no token uses.

Source: Liu et al. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textgraft.encoders.bert import BERT, BERTConfig


@dataclass(frozen=True)
class RoBERTaConfig(BERTConfig):
    """Shape and dropouts as in BERTConfig; the defaults are RoBERTa-base.

    Args:
        padding_id: The tokenizer's id of padding, from which published checkpoints count positions. The network does
            not use it.
    """

    num_segments: int = 1
    pooler: bool = False
    layer_norm_eps: float = 1e-5
    padding_id: int = 1


class RoBERTa(BERT):
    """Token ids to one vector a position, as BERT; all texts are of the one segment."""

    config: RoBERTaConfig
    method = "roberta"

    def classifier(self) -> dict[str, Any]:
        """A dense layer with tanh over the first position, <s>, then a linear one, as in the authors' code."""
        return dense_tanh(self.output_dim, self.config.hidden_dropout)


def dense_tanh(width: int, dropout: float) -> dict[str, Any]:
    """Settings of a classification head of two layers on the first position, as RoBERTa's and MPNet's."""
    hidden = {"hidden_dim": width, "activation": "tanh", "batch_norm": False}
    return {"pooling": "first", **hidden, "input_dropout": dropout, "hidden_dropout": dropout}
