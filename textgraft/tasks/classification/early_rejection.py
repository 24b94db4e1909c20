"""Early rejection of a language model that will get no weight: a paired test after every fold against its rivals.

As Hoeffding races do (Maron & Moore 1994) and F-Race after them (Birattari et al. 2002), a candidate is rejected once
it is significantly worse on the texts predicted so far. Races compare every pair of models; here the weighted ensemble
must also give the candidate no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from textgraft.core import formatting
from textgraft.metrics.calibration import fit_temperature, outputs_from_logits
from textgraft.metrics.classification import HEADLINE, PairedTest, document_scores, paired_test
from textgraft.tasks.classification.ensemble_weights import LOSS_NAMES, ensemble_weights, losses, mean_loss
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.selection_context import SelectionContext

SIGNIFICANCE_LEVEL = 0.05
"""Significance level of the paired test. It is applied once a fold, up to five times a model: a model as good as its
rival is rejected wrongly a little more often than once in twenty, and only if the ensemble gives it no weight."""


MIN_FOLDS = 2
"""Folds of a fine-tuning that are evidence enough where they are clear, or where there is no time for more."""


@dataclass
class EarlyRejected(Exception):
    """A language model is not trained to the end, or not used as a linear probe: the reason, and the costs so far."""

    reason: str
    seconds: float
    peak_mb: float


class EarlyRejection:
    """The test of a language model against rivals whose held-out predictions are complete.

    Args:
        rivals: Candidates; those without predictions for some held-out text are left out.
        selection: The data and the folds.
        favoured: The language model will be a favoured candidate.
        before_adapting: The language model is not yet adapted to the unlabelled texts, which a rejection then mentions.
    """

    def __init__(
        self,
        rivals: Sequence[Candidate],
        selection: SelectionContext,
        *,
        favoured: bool = False,
        before_adapting: bool = False,
    ) -> None:
        self.rivals = [one for one in rivals if not np.isnan(one.held_out[selection.held_out]).any()]
        self.selection, self.favoured, self.before_adapting = selection, favoured, before_adapting

    def rejection(self, logits: np.ndarray, folds: int) -> str | None:
        """The reason to reject the language model after some folds, or None.

        It is rejected if the weighted ensemble for the texts held out so far gives it no weight, and its loss there is
        significantly higher than that of the rival whose loss is lowest over all held-out texts.

        Args:
            logits: (N, C) for the training texts, NaN for texts of later folds.
            folds: How many folds are done.
        """
        compared = self._compared(logits)
        if compared is None or compared.weight > 0:
            return None
        if compared.test.difference <= 0 or compared.test.p >= SIGNIFICANCE_LEVEL:
            return None
        whole = len(self.selection.splits)
        after = f"after {folds} of {whole} folds" if whole > 1 else "after the held-out fifth"
        if self.before_adapting:
            after = f"before adaptation to the unlabelled texts, {after}"
        return f"rejected {after} by its {self._scores(compared)}"

    def _scores(self, compared: _Compared) -> str:
        """`log loss, 0.91 on 60 texts, co-training 0.62 (accuracy 58.3 %, 50.0 %)`: what decides, then what is read."""
        labels, kind, targets = self.selection.labels, self.selection.labels.kind, compared.targets
        outputs = (compared.outputs, compared.rival_outputs)
        loss, rival_loss = (f"{mean_loss(kind, targets, one):.3g}" for one in outputs)
        errors = (labels.unscaled_errors(document_scores(kind, targets, one)).mean() for one in outputs)
        score, rival_score = (formatting.score(float(error), HEADLINE[kind]) for error in errors)
        both = f"{formatting.metric_name(HEADLINE[kind])} {score}, {rival_score}"
        name = formatting.metric_name(LOSS_NAMES[kind])
        return f"{name}, {loss} on {formatting.texts(len(targets))}, {compared.rival} {rival_loss} ({both})"

    def is_accepted(self, logits: np.ndarray, folds: int) -> bool:
        """True if the evidence of some folds is clear, so that the others need not be trained.

        The language model is then significantly better than the best rival, and has most of the ensemble's weight.
        Where the held-out texts are all that there is to measure on, every fold is needed.
        """
        if folds < MIN_FOLDS or self.selection.evaluation is None or self.before_adapting:
            return False
        compared = self._compared(logits)
        if compared is None or compared.weight < 0.5:
            return False
        return compared.test.difference < 0 and compared.test.p < SIGNIFICANCE_LEVEL

    def _compared(self, logits: np.ndarray) -> _Compared | None:
        """The language model and the rival whose loss is lowest over all held-out texts; None without either."""
        selection, labels, indices = self.selection, self.selection.labels, self.selection.held_out
        predicted = np.flatnonzero(~np.isnan(logits[:, 0]))
        if not self.rivals or not len(predicted):
            return None
        kind, targets = labels.kind, selection.targets[predicted]
        temperature = fit_temperature(logits[predicted], targets, kind)
        outputs = outputs_from_logits(logits[predicted], kind, temperature)
        rival_outputs = [rival.held_out[predicted] for rival in self.rivals]
        favoured = [*(rival.favoured for rival in self.rivals), self.favoured]
        weight = float(ensemble_weights([*rival_outputs, outputs], targets, kind, favoured=favoured)[-1])
        rival_losses = [mean_loss(kind, selection.targets[indices], rival.held_out[indices]) for rival in self.rivals]
        best = int(np.argmin(rival_losses))
        test = paired_test(losses(kind, targets, outputs), losses(kind, targets, rival_outputs[best]))
        return _Compared(weight, test, targets, outputs, rival_outputs[best], self.rivals[best].name)


@dataclass(frozen=True)
class _Compared:
    """A language model and its best rival on the texts predicted so far; `test` is of its losses minus the rival's."""

    weight: float
    test: PairedTest
    targets: np.ndarray
    outputs: np.ndarray
    rival_outputs: np.ndarray
    rival: str
