"""textgraft.train_vectors: train word vectors on text."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft import __version__
from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder
from textgraft.word_embeddings import word2vec
from textgraft.word_embeddings.corpus import WordFile
from textgraft.word_embeddings.fasttext_binary import SETTINGS
from textgraft.word_embeddings.options import Method, VectorOptions
from textgraft.word_embeddings.word_vectors import WordVectors


def train_vectors(
    texts: Iterable[str],
    method: Method = "skipgram",
    *,
    options: VectorOptions | None = None,
    about: Mapping[str, Any] | None = None,
    work: str | Path | None = None,
    show: bool = False,
) -> WordVectors:
    """Train word vectors on `texts`, split into words by text.words.

    Skip-gram and CBOW (Mikolov et al. 2013, arXiv:1301.3781, arXiv:1310.4546) and fastText (Bojanowski et al. 2017) are
    trained by gensim, GloVe (Pennington et al. 2014) by textgraft. `texts` are consumed once, split into a temporary
    file, and not kept. One thread (`workers`) gives the same bits for the same seed. Training cannot be resumed.

    Args:
        texts: Texts.
        method: Name in options.METHODS; replaces `options.method`.
        options: Training settings.
        about: Entries to add to the vectors' `run`.
        work: Folder for temporary files (None: the system's).
        show: Show progress on stderr.

    Raises:
        UserError: An option is out of range, gensim is needed and missing (before any text is consumed), or there are
            too few words.
    """
    settings = replace(options or VectorOptions(), method=method).filled()
    if settings.method != "glove":
        word2vec.validate_installed()
    started = time.monotonic()
    if work is not None:
        Path(work).mkdir(parents=True, exist_ok=True)
    inside = None if work is None else Path(work)
    with temporary_folder(".textgraft-vectors-", inside) as folder:
        corpus = WordFile.write(texts, folder / "words.txt", lowercase=settings.lowercase, show=show)
        vocabulary = corpus.vocabulary(min_count=settings.min_count, most=settings.vocabulary)
        run = _run(settings, corpus)
        if settings.method == "glove":
            words = list(vocabulary)
            rows, losses = _glove(corpus, words, settings, folder, show)
            vectors = WordVectors(words, rows)
            run["losses"] = losses
        else:
            words, word_rows, subwords = word2vec.train(corpus, vocabulary, settings, show=show)
            vectors = WordVectors(words, word_rows, subwords=subwords)
    vectors.counts = np.array([vocabulary[word] for word in vectors.words], dtype=np.int64)
    vectors.lowercase = settings.lowercase
    vectors.run = {**run, "seconds": time.monotonic() - started, **(about or {})}
    return vectors


def _glove(
    corpus: WordFile, words: list[str], options: VectorOptions, folder: Path, show: bool
) -> tuple[NDArray[np.float32], list[float]]:
    from textgraft.word_embeddings import cooccurrence, glove

    documents = _ids(corpus, {word: number for number, word in enumerate(words)})
    pairs = cooccurrence.count_pairs(documents, len(words), folder, window=options.window, seed=options.seed)
    if not pairs.total:
        raise UserError("no two words co-occur.", remedy="Use texts of more than one word.")
    model = glove.GloVe.begin(len(words), options.dimensions, options.seed)
    losses = glove.train(
        model,
        pairs,
        epochs=options.epochs,
        rate=options.rate,
        seed=options.seed,
        workers=options.workers,
        show=show,
    )
    return model.vectors(), losses


def _ids(corpus: WordFile, index: Mapping[str, int]) -> Iterator[NDArray[np.int32]]:
    """Word ids of each line. Out-of-vocabulary words are removed before distances are measured, as in GloVe."""
    for words in corpus.sentences():
        yield np.array([index[word] for word in words if word in index], dtype=np.int32)


def _run(options: VectorOptions, corpus: WordFile) -> dict[str, Any]:
    """Provenance of the vectors for run.json."""
    names = ("numpy", "torch") if options.method == "glove" else ("numpy", "gensim")
    settings = asdict(options)
    if options.method != "fasttext":
        settings = {k: v for k, v in settings.items() if k not in ("minn", "maxn", "buckets")}
    if options.method == "glove":
        settings = {k: v for k, v in settings.items() if k not in ("negative", "hierarchical", "sample")}
    run: dict[str, Any] = {
        "stage": "vectors",
        "settings": settings,
        "tokens_seen": sum(corpus.counts.values()),
        "versions": {"textgraft": __version__, **{name: version(name) for name in names}},
        "machine": {"cores": os.cpu_count(), "threads": options.workers},
    }
    if options.method == "fasttext":
        header = {"ws": options.window, "epoch": options.epochs, "minCount": options.min_count, "neg": options.negative}
        run["fasttext"] = SETTINGS | header | {"loss": 1 if options.hierarchical else 2, "t": options.sample}
    return run
