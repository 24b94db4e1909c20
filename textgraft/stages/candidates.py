"""The linear classifiers that a fine-tuning may fall back on, each with its answers for texts that it has not seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from textgraft.artifact import Predictor
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.errors import UserError
from textgraft.evaluation import Outcome
from textgraft.linear.artifact import FORMS, LinearArtifact, logits, scaled
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.fitted import SPACES, Fitted
from textgraft.linear.latent_space import LatentSpace, Space
from textgraft.linear.self_training import Pool, SelfTrained
from textgraft.linear.state import State
from textgraft.linear.word_space import WordSpace
from textgraft.training.calibration import fit_temperature
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.meter import Meter

FROM_NO_MODEL: dict[str, None] = dict.fromkeys(("base", "licence", "language", "recipe", "tokens_lost"))
"""What run.json does not say of a classifier that no language model has a part in."""
Fit = Callable[[Sequence[str], np.ndarray], Fitted]
"""From texts and their targets to a fitted classifier."""


@dataclass(frozen=True)
class Candidate:
    """One way to the labels, trained on all of them, and what it says of texts that it was not trained on.

    `held_out` are its temperature-scaled answers for the training texts (N, C), each from a fold that left the text out
    (NaN where no fold did); `outcome` its answers for the examined texts. `seconds` is what all of its trainings took,
    without what candidates share. `predictor` makes what is saved of it, from what run.json says of the whole.
    """

    name: str
    held_out: np.ndarray
    outcome: Outcome
    seconds: float
    predictor: Callable[[Mapping[str, Any]], Predictor]


@dataclass(frozen=True)
class Ground:
    """What every linear candidate stands on: texts, folds, the seed, and the folder for unfinished work.

    `examined` are texts to measure on; None where the folds are what is measured on.
    """

    train: Examples
    examined: Examples | None
    labels: Labels
    unlabelled: Sequence[str]
    splits: Sequence[Split]
    seed: int
    folder: Path

    @cached_property
    def targets(self) -> np.ndarray:
        return self.labels.encode(self.train)

    @property
    def held(self) -> list[list[int]]:
        """The training texts that each fold holds out."""
        return [held for _, held in self.splits]

    @cached_property
    def known(self) -> np.ndarray:
        """The training texts that any fold holds out, ascending."""
        return np.array(sorted(i for held in self.held for i in held), dtype=int)

    def out_of_fold(self, fit: Fit) -> np.ndarray:
        """Answers (N, C) for the training texts by classifiers fitted on the other folds; NaN where there is none."""
        shape = (len(self.train),) if self.labels.kind == "numeric" else (len(self.train), self.labels.num_outputs)
        answers = np.full(shape, np.nan)
        for kept, held in self.splits:
            fitted = fit([self.train.texts[i] for i in kept], self.targets[kept])
            answers[held] = fitted.outputs([self.train.texts[i] for i in held])
        return answers


class Spaces:
    """What the unlabelled texts teach: fitted once, when first asked for, and kept in the work folder."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.seconds: dict[str, float] = {}
        self._made: dict[str, Space] = {}

    def space(self, form: str) -> Space:
        """The space of a form, as it will be saved. Raises UserError where the texts are too few for one."""
        if form not in self._made:
            path = self.ground.folder / "spaces" / f"{form}.safetensors"
            if not path.exists():
                unfitted: LatentSpace | WordSpace = SPACES[form](seed=self.ground.seed)
                with Meter() as meter:
                    # Not to the training texts: to a space that has read it, a held-out text is not new.
                    state = unfitted.fit(self.ground.unlabelled).state()
                _write(path, state, {}, {"seconds": meter.seconds})
            # Read back even if it was just written: what is measured is what is saved, in half precision.
            state, _, about = _read(path)
            self._made[form], self.seconds[form] = SPACES[form].from_state(state), about["seconds"]
        return self._made[form]

    @cached_property
    def pool(self) -> Pool:
        """The unlabelled texts as both spaces and n-grams see them."""
        spaces = {"LSA": self.space(LatentSpace.form), "word vectors": self.space(WordSpace.form)}
        return Pool.of(self.ground.unlabelled, spaces, seed=self.ground.seed)


def _fit_linear(ground: Ground, spaces: Spaces) -> Fit:
    return partial(_fitted, ground, LinearBaseline(seed=ground.seed))


def _fit_lsa(ground: Ground, spaces: Spaces) -> Fit:
    return partial(_fitted, ground, LsaBaseline(space=spaces.space(LatentSpace.form), seed=ground.seed))


def _fit_vectors(ground: Ground, spaces: Spaces) -> Fit:
    return partial(_fitted, ground, LsaBaseline(space=spaces.space(WordSpace.form), seed=ground.seed))


def _fit_self_trained(ground: Ground, spaces: Spaces) -> Fit:
    return partial(_fitted, ground, SelfTrained(spaces.pool, seed=ground.seed))


