"""TaskSpec of word tagging: heads, metrics, predictor, exporter and service by name."""

from __future__ import annotations

from textgraft.tasks.spec import TaskSpec

HERE = "textgraft.tasks.tagging"
TAGGING = TaskSpec(
    name="tagging",
    heads=("tagging",),
    stage="tag",
    metrics=("f1", "precision", "recall", "accuracy"),
    description="it tags words",
    remedy="Use it with textgraft tag.",
    missing=("this model does not tag words", "Make one with textgraft tag finetune."),
    predictor=f"{HERE}.predictor:Tagger.of",
    graph=f"{HERE}.graph:OnnxTagger",
    exporter=f"{HERE}.onnx_export:graph_of",
    graph_difference=f"{HERE}.onnx_export:difference",
    graph_outputs=f"{HERE}.onnx_export:outputs",
    service=f"{HERE}.service:TaggingService",
)
