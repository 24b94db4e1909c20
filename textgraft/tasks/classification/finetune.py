"""Stage three: a classifier from a few labels, with an honest account of how good it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.checks import LEAK_SHARE, check, shared_texts
from textgraft.data.examples import Examples, reads, validate_not_single_text
from textgraft.data.labels import ClassWeights, Labels, kind_of_texts
from textgraft.data.readers import read, read_optional
from textgraft.data.splits import Split, stratified_folds
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
    FROM_NO_MODEL,
    LinearCandidates,
    SelectionContext,
    linear_candidates,
)
from textgraft.tasks.classification.linear_probe import linear_probe_name
from textgraft.tasks.classification.model_selection import (
    FineTuningCandidate,
    WeightedEnsemble,
    select_models,
    selection_splits,
)
from textgraft.tasks.classification.sources import Source, language_models
from textgraft.tasks.classification.training import Plan, refuse_unpredictive
from textgraft.tasks.finetuning import asked, given
from textgraft.training.driver import (
    allowed_seconds,
    content_hash,
    put_in_place,
    refuse_existing,
    remove_work,
    work_folder,
)
from textgraft.training.loop import Settings
from textgraft.training.phases import Stage
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.recipes import load_recipe

MAX_TOKENS = 512


@dataclass(frozen=True)
class FinetuneOptions:
    """Everything about a fine-tuning but the data; each has a default that works.

    `recipe` names how to train the language model, and then that is all that is made; None makes the best of the
    language model (by the recipe "default") and of linear classifiers, see `finetune`. `folds` cross-validates (None:
    five folds when there is neither a validation nor a test set, or to choose by without a recipe; else none). `seeds`
    trains that many classifiers, from `settings.seed` upwards, and reports their mean and spread. `from_scratch` keeps
    the network's shape and forgets what it has learned, to show what pretraining is worth. `words` lets the head see
    the embedding layer beside the top one. `both_orders` reads each pair both ways round and adds up what is seen
    (Radford et al. 2018, "similarity"). `layer_aggregation` is which layers the head reads
    (nn.layer_aggregation.LAYER_AGGREGATIONS). `minutes` is what the trainings of one language model may take in all,
    for the blend: who would take longer is given up as soon as that is to be seen, and so is its probe, if reading the
    labelled texts would. What the model reads unlabelled text in does not count, nor a first fold before that.
    """

    recipe: str | None = None
    seeds: int = 1
    folds: int | None = None
    max_tokens: int = MAX_TOKENS
    class_weights: ClassWeights = "none"
    from_scratch: bool = False
    words: bool = True
    both_orders: bool = False
    baselines: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = field(default=LAST, repr=False)  # younger than runs that are known by the rest's repr
    minutes: float | None = field(default=None, repr=False)  # so is this

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        allowed_seconds(self.minutes)  # an impossible one is refused now
        if self.minutes is not None and not self.blends:
            message = "minutes bound a language model that may be left out, and here it is all that is asked for."
            raise UserError(message, remedy="Leave out the minutes, or what asks for it, such as a recipe.")
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    @property
    def language_recipe(self) -> str:
        """How the language model is trained."""
        return self.recipe or "default"

    def default_model(self, train: Examples) -> str:
        """The language model where none is named."""
        usual = default_models_for(train.texts)
        return usual.blended if self.blends else usual.alone

    @property
    def blends(self) -> bool:
        """Whether linear classifiers may take part in the answer.

        Not where the language model is what is asked about, nor with class weights, which linear ones know nothing of.
        """
        asked_about = self.recipe is not None or self.from_scratch or not self.baselines
        return not asked_about and self.class_weights == "none"


def finetune(
    train: Any,
    out: Path | str,
    *,
    model: str | Path | None = None,
    valid: Any = None,
    test: Any = None,
    unlabelled: Sequence[str] | None = None,
    adapting: Settings | None = None,
    options: FinetuneOptions | None = None,
    beside: Sequence[Outcome] = (),
    overwrite: bool = False,
    show: bool = True,
) -> FinetuneResult:
    """Fine-tune `model` (None: `options.default_model`) on labelled texts and save a classifier at `out`, measured.

    `train`, `valid` and `test` are what `read` takes.

    Howard & Ruder 2018, §3.3, as the recipe's `finetune` phases say. Without a recipe what is saved is the best mean of
    the language model's answers and those of the linear classifiers (tasks/classification/linear_candidates.py), with
    weights chosen by what each said of training texts that it had not seen (tasks/classification/model_selection.py);
    `comparison.chosen` says what and why. Scores come from `test`; without one, from `valid`, or else from
    cross-validation. Probabilities are temperature-scaled on `valid` or on the folds' held-out texts. `model` may be
    several language models, parted by +, such as one that reads from left to right and one that reads from right to
    left: a classifier grows from each, by a recipe of its own where none is named, and what is saved is the mean of
    their answers (§5); for the blend each is a candidate. `unlabelled` serves the linear classifiers, and with
    `adapting` the language models too, which then read it first (tasks/language_modeling/adapt.py, by these settings
    and the recipe) and are kept beside `out` (`adapted_path`); without a recipe they do so only once a first fold has
    shown that it is worth it as they are. `beside` are other methods' outcomes on the same texts, to stand in the same
    table. The folder holds report.html too. Killed, the same call goes on where it was.

    Raises UserError if `out` exists, for labels that cannot be learned, for labels unseen in training, and as `adapt`
    does.
    """
    out = Path(out)
    refuse_existing(out, overwrite)
    validate_not_single_text(unlabelled, name="unlabelled")
    train, valid, test = read(train), read_optional(valid), read_optional(test)
    parts = {"train": train, **given(valid=valid, test=test)}
    options = options or FinetuneOptions()
    sources, adapted = language_models(model or options.default_model(train)), None
    if adapting is not None and unlabelled:
        recipe = options.language_recipe
        adapted = Adapted(out, unlabelled, sources, recipe, adapting, overwrite=overwrite, show=show)
    begun = _begun(out, parts, sources, unlabelled or (), options, adapted, show=show)
    ground, options = begun.ground, begun.options
    # The quick ones first, so that a mistake they trip over is told before the long training.
    linear = linear_candidates(ground, show=show) if options.blends and ground.splits else None
    choice: WeightedEnsemble | None = None
    if linear is None:
        begun = begun.having_read()
        members = {name: _member(begun, name, one) for name, one in begun.readings.items()}
        comparison = _beside_the_language_model(members, ground, options, beside)
    else:
        choice, members = _weighed(linear, begun)
        comparison = _beside_the_blend(choice, ground, linear.shared_seconds, beside)
    if ground.examined is not None:
        seen = shared_texts(ground.examined.texts, train.texts)
        comparison = replace(comparison, seen=seen if seen.mean() > LEAK_SHARE else None)
    done = FinetuneResult(
        folder=out,
        comparison=comparison,
        record=_record(out, begun, comparison) | _told(choice, sources),
        examined=train.take(ground.known.tolist()) if ground.examined is None else ground.examined,
        members=members,
        stages=begun.stages,
        cut=next(iter(begun.readings.values())).cut,
        problems=check(train, valid=valid, test=test, unlabelled=Examples(list(unlabelled)) if unlabelled else None),
        counted={c.name: choice.weights[c.name] for c in choice.kept} if choice is not None else {},
        language_models=adapted.folders if adapted is not None else {},
    )
    _save(done, choice, overwrite)
    return done


@dataclass(frozen=True)
class _Begun:
    """A fine-tuning before anything is trained: `options` fit the data, `data` describes each part of it.

    `readings` are of the language models as they are, by name, and `stages` how each is trained; `adapted` gives those
    that have read the unlabelled texts, if they are to.
    """

    parts: Mapping[str, Examples]
    options: FinetuneOptions
    readings: Mapping[str, Reading]
    adapted: Adapted | None
    recipe: str
    stages: Mapping[str, Stage]
    data: Mapping[str, Any]
    training_config: TrainingConfig
    ground: SelectionContext

    def read(self, name: str) -> Reading:
        """By the language model that has read the unlabelled texts."""
        assert self.adapted is not None
        return read_parts(self.adapted(name), self.parts, self.ground.labels, self.options.max_tokens)

    def having_read(self) -> _Begun:
        """The same with language models that have read the unlabelled texts, where they are to."""
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
    *,
    show: bool,
) -> _Begun:
    """All that can be refused is refused here, and the work folder is there. Raises UserError as `finetune` does."""
    train = parts["train"]
    refuse_single_texts(train, options)
    if train.kind == "choice":  # linear classifiers have no part in it
        options = replace(options, recipe=options.language_recipe)
    labels = Labels.fit(train)
    kind, models = kind_of_texts(train, labels), {name: source.model for name, source in sources.items()}
    recipes = {name: model.recommended_recipe(options.language_recipe, kind) for name, model in models.items()}
    stages = {name: load_recipe(recipe).finetune for name, recipe in recipes.items()}
    for name, model in models.items():
        stages[name].refuse_kind(labels.kind)
        new_layer_aggregation(options.layer_aggregation, model.model.encoder.widths)  # an impossible one is refused now
        refuse_unpredictive(model.model, stages[name])
    if adapted is not None:
        adapted.check()
    readings = {name: read_parts(model, parts, labels, options.max_tokens) for name, model in models.items()}
    examined = next((name for name in ("test", "valid") if name in parts), "folds")
    splits = chosen_folds(train, options, measured=examined != "folds")
    data = {name: _described(part) for name, part in parts.items()}
    plan = asked("finetune", data, models.values(), stages.values(), options) | {"unlabelled": content_hash(unlabelled)}
    plan |= {"adapting": adapted.identity} if adapted is not None else {}
    plan |= {"minutes": options.minutes} if options.minutes is not None else {}
    folder, seconds = work_folder(out, plan), allowed_seconds(options.minutes)
    training_config = TrainingConfig(examined, options.settings.seed, options.seeds, splits, folder, show, seconds)
    ground = SelectionContext(
        train, parts.get(examined), labels, unlabelled, splits, training_config.seed, training_config.folder
    )
    recipe = " + ".join(dict.fromkeys(recipes.values()))
    return _Begun(parts, options, readings, adapted, recipe, stages, data, training_config, ground)


def _member(begun: _Begun, name: str, reading: Reading, race: EarlyRejection | None = None) -> Member:
    """The classifiers grown from one language model, trained now or taken from the work folder."""
    return train_member(_title(begun, name), _plan(begun, name, reading.source), reading, begun.training_config, race)


def _title(begun: _Begun, name: str) -> str:
    return name if len(begun.readings) > 1 else ""


def refuse_single_texts(train: Examples, options: FinetuneOptions) -> None:
    """Raises UserError where pairs are asked for, to be read in both orders, and there are none."""
    if options.both_orders and reads(train.texts) != "pairs":
        raise UserError("only pairs can be read in both orders.", where=train.source, remedy="Leave both_orders out.")


def chosen_folds(train: Examples, options: FinetuneOptions, *, measured: bool) -> Sequence[Split]:
    """The folds that are asked for; if none are, those that a blend needs, or five where nothing else is `measured` on.

    Raises UserError for folds that cannot be made, but for a blend's, which can do without.
    """
    if options.folds is None and options.blends:
        splits = selection_splits(train, options.settings.seed)
        if splits or measured:
            return splits
    count = options.folds if options.folds is not None else 0 if measured else 5
    if count == 0 and not measured:
        raise UserError("there is nothing to measure on.", remedy="Give a test set, or ask for folds.")
    return stratified_folds(train, count, options.settings.seed) if count else ()


def _plan(begun: _Begun, name: str, source: Artifact) -> Plan:
    options, labels = begun.options, begun.ground.labels
    return Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=begun.stages[name],
        settings=options.settings,
        labels=labels,
        class_weights=labels.class_weights(begun.ground.train, options.class_weights),
        pad_id=source.tokenizer.pad_id,
        words=options.words,
        both_orders=options.both_orders,
        layer_aggregation=options.layer_aggregation,
    )


def _described(part: Examples) -> dict[str, Any]:
    rows = (item for pair in zip(part.texts, part.labels or [""] * len(part), strict=True) for item in pair)
    return {"source": Path(part.source).name, "texts": len(part), "sha256": content_hash(rows)}


def _weighed(linear: LinearCandidates, begun: _Begun) -> tuple[WeightedEnsemble, dict[str, Member]]:
    """The linear candidates and the language models', with their weights; and the language models that were trained."""
    entrants = [_entrant(begun, name) for name in begun.readings]
    asked_for = {"examined": begun.training_config.examined, "precision": begun.options.settings.precision}
    return select_models(linear, entrants, begun.ground, **asked_for, within=begun.training_config.seconds)


