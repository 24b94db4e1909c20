"""Prediction with a tagger: from words or texts to a tag for each word, and entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.precision import validate_precision
from textgraft.core.progress import Meter
from textgraft.data.conll import Sentence, Tagged
from textgraft.data.examples import each_text, validate_not_single_text, validate_types
from textgraft.data.tag_spans import from_text
from textgraft.data.tags import Scheme, TagPredictions, converted, entities
from textgraft.data.words import Coverage
from textgraft.metrics.tagging import TagScores, score_tags
from textgraft.tasks.registry import open_model_of, validate_task
from textgraft.tasks.tagging.graph import OnnxTagger
from textgraft.tasks.tagging.spec import TAGGING

if TYPE_CHECKING:
    from textgraft.models.artifact import Artifact, Predictor
    from textgraft.models.loading import OpenedModels

SENTENCES_AT_ONCE, WORDS_AT_ONCE = 256, 8192
"""Maximum number of sentences and of words that are in memory together, with the vectors of a stack."""
MAX_TOKENS = 256
AS_WORDS = "Pass a list of lists of words, or use tag_texts."


@dataclass(frozen=True)
class Mention:
    """An entity: characters [start, end) of the text, words [first, last], and the lowest probability among these."""

    type: str
    text: str
    start: int
    end: int
    first: int
    last: int
    probability: float


@dataclass(frozen=True, repr=False)
class TaggedSentence(Brief):
    """Prediction for a sentence.

    Attributes:
        sentence: The sentence.
        tags: A tag for each word.
        probabilities: The probability of each tag among the legal tags of the sentence.
        has_entities: Tags are of entities, not of words alone.
    """

    sentence: Sentence
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    has_entities: bool

    @property
    def mentions(self) -> list[Mention]:
        """The entities, in order; none where tags are of another kind."""
        text, spans = self.sentence.text, self.sentence.spans
        mentions = []
        for kind, first, last in entities(self.tags) if self.has_entities else []:
            start, end = spans[first][0], spans[last][1]
            probability = min(self.probabilities[first : last + 1])
            mentions.append(Mention(kind, text[start:end], start, end, first, last, probability))
        return mentions

    @property
    def spans(self) -> list[tuple[int, int, str]]:
        """(start, end, name) of each entity with its type, or of each word with its tag."""
        if self.has_entities:
            return [(m.start, m.end, m.type) for m in self.mentions]
        return [(*span, tag) for span, tag in zip(self.sentence.spans, self.tags, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """The text, its words with offset, tag and probability, and its entities, as in JSON."""
        rows = zip(self.sentence.words, self.sentence.spans, self.tags, self.probabilities, strict=True)
        words = [
            {"word": w, "start": start, "end": end, "tag": tag, "probability": round(p, 6)}
            for w, (start, end), tag, p in rows
        ]
        result: dict[str, Any] = {"text": self.sentence.text, "words": words}
        if self.has_entities:
            result["entities"] = [{**vars(m), "probability": round(m.probability, 6)} for m in self.mentions]
        return result


class Tagset(Protocol):
    """The tags of a tagger, and their scheme."""

    @property
    def tags(self) -> list[str]: ...

    @property
    def scheme(self) -> Scheme: ...


class WordTagger(Protocol):
    """Interface of a network (network.py) and of an ONNX graph (graph.py), which needs no torch.

    `batch_tagger` returns a function that tags a batch of sentences in windows of at most `max_tokens` tokens.
    """

    @property
    def config(self) -> Tagset: ...

    def batch_tagger(
        self, max_tokens: int
    ) -> Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]: ...


def stream_tags(
    tagger: WordTagger, sentences: Iterable[Sentence], max_tokens: int = MAX_TOKENS
) -> Iterator[tuple[TaggedSentence, Coverage]]:
    """Predict the tags of sentences, in order, with the truncation of each batch beside its first sentence.

    A batch has at most `SENTENCES_AT_ONCE` sentences and about `WORDS_AT_ONCE` words, whose vectors of a stack are
    computed together.
    """
    has_entities, tag_batch = tagger.config.scheme != "plain", tagger.batch_tagger(max_tokens)
    for batch in _batches(sentences):
        predictions, coverage = tag_batch([s.words for s in batch])
        for sentence, (tags, probabilities) in zip(batch, predictions, strict=True):
            yield TaggedSentence(sentence, tuple(tags), tuple(probabilities), has_entities), coverage
            coverage = Coverage()


def _batches(sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
    """The sentences, as many at a time as are in memory together."""
    part: list[Sentence] = []
    words = 0
    for sentence in sentences:
        if part and (len(part) == SENTENCES_AT_ONCE or words + len(sentence.words) > WORDS_AT_ONCE):
            yield part
            part, words = [], 0
        part.append(sentence)
        words += len(sentence.words)
    if part:
        yield part


def tag_all(
    tagger: WordTagger, sentences: Sequence[Sentence], max_tokens: int = MAX_TOKENS, *, show: bool = False
) -> tuple[list[TaggedSentence], Coverage]:
    """`stream_tags` for sentences that are all in memory."""
    predictions, total = [], Coverage()
    with Meter("tagging", len(sentences), shown=show, unit="sentences") as meter:
        for prediction, coverage in stream_tags(tagger, sentences, max_tokens):
            predictions.append(prediction)
            total += coverage
            meter.add(len(prediction.sentence.text.encode("utf-8", "replace")), len(prediction.tags))
    return predictions, total


class Tagger:
    """A model fine-tuned to tag words, or its ONNX graph.

    Args:
        model: Name or folder of a model, or an opened one.
        precision: "auto", "fp32", "bf16" or "int8".
        show: Show progress on stderr.

    Raises:
        UserError: The model is of another task, or the precision is unknown.
    """

    def __init__(self, model: str | Path | Predictor, *, precision: str = "auto", show: bool = False) -> None:
        validate_precision(precision)
        opened = open_model_of(TAGGING, model) if isinstance(model, str | Path) else model
        validate_task(TAGGING, opened.head_name)
        if isinstance(opened, OnnxTagger):
            self.source: WordTagger = opened
            self.artifact: Artifact | OnnxTagger = opened
        else:
            from textgraft.tasks.tagging.network import NetworkTagger

            network = NetworkTagger.of(cast("Artifact", opened), precision)
            self.source, self.artifact = network, network.artifact
        self.config = self.source.config
        self.max_tokens = int(self.artifact.run.get("max_tokens", MAX_TOKENS))
        self.show = show

    @classmethod
    def of(cls, models: OpenedModels, *, precision: str = "auto") -> Tagger:
        """The tagger of opened models."""
        return cls(models.members[0], precision=precision)

    def stream(self, sentences: Iterable[Sentence]) -> Iterator[tuple[TaggedSentence, Coverage]]:
        """Predict the tags of a stream of sentences, as `stream_tags` does."""
        return stream_tags(self.source, sentences, self.max_tokens)

    def tag(self, sentences: Sequence[Sentence | Sequence[str]]) -> list[TaggedSentence]:
        """Predict the tags of sentences, each a list of words.

        Raises:
            UserError: A sentence is a text.
        """
        validate_not_single_text(sentences, name="sentences", remedy=AS_WORDS)
        for index, sentence in enumerate(sentences):
            validate_not_single_text(sentence, name=f"sentences[{index}]", remedy=AS_WORDS)
        split = [s if isinstance(s, Sentence) else Sentence.of(s) for s in sentences]
        return tag_all(self.source, split, self.max_tokens, show=self.show)[0]

    def tag_texts(self, texts: Sequence[str]) -> list[TaggedSentence]:
        """Predict the tags of texts, split into words by text.words; a text without a word has none."""
        sentences = [from_text(text) for text in each_text(texts)]
        predictions = iter(self.tag([s for s in sentences if s.words]))
        return [next(predictions) if s.words else TaggedSentence(s, (), (), self.has_entities) for s in sentences]

    @property
    def has_entities(self) -> bool:
        """True where tags are of entities, not of words alone."""
        return self.config.scheme != "plain"

    def evaluate(self, data: Tagged) -> dict[str, Any]:
        """Scores of the predicted tags, as TagScores.summary has them.

        Raises:
            UserError: The gold tags are of another kind.
        """
        validate_types(data=data, wanted=Tagged, reader="textgraft.read_tagged")
        return scores(data, self.tag(data.sentences)).summary()


def scores(data: Tagged, predictions: Sequence[TaggedSentence]) -> TagScores:
    """Score predictions against gold tags; entities of any scheme are compared as IOB2.

    Raises:
        UserError: Only one of the two has entities.
    """
    if predictions and predictions[0].has_entities == (data.scheme == "plain"):
        kinds = ("entities", "other tags") if predictions[0].has_entities else ("other tags", "entities")
        message = f"this model gives {kinds[0]}, and the file has {kinds[1]}."
        raise UserError(message, where=data.source, remedy="Name the column of such tags.")
    scheme: Scheme = "plain" if data.scheme == "plain" else "IOB2"
    gold = [s.tags if scheme == "plain" else converted(s.tags, scheme) for s in data.sentences]
    return score_tags(gold, [converted(r.tags, scheme) for r in predictions], scheme)


def tag_predict(model: str | Path, texts: Sequence[str]) -> list[TaggedSentence]:
    """Predict the tags of texts with a saved model."""
    return Tagger(model).tag_texts(texts)


def tag_evaluate(model: str | Path, data: Tagged) -> dict[str, Any]:
    """Accuracy, or F1 of entities, of a saved model, with intervals."""
    return Tagger(model).evaluate(data)
