"""Which language model of the box is taken where nobody names one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple


class DefaultModels(NamedTuple):
    """The models for one script: what is fine-tuned alone, and what takes part in the blend that `finetune` makes."""

    alone: str
    blended: str


ENGLISH = DefaultModels("en-ulmfit", "en-gpt-small")  # why not one for both: docs/decisions.md
THAI = DefaultModels("th-ulmfit", "th-ulmfit")
_THAI_LETTER = re.compile("[\u0e01-\u0e3a\u0e40-\u0e4e]")
_OTHER_LETTER = re.compile("[^\\W\\d_\u0e01-\u0e4e]")
TEXTS, CHARACTERS = 1_000, 500
"""How many texts are looked at, and how much of each."""


def default_models_for(texts: Iterable[str]) -> DefaultModels:
    """The models for the script in which most letters of the texts are; English ones for what the box has none for."""
    read = "".join(text[:CHARACTERS] for text in islice(texts, TEXTS))
    return THAI if len(_THAI_LETTER.findall(read)) > len(_OTHER_LETTER.findall(read)) else ENGLISH
