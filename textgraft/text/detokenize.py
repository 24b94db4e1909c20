"""Detokenization: the rules of text.normalize, inverted as far as possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from textgraft.text.normalize import CONTROL, Kind

_MAX_REPEATS = 100
"""Limit on repetitions: a language model may generate `xxrep 999999999 a`."""

_MARK = r"\b(?:xxup|xxmaj|xxrep|xxwrep)\b"
# A model may generate one control word after another: the second is not a word that the first applies to.
_UPPER = re.compile(rf"xxup (?!{_MARK})([^\W\d_]+)")
_CAPITAL = re.compile(rf"xxmaj (?!{_MARK})([^\W\d_])")
_REPEATED = re.compile(rf"xxrep (\d{{1,9}}) (?!{_MARK})(\S)")
_REPEATED_WORD = re.compile(r"xxwrep (\d{1,9}) (\w+)")
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_UPPER, lambda match: match.group(1).upper()),
    (_CAPITAL, lambda match: match.group(1).title()),
    (_REPEATED, lambda match: match.group(2) * _repeats(match)),
    (_REPEATED_WORD, lambda match: " ".join([match.group(2)] * _repeats(match))),
)
_UNFINISHED = re.compile(r"xx(?:up|maj|w?rep(?: \d{1,9})?)\Z")
"""A rule whose match may continue in the next words."""
_STRAY = re.compile(_MARK)
_CLOSES = re.compile(r" (?=[.,!?;:)\]}%…”’]|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b)")
_OPENS = re.compile(r"([(\[{“‘]) ")


def detokenize(tokens: Iterable[str], kind: Kind) -> str:
    """Join tokens into text: case and repetitions are restored, `xxunk` becomes U+FFFD, `xxbos` and the like are
    dropped.

    Information lost by normalisation stays lost: case within a word (iPhone), kinds of white space and, for word-level
    tokens, the position of spaces (punctuation is attached as usual in English).

    >>> detokenize(["xxbos", "xxmaj", "the", "xxup", "usa", "!"], "word")
    'The USA!'
    """
    text = _concatenated(tokens, kind)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = " ".join(_STRAY.sub("", text).split())
    return _OPENS.sub(r"\1", _CLOSES.sub("", text)) if kind == "word" else text


def settled(tokens: Sequence[str], kind: Kind) -> int:
    """Number of leading tokens whose text no further token changes: those before the last word and its repetition
    marks.
    """
    count = len(tokens) - 1
    while count > 0 and not (kind == "word" or tokens[count] in CONTROL or tokens[count].startswith("▁")):
        count -= 1
    while count > 0:
        number = count - 1
        while number >= 0 and (tokens[number] == "▁" or tokens[number].removeprefix("▁").isdigit()):
            number -= 1
        if tokens[count - 1] in CONTROL:
            count -= 1  # it modifies the next word, which is not complete
        elif number >= 0 and tokens[number] in ("xxrep", "xxwrep"):
            count = number
        else:
            break
    return max(0, count)


def parting(tokens: Sequence[str], kind: Kind) -> int:
    """Index of a settled token at which the text can be divided, so that no rule spans both parts; 0 for none.

    This holds at a space that no rule's match can span. A rule begins with its control word and a space ends it, so it
    is enough that no rule's beginning is the last part of the text as left by the rules before. Then only punctuation
    beside the space depends on its other side.
    """
    position = settled(tokens, kind)
    text = _concatenated(tokens[:position], kind)
    if not text or (kind != "word" and not _starts_with_space(tokens[position], text)):
        return 0
    for pattern, replacement in _RULES:
        if _UNFINISHED.search(text):
            return 0
        text = pattern.sub(replacement, text)
    return position


def _starts_with_space(token: str, text: str) -> bool:
    return token.startswith("▁") or (token in CONTROL[5:] and not _opens(text))


def _concatenated(tokens: Iterable[str], kind: Kind) -> str:
    """The tokens one after another, before the rules are inverted."""
    return " ".join(map(_printed, tokens)) if kind == "word" else _joined_pieces(tokens)


def _repeats(match: re.Match[str]) -> int:
    return min(int(match.group(1)), _MAX_REPEATS)


def _printed(token: str) -> str:
    if token == "xxunk":
        return "\ufffd"
    return token if token in CONTROL[5:] or token not in CONTROL else ""


def _joined_pieces(tokens: Iterable[str]) -> str:
    text = ""
    parts: list[str] = []
    for token in tokens:
        printed = _printed(token).replace("▁", " ")
        # A control word absorbs the space before it, if there was one.
        if token in CONTROL[5:] and not _opens(text):
            printed = " " + printed
        parts.append(printed)
        text = (text + printed)[-2:]
    return "".join(parts)


def _opens(text: str) -> bool:
    """True if the next word follows without a space: after a bracket, or after an opening quote."""
    return text[-1:] in tuple("([{“‘-/") or (text[-1:] in tuple("\"'") and text[-2:-1] in ("", " "))
