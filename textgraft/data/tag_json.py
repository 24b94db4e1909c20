"""Tagged sentences in the JSON of annotation tools and data sets.

Words with tags (Hugging Face's `tokens` and `ner_tags`), texts with spans of characters (doccano, Prodigy, spaCy's
`Doc.to_json`, Label Studio's short export), spaCy's training data and Label Studio's tasks. Texts are split into words
by `text.words`, unless the file has the offsets of its own tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.annotation_tools import REJECTED, annotation_of, is_task, results_of
from textgraft.data.conll import Sentence
from textgraft.data.json_records import Record
from textgraft.data.tag_spans import Span, SpanAlignment, from_text

WORD_KEYS = ("tokens", "words")
TAG_KEYS = ("ner_tags", "ner", "tags", "labels", "label", "pos_tags", "upos", "chunk_tags")
SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
START_KEYS, END_KEYS = ("start", "start_offset", "start_char"), ("end", "end_offset", "end_char")
LABEL_KEYS = ("label", "labels", "type", "entity_type", "entity_group", "entity")
ANY = "*"
SHAPES_SHOWN = 'Give {"tokens": ["Ann", …], "tags": ["B-PER", …]} or {"text": "Ann …", "spans": [[0, 3, "PER"], …]}.'


@dataclass(frozen=True)
class Fields:
    """Fields of words or text and of tags or spans (None: detected), and the names of numbered tags.

    `names` has the names of each field of tags; those under ANY are for all.
    """

    word: str | None = None
    tag: str | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """A sentence without tags, with its annotation as it is in the file: tags, or spans; neither if it has none.

    `tag_field` is the field of the tags and `others` are fields that may be tags too; `left_out` is the reason for
    which an example is not to be used.
    """

    sentence: Sentence
    tags: Sequence[Any] | None = None
    spans: Sequence[Any] | None = None
    tag_field: str = ""
    others: Sequence[str] = ()
    left_out: str = ""


def examples(records: Iterable[Record], source: str, fields: Fields) -> Iterator[Example]:
    """Examples of records, one at a time; those without a word are skipped.

    Raises:
        UserError: A record is none of `SHAPES`, or lacks a field that was named; with its place.
    """
    for record in records:
        where = f"{source} {record.unit} {record.number}"
        value = _as_object(record.value, where)
        read = next((read for fits, read in SHAPES.values() if fits(value, fields)), None)
        if read is None:
            keys = ", ".join(map(repr, list(value)[:8]))
            raise UserError(f"there are no words and no text ({keys or 'nothing'}).", where=where, remedy=SHAPES_SHOWN)
        for example in read(value, fields, where):
            if example.sentence.words:
                placed = replace(example.sentence, line=record.number, unit=record.unit)
                yield replace(example, sentence=placed)


def _as_object(value: Any, where: str) -> Mapping[str, Any]:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return {"text": value[0], **value[1]}  # spaCy's pairs
    if not isinstance(value, dict):
        message = f"a JSON {type(value).__name__} where an object is expected."
        raise UserError(message, where=where, remedy=SHAPES_SHOWN)
    return value


def _key(value: Mapping[str, Any], name: str | None, names: Sequence[str], fits: Callable[[Any], bool]) -> str | None:
    """The field with this name, or the first of several names whose value fits."""
    if name is not None:
        return name if name in value else None
    return next((key for key in names if key in value and fits(value[key])), None)


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(tag, str | int) for tag in value)


def _is_spans(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_span, value))


def _is_span(item: Any) -> bool:
    if isinstance(item, dict):
        return any(key in item for key in START_KEYS)
    return isinstance(item, list) and len(item) >= 3


def _has_words(value: Mapping[str, Any], fields: Fields) -> bool:
    key = _key(value, fields.word, WORD_KEYS, _is_words)
    return key is not None and _is_words(value[key])


def _words(value: Mapping[str, Any], fields: Fields, where: str) -> Iterator[Example]:
    """Words with their tags, as in Hugging Face's data sets."""
    words = value[str(_key(value, fields.word, WORD_KEYS, _is_words))]
    key = _key(value, fields.tag, TAG_KEYS, _is_tags)
    if fields.tag is not None and key is None:
        raise _no_field(fields.tag, value, where)
    if key is None:
        yield Example(Sentence.of(words))
        return
    if not _is_tags(value[key]):
        raise UserError(f"'{key}' is no list of tags.", where=where, remedy=SHAPES_SHOWN)
    others = [] if fields.tag is not None else [k for k in TAG_KEYS if k != key and _is_tags(value.get(k))]
    yield Example(Sentence.of(words), tags=value[key], tag_field=key, others=others)


