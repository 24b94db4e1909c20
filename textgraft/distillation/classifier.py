"""Distillation of a classifier into a smaller one on unlabelled texts (Hinton et al. 2015; Turc et al. 2019)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core import formatting
from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples, as_text
from textgraft.data.labels import Labels
from textgraft.data.sequences import Truncation
from textgraft.data.streams.base import ExampleStream
from textgraft.distillation.losses import ClassifierDistillation, DistilledModel
from textgraft.distillation.options import ALPHA, TEMPERATURE, Distilled, DistilOptions, sizes_text
from textgraft.distillation.targets import DISTILLED_TARGETS
from textgraft.distillation.teacher_answers import cached_teacher_logits
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.metrics.classification import bootstrap_interval, document_scores
from textgraft.models import loading
from textgraft.models.artifact import Artifact, Predictor
from textgraft.models.inference import head_inputs, predict_logits
from textgraft.models.model import Model
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.training import EncodedTexts, Plan, new_classifier
from textgraft.tasks.classification.unseen_labels import warn_of_unseen_labels
from textgraft.training.driver import drive, put_in_place, weights_hash, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import Stage
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.recipes import load_recipe

HELD_OUT_EVERY, HELD_OUT_TEXTS = 20, 1000
TIMED_TEXTS = 200


@dataclass(frozen=True)
class DistilData:
    """Texts by use: "train" (without labels, then those with), "held out" and optionally "test".

    Attributes:
        texts: The texts.
        answers: The teacher's logits (N, C).
        encoded: The student's inputs; training and test texts have targets.
        cut: Truncation of each part.
        labelled: Number of labelled texts, the last of the training texts.
        seconds: Time of the teacher's predictions.
    """

    texts: Mapping[str, list[str]]
    answers: Mapping[str, np.ndarray]
    encoded: Mapping[str, EncodedTexts]
    cut: Mapping[str, Truncation]
    labelled: int
    seconds: float


def distil_classifier(
    teacher: Classifier,
    texts: Sequence[str],
    out: Path,
    *,
    student: str | Path,
    labelled: Examples | None,
    test: Examples | None,
    options: DistilOptions,
    context: RunContext,
) -> Distilled:
    """Train a classifier with the loss distillation.losses.ClassifierDistillation; see distillation.distil.

    The teacher's predictions are computed once, in the work folder. The best epoch is chosen on the held-out texts by
    the distance of the student's outputs from the teacher's, without labels.
    """
    texts = _deduplicated(texts, labelled, test)
    _validate(teacher, texts, labelled, test, options)
    source = loading.load_network(student)
    recipe = source.recommended_recipe(options.recipe)
    stage = load_recipe(recipe).finetune
    if not stage.phases:
        raise UserError("this recipe has no fine-tuning phases.", where=recipe, remedy="Use another recipe.")
    stage.validate_no_classifier_settings(recipe)
    parts = _parts(texts, labelled, test)
    for part in parts.values():
        teacher.validate(part)
    labels = teacher.labels if test is None else teacher.labels.covering(test)
    targets = _targets(teacher.labels, parts, labelled) | ({} if test is None else {"test": labels.encode(test)})
    if test is not None:
        warn_of_unseen_labels(teacher.labels, test)
    saved_members = [_saved_model(member) for member in teacher.members]
    identity = _identity(teacher, saved_members, source, stage, options) | {
        "data": {name: content_hash([*part, *map(str, targets.get(name, ()))]) for name, part in parts.items()}
    }
    context = context.at(work_folder(out, identity))
    count = len(labelled) if labelled is not None else 0
    data = _material(teacher, source, parts, targets, count, options=options, context=context)
    plan = _plan(teacher, source, stage, options)
    with Meter() as meter:
        model, history, seconds = _train(plan, data, options, context)
    record = provenance(
        stage="distil", name=out.name, base=source.run, data={}, recipe=recipe, settings=options.settings.of(stage)
    )
    record["data"] = {name: {"texts": len(part), "sha256": identity["data"][name]} for name, part in parts.items()}
    record |= _record_facts(teacher, options, data) | {"history": history, "seconds": seconds}
    more: dict[str, Any] = {"embedding": source.embedding, "text_form": source.text_form}
    artifact = Artifact(model, source.tokenizer, teacher.labels, record, **more)
    answers = {name: _outputs(plan, model, data, name) for name in parts if name != "train"}
    record["agreement"] = _agreement(teacher.labels, data.answers["held out"], answers["held out"])
    record["sizes"] = _sizes(teacher, saved_members, artifact, parts["held out"][:TIMED_TEXTS])
    comparison = _comparison(data, labels, answers, (seconds / 60, meter.peak_mb))
    if comparison is not None:
        record["results"] = comparison.results(labels=data.labelled, seeds=1)
    record["verdict"] = _verdict(record)
    _save(artifact, Distilled(out, record, comparison), stage, data, test, overwrite=context.overwrite)
    return Distilled(out, record, comparison)


def _deduplicated(texts: Sequence[str], labelled: Examples | None, test: Examples | None) -> list[str]:
    """Distinct texts without those that are also labelled or in the test set."""
    excluded = {text for part in (labelled, test) if part is not None for text in part.texts}
    return [text for text in dict.fromkeys(map(as_text, texts)) if text not in excluded]


def _validate(
    teacher: Classifier,
    texts: Sequence[str],
    labelled: Examples | None,
    test: Examples | None,
    options: DistilOptions,
) -> None:
    """Raise UserError for arguments that cannot be trained or evaluated."""
    if teacher.labels.kind not in DISTILLED_TARGETS:
        message = "this teacher is a multiple-choice model, whose options differ between questions."
        raise UserError(message, remedy="Distil a classifier of texts or pairs, or the language model below it.")
    if len(texts) < HELD_OUT_EVERY:
        message = f"{len(texts)} different texts are too few for distillation."
        remedy = f"Give {HELD_OUT_EVERY} or more unlabelled texts; those that are also labelled do not count."
        raise UserError(message, remedy=remedy)
    if test is not None and not len(test):
        raise UserError("the test set has no texts.", where=test.source, remedy="Add some, or leave it out.")
    needing = [
        name for name, is_set in (("finetune", options.finetune), ("alpha", options.alpha is not None)) if is_set
    ]
    if needing and not labelled:
        raise UserError("there are no labelled texts.", where=needing[0], remedy="Give some, or leave this option out.")


def _parts(texts: list[str], labelled: Examples | None, test: Examples | None) -> dict[str, list[str]]:
    """Texts by their use, see DistilData."""
    held_out = texts[: HELD_OUT_EVERY * HELD_OUT_TEXTS : HELD_OUT_EVERY]
    train = [t for i, t in enumerate(texts) if i % HELD_OUT_EVERY or i >= HELD_OUT_EVERY * HELD_OUT_TEXTS]
    parts = {"train": [*train, *(labelled.texts if labelled is not None else ())], "held out": held_out}
    return parts if test is None else parts | {"test": list(test.texts)}


def _targets(labels: Labels, parts: Mapping[str, list[str]], labelled: Examples | None) -> dict[str, np.ndarray]:
    """Targets of the texts to train on. Raises UserError for a label that the teacher does not have."""
    labelled_targets = [] if labelled is None else [labels.encode(labelled)]
    unlabelled = len(parts["train"]) - sum(map(len, labelled_targets))
    unlabelled_targets = DISTILLED_TARGETS[labels.kind].without_labels(unlabelled, labels.num_outputs)
    return {"train": np.concatenate([unlabelled_targets, *labelled_targets])}


@dataclass(frozen=True)
class SavedModel:
    """config.json of a model's folder, with the hashes of all other files, and the size of the weights."""

    config: str
    weights: int


