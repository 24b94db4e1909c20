"""Fine-tuning MiniLM on film reviews for an epoch: eight a step, 256 tokens each at most, rate 5e-5 falling to 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from timing import clocks, since

ROW = Row(
    title="fine-tune MiniLM on reviews, real tokens/s",
    peer="Hugging Face Trainer",
    environment="huggingface",
    measures={"speed": Measure("tokens/s", 1.7, 2.5), "memory": Measure("MB", 1 / 0.7, 1 / 0.4)},
    quality=Quality("held-out loss", "lower", 0.005),
    means="texts of like length together, so that little is padded; bfloat16 products where the processor has them",
)
ROWS, RATE, MOST = 8, 5e-5, 256
NAMES = ("neg", "pos")


def prepare(given: Given) -> dict[str, Any]:
    texts, labels = given.reviews(given.size(240, 24))
    held, held_labels = given.reviews(given.size(200, 24), "test")
    return {
        "body": given.body,
        "theirs": None if given.smoke else str(given.plain),
        "texts": texts,
        "labels": [NAMES.index(label) for label in labels],
        "held": held,
        "held_labels": [NAMES.index(label) for label in held_labels],
    }


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    """Trainer with its defaults (rows, rate and schedule are these), which pads each batch to its longest."""
    import tempfile

    import torch
    from datasets import Dataset
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(task["theirs"])
    encoded = tokenizer(task["texts"], truncation=True, max_length=MOST)
    tokens = sum(map(len, encoded["input_ids"]))
    train = Dataset.from_dict({**encoded, "labels": task["labels"]})

    def turn(number: int) -> Turn:
        torch.manual_seed(number)
        model = AutoModelForSequenceClassification.from_pretrained(task["theirs"], num_labels=2)
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder, num_train_epochs=1, seed=number, use_cpu=True, report_to=[], disable_tqdm=True
            )
            trainer = Trainer(model, settings, train_dataset=train, processing_class=tokenizer)
            start = clocks()
            trainer.train()
            spent = since(start)
        model.eval()
        with torch.no_grad():
            logits = torch.cat(
                [
                    model(**tokenizer([text], truncation=True, max_length=MOST, return_tensors="pt")).logits
                    for text in task["held"]
                ]
            )
        loss = float(cross_entropy(logits, torch.tensor(task["held_labels"])))
        return {"speed": {"units": tokens, **spent, "flop": tokens * 6 * multiplied(model)}, "quality": loss}

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    """The loop that textgraft finetune trains by, without what it does beside that."""
    import torch
    from torch.nn.functional import cross_entropy

    from textgraft.data.sequences import encode_texts
    from textgraft.inference import predict_logits
    from textgraft.opening import load

    body = load(task["body"])
    sequences, _ = encode_texts(body.tokenizer, task["texts"], MOST)
    held, _ = encode_texts(body.tokenizer, task["held"], MOST)
    tokens = sum(map(len, sequences))

    def turn(number: int) -> Turn:
        model, spent = trained(body, sequences, task["labels"], number)
        logits = torch.from_numpy(predict_logits(model, held, body.tokenizer.pad_id, "fp32"))
        loss = float(cross_entropy(logits, torch.tensor(task["held_labels"])))
        return {"speed": {"units": tokens, **spent, "flop": tokens * 6 * multiplied(model)}, "quality": loss}

    return turn


def trained(body: Any, sequences: Any, targets: list[int], seed: int) -> tuple[Any, dict[str, float]]:
    """A classifier on a pretrained body after an epoch, and the seconds of that."""
    import torch

    from textgraft import Settings
    from textgraft.data.labels import Labels
    from textgraft.data.stream import ExampleStream
    from textgraft.training.classifier import Plan, new_classifier
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
