"""Classification and regression scores, bootstrap intervals and paired tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS

Scores = dict[str, float | None]
"""Metric name -> value; None where it is undefined for these documents."""

HEADLINE: dict[TargetKind, str] = {kind: target.metric for kind, target in TARGETS.items()}
"""Main metric of each kind: a mean over documents, so that it has a bootstrap interval and a paired test."""


class Interval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


class PairedTest(NamedTuple):
    """Mean difference a - b over the same documents, and the two-sided p value of no difference."""

    difference: float
    p: float


@dataclass(frozen=True)
class SeedSummary:
    """A metric over several training runs: mean, standard deviation between runs (None for one run) and interval."""

    mean: float
    spread: float | None
    interval: Interval
    seeds: int


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class; None where the denominator is 0 (never predicted, or absent)."""

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int


def evaluate(kind: TargetKind, targets: NDArray, outputs: NDArray) -> Scores:
    """All scores of a kind of target.

    Targets may have classes beyond the C of the outputs, which the model cannot predict (data.labels.Labels.covering):
    a text of such a class is a mistake. The log loss is of the others, for which there are probabilities
    (`predictable`).

    Args:
        kind: Kind of the targets.
        targets: Class numbers (N,) for "single" and "choice", 0/1 (N, C) for "multi", values (N,) for "numeric".
        outputs: Probabilities (N, C), or predicted values (N,) for "numeric".
    """
    return SCORES[kind](targets, outputs)


def document_scores(kind: TargetKind, targets: NDArray, outputs: NDArray, *, threshold: float = 0.5) -> NDArray:
    """Headline metric of each document (N,): 1.0 if correct, or the absolute error if numeric."""
    return DOCUMENT_SCORES[kind](targets, outputs, threshold)


def predictable(kind: TargetKind, targets: NDArray, outputs: NDArray) -> tuple[NDArray, NDArray]:
    """The part of targets and outputs (or logits) for which the model has an output.

    Args:
        kind: Kind of the targets.
        targets: Class numbers (N,) or 0/1 (N, C + U), of which the last U classes are not the model's; others.
        outputs: (N, C), or others.

    Returns:
        "single": the texts of the C classes. "multi": all texts with the first C labels. Other kinds: everything.

    >>> predictable("single", np.array([0, 2]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    (array([0]), array([[0.9, 0.1]]))
    """
    if not TARGETS[kind].shares_classes:
        return targets, outputs
    classes = outputs.shape[1]
    if not TARGETS[kind].is_exclusive:
        return targets[:, :classes], outputs
    known = targets < classes
    return targets[known], outputs[known]


def _widened(decisions: NDArray, targets: NDArray) -> NDArray:
    """0/1 decisions (N, C) with columns of zeros for the classes that only the targets (N, C + U) have."""
    return np.pad(decisions, ((0, 0), (0, np.shape(targets)[1] - decisions.shape[1])))


def _hits(targets: NDArray, outputs: NDArray, threshold: float) -> NDArray:
    return (outputs.argmax(1) == targets).astype(np.float64)


def _set_hits(targets: NDArray, outputs: NDArray, threshold: float) -> NDArray:
    return np.asarray((_widened(outputs >= threshold, targets) == (targets > 0.5)).all(1).astype(np.float64))


def _absolute_errors(targets: NDArray, outputs: NDArray, threshold: float) -> NDArray:
    return np.abs(np.asarray(outputs, dtype=np.float64) - targets)


DOCUMENT_SCORES: Mapping[TargetKind, Callable[[NDArray, NDArray, float], NDArray]] = {
    "single": _hits,
    "multi": _set_hits,
    "numeric": _absolute_errors,
    "choice": _hits,
}


def single_label_scores(targets: NDArray, probabilities: NDArray) -> Scores:
    """Accuracy, macro F1, micro F1 and log loss (nats) for one label per document.

    Macro F1 averages over classes in the targets or predictions, and is None for targets of a single class. Micro F1
    over all classes equals accuracy; it is included because readers look for it. Log loss clips at the float64 epsilon.

    Args:
        targets: Class numbers (N,).
        probabilities: Probabilities (N, C).

    >>> scores = single_label_scores(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    >>> scores["accuracy"], round(scores["macro_f1"], 3)
    (0.5, 0.333)
    """
    if len(targets) == 0:
        return dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "log_loss"))
    predicted = probabilities.argmax(1)
    accuracy = float((predicted == targets).mean())
    classes = max(probabilities.shape[1], int(targets.max()) + 1)
    f1 = [c.f1 for c in class_scores(targets, predicted, [str(c) for c in range(classes)])]
    return {
        "accuracy": accuracy,
        "macro_f1": _mean_of_defined(f1) if len(np.unique(targets)) > 1 else None,
        "micro_f1": accuracy,
        "log_loss": _log_loss(*predictable("single", targets, probabilities)),
    }


