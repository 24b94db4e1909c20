"""The default sentence encoder: the best of the catalogue that is on this machine and knows the texts' language."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from itertools import islice

from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.models.catalogue import CATALOGUE, KnownModel, in_cache, in_package
from textgraft.models.default_models import CHARACTERS, TEXTS, THAI, default_models_for

SENTENCE_TASK = "embedding"
MAX_PARAMETERS = 150
"""Millions of parameters of an encoder that is chosen by itself: more take minutes for a hundred texts."""
MIN_SHARE = 0.12
"""Share of ENGLISH_WORDS among the words of an English text, which has a fifth or more, telegrams a tenth."""
_WORDS = (
    "the of and to a is that it for was with as his on be at by i this had not are but from or have you which were her "
    "all she there would their we him been has when who will more no if out so said what its about than them can my "
    "your how do did does me"
)
ENGLISH_WORDS = frozenset(_WORDS.split())
"""Function words of English that few other languages write alike, and some that they do."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def language_of(texts: Iterable[str]) -> str:
    """ISO 639 code of English or Thai texts; empty for any other language.

    Args:
        texts: Any number; the first of them are examined.

    >>> language_of(["Where is the station?"]), language_of(["Wo ist der Bahnhof?"]), language_of(["สถานีอยู่ที่ไหน"])
    ('en', '', 'th')
    """
    sample = [text[:CHARACTERS] for text in islice(texts, TEXTS)]
    if default_models_for(sample) is THAI:
        return "th"
    words = [word.lower() for text in sample for word in _WORD.findall(text)]
    share = sum(word in ENGLISH_WORDS for word in words) / max(1, len(words))
    return "en" if share >= MIN_SHARE else ""


def default_encoder(texts: Iterable[str]) -> str | None:
    """Name of the sentence encoder to begin with where none is named; None where there is none on this machine.

    Those of the language alone come before those of several, and larger ones, up to MAX_PARAMETERS, before smaller
    ones; where the language is not known, only those of several languages are suitable. Of one that is here and cannot
    be opened, being damaged or incomplete, a warning says so, and the next is taken.
    """
    language = language_of(texts)
    suitable = [entry for entry in CATALOGUE if _suits(entry, language)]
    for entry in sorted(suitable, key=lambda entry: (len(entry.languages) > 1, -entry.parameters)):
        if _opens(entry):
            return entry.name
    return None


def _opens(entry: KnownModel) -> bool:
    """True if the model is here and can be opened; if it is here and cannot be, with a warning."""
    try:
        if in_package(entry) is None and in_cache(entry) is None:
            return False
        loading.load_network(entry.name)
    except UserError as error:
        message = (
            f"the sentence encoder '{entry.name}' is on this machine, but cannot be opened, and is left out: {error}"
        )
        warnings.warn(message, stacklevel=4)
        return False
    return True


def _suits(entry: KnownModel, language: str) -> bool:
    if SENTENCE_TASK not in entry.tasks or entry.parameters > MAX_PARAMETERS:
        return False
    return language in entry.languages if language else len(entry.languages) > 1
