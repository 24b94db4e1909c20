"""The tasks, and the task of a model by its head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.tasks.classification.spec import CLASSIFICATION
from textgraft.tasks.language_modeling.spec import LANGUAGE_MODELING
from textgraft.tasks.question_answering.spec import QUESTION_ANSWERING
from textgraft.tasks.spec import TaskSpec
from textgraft.tasks.tagging.spec import TAGGING
from textgraft.tasks.translation.spec import TRANSLATION

if TYPE_CHECKING:
    from textgraft.models.artifact import Predictor

WORD_VECTORS = TaskSpec(
    name="word vectors",
    heads=("vectors",),
    stage="vectors",
    metrics=("spearman", "accuracy"),
    description="it holds word vectors",
    remedy="Use it with textgraft vectors and embed.",
)
TASKS: tuple[TaskSpec, ...] = (
    CLASSIFICATION,
    TAGGING,
    QUESTION_ANSWERING,
    TRANSLATION,
    LANGUAGE_MODELING,
    WORD_VECTORS,
)
BY_HEAD: dict[str, TaskSpec] = {head: task for task in TASKS for head in task.heads}


def task_of(head: str) -> TaskSpec:
    """The task of a head's name (models.artifact.Predictor.head_name)."""
    return BY_HEAD[head]


def validate_task(task: TaskSpec, head: str, *, where: str = "") -> None:
    """Raise UserError where a model with this head was trained for another task, saying for which."""
    if head not in task.heads:
        message, remedy = task.missing
        raise UserError(f"{message}: {task_of(head).description}.", where=where, remedy=remedy)


def open_model_of(task: TaskSpec, name: str | Path) -> Predictor:
    """Open a folder or name of a model for a task.

    Raises:
        UserError: It was trained for another task, which is said before that it is an ensemble or no network; or as
            `loading.open_model`.
    """
    models = loading.open_models(name)
    validate_task(task, models.head_name, where=str(name))
    return models.members[0]
