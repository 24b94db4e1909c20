"""Stage three: a classifier from a few labels, with an honest account of how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft import artifact
from textgraft.artifact import Artifact
from textgraft.data.examples import Examples
from textgraft.data.labels import ClassWeights, Labels
from textgraft.data.splits import stratified_folds
from textgraft.evaluation import Comparison, Outcome, compare_methods
from textgraft.inference import encode_texts
from textgraft.provenance import provenance
from textgraft.training.calibration import fit_temperature
from textgraft.training.classifier import Encoded, Plan, Trained, as_model, outputs_from_logits, train_classifier
from textgraft.training.loop import Settings
from textgraft.training.meter import Meter
from textgraft.training.phases import load_recipe
from textgraft.training.session import content_hash, put_in_place, refuse_existing, weights_hash, work_folder

MAX_TOKENS = 512


@dataclass(frozen=True)
class FinetuneOptions:
    """Everything about a fine-tuning but the data; each has a default that works.

    `folds` cross-validates (None: five folds when there is neither a validation nor a test set, else none). `seeds`
    trains that many classifiers, from `settings.seed` upwards, and reports their mean and spread. `from_scratch`
    keeps the network's shape and forgets what it has learned, to show what pretraining is worth. `words` lets the
    head see the embedding layer beside the top one.
    """

    recipe: str = "default"
    seeds: int = 1
    folds: int | None = None
    max_tokens: int = MAX_TOKENS
    class_weights: ClassWeights = "none"
    from_scratch: bool = False
    words: bool = True
    baselines: bool = True
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Finetuned:
    """What fine-tuning leaves: the folder, the results as in run.json, and what a report needs."""

    folder: Path
    comparison: Comparison
    record: dict[str, Any]


def finetune(
    train: Examples,
    out: Path | str,
    *,
    model: str | Path = "en-ulmfit",
    valid: Examples | None = None,
    test: Examples | None = None,
    unlabelled: Sequence[str] | None = None,
    options: FinetuneOptions | None = None,
    beside: Sequence[Outcome] = (),
    overwrite: bool = False,
    show: bool = True,
) -> Finetuned:
    """Fine-tune `model` on labelled texts and save a classifier at `out`, measured beside linear baselines.

    Howard & Ruder 2018, §3.3, as the recipe's `finetune` phases say. Scores come from `test`; without one, from
    `valid`, or else from cross-validation. Probabilities are temperature-scaled on `valid` or on the folds'
    held-out texts. `unlabelled` only serves the LSA baseline here (adapt is what reads it for the model). `beside`
    are other methods' outcomes on the same texts, to stand in the same table. Killed, the same call goes on where
    it was.

    Raises UserError if `out` exists, for labels that cannot be learned, and for labels unseen in training.
    """
    out, options = Path(out), options or FinetuneOptions()
    refuse_existing(out, overwrite)
    source = artifact.load(model)
    labels = Labels.fit(train)
    stage = load_recipe(options.recipe).finetune
    parts = {name: part for name, part in (("valid", valid), ("test", test)) if part is not None}
    encoded, lost = _encoded(source, {"train": train} | parts, labels, options.max_tokens)
    data = {name: _described(part) for name, part in ({"train": train} | parts).items()}
    folder = work_folder(
        out,
        {
            "stage": "finetune",
            "data": data,
            "unlabelled": content_hash(unlabelled or ()),
            "model": weights_hash(source.model),
            "tokenizer": source.tokenizer.fingerprint,
            "recipe": repr(stage),
            "options": repr(options),
        },
    )
    plan = Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=stage,
        settings=options.settings,
        labels=labels,
        class_weights=labels.class_weights(train, options.class_weights),
        pad_id=source.tokenizer.pad_id,
        words=options.words,
    )
    with Meter() as meter:
        runs = _train_seeds(plan, encoded, options, folder, show)
        folds = _train_folds(plan, train, encoded["train"], options, folder, show, has_held_out=bool(parts))
    temperature = _temperature(labels, runs, folds, encoded)
    examined = "test" if test is not None else "valid" if valid is not None else "folds"
    outcome = _outcome(examined, labels, runs, folds, temperature, meter)
    if options.from_scratch:
        outcome = replace(outcome, name="scratch")
    targets = encoded["train"].targets if examined == "folds" else encoded[examined].targets
    assert targets is not None
    comparison = compare_methods(
        train,
        parts.get(examined),
        outcome,
        labels=labels,
        targets=targets,
        folds=[held for _, held in folds.splits] if examined == "folds" else None,
        unlabelled=unlabelled,
        baselines=options.baselines,
        seed=options.settings.seed,
    )
    comparison = replace(comparison, outcomes=(*comparison.outcomes, *beside))
    best = _best_seed(labels, runs, encoded)
    record = provenance(
        stage="finetune", name=out.name, base=source.run, data=data, recipe=options.recipe, settings=options.settings
    )
    record |= {
        "labels": len(train),
        "classes": list(labels.names),
        "kind": labels.kind,
        "seeds": options.seeds,
        "seed_kept": options.settings.seed + best,
        "from_scratch": options.from_scratch,
        "max_tokens": options.max_tokens,
        "tokens_lost": lost,
        "temperature": temperature,
        "examined": examined,
        "results": comparison.results(labels=len(train), seeds=options.seeds),
        "history": runs[best].history,
    }
    put_in_place(Artifact(as_model(plan, runs[best]), source.tokenizer, labels, record), out, overwrite=overwrite)
    return Finetuned(out, comparison, record)


@dataclass(frozen=True)
class _Folds:
    """Cross-validation: (training, held-out) indices of each fold, and logits for every training text (N, C)."""

    splits: list[tuple[list[int], list[int]]]
    logits: np.ndarray | None


def _encoded(
    source: Artifact, parts: dict[str, Examples], labels: Labels, max_tokens: int
) -> tuple[dict[str, Encoded], dict[str, float]]:
    """Every part's token ids and targets, and the share of its tokens that truncation lost."""
    encoded, lost = {}, {}
    for name, part in parts.items():
        sequences, lost[name] = encode_texts(source.tokenizer, part.texts, max_tokens)
        encoded[name] = Encoded(sequences, labels.encode(part))
    return encoded, lost


