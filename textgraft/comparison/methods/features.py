"""Methods that read vectors of a text's words off frozen models, and learn a linear layer on their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.comparison.methods.base import KINDS, MethodOptions, Predictions, family_of, refuse_other_family
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
from textgraft.training.driver import content_hash
from textgraft.word_embeddings.corpus import words_of
from textgraft.word_embeddings.sources import AT_ONCE, FrozenModel, WordSource
from textgraft.word_embeddings.stack import Stack, open_unpooled

WORDS_AT_ONCE = 16_384
"""Words whose vectors are in memory together."""


class Features:
    """The mean of the words' vectors of frozen models, side by side, into logistic regression (ridge for numbers).

    `options.model` names one or several sources as a stack does (stack.py), parted by +: models, or word vectors.
    A text is cut into words by text.words; of more than `options.max_tokens` the middle is left out. A pair is both of
    its texts' vectors u and v, |u - v| and u * v (Conneau et al. 2017, arXiv:1705.02364, figure 1). `frozen` differs:
    its head reads maxima and the last position too, of one model, and learns by gradients, through the encoder again
    in every epoch.
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
        opened = open_unpooled(models_of(options.named_model), precision=options.precision)
        for source in opened:
            family = family_of(source.artifact) if isinstance(source, FrozenModel) else "word vectors"
            refuse_other_family(self.name, self.family, family, source.name)
        self._stack = Stack([one for source in opened for one in self._readings(source)])
        self.fingerprint = content_hash(source.fingerprint for source in self._stack.sources)
        self._folder: Path | None = None

    def _readings(self, source: WordSource) -> list[WordSource]:
        """The source as the family is read, where its name does not say which layers."""
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

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        known, asked = self._means(train.texts), self._means(texts)
        with Meter() as meter:
            scale = Scale.of(known.rows)
            classes = 1 if labels.kind == "numeric" else labels.num_outputs
            output = fit_output(scale(known.rows), labels.encode(train), labels.kind, classes, seed)
            outputs = output.predict(scale(asked.rows))
        names = " + ".join(Path(name).name for name in self._stack.names)
        about = f"Means of words' vectors ({names}) -> {output.about}"
        size = self._stack_bytes + output.size_in_bytes() + scale.mean.nbytes + scale.deviation.nbytes
        return Predictions(outputs, size, about, known.seconds + asked.seconds + meter.seconds)

    @cached_property
    def _stack_bytes(self) -> int:
        sources = {source.name: source for source in self._stack.sources}  # one may be read at several layers
        return sum(len(data) for source in sources.values() for data in source.files().values())

    def _means(self, texts: Sequence[str]) -> Means:
        """Computed once for the same texts: those of all cells' tests, and of all labels' samples, are the same.

        Whole lists are kept and not single texts, for what a text is read beside changes the last bits of its vector:
        a run that was killed has to meet the same batches as one that was not.
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
        sides = [side for text in texts for side in sides_of(text)]
        return f"means-{content_hash([self.fingerprint, self.options.max_tokens, len(texts), *sides])[:32]}"

    def _rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) of texts, or (N, 4 D) of pairs."""
        if not any(isinstance(text, Pair) for text in texts):
            return self._mean_vectors(texts)
        first, second = (self._mean_vectors(part) for part in zip(*map(sides_of, texts), strict=True))
        return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)

    def _mean_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D), not numbers where a text has no word."""
        found = np.full((len(texts), self._stack.width), np.nan, dtype=np.float32)
        most = self.options.max_tokens
        cut = {
            i: without_middle(words, most) for i, text in enumerate(texts) if (words := words_of(text, lowercase=False))
        }
        places, sentences = list(cut), list(cut.values())
        with Progress(f"{self.name}: vectors", len(places), shown=self.options.show) as progress:
            for some in budget_batches([len(words) for words in sentences], tokens=WORDS_AT_ONCE, rows=AT_ONCE):
                for i, vectors in zip(some, self._stack.vectors([sentences[i] for i in some]), strict=True):
                    found[places[i]] = vectors.mean(axis=0, dtype=np.float32)
                    progress.add(sum(map(len, sentences[i])), len(sentences[i]))
        return found


class Elmo(Features):
    """ELMo (Peters et al. 2018): [x; ELMo], a word by its characters beside the sum of the LSTM layers.

    The paper learns with the task how much each layer counts.
    """

    name = "elmo"
    about = "Logistic regression on means of ELMo's words and the sum of its LSTM layers (Peters et al. 2018)."
    model = "en-elmo-small"
    family = "elmo"
    layer_aggregations = ("first", "sum")


class Flair(Features):
    """Flair (Akbik et al. 2018): a forward and a backward character language model side by side."""

    name = "flair"
    about = "Logistic regression on means of Flair's vectors, forward beside backward (Akbik et al. 2018)."
    model = "en-flair-small-forward+en-flair-small-backward"
    family = "flair"


class Cove(Features):
    """[GloVe(w); CoVe(w)] (McCann et al. 2017), which is what a CoVe here shows of a word."""

    name = "cove"
    about = "Logistic regression on means of [w; CoVe(w)], a translator's words and encoder (McCann et al. 2017)."
    model = "en-cove-small"
    family = "cove"


@dataclass(frozen=True)
class Means:
    """A vector a text, (N, D), and how long all of them took."""

    rows: NDArray[np.float32]
    seconds: float


def sides_of(text: str) -> tuple[str, ...]:
    """Both texts of a pair, or the one that it is."""
    return (text.first, text.second) if isinstance(text, Pair) else (text,)


def without_middle(words: Sequence[str], most: int) -> Sequence[str]:
    """No more than `most` words: the first quarter of them from the beginning, the rest from the end (inference)."""
    head = most // 4
    return words if len(words) <= most else [*words[:head], *words[len(words) - most + head :]]
