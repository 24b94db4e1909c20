"""Language models of a fine-tuning that read its unlabelled texts, once they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.artifact import Artifact
from textgraft.ensemble import load_one
from textgraft.stages.adapt import adapt, check_adapt
from textgraft.stages.first_fold import tokens_to_read
from textgraft.training.loop import Settings
from textgraft.training.recipes import load_recipe


def language_model_path(out: Path, direction: str) -> Path:
    """Where the language model that reads forward or backward is kept once it has read the unlabelled texts."""
    return out.with_name(out.name + {"forward": ".lm", "backward": ".backward.lm"}[direction])


@dataclass(frozen=True)
class Adapted:
    """What `adapt` is told of each direction's model, and where its work lies: beside `out`, that of the fine-tuning.

    Called with a direction, gives the model that has read the texts. `folders` are those that have been asked for.
    """

    out: Path
    texts: Sequence[str]
    models: Mapping[str, str | Path]
    recipe: str
    settings: Settings
    overwrite: bool = False
    show: bool = True
    folders: dict[str, Path] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return f"{load_recipe(self.recipe).adapt.identity} {self.settings!r}"

    def check(self) -> None:
        """Raises UserError for what `adapt` would refuse."""
        about: Any = {"recipe": self.recipe, "settings": self.settings, "overwrite": self.overwrite}
        for direction, model in self.models.items():
            check_adapt(self.texts, language_model_path(self.out, direction), model=model, **about)

    def tokens(self, source: Artifact) -> float:
        """About how many tokens it is to read, `source` being the model."""
        stage = load_recipe(source.suited(self.recipe)).adapt
        return tokens_to_read(self.texts, source, stage, self.settings.minutes)

    def __call__(self, direction: str) -> Artifact:
        """Read now, or taken from where an earlier call has left it."""
        folder = language_model_path(self.out, direction)
        about: Any = {"recipe": self.recipe, "settings": self.settings, "overwrite": self.overwrite}
        adapt(self.texts, folder, model=self.models[direction], **about, reuse=True, show=self.show)
        self.folders[direction] = folder
        return load_one(folder)
