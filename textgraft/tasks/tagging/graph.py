"""A tagger of words as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from textgraft.data.sequences import budget_batches
from textgraft.data.tags import Scheme, SubwordPooling, TagPredictions
from textgraft.data.words import Coverage, WordWindow, word_windows
from textgraft.models.graph import ROWS, OnnxModel

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction


@dataclass(kw_only=True)
class OnnxTagger(OnnxModel):
    """Token ids to the best tags of whole sentences, and each one's probability; a long one lies in several windows.

    `tags` are in the order of the outputs, of a `scheme`; `subword_pooling` is which of a word's pieces speaks for it.
    """

    tags: list[str] = field(default_factory=list)
    scheme: Scheme = "plain"
    subword_pooling: SubwordPooling = "first"
    direction: Direction = "both"

    task = "tagging"
    output_names = ("tags", "probabilities")

    @property
    def config(self) -> OnnxTagger:
        """Where a network's tags are said."""
        return self

    def reading(self, max_tokens: int) -> Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]:
        """What tags one part of a file after the other, as tagging wants it; windows are those of the original."""

        def tagged(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            windows, coverage = word_windows(self.tokenizer, sentences, self.max_tokens, direction=self.direction)
            found = self.decoded(windows, [len(words) for words in sentences])
            return [([self.tags[i] for i in best], sure.tolist()) for best, sure in found], coverage

        return tagged

    def decoded(self, windows: Sequence[WordWindow], lengths: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence, of so many words, the best tags' numbers (W,) and their probabilities (W,)."""
        inside: list[list[WordWindow]] = [[] for _ in lengths]
        for window in windows:
            inside[window.sentence].append(window)
        sizes = [len(own) * max(len(w.ids) for w in own) for own in inside]
        found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for indices in budget_batches(sizes, tokens=self.tokens_per_batch, rows=ROWS):
            rows = [(place, window) for place, i in enumerate(indices) for window in inside[i]]
            width = max(len(window.ids) for _, window in rows)
            words = np.full((len(indices), max(lengths[i] for i in indices)), -1)
            for row, (place, window) in enumerate(rows):
                words[place, window.start : window.start + len(window.spans)] = row * width + window.positions(
                    self.subword_pooling
                )
            tags, sure = self.run_graph([window.ids for _, window in rows], words=words)
            for place, i in enumerate(indices):
                found[i] = tags[place, : lengths[i]], sure[place, : lengths[i]]
        return [found[i] for i in range(len(lengths))]
