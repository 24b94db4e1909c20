"""The language models of a fine-tuning, and their names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import find, is_checkpoint_name, models_of


@dataclass(frozen=True)
class Source:
    """A language model and its place: a folder, or the name of a bundled model."""

    place: str
    model: Artifact


def language_models(model: str | Path) -> dict[str, Source]:
    """Load the models of MODEL or MODEL+MODEL, by the names of their classifiers in tables.

    A name is that of the method, with "-backward" for a model from right to left, and with a number from the second
    model of the same name on.

    Raises:
        UserError: As `models_of`, or one is no model.
    """
    sources = [Source(place, loading.load_network(place)) for place in models_of(model)]
    names = outcome_names([source.model for source in sources])
    return dict(zip(names, sources, strict=True))


def validate_names(model: str | Path | None) -> None:
    """Raise UserError for the name of a model that does not exist, where no model is needed.

    A search over methods may name one for all of them. Checkpoints of other libraries are not looked for.
    """
    for name in models_of(model) if model is not None else ():
        if not is_checkpoint_name(name):
            find(name)


def outcome_names(models: Collection[Artifact]) -> list[str]:
    """The names of the classifiers that are fine-tuned from each model."""
    methods = [_method(model) for model in models]
    earlier = [methods[:i].count(name) for i, name in enumerate(methods)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(methods, earlier, strict=True)]


def _method(model: Artifact) -> str:
    encoder = model.model.encoder
    return f"{encoder.method}-backward" if encoder.direction == "right" else encoder.method


def adapted_path(out: Path, name: str, among: Collection[str]) -> Path:
    """The folder of the adapted language model `name`, beside OUT: OUT.lm, or OUT.NAME.lm if there are several."""
    return out.with_name(f"{out.name}.lm" if len(among) == 1 else f"{out.name}.{name}.lm")
