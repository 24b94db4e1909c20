"""Fine-tuning of a pretrained encoder for extractive question answering, with an evaluation beside a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from textgraft.core import formatting
from textgraft.core.brief import Brief
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
    QAPrediction,
    SearchSettings,
    answer_all,
    answers_by_id,
    as_file,
    scores,
)
from textgraft.training.driver import drive, put_in_place, validate_new_path, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings, prepared

QA_MODEL = "QA model"


@dataclass(frozen=True)
class QAOptions:
    """Options of the fine-tuning.

    Attributes:
        recipe: Name or file of a recipe; "default" is the recommended recipe of the encoder.
        windows: Settings of the windows.
        search: Settings of the search for answers.
        empty_windows: Train on windows that do not contain the answer too, with "no answer" as their target.
        held_out: Share of the articles to measure on, where there is neither a validation nor a test file.
        questions: Number of training questions to sample (Squad.sample); None: all.
        evaluation_questions: Number of questions of the evaluation split to sample; None: all.
        baseline: Evaluate the nearest sentence too.
        settings: Settings of the training.
        layer_aggregation: The encoder layers that the head uses (nn.layer_aggregation.LAYER_AGGREGATIONS).
    """

    recipe: str = "default"
    windows: WindowSettings = field(default_factory=WindowSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    empty_windows: bool = True
    held_out: float = 0.1
    questions: int | None = None
    evaluation_questions: int | None = None
    baseline: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = LAST

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        for name in ("questions", "evaluation_questions"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change what is saved."""
        return identity_of(self)


@dataclass(frozen=True, repr=False)
class QAResult(Brief):
    """A finished QA model.

    Attributes:
        folder: The model's folder.
        record: The contents of run.json.
        evaluation: The evaluation split.
        predictions: The predictions for it.
        scores: By name, the scores of the QA model and of the baseline.
    """

    folder: Path
    record: dict[str, Any]
    evaluation: Squad
    predictions: list[QAPrediction]
    scores: Mapping[str, AnswerScores]

    def table(self) -> str:
        """Every method with exact match, F1 and cost, and the verdict, as plain text."""
        return table(self.record["results"], ("exact_match", "f1"))


