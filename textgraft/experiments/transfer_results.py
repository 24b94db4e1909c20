"""What transfer experiments say: scores over n with tests, and the three benefits of transfer; all of it plain JSON.

Networks and n as in Yosinski et al. 2014 (arXiv:1411.1792); benefits as in Torrey & Shavlik 2009 ("Transfer learning",
figure 2), who draw them: the numbers that stand for them here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.metrics.classification import difference_interval, paired_test, summarise_seeds
from textgraft.metrics.paired_differences import differences, is_robust, significance_text, significant

ARMS = ("AnB", "AnB+", "BnB", "BnB+")
FROZEN = ("AnB", "BnB")
BENEFITS = ("start", "slope", "asymptote")
LOWER_IS_BETTER = "mae"
"""The one of metrics.HEADLINE that is an error."""


class Kind(NamedTuple):
    """One kind of network: its arm, and how many layer groups it has copied."""

    arm: str
    n: int

    def __str__(self) -> str:
        return f"{self.arm}, n = {self.n}" if self.arm in ARMS else self.arm


B, FRESH = Kind("B", 0), Kind("n = 0", 0)


@dataclass(frozen=True)
class Curves:
    """(seeds, M, N) the headline metric of each of N test texts at M measurements, and when those were, in epochs."""

    epochs: Sequence[float]
    pretrained: NDArray[np.float64]
    scratch: NDArray[np.float64]


@dataclass(frozen=True)
class Networks:
    """(seeds, N) the headline metric of each test text after training, for every kind of network; the curves of two."""

    scores: Mapping[Kind, NDArray[np.float64]]
    curves: Curves


def transfer_results(
    networks: Networks, baseline: NDArray[np.float64], *, groups: Sequence[str], metric: str
) -> dict[str, Any]:
    """The body of results.json. `baseline` (1, N) is a linear classifier's, `groups` the layer groups' names.

    "cells" has each arm at each n above 0, with its differences to n = 0 and to B as
    textgraft.metrics.paired_differences has them; "p_holm" holds for all tests against the same rival together.
    """
    scores = networks.scores
    seeds, texts = scores[B].shape
    cells = {kind: table for kind, table in scores.items() if kind.arm in ARMS}
    fresh = differences({kind: (table, scores[FRESH]) for kind, table in cells.items()})
    own = differences({kind: (table, scores[B]) for kind, table in {FRESH: scores[FRESH], **cells}.items()})
    results: dict[str, Any] = {
        "groups": list(groups),
        "metric": metric,
        "test_n": texts,
        "seeds": seeds,
        "baseline": _summary(baseline),
        "b": _summary(scores[B]),
        "fresh": _summary(scores[FRESH]) | {"against_b": own[FRESH]},
        "cells": [
            {**kind._asdict(), **_summary(table), "against_fresh": fresh[kind], "against_b": own[kind]}
            for kind, table in sorted(cells.items(), key=lambda item: (ARMS.index(item[0].arm), item[0].n))
        ],
        "curves": _curves(networks.curves),
        "benefits": benefits(networks.curves, lower_is_better=metric == LOWER_IS_BETTER),
    }
    return {"verdict": verdict(results), **results}


def _summary(table: NDArray[np.float64]) -> dict[str, Any]:
    """Mean with its interval, the spread between seeds (None for one), and each seed's mean."""
    summary = summarise_seeds(table)
    return {**summary.interval._asdict(), "spread": summary.spread, "per_seed": table.mean(axis=1).tolist()}


def _curves(curves: Curves) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [{"epoch": epoch, **_summary(table[:, m])} for m, epoch in enumerate(curves.epochs)]
        for name, table in (("pretrained", curves.pretrained), ("scratch", curves.scratch))
    }


