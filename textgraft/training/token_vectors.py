"""Static vectors of a corpus's tokens, to initialize a language model's embedding table.

Static vectors are trained a hundred times faster than a language model: skip-gram takes a million tokens a second, an
LSTM six thousand.
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
    """Import gensim's Word2Vec; call it before any long computation.

    Raises:
        UserError: gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise UserError(
            "initializing from word vectors needs gensim.",
            remedy="Install it (pip install 'textgraft[vectors]') or set token_vectors = 0 in the recipe.",
        ) from error
    return Word2Vec


def train_token_vectors(corpus: TokenSource, dim: int, vocab_size: int, *, tokens: int, seed: int = 0) -> np.ndarray:
    """Train skip-gram vectors of a corpus's token ids.

    Mikolov et al. 2013 through gensim: window 5, five negative samples, sub-sampling at 1e-4, one epoch. One worker, so
    that the result depends on the seed alone.

    Args:
        corpus: The tokens.
        dim: D, the dimension of the vectors.
        vocab_size: V.
        tokens: Number of tokens to train on, in contiguous parts spread evenly over the corpus.
        seed: Of the training.

    Returns:
        (V, D) float32; a row of zeros for a token that occurs fewer than five times.

    Raises:
        UserError: gensim is not installed.
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
    """Parts of SENTENCE token ids as strings, spread evenly over the corpus; gensim iterates over them twice."""

    def __init__(self, corpus: TokenSource, tokens: int) -> None:
        self.corpus = corpus
        self.step = max(1, corpus.num_tokens // max(1, tokens)) * SENTENCE

    def __iter__(self) -> Iterator[list[str]]:
        for start in range(0, self.corpus.num_tokens, self.step):
            yield [str(i) for i in self.corpus.read(start, min(start + SENTENCE, self.corpus.num_tokens)).tolist()]


def cached_token_vectors(
    path: Path, corpus: TokenSource, dim: int, vocab_size: int, *, tokens: int, seed: int
) -> np.ndarray:
    """The vectors of `train_token_vectors` (V, D), from the file `path`, which the first call writes."""
    if not path.exists():
        vectors = train_token_vectors(corpus, dim, vocab_size, tokens=tokens, seed=seed)
        write_atomically(path, vectors.tobytes())
    return np.frombuffer(path.read_bytes(), dtype=np.float32).reshape(vocab_size, dim).copy()


def embedding_table(model: Model) -> nn.Parameter:
    """The model's embedding table (V, D). Raises UserError where rare tokens have tables of their own."""
    table = model.encoder.tied()
    if not isinstance(table, nn.Parameter):
        message = "an adaptive embedding has several tables, which word vectors cannot initialize."
        raise UserError(message, where="token_vectors", remedy="Set token_vectors = 0 in the recipe, or no cutoffs.")
    return table


def start_from_vectors(model: Model, vectors: np.ndarray) -> int:
    """Initialize the embedding table from word vectors, centred and scaled to the table's standard deviation.

    Args:
        model: A language model with a single embedding table (V, D).
        vectors: (V, D); rows of zeros leave the table's rows as they are.

    Returns:
        The number of rows that were set.

    Raises:
        UserError: The shapes differ, or the embedding has several tables.
    """
    table = embedding_table(model).data
    if tuple(table.shape) != vectors.shape:
        raise UserError(f"the word vectors are {vectors.shape}, and the embedding table is {tuple(table.shape)}.")
    values = torch.from_numpy(vectors)
    has_vector = values.abs().sum(dim=1) > 0
    centred = values[has_vector] - values[has_vector].mean(dim=0)
    table[has_vector] = centred * (table.std() / centred.std())
    return int(has_vector.sum())
