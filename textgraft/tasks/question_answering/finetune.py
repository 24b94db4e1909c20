"""A reader from questions with answers: fine-tune a pretrained encoder to point at them, and say how good it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from textgraft.core import formatting
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import identity_of
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import validate_types
from textgraft.data.squad import Squad, split_articles, unanswered_ids
from textgraft.data.streams.windows import WindowStream
from textgraft.data.windows import WindowSettings, encode_questions
from textgraft.heads.span import SpanConfig, SpanHead
from textgraft.metrics.classification import paired_test
from textgraft.metrics.question_answering import AnswerScores
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model, graft_on_positions
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.finetuning import cost, evaluation_split, interval, parts_by_name, run_identity, table
from textgraft.tasks.question_answering import baseline
from textgraft.tasks.question_answering.network import NetworkSpanModel
from textgraft.tasks.question_answering.predictor import (
    Reply,
    SearchSettings,
    answer_all,
    as_file,
    predictions,
    scores,
)
from textgraft.training.driver import drive, put_in_place, refuse_existing, work_folder
from textgraft.training.loop import Run, Scores, Settings, prepared
from textgraft.training.phases import Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe

READER = "reader"


@dataclass(frozen=True)
class QAOptions:
    """Everything about the fine-tuning but the data; each has a default that works.

    `recipe` "default" is the default of the encoder. Windows that do not hold the answer teach that it is not
    there, unless `empty_windows` is False. With neither a validation nor a test file, the share `held_out` of the
    articles is measured on. `questions` and `examined_questions`, if given, are how many of what there is to learn from
    and to measure on are taken (Squad.sample). `search` says how answers are looked for, `layer_aggregation` which
    layers the head reads (nn.layer_aggregation.LAYER_AGGREGATIONS).
    """

    recipe: str = "default"
    windows: WindowSettings = field(default_factory=WindowSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    empty_windows: bool = True
    held_out: float = 0.1
    questions: int | None = None
    examined_questions: int | None = None
    baseline: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = LAST

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        for name in ("questions", "examined_questions"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change what is saved."""
        return identity_of(self)


@dataclass(frozen=True)
class QAResult:
    """A finished QA model: its folder, its replies to the evaluation split, their scores beside the baseline's."""

    folder: Path
    record: dict[str, Any]
    evaluation: Squad
    replies: list[Reply]
    scores: Mapping[str, AnswerScores]

    def table(self) -> str:
        """Every method with exact match, F1 and cost, and the verdict, as plain text."""
        return table(self.record["results"], ("exact_match", "f1"))


def qa_finetune(
    train: Squad,
    out: Path | str,
    *,
    model: str | Path | None = None,
    valid: Squad | None = None,
    test: Squad | None = None,
    options: QAOptions | None = None,
    context: RunContext | None = None,
) -> QAResult:
    """Fine-tune an encoder to answer questions and save a QA model at `out`, measured beside the nearest sentence.

    Devlin et al. 2019, §4.2 and §4.3, for an encoder of any family. The folder also holds predictions.json ({id:
    answer}) and nbest.json of the evaluation split. Killed, the same call goes on from there.

    Args:
        train: Contexts with questions and answers.
        out: Folder for the QA model.
        model: A name that `loading.load_network` takes; None: the default model for the script of the texts
            (models.default_models).
        valid: Questions that are answered after every epoch: the weights with the best F1 are kept.
        test: Questions to measure on; without them scores are of `valid`, else of articles held out of `train`.
        options: Everything about the fine-tuning but the data.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Raises:
        UserError: `out` exists, questions have no answers, or the encoder cannot hold a window.
    """
    out, options = Path(out), options or QAOptions()
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    refuse_existing(out, context.overwrite)
    validate_types(train=train, valid=valid, test=test, wanted=Squad, reader="textgraft.read_squad")
    source = loading.load_network(model or default_models_for(context for context, _ in train.asked()).alone)
    train, parts = chosen_parts(train, valid, test, options)
    options = fitted(options, source, train)
    stage = load_recipe(options.recipe).finetune
    stage.refuse_for_classifiers(options.recipe)
    data = {name: _described(part) for name, part in {"train": train, **parts}.items()}
    folder = work_folder(out, run_identity("qa", data, [source], [stage], options))
    run = _run(source, stage, train, parts, options)
    with Meter() as meter:
        drive(run, folder / "reader.checkpoint.safetensors", title="qa", show=context.show)
    reader = Artifact(run.model.cpu().eval(), source.tokenizer)
    name = evaluation_split(parts)
    measured, precision = parts[name], options.settings.precision
    asked_of = NetworkSpanModel(reader, precision)
    replies = answer_all(asked_of, list(measured.asked()), options.windows, options.search, show=context.show)
    found = {READER: scores(measured, predictions(replies))}
    costs = {READER: cost(meter, run.progress.seconds)}
    if options.baseline:
        with Meter() as meter:
            contexts = [context for context, _ in train.asked()]
            nearest = baseline.nearest_sentences(list(measured.asked()), train=contexts)
        found[baseline.NAME] = scores(measured, nearest)
        costs[baseline.NAME] = cost(meter)
    shared = _shared(train, parts)
    record = _record(out, source, data, shared, replace(options, settings=options.settings.of(stage)))
    record |= {"examined": name, "history": run.progress.history, "seconds": run.progress.seconds}
    record["results"] = results(found, costs, questions=len(train))
    reader.run = record
    documents = {
        "predictions.json": as_file(predictions(replies)),
        "nbest.json": as_file({reply.id: reply.listed() for reply in replies}),
    }
    put_in_place(reader, out, overwrite=context.overwrite, documents=documents)
    return QAResult(out, record, measured, replies, found)


