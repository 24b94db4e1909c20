"""One word in several sentences: its vectors in every layer, what lies near them, and how they fall into groups.

Peters et al. 2018 (NAACL), table 4, which shows for "play" the nearest of all words in their sentences; here for any
words, any text, any encoder, and layer by layer.
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
from textgraft.data.contexts import Context, WordPosition, positions_of, read_contexts
from textgraft.experiments.geometry_measures import directions, mean_cosine
from textgraft.training.driver import content_hash
from textgraft.training.loop import Settings
from textgraft.training.results_folder import experiment, measured_facts, refuse_existing
from textgraft.word_embeddings.layers import Layers, WordLayers
from textgraft.word_embeddings.projection import PROJECTIONS

MOST_GROUPS = 4
LEAST_SILHOUETTE = 0.1
"""Of the best split into groups; with less, all occurrences are one group."""


@dataclass(frozen=True)
class WordOptions:
    """How much is looked at; `seed` decides what.

    `occurrences` of each word, in different sentences; `neighbours` of each of these, among all words of `pool`
    sentences beside their own. Both are drawn from the first `read` sentences of the texts. `projection` is how a map
    is drawn (word_embeddings.projection).
    """

    occurrences: int = 12
    neighbours: int = 5
    pool: int = 1000
    read: int = 20_000
    projection: str = "pca"
    seed: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name, least in {"occurrences": 1, "neighbours": 1, "pool": 0, "read": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy=f"Give {least} or more.")
        if self.projection not in PROJECTIONS:
            remedy = did_you_mean(self.projection, PROJECTIONS)
            raise UserError(f"unknown projection '{self.projection}'.", remedy=remedy)


@dataclass(frozen=True)
class Found:
    """The sentences that are read (those given first, then from the texts) and where each word is looked at.

    `places` has the places of each word, `counts` how many sentences of all that were read it stands in, `given` how
    many of the sentences somebody gave.
    """

    contexts: list[Context]
    places: dict[str, list[WordPosition]]
    counts: dict[str, int]
    given: int
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
    """Look at `words` where they stand in `texts` and in `sentences`; writes `out`/results.json and report.html.

    Of each word `sentences` come first, then sentences drawn from the texts; capitals make no difference. Neighbours
    are by the cosine of vectors as they are, among all words of the sentences that are read but those of its own one.
    Memory holds the vectors of the occurrences and of a few sentences more.

    Raises UserError if `out` exists, for an ensemble or a tagger, for no words, and for a word that is nowhere.
    """
    refuse_existing(Path(out))
    options = options or WordOptions()
    layers = WordLayers(model, precision=options.precision)
    found = chosen(read_contexts(texts, options.read), words, sentences, layers, options)
    asked = {
        "stage": "inspect words",
        "model": layers.fingerprint,
        "texts": content_hash(context.text for context in found.contexts),
        "words": list(found.places),
        "options": repr(options),
    }

    def made(_: Path) -> tuple[dict[str, Any], str]:
        title = f"with {layers.name}"
        vectors = layers.at(found.contexts, found.queries, title=f"the words {title}", show=show)
        near = neighbours(layers, vectors, found, options.neighbours, title=f"all words {title}", show=show)
        results: dict[str, Any] = {"layers": layers.names, "words": []}
        first = 0
        for word, places in found.places.items():
            rows = slice(first, first + len(places))
            results["words"].append(_word(word, found, rows, vectors, near, options))
            first += len(places)
        results |= _facts(Path(out), layers, found, options)
        # Here, because drawing loads matplotlib, which takes as long as torch.
        from textgraft.experiments.word_contexts_report import render_words

        return results, render_words(results)

    return experiment(Path(out), asked, made)


def chosen(
    contexts: Sequence[Context],
    words: Sequence[str],
    sentences: Sequence[str],
    layers: WordLayers,
    options: WordOptions,
) -> Found:
    """Where the words are looked at, and the sentences that are read. Raises UserError for a word that is nowhere."""
    wanted = list(dict.fromkeys(word.casefold() for word in words))
    if not wanted:
        raise UserError("there is no word to look at.", where="words", remedy="Name one or more (--word).")
    generator = np.random.default_rng(options.seed)
    given = [Context.of(sentence).filter_words(layers.knows) for sentence in sentences]
    taken = {context.text for context in given}
    contexts = [c.filter_words(layers.knows) for c in contexts if c.text not in taken]
    all_of = [*given, *(context for context in contexts if context.spans)]
    everywhere = positions_of(all_of, wanted, key=str.casefold)
    places: dict[str, list[WordPosition]] = {}
    for word, where in everywhere.items():
        if not where:
            message = f"the word '{word}' is in none of {len(all_of):,} sentences."
            raise UserError(
                message, where="words", remedy="Name one as the text has it, or give sentences (--sentence)."
            )
        own = [place for place in where if place.sentence < len(given)]
        others = where[len(own) :]
        more = generator.permutation(len(others))[: max(0, options.occurrences - len(own))]
        places[word] = own + [others[i] for i in sorted(more)]
    drawn = generator.permutation(np.arange(len(given), len(all_of)))[: options.pool].tolist()
    used = {place.sentence for some in places.values() for place in some}
    kept = sorted(set(range(len(given))) | used | set(drawn))
    number = {old: new for new, old in enumerate(kept)}
    moved = {word: [WordPosition(number[p.sentence], p.word) for p in some] for word, some in places.items()}
    counts = {word: len(where) for word, where in everywhere.items()}
    return Found([all_of[i] for i in kept], moved, counts, len(given), len(all_of))


def neighbours(
    layers: WordLayers, vectors: Layers, found: Found, n: int, *, title: str, show: bool
) -> list[list[list[tuple[WordPosition, float]]]]:
    """Of each layer and each query, the `n` places of highest cosine in other sentences, nearest first.

    All words are gone through a sentence at a time; no more than the best are kept.
    """
    queries = np.array([place.sentence for place in found.queries])
    units = [directions(layer) for layer in vectors]
    best: list[list[list[tuple[float, WordPosition]]]] = [[[] for _ in queries] for _ in units]
    for number, read in enumerate(layers.read(found.contexts, title=title, show=show)):
        for own, layer, kept in zip(units, read, best, strict=True):
            cosines = own @ directions(layer).T
            cosines[queries == number] = -np.inf
            for query, row in enumerate(cosines):
                nearest = np.argsort(-row, kind="stable")[:n].tolist()
                fresh = [(float(row[i]), WordPosition(number, i)) for i in nearest if row[i] > -np.inf]
                kept[query] = sorted([*kept[query], *fresh], key=lambda pair: -pair[0])[:n]
    return [[[(place, cosine) for cosine, place in query] for query in layer] for layer in best]


def groups(vectors: NDArray, seed: int) -> tuple[list[int], float | None]:
    """The group of each occurrence, from 0 on, and the silhouette of the split, by cosine; None for one group.

    k-means on vectors of length 1 (N, D), into as many groups as have the best mean silhouette (Rousseeuw 1987), two
    to MOST_GROUPS; one where none reaches LEAST_SILHOUETTE. Numbered by their first member.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    units, best = directions(vectors), (LEAST_SILHOUETTE, None)
    distinct = len(np.unique(units.round(6), axis=0))
    for k in range(2, min(MOST_GROUPS, distinct - 1, len(units) - 1) + 1):
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
    found: Found,
    rows: slice,
    vectors: Layers,
    near: Sequence[Sequence[Sequence[tuple[WordPosition, float]]]],
    options: WordOptions,
) -> dict[str, Any]:
    """One entry of "words": its occurrences, and of each layer the figures, the map and the neighbours."""
    of_layers = []
    for layer, close in zip(vectors, near, strict=True):
        own = layer[rows]
        labels, silhouette = groups(own, options.seed)
        of_layers.append(
            {
                "self_similarity": mean_cosine(own) if len(own) > 1 else None,
                "groups": labels,
                "silhouette": silhouette,
                "points": _points(own, options),
                "neighbours": [
                    [{**_told(found, place), "cosine": cosine} for place, cosine in query] for query in close[rows]
                ],
            }
        )
    occurrences = [{**_told(found, p), "given": p.sentence < found.given} for p in found.places[word]]
    return {"word": word, "sentences": found.counts[word], "occurrences": occurrences, "layers": of_layers}


def _points(vectors: NDArray, options: WordOptions) -> list[list[float]]:
    """(N, 2) of a map; fewer than four occurrences are projected on principal components."""
    method = options.projection if len(vectors) >= 4 else "pca"
    units = directions(vectors).astype(np.float32)
    return [[round(float(v), 6) for v in point] for point in PROJECTIONS[method](units, options.seed)]


def _told(found: Found, place: WordPosition) -> dict[str, Any]:
    context = found.contexts[place.sentence]
    (start, end), text = context.spans[place.word], formatting.printable(context.text)
    return {"word": text[start:end], "sentence": text, "start": start, "end": end}


def _facts(out: Path, layers: WordLayers, found: Found, options: WordOptions) -> dict[str, Any]:
    """What was looked at, and with what."""
    among = sum(len(context.spans) for context in found.contexts)
    sample = {"sentences_read": found.read, "neighbours_among": {"sentences": len(found.contexts), "words": among}}
    settings = Settings(seed=options.seed, precision=options.precision)
    data = {"texts": content_hash(context.text for context in found.contexts)}
    run = measured_facts("inspect words", out, layers.run, data, settings)
    return {"model": layers.name, "projection": options.projection, "sample": sample, "run": run}
