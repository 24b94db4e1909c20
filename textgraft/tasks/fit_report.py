"""Report of a fitted estimator: its score with an interval, the candidates with their weights, the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

from textgraft.core import formatting


@dataclass(frozen=True)
class CandidateReport:
    """Evidence for one candidate.

    Attributes:
        score: The headline metric on texts that it was not trained on; None where it was not scored.
        weight: Its share of the answer, from 0 to 1.
        reason: The reason why it was left out or rejected; empty for a candidate that was scored.
    """

    score: float | None
    weight: float
    reason: str = ""


@dataclass(frozen=True)
class FitReport:
    """Evidence for a fitted estimator; shown as a table by `print`, and as HTML in a notebook.

    Attributes:
        method: The method that was asked for.
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
        """The report of a run.json with results, of which `first` is the name of what was saved.

        `chosen` is the sentence where the run has none, `left_out` the reasons that it does not mention.
        """
        results = run["results"]
        metric, own = results["metric"], results["methods"][first]
        value = own.get(metric) or dict.fromkeys(("mean", "low", "high"), float("nan"))
        return cls(
            method=method,
            chosen=results.get("chosen") or chosen,
            verdict=results["verdict"],
            metric=metric,
            score=value["mean"],
            interval=(value["low"], value["high"]),
            evaluated_on=run.get("evaluation_split", ""),
            texts=results["test_n"],
            seconds=60 * own["minutes"],
            candidates=_candidates(run, first, left_out or {}),
        )

    def __str__(self) -> str:
        return "\n".join([*self._sentences(), "", formatting.aligned(self._rows(), left={0, 3})])

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        told = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences())
        return f"{told}<table>{''.join(lines)}</table>"

    def _sentences(self) -> list[str]:
        how = "out of fold" if self.evaluated_on == "folds" else self.evaluated_on
        score = formatting.interval(self.score, *self.interval, self.metric)
        head = f"{self.method}: {formatting.metric_name(self.metric)} {score}, {how}, n = {self.texts:,}"
        return [f"{head}; {self.seconds:,.1f} s of training.", self.chosen]

    def _rows(self) -> Sequence[Sequence[str]]:
        rows = [["candidate", formatting.metric_name(self.metric), "weight", "reason"]]
        for name, one in self.candidates.items():
            weight = f"{100 * one.weight:.0f} %" if one.score is not None else formatting.NOT_KNOWN
            rows.append([name, formatting.score(one.score, self.metric), weight, one.reason])
        return rows if any(one.reason for one in self.candidates.values()) else [row[:3] for row in rows]


def _candidates(run: Mapping[str, Any], first: str, left_out: Mapping[str, str]) -> dict[str, CandidateReport]:
    """By name: first those of which the answer is made, then the others, then those that were left out."""
    results, choice = run["results"], run.get("ensemble")
    if choice:
        metric = results["metric"]
        scored = [CandidateReport(one[metric], one["weight"]) for one in choice["candidates"].values()]
        found = dict(zip(choice["candidates"], scored, strict=True))
        found = dict(sorted(found.items(), key=lambda item: -item[1].weight))
        reasons = {**left_out, **choice["left_out"]}
        return found | {name: CandidateReport(None, 0.0, why) for name, why in reasons.items() if name not in found}
    parts = [name for name in first.split(" + ") if name in results["methods"]] or [first]
    names = [*parts, *(name for name in results["methods"] if name not in (*parts, first))]
    return {name: CandidateReport(_mean(results, name), (name in parts) / len(parts)) for name in names} | {
        name: CandidateReport(None, 0.0, why) for name, why in left_out.items() if name not in names
    }


def _mean(results: Mapping[str, Any], name: str) -> float | None:
    value = results["methods"][name].get(results["metric"])
    return None if value is None else float(value["mean"])
