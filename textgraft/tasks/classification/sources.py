"""The language models that a fine-tuning grows from, and what they are called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import models_of


@dataclass(frozen=True)
class Source:
    """A language model and where it lies: a folder, or the name of a bundled one."""

    place: str
    model: Artifact


def language_models(model: str | Path) -> dict[str, Source]:
    """The models of MODEL or MODEL+MODEL, by what their classifiers are called where they stand beside others.

    That is the name of the method, with "-backward" for who reads from right to left, and with its number for who is
    not the first to be called so. Raises UserError as `models_of` does, and for what is no model.
    """
    sources = [Source(place, loading.load_network(place)) for place in models_of(model)]
    names = outcome_names([source.model for source in sources])
    return dict(zip(names, sources, strict=True))


def outcome_names(models: Collection[Artifact]) -> list[str]:
    """The names of the classifiers that are fine-tuned from each."""
    called = [_method(model) for model in models]
    before = [called[:i].count(name) for i, name in enumerate(called)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(called, before, strict=True)]


def _method(model: Artifact) -> str:
    encoder = model.model.encoder
    return f"{encoder.method}-backward" if encoder.direction == "right" else encoder.method


def adapted_path(out: Path, name: str, among: Collection[str]) -> Path:
    """Where the language model called `name` is kept once it has read the unlabelled texts, beside OUT.

    That is OUT.lm, or OUT.NAME.lm if it is not the only one `among` them.
    """
    return out.with_name(f"{out.name}.lm" if len(among) == 1 else f"{out.name}.{name}.lm")
