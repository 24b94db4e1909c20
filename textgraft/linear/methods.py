"""The linear ways to a classifier, of which candidates and methods are made: what each stands on, how it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core.resource_meter import Meter
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.fitted import feature_map_from_state
from textgraft.linear.lsa import FeatureMap, plain_and_residual_idf
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.state import State
from textgraft.linear.word_vector_features import plain_and_residual_idf_words
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint

Classifier = LinearBaseline | LsaBaseline | CoTrainedClassifier


@dataclass(frozen=True)
class Family:
    """Spaces that are learned together from unlabelled texts; where they are several the labels choose."""

    names: tuple[str, ...]
    fit: Callable[[FeatureMaps], Sequence[FeatureMap]]


class FeatureMaps:
    """What unlabelled texts teach: fitted once, when first asked for, and kept in `folder`."""

    def __init__(self, texts: Sequence[str], folder: Path, *, seed: int = 0) -> None:
        self.texts, self.folder, self.seed = texts, folder, seed
        self.seconds: dict[Family, float] = {}
        self._made: dict[Family, list[FeatureMap]] = {}

    def of(self, family: Family) -> list[FeatureMap]:
        """A family's spaces, as they will be saved. Raises UserError where the texts are too few for them."""
        if family not in self._made:
            paths = [self.folder / f"{name}.safetensors" for name in family.names]
            if not all(path.exists() for path in paths):
                with Meter() as meter:
                    spaces = family.fit(self)
                for path, space in zip(paths, spaces, strict=True):
                    facts = {"form": space.form, "seconds": meter.seconds / len(spaces)}
                    write_state(path, space.state(), {}, facts)
            # Read back even if they were just written: what is measured is what is saved, in half precision.
            found = [read_state(path) for path in paths]
            self._made[family] = [feature_map_from_state(facts["form"], state) for state, _, facts in found]
            self.seconds[family] = sum(facts["seconds"] for _, _, facts in found)
        return self._made[family]

    @cached_property
    def counted(self) -> NgramCounts:
        """The unlabelled texts, counted when a family first asks."""
        return NgramCounts.of(self.texts, seed=self.seed)

    @cached_property
    def pool(self) -> Pool:
        """The unlabelled texts as the spaces and n-grams see them."""
        (paragraphs,) = self.of(PARAGRAPHS)
        spaces = {"LSA": self.of(LSA), "paragraph vectors": [paragraphs] * len(LSA.names)}
        pool = Pool.of(self.counted, spaces, seed=self.seed)
        del self.counted  # some hundred megabytes that nobody asks for again
        return pool


LSA = Family(("lsa", "even lsa"), lambda of: plain_and_residual_idf(of.counted, seed=of.seed))
VECTORS = Family(("word vectors", "even word vectors"), lambda of: plain_and_residual_idf_words(of.texts, seed=of.seed))
PARAGRAPHS = Family(("paragraph vectors",), lambda of: [ParagraphFeatures(seed=of.seed).fit_counted(of.counted)])


@dataclass(frozen=True)
class LinearMethod:
    """One linear way: how to make its classifier, unfitted, for a seed; its spaces; if it is only for one label."""

    about: str
    classifier: Callable[[FeatureMaps, int], Classifier]
    spaces: tuple[Family, ...] = ()
    one_label_only: bool = False


LINEAR_METHODS: dict[str, LinearMethod] = {
    "linear": LinearMethod(
        "TF-IDF of n-grams into logistic regression: what one would have used anyway.",
        lambda spaces, seed: LinearBaseline(seed=seed),
    ),
    "lsa": LinearMethod(
        "Logistic regression on what both halves of a text say in a latent semantic analysis, plain or even.",
        lambda spaces, seed: LsaBaseline(spaces=spaces.of(LSA), seed=seed),
        (LSA,),
    ),
    "vectors": LinearMethod(
        "Logistic regression on means of word vectors, counted from the unlabelled texts, plain or even.",
        lambda spaces, seed: LsaBaseline(spaces=spaces.of(VECTORS), seed=seed),
        (VECTORS,),
    ),
    "co-training": LinearMethod(
        "Co-training: classifiers on LSA, paragraph vectors and n-grams teach each other on the unlabelled texts.",
        lambda spaces, seed: CoTrainedClassifier(spaces.pool, seed=seed),
        (LSA, PARAGRAPHS),
        one_label_only=True,
    ),
}
"""By name, the simple ones first: of equals the first is taken."""


def write_state(path: Path, state: State, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """A state (linear.state), other arrays and what JSON can hold, as one atomic file."""
    tensors = {f"model.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in state.arrays.items()}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    save_checkpoint(path, tensors, {"settings": state.settings, "documents": state.documents, "facts": dict(facts)})


def read_state(path: Path) -> tuple[State, dict[str, np.ndarray], dict[str, Any]]:
    """What `write_state` wrote: the state, the other arrays, the facts."""
    tensors, found = load_checkpoint(path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    own = {name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")}
    others = {name: a for name, a in arrays.items() if not name.startswith("model.")}
    return State(found["settings"], own, found["documents"]), others, found["facts"]
