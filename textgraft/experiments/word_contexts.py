"""Occurrences of a word in several sentences: its vectors in every layer, nearest neighbours, and clusters.

Source: Peters et al. 2018 (NAACL), table 4, which shows for "play" the nearest of all words in their sentences; here
for any words, text and encoder, and for each layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import content_hash, identity_of
from textgraft.data.contexts import Context, WordPosition, positions_of, read_contexts
from textgraft.experiments.geometry_measures import directions, mean_cosine
from textgraft.training.results_folder import measurement_record, run_experiment, validate_new_path
from textgraft.training.settings import Settings
from textgraft.word_embeddings.layers import Layers, WordLayers
from textgraft.word_embeddings.projection import PROJECTIONS

MAX_GROUPS = 4
MIN_SILHOUETTE = 0.1
"""Minimum silhouette of the best split into groups; below it, all occurrences are one group."""


@dataclass(frozen=True)
class WordOptions:
    """Sample sizes, map projection and seed.

    Args:
        occurrences: Number of occurrences of each word, in different sentences.
        neighbours: Number of neighbours of each occurrence.
        pool: Number of further sentences whose words are candidates for neighbours.
        read: Sentences are drawn from the first `read` of the texts.
        projection: Projection of the map (word_embeddings.projection).
        seed: Seed of the sample.
        precision: Arithmetic of the encoder.
    """

    occurrences: int = 12
    neighbours: int = 5
    pool: int = 1000
    read: int = 20_000
    projection: str = "pca"
    seed: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name, minimum in {"occurrences": 1, "neighbours": 1, "pool": 0, "read": 1, "seed": 0}.items():
            if getattr(self, name) < minimum:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy=f"Give {minimum} or more.")
        if self.projection not in PROJECTIONS:
            remedy = did_you_mean(self.projection, PROJECTIONS)
            raise UserError(f"unknown projection '{self.projection}'.", remedy=remedy)

    def identity(self) -> dict[str, Any]:
        """All options: each may change the results."""
        return identity_of(self)


@dataclass(frozen=True)
class Selection:
    """The sentences to encode (the user's own first, then those of the texts) and the occurrences of each word.

    Attributes:
        contexts: The sentences.
        places: Positions of each word.
        counts: Number of all sentences with the word.
        user_sentences: Number of sentences from the user.
        read: Number of all sentences.
    """

    contexts: list[Context]
    places: dict[str, list[WordPosition]]
    counts: dict[str, int]
    user_sentences: int
    read: int

    @property
    def queries(self) -> list[WordPosition]:
        return [place for places in self.places.values() for place in places]


def inspect_words(
    model: str | Path,
    texts: Iterable[str],
    out: Path | str,
    *,
    words: Sequence[str],
    sentences: Sequence[str] = (),
    options: WordOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Compare the occurrences of `words` in `texts` and `sentences`; write `out`/results.json and report.html.

    For each word `sentences` come first, then sentences sampled from the texts; case is ignored. Neighbours are by the
    cosine of uncentred vectors, among all words of the selected sentences but those of the occurrence's own. Memory
    holds the vectors of the occurrences and of a few sentences more.

    Args:
        model: A language model, or a file or folder of word vectors (`WordLayers`).
        texts: Texts, one a sentence.
        out: Folder to write; it must not exist.
        words: Words to compare.
        sentences: Sentences of the user, which come first.
        options: Sample sizes, projection and seed.
        show: Show progress on stderr.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; `model` is an ensemble or a tagger; there are no words, or a word does not occur.
    """
    validate_new_path(Path(out))
    options = options or WordOptions()
    layers = WordLayers(model, precision=options.precision)
    selection = select_occurrences(read_contexts(texts, options.read), words, sentences, layers, options)
    identity = {
        "stage": "inspect words",
        "model": layers.fingerprint,
        "texts": content_hash(context.text for context in selection.contexts),
        "words": list(selection.places),
        "options": options.identity(),
    }

    def make_results(_: Path) -> tuple[dict[str, Any], str]:
        title = f"with {layers.name}"
        vectors = layers.at(selection.contexts, selection.queries, title=f"the words {title}", show=show)
        near = neighbours(layers, vectors, selection, options.neighbours, title=f"all words {title}", show=show)
        results: dict[str, Any] = {"layers": layers.names, "words": []}
        first = 0
        for word, places in selection.places.items():
            rows = slice(first, first + len(places))
            results["words"].append(_word(word, selection, rows, vectors, near, options))
            first += len(places)
        results |= _facts(Path(out), layers, selection, options)
        # Imported here because matplotlib takes as long to load as torch.
        from textgraft.experiments.word_contexts_report import render_words

        return results, render_words(results)

    return run_experiment(Path(out), identity, make_results)


def select_occurrences(
    contexts: Sequence[Context],
    words: Sequence[str],
    sentences: Sequence[str],
    layers: WordLayers,
    options: WordOptions,
) -> Selection:
    """Select occurrences of the words, and the sentences to encode. Raises UserError for a word that does not occur."""
    casefolded = list(dict.fromkeys(word.casefold() for word in words))
    if not casefolded:
        raise UserError("no words are given.", where="words", remedy="Give one or more (words=…).")
    generator = np.random.default_rng(options.seed)
    user_contexts = [Context.of(sentence).filter_words(layers.knows) for sentence in sentences]
    user_texts = {context.text for context in user_contexts}
    contexts = [c.filter_words(layers.knows) for c in contexts if c.text not in user_texts]
    all_contexts = [*user_contexts, *(context for context in contexts if context.spans)]
    all_places = positions_of(all_contexts, casefolded, key=str.casefold)
    places: dict[str, list[WordPosition]] = {}
    for word, word_places in all_places.items():
        if not word_places:
            message = f"the word '{word}' does not occur in {len(all_contexts):,} sentences."
            raise UserError(
                message, where="words", remedy="Use a form that occurs in the texts, or others (sentences=…)."
            )
        user_places = [place for place in word_places if place.sentence < len(user_contexts)]
        others = word_places[len(user_places) :]
        order = generator.permutation(len(others))[: max(0, options.occurrences - len(user_places))]
        places[word] = user_places + [others[i] for i in sorted(order)]
    pool = generator.permutation(np.arange(len(user_contexts), len(all_contexts)))[: options.pool].tolist()
    used_sentences = {place.sentence for word_places in places.values() for place in word_places}
    kept_sentences = sorted(set(range(len(user_contexts))) | used_sentences | set(pool))
    index_in_selection = {sentence: index for index, sentence in enumerate(kept_sentences)}
    renumbered = {
        word: [WordPosition(index_in_selection[p.sentence], p.word) for p in word_places]
        for word, word_places in places.items()
    }
    counts = {word: len(word_places) for word, word_places in all_places.items()}
    return Selection(
        [all_contexts[i] for i in kept_sentences], renumbered, counts, len(user_contexts), len(all_contexts)
    )


def neighbours(
    layers: WordLayers, vectors: Layers, selection: Selection, n: int, *, title: str, show: bool
) -> list[list[list[tuple[WordPosition, float]]]]:
    """The `n` positions of highest cosine in other sentences, nearest first, for each layer and each query.

    Sentences are processed one at a time; only the best positions are kept.
    """
    queries = np.array([place.sentence for place in selection.queries])
    units = [directions(layer) for layer in vectors]
    best: list[list[list[tuple[float, WordPosition]]]] = [[[] for _ in queries] for _ in units]
    for number, sentence_layers in enumerate(layers.read(selection.contexts, title=title, show=show)):
        for query_units, layer, best_of_layer in zip(units, sentence_layers, best, strict=True):
            cosines = query_units @ directions(layer).T
            cosines[queries == number] = -np.inf
            for query, row in enumerate(cosines):
                nearest = np.argsort(-row, kind="stable")[:n].tolist()
                candidates = [(float(row[i]), WordPosition(number, i)) for i in nearest if row[i] > -np.inf]
                best_of_layer[query] = sorted([*best_of_layer[query], *candidates], key=lambda pair: -pair[0])[:n]
    return [[[(place, cosine) for cosine, place in query] for query in layer] for layer in best]


def groups(vectors: NDArray, seed: int) -> tuple[list[int], float | None]:
    """Cluster of each occurrence, from 0 on, and the silhouette of the split, by cosine; None for one cluster.

    k-means on unit vectors (N, D), with the number of clusters of the best mean silhouette (Rousseeuw 1987), from two
    to MAX_GROUPS; one cluster where none reaches MIN_SILHOUETTE. Clusters are numbered by their first member.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    units, best = directions(vectors), (MIN_SILHOUETTE, None)
    distinct = len(np.unique(units.round(6), axis=0))
    for k in range(2, min(MAX_GROUPS, distinct - 1, len(units) - 1) + 1):
        labels = KMeans(k, n_init=10, random_state=seed).fit_predict(units)
        score = float(silhouette_score(units, labels, metric="cosine"))
        if score > best[0]:
            best = (score, labels)
    if best[1] is None:
        return [0] * len(units), None
    order = {label: place for place, label in enumerate(dict.fromkeys(best[1].tolist()))}
    return [order[label] for label in best[1].tolist()], best[0]


def _word(
    word: str,
    selection: Selection,
    rows: slice,
    vectors: Layers,
    neighbours_by_layer: Sequence[Sequence[Sequence[tuple[WordPosition, float]]]],
    options: WordOptions,
) -> dict[str, Any]:
    """One entry of "words": the occurrences, and for each layer the figures, the map and the neighbours."""
    layers = []
    for layer, layer_neighbours in zip(vectors, neighbours_by_layer, strict=True):
        word_vectors = layer[rows]
        labels, silhouette = groups(word_vectors, options.seed)
        layers.append(
            {
                "self_similarity": mean_cosine(word_vectors) if len(word_vectors) > 1 else None,
                "groups": labels,
                "silhouette": silhouette,
                "points": _points(word_vectors, options),
                "neighbours": [
                    [{**_occurrence(selection, place), "cosine": cosine} for place, cosine in query]
                    for query in layer_neighbours[rows]
                ],
            }
        )
    occurrences = [
        {**_occurrence(selection, p), "given": p.sentence < selection.user_sentences} for p in selection.places[word]
    ]
    return {"word": word, "sentences": selection.counts[word], "occurrences": occurrences, "layers": layers}


def _points(vectors: NDArray, options: WordOptions) -> list[list[float]]:
    """Points (N, 2) of a map; fewer than four occurrences are projected on principal components."""
    method = options.projection if len(vectors) >= 4 else "pca"
    units = directions(vectors).astype(np.float32)
    return [[round(float(v), 6) for v in point] for point in PROJECTIONS[method](units, options.seed)]


def _occurrence(selection: Selection, place: WordPosition) -> dict[str, Any]:
    context = selection.contexts[place.sentence]
    (start, end), text = context.spans[place.word], formatting.printable(context.text)
    return {"word": text[start:end], "sentence": text, "start": start, "end": end}


def _facts(out: Path, layers: WordLayers, selection: Selection, options: WordOptions) -> dict[str, Any]:
    """Provenance and sizes of the sample."""
    neighbour_words = sum(len(context.spans) for context in selection.contexts)
    sample = {
        "sentences_read": selection.read,
        "neighbours_among": {"sentences": len(selection.contexts), "words": neighbour_words},
    }
    settings = Settings(seed=options.seed, precision=options.precision)
    data = {"texts": content_hash(context.text for context in selection.contexts)}
    run = measurement_record("inspect words", out, layers.run, data, settings)
    return {"model": layers.name, "projection": options.projection, "sample": sample, "run": run}
