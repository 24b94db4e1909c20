"""Contextuality of each layer: self-similarity, intra-sentence similarity, explained variance and anisotropy.

Source: Ethayarajh 2019 (EMNLP, "How Contextual are Contextualized Word Representations?"), on any text and any encoder,
before and after the mean vector of a layer is subtracted. Differences: every word has the same number of contexts,
sampled from its own, since the explained variance of n vectors depends on n; the explained variance of random words,
its baseline, is a mean over groups of the same size; and each figure has a bootstrap interval.
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
from textgraft.core.identity import content_hash, identity_of
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
from textgraft.training.results_folder import measurement_record, run_experiment, validate_new_path
from textgraft.training.settings import Settings
from textgraft.word_embeddings.layers import WordLayers


@dataclass(frozen=True)
class GeometryOptions:
    """Sample sizes and the seed of the sample.

    The paper uses words with 5 or more contexts, and 1,000 random words.

    Args:
        words: Number of different words.
        contexts: Number of sentences for each word.
        random: Number of random words, from as many different sentences, for the baseline.
        sentences: Number of sentences of which all words are used.
        read: The sample comes from the first `read` sentences of the texts.
        seed: Seed of the sample.
        precision: Arithmetic of the encoder.
    """

    words: int = 500
    contexts: int = 5
    random: int = 1000
    sentences: int = 100
    read: int = 20_000
    seed: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name, minimum in {"words": 2, "contexts": 2, "random": 2, "sentences": 2, "read": 2, "seed": 0}.items():
            if getattr(self, name) < minimum:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy=f"Give {minimum} or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change the results."""
        return identity_of(self)


@dataclass(frozen=True)
class Sample:
    """Positions to measure: those of each word in turn, random ones, and all words of some sentences."""

    contexts: Sequence[Context]
    words: list[str]
    of_words: list[WordPosition]
    random: list[WordPosition]
    of_sentences: list[list[WordPosition]]
    candidates: int

    @property
    def places(self) -> list[WordPosition]:
        return [*self.of_words, *self.random, *(place for sentence in self.of_sentences for place in sentence)]

    def split(self, vectors: NDArray) -> tuple[list[NDArray], NDArray, list[NDArray]]:
        """Split vectors of all `places` into those of each word, of the random words, and of each sentence."""
        of_words, rest = np.split(vectors, [len(self.of_words)])
        random, rest = np.split(rest, [len(self.random)])
        boundaries = np.cumsum([len(sentence) for sentence in self.of_sentences])[:-1]
        return np.split(of_words, len(self.words)), random, np.split(rest, boundaries)


