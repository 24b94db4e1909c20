"""Data checks before training: missing labels, leaks between splits, duplicates, encoding damage and more."""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.core.errors import warn_of_data
from textgraft.data.examples import Examples, Label
from textgraft.data.held_out import read_held_out
from textgraft.data.label_cells import SEPARATORS
from textgraft.data.labels import missing_labels
from textgraft.data.problems import SEVERITIES, Problem, Severity, location, problem_in
from textgraft.data.readers import read
from textgraft.data.targets import label_names, target_of
from textgraft.text.visible import invisible_characters, visible

_NAMES_SHOWN = 4
EMPTY = np.uint64(0)
"""Digest of an empty text."""
LEAK_SHARE = 0.01
"""Share of held-out texts that may be in training before it is an error: short ones ("Thank you!") recur by chance."""
TRAINING_PARTS = {"validation": ("training", "unlabelled"), "test": ("training", "validation", "unlabelled")}
"""For each held-out part, the parts used for training or selection that must not contain its texts."""

LIST_SEPARATORS = "|;"
"""Those of them that are rarely part of a name."""
NO_LABEL = frozenset(("n/a", "na", "#n/a", "<na>", "null", "none", "-", "--", "?"))
"""Class names, folded, with which people and programs fill cells that have no label."""

# Characters that result from UTF-8 decoded as Windows-1252 or Latin-1: é -> Ã©, ’ -> â€™, ก -> à¸
_MOJIBAKE = re.compile(
    "[ÂÃ][\u0080-\u00bfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]|â€[\u0080-\u00bfœ™˜¦“”¢]|â\u0080[\u0080-\u00bf]|"
    "à[¸¹¤¦][\u0080-\u00bf]|Ð[\u0080-\u00bf]Ñ|ï»¿|ðŸ"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_HTML = re.compile(
    r"</?(?:br|p|div|span|a|b|i|li|ul|td|tr|img|strong|em|h[1-6])\b[^<>]{0,200}>|&(?:[a-z]{2,8}|#\d{2,6});"
)


def check(
    train: Any,
    *,
    valid: Any = None,
    test: Any = None,
    unlabelled: Any = None,
    count_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None,
    max_tokens: int = 2000,
    max_characters: int = 20_000,
    rare: int = 5,
) -> list[Problem]:
    """Find problems that prevent training on `train`, or make a result on `test` or a selection on `valid` misleading.

    Time grows with the text, memory beside the texts by 50 bytes a text: 100,000 reviews take seconds.

    Args:
        train, valid, test, unlabelled: The parts of the data, anything that `read` accepts.
        count_tokens: Number of tokens of each text; turns on the check against `max_tokens`.
        max_tokens: Tokens beyond which a text is truncated.
        max_characters: Characters beyond which a text is suspiciously long.
        rare: Classes with fewer texts are reported as rare.

    Returns:
        The problems, worst first. "error": training would fail or the result mislead; "warning": probably a mistake;
        "note": worth knowing. Texts that differ in case and white space only count as equal.

    >>> [problem.name for problem in check((["good", "bad", "good"], ["pos", "neg", "pos"]), rare=1)]
    ['duplicate']
    """
    problems: list[Problem] = []
    train = read(train)
    parts = {"training": train}
    parts |= {k: read_held_out(part, train) for k, part in (("validation", valid), ("test", test)) if part is not None}
    if unlabelled is not None:
        parts["unlabelled"] = read(unlabelled)
    for part in parts.values():
        problems += _check_texts(part, max_characters)
        if count_tokens is not None:
            problems += _check_tokens(part, count_tokens, max_tokens)
        problems += _check_ids(part)
    problems += _check_labels(train, rare)
    keys = {name: _folded_digests(part.texts) for name, part in parts.items()}
    for name, part in parts.items():
        problems += _check_duplicates(part, keys[name])
    seen = dict(keys)
    if missing := missing_labels(train):  # they are unlabelled texts
        of_missing = keys["training"][missing]
        seen["training"] = np.delete(keys["training"], missing)
        seen["unlabelled"] = np.concatenate([seen["unlabelled"], of_missing]) if "unlabelled" in seen else of_missing
    for name, held_out in parts.items():
        if name in TRAINING_PARTS:
            problems += _check_held_out_labels(train, held_out)
            for other in (other for other in TRAINING_PARTS[name] if other in seen):
                problems += _check_leak(held_out, name, keys[name], seen=seen[other], where=other)
    return sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity))


