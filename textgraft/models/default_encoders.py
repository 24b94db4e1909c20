"""The default sentence encoder: the best of the catalogue that is on this machine and knows the texts' language."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.models.catalogue import CATALOGUE, KnownModel, in_cache, in_package
from textgraft.models.default_models import CHARACTERS, TEXTS, THAI, default_models_for

SENTENCE_TASK = "embedding"
MAX_PARAMETERS = 150
"""Millions of parameters of an encoder that is chosen by itself: more take minutes for a hundred texts."""
MIN_SHARE = 0.12
"""Share of ENGLISH_WORDS among the words of an English text, which has a fifth or more, telegrams a tenth."""
MIN_WHOLE = 0.4
"""Share of whole words (`whole_words`) of a text that an English encoder knows."""
LONG = 4
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
    ones. Where the language is not known, as of titles without function words, an English encoder is suitable if its
    tokenizer knows the words as a whole, and a warning names those that are left out. Of one that is here and cannot be
    opened, being damaged or incomplete, a warning says so, and the next is taken.
    """
    sample = [text[:CHARACTERS] for text in islice(texts, TEXTS)]
    language, left_out = language_of(sample), []
    for entry in sorted(CATALOGUE, key=lambda entry: (len(entry.languages) > 1, -entry.parameters)):
        if SENTENCE_TASK not in entry.tasks or entry.parameters > MAX_PARAMETERS:
            continue
        if language and language not in entry.languages:
            continue
        encoder = _opened(entry)
        if encoder is None:
            continue
        if language or len(entry.languages) > 1 or whole_words(encoder.tokenizer, sample) >= MIN_WHOLE:
            return entry.name
        left_out.append(entry.name)
    if left_out and sample:
        message = f"the sentence encoder '{left_out[0]}' is here, and not used: the texts do not seem English."
        warnings.warn(f"{message} If they are, name it as the model.", stacklevel=3)
    return None


def whole_words(tokenizer: Any, texts: Iterable[str]) -> float:
    """Share of the words of LONG letters or more that are a single token; 0 where there are no such words.

    Of a vocabulary made from English text that is two thirds or more of English words, titles of products and
    diagnoses among them, and a quarter of German, French, Dutch or Indonesian ones.
    """
    words = [word for text in texts for word in _WORD.findall(text) if len(word) >= LONG]
    marks = len(tokenizer.encode_batch([""])[0])
    return sum(len(ids) == marks + 1 for ids in tokenizer.encode_batch(words)) / max(1, len(words))


def _opened(entry: KnownModel) -> Any:
    """The model if it is here and can be opened, else None; if it is here and cannot be, with a warning."""
    try:
        if in_package(entry) is None and in_cache(entry) is None:
            return None
        return loading.load_network(entry.name)
    except UserError as error:
        message = (
            f"the sentence encoder '{entry.name}' is on this machine, but cannot be opened, and is left out: {error}"
        )
        warnings.warn(message, stacklevel=4)
        return None
