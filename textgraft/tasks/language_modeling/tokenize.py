"""Before stage one: text made into tokens, once, for several models or for a machine that the text does not lie on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write
from textgraft.models import model_folder
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
from textgraft.tasks.language_modeling.pretraining_text import Paths, load_or_train_tokenizer, pretraining_text
from textgraft.tasks.language_modeling.token_shards import TokenFolder
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.driver import locked, work_folder

SCAFFOLDING = ("plan.json", "characters.json")
"""What a build needs in its folder, and a reader does not."""


def tokenize(
    sources: Paths | Mapping[str, Paths],
    out: Path | str,
    *,
    recipe: str = "en-ulmfit",
    valid: Paths | Mapping[str, Paths] | None = None,
    tokenizer: Path | str | None = None,
    show: bool = True,
) -> Path:
    """Make general text into the folder of tokens that `pretrain` takes in its place, and give that folder back.

    `sources` and `valid` are as in `pretrain`; of the recipe only its tokenizer, `tokenizer_every` and `smoothing`
    matter, and its tokenizer not where a `tokenizer` is given. Many models can be pretrained on one such folder, by
    any recipe whose networks read such tokens. It can be copied, and read on a machine where the text is not: shards
    of 16.8 M tokens, two bytes a token (four from a vocabulary of 65,536 on), with checksums. Killed, the same call
    goes on after the last shard.

    Raises UserError if `out` exists or cannot be written, and as `pretrain` does for sources and recipes.
    """
    out = Path(out)
    model_folder.validate_new_path(out, overwrite=None)
    plan = load_pretrain_recipe(recipe)
    text = pretraining_text(sources, valid, plan.smoothing)
    if isinstance(text, TokenFolder):
        raise UserError("these are tokens already.", where=str(text.folder), remedy="Give them to textgraft pretrain.")
    given = None if tokenizer is None else Tokenizer.load(tokenizer).fingerprint
    settings = {"every": plan.tokenizer_every, **plan.tokenizer} if given is None else {"given": given}
    folder = work_folder(out, {"stage": "tokenize", **text.identity(), "tokenizer": settings})
    with locked(folder):
        made = load_or_train_tokenizer(text, tokenizer, plan.tokenizer_every, plan.tokenizer, folder)
        text.corpora(made, folder, seed=0, show=show)  # not kept: some systems rename no folder with a mapped file
        TokenFolder.write(folder, made, text.names(), text.languages)
    try:
        folder.rename(out)
    except OSError as error:
        raise cannot_write(out, error) from error
    for name in SCAFFOLDING:
        with suppress(OSError):
            (out / name).unlink()
    return out


def token_counts(folder: Path | str) -> dict[str, Any]:
    """How many texts, tokens, words and characters a folder of tokens holds, by corpus (train, valid)."""
    return TokenFolder(Path(folder), 1.0).counts()
