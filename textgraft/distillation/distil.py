"""Distillation of a classifier, or of a language model, into a smaller model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, validate_not_single_text
from textgraft.data.readers import read
from textgraft.data.unlabelled import labelled_only
from textgraft.distillation.classifier import distil_classifier
from textgraft.distillation.language_model import distil_language_model
from textgraft.distillation.options import Distilled, DistilOptions
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.predictor import Classifier
from textgraft.training.driver import validate_new_path
from textgraft.training.objectives import OBJECTIVES
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import prepared


@exclusive
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
    """Train a student on the outputs of a teacher for `texts`, which need no labels, and save it at `out`.

    A classifier of any kind (a network, a linear model, an ensemble) is distilled into a fine-tuned language model,
    with softened outputs (Hinton et al. 2015; Turc et al. 2019): distillation.classifier. A language model is distilled
    into one over the same vocabulary (Sanh et al. 2019): distillation.language_model. One text in twenty is held out to
    measure the agreement of the two. After an interruption the same call continues.

    Args:
        teacher: Name or folder.
        texts: Unlabelled texts.
        out: Folder to write.
        student: Pretrained language model (None: for a classifier the default model for the script of the texts,
            textgraft.models.default_models; for a language model half of the teacher's layers).
        labelled: Labelled texts to train on as well, as `textgraft.read` takes them.
        test: Labelled texts to measure both on, as `textgraft.read` takes them.
        options: Recipe, temperature and weights.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The student's folder, record and comparison.

    Raises:
        UserError: `out` exists; the teacher is neither; labels are given for a language model, or the teacher does not
            have them; the vocabularies differ; there are fewer than 20 texts.
    """
    out, options = Path(out), options or DistilOptions()
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_not_single_text(texts, name="texts")
    labelled, test = (None if part is None else labelled_only(read(part)) for part in (labelled, test))
    ensemble = loading.open_models(teacher)
    first = ensemble.members[0]
    if isinstance(first, Artifact) and first.labels is None and first.model.describe()["head"]["name"] in OBJECTIVES:
        _validate_no_labels(str(teacher), labelled, test, options)
        return distil_language_model(first, texts, out, student=student, options=options, context=context)
    precision = options.settings.precision
    classifier = Classifier.of(ensemble, precision=precision)
    student = default_models_for(texts).alone if student is None else student
    about: Any = {"labelled": labelled, "test": test, "options": options, "context": context}
    return distil_classifier(classifier, texts, out, student=student, **about)


def _validate_no_labels(teacher: str, labelled: Examples | None, test: Examples | None, options: DistilOptions) -> None:
    """Raise UserError for arguments that only a classifier uses."""
    is_set = {"labelled texts": labelled is not None, "a test set": test is not None}
    is_set |= {"alpha": options.alpha is not None, "finetune": options.finetune}
    for name, is_used in is_set.items():
        if is_used:
            message = f"this teacher is a language model without labels, so {name} cannot be used."
            remedy = "Fine-tune it first (textgraft finetune), or leave this out to distil the language model."
            raise UserError(message, where=teacher, remedy=remedy)
