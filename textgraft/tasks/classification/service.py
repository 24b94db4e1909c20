"""The HTTP service of a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen, MinLen

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, InputKind, Pair, TargetKind
from textgraft.tasks.classification.explaining import explained, stretches, variants
from textgraft.tasks.classification.predictor import Classifier, Prediction
from textgraft.tasks.service import Request, Several, Text

MOST_EXPLAINED = 10
"""Each of which is read once for every word."""


class PredictRequest(Request):
    """`label` is null where the model is less sure than `abstain_below`; `explain` adds the words that it hangs on."""

    texts: Annotated[list[Any], *Several]
    abstain_below: Annotated[float, Ge(0), Le(1)] = 0.0
    probabilities: bool = True
    explain: bool = False

    @property
    def is_slow(self) -> bool:
        """A long Thai text is cut into words by its dictionary."""
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
    """A classifier: label, confidence and probabilities of each text, pair, or question with options."""

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
        kind, names = self.classifier.labels.kind, self.classifier.labels.names
        return {"reads": self.classifier.reads, "kind": kind, "labels": [] if kind == "choice" else list(names)}

    def _texts(self, request: PredictRequest) -> list[str]:
        made = {
            "texts": lambda given: given,
            "pairs": lambda given: Pair(*given),
            "choices": lambda given: Choice(given.context, given.options, given.question),
        }[self.classifier.reads]
        return [made(given) for given in request.texts]

    def to_items(self, request: PredictRequest) -> list[str]:
        """The texts, each before its variants where they are to be explained: these wait like anybody's texts."""
        texts = self._texts(request)
        if not request.explain:
            return texts
        if len(texts) > MOST_EXPLAINED:
            remedy = "Send several requests, or a file to textgraft explain."
            raise UserError(f"{len(texts)} texts are to be explained, and {MOST_EXPLAINED} may be.", remedy=remedy)
        return [asked for text in texts for asked in variants(text, stretches(text))]

    def answer(self, items: Sequence[str]) -> list[Prediction]:
        return list(self.classifier.predict(items))

    def to_response(self, request: PredictRequest, answers: Sequence[Prediction]) -> dict[str, Any]:
        if not request.explain:
            return {"predictions": [self._told(request, answer) for answer in answers]}
        told, rest = [], iter(answers)
        for text in self._texts(request):
            found = stretches(text)
            own = list(islice(rest, len(found) + 1))
            told.append(self._told(request, own[0]) | {"explanation": explained(text, found, own).listed()})
        return {"predictions": told}

    def _told(self, request: PredictRequest, answer: Prediction) -> dict[str, Any]:
        unsure = answer.confidence is not None and answer.confidence < request.abstain_below
        told: dict[str, Any] = {"label": None if unsure else answer.label, "confidence": answer.confidence}
        if answer.option is not None:
            told["option"] = None if unsure else answer.option
        return told | ({"probabilities": answer.probabilities} if request.probabilities else {})
