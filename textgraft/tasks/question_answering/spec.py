"""TaskSpec of extractive question answering: heads, metrics, predictor, exporter and service by name."""

from __future__ import annotations

from textgraft.tasks.spec import TaskSpec

HERE = "textgraft.tasks.question_answering"
QUESTION_ANSWERING = TaskSpec(
    name="question answering",
    heads=("span",),
    stage="qa",
    metrics=("f1", "exact_match"),
    description="it answers questions about texts",
    remedy="Use it with textgraft qa.",
    missing=("this model does not answer questions", "Make one with textgraft qa finetune."),
    predictor=f"{HERE}.predictor:QAModel.of",
    graph=f"{HERE}.graph:OnnxSpanModel",
    exporter=f"{HERE}.onnx_export:graph_of",
    graph_difference=f"{HERE}.onnx_export:difference",
    service=f"{HERE}.service:QuestionAnsweringService",
    service_options={"n_best": 20},
)
