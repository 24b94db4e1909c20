"""A small model learns from a large one: a classifier from any classifier, a language model from a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, validate_not_single_text
from textgraft.data.readers import read_optional
from textgraft.distillation.classifier import distil_classifier
from textgraft.distillation.language_model import distil_language_model
from textgraft.distillation.options import Distilled, DistilOptions
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.predictor import Classifier
from textgraft.training.driver import refuse_existing
from textgraft.training.loop import prepared
from textgraft.training.objectives import OBJECTIVES


def distil(
    teacher: str | Path,
    texts: Sequence[str],
    out: Path | str,
    *,
    student: str | Path | None = None,
    labelled: Any = None,
    test: Any = None,
    options: DistilOptions | None = None,
    context: RunContext | None = None,
) -> Distilled:
    """Train a student on a teacher's predictions for `texts` and save it at `out`.

    A classifier of any kind (a network, a linear one, an ensemble) teaches a pretrained language model its softened
    predictions (Hinton et al. 2015; Turc et al. 2019): distillation.classifier. A language model teaches half of
    itself, or another over the same vocabulary (Sanh et al. 2019): distillation.language_model. One text in twenty is
    held out, to measure the agreement with the teacher. Killed, the same call goes on where it was.

    Args:
        teacher: Name or folder of a classifier or of a language model.
        texts: Texts without labels, 20 or more.
        out: Folder for the student.
        student: Name or folder of a language model; None: for a classifier the default model for the script of the
            texts (models.default_models), for a language model half of the teacher.
        labelled: Texts whose labels are trained on too: anything that `read` takes.
        test: Labelled texts on which both are measured.
        options: Everything about the distillation but teacher, texts and student.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Raises:
        UserError: `out` exists; the teacher is neither, or a language model and there are labels; it does not know a
            label; the student has another vocabulary; or there are fewer than 20 texts.
    """
    out, options = Path(out), options or DistilOptions()
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    refuse_existing(out, context.overwrite)
    validate_not_single_text(texts, name="texts")
    labelled, test = read_optional(labelled), read_optional(test)
    found = loading.open_models(teacher)
    first = found.members[0]
    if isinstance(first, Artifact) and first.labels is None and first.model.describe()["head"]["name"] in OBJECTIVES:
        _refuse_labels(str(teacher), labelled, test, options)
        return distil_language_model(first, texts, out, student=student, options=options, context=context)
    precision = options.settings.precision
    try:
        classifier = Classifier(found.members, weights=found.weights, precision=precision)
    except UserError as error:
        raise UserError(error.message, where=str(teacher), remedy=error.remedy) from error
    student = default_models_for(texts).alone if student is None else student
    about: Any = {"labelled": labelled, "test": test, "options": options, "context": context}
    return distil_classifier(classifier, texts, out, student=student, **about)


def _refuse_labels(teacher: str, labelled: Examples | None, test: Examples | None, options: DistilOptions) -> None:
    """Raises UserError where something is given that only a classifier can teach by."""
    given = {"labelled texts": labelled is not None, "a test set": test is not None}
    given |= {"alpha": options.alpha is not None, "finetune": options.finetune}
    for name, is_given in given.items():
        if is_given:
            message = f"this teacher is a language model and answers with no labels, so {name} can be of no use."
            remedy = "Fine-tune it first (textgraft finetune), or leave that out to distil the language model."
            raise UserError(message, where=teacher, remedy=remedy)
