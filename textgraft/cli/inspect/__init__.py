"""textgraft inspect: experiments on the layers of models and on transfer, one file per verb."""

from __future__ import annotations

import typer

from textgraft.cli.groups import Verb, group_of
from textgraft.cli.inspect.geometry import geometry
from textgraft.cli.inspect.layers import layers
from textgraft.cli.inspect.ntm import ntm
from textgraft.cli.inspect.transfer import transfer
from textgraft.cli.inspect.weights import weights
from textgraft.cli.inspect.words import words

VERBS: tuple[Verb, ...] = (
    (
        "transfer",
        transfer,
        "textgraft inspect transfer train.csv --test test.csv --model en-ulmfit --seeds 3 --out transfer",
    ),
    ("words", words, "textgraft inspect words en-ulmfit wiki.jsonl --word bank --word mouse --out words"),
    ("geometry", geometry, "textgraft inspect geometry en-ulmfit wiki.jsonl --out geometry"),
    ("weights", weights, "textgraft inspect weights tagger entailment --out weights"),
    (
        "layers",
        layers,
        "textgraft inspect layers train.conll --test test.conll --model hf:bert-folder --out layers",
    ),
    ("ntm", ntm, "textgraft inspect ntm copy --out copy"),
)
"""Name, function and example of each verb, in the order of --help."""


def group() -> typer.Typer:
    """Return the group of commands `textgraft inspect`."""
    return group_of(VERBS, "Experiments on models and transfer: vectors, layers, transfer to your task.")