def _no_field(name: str, value: Mapping[str, Any], where: str) -> UserError:
    known = ", ".join(map(repr, value))
    return UserError(f"there is no '{name}'.", where=where, remedy=f"Name one of {known}.")


def _text_key(value: Mapping[str, Any], fields: Fields) -> str | None:
    key = _key(value, fields.word, ("text", "content"), lambda text: isinstance(text, str))
    return key if key is not None and isinstance(value[key], str) else None


def _text(value: Mapping[str, Any], fields: Fields, where: str) -> Iterator[Example]:
    """A text with spans, as of doccano, Prodigy, spaCy and Label Studio's short export."""
    key = str(_text_key(value, fields))
    sentence = from_text(value[key])
    tokens = value.get("tokens")
    if isinstance(tokens, list) and tokens and all(map(_has_place, tokens)):
        tokens = _placed_tokens(value[key], tokens, where)
        places = tuple((t["start"], t["end"]) for t in tokens)
        sentence = Sentence(tuple(value[key][a:b] for a, b in places), (), value[key], places)
        if fields.tag is not None and fields.tag not in value and any(fields.tag in t for t in tokens):
            yield Example(sentence, tags=[t.get(fields.tag) for t in tokens], tag_field=fields.tag)
            return
    spans_key = _key(value, fields.tag, SPAN_KEYS, _is_spans)
    if spans_key is None and fields.tag is None:  # Label Studio names the field as its user named the labels
        spans_key = next((k for k, v in value.items() if k not in (key, "tokens") and v and _is_spans(v)), None)
    reason = "not accepted by the annotator" if value.get("answer") in REJECTED else ""
    spans = None if spans_key is None else value[spans_key]
    if not isinstance(spans, list | None):
        raise UserError(f"'{spans_key}' is no list of spans.", where=where, remedy=SHAPES_SHOWN)
    yield Example(sentence, spans=spans, left_out=reason)


def _has_place(token: Any) -> bool:
    return isinstance(token, dict) and {"start", "end"} <= token.keys()


def _placed_tokens(text: str, tokens: Sequence[Mapping[str, Any]], where: str) -> list[Mapping[str, Any]]:
    """The file's own tokens without those that are white space. Raises UserError for one that is not in the text."""
    for token in tokens:
        a, b = token["start"], token["end"]
        if not (isinstance(a, int) and isinstance(b, int) and 0 <= a <= b <= len(text)):
            raise UserError("a token is not in the text.", where=where, remedy="Correct its start and end.")
    return [token for token in tokens if text[token["start"] : token["end"]].strip()]


def _spacy_training(value: Mapping[str, Any], fields: Fields, where: str) -> Iterator[Example]:
    """A document of spaCy's JSON training data: tokens with `orth` and `ner` in the sentences of paragraphs."""
    try:
        sentences = [s["tokens"] for p in value["paragraphs"] for s in p["sentences"]]
        for tokens in sentences:
            key = fields.tag or ("ner" if "ner" in tokens[0] else "tag")
            tags = [token[key] for token in tokens] if key in tokens[0] else None
            yield Example(Sentence.of([token["orth"] for token in tokens]), tags=tags)
    except (KeyError, TypeError, IndexError) as error:
        remedy = "Write each sentence's tokens with 'orth' and 'ner', or the texts with their entities."
        raise UserError(f"not spaCy's training data (there is no {error}).", where=where, remedy=remedy) from error


def _label_studio(value: Mapping[str, Any], fields: Fields, where: str) -> Iterator[Example]:
    """A task of Label Studio with its annotations, of which the first that was not cancelled is read."""
    data = value["data"]
    texts = [name for name, content in data.items() if isinstance(content, str)]
    name = fields.word or ("text" if "text" in texts else (texts[0] if len(texts) == 1 else None))
    if name not in texts:
        message = f"there is no single text in 'data' ({', '.join(map(repr, texts)) or 'nothing'})."
        raise UserError(message, where=where, remedy="Name its field with word=….")
    sentence = from_text(data[name])
    _validate_objects(value.get("annotations") or value.get("completions"), "annotations", where)
    annotation = annotation_of(value)
    if annotation is None:
        yield Example(sentence, left_out="not annotated")
        return
    _validate_objects(annotation.get("result"), "result", where)
    results = [one["value"] for one in results_of(annotation)]
    spans = [value for value in results if isinstance(value.get("labels"), list)]
    yield Example(sentence, spans=spans if spans or not results else None)


