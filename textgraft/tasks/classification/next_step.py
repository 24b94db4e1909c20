"""The next step after a fine-tuning whose ensemble is worse than one of its candidates."""

from __future__ import annotations

from textgraft.linear.methods import LINEAR_METHODS
from textgraft.tasks.classification.early_rejection import SIGNIFICANCE_LEVEL
from textgraft.tasks.classification.encoder_candidates import encoder_co_training_name
from textgraft.tasks.classification.evaluation import Comparison
from textgraft.tasks.classification.finetune_options import FINE_TUNED, LINEAR_PROBE
from textgraft.tasks.classification.linear_probe import linear_probe_name


def candidate_method(name: str) -> str:
    """The method that fits a candidate alone; empty where there is none.

    >>> candidate_method("lsa"), candidate_method("gpt-probe"), candidate_method("gpt-backward")
    ('lsa', 'linear-probe', 'fine-tuned')
    >>> candidate_method("bert-co-training")  # of the ensemble only
    ''
    """
    if name in LINEAR_METHODS:
        return name
    if name.endswith(encoder_co_training_name("")):
        return ""
    return LINEAR_PROBE if name.endswith(linear_probe_name("")) else FINE_TUNED


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
