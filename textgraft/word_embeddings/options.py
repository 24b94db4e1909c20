"""Methods of training word vectors, and their settings."""

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
"""Methods with their default settings, those of the authors' programs."""


@dataclass(frozen=True)
class VectorOptions:
    """Training settings of word vectors.

    Args:
        method: Name in METHODS.
        dimensions: D.
        window: Size of the context window (0: as in METHODS, like `epochs` and `rate`).
        min_count: Minimum count of a word.
        vocabulary: Maximum number of words, the most frequent first (None: all).
        epochs: Number of epochs.
        rate: Learning rate.
        negative: Number of negative samples.
        hierarchical: Use hierarchical softmax in place of negative samples.
        sample: word2vec's sub-sampling threshold.
        minn: Minimum length of fastText's n-grams.
        maxn: Maximum length of fastText's n-grams.
        buckets: Number of hash buckets of fastText's n-grams.
        lowercase: Train on, and look up, lower-cased words.
        seed: Seed.
        workers: Number of threads.
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
        """The options with the method's defaults filled in. Raises UserError for impossible values."""
        if self.method not in METHODS:
            raise UserError(f"unknown method '{self.method}'.", remedy=did_you_mean(str(self.method), METHODS))
        explicit = {name: getattr(self, name) for name in ("window", "epochs", "rate")}
        options = replace(
            self, **{**METHODS[self.method], **{name: value for name, value in explicit.items() if value}}
        )
        positive = ("dimensions", "window", "min_count", "epochs", "rate", "workers", "buckets", "minn")
        for name in (*positive, *(["vocabulary"] if self.vocabulary is not None else [])):
            if getattr(options, name) <= 0:
                raise UserError(f"{getattr(options, name)} is out of range.", where=name, remedy="Give more than 0.")
        if not options.hierarchical and options.negative < 1:
            remedy = "Give 1 or more, or use hierarchical softmax."
            raise UserError(f"{options.negative} is out of range.", where="negative", remedy=remedy)
        if options.maxn < options.minn:
            message = f"there are no n-grams of {options.minn} to {options.maxn} characters."
            raise UserError(message, where="maxn", remedy="Give minn or more.")
        return options
