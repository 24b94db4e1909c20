"""Tags of words, and the entities that tags such as B-person stand for: IOB1, IOB2 and BIOES, told apart and converted.

IOB1 is Ramshaw & Marcus 1995 (B only where an entity follows one of its type), IOB2 Tjong Kim Sang & Veenstra 1999 (B
wherever one begins), BIOES (also IOBES; BILOU by other letters) marks the last word (E) and single words (S) too. Tags
without such prefixes, parts of speech for example, are "plain".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Scheme = Literal["plain", "IOB1", "IOB2", "BIOES"]
SubwordPooling = Literal["first", "last"]
"""Which of a word's pieces speaks for it."""
TagPredictions = tuple[list[str], list[float]]
"""The tags of a sentence's words, and how sure each is."""
OUTSIDE = "O"
_BILOU = {"L": "E", "U": "S"}
_PREFIXES = frozenset("BIESLU")


class Entity(NamedTuple):
    """Words `first` to `last`, both inside, that are one of a type."""

    type: str
    first: int
    last: int


class Parts(NamedTuple):
    """What a tag says of its place in an entity (O, B, I, E or S), and of what type."""

    place: str
    type: str


def parts(tag: str) -> Parts:
    """`B-person` as B and person; a B alone is of the type with no name."""
    place, _, kind = tag.partition("-")
    return Parts(place, kind)


def _joined(place: str, kind: str) -> str:
    return f"{place}-{kind}" if kind else place


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is O or has one of the schemes' prefixes."""
    place, dash, kind = tag.partition("-")
    return tag == OUTSIDE or (place in _PREFIXES and bool(kind) == bool(dash))


def without_bilou(tag: str) -> str:
    """L and U, for last and unit, by their names in BIOES."""
    place, kind = parts(tag)
    return _joined(_BILOU[place], kind) if place in _BILOU and is_entity_tag(tag) else tag


@dataclass
class TagCounts:
    """Counts from which the scheme of a file follows, one sentence at a time."""

    places: int = 0
    others: int = 0
    closing: int = 0  # words with E or S
    against_iob1: int = 0
    against_iob2: int = 0
    begins: int = 0

    def add(self, tags: Sequence[str]) -> None:
        for before, tag in zip([OUTSIDE, *tags], tags, strict=False):
            if tag == OUTSIDE:
                continue
            self.places += is_entity_tag(tag)
            self.others += not is_entity_tag(tag)
            place = parts(tag).place
            self.closing += place in ("E", "S", "L", "U")
            self.begins += place == "B"
            self.against_iob1 += not is_legal(before, tag, "IOB1")
            self.against_iob2 += not is_legal(before, tag, "IOB2")

    def scheme(self) -> Scheme:
        """The scheme that fits most words: a file with one misprint is still a file of its scheme."""
        if self.others >= max(1, self.places):
            return "plain"
        if self.closing:
            return "BIOES"
        return "IOB1" if self.against_iob1 < self.against_iob2 else "IOB2"