def chosen_parts(
    train: Squad, valid: Squad | None, test: Squad | None, options: QAOptions
) -> tuple[Squad, dict[str, Squad]]:
    """The training data, and the parts to validate and to measure on, by name.

    Raises UserError for questions without answers, and where there is nothing to measure on.
    """
    seed = options.settings.seed
    if valid is None and test is None:
        train, held = split_articles(train, options.held_out, seed)
        parts = {"held out": held}
    else:
        parts = parts_by_name(valid=valid, test=test)
    if options.questions is not None:
        train = train.sample(options.questions, seed)
    if options.examined_questions is not None:
        name = evaluation_split(parts)
        parts[name] = parts[name].sample(options.examined_questions, seed)
    for part in (train, *parts.values()):
        lacking = unanswered_ids([question for _, question in part.asked()])
        if lacking:
            message = f"{len(lacking)} of {len(part)} questions have no answer, '{lacking[0]}' the first."
            remedy = "Add answers, or mark them is_impossible."
            raise UserError(message, where=part.source, remedy=remedy)
    return train, parts


def fitted(options: QAOptions, source: Artifact, train: Squad) -> QAOptions:
    """The options with what follows from the model and the data.

    Raises UserError for a layer aggregation that the model's layers do not allow.
    """
    new_layer_aggregation(options.layer_aggregation, source.model.encoder.widths)
    most = source.model.encoder.max_length
    recipe = source.recommended_recipe(options.recipe)
    windows = options.windows
    if most is not None:
        windows = replace(windows, max_tokens=min(most, windows.max_tokens))
    search = replace(options.search, may_be_none=train.has_impossible)
    return replace(options, recipe=recipe, windows=windows, search=search)


def new_reader(source: Model, stage: Stage, seed: int, *, layer_aggregation: str = LAST) -> Model:
    """The pretrained encoder under a fresh head, or under a reader's own if it reads the same layers."""
    width = new_layer_aggregation(layer_aggregation, source.encoder.widths).output_dim
    head = SpanConfig(width, direction=source.encoder.direction, layer_aggregation=layer_aggregation)
    model = graft_on_positions(source, {"name": "span", **asdict(head)}, dropout=stage.dropout, seed=seed)
    if isinstance(source.head, SpanHead) and source.head.config.layer_aggregation == layer_aggregation:
        model.head.load_state_dict(source.head.state_dict())
        if model.layer_aggregation is not None and source.layer_aggregation is not None:
            model.layer_aggregation.load_state_dict(source.layer_aggregation.state_dict())
    return model


