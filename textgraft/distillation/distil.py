"""A small model learns from a large one: a classifier from any classifier, a language model from a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, validate_not_single_text
from textgraft.data.readers import read_optional
from textgraft.distillation.classifier import distil_classifier
from textgraft.distillation.language_model import distil_language_model
from textgraft.distillation.options import Distilled, DistilOptions
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.ensemble import load_ensemble
from textgraft.tasks.classification.predictor import Classifier
from textgraft.training.driver import refuse_existing
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
    overwrite: bool = False,
    show: bool = True,
) -> Distilled:
    """Teach a student on `texts`, which need no labels, and save it at `out`; it becomes what its teacher is.

    A classifier of any kind (a network, a linear one, an ensemble) teaches a `student` that is a pretrained language
    model (None: the usual one for the script of the texts, textgraft.models.default_models) its answers, softened
    (Hinton et al. 2015; Turc et al. 2019): distillation.classifier. `labelled` texts teach their labels too, and on
    `test` both are measured; both data sets are what `read` takes. A language model teaches half of itself (None), or a
    `student` over the same vocabulary (Sanh et al. 2019): distillation.language_model. One text in twenty is held out,
    to measure on how well the student follows. Killed, the same call goes on where it was.

    Raises UserError if `out` exists, for a teacher that is neither, for labels where the teacher is a language model,
    for labels that the teacher does not know, for another vocabulary, and for fewer than 20 texts.
    """
    out, options = Path(out), options or DistilOptions()
    refuse_existing(out, overwrite)
    validate_not_single_text(texts, name="texts")
    labelled, test = read_optional(labelled), read_optional(test)
    found = load_ensemble(teacher)
    first = found.members[0]
    if isinstance(first, Artifact) and first.labels is None and first.model.describe()["head"]["name"] in OBJECTIVES:
        _refuse_labels(str(teacher), labelled, test, options)
        return distil_language_model(
            first, texts, out, student=student, options=options, overwrite=overwrite, show=show
        )
    precision = options.settings.precision
    try:
        classifier = Classifier(found.members, weights=found.weights, precision=precision)
    except UserError as error:
        raise UserError(error.message, where=str(teacher), remedy=error.remedy) from error
    return distil_classifier(
        classifier,
        texts,
        out,
        student=default_models_for(texts).alone if student is None else student,
        labelled=labelled,
        test=test,
        options=options,
        overwrite=overwrite,
        show=show,
    )


def _refuse_labels(teacher: str, labelled: Examples | None, test: Examples | None, options: DistilOptions) -> None:
    """Raises UserError where something is given that only a classifier can teach by."""
    given = {"labelled texts": labelled is not None, "a test set": test is not None}
    given |= {"alpha": options.alpha is not None, "finetune": options.finetune}
    for name, is_given in given.items():
        if is_given:
            message = f"this teacher is a language model and answers with no labels, so {name} can be of no use."
            remedy = "Fine-tune it first (textgraft finetune), or leave that out to distil the language model."
            raise UserError(message, where=teacher, remedy=remedy)