def _described(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or [""] * len(part), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _train_seeds(
    plan: Plan, encoded: dict[str, Encoded], options: FinetuneOptions, folder: Path, show: bool
) -> list[Trained]:
    evaluated = {name: part for name, part in encoded.items() if name != "train"}
    first = options.settings.seed
    return [
        train_classifier(plan, encoded["train"], evaluated, seed=seed, folder=folder, title=f"seed {seed}", show=show)
        for seed in range(first, first + options.seeds)
    ]


def _train_folds(
    plan: Plan,
    train: Examples,
    encoded: Encoded,
    options: FinetuneOptions,
    folder: Path,
    show: bool,
    *,
    has_held_out: bool,
) -> _Folds:
    """One classifier per fold, each answering for the texts that it has not seen."""
    count = options.folds if options.folds is not None else 0 if has_held_out else 5
    if count == 0:
        return _Folds([], None)
    splits = stratified_folds(train, count, options.settings.seed)
    logits = np.full((len(train), plan.labels.num_outputs), np.nan, dtype=np.float32)
    for number, (kept, held) in enumerate(splits):
        trained = train_classifier(
            plan,
            encoded.take(kept),
            {"held": encoded.take(held)},
            seed=options.settings.seed,
            folder=folder,
            title=f"fold {number + 1} of {count}",
            show=show,
        )
        logits[held] = trained.logits["held"]
    return _Folds(splits, logits)


def _temperature(labels: Labels, runs: Sequence[Trained], folds: _Folds, encoded: dict[str, Encoded]) -> float | None:
    """Fitted on texts that no classifier was trained on; None where there are none, or nothing to scale."""
    if labels.kind == "numeric":
        return None
    if "valid" in encoded and encoded["valid"].targets is not None:
        logits = np.concatenate([run.logits["valid"] for run in runs])
        return fit_temperature(logits, np.concatenate([encoded["valid"].targets] * len(runs)), labels.kind)
    if folds.logits is not None and encoded["train"].targets is not None:
        known = ~np.isnan(folds.logits[:, 0])
        return fit_temperature(folds.logits[known], encoded["train"].targets[known], labels.kind)
    return None


def _outcome(
    examined: str,
    labels: Labels,
    runs: Sequence[Trained],
    folds: _Folds,
    temperature: float | None,
    meter: Meter,
) -> Outcome:
    if examined == "folds":
        assert folds.logits is not None
        logits = [folds.logits]
    else:
        logits = [run.logits[examined] for run in runs]
    outputs = np.stack([outputs_from_logits(one, labels.kind, temperature or 1.0) for one in logits])
    raw = np.stack([outputs_from_logits(one, labels.kind) for one in logits])
    return Outcome("ulmfit", outputs, raw, meter.seconds / 60 / max(1, len(runs)), meter.peak_mb)


def _best_seed(labels: Labels, runs: Sequence[Trained], encoded: dict[str, Encoded]) -> int:
    """The seed with the lowest validation loss; the first one if there is no validation set."""
    if "valid" not in encoded:
        return 0
    return int(np.argmin([min(row["loss"] for row in run.history if "loss" in row) for run in runs]))
