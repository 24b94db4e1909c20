"""A smaller language model from a larger one over the same vocabulary (Sanh et al. 2019, DistilBERT)."""

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
from textgraft.core.memory import keep_freed_memory
from textgraft.data.streams.shards import Corpus
from textgraft.distillation.losses import DistilledModel, LanguageModelDistillation
from textgraft.distillation.options import Distilled, DistilOptions, DistilRecipe, load_distil_recipe, sizes_text
from textgraft.distillation.students import fresh_half_of, half_of, without_next_sentence
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build_fresh, with_dropout
from textgraft.tasks.language_modeling.adapt import held_out, with_dropout_of
from textgraft.training.driver import content_hash, drive, measured, put_in_place, weights_hash, work_folder
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
    """Teach a language model by the losses of distillation.losses.FromLanguageModel; see distillation.distil.

    The teacher's distributions are made anew in every step: kept, they would be many times the text. Raises UserError
    for an ELMo.
    """
    recipe = load_distil_recipe(options.recipe)
    if options.temperature is not None:
        recipe = replace(recipe, temperature=options.temperature)
    settings = options.settings.of(recipe.stage)
    learns = objective(teacher.model, "the teacher")
    if teacher.model.encoder.uses_characters:
        message = "an ELMo says two words at every position, and no lesson is made for that."
        raise UserError(message, where="the teacher", remedy="Distil a classifier that was fine-tuned from it.")
    pupil, base = _pupil(teacher, student, recipe.stage, options)
    if _pairs(teacher.model) and not _pairs(pupil):
        teacher = replace(teacher, model=without_next_sentence(teacher.model))
    lesson = LanguageModelDistillation(teacher.model, recipe.temperature, recipe.soft, recipe.hard, recipe.hidden)
    lesson.check(pupil)
    asked = {
        "stage": "distil",
        "teacher": weights_hash(teacher.model),
        "student": weights_hash(pupil),
        "tokenizer": teacher.tokenizer.fingerprint,
        "texts": content_hash(texts),
        "recipe": recipe.identity(),
        "options": options.identity(),
    }
    train, valid = _corpora(texts, teacher)
    folder = work_folder(out, asked)
    teacher.model.to(resolve_device(settings.device)).eval()
    validate = learns.validator(pupil, valid, teacher.tokenizer, tokens=math.inf)
    scored = partial(_scored, validate=validate, tokens=valid.num_tokens, show=context.show)
    of_teacher, teacher_seconds = scored(teacher.model)
    before, _ = scored(pupil.to(teacher.model.device))
    stream = learns.stream(pupil, train, teacher.tokenizer, recipe.stage, settings.seed)
    taught = DistilledModel(pupil, lesson)
    run = Run(taught, recipe.stage.plan(len(taught.layer_groups())), stream, settings, validate)
    with keep_freed_memory():
        drive(run, folder / "checkpoint.safetensors", title="distil", show=context.show)
    made = taught.student
    after, student_seconds = scored(made)
    record = _record(out, teacher, base, recipe, options) | {"parameters": _parameters(made)}
    record["data"] = {"texts": len(texts), "sha256": asked["texts"], "tokens": train.num_tokens}
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record["held_out"] = {"tokens": valid.num_tokens, "teacher": of_teacher, "before": before, "after": after}
    record["sizes"] = {"teacher": _size(teacher.model), "student": _size(made)}
    record["sizes"]["speed_ratio"] = teacher_seconds / student_seconds
    record["verdict"] = _verdict(record)
    put_in_place(Artifact(made, teacher.tokenizer, None, record), out, overwrite=context.overwrite)
    return Distilled(out, record)


def _pupil(
    teacher: Artifact, student: str | Path | None, stage: Stage, options: DistilOptions
) -> tuple[Model, Artifact]:
    """The student before its first lesson, and the model that it comes of.

    Raises UserError for one that reads other tokens, predicts something else, or reads more at once or another way.
    """
    seed = options.settings.seed
    if student is None:
        if options.from_scratch:
            return fresh_half_of(teacher.model, seed=seed, dropout=stage.dropout), teacher
        return half_of(teacher.model, dropout=stage.dropout), teacher
    found = loading.load_network(student)
    where = str(student)
    if objective(found.model, where) is not objective(teacher.model, "the teacher"):
        message = "one of the two predicts the next token and the other what is masked."
        raise UserError(message, where=where, remedy="Take a teacher and a student that learn the same.")
    if found.tokenizer.fingerprint != teacher.tokenizer.fingerprint:
        message = "this student has another tokenizer than its teacher, so their answers are about other tokens."
        raise UserError(message, where=where, remedy="Name one that was pretrained with the teacher's tokenizer.json.")
    own, theirs = found.model.encoder, teacher.model.encoder
    if own.direction != theirs.direction:
        message = f"the student reads from the {own.direction} and the teacher from the {theirs.direction}."
        raise UserError(message, where=where, remedy="Take two that read the same way.")
    if theirs.max_length is not None and (own.max_length is None or own.max_length > theirs.max_length):
        message = f"the teacher looks at no more than {theirs.max_length} tokens, and the student at more."
        raise UserError(message, where=where, remedy="Give the student no more positions than the teacher has.")
    if options.from_scratch:
        return build_fresh(with_dropout(found.model.describe(), stage.dropout), seed), found
    return with_dropout_of(stage, found.model), found


def _record(
    out: Path, teacher: Artifact, base: Artifact, recipe: DistilRecipe, options: DistilOptions
) -> dict[str, Any]:
    """The part of run.json that was known before the first step."""
    settings = options.settings.of(recipe.stage)
    record = provenance(stage="distil", name=out.name, base=base.run, data={}, recipe=recipe.name, settings=settings)
    weights = {name: getattr(recipe, name) for name in ("temperature", "soft", "hard", "hidden")}
    return record | {
        "from_scratch": options.from_scratch,
        "teacher": [ancestry(teacher.run)],
        "distillation": weights,
    }


def _scored(model: Model, validate: Validator, tokens: int, show: bool) -> tuple[Scores, float]:
    """The scores of a model on so many held-out tokens, and the seconds that this took."""
    started = time.perf_counter()
    scores = measured(validate, model, tokens, title="distil", show=show)
    return scores, time.perf_counter() - started


def _corpora(texts: Sequence[str], teacher: Artifact) -> tuple[Corpus, Corpus]:
    try:
        return held_out(texts, teacher.tokenizer)
    except UserError as error:  # which speaks of adapting
        message = f"{len(texts)} texts are too few to distil a language model with."
        raise UserError(message, remedy="Give at least 20 texts and 1,000 tokens.") from error


def _pairs(model: Model) -> bool:
    return bool(getattr(model.head.config, "next_sentence", False))


def _parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())


def _size(model: Model) -> dict[str, Any]:
    return {"parameters": _parameters(model), "bytes": len(artifact.weights(model))}


def _verdict(record: dict[str, Any]) -> str:
    held = record["held_out"]
    losses = {name: f"{held[name]['loss']:.3f}" for name in ("teacher", "before", "after")}
    told = f"{losses['after']} nats a token, {losses['before']} before; its teacher {losses['teacher']}"
    return f"On {held['tokens']:,} held-out tokens: {told}. {sizes_text(record['sizes'])}."
