"""Language models of a fine-tuning that read its unlabelled texts, once they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.core.identity import identity_text
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.first_fold import tokens_to_read
from textgraft.tasks.classification.sources import Source, adapted_path
from textgraft.tasks.language_modeling.adapt import adapt, check_adapt
from textgraft.training.loop import Settings
from textgraft.training.recipes import load_recipe


@dataclass(frozen=True)
class Adapted:
    """What `adapt` is told of each language model, and where its work lies: beside `out`, that of the fine-tuning.

    Called with a model's name, gives the model that has read the texts. `folders` are those that have been asked for.
    """

    out: Path
    texts: Sequence[str]
    sources: Mapping[str, Source]
    recipe: str
    settings: Settings
    overwrite: bool = False
    show: bool = True
    folders: dict[str, Path] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return identity_text([load_recipe(self.recipe).adapt.identity(), repr(self.settings)])

    def check(self) -> None:
        """Raises UserError for what `adapt` would refuse."""
        for name in self.sources:
            check_adapt(self.texts, self._folder(name), **self._asked(name))

    def tokens(self, name: str) -> float:
        """About how many tokens it is to read."""
        source = self.sources[name].model
        stage = load_recipe(source.recommended_recipe(self.recipe)).adapt
        return tokens_to_read(self.texts, source, stage, self.settings.minutes)

    def __call__(self, name: str) -> Artifact:
        """Read now, or taken from where an earlier call has left it."""
        folder = self._folder(name)
        adapt(self.texts, folder, **self._asked(name), reuse=True, show=self.show)
        self.folders[name] = folder
        return loading.load_network(folder)

    def _folder(self, name: str) -> Path:
        return adapted_path(self.out, name, self.sources)

    def _asked(self, name: str) -> dict[str, Any]:
        place = self.sources[name].place
        return {"model": place, "recipe": self.recipe, "settings": self.settings, "overwrite": self.overwrite}
