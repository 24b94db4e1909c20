"""Fine-tuning of a pretrained encoder to tag words, with an evaluation beside a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core import formatting
from textgraft.core.brief import Brief
from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.core.resource_meter import Meter
from textgraft.data.conll import Tagged, conll_text, split_sentences
from textgraft.data.examples import validate_types
from textgraft.data.streams.words import WordStream
from textgraft.data.tags import Scheme, SubwordPooling
from textgraft.data.text_forms import words_in_form
from textgraft.data.words import Coverage, default_subword_pooling, word_windows
from textgraft.heads.tagging import TaggingConfig
from textgraft.metrics.tagging import TagScores, paired_ratio_test, score_tags
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model, graft_on_positions
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.finetuning import cost, evaluation_split, interval, parts_by_name, run_identity, table
from textgraft.tasks.tagging import baseline
from textgraft.tasks.tagging.network import NetworkTagger
from textgraft.tasks.tagging.predictor import MAX_TOKENS, TaggedSentence, scores, tag_all
from textgraft.tasks.tagging.stacked import Network, validated_in_int8
from textgraft.training.driver import drive, put_in_place, validate_new_path, work_folder
from textgraft.training.loop import Run
from textgraft.training.loop import Scores as Validated
from textgraft.training.phases import Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.run_lock import exclusive, locked
from textgraft.training.settings import Settings, prepared
from textgraft.word_embeddings.stack import Stack

TAGGER = "tagger"
SCHEMES: tuple[Scheme, ...] = ("IOB2", "BIOES")


@dataclass(frozen=True)
class TagOptions:
    """Options of the fine-tuning.

    Attributes:
        recipe: Name or file of a recipe; "default" is the recommended recipe of the encoder.
        max_tokens: Length of a window, in tokens.
        scheme: Scheme in which entities are learned.
        crf: Learn transitions between tags (a CRF).
        subword_pooling: The subword that represents a word, "first" or "last"; None: by the encoder's direction
            (data.words.default_subword_pooling).
        held_out: Share of the sentences to measure on, where there is neither a validation nor a test file.
        baseline: Evaluate each word's most frequent tag too.
        settings: Settings of the training.
        layer_aggregation: The encoder layers that the head uses (nn.layer_aggregation.LAYER_AGGREGATIONS).
        network: Shape of the network over a stack.
    """

    recipe: str = "default"
    max_tokens: int = MAX_TOKENS
    scheme: Scheme = "IOB2"
    crf: bool = False
    subword_pooling: SubwordPooling | None = None
    held_out: float = 0.1
    baseline: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = LAST
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        if self.scheme not in SCHEMES:
            remedy = did_you_mean(self.scheme, SCHEMES)
            raise UserError(f"entities cannot be learned as '{self.scheme}'.", remedy=remedy)
        if self.subword_pooling not in ("first", "last", None):
            raise UserError(
                f"unknown subword_pooling '{self.subword_pooling}'.",
                remedy=did_you_mean(self.subword_pooling, ("first", "last")),
            )
        if self.max_tokens < 4:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 4 or more.")

    def identity(self) -> dict[str, Any]:
        """All options but the network, which only matters with a stack; `_stack_identity` adds it."""
        return identity_of(self, without=("network",))


STACKED = TagOptions(scheme="BIOES", crf=True)
"""Default options over a stack."""


@dataclass(frozen=True, repr=False)
class TagResult(Brief):
    """A finished tagger.

    Attributes:
        folder: The tagger's folder.
        record: The contents of run.json.
        evaluation: The evaluation split.
        predictions: The predictions for it.
        scores: By name, the scores of the tagger and of the baseline.
        tagger: The contents of the folder, in memory.
    """

    folder: Path
    record: dict[str, Any]
    evaluation: Tagged
    predictions: list[TaggedSentence]
    scores: Mapping[str, TagScores]
    tagger: Artifact

    def table(self) -> str:
        """Every method with its scores and cost, and the verdict, as plain text."""
        metrics = ("accuracy",) if self.evaluation.scheme == "plain" else ("f1", "precision", "recall")
        return table(self.record["results"], metrics)


@exclusive
def tag_finetune(
    train: Tagged,
    out: Path | str,
    *,
    model: str | Path | Stack | None = None,
    valid: Tagged | None = None,
    test: Tagged | None = None,
    options: TagOptions | None = None,
    context: RunContext | None = None,
) -> TagResult:
    """Fine-tune an encoder to tag words and save a tagger at `out`, measured beside each word's most frequent tag.

    Devlin et al. 2019, §5.3, for an encoder of any family. Over a Stack of frozen models and word vectors a network
    over words is trained instead (Akbik et al. 2018), with a CRF over BIOES tags unless there are `options`; the
    sources are copied into the folder. Where the tags of the evaluation split are the same in int8, those are scored,
    and int8 is used from then on (`validated_in_int8`). The folder also holds predictions.conll of the evaluation
    split: word, tag, predicted tag, as conlleval expects it. After an interruption the same call continues.

    Args:
        train: Sentences with tags.
        out: Folder for the tagger.
        model: A name that `loading.load_network` takes, or a Stack; None: the default model for the script of the
            sentences (models.default_models).
        valid: Sentences to validate on after every epoch: the weights with the best F1 of entities, or accuracy, are
            kept.
        test: Sentences to measure on; without them scores are of `valid`, else of sentences held out of `train`.
        options: Everything about the fine-tuning but the data.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Raises:
        UserError: `out` exists, the data have several kinds of tags, or the encoder cannot hold a window.
    """
    out, options = Path(out), options or (STACKED if isinstance(model, Stack) else TagOptions())
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_types(train=train, valid=valid, test=test, wanted=Tagged, reader="textgraft.read_tagged")
    model = model or default_models_for(" ".join(sentence.words) for sentence in train.sentences).alone
    source = (
        options.network.over(model, options.settings.seed) if isinstance(model, Stack) else loading.load_network(model)
    )
    train, parts = chosen_parts(train, valid, test, options)
    options = resolved_options(options, source)
    stage = load_recipe(options.recipe).finetune
    stage.validate_no_classifier_settings(options.recipe)
    data = {name: _described(part) for name, part in {"train": train, **parts}.items()}
    stacked = _stack_identity(source.stack, options)
    context = context.at(work_folder(out, run_identity("tag", data, [source], [stage], options) | stacked))
    with Meter() as meter:
        tagger, coverage = train_tagger(source, train, options, context, parts=parts)
    name = evaluation_split(parts)
    measured, sentences, precision = parts[name], parts[name].sentences, options.settings.precision
    predictions, evaluation_coverage = tag_all(
        NetworkTagger.of(tagger, precision), sentences, options.max_tokens, show=context.show
    )
    int8: dict[str, Any] = {}
    if source.stack is not None and precision == "auto":
        int8, predictions = validated_in_int8(tagger, predictions, options.max_tokens, show=context.show)
    method_scores = {TAGGER: scores(measured, predictions)}
    costs = {TAGGER: cost(meter, tagger.run["seconds"])}
    if options.baseline:
        with Meter() as meter:
            words, tags = [s.words for s in train.sentences], [s.tags for s in train.sentences]
            frequent = baseline.frequent_tags(words, tags, [s.words for s in sentences], train.scheme)
        method_scores[baseline.NAME] = score_tags([s.tags for s in sentences], frequent, train.scheme)
        costs[baseline.NAME] = cost(meter)
    record = _record(out, source, data, replace(options, settings=options.settings.of(stage)))
    record |= tagger.run | int8 | {"evaluation_split": name} | _overlap(train, parts)
    record |= {"coverage": {"train": asdict(coverage), name: asdict(evaluation_coverage)}}
    if source.stack is not None:
        words_of = {part: [s.words for s in of.sentences] for part, of in (("train", train), *parts.items())}
        unknown = {part: source.stack.unknown(words) for part, words in words_of.items()}
        record |= {"stack": source.stack.names, "words_without_vector": unknown}
    record["results"] = results(method_scores, costs, words=train.words)
    tagger.run = record
    documents = {"predictions.conll": conll_predictions(measured, predictions).encode("utf-8", "replace")}
    put_in_place(tagger, out, overwrite=context.overwrite, documents=documents)
    return TagResult(out, record, measured, predictions, method_scores, tagger)


def train_tagger(
    source: Artifact,
    train: Tagged,
    options: TagOptions,
    context: RunContext,
    *,
    parts: Mapping[str, Tagged] | None = None,
    title: str = "tag",
) -> tuple[Artifact, Coverage]:
    """Train a tagger; unfinished work is kept in the run's folder.

    Args:
        source: The pretrained encoder, or the network over a stack.
        train: Sentences with tags.
        options: Options as `resolved_options` returns them.
        context: Folder and progress.
        parts: Other parts of the data; "valid" among them selects the epoch.
        title: Title of the progress bar.

    Returns:
        The tagger, with history and seconds in its run (those for a stack's vectors in this process included), and the
        truncation of the training sentences.
    """
    parts, settings, stack = parts or {}, options.settings, source.stack
    stage, began, prepared_source = load_recipe(options.recipe).finetune, time.perf_counter(), source
    folder, show = context.work, context.show
    if stack is not None:
        stack.to(resolve_device(settings.device))
        cached_parts = [train, *(part for name, part in parts.items() if name == "valid")]
        with locked(folder):
            cached_stack = options.network.kept(stack, cached_parts, folder, show=show)
            words = words_in_form([s.words for s in train.sentences], source.text_form)
            prepared_source = replace(source, stack=cached_stack.having_read(words, folder, show=show))
    stack_seconds = time.perf_counter() - began if stack else 0.0
    run, coverage = _run(prepared_source, stage, train, parts, options)
    drive(run, folder / "tagger.checkpoint.safetensors", title=title, show=show)
    if stack is not None:
        stack.to(torch.device("cpu"))
    trained = {"history": run.progress.history, "seconds": run.progress.seconds + stack_seconds}
    more: Any = {"run": trained, "stack": stack, "text_form": source.text_form}
    return Artifact(run.model.cpu().eval(), source.tokenizer, **more), coverage


def chosen_parts(
    train: Tagged, valid: Tagged | None, test: Tagged | None, options: TagOptions
) -> tuple[Tagged, dict[str, Tagged]]:
    """The training data, and the parts to validate and to measure on, by name.

    Raises:
        UserError: One part has entities, and another one other tags.
    """
    if valid is None and test is None:
        train, held_out = split_sentences(train, options.held_out, options.settings.seed)
        parts = {"held out": held_out}
    else:
        parts = parts_by_name(valid=valid, test=test)
    for part in parts.values():
        if (part.scheme == "plain") != (train.scheme == "plain"):
            message = f"these tags are {part.scheme}, and the training tags {train.scheme}."
            raise UserError(message, where=part.source, remedy="Name the same kind of column in both.")
        if part.scheme != "plain":
            score_tags([s.tags for s in part.sentences], [s.tags for s in part.sentences], part.scheme)
    return train, parts


def resolved_options(options: TagOptions, source: Artifact) -> TagOptions:
    """The options with recipe, window length and subword pooling filled in from the model.

    Raises:
        UserError: The model's layers do not allow the layer aggregation.
    """
    encoder = source.model.encoder
    new_layer_aggregation(options.layer_aggregation, encoder.widths)
    most = min(options.max_tokens, encoder.max_length or options.max_tokens)
    subword_pooling = options.subword_pooling or encoder.subword_pooling or default_subword_pooling(encoder.direction)
    return replace(
        options, recipe=source.recommended_recipe(options.recipe), max_tokens=most, subword_pooling=subword_pooling
    )


def new_tagger(source: Model, stage: Stage, train: Tagged, options: TagOptions) -> Model:
    """Graft a fresh head for tags onto a pretrained encoder."""
    in_scheme = train if train.scheme == "plain" else train.in_scheme(options.scheme)
    width = new_layer_aggregation(options.layer_aggregation, source.encoder.widths).output_dim
    about: Any = {
        "subword_pooling": options.subword_pooling or "first",
        "crf": options.crf,
        "layer_aggregation": options.layer_aggregation,
    }
    head = TaggingConfig(width, tags=in_scheme.tags, scheme=in_scheme.scheme, **about)
    seed = options.settings.seed
    return graft_on_positions(source, {"name": "tagging", **asdict(head)}, dropout=stage.dropout, seed=seed)


def _run(
    source: Artifact, stage: Stage, train: Tagged, parts: Mapping[str, Tagged], options: TagOptions
) -> tuple[Run, Coverage]:
    """Prepare the training; also returns the truncation of its sentences."""
    settings, tokenizer = options.settings, source.tokenizer
    model = new_tagger(source.model, stage, train, options)
    in_scheme = train if train.scheme == "plain" else train.in_scheme(options.scheme)
    words = words_in_form([s.words for s in in_scheme.sentences], source.text_form)
    windows, coverage = word_windows(tokenizer, words, options.max_tokens, direction=source.model.encoder.direction)
    index_of = {tag: i for i, tag in enumerate(in_scheme.tags)}
    tags = [np.array([index_of[tag] for tag in s.tags], dtype=np.int64) for s in in_scheme.sentences]
    subword_pooling = options.subword_pooling or "first"
    vectors = None if source.stack is None else source.stack.of(words)
    about: Any = {
        "pad_id": tokenizer.pad_id,
        "subword_pooling": subword_pooling,
        "rows": stage.batch_size,
        "seed": settings.seed,
    }
    stream = WordStream(windows, tags, **about, vectors=vectors)
    phases = stage.plan(len(model.layer_groups()), stream.length(0))
    validate = _validator(parts["valid"], source, options) if "valid" in parts else None
    return Run(model, phases, stream, settings.of(stage), validate), coverage


def _validator(valid: Tagged, source: Artifact, options: TagOptions) -> Callable[[Model], Validated]:
    def validate(model: Model) -> Validated:
        artifact = Artifact(model, source.tokenizer, stack=source.stack, text_form=source.text_form)
        tagger = NetworkTagger(artifact, options.settings.precision)
        predictions, _ = tag_all(tagger, valid.sentences, options.max_tokens)
        tag_scores = scores(valid, predictions)
        value = tag_scores.headline.value or 0.0
        return {"loss": 1 - value, "score": value, tag_scores.metric: value}

    return validate


def conll_predictions(evaluation_split: Tagged, predictions: list[TaggedSentence]) -> str:
    """The file for conlleval: word, gold tag and predicted tag a line; entities as IOB2, spaces in words as _."""
    scheme: Scheme = "plain" if evaluation_split.scheme == "plain" else "IOB2"
    sentences = tuple(replace(prediction.sentence, tags=prediction.tags) for prediction in predictions)
    gold = Tagged(tuple(prediction.sentence for prediction in predictions), scheme)
    predicted = replace(gold, sentences=sentences).in_scheme(scheme)
    pairs = zip(evaluation_split.sentences, predicted.sentences, strict=True)
    both = [[f"{a} {b}" for a, b in zip(true.tags, guess.tags, strict=True)] for true, guess in pairs]
    plain = [
        replace(s, words=tuple("_".join(w.split()) or "_" for w in s.words), raw=()) for s in evaluation_split.sentences
    ]
    return conll_text(plain, both).replace("\t", " ")


def _stack_identity(stack: Stack | None, options: TagOptions) -> dict[str, Any]:
    """The part of the identity that a stack adds."""
    if stack is None:
        return {}
    return {"stack": [source.fingerprint for source in stack.sources], "network": options.network.identity()}


def _described(part: Tagged) -> dict[str, Any]:
    counts = {"sentences": len(part), "words": part.words}
    return {"source": Path(part.source).name, **counts, "scheme": part.scheme, "sha256": part.content_hash()}


def _overlap(train: Tagged, parts: Mapping[str, Tagged]) -> dict[str, Any]:
    """Number of sentences of each part that are training sentences too, and its tags that are not in training."""
    training = {s.words for s in train.sentences}
    unseen = {name: sorted(set(part.tags) - set(train.tags)) for name, part in parts.items()}
    return {
        "sentences_in_training_too": {n: sum(s.words in training for s in part.sentences) for n, part in parts.items()},
        "tags_not_in_training": {name: tags for name, tags in unseen.items() if tags},
    }


def _record(out: Path, source: Artifact, data: dict[str, Any], options: TagOptions) -> dict[str, Any]:
    """run.json without results."""
    about: dict[str, Any] = {"data": data, "recipe": options.recipe, "settings": options.settings}
    run = provenance(stage="tag", name=out.name, base=source.run, **about)
    return run | {
        "max_tokens": options.max_tokens,
        "scheme": "plain" if data["train"]["scheme"] == "plain" else options.scheme,
        "crf": options.crf,
        "subword_pooling": options.subword_pooling,
        "layer_aggregation": options.layer_aggregation,
    }


def results(
    method_scores: Mapping[str, TagScores], costs: Mapping[str, Mapping[str, float]], *, words: int
) -> dict[str, Any]:
    """The contents of results.json: the methods with their scores and costs, the tagger first.

    Args:
        method_scores: Scores by method.
        costs: Minutes and peak memory by method.
        words: Number of training words.
    """
    methods: dict[str, Any] = {}
    for name, tag_scores in method_scores.items():
        summary = {k: v for k, v in tag_scores.summary().items() if v is not None}
        kept = {k: v for k, v in summary.items() if k not in ("sentences", "words", "types")}
        methods[name] = kept | dict(costs.get(name, {}))
    tagger = method_scores[TAGGER]
    about: dict[str, Any] = {"labels": words, "test_n": len(tagger.words), "seeds": 1}
    about |= {"metric": tagger.metric, "types": tagger.of_types()}
    return {**about, "verdict": _verdict(method_scores, methods), "methods": methods}


def _verdict(method_scores: Mapping[str, TagScores], methods: Mapping[str, Any]) -> str:
    """The score in a sentence, with a paired test against the baseline."""
    tagger = method_scores[TAGGER]
    metric, name = tagger.metric, formatting.metric_name(tagger.metric)
    shown = f"{name[0].upper()}{name[1:]} {interval(methods[TAGGER], metric)}"
    text = f"{shown} on {len(tagger.words):,} sentences of {int(tagger.words.sum()):,} words"
    if baseline.NAME not in method_scores:
        return f"{text}; no baseline was run."
    base = method_scores[baseline.NAME]
    test = paired_ratio_test(tagger.headline, base.headline)
    rival = f"each word's most frequent tag ({formatting.score(base.headline.value, metric)})"
    return f"{text}. {formatting.compared(test.difference, test.p, metric, rival)}"