def _entrant(begun: _Begun, name: str) -> FineTuningCandidate:
    reading = begun.readings[name]
    training, own = partial(_member, begun, name), partial(_own, first_seed=begun.ground.seed)
    if begun.adapted is None:
        return FineTuningCandidate(name, reading, training, own)
    about = _title(begun, name), _plan(begun, name, reading.source), reading, begun.training_config
    trying = trial(*about, begun.adapted.tokens(name))
    return FineTuningCandidate(name, reading, training, own, trying, partial(begun.read, name))


def _beside_the_blend(
    choice: WeightedEnsemble, ground: SelectionContext, shared_seconds: float, beside: Sequence[Outcome]
) -> Comparison:
    """The blend first, then its candidates."""
    targets = ground.targets if ground.examined is None else ground.labels.encode(ground.examined)
    same, others = choice.rivals()
    outcomes = (choice.outcome(shared_seconds), *others)
    whole = Comparison(ground.labels, targets, outcomes, tuple(same), choice.chosen)
    measured = on_held_out(whole, ground.held if ground.examined is None else None)
    return replace(measured, outcomes=(*measured.outcomes, *beside))


def _beside_the_language_model(
    members: Mapping[str, Member], ground: SelectionContext, options: FinetuneOptions, beside: Sequence[Outcome]
) -> Comparison:
    """The language model's classifiers first, then the linear baselines."""
    outcome, parts = _outcomes(members, "scratch" if options.from_scratch else " + ".join(members))
    comparison = compare_methods(
        ground.train,
        ground.examined,
        outcome,
        labels=ground.labels,
        targets=ground.targets if ground.examined is None else ground.labels.encode(ground.examined),
        folds=ground.held if ground.examined is None else None,
        unlabelled=ground.unlabelled,
        baselines=options.baselines,
        beside=beside,
        parts=parts,
        seed=ground.seed,
    )
    if not options.blends:
        return comparison
    why = "no folds were asked for" if options.folds == 0 else f"{len(ground.train):,} labels leave none to hold out"
    return replace(comparison, chosen=f"The language model alone: {why}, so there is nothing to choose by.")


