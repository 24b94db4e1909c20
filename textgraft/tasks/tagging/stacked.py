"""A tagger over a stack of frozen models: a fresh network over words, their vectors, and how fast it may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from textgraft.core.errors import UserError
from textgraft.data.conll import Tagged
from textgraft.encoders.word_lstm import WordLSTM, WordLSTMConfig
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.nn.cpu.int8 import int8_is_native
from textgraft.tasks.tagging.network import READ_IN, WORDS, NetworkTagger
from textgraft.tasks.tagging.predictor import Reply, tag_all
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.word_embeddings.stack import Stack

KEPT_BYTES = 2_000_000_000
SAME = 0.995
"""So many of the tags must stay where int8 is taken unasked: fewer may change than where it was asked for."""


@dataclass(frozen=True)
class Network:
    """The shape of the network over a stack (WordLSTMConfig), and how many bytes of vectors are kept on disk.

    A `projection_dim` of None is the stack's own width, but no more than 256. Raises UserError for sizes below 0.
    """

    hidden_dim: int = 256
    num_layers: int = 1
    projection_dim: int | None = None
    character_filters: int = 30
    kept_bytes: int = KEPT_BYTES

    def __post_init__(self) -> None:
        if self.kept_bytes < 0:
            raise UserError(f"kept_bytes is {self.kept_bytes}.", remedy="Give 0 or more.")

    def over(self, stack: Stack, seed: int) -> Artifact:
        """A fresh network that reads `stack`, drawn for `seed`, with the tokenizer that spells its words."""
        projected = min(stack.width, 256) if self.projection_dim is None else self.projection_dim
        config = WordLSTMConfig(
            vectors_dim=stack.width,
            projection_dim=projected,
            character_filters=self.character_filters,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = WordLSTM(config)
        model = Model(encoder, FeaturesHead(FeaturesConfig(encoder.output_dim)))
        run = {"name": " + ".join(stack.names), "stage": "stack"}
        return Artifact(model.eval(), CharacterEncodingTokenizer.from_vocabulary(), run=run, stack=stack)

    def kept(self, stack: Stack, parts: Sequence[Tagged], folder: Path, *, show: bool) -> Stack:
        """The stack with its models' vectors of all parts in files in `folder`; says which are too large for that."""
        sentences = [s.words for part in parts for s in part.sentences]
        kept, too_large = stack.kept(sentences, folder, most_bytes=self.kept_bytes, show=show)
        if too_large and show:
            from rich.console import Console

            names, most = ", ".join(too_large), self.kept_bytes / 1e9
            told = (
                f"tag: vectors of {names} are computed anew in every epoch: on disk they would take over {most:g} GB."
            )
            Console(stderr=True).print(told, highlight=False)
        return kept


def faster(
    tagger: Artifact, usual: Sequence[Reply], max_tokens: int, *, show: bool
) -> tuple[dict[str, Any], list[Reply]]:
    """The replies by which `auto` is to answer for a tagger, and what its run says of that.

    They are those of int8 where the processor has it, where `usual` are of as many words as int8 is believed by
    (tagging_network.WORDS), and where enough of their tags stay. Gold tags have no part in it.
    """
    words = sum(len(reply.tags) for reply in usual)
    if not int8_is_native() or words < WORDS:
        return {}, list(usual)
    trusting = replace(tagger, run=tagger.run | {READ_IN: "int8"})
    found, _ = tag_all(NetworkTagger.of(trusting, "auto"), [r.sentence for r in usual], max_tokens, show=show)
    same = sum(a == b for one, other in zip(usual, found, strict=True) for a, b in zip(one.tags, other.tags))
    compared = {"in_int8": {"words": words, "same": same}}
    if same < SAME * words:
        return compared, list(usual)
    return compared | {READ_IN: "int8"}, found
