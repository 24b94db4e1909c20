"""A tagger at work: words or texts in, a tag for each word out, and the entities that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textgraft import opening
from textgraft.artifact import Artifact
from textgraft.data.batch import Batch
from textgraft.data.conll import Sentence, Tagged
from textgraft.data.progress import Meter
from textgraft.data.sequences import budget_batches
from textgraft.data.tags import Scheme, converted, entities
from textgraft.data.words import Coverage, Vectors, WordWindow, word_windows
from textgraft.errors import UserError
from textgraft.heads.tagging import TaggingHead
from textgraft.model import Model
from textgraft.nn.precision import computing_in
from textgraft.text.words import split_words
from textgraft.training.tag_metrics import TagScores, score_tags
from textgraft.words.contextual import WHOLE, carries_state, read_carried, read_words

AT_ONCE, WORDS_AT_ONCE = 256, 8192
"""Sentences that are held in memory together, with what a stack says of their words; of long ones there are fewer."""
MAX_TOKENS = 256


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


def tagging_head(model: Model) -> TaggingHead:
    """The model's head. Raises UserError for a model of another task."""
    if not isinstance(model.head, TaggingHead):
        raise UserError("this model does not tag words.", remedy="Make one with textgraft tag finetune.")
    return model.head


@torch.no_grad()
def word_logits(
    model: Model,
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    precision: str = "auto",
    *,
    vectors: Vectors | None = None,
    carried: int | None = None,
) -> list[np.ndarray]:
    """For each sentence, of so many words, their logits (N, C), float32, put together from its windows.

    With `carried` windows are whole sentences, of which so many tokens are read at a time.
    """

    def answer(batch: Batch) -> Tensor:
        with computing_in(precision, model.device):
            logits: Tensor = model(batch)
            return logits

    piece = tagging_head(model).config.piece
    if carried is not None:
        with computing_in(precision, model.device):
            return read_carried(model.encoder, windows, lengths, pad_id, model.continued, piece=piece, window=carried)
    return read_words(windows, lengths, pad_id, answer, piece=piece, vectors=vectors)


def decoded(model: Model, logits: Sequence[np.ndarray]) -> list[tuple[list[str], list[float]]]:
    """The best legal tags of each sentence (N, C) and their probabilities."""
    head = tagging_head(model)
    tags, found = head.config.tags, {}
    for indices in budget_batches([len(one) for one in logits], tokens=4096, rows=64):
        width = len(logits[indices[0]])
        block = torch.zeros(len(indices), width, len(tags), device=model.device)
        lengths = torch.tensor([len(logits[i]) for i in indices], device=model.device)
        for row, index in enumerate(indices):
            block[row, : len(logits[index])] = torch.from_numpy(logits[index])
        best, sure = head.decode(block, torch.arange(width, device=model.device) < lengths[:, None])
        for row, index in enumerate(indices):
            count = len(logits[index])
            numbers = best[row, :count].tolist()
            found[index] = [tags[i] for i in numbers], sure[row, :count].clamp(0, 1).tolist()
    return [found[i] for i in range(len(logits))]


def stream_tags(
    tagger: Artifact,
    sentences: Iterable[Sentence],
    max_tokens: int = MAX_TOKENS,
    precision: str = "auto",
) -> Iterator[tuple[Reply, Coverage]]:
    """What a tagger says of each sentence, in order, with what of it did not fit.

    Memory holds `AT_ONCE` of them, or `WORDS_AT_ONCE` words: all that a stack says of these is computed together.

    An encoder that hands on its state (contextual.carries_state) reads each sentence whole, `max_tokens` at a time; of
    others' windows each word has the best.
    """
    model, tokenizer = tagger.model, tagger.tokenizer
    has_entities = tagging_head(model).config.scheme != "plain"
    max_tokens = min(max_tokens, model.encoder.max_length or max_tokens)
    carried = max_tokens if carries_state(model.encoder) else None
    was_training = model.training
    stack = None if tagger.stack is None else tagger.stack.reading()
    for part in _parts(sentences):
        words = [s.words for s in part]
        most = max_tokens if carried is None else WHOLE
        windows, coverage = word_windows(tokenizer, words, most, direction=model.encoder.direction)
        vectors = None if stack is None else _looked_up(stack.vectors(words))
        model.eval()
        about: dict[str, Any] = {"vectors": vectors, "carried": carried}
        logits = word_logits(model, windows, list(map(len, part)), tokenizer.pad_id, precision, **about)
        model.train(was_training)
        for sentence, (tags, sure) in zip(part, decoded(model, logits), strict=True):
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


def _looked_up(vectors: Sequence[np.ndarray]) -> Vectors:
    return lambda numbers: [vectors[number] for number in numbers]


def tag_all(
    tagger: Artifact,
    sentences: Sequence[Sentence],
    max_tokens: int = MAX_TOKENS,
    precision: str = "auto",
    *,
    show: bool = False,
) -> tuple[list[Reply], Coverage]:
    """`stream_tags` for sentences that are all in memory."""
    replies, total = [], Coverage()
    with Meter("tagging", len(sentences), shown=show) as meter:
        for reply, coverage in stream_tags(tagger, sentences, max_tokens, precision):
            replies.append(reply)
            total += coverage
            meter.add(len(reply.sentence.text.encode("utf-8", "replace")), len(reply.tags))
    return replies, total


class Tagger:
    """A model fine-tuned to tag words, as a folder holds it. Raises UserError for a model of another task."""

    def __init__(self, model: str | Path | Artifact, *, precision: str = "auto", show: bool = False) -> None:
        self.artifact = model if isinstance(model, Artifact) else opening.load(model)
        if self.artifact.stack is not None:
            self.artifact = replace(self.artifact, stack=self.artifact.stack.computing_in(precision))
        try:
            self.config = tagging_head(self.artifact.model).config
        except UserError as error:
            where = "" if isinstance(model, Artifact) else str(model)
            raise UserError(error.message, where=where, remedy=error.remedy) from None
        self.max_tokens = int(self.artifact.run.get("max_tokens", MAX_TOKENS))
        self.precision, self.show = precision, show

    def stream(self, sentences: Iterable[Sentence]) -> Iterator[tuple[Reply, Coverage]]:
        """What `stream_tags` says, one after the other."""
        return stream_tags(self.artifact, sentences, self.max_tokens, self.precision)

    def tag(self, sentences: Sequence[Sentence | Sequence[str]]) -> list[Reply]:
        """The tags of sentences, which are given as words."""
        read = [s if isinstance(s, Sentence) else Sentence.of(s) for s in sentences]
        return tag_all(self.artifact, read, self.max_tokens, self.precision, show=self.show)[0]

    def tag_texts(self, texts: Sequence[str]) -> list[Reply]:
        """The tags of texts, split into words by text.words; a text without a word has none."""
        sentences = [from_text(text) for text in texts]
        replies = iter(self.tag([s for s in sentences if s.words]))
        return [next(replies) if s.words else Reply(s, (), (), self.has_entities) for s in sentences]

    @property
    def has_entities(self) -> bool:
        """Whether tags are of entities, not of words alone."""
        return self.config.scheme != "plain"

    def evaluate(self, data: Tagged) -> dict[str, Any]:
        """How good the tags are: what TagScores.summary says. Raises UserError for tags of another kind."""
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
