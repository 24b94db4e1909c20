"""Fine-tuning MiniLM on film reviews for an epoch: eight a step, 256 tokens each at most, rate 5e-5 falling to 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from reviewer import MOST, NAMES, multiplied, trained
from timing import clocks, since

ROW = Row(
    title="fine-tune MiniLM on reviews, real tokens/s",
    peer="Hugging Face Trainer",
    environment="huggingface",
    measures={"speed": Measure("tokens/s", 1.7, 2.5), "memory": Measure("MB", 1 / 0.7, 1 / 0.4)},
    quality=Quality("held-out loss", "lower", 0.005),
    means="texts of like length together, so that little is padded; bfloat16 products where the processor has them",
)


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
    from textgraft.models.inference import predict_logits
    from textgraft.models.loading import load_network

    body = load_network(task["body"])
    sequences, _ = encode_texts(body.tokenizer, task["texts"], MOST)
    held, _ = encode_texts(body.tokenizer, task["held"], MOST)
    tokens = sum(map(len, sequences))

    def turn(number: int) -> Turn:
        model, spent = trained(body, sequences, task["labels"], number)
        logits = torch.from_numpy(predict_logits(model, held, body.tokenizer.pad_id, "fp32"))
        loss = float(cross_entropy(logits, torch.tensor(task["held_labels"])))
        return {"speed": {"units": tokens, **spent, "flop": tokens * 6 * multiplied(model)}, "quality": loss}

    return turn
