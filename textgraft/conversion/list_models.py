"""`textgraft.list_models`: the bundled models and published ones worth knowing, and which of them are here."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from textgraft.conversion.fetch import can_open
from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.json_text import parse
from textgraft.models import catalogue, model_folder

Place = Literal["bundled", "installed", "in cache", "not here"]
BUNDLED_TASKS = {
    "vectors": ("tagging", "embedding"),
    "bert": ("classification", "tagging", "qa", "embedding"),
    "gpt": ("classification", "embedding", "generation"),
    "awd_lstm": ("classification", "tagging", "embedding", "generation"),
}
"""Tasks of bundled models by their family."""
OTHER_BUNDLED_TASKS = ("tagging", "embedding")
MEGA = 1_000_000


@dataclass(frozen=True, repr=False)
class ListedModel(Brief):
    """A model that can be named, here or not.

    Attributes:
        name: Its name, for `--model` and `fetch`.
        place: "bundled", "installed" (a package), "in cache" (the user's Hugging Face cache) or "not here".
        path: Its folder; None if it is not here.
        command: The command that gets it; empty if it is here, or cannot be opened.
        hub: OWNER/MODEL on huggingface.co; empty for bundled ones.
        parameters: Number of parameters; of published models rounded to millions.
        megabytes: Size of the weights (of bundled models, the folder); None where unknown.
        languages: ISO 639 codes.
        licence: Empty where its card states none.
        tasks: Some of models.catalogue.TASKS.
        suits: What it is good for.
        can_open: False if this version cannot open models of its type.
        is_static: True for word vectors, which are no language model.
    """

    name: str
    place: Place
    path: Path | None
    command: str
    hub: str
    parameters: int | None
    megabytes: float | None
    languages: tuple[str, ...]
    licence: str
    tasks: tuple[str, ...]
    suits: str
    can_open: bool
    is_static: bool = False


def list_models(name: str = "", *, language: str = "", task: str = "") -> list[ListedModel]:
    """List the bundled models, then published ones.

    Args:
        name: Only this one.
        language: Only those that know this language (an ISO 639 code such as "th").
        task: Only those for this task: classification, tagging, qa, embedding or generation.

    Returns:
        The models.

    Raises:
        UserError: There is no such name or task, or no model knows the language.

    Example:
        >>> [model.hub for model in list_models("bge-small")]
        ['BAAI/bge-small-en-v1.5']
    """
    if task and task not in catalogue.TASKS:
        raise UserError(f"no task '{task}'.", where="task", remedy=did_you_mean(task, catalogue.TASKS))
    models = [_bundled(one) for one in model_folder.names()] + [_published(one) for one in catalogue.CATALOGUE]
    if name:
        entry = catalogue.find(name.removeprefix(model_folder.TRANSFORMERS))
        names = [model.name for model in models]
        models = [model for model in models if model.name in (name, entry.name if entry else name)]
        if not models:
            raise UserError(f"no model '{name}' is known.", remedy=did_you_mean(name, names))
    if language and not any(language in model.languages for model in models):
        known = sorted({code for model in models for code in model.languages})
        remedy = f"Give an ISO 639 code, such as en or th; known are {' '.join(known)}."
        raise UserError(f"no model here knows the language '{language}'.", where="language", remedy=remedy)
    return [
        model for model in models if (not language or language in model.languages) and (not task or task in model.tasks)
    ]


def _bundled(name: str) -> ListedModel:
    folder = model_folder.find(name)
    run: dict[str, Any] = parse((folder / "run.json").read_text(encoding="utf-8"))
    config = parse((folder / "config.json").read_text(encoding="utf-8"))
    family = "vectors" if "vectors" in config else config["encoder"]["name"]
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return ListedModel(
        name,
        "bundled",
        folder,
        command="",
        hub="",
        parameters=run.get("parameters"),
        megabytes=round(size / MEGA, 1),
        languages=(run["language"],) if run.get("language") else (),
        licence=str(run.get("licence") or ""),
        tasks=BUNDLED_TASKS.get(family, OTHER_BUNDLED_TASKS),
        suits=str(run.get("description") or ""),
        can_open=True,
        is_static="vectors" in config,
    )


def _in_package(entry: catalogue.KnownModel) -> Path | None:
    """The folder of a model in an installed package; None, with a warning, where the package is damaged."""
    try:
        return catalogue.in_package(entry)
    except UserError as error:
        warnings.warn(f"the package of '{entry.name}' is damaged: {error}", stacklevel=4)
        return None


def _published(entry: catalogue.KnownModel) -> ListedModel:
    packaged, cached = _in_package(entry), catalogue.in_cache(entry)
    opens = can_open(entry.model_type)
    place: Place = "installed" if packaged else "in cache" if cached else "not here"
    return ListedModel(
        entry.name,
        place,
        packaged or cached,
        command=catalogue.fetch_command(entry) if opens and place == "not here" else "",
        hub=entry.hub,
        parameters=entry.parameters * MEGA,
        megabytes=entry.megabytes,
        languages=entry.languages,
        licence=entry.licence,
        tasks=entry.tasks,
        suits=entry.suits,
        can_open=opens,
    )
