"""Prediction with a fine-tuned classifier: predict, outputs, embed, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, warn_of_data
from textgraft.core.lazy import resolve
from textgraft.core.precision import validate_precision
from textgraft.data.examples import Choice, Examples, InputKind, Label, each_text, reads
from textgraft.data.labels import Labels
from textgraft.metrics.agreement import SAMPLE_SIZE, Agreement
from textgraft.metrics.calibration import confidence, confidence_and_correct, coverage_table, reliability
from textgraft.metrics.classification import bootstrap_interval, class_scores, document_scores, evaluate
from textgraft.models import loading
from textgraft.tasks.classification.shared_encoder import encoding_once
from textgraft.tasks.classification.unseen_labels import UnseenLabels

if TYPE_CHECKING:
    from textgraft.models.artifact import Predictor
    from textgraft.models.loading import OpenedModels

LAST = "last"
"""nn.layer_aggregation.LAST, repeated because that module imports torch, which an exported graph does not need."""
STREAM_TEXTS = 2048
TASK_OF = "textgraft.tasks.registry:task_of"
SHAPES: dict[InputKind, str] = {"texts": "a single text", "pairs": "two texts", "choices": "a context with options"}


@dataclass(frozen=True, repr=False)
class Prediction(Brief):
    """Prediction for a text.

    Attributes:
        label: The label; None where the classifier abstains. For a question with options, the number of the predicted
            option as a string, from "1".
        confidence: Probability of the label; None for a numeric target.
        probabilities: Probability of each label, or option.
        option: Text of the predicted option.
        known: False where no model knows anything in the text: it is blank, or no more than random letters or a foreign
            script to the vocabulary. The label is then a guess.
    """

    label: Label | None
    confidence: float | None
    probabilities: dict[str, float] | None = None
    option: str | None = None
    known: bool = True


class Classifier:
    """One classifier, or an ensemble whose probabilities are averaged (a forward and a backward one, say).

    Args:
        members: Models with the same labels.
        weights: Weights of their predictions in the mean (None: equal).
        precision: "auto", "fp32", "bf16" or "int8".
        where: The folder or name of the models, for messages.

    Raises:
        UserError: A member is no classifier, the members have different labels, or the precision is unknown.
    """

    def __init__(
        self,
        members: Sequence[Predictor],
        *,
        weights: Sequence[float] | None = None,
        precision: str = "auto",
        where: str = "",
    ) -> None:
        validate_precision(precision)
        self.members, self.precision = tuple(members), precision
        self._agreement = Agreement("texts", SAMPLE_SIZE) if precision == "int8" else None
        self.weights = tuple(weights) if weights is not None else (1.0,) * len(self.members)
        validate_labels(self.members, where=where)
        if any(member.labels != self.members[0].labels for member in self.members):
            raise UserError("the members of an ensemble have different labels.", where=where)
        self._encoding_once = encoding_once(self.members, precision)

    @classmethod
    def of(cls, models: OpenedModels, *, precision: str = "auto") -> Classifier:
        """The classifier of opened models. Raises UserError for models of another task."""
        return cls(models.members, weights=models.weights, precision=precision, where=models.name)

    @property
    def reads(self) -> InputKind:
        """The kind of input: texts, pairs, or questions with options."""
        kind: InputKind = self.labels.target.reads or self.members[0].run.get("reads", "texts")
        return kind

    @property
    def labels(self) -> Labels:
        labels = self.members[0].labels
        assert labels is not None
        return labels

    def outputs(self, texts: Sequence[str]) -> np.ndarray:
        """Predict probabilities, or standardised values.

        In int8 the first texts are predicted in the usual precision too, and keep the usual outputs.

        Returns:
            (N, C) probabilities in the order of `labels.names`; (N,) standardised values for a numeric target; (N,
            largest number of options) for questions with options, 0 where there are fewer.

        Raises:
            UserError: The input is of another kind than `reads`, or too many labels in int8 differ.
        """
        texts = list(each_text(texts))
        self.validate(texts)
        if not len(texts):
            return np.zeros(self.labels.output_shape(0))
        outputs = self._outputs(texts, self.precision)
        if self._agreement is not None and not self._agreement.passed:
            usual = self._outputs(texts[:SAMPLE_SIZE], "auto")
            self._agreement.compare(self._labels_of(usual), self._labels_of(outputs[: len(usual)]))
            outputs[: len(usual)] = usual
        return outputs

    def _outputs(self, texts: Sequence[str], precision: str) -> np.ndarray:
        members = self._encoding_once if precision == self.precision else self.members
        answers = [member.outputs(texts, precision) for member in members]
        return np.average(answers, axis=0, weights=self.weights)

    def _labels_of(self, outputs: np.ndarray) -> list[Any]:
        """The values to compare in int8: the label, all labels, or a number to a tenth of a standard deviation."""
        decisions = self.labels.decisions(outputs)
        return (decisions.round(1) if self.labels.num_classes is None else decisions).tolist()

    def knows(self, texts: Sequence[str]) -> np.ndarray:
        """Mask (N,) of the texts in which the vocabulary of a member knows something."""
        known = np.zeros(len(texts), dtype=bool)
        for member in self.members:
            unknown = np.flatnonzero(~known).tolist()
            if unknown:
                known[unknown] = member.knows([texts[i] for i in unknown])
        return known

    def validate(self, texts: Sequence[str]) -> None:
        """Raise UserError for input of another kind than `reads`."""
        for index, text in enumerate(texts):
            if (kind := reads([text])) != self.reads:
                remedy = f"Give {SHAPES[self.reads]} each."
                message = f"this model was trained on {SHAPES[self.reads]} each, and here is {SHAPES[kind]}."
                raise UserError(message, where=f"text {index + 1}", remedy=remedy)

    def predict(self, texts: Iterable[str], *, abstain_below: float = 0.0) -> Iterator[Prediction]:
        """Predict the labels of a stream of texts of any length, in order and in constant memory.

        Args:
            texts: Texts, pairs, or questions with options.
            abstain_below: Confidence below which the label is None.

        Raises:
            UserError: `texts` is a single string (raised at once), or an item is no text (raised when it comes).
        """
        source = each_text(texts)
        chunks = iter(lambda: list(islice(source, STREAM_TEXTS)), [])
        return (one for chunk in chunks for one in self._predictions(chunk, self.outputs(chunk), abstain_below))

    def _predictions(self, texts: Sequence[str], outputs: np.ndarray, abstain_below: float) -> Iterator[Prediction]:
        labels, known = self.labels, self.knows(texts).tolist()
        decoded = labels.decode(labels.decisions(outputs))
        if labels.num_classes is None:
            yield from (Prediction(label, None, known=knows) for label, knows in zip(decoded, known, strict=True))
            return
        confidences = confidence(outputs, labels.kind)
        columns = (decoded, confidences.tolist(), outputs.tolist(), known)
        for text, label, sure, row, knows in zip(texts, *columns, strict=True):
            predicted = label if sure >= abstain_below else None
            if isinstance(text, Choice):
                options = dict(zip(map(str, range(1, len(text.options) + 1)), row))
                chosen = None if predicted is None else text.options[int(row.index(max(row)))]
                yield Prediction(predicted, sure, options, chosen, knows)
            else:
                yield Prediction(predicted, sure, dict(zip(labels.names, row, strict=True)), known=knows)

    def embed(self, texts: Sequence[str], *, pooling: str | None = None, layers: str = LAST) -> np.ndarray:
        """(N, D) vectors: see textgraft.tasks.classification.predictor.embed."""
        return embed(self.members, list(each_text(texts)), pooling=pooling, layers=layers)

    def evaluate(self, examples: Examples) -> dict[str, Any]:
        """Scores on labelled texts: metrics, the headline one with its interval, per class, calibration, coverage.

        Texts with a label that training lacked count as mistakes, with a DataWarning: "unseen_labels" has their numbers
        by label, and "log_loss_of" says what the log loss is of. The training set itself is warned of too.

        Raises:
            UserError: None of the labels occurred in training, or as `outputs`.
        """
        labels, kind = self.labels.covering(examples), self.labels.kind
        if examples.content_hash() in self._training_sets():
            remedy = "Evaluate it on others: these scores do not show how good it is on new texts."
            warn_of_data(f"{examples.source}: the classifier was trained on exactly these texts. {remedy}")
        places = (f"{examples.unit} {examples.line(i)}" for i in range(len(examples)))
        targets, outputs = labels.encode(examples), self.outputs(list(warn_of_empty(examples.texts, places)))
        targets, outputs = labels.unscaled(targets), labels.unscaled(outputs)
        interval = bootstrap_interval(document_scores(kind, targets, outputs))
        result: dict[str, Any] = {"texts": len(examples), "metrics": evaluate(kind, targets, outputs)}
        result[self.labels.target.metric] = interval._asdict()
        if labels.num_classes is None:
            return result
        if unseen := UnseenLabels.of(labels, self.labels.num_outputs, targets):
            warn_of_data(f"{examples.source}: {unseen}")
            result |= {"unseen_labels": unseen.counts, "log_loss_of": unseen.log_loss_of}
        confidences, correct = confidence_and_correct(outputs, targets, kind)
        result["calibration_error"] = reliability(outputs, targets, kind).ece
        result["coverage"] = [vars(row) for row in coverage_table(confidences, correct)]
        if labels.target.has_one_label:
            result["classes"] = [vars(row) for row in class_scores(targets, outputs.argmax(1), labels.names)]
        return result

    def _training_sets(self) -> set[str]:
        """Content hashes of the data that the members were trained on, as far as their run.json has them."""
        recorded = (member.run.get("data", {}) for member in self.members)
        sets = (data.get("train", {}) for data in recorded if isinstance(data, Mapping))
        return {str(one.get("sha256")) for one in sets if isinstance(one, Mapping)}


def warn_of_empty(texts: Iterable[str], places: Iterable[str] | None = None) -> Iterator[str]:
    """Pass texts through, and warn after the last one if some are empty; `places` name them, by default from 1."""
    empty: list[str] = []
    number = 0
    for number, (text, place) in enumerate(zip(texts, places or repeat("")), start=1):
        if not "".join(text).strip():
            empty.append(place or str(number))
        yield text
    if empty:
        warnings.warn(f"{_counted(empty, number, 'empty')}: predictions for empty texts are meaningless.", stacklevel=2)


def warn_of_unknown(
    texts: Iterable[str], predictions: Iterable[Prediction], places: Iterable[str] | None = None
) -> Iterator[Prediction]:
    """Pass the predictions for texts through, and warn after the last one if texts that are not empty are unknown."""
    unknown: list[str] = []
    number = 0
    for number, (text, prediction, place) in enumerate(zip(texts, predictions, places or repeat("")), start=1):
        if not prediction.known and "".join(text).strip():
            unknown.append(place or str(number))
        yield prediction
    if unknown:
        remedy = "predictions for texts in which the model knows nothing are guesses."
        warnings.warn(f"{_counted(unknown, number, 'unknown to the model')}: {remedy}", stacklevel=2)


def _counted(places: Sequence[str], total: int, state: str) -> str:
    which = ", ".join(places[:5]) + (", …" if len(places) > 5 else "")
    texts = f"{len(places):,} of {total:,} texts are" if total > 1 else "the text is"
    return f"{texts} {state} ({which})"


def embed(
    members: Sequence[Predictor],
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    max_tokens: int | None = None,
    layers: str = LAST,
    prompt: str | None = None,
) -> np.ndarray:
    """Vectors of texts: pooled top layers, or a linear classifier's feature map; members are concatenated.

    A member without vectors, such as n-gram counts, is skipped.

    Args:
        members: The members of a classifier.
        texts: N texts.
        pooling: A name of nn.pooling.POOLINGS; None: as a model describes itself, else "mean".
        max_tokens: Length in tokens that longer texts are cut to; None: as a model describes itself, else 512.
        layers: The encoder layers to use (nn.layer_aggregation.LAYER_AGGREGATIONS).
        prompt: Name of a model's prompt, or a text to write before each text; None: the model's default, if any.

    Returns:
        (N, D) float32.

    Raises:
        UserError: No member has vectors.
    """
    with_vectors = [member for member in members if member.has_vectors] or members
    options: dict[str, Any] = {"pooling": pooling, "max_tokens": max_tokens, "layers": layers, "prompt": prompt}
    vectors = [member.embed(texts, **options) for member in with_vectors]
    return np.concatenate(vectors, axis=1)


def as_classifier(model: Classifier | str | Path, *, precision: str = "auto", device: str = "cpu") -> Classifier:
    """A classifier unchanged, or the one at a path, loaded by `load_classifier`."""
    return model if isinstance(model, Classifier) else load_classifier(model, precision=precision, device=device)


def load_classifier(*names: str | Path, precision: str = "auto", device: str = "cpu") -> Classifier:
    """Load a classifier; an ensemble's folder, or several names, become one ensemble.

    Raises:
        UserError: A model is of another task, or as `loading.load_network`.
    """
    opened = [loading.open_models(name, device=device) for name in names]
    members = [member for models in opened for member in models.members]
    weights = [weight for models in opened for weight in models.weights]
    for models in opened:
        validate_labels(models.members, where=models.name)
    return Classifier(members, weights=weights, precision=precision, where=" + ".join(m.name for m in opened))


def validate_labels(members: Sequence[Predictor], *, where: str = "") -> None:
    """Raise UserError for a model of another task, which has no labels, saying for which."""
    for member in members:
        if member.labels is None:
            task = resolve(TASK_OF)(member.head_name)
            raise UserError(f"this model has no labels: {task.description}.", where=where, remedy=task.remedy)
