"""A small classifier from any classifier's answers to texts without labels (Hinton et al. 2015; Turc et al. 2019)."""

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
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples, as_text
from textgraft.data.labels import Labels
from textgraft.data.sequences import Truncation
from textgraft.data.streams.base import ExampleStream
from textgraft.distillation.losses import ClassifierDistillation, DistilledModel, soft_losses, without_labels
from textgraft.distillation.options import ALPHA, TEMPERATURE, Distilled, DistilOptions, sizes_text
from textgraft.distillation.teacher_answers import cached_teacher_logits
from textgraft.metrics.classification import HEADLINE, bootstrap_interval, document_scores
from textgraft.models import loading
from textgraft.models.artifact import Artifact, Predictor
from textgraft.models.inference import as_read_by, predict_logits
from textgraft.models.model import Model
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.training import EncodedTexts, Plan, new_classifier, outputs_from_logits
from textgraft.training.driver import content_hash, drive, put_in_place, weights_hash, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import Stage
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.recipes import load_recipe

HELD_OUT_EVERY, HELD_OUT_TEXTS = 20, 1000
TIMED_TEXTS = 200


@dataclass(frozen=True)
class Material:
    """The texts by their use: "train" (without labels, then those with), "held out" and perhaps "test".

    `answers` (N, C) are the teacher's logits, which took it `seconds`; `encoded` what the student reads, of which the
    training texts and those of the test have targets. The last `labelled` training texts have labels.
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
    """Teach a classifier by the loss of distillation.losses.FromAnswers; see distillation.distil.

    The teacher answers once, into the work folder. Which epoch is kept the held-out texts decide, by how far the
    student's answers are from the teacher's; labels have no say in it.
    """
    texts = _different(texts, labelled, test)
    _refuse(teacher, texts, labelled, test, options)
    source = loading.load_network(student)
    recipe = source.recommended_recipe(options.recipe)
    stage = load_recipe(recipe).finetune
    if not stage.phases:
        raise UserError("this recipe has no phases to fine-tune in.", where=recipe, remedy="Name one that has.")
    stage.refuse_for_classifiers(recipe)
    parts = _parts(texts, labelled, test)
    for part in parts.values():
        teacher.check(part)
    targets = _targets(teacher.labels, parts, labelled, test)
    saved = [_saved(member) for member in teacher.members]
    asked = _asked(teacher, saved, source, stage, options) | {
        "data": {name: content_hash([*part, *map(str, targets.get(name, ()))]) for name, part in parts.items()}
    }
    context = context.at(work_folder(out, asked))
    count = len(labelled) if labelled is not None else 0
    material = _material(teacher, source, parts, targets, count, options=options, context=context)
    plan = _plan(teacher, source, stage, options)
    with Meter() as meter:
        model, history, seconds = _taught(plan, material, options, context)
    record = provenance(
        stage="distil", name=out.name, base=source.run, data={}, recipe=recipe, settings=options.settings.of(stage)
    )
    record["data"] = {name: {"texts": len(part), "sha256": asked["data"][name]} for name, part in parts.items()}
    record |= _about(teacher, options, material) | {"history": history, "seconds": seconds}
    made = Artifact(model, source.tokenizer, teacher.labels, record)
    answers = {name: _outputs(plan, model, material, name) for name in parts if name != "train"}
    record["agreement"] = _agreement(teacher.labels, material.answers["held out"], answers["held out"])
    record["sizes"] = _sizes(teacher, saved, made, parts["held out"][:TIMED_TEXTS])
    comparison = _comparison(material, teacher.labels, answers, (seconds / 60, meter.peak_mb))
    if comparison is not None:
        record["results"] = comparison.results(labels=material.labelled, seeds=1)
    record["verdict"] = _verdict(record)
    _save(made, Distilled(out, record, comparison), stage, material, test, overwrite=context.overwrite)
    return Distilled(out, record, comparison)


def _different(texts: Sequence[str], labelled: Examples | None, test: Examples | None) -> list[str]:
    """Each text once, and none that is learned from or measured on with its label."""
    known = {text for part in (labelled, test) if part is not None for text in part.texts}
    return [text for text in dict.fromkeys(map(as_text, texts)) if text not in known]


def _refuse(
    teacher: Classifier,
    texts: Sequence[str],
    labelled: Examples | None,
    test: Examples | None,
    options: DistilOptions,
) -> None:
    """Raises UserError for what could not be learned, or measured."""
    if teacher.labels.kind == "choice":
        message = "this teacher chooses between the options of a question, of which every question has others."
        raise UserError(message, remedy="Distil a classifier of texts or pairs, or the language model below it.")
    if len(texts) < HELD_OUT_EVERY:
        message = f"{len(texts)} different texts are too few to learn a teacher's answers from."
        remedy = f"Give {HELD_OUT_EVERY} or more; they need no labels, and those that have one elsewhere do not count."
        raise UserError(message, remedy=remedy)
    if test is not None and not len(test):
        raise UserError("the test set holds no texts.", where=test.source, remedy="Add some, or leave it out.")
    needing = [name for name, given in (("finetune", options.finetune), ("alpha", options.alpha is not None)) if given]
    if needing and not labelled:
        raise UserError("there are no labelled texts.", where=needing[0], remedy="Give some, or leave this out.")


def _parts(texts: list[str], labelled: Examples | None, test: Examples | None) -> dict[str, list[str]]:
    """The texts by their use, see Material."""
    held = texts[: HELD_OUT_EVERY * HELD_OUT_TEXTS : HELD_OUT_EVERY]
    kept = [t for i, t in enumerate(texts) if i % HELD_OUT_EVERY or i >= HELD_OUT_EVERY * HELD_OUT_TEXTS]
    parts = {"train": [*kept, *(labelled.texts if labelled is not None else ())], "held out": held}
    return parts if test is None else parts | {"test": list(test.texts)}


def _targets(
    labels: Labels, parts: Mapping[str, list[str]], labelled: Examples | None, test: Examples | None
) -> dict[str, np.ndarray]:
    """The teacher's labels of the texts that have one. Raises UserError for a label that it does not know."""
    own = [] if labelled is None else [labels.encode(labelled)]
    none = without_labels(len(parts["train"]) - sum(map(len, own)), labels.kind, labels.num_outputs)
    train = {"train": np.concatenate([none, *own])}
    return train if test is None else train | {"test": labels.encode(test)}


