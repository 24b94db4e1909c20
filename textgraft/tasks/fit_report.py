"""Report of a fitted estimator: its score with an interval, the candidates with their weights, the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from textgraft.core import formatting
from textgraft.core.brief import Brief, html_table


@dataclass(frozen=True)
class CandidateReport:
    """Evidence for one candidate.

    Attributes:
        score: The headline metric on texts that it was not trained on; None where it was not scored.
        weight: Its weight in the ensemble, from 0 to 1.
        reason: The reason why it was left out or rejected; empty for a candidate that was scored.
        method: The `method` that fits it alone: "fine-tuned" for the candidate "gpt", "linear-probe" for "gpt-probe";
            empty for one of a tagger, and for co-training with an encoder's vectors, which is in the ensemble only.
    """

    score: float | None
    weight: float
    reason: str = ""
    method: str = ""


@dataclass(frozen=True, repr=False)
class FitReport(Brief):
    """Evidence for a fitted estimator; shown as a table by `print`, and as HTML in a notebook.

    Attributes:
        method: The estimator's `method`.
        chosen: A sentence on the choice: what was chosen, by which evidence.
        verdict: A sentence on the score, beside the best other candidate where there is one.
        metric: Name of the headline metric, such as "accuracy".
        score: The headline metric on texts that were not trained on.
        interval: Its 95 % confidence interval, (low, high).
        evaluated_on: The evaluation split: "folds" (cross-validation), "held out", "valid" or "test".
        texts: Number of texts, or sentences, in the evaluation split.
        seconds: Time of all trainings.
        candidates: By name, the evidence for each candidate.
    """

    method: str
    chosen: str
    verdict: str
    metric: str
    score: float
    interval: tuple[float, float]
    evaluated_on: str
    texts: int
    seconds: float
    candidates: Mapping[str, CandidateReport]

    @classmethod
    def of(
        cls, run: Mapping[str, Any], first: str, method: str, chosen: str, *, left_out: Mapping[str, str] | None = None
    ) -> Self:
        """The report of a run.json with results.

        Args:
            run: The content of run.json.
            first: Name of the saved model in the results.
            method: The estimator's `method`.
            chosen: A sentence on the choice, for a run without one.
            left_out: Further candidates that were left out, with the reasons.
        """
        results = run["results"]
        metric, saved = results["metric"], results["methods"][first]
        value = saved.get(metric) or dict.fromkeys(("mean", "low", "high"), float("nan"))
        return cls(
            method=method,
            chosen=results.get("chosen") or chosen,
            verdict=results["verdict"],
            metric=metric,
            score=value["mean"],
            interval=(value["low"], value["high"]),
            evaluated_on=run.get("evaluation_split", ""),
            texts=results["test_n"],
            seconds=60 * saved["minutes"],
            candidates=_candidates(run, first, left_out or {}),
        )

    def __str__(self) -> str:
        return "\n".join([*self._sentences(), "", formatting.aligned(self._rows(), left={0, 3})])

    def _repr_html_(self) -> str:
        return html_table(self._rows(), *self._sentences())

    def _sentences(self) -> list[str]:
        how = "out of fold" if self.evaluated_on == "folds" else self.evaluated_on
        score = formatting.interval(self.score, *self.interval, self.metric)
        head = f"{self.method}: {formatting.metric_name(self.metric)} {score}, {how}, n = {self.texts:,}"
        return [f"{head}; {self.seconds:,.1f} s of training.", self.chosen]

    def _rows(self) -> Sequence[Sequence[str]]:
        rows = [["candidate", formatting.metric_name(self.metric), "weight", "reason"]]
        for name, candidate in self.candidates.items():
            weight = f"{100 * candidate.weight:.0f} %" if candidate.score is not None else formatting.NOT_KNOWN
            rows.append([name, formatting.score(candidate.score, self.metric), weight, candidate.reason])
        return rows if any(candidate.reason for candidate in self.candidates.values()) else [row[:3] for row in rows]


def _candidates(run: Mapping[str, Any], first: str, left_out: Mapping[str, str]) -> dict[str, CandidateReport]:
    """Evidence by name: first the members of the ensemble, then other candidates, then those that were left out."""
    results, choice = run["results"], run.get("ensemble")
    if choice:
        metric = results["metric"]
        scored = [CandidateReport(entry[metric], entry["weight"]) for entry in choice["candidates"].values()]
        by_name = dict(zip(choice["candidates"], scored, strict=True))
        by_name = dict(sorted(by_name.items(), key=lambda item: -item[1].weight))
        reasons = {**left_out, **choice["left_out"]}
        return by_name | {n: CandidateReport(None, 0.0, reason) for n, reason in reasons.items() if n not in by_name}
    parts = [name for name in first.split(" + ") if name in results["methods"]] or [first]
    names = [*parts, *(name for name in results["methods"] if name not in (*parts, first))]
    return {name: CandidateReport(_mean(results, name), (name in parts) / len(parts)) for name in names} | {
        name: CandidateReport(None, 0.0, reason) for name, reason in left_out.items() if name not in names
    }


def _mean(results: Mapping[str, Any], name: str) -> float | None:
    value = results["methods"][name].get(results["metric"])
    return None if value is None else float(value["mean"])
