"""Transferability of layers and benefits of transfer: copied or fresh, frozen or fine-tuned layers, on the user's own
task.

Source: Yosinski et al. 2014 (arXiv:1411.1792), on layer groups. A is a pretrained language model, B the task; AnB has
the first n groups of A, frozen, and fresh ones above; AnB+ also trains those n; BnB and BnB+ are the same with groups
of a network that was trained on B from scratch. Differences: the layers are layer groups, the head is always new, and
after the last group (n = all) only the head follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash, identity_of
from textgraft.data.examples import Examples
from textgraft.data.held_out import read_held_out
from textgraft.data.labels import Labels
from textgraft.data.readers import read
from textgraft.data.sequences import Truncation
from textgraft.data.splits import stratified_split
from textgraft.data.unlabelled import labelled_only
from textgraft.encoders.base import Encoder, with_fresh_top
from textgraft.experiments.transfer_results import ARMS, FRESH, FROZEN, B, Curves, Kind, Networks, transfer_results
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.multiple_choice import WordOverlap
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.metrics.classification import HEADLINE, document_scores
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model
from textgraft.tasks.classification.fine_tuned import encode_parts
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    TrainedClassifier,
    as_model,
    drop_weights,
    train_classifier,
)
from textgraft.tasks.classification.unseen_labels import warn_of_unseen_labels
from textgraft.training.driver import weights_hash, work_folder
from textgraft.training.phases import Stage, with_frozen_bottom
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.results_folder import finished, validate_new_path, write_results
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings

HELD_OUT = 0.2
B_SEED_OFFSET = 1000
"""Offset of the seeds of the networks B from those of all others, whose initial weights must differ from B's."""


@dataclass(frozen=True)
class TransferOptions:
    """Options of the experiment.

    Args:
        recipe: Recipe of all trainings.
        seeds: Number of networks of each kind, with seeds from `settings.seed` upwards.
        layers: Numbers n of copied layer groups (None: all); 0 and all groups are always included, as references.
        max_tokens: Maximum length of a text.
        words: Give the head the embedding layer beside the top layer, as `finetune` does.
        settings: Seed, precision, limits; `validate_every` is the number of steps between two points of the learning
            curves (None: an epoch).
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

    def identity(self) -> dict[str, Any]:
        """All but the layers, of which a plan has those that the model has."""
        return identity_of(self, without=("layers",))


@dataclass(frozen=True)
class TransferSetup:
    """The validated experiment: model A, task B encoded by A's tokenizer, and the training stage."""

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
        """Names of the encoder's layer groups, bottom to top."""
        return [group.name for group in self.source.model.encoder.layer_groups()]

    @property
    def seeds(self) -> range:
        first = self.options.settings.seed
        return range(first, first + self.options.seeds)

    @property
    def kinds(self) -> list[Kind]:
        """Every kind of network but B itself; the two with learning curves come first."""
        watched = [FRESH, Kind("AnB+", len(self.groups))]
        others = [Kind(arm, n) for n in self.layers if n for arm in ARMS]
        return watched + [kind for kind in others if kind not in watched]

    def title(self, kind: Kind, seed: int) -> str:
        """Name of a training, for progress and for its file in the work folder."""
        kinds = [B, *self.kinds]
        number = self.seeds.index(seed) * len(kinds) + kinds.index(kind) + 1
        return f"{number} of {len(kinds) * len(self.seeds)}, {kind}, seed {seed}"


