"""Tokenizers of checkpoints that run through `transformers`, read by that library and kept as one tokenizer.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.core.errors import UserError
from textgraft.encoders.transformers_bridge import INSTALL, library
from textgraft.text.pretrained import ROLES, PretrainedTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import SPECIAL, WordPieceTokenizer

UNLIMITED = 1_000_000
"""A tokenizer that gives more tokens than this as its limit has none."""
SETTINGS = "tokenizer_config.json"
SLOW = "Its tokenizer runs in Python only. Use a checkpoint that has a tokenizer.json."


@dataclass(frozen=True)
class TokenizerFacts:
    """What the encoder has to know of a tokenizer.

    Attributes:
        max_length: Most tokens of a text by its settings; None for no limit.
        segments: The network is to be given segments.
        special_segments: Token ids with a segment of their own: [id, segment] each.
        text_position: Pooling of the token that stands for the text.
    """

    max_length: int | None = None
    segments: bool = False
    special_segments: list[list[int]] = field(default_factory=list)
    text_position: str = "first"


def from_folder(folder: Path) -> tuple[Tokenizer, TokenizerFacts]:
    """The tokenizer of a checkpoint, with the ids that the `transformers` library gives.

    Raises:
        UserError: There is none, it needs code of its own, or the library has it in Python only.
    """
    path = folder / SETTINGS
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy="Fetch the file again.") from error
    if isinstance(settings, dict) and "auto_map" in settings:
        message = "this tokenizer is code inside the checkpoint (auto_map), which is never run."
        raise UserError(message, where=str(path), remedy="Use a checkpoint whose tokenizer is a tokenizer.json.")
    loaded = _loaded(folder)
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise UserError("this tokenizer cannot be read.", where=str(folder), remedy=SLOW)
    tokens = {role: getattr(loaded, f"{role}_token", None) for role in ROLES}
    special = {role: str(token) for role, token in tokens.items() if token is not None}
    tokenizer = _tokenizer(Pipeline.from_str(backend.to_str()), special, str(folder))
    limit = int(min(getattr(loaded, "model_max_length", UNLIMITED), UNLIMITED))
    max_length = limit if 0 < limit < UNLIMITED else None
    takes_segments = "token_type_ids" in loaded.model_input_names
    if isinstance(tokenizer, PretrainedTokenizer):
        template = tokenizer.template
        own = [[token_id, segment] for token_id, segment in sorted(template.segments.items())]
        segments = takes_segments and bool(template.second or own)
        return tokenizer, TokenizerFacts(max_length, segments, own, tokenizer.text_position)
    return tokenizer, TokenizerFacts(max_length, takes_segments)


def _loaded(folder: Path) -> Any:
    try:
        return library().AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except UserError:
        raise
    except Exception as error:  # the library raises many kinds, of a missing file or module among them
        if find_spec("sentencepiece") is None and any(folder.glob("*.model")):
            message = "this tokenizer is a SentencePiece model, which needs sentencepiece."
            raise UserError(message, where=str(folder), remedy=INSTALL) from error
        first = str(error).strip().split("\n")[0]
        message = f"the transformers library cannot read the tokenizer ({type(error).__name__}: {first})."
        raise UserError(message, where=str(folder), remedy=SLOW) from error


def _tokenizer(pipeline: Pipeline, special: dict[str, str], where: str) -> Tokenizer:
    """Our WordPiece for BERT's, which is faster; else the pipeline as it is."""
    published = PretrainedTokenizer(pipeline, special, where=where)
    return WordPieceTokenizer(pipeline, where=where) if _is_berts(pipeline, special, published) else published


def _is_berts(pipeline: Pipeline, special: dict[str, str], published: PretrainedTokenizer) -> bool:
    """True for BERT's own normaliser, pretokenizer, special tokens and template."""
    content = json.loads(pipeline.to_str())
    kinds = [(content[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer")]
    names = tuple(special.get(role) for role in ("pad", "unk", "cls", "sep", "mask"))
    if not isinstance(pipeline.model, models.WordPiece) or kinds != ["BertNormalizer", "BertPreTokenizer"]:
        return False
    if names != SPECIAL or "" in published.tokens:
        return False
    cls_id, sep_id = (pipeline.token_to_id(token) for token in (special["cls"], special["sep"]))
    marks, template = published.pair_marks, published.template
    expected = ((cls_id,), (sep_id,), (sep_id,))
    is_template = (marks.before, marks.between, marks.after) == expected
    return is_template and template.second == 1 and not template.segments
