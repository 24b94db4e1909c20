"""A QA model as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from textgraft.data.sequences import budget_batches
from textgraft.data.windows import Window
from textgraft.models.graph import ROWS, OnnxModel

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction


@dataclass(kw_only=True)
class OnnxSpanModel(OnnxModel):
    """Graph from token ids of windows to logits of an answer's first and last token."""

    direction: Direction = "both"

    task = "span"
    shows = ("logits",)

    def window_logits(self, windows: Sequence[Window]) -> list[np.ndarray]:
        """Logits (T, 2) of an answer's first and last token, for each window."""
        window_rows: dict[int, np.ndarray] = {}
        for indices in budget_batches([len(w.ids) for w in windows], tokens=self.tokens_per_batch, rows=ROWS):
            batch = [windows[i] for i in indices]
            (logits,) = self.read([w.ids for w in batch], [w.second for w in batch])
            window_rows |= {i: row[: len(windows[i].ids)] for i, row in zip(indices, logits, strict=True)}
        return [window_rows[i] for i in range(len(windows))]