def check_and_warn(
    train: Examples,
    *,
    valid: Examples | None = None,
    test: Examples | None = None,
    unlabelled: Sequence[str] | None = None,
) -> list[Problem]:
    """The problems that `check` finds, with a DataWarning for each that is more than a note."""
    pool = Examples(list(unlabelled), source="the unlabelled texts") if unlabelled else None
    problems = check(train, valid=valid, test=test, unlabelled=pool)
    for problem in problems:
        if problem.severity != "note":
            warn_of_data(f"{location(problem)}{problem.message} {problem.remedy}".rstrip())
    return problems


def _check_texts(part: Examples, max_characters: int) -> Iterator[Problem]:
    """Problems of single texts."""
    indices: dict[str, array[int]] = defaultdict(lambda: array("q"))
    invisible: Counter[str] = Counter()
    for index, text in enumerate(part.texts):
        if not text or text.isspace():
            indices["empty"].append(index)
            continue
        if len(text) > max_characters:
            indices["long"].append(index)
        if not text.isascii() and ("\ufffd" in text or _MOJIBAKE.search(text)):
            indices["garbled"].append(index)
        if _CONTROL.search(text):
            indices["control"].append(index)
        if found := invisible_characters(text):
            indices["invisible"].append(index)
            invisible.update(found)
        if _HTML.search(text):
            indices["html"].append(index)
    if not part.texts or len(indices["empty"]) == len(part.texts):
        yield problem_in(
            "error", "no-text", "there is no text at all.", part, remedy="Check that it is the right column."
        )
    elif empty := indices["empty"]:
        remedy = "Take the rows out."
        yield problem_in(
            "warning", "empty-text", f"{formatting.texts(len(empty))} missing or empty.", part, empty, remedy
        )
    if garbled := indices["garbled"]:
        message = f"{formatting.texts(len(garbled))} decoded with the wrong encoding at some time (such as Ã© for é)."
        remedy = "Export the data again as UTF-8, or name its encoding."
        yield problem_in("warning", "mis-decoded", message, part, garbled, remedy)
    if control := indices["control"]:
        message = f"{formatting.texts(len(control))} with NUL bytes or other control characters."
        yield problem_in("warning", "control-characters", message, part, control, "Remove them.")
    if invisible:
        kinds = ", ".join(f"{_name(char)}: {count:,}" for char, count in invisible.most_common(_NAMES_SHOWN))
        more = ", …" if len(invisible) > _NAMES_SHOWN else ""
        message = f"{formatting.texts(len(indices['invisible']))} with invisible characters ({kinds}{more})."
        remedy = "Models take texts without them; remove them for other programs."
        yield problem_in("note", "invisible-characters", message, part, indices["invisible"], remedy)
    if long := indices["long"]:
        longest = max(len(part.texts[i]) for i in long)
        message = f"{formatting.texts(len(long))} of more than {max_characters:,} characters (longest {longest:,})."
        remedy = "Is a line break or a quote missing? Else cut them."
        yield problem_in("warning", "too-long", message, part, long, remedy)
    if html := indices["html"]:
        message = f"{formatting.texts(len(html))} with HTML left over (such as <br /> or &amp;)."
        yield problem_in("note", "html", message, part, html, "Strip it unless it tells classes apart.")


def _name(char: str) -> str:
    """Code point and name of a character, as in U+FEFF zero width no-break space."""
    return f"U+{ord(char):04X} {unicodedata.name(char, '').lower()}".rstrip()


def _check_tokens(
    part: Examples, count_tokens: Callable[[Sequence[str]], Sequence[int]], max_tokens: int
) -> Iterator[Problem]:
    counts = np.fromiter(
        (n for start in range(0, len(part), 1000) for n in count_tokens(part.texts[start : start + 1000])),
        dtype=int,
    )
    over = np.flatnonzero(counts > max_tokens).tolist()
    if over:
        lost = (counts[over] - max_tokens).sum() / counts.sum()
        start = f"{formatting.texts(len(over))} of more than {max_tokens:,} tokens"
        message = f"{start}; {lost:.1%} of all tokens would be cut off."
        yield problem_in("note", "truncated", message, part, over)


def _check_ids(part: Examples) -> Iterator[Problem]:
    if part.ids is None or part.unit == "file":
        return
    if repeated := sorted(i for members in _equal(_digests(part.ids)) for i in members):
        example = part.ids[repeated[0]]
        message = f"{len(repeated):,} rows share their id with another (such as '{example}')."
        remedy = "Give each row its own id, or take out rows that were exported twice."
        yield problem_in("error", "duplicate-id", message, part, repeated, remedy)


