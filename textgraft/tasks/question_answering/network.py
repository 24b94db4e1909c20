"""Logits of an answer's first and last token, computed by a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from textgraft.data.sequences import budget_batches
from textgraft.data.streams.windows import window_batches
from textgraft.data.windows import Window
from textgraft.models.artifact import Artifact
from textgraft.models.inference import tokens_per_batch
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in


class NetworkSpanModel:
    """A network for extractive question answering, with its tokenizer; a SpanModel (predictor.py)."""

    def __init__(self, artifact: Artifact, precision: str = "auto") -> None:
        self.artifact = artifact
        encoder = self.artifact.model.encoder
        self.tokenizer, self.run, self.precision = self.artifact.tokenizer, self.artifact.run, precision
        self.direction, self.max_tokens = encoder.direction, encoder.max_length
        self.text_form = self.artifact.text_form

    def window_logits(self, windows: Sequence[Window]) -> list[np.ndarray]:
        """Logits (T, 2) of an answer's first and last token, float32, for each window."""
        return window_logits(self.artifact.model, windows, self.tokenizer.pad_id, self.precision)


@torch.no_grad()
def window_logits(model: Model, windows: Sequence[Window], pad_id: int, precision: str = "auto") -> list[np.ndarray]:
    """Logits (T, 2) of an answer's first and last token, float32, for each window; the model's mode is kept."""
    was_training = model.training
    model.eval()
    window_rows: dict[int, np.ndarray] = {}
    batches = budget_batches([len(w.ids) for w in windows], tokens=tokens_per_batch(model), rows=512)
    for indices, batch in zip(batches, window_batches(windows, batches, pad_id), strict=True):
        with computing_in(precision, model.device):
            logits = model(batch).float().cpu()
        for row, index in enumerate(indices):
            window_rows[index] = logits[row, : len(windows[index].ids)].numpy()
    model.train(was_training)
    return [window_rows[i] for i in range(len(windows))]