def _outcomes(members: Mapping[str, Member], name: str) -> tuple[Outcome, list[Outcome]]:
    """What is measured, and, where that is an ensemble, what its members answer alone."""
    named = [replace(member.outcome, name=own if len(members) > 1 else name) for own, member in members.items()]
    return (named[0], []) if len(named) == 1 else (ensemble(named, name), named)


def _record(out: Path, begun: _Begun, comparison: Comparison) -> dict[str, Any]:
    """run.json, but for what differs between members."""
    folders = begun.adapted.folders if begun.adapted is not None else {}
    name, reading = next(iter(begun.readings.items()))  # others have a run.json of their own too
    source = loading.load_network(folders[name]) if name in folders else reading.source
    options, labels, texts = begun.options, comparison.labels, begun.data["train"]["texts"]
    about: dict[str, Any] = {"data": begun.data, "settings": options.settings.of(begun.stages[name])}
    shared = provenance(stage="finetune", name=out.name, base=source.run, recipe=begun.recipe, **about)
    return shared | {
        "reads": reads(begun.ground.train.texts),
        "labels": texts,
        "classes": list(labels.names),
        "kind": labels.kind,
        "seeds": options.seeds,
        "from_scratch": options.from_scratch,
        "max_tokens": options.max_tokens,
        "layer_aggregation": options.layer_aggregation,
        "tokens_lost": {part: truncation.share for part, truncation in reading.cut.items()},
        "examined": begun.training_config.examined,
        "results": comparison.results(labels=texts, seeds=options.seeds),
    }


