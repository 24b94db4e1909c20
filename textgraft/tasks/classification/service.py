"""The HTTP service of a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen, MinLen

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, InputKind, Pair, TargetKind
from textgraft.tasks.classification.explaining import explained, removable_spans, variants
from textgraft.tasks.classification.predictor import Classifier, Prediction
from textgraft.tasks.service import Request, Several, Text

MAX_EXPLAINED = 10
"""Maximum number of texts to explain in a request: each needs a prediction for every word."""


class PredictRequest(Request):
    """`label` is null where the confidence is below `abstain_below`; `explain` adds the weight of each word."""

    texts: Annotated[list[Any], *Several]
    abstain_below: Annotated[float, Ge(0), Le(1)] = 0.0
    probabilities: bool = True
    explain: bool = False

    @property
    def is_slow(self) -> bool:
        """True for explanations, because splitting a long Thai text into words by a dictionary is slow."""
        return self.explain


class PredictTexts(PredictRequest):
    texts: Annotated[list[Text], *Several]


class PredictPairs(PredictRequest):
    texts: Annotated[list[Annotated[list[Text], MinLen(2), MaxLen(2)]], *Several]


class Options(Request):
    context: Text
    question: Text = ""
    options: Annotated[list[Text], MinLen(2)]


class PredictChoices(PredictRequest):
    texts: Annotated[list[Options], *Several]


class ClassificationService:
    """Service of a classifier: label, confidence and probabilities of each text, pair, or question with options."""

    path = "/predict"
    TASKS: ClassVar[Mapping[TargetKind, str]] = {"numeric": "regression", "choice": "multiple choice"}
    REQUESTS: ClassVar[Mapping[InputKind, type[PredictRequest]]] = {
        "texts": PredictTexts,
        "pairs": PredictPairs,
        "choices": PredictChoices,
    }

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.Request: type[Request] = self.REQUESTS[classifier.reads]
        self.task = self.TASKS.get(classifier.labels.kind, "classification")

    def about(self) -> dict[str, Any]:
        labels, reads = self.classifier.labels, self.classifier.reads
        return {
            "reads": reads,
            "kind": labels.kind,
            "labels": list(labels.names) if labels.target.shares_classes else [],
        }

    def _texts(self, request: PredictRequest) -> list[str]:
        convert = {
            "texts": lambda item: item,
            "pairs": lambda item: Pair(*item),
            "choices": lambda item: Choice(item.context, item.options, item.question),
        }[self.classifier.reads]
        return [convert(item) for item in request.texts]

    def to_items(self, request: PredictRequest) -> list[str]:
        """The texts of a request, each followed by its variants where it is to be explained."""
        texts = self._texts(request)
        if not request.explain:
            return texts
        if len(texts) > MAX_EXPLAINED:
            remedy = "Send several requests, or a file to textgraft explain."
            raise UserError(f"{len(texts)} texts are to be explained, and {MAX_EXPLAINED} may be.", remedy=remedy)
        return [variant for text in texts for variant in variants(text, removable_spans(text))]

    def answer(self, items: Sequence[str]) -> list[Prediction]:
        return list(self.classifier.predict(items))

    def to_response(self, request: PredictRequest, answers: Sequence[Prediction]) -> dict[str, Any]:
        if not request.explain:
            return {"predictions": [self._as_json(request, answer) for answer in answers]}
        predictions, remaining = [], iter(answers)
        for text in self._texts(request):
            spans = removable_spans(text)
            of_text = list(islice(remaining, len(spans) + 1))
            explanation = explained(text, spans, of_text).as_json()
            predictions.append(self._as_json(request, of_text[0]) | {"explanation": explanation})
        return {"predictions": predictions}

    def _as_json(self, request: PredictRequest, answer: Prediction) -> dict[str, Any]:
        unsure = answer.confidence is not None and answer.confidence < request.abstain_below
        result: dict[str, Any] = {"label": None if unsure else answer.label, "confidence": answer.confidence}
        if answer.option is not None:
            result["option"] = None if unsure else answer.option
        result["known"] = answer.known
        return result | ({"probabilities": answer.probabilities} if request.probabilities else {})
