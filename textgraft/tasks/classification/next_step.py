"""The next step after a fine-tuning whose ensemble is worse than one of its candidates."""

from __future__ import annotations

from textgraft.tasks.classification.candidate_methods import candidate_method
from textgraft.tasks.classification.early_rejection import SIGNIFICANCE_LEVEL
from textgraft.tasks.classification.evaluation import Comparison


def keep_candidate(comparison: Comparison) -> str:
    """How to keep the best candidate where the ensemble is significantly worse; empty where it is not.

    The texts that show it then choose the model, so they no longer measure it.
    """
    rival = comparison.best_baseline()
    if rival is None:
        return ""
    test = comparison.against(rival)
    worse_by = test.difference if comparison.labels.lower_is_better else -test.difference
    if worse_by <= 0 or test.p >= SIGNIFICANCE_LEVEL:
        return ""
    method = candidate_method(rival.name)
    how = f"run again with method '{method}'"
    if not method:  # with no rung but its own, the candidates are it and the linear methods
        how = f"run again with no rung but '{rival.name}' (rungs), beside which only the linear methods are candidates"
    return f"To keep {rival.name} alone, {how}; these texts then choose the model, so measure it on others."
