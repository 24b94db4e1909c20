"""Errors of the tokenizers library, which has none of its own, as UserError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.text.tokenizer import Tokenizer

RESTORE = "Restore it from where it came."
SPECIAL_IDS = ("pad_id", "unk_id", "bos_id", "eos_id", "cls_id", "sep_id", "mask_id")
TRIAL = "a é 1"
"""A text that every tokenizer can read."""


@contextmanager
def as_user_errors(where: str, remedy: str = RESTORE) -> Iterator[None]:
    """Convert every error inside to a UserError, panics of the library too."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"this tokenizer is damaged ({error}).", where=where, remedy=remedy) from error


def try_out(tokenizer: Tokenizer) -> None:
    """Encode a short text, since a damaged file may be found out only then. Raises what the library does, or
    ValueError for ids without a token.
    """
    added = tokenizer.added_ids
    if None in tokenizer.tokens or (added and max(added) >= tokenizer.vocab_size):
        raise ValueError("the ids of the tokens are not 0, 1, 2, …")
    tokenizer.encode(TRIAL)
    ids = [getattr(tokenizer, name, None) for name in SPECIAL_IDS]
    (body,) = tokenizer.encode_batch([TRIAL])
    ids += [*body] if body.ndim == 1 else []  # of two dimensions where words are encoded by their characters
    if any(isinstance(i, int | np.integer) and not 0 <= i < tokenizer.vocab_size for i in ids):
        raise ValueError("a token has an id outside of the vocabulary")
