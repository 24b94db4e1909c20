"""The service of a model's task."""

from __future__ import annotations

from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.models import loading
from textgraft.tasks.registry import task_of
from textgraft.tasks.service import Service


def open_service(model: str | Path, *, precision: str = "auto", device: str = "cpu") -> Service:
    """Open the service over the predictor of a model: a classifier or an ensemble of them, a tagger, a QA model.

    Raises UserError for a model whose task has no service, and as loading.load does.
    """
    models = loading.open_models(model, device=device)
    task = task_of(models.head_name)
    if task.service is None:
        raise UserError(f"this model cannot be served: {task.description}.", where=str(model), remedy=task.remedy)
    predictor = loading.predictor_of(models, precision=precision, **task.service_options)
    service: Service = resolve(task.service)(predictor)
    return service
