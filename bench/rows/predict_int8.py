"""Labels of film reviews by the same graph with int8 weights, in padded batches and in ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from timing import clocks, since

ROW = Row(
    title="predict reviews by a MiniLM in int8",
    peer="ONNX Runtime, padded batches of 32",
    environment=None,
    measures={"speed": Measure("texts/s", 1.3, 2), "memory": Measure("MB")},
    quality=Quality("agreement", "same", 0.98),
    means="batches of so many tokens, sorted by length (inputs are quantised by the batch, so answers differ)",
)


def prepare(given: Given) -> dict[str, Any]:
    from dataclasses import replace

    from textgraft.tasks.export import graph_of

    from textgraft.models import loading
    from textgraft.models.model_folder import write_folder
    from textgraft.onnx.int8 import ALL, in_int8

    whole, folder = graph_of(loading.load_network(given.classifier)), given.work / "int8"
    write_folder(folder, replace(whole, graph=in_int8(whole.graph, ALL)).files())
    texts, _ = given.reviews(given.size(200, 20), "test")
    return {"graph": str(folder), "texts": texts}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    """The runtime's session and Hugging Face's tokenizers, texts as they come."""
    import json

    import numpy as np
    import onnxruntime

    from textgraft.data.sequences import encode_texts
    from textgraft.tasks.classification.predictor import load_classifier

    (member,) = load_classifier(task["graph"]).members
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task["threads"]
    session = onnxruntime.InferenceSession(Path(task["graph"], "model.onnx"), options)
    names = json.loads(Path(task["graph"], "labels.json").read_text("utf-8"))["names"]

    def turn(number: int) -> Turn:
        start, answers = clocks(), []
        for first in range(0, len(task["texts"]), 32):
            rows, _ = encode_texts(member.tokenizer, task["texts"][first : first + 32], 512)
            ids = np.full((len(rows), max(map(len, rows))), member.tokenizer.pad_id, dtype=np.int64)
            mask = np.zeros(ids.shape, dtype=bool)
            for line, there, row in zip(ids, mask, rows, strict=True):
                line[: len(row)], there[: len(row)] = row, True
            given = {"ids": ids, "mask": mask, "segments": np.zeros_like(ids)}
            wanted = {value.name: given[value.name] for value in session.get_inputs()}
            answers += [names[i] for i in session.run(None, wanted)[0].argmax(1)]
        return {"speed": {"units": len(answers), **since(start)}, "answers": answers}

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from textgraft.tasks.classification.predictor import load_classifier

    model = load_classifier(task["graph"])

    def turn(number: int) -> Turn:
        start = clocks()
        answers = [said.label for said in model.predict(task["texts"])]
        return {"speed": {"units": len(answers), **since(start)}, "answers": answers}

    return turn
