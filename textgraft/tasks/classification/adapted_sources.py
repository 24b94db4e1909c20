"""Language models of a fine-tuning that are adapted to its unlabelled texts when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.first_fold import count_adaptation_tokens
from textgraft.tasks.classification.sources import Source, adapted_path
from textgraft.tasks.language_modeling.adapt import adapt, validate_adapt
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings


@dataclass(frozen=True)
class Adapted:
    """Language models adapted on demand and saved beside `out`, the folder of the fine-tuning.

    Attributes:
        out: The output of the fine-tuning.
        texts: Unlabelled texts.
        sources: The language models, by name.
        recipe: Name of the recipe.
        settings: Of the adaptation.
        context: Progress, and whether a folder may be replaced.
        folders: Folders of the models that have been adapted so far.
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

    def validate(self) -> None:
        """Raise the UserError that `adapt` would raise, such as TooFewTexts."""
        for name, source in self.sources.items():
            overwrite = self.context.overwrite
            folder = self._folder(name)
            validate_adapt(self.texts, folder, source.place, self.recipe, self.settings, overwrite=overwrite)

    def tokens(self, name: str) -> float:
        """Estimated number of tokens that the language model is adapted on."""
        source = self.sources[name].model
        stage = load_recipe(source.recommended_recipe(self.recipe)).adapt
        return count_adaptation_tokens(self.texts, source, stage, self.settings.minutes)

    def __call__(self, name: str) -> Artifact:
        """The adapted language model, trained now or loaded from the folder of an earlier call."""
        folder, place = self._folder(name), self.sources[name].place
        options: dict[str, Any] = {"recipe": self.recipe, "settings": self.settings, "context": self.context}
        adapt(self.texts, folder, model=place, reuse=True, **options)
        self.folders[name] = folder
        return loading.load_network(folder)

    def _folder(self, name: str) -> Path:
        return adapted_path(self.out, name, self.sources)
