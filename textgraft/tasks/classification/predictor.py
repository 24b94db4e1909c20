"""A fine-tuned classifier at work: predict, predict_proba, embed, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import ONE_OF, Choice, Examples, InputKind, Label, each_text, reads
from textgraft.data.labels import Labels
from textgraft.metrics.agreement import SAMPLE_SIZE, Agreement
from textgraft.metrics.calibration import confidence_and_correct, coverage_table, reliability
from textgraft.metrics.classification import HEADLINE, bootstrap_interval, class_scores, document_scores, evaluate
from textgraft.tasks.classification.ensemble import load_ensemble

if TYPE_CHECKING:
    from textgraft.models.artifact import Predictor

LAST = "last"
"""nn.layer_aggregation's, which torch would come with: an exported graph does without."""
STREAM_TEXTS = 2048
SHAPES: dict[InputKind, str] = {"texts": "a single text", "pairs": "two texts", "choices": "a context with options"}


@dataclass(frozen=True)
class Prediction:
    """`label` is None where the classifier abstained; `confidence` is None for a numeric target.

    Of a question with options `label` is the number of the chosen one, from "1" on, and `option` its text.
    """

    label: Label | None
    confidence: float | None
    probabilities: dict[str, float] | None = None
    option: str | None = None


A_LANGUAGE_MODEL = "it is a language model", "Fine-tune it first (textgraft finetune)."
OTHER_USES = {
    "qa": ("it answers questions about texts", "Use it with textgraft qa."),
    "tag": ("it tags words", "Use it with textgraft tag."),
    "vectors": ("it holds word vectors", "Use it with textgraft vectors and embed."),
}
"""What models without labels of texts are, and what to do with them, by the stage that made them."""


class Classifier:
    """One classifier, or several whose probabilities are averaged (a forward and a backward one, say).

    All members must know the same labels; `weights` are those of their answers in the mean (None: equal). Raises
    UserError if one is no classifier.
    """

    def __init__(
        self, members: Sequence[Predictor], *, weights: Sequence[float] | None = None, precision: str = "auto"
    ) -> None:
        self.members, self.precision = tuple(members), precision
        self._agreement = Agreement("texts", SAMPLE_SIZE) if precision == "int8" else None
        self.weights = tuple(weights) if weights is not None else (1.0,) * len(self.members)
        for member in self.members:
            if member.labels is None:
                what, remedy = OTHER_USES.get(str(member.run.get("stage")), A_LANGUAGE_MODEL)
                raise UserError(f"this model has no labels: {what}.", remedy=remedy)
            if member.labels != self.members[0].labels:
                raise UserError("the members of an ensemble know different labels.")

    @property
    def reads(self) -> InputKind:
        """What it wants in the place of a text."""
        if self.labels.kind == "choice":
            return "choices"
        found: InputKind = self.members[0].run.get("reads", "texts")
        return found

    @property
    def labels(self) -> Labels:
        labels = self.members[0].labels
        assert labels is not None
        return labels

    def outputs(self, texts: Sequence[str]) -> np.ndarray:
        """(N, C) probabilities in the order of `labels.names`; for a numeric target (N,) standardised values.

        Of questions with options (N, most options): 0 where there are fewer. Raises UserError for texts where the
        classifier wants pairs or questions with options, and the other way round. In int8 the first texts are asked
        in both ways and answered as usual; UserError is raised where too many of their labels differ.
        """
        texts = list(each_text(texts))
        self.check(texts)
        if not len(texts):
            return np.zeros((0,) if self.labels.kind == "numeric" else (0, self.labels.num_outputs))
        outputs = self._outputs(texts, self.precision)
        if self._agreement is not None and not self._agreement.passed:
            usual = self._outputs(texts[:SAMPLE_SIZE], "auto")
            self._agreement.compare(self._labels_of(usual), self._labels_of(outputs[: len(usual)]))
            outputs[: len(usual)] = usual
        return outputs

    def _outputs(self, texts: Sequence[str], precision: str) -> np.ndarray:
        answers = [member.outputs(texts, precision) for member in self.members]
        return np.average(answers, axis=0, weights=self.weights)

    def _labels_of(self, outputs: np.ndarray) -> list[Any]:
        """What is to be the same in int8: the label, all of several, a number to a tenth of a standard deviation."""
        kind = self.labels.kind
        chosen = outputs.argmax(axis=1) if kind in ONE_OF else outputs.round(1) if kind == "numeric" else outputs >= 0.5
        return chosen.tolist()

    def check(self, texts: Sequence[str]) -> None:
        """Raises UserError for texts where it wants pairs or questions with options, and the other way round."""
        for index, text in enumerate(texts):
            if (given := reads([text])) != self.reads:
                remedy = f"Give {SHAPES[self.reads]} each."
                message = f"this model was trained on {SHAPES[self.reads]} each, and here is {SHAPES[given]}."
                raise UserError(message, where=f"text {index + 1}", remedy=remedy)

    def predict(self, texts: Iterable[str], *, abstain_below: float = 0.0) -> Iterator[Prediction]:
        """One prediction a text, in order, from a stream of any length in flat memory.

        Raises UserError at once for one text by itself, and for what is no text when it comes.
        """
        source = each_text(texts)
        chunks = iter(lambda: list(islice(source, STREAM_TEXTS)), [])
        return (given for chunk in chunks for given in self._predictions(chunk, self.outputs(chunk), abstain_below))

    def _predictions(self, texts: Sequence[str], outputs: np.ndarray, abstain_below: float) -> Iterator[Prediction]:
        labels = self.labels
        decoded = labels.decode(outputs.argmax(1) if labels.kind in ONE_OF else outputs)
        if labels.kind == "numeric":
            yield from (Prediction(label, None) for label in decoded)
            return
        sure = outputs.max(1) if labels.kind in ONE_OF else np.maximum(outputs, 1 - outputs).min(1)
        for text, label, confidence, row in zip(texts, decoded, sure.tolist(), outputs.tolist(), strict=True):
            given = label if confidence >= abstain_below else None
            if isinstance(text, Choice):
                options = dict(zip(map(str, range(1, len(text.options) + 1)), row))
                chosen = None if given is None else text.options[int(row.index(max(row)))]
                yield Prediction(given, confidence, options, chosen)
            else:
                yield Prediction(given, confidence, dict(zip(labels.names, row, strict=True)))

    def embed(self, texts: Sequence[str], *, pooling: str = "mean", layers: str = LAST) -> np.ndarray:
        """(N, D) vectors: see textgraft.tasks.classification.predictor.embed."""
        return embed(self.members, list(each_text(texts)), pooling=pooling, layers=layers)

    def evaluate(self, examples: Examples) -> dict[str, Any]:
        """Scores on labelled texts: metrics, the headline one with its interval, per class, calibration, coverage."""
        targets, outputs = self.labels.encode(examples), self.outputs(list(warned_of_empty(examples.texts)))
        kind = self.labels.kind
        if kind == "numeric":
            targets, outputs = (v * self.labels.std + self.labels.mean for v in (targets, outputs))
        interval = bootstrap_interval(document_scores(kind, targets, outputs))
        result: dict[str, Any] = {"texts": len(examples), "metrics": evaluate(kind, targets, outputs)}
        result[HEADLINE[kind]] = interval._asdict()
        if kind == "numeric":
            return result
        confidence, correct = confidence_and_correct(outputs, targets, kind)
        result["calibration_error"] = reliability(outputs, targets, kind).ece
        result["coverage"] = [vars(row) for row in coverage_table(confidence, correct)]
        if kind == "single":
            result["classes"] = [vars(row) for row in class_scores(targets, outputs.argmax(1), self.labels.names)]
        return result


