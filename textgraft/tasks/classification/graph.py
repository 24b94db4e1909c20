"""A classifier of texts, of pairs, or of options, as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.data.sequences import PairIds, Rows, TokenIds, budget_batches, encoded_texts
from textgraft.data.text_forms import in_form
from textgraft.models import model_folder
from textgraft.models.graph import ROWS, OnnxModel, ids_and_starts


@dataclass(kw_only=True)
class OnnxClassifier(OnnxModel):
    """Graph from token ids to probabilities, or to a standardised value.

    `beginnings`, `prompt` and `lowercase` are a sentence encoder's (data.sequences.encoded_texts).
    """

    both_orders: bool = False
    beginnings: bool = False
    prompt: str = ""
    lowercase: bool = False

    task = "classification"
    output_names = ("answers",)

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        """(N, C) probabilities in the order of `labels.names`, or (N,) standardised values.

        For questions with options (N, largest number of options), 0 where there are fewer.
        """
        assert self.labels is not None
        how: dict[str, Any] = {"beginnings": self.beginnings, "before": self.prompt, "lowercase": self.lowercase}
        sequences = encoded_texts(self.tokenizer, in_form(texts, self.text_form), self.max_tokens, **how)
        options = max((len(s.rows) for s in sequences if isinstance(s, Rows)), default=0)
        outputs = np.zeros((len(sequences), options or self.labels.num_outputs))
        for indices in budget_batches([len(s) for s in sequences], tokens=self.tokens_per_batch, rows=ROWS):
            answers = self.answer([sequences[i] for i in indices])
            if not options and answers.shape[1] != self.labels.num_outputs:
                message = (
                    f"the graph has {answers.shape[1]:,} outputs, and there are {self.labels.num_outputs:,} labels."
                )
                raise UserError(message, where="labels.json", remedy=model_folder.RESTORE)
            outputs[indices, : answers.shape[1]] = answers
        return self.labels.target.from_columns(outputs)

    def answer(self, sequences: Sequence[TokenIds]) -> NDArray[np.float32]:
        """(B, C) outputs of the graph for token ids. Raises UserError for single texts where it reads pairs."""
        if self.both_orders:
            pairs = [s.in_both_orders() for s in sequences if isinstance(s, PairIds)]
            if len(pairs) < len(sequences):
                raise UserError("this graph reads pairs in both orders, not single texts.", remedy="Give it pairs.")
            sequences = pairs
        bundles = [s.rows if isinstance(s, Rows) else (s,) for s in sequences]
        rows = [row for bundle in bundles for row in bundle]
        return self.run_graph(*ids_and_starts(rows), options=_places([len(bundle) for bundle in bundles]))[0]


def _places(sizes: Sequence[int]) -> NDArray[np.int64]:
    """(number of questions, most options) indices of the rows with the options of each question, -1 for padding."""
    places = np.arange(max(sizes))
    first = np.cumsum([0, *sizes[:-1]])[:, None]
    return np.where(places < np.array(sizes)[:, None], first + places, -1)