def _log_loss(targets: NDArray, probabilities: NDArray) -> float | None:
    """Mean negative log probability of the true classes; None for no texts."""
    true_class = probabilities[np.arange(len(targets)), targets].astype(np.float64)
    clipped = true_class.clip(np.finfo(np.float64).eps, 1.0)
    return float(-np.log(clipped).mean()) if len(targets) else None


def multi_label_scores(targets: NDArray, probabilities: NDArray, *, threshold: float = 0.5) -> Scores:
    """Micro F1, macro F1, subset accuracy (all labels correct) and log loss (nats per label) of label sets.

    An F1 without targets and predictions is None, and macro F1 averages the labels that have one.

    Args:
        targets: 0/1 (N, C).
        probabilities: Probabilities (N, C).
        threshold: Probability from which a label is predicted.
    """
    if len(targets) == 0:
        return dict.fromkeys(("subset_accuracy", "micro_f1", "macro_f1", "log_loss"))
    truth, predicted = targets > 0.5, _widened(probabilities >= threshold, targets)
    hits, errors = (truth & predicted).sum(0), (truth ^ predicted).sum(0)
    present, eps = predictable("multi", truth, probabilities)[0], np.finfo(np.float64).eps
    likelihood = np.where(present, probabilities, 1.0 - probabilities.astype(np.float64)).clip(eps, 1.0)
    return {
        "subset_accuracy": float((truth == predicted).all(1).mean()),
        "micro_f1": _ratio(2 * hits.sum(), 2 * hits.sum() + errors.sum()),
        "macro_f1": _mean_of_defined([_ratio(2 * h, 2 * h + w) for h, w in zip(hits, errors)]),
        "log_loss": float(-np.log(likelihood).mean()),
    }


def numeric_scores(targets: NDArray, predicted: NDArray) -> Scores:
    """Mean absolute error, root mean squared error (in the target's unit), Pearson and Spearman correlation.

    Correlations are None for fewer than two documents, and where targets or predictions are constant.
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


def choice_scores(targets: NDArray, probabilities: NDArray) -> Scores:
    """Accuracy and log loss (nats) for one option per question: options at the same position are not a class.

    Args:
        targets: Numbers (N,) of the correct options.
        probabilities: Probabilities (N, C) of the options.
    """
    scores = single_label_scores(targets, probabilities)
    return {name: scores[name] for name in ("accuracy", "log_loss")}


SCORES: Mapping[TargetKind, Callable[[NDArray, NDArray], Scores]] = {
    "single": single_label_scores,
    "multi": multi_label_scores,
    "numeric": numeric_scores,
    "choice": choice_scores,
}


def confusion_matrix(targets: NDArray, predicted: NDArray, num_classes: int) -> NDArray[np.int64]:
    """Counts (C, C) of class numbers (N,): row = true class, column = predicted class.

    >>> confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    flat = np.bincount(np.asarray(targets) * num_classes + np.asarray(predicted), minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).astype(np.int64)


def class_scores(targets: NDArray, predicted: NDArray, names: Sequence[str]) -> list[ClassScores]:
    """Precision, recall, F1 and support of each of C classes.

    Args:
        targets, predicted: Class numbers (N,), or 0/1 label sets (N, C).
        names: The C class names.
    """
    if np.ndim(targets) == 2:
        truth, guess = np.asarray(targets) > 0.5, _widened(np.asarray(predicted) > 0.5, targets)
        hits, support, predicted_counts = (truth & guess).sum(0), truth.sum(0), guess.sum(0)
    else:
        hits = np.bincount(np.asarray(targets)[targets == predicted], minlength=len(names))
        support = np.bincount(targets, minlength=len(names))
        predicted_counts = np.bincount(predicted, minlength=len(names))
    return [
        ClassScores(
            name=name,
            precision=_ratio(hits[c], predicted_counts[c]),
            recall=_ratio(hits[c], support[c]),
            f1=_ratio(2 * hits[c], support[c] + predicted_counts[c]),
            support=int(support[c]),
        )
        for c, name in enumerate(names)
    ]


