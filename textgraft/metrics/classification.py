"""How good, how sure, and better than what: scores, bootstrap intervals and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textgraft.data.examples import ONE_OF, TargetKind

Scores = dict[str, float | None]
"""Metric name -> value; None where it cannot be computed from these documents (never a made-up number)."""

HEADLINE: dict[TargetKind, str] = {
    "single": "accuracy",
    "multi": "subset_accuracy",
    "numeric": "mae",
    "choice": "accuracy",
}
"""The metric that is a mean over documents, and so has a bootstrap interval and a paired test."""


class Interval(NamedTuple):
    """A mean with the ends of its confidence interval."""

    mean: float
    low: float
    high: float


class PairedTest(NamedTuple):
    """The mean difference a - b over the same documents, and the two-sided p value of "there is none"."""

    difference: float
    p: float


@dataclass(frozen=True)
class SeedSummary:
    """A metric over several training runs: mean, standard deviation between runs (None for one), interval."""

    mean: float
    spread: float | None
    interval: Interval
    seeds: int


@dataclass(frozen=True)
class ClassScores:
    """One class's scores; None where the ratio has nothing to divide by (never predicted, never there)."""

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int


def evaluate(kind: TargetKind, targets: NDArray, outputs: NDArray) -> Scores:
    """All scores for targets of `kind`.

    `outputs` are probabilities (N, C) for "single" and "choice" (targets (N,) class numbers) and for "multi" (targets
    (N, C) of 0/1), predicted values (N,) for "numeric".
    """
    if kind == "choice":  # the second option of one question and that of another are no class
        scores = single_label_scores(targets, outputs)
        return {name: scores[name] for name in ("accuracy", "log_loss")}
    if kind == "single":
        return single_label_scores(targets, outputs)
    return multi_label_scores(targets, outputs) if kind == "multi" else numeric_scores(targets, outputs)


def document_scores(kind: TargetKind, targets: NDArray, outputs: NDArray, *, threshold: float = 0.5) -> NDArray:
    """The headline metric of each document (N,): 1.0 where it is right, or the absolute error if numeric."""
    if kind in ONE_OF:
        return (outputs.argmax(1) == targets).astype(np.float64)
    if kind == "multi":
        return ((outputs >= threshold) == (targets > 0.5)).all(1).astype(np.float64)
    return np.abs(np.asarray(outputs, dtype=np.float64) - targets)


def single_label_scores(targets: NDArray, probabilities: NDArray) -> Scores:
    """Accuracy, macro F1, micro F1 and log loss (nats) of one label a document.

    targets (N,) class numbers, probabilities (N, C). Macro F1 averages the classes that occur in the targets
    or the predictions, and is None where the targets hold fewer than two. Micro F1 over all classes equals
    accuracy; it is given under its own name because people look for it. Log loss clips at the float64
    epsilon.
    """
    if len(targets) == 0:
        return dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "log_loss"))
    predicted = probabilities.argmax(1)
    accuracy = float((predicted == targets).mean())
    true_class = probabilities[np.arange(len(targets)), targets].astype(np.float64)
    f1 = [c.f1 for c in class_scores(targets, predicted, [str(c) for c in range(probabilities.shape[1])])]
    return {
        "accuracy": accuracy,
        "macro_f1": _mean_of_known(f1) if len(np.unique(targets)) > 1 else None,
        "micro_f1": accuracy,
        "log_loss": float(-np.log(true_class.clip(np.finfo(np.float64).eps, 1.0)).mean()),
    }


def multi_label_scores(targets: NDArray, probabilities: NDArray, *, threshold: float = 0.5) -> Scores:
    """Micro F1, macro F1 and subset accuracy (every label right), and log loss (nats a label), of label sets.

    targets (N, C) of 0/1, probabilities (N, C); a label is predicted at `threshold` or above. An F1 with
    neither targets nor predictions is None, and macro F1 averages the labels that have one.
    """
    if len(targets) == 0:
        return dict.fromkeys(("subset_accuracy", "micro_f1", "macro_f1", "log_loss"))
    truth, predicted = targets > 0.5, probabilities >= threshold
    hits, wrong = (truth & predicted).sum(0), (truth ^ predicted).sum(0)
    eps = np.finfo(np.float64).eps
    likelihood = np.where(truth, probabilities, 1.0 - probabilities.astype(np.float64)).clip(eps, 1.0)
    return {
        "subset_accuracy": float((truth == predicted).all(1).mean()),
        "micro_f1": _ratio(2 * hits.sum(), 2 * hits.sum() + wrong.sum()),
        "macro_f1": _mean_of_known([_ratio(2 * h, 2 * h + w) for h, w in zip(hits, wrong)]),
        "log_loss": float(-np.log(likelihood).mean()),
    }


