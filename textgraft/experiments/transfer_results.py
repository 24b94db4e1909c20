"""Results of transfer experiments as plain JSON: scores over n with tests, and the three benefits of transfer.

Source: networks and n as in Yosinski et al. 2014 (arXiv:1411.1792); benefits as in Torrey & Shavlik 2009 ("Transfer
learning", figure 2), who only draw them: the numbers here are our definitions.
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
"""The only error among metrics.HEADLINE."""


class Kind(NamedTuple):
    """One kind of network: its arm and its number of copied layer groups."""

    arm: str
    n: int

    def __str__(self) -> str:
        return f"{self.arm}, n = {self.n}" if self.arm in ARMS else self.arm


B, FRESH = Kind("B", 0), Kind("n = 0", 0)


@dataclass(frozen=True)
class Curves:
    """Headline metric of each of N test texts at M measurements, (seeds, M, N), and the times of those in epochs."""

    epochs: Sequence[float]
    pretrained: NDArray[np.float64]
    scratch: NDArray[np.float64]


@dataclass(frozen=True)
class Networks:
    """Headline metric of each test text after training, (seeds, N), for every kind of network; and the
    curves of two.
    """

    scores: Mapping[Kind, NDArray[np.float64]]
    curves: Curves


def transfer_results(
    networks: Networks, baseline: NDArray[np.float64], *, groups: Sequence[str], metric: str
) -> dict[str, Any]:
    """The body of results.json.

    "cells" has each arm at each n above 0, with its differences to n = 0 and to B as in
    textgraft.metrics.paired_differences; "p_holm" is corrected for all tests against the same reference.

    Args:
        networks: Scores and learning curves.
        baseline: Scores of a linear classifier, (1, N).
        groups: Names of the layer groups.
        metric: Name of the headline metric.
    """
    scores = networks.scores
    seeds, texts = scores[B].shape
    cells = {kind: table for kind, table in scores.items() if kind.arm in ARMS}
    fresh = differences({kind: (table, scores[FRESH]) for kind, table in cells.items()})
    against_b = differences({kind: (table, scores[B]) for kind, table in {FRESH: scores[FRESH], **cells}.items()})
    results: dict[str, Any] = {
        "groups": list(groups),
        "metric": metric,
        "test_n": texts,
        "seeds": seeds,
        "baseline": _summary(baseline),
        "b": _summary(scores[B]),
        "fresh": _summary(scores[FRESH]) | {"against_b": against_b[FRESH]},
        "cells": [
            {**kind._asdict(), **_summary(table), "against_fresh": fresh[kind], "against_b": against_b[kind]}
            for kind, table in sorted(cells.items(), key=lambda item: (ARMS.index(item[0].arm), item[0].n))
        ],
        "curves": _curves(networks.curves),
        "benefits": benefits(networks.curves, lower_is_better=metric == LOWER_IS_BETTER),
    }
    return {"verdict": verdict(results), **results}


def _summary(table: NDArray[np.float64]) -> dict[str, Any]:
    """Mean with its interval, spread between seeds (None for one), and each seed's mean."""
    summary = summarise_seeds(table)
    return {**summary.interval._asdict(), "spread": summary.spread, "per_seed": table.mean(axis=1).tolist()}


def _curves(curves: Curves) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [{"epoch": epoch, **_summary(table[:, m])} for m, epoch in enumerate(curves.epochs)]
        for name, table in (("pretrained", curves.pretrained), ("scratch", curves.scratch))
    }