def bootstrap_interval(scores: ArrayLike, level: float = 0.95, *, seed: int = 0, resamples: int = 2000) -> Interval:
    """Mean of per-document scores with a percentile bootstrap interval.

    Where all scores are 0, or all are 1, resampling has no variation; the interval is then the exact binomial one
    (Clopper & Pearson 1934), so that ten correct of ten are not certainty.

    Args:
        scores: Scores (N,) of test documents, or (seeds, N) of the same documents under several training runs. Then
            runs and documents are both resampled, independently (Owen 2007, "The pigeonhole bootstrap"), so the
            interval includes the variation of seeds. With few runs the spread between them is itself poorly known.
        level: Confidence level.
        seed: Seed of the resampling.
        resamples: Number of resamples.

    Raises:
        ValueError: There are no scores, or they are not finite.

    >>> bootstrap_interval([0.0, 1.0, 1.0, 1.0])
    Interval(mean=0.75, low=0.25, high=1.0)
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
    """Mean of paired differences with an interval over other documents and other training runs.

    Runs and documents are crossed random effects, like readers and cases where a few doctors read the same images: a t
    interval on the mean squares of runs, documents and residual (Dorfman, Berbaum & Metz 1992) with the degrees of
    freedom of Hillis 2007 (Statistics in Medicine 26), never narrower than the paired t interval of these runs, which
    is all there is for a single one. Few runs estimate their own spread badly, which t accounts for and
    `bootstrap_interval` does not. Where no document differs under any run, the ends are the largest share that could
    have been missed.

    Args:
        differences: Differences (N,) of test documents, or (seeds, N).
        level: Confidence level.

    Returns:
        The interval, in the unit of the differences.

    Raises:
        ValueError: There are no differences, or they are not finite.
    """
    from scipy.stats import t

    table = _finite_table(differences)
    runs, documents = table.shape
    mean = float(table.mean())
    if not table.any():
        missed = bootstrap_interval(table, level).high
        return Interval(0.0, -missed, missed)

    def half_width(mean_square: float, freedom: float) -> float:
        return float(t.ppf((1 + level) / 2, freedom)) * float(np.sqrt(mean_square / table.size))

    rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    document_square = runs * float(columns.var(ddof=1)) if documents > 1 else 0.0
    width = half_width(document_square, documents - 1) if documents > 1 else 0.0
    if runs > 1:
        run_square = documents * float(rows.var(ddof=1))
        residual = float(((table - rows - columns + mean) ** 2).sum()) / ((runs - 1) * max(documents - 1, 1))
        combined = run_square + max(document_square - residual, 0.0)
        if run_square > 0:
            width = max(width, half_width(combined, (runs - 1) * (combined / run_square) ** 2))
    return Interval(mean, mean - width, mean + width)


def paired_test(a: ArrayLike, b: ArrayLike, *, seed: int = 0, resamples: int = 20_000) -> PairedTest:
    """Test the difference of two models on the same documents by flipping the signs of the documents' differences.

    With one run of 0/1 scores this is the exact McNemar test (a two-sided binomial test on the documents where the two
    disagree). Otherwise it is the sign-flip permutation test by Monte Carlo, p = (b + 1) / (m + 1) as in Phipson &
    Smyth 2010. Documents are random, the trained models fixed: to generalise to other seeds use `difference_interval(a
    - b)`.

    Args:
        a, b: Per-document scores (N,) or (seeds, N), over the same documents in the same order; several runs are
            averaged per document.
        seed: Seed of the permutations.
        resamples: Number of permutations.

    Raises:
        ValueError: The numbers of documents differ.
    """
    first, second = _finite_table(a).mean(0), _finite_table(b).mean(0)
    if len(first) != len(second):
        raise ValueError(f"paired_test compares the same documents: got {len(first)} and {len(second)}.")
    # Rounded so that equal thirds stay equal; documents of equal differences are counted instead of flipped singly.
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
    """Mean and standard deviation of each metric over runs; None where a run lacks it, no deviation for one run."""
    summary: dict[str, tuple[float, float | None] | None] = {}
    for name in runs[0] if runs else ():
        values = [value for value in (run.get(name) for run in runs) if value is not None]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        summary[name] = (float(np.mean(values)), spread) if len(values) == len(runs) else None
    return summary


def _finite_table(scores: ArrayLike) -> NDArray[np.float64]:
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if table.size == 0 or not np.isfinite(table).all():
        raise ValueError("Scores must be finite numbers, at least one document.")
    return table


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _mean_of_defined(values: Sequence[float | None]) -> float | None:
    defined = [v for v in values if v is not None]
    return float(np.mean(defined)) if defined else None
