"""Tokenizers of published checkpoints, as published: a pipeline of the `tokenizers` library with special tokens.

RoBERTa's and ModernBERT's bytes, the SentencePiece unigrams of XLM-R, CamemBERT, T5 and XLNet, and MPNet's WordPieces
differ in the pipeline alone. Ids equal those of the `transformers` library. The special tokens around a text or pair,
their order and their segments are those of the pipeline's own post-processor. Folders are read by
text.pretrained_folder, and by conversion.bridge_tokenizer for checkpoints that run through `transformers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.normalize import Span
from textgraft.text.tokenizer import SPECIAL_TOKENS, Encoding, PairMarks, Side, Tokenizer, ids_of
from textgraft.text.wordpiece import CONTINUES, inside_words

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
"""Special tokens by the names that the `transformers` library gives them."""
NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""Usual names of the special tokens of each role, in order of preference; a file may name others."""
WORD_MARK, BYTE_SPACE = "▁", "Ġ"
"""The space before a word in SentencePiece and in byte vocabularies."""
BYTE_SPACES = range(256, 290)
"""Characters that stand for spaces and control codes in GPT-2's alphabet of bytes; a word's first token begins so."""
LETTERS = "aAe1あกא中а.,"
"""Every vocabulary has one of these."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REMEDY = "Use the tokenizer files that came with the model."


@dataclass(frozen=True)
class Template:
    """Special tokens that the post-processor adds to one text and to a pair.

    Attributes:
        before, after: Ids around a single text.
        pair: Ids around and between two texts.
        second: Segment of the second text.
        segments: Segments of special tokens that have one of their own, by id (XLNet's and Funnel's <cls>: 2).
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    pair: PairMarks
    second: int
    segments: dict[int, int]