def numeric_scores(targets: NDArray, predicted: NDArray) -> Scores:
    """Mean absolute error, root mean squared error (in the target's unit), Pearson and Spearman correlation.

    Correlations are None below two documents or where either side is constant.
    """
    if len(targets) == 0:
        return dict.fromkeys(("mae", "rmse", "pearson", "spearman"))
    from scipy.stats import pearsonr, spearmanr

    truth, guess = np.asarray(targets, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    varies = len(truth) > 1 and np.ptp(truth) > 0 and np.ptp(guess) > 0
    return {
        "mae": float(np.abs(guess - truth).mean()),
        "rmse": float(np.sqrt(((guess - truth) ** 2).mean())),
        "pearson": float(pearsonr(truth, guess).statistic) if varies else None,
        "spearman": float(spearmanr(truth, guess).statistic) if varies else None,
    }


def confusion_matrix(targets: NDArray, predicted: NDArray, num_classes: int) -> NDArray[np.int64]:
    """Counts (C, C): row = true class, column = predicted class, both given as class numbers (N,)."""
    flat = np.bincount(np.asarray(targets) * num_classes + np.asarray(predicted), minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).astype(np.int64)


def class_scores(targets: NDArray, predicted: NDArray, names: Sequence[str]) -> list[ClassScores]:
    """Precision, recall, F1 and support of each of C classes.

    Both arrays are class numbers (N,), or 0/1 label sets (N, C) for multi-label.
    """
    if np.ndim(targets) == 2:
        truth, guess = np.asarray(targets) > 0.5, np.asarray(predicted) > 0.5
        hits, support, claimed = (truth & guess).sum(0), truth.sum(0), guess.sum(0)
    else:
        hits = np.bincount(np.asarray(targets)[targets == predicted], minlength=len(names))
        support = np.bincount(targets, minlength=len(names))
        claimed = np.bincount(predicted, minlength=len(names))
    return [
        ClassScores(
            name=name,
            precision=_ratio(hits[c], claimed[c]),
            recall=_ratio(hits[c], support[c]),
            f1=_ratio(2 * hits[c], support[c] + claimed[c]),
            support=int(support[c]),
        )
        for c, name in enumerate(names)
    ]


def bootstrap_interval(scores: ArrayLike, level: float = 0.95, *, seed: int = 0, resamples: int = 2000) -> Interval:
    """The mean of per-document scores and its percentile bootstrap interval.

    scores: (N,) one score a test document, or (seeds, N) the same documents under several training runs; then
    runs and documents are both resampled, independently (Owen 2007, "The pigeonhole bootstrap"), so that the
    interval holds the luck of the seed as well as of the test set. With few runs the spread between them is
    itself poorly known. Where all scores are 0, or all are 1, resampling sees no variation at all; the
    interval is then the exact binomial one (Clopper & Pearson 1934), so that ten right of ten do not read as
    certainty.

    Raises ValueError for no scores or scores that are not finite.
    """
    table = _finite_table(scores)
    runs, documents = table.shape
    mean, tail = float(table.mean()), (1.0 - level) / 2
    if table.min() == table.max() and table[0, 0] in (0.0, 1.0):
        bound = tail ** (1.0 / documents)
        return Interval(mean, bound, 1.0) if mean == 1.0 else Interval(mean, 0.0, 1.0 - bound)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    for i in range(resamples):
        weights = np.bincount(generator.integers(0, runs, runs), minlength=runs) / runs
        means[i] = (weights @ table)[generator.integers(0, documents, documents)].mean()
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(mean, float(low), float(high))


def difference_interval(differences: ArrayLike, level: float = 0.95) -> Interval:
    """The mean of paired differences and its interval over other documents and other runs.

    differences: (N,) one a test document, or (seeds, N); the interval is in their unit. Runs and documents are crossed
    random effects, as readers and cases are where a few doctors read the same many pictures: a t interval on the mean
    squares of runs, documents and the rest (Dorfman, Berbaum & Metz 1992) with the degrees of freedom of Hillis 2007
    (Statistics in Medicine 26), and never narrower than the paired t interval of these very runs, which is all there is
    of a single one. Few runs tell their own spread badly, which t allows for and `bootstrap_interval` does not. Where
    no document differs under any run, the ends are the largest share that could have been missed.

    Raises ValueError for no differences or some that are not finite.
    """
    from scipy.stats import t

    table = _finite_table(differences)
    runs, documents = table.shape
    mean = float(table.mean())
    if not table.any():
        missed = bootstrap_interval(table, level).high
        return Interval(0.0, -missed, missed)

    def half(mean_square: float, freedom: float) -> float:
        return float(t.ppf((1 + level) / 2, freedom)) * float(np.sqrt(mean_square / table.size))

    rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    of_columns = runs * float(columns.var(ddof=1)) if documents > 1 else 0.0
    width = half(of_columns, documents - 1) if documents > 1 else 0.0
    if runs > 1:
        of_rows = documents * float(rows.var(ddof=1))
        rest = float(((table - rows - columns + mean) ** 2).sum()) / ((runs - 1) * max(documents - 1, 1))
        both = of_rows + max(of_columns - rest, 0.0)
        if of_rows > 0:
            width = max(width, half(both, (runs - 1) * (both / of_rows) ** 2))
    return Interval(mean, mean - width, mean + width)


def paired_test(a: ArrayLike, b: ArrayLike, *, seed: int = 0, resamples: int = 20_000) -> PairedTest:
    """Whether two models differ on the same documents, by flipping the sign of each document's difference.

    a, b: (N,) or (seeds, N) per-document scores (0/1 for right and wrong, or errors), over the same documents
    in the same order; several runs are averaged a document first. With one run of 0/1 scores this is the
    exact McNemar test (a two-sided binomial on the documents where the two disagree). Otherwise it is the
    sign-flip permutation test by Monte Carlo, p = (b + 1) / (m + 1) as in Phipson & Smyth 2010. Documents are
    what is random here, the trained models are given: for "would another seed do it too" look at
    `difference_interval(a - b)`.

    Raises ValueError where the numbers of documents differ.
    """
    first, second = _finite_table(a).mean(0), _finite_table(b).mean(0)
    if len(first) != len(second):
        raise ValueError(f"paired_test compares the same documents: got {len(first)} and {len(second)}.")
    # Rounded so that equal thirds stay equal, which is what lets documents be counted instead of flipped one
    # by one.
    differences = np.round(first - second, 12)
    difference = float(differences.mean())
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    if len(sizes) == 0:
        return PairedTest(difference, 1.0)
    if len(sizes) == 1:
        from scipy.stats import binomtest

        return PairedTest(difference, float(binomtest(int((differences > 0).sum()), int(counts[0])).pvalue))
    generator = np.random.default_rng(seed)
    observed = abs(differences.sum()) - 1e-9
    extreme, block = 0, max(1, 1_000_000 // len(sizes))
    for start in range(0, resamples, block):
        draws = generator.binomial(counts, 0.5, size=(min(block, resamples - start), len(sizes)))
        extreme += int((np.abs((2 * draws - counts) @ sizes) >= observed).sum())
    return PairedTest(difference, (extreme + 1) / (resamples + 1))


def summarise_seeds(scores: ArrayLike, level: float = 0.95, *, seed: int = 0) -> SeedSummary:
    """Mean, spread and interval of per-document scores (seeds, N), or (N,) for a single run."""
    table = _finite_table(scores)
    per_run = table.mean(1)
    return SeedSummary(
        mean=float(per_run.mean()),
        spread=float(per_run.std(ddof=1)) if len(per_run) > 1 else None,
        interval=bootstrap_interval(table, level, seed=seed),
        seeds=len(per_run),
    )


def mean_and_spread(
    runs: Sequence[Mapping[str, float | None]],
) -> dict[str, tuple[float, float | None] | None]:
    """Each metric's (mean, standard deviation) over runs; None where a run lacks it, no spread for one."""
    summary: dict[str, tuple[float, float | None] | None] = {}
    for name in runs[0] if runs else ():
        known = [value for value in (run.get(name) for run in runs) if value is not None]
        spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
        summary[name] = (float(np.mean(known)), spread) if len(known) == len(runs) else None
    return summary


def _finite_table(scores: ArrayLike) -> NDArray[np.float64]:
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if table.size == 0 or not np.isfinite(table).all():
        raise ValueError("Scores must be finite numbers, at least one document.")
    return table


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