@dataclass(frozen=True)
class Kind:
    """A kind of linear candidate: how to get ready for fitting it, the spaces it needs, and if only for one label."""

    ready: Callable[[Ground, Spaces], Fit]
    spaces: tuple[str, ...] = ()
    one_label_only: bool = False


KINDS: dict[str, Kind] = {
    "linear": Kind(_fit_linear),
    "lsa": Kind(_fit_lsa, (LatentSpace.form,)),
    "vectors": Kind(_fit_vectors, (WordSpace.form,)),
    "self-trained": Kind(_fit_self_trained, (LatentSpace.form, WordSpace.form), one_label_only=True),
}
"""By name, the simple ones first: of equals the first is taken."""


@dataclass(frozen=True)
class Tried:
    """The linear candidates, why others were left out, and what the spaces took that several of them look at."""

    candidates: list[Candidate]
    left_out: dict[str, str]
    shared_seconds: float


def linear_candidates(ground: Ground, *, show: bool = True) -> Tried:
    """Every linear classifier that this kind of target and these texts allow.

    Those that `ground.folder` holds already are taken from there, and all come from there: what is measured is what is
    saved. A line on stderr for each says that it is done.
    """
    spaces = Spaces(ground)
    candidates, left_out = [], {}
    for name, kind in KINDS.items():
        if kind.spaces and not ground.unlabelled:
            continue
        if kind.one_label_only and ground.labels.kind != "single":
            left_out[name] = "it is for one label a text"
            continue
        try:
            for form in kind.spaces:
                spaces.space(form)
        except UserError as error:
            left_out[name] = str(error)
            continue
        candidates.append(_candidate(name, kind, ground, spaces))
        if show:
            print(f"candidate {name}: {candidates[-1].outcome.about}", file=sys.stderr, flush=True)
    return Tried(candidates, left_out, sum(spaces.seconds.values()))


def _candidate(name: str, kind: Kind, ground: Ground, spaces: Spaces) -> Candidate:
    path = ground.folder / "candidates" / f"{name}.safetensors"
    if not path.exists():
        with Meter() as preparing:
            fit = kind.ready(ground, spaces)
        with Meter() as folding:
            held_out = ground.out_of_fold(fit)
        with Meter() as fitting:
            fitted = fit(list(ground.train.texts), ground.targets)
        once = preparing.seconds + fitting.seconds
        peak = max(preparing.peak_mb, folding.peak_mb, fitting.peak_mb)
        facts: dict[str, Any] = {"form": fitted.form, "once": once, "seconds": once + folding.seconds, "peak_mb": peak}
        _write(path, fitted.state(), {"held_out": held_out}, facts)
    state, arrays, facts = _read(path)
    model = cast(Fitted, FORMS[facts["form"]].from_state(state))
    raw, labels, known = arrays["held_out"], ground.labels, ground.known
    temperature = None
    if labels.kind != "numeric":
        temperature = fit_temperature(logits(raw[known], labels), ground.targets[known], labels.kind)
    held_out = np.full_like(raw, np.nan)
    held_out[known] = scaled(raw[known], labels, temperature)
    outputs = held_out
    if ground.examined is not None:
        raw = model.outputs(list(ground.examined.texts))
        outputs = scaled(raw, labels, temperature)
    minutes = (facts["once"] + sum(spaces.seconds[form] for form in kind.spaces)) / 60
    outcome = Outcome(name, outputs[None], raw[None], minutes, facts["peak_mb"], model.about)
    return Candidate(name, held_out, outcome, facts["seconds"], partial(_artifact, model, labels, temperature))


def _fitted(
    ground: Ground, baseline: LinearBaseline | LsaBaseline | SelfTrained, texts: Sequence[str], targets: np.ndarray
) -> Fitted:
    labels = ground.labels
    classes = None if labels.kind == "numeric" else labels.num_outputs
    return baseline.fit(texts, targets, kind=labels.kind, num_classes=classes).fitted


def _artifact(model: Fitted, labels: Labels, temperature: float | None, run: Mapping[str, Any]) -> LinearArtifact:
    own = {"linear": model.about, "temperature": temperature}
    return LinearArtifact(model, labels, {**run, **FROM_NO_MODEL, **own})


def _write(path: Path, state: State, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    tensors = {f"model.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in state.arrays.items()}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    save_checkpoint(path, tensors, {"settings": state.settings, "documents": state.documents, "facts": dict(facts)})


def _read(path: Path) -> tuple[State, dict[str, np.ndarray], dict[str, Any]]:
    """What `_write` wrote: the state, the other arrays, the facts."""
    tensors, found = load_checkpoint(path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    own = {name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")}
    others = {name: a for name, a in arrays.items() if not name.startswith("model.")}
    return State(found["settings"], own, found["documents"]), others, found["facts"]
