"""Methods that fine-tune a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from textgraft.comparison.methods.base import KINDS, MethodOptions, Predictions, refuse_other_family
from textgraft.core.errors import UserError
from textgraft.core.identity import identity_text
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.tasks.classification.training import EncodedTexts, Plan, outputs_from_logits, train_classifier
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.driver import content_hash
from textgraft.training.phases import Stage
from textgraft.training.recipes import load_recipe

WHOLE_AT_ONCE = ("transformer", "contrastive")
"""Recipes that suit transformers where nothing is asked of their layers."""


class NoAdapt:
    """The pretrained language model, fine-tuned as the recipe says."""

    name = "no-adapt"
    about = "The pretrained language model, fine-tuned on the labels; it has not read the unlabelled texts."
    needs_pool = False
    model = ""
    kinds = KINDS
    from_scratch: ClassVar[bool] = False

    def __init__(self, options: MethodOptions) -> None:
        self.options = options
        self._source: Artifact | None = None
        self._asked: WeakKeyDictionary[Model, tuple[Sequence[str], EncodedTexts]] = WeakKeyDictionary()
        known = options.language_model
        self._suited = known.recipe
        self._stage.plan(known.groups + 1)  # and the head
        self.fingerprint = content_hash([known.identity, self._recipe_stages()])

    @property
    def _recipe(self) -> str:
        return self._suited

    @property
    def _stage(self) -> Stage:
        stage = load_recipe(self._recipe).finetune
        if not stage.phases:
            raise UserError(
                "this recipe has no phases to fine-tune in.", where=self._recipe, remedy="Name one that has."
            )
        return stage

    def _recipe_stages(self) -> str:
        return identity_text(self._stage.identity())

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._source = loading.load_network(self.options.named_model)
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        assert self._source is not None, "prepare comes first"
        parts = self._encoded(self._source, train, texts, labels)
        trained = train_classifier(
            self._plan(self._source, labels),
            parts["train"],
            {"test": parts["test"]},
            seed=seed,
            folder=folder,
            title=f"{self.name}, {len(train):,} labels, seed {seed}",
            show=self.options.show,
        )
        tokenizer = len(self._source.tokenizer.to_json().encode())
        size = sum(value.nbytes for value in trained.values.values()) + tokenizer
        outputs = outputs_from_logits(trained.logits["test"], labels.kind)
        about = f"{self.about[:-1]} (model {Path(self.options.named_model).name}, recipe {Path(self._recipe).stem})."
        return Predictions(outputs, size, about, trained.seconds)

    def _encoded(
        self, source: Artifact, train: Examples, texts: Sequence[str], labels: Labels
    ) -> dict[str, EncodedTexts]:
        """What is learned from, as "train", and what is asked, as "test", which is the same for all trainings."""
        known, _ = source.encoded(train.texts, self.options.max_tokens)
        same, asked = self._asked.get(source.model, (None, None))
        if asked is None or same is not texts:
            asked = EncodedTexts(source.encoded(texts, self.options.max_tokens)[0], read={})
            self._asked[source.model] = texts, asked
        return {"train": EncodedTexts(known, labels.encode(train)), "test": asked}

    def _plan(self, source: Artifact, labels: Labels) -> Plan:
        return Plan(
            language_model=source.model,
            from_scratch=self.from_scratch,
            stage=self._stage,
            settings=self.options.settings,
            labels=labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
        )


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

    def _adapt_stage(self) -> Stage:
        stage = load_recipe(self._suited).adapt
        if not stage.phases:
            raise UserError(
                "this recipe has no phases to adapt in, which 'ulmfit' is about.",
                where=self._suited,
                remedy="Name one that has, or compare 'no-adapt' instead.",
            )
        return stage

    def _recipe_stages(self) -> str:
        options = self.options
        return f"{super()._recipe_stages()} {self._adapt_stage()!r} {options.adapt_minutes} {options.seed}"

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        options = self.options
        # Methods with the same model share it, where they adapt it alike.
        known = content_hash([options.language_model.identity, identity_text(self._adapt_stage().identity())])
        adapted = adapt(
            pool,
            folder / f"adapted-{known[:12]}",
            model=options.named_model,
            recipe=options.recipe,
            settings=replace(options.settings, minutes=options.adapt_minutes),
            reuse=True,
            show=options.show,
        )
        self._source = loading.load_network(adapted)
        return float(self._source.run["seconds"])


class Bert(Ulmfit):
    """ULMFiT's way with a BERT: it reads the unlabelled texts by masked tokens, then is unfrozen from the top.

    The recipe is the model's own, or "transformer-staged" where it has none, since ULMFiT is these three things:
    adaptation, gradual unfreezing, rates that fall from layer to layer. BERT's own way, all of it at one rate, is the
    recipe "transformer".
    """

    name = "bert"
    about = "A BERT reads the unlabelled texts, then is fine-tuned on the labels from the top layers down."
    model = "en-bert-small"
    family: ClassVar[str] = "bert"

    def __init__(self, options: MethodOptions) -> None:
        refuse_other_family(self.name, self.family, options.language_model.family, options.named_model)
        of_its_kind = options.recipe == "default" and options.language_model.recipe in WHOLE_AT_ONCE
        super().__init__(replace(options, recipe="transformer-staged") if of_its_kind else options)


class Gpt(Bert):
    """The same with a GPT, which reads the unlabelled texts by the next token."""

    name = "gpt"
    about = "A GPT reads the unlabelled texts, then is fine-tuned on the labels from the top layers down."
    model = "en-gpt-small"
    family = "gpt"


class MeanOf:
    """The mean of what one method makes of several models, as `finetune --recipe` makes of them.

    Raises UserError as the method does for each model.
    """

    def __init__(self, kind: type[NoAdapt], options: MethodOptions, models: Sequence[str]) -> None:
        self._members = [kind(replace(options, model=model)) for model in models]
        self.name, self.about, self.model = kind.name, kind.about, kind.model
        self.needs_pool, self.kinds = kind.needs_pool, kind.kinds
        self.fingerprint = content_hash(member.fingerprint for member in self._members)

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        return sum(member.prepare(pool, folder) for member in self._members)

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        return mean_answers(self._members, train, texts, labels, seed, folder)


def mean_answers(
    members: Sequence[NoAdapt], train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
) -> Predictions:
    """Probabilities, or standardised values, averaged; what they cost, added up."""
    places = [folder] if len(members) == 1 else [folder / str(i) for i in range(len(members))]
    each = [m.answer(train, texts, labels, seed, place) for m, place in zip(members, places, strict=True)]
    return Predictions(
        np.mean([answers.outputs for answers in each], axis=0),
        sum(answers.model_bytes for answers in each),
        " Averaged with: ".join(answers.about for answers in each),
        sum(answers.seconds for answers in each),
    )
