"""A frozen encoder as an ONNX graph, from token ids to the vectors of whole texts, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.data.sequences import Rows, TokenIds, budget_batches, encoded_texts
from textgraft.data.text_forms import in_form
from textgraft.models.graph import ROWS, OnnxModel, ids_and_starts
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import FORMS

SETTINGS = {
    "max_tokens": int,
    "tokens_per_batch": int,
    "width": int,
    "beginnings": bool,
    "prompt": str,
    "lowercase": bool,
    "text_form": str,
}
"""The types of what is saved beside graph and tokenizer."""


@dataclass(kw_only=True)
class EncoderGraph(OnnxModel):
    """Graph from token ids to pooled vectors (B, D).

    Attributes:
        width: D.
        beginnings, prompt, lowercase: How texts are prepared (data.sequences.encoded_texts).
    """

    width: int
    beginnings: bool = False
    prompt: str = ""
    lowercase: bool = False

    task = "features"
    output_names = ("vectors",)

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = "last",
        prompt: str | None = None,
        precision: str = "auto",
    ) -> NDArray[np.float32]:
        """Vectors (N, D) of N texts or pairs; the graph has the settings that the other arguments are for."""
        how: dict[str, Any] = {"beginnings": self.beginnings, "before": self.prompt, "lowercase": self.lowercase}
        texts = in_form(texts, self.text_form)
        sequences = encoded_texts(self.tokenizer, texts, self.max_tokens, **how) if texts else []
        vectors = np.zeros((len(sequences), self.width), np.float32)
        for indices in budget_batches([len(s) for s in sequences], tokens=self.tokens_per_batch, rows=ROWS):
            vectors[indices] = self.vectors([sequences[i] for i in indices])
        return vectors

    def vectors(self, sequences: Sequence[TokenIds]) -> NDArray[np.float32]:
        """Vectors (B, D) of token ids."""
        return self.run_graph(*ids_and_starts([row for row in sequences if not isinstance(row, Rows)]))[0]

    def settings(self) -> dict[str, Any]:
        """What `from_settings` takes, as JSON values."""
        return {name: getattr(self, name) for name in SETTINGS}

    @classmethod
    def from_settings(cls, graph: bytes, tokenizer: str, settings: Mapping[str, Any], run: dict[str, Any]) -> Self:
        """The inverse of `settings`.

        Raises:
            ValueError: A setting is missing, unknown or of another type.
            UserError: The tokenizer is damaged, or onnxruntime is not installed.
        """
        wrong = [name for name, kind in SETTINGS.items() if not isinstance(settings.get(name), kind)]
        if wrong or settings.keys() - SETTINGS.keys() or settings["text_form"] not in FORMS:
            raise ValueError(f"not the settings of a graph: {wrong or sorted(settings)}")
        return cls(graph=graph, tokenizer=Tokenizer.from_json(tokenizer), run=run, **settings)
