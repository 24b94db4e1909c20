"""Word2vec by hand, in four steps, and what its vectors are worth to a classifier: python demo/word2vec_by_hand.py

Clean the texts, index their words, make skip-gram pairs, train with negative sampling (Mikolov et al. 2013,
arXiv:1310.4546), all in numpy. Then four topics of bank customers' questions are classified with and without
pretrained vectors. docs/word2vec-by-hand.md explains each step and shows what this prints.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from textgraft import WordVectors, load_vectors, read
from textgraft.core import formatting
from textgraft.metrics.classification import bootstrap_interval, difference_interval
from textgraft.word_embeddings.word_map import plot_vectors

HERE = Path(__file__).parent
PRETRAINED = "en-vectors"
Matrix = NDArray[np.float64]
Numbers = NDArray[np.int64]


# 1. Clean: a text becomes a list of words.


def clean(text: str) -> list[str]:
    """Return the words of a text in lower case, without digits and punctuation.

    >>> clean("My card hasn't arrived (2 weeks)!")
    ['my', 'card', "hasn't", 'arrived', 'weeks']
    """
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower().replace("’", "'"))


# 2. Index: a word becomes a number, 0 the most frequent.


def index_words(sentences: Sequence[Sequence[str]], min_count: int) -> tuple[dict[str, int], Numbers]:
    """Number the words that occur at least `min_count` times; return the numbers and the counts."""
    counts = Counter(word for words in sentences for word in words)
    kept = [(word, count) for word, count in counts.most_common() if count >= min_count]
    return {word: i for i, (word, _) in enumerate(kept)}, np.array([count for _, count in kept], dtype=np.int64)


# 3. Skip-gram pairs: each word with each of its neighbours.


def skipgram_pairs(sentences: Sequence[Numbers], window: int) -> Numbers:
    """Return all (centre, context) pairs (N, 2) of words at most `window` apart in a sentence."""
    pairs = [
        (centre, sentence[j])
        for sentence in sentences
        for i, centre in enumerate(sentence)
        for j in range(max(0, i - window), min(len(sentence), i + window + 1))
        if j != i
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def without_frequent(pairs: Numbers, counts: Numbers, threshold: float, rng: np.random.Generator) -> Numbers:
    """Drop pairs at random, so that words such as "the" do not outnumber all others (equation 5 of the paper).

    A word is kept with a probability of sqrt(threshold / its share of the text), a pair if both of its words are.
    """
    keep = np.minimum(1, np.sqrt(threshold * counts.sum() / counts))
    return pairs[(rng.random(pairs.shape) < keep[pairs]).all(axis=1)]


# 4. Train: a word's vector predicts its neighbours.


@dataclass(frozen=True)
class Options:
    """The hyper-parameters; the defaults are those of the page."""

    dimensions: int = 50
    window: int = 5
    min_count: int = 3
    negatives: int = 5
    epochs: int = 10
    rate: float = 0.1
    batch: int = 64
    threshold: float = 1e-3
    seed: int = 0


def sigmoid(x: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-x))


def loss_and_gradients(centre: Matrix, context: Matrix, noise: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Negative sampling (equation 4 of the paper) for B pairs, and its gradients.

    -log sigmoid(u · v) - sum over k of log sigmoid(-n_k · v)

    Args:
        centre: v, (B, D).
        context: u, (B, D): the words that stand there.
        noise: n, (B, K, D): random words that do not.

    Returns:
        The loss (B,), and its gradients with respect to the three arguments, in their shapes.
    """
    true = np.einsum("bd,bd->b", context, centre)
    false = np.einsum("bkd,bd->bk", noise, centre)
    loss = np.logaddexp(0, -true) + np.logaddexp(0, false).sum(axis=1)  # -log sigmoid(x) = log(1 + exp(-x))
    true_error = sigmoid(true) - 1  # d loss / d true
    false_error = sigmoid(false)  # d loss / d false
    of_centre = true_error[:, None] * context + np.einsum("bk,bkd->bd", false_error, noise)
    of_context = true_error[:, None] * centre
    of_noise = false_error[:, :, None] * centre[:, None, :]
    return loss, of_centre, of_context, of_noise


