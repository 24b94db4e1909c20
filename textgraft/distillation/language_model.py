"""Distillation of a language model into a smaller one over the same vocabulary (Sanh et al. 2019, DistilBERT)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.core.memory import keep_freed_memory
from textgraft.data.streams.shards import Corpus
from textgraft.distillation.losses import DistilledModel, LanguageModelDistillation
from textgraft.distillation.options import Distilled, DistilOptions, DistilRecipe, load_distil_recipe, sizes_text
from textgraft.distillation.students import fresh_half_of, half_of, without_next_sentence
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build_fresh, with_dropout
from textgraft.tasks.language_modeling.adapt import held_out, with_dropout_of
from textgraft.training.driver import drive, held_out_scores, put_in_place, weights_hash, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.objectives import objective
from textgraft.training.perplexity import Validator
from textgraft.training.phases import Stage
from textgraft.training.provenance import ancestry, provenance


def distil_language_model(
    teacher: Artifact,
    texts: Sequence[str],
    out: Path,
    *,
    student: str | Path | None,
    options: DistilOptions,
    context: RunContext,
) -> Distilled:
    """Train a language model with the losses of distillation.losses.LanguageModelDistillation; see distillation.distil.

    The teacher's distributions are computed in every step: stored, they would be many times the size of the text.
    Raises UserError for an ELMo.
    """
    recipe = load_distil_recipe(options.recipe)
    if options.temperature is not None:
        recipe = replace(recipe, temperature=options.temperature)
    settings = options.settings.of(recipe.stage)
    training_objective = objective(teacher.model, "the teacher")
    if teacher.model.encoder.uses_characters:
        message = "an ELMo predicts two words at every position, for which there is no distillation loss."
        raise UserError(message, where="the teacher", remedy="Distil a classifier that was fine-tuned from it.")
    initial_student, base = _initial_student(teacher, student, recipe.stage, options)
    if _has_next_sentence(teacher.model) and not _has_next_sentence(initial_student):
        teacher = replace(teacher, model=without_next_sentence(teacher.model))
    distillation = LanguageModelDistillation(teacher.model, recipe.temperature, recipe.soft, recipe.hard, recipe.hidden)
    distillation.validate(initial_student)
    identity = {
        "stage": "distil",
        "teacher": weights_hash(teacher.model),
        "student": weights_hash(initial_student),
        "tokenizer": teacher.tokenizer.fingerprint,
        "texts": content_hash(texts),
        "recipe": recipe.identity(),
        "options": options.identity(),
    }
    train, valid = _corpora(texts, teacher)
    folder = work_folder(out, identity)
    teacher.model.to(resolve_device(settings.device)).eval()
    validate = training_objective.validator(initial_student, valid, teacher.tokenizer, tokens=math.inf)
    scored = partial(_scored, validate=validate, tokens=valid.num_tokens, show=context.show)
    teacher_scores, teacher_seconds = scored(teacher.model)
    before, _ = scored(initial_student.to(teacher.model.device))
    stream = training_objective.stream(initial_student, train, teacher.tokenizer, recipe.stage, settings.seed)
    model = DistilledModel(initial_student, distillation)
    run = Run(model, recipe.stage.plan(len(model.layer_groups())), stream, settings, validate)
    with keep_freed_memory():
        drive(run, folder / "checkpoint.safetensors", title="distil", show=context.show)
    trained = model.student
    after, student_seconds = scored(trained)
    record = _record(out, teacher, base, recipe, options) | {"parameters": _parameters(trained)}
    record["data"] = {"texts": len(texts), "sha256": identity["texts"], "tokens": train.num_tokens}
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record["held_out"] = {"tokens": valid.num_tokens, "teacher": teacher_scores, "before": before, "after": after}
    record["sizes"] = {"teacher": _size(teacher.model), "student": _size(trained)}
    record["sizes"]["speed_ratio"] = teacher_seconds / student_seconds
    record["verdict"] = _verdict(record)
    put_in_place(Artifact(trained, teacher.tokenizer, None, record), out, overwrite=context.overwrite)
    return Distilled(out, record)


def _initial_student(
    teacher: Artifact, student: str | Path | None, stage: Stage, options: DistilOptions
) -> tuple[Model, Artifact]:
    """The student before training, and the model that it is based on.

    Raises:
        UserError: It has another tokenizer, objective or direction, or a longer context.
    """
    seed = options.settings.seed
    if student is None:
        if options.from_scratch:
            return fresh_half_of(teacher.model, seed=seed, dropout=stage.dropout), teacher
        return half_of(teacher.model, dropout=stage.dropout), teacher
    base = loading.load_network(student)
    where = str(student)
    if objective(base.model, where) is not objective(teacher.model, "the teacher"):
        message = "one of the two predicts the next token, the other masked tokens."
        raise UserError(message, where=where, remedy="Use a teacher and a student with the same objective.")
    if base.tokenizer.fingerprint != teacher.tokenizer.fingerprint:
        message = "the student has another tokenizer than the teacher, so their predictions are not comparable."
        raise UserError(message, where=where, remedy="Use one that was pretrained with the teacher's tokenizer.json.")
    student_encoder, teacher_encoder = base.model.encoder, teacher.model.encoder
    if student_encoder.direction != teacher_encoder.direction:
        message = (
            f"the student's direction is '{student_encoder.direction}', the teacher's '{teacher_encoder.direction}'."
        )
        raise UserError(message, where=where, remedy="Use two models of the same direction.")
    if teacher_encoder.max_length is not None and (
        student_encoder.max_length is None or student_encoder.max_length > teacher_encoder.max_length
    ):
        message = f"the student's maximum length is above the teacher's {teacher_encoder.max_length} tokens."
        raise UserError(message, where=where, remedy="Use a student with at most as many positions.")
    if options.from_scratch:
        return build_fresh(with_dropout(base.model.describe(), stage.dropout), seed), base
    return with_dropout_of(stage, base.model), base


def _record(
    out: Path, teacher: Artifact, base: Artifact, recipe: DistilRecipe, options: DistilOptions
) -> dict[str, Any]:
    """The part of run.json that is known before training."""
    settings = options.settings.of(recipe.stage)
    record = provenance(stage="distil", name=out.name, base=base.run, data={}, recipe=recipe.name, settings=settings)
    weights = {name: getattr(recipe, name) for name in ("temperature", "soft", "hard", "hidden")}
    return record | {
        "from_scratch": options.from_scratch,
        "teacher": [ancestry(teacher.run)],
        "distillation": weights,
    }


def _scored(model: Model, validate: Validator, tokens: int, show: bool) -> tuple[Scores, float]:
    """Scores of a model on a number of held-out tokens, and the seconds that this took."""
    started = time.perf_counter()
    scores = held_out_scores(validate, model, tokens, title="distil", show=show)
    return scores, time.perf_counter() - started


def _corpora(texts: Sequence[str], teacher: Artifact) -> tuple[Corpus, Corpus]:
    try:
        return held_out(texts, teacher.tokenizer)
    except UserError as error:  # whose message is about adaptation
        message = f"{len(texts)} texts are too few to distil a language model with."
        raise UserError(message, remedy="Give at least 20 texts and 1,000 tokens.") from error


def _has_next_sentence(model: Model) -> bool:
    return bool(getattr(model.head.config, "next_sentence", False))


def _parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())


def _size(model: Model) -> dict[str, Any]:
    return {"parameters": _parameters(model), "bytes": len(artifact.weights(model))}


def _verdict(record: dict[str, Any]) -> str:
    scores = record["held_out"]
    losses = {name: f"{scores[name]['loss']:.3f}" for name in ("teacher", "before", "after")}
    text = f"{losses['after']} nats a token, {losses['before']} before; its teacher {losses['teacher']}"
    return f"On {scores['tokens']:,} held-out tokens: {text}. {sizes_text(record['sizes'])}."
