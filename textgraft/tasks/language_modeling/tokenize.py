"""Tokenization of general text before pretraining, once for several models, or for a machine without the text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write
from textgraft.data.streams.parallel_encoding import validate_processes
from textgraft.models import model_folder
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
from textgraft.tasks.language_modeling.pretraining_text import (
    Paths,
    PretrainingText,
    load_or_train_tokenizer,
    pretraining_text,
    tokenizer_file,
)
from textgraft.tasks.language_modeling.streamed_text import ListedText, StreamedText
from textgraft.tasks.language_modeling.token_shards import TokenFolder
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.driver import work_folder
from textgraft.training.run_lock import exclusive

WORK_FILES = ("plan.json", "characters.json")
"""Files that are needed during tokenization only."""


@exclusive
def tokenize(
    sources: Paths | Mapping[str, Paths] | StreamedText,
    out: Path | str,
    *,
    recipe: str = "en-ulmfit",
    valid: Paths | Mapping[str, Paths] | None = None,
    tokenizer: Path | str | None = None,
    processes: int = 0,
    show: bool = True,
) -> Path:
    """Tokenize general text into a folder that `pretrain` takes as its source.

    Any number of models can be pretrained on such a folder, by any recipe whose networks take such tokens, and on a
    machine without the text: shards of 16.8 M tokens, two bytes a token (four from a vocabulary of 65,536 on), with
    checksums. After a kill the same call resumes after the last shard.

    Args:
        sources: As in `pretrain`; a StreamedText of one source is read once, and not copied to disk.
        out: The new folder.
        recipe: Its tokenizer, `tokenizer_every` and `smoothing` are used.
        valid: As in `pretrain`.
        tokenizer: A tokenizer.json, or a folder with one, in place of a new tokenizer.
        processes: Number of processes that tokenize; 0: this one, with the threads of the tokenizer's library, or as
            the StreamedText says.
        show: Show progress on stderr.

    Returns:
        The folder.

    Raises:
        UserError: `out` exists or cannot be written, or as `pretrain` for sources and recipes.
    """
    out = Path(out)
    model_folder.validate_new_path(out, overwrite=None)
    validate_processes(processes)
    plan = load_pretrain_recipe(recipe)
    text = _text(sources, valid, plan.smoothing, processes)
    if isinstance(text, TokenFolder):
        raise UserError(
            "this is a folder of tokens already.", where=str(text.folder), remedy="Pass it to textgraft pretrain."
        )
    fingerprint = None if tokenizer is None else Tokenizer.load(tokenizer_file(tokenizer)).fingerprint
    settings = {"every": plan.tokenizer_every, **plan.tokenizer} if fingerprint is None else {"given": fingerprint}
    folder = work_folder(out, {"stage": "tokenize", **text.identity(), "tokenizer": settings})
    new_tokenizer = load_or_train_tokenizer(text, tokenizer, plan.tokenizer_every, plan.tokenizer, folder)
    if isinstance(text, ListedText):
        text.write(new_tokenizer, folder, show=show)
    else:  # the corpora are not kept: some systems cannot rename a mapped file's folder
        text.corpora(new_tokenizer, folder, seed=0, show=show)
    TokenFolder.write(folder, new_tokenizer, text.names(), text.languages)
    try:
        folder.rename(out)
    except OSError as error:
        raise cannot_write(out, error) from error
    for name in WORK_FILES:
        with suppress(OSError):
            (out / name).unlink()
    return out


def _text(
    sources: Paths | Mapping[str, Paths] | StreamedText,
    valid: Paths | Mapping[str, Paths] | None,
    smoothing: float,
    processes: int,
) -> PretrainingText:
    if not isinstance(sources, StreamedText):
        return pretraining_text(sources, valid, smoothing, processes)
    reading = replace(sources, processes=processes or sources.processes)
    return reading.listed(valid, tokens=None, seed=0)


def token_counts(folder: Path | str) -> dict[str, Any]:
    """Numbers of documents, tokens, words and characters of a folder of tokens, by corpus (train, valid)."""
    return TokenFolder(Path(folder), 1.0).counts()
