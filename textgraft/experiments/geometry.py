"""How contextual is each layer? Self-similarity, intra-sentence similarity, explained variance, and what of it is cone.

Ethayarajh 2019 (EMNLP, "How Contextual are Contextualized Word Representations?"), on any text and any encoder, before
and after the mean vector of a layer is taken away. Where we differ: every word has the same number of contexts, drawn
from its own, since the explained variance of n vectors depends on n; the explained variance of random words, its
baseline, is a mean over groups of as many; and each figure has a bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.data.contexts import (
    Context,
    WordPosition,
    positions_of,
    read_contexts,
    sample_positions,
    sentence_counts,
)
from textgraft.experiments.geometry_measures import (
    cone,
    drawn_mean_cosines,
    drawn_means,
    explained_variance,
    interval,
    intra_similarity,
    mean_cosine,
)
from textgraft.training.driver import content_hash
from textgraft.training.loop import Settings
from textgraft.training.results_folder import experiment, measured_facts, refuse_existing
from textgraft.word_embeddings.layers import WordLayers


@dataclass(frozen=True)
class GeometryOptions:
    """How much is sampled; `seed` decides what.

    `words` different words, each in `contexts` different sentences; `random` words from as many different sentences,
    by which cosines are held against chance; all words of `sentences` sentences. The sample comes from the first `read`
    sentences of the texts. The paper takes words of 5 contexts or more, and 1,000 random ones.
    """

    words: int = 500
    contexts: int = 5
    random: int = 1000
    sentences: int = 100
    read: int = 20_000
    seed: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name, least in {"words": 2, "contexts": 2, "random": 2, "sentences": 2, "read": 2, "seed": 0}.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy=f"Give {least} or more.")


@dataclass(frozen=True)
class Sample:
    """Places that are measured: of each word one after the other, random ones, and all words of some sentences."""

    contexts: Sequence[Context]
    words: list[str]
    of_words: list[WordPosition]
    random: list[WordPosition]
    of_sentences: list[list[WordPosition]]
    candidates: int

    @property
    def places(self) -> list[WordPosition]:
        return [*self.of_words, *self.random, *(place for some in self.of_sentences for place in some)]

    def parted(self, vectors: NDArray) -> tuple[list[NDArray], NDArray, list[NDArray]]:
        """Vectors of all `places` as those of each word, of the random ones, and of each sentence."""
        of_words, rest = np.split(vectors, [len(self.of_words)])
        random, rest = np.split(rest, [len(self.random)])
        borders = np.cumsum([len(some) for some in self.of_sentences])[:-1]
        return np.split(of_words, len(self.words)), random, np.split(rest, borders)


def inspect_geometry(
    model: str | Path,
    texts: Iterable[str],
    out: Path | str,
    *,
    options: GeometryOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Measure every layer of `model` on words of `texts`; writes `out`/results.json and report.html.

    `model` is what `WordLayers` takes: a language model, or a file or folder of word vectors, which are one
    layer. Memory holds the vectors of what is sampled in all layers (GeometryOptions), whatever the texts' length.

    Raises UserError if `out` exists, for an ensemble or a tagger, and for texts in which too few words recur.
    """
    refuse_existing(Path(out))
    options = options or GeometryOptions()
    layers = WordLayers(model, precision=options.precision)
    sample = sampled([c.filter_words(layers.knows) for c in read_contexts(texts, options.read)], options)
    asked = {
        "stage": "inspect geometry",
        "model": layers.fingerprint,
        "texts": content_hash(context.text for context in sample.contexts),
        "options": repr(options),
    }

    def made(_: Path) -> tuple[dict[str, Any], str]:
        vectors = layers.at(sample.contexts, sample.places, title=f"reading with {layers.name}", show=show)
        results: dict[str, Any] = {"layers": []}
        of_words = []
        for name, layer in zip(layers.names, vectors, strict=True):
            measured, similarities = measures(sample, layer, options)
            results["layers"].append({"name": name, "width": layer.shape[1], **measured})
            of_words.append(similarities)
        results["words"] = {word: [float(s[i]) for s in of_words] for i, word in enumerate(sample.words)}
        results |= _facts(Path(out), layers, sample, options)
        results["verdict"] = verdict(results)
        # Here, because drawing loads matplotlib, which takes as long as torch.
        from textgraft.experiments.geometry_report import render_geometry

        return results, render_geometry(results)

    return experiment(Path(out), asked, made)