def _validate_objects(values: Any, name: str, where: str) -> None:
    """Raise UserError for anything but a list of objects, or nothing."""
    if values and not (isinstance(values, list) and all(isinstance(value, dict) for value in values)):
        raise UserError(f"'{name}' is no list of objects.", where=where, remedy=SHAPES_SHOWN)


SHAPES: Mapping[str, tuple[Callable[[Mapping[str, Any], Fields], bool], Callable[..., Iterator[Example]]]] = {
    "words": (_has_words, _words),
    "Label Studio": (lambda value, _: is_task(value), _label_studio),
    "spaCy's training data": (lambda v, _: "paragraphs" in v, _spacy_training),
    "text": (lambda v, fields: _text_key(v, fields) is not None, _text),
}
"""Test and reader of each shape of a record, in the order in which they are tried."""


@dataclass
class JsonTags:
    """Conversion of examples to tagged sentences, with counts of those that are left out."""

    source: str
    fields: Fields
    alignment: SpanAlignment
    skipped: dict[str, list[str]] = field(default_factory=dict)  # places by reason

    def read(self, found: Iterable[Example]) -> tuple[Sentence, ...]:
        """Tagged sentences. Warns of examples that are left out, or without spans.

        Raises:
            UserError: No example has tags or spans, or those of one cannot be used; with its place.
        """
        sentences, bare, others = [], [], ""
        for example in found:
            where = f"{self.source} {example.sentence.where(0)}"
            if example.others and not others:
                others = f"'{example.tag_field}', and not from {', '.join(map(repr, example.others))}"
            if example.left_out:
                self.skipped.setdefault(example.left_out, []).append(where)
                continue
            if example.tags is None and example.spans is None:
                bare.append(where)
            sentences.append(replace(example.sentence, tags=tuple(self._tags(example, where))))
        if bare and len(bare) == len(sentences):
            named = self.fields.tag
            message = "there are words or a text, and neither tags nor spans." if named is None else f"no '{named}'."
            remedy = f"{SHAPES_SHOWN} Labels of whole texts are for textgraft finetune."
            raise UserError(message, where=bare[0], remedy=remedy)
        if bare:
            message = f"{len(bare):,} of {len(sentences):,} texts have no field of spans and count as without entities"
            warnings.warn(f"{message}; the first: {bare[0]}", stacklevel=4)
        if others:
            warnings.warn(f"{self.source}: the tags are read from {others}. Name another with tag=….", stacklevel=4)
        for reason, places in self.skipped.items():
            warnings.warn(f"{len(places):,} examples are left out: {reason}; the first: {places[0]}", stacklevel=4)
        self.alignment.finish()
        return tuple(sentences)

    def _tags(self, example: Example, where: str) -> Sequence[str]:
        if example.tags is not None:
            return [self._tag_name(tag, example.tag_field, where) for tag in example.tags]
        spans = [span for item in example.spans or () for span in _spans(item, where)]
        return self.alignment.tags(example.sentence, spans)

    def _tag_name(self, tag: Any, tag_field: str, where: str) -> str:
        if isinstance(tag, str):
            return tag
        names = self.fields.names.get(ANY) or self.fields.names.get(tag_field) or ()
        if not isinstance(tag, int) or isinstance(tag, bool):
            raise UserError(f"{tag!r} is no tag.", where=where, remedy="Write a string for each word.")
        if not names:
            remedy = "Name them in the order of the numbers, as the data set does, with tag_names=… (O, B-PER, …)."
            raise UserError(f"tags are numbers ({tag}), whose names are not in this file.", where=where, remedy=remedy)
        if not 0 <= tag < len(names):
            message = f"there is no name for the tag {tag}, but {len(names)} names."
            raise UserError(message, where=where, remedy="Name all tags, in the order of their numbers.")
        return names[tag]


def _spans(item: Any, where: str) -> Iterator[Span]:
    """The spans of one item of a list, several if it has several labels."""
    text = None
    if isinstance(item, list) and len(item) >= 3:
        start, end, labels = item[:3]
    elif isinstance(item, dict):
        start, end, labels = (_first(item, keys) for keys in (START_KEYS, END_KEYS, LABEL_KEYS))
        text = item.get("text") if isinstance(item.get("text"), str) else None
    else:
        start = end = labels = None
    named = labels if isinstance(labels, list) else [labels]
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (start, end))
    if not whole or not named or not all(isinstance(label, str) and label for label in named):
        remedy = 'Write [start, end, "label"] or {"start": …, "end": …, "label": "…"}, counted in characters.'
        raise UserError(f"{str(item)[:80]} is no span with a label.", where=where, remedy=remedy)
    yield from (Span(int(str(start)), int(str(end)), label, where, text) for label in named)


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((item[key] for key in keys if item.get(key) is not None), None)