def _check_labels(part: Examples, rare: int) -> Iterator[Problem]:
    if part.labels is None:
        remedy = "Name the label column."
        yield problem_in("error", "no-labels", "there are no labels to learn from.", part, remedy=remedy)
        return
    if missing := missing_labels(part):
        message = f"{formatting.texts(len(missing))} without a label, to be used as unlabelled text."
        yield problem_in("warning", "missing-label", message, part, missing, _remedy_of_missing(part))
    gaps = set(missing)
    if not target_of(part).has_classes:
        if len({y for i, y in enumerate(part.labels) if i not in gaps}) < 2:
            yield problem_in("error", "one-class", "all labels are the same number.", part)
        return
    counts = Counter(name for y in part.labels for name in label_names(y))
    constant = all(len(label_names(y)) == len(counts) for i, y in enumerate(part.labels) if i not in gaps)
    if constant:
        remedy = "Add examples of another class."
        yield problem_in("error", "one-class", f"only one class: {formatting.quoted(counts)}.", part, remedy=remedy)
    scarce = sorted(name for name, count in counts.items() if count < rare)
    if scarce and not constant:
        indices = _with_labels(part.labels, scarce)
        message = (
            f"{len(scarce):,} of {len(counts):,} classes have fewer than {rare} texts: {formatting.quoted(scarce)}."
        )
        remedy = "Add examples, or merge them into other classes."
        yield problem_in("warning", "rare-class", message, part, indices, remedy)
    for separator, names in _joined(counts).items() if target_of(part).is_exclusive else ():
        message = f"class names that have others in them, with '{separator}' between: {formatting.quoted(names)}."
        remedy = f"If a text can have several labels, say so: label_separator={separator!r}."
        yield problem_in("warning", "joined-classes", message, part, _with_labels(part.labels, names), remedy)
    if doubtful := sorted(name for name in counts if name.casefold() in NO_LABEL):
        message = f"class names that often stand for a missing label: {formatting.quoted(doubtful)}."
        indices = _with_labels(part.labels, doubtful)
        yield problem_in("note", "no-label-class", message, part, indices, "If they do, leave those cells empty.")
    for group in _alike(counts):
        indices = _with_labels(part.labels, group[1:])
        message = f"class names that differ in case, spaces or hyphens only: {formatting.quoted(group)}."
        yield problem_in("warning", "similar-classes", message, part, indices, "Spell the class in one way.")


def _with_labels(labels: Sequence[Label], names: Sequence[str]) -> list[int]:
    """The positions of the labels that have one of the names."""
    wanted = set(names)
    return [i for i, y in enumerate(labels) if not wanted.isdisjoint(label_names(y))]


def _check_held_out_labels(train: Examples, test: Examples) -> Iterator[Problem]:
    if train.labels is None:
        return
    if test.labels is None:
        yield problem_in("error", "no-labels", "there are no labels to measure against.", test)
        return
    if missing := missing_labels(test):
        message = f"{formatting.texts(len(missing))} without a label, to be left out."
        yield problem_in("warning", "missing-label", message, test, missing, _remedy_of_missing(test))
    if not target_of(train).has_classes:
        return
    training_labels = {name for y in train.labels for name in label_names(y)}
    unseen = [i for i, y in enumerate(test.labels) if not training_labels.issuperset(label_names(y))]
    if unseen:
        every = {name for y in test.labels for name in label_names(y)}
        names = sorted(every - training_labels)
        message = f"{formatting.texts(len(unseen))} with a label that is not in training: {formatting.quoted(names)}."
        near = difflib.get_close_matches(names[0], sorted(training_labels), n=1)
        remedy = f"Did you mean '{near[0]}'? Else correct" if near else "Correct"
        remedy += " the label, or train on it too"
        # Of a hundred classes, a small sample lacks some; where it has none of them, the column is a wrong one.
        severity: Severity = "warning" if every & training_labels else "error"
        remedy += "." if severity == "error" else "; as it is, it counts as a mistake of every model."
        yield problem_in(severity, "unseen-label", message, test, unseen, remedy)


