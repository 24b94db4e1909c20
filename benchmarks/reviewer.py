"""A classifier of reviews as the rows of `make bench` fine-tune it: eight a step, 256 tokens at most, one epoch."""

from __future__ import annotations

from typing import Any

from timing import clocks, since

ROWS, RATE, MOST = 8, 5e-5, 256
NAMES = ("neg", "pos")


def trained(body: Any, sequences: Any, targets: list[int], seed: int) -> tuple[Any, dict[str, float]]:
    """A classifier on a pretrained body after an epoch, and the seconds of that."""
    import torch

    from textgraft import Settings
    from textgraft.data.labels import Labels
    from textgraft.data.streams.base import ExampleStream
    from textgraft.tasks.classification.training import Plan, new_classifier
    from textgraft.training.loop import Run
    from textgraft.training.phases import Phase, Stage

    pad_id = body.tokenizer.pad_id
    stage = Stage((Phase("all", 1, RATE, schedule="linear", weight_decay=0.0, betas=(0.9, 0.999)),), ROWS, clip=1.0)
    settings = Settings().of(stage)
    model = new_classifier(Plan(body.model, False, stage, settings, Labels("single", NAMES), None, pad_id), seed)
    start = clocks()
    stream = ExampleStream(sequences, torch.tensor(targets), pad_id=pad_id, rows=ROWS, seed=seed)
    run = Run(model, stage.plan(len(model.layer_groups()), stream.length(0)), stream, settings)
    for _ in run.steps():
        pass
    return model, since(start)


def multiplied(model: Any) -> int:
    """Weights that every token is multiplied by: matrices, but for tables."""
    import torch

    linear = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    return sum(module.weight.numel() for module in linear if module.weight.shape[0] > 16)