class PretrainedTokenizer(Tokenizer):
    """A published pipeline; ids are those of the program that it is from, also for special tokens within a text.

    A role without a token has another's id, except `mask_id`, which is then None. Texts of a pipeline without special
    tokens around them are encoded without any, and an empty one as `bos_id`.

    Args:
        pipeline: The pipeline, whose post-processor adds the tokens around texts.
        special: Special tokens by role (ROLES); None for those that the pipeline implies (`implied_roles`).
        where: Name of the file for error messages.

    Raises:
        UserError: A special token is not in the vocabulary, or the pipeline represents no letter or encodes no pairs.
    """

    def __init__(
        self, pipeline: Pipeline, special: Mapping[str, str] | None = None, *, where: str = "tokenizer.json"
    ) -> None:
        super().__init__(pipeline)
        special = implied_roles(pipeline) if special is None else special
        self.roles = {role: special[role] for role in ROLES if role in special}
        ids = pipeline.get_vocab()
        absent = [token for token in self.roles.values() if token not in ids]
        if absent:
            raise UserError(f"the special token '{absent[0]}' has no id.", where=where, remedy=_REMEDY)
        self.vocab_size = 1 + max(ids.values(), default=-1)
        self.tokens = [""] * self.vocab_size  # an id without a token is empty
        for token, i in ids.items():
            self.tokens[i] = token
        template = _template(pipeline)
        if template is None:
            message = "this tokenizer represents no letter, or does not encode pairs of texts."
            raise UserError(message, where=where, remedy=_REMEDY)
        self.template = template
        role_ids = {role: ids[token] for role, token in self.roles.items()}
        begins = [*self.template.before[:1], *(role_ids[r] for r in ("bos", "cls", "eos", "sep") if r in role_ids)]
        self.bos_id = begins[0] if begins else 0
        ends = [*self.template.after[-1:], *(role_ids[r] for r in ("eos", "sep", "cls") if r in role_ids)]
        self.eos_id = ends[0] if ends else self.bos_id
        self.cls_id, self.sep_id = self.bos_id, self.eos_id
        self.pad_id = role_ids.get("pad", self.eos_id)
        self.unk_id = role_ids.get("unk", self.pad_id)
        self.mask_id = role_ids.get("mask")

    def with_roles(self, special: Mapping[str, str], *, where: str = "tokenizer.json") -> PretrainedTokenizer:
        """The same pipeline, where these special tokens by role replace others of the same role."""
        return PretrainedTokenizer(self._pipeline, self.roles | dict(special), where=where)

    @cached_property
    def special(self) -> np.ndarray:
        """Mask (V,) of special tokens, and of ids without a token."""
        marked = [i for i, token in self._pipeline.get_added_tokens_decoder().items() if token.special]
        ids = [*marked, *map(self.tokens.index, self.roles.values())]
        return np.isin(np.arange(self.vocab_size), ids) | np.array([not token for token in self.tokens])

    @cached_property
    def continues(self) -> np.ndarray:
        """Mask (V,) of subwords that continue a word; none where the vocabulary does not mark them.

        In a vocabulary of bytes these are the tokens that begin with a letter, a digit or a byte above ASCII.
        """
        marks = () if isinstance(self._pipeline.model, models.WordPiece) else (WORD_MARK, BYTE_SPACE)
        mark = next((mark for mark in marks if any(token.startswith(mark) for token in self.tokens)), None)
        if mark is None:
            inside = [token.startswith(CONTINUES) and token != CONTINUES for token in self.tokens]
        elif mark == WORD_MARK:
            inside = [not token.startswith(mark) for token in self.tokens]
        else:
            inside = [_continues_bytes(token) for token in self.tokens]
        return np.array(inside) & ~self.special

    @property
    def text_position(self) -> str:
        """Position of the special token that stands for a text, as a pooling: "first", "last", or "mean" for none."""
        before, after, cls = self.template.before, self.template.after, self.roles.get("cls")
        if before:
            return "first"
        return "last" if after and self.tokens[after[-1]] == cls else "mean"

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; tokens without characters of the text, and spaces, have empty spans."""
        body = self._pipeline.encode(_valid(text), add_special_tokens=False)
        before, after = self.template.before, self.template.after
        clusters = cluster_spans(text)
        spans = [
            _span(text, span, clusters, bare=token == WORD_MARK)
            for token, span in zip(body.tokens, body.offsets, strict=True)
        ]
        offsets = [*[(0, 0)] * len(before), *spans, *[(len(text),) * 2] * len(after)]
        ids = [*before, *body.ids, *after] or [self.bos_id]
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets or [(0, 0)])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, with special tokens; the same as `encode`'s."""
        before, after = (np.array(ids, dtype=np.int32) for ids in (self.template.before, self.template.after))
        start = np.array([self.bos_id], dtype=np.int32)
        whole = [np.concatenate([before, body, after]) for body in self.bodies(texts)]
        return [ids if len(ids) else start for ids in whole]

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without the special tokens around it."""
        return list(ids_of(self._pipeline, map(_valid, texts), special_tokens=False))

    @property
    def pair_marks(self) -> PairMarks:
        """The tokens around two texts, as the post-processor adds them."""
        return self.template.pair

    @property
    def window_marks(self) -> PairMarks:
        """As `pair_marks`."""
        return self.template.pair

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word, int32, without special tokens, as if preceded by a space unless `space` is "none"."""
        if space != "none":
            return self.bodies([f" {word}" for word in words] if self._needs_space else words)
        valid = [_valid(word) for word in words]
        if isinstance(self._pipeline.model, models.WordPiece):
            return inside_words(self._pipeline, valid)
        ids = list(ids_of(self._without_prefix, valid, special_tokens=False))
        bare = self._pipeline.token_to_id(WORD_MARK)
        return [one[1:] if len(one) > 1 and one[0] == bare else one for one in ids]

    @cached_property
    def _needs_space(self) -> bool:
        """True if a word has other ids after a space than alone, and those inside a sentence."""
        inside, alone, after_space = self.bodies(["a the", "the", " the"])
        return not np.array_equal(alone, after_space) and np.array_equal(inside[-len(after_space) :], after_space)

    @cached_property
    def _without_prefix(self) -> Pipeline:
        """The pipeline without the space that it adds before a text."""

        def changed(part: Any) -> Any:
            if isinstance(part, list):
                return [changed(item) for item in part]
            if not isinstance(part, dict):
                return part
            no_space = {"add_prefix_space": False, "prepend_scheme": "never", "prepend": ""}
            return {key: no_space.get(key, changed(value)) for key, value in part.items()}

        content = json.loads(self._pipeline.to_str())
        content |= {part: changed(content[part]) for part in ("normalizer", "pre_tokenizer")}
        return Pipeline.from_str(json.dumps(content))

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text without special tokens; what the pipeline has normalised is not restored."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))

    def settled(self, ids: Sequence[int]) -> str:
        """The text without a last character whose bytes are incomplete."""
        return self.decode(ids).rstrip("\ufffd")

    def parting(self, ids: Sequence[int]) -> int:
        """0: the library has its own spacing rules."""
        return 0

    def to_json(self) -> str:
        """Contents of `tokenizer.json`; special tokens that the pipeline does not imply are under a key of their own.

        Without that key the file is one that the library reads.
        """
        if is_pretrained(self._pipeline) and implied_roles(self._pipeline) == self.roles:
            return super().to_json()
        return json.dumps({SPECIAL_TOKENS: self.roles, **json.loads(super().to_json())}, indent=2, ensure_ascii=False)

    def huggingface_files(self) -> dict[str, bytes]:
        """Tokenizer files by name, for a folder that the `transformers` library can open."""
        inputs = ["input_ids", "attention_mask"]
        if self.template.second or self.template.segments:
            inputs.insert(1, "token_type_ids")
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        config |= {f"{role}_token": token for role, token in self.roles.items()}
        return {
            "tokenizer.json": str(self._pipeline.to_str(pretty=True)).encode(),
            "tokenizer_config.json": (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode(),
        }


def implied_roles(pipeline: Pipeline) -> dict[str, str]:
    """Special tokens by role as a pipeline alone has them.

    Padding and mask are the first of NAMES that it declares, "unk" is what its model says; "cls" and "bos" begin and
    "sep" and "eos" end a text, where BERT's [CLS] and [SEP] are of the first name only.
    """
    declared = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    names = {role: next((n for n in usual if n in declared), None) for role, usual in NAMES.items()}
    if isinstance(pipeline.model, models.Unigram):
        unknown = json.loads(pipeline.to_str())["model"]["unk_id"]
        names["unk"] = pipeline.id_to_token(unknown) if unknown is not None else names["unk"]
    else:
        names["unk"] = getattr(pipeline.model, "unk_token", None) or names["unk"]
    template = _template(pipeline)
    if template is not None and template.before and template.after:
        names["cls"], names["sep"] = map(pipeline.id_to_token, (template.before[0], template.after[-1]))
        if names["cls"] != "[CLS]":
            names["bos"], names["eos"] = names["cls"], names["sep"]
    return {role: name for role in ROLES if (name := names.get(role)) is not None}


def is_pretrained(pipeline: Pipeline) -> bool:
    """True for a published encoder's pipeline: it has a mask token, and marks beginning and end of texts.

    BERT's own, of WordPieces between [CLS] and [SEP], has a class of its own (text.wordpiece).
    """
    declared = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    if pipeline.post_processor is None or declared.isdisjoint(NAMES["mask"]):
        return False
    roles = implied_roles(pipeline)
    is_bert = isinstance(pipeline.model, models.WordPiece) and roles.get("cls") == "[CLS]"
    return "cls" in roles and not is_bert


def _template(pipeline: Pipeline) -> Template | None:
    """The special tokens of the post-processor, found by encoding a letter and a pair of letters.

    None for a pipeline that represents no letter, or encodes no pairs.
    """
    letter = next((c for c in LETTERS if pipeline.encode(c, add_special_tokens=False).ids), None)
    if letter is None:
        return None
    single, pair = pipeline.encode(letter), pipeline.encode(letter, letter)
    ids, texts, kinds = pair.ids, pair.sequence_ids, pair.type_ids
    first, second = ([i for i, text in enumerate(texts) if text == number] for number in (0, 1))
    if not first or not second:
        return None
    marks = PairMarks(tuple(ids[: first[0]]), tuple(ids[first[-1] + 1 : second[0]]), tuple(ids[second[-1] + 1 :]))
    special = {i: kind for i, text, kind in zip(ids, texts, kinds, strict=True) if text is None and kind > 1}
    inside = [i for i, text in enumerate(single.sequence_ids) if text == 0]
    before, after = tuple(single.ids[: inside[0]]), tuple(single.ids[inside[-1] + 1 :])
    return Template(before, after, marks, int(kinds[second[0]]), special)


def _continues_bytes(token: str) -> bool:
    """True for a token of GPT-2's alphabet of bytes that begins within a word."""
    first = token[:1]
    return first.isalnum() if first.isascii() else ord(first) not in BYTE_SPACES


def _span(text: str, span: Span, clusters: tuple[Sequence[int], Sequence[int]], *, bare: bool) -> Span:
    """Characters of a token without white space around them, whole grapheme clusters; empty for a bare word mark."""
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if bare or start == end:
        return start, start
    return clusters[0][start], clusters[1][end - 1]


def _valid(text: str) -> str:
    """Replace lone surrogates, which no Unicode encoder accepts, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)
