"""Skip-gram, CBOW and fastText by gensim's compiled loops: the extra `[vectors]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.word_embeddings.corpus import WordFile
from textgraft.word_embeddings.options import VectorOptions
from textgraft.word_embeddings.progress import Bar
from textgraft.word_embeddings.subwords import ComposedRows, Subwords


def validate_installed() -> None:
    """Raise UserError where gensim is not installed."""
    try:
        import gensim.models  # noqa: F401
    except ImportError as error:
        message = "skip-gram, CBOW and fastText are trained by the library gensim, which is not installed."
        remedy = "Install it (pip install 'textgraft[vectors]'), or train with the method glove, which needs none."
        raise UserError(message, remedy=remedy) from error


def train(
    corpus: WordFile, vocabulary: Mapping[str, int], options: VectorOptions, *, show: bool = False
) -> tuple[list[str], NDArray | ComposedRows, Subwords | None]:
    """Train; return words, most frequent first, their vectors (V, D), and for fastText the n-grams.

    With one worker the same seed and text give the same bits; with more, threads write to the same vectors without
    locks (Hogwild, as in word2vec), and runs differ.
    """
    model = _model(options)
    model.build_vocab_from_freq(dict(vocabulary), corpus_count=corpus.lines)
    words = sum(corpus.counts.values())
    with Bar(options.method, options.epochs, shown=show) as bar:
        bar.add(0)
        model.train(
            corpus_file=str(corpus.path),
            total_examples=corpus.lines,
            total_words=words,
            epochs=options.epochs,
            callbacks=[_epoch_callback(bar)],
        )
    if options.method != "fasttext":
        return list(model.wv.index_to_key), np.asarray(model.wv.vectors, dtype=np.float32), None
    vocabulary_list = list(model.wv.index_to_key)
    subwords = Subwords(options.minn, options.maxn, np.asarray(model.wv.vectors_ngrams, dtype=np.float32))
    # gensim can train both; fastText's file stores one.
    output = model.syn1 if options.hierarchical else model.syn1neg
    return vocabulary_list, ComposedRows(vocabulary_list, model.wv.vectors_vocab, subwords, output), subwords


def _model(options: VectorOptions) -> Any:
    from gensim.models import FastText, Word2Vec

    shared: dict[str, Any] = {
        "vector_size": options.dimensions,
        "window": options.window,
        "min_count": 1,  # the vocabulary is already selected
        "sg": int(options.method != "cbow"),
        "hs": int(options.hierarchical),
        "negative": 0 if options.hierarchical else options.negative,
        # Never 0: without samples of either kind gensim leaves the random state of its loops unset, and no two runs
        # are alike. At this threshold no word is left out.
        "sample": options.sample or 0.999999,
        "alpha": options.rate,
        "min_alpha": min(1e-4, options.rate),
        "epochs": options.epochs,
        "seed": options.seed,
        "workers": options.workers,
    }
    if options.method == "fasttext":
        return FastText(min_n=options.minn, max_n=options.maxn, bucket=options.buckets, **shared)
    return Word2Vec(**shared)


def _epoch_callback(bar: Bar) -> Any:
    """gensim's callback at the end of an epoch."""
    from gensim.models.callbacks import CallbackAny2Vec

    class EpochCallback(CallbackAny2Vec):
        def on_epoch_end(self, model: Any) -> None:
            bar.add(1)

    return EpochCallback()