def noise_words(counts: Numbers, shape: tuple[int, int], rng: np.random.Generator) -> Numbers:
    """Draw random words by their counts to the power of 3/4, as in the paper."""
    shares = counts**0.75
    drawn = np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(shape))
    return np.minimum(drawn, len(counts) - 1)


class Trained(NamedTuple):
    """The vectors of words as centres and as contexts, (V, D) each, and the mean loss of each epoch."""

    centres: Matrix
    contexts: Matrix
    losses: list[float]


def train(pairs: Numbers, counts: Numbers, options: Options) -> Trained:
    """Stochastic gradient descent over the pairs, with a rate that falls to zero."""
    rng = np.random.default_rng(options.seed)
    shape = (len(counts), options.dimensions)
    centres, contexts = (rng.random(shape) - 0.5) / options.dimensions, np.zeros(shape)
    losses = []
    for epoch in range(options.epochs):
        epoch_pairs = rng.permutation(without_frequent(pairs, counts, options.threshold, rng))
        total = 0.0
        for start in range(0, len(epoch_pairs), options.batch):
            c, o = epoch_pairs[start : start + options.batch].T
            n = noise_words(counts, (len(c), options.negatives), rng)
            loss, of_centre, of_context, of_noise = loss_and_gradients(centres[c], contexts[o], contexts[n])
            done = (epoch + start / len(epoch_pairs)) / options.epochs
            rate = options.rate * (1 - done)
            # subtract.at, because a word may be several times in a batch: each of its gradients counts.
            np.subtract.at(centres, c, rate * of_centre)
            np.subtract.at(contexts, o, rate * of_context)
            np.subtract.at(contexts, n, rate * of_noise)
            total += float(loss.sum())
        losses.append(total / len(epoch_pairs))
    return Trained(centres, contexts, losses)


# What the vectors are worth: four topics, a few labelled questions of each.


Features = Callable[[Sequence[str]], NDArray]


def mean_vectors(vectors: WordVectors, texts: Sequence[str]) -> NDArray:
    """The mean of the unit vectors of each text's words (N, D); zeros where it has no known word."""
    rows = []
    for text in texts:
        of_words = vectors.vectors(clean(text))
        lengths = np.linalg.norm(of_words, axis=1)
        known = of_words[lengths > 0] / lengths[lengths > 0, None]
        rows.append(known.mean(axis=0) if len(known) else np.zeros(vectors.dimensions))
    return np.array(rows)


def accuracies(
    features: NDArray, labels: NDArray, test_features: NDArray, test_labels: NDArray, samples: Sequence[Numbers]
) -> Matrix:
    """1 for each test text that is classified correctly, else 0, for each sample of the training texts (S, N)."""
    hits = []
    for sample in samples:
        classifier = LogisticRegression(C=10, max_iter=1000).fit(features[sample], labels[sample])
        hits.append(classifier.predict(test_features) == test_labels)
    return np.array(hits, dtype=np.float64)


def drawn(labels: NDArray, per_topic: int, seed: int) -> Numbers:
    """Draw this many texts of each label at random."""
    rng = np.random.default_rng(seed)
    topics = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.concatenate([rng.choice(rows, per_topic, replace=False) for rows in topics])