def _check_duplicates(part: Examples, digests: NDArray[np.uint64]) -> Iterator[Problem]:
    """Repeated texts, exact or up to case and white space, and repeated texts with contradicting labels."""
    missing = set(missing_labels(part))
    exact: list[int] = []
    near: list[int] = []
    conflicting: list[int] = []
    for members in _equal(digests):
        if part.labels is not None and len({_label_key(part.labels[i]) for i in members if i not in missing}) > 1:
            conflicting += members
        seen = {part.texts[members[0]]}
        for index in members[1:]:
            text = part.texts[index]
            (exact if text in seen else near).append(index)
            seen.add(text)
    if conflicting:
        message = f"{formatting.texts(len(conflicting))} whose label contradicts that of the same text elsewhere."
        remedy = "Decide on one label a text."
        yield problem_in("warning", "conflicting-labels", message, part, sorted(conflicting), remedy)
    if exact:
        message = f"{formatting.texts(len(exact))} repeated word for word."
        yield problem_in("warning", "duplicate", message, part, sorted(exact), "Take the copies out.")
    if near:
        message = f"{formatting.texts(len(near))} repeated but for case or spaces."
        yield problem_in("note", "near-duplicate", message, part, sorted(near), "Take the copies out.")


def _equal(digests: NDArray[np.uint64]) -> Iterator[list[int]]:
    """The positions of each digest that occurs more than once, in their order; not of empty texts."""
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    bounds = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    for group in np.flatnonzero(np.diff(bounds) > 1):
        start, end = bounds[group], bounds[group + 1]
        if ordered[start] != EMPTY:
            yield order[start:end].tolist()


def _check_leak(
    held_out: Examples, name: str, digests: NDArray[np.uint64], *, seen: NDArray[np.uint64], where: str
) -> Iterator[Problem]:
    """Texts of the held-out part `name` whose digests are in `seen`, those of another part."""
    leaked = np.flatnonzero((digests != EMPTY) & np.isin(digests, seen)).tolist()
    if not leaked:
        return
    severe = where == "training" and len(leaked) > LEAK_SHARE * len(held_out)
    part = f"{formatting.texts(len(leaked))} of the {name} set ({len(leaked) / len(held_out):.1%})"
    message = f"{part} are in the {where} texts too."
    remedy = f"Take them out of the {where} texts, or the result will look better than it is."
    yield problem_in("error" if severe else "warning", f"{name}-leak-{where}", message, held_out, leaked, remedy)


def shared_texts(texts: Sequence[str], others: Sequence[str]) -> NDArray[np.bool_]:
    """Mask of the texts that occur in another collection, ignoring case and white space.

    Args:
        texts: N texts.
        others: The other collection.

    Returns:
        Mask (N,); False for empty texts.

    >>> shared_texts(["A text", "another"], ["a  text"]).tolist()
    [True, False]
    """
    digests = _folded_digests(texts)
    return (digests != EMPTY) & np.isin(digests, _folded_digests(others))


def _folded_digests(texts: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each text (N,), equal for texts that differ in case and white space only; EMPTY for an empty text.

    Of ten million different texts two have the same number with a probability of three in a million.
    """
    return _digests(texts, lambda text: " ".join(visible(text).casefold().split()))


def _digests(texts: Sequence[str], fold: Callable[[str], str] = str) -> NDArray[np.uint64]:
    """A number for each text (N,), equal for equal texts, after `fold`; EMPTY for an empty text."""
    return np.fromiter((_digest(fold(text)) for text in texts), dtype=np.uint64, count=len(texts))


def _digest(text: str) -> int:
    if not text:
        return int(EMPTY)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _remedy_of_missing(part: Examples) -> str:
    if target_of(part).has_sets:
        return "Write [] for a text that has none of the labels; else fill it in, or take the rows out."
    return "Fill it in, or take the rows out."


def _label_key(label: Any) -> Any:
    return frozenset(label) if isinstance(label, tuple) else label


def _joined(counts: Collection[str]) -> dict[str, list[str]]:
    """Class names that are several others with a separator between them, by the separator.

    One that is a class as well is enough where the separator is no part of ordinary names.
    """
    known = set(counts)
    found: dict[str, list[str]] = {}
    for separator in SEPARATORS:
        for name in sorted(name for name in known if separator in name):
            parts = {part.strip() for part in name.split(separator)}
            if parts <= known or (separator in LIST_SEPARATORS and "" not in parts and not parts.isdisjoint(known)):
                found.setdefault(separator, []).append(name)
    return found


def _alike(counts: Counter[str]) -> Iterator[list[str]]:
    """Groups of class names that are equal after folding, the most frequent spelling first."""
    folded: dict[str, list[str]] = defaultdict(list)
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        letters = any(character.isalpha() for character in name)  # else -1 and 1 would be equal
        folded[re.sub(r"[\s_-]+", "", visible(name).casefold()) if letters else name].append(name)
    return (group for group in folded.values() if len(group) > 1)
