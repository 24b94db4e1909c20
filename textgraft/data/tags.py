"""Tagging schemes (IOB1, IOB2, BIOES, plain): detection, conversion, and the entities that tags describe.

IOB1 is Ramshaw & Marcus 1995 (B only where an entity follows another of its type), IOB2 Tjong Kim Sang & Veenstra 1999
(B at the beginning of every entity); BIOES (also IOBES, or BILOU with other letters) also marks the last word (E) and
single words (S). Tags without such prefixes, such as parts of speech, are "plain".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Scheme = Literal["plain", "IOB1", "IOB2", "BIOES"]
SubwordPooling = Literal["first", "last"]
"""The subword whose vector represents a word."""
TagPredictions = tuple[list[str], list[float]]
"""Predicted tags of a sentence's words and their probabilities."""
OUTSIDE = "O"
_BILOU = {"L": "E", "U": "S"}
_PREFIXES = frozenset("BIESLU")


class Entity(NamedTuple):
    """An entity of one type, from word `first` to word `last`, inclusive."""

    type: str
    first: int
    last: int


class Parts(NamedTuple):
    """Prefix (O, B, I, E or S) and entity type of a tag."""

    prefix: str
    type: str


def split_tag(tag: str) -> Parts:
    """Split `B-person` into B and person; B alone has an empty type.

    >>> split_tag("B-person")
    Parts(prefix='B', type='person')
    """
    prefix, _, kind = tag.partition("-")
    return Parts(prefix, kind)


