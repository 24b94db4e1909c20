"""Registry of the linear methods: the feature maps each one needs and how its classifier is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from textgraft.core.resource_meter import Meter
from textgraft.linear.baselines import Baseline, LinearBaseline, LsaBaseline
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.fitted import FittedModel, feature_map_from_state
from textgraft.linear.lsa import FeatureMap, plain_and_residual_idf
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.state import State
from textgraft.linear.word_vector_features import plain_and_residual_idf_words
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint


class Classifier(Baseline, Protocol):
    """A linear classifier whose fitted model can be saved (linear.artifact.FORMS)."""

    @property
    def fitted(self) -> FittedModel: ...


@dataclass(frozen=True)
class Family:
    """Variants of a feature map that are fitted together to unlabelled texts; where there are several, labels select
    one.

    Attributes:
        names: File names of the variants.
        fit: Fits the variants.
    """

    names: tuple[str, ...]
    fit: Callable[[FeatureMaps], Sequence[FeatureMap]]


class FeatureMaps:
    """Feature maps fitted to unlabelled texts, lazily and once; each is saved in `folder`.

    Args:
        texts: The unlabelled texts.
        folder: Folder of the saved feature maps.
        seed: Seeds samples and factorisations.
    """

    def __init__(self, texts: Sequence[str], folder: Path, *, seed: int = 0) -> None:
        self.texts, self.folder, self.seed = texts, folder, seed
        self.seconds: dict[Family, float] = {}
        self._feature_maps: dict[Family, list[FeatureMap]] = {}

    def of(self, family: Family) -> list[FeatureMap]:
        """A family's feature maps, with the precision they are saved with. Raises UserError if the texts are
        too few.
        """
        if family not in self._feature_maps:
            paths = [self.folder / f"{name}.safetensors" for name in family.names]
            if not all(path.exists() for path in paths):
                with Meter() as meter:
                    feature_maps = family.fit(self)
                for path, feature_map in zip(paths, feature_maps, strict=True):
                    facts = {"form": feature_map.form, "seconds": meter.seconds / len(feature_maps)}
                    write_state(path, feature_map.state(), {}, facts)
            # Read back even if just written, so that results are those of the saved half-precision arrays.
            files = [read_state(path) for path in paths]
            self._feature_maps[family] = [feature_map_from_state(facts["form"], state) for state, _, facts in files]
            self.seconds[family] = sum(facts["seconds"] for _, _, facts in files)
        return self._feature_maps[family]

    @cached_property
    def counted(self) -> NgramCounts:
        """n-gram counts of the unlabelled texts, computed on first use."""
        return NgramCounts.of(self.texts, seed=self.seed)

    @cached_property
    def pool(self) -> Pool:
        """The unlabelled texts under the views of co-training."""
        (paragraphs,) = self.of(PARAGRAPHS)
        feature_maps = {"LSA": self.of(LSA), "paragraph vectors": [paragraphs] * len(LSA.names)}
        return Pool.of(self.counted, feature_maps, seed=self.seed)

    def release(self) -> None:
        """Free the n-gram counts, which may be several hundred megabytes; they are computed again when needed."""
        self.__dict__.pop("counted", None)


LSA = Family(("lsa", "lsa, residual idf"), lambda maps: plain_and_residual_idf(maps.counted, seed=maps.seed))
VECTORS = Family(
    ("word vectors", "word vectors, residual idf"),
    lambda maps: plain_and_residual_idf_words(maps.texts, seed=maps.seed),
)
PARAGRAPHS = Family(("paragraph vectors",), lambda maps: [ParagraphFeatures(seed=maps.seed).fit_counted(maps.counted)])


@dataclass(frozen=True)
class LinearMethod:
    """A linear method.

    Attributes:
        about: One sentence for tables and help.
        classifier: Builds the unfitted classifier from feature maps and a seed.
        feature_maps: The families that it uses.
        one_label_only: True if targets must have one label per text.
        in_ensemble: True if it is a candidate of the weighted ensemble of `finetune`, not only a method by name.
    """

    about: str
    classifier: Callable[[FeatureMaps, int], Classifier]
    feature_maps: tuple[Family, ...] = ()
    one_label_only: bool = False
    in_ensemble: bool = True


LINEAR_METHODS: dict[str, LinearMethod] = {
    "linear": LinearMethod(
        "Logistic regression on TF-IDF of n-grams: the standard baseline.",
        lambda maps, seed: LinearBaseline(seed=seed),
    ),
    "lsa": LinearMethod(
        "Logistic regression on a latent semantic analysis with split-half CCA, plain or residual-IDF weighted.",
        lambda maps, seed: LsaBaseline(feature_maps=maps.of(LSA), seed=seed),
        (LSA,),
    ),
    "vectors": LinearMethod(
        "Logistic regression on means of word vectors of the unlabelled texts, plain or residual-IDF weighted.",
        lambda maps, seed: LsaBaseline(feature_maps=maps.of(VECTORS), seed=seed),
        (VECTORS,),
        # The best in no row of docs/results.md; where a hundred held-out predictions favour it, it is by chance and
        # costs three points (research/lab-notes.md).
        in_ensemble=False,
    ),
    "co-training": LinearMethod(
        "Co-training of classifiers on LSA, paragraph vectors and n-grams with the unlabelled texts.",
        lambda maps, seed: CoTrainedClassifier(maps.pool, seed=seed),
        (LSA, PARAGRAPHS),
        one_label_only=True,
    ),
}
"""Linear methods by name, simple ones first: on ties the first is chosen."""


def write_state(path: Path, state: State, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write a state (linear.state), further arrays and JSON facts as one atomic file.

    Args:
        path: File to write.
        state: The state.
        arrays: Further arrays by name.
        facts: JSON values.
    """
    tensors = {f"model.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in state.arrays.items()}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    save_checkpoint(path, tensors, {"settings": state.settings, "documents": state.documents, "facts": dict(facts)})


def read_state(path: Path) -> tuple[State, dict[str, np.ndarray], dict[str, Any]]:
    """Read a file of `write_state`: the state, the further arrays and the facts."""
    tensors, metadata = load_checkpoint(path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    state_arrays = {name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")}
    others = {name: a for name, a in arrays.items() if not name.startswith("model.")}
    return State(metadata["settings"], state_arrays, metadata["documents"]), others, metadata["facts"]
