"""Ways to a classifier from a few labels, each as one small class that `compare` can put beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from textgraft.artifact import Artifact
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.ensemble import load_one
from textgraft.errors import UserError
from textgraft.inference import encode_texts
from textgraft.linear.baselines import Baseline, LatentSpace, LinearBaseline, LsaBaseline, Space
from textgraft.linear.fasttext import FastTextClassifier
from textgraft.linear.self_training import Pool, SelfTrained
from textgraft.linear.word_space import WordSpace
from textgraft.stages.adapt import adapt
from textgraft.training.classifier import EncodedTexts, Plan, outputs_from_logits, train_classifier
from textgraft.training.loop import Settings
from textgraft.training.phases import Stage, load_recipe
from textgraft.training.session import content_hash, weights_hash

KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")


@dataclass(frozen=True)
class MethodOptions:
    """What methods may be told: the language model, how it trains, and how much of a text it reads.

    `adapt_minutes` replaces the epochs of the recipe's adaptation; `seed` is that of what is done once for all
    trainings, which have seeds of their own.
    """

    model: str | Path = "en-ulmfit"
    recipe: str = "default"
    max_tokens: int = 512
    adapt_minutes: float | None = None
    precision: str = "auto"
    seed: int = 0
    show: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 1 or more.")

    @property
    def settings(self) -> Settings:
        return Settings(seed=self.seed, precision=self.precision)

    @cached_property
    def language_model(self) -> tuple[str, int]:
        """A hash of the model's weights and tokenizer, and its number of layer groups: read once for all methods."""
        source = load_one(self.model)
        identity = content_hash([weights_hash(source.model), source.tokenizer.fingerprint])
        return identity, len(source.model.encoder.layer_groups())


@dataclass(frozen=True)
class Answers:
    """What one trained model says of N texts, and its size.

    `outputs` are (N, C) probabilities, or (N,) standardised values for a numeric target. `seconds` is how long
    training took where that is known better than by the clock: it may have been interrupted and taken up again.
    """

    outputs: np.ndarray
    model_bytes: int
    about: str = ""
    seconds: float = 0.0