def warned_of_empty(texts: Iterable[str]) -> Iterator[str]:
    """The texts as they come, and after the last one a warning where some had nothing in them."""
    empty: list[int] = []
    number = 0
    for number, text in enumerate(texts, start=1):
        if not "".join(text).strip():
            empty.append(number)
        yield text
    if empty:
        which = ", ".join(map(str, empty[:5])) + (", …" if len(empty) > 5 else "")
        of = f"{len(empty):,} of {number:,} texts are empty" if number > 1 else "the text is empty"
        warnings.warn(f"{of} ({which}): what is answered for nothing says nothing.", stacklevel=2)


def embed(
    members: Sequence[Predictor],
    texts: Sequence[str],
    *,
    pooling: str = "mean",
    max_tokens: int = 512,
    layers: str = LAST,
) -> np.ndarray:
    """(N, D) float32 vectors, members side by side: pooled top layers, or coordinates in a linear classifier's space.

    `layers` names other layers to read than the top one (nn.layer_aggregation.LAYER_AGGREGATIONS). A member without
    vectors, one that counts n-grams, is passed over. Raises UserError where no member has any.
    """
    able = [member for member in members if member.has_vectors] or members
    vectors = [m.embed(texts, pooling=pooling, max_tokens=max_tokens, layers=layers) for m in able]
    return np.concatenate(vectors, axis=1)


def loaded(model: Classifier | str | Path, *, precision: str = "auto", device: str = "cpu") -> Classifier:
    """A classifier as it is, or the one at a path, as `load` gives it."""
    return model if isinstance(model, Classifier) else load(model, precision=precision, device=device)


def load(*paths: str | Path, precision: str = "auto", device: str = "cpu") -> Classifier:
    """The classifier at a path; an ensemble's folder, or several paths, answer as one, networks on `device`.

    Raises UserError if one cannot be loaded, and for a device (core.device.DEVICES) that is not there.
    """
    found = [load_ensemble(path, device=device) for path in paths]
    members = [member for ensemble in found for member in ensemble.members]
    weights = [weight for ensemble in found for weight in ensemble.weights]
    return Classifier(members, weights=weights, precision=precision)
