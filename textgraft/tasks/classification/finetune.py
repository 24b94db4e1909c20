"""Stage three: a classifier from a few labels, and an evaluation beside baselines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.data.checks import LEAK_SHARE, check, shared_texts
from textgraft.data.examples import Examples, reads, validate_not_single_text
from textgraft.data.labels import ClassWeights, Labels, kind_of_texts
from textgraft.data.readers import read, read_optional
from textgraft.data.sequences import Truncation
from textgraft.data.splits import Split, stratified_folds
from textgraft.linear.methods import LINEAR_METHODS
from textgraft.models import loading
from textgraft.models.artifact import Artifact, Predictor
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.classification.adapted_sources import Adapted
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.evaluation import Comparison, Outcome, compare_methods, on_held_out
from textgraft.tasks.classification.fine_tuned import (
    FinetuneResult,
    Member,
    Reading,
    TrainingConfig,
    ensemble,
    read_parts,
    train_member,
)
from textgraft.tasks.classification.first_fold import trial
from textgraft.tasks.classification.linear_candidates import (
    CANDIDATE_METHODS,
    FROM_NO_MODEL,
    LinearCandidates,
    linear_candidates,
)
from textgraft.tasks.classification.linear_probe import linear_probe_name
from textgraft.tasks.classification.model_selection import (
    FineTuningCandidate,
    WeightedEnsemble,
    evidence,
    select_models,
    selection_splits,
)
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.sources import Source, language_models
from textgraft.tasks.classification.training import Plan, refuse_unpredictive
from textgraft.tasks.finetuning import parts_by_name, run_identity
from textgraft.training.driver import (
    allowed_seconds,
    content_hash,
    put_in_place,
    remove_work,
    validate_new_path,
    work_folder,
)
from textgraft.training.phases import Stage
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings, prepared

MAX_TOKENS = 512
ENSEMBLE, LINEAR_PROBE, FINE_TUNED = "ensemble", "linear-probe", "fine-tuned"
METHODS = (ENSEMBLE, *LINEAR_METHODS, LINEAR_PROBE, FINE_TUNED)
"""The methods of a fine-tuning: the weighted ensemble of all candidates, or one of them alone."""


@dataclass(frozen=True)
class FinetuneOptions:
    """Everything about a fine-tuning but the data; each has a default that works.

    `recipe` names how to train the language model, and then that is all that is made; None makes the best of the
    language model (by the recipe "default") and of linear classifiers, see `finetune`. `method` (of METHODS) is that
    "ensemble", or names one of its candidates, which then is all that is trained. `folds` cross-validates (None:
    five folds when there is neither a validation nor a test set, or to choose by without a recipe; else none). `seeds`
    trains that many classifiers, from `settings.seed` upwards, and reports their mean and spread. `from_scratch` keeps
    the network's shape and forgets what it has learned, to show what pretraining is worth. `words` lets the head see
    the embedding layer beside the top one. `both_orders` reads each pair both ways round and adds up what is seen
    (Radford et al. 2018, "similarity"). `layer_aggregation` is which layers the head reads
    (nn.layer_aggregation.LAYER_AGGREGATIONS). `report` writes report.html. `minutes` bounds the trainings of one
    language model in all, for the ensemble: one that would take longer is rejected as soon as that is predictable, and
    so is its linear probe, if encoding the labelled texts would. Adapting does not count, nor a first fold before that.
    With `adapt` the language models are adapted to the unlabelled texts first, by these settings.
    """

    recipe: str | None = None
    method: str = ENSEMBLE
    seeds: int = 1
    folds: int | None = None
    max_tokens: int = MAX_TOKENS
    class_weights: ClassWeights = "none"
    from_scratch: bool = False
    words: bool = True
    both_orders: bool = False
    baselines: bool = True
    report: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = LAST
    minutes: float | None = None
    adapt: Settings | None = None

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        self._validate_method()
        allowed_seconds(self.minutes)  # an impossible one is refused now
        if self.minutes is not None and not self.selects:
            message = "minutes bound a language model that may be left out, and here it is all that is asked for."
            raise UserError(message, remedy="Leave out the minutes, or what asks for it, such as a recipe.")
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All but the adaptation, which depends on the data too: a plan has a key for it where there is one."""
        return identity_of(self, without=("adapt",))

    def _validate_method(self) -> None:
        """Raises UserError for an unknown method, and for options that one without fine-tuning cannot heed."""
        if self.method not in METHODS:
            raise UserError(f"unknown method '{self.method}'.", remedy=did_you_mean(self.method, METHODS))
        if self.method in (ENSEMBLE, FINE_TUNED):
            return
        wrong = {
            "a recipe": self.recipe is not None,
            "class_weights": self.class_weights != "none",
            "from_scratch": self.from_scratch,
            "baselines=False": not self.baselines,
            "folds=0": self.folds == 0,
        }
        for option in (name for name, is_given in wrong.items() if is_given):
            remedy = f"Leave it out, or choose the method '{FINE_TUNED}'."
            raise UserError(f"{option} has no meaning for the method '{self.method}'.", remedy=remedy)

    @property
    def candidate_methods(self) -> tuple[str, ...]:
        """The linear methods (of linear.methods) that are candidates."""
        if self.method == ENSEMBLE:
            return CANDIDATE_METHODS
        return (self.method,) if self.method in LINEAR_METHODS else ()

    @property
    def needs_language_model(self) -> bool:
        """Whether any candidate is made of a language model."""
        return self.method not in LINEAR_METHODS

    @property
    def language_recipe(self) -> str:
        """How the language model is trained."""
        return self.recipe or "default"

    def default_model(self, train: Examples) -> str:
        """The language model where none is named."""
        usual = default_models_for(train.texts)
        return usual.ensemble if self.selects else usual.alone

    @property
    def selects(self) -> bool:
        """True where linear classifiers may be part of the ensemble.

        Not where the language model is what is asked about, nor with class weights, which linear ones know nothing of.
        """
        named = self.recipe is not None or self.method == FINE_TUNED
        asked_about = named or self.from_scratch or not self.baselines
        return not asked_about and self.class_weights == "none"


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
    of the language model and of linear classifiers (tasks.classification.linear_candidates), with weights by their
    predictions for held-out training texts (tasks.classification.model_selection); `comparison.chosen` says what and
    why. Probabilities are temperature-scaled on `valid` or on the folds' held-out texts. The folder holds report.html
    too. Killed, the same call goes on where it was.

    Args:
        train: Labelled texts: anything that `read` takes.
        out: Folder for the classifier.
        model: Name or folder of the language model (None: `options.default_model`), or several, separated by +, such
            as one from left to right and one from right to left: a classifier is fine-tuned from each, by a recipe of
            its own where none is named, and the result is the mean of their predictions (§5); without a recipe each is
            a candidate.
        valid: Labelled texts for early stopping.
        test: Labelled texts to measure on; without them scores are of `valid`, or else of cross-validation.
        unlabelled: Texts without labels for the linear classifiers, and with `options.adapt` for the language models,
            which are then adapted to them first (tasks.language_modeling.adapt, by the same recipe) and kept beside
            `out` (`adapted_path`); without a recipe only once a first fold has shown that it is worth it.
        options: Everything about the fine-tuning but the data.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The folder, the scores beside those of baselines, and the trained models.

    Raises:
        UserError: `out` exists; labels cannot be learned, or are unseen in training; or as `adapt` does.
    """
    out = Path(out)
    options = options or FinetuneOptions()
    if options.adapt is not None:
        options = replace(options, adapt=prepared(context, options.adapt)[1])
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_not_single_text(unlabelled, name="unlabelled")
    train, valid, test = read(train), read_optional(valid), read_optional(test)
    parts = {"train": train, **parts_by_name(valid=valid, test=test)}
    sources, adapted = _language_models(model, train, options), None
    if options.adapt is not None and unlabelled and sources:
        shown = RunContext(show=context.show, overwrite=context.overwrite)
        adapted = Adapted(out, unlabelled, sources, options.language_recipe, options.adapt, shown)
    begun = _begun(out, parts, sources, unlabelled or (), options, adapted, context)
    selection, options = begun.selection, begun.options
    # The quick ones first, so that a mistake they trip over is reported before the long training.
    methods = options.candidate_methods
    linear = linear_candidates(selection, methods=methods) if options.selects and selection.splits else None
    choice: WeightedEnsemble | None = None
    if linear is None:
        begun = begun.adapted_readings()
        members = {name: _member(begun, name, one) for name, one in begun.readings.items()}
        comparison = _language_model_comparison(members, selection, options)
    else:
        validate_candidates(linear, options)
        choice, members = _selected(linear, begun)
        comparison = _ensemble_comparison(choice, selection, linear.shared_seconds)
    if selection.evaluation is not None:
        seen = shared_texts(selection.evaluation.texts, train.texts)
        comparison = replace(comparison, seen=seen if seen.mean() > LEAK_SHARE else None)
    done = FinetuneResult(
        folder=out,
        comparison=comparison,
        record=_record(out, begun, comparison) | _choice_record(choice, sources),
        evaluation=train.take(selection.held_out.tolist()) if selection.evaluation is None else selection.evaluation,
        members=members,
        stages=begun.stages,
        cut=begun.cut,
        problems=check(train, valid=valid, test=test, unlabelled=Examples(list(unlabelled)) if unlabelled else None),
        counted={c.name: choice.weights[c.name] for c in choice.kept} if choice is not None else {},
        language_models=adapted.folders if adapted is not None else {},
    )
    _save(done, choice, context.overwrite, report=options.report)
    return done


def _language_models(model: str | Path | None, train: Examples, options: FinetuneOptions) -> dict[str, Source]:
    """The language models to fine-tune or to probe, by name; none for a linear method."""
    return language_models(model or options.default_model(train)) if options.needs_language_model else {}


@dataclass(frozen=True)
class _Begun:
    """A fine-tuning before anything is trained: `options` fit the data, `data` describes each part of it.

    `readings` are of the language models as they are, by name, and `stages` how each is trained; `adapted` gives those
    that are adapted to the unlabelled texts, if there are any.
    """

    parts: Mapping[str, Examples]
    options: FinetuneOptions
    readings: Mapping[str, Reading]
    adapted: Adapted | None
    recipe: str
    stages: Mapping[str, Stage]
    data: Mapping[str, Any]
    training_config: TrainingConfig
    selection: SelectionContext

    def read(self, name: str) -> Reading:
        """The parts of the data as encoded for the adapted language model."""
        assert self.adapted is not None
        return read_parts(self.adapted(name), self.parts, self.selection.labels, self.options.max_tokens)

    @property
    def cut(self) -> dict[str, Truncation]:
        """The truncation of each part for the first language model; nothing where there is none."""
        return next((reading.cut for reading in self.readings.values()), {})

    def adapted_readings(self) -> _Begun:
        """The same with language models that are adapted to the unlabelled texts, if there are any."""
        if self.adapted is None:
            return self
        return replace(self, readings={name: self.read(name) for name in self.readings})


def _begun(
    out: Path,
    parts: Mapping[str, Examples],
    sources: Mapping[str, Source],
    unlabelled: Sequence[str],
    options: FinetuneOptions,
    adapted: Adapted | None,
    context: RunContext,
) -> _Begun:
    """Validate everything that can be and make the work folder. Raises UserError as `finetune` does."""
    train = parts["train"]
    refuse_single_texts(train, options)
    if train.kind == "choice":  # linear classifiers have no part in it
        options = replace(options, recipe=options.language_recipe)
    labels = Labels.fit(train)
    kind, models = kind_of_texts(train, labels), {name: source.model for name, source in sources.items()}
    recipes = {name: model.recommended_recipe(options.language_recipe, kind) for name, model in models.items()}
    stages = {name: load_recipe(recipe).finetune for name, recipe in recipes.items()}
    for name, model in models.items():
        stages[name].validate_label_kind(labels.kind)
        new_layer_aggregation(options.layer_aggregation, model.model.encoder.widths)  # an impossible one is refused now
        refuse_unpredictive(model.model, stages[name])
    if adapted is not None:
        adapted.check()
    readings = {name: read_parts(model, parts, labels, options.max_tokens) for name, model in models.items()}
    evaluation_split = next((name for name in ("test", "valid") if name in parts), "folds")
    splits = chosen_folds(train, options, measured=evaluation_split != "folds")
    data = {name: _described(part) for name, part in parts.items()}
    plan = run_identity("finetune", data, models.values(), stages.values(), options) | {
        "unlabelled": content_hash(unlabelled)
    }
    plan |= {"adapt": adapted.identity()} if adapted is not None else {}
    context, seconds = context.at(work_folder(out, plan)), allowed_seconds(options.minutes)
    training_config = TrainingConfig(evaluation_split, options.seeds, splits, context, seconds)
    evaluation = parts.get(evaluation_split)
    selection = SelectionContext(train, evaluation, evaluation_split, labels, unlabelled, splits, context)
    recipe = " + ".join(dict.fromkeys(recipes.values()))
    return _Begun(parts, options, readings, adapted, recipe, stages, data, training_config, selection)


def _member(begun: _Begun, name: str, reading: Reading, early_rejection: EarlyRejection | None = None) -> Member:
    """The classifiers of one language model, trained now or taken from the work folder."""
    title, plan = _title(begun, name), _plan(begun, name, reading.source)
    return train_member(title, plan, reading, begun.training_config, early_rejection)


def _title(begun: _Begun, name: str) -> str:
    return name if len(begun.readings) > 1 else ""


def refuse_single_texts(train: Examples, options: FinetuneOptions) -> None:
    """Raises UserError where pairs are asked for, to be read in both orders, and there are none."""
    if options.both_orders and reads(train.texts) != "pairs":
        raise UserError("only pairs can be read in both orders.", where=train.source, remedy="Leave both_orders out.")


def validate_candidates(linear: LinearCandidates, options: FinetuneOptions) -> None:
    """Raises UserError, with the reason, where the one linear method that is asked for cannot be used."""
    if options.method in LINEAR_METHODS and not linear.candidates:
        why = linear.left_out.get(options.method, "it learns from unlabelled texts, and there are none")
        remedy = "Give it what it needs, or choose another method."
        raise UserError(f"the method '{options.method}' cannot be used here: {why.rstrip('.')}.", remedy=remedy)


def chosen_folds(train: Examples, options: FinetuneOptions, *, measured: bool) -> Sequence[Split]:
    """The folds of the options; else those of model selection, or five where there is no other evaluation split.

    Raises UserError for folds that cannot be made, except those of model selection, which is then skipped.
    """
    if options.folds is None and options.selects:
        splits = selection_splits(train, options.settings.seed)
        if splits or (measured and options.method == ENSEMBLE):
            return splits
    count = options.folds if options.folds is not None else 0 if measured and not options.selects else 5
    if count == 0 and not measured:
        raise UserError("there is nothing to measure on.", remedy="Give a test set, or ask for folds.")
    return stratified_folds(train, count, options.settings.seed) if count else ()


def _plan(begun: _Begun, name: str, source: Artifact) -> Plan:
    options, labels = begun.options, begun.selection.labels
    return Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=begun.stages[name],
        settings=options.settings,
        labels=labels,
        class_weights=labels.class_weights(begun.selection.train, options.class_weights),
        pad_id=source.tokenizer.pad_id,
        words=options.words,
        both_orders=options.both_orders,
        layer_aggregation=options.layer_aggregation,
    )


def _described(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or [""] * len(part), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _selected(linear: LinearCandidates, begun: _Begun) -> tuple[WeightedEnsemble, dict[str, Member]]:
    """The weighted ensemble of linear candidates and language models; and the language models that were trained."""
    language_models = [_language_model(begun, name) for name in begun.readings]
    choice, members = select_models(linear, language_models, begun.selection, max_seconds=begun.training_config.seconds)
    if begun.options.method == ENSEMBLE:
        return choice, members
    how = f"measured on {len(begun.selection.train):,} labels by {evidence(begun.selection)}"
    return replace(choice, chosen=f"{begun.options.method} alone, the method that was named; {how}."), members


def _language_model(begun: _Begun, name: str) -> FineTuningCandidate:
    reading = begun.readings[name]
    if begun.options.method == LINEAR_PROBE:
        adapted = partial(begun.read, name) if begun.adapted is not None else None
        return FineTuningCandidate(name, reading, train=None, adapted=adapted)
    training, record = partial(_member, begun, name), partial(_member_record, first_seed=begun.selection.seed)
    if begun.adapted is None:
        return FineTuningCandidate(name, reading, training, record)
    about = _title(begun, name), _plan(begun, name, reading.source), reading, begun.training_config
    trying = trial(*about, begun.adapted.tokens(name))
    return FineTuningCandidate(name, reading, training, record, trying, partial(begun.read, name))


def _ensemble_comparison(choice: WeightedEnsemble, selection: SelectionContext, shared_seconds: float) -> Comparison:
    """The weighted ensemble first, then its candidates."""
    alone, others = choice.rivals()
    outcomes = (choice.outcome(shared_seconds), *others)
    whole = Comparison(selection.labels, selection.evaluation_targets, outcomes, tuple(alone), choice.chosen)
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
    why = "no folds were asked for" if options.folds == 0 else f"{labels:,} labels leave none to hold out"
    return replace(comparison, chosen=f"The language model alone: {why}, so there is nothing to choose by.")


def _outcomes(members: Mapping[str, Member], name: str) -> tuple[Outcome, list[Outcome]]:
    """The outcome that is measured and, where that is an ensemble, those of its members."""
    named = [replace(m.outcome, name=title if len(members) > 1 else name) for title, m in members.items()]
    return (named[0], []) if len(named) == 1 else (ensemble(named, name), named)


def _record(out: Path, begun: _Begun, comparison: Comparison) -> dict[str, Any]:
    """run.json, but for what differs between members."""
    folders = begun.adapted.folders if begun.adapted is not None else {}
    name = next(iter(begun.readings), "")  # others have a run.json of their own too
    base = _run_of(begun, name, folders)
    options, labels, texts = begun.options, comparison.labels, begun.data["train"]["texts"]
    about: dict[str, Any] = {"data": begun.data, "settings": _settings_of(begun, name)}
    shared = provenance(stage="finetune", name=out.name, base=base, recipe=begun.recipe, **about)
    return shared | {
        "reads": reads(begun.selection.train.texts),
        "labels": texts,
        "classes": list(labels.names),
        "kind": labels.kind,
        "seeds": options.seeds,
        "from_scratch": options.from_scratch,
        "max_tokens": options.max_tokens,
        "layer_aggregation": options.layer_aggregation,
        "tokens_lost": {part: truncation.share for part, truncation in begun.cut.items()},
        "examined": begun.training_config.evaluation_split,
        "results": comparison.results(labels=texts, seeds=options.seeds),
    }


def _run_of(begun: _Begun, name: str, folders: Mapping[str, Path]) -> dict[str, Any]:
    """run.json of a language model, the adapted one if it was adapted; empty without a language model."""
    if not name:
        return {}
    return loading.load_network(folders[name]).run if name in folders else begun.readings[name].source.run


def _settings_of(begun: _Begun, name: str) -> Settings:
    """The settings as a language model's recipe has them; the given ones without a language model."""
    settings = begun.options.settings
    return settings.of(begun.stages[name]) if name else settings


def _choice_record(choice: WeightedEnsemble | None, names: Collection[str]) -> dict[str, Any]:
    """The choice as in run.json; without a language model in it, the keys that speak of one are emptied."""
    if choice is None:
        return {}
    grown = {*names, *map(linear_probe_name, names)}
    return {"ensemble": choice.record()} | ({} if grown & {c.name for c in choice.kept} else FROM_NO_MODEL)


def _member_record(member: Member, first_seed: int) -> dict[str, Any]:
    """The part of run.json that differs between members."""
    return {
        "base": ancestry(member.source.run),
        "temperature": member.temperature,
        "seed_kept": first_seed + member.best,
        "history": member.runs[member.best].history,
    }


def _save(done: FinetuneResult, choice: WeightedEnsemble | None, overwrite: bool, *, report: bool) -> None:
    """Put the classifier, or the ensemble, in place with its report, and remove the work folder."""
    documents = {"report.html": _page(done)} if report else {}
    if choice is not None:
        classifiers: dict[str, Predictor] = choice.predictors(done.record)
    else:
        seed = done.record["settings"]["seed"]
        classifiers = {name: m.artifact(done.record | _member_record(m, seed)) for name, m in done.members.items()}
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
