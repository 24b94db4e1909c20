"""Tokenizers of published checkpoints as they were shipped: any pipeline of the `tokenizers` library.

Ids equal those of the `transformers` library. The special tokens around a text or pair, their order and their segments
are those of the file's own post-processor. The roles of the special tokens, which the pipeline does not know, are a
further entry of our `tokenizer.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.normalize import Span
from textgraft.text.tokenizer import (
    MAX_CHARACTERS_PER_CALL,
    SPECIAL_TOKENS,
    Encoding,
    PairMarks,
    Side,
    Tokenizer,
)

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
"""Special tokens by the names that the `transformers` library gives them."""
WORD_BEGINS = ("▁", "Ġ")
"""Marks of a token that begins a word, in vocabularies of SentencePiece and of bytes."""
CONTINUES = "##"
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


class ShippedTokenizer(Tokenizer):
    """A published tokenizer; created by `load`, or by conversion.bridge_tokenizer.

    A role without a token has another's id, except `mask_id`, which is then None.

    Args:
        pipeline: The library's tokenizer.
        special: Special tokens by role (ROLES).
        where: Name of the file, for messages.

    Raises:
        UserError: A special token is not in the vocabulary, or the vocabulary cannot represent any letter.
    """

    def __init__(self, pipeline: Pipeline, special: Mapping[str, str], *, where: str = "tokenizer.json") -> None:
        super().__init__(pipeline)
        self.roles = {role: str(token) for role, token in special.items() if role in ROLES and token is not None}
        ids = pipeline.get_vocab()
        absent = [token for token in self.roles.values() if token not in ids]
        if absent:
            raise UserError(f"the special token '{absent[0]}' has no id.", where=where, remedy=_REMEDY)
        self.vocab_size = 1 + max(ids.values(), default=-1)
        self.tokens = [""] * self.vocab_size  # an id without a token is empty
        for token, number in ids.items():
            self.tokens[number] = token
        self.template = _template(pipeline, where)
        role_ids = {role: ids[token] for role, token in self.roles.items()}
        first, last = self.template.before[:1], self.template.after[-1:]
        self.bos_id = next(iter((*first, *(role_ids[r] for r in ("bos", "cls", "eos", "sep") if r in role_ids))), 0)
        self.eos_id = next(iter((*last, *(role_ids[r] for r in ("eos", "sep", "cls") if r in role_ids))), self.bos_id)
        self.cls_id, self.sep_id = self.bos_id, self.eos_id
        self.pad_id = role_ids.get("pad", self.eos_id)
        self.unk_id = role_ids.get("unk", self.pad_id)
        self.mask_id: int | None = role_ids.get("mask")
        self._special = np.zeros(self.vocab_size, dtype=bool)
        marked = [i for i, token in pipeline.get_added_tokens_decoder().items() if token.special]
        self._special[[*marked, *role_ids.values()]] = True
        self._spaced = _needs_space(pipeline)

    @property
    def special(self) -> np.ndarray:
        """Mask (V,) of special tokens."""
        return self._special

    @cached_property
    def continues(self) -> np.ndarray:
        """Mask (V,) of subwords that continue a word; none where the vocabulary does not mark them."""
        begin = next((mark for mark in WORD_BEGINS if any(t.startswith(mark) for t in self.tokens)), None)
        if begin is None:
            inside = [t.startswith(CONTINUES) and t != CONTINUES for t in self.tokens]
        else:
            inside = [bool(t) and not t.startswith(begin) for t in self.tokens]
        return np.array(inside) & ~self._special

    @property
    def text_position(self) -> str:
        """Position of the special token that stands for a text, as a pooling: "first", "last", or "mean" for none."""
        cls = self.roles.get("cls")
        named = {i for i, token in enumerate(self.tokens) if token == cls and cls is not None}
        if self.template.before and (not named or self.template.before[0] in named or not self.template.after):
            return "first"
        if self.template.after and self.template.after[-1] in named:
            return "first" if self.template.before else "last"
        return "first" if self.template.before else "mean"

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; special tokens have empty spans."""
        body = self._pipeline.encode(_clean(text), add_special_tokens=False)
        before, after = self.template.before, self.template.after
        ids = [*before, *body.ids, *after] or [self.bos_id]
        spans: list[Span] = [
            *[(0, 0)] * len(before),
            *_offsets(text, body.tokens, body.offsets),
            *[(len(text),) * 2] * len(after),
        ]
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=spans or [(0, 0)])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, with special tokens; the same as `encode`'s."""
        before, after = (np.array(ids, dtype=np.int32) for ids in (self.template.before, self.template.after))
        start = np.array([self.bos_id], dtype=np.int32)
        whole = [np.concatenate([before, body, after]) for body in self.bodies(texts)]
        return [ids if len(ids) else start for ids in whole]

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without special tokens."""
        bodies: list[np.ndarray] = []
        part: list[str] = []
        characters = 0
        for number, text in enumerate(texts, start=1):
            part.append(_clean(text))
            characters += len(text)
            if characters >= MAX_CHARACTERS_PER_CALL or number == len(texts):
                encodings = self._pipeline.encode_batch_fast(part, add_special_tokens=False)
                bodies += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
                part, characters = [], 0
        return bodies

    @property
    def pair_marks(self) -> PairMarks:
        """The special tokens of a pair, as the file has them."""
        return self.template.pair

    @property
    def window_marks(self) -> PairMarks:
        """As `pair_marks`."""
        return self.template.pair

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word, int32, as if preceded by a space; without a bare space mark where there is none."""
        ids = self.bodies([f" {word}" if self._spaced and space != "none" else word for word in words])
        if space != "none":
            return ids
        bare = self._pipeline.token_to_id("▁")
        return [one[1:] if len(one) > 1 and one[0] == bare else one for one in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text without special tokens; what the tokenizer's normalisation lost is not restored."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))

    def settled(self, ids: Sequence[int]) -> str:
        """The text without a last character whose bytes are incomplete."""
        return self.decode(ids).rstrip("\ufffd")

    def parting(self, ids: Sequence[int]) -> int:
        """0: the library has its own spacing rules."""
        return 0

    def to_json(self) -> str:
        """Contents of `tokenizer.json`, with the roles of the special tokens."""
        content = {SPECIAL_TOKENS: self.roles, **json.loads(self._pipeline.to_str())}
        return json.dumps(content, indent=2, ensure_ascii=False)

    def huggingface_files(self) -> dict[str, bytes]:
        """Tokenizer files by name, for a folder that the `transformers` library can open."""
        inputs = ["input_ids", "attention_mask"]
        if self.template.second or self.template.segments:
            inputs.insert(1, "token_type_ids")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        config |= {f"{role}_token": token for role, token in self.roles.items()}
        return {
            "tokenizer.json": str(self._pipeline.to_str(pretty=True)).encode(),
            "tokenizer_config.json": (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode(),
        }


def _template(pipeline: Pipeline, where: str) -> Template:
    """The special tokens of the post-processor, found by encoding a letter and a pair of letters."""
    letter = next((c for c in "aAe1あกא中а.," if pipeline.encode(c, add_special_tokens=False).ids), None)
    if letter is None:
        raise UserError("this tokenizer represents no letter.", where=where, remedy=_REMEDY)
    single, pair = pipeline.encode(letter), pipeline.encode(letter, letter)
    ids, texts, kinds = pair.ids, pair.sequence_ids, pair.type_ids
    first, second = ([i for i, text in enumerate(texts) if text == number] for number in (0, 1))
    if not first or not second:
        raise UserError("this tokenizer does not encode pairs of texts.", where=where, remedy=_REMEDY)
    marks = PairMarks(tuple(ids[: first[0]]), tuple(ids[first[-1] + 1 : second[0]]), tuple(ids[second[-1] + 1 :]))
    special = {i: kind for i, text, kind in zip(ids, texts, kinds, strict=True) if text is None and kind > 1}
    inside = [i for i, text in enumerate(single.sequence_ids) if text == 0]
    before, after = tuple(single.ids[: inside[0]]), tuple(single.ids[inside[-1] + 1 :])
    return Template(before, after, marks, int(kinds[second[0]]), special)


def _needs_space(pipeline: Pipeline) -> bool:
    """True if a word inside a sentence has other ids than alone, and those that it has after a space."""
    inside, alone, after_space = (
        pipeline.encode(text, add_special_tokens=False).ids for text in ("a the", "the", " the")
    )
    return inside[-len(alone) :] != alone and inside[-len(after_space) :] == after_space


def _offsets(text: str, tokens: Iterable[str], spans: Iterable[Span]) -> list[Span]:
    """Spans without white space at their start, and never inside a grapheme cluster; empty for a bare space mark."""
    starts, ends = cluster_spans(text)
    found: list[Span] = []
    for token, (start, end) in zip(tokens, spans, strict=True):
        while start < end and text[start].isspace():
            start += 1
        end = start if token in WORD_BEGINS else end
        found.append((starts[start], ends[end - 1]) if start < end else (start, start))
    return found


def _clean(text: str) -> str:
    """Replace lone surrogates, which no Unicode encoder accepts."""
    return _SURROGATE.sub("\ufffd", text)
