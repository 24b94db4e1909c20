"""What `finetune` makes when nobody tells it how, as a method beside its own parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.ensemble import load_one
from textgraft.methods.base import POOL_AT_LEAST, Answers, MethodOptions
from textgraft.methods.language import Ulmfit
from textgraft.stages.blend import Entrant, contest, evidence_splits
from textgraft.stages.candidates import Ground, linear_candidates
from textgraft.stages.members import Course, outcome_name, train_member
from textgraft.stages.ways import Spaces
from textgraft.training.classifier import EncodedTexts
from textgraft.training.phases import Stage, load_recipe


class Default(Ulmfit):
    """The mean of the linear ways and of the language model, weighed by their answers for held-out training texts.

    The language model reads the unlabelled texts first, if there are any. Where there are too few labels to hold some
    out, it answers alone, as in `finetune`.
    """

    name = "default"
    about = "What finetune makes: the mean of the linear classifiers and the language model that held-out folds favour."
    needs_pool = False

    def __init__(self, options: MethodOptions) -> None:
        super().__init__(options)
        self._spaces: Spaces | None = None

    def _adapt_stage(self) -> Stage:
        return load_recipe(self._suited).adapt

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        self._spaces = Spaces(pool, folder / "spaces", seed=self.options.seed)
        if len(pool) >= POOL_AT_LEAST and self._adapt_stage().phases:
            return super().prepare(pool, folder)
        self._source = load_one(self.options.model)
        return 0.0

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        splits = evidence_splits(train, seed)
        if not splits:
            return super().answer(train, texts, labels, seed, folder)
        assert self._spaces is not None
        assert self._source is not None, "prepare comes first"
        pool = self._spaces.texts
        ground = Ground(train, Examples(list(texts)), labels, pool, splits, seed, folder)
        tried = linear_candidates(ground, self._spaces, show=False)
        sequences = self._encoded(train.texts, texts)
        encoded = {"train": EncodedTexts(sequences[0], labels.encode(train)), "test": EncodedTexts(sequences[1])}
        training = partial(
            train_member,
            f"{self.name}, {len(train):,} labels, seed {seed},",
            self._source,
            self._plan(labels),
            encoded,
            Course("test", seed, 1, splits, folder, self.options.show),
        )
        entrant = Entrant(outcome_name(self._source, "forward"), self._source, encoded, training)
        chosen, _ = contest(tried, [entrant], ground, examined="test", precision=self.options.precision)
        size = sum(len(data) for p in chosen.predictors({}).values() for data in p.files().values())
        outcome = chosen.outcome(tried.shared_seconds)
        return Answers(outcome.outputs[0], size, f"{outcome.about}, chosen on held-out folds", chosen.seconds)