def _run(source: Artifact, stage: Stage, train: Squad, parts: Mapping[str, Squad], options: QAOptions) -> Run:
    """The training, ready to be driven."""
    settings, tokenizer = options.settings, source.tokenizer
    direction = source.model.encoder.direction
    windows = encode_questions(train.asked(), tokenizer, options.windows, direction=direction)
    learned = [w for w in windows if w.has_answer or options.empty_windows]
    if not any(w.has_answer for w in windows):
        remedy = "Raise max_tokens: answers must fit into a window."
        raise UserError("no window holds an answer.", where=train.source, remedy=remedy)
    stream = WindowStream(learned, pad_id=tokenizer.pad_id, rows=stage.batch_size, seed=settings.seed)
    model = new_reader(source.model, stage, settings.seed, layer_aggregation=options.layer_aggregation)
    phases = stage.plan(len(model.layer_groups()), stream.length(0))
    validate = _validator(parts["valid"], source, options) if "valid" in parts else None
    return Run(model, phases, stream, settings.of(stage), validate)


def _validator(valid: Squad, source: Artifact, options: QAOptions) -> Callable[[Model], Scores]:
    asked = list(valid.asked())

    def validate(model: Model) -> Scores:
        reader = NetworkSpanModel(Artifact(model, source.tokenizer), options.settings.precision)
        replies = answer_all(reader, asked, options.windows, options.search)
        found = scores(valid, predictions(replies))
        # Answers' F1 decides: it is what is asked for, and the loss keeps rising once a model is too sure of itself.
        result = {"exact_match": float(found.exact_match.mean()), "f1": float(found.f1.mean())}
        return {"loss": 1 - result["f1"], "score": result["f1"]} | result

    return validate


def _described(part: Squad) -> dict[str, Any]:
    articles = len(part.articles)
    source = Path(part.source).name
    return {"source": source, "articles": articles, "questions": len(part), "sha256": part.content_hash()}


def _shared(train: Squad, parts: Mapping[str, Squad]) -> dict[str, int]:
    """How many of each part's contexts are learned from too."""
    read = {context for context, _ in train.asked()}
    return {name: len(read & {context for context, _ in part.asked()}) for name, part in parts.items()}


def _record(
    out: Path, source: Artifact, data: dict[str, Any], shared: dict[str, int], options: QAOptions
) -> dict[str, Any]:
    """run.json but for what came of it."""
    about: dict[str, Any] = {"data": data, "recipe": options.recipe, "settings": options.settings}
    run = provenance(stage="qa", name=out.name, base=source.run, **about)
    return run | {
        "windows": asdict(options.windows),
        "max_tokens": options.windows.max_tokens,
        "search": asdict(options.search),
        "empty_windows": options.empty_windows,
        "layer_aggregation": options.layer_aggregation,
        "contexts_in_training_too": shared,
    }


def results(found: Mapping[str, AnswerScores], costs: Mapping[str, Mapping[str, float]], *, questions: int) -> Any:
    """The shape that every results.json keeps: methods, each with its scores and what it cost; the reader first."""
    methods: dict[str, Any] = {}
    for name, scored in found.items():
        summary = scored.summary()
        kept = {k: v for k, v in summary.items() if k not in ("questions", "unanswered")}
        methods[name] = kept | dict(costs.get(name, {}))
    about = {"labels": questions, "test_n": len(found[READER].ids), "seeds": 1, "metric": "f1"}
    return {**about, "verdict": _verdict(found, methods), "methods": methods}


def _verdict(found: Mapping[str, AnswerScores], methods: Mapping[str, Any]) -> str:
    """How good it is, and whether better than the baseline by more than chance explains."""
    own = methods[READER]
    f1, exact = interval(own, "f1"), interval(own, "exact_match")
    text = f"F1 {f1} and exact match {exact} on {len(found[READER].ids):,} questions"
    if baseline.NAME not in found:
        return f"{text}; no baseline was run."
    test = paired_test(found[READER].f1, found[baseline.NAME].f1)
    rival = f"the nearest sentence (F1 {formatting.score(methods[baseline.NAME]['f1']['mean'], 'f1')})"
    return f"{text}. {formatting.compared(test.difference, test.p, 'f1', rival)}"
