"""Stage three: a classifier from a few labels, with an honest account of how good it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.artifact import Artifact
from textgraft.data.check import check
from textgraft.data.examples import Examples
from textgraft.data.labels import ClassWeights, Labels
from textgraft.data.splits import Split, stratified_folds
from textgraft.ensemble import load_one, save_ensemble
from textgraft.errors import UserError
from textgraft.evaluation import Comparison, Outcome, compare_methods
from textgraft.inference import Truncation
from textgraft.provenance import ancestry, provenance
from textgraft.stages.members import Course, Finetuned, Member, encode_parts, ensemble, train_member
from textgraft.training.classifier import Plan
from textgraft.training.loop import Settings
from textgraft.training.phases import Stage, load_recipe
from textgraft.training.session import (
    content_hash,
    put_in_place,
    refuse_existing,
    remove_work,
    weights_hash,
    work_folder,
)

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

    def __post_init__(self) -> None:
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")


def finetune(
    train: Examples,
    out: Path | str,
    *,
    model: str | Path = "en-ulmfit",
    backward: str | Path | None = None,
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
    held-out texts. `backward` is a language model that reads from right to left: a second classifier grows from it,
    and what is saved and measured is the mean of the two (§5). `unlabelled` only serves the LSA baseline here (adapt
    is what reads it for the model). `beside` are other methods' outcomes on the same texts, to stand in the same
    table. The folder holds report.html too. Killed, the same call goes on where it was.

    Raises UserError if `out` exists, for labels that cannot be learned, and for labels unseen in training.
    """
    out, options = Path(out), options or FinetuneOptions()
    refuse_existing(out, overwrite)
    sources = language_models(model, backward)
    labels, stage = Labels.fit(train), load_recipe(options.recipe).finetune
    weights = labels.class_weights(train, options.class_weights)
    parts = {name: part for name, part in (("train", train), ("valid", valid), ("test", test)) if part is not None}
    encoded = {name: encode_parts(source, parts, labels, options.max_tokens) for name, source in sources.items()}
    examined = "test" if test is not None else "valid" if valid is not None else "folds"
    splits = chosen_folds(train, options, measured=examined != "folds")
    data = {name: _described(part) for name, part in parts.items()}
    asked = {
        "stage": "finetune",
        "data": data,
        "unlabelled": content_hash(unlabelled or ()),
        "model": " ".join(weights_hash(source.model) for source in sources.values()),
        "tokenizer": " ".join(source.tokenizer.fingerprint for source in sources.values()),
        "recipe": repr(stage),
        "options": repr(options),
    }
    course = Course(examined, options.settings.seed, options.seeds, splits, work_folder(out, asked), show)
    members = {
        name: train_member(
            name if backward is not None else "",
            source,
            _plan(source, stage, options, labels, weights),
            encoded[name].parts,
            course,
        )
        for name, source in sources.items()
    }
    targets = encoded["forward"].parts["train" if examined == "folds" else examined].targets
    assert targets is not None
    outcome, shown_beside = _outcomes(members, "scratch" if options.from_scratch else "ulmfit")
    comparison = compare_methods(
        train,
        parts.get(examined),
        outcome,
        labels=labels,
        targets=targets,
        folds=[held for _, held in splits] if examined == "folds" else None,
        unlabelled=unlabelled,
        baselines=options.baselines,
        beside=beside,
        parts=shown_beside,
        seed=options.settings.seed,
    )
    used = replace(options, settings=options.settings.of(stage))
    done = Finetuned(
        folder=out,
        comparison=comparison,
        record=_record(out, sources["forward"], data, used, examined, comparison, encoded["forward"].cut),
        examined=train.take(sorted(i for _, held in splits for i in held)) if examined == "folds" else parts[examined],
        members=members,
        stage=stage,
        cut=encoded["forward"].cut,
        problems=check(train, test=test, unlabelled=Examples(list(unlabelled)) if unlabelled else None),
    )
    _save(done, overwrite)
    return done


def language_models(model: str | Path, backward: str | Path | None) -> dict[str, Artifact]:
    """The language models by the direction in which they read. Raises UserError for a backward one that does not."""
    sources = {"forward": load_one(model)}
    if backward is not None:
        sources["backward"] = load_one(backward)
        if sources["backward"].model.encoder.direction != "right":
            raise UserError(
                "this model does not read from right to left.",
                where=str(backward),
                remedy='Give one that was pretrained with direction = "right".',
            )
    return sources


def chosen_folds(train: Examples, options: FinetuneOptions, *, measured: bool) -> Sequence[Split]:
    """The folds that are asked for; five if nothing else is there to measure on (`measured`: something is).

    Raises UserError for folds that cannot be made.
    """
    count = options.folds if options.folds is not None else 0 if measured else 5
    if count == 0 and not measured:
        raise UserError("there is nothing to measure on.", remedy="Give a test set, or ask for folds.")
    return stratified_folds(train, count, options.settings.seed) if count else ()


def _plan(source: Artifact, stage: Stage, options: FinetuneOptions, labels: Labels, weights: np.ndarray | None) -> Plan:
    return Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=stage,
        settings=options.settings,
        labels=labels,
        class_weights=weights,
        pad_id=source.tokenizer.pad_id,
        words=options.words,
    )


def _described(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or [""] * len(part), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _outcomes(members: Mapping[str, Member], name: str) -> tuple[Outcome, list[Outcome]]:
    """What is measured, and, where that is an ensemble, what its members answer alone."""
    named = [
        replace(member.outcome, name=direction if len(members) > 1 else name) for direction, member in members.items()
    ]
    return (named[0], []) if len(named) == 1 else (ensemble(named, name), named)


def _record(
    out: Path,
    source: Artifact,
    data: dict[str, Any],
    options: FinetuneOptions,
    examined: str,
    comparison: Comparison,
    cut: Mapping[str, Truncation],
) -> dict[str, Any]:
    """run.json, but for what differs between members."""
    settings, labels, texts = options.settings, comparison.labels, data["train"]["texts"]
    return provenance(
        stage="finetune", name=out.name, base=source.run, data=data, recipe=options.recipe, settings=settings
    ) | {
        "labels": texts,
        "classes": list(labels.names),
        "kind": labels.kind,
        "seeds": options.seeds,
        "from_scratch": options.from_scratch,
        "max_tokens": options.max_tokens,
        "tokens_lost": {name: truncation.share for name, truncation in cut.items()},
        "examined": examined,
        "results": comparison.results(labels=texts, seeds=options.seeds),
    }


def _save(done: Finetuned, overwrite: bool) -> None:
    """Put the classifier, or the ensemble, in place with its report, and remove the work folder."""
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.report.report import render
    from textgraft.stages.report import finetune_report

    documents = {"report.html": render(finetune_report(done)).encode()}
    classifiers = {}
    for name, member in done.members.items():
        own = {
            "base": ancestry(member.source.run),
            "temperature": member.temperature,
            "seed_kept": done.record["settings"]["seed"] + member.best,
            "history": member.runs[member.best].history,
        }
        classifiers[name] = member.artifact(done.record | own)
    if len(classifiers) == 1:
        done.record.update(classifiers["forward"].run)
        put_in_place(classifiers["forward"], done.folder, overwrite=overwrite, documents=documents)
    else:
        save_ensemble(classifiers, done.record, done.folder, overwrite=overwrite, documents=documents)
        remove_work(done.folder)
