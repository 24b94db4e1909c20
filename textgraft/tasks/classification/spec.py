"""TaskSpec of classification and regression of texts, pairs and options: heads, predictor, service by name."""

from __future__ import annotations

from textgraft.tasks.spec import TaskSpec

HERE = "textgraft.tasks.classification"
CLASSIFICATION = TaskSpec(
    name="classification",
    heads=("classification", "choice"),
    stage="finetune",
    metrics=("accuracy", "macro_f1"),
    description="it classifies texts",
    remedy="Use it with textgraft predict and evaluate.",
    missing=("this model has no labels", "Fine-tune it first (textgraft finetune)."),
    predictor=f"{HERE}.predictor:Classifier.of",
    graph=f"{HERE}.graph:OnnxClassifier",
    exporter=f"{HERE}.onnx_export:graph_of",
    graph_difference=f"{HERE}.onnx_export:difference",
    graph_outputs=f"{HERE}.onnx_export:outputs",
    service=f"{HERE}.service:ClassificationService",
)
