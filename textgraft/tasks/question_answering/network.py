"""What a reader (answering.py) asks of a network: logits of an answer's first and last token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from textgraft.core.errors import UserError
from textgraft.data.sequences import budget_batches
from textgraft.data.streams.windows import window_batches
from textgraft.data.windows import Window
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.inference import tokens_per_batch
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in


class NetworkSpanModel:
    """A network that answers questions, with its tokenizer. Raises UserError for a model of another task."""

    def __init__(self, model: str | Path | Artifact, precision: str = "auto") -> None:
        self.artifact = model if isinstance(model, Artifact) else loading.load_network(model)
        if self.artifact.model.describe()["head"]["name"] != "span":
            where = "" if isinstance(model, Artifact) else str(model)
            remedy = "Make one with textgraft qa finetune."
            raise UserError("this model does not answer questions.", where=where, remedy=remedy)
        encoder = self.artifact.model.encoder
        self.tokenizer, self.run, self.precision = self.artifact.tokenizer, self.artifact.run, precision
        self.direction, self.max_tokens = encoder.direction, encoder.max_length

    def window_logits(self, windows: Sequence[Window]) -> list[np.ndarray]:
        """For each window its logits (T, 2) of beginning and ending, float32."""
        return window_logits(self.artifact.model, windows, self.tokenizer.pad_id, self.precision)


@torch.no_grad()
def window_logits(model: Model, windows: Sequence[Window], pad_id: int, precision: str = "auto") -> list[np.ndarray]:
    """For each window its logits (T, 2) of beginning and ending, float32."""
    was_training = model.training
    model.eval()
    found: dict[int, np.ndarray] = {}
    batches = budget_batches([len(w.ids) for w in windows], tokens=tokens_per_batch(model), rows=512)
    for indices, batch in zip(batches, window_batches(windows, batches, pad_id), strict=True):
        with computing_in(precision, model.device):
            logits = model(batch).float().cpu()
        for row, index in enumerate(indices):
            found[index] = logits[row, : len(windows[index].ids)].numpy()
    model.train(was_training)
    return [found[i] for i in range(len(windows))]
