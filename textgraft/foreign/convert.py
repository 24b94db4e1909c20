"""`textgraft.convert`: a model from another program's format into ours, or from ours into another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from textgraft import artifact
from textgraft.artifact import Artifact
from textgraft.ensemble import load_one
from textgraft.errors import UserError, did_you_mean
from textgraft.foreign import elmo, huggingface
from textgraft.text.wordpiece import WordPieceTokenizer

Format = Literal["textgraft", "huggingface", "elmo"]


def convert(
    model: str | Path, out: Path | str, *, to: Format = "textgraft", half: bool = False, overwrite: bool = False
) -> Path:
    """Write `model` as a folder in another format and return it.

    `model` is anything that can be loaded: one that ships, a folder of ours, `hf:FOLDER`, `hf:NAME`, `tf:FOLDER`
    or `elmo:FOLDER` (hub.py). "textgraft" is an artifact, its weights float16 with `half`; "huggingface" a folder that
    the transformers library opens, tokenizer and all; "elmo" options.json and weights.hdf5, which AllenNLP opens and
    which have no place for a vocabulary. Raises UserError for what the other format has no place for, and if `out`
    exists.
    """
    if to not in get_args(Format):
        raise UserError(f"unknown format '{to}'.", remedy=did_you_mean(str(to), get_args(Format)))
    artifact.refuse_existing(Path(out), overwrite)
    source = load_one(model)
    if to == "textgraft":
        return artifact.save(source, out, half=half, overwrite=overwrite)
    if to == "elmo":
        return elmo.save(source.model, out, overwrite=overwrite)
    return huggingface.save(source.model, out, overwrite=overwrite, others=_others(source))


def _others(source: Artifact) -> dict[str, bytes]:
    """The tokenizer's files, and a classifier's labels by number."""
    tokenizer = source.tokenizer
    if isinstance(tokenizer, WordPieceTokenizer):
        return tokenizer.huggingface_files()
    ends = {f"{role}_token": tokenizer.tokens[i] for role, i in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id))}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **ends}
    settings |= {"unk_token": tokenizer.tokens[tokenizer.unk_id], "pad_token": tokenizer.tokens[tokenizer.pad_id]}
    return {"tokenizer.json": tokenizer.to_json().encode(), "tokenizer_config.json": artifact.to_json(settings)}