def benefit_weights(epochs: Sequence[float]) -> dict[str, NDArray[np.float64]]:
    """Weights (M,) over the measurements of a learning curve at M `epochs`, whose weighted sum is the benefit.

    "start" is the first measurement (before it, a new head is at chance); "slope" is the least-squares slope per epoch
    over the first half of the measurements, at least two (left out where there is one); "asymptote" is the mean of the
    last quarter, at least one.
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
        centred = x[:early] - x[:early].mean()
        weights["slope"][:early] = centred / (centred @ centred)
    return weights


def benefits(curves: Curves, *, lower_is_better: bool = False) -> dict[str, dict[str, Any]]:
    """Differences in start, slope and asymptote between pretrained and from scratch: mean, 95 % interval, paired test.

    Each is positive where transfer helps, also where a lower metric is better. Runs are paired by their seed, and the
    interval includes the variation of seeds and of test texts. "scratch" and "pretrained" are the values of both sides.
    """
    sign = -1.0 if lower_is_better else 1.0
    results = {}
    for name, weights in benefit_weights(curves.epochs).items():
        pretrained, scratch = (np.einsum("m,smn->sn", weights, table) for table in (curves.pretrained, curves.scratch))
        test = paired_test(sign * pretrained, sign * scratch)
        sides = {"pretrained": float(pretrained.mean()), "scratch": float(scratch.mean())}
        results[name] = {**difference_interval(sign * (pretrained - scratch))._asdict(), "p": test.p, **sides}
    return results


def verdict(results: Mapping[str, Any]) -> list[str]:
    """Sentences on the gain from pretraining, its three benefits, the frozen layers, and co-adaptation."""
    metric, whole = results["metric"], len(results["groups"])
    cells = {Kind(cell["arm"], cell["n"]): cell for cell in results["cells"]}
    tuned, frozen = cells[Kind("AnB+", whole)], cells[Kind("AnB", whole)]
    models = {"Fine-tuned": tuned, "off the shelf": frozen, "from scratch": results["fresh"]}
    models["a linear classifier on n-grams"] = results["baseline"]
    scores = "; ".join(f"{name} {_interval(cell, metric)}" for name, cell in models.items())
    sentences = [f"{scores}: {formatting.metric_name(metric)} on {results['test_n']:,} test texts."]
    for name, cell in (("Fine-tuned", tuned), ("Off the shelf", frozen)):
        sentences.append(f"{name} against from scratch: {_gap(cell['against_fresh'], metric)}.")
    sentences.append(benefits_sentence(results))
    sentences.append(_adaptation(cells, metric))
    against_b = results["fresh"]["against_b"]
    if significant(against_b):
        gap = formatting.difference(abs(against_b["difference"]), metric)
        sentences.append(
            f"B and n = 0 differ only in their seeds, and yet by {gap}: networks from scratch vary that much "
            "here. Train more seeds, or longer, before relying on comparisons with B."
        )
    if results["seeds"] == 1:
        sentences.append("One seed: the variation between seeds is unknown and not in the intervals.")
    return sentences


def benefits_sentence(results: Mapping[str, Any]) -> str:
    """The three benefits in one sentence, each with its interval and its significance."""
    parts = []
    for name, values in results["benefits"].items():
        test = f"{formatting.p_value(values['p'])}, {significance_text(values)}"
        parts.append(f"{name} {benefit(values, results['metric'], name)} ({test})")
    return f"Pretrained minus from scratch: {'; '.join(parts)}."


def benefit(values: Mapping[str, Any], metric: str, name: str) -> str:
    """The difference that is the benefit, per epoch for the slope."""
    return formatting.signed(values["mean"], values["low"], values["high"], metric) + (
        " an epoch" if name == "slope" else ""
    )


def _adaptation(cells: Mapping[Kind, Mapping[str, Any]], metric: str) -> str:
    """A sentence on co-adaptation of layers: BnB against B."""
    sign = -1 if metric == LOWER_IS_BETTER else 1
    bnb = {kind: cell for kind, cell in cells.items() if kind.arm == "BnB"}
    worse = {k: c for k, c in bnb.items() if sign * c["against_b"]["difference"] < 0 and is_robust(c["against_b"])}
    if not worse:
        return "No BnB is worse than B by more than chance: no sign that neighbouring layers are co-adapted."
    kind = min(worse, key=lambda k: sign * worse[k]["against_b"]["difference"])
    gap = _gap(worse[kind]["against_b"], metric)
    positions = ", ".join(str(k.n) for k in worse)
    return f"BnB is worse than B at n = {positions}, most at n = {kind.n} ({gap}): a sign of co-adapted layers."


def _interval(cell: Mapping[str, Any], metric: str) -> str:
    return formatting.interval(cell["mean"], cell["low"], cell["high"], metric)


def _gap(test: Mapping[str, float], metric: str) -> str:
    """`5.2 points more, p < 0.001, more than chance explains`."""
    if not test["difference"]:
        return f"no difference ({formatting.p_value(test['p_holm'])})"
    gap = formatting.difference(abs(test["difference"]), metric)
    direction = "more" if test["difference"] > 0 else "less"
    return f"{gap} {direction}, {significance_text(test)} ({formatting.p_value(test['p_holm'])})"
