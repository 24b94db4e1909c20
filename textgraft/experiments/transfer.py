"""Which layers transfer, and what is transfer worth? Copied and fresh, frozen and fine-tuned, on the user's own task.

Yosinski et al. 2014 (arXiv:1411.1792) on our layer groups. A is a pretrained language model, B the task; AnB has the
first n groups of A, frozen, and fresh ones above; AnB+ trains those n too; BnB and BnB+ are the same with groups of a
network that was trained on B from scratch. Where we differ: the layers are layer groups, the head is always new, and
what follows the last group (n = all) is nothing but the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.readers import read, read_optional
from textgraft.data.sequences import Truncation
from textgraft.data.splits import stratified_split
from textgraft.encoders.base import Encoder, with_fresh_top
from textgraft.experiments.transfer_results import ARMS, FRESH, FROZEN, B, Curves, Kind, Networks, transfer_results
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.multiple_choice import WordOverlap
from textgraft.metrics.classification import HEADLINE, document_scores
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model
from textgraft.tasks.classification.fine_tuned import read_parts
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    Trained,
    as_model,
    drop_weights,
    outputs_from_logits,
    train_classifier,
)
from textgraft.training.driver import content_hash, weights_hash, work_folder
from textgraft.training.loop import Settings
from textgraft.training.phases import Stage, with_frozen_bottom
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.results_folder import finished, refuse_existing, write_results

HELD_OUT = 0.2
OWN_SEED = 1000
"""How far the seeds of the networks B are from those of all others, which must not start as B did."""


@dataclass(frozen=True)
class TransferOptions:
    """Everything about the experiment but the data.

    `layers` are the numbers n of copied layer groups (None: every one); 0 and all groups are always among them, being
    what the others are held against. `seeds` networks of each kind are trained, from `settings.seed` upwards. `words`
    lets the head see the embedding layer beside the top one, as `finetune` does. `settings.validate_every` is how many
    steps lie between two points of the learning curves (None: an epoch).
    """

    recipe: str = "transfer"
    seeds: int = 3
    layers: tuple[int, ...] | None = None
    max_tokens: int = 512
    words: bool = True
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")


@dataclass(frozen=True)
class Question:
    """What is asked, made ready: model A, task B as A's tokenizer reads it, and how to train."""

    source: Artifact
    train: Examples
    test: Examples
    held_out: bool
    labels: Labels
    encoded: dict[str, EncodedTexts]
    cut: dict[str, Truncation]
    stage: Stage
    layers: tuple[int, ...]
    options: TransferOptions

    @property
    def groups(self) -> list[str]:
        """The encoder's layer groups by name, bottom -> top."""
        return [group.name for group in self.source.model.encoder.layer_groups()]

    @property
    def seeds(self) -> range:
        first = self.options.settings.seed
        return range(first, first + self.options.seeds)

    @property
    def kinds(self) -> list[Kind]:
        """Every kind of network but B itself; the two whose learning curves are kept come first."""
        watched = [FRESH, Kind("AnB+", len(self.groups))]
        others = [Kind(arm, n) for n in self.layers if n for arm in ARMS]
        return watched + [kind for kind in others if kind not in watched]

    def title(self, kind: Kind, seed: int) -> str:
        """Its name on screen and, in the work folder, its file's."""
        kinds = [B, *self.kinds]
        number = self.seeds.index(seed) * len(kinds) + kinds.index(kind) + 1
        return f"{number} of {len(kinds) * len(self.seeds)}, {kind}, seed {seed}"


