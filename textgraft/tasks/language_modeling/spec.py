"""Specification of the language-modelling task."""

from __future__ import annotations

from textgraft.tasks.spec import TaskSpec

LANGUAGE_MODELING = TaskSpec(
    name="language modelling",
    heads=("language_model", "masked_language_model", "bidirectional_language_model", "replaced_tokens", "features"),
    stage="pretrain",
    metrics=("bits_per_character", "perplexity", "loss"),
    description="it is a language model",
    remedy="Fine-tune it first (textgraft finetune).",
)