def _told(choice: WeightedEnsemble | None, names: Collection[str]) -> dict[str, Any]:
    """What run.json says of the choice, and whose licence and reading do not count if no language model does."""
    if choice is None:
        return {}
    grown = {*names, *map(linear_probe_name, names)}
    return {"blend": choice.record()} | ({} if grown & {c.name for c in choice.kept} else FROM_NO_MODEL)


def _own(member: Member, first_seed: int) -> dict[str, Any]:
    """The part of run.json that differs between members."""
    return {
        "base": ancestry(member.source.run),
        "temperature": member.temperature,
        "seed_kept": first_seed + member.best,
        "history": member.runs[member.best].history,
    }


def _save(done: FinetuneResult, choice: WeightedEnsemble | None, overwrite: bool) -> None:
    """Put the classifier, or the ensemble, in place with its report, and remove the work folder."""
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.tasks.classification.finetune_report import finetune_report
    from textgraft.tasks.classification.report import render

    documents = {"report.html": render(finetune_report(done)).encode()}
    if choice is not None:
        classifiers: dict[str, Predictor] = choice.predictors(done.record)
    else:
        seed = done.record["settings"]["seed"]
        classifiers = {name: m.artifact(done.record | _own(m, seed)) for name, m in done.members.items()}
    if len(classifiers) == 1:
        (classifier,) = classifiers.values()
        done.record.update(classifier.run)
        put_in_place(classifier, done.folder, overwrite=overwrite, documents=documents)
    else:
        weights = list(done.counted.values()) or None
        save_ensemble(classifiers, done.record, done.folder, weights=weights, overwrite=overwrite, documents=documents)
        remove_work(done.folder)
