"""textgraft.train_vectors: word vectors from text."""

from __future__ import annotations

import os
import tempfile
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
    """Learn vectors of the words of `texts`, as text.words cuts them, from which words stand near which.

    Skip-gram and CBOW (Mikolov et al. 2013, arXiv:1301.3781, arXiv:1310.4546) and fastText (Bojanowski et al. 2017) are
    trained by gensim, GloVe (Pennington et al. 2014) by us. `texts` are read once, cut into a file in a temporary
    folder under `work` (None: the system's), and not kept. `about` is added to the vectors' `run`, and
    `options.method` gives way to `method`. One thread (`workers`) gives the same bits for the same seed. Not resumable:
    what was killed begins anew.

    Raises UserError for options out of range, where gensim is needed and missing (before any text is read), and where
    there are too few words.
    """
    chosen = replace(options or VectorOptions(), method=method).filled()
    if chosen.method != "glove":
        word2vec.validate_installed()
    began = time.monotonic()
    if work is not None:
        Path(work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".textgraft-vectors-", dir=work) as folder:
        corpus = WordFile.write(texts, Path(folder) / "words.txt", lowercase=chosen.lowercase, show=show)
        vocabulary = corpus.vocabulary(min_count=chosen.min_count, most=chosen.vocabulary)
        run = _run(chosen, corpus)
        if chosen.method == "glove":
            words = list(vocabulary)
            rows, losses = _glove(corpus, words, chosen, Path(folder), show)
            found = WordVectors(words, rows)
            run["losses"] = losses
        else:
            words, own, subwords = word2vec.train(corpus, vocabulary, chosen, show=show)
            found = WordVectors(words, own, subwords=subwords)
    found.counts = np.array([vocabulary[word] for word in found.words], dtype=np.int64)
    found.lowercase = chosen.lowercase
    found.run = {**run, "seconds": time.monotonic() - began, **(about or {})}
    return found


def _glove(
    corpus: WordFile, words: list[str], options: VectorOptions, folder: Path, show: bool
) -> tuple[NDArray[np.float32], list[float]]:
    from textgraft.word_embeddings import cooccurrence, glove

    documents = _ids(corpus, {word: number for number, word in enumerate(words)})
    pairs = cooccurrence.count_pairs(documents, len(words), folder, window=options.window, seed=options.seed)
    if not pairs.total:
        raise UserError("no two words stand near one another.", remedy="Are texts of more than a word in it?")
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
    """Word ids of each line. Words outside the vocabulary are left out before distances are measured, as in GloVe."""
    for words in corpus.sentences():
        yield np.array([index[word] for word in words if word in index], dtype=np.int32)


def _run(options: VectorOptions, corpus: WordFile) -> dict[str, Any]:
    """What run.json says of how the vectors came to be."""
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