def detect(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of these tags, by the majority of words; of what fits several, IOB2."""
    census = TagCounts()
    for tags in sentences:
        census.add(tags)
    return census.scheme()


def scheme_of_names(tags: Iterable[str]) -> Scheme:
    """The scheme that a set of tags is for, where no sentence tells: IOB1 if some type cannot begin with its own B.

    Of names that IOB1 and IOB2 share, IOB2.
    """
    names = set(tags)
    if not all(map(is_entity_tag, names)) or names <= {OUTSIDE}:
        return "plain"
    places: dict[str, set[str]] = {}
    for place, kind in map(parts, names):
        places.setdefault(kind, set()).add(place)
    if any(used & {"E", "S", "L", "U"} for used in places.values()):
        return "BIOES"
    return "IOB1" if any("I" in used and "B" not in used for used in places.values()) else "IOB2"


def is_legal(before: str, tag: str, scheme: Scheme) -> bool:
    """Whether `tag` may follow `before`; what comes before the first word and after the last is O."""
    if scheme == "plain":
        return True
    (was, was_type), (place, kind) = parts(before), parts(tag)
    if scheme == "BIOES":
        is_open = was in ("B", "I")
        continues = place in ("I", "E")
        return continues == is_open and (not continues or kind == was_type)
    same = was in ("B", "I") and kind == was_type
    if scheme == "IOB1":
        return place != "B" or same
    return place != "I" or same


def illegal(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """Which words have a tag that may not follow the one before; len(tags) where the last may not be the last."""
    return [
        i for i, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])) if not is_legal(before, tag, scheme)
    ]


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of any of the schemes, in order; an illegal tag is read as `conlleval` reads it.

    An entity begins at B and S, behind E and S, and wherever a word is in an entity of another type than the word
    before. On legal tags of a scheme these are the entities that the scheme means.
    """
    found: list[Entity] = []
    before = Parts(OUTSIDE, "")
    for i, tag in enumerate(tags):
        now = parts(tag)
        if now.place != OUTSIDE:
            apart = before.place in (OUTSIDE, "E", "S") or now.place in ("B", "S") or now.type != before.type
            if apart:
                found.append(Entity(now.type, i, i))
            else:
                found[-1] = found[-1]._replace(last=i)
        before = now
    return found


def strict_entities(tags: Sequence[str], scheme: Scheme) -> list[Entity]:
    """The entities that are written as the scheme demands; words with illegal tags are in none (seqeval's strict).

    Of BIOES, one that is not closed by its E is none.
    """
    found: list[Entity] = []
    begun: Entity | None = None
    for i, tag in enumerate(tags):
        place, kind = parts(tag)
        before = tags[i - 1] if i else OUTSIDE
        starts = place in ("B", "S") or (scheme == "IOB1" and place == "I" and is_legal(OUTSIDE, tag, scheme))
        if begun is not None and place in ("I", "E") and kind == begun.type and begun.last == i - 1:
            begun = begun._replace(last=i)
        elif starts and (scheme != "IOB1" or is_legal(before, tag, scheme)):
            if begun is not None and scheme != "BIOES":
                found.append(begun)
            begun = Entity(kind, i, i)
        else:
            if begun is not None and scheme != "BIOES":
                found.append(begun)
            begun = None
        if scheme == "BIOES" and begun is not None and place in ("E", "S"):
            found.append(begun)
            begun = None
    if begun is not None and scheme != "BIOES":
        found.append(begun)
    return found


def tags_of(found: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """The tags of `length` words in which these entities are, which do not overlap."""
    tags = [OUTSIDE] * length
    before: Entity | None = None
    for entity in sorted(found, key=lambda e: e.first):
        kind, first, last = entity
        tags[first : last + 1] = [_joined("I", kind)] * (last + 1 - first)
        touches = before is not None and before.type == kind and before.last == first - 1
        if scheme != "IOB1" or touches:
            tags[first] = _joined("B", kind)
        if scheme == "BIOES":
            tags[last] = _joined("S" if first == last else "E", kind)
        before = entity
    return tags


def converted(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Tags of any of the schemes in another one; plain ones as they are."""
    return list(tags) if scheme == "plain" else tags_of(entities(tags), len(tags), scheme)


def tag_names(sentences: Iterable[Sequence[str]], scheme: Scheme) -> list[str]:
    """The tags to tell apart, in a fixed order: of entities O first and then all that a seen type may need."""
    seen = Counter(tag for tags in sentences for tag in tags)
    if scheme == "plain":
        return sorted(seen)
    places = ("B", "I", "E", "S") if scheme == "BIOES" else ("B", "I")
    types = sorted({parts(tag).type for tag in seen if tag != OUTSIDE})
    return [OUTSIDE, *(_joined(place, kind) for kind in types for place in places)]
