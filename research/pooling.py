"""How the predictions of an ensemble's candidates are best combined: `python research/pooling.py trec --labels 100`.

`finetune` averages probabilities, with weights that make the log loss of held-out folds small. Here the same candidates
of the same draws as in `research/curves.py NAME --methods default` are put together in other ways too: by the mean of
their logarithms (logits, that is: a product of experts), with weights for a small Brier score (Brier 1950, which minds
a sure mistake less than log loss does), with weights that must not leave the even ones without evidence (`spread`), or
those that lean on self-training (`lean`), all alike, and by the one whose held-out loss is least; and in the first way
without each candidate in turn. Prints accuracy and log loss on the test texts, means over the draws, the standard
deviation of accuracy, and how far it is from the first way in the same draws, with the standard error. Without --model
the candidates are the linear ones alone; with --probe there is the probe of a language model as it is beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import curves
import numpy as np
from numpy.typing import NDArray

from textgraft.comparison.methods import MethodOptions, new_method
from textgraft.comparison.methods.default import Default
from textgraft.core.context import RunContext
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import nested_order
from textgraft.linear.methods import FeatureMaps
from textgraft.models import loading
from textgraft.tasks.classification.budget import Budget
from textgraft.tasks.classification.ensemble_weights import MIN_GAIN, STEPS, mean_loss
from textgraft.tasks.classification.fine_tuned import EncodedData
from textgraft.tasks.classification.ladder import Ladder
from textgraft.tasks.classification.linear_candidates import CANDIDATE_METHODS
from textgraft.tasks.classification.model_selection import selection_splits
from textgraft.tasks.classification.selection_context import SelectionContext

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from record import Record

HERE = Path(__file__).parent
TINY = 1e-12
LEANT = "co-training"
Predictions = NDArray[np.float64]
"""(M, N, C): what each of M candidates gives N texts."""
Pool = Callable[[Predictions, NDArray[np.float64]], NDArray[np.float64]]


def of_probabilities(answers: Predictions, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, C) the weighted mean."""
    return np.tensordot(weights / weights.sum(), answers, 1)


def of_logits(answers: Predictions, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, C) the weighted mean of the logarithms, brought to a sum of 1."""
    logits = of_probabilities(np.log(answers.clip(TINY)), weights)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def log_loss(outputs: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """In nats."""
    return mean_loss("single", targets, outputs)


def brier(outputs: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """The squared distance to the label's own corner."""
    return float(((outputs - np.eye(outputs.shape[1])[targets]) ** 2).sum(axis=1).mean())


def divergence(counts: NDArray[np.float64], prior: NDArray[np.float64]) -> float:
    """KL(shares || prior) in nats, of the shares that counts are of their sum."""
    some = counts > 0
    shares = counts[some] / counts.sum()
    return float((shares * np.log(shares / prior[some])).sum())


