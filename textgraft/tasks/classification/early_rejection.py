"""When to stop training a language model that will not count: a race, fold by fold, against what has answered already.

As Hoeffding races do (Maron & Moore 1994) and F-Race after them (Birattari et al. 2002), a model is given up once the
texts seen so far show that it is worse; theirs compare every pair of models, ours asks besides whether the mean of all
answers would have any use for the one that is slow to train.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.core import formatting
from textgraft.metrics.calibration import fit_temperature
from textgraft.metrics.classification import HEADLINE, document_scores, paired_test
from textgraft.tasks.classification.ensemble_weights import ensemble_weights, losses, mean_loss
from textgraft.tasks.classification.linear_candidates import Candidate, SelectionContext
from textgraft.tasks.classification.training import outputs_from_logits

SURE = 0.05
"""The paired test's p below which a difference is believed. It is asked once a fold, up to five times a model: whoever
is as good as its rival is given up wrongly a little more often than once in twenty, and only if the mean has no use
for it either."""


class EarlyRejection:
    """A language model against `rivals`, who have answered for all held-out texts.

    `before_adapting` says that it has not read the unlabelled texts yet, which is then told of one that loses.
    """

    def __init__(self, rivals: Sequence[Candidate], ground: SelectionContext, *, before_adapting: bool = False) -> None:
        self.rivals, self.ground, self.before_adapting = list(rivals), ground, before_adapting

    def lost(self, logits: np.ndarray, folds: int) -> str | None:
        """Why it is not worth another fold, or None; `logits` (N, C) are those of the first `folds` (else NaN).

        It has lost if the mean of all answers for the texts held out so far gives it no weight and its loss there is
        surely higher than that of the rival whose loss is lowest over all texts.
        """
        ground, labels, known = self.ground, self.ground.labels, self.ground.known
        seen = np.flatnonzero(~np.isnan(logits[:, 0]))
        if not self.rivals or not len(seen):
            return None
        kind, targets = labels.kind, ground.targets[seen]
        temperature = 1.0 if kind == "numeric" else fit_temperature(logits[seen], targets, kind)
        ours = outputs_from_logits(logits[seen], kind, temperature)
        theirs = [rival.held_out[seen] for rival in self.rivals]
        if ensemble_weights([*theirs, ours], targets, kind)[-1] > 0:
            return None
        best = int(np.argmin([mean_loss(kind, ground.targets[known], rival.held_out[known]) for rival in self.rivals]))
        test = paired_test(losses(kind, targets, ours), losses(kind, targets, theirs[best]))
        if test.difference <= 0 or test.p >= SURE:
            return None
        unit = labels.std if kind == "numeric" else 1.0
        own, other = (
            formatting.score(unit * float(document_scores(kind, targets, one).mean()), HEADLINE[kind])
            for one in (ours, theirs[best])
        )
        whole = len(ground.splits)
        after = f"after {folds} of {whole} folds" if whole > 1 else "after the held-out fifth"
        metric = formatting.metric_name(HEADLINE[kind])
        if self.before_adapting:
            after = f"before it read the unlabelled texts, {after}"
        return f"given up {after}: {metric} {own} on {len(seen):,} texts, {self.rivals[best].name} {other}"
