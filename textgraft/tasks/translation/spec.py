"""Specification of the translation task."""

from __future__ import annotations

from textgraft.tasks.spec import TaskSpec

TRANSLATION = TaskSpec(
    name="translation",
    heads=("translation",),
    stage="cove",
    metrics=("bleu",),
    description="it translates",
    remedy="Use it with textgraft cove.",
    missing=("this model does not translate", "Make one with textgraft cove train."),
    predictor="textgraft.tasks.translation.predictor:Translator.of",
)