@dataclass(frozen=True)
class Saved:
    """Of a model as its folder would be: config.json, which vouches for every other file, and the weights' size."""

    config: str
    weights: int


def _saved(model: Predictor) -> Saved:
    files = model.files()
    return Saved(files["config.json"].decode(), len(files["model.safetensors"]))


def _asked(
    teacher: Classifier, saved: Sequence[Saved], source: Artifact, stage: Stage, options: DistilOptions
) -> dict[str, Any]:
    """Everything beside the data that the result depends on; runs that differ in any of it are different runs."""
    return {
        "stage": "distil",
        "teacher": content_hash([*(one.config for one in saved), teacher.weights]),
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
) -> Material:
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
        shown: Any = {"folder": context.work, "title": title, "show": context.show}
        answers[name], seconds = cached_teacher_logits(teacher.outputs, texts, kind, **shown)
        total += seconds
    return Material(parts, answers, encoded, cut, labelled, total)


def _taught(
    plan: Plan, material: Material, options: DistilOptions, context: RunContext
) -> tuple[Model, list[dict[str, Any]], float]:
    """The student after its lessons, and after its labels where these are asked for; its history; the seconds."""
    temperature = TEMPERATURE if options.temperature is None else options.temperature
    alpha = ALPHA if options.alpha is None else options.alpha
    train, answers = material.encoded["train"], torch.from_numpy(material.answers["train"])
    lesson = ClassifierDistillation(answers, plan.labels.kind, temperature, alpha)
    taught = DistilledModel(new_classifier(plan, plan.settings.seed), lesson)
    run = _run(plan, taught, train, _validator(plan, material, temperature))
    drive(run, context.work / "distil.checkpoint.safetensors", title="distil", show=context.show)
    history, seconds = run.progress.history, run.progress.seconds
    if options.finetune:
        first = len(train.sequences) - material.labelled
        run = _run(plan, taught.student, train.take(range(first, len(train.sequences))), None)
        drive(run, context.work / "finetune.checkpoint.safetensors", title="finetune", show=context.show)
        history = [*history, *({**row, "phase": f"finetune, {row['phase']}"} for row in run.progress.history)]
        seconds += run.progress.seconds
    return taught.student, history, seconds


def _run(plan: Plan, model: Model, train: EncodedTexts, validate: Callable[[Model], Scores] | None) -> Run:
    assert train.targets is not None
    settings = plan.settings.of(plan.stage)
    stream = ExampleStream(
        as_read_by(model, train.sequences),
        torch.from_numpy(train.targets),
        pad_id=plan.pad_id,
        rows=plan.stage.batch_size,
        seed=settings.seed,
    )
    return Run(model, plan.stage.plan(len(model.layer_groups()), stream.length(0)), stream, settings, validate)


def _validator(plan: Plan, material: Material, temperature: float) -> Callable[[Model], Scores]:
    answers, kind = material.answers["held out"], plan.labels.kind

    def validate(model: Model) -> Scores:
        logits = predict_logits(model, material.encoded["held out"].sequences, plan.pad_id, plan.settings.precision)
        each = soft_losses(torch.from_numpy(logits), torch.from_numpy(answers), kind, temperature)
        loss = float(each.mean())
        agrees = document_scores(kind, _decided(answers, kind), outputs_from_logits(logits, kind))
        return {"loss": loss, "score": -loss, "agreement": float(agrees.mean())}

    return validate