@exclusive
def inspect_transfer(
    train: Any,
    out: Path | str,
    *,
    model: str | Path | None = None,
    test: Any = None,
    options: TransferOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Train AnB, AnB+, BnB and BnB+ for every n; write `out`/results.json and report.html.

    Source: Yosinski et al. 2014, §3, and the three benefits of transfer after Torrey & Shavlik 2009: higher start,
    higher slope, higher asymptote. All networks of one seed share fresh weights, head and order of texts; the networks
    B that BnB copies from have seeds of their own (B_SEED_OFFSET), so that no layer is re-initialised to its former
    initial value. All are measured on `test` after their last step, and nothing is chosen by it. After an interruption
    the same call continues and ends with the same numbers.

    Args:
        train: Labelled texts, as `textgraft.read` takes them.
        out: Folder to write; it must not exist.
        model: Language model A (None: the default model for the script of the texts, textgraft.models.default_models).
        test: Labelled texts to measure on (None: a stratified fifth of `train`, split off first).
        options: Layers, seeds and recipe.
        show: Show progress on stderr.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; `model` is a classifier or an ensemble; a number of layer groups is larger than the
            model's; labels cannot be learned or do not occur in training.
    """
    out, options = Path(out), options or TransferOptions()
    validate_new_path(out)
    train = labelled_only(read(train))
    test = None if test is None else labelled_only(read_held_out(test, train))
    setup = prepare_setup(train, test, model, options)
    identity = _identity(setup)
    folder = work_folder(out, identity)
    if out.exists():
        return finished(out, content_hash(identity.items()))
    baseline = _baseline(setup)
    networks, seconds = _train_all(setup, folder, show=show)
    metric = HEADLINE[setup.labels.kind]
    results = transfer_results(networks, baseline, groups=setup.groups, metric=metric) | _facts(out, setup)
    results |= {"minutes": round(seconds / 60, 3), "asked": content_hash(identity.items())}
    # Imported here because matplotlib takes as long to load as torch.
    from textgraft.experiments.transfer_report import render_transfer

    write_results(out, results, render_transfer(results))
    return results


def prepare_setup(
    train: Examples, test: Examples | None, model: str | Path | None, options: TransferOptions
) -> TransferSetup:
    """Validate the arguments of `inspect_transfer` and encode the data."""
    model = model or default_models_for(train.texts).alone
    source = loading.load_network(model)
    if source.labels is not None:
        raise UserError(
            "this is a classifier; layers can only be copied from a language model.",
            where=str(model),
            remedy="Use the model that it was fine-tuned from.",
        )
    layers = chosen_layers(options.layers, len(source.model.encoder.layer_groups()))
    stage = load_recipe(options.recipe).finetune
    if not stage.phases:
        raise UserError("this recipe has no fine-tuning phases.", where=options.recipe, remedy="Use another recipe.")
    held_out = test is None
    if test is None:
        kept_indices, held_out_indices = stratified_split(train, HELD_OUT, options.settings.seed)
        train, test = train.take(kept_indices), train.take(held_out_indices)
    labels = Labels.fit(train)
    warn_of_unseen_labels(labels, test)
    parts = encode_parts(source, {"train": train, "test": test}, labels, options.max_tokens)
    setup = TransferSetup(
        source, train, test, held_out, labels, parts.parts, parts.cut, stage, layers=layers, options=options
    )
    for kind in setup.kinds:
        _stage(stage, kind, len(setup.groups))  # raises now for a recipe that cannot train one of them
    return setup


def chosen_layers(layers: Sequence[int] | None, groups: int) -> tuple[int, ...]:
    """Numbers of copied layer groups in ascending order, 0 and all groups included.

    Raises:
        UserError: The model does not have that many.
    """
    for n in layers or ():
        if not 0 <= n <= groups:
            raise UserError(
                f"{n} layer groups cannot be copied: this model has {groups}.",
                where="layers",
                remedy=f"Give numbers from 0 (nothing copied) to {groups} (all but the head).",
            )
    return tuple(sorted({0, groups, *(range(groups) if layers is None else layers)}))


def _identity(setup: TransferSetup) -> dict[str, Any]:
    """Everything that the results depend on: a change in any of it makes another run."""
    return {
        "stage": "inspect transfer",
        "data": {name: _data_identity(part) for name, part in (("train", setup.train), ("test", setup.test))},
        "model": weights_hash(setup.source.model),
        "tokenizer": setup.source.tokenizer.fingerprint,
        "recipe": setup.stage.identity(),
        "layers": list(setup.layers),
        "options": setup.options.identity(),
    }


def _data_identity(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or (), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _train_all(setup: TransferSetup, folder: Path, *, show: bool) -> tuple[Networks, float]:
    """Scores of every network on each test text, and the seconds of training; finished trainings are loaded from
    `folder`.
    """
    model_a = setup.source.model.encoder
    runs_by_kind: dict[Kind, list[TrainedClassifier]] = {}
    for seed in setup.seeds:
        trained_b = _train_one(setup, B, seed, model_a, folder, show=show)
        model_b = as_model(_plan(setup, B, seed, model_a), trained_b).encoder
        runs_by_kind.setdefault(B, []).append(trained_b)
        for kind in setup.kinds:
            source = model_b if kind.arm.startswith("B") else model_a
            runs_by_kind.setdefault(kind, []).append(_train_one(setup, kind, seed, source, folder, show=show))
    scores = {kind: np.stack([_scores(setup, run) for run in runs]) for kind, runs in runs_by_kind.items()}
    seconds = sum(run.seconds for runs in runs_by_kind.values() for run in runs)
    scratch, pretrained = (_curve(setup, runs_by_kind[kind]) for kind in setup.kinds[:2])
    return Networks(scores, Curves(_epochs(setup, runs_by_kind[FRESH][0]), pretrained, scratch)), seconds


def _train_one(
    setup: TransferSetup, kind: Kind, seed: int, source: Encoder, folder: Path, *, show: bool
) -> TrainedClassifier:
    """Train one network; only the weights of B are kept, for BnB to copy from."""
    title = setup.title(kind, seed)
    trained = train_classifier(
        _plan(setup, kind, seed, source),
        setup.encoded["train"],
        {"test": setup.encoded["test"]},
        context=RunContext(folder, seed + B_SEED_OFFSET if kind == B else seed, show=show),
        title=title,
        watched="test" if kind in setup.kinds[:2] else None,
    )
    return trained if kind == B else drop_weights(trained, folder, title)


def _plan(setup: TransferSetup, kind: Kind, seed: int, source: Encoder) -> Plan:
    encoder = with_fresh_top(source, kind.n, seed + B_SEED_OFFSET if kind == B else seed)
    return Plan(
        language_model=Model(encoder, setup.source.model.head),
        from_scratch=False,
        stage=_stage(setup.stage, kind, len(setup.groups)),
        settings=setup.options.settings,
        labels=setup.labels,
        class_weights=None,
        pad_id=setup.source.tokenizer.pad_id,
        pooling=setup.source.pooling,
        words=setup.options.words,
    )


def _stage(stage: Stage, kind: Kind, groups: int) -> Stage:
    """The training stage of a network of this kind; the head is one more layer group."""
    return with_frozen_bottom(stage, kind.n if kind.arm in FROZEN else 0, groups + 1)


def _in_target_units(setup: TransferSetup, scores: np.ndarray) -> np.ndarray:
    """Absolute errors of a numeric target in the user's unit; other scores unchanged."""
    return setup.labels.unscaled_errors(scores)


def _scores(setup: TransferSetup, trained: TrainedClassifier) -> np.ndarray:
    return _text_scores(setup, outputs_from_logits(trained.logits["test"], setup.labels.kind))


def _text_scores(setup: TransferSetup, outputs: np.ndarray) -> np.ndarray:
    """The headline metric of each test text, (N,)."""
    targets = setup.encoded["test"].targets
    assert targets is not None
    return _in_target_units(setup, document_scores(setup.labels.kind, targets, outputs))


def _curve(setup: TransferSetup, runs: Sequence[TrainedClassifier]) -> np.ndarray:
    """The headline metric of each test text at each of M measurements, (seeds, M, N)."""
    return _in_target_units(setup, np.array([[row["by_text"] for row in run.history] for run in runs]))


def _epochs(setup: TransferSetup, trained: TrainedClassifier) -> list[float]:
    """Times of the M measurements, in epochs since the start."""
    epochs = sum(phase.epochs for phase in setup.stage.plan(len(setup.groups) + 1))
    return [row["tokens"] / trained.history[-1]["tokens"] * epochs for row in trained.history]


def _baseline(setup: TransferSetup) -> np.ndarray:
    """Scores (1, N) of a linear classifier on n-grams; for multiple choice, of one on the words that question and
    option share.
    """
    labels, targets = setup.labels, setup.encoded["train"].targets
    assert targets is not None
    linear = LinearBaseline(seed=setup.options.settings.seed) if labels.target.reads is None else WordOverlap()
    linear.fit(list(setup.train.texts), targets, kind=labels.kind, num_classes=labels.num_classes)
    return _text_scores(setup, linear.predict_proba(list(setup.test.texts)))[None]


def _facts(out: Path, setup: TransferSetup) -> dict[str, Any]:
    """Provenance of the run."""
    options, identity = setup.options, _identity(setup)
    settings = options.settings.of(setup.stage)
    run = provenance(
        stage="inspect transfer",
        name=out.name,
        base=setup.source.run,
        data=identity["data"],
        recipe=options.recipe,
        settings=settings,
    )
    run |= {"max_tokens": options.max_tokens, "words": options.words}
    run["tokens_lost"] = {name: truncation.share for name, truncation in setup.cut.items()}
    return {"held_out": setup.held_out, "layers": list(setup.layers), "run": run}
