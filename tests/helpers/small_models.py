"""Models and streams so small that a training run takes milliseconds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from textgraft.data.streams.base import ExampleStream
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.heads.auxiliary_language_model import AuxiliaryLanguageModel
from textgraft.models.model import Model, build, new_head

VOCAB = 30


class Tokens:
    """A corpus of random ids in memory, a document every 50."""

    def __init__(self, num_tokens: int = 1200) -> None:
        self.ids = np.random.default_rng(0).integers(0, VOCAB, num_tokens)
        self.num_tokens, self.document_starts = num_tokens, np.arange(0, num_tokens, 50)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop]


def language_model(**encoder: float) -> Model:
    shape = {"name": "awd_lstm", "vocab_size": VOCAB, "embedding_dim": 6, "hidden_dim": 8, "num_layers": 2, **encoder}
    head = {"name": "language_model", "vocab_size": VOCAB, "input_dim": 6, "output_layer": "full"}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build({"encoder": shape, "head": head})


def masked_language_model(num_layers: int = 2, width: int = 8, max_length: int = 16) -> Model:
    encoder = {"name": "bert", "vocab_size": VOCAB, "embedding_dim": width, "num_layers": num_layers, "num_heads": 2}
    encoder |= {"feed_forward_dim": 2 * width, "max_length": max_length}
    head = {"name": "masked_language_model", "vocab_size": VOCAB, "input_dim": width, "next_sentence": True}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build({"encoder": encoder, "head": head})


def masking_tokens() -> MaskingTokens:
    """Ids 0 to 3 are the marks, every other id from 20 on continues a word."""
    ids = np.arange(VOCAB)
    return MaskingTokens(0, 1, 2, 3, special=ids < 4, continues=(ids >= 20) & (ids % 2 == 0))


def pairs(rows: int = 8) -> MaskedStream:
    return MaskedStream(Tokens(), masking_tokens(), length=16, rows=rows, whole_words=True, pairs=True)


def classifier(dropout: float = 0.1, below: float | None = None) -> Model:
    """With `dropout` everywhere, or `below` in the encoder."""
    names = ("embedding_dropout", "input_dropout", "weight_dropout", "hidden_dropout")
    dropouts = dict.fromkeys(names, dropout if below is None else below)
    encoder = {"name": "awd_lstm", "vocab_size": VOCAB, "embedding_dim": 6, "hidden_dim": 8, "num_layers": 2}
    head = {"name": "classification", "input_dim": 6, "outputs": 2, "hidden_dim": 5}
    head |= {"input_dropout": dropout, "hidden_dropout": dropout}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build({"encoder": encoder | dropouts, "head": head})


def classifier_that_reads_on() -> Model:
    """The classifier with an auxiliary language model, its output tied to the table and with a bias of its own."""
    model = classifier()
    head = language_model().describe()["head"]
    model.auxiliary = AuxiliaryLanguageModel(new_head(head, model.encoder), 0.5, "left")  # type: ignore[arg-type]
    return model


def examples(count: int = 40, rows: int = 8, seed: int = 0) -> ExampleStream:
    generator = np.random.default_rng(0)
    sequences = [generator.integers(2, VOCAB, generator.integers(3, 12)) for _ in range(count)]
    targets = torch.tensor([int(s.sum() % 2) for s in sequences])
    return ExampleStream(sequences, targets, pad_id=1, rows=rows, seed=seed)


def copied(model: Model) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.values().items()}
