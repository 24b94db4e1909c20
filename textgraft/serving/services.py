"""What a served model takes and gives: one class for each task, over the object that Python's users have.

A service reads a request into items, answers items that may come from several requests together, and tells each
request its answers as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, InputKind, Pair, TargetKind
from textgraft.data.squad import Article, Paragraph, Question, Squad
from textgraft.models.graph import OnnxModel
from textgraft.tasks.classification.ensemble import load_ensemble
from textgraft.tasks.classification.explaining import explained, stretches, variants
from textgraft.tasks.classification.predictor import Classifier, Prediction
from textgraft.tasks.question_answering.predictor import Reader
from textgraft.tasks.tagging.predictor import Tagger

MOST_TEXTS = 1000
"""Of one request; whoever has more sends several, or a file to `textgraft predict`."""
MOST_EXPLAINED = 10
"""Each of which is read once for every word."""
Several = MinLen(1), MaxLen(MOST_TEXTS)


def whole(text: str) -> str:
    """The text, which JSON may have given half a surrogate pair, and UTF-8 may not give back."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("surrogate", "Half of a surrogate pair (as \\ud800) is no character")
    return text


Text = Annotated[str, AfterValidator(whole)]


class Request(BaseModel):
    """What comes in: known names and no others, and no text that is a number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def takes_long(self) -> bool:
        """Whether to read it and to tell its answers may take so long that nobody should wait for that."""
        return False


class PredictRequest(Request):
    """`label` is null where the model is less sure than `abstain_below`; `explain` adds the words that it hangs on."""

    texts: Annotated[list[Any], *Several]
    abstain_below: Annotated[float, Ge(0), Le(1)] = 0.0
    probabilities: bool = True
    explain: bool = False

    @property
    def takes_long(self) -> bool:
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


class TagRequest(Request):
    texts: Annotated[list[Text], *Several]


class Asked(Request):
    context: Text
    question: Annotated[Text, MinLen(1)]


class AnswerRequest(Request):
    """`best` of an answer lists the `n_best` likeliest."""

    questions: Annotated[list[Asked], *Several]
    n_best: int = Field(3, ge=1, le=20)


class Service(Protocol):
    """`path` is where requests are sent, `Request` what they look like, `task` what the model does, in a word."""

    path: str
    task: str
    Request: type[Request]

    def about(self) -> dict[str, Any]:
        """What a program or a page wants to know of the model, beside its path and task."""

    def read(self, request: Any) -> list[Any]:
        """The items of a request."""

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """An answer to each item, computed together. Raises UserError for an item that the model cannot read."""

    def tell(self, request: Any, answers: Sequence[Any]) -> dict[str, Any]:
        """The answers to a request's items, as JSON."""


class Labelling:
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

    def read(self, request: PredictRequest) -> list[str]:
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

    def tell(self, request: PredictRequest, answers: Sequence[Prediction]) -> dict[str, Any]:
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


class Tagging:
    """A tagger: the words of each text with their tags, and the entities that they make."""

    path, task = "/tag", "tagging"
    Request: type[Request] = TagRequest

    def __init__(self, tagger: Tagger) -> None:
        self.tagger = tagger

    def about(self) -> dict[str, Any]:
        return {"reads": "texts", "entities": self.tagger.has_entities, "tags": list(self.tagger.config.tags)}

    def read(self, request: TagRequest) -> list[str]:
        return request.texts

    def answer(self, items: Sequence[str]) -> list[dict[str, Any]]:
        return [reply.listed() for reply in self.tagger.tag_texts(items)]

    def tell(self, request: TagRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"texts": list(answers)}


class Reading:
    """A reader: the stretch of its context that answers each question."""

    path, task = "/answer", "question answering"
    Request: type[Request] = AnswerRequest

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def about(self) -> dict[str, Any]:
        return {"reads": "questions", "may_be_none": self.reader.search.may_be_none}

    def read(self, request: AnswerRequest) -> list[Paragraph]:
        return [Paragraph(asked.context, (Question("", asked.question),)) for asked in request.questions]

    def answer(self, items: Sequence[Paragraph]) -> list[dict[str, Any]]:
        replies = self.reader.answer(Squad((Article("", tuple(items)),)))
        return [{"answer": reply.text, "best": reply.listed()} for reply in replies]

    def tell(self, request: AnswerRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"answers": [answer | {"best": answer["best"][: request.n_best]} for answer in answers]}


def open_service(model: str | Path, *, precision: str = "auto", device: str = "cpu") -> Service:
    """What serves the model of that name: a classifier, an ensemble of them, a tagger, a reader, or a graph of one.

    Raises UserError for a model of no task, and as ensemble.load_ensemble does.
    """
    ensemble = load_ensemble(model, device=device)
    first = ensemble.members[0]
    # A graph is opened anew: taggers and readers know graphs by their folder.
    opened: Any = model if isinstance(first, OnnxModel) else first
    stage = first.run.get("stage")
    if stage == "tag":
        return Tagging(Tagger(opened, precision=precision))
    if stage == "qa":
        return Reading(Reader(opened, precision=precision, n_best=20))
    return Labelling(Classifier(ensemble.members, weights=ensemble.weights, precision=precision))
