"""Tokenizers of `transformers` folders: tokenizer.json, or the older files of RoBERTa, XLM-R, CamemBERT and MPNet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.core.json_text import parse
from textgraft.text.byte_level import read_vocabulary
from textgraft.text.damaged import as_user_errors, try_out
from textgraft.text.pretrained import ROLES, WORD_MARK, PretrainedTokenizer, implied_roles
from textgraft.text.sentencepiece import read_sentencepiece
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import CONTINUES

SENTENCEPIECE = ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
"""Names of SentencePiece models; "bpe" is in the name of unigram models too."""
_USUAL = {"cls": "<s>", "sep": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
_REMEDY = "Use the files that came with the model."
_LONGEST_WORD = 100  # characters; a longer word is unknown, as in BERT's code


def read_pretrained(folder: Path, model_type: str) -> Tokenizer:
    """The tokenizer in a folder of RoBERTa's or MPNet's families.

    Args:
        folder: The folder.
        model_type: The model_type in config.json, which determines the ids of a SentencePiece vocabulary.

    Raises:
        UserError: The folder has no such tokenizer, or a file is damaged.
    """
    with as_user_errors(str(folder), _REMEDY):
        tokenizer = _read_pretrained(folder, model_type)
        try_out(tokenizer)
    return tokenizer


def _read_pretrained(folder: Path, model_type: str) -> Tokenizer:
    """`read_pretrained`, with whatever errors the library has for damaged files."""
    settings = _settings(folder)
    if (folder / "tokenizer.json").is_file():
        return _named(Tokenizer.load(folder / "tokenizer.json"), settings, folder / "tokenizer.json")
    special = _USUAL | {role: name for role in ROLES if (name := _content(settings.get(f"{role}_token")))}
    if (folder / "vocab.json").is_file():
        return _tokenizer(_of_bytes(folder, settings), special, folder / "vocab.json")
    for name in SENTENCEPIECE:
        if (folder / name).is_file():
            return _tokenizer(_of_pieces(folder / name, model_type, special), special, folder / name)
    if (folder / "vocab.txt").is_file():
        special = {**special, "unk": _content(settings.get("unk_token")) or "[UNK]"}
        return _tokenizer(_of_word_pieces(folder / "vocab.txt", settings, special), special, folder / "vocab.txt")
    remedy = f"It should hold tokenizer.json, vocab.json and merges.txt, vocab.txt, or {' or '.join(SENTENCEPIECE)}."
    raise UserError("there is no tokenizer in this folder.", where=str(folder), remedy=remedy)


def read_modernbert(folder: Path) -> Tokenizer:
    """The tokenizer in a folder of ModernBERT. Raises UserError where it is missing, damaged or of another kind."""
    tokenizer = read_pretrained(folder, "modernbert")
    if tokenizer.mask_id is None:
        remedy = "Use the tokenizer.json that came with the model."
        raise UserError("this is not the tokenizer of a ModernBERT.", where=str(folder), remedy=remedy)
    return tokenizer


def _settings(folder: Path) -> dict[str, Any]:
    """Entries of special_tokens_map.json and, over them, of tokenizer_config.json; empty where there are none."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            content = parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            remedy = "Restore the file from where it came."
            raise UserError(f"damaged ({error}).", where=str(path), remedy=remedy) from error
        if isinstance(content, dict):
            settings |= {key: value for key, value in content.items() if value is not None}
    return settings


def _content(token: Any) -> str | None:
    """A special token's text: a string, or an object with its `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and text else None


def _named(tokenizer: Tokenizer, settings: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer with the folder's special tokens where its file implies others."""
    if not isinstance(tokenizer, PretrainedTokenizer):
        return tokenizer
    named = {role: _content(settings.get(f"{role}_token")) for role in ROLES}
    return tokenizer.with_roles({r: name for r, name in named.items() if name in tokenizer.tokens}, where=str(path))


def _tokenizer(pipeline: Pipeline, special: Mapping[str, str], path: Path) -> Tokenizer:
    """The tokenizer of a new pipeline with its special tokens and marks around texts."""
    ids = pipeline.get_vocab()
    missing = [special[role] for role in ("cls", "sep", "pad", "mask") if special[role] not in ids]
    if missing:
        raise UserError(f"this vocabulary lacks {', '.join(missing)}.", where=str(path), remedy=_REMEDY)
    names = dict.fromkeys(special[role] for role in ("cls", "pad", "sep", "unk") if special[role] in ids)
    pipeline.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    pipeline.add_special_tokens([AddedToken(special["mask"], lstrip=True, normalized=False, special=True)])
    first, last = special["cls"], special["sep"]
    pipeline.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )
    known = {role: name for role, name in special.items() if name in ids}
    return PretrainedTokenizer(pipeline, implied_roles(pipeline) | known, where=str(path))


def _of_bytes(folder: Path, settings: Mapping[str, Any]) -> Pipeline:
    """RoBERTa's byte pair encoding: vocab.json and merges.txt."""
    ids, pairs = read_vocabulary(folder / "vocab.json", folder / "merges.txt")
    pipeline = Pipeline(models.BPE(vocab=ids, merges=pairs))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space", False)))
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _of_pieces(path: Path, model_type: str, special: Mapping[str, str]) -> Pipeline:
    """The unigrams of XLM-R and CamemBERT by the ids of fairseq, which has special tokens of its own before them."""
    model = read_sentencepiece(path)
    if model_type == "camembert":
        own = [("<s>NOTUSED", 0.0), (special["pad"], 0.0), ("</s>NOTUSED", 0.0), (special["unk"], 0.0)]
        own += [("<unk>NOTUSED", -100.0)]
        pieces = [*own, *model.pieces[1:], (special["mask"], 0.0)]
    else:
        own = [(special[role], 0.0) for role in ("cls", "pad", "sep", "unk")]
        pieces = [*own, *model.pieces[3:], (special["mask"], 0.0)]
    pipeline = Pipeline(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    if model.character_map:
        pipeline.normalizer = normalizers.Precompiled(model.character_map)
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(WORD_MARK, "always")]
    )
    pipeline.decoder = decoders.Metaspace(WORD_MARK, "always")
    return pipeline


def _of_word_pieces(path: Path, settings: Mapping[str, Any], special: Mapping[str, str]) -> Pipeline:
    """MPNet's WordPieces, which are BERT's after four special tokens."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(path), remedy=_REMEDY) from error
    while lines and not lines[-1]:
        lines.pop()
    ids = {line.removesuffix("\r"): i for i, line in enumerate(lines)}
    model = models.WordPiece(ids, unk_token=special["unk"], max_input_chars_per_word=_LONGEST_WORD)
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=CONTINUES)
    return pipeline
