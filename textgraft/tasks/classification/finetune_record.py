"""The record of a fine-tuning, as in run.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from textgraft.data.examples import reads
from textgraft.models import loading
from textgraft.tasks.classification.evaluation import Comparison
from textgraft.tasks.classification.fine_tuned import (
    Member,
)
from textgraft.tasks.classification.finetune_options import FINE_TUNED
from textgraft.tasks.classification.finetune_setup import FinetuneSetup
from textgraft.tasks.classification.ladder import candidate_names
from textgraft.tasks.classification.linear_candidates import WITHOUT_LANGUAGE_MODEL
from textgraft.tasks.classification.model_selection import WeightedEnsemble
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.settings import Settings


def run_record(out: Path, setup: FinetuneSetup, comparison: Comparison) -> dict[str, Any]:
    """run.json without the keys that differ between members."""
    folders = setup.adapted.folders if setup.adapted is not None else {}
    name = next(iter(setup.readings), "")  # the members of an ensemble also have a run.json each
    base = _run_of(setup, name, folders)
    options, labels, texts = setup.options, setup.selection.labels, setup.data["train"]["texts"]
    about: dict[str, Any] = {"data": setup.data, "settings": _settings_of(setup, name)}
    shared = provenance(stage="finetune", name=out.name, base=base, recipe=setup.recipe, **about)
    return shared | {
        "method": options.method if options.selects else FINE_TUNED,
        "reads": reads(setup.selection.train.texts),
        "labels": texts,
        "classes": list(labels.names),
        "kind": labels.kind,
        "seeds": options.seeds,
        "from_scratch": options.from_scratch,
        "max_tokens": options.max_tokens,
        "layer_aggregation": options.layer_aggregation,
        "tokens_lost": {part: truncation.share for part, truncation in setup.cut.items()},
        "evaluation_split": setup.training_config.evaluation_split,
        "results": comparison.results(labels=texts, seeds=options.seeds),
    }


def _run_of(setup: FinetuneSetup, name: str, folders: Mapping[str, Path]) -> dict[str, Any]:
    """run.json of a language model, the adapted one if it was adapted; empty without a language model."""
    if not name:
        return {}
    return loading.load_network(folders[name]).run if name in folders else setup.readings[name].source.run


def _settings_of(setup: FinetuneSetup, name: str) -> Settings:
    """The settings as a language model's recipe has them; the given ones without a language model."""
    settings = setup.options.settings
    return settings.of(setup.stages[name]) if name else settings


def choice_record(choice: WeightedEnsemble | None, names: Collection[str]) -> dict[str, Any]:
    """The choice as in run.json; the keys about a language model are emptied if it has no weight."""
    if choice is None:
        return {}
    of_language_models = set().union(*map(candidate_names, names))
    return {"ensemble": choice.record()} | (
        {} if of_language_models & {c.name for c in choice.kept} else WITHOUT_LANGUAGE_MODEL
    )


def member_record(member: Member, first_seed: int) -> dict[str, Any]:
    """The part of run.json that differs between members."""
    return {
        "base": ancestry(member.source.run),
        "temperature": member.temperature,
        "seed_kept": first_seed + member.best,
        "history": member.runs[member.best].history,
    }
