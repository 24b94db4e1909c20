"""A tagger of words as an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.sequences import budget_batches
from textgraft.data.tags import Scheme, SubwordPooling, TagPredictions
from textgraft.data.text_forms import words_in_form
from textgraft.data.words import Coverage, WordWindow, word_windows
from textgraft.models.graph import ROWS, OnnxModel
from textgraft.models.model_folder import RESTORE

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction


@dataclass(kw_only=True)
class OnnxTagger(OnnxModel):
    """Graph from token ids to the best tags of whole sentences, each with its probability.

    A long sentence is split into several windows.

    Attributes:
        tags: The tags, in the order of the outputs.
        scheme: Scheme of the tags.
        subword_pooling: The subword that represents a word, "first" or "last".
        direction: The direction in which the encoder attends.
    """

    tags: list[str] = field(default_factory=list)
    scheme: Scheme = "plain"
    subword_pooling: SubwordPooling = "first"
    direction: Direction = "both"

    task = "tagging"
    output_names = ("tags", "probabilities")

    @property
    def config(self) -> OnnxTagger:
        """The tagset (predictor.Tagset), which is the graph itself."""
        return self

    def batch_tagger(
        self, max_tokens: int
    ) -> Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]:
        """A function that tags a batch of sentences; `max_tokens` is not used, windows are those of the network."""

        def tag(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            sentences = words_in_form(sentences, self.text_form)
            windows, coverage = word_windows(self.tokenizer, sentences, self.max_tokens, direction=self.direction)
            decoded = self.decoded(windows, [len(words) for words in sentences])
            if max((int(best.max()) for best, _ in decoded if len(best)), default=0) >= len(self.tags):
                message = f"the graph has more outputs than the {len(self.tags):,} tags of its config."
                raise UserError(message, where="config.json", remedy=RESTORE)
            return [([self.tags[i] for i in best], probability.tolist()) for best, probability in decoded], coverage

        return tag

    def decoded(self, windows: Sequence[WordWindow], lengths: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The indices of the best tags (W,) and their probabilities (W,), for each sentence.

        Args:
            windows: The windows of all sentences.
            lengths: Number of words of each sentence.
        """
        windows_of: list[list[WordWindow]] = [[] for _ in lengths]
        for window in windows:
            windows_of[window.sentence].append(window)
        sizes = [len(group) * max(len(w.ids) for w in group) for group in windows_of]
        decoded: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for indices in budget_batches(sizes, tokens=self.tokens_per_batch, rows=ROWS):
            rows = [(place, window) for place, i in enumerate(indices) for window in windows_of[i]]
            width = max(len(window.ids) for _, window in rows)
            words = np.full((len(indices), max(lengths[i] for i in indices)), -1)
            for row, (place, window) in enumerate(rows):
                words[place, window.start : window.start + len(window.spans)] = row * width + window.positions(
                    self.subword_pooling
                )
            tags, probabilities = self.run_graph([window.ids for _, window in rows], words=words)
            for place, i in enumerate(indices):
                decoded[i] = tags[place, : lengths[i]], probabilities[place, : lengths[i]]
        return [decoded[i] for i in range(len(lengths))]