@exclusive
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
    answer}) and nbest.json of the evaluation split. After an interruption the same call continues.

    Args:
        train: Contexts with questions and answers.
        out: Folder for the QA model.
        model: A name that `loading.load_network` takes; None: the default model for the script of the texts
            (models.default_models).
        valid: Questions to validate on after every epoch: the weights with the best F1 are kept.
        test: Questions to measure on; without them scores are of `valid`, else of articles held out of `train`.
        options: Everything about the fine-tuning but the data.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Raises:
        UserError: `out` exists, questions have no answers, or the encoder cannot hold a window.
    """
    out, options = Path(out), options or QAOptions()
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_types(train=train, valid=valid, test=test, wanted=Squad, reader="textgraft.read_squad")
    source = loading.load_network(model or default_models_for(context for context, _ in train.asked()).alone)
    train, parts = chosen_parts(train, valid, test, options)
    options = resolved_options(options, source, train)
    stage = load_recipe(options.recipe).finetune
    stage.validate_no_classifier_settings(options.recipe)
    data = {name: _described(part) for name, part in {"train": train, **parts}.items()}
    folder = work_folder(out, run_identity("qa", data, [source], [stage], options))
    run = _run(source, stage, train, parts, options)
    with Meter() as meter:
        drive(run, folder / "reader.checkpoint.safetensors", title="qa", show=context.show)
    trained = Artifact(run.model.cpu().eval(), source.tokenizer, text_form=source.text_form)
    name = evaluation_split(parts)
    measured, precision = parts[name], options.settings.precision
    network = NetworkSpanModel(trained, precision)
    predictions = answer_all(network, list(measured.asked()), options.windows, options.search, show=context.show)
    method_scores = {QA_MODEL: scores(measured, answers_by_id(predictions))}
    costs = {QA_MODEL: cost(meter, run.progress.seconds)}
    if options.baseline:
        with Meter() as meter:
            contexts = [context for context, _ in train.asked()]
            nearest = baseline.nearest_sentences(list(measured.asked()), train=contexts)
        method_scores[baseline.NAME] = scores(measured, nearest)
        costs[baseline.NAME] = cost(meter)
    shared = _shared(train, parts)
    record = _record(out, source, data, shared, replace(options, settings=options.settings.of(stage)))
    record |= {"evaluation_split": name, "history": run.progress.history, "seconds": run.progress.seconds}
    record["results"] = results(method_scores, costs, questions=len(train))
    trained.run = record
    documents = {
        "predictions.json": as_file(answers_by_id(predictions)),
        "nbest.json": as_file({prediction.id: prediction.as_json() for prediction in predictions}),
    }
    put_in_place(trained, out, overwrite=context.overwrite, documents=documents)
    return QAResult(out, record, measured, predictions, method_scores)


def chosen_parts(
    train: Squad, valid: Squad | None, test: Squad | None, options: QAOptions
) -> tuple[Squad, dict[str, Squad]]:
    """The training data, and the parts to validate and to measure on, by name.

    Raises:
        UserError: Questions have no answers, or there is nothing to measure on.
    """
    seed = options.settings.seed
    if valid is None and test is None:
        train, held_out = split_articles(train, options.held_out, seed)
        parts = {"held out": held_out}
    else:
        parts = parts_by_name(valid=valid, test=test)
    if options.questions is not None:
        train = train.sample(options.questions, seed)
    if options.evaluation_questions is not None:
        name = evaluation_split(parts)
        parts[name] = parts[name].sample(options.evaluation_questions, seed)
    for part in (train, *parts.values()):
        lacking = unanswered_ids([question for _, question in part.asked()])
        if lacking:
            message = f"{len(lacking)} of {len(part)} questions have no answer, '{lacking[0]}' the first."
            remedy = "Add answers, or mark them is_impossible."
            raise UserError(message, where=part.source, remedy=remedy)
    return train, parts


def resolved_options(options: QAOptions, source: Artifact, train: Squad) -> QAOptions:
    """The options with recipe, window length and `may_be_none` filled in from the model and the data.

    Raises:
        UserError: The model's layers do not allow the layer aggregation.
    """
    new_layer_aggregation(options.layer_aggregation, source.model.encoder.widths)
    most = source.model.encoder.max_length
    recipe = source.recommended_recipe(options.recipe)
    windows = options.windows
    if most is not None:
        windows = replace(windows, max_tokens=min(most, windows.max_tokens))
    search = replace(options.search, may_be_none=train.has_impossible)
    return replace(options, recipe=recipe, windows=windows, search=search)


def new_qa_model(source: Model, stage: Stage, seed: int, *, layer_aggregation: str = LAST) -> Model:
    """Graft a head for spans onto a pretrained encoder; a QA model's own head is kept if it uses the same layers."""
    width = new_layer_aggregation(layer_aggregation, source.encoder.widths).output_dim
    head = SpanConfig(width, direction=source.encoder.direction, layer_aggregation=layer_aggregation)
    model = graft_on_positions(source, {"name": "span", **asdict(head)}, dropout=stage.dropout, seed=seed)
    if isinstance(source.head, SpanHead) and source.head.config.layer_aggregation == layer_aggregation:
        model.head.load_state_dict(source.head.state_dict())
        if model.layer_aggregation is not None and source.layer_aggregation is not None:
            model.layer_aggregation.load_state_dict(source.layer_aggregation.state_dict())
    return model


