"""What a small GPT-2 writes after eight prompts, 64 tokens each, the likeliest every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given, converted
from race import Measure, Quality, Row, Turn
from timing import clocks, since

ROW = Row(
    title="generate after eight prompts, en-gpt-small",
    peer="transformers generate",
    environment="huggingface",
    measures={"speed": Measure("tokens/s", 1.3, 2), "memory": Measure("MB")},
    quality=Quality("texts alike", "same", 1.0),
    means="keys and values kept in place; logits of the last position alone",
)
MODEL = "en-gpt-small"


def prepare(given: Given) -> dict[str, Any]:
    texts, _ = given.reviews(8)
    prompts = [" ".join(text.split()[: 6 + 2 * n]) for n, text in enumerate(texts)]
    theirs = None if given.smoke else str(converted(MODEL, given.work / "gpt-theirs"))
    return {"theirs": theirs, "prompts": prompts, "tokens": given.size(64, 4)}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(task["theirs"], padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(task["theirs"]).eval()

    def turn(number: int) -> Turn:
        start = clocks()
        given = tokenizer(task["prompts"], return_tensors="pt", padding=True)
        found = model.generate(
            **given, max_new_tokens=task["tokens"], do_sample=False, pad_token_id=tokenizer.pad_token_id
        )
        new = found[:, given["input_ids"].shape[1] :]
        spent = since(start)
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        return {"speed": {"units": new.numel(), **spent}, "answers": texts}

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from textgraft import GenerateOptions
    from textgraft.generation.generation import generate, left_to_right

    model = left_to_right(MODEL, "cpu")
    options = GenerateOptions(max_tokens=task["tokens"])

    def turn(number: int) -> Turn:
        start = clocks()
        rows = generate(model, task["prompts"], options)
        spent = since(start)
        return {"speed": {"units": sum(len(row.ids) for row in rows), **spent}, "answers": [row.text for row in rows]}

    return turn