def _saved_model(model: Predictor) -> SavedModel:
    files = model.files()
    return SavedModel(files["config.json"].decode(), len(files["model.safetensors"]))


def _identity(
    teacher: Classifier, saved: Sequence[SavedModel], source: Artifact, stage: Stage, options: DistilOptions
) -> dict[str, Any]:
    """Everything that the result depends on besides the data: a change in any of it makes another run."""
    return {
        "stage": "distil",
        "teacher": content_hash([*(member.config for member in saved), teacher.weights]),
        "student": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "recipe": stage.identity(),
        "options": options.identity(),
    }


def _plan(teacher: Classifier, source: Artifact, stage: Stage, options: DistilOptions) -> Plan:
    return Plan(
        language_model=source.model,
        from_scratch=options.from_scratch,
        stage=stage,
        settings=options.settings,
        labels=teacher.labels,
        class_weights=None,
        pad_id=source.tokenizer.pad_id,
        pooling=source.pooling,
    )


def _material(
    teacher: Classifier,
    source: Artifact,
    parts: Mapping[str, list[str]],
    targets: Mapping[str, np.ndarray],
    labelled: int,
    *,
    options: DistilOptions,
    context: RunContext,
) -> DistilData:
    device = resolve_device(options.settings.device)
    for member in teacher.members:
        if isinstance(member, Artifact):
            member.model.to(device)
    answers: dict[str, np.ndarray] = {}
    encoded: dict[str, EncodedTexts] = {}
    cut: dict[str, Truncation] = {}
    total, kind = 0.0, teacher.labels.kind
    for name, texts in parts.items():
        sequences, cut[name] = source.encoded(texts, options.max_tokens)
        encoded[name] = EncodedTexts(sequences, targets.get(name))
        title = f"answers {name}"
        about: Any = {"folder": context.work, "title": title, "show": context.show}
        answers[name], seconds = cached_teacher_logits(teacher.outputs, texts, kind, **about)
        total += seconds
    return DistilData(parts, answers, encoded, cut, labelled, total)


