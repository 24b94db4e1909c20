"""The score of a candidate on the held-out texts, as soon as it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from textgraft.core import formatting
from textgraft.metrics.classification import HEADLINE, Interval, bootstrap_interval, document_scores
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.model_selection import predicted
from textgraft.tasks.classification.selection_context import SelectionContext


@dataclass(frozen=True)
class RungResult:
    """The result of one rung of the ladder.

    Attributes:
        candidate: Name of the candidate.
        metric: Name of the headline metric.
        interval: The metric on the held-out texts, with its 95 % interval.
        texts: Number of held-out texts.
        seconds: Seconds from the beginning of the model selection until the result was there.
    """

    candidate: str
    metric: str
    interval: Interval
    texts: int
    seconds: float

    @classmethod
    def of(cls, candidate: Candidate, selection: SelectionContext, seconds: float) -> Self:
        """The result of a candidate by its predictions for held-out texts."""
        labels, done = selection.labels, predicted(candidate.held_out)
        targets, outputs = labels.unscaled(selection.targets[done]), labels.unscaled(candidate.held_out[done])
        interval = bootstrap_interval(document_scores(labels.kind, targets, outputs)[None])
        return cls(candidate.name, HEADLINE[labels.kind], interval, len(done), seconds)

    def __str__(self) -> str:
        """`candidate bert-probe: accuracy 72.9 % [63.0, 81.0] on 100 held-out texts, after 9 s`."""
        score = f"{formatting.metric_name(self.metric)} {formatting.interval(*self.interval, self.metric)}"
        return f"candidate {self.candidate}: {score} on {self.texts:,} held-out texts, after {self.seconds:,.0f} s"

    def record(self) -> dict[str, Any]:
        """The result as in run.json."""
        score = {key: getattr(self.interval, key) for key in ("mean", "low", "high")}
        return {"candidate": self.candidate, self.metric: score, "texts": self.texts, "seconds": self.seconds}
