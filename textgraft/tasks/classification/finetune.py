"""Fine-tuning of a classifier on a few labels, with an evaluation beside baselines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, warn_of_data
from textgraft.data.checks import LEAK_SHARE, check_and_warn, shared_texts
from textgraft.data.examples import Examples, validate_not_single_text
from textgraft.data.held_out import read_held_out
from textgraft.data.readers import read
from textgraft.data.unlabelled import labelled_only, with_unlabelled
from textgraft.models.artifact import Artifact, Predictor
from textgraft.tasks.classification.adapted_sources import Adapted
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.evaluation import Comparison, Outcome, compare_methods, on_held_out
from textgraft.tasks.classification.fine_tuned import (
    EncodedData,
    FinetuneResult,
    Member,
    averaged_outcome,
    train_member,
)
from textgraft.tasks.classification.fine_tuning_candidate import Adaptation, FineTuningCandidate
from textgraft.tasks.classification.finetune_options import ENSEMBLE, LINEAR_PROBE, FinetuneOptions
from textgraft.tasks.classification.finetune_record import choice_record, member_record, run_record
from textgraft.tasks.classification.finetune_setup import FinetuneSetup, prepare_setup
from textgraft.tasks.classification.first_fold import trial
from textgraft.tasks.classification.ladder import Ladder, feature_maps
from textgraft.tasks.classification.model_selection import WeightedEnsemble, evidence
from textgraft.tasks.classification.next_step import keep_candidate
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.sources import Source, language_models, validate_names
from textgraft.tasks.classification.training import Plan
from textgraft.tasks.finetuning import parts_by_name
from textgraft.tasks.language_modeling.adapt import TooFewTexts
from textgraft.training.driver import (
    put_in_place,
    remove_work,
    validate_new_path,
)
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import prepared


@exclusive
def finetune(
    train: Any,
    out: Path | str,
    *,
    model: str | Path | None = None,
    valid: Any = None,
    test: Any = None,
    unlabelled: Sequence[str] | None = None,
    options: FinetuneOptions | None = None,
    context: RunContext | None = None,
) -> FinetuneResult:
    """Fine-tune a language model on labelled texts and save a classifier at `out`, with an evaluation.

    Howard & Ruder 2018, §3.3, as the recipe's `finetune` phases say. Without a recipe the result is a weighted ensemble
    of candidates in order of cost (tasks.classification.ladder), as many as `options.minutes` allows,
    with weights by their predictions for held-out training texts (tasks.classification.model_selection);
    `comparison.chosen` says what and why, and run.json has what the clock decided (`rungs`) and when each result was
    there (`ladder`). Probabilities are temperature-scaled on `valid` or on the folds' held-out texts. The folder holds
    report.html too. After an interruption the same call continues.

    Args:
        train: Labelled texts: anything that `read` takes. Those without a label are used as unlabelled texts.
        out: Folder for the classifier.
        model: Name or folder of the language model (None: `options.default_model`), or several, separated by +, such
            as one from left to right and one from right to left: a classifier is fine-tuned from each, by a recipe of
            its own where none is named, and the result is the mean of their predictions (§5); without a recipe each is
            a candidate.
        valid: Labelled texts for early stopping.
        test: Labelled texts to measure on; without them scores are of `valid`, or else of cross-validation. Texts
            without a label are left out of both.
        unlabelled: Texts without labels for LSA and co-training, and with `options.adapt` for the language models,
            which are then adapted to them first (tasks.language_modeling.adapt, by the same recipe) and kept beside
            `out` (`adapted_path`); without a recipe only if a first fold shows that it is worth it and there is time
            for it, and no sentence encoder, whose vectors are a view of co-training.
        options: Everything about the fine-tuning but the data.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The folder, the scores beside those of baselines, and the trained models.

    Warns:
        DataWarning: For each problem that `textgraft.check` finds in the data, but for notes: test texts that are among
            the training or unlabelled texts, labels that training lacks, and so on.

    Raises:
        UserError: `out` exists; labels cannot be learned, or none of the validation or test set's occurs in training;
            or as `adapt` does.
    """
    began, out = time.monotonic(), Path(out)
    options = options or FinetuneOptions()
    if options.adapt is not None:
        options = replace(options, adapt=prepared(context, options.adapt)[1])
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_not_single_text(unlabelled, name="unlabelled")
    train, pool = with_unlabelled(read(train), unlabelled)
    valid, test = (None if part is None else labelled_only(read_held_out(part, train)) for part in (valid, test))
    parts = {"train": train, **parts_by_name(valid=valid, test=test)}
    sources = _language_models(model, train, options)
    adapted = _adapted(sources, pool, out, options, context) if pool else None
    setup = prepare_setup(out, parts, sources, pool or (), options, adapted, context)
    problems = check_and_warn(train, valid=valid, test=test, unlabelled=pool)
    selection, options = setup.selection, setup.options
    choice: WeightedEnsemble | None = None
    ladder_record: Mapping[str, Any] = {}
    if options.selects and selection.splits:
        ladder = Ladder(selection, setup.budget, feature_maps(selection), options.max_tokens)
        choice = _select(ladder, setup)
        members, ladder_record = ladder.members, ladder.record()
        comparison = _ensemble_comparison(choice, selection, ladder.shared_seconds)
    else:
        setup = setup.adapted_readings()
        members = {name: _member(setup, name, one) for name, one in setup.readings.items()}
        comparison = _language_model_comparison(members, selection, options)
    comparison = _annotated(comparison, selection, choice)
    done = FinetuneResult(
        folder=out,
        comparison=comparison,
        record={
            **run_record(out, setup, comparison),
            **choice_record(choice, sources),
            **setup.budget.record(),
            **ladder_record,
        },
        evaluation=train.take(selection.held_out.tolist()) if selection.evaluation is None else selection.evaluation,
        members=members,
        stages=setup.stages,
        cut=setup.cut,
        problems=problems,
        counted={c.name: choice.weights[c.name] for c in choice.kept} if choice is not None else {},
        language_models=adapted.folders if adapted is not None else {},
        seconds=time.monotonic() - began,
        limited=setup.budget.limited,
    )
    _save(done, choice, context.overwrite, report=options.report)
    return done


def _annotated(comparison: Comparison, selection: SelectionContext, choice: WeightedEnsemble | None) -> Comparison:
    """The comparison with the texts that are training texts too, and with the step after a worse ensemble."""
    if selection.evaluation is not None:
        seen = shared_texts(selection.evaluation.texts, selection.train.texts)
        comparison = replace(comparison, seen=seen if seen.mean() > LEAK_SHARE else None)
    return comparison if choice is None else replace(comparison, next_step=keep_candidate(comparison))


def _language_models(model: str | Path | None, train: Examples, options: FinetuneOptions) -> dict[str, Source]:
    """The language models to fine-tune or to fit a linear probe on, by name; none for a linear method."""
    if options.needs_language_model:
        return language_models(model or options.default_model(train))
    validate_names(model)
    return {}


def _member(
    setup: FinetuneSetup,
    name: str,
    reading: EncodedData,
    early_rejection: EarlyRejection | None = None,
    folds: int | None = None,
    seconds: float | None = None,
    steps: float = 1.0,
) -> Member:
    """The classifiers of one language model, trained now or loaded from the work folder."""
    title, plan = _title(setup, name), _plan(setup, name, reading.source)
    config = replace(setup.training_config, folds=folds, seconds=seconds, steps=steps)
    return train_member(title, plan, reading, config, early_rejection)


def _title(setup: FinetuneSetup, name: str) -> str:
    return name if len(setup.readings) > 1 else ""


def validate_candidates(ladder: Ladder, options: FinetuneOptions) -> None:
    """Raise UserError, with the reason, where no candidate of the chosen method could be fitted."""
    if ladder.candidates:
        return
    reasons = [*ladder.left_out.values(), *(lost.reason for lost in ladder.rejected.values())]
    why = next(iter(reasons), "it needs unlabelled texts, and there are none")
    remedy = "Pass what it needs (unlabelled texts: `unlabelled`), more minutes, or choose another method."
    raise UserError(f"the method '{options.method}' cannot be used here: {why.rstrip('.')}.", remedy=remedy)


def _plan(setup: FinetuneSetup, name: str, source: Artifact) -> Plan:
    options, labels = setup.options, setup.selection.labels
    return Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=setup.stages[name],
        settings=options.settings,
        labels=labels,
        class_weights=labels.class_weights(setup.selection.train, options.class_weights),
        pad_id=source.tokenizer.pad_id,
        pooling=source.pooling,
        words=options.words,
        both_orders=options.both_orders,
        layer_aggregation=options.layer_aggregation,
    )


def _select(ladder: Ladder, setup: FinetuneSetup) -> WeightedEnsemble:
    """The weighted ensemble of the candidates for which there was time."""
    options = setup.options
    ladder.climb(options.candidate_methods, [_language_model(setup, name) for name in setup.readings])
    validate_candidates(ladder, options)
    choice = ladder.ensemble([*setup.readings] if options.method == ENSEMBLE else [])
    if options.method == ENSEMBLE:
        return choice
    how = f"measured on {len(setup.selection.train):,} labels by {evidence(setup.selection)}"
    return replace(choice, chosen=f"{options.method} alone, the method that was named; {how}.")


def _adapted(
    sources: Mapping[str, Source], pool: Sequence[str], out: Path, options: FinetuneOptions, context: RunContext
) -> Adapted | None:
    """The language models, to be adapted to the pool on demand; None where that is not asked for.

    Where the recipe is chosen by model selection, too few texts are warned of and used without adapting.

    Raises:
        UserError: As `adapt` does.
    """
    if options.selects:
        sources = {name: source for name, source in sources.items() if not source.model.compares}
    if options.adapt is None or not sources:
        return None
    shown = RunContext(show=context.show, overwrite=context.overwrite)
    adapted = Adapted(out, pool, sources, options.language_recipe, options.adapt, shown)
    try:
        adapted.validate()
    except TooFewTexts as error:
        if not options.selects:
            raise
        warn_of_data(f"{error.message} None is adapted.")
        return None
    return adapted


def _language_model(setup: FinetuneSetup, name: str) -> FineTuningCandidate:
    reading = setup.readings[name]
    plan, config = _plan(setup, name, reading.source), setup.training_config
    adaptation = None
    if setup.adapted is not None and not reading.source.compares:
        tokens = setup.adapted.tokens(name)
        trying = trial(_title(setup, name), plan, reading, config, tokens)
        adaptation = Adaptation(tokens, partial(setup.read, name), trying)
    if setup.options.method == LINEAR_PROBE:
        return FineTuningCandidate(name, reading, train=None, adaptation=adaptation)
    return FineTuningCandidate(
        name,
        reading,
        partial(_member, setup, name),
        lambda costs, folds: costs.training(plan, reading, config, folds),
        partial(member_record, first_seed=setup.selection.seed),
        adaptation,
    )


def _ensemble_comparison(choice: WeightedEnsemble, selection: SelectionContext, shared_seconds: float) -> Comparison:
    """The weighted ensemble first, then its candidates."""
    alone, others = choice.rivals()
    selection = selection.first_folds(choice.folds)
    outcomes = (choice.outcome(shared_seconds), *others)
    evaluation_labels, targets = selection.evaluation_labels, selection.evaluation_targets
    whole = Comparison(evaluation_labels, targets, outcomes, tuple(alone), choice.chosen)
    return on_held_out(whole, selection.evaluation_folds)


def _language_model_comparison(
    members: Mapping[str, Member], selection: SelectionContext, options: FinetuneOptions
) -> Comparison:
    """The classifiers of the language model first, then the linear baselines."""
    outcome, parts = _outcomes(members, "scratch" if options.from_scratch else " + ".join(members))
    comparison = compare_methods(selection, outcome, baselines=options.baselines, parts=parts)
    if not options.selects:
        return comparison
    labels = len(selection.train)
    why = "folds is 0" if options.folds == 0 else f"{labels:,} labels leave none to hold out"
    return replace(comparison, chosen=f"The language model alone: {why}, so there is nothing to choose by.")


def _outcomes(members: Mapping[str, Member], name: str) -> tuple[Outcome, list[Outcome]]:
    """The outcome that is measured and, where that is an ensemble, those of its members."""
    named = [replace(m.outcome, name=title if len(members) > 1 else name) for title, m in members.items()]
    return (named[0], []) if len(named) == 1 else (averaged_outcome(named, name), named)


def _save(done: FinetuneResult, choice: WeightedEnsemble | None, overwrite: bool, *, report: bool) -> None:
    """Put the classifier, or the ensemble, in place with its report, and remove the work folder."""
    documents = {"report.html": _page(done)} if report else {}
    if choice is not None:
        classifiers: dict[str, Predictor] = choice.predictors(done.record)
    else:
        seed = done.record["settings"]["seed"]
        classifiers = {name: m.artifact(done.record | member_record(m, seed)) for name, m in done.members.items()}
    if len(classifiers) == 1:
        (classifier,) = classifiers.values()
        done.record.update(classifier.run)
        put_in_place(classifier, done.folder, overwrite=overwrite, documents=documents)
    else:
        weights = list(done.counted.values()) or None
        save_ensemble(classifiers, done.record, done.folder, weights=weights, overwrite=overwrite, documents=documents)
        remove_work(done.folder)


def _page(done: FinetuneResult) -> bytes:
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.tasks.classification.finetune_report import finetune_report
    from textgraft.tasks.classification.report import render

    return render(finetune_report(done)).encode()
