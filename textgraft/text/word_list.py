"""Tokenizer of the original Transformer-XL: a list of words, which are what white space separates.

Ids are the lines of the list. Every text begins with `<eos>`, which ends a line in the original program's data; an
unknown word is `<unk>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.pretrained import PretrainedTokenizer

END = "<eos>"
UNKNOWN = ("<unk>", "<UNK>")
_REMEDY = "Write the vocabulary of the training, a word per line in the order of ids, with <eos> and <unk>."


def read_word_list(path: Path) -> PretrainedTokenizer:
    """Read a file with a word per line; anything after white space, such as a count, is ignored.

    Raises:
        UserError: The file is missing or not UTF-8, a line has no word, a word occurs twice, or `<eos>` or `<unk>` is
            missing.
    """
    try:
        rows = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(path), remedy=_REMEDY) from error
    ids: dict[str, int] = {}
    for number, row in enumerate(rows):
        word = next(iter(row.split()), "")
        if not word or word in ids:
            message = f"'{word}' is also on line {ids[word] + 1}." if word else "there is no word."
            raise UserError(message, where=f"{path} line {number + 1}", remedy=_REMEDY)
        ids[word] = number
    unknown = next((word for word in UNKNOWN if word in ids), None)
    if unknown is None or END not in ids:
        missing = END if END not in ids else UNKNOWN[0]
        raise UserError(f"this vocabulary lacks {missing}.", where=str(path), remedy=_REMEDY)
    pipeline = Pipeline(models.WordLevel(ids, unk_token=unknown))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pipeline.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in (END, unknown)])
    template: Any = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, ids[END])]
    )
    pipeline.post_processor = template
    return PretrainedTokenizer(pipeline, {"unk": unknown, "eos": END}, where=str(path))