def _decided(logits: np.ndarray, kind: str) -> np.ndarray:
    """A teacher's answers as if they were labels."""
    if kind == "single":
        return np.asarray(logits.argmax(axis=1))
    return (logits >= 0).astype(np.float32) if kind == "multi" else logits[:, 0]


def _outputs(plan: Plan, model: Model, material: Material, name: str) -> np.ndarray:
    sequences = material.encoded[name].sequences
    return outputs_from_logits(predict_logits(model, sequences, plan.pad_id, plan.settings.precision), plan.labels.kind)


def _agreement(labels: Labels, answers: np.ndarray, outputs: np.ndarray) -> dict[str, Any]:
    """How often the student decides as its teacher does, with a 95 % interval; for a number, how far it is from it."""
    each = document_scores(labels.kind, _decided(answers, labels.kind), outputs)
    each = each * labels.std if labels.kind == "numeric" else each
    return {"texts": len(each), "metric": HEADLINE[labels.kind], **bootstrap_interval(each)._asdict()}


def _sizes(teacher: Classifier, saved: Sequence[Saved], student: Artifact, texts: Sequence[str]) -> dict[str, Any]:
    """Parameters, bytes and texts a second of both, which answer the same texts on the same machine."""
    own = Classifier([student], precision=teacher.precision)
    found: dict[str, Any] = {
        "teacher": {"parameters": _parameters(teacher.members), "bytes": sum(one.weights for one in saved)},
        "student": {"parameters": _parameters([student]), "bytes": _saved(student).weights},
    }
    for name, classifier in (("teacher", teacher), ("student", own)):
        classifier.outputs(texts[:1])  # what is made ready once is not counted
        started = time.perf_counter()
        classifier.outputs(texts)
        found[name]["texts_per_second"] = len(texts) / (time.perf_counter() - started)
    speeds = [found[name]["texts_per_second"] for name in ("student", "teacher")]
    return found | {"speed_ratio": speeds[0] / speeds[1]}


def _parameters(members: Sequence[Predictor]) -> int | None:
    """Of all networks among the members; None where there is none."""
    models = [member.model for member in members if isinstance(member, Artifact)]
    return sum(p.numel() for model in models for p in model.parameters()) if models else None


def _comparison(
    material: Material, labels: Labels, answers: Mapping[str, np.ndarray], cost: tuple[float, float]
) -> Comparison | None:
    """The student beside its teacher on the test set; None without one."""
    targets = material.encoded["test"].targets if "test" in material.encoded else None
    if targets is None:
        return None
    theirs = outputs_from_logits(material.answers["test"], labels.kind)
    answered = sum(map(len, material.texts.values()))
    return Comparison(
        labels,
        targets,
        (
            Outcome("student", answers["test"][None], answers["test"][None], *cost),
            Outcome("teacher", theirs[None], theirs[None], material.seconds / 60, cost[1], f"{answered:,} answers"),
        ),
    )


def _about(teacher: Classifier, options: DistilOptions, material: Material) -> dict[str, Any]:
    """The part of run.json that the answers do not change."""
    labels = teacher.labels
    return {
        "labels": material.labelled,
        "classes": list(labels.names),
        "kind": labels.kind,
        "reads": teacher.reads,
        "max_tokens": options.max_tokens,
        "from_scratch": options.from_scratch,
        "tokens_lost": {name: truncation.share for name, truncation in material.cut.items()},
        "teacher": [ancestry(member.run) for member in teacher.members],
        "distillation": {
            "temperature": TEMPERATURE if options.temperature is None else options.temperature,
            "alpha": (ALPHA if options.alpha is None else options.alpha) if material.labelled else None,
            "finetune": options.finetune,
        },
    }


def _verdict(record: Mapping[str, Any]) -> str:
    found, kind = record["agreement"], record["kind"]
    share = formatting.interval(found["mean"], found["low"], found["high"], found["metric"])
    texts = f"{found['texts']:,} held-out texts"
    if kind == "numeric":
        agrees = f"On {texts} it is {share} from its teacher on average"
    else:
        agrees = f"It agrees with its teacher on {share} of {texts}"
    return f"{agrees}. {sizes_text(record['sizes'])}."


def _save(
    made: Artifact, done: Distilled, stage: Stage, material: Material, test: Examples | None, *, overwrite: bool
) -> None:
    """Put the student in place with its report."""
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.distillation.report import distil_report
    from textgraft.tasks.classification.report import render

    page = render(distil_report(done, made, stage, material.cut["train"], test))
    put_in_place(made, done.folder, overwrite=overwrite, documents={"report.html": page.encode()})