def sampled(contexts: Sequence[Context], options: GeometryOptions) -> Sample:
    """What is measured. Raises UserError where the texts have not enough sentences, or words that recur."""
    contexts = [context for context in contexts if context.spans]
    generator = np.random.default_rng(options.seed)
    counts = sentence_counts(contexts)
    often = sorted(w for w, n in counts.items() if n >= options.contexts and any(c.isalpha() for c in w))
    if len(often) < 2 or len(contexts) < 2:
        message = f"{len(often)} words stand in {options.contexts} different sentences of these texts."
        raise UserError(message, where="texts", remedy="Give more text, or fewer contexts (--contexts).")
    words = [often[i] for i in sorted(generator.permutation(len(often))[: options.words])]
    places = positions_of(contexts, words)
    chosen = [generator.permutation(len(places[word]))[: options.contexts] for word in words]
    of_words = [places[word][i] for word, some in zip(words, chosen, strict=True) for i in sorted(some)]
    random = sample_positions(contexts, options.random, generator)
    numbers = sorted(generator.permutation(len(contexts))[: options.sentences].tolist())
    whole = [[WordPosition(number, i) for i in range(len(contexts[number].spans))] for number in numbers]
    return Sample(contexts, words, of_words, random, whole, len(often))


def measures(sample: Sample, layer: NDArray, options: GeometryOptions) -> tuple[dict[str, Any], NDArray]:
    """All figures of a layer, as it is ("raw") and without its mean ("centred"), and each word's raw self-similarity.

    `layer` (N, D) are the vectors at `sample.places`. The mean is that of the random words.
    """
    of_words, random, of_sentences = sample.parted(layer.astype(np.float64))
    mean = random.mean(axis=0)
    found = {
        "raw": _figures(of_words, random, of_sentences, options),
        "centred": _figures([v - mean for v in of_words], random - mean, [v - mean for v in of_sentences], options),
    }
    return found, np.array([mean_cosine(vectors) for vectors in of_words])


def _figures(
    of_words: Sequence[NDArray], random: NDArray, of_sentences: Sequence[NDArray], options: GeometryOptions
) -> dict[str, Any]:
    """Each figure with its interval: words, sentences and random words resampled, each by themselves."""
    generator = np.random.default_rng([options.seed, 1])
    groups = [random[i : i + options.contexts] for i in range(0, len(random) - options.contexts + 1, options.contexts)]
    values = {
        "self_similarity": np.array([mean_cosine(vectors) for vectors in of_words]),
        "intra_similarity": np.array([intra_similarity(vectors) for vectors in of_sentences]),
        "explained_variance": np.array([explained_variance(vectors) for vectors in of_words]),
    }
    baseline, drawn = mean_cosine(random), drawn_mean_cosines(random, generator)
    found = {"anisotropy": interval(baseline, drawn)._asdict(), "cone": cone(random)}
    bases = {"self_similarity": (baseline, drawn), "intra_similarity": (baseline, drawn)}
    if groups:
        by_chance = [explained_variance(group) for group in groups]
        bases["explained_variance"] = float(np.mean(by_chance)), drawn_means(by_chance, generator)
        found["explained_variance_baseline"] = interval(*bases["explained_variance"])._asdict()
    for name, each in values.items():
        draws = drawn_means(each, generator)
        found[name] = interval(float(each.mean()), draws)._asdict()
        if name in bases:  # equation 4: what is left when chance is taken away
            base, base_draws = bases[name]
            found[f"{name}_adjusted"] = interval(float(each.mean()) - base, draws - base_draws)._asdict()
    return found


def _facts(out: Path, layers: WordLayers, sample: Sample, options: GeometryOptions) -> dict[str, Any]:
    """What was measured, and with what."""
    taken: dict[str, Any] = {
        "sentences_read": len(sample.contexts),
        "words_in_enough_contexts": sample.candidates,
        "words": len(sample.words),
        "contexts_of_each": options.contexts,
        "random_words": len(sample.random),
        "whole_sentences": len(sample.of_sentences),
    }
    taken["words_of_these"] = sum(map(len, sample.of_sentences))
    settings = Settings(seed=options.seed, precision=options.precision)
    data = {"texts": content_hash(context.text for context in sample.contexts)}
    run = measured_facts("inspect geometry", out, layers.run, data, settings)
    return {"model": layers.name, "sample": taken, "run": run}


def verdict(results: dict[str, Any]) -> list[str]:
    """What the figures say, in a few sentences."""
    rows = results["layers"]
    cones = [row["raw"]["anisotropy"]["mean"] for row in rows]
    most = rows[int(np.argmax(cones))]
    found = [
        f"Two words drawn at random have a cosine of {_told(most['raw']['anisotropy'])} in {most['name']}"
        f"{', where it is highest' if len(rows) > 1 else ''}; without the layer's mean vector "
        f"{_told(most['centred']['anisotropy'])}."
    ]
    ends = [f"{_told(row['centred']['self_similarity'])} in {row['name']}" for row in [rows[0], *rows[1:][-1:]]]
    about = "The same word in two sentences has, without the mean, a cosine of"
    return [*found, f"{about} {' and '.join(ends)}; what is missing to 1 is context."]


def _told(value: dict[str, float]) -> str:
    return formatting.cosine_interval(*value.values())
