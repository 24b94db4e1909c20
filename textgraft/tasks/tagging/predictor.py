"""A tagger at work: words or texts in, a tag for each word out, and the entities that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from textgraft.core.errors import UserError
from textgraft.core.progress import Meter
from textgraft.data.conll import Sentence, Tagged
from textgraft.data.examples import each_text, validate_not_single_text, validate_types
from textgraft.data.tags import Scheme, TagPredictions, converted, entities
from textgraft.data.words import Coverage
from textgraft.metrics.tagging import TagScores, score_tags
from textgraft.models.graph_loading import graph_in
from textgraft.tasks.tagging.graph import OnnxTagger
from textgraft.text.words import split_words

if TYPE_CHECKING:
    from textgraft.models.artifact import Artifact

AT_ONCE, WORDS_AT_ONCE = 256, 8192
"""Sentences that are held in memory together, with what a stack says of their words; of long ones there are fewer."""
MAX_TOKENS = 256
AS_WORDS = "Pass a list of lists of words, or use tag_texts."


@dataclass(frozen=True)
class Mention:
    """An entity: characters [start, end) of the text, words [first, last], and how sure its least sure word is."""

    type: str
    text: str
    start: int
    end: int
    first: int
    last: int
    probability: float


@dataclass(frozen=True)
class Reply:
    """What a tagger says of a sentence: a tag for each word, with its probability among legal tags of the sentence."""

    sentence: Sentence
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    has_entities: bool

    @property
    def mentions(self) -> list[Mention]:
        """The entities, in order; none where tags are of another kind."""
        text, spans = self.sentence.text, self.sentence.spans
        found = []
        for kind, first, last in entities(self.tags) if self.has_entities else []:
            start, end = spans[first][0], spans[last][1]
            sure = min(self.probabilities[first : last + 1])
            found.append(Mention(kind, text[start:end], start, end, first, last, sure))
        return found

    @property
    def spans(self) -> list[tuple[int, int, str]]:
        """What is to be marked in the text: entities with their types, or words with their tags."""
        if self.has_entities:
            return [(m.start, m.end, m.type) for m in self.mentions]
        return [(*span, tag) for span, tag in zip(self.sentence.spans, self.tags, strict=True)]

    def listed(self) -> dict[str, Any]:
        """The text, its words with offset, tag and probability, and its entities, as JSON has it."""
        rows = zip(self.sentence.words, self.sentence.spans, self.tags, self.probabilities, strict=True)
        words = [
            {"word": w, "start": start, "end": end, "tag": tag, "probability": round(p, 6)}
            for w, (start, end), tag, p in rows
        ]
        found: dict[str, Any] = {"text": self.sentence.text, "words": words}
        if self.has_entities:
            found["entities"] = [{**vars(m), "probability": round(m.probability, 6)} for m in self.mentions]
        return found


class Tagset(Protocol):
    """Which tags there are, and of what scheme."""

    @property
    def tags(self) -> list[str]: ...

    @property
    def scheme(self) -> Scheme: ...


class WordTagger(Protocol):
    """What gives words their tags: a network (tagging_network), or a graph (tasks.tagging.graph), which needs no torch.

    `reading` gives what tags one part of a file after the other, in windows of so many tokens.
    """

    @property
    def config(self) -> Tagset: ...

    def reading(
        self, max_tokens: int
    ) -> Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]: ...


def stream_tags(
    tagger: WordTagger, sentences: Iterable[Sentence], max_tokens: int = MAX_TOKENS
) -> Iterator[tuple[Reply, Coverage]]:
    """What a tagger says of each sentence, in order, with what of it did not fit.

    Memory holds `AT_ONCE` of them, or `WORDS_AT_ONCE` words: all that a stack says of these is computed together.
    """
    has_entities, tagged = tagger.config.scheme != "plain", tagger.reading(max_tokens)
    for part in _parts(sentences):
        found, coverage = tagged([s.words for s in part])
        for sentence, (tags, sure) in zip(part, found, strict=True):
            yield Reply(sentence, tuple(tags), tuple(sure), has_entities), coverage
            coverage = Coverage()


def _parts(sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
    """The sentences, as many at a time as are held in memory together."""
    part: list[Sentence] = []
    words = 0
    for sentence in sentences:
        if part and (len(part) == AT_ONCE or words + len(sentence.words) > WORDS_AT_ONCE):
            yield part
            part, words = [], 0
        part.append(sentence)
        words += len(sentence.words)
    if part:
        yield part


def tag_all(
    tagger: WordTagger, sentences: Sequence[Sentence], max_tokens: int = MAX_TOKENS, *, show: bool = False
) -> tuple[list[Reply], Coverage]:
    """`stream_tags` for sentences that are all in memory."""
    replies, total = [], Coverage()
    with Meter("tagging", len(sentences), shown=show) as meter:
        for reply, coverage in stream_tags(tagger, sentences, max_tokens):
            replies.append(reply)
            total += coverage
            meter.add(len(reply.sentence.text.encode("utf-8", "replace")), len(reply.tags))
    return replies, total


class Tagger:
    """A model fine-tuned to tag words, or its graph, as a folder holds it. Raises UserError for one of another task."""

    def __init__(self, model: str | Path | Artifact, *, precision: str = "auto", show: bool = False) -> None:
        graph = graph_in(model) if isinstance(model, str | Path) else None
        if graph is None:
            from textgraft.tasks.tagging.network import NetworkTagger

            network = NetworkTagger.of(model, precision)
            self.source: WordTagger = network
            self.artifact: Artifact | OnnxTagger = network.artifact
        elif isinstance(graph, OnnxTagger):
            self.source = self.artifact = graph
        else:
            raise UserError("this graph does not tag words.", where=str(model), remedy="Export a tagger.")
        self.config = self.source.config
        self.max_tokens = int(self.artifact.run.get("max_tokens", MAX_TOKENS))
        self.show = show

    def stream(self, sentences: Iterable[Sentence]) -> Iterator[tuple[Reply, Coverage]]:
        """What `stream_tags` says, one after the other."""
        return stream_tags(self.source, sentences, self.max_tokens)

    def tag(self, sentences: Sequence[Sentence | Sequence[str]]) -> list[Reply]:
        """The tags of sentences, which are given as words. Raises UserError, with the place, for texts."""
        validate_not_single_text(sentences, name="sentences", remedy=AS_WORDS)
        for index, sentence in enumerate(sentences):
            validate_not_single_text(sentence, name=f"sentences[{index}]", remedy=AS_WORDS)
        read = [s if isinstance(s, Sentence) else Sentence.of(s) for s in sentences]
        return tag_all(self.source, read, self.max_tokens, show=self.show)[0]

    def tag_texts(self, texts: Sequence[str]) -> list[Reply]:
        """The tags of texts, split into words by text.words; a text without a word has none."""
        sentences = [from_text(text) for text in each_text(texts)]
        replies = iter(self.tag([s for s in sentences if s.words]))
        return [next(replies) if s.words else Reply(s, (), (), self.has_entities) for s in sentences]

    @property
    def has_entities(self) -> bool:
        """Whether tags are of entities, not of words alone."""
        return self.config.scheme != "plain"

    def evaluate(self, data: Tagged) -> dict[str, Any]:
        """How good the tags are: what TagScores.summary says. Raises UserError for tags of another kind."""
        validate_types(data=data, wanted=Tagged, reader="textgraft.read_conll")
        return scores(data, self.tag(data.sentences)).summary()


def from_text(text: str) -> Sentence:
    """A text's words, with where they stand in it."""
    spans = split_words(text)
    return Sentence(tuple(text[a:b] for a, b in spans), (), text, tuple(spans))


def scores(data: Tagged, replies: Sequence[Reply]) -> TagScores:
    """Replies beside gold tags, entities of any scheme as IOB2. Raises UserError where one has entities and one not."""
    if replies and replies[0].has_entities == (data.scheme == "plain"):
        kinds = ("entities", "other tags") if replies[0].has_entities else ("other tags", "entities")
        message = f"this model gives {kinds[0]}, and the file has {kinds[1]}."
        raise UserError(message, where=data.source, remedy="Name the column of such tags.")
    scheme: Scheme = "plain" if data.scheme == "plain" else "IOB2"
    gold = [s.tags if scheme == "plain" else converted(s.tags, scheme) for s in data.sentences]
    return score_tags(gold, [converted(r.tags, scheme) for r in replies], scheme)


def tag_predict(model: str | Path, texts: Sequence[str]) -> list[Reply]:
    """The tags that a model's folder gives to the words of texts."""
    return Tagger(model).tag_texts(texts)


def tag_evaluate(model: str | Path, data: Tagged) -> dict[str, Any]:
    """How good a model's folder tags: accuracy, or F1 of entities, with intervals."""
    return Tagger(model).evaluate(data)
