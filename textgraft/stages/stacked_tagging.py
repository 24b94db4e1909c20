"""What a tagger over a stack of frozen models is trained from: a fresh network over words, and their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from textgraft.artifact import Artifact
from textgraft.data.conll import Tagged
from textgraft.encoders.word_lstm import WordLSTM, WordLSTMConfig
from textgraft.errors import UserError
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.model import Model
from textgraft.text.spelling import SpellingTokenizer
from textgraft.words.stack import Stack

KEPT_BYTES = 2_000_000_000


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
        return Artifact(model.eval(), SpellingTokenizer.from_vocabulary(), run=run, stack=stack)

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
