"""How word vectors are trained: the methods and their settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from textgraft.core.errors import UserError, did_you_mean

Method = Literal["skipgram", "cbow", "fasttext", "glove"]
METHODS: dict[Method, dict[str, Any]] = {
    "skipgram": {"window": 5, "epochs": 5, "rate": 0.025},
    "cbow": {"window": 5, "epochs": 5, "rate": 0.05},
    "fasttext": {"window": 5, "epochs": 5, "rate": 0.05},
    "glove": {"window": 10, "epochs": 25, "rate": 0.05},
}
"""Each method with what holds where nobody says otherwise: its authors' program's own values."""


@dataclass(frozen=True)
class VectorOptions:
    """How vectors are trained; a window, epochs or a rate of 0 are what METHODS says.

    `vocabulary` bounds the words, the most frequent first (None: all); `sample` is word2vec's sub-sampling threshold;
    `hierarchical` puts hierarchical softmax in the place of `negative` samples; `minn`, `maxn` and `buckets` are
    fastText's n-grams. `lowercase` trains on words in lower case and looks them up so. `workers` are threads.
    """

    method: Method = "skipgram"
    dimensions: int = 100
    window: int = 0
    min_count: int = 5
    vocabulary: int | None = None
    epochs: int = 0
    rate: float = 0.0
    negative: int = 5
    hierarchical: bool = False
    sample: float = 1e-3
    minn: int = 3
    maxn: int = 6
    buckets: int = 2_000_000
    lowercase: bool = True
    seed: int = 0
    workers: int = 1

    def filled(self) -> VectorOptions:
        """With the method's own values filled in. Raises UserError for what cannot be."""
        if self.method not in METHODS:
            raise UserError(f"unknown method '{self.method}'.", remedy=did_you_mean(str(self.method), METHODS))
        given = {name: getattr(self, name) for name in ("window", "epochs", "rate")}
        options = replace(self, **{**METHODS[self.method], **{name: value for name, value in given.items() if value}})
        positive = ("dimensions", "window", "min_count", "epochs", "rate", "workers", "buckets", "minn")
        for name in (*positive, *(["vocabulary"] if self.vocabulary is not None else [])):
            if getattr(options, name) <= 0:
                raise UserError(f"{getattr(options, name)} is out of range.", where=name, remedy="Give more than 0.")
        if not options.hierarchical and options.negative < 1:
            remedy = "Give 1 or more, or ask for hierarchical softmax."
            raise UserError(f"{options.negative} is out of range.", where="negative", remedy=remedy)
        if options.maxn < options.minn:
            message = f"n-grams of {options.minn} to {options.maxn} characters are none."
            raise UserError(message, where="maxn", remedy="Give minn or more.")
        return options
