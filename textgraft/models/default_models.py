"""Default language models, by the script of the texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple


class DefaultModels(NamedTuple):
    """The default models for one script: fine-tuned alone (`alone`), or as a candidate of the ensemble (`ensemble`)."""

    alone: str
    ensemble: str


ENGLISH = DefaultModels("en-ulmfit", "en-gpt-small")  # why two: docs/decisions.md
THAI = DefaultModels("th-ulmfit", "th-ulmfit")
_THAI_LETTER = re.compile("[\u0e01-\u0e3a\u0e40-\u0e4e]")
_OTHER_LETTER = re.compile("[^\\W\\d_\u0e01-\u0e4e]")
TEXTS, CHARACTERS = 1_000, 500
"""Number of texts whose script is examined, and of characters in each."""


def default_models_for(texts: Iterable[str]) -> DefaultModels:
    """The default models for the script of most letters of the texts.

    Args:
        texts: Any number; the first TEXTS are examined.

    Returns:
        The bundled models of that script, or the English ones if there are none.
    """
    sample = "".join(text[:CHARACTERS] for text in islice(texts, TEXTS))
    return THAI if len(_THAI_LETTER.findall(sample)) > len(_OTHER_LETTER.findall(sample)) else ENGLISH