class Method(Protocol):
    """A way to a classifier, made from options; making it raises UserError for what can be known to fail.

    `needs_pool` says that it learns from unlabelled text, `kinds` which targets it can do, and `fingerprint` (a string)
    what its answers depend on beside the texts and the seed.
    """

    name: str
    about: str
    needs_pool: bool
    kinds: tuple[TargetKind, ...]

    def __init__(self, options: MethodOptions) -> None: ...

    @property
    def fingerprint(self) -> str: ...

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Do once what needs no labels; work in `folder`, and take up there what a killed run left.

        Returns how many seconds it took in all where files tell, else 0.
        """
        ...

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        """Train on `train` and answer for `texts`, in their order; `folder` is for unfinished work on just this."""
        ...


class Linear:
    """The n-gram linear classifier of textgraft.linear.baselines, or another that reads no pool and has no options."""

    name = "linear"
    about = "TF-IDF of n-grams into logistic regression: what one would have used anyway."
    needs_pool = False
    kinds = KINDS
    classifier: ClassVar[type[LinearBaseline] | type[FastTextClassifier]] = LinearBaseline

    def __init__(self, options: MethodOptions) -> None:
        self.fingerprint = ""

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        return _fitted(self.classifier(seed=seed), train, texts, labels)


class Lsa:
    """The linear classifier on a latent semantic analysis of the unlabelled texts (textgraft.linear.baselines)."""

    name = "lsa"
    about = "Logistic regression on a latent semantic analysis of the unlabelled texts."
    needs_pool = True
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        self.seed, self.fingerprint = options.seed, ""
        self._space: Space | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._space = LatentSpace(seed=self.seed).fit(pool)
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        return _fitted(LsaBaseline(space=self._space, seed=seed), train, texts, labels)


class Vectors(Lsa):
    """The linear classifier on means of word vectors learned from the unlabelled texts (linear.word_space)."""

    name = "vectors"
    about = "Logistic regression on means of word vectors, which are counted from the unlabelled texts."

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._space = WordSpace(seed=self.seed).fit(pool)
        return 0.0


class SelfTraining:
    """Classifiers on both spaces and on n-grams that teach each other (textgraft.linear.self_training)."""

    name = "self-trained"
    about = "Classifiers on LSA, on word vectors and on n-grams teach each other on the unlabelled texts."
    needs_pool = True
    kinds: tuple[TargetKind, ...] = ("single",)

    def __init__(self, options: MethodOptions) -> None:
        self.seed, self.fingerprint = options.seed, ""
        self._pool: Pool | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        spaces: dict[str, Space] = {
            "LSA": LatentSpace(seed=self.seed).fit(pool),
            "word vectors": WordSpace(seed=self.seed).fit(pool),
        }
        self._pool = Pool.of(pool, spaces, seed=self.seed)
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        assert self._pool is not None, "prepare comes first"
        return _fitted(SelfTrained(self._pool, seed=seed), train, texts, labels)


class FastText(Linear):
    """The classifier of Joulin et al. 2016 (textgraft.linear.fasttext)."""

    name = "fasttext"
    about = "The mean of learned word and bigram vectors into a softmax (Joulin et al. 2016)."
    classifier = FastTextClassifier


class NoAdapt:
    """The pretrained language model, fine-tuned as the recipe says."""

    name = "no-adapt"
    about = "The pretrained language model, fine-tuned on the labels; it has not read the unlabelled texts."
    needs_pool = False
    kinds = KINDS
    from_scratch: ClassVar[bool] = False

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        self._source: Artifact | None = None
        identity, groups = options.language_model
        self._stage.plan(groups + 1)  # and the head
        self.fingerprint = content_hash([identity, self._recipe_stages()])

    @property
    def _recipe(self) -> str:
        return self.options.recipe

    @property
    def _stage(self) -> Stage:
        stage = load_recipe(self._recipe).finetune
        if not stage.phases:
            raise UserError(
                "this recipe has no phases to fine-tune in.", where=self._recipe, remedy="Name one that has."
            )
        return stage

    def _recipe_stages(self) -> str:
        return repr(self._stage)

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._source = load_one(self.options.model)
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        source = self._source or load_one(self.options.model)
        sequences = [encode_texts(source.tokenizer, part, self.options.max_tokens)[0] for part in (train.texts, texts)]
        plan = Plan(
            language_model=source.model,
            from_scratch=self.from_scratch,
            stage=self._stage,
            settings=self.options.settings,
            labels=labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
        )
        trained = train_classifier(
            plan,
            EncodedTexts(sequences[0], labels.encode(train)),
            {"test": EncodedTexts(sequences[1])},
            seed=seed,
            folder=folder,
            title=f"{self.name}, {len(train):,} labels, seed {seed}",
            show=self.options.show,
        )
        size = sum(value.nbytes for value in trained.values.values()) + len(source.tokenizer.to_json().encode())
        outputs = outputs_from_logits(trained.logits["test"], labels.kind)
        about = f"{self.about[:-1]} (model {Path(self.options.model).name}, recipe {Path(self._recipe).stem})."
        return Answers(outputs, size, about, trained.seconds)


class Scratch(NoAdapt):
    """The same network with nothing learned before, to show what pretraining is worth."""

    name = "scratch"
    about = "The same network from random weights, trained in the same way on the labels alone."
    from_scratch = True


class Frozen(NoAdapt):
    """Feature extraction: only the head learns, by the recipe "frozen"."""

    name = "frozen"
    about = "The pretrained language model as it is; only the head on top of it learns."

    @property
    def _recipe(self) -> str:
        return "frozen"


class Ulmfit(NoAdapt):
    """Howard & Ruder 2018: the language model reads the unlabelled texts first, then it is fine-tuned."""

    name = "ulmfit"
    about = "The language model reads the unlabelled texts, then is fine-tuned on the labels (Howard & Ruder 2018)."
    needs_pool = True

    def _recipe_stages(self) -> str:
        stage = load_recipe(self.options.recipe).adapt
        if not stage.phases:
            raise UserError(
                "this recipe has no phases to adapt in, which 'ulmfit' is about.",
                where=self.options.recipe,
                remedy="Name one that has, or compare 'no-adapt' instead.",
            )
        return f"{super()._recipe_stages()} {stage!r} {self.options.adapt_minutes} {self.options.seed}"

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        options = self.options
        adapted = adapt(
            pool,
            folder / "adapted",
            model=options.model,
            recipe=options.recipe,
            settings=replace(options.settings, minutes=options.adapt_minutes),
            reuse=True,
            show=options.show,
        )
        self._source = load_one(adapted)
        return float(self._source.run["seconds"])


METHODS: dict[str, type[Method]] = {
    "linear": Linear,
    "lsa": Lsa,
    "vectors": Vectors,
    "self-trained": SelfTraining,
    "fasttext": FastText,
    "scratch": Scratch,
    "frozen": Frozen,
    "no-adapt": NoAdapt,
    "ulmfit": Ulmfit,
}
"""By name, the quick ones first."""


def _fitted(baseline: Baseline, train: Examples, texts: Sequence[str], labels: Labels) -> Answers:
    classes = None if labels.kind == "numeric" else labels.num_outputs
    baseline.fit(train.texts, labels.encode(train), kind=labels.kind, num_classes=classes)
    return Answers(baseline.predict_proba(texts), baseline.size_in_bytes(), baseline.about)