def benefit_weights(epochs: Sequence[float]) -> dict[str, NDArray[np.float64]]:
    """What each benefit makes of a learning curve measured at M `epochs`: weights (M,), to be summed over.

    "start" is the first measurement (before it, under a new head, no network knows a label); "slope" the least-squares
    slope, an epoch, over the first half of the measurements, at least two of them (left out where there is one);
    "asymptote" the mean of the last quarter, at least one.
    """
    x = np.asarray(epochs, dtype=np.float64)
    count = len(x)
    early, late = max(2, math.ceil(count / 2)), max(1, count // 4)
    weights = {"start": np.zeros(count), "slope": np.zeros(count), "asymptote": np.zeros(count)}
    weights["start"][0] = 1
    weights["asymptote"][-late:] = 1 / late
    if count == 1:
        del weights["slope"]
    else:
        away = x[:early] - x[:early].mean()
        weights["slope"][:early] = away / (away @ away)
    return weights


def benefits(curves: Curves, *, lower_is_better: bool = False) -> dict[str, dict[str, Any]]:
    """How much higher pretrained starts, climbs and ends than from scratch: difference, 95 % interval, paired test.

    Each is positive where transfer is of use, also where a lower metric is better. Runs are paired by their seed, and
    the interval holds the luck of seeds and of test texts. "scratch" and "pretrained" are the two sides.
    """
    sign = -1.0 if lower_is_better else 1.0
    found = {}
    for name, weights in benefit_weights(curves.epochs).items():
        ours, theirs = (np.einsum("m,smn->sn", weights, table) for table in (curves.pretrained, curves.scratch))
        test = paired_test(sign * ours, sign * theirs)
        sides = {"pretrained": float(ours.mean()), "scratch": float(theirs.mean())}
        found[name] = {**difference_interval(sign * (ours - theirs))._asdict(), "p": test.p, **sides}
    return found


def verdict(results: Mapping[str, Any]) -> list[str]:
    """Sentences: what pretraining is worth, its three benefits, how much is in the frozen layers, and co-adaptation."""
    metric, whole = results["metric"], len(results["groups"])
    cells = {Kind(cell["arm"], cell["n"]): cell for cell in results["cells"]}
    tuned, shelf = cells[Kind("AnB+", whole)], cells[Kind("AnB", whole)]
    named = {"Fine-tuned": tuned, "off the shelf": shelf, "from scratch": results["fresh"]}
    named["a linear classifier on n-grams"] = results["baseline"]
    said = "; ".join(f"{name} {_interval(one, metric)}" for name, one in named.items())
    sentences = [f"{said}: {formatting.metric_name(metric)} on {results['test_n']:,} test texts."]
    for name, cell in (("Fine-tuned", tuned), ("Off the shelf", shelf)):
        sentences.append(f"{name} against from scratch: {_gap(cell['against_fresh'], metric)}.")
    sentences.append(benefits_said(results))
    sentences.append(_adaptation(cells, metric))
    apart = results["fresh"]["against_b"]
    if significant(apart):
        gap = formatting.difference(abs(apart["difference"]), metric)
        sentences.append(
            f"B and n = 0 differ by nothing but their seeds, and yet by {gap}: networks from scratch are that unsteady "
            "here. Train more seeds, or longer, before believing what stands beside B."
        )
    if results["seeds"] == 1:
        sentences.append("One seed: how much another would change is not known, and the intervals leave it out.")
    return sentences


def benefits_said(results: Mapping[str, Any]) -> str:
    """The three benefits in one sentence, each with its interval and whether chance could give it."""
    parts = []
    for name, one in results["benefits"].items():
        told = f"{formatting.p_value(one['p'])}, {significance_text(one)}"
        parts.append(f"{name} {benefit(one, results['metric'], name)} ({told})")
    return f"Pretrained minus from scratch: {'; '.join(parts)}."


def benefit(one: Mapping[str, Any], metric: str, name: str) -> str:
    """The difference that a benefit is, an epoch for the slope."""
    return formatting.signed(one["mean"], one["low"], one["high"], metric) + (" an epoch" if name == "slope" else "")


def _adaptation(cells: Mapping[Kind, Mapping[str, Any]], metric: str) -> str:
    """Whether layers that grew up together miss each other: BnB against B."""
    sign = -1 if metric == LOWER_IS_BETTER else 1
    own = {kind: cell for kind, cell in cells.items() if kind.arm == "BnB"}
    lost = {k: c for k, c in own.items() if sign * c["against_b"]["difference"] < 0 and is_robust(c["against_b"])}
    if not lost:
        return "No BnB is worse than B by more than chance: no sign that neighbouring layers are co-adapted."
    kind = min(lost, key=lambda k: sign * lost[k]["against_b"]["difference"])
    gap = _gap(lost[kind]["against_b"], metric)
    places = ", ".join(str(k.n) for k in lost)
    return f"BnB is worse than B at n = {places}, most at n = {kind.n} ({gap}): a sign of co-adapted layers."


def _interval(one: Mapping[str, Any], metric: str) -> str:
    return formatting.interval(one["mean"], one["low"], one["high"], metric)


def _gap(test: Mapping[str, float], metric: str) -> str:
    """`5.2 points more, p < 0.001, more than chance explains`."""
    if not test["difference"]:
        return f"no difference ({formatting.p_value(test['p_holm'])})"
    gap = formatting.difference(abs(test["difference"]), metric)
    way = "more" if test["difference"] > 0 else "less"
    return f"{gap} {way}, {significance_text(test)} ({formatting.p_value(test['p_holm'])})"
