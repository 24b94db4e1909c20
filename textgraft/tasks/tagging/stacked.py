"""A tagger over a stack of frozen models: a fresh network over words, cached vectors, and inference in int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from textgraft.core.errors import UserError
from textgraft.core.identity import identity_of
from textgraft.data.conll import Tagged
from textgraft.data.text_forms import words_in_form
from textgraft.encoders.word_lstm import WordLSTM, WordLSTMConfig
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.nn.cpu.int8 import int8_is_native
from textgraft.tasks.tagging.network import MIN_WORDS, READ_IN, NetworkTagger
from textgraft.tasks.tagging.predictor import TaggedSentence, tag_all
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.visible import VISIBLE
from textgraft.word_embeddings.stack import Stack

KEPT_BYTES = 2_000_000_000
MIN_AGREEMENT = 0.995
"""Share of the tags that must be the same for `auto` to choose int8: more than where int8 is an option of the user."""


@dataclass(frozen=True)
class Network:
    """Shape of the network over a stack (WordLSTMConfig), and the size of the cache of vectors.

    Attributes:
        hidden_dim: Width of the LSTM in each direction.
        num_layers: Number of LSTM layers; with 0, no projection and no characters, the head is a linear classifier.
        projection_dim: Width that vectors are projected to, 0 for none; None: the stack's width, but at most 256.
        character_filters: Number of filters of the character convolution.
        kept_bytes: Bytes of vectors that are cached on disk.

    Raises:
        UserError: `kept_bytes` is below 0.
    """

    hidden_dim: int = 256
    num_layers: int = 1
    projection_dim: int | None = None
    character_filters: int = 30
    kept_bytes: int = KEPT_BYTES

    def __post_init__(self) -> None:
        if self.kept_bytes < 0:
            raise UserError(f"kept_bytes is {self.kept_bytes}.", remedy="Give 0 or more.")

    def identity(self) -> dict[str, Any]:
        """All fields."""
        return identity_of(self)

    def over(self, stack: Stack, seed: int) -> Artifact:
        """A network over `stack` with random weights by `seed`, and the tokenizer for its character encoding."""
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
        """The stack with its models' vectors of all parts cached in `folder`; prints which are too large for that."""
        sentences = words_in_form([s.words for part in parts for s in part.sentences], VISIBLE)
        kept, too_large = stack.kept(sentences, folder, most_bytes=self.kept_bytes, show=show)
        if too_large and show:
            from rich.console import Console

            names, most = ", ".join(too_large), self.kept_bytes / 1e9
            message = (
                f"tag: vectors of {names} are computed anew in every epoch: on disk they would take over {most:g} GB."
            )
            Console(stderr=True).print(message, highlight=False)
        return kept


def validated_in_int8(
    tagger: Artifact, usual: Sequence[TaggedSentence], max_tokens: int, *, show: bool
) -> tuple[dict[str, Any], list[TaggedSentence]]:
    """Choose the precision that `auto` uses for a tagger, int8 or the usual one, by comparing predictions.

    int8 is chosen where the processor has instructions for it, where there are at least MIN_WORDS words (network.py),
    and where MIN_AGREEMENT of the tags are the same. Gold tags are not used.

    Args:
        tagger: The tagger.
        usual: Its predictions in the usual precision.
        max_tokens: Length of a window.
        show: Show progress on stderr.

    Returns:
        The comparison as in run.json, and the predictions in the chosen precision.
    """
    words = sum(len(prediction.tags) for prediction in usual)
    if not int8_is_native() or words < MIN_WORDS:
        return {}, list(usual)
    trusted = replace(tagger, run=tagger.run | {READ_IN: "int8"})
    in_int8, _ = tag_all(NetworkTagger.of(trusted, "auto"), [p.sentence for p in usual], max_tokens, show=show)
    same = sum(a == b for p, q in zip(usual, in_int8, strict=True) for a, b in zip(p.tags, q.tags))
    comparison = {"in_int8": {"words": words, "same": same}}
    if same < MIN_AGREEMENT * words:
        return comparison, list(usual)
    return comparison | {READ_IN: "int8"}, in_int8