def _run(source: Artifact, stage: Stage, train: Squad, parts: Mapping[str, Squad], options: QAOptions) -> Run:
    """Prepare the training."""
    settings, tokenizer = options.settings, source.tokenizer
    direction = source.model.encoder.direction
    form = source.text_form
    windows = encode_questions(train.asked(), tokenizer, options.windows, direction=direction, form=form)
    training_windows = [w for w in windows if w.has_answer or options.empty_windows]
    if not any(w.has_answer for w in windows):
        remedy = "Raise max_tokens: answers must fit into a window."
        raise UserError("no window holds an answer.", where=train.source, remedy=remedy)
    stream = WindowStream(training_windows, pad_id=tokenizer.pad_id, rows=stage.batch_size, seed=settings.seed)
    model = new_qa_model(source.model, stage, settings.seed, layer_aggregation=options.layer_aggregation)
    phases = stage.plan(len(model.layer_groups()), stream.length(0))
    validate = _validator(parts["valid"], source, options) if "valid" in parts else None
    return Run(model, phases, stream, settings.of(stage), validate)


def _validator(valid: Squad, source: Artifact, options: QAOptions) -> Callable[[Model], Scores]:
    questions = list(valid.asked())

    def validate(model: Model) -> Scores:
        artifact = Artifact(model, source.tokenizer, text_form=source.text_form)
        network = NetworkSpanModel(artifact, options.settings.precision)
        predictions = answer_all(network, questions, options.windows, options.search)
        answer_scores = scores(valid, answers_by_id(predictions))
        # F1 selects the epoch: it is the task's metric, and the loss keeps rising once a model is overconfident.
        result = {"exact_match": float(answer_scores.exact_match.mean()), "f1": float(answer_scores.f1.mean())}
        return {"loss": 1 - result["f1"], "score": result["f1"]} | result

    return validate


def _described(part: Squad) -> dict[str, Any]:
    articles = len(part.articles)
    source = Path(part.source).name
    return {"source": source, "articles": articles, "questions": len(part), "sha256": part.content_hash()}


def _shared(train: Squad, parts: Mapping[str, Squad]) -> dict[str, int]:
    """Number of contexts of each part that are training contexts too."""
    training_contexts = {context for context, _ in train.asked()}
    return {name: len(training_contexts & {context for context, _ in part.asked()}) for name, part in parts.items()}


def _record(
    out: Path, source: Artifact, data: dict[str, Any], shared: dict[str, int], options: QAOptions
) -> dict[str, Any]:
    """run.json without results."""
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


def results(
    method_scores: Mapping[str, AnswerScores], costs: Mapping[str, Mapping[str, float]], *, questions: int
) -> dict[str, Any]:
    """The contents of results.json: the methods with their scores and costs, the QA model first.

    Args:
        method_scores: Scores by method.
        costs: Minutes and peak memory by method.
        questions: Number of training questions.
    """
    methods: dict[str, Any] = {}
    for name, answer_scores in method_scores.items():
        summary = answer_scores.summary()
        kept = {k: v for k, v in summary.items() if k not in ("questions", "unanswered")}
        methods[name] = kept | dict(costs.get(name, {}))
    about = {"labels": questions, "test_n": len(method_scores[QA_MODEL].ids), "seeds": 1, "metric": "f1"}
    return {**about, "verdict": _verdict(method_scores, methods), "methods": methods}


def _verdict(method_scores: Mapping[str, AnswerScores], methods: Mapping[str, Any]) -> str:
    """The scores in a sentence, with a paired test against the baseline."""
    result = methods[QA_MODEL]
    f1, exact = interval(result, "f1"), interval(result, "exact_match")
    text = f"F1 {f1} and exact match {exact} on {len(method_scores[QA_MODEL].ids):,} questions"
    if baseline.NAME not in method_scores:
        return f"{text}; no baseline was run."
    test = paired_test(method_scores[QA_MODEL].f1, method_scores[baseline.NAME].f1)
    rival = f"the nearest sentence (F1 {formatting.score(methods[baseline.NAME]['f1']['mean'], 'f1')})"
    return f"{text}. {formatting.compared(test.difference, test.p, 'f1', rival)}"