class LinearMethod(NamedTuple):
    """How answers are put together: their mean, and the loss that its weights make small; None: all alike.

    A bag counts as worse by `spread` nats, over all texts, for each nat that its weights diverge from a prior: a
    PAC-Bayesian bound charges as much (McAllester 1999; Catoni 2007), with a spread of one. The prior gives
    self-training `lean` and the others the rest in equal parts; None: all the same.
    """

    pool: Pool = of_probabilities
    loss: Callable[..., float] | None = log_loss
    spread: float = 0.0
    lean: float | None = None
    steps: int = STEPS

    def prior(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(M,) what the weights are before there is evidence; all the same too where self-training is not there."""
        if self.lean is None or LEANT not in names or len(names) == 1:
            return np.full(len(names), 1 / len(names))
        return np.array([self.lean if name == LEANT else (1 - self.lean) / (len(names) - 1) for name in names])


LINEAR_METHODS = {
    "probabilities, log loss": LinearMethod(),
    "logits, log loss": LinearMethod(of_logits),
    "probabilities, Brier": LinearMethod(loss=brier),
    "logits, Brier": LinearMethod(of_logits, brier),
    **{f"log loss, spread {spread:g}": LinearMethod(spread=spread) for spread in (0.5, 1.0, 2.0, 4.0, 8.0)},
    **{
        f"log loss, spread {spread:g}, lean {lean:g}": LinearMethod(spread=spread, lean=lean)
        for spread in (1.0, 2.0, 4.0)
        for lean in (0.6, 0.8)
    },
    "probabilities, all alike": LinearMethod(loss=None),
    "logits, all alike": LinearMethod(of_logits, None),
    "the best alone": LinearMethod(steps=1),
}


def chosen(
    answers: Predictions, targets: NDArray[np.int64], way: LinearMethod, names: Sequence[str]
) -> NDArray[np.float64]:
    """(M,) weights, by the greedy selection of textgraft.tasks.classification.ensemble_weights, for any pool, loss and
    prior.
    """
    if way.loss is None:
        return np.full(len(answers), 1 / len(answers))
    counts, best, found = np.zeros(len(answers)), np.inf, np.zeros(len(answers))
    charged, prior = way.spread / len(targets), way.prior(names)
    for _ in range(way.steps):
        losses = [
            way.loss(way.pool(answers, counts + one), targets) + charged * divergence(counts + one, prior)
            for one in np.eye(len(answers))
        ]
        counts[int(np.argmin(losses))] += 1
        if min(losses) < best - MIN_GAIN:
            best, found = min(losses), counts.copy()
    return found / found.sum()


def measured(
    held: Predictions, targets: NDArray[np.int64], asked: Predictions, truth: NDArray[np.int64], names: Sequence[str]
) -> dict[str, list[float]]:
    """Accuracy and log loss for `asked` by each of WAYS, its weights chosen on `held`, and by the first without each
    candidate in turn, and of each candidate alone."""
    found = {name: way.pool(asked, chosen(held, targets, way, names)) for name, way in LINEAR_METHODS.items()}
    usual = next(iter(LINEAR_METHODS.values()))
    for place, name in enumerate(names):
        others, them = np.delete(held, place, axis=0), np.delete(asked, place, axis=0)
        kept = [other for other in names if other != name]
        found[f"without {name}"] = usual.pool(them, chosen(others, targets, usual, kept))
        found[f"{name} alone"] = asked[place]
    return {
        name: [float((outputs.argmax(axis=1) == truth).mean()), log_loss(outputs, truth)]
        for name, outputs in found.items()
    }


def beside(differences: NDArray[np.float64]) -> str:
    """`+0.6 ± 0.2` points: the mean and its standard error."""
    points = 100 * differences
    return f"{points.mean():+.1f} ± {points.std(ddof=1) / np.sqrt(len(points)):.1f}"


class Draws:
    """The candidates of one data set, draw by draw."""

    def __init__(self, asked: argparse.Namespace, work: Path) -> None:
        folder, read = curves.DATA[asked.name]
        train, test, pool = read(asked.data / folder)
        self.train = curves.examples(train, asked.name)
        self.test = curves.examples(curves.sample(test, min(asked.tested, len(test))), f"{asked.name} test")
        self.labels, self.pool, self.work, self.method = Labels.fit(self.train), pool, work, None
        self.probed, self.max_tokens = loading.load_network(asked.probe) if asked.probe else None, asked.max_tokens
        self.feature_maps = FeatureMaps(pool, work / "feature_maps", seed=0)
        if asked.model:
            made = new_method("default", MethodOptions(model=asked.model, max_tokens=asked.max_tokens))
            assert isinstance(made, Default)
            made.prepare(pool, work)
            self.method = made

    def __call__(self, count: int, seed: int) -> dict[str, list[float]]:
        train = self.train.take(nested_order(self.train, seed)[:count])
        splits, folder = selection_splits(train, seed), self.work / f"{count}-{seed}"
        folder.mkdir()
        if self.method is None:
            unseen = Examples(list(self.test.texts))
            context = RunContext(folder, seed, precision="fp32", show=False)
            selection = SelectionContext(train, unseen, "test", self.labels, self.pool, splits, context)
            ladder = Ladder(selection, Budget(), self.feature_maps, self.max_tokens)
            for name in CANDIDATE_METHODS:
                ladder.linear(name)
            if self.probed is not None:
                ladder.linear_probe("language-model", EncodedData(self.probed, {}))
            candidates = list(ladder.candidates.values())
        else:
            about = (train, self.test.texts, self.labels, splits, RunContext(folder, seed, show=False))
            candidates = list(self.method.weighted_ensemble(*about)[0].candidates)
        known = np.array(sorted({int(i) for _, fold in splits for i in fold}))
        held = np.stack([candidate.held_out[known] for candidate in candidates]).astype(float)
        asked = np.stack([candidate.outcome.outputs[0] for candidate in candidates]).astype(float)
        names = [candidate.name for candidate in candidates]
        return measured(held, self.labels.encode(train)[known], asked, self.labels.encode(self.test), names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=curves.DATA)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--labels", default="100,500")
    parser.add_argument("--seeds", type=int, default=5)
    beside_them = parser.add_mutually_exclusive_group()
    beside_them.add_argument("--model", help="a language model, or several parted by +, that take part")
    beside_them.add_argument("--probe", help="a language model whose probe alone takes part")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--tested", type=int, default=5000)
    parser.add_argument("--out", type=Path, help="default: research/results/pooling/NAME.json")
    asked = parser.parse_args()
    settings = {
        "name": asked.name,
        "model": asked.model,
        "probe": asked.probe,
        "max_tokens": asked.max_tokens,
        "tested": asked.tested,
    }
    record = Record(asked.out or HERE / "results" / "pooling" / f"{asked.name}.json", settings)
    with tempfile.TemporaryDirectory() as work:
        draws = Draws(asked, Path(work))
        for count in map(int, asked.labels.split(",")):
            found = [record.once(f"{count}-{seed}", lambda n=count, s=seed: draws(n, s)) for seed in range(asked.seeds)]
            print(f"{asked.name}, {count:,} labels, {asked.seeds} draws, {len(draws.test):,} tests")
            first = np.array([one[next(iter(LINEAR_METHODS))][0] for one in found])
            for way in (way for way in found[0] if all(way in one for one in found)):
                accuracy, loss = (np.array([one[way][i] for one in found]) for i in (0, 1))
                spread, apart = (
                    (f"({100 * accuracy.std(ddof=1):.1f})", beside(accuracy - first)) if len(found) > 1 else ("", "")
                )
                print(
                    f"  {way:<26} {100 * accuracy.mean():5.1f} % {spread:<6}  {loss.mean():.3f} nats  {apart}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