def _train(
    plan: Plan, data: DistilData, options: DistilOptions, context: RunContext
) -> tuple[Model, list[dict[str, Any]], float]:
    """The student after distillation, and after fine-tuning if configured; its history; the seconds."""
    temperature = TEMPERATURE if options.temperature is None else options.temperature
    alpha = ALPHA if options.alpha is None else options.alpha
    train, answers = data.encoded["train"], torch.from_numpy(data.answers["train"])
    distillation = ClassifierDistillation(answers, plan.labels.kind, temperature, alpha)
    model = DistilledModel(new_classifier(plan, plan.settings.seed), distillation)
    run = _run(plan, model, train, _validator(plan, data, temperature))
    drive(run, context.work / "distil.checkpoint.safetensors", title="distil", show=context.show)
    history, seconds = run.progress.history, run.progress.seconds
    if options.finetune:
        first = len(train.sequences) - data.labelled
        run = _run(plan, model.student, train.take(range(first, len(train.sequences))), None)
        drive(run, context.work / "finetune.checkpoint.safetensors", title="finetune", show=context.show)
        history = [*history, *({**row, "phase": f"finetune, {row['phase']}"} for row in run.progress.history)]
        seconds += run.progress.seconds
    return model.student, history, seconds


def _run(plan: Plan, model: Model, train: EncodedTexts, validate: Callable[[Model], Scores] | None) -> Run:
    assert train.targets is not None
    settings = plan.settings.of(plan.stage)
    stream = ExampleStream(
        head_inputs(model, train.sequences),
        torch.from_numpy(train.targets),
        pad_id=plan.pad_id,
        rows=plan.stage.batch_size,
        seed=settings.seed,
    )
    return Run(model, plan.stage.plan(len(model.layer_groups()), stream.length(0)), stream, settings, validate)


def _validator(plan: Plan, data: DistilData, temperature: float) -> Callable[[Model], Scores]:
    answers, kind = data.answers["held out"], plan.labels.kind
    target = DISTILLED_TARGETS[kind]

    def validate(model: Model) -> Scores:
        logits = predict_logits(model, data.encoded["held out"].sequences, plan.pad_id, plan.settings.precision)
        losses = target.soft_losses(torch.from_numpy(logits), torch.from_numpy(answers), temperature)
        loss = float(losses.mean())
        agreement = document_scores(kind, target.as_targets(answers), outputs_from_logits(logits, kind))
        return {"loss": loss, "score": -loss, "agreement": float(agreement.mean())}

    return validate


def _outputs(plan: Plan, model: Model, data: DistilData, name: str) -> np.ndarray:
    sequences = data.encoded[name].sequences
    return outputs_from_logits(predict_logits(model, sequences, plan.pad_id, plan.settings.precision), plan.labels.kind)