def _joined(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def is_entity_tag(tag: str) -> bool:
    """True for O and for tags with a prefix of one of the schemes."""
    prefix, dash, kind = tag.partition("-")
    return tag == OUTSIDE or (prefix in _PREFIXES and bool(kind) == bool(dash))


def without_bilou(tag: str) -> str:
    """BILOU's L and U as BIOES's E and S; other tags unchanged."""
    prefix, kind = split_tag(tag)
    return _joined(_BILOU[prefix], kind) if prefix in _BILOU and is_entity_tag(tag) else tag


@dataclass
class TagCounts:
    """Counts that determine the scheme of a file, updated sentence by sentence."""

    entity_tags: int = 0
    other_tags: int = 0
    closing_tags: int = 0  # words with E or S
    against_iob1: int = 0
    against_iob2: int = 0
    begins: int = 0

    def add(self, tags: Sequence[str]) -> None:
        """Count the tags of one sentence."""
        for previous, tag in zip([OUTSIDE, *tags], tags, strict=False):
            if tag == OUTSIDE:
                continue
            self.entity_tags += is_entity_tag(tag)
            self.other_tags += not is_entity_tag(tag)
            prefix = split_tag(tag).prefix
            self.closing_tags += prefix in ("E", "S", "L", "U")
            self.begins += prefix == "B"
            self.against_iob1 += not is_legal(previous, tag, "IOB1")
            self.against_iob2 += not is_legal(previous, tag, "IOB2")

    def scheme(self) -> Scheme:
        """The scheme that fits most words; a single misprint does not change it."""
        if self.other_tags >= max(1, self.entity_tags):
            return "plain"
        if self.closing_tags:
            return "BIOES"
        return "IOB1" if self.against_iob1 < self.against_iob2 else "IOB2"


def detect(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of these tags, by majority of words; IOB2 if several fit."""
    census = TagCounts()
    for tags in sentences:
        census.add(tags)
    return census.scheme()


def scheme_of_names(tags: Iterable[str]) -> Scheme:
    """The scheme of a tag set without sentences: IOB1 if some type has I but no B.

    IOB2 if the names fit both.
    """
    names = set(tags)
    if not all(map(is_entity_tag, names)) or names <= {OUTSIDE}:
        return "plain"
    prefixes: dict[str, set[str]] = {}
    for prefix, kind in map(split_tag, names):
        prefixes.setdefault(kind, set()).add(prefix)
    if any(used_prefixes & {"E", "S", "L", "U"} for used_prefixes in prefixes.values()):
        return "BIOES"
    return (
        "IOB1"
        if any("I" in used_prefixes and "B" not in used_prefixes for used_prefixes in prefixes.values())
        else "IOB2"
    )


def is_legal(previous: str, tag: str, scheme: Scheme) -> bool:
    """True if `tag` may follow `previous`; the tag before the first word and after the last is O."""
    if scheme == "plain":
        return True
    (previous_prefix, previous_type), (prefix, kind) = split_tag(previous), split_tag(tag)
    if scheme == "BIOES":
        is_open = previous_prefix in ("B", "I")
        continues = prefix in ("I", "E")
        return continues == is_open and (not continues or kind == previous_type)
    continues_type = previous_prefix in ("B", "I") and kind == previous_type
    if scheme == "IOB1":
        return prefix != "B" or continues_type
    return prefix != "I" or continues_type


def illegal_positions(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """Indices of words whose tag may not follow the previous one; len(tags) if the last tag may not be last."""
    return [
        i
        for i, (previous, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE]))
        if not is_legal(previous, tag, scheme)
    ]


def entities(tags: Sequence[str]) -> list[Entity]:
    """Entities of any scheme, in order; illegal tags are interpreted as by `conlleval`.

    An entity begins at B and S, after E and S, and at any word inside an entity whose type differs from the previous
    word's. For legal tags these are the entities of the scheme.

    >>> entities(["B-per", "I-per", "O", "B-loc"])
    [Entity(type='per', first=0, last=1), Entity(type='loc', first=3, last=3)]
    """
    entities_found: list[Entity] = []
    previous = Parts(OUTSIDE, "")
    for i, tag in enumerate(tags):
        current = split_tag(tag)
        if current.prefix != OUTSIDE:
            begins = (
                previous.prefix in (OUTSIDE, "E", "S") or current.prefix in ("B", "S") or current.type != previous.type
            )
            if begins:
                entities_found.append(Entity(current.type, i, i))
            else:
                entities_found[-1] = entities_found[-1]._replace(last=i)
        previous = current
    return entities_found


def strict_entities(tags: Sequence[str], scheme: Scheme) -> list[Entity]:
    """Entities written exactly as the scheme demands; words with illegal tags belong to none (seqeval's strict mode).

    A BIOES entity without its E does not count.
    """
    entities_found: list[Entity] = []
    open_entity: Entity | None = None
    for i, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        previous = tags[i - 1] if i else OUTSIDE
        starts = prefix in ("B", "S") or (scheme == "IOB1" and prefix == "I" and is_legal(OUTSIDE, tag, scheme))
        if open_entity is not None and prefix in ("I", "E") and kind == open_entity.type and open_entity.last == i - 1:
            open_entity = open_entity._replace(last=i)
        elif starts and (scheme != "IOB1" or is_legal(previous, tag, scheme)):
            if open_entity is not None and scheme != "BIOES":
                entities_found.append(open_entity)
            open_entity = Entity(kind, i, i)
        else:
            if open_entity is not None and scheme != "BIOES":
                entities_found.append(open_entity)
            open_entity = None
        if scheme == "BIOES" and open_entity is not None and prefix in ("E", "S"):
            entities_found.append(open_entity)
            open_entity = None
    if open_entity is not None and scheme != "BIOES":
        entities_found.append(open_entity)
    return entities_found


def tags_of(entities: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """Tags of `length` words with these entities, which must not overlap."""
    tags = [OUTSIDE] * length
    previous: Entity | None = None
    for entity in sorted(entities, key=lambda e: e.first):
        kind, first, last = entity
        tags[first : last + 1] = [_joined("I", kind)] * (last + 1 - first)
        touches = previous is not None and previous.type == kind and previous.last == first - 1
        if scheme != "IOB1" or touches:
            tags[first] = _joined("B", kind)
        if scheme == "BIOES":
            tags[last] = _joined("S" if first == last else "E", kind)
        previous = entity
    return tags


def converted(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Tags of any entity scheme converted to another; plain tags unchanged.

    >>> converted(["I-per", "I-per", "O"], "BIOES")
    ['B-per', 'E-per', 'O']
    """
    return list(tags) if scheme == "plain" else tags_of(entities(tags), len(tags), scheme)


def tag_names(sentences: Iterable[Sequence[str]], scheme: Scheme) -> list[str]:
    """The tag set in a fixed order; for entities O first, then all tags that a seen type may need."""
    seen = Counter(tag for tags in sentences for tag in tags)
    if scheme == "plain":
        return sorted(seen)
    prefixes = ("B", "I", "E", "S") if scheme == "BIOES" else ("B", "I")
    types = sorted({split_tag(tag).type for tag in seen if tag != OUTSIDE})
    return [OUTSIDE, *(_joined(prefix, kind) for kind in types for prefix in prefixes)]
