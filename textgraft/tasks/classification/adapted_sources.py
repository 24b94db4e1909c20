"""Language models of a fine-tuning that are adapted to its unlabelled texts when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.first_fold import tokens_to_read
from textgraft.tasks.classification.sources import Source, adapted_path
from textgraft.tasks.language_modeling.adapt import adapt, validate_adapt
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings


@dataclass(frozen=True)
class Adapted:
    """Adaptations of language models, made when they are needed and kept beside `out`, that of the fine-tuning.

    Attributes:
        out: The output of the fine-tuning.
        texts: Unlabelled texts.
        sources: The language models, by name.
        recipe: Name of the recipe.
        settings: Of the adaptation.
        context: Progress, and whether a folder may be replaced.
        folders: Where those lie that have been adapted by now.
    """

    out: Path
    texts: Sequence[str]
    sources: Mapping[str, Source]
    recipe: str
    settings: Settings
    context: RunContext
    folders: dict[str, Path] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """The recipe's stage and the settings of the adaptation."""
        return {"recipe": load_recipe(self.recipe).adapt.identity(), "settings": self.settings.identity()}

    def check(self) -> None:
        """Raises UserError for what `adapt` would refuse."""
        for name, source in self.sources.items():
            overwrite = self.context.overwrite
            folder = self._folder(name)
            validate_adapt(self.texts, folder, source.place, self.recipe, self.settings, overwrite=overwrite)

    def tokens(self, name: str) -> float:
        """An estimate of how many tokens the language model is to be trained on."""
        source = self.sources[name].model
        stage = load_recipe(source.recommended_recipe(self.recipe)).adapt
        return tokens_to_read(self.texts, source, stage, self.settings.minutes)

    def __call__(self, name: str) -> Artifact:
        """The adapted language model, trained now or taken from where an earlier call has left it."""
        folder, place = self._folder(name), self.sources[name].place
        options: dict[str, Any] = {"recipe": self.recipe, "settings": self.settings, "context": self.context}
        adapt(self.texts, folder, model=place, reuse=True, **options)
        self.folders[name] = folder
        return loading.load_network(folder)

    def _folder(self, name: str) -> Path:
        return adapted_path(self.out, name, self.sources)
