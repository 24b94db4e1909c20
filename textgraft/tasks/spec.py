"""Specification of a task in one place: its heads, metrics, predictor, exporter and service."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TaskSpec:
    """A task by the names of its parts, which are imported on first use (core.lazy.resolve).

    Args:
        name: The task in a word or two, as the service and messages call it.
        heads: The heads of its networks, as models.model.HEADS names them.
        stage: The value of "stage" in run.json of a model trained for it.
        metrics: The metrics of its results, the headline first.
        description: What such a model does, as a clause: "it tags words".
        remedy: The remedy in messages where such a model is given in place of another.
        missing: Message and remedy where a model for this task is required and another one is given.
        predictor: "module:callable" from opened models (models.loading.OpenedModels) to the predictor; None for a task
            without one.
        graph: "module:class" of the ONNX graph that ONNX Runtime runs; None where there is no exporter.
        exporter: "module:function" from an Artifact to such a graph.
        graph_difference: "module:function", the largest difference between a network's outputs and its graph's.
        graph_outputs: "module:function" from a graph and texts to predictions and scores, to evaluate int8.
        service: "module:class" of the HTTP service over the predictor.
    """

    name: str
    heads: tuple[str, ...]
    stage: str
    metrics: tuple[str, ...]
    description: str
    remedy: str
    missing: tuple[str, str] = ("", "")
    predictor: str | None = None
    graph: str | None = None
    exporter: str | None = None
    graph_difference: str | None = None
    graph_outputs: str | None = None
    service: str | None = None
    service_options: dict[str, int] = field(default_factory=dict)
