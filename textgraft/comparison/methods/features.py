"""Methods that extract word vectors from frozen models and fit a linear layer on their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.comparison.methods.base import KINDS, MethodOptions, Predictions, family_of, validate_family
from textgraft.core.identity import content_hash
from textgraft.core.progress import Meter as Progress
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import Labels
from textgraft.data.sequences import budget_batches
from textgraft.linear.linear_layer import fit_output
from textgraft.linear.scaling import Scale
from textgraft.models.model_folder import models_of
from textgraft.nn.layer_aggregation import LAST
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.word_embeddings.corpus import words_of
from textgraft.word_embeddings.sources import AT_ONCE, FrozenModel, WordSource
from textgraft.word_embeddings.stack import Stack, open_unpooled

WORDS_AT_ONCE = 16_384
"""Maximum number of words whose vectors are in memory together."""


class Features:
    """Mean of the words' vectors of frozen models, concatenated, into logistic regression (ridge regression for
    numbers).

    `options.model` names one or several sources as a stack does (stack.py), joined by +: models, or word vectors. A
    text is split into words by text.words; of more than `options.max_tokens` words the middle is dropped. A pair is
    represented by the vectors u and v of its texts, |u - v| and u * v (Conneau et al. 2017, arXiv:1705.02364, figure
    1). Unlike this method, `frozen` uses a single model, its head also takes maxima and the last position, and it is
    trained by gradient descent, with a pass through the encoder in every epoch.
    """

    name = "features"
    about = "Logistic regression on the means of the words' vectors from frozen models."
    model = ""
    needs_pool = False
    kinds = KINDS
    layer_aggregations: ClassVar[tuple[str, ...]] = (LAST,)
    family: ClassVar[str] = ""

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        sources = open_unpooled(models_of(options.named_model), precision=options.precision)
        for source in sources:
            family = family_of(source.artifact) if isinstance(source, FrozenModel) else "word vectors"
            validate_family(self.name, self.family, family, source.name)
        self._stack = Stack([layer_source for source in sources for layer_source in self._layer_sources(source)])
        self.fingerprint = content_hash(source.fingerprint for source in self._stack.sources)
        self._folder: Path | None = None

    def _layer_sources(self, source: WordSource) -> list[WordSource]:
        """The source at each of the family's layer aggregations, where its name does not give one."""
        if not isinstance(source, FrozenModel) or source.layer_aggregation != LAST:
            return [source]
        precision = self.options.precision
        return [
            FrozenModel(source.artifact, source.name, layer_aggregation, precision=precision)
            for layer_aggregation in self.layer_aggregations
        ]

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._folder = folder
        return 0.0

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        train_means, test_means = self._means(train.texts), self._means(texts)
        with Meter() as meter:
            scale = Scale.of(train_means.rows)
            output = fit_output(scale(train_means.rows), labels.encode(train), labels.kind, labels.num_outputs, seed)
            outputs = output.predict(scale(test_means.rows))
        names = " + ".join(Path(name).name for name in self._stack.names)
        about = f"Means of words' vectors ({names}) -> {output.about}"
        size = self._stack_bytes + output.size_in_bytes() + scale.mean.nbytes + scale.deviation.nbytes
        return Predictions(outputs, size, about, train_means.seconds + test_means.seconds + meter.seconds)

    @cached_property
    def _stack_bytes(self) -> int:
        sources = {source.name: source for source in self._stack.sources}  # one may occur with several layers
        return sum(len(data) for source in sources.values() for data in source.files().values())

    def _means(self, texts: Sequence[str]) -> Means:
        """Cached means; the texts of all cells' tests, and of all training samples, are the same.

        Whole lists are cached, not single texts: the other texts of a batch change the last bits of a vector, and a run
        that was killed has to use the same batches as one that was not.
        """
        assert self._folder is not None, "prepare comes first"
        path = self._folder / f"{self._file_name(texts)}.safetensors"
        if not path.exists():
            with Meter() as meter:
                rows = self._rows(texts)
            save_checkpoint(path, {"rows": torch.from_numpy(rows)}, {"seconds": meter.seconds})
        tensors, facts = load_checkpoint(path)
        return Means(tensors["rows"].numpy(), facts["seconds"])

    def _file_name(self, texts: Sequence[str]) -> str:
        sides = [side for text in texts for side in texts_of_pair(text)]
        return f"means-{content_hash([self.fingerprint, self.options.max_tokens, len(texts), *sides])[:32]}"

    def _rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Features (N, D) of texts, or (N, 4 D) of pairs."""
        if not any(isinstance(text, Pair) for text in texts):
            return self._mean_vectors(texts)
        first, second = (self._mean_vectors(part) for part in zip(*map(texts_of_pair, texts), strict=True))
        return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)

    def _mean_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Means (N, D), NaN where a text has no words."""
        means = np.full((len(texts), self._stack.width), np.nan, dtype=np.float32)
        maximum = self.options.max_tokens
        words_by_text = {
            i: drop_middle(words, maximum) for i, text in enumerate(texts) if (words := words_of(text, lowercase=False))
        }
        indices, sentences = list(words_by_text), list(words_by_text.values())
        with Progress(f"{self.name}: vectors", len(indices), shown=self.options.show) as progress:
            for batch in budget_batches([len(words) for words in sentences], tokens=WORDS_AT_ONCE, rows=AT_ONCE):
                for i, vectors in zip(batch, self._stack.vectors([sentences[i] for i in batch]), strict=True):
                    means[indices[i]] = vectors.mean(axis=0, dtype=np.float32)
                    progress.add(sum(map(len, sentences[i])), len(sentences[i]))
        return means


class Elmo(Features):
    """ELMo (Peters et al. 2018): [x; ELMo], the character-based word vector beside the sum of the LSTM layers.

    The paper learns the weights of the layers with the task.
    """

    name = "elmo"
    about = "Logistic regression on means of ELMo's words and the sum of its LSTM layers (Peters et al. 2018)."
    model = "en-elmo-small"
    family = "elmo"
    layer_aggregations = ("first", "sum")


class Flair(Features):
    """Flair (Akbik et al. 2018): a forward and a backward character language model, concatenated."""

    name = "flair"
    about = "Logistic regression on means of Flair's vectors, forward beside backward (Akbik et al. 2018)."
    model = "en-flair-small-forward+en-flair-small-backward"
    family = "flair"


class Cove(Features):
    """[GloVe(w); CoVe(w)] (McCann et al. 2017), the word vectors of a CoVe model here."""

    name = "cove"
    about = "Logistic regression on means of [w; CoVe(w)], a translator's words and encoder (McCann et al. 2017)."
    model = "en-cove-small"
    family = "cove"


@dataclass(frozen=True)
class Means:
    """Mean vectors of texts, (N, D), and the seconds that they took."""

    rows: NDArray[np.float32]
    seconds: float


def texts_of_pair(text: str) -> tuple[str, ...]:
    """Both texts of a pair, or the single text."""
    return (text.first, text.second) if isinstance(text, Pair) else (text,)


def drop_middle(words: Sequence[str], maximum: int) -> Sequence[str]:
    """At most `maximum` words: the first quarter from the beginning, the rest from the end, as in inference."""
    head = maximum // 4
    return words if len(words) <= maximum else [*words[:head], *words[len(words) - maximum + head :]]