def inspect_geometry(
    model: str | Path,
    texts: Iterable[str],
    out: Path | str,
    *,
    options: GeometryOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Measure every layer of `model` on words of `texts`; write `out`/results.json and report.html.

    Memory holds the vectors of the sample in all layers (GeometryOptions), whatever the length of the texts.

    Args:
        model: A language model, or a file or folder of word vectors, which count as one layer (`WordLayers`).
        texts: Texts, one a sentence.
        out: Folder to write; it must not exist.
        options: Sample sizes and seed.
        show: Show progress on stderr.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; `model` is an ensemble or a tagger; too few words occur often enough.
    """
    validate_new_path(Path(out))
    options = options or GeometryOptions()
    layers = WordLayers(model, precision=options.precision)
    sample = sampled([c.filter_words(layers.knows) for c in read_contexts(texts, options.read)], options)
    identity = {
        "stage": "inspect geometry",
        "model": layers.fingerprint,
        "texts": content_hash(context.text for context in sample.contexts),
        "options": options.identity(),
    }

    def make_results(_: Path) -> tuple[dict[str, Any], str]:
        vectors = layers.at(sample.contexts, sample.places, title=f"encoding with {layers.name}", show=show)
        results: dict[str, Any] = {"layers": []}
        similarities_by_layer = []
        for name, layer in zip(layers.names, vectors, strict=True):
            measured, similarities = measures(sample, layer, options)
            results["layers"].append({"name": name, "width": layer.shape[1], **measured})
            similarities_by_layer.append(similarities)
        results["words"] = {word: [float(s[i]) for s in similarities_by_layer] for i, word in enumerate(sample.words)}
        results |= _facts(Path(out), layers, sample, options)
        results["verdict"] = verdict(results)
        # Imported here because matplotlib takes as long to load as torch.
        from textgraft.experiments.geometry_report import render_geometry

        return results, render_geometry(results)

    return run_experiment(Path(out), identity, make_results)


def sampled(contexts: Sequence[Context], options: GeometryOptions) -> Sample:
    """Draw the sample. Raises UserError where the texts have too few sentences or recurring words."""
    contexts = [context for context in contexts if context.spans]
    generator = np.random.default_rng(options.seed)
    counts = sentence_counts(contexts)
    frequent = sorted(w for w, n in counts.items() if n >= options.contexts and any(c.isalpha() for c in w))
    if len(frequent) < 2 or len(contexts) < 2:
        message = f"only {len(frequent)} words occur in {options.contexts} different sentences of these texts."
        raise UserError(message, where="texts", remedy="Give more text, or fewer contexts for each word (contexts=…).")
    words = [frequent[i] for i in sorted(generator.permutation(len(frequent))[: options.words])]
    places = positions_of(contexts, words)
    chosen = [generator.permutation(len(places[word]))[: options.contexts] for word in words]
    of_words = [places[word][i] for word, indices in zip(words, chosen, strict=True) for i in sorted(indices)]
    random = sample_positions(contexts, options.random, generator)
    numbers = sorted(generator.permutation(len(contexts))[: options.sentences].tolist())
    whole = [[WordPosition(number, i) for i in range(len(contexts[number].spans))] for number in numbers]
    return Sample(contexts, words, of_words, random, whole, len(frequent))


def measures(sample: Sample, layer: NDArray, options: GeometryOptions) -> tuple[dict[str, Any], NDArray]:
    """All figures of a layer, uncentred ("raw") and with its mean subtracted ("centred"), and each word's raw
    self-similarity.

    Args:
        sample: The sample.
        layer: (N, D) vectors at `sample.places`. The mean is that of the random words.
        options: Sample sizes and seed.
    """
    of_words, random, of_sentences = sample.split(layer.astype(np.float64))
    mean = random.mean(axis=0)
    figures = {
        "raw": _figures(of_words, random, of_sentences, options),
        "centred": _figures([v - mean for v in of_words], random - mean, [v - mean for v in of_sentences], options),
    }
    return figures, np.array([mean_cosine(vectors) for vectors in of_words])


def _figures(
    of_words: Sequence[NDArray], random: NDArray, of_sentences: Sequence[NDArray], options: GeometryOptions
) -> dict[str, Any]:
    """Each figure with its bootstrap interval; words, sentences and random words are resampled separately."""
    generator = np.random.default_rng([options.seed, 1])
    groups = [random[i : i + options.contexts] for i in range(0, len(random) - options.contexts + 1, options.contexts)]
    values = {
        "self_similarity": np.array([mean_cosine(vectors) for vectors in of_words]),
        "intra_similarity": np.array([intra_similarity(vectors) for vectors in of_sentences]),
        "explained_variance": np.array([explained_variance(vectors) for vectors in of_words]),
    }
    baseline, baseline_draws = mean_cosine(random), drawn_mean_cosines(random, generator)
    figures = {"anisotropy": interval(baseline, baseline_draws)._asdict(), "cone": cone(random)}
    bases = {"self_similarity": (baseline, baseline_draws), "intra_similarity": (baseline, baseline_draws)}
    if groups:
        random_variances = [explained_variance(group) for group in groups]
        bases["explained_variance"] = float(np.mean(random_variances)), drawn_means(random_variances, generator)
        figures["explained_variance_baseline"] = interval(*bases["explained_variance"])._asdict()
    for name, scores in values.items():
        draws = drawn_means(scores, generator)
        figures[name] = interval(float(scores.mean()), draws)._asdict()
        if name in bases:  # equation 4: minus the baseline
            base, base_draws = bases[name]
            figures[f"{name}_adjusted"] = interval(float(scores.mean()) - base, draws - base_draws)._asdict()
    return figures


def _facts(out: Path, layers: WordLayers, sample: Sample, options: GeometryOptions) -> dict[str, Any]:
    """Provenance and sizes of the sample."""
    sizes: dict[str, Any] = {
        "sentences_read": len(sample.contexts),
        "words_in_enough_contexts": sample.candidates,
        "words": len(sample.words),
        "contexts_of_each": options.contexts,
        "random_words": len(sample.random),
        "whole_sentences": len(sample.of_sentences),
    }
    sizes["words_of_these"] = sum(map(len, sample.of_sentences))
    settings = Settings(seed=options.seed, precision=options.precision)
    data = {"texts": content_hash(context.text for context in sample.contexts)}
    run = measurement_record("inspect geometry", out, layers.run, data, settings)
    return {"model": layers.name, "sample": sizes, "run": run}


def verdict(results: dict[str, Any]) -> list[str]:
    """The figures in a few sentences."""
    rows = results["layers"]
    anisotropies = [row["raw"]["anisotropy"]["mean"] for row in rows]
    highest = rows[int(np.argmax(anisotropies))]
    sentences = [
        f"Two random words have a cosine of {_cosine_text(highest['raw']['anisotropy'])} in {highest['name']}"
        f"{', where it is highest' if len(rows) > 1 else ''}; with the layer's mean vector subtracted "
        f"{_cosine_text(highest['centred']['anisotropy'])}."
    ]
    ends = [f"{_cosine_text(row['centred']['self_similarity'])} in {row['name']}" for row in [rows[0], *rows[1:][-1:]]]
    text = "The same word in two sentences has, with the mean subtracted, a cosine of"
    return [*sentences, f"{text} {' and '.join(ends)}; the difference from 1 is due to context."]


def _cosine_text(value: dict[str, float]) -> str:
    return formatting.cosine_interval(*value.values())