def compare(own: WordVectors, untrained: WordVectors, arguments: argparse.Namespace) -> None:
    """Print the accuracy of each kind of features by the number of labelled questions."""
    train_texts, test_texts = read(arguments.train), read(arguments.test)
    labels, test_labels = np.array(train_texts.labels), np.array(test_texts.labels)
    words = CountVectorizer(analyzer=clean).fit(train_texts.texts)
    pretrained = load_vectors(arguments.vectors)
    features: dict[str, Features] = {
        "bag of words": lambda texts: words.transform(texts),
        "mean of untrained vectors": lambda texts: mean_vectors(untrained, texts),
        "mean of our vectors": lambda texts: mean_vectors(own, texts),
        f"mean of {arguments.vectors}": lambda texts: mean_vectors(pretrained, texts),
    }
    computed = {name: (of(train_texts.texts), of(test_texts.texts)) for name, of in features.items()}
    frequent = max(np.mean(test_labels == label) for label in set(labels))
    print(f"\nAccuracy on {len(test_labels):,} test questions, mean of {arguments.samples} samples [95 % interval];")
    print(f"always the most frequent topic: {frequent:.1%}")
    table = [["labelled questions of each topic", *features]]
    against = [["against bag of words", *features]]
    for count in arguments.labels:
        samples = [drawn(labels, count, seed) for seed in range(arguments.samples)]
        hits = {name: accuracies(x, labels, y, test_labels, samples) for name, (x, y) in computed.items()}
        bag = hits["bag of words"]
        scores = [formatting.interval(*bootstrap_interval(found), "accuracy") for found in hits.values()]
        gains = [formatting.signed(*difference_interval(found - bag), "accuracy") for found in hits.values()]
        table.append([str(count), *scores])
        against.append([str(count), "", *gains[1:]])
    print(formatting.aligned(table, left=range(len(table[0]))))
    print(formatting.aligned(against, left=range(len(table[0]))))


def main() -> None:
    arguments = _arguments()
    options = Options(epochs=arguments.epochs, seed=arguments.seed)
    texts = read(arguments.train).texts

    cleaned = [clean(text) for text in texts]
    print(f"1. clean   {texts[0]!r} -> {cleaned[0]}")
    numbers, counts = index_words(cleaned, options.min_count)
    sentences = [np.array([numbers[word] for word in words if word in numbers], dtype=np.int64) for words in cleaned]
    words = list(numbers)
    print(f"2. index   {counts.sum():,} words, {len(words):,} different ones; most frequent: {', '.join(words[:8])}")
    pairs = skipgram_pairs(sentences, options.window)
    first = ", ".join(f"({words[c]}, {words[o]})" for c, o in pairs[:4])
    print(f"3. pairs   {len(pairs):,}; the first: {first}")
    trained = train(pairs, counts, options)
    print(f"4. train   mean loss by epoch: {', '.join(f'{loss:.3f}' for loss in trained.losses)}")

    own = WordVectors(words, trained.centres.astype(np.float32), counts=counts)
    for word in arguments.words:
        near = ", ".join(f"{other} {cosine:.2f}" for other, cosine in own.neighbours(word, 5))
        print(f"   nearest to {word}: {near}")
    plot_vectors(own, words[40:120], method="tsne", seed=options.seed).save(arguments.picture)
    print(f"   the picture: {arguments.picture}")
    random = np.random.default_rng(options.seed).normal(size=trained.centres.shape)
    compare(own, WordVectors(words, random.astype(np.float32)), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = HERE / "data" / "topics"
    parser.add_argument("--train", type=Path, default=data / "train.csv.xz", help="texts with labels")
    parser.add_argument("--test", type=Path, default=data / "test.csv.xz", help="texts with labels to measure on")
    parser.add_argument("--vectors", default=PRETRAINED, help=f"pretrained word vectors (default: {PRETRAINED})")
    parser.add_argument("--epochs", type=int, default=Options.epochs, help="passes over the pairs")
    parser.add_argument("--labels", type=int, nargs="+", default=[5, 20, 100], help="labelled texts of each topic")
    parser.add_argument("--samples", type=int, default=10, help="random samples of labelled texts")
    parser.add_argument("--words", nargs="+", default=["declined", "friend", "atm", "lost"], help="show neighbours of")
    parser.add_argument("--picture", type=Path, default=HERE / "word2vec.svg", help="the map of words (.svg or .png)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
