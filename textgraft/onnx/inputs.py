"""The inputs of a graph, and its encoder's operators over them."""

from __future__ import annotations

from textgraft.encoders.base import Encoder
from textgraft.encoders.bert import BERT
from textgraft.onnx.encoders import ENCODERS, SEGMENTS, SPELLINGS, Read
from textgraft.onnx.graph import Graph

PLACES = ("batch", "length")


def new_graph(encoder: Encoder, **inputs: tuple[str, str]) -> tuple[Graph, Read]:
    """A graph of what every head gets of an encoder, with further inputs of integers by their shapes."""
    numbers = {"ids": PLACES, **inputs}
    if isinstance(encoder, BERT) and encoder.segments is not None:
        numbers[SEGMENTS] = PLACES
    if encoder.uses_characters:
        numbers[SPELLINGS] = ("distinct", "characters")
    graph = Graph({"mask": ("bool", PLACES)} | {name: ("int64", shape) for name, shape in numbers.items()})
    return graph, ENCODERS[type(encoder)](graph, encoder, "ids", "mask")


def longest(encoder: Encoder, tokens: int) -> int:
    """As many tokens as an encoder takes, `tokens` at most."""
    return min(tokens, encoder.max_length or tokens)
