"""Learning curves of methods: the best method, and the labels that each needs for another's score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from textgraft.core import formatting
from textgraft.metrics.paired_differences import difference_text, differences, is_robust, significant
from textgraft.tasks.classification.evaluation import Comparison

Points = Sequence[tuple[int, float]]
"""A method's learning curve: (labels, score), labels ascending."""


def winner(comparison: Comparison) -> dict[str, Any]:
    """The best method at one number of labels, with tests against the others.

    Returns:
        A dict: `leader` has the best mean. `name` is the leader if it differs reliably from every other method, else
            None: over the test texts (Holm's correction over the others) and, where there is more than one, over the
            training samples. `tests` compares the leader with each other method (textgraft.metrics.paired_differences).
            The leader is chosen by the same texts that it is tested on, which favours it.
    """
    sign = -1 if comparison.labels.lower_is_better else 1
    scores = {outcome.name: comparison.scores(outcome) for outcome in comparison.outcomes}
    leader = max(scores, key=lambda name: sign * scores[name].mean())
    tests = differences({name: (scores[leader], table) for name, table in scores.items() if name != leader})
    apart = bool(tests) and all(is_robust(test) for test in tests.values())
    return {"name": leader if apart else None, "leader": leader, "tests": tests}


def budget_results(comparison: Comparison, *, labels: int, model_mb: Mapping[str, float]) -> dict[str, Any]:
    """One entry of "budgets": Comparison.results, model sizes in MB, the winner and a sentence about it."""
    result = comparison.results(labels=labels, seeds=len(comparison.outcomes[0].outputs))
    for name, row in result["methods"].items():
        row["model_mb"] = round(model_mb[name], 3)
    result["winner"] = winner(comparison)
    result["verdict"] = budget_verdict(comparison, result["winner"], labels)
    return result


def budget_verdict(comparison: Comparison, best: Mapping[str, Any], labels: int) -> str:
    """A sentence about the best method at one number of labels, its rivals and the difference."""
    metric, outcomes = comparison.headline, {outcome.name: outcome for outcome in comparison.outcomes}

    def shown(name: str) -> str:
        return f"{name} ({formatting.interval(*comparison.interval(outcomes[name]), metric)})"

    leader, tests = best["leader"], best["tests"]
    start = f"{labels:,} labels: "
    if not tests:
        return f"{start}{shown(leader)}; no other method was run."
    if best["name"]:
        closest = min(tests, key=lambda name: abs(tests[name]["difference"]))
        gap = formatting.difference(abs(tests[closest]["difference"]), metric)
        rivals = f"the closest, {closest}, by {gap}" if len(tests) > 1 else f"{closest} by {gap}"
        p = formatting.p_value(max(test["p_holm"] for test in tests.values()))
        rivals_text = "every other method" if len(tests) > 1 else "the other method"
        return f"{start}{shown(leader)} is better than {rivals_text}, {rivals} ({p})."
    tied = [name for name, test in tests.items() if not significant(test)]
    if tied:
        p = formatting.p_value(min(tests[name]["p_holm"] for name in tied))
        first = ", ".join([shown(leader), *tied[:-1]])
        return f"{start}no significant difference between {first} and {tied[-1]} ({p})."
    doubtful = [name for name, test in tests.items() if not is_robust(test)]
    gaps = [f"{name} ({difference_text(tests[name], metric)})" for name in doubtful]
    return f"{start}{shown(leader)} is ahead, but not reliably over training samples, compared with {', '.join(gaps)}."


def labels_needed(curve: Points, score: float, *, lower_is_better: bool = False) -> tuple[str, float | None]:
    """Number of labels that a method needs for `score`: ("about", n), ("at most", n) or ("not reached", None).

    It is the first crossing of the curve, interpolated linearly over the logarithm of the labels. "at most" means that
    the curve starts at the score or above it.

    >>> labels_needed([(100, 0.5), (400, 0.7)], 0.5)
    ('at most', 100.0)
    """
    sign = -1 if lower_is_better else 1
    points = [(labels, sign * (value - score)) for labels, value in curve]
    if points and points[0][1] >= 0:
        return "at most", float(points[0][0])
    for (few, below), (many, above) in pairwise(points):
        if above >= 0:
            share = -below / (above - below)
            return "about", math.exp(math.log(few) + share * (math.log(many) - math.log(few)))
    return "not reached", None


def label_efficiency(curves: Mapping[str, Points], *, lower_is_better: bool = False) -> list[dict[str, Any]]:
    """Labels that each method needs for another's score, for every pair of methods and every number of labels.

    Returns:
        Entries: `method` needs `labels` for the `score` that `reaches` has with `at` labels; `how` is "about", "at
            most", or, with None for `labels`, "not reached" (with any number of labels in the comparison).
    """
    entries = []
    for goal, points in curves.items():
        for at, score in points:
            for method, curve in curves.items():
                if method != goal:
                    how, needed = labels_needed(curve, score, lower_is_better=lower_is_better)
                    entries.append(
                        {
                            "method": method,
                            "reaches": goal,
                            "at": at,
                            "score": score,
                            "how": how,
                            "labels": None if needed is None else round(needed),
                        }
                    )
    return entries


def efficiency_verdicts(results: Mapping[str, Any]) -> list[str]:
    """A sentence for each number of labels but the largest at which one method is better than all others."""
    sentences = []
    most = max((budget["labels"] for budget in results["budgets"]), default=0)
    for budget in results["budgets"]:
        name, labels = budget["winner"]["name"], budget["labels"]
        if not name or labels == most:
            continue
        entries = [e for e in results["label_efficiency"] if (e["reaches"], e["at"]) == (name, labels)]
        needs = [f"{e['method']} {e['how']} {e['labels']:,}" for e in entries if e["how"] != "not reached"]
        never = [e["method"] for e in entries if e["how"] == "not reached"]
        parts = ["; ".join(needs)] if needs else []
        if never:
            parts.append(f"not reached with {most:,} labels by {', '.join(never)}")
        score = formatting.score(budget["methods"][name][results["metric"]]["mean"], results["metric"])
        sentences.append(f"Labels needed for the score of {name} with {labels:,} ({score}): {'; '.join(parts)}.")
    return sentences
