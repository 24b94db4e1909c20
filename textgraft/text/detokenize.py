"""Tokens back to text that people read: the rules of normalize.py, undone as far as they can be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from textgraft.text.normalize import CONTROL, Kind

_MOST_REPEATS = 100
"""A language model may write `xxrep 999999999 a`; nobody wants to read that."""

_MARK = r"\b(?:xxup|xxmaj|xxrep|xxwrep)\b"
# A model may write one mark behind another: the letters of the second are no word for the first.
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
"""What a rule would look for in the words to come."""
_STRAY = re.compile(_MARK)
_CLOSES = re.compile(r" (?=[.,!?;:)\]}%…”’]|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b)")
_OPENS = re.compile(r"([(\[{“‘]) ")


def detokenize(tokens: Iterable[str], kind: Kind) -> str:
    """One string. Case and repetitions return, `xxunk` reads as U+FFFD, `xxbos` and the like are left out.

    What normalising lost stays lost: case within a word (iPhone), kinds of whitespace, and at word level where the
    spaces were (punctuation goes to the side it usually has in English).
    """
    text = _laid_out(tokens, kind)
    for pattern, written in _RULES:
        text = pattern.sub(written, text)
    text = " ".join(_STRAY.sub("", text).split())
    return _OPENS.sub(r"\1", _CLOSES.sub("", text)) if kind == "word" else text


def settled(tokens: Sequence[str], kind: Kind) -> int:
    """How many of the first tokens further ones leave as they read: those before the last word, and what says of it
    that it is repeated.
    """
    at = len(tokens) - 1
    while at > 0 and not (kind == "word" or tokens[at] in CONTROL or tokens[at].startswith("▁")):
        at -= 1
    while at > 0:
        number = at - 1
        while number >= 0 and (tokens[number] == "▁" or tokens[number].removeprefix("▁").isdigit()):
            number -= 1
        if tokens[at - 1] in CONTROL:
            at -= 1  # it says something of what follows, and that is still to come
        elif number >= 0 and tokens[number] in ("xxrep", "xxwrep"):
            at = number
        else:
            break
    return max(0, at)


def parting(tokens: Sequence[str], kind: Kind) -> int:
    """Before which of the settled tokens the text parts: no rule has to do with both sides; 0 for none.

    That is so at a space that no rule's match goes over, whatever follows. A rule begins with its own control word and
    the space stands for the end of one, so it is enough that no rule finds its beginning last, in the text as the rules
    before have left it. Then only punctuation beside that space asks what is on its other side.
    """
    place = settled(tokens, kind)
    text = _laid_out(tokens[:place], kind)
    if not text or (kind != "word" and not _brings_a_space(tokens[place], text)):
        return 0
    for pattern, written in _RULES:
        if _UNFINISHED.search(text):
            return 0
        text = pattern.sub(written, text)
    return place


def _brings_a_space(token: str, text: str) -> bool:
    return token.startswith("▁") or (token in CONTROL[5:] and not _opens(text))


def _laid_out(tokens: Iterable[str], kind: Kind) -> str:
    """The tokens one behind the other, the rules still to be undone."""
    return " ".join(map(_shown, tokens)) if kind == "word" else _joined_pieces(tokens)


def _repeats(match: re.Match[str]) -> int:
    return min(int(match.group(1)), _MOST_REPEATS)


def _shown(token: str) -> str:
    if token == "xxunk":
        return "\ufffd"
    return token if token in CONTROL[5:] or token not in CONTROL else ""


def _joined_pieces(tokens: Iterable[str]) -> str:
    text = ""
    parts: list[str] = []
    for token in tokens:
        shown = _shown(token).replace("▁", " ")
        # A control word swallows the space before it, whether there was one or not.
        if token in CONTROL[5:] and not _opens(text):
            shown = " " + shown
        parts.append(shown)
        text = (text + shown)[-2:]
    return "".join(parts)


def _opens(text: str) -> bool:
    """Whether the next word goes right behind `text`: after a bracket, or a quote that has just been opened."""
    return text[-1:] in tuple("([{“‘-/") or (text[-1:] in tuple("\"'") and text[-2:-1] in ("", " "))
