"""Word vectors over a corpus's own tokens, to start a language model's embedding table from.

Static vectors learn what words mean a hundred times faster than a language model does: skip-gram reads a million
tokens a second here, an LSTM six thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.data.streams.base import TokenSource
from textgraft.models.model import Model

SENTENCE = 1000  # tokens; gensim cuts longer ones


def gensim_word2vec() -> Any:
    """Gensim's Word2Vec. Raises UserError where gensim is not installed: to be asked before any long work."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise UserError(
            "starting from word vectors needs gensim.",
            remedy="Install it (pip install 'textgraft[vectors]') or set token_vectors = 0 in the recipe.",
        ) from error
    return Word2Vec


def train_token_vectors(corpus: TokenSource, dim: int, vocab_size: int, *, tokens: int, seed: int = 0) -> np.ndarray:
    """(V, D) float32 skip-gram vectors of the corpus's token ids; a row of zeros for a token seen under five times.

    Mikolov et al. 2013 through gensim: window 5, five negative samples, sub-sampling at 1e-4, one epoch over `tokens`
    tokens taken in stretches from all over the corpus. One worker, so that the seed decides the result. Raises
    UserError where gensim is not installed.
    """
    word2vec = gensim_word2vec()
    sentences = _Sentences(corpus, tokens)
    model = word2vec(
        sentences, vector_size=dim, window=5, min_count=5, sg=1, negative=5, sample=1e-4, workers=1, epochs=1, seed=seed
    )
    vectors = np.zeros((vocab_size, dim), dtype=np.float32)
    for word in model.wv.index_to_key:
        vectors[int(word)] = model.wv[word]
    return vectors


class _Sentences:
    """Stretches of SENTENCE token ids as strings, evenly spread over the corpus; can be read twice, as gensim does."""

    def __init__(self, corpus: TokenSource, tokens: int) -> None:
        self.corpus = corpus
        self.step = max(1, corpus.num_tokens // max(1, tokens)) * SENTENCE

    def __iter__(self) -> Iterator[list[str]]:
        for start in range(0, self.corpus.num_tokens, self.step):
            yield [str(i) for i in self.corpus.read(start, min(start + SENTENCE, self.corpus.num_tokens)).tolist()]


def cached_token_vectors(
    path: Path, corpus: TokenSource, dim: int, vocab_size: int, *, tokens: int, seed: int
) -> np.ndarray:
    """The vectors of `train_token_vectors`, from `path` if an earlier run left them there."""
    if not path.exists():
        vectors = train_token_vectors(corpus, dim, vocab_size, tokens=tokens, seed=seed)
        write_atomically(path, vectors.tobytes())
    return np.frombuffer(path.read_bytes(), dtype=np.float32).reshape(vocab_size, dim).copy()


def only_table(model: Model) -> nn.Parameter:
    """The model's embedding table (V, D). Raises UserError where rare tokens have tables of their own."""
    table = model.encoder.tied()
    if not isinstance(table, nn.Parameter):
        message = "an adaptive embedding has several tables, which cannot start from word vectors."
        raise UserError(message, where="token_vectors", remedy="Set token_vectors = 0 in the recipe, or no cutoffs.")
    return table


def start_from_vectors(model: Model, vectors: np.ndarray) -> int:
    """Put word vectors (V, D) into the embedding table, centred and scaled to the table's own deviation.

    Rows of zeros mean "unknown" and leave the table as it is. Returns how many rows were set. Raises UserError where
    shapes differ, and for an embedding of several tables.
    """
    table = only_table(model).data
    if tuple(table.shape) != vectors.shape:
        raise UserError(f"the word vectors are {vectors.shape}, and the embedding table is {tuple(table.shape)}.")
    values = torch.from_numpy(vectors)
    known = values.abs().sum(dim=1) > 0
    centred = values[known] - values[known].mean(dim=0)
    table[known] = centred * (table.std() / centred.std())
    return int(known.sum())