def inspect_transfer(
    train: Any,
    out: Path | str,
    *,
    model: str | Path | None = None,
    test: Any = None,
    options: TransferOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Train AnB, AnB+, BnB and BnB+ for every n; writes `out`/results.json and report.html, returns the results.

    Yosinski et al. 2014, §3, and the three benefits of transfer after Torrey & Shavlik 2009: higher start, higher
    slope, higher asymptote. All networks of one seed share fresh weights, head and order of texts; the networks B that
    BnB copies from have seeds of their own (OWN_SEED apart), so that nothing is re-initialised to what it once was. All
    are measured on `test` after their last step (without one, on a stratified fifth of `train` that is split off
    first), and nothing is chosen by it; both are what `read` takes. `model` None takes the usual one for the script of
    the texts (textgraft.models.default_models). Killed, the same call goes on where it was and ends with the same
    numbers.

    Raises UserError if `out` exists, for a classifier or an ensemble in place of a language model, for numbers of layer
    groups that it does not have, and for labels that cannot be learned or were not seen in training.
    """
    out, options = Path(out), options or TransferOptions()
    refuse_existing(out)
    question = prepared(read(train), read_optional(test), model, options)
    asked = _asked(question)
    folder = work_folder(out, asked)
    if out.exists():
        return finished(out, content_hash(asked.items()))
    baseline = _baseline(question)
    networks, seconds = _trained(question, folder, show=show)
    metric = HEADLINE[question.labels.kind]
    results = transfer_results(networks, baseline, groups=question.groups, metric=metric) | _facts(out, question)
    results |= {"minutes": round(seconds / 60, 3), "asked": content_hash(asked.items())}
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.experiments.transfer_report import render_transfer

    write_results(out, results, render_transfer(results))
    return results


def prepared(train: Examples, test: Examples | None, model: str | Path | None, options: TransferOptions) -> Question:
    """The question, with everything refused that could not be answered; see `inspect_transfer`."""
    model = model or default_models_for(train.texts).alone
    source = loading.load_network(model)
    if source.labels is not None:
        raise UserError(
            "this is a classifier; layers are copied from a language model.",
            where=str(model),
            remedy="Name the model that it was fine-tuned from.",
        )
    layers = chosen_layers(options.layers, len(source.model.encoder.layer_groups()))
    stage = load_recipe(options.recipe).finetune
    if not stage.phases:
        raise UserError("this recipe has no phases to fine-tune in.", where=options.recipe, remedy="Name one that has.")
    held_out = test is None
    if test is None:
        kept, held = stratified_split(train, HELD_OUT, options.settings.seed)
        train, test = train.take(kept), train.take(held)
    labels = Labels.fit(train)
    parts = read_parts(source, {"train": train, "test": test}, labels, options.max_tokens)
    question = Question(
        source, train, test, held_out, labels, parts.parts, parts.cut, stage, layers=layers, options=options
    )
    for kind in question.kinds:
        _stage(stage, kind, len(question.groups))  # a recipe that could not train one of them is refused now
    return question


def chosen_layers(layers: Sequence[int] | None, groups: int) -> tuple[int, ...]:
    """The numbers of copied layer groups in rising order, 0 and all of them included.

    Raises UserError for a number that the model does not have.
    """
    for n in layers or ():
        if not 0 <= n <= groups:
            raise UserError(
                f"{n} layer groups cannot be copied: this model has {groups}.",
                where="layers",
                remedy=f"Give numbers from 0 (nothing is copied) to {groups} (all but the head).",
            )
    return tuple(sorted({0, groups, *(range(groups) if layers is None else layers)}))


def _asked(question: Question) -> dict[str, Any]:
    """What the numbers depend on: another of any of these is another run."""
    return {
        "stage": "inspect transfer",
        "data": {name: _described(part) for name, part in (("train", question.train), ("test", question.test))},
        "model": weights_hash(question.source.model),
        "tokenizer": question.source.tokenizer.fingerprint,
        "recipe": question.stage.identity(),
        "layers": list(question.layers),
        "options": repr(replace(question.options, layers=None)),
    }


def _described(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or (), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _trained(question: Question, folder: Path, *, show: bool) -> tuple[Networks, float]:
    """Every network's scores a test text, and the seconds that training took; what `folder` holds is taken from it."""
    model_a = question.source.model.encoder
    found: dict[Kind, list[Trained]] = {}
    for seed in question.seeds:
        own = _train(question, B, seed, model_a, folder, show=show)
        model_b = as_model(_plan(question, B, seed, model_a), own).encoder
        found.setdefault(B, []).append(own)
        for kind in question.kinds:
            source = model_b if kind.arm.startswith("B") else model_a
            found.setdefault(kind, []).append(_train(question, kind, seed, source, folder, show=show))
    scores = {kind: np.stack([_scores(question, one) for one in runs]) for kind, runs in found.items()}
    seconds = sum(one.seconds for runs in found.values() for one in runs)
    scratch, pretrained = (_curve(question, found[kind]) for kind in question.kinds[:2])
    return Networks(scores, Curves(_epochs(question, found[FRESH][0]), pretrained, scratch)), seconds


def _train(question: Question, kind: Kind, seed: int, source: Encoder, folder: Path, *, show: bool) -> Trained:
    """One network; only B's weights are kept, for BnB to copy from."""
    title = question.title(kind, seed)
    trained = train_classifier(
        _plan(question, kind, seed, source),
        question.encoded["train"],
        {"test": question.encoded["test"]},
        seed=seed + OWN_SEED if kind == B else seed,
        folder=folder,
        title=title,
        show=show,
        watched="test" if kind in question.kinds[:2] else None,
    )
    return trained if kind == B else drop_weights(trained, folder, title)


def _plan(question: Question, kind: Kind, seed: int, source: Encoder) -> Plan:
    encoder = with_fresh_top(source, kind.n, seed + OWN_SEED if kind == B else seed)
    return Plan(
        language_model=Model(encoder, question.source.model.head),
        from_scratch=False,
        stage=_stage(question.stage, kind, len(question.groups)),
        settings=question.options.settings,
        labels=question.labels,
        class_weights=None,
        pad_id=question.source.tokenizer.pad_id,
        words=question.options.words,
    )


def _stage(stage: Stage, kind: Kind, groups: int) -> Stage:
    """How a network of this kind trains; the head is one more layer group."""
    return with_frozen_bottom(stage, kind.n if kind.arm in FROZEN else 0, groups + 1)


def _in_units(question: Question, scores: np.ndarray) -> np.ndarray:
    """Absolute errors of a numeric target in the user's unit; anything else as it is."""
    return scores * question.labels.std if question.labels.kind == "numeric" else scores


def _scores(question: Question, trained: Trained) -> np.ndarray:
    return _scored(question, outputs_from_logits(trained.logits["test"], question.labels.kind))


def _scored(question: Question, outputs: np.ndarray) -> np.ndarray:
    """(N,) the headline metric of each test text."""
    targets = question.encoded["test"].targets
    assert targets is not None
    return _in_units(question, document_scores(question.labels.kind, targets, outputs))


def _curve(question: Question, runs: Sequence[Trained]) -> np.ndarray:
    """(seeds, M, N): the headline metric of each test text at each of M measurements."""
    return _in_units(question, np.array([[row["by_text"] for row in one.history] for one in runs]))


def _epochs(question: Question, trained: Trained) -> list[float]:
    """When the M measurements were made, in epochs since the start."""
    epochs = sum(phase.epochs for phase in question.stage.plan(len(question.groups) + 1))
    return [row["tokens"] / trained.history[-1]["tokens"] * epochs for row in trained.history]


def _baseline(question: Question) -> np.ndarray:
    """(1, N) what a linear classifier on n-grams scores; of options, what knows only the words that they share."""
    kind, targets = question.labels.kind, question.encoded["train"].targets
    assert targets is not None
    classes = None if kind == "numeric" else question.labels.num_outputs
    linear = WordOverlap() if kind == "choice" else LinearBaseline(seed=question.options.settings.seed)
    linear.fit(list(question.train.texts), targets, kind=kind, num_classes=classes)
    return _scored(question, linear.predict_proba(list(question.test.texts)))[None]


def _facts(out: Path, question: Question) -> dict[str, Any]:
    """What was run, and on what."""
    options, asked = question.options, _asked(question)
    settings = options.settings.of(question.stage)
    run = provenance(
        stage="inspect transfer",
        name=out.name,
        base=question.source.run,
        data=asked["data"],
        recipe=options.recipe,
        settings=settings,
    )
    run |= {"max_tokens": options.max_tokens, "words": options.words}
    run["tokens_lost"] = {name: truncation.share for name, truncation in question.cut.items()}
    return {"held_out": question.held_out, "layers": list(question.layers), "run": run}