def _agreement(labels: Labels, answers: np.ndarray, outputs: np.ndarray) -> dict[str, Any]:
    """Share of texts with the teacher's decision, with a 95 % interval; for a numeric target, the distance."""
    scores = document_scores(labels.kind, DISTILLED_TARGETS[labels.kind].as_targets(answers), outputs)
    scores = labels.unscaled_errors(scores)
    return {"texts": len(scores), "metric": labels.target.metric, **bootstrap_interval(scores)._asdict()}


def _sizes(teacher: Classifier, saved: Sequence[SavedModel], student: Artifact, texts: Sequence[str]) -> dict[str, Any]:
    """Parameters, bytes and texts a second of both, on the same texts and machine."""
    student_classifier = Classifier([student], precision=teacher.precision)
    sizes: dict[str, Any] = {
        "teacher": {"parameters": _parameters(teacher.members), "bytes": sum(member.weights for member in saved)},
        "student": {"parameters": _parameters([student]), "bytes": _saved_model(student).weights},
    }
    for name, classifier in (("teacher", teacher), ("student", student_classifier)):
        classifier.outputs(texts[:1])  # warm-up
        started = time.perf_counter()
        classifier.outputs(texts)
        sizes[name]["texts_per_second"] = len(texts) / (time.perf_counter() - started)
    speeds = [sizes[name]["texts_per_second"] for name in ("student", "teacher")]
    return sizes | {"speed_ratio": speeds[0] / speeds[1]}


def _parameters(members: Sequence[Predictor]) -> int | None:
    """Parameters of all networks among the members; None where there is none."""
    models = [member.model for member in members if isinstance(member, Artifact)]
    return sum(p.numel() for model in models for p in model.parameters()) if models else None


def _comparison(
    data: DistilData, labels: Labels, answers: Mapping[str, np.ndarray], cost: tuple[float, float]
) -> Comparison | None:
    """The student against its teacher on the test set; None without one."""
    targets = data.encoded["test"].targets if "test" in data.encoded else None
    if targets is None:
        return None
    teacher_outputs = outputs_from_logits(data.answers["test"], labels.kind)
    predictions = sum(map(len, data.texts.values()))
    return Comparison(
        labels,
        targets,
        (
            Outcome("student", answers["test"][None], answers["test"][None], *cost),
            Outcome(
                "teacher",
                teacher_outputs[None],
                teacher_outputs[None],
                data.seconds / 60,
                cost[1],
                f"{predictions:,} predictions",
            ),
        ),
    )


def _record_facts(teacher: Classifier, options: DistilOptions, data: DistilData) -> dict[str, Any]:
    """The part of run.json that does not depend on the results."""
    labels = teacher.labels
    return {
        "labels": data.labelled,
        "classes": list(labels.names),
        "kind": labels.kind,
        "reads": teacher.reads,
        "max_tokens": options.max_tokens,
        "from_scratch": options.from_scratch,
        "tokens_lost": {name: truncation.share for name, truncation in data.cut.items()},
        "teacher": [ancestry(member.run) for member in teacher.members],
        "distillation": {
            "temperature": TEMPERATURE if options.temperature is None else options.temperature,
            "alpha": (ALPHA if options.alpha is None else options.alpha) if data.labelled else None,
            "finetune": options.finetune,
        },
    }


def _verdict(record: Mapping[str, Any]) -> str:
    agreement = record["agreement"]
    share = formatting.interval(agreement["mean"], agreement["low"], agreement["high"], agreement["metric"])
    texts = f"{agreement['texts']:,} held-out texts"
    return f"{DISTILLED_TARGETS[record['kind']].verdict(share, texts)}. {sizes_text(record['sizes'])}."


def _save(
    artifact: Artifact, distilled: Distilled, stage: Stage, data: DistilData, test: Examples | None, *, overwrite: bool
) -> None:
    """Write the student with its report."""
    # Imported here because matplotlib takes as long to load as torch.
    from textgraft.distillation.report import distil_report
    from textgraft.tasks.classification.report import render

    page = render(distil_report(distilled, artifact, stage, data.cut["train"], test))
    put_in_place(artifact, distilled.folder, overwrite=overwrite, documents={"report.html": page.encode()})
