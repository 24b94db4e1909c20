"""The method of the estimator that fits a candidate of the ensemble alone."""

from __future__ import annotations

from textgraft.linear.methods import LINEAR_METHODS
from textgraft.tasks.classification.encoder_candidates import encoder_co_training_name
from textgraft.tasks.classification.finetune_options import FINE_TUNED, LINEAR_PROBE
from textgraft.tasks.classification.label_names_candidate import label_names_name
from textgraft.tasks.classification.linear_probe import linear_probe_name


def candidate_method(name: str) -> str:
    """The method that fits a candidate alone; empty where there is none.

    >>> candidate_method("lsa"), candidate_method("gpt-probe"), candidate_method("gpt-backward")
    ('lsa', 'linear-probe', 'fine-tuned')
    >>> candidate_method("bert-co-training"), candidate_method("bert-label-names")  # of the ensemble only
    ('', '')
    """
    if name in LINEAR_METHODS:
        return name
    if name.endswith((encoder_co_training_name(""), label_names_name(""))):
        return ""
    return LINEAR_PROBE if name.endswith(linear_probe_name("")) else FINE_TUNED
