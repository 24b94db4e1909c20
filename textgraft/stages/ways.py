"""The linear ways to a classifier, of which candidates and methods are made: what each stands on, how it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.latent_space import LatentSpace, Space
from textgraft.linear.self_training import Pool, SelfTrained
from textgraft.linear.state import State
from textgraft.linear.word_space import WordSpace
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.meter import Meter

Classifier = LinearBaseline | LsaBaseline | SelfTrained

LSA = ("lsa", "even lsa")
VECTORS = ("word vectors",)
KINDS: dict[str, Callable[..., LatentSpace | WordSpace]] = {
    "lsa": LatentSpace,
    "even lsa": partial(LatentSpace, even=True),
    "word vectors": WordSpace,
}
"""Spaces by name; where a way has several the labels choose."""


class Spaces:
    """What unlabelled texts teach: fitted once, when first asked for, and kept in `folder`."""

    def __init__(self, texts: Sequence[str], folder: Path, *, seed: int = 0) -> None:
        self.texts, self.folder, self.seed = texts, folder, seed
        self.seconds: dict[str, float] = {}
        self._made: dict[str, Space] = {}

    def space(self, name: str) -> Space:
        """One of KINDS, as it will be saved. Raises UserError where the texts are too few for it."""
        return self.fitted(name, lambda: KINDS[name](seed=self.seed))

    def fitted(self, name: str, unfitted: Callable[[], LatentSpace | WordSpace]) -> Space:
        """The space of that name, fitted to the texts if it has not been."""
        if name not in self._made:
            path = self.folder / f"{name}.safetensors"
            space = unfitted()
            if not path.exists():
                with Meter() as meter:
                    state = space.fit(self.texts).state()
                write_state(path, state, {}, {"seconds": meter.seconds})
            # Read back even if it was just written: what is measured is what is saved, in half precision.
            state, _, about = read_state(path)
            self._made[name], self.seconds[name] = type(space).from_state(state), about["seconds"]
        return self._made[name]

    @cached_property
    def pool(self) -> Pool:
        """The unlabelled texts as the spaces and n-grams see them."""
        spaces = {"LSA": [self.space(name) for name in LSA], "word vectors": [self.space(name) for name in VECTORS]}
        return Pool.of(self.texts, spaces, seed=self.seed)


@dataclass(frozen=True)
class Way:
    """One linear way: how to make its classifier, unfitted, for a seed; its spaces; if it is only for one label."""

    about: str
    classifier: Callable[[Spaces, int], Classifier]
    spaces: tuple[str, ...] = ()
    one_label_only: bool = False


WAYS: dict[str, Way] = {
    "linear": Way(
        "TF-IDF of n-grams into logistic regression: what one would have used anyway.",
        lambda spaces, seed: LinearBaseline(seed=seed),
    ),
    "lsa": Way(
        "Logistic regression on a latent semantic analysis of the unlabelled texts, plain or even.",
        lambda spaces, seed: LsaBaseline(spaces=[spaces.space(name) for name in LSA], seed=seed),
        LSA,
    ),
    "vectors": Way(
        "Logistic regression on means of word vectors, which are counted from the unlabelled texts.",
        lambda spaces, seed: LsaBaseline(spaces=[spaces.space(name) for name in VECTORS], seed=seed),
        VECTORS,
    ),
    "self-trained": Way(
        "Classifiers on LSA, on word vectors and on n-grams teach each other on the unlabelled texts.",
        lambda spaces, seed: SelfTrained(spaces.pool, seed=seed),
        (*LSA, *VECTORS),
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
