"""Tokenizers of published encoders, exactly as published: a pipeline of the `tokenizers` library with special tokens.

RoBERTa's bytes, the SentencePiece unigrams of XLM-R and CamemBERT, and MPNet's WordPieces differ in the pipeline alone.
All mark a text as `<s> text </s>` and a pair as `<s> first </s></s> second </s>`, or with other marks, which the
pipeline's post-processor holds. Folders of the `transformers` library are read by text.pretrained_folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
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

NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""Usual names of the special tokens of each role, in order of preference; a file may name others."""
WORD_MARK, BYTE_SPACE = "▁", "Ġ"
"""The space before a word in SentencePiece and in byte vocabularies."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class PretrainedTokenizer(Tokenizer):
    """A published pipeline; ids are those of the program that it is from, also for special tokens within a text.

    Args:
        pipeline: The pipeline, whose post-processor adds the tokens around texts.
        special: Special tokens by role ("pad", "unk", "mask"), where they have other names than usual.
        where: Name of the file for error messages.

    Raises:
        UserError: The pipeline does not mark beginning and end of texts.
    """

    def __init__(
        self, pipeline: Pipeline, special: Mapping[str, str] | None = None, *, where: str = "tokenizer.json"
    ) -> None:
        super().__init__(pipeline)
        ids = pipeline.get_vocab()
        self.vocab_size = 1 + max(ids.values())
        self.tokens = [""] * self.vocab_size  # there may be gaps
        for token, i in ids.items():
            self.tokens[i] = token
        marks = pair_marks(pipeline)
        if not (marks.before and marks.after):
            message = "this tokenizer does not mark where a text begins and ends."
            raise UserError(message, where=where, remedy="Use the tokenizer.json that came with the model.")
        self._pair_marks, self.bos_id, self.eos_id = marks, marks.before[0], marks.after[-1]
        self._named = {role: token for role, token in (special or {}).items() if token in ids}
        roles = usual_names(pipeline) | self._named
        self.pad_id = ids.get(roles.get("pad", ""), self.eos_id)
        self.unk_id = ids.get(roles.get("unk", ""), self.pad_id)
        self.mask_id = ids.get(roles["mask"]) if "mask" in roles else None

    @property
    def special(self) -> np.ndarray:
        """Mask (V,) of special tokens, and of ids without a token."""
        ids = [i for i, token in self._pipeline.get_added_tokens_decoder().items() if token.special]
        return np.isin(np.arange(self.vocab_size), ids) | np.array([not token for token in self.tokens])

    @property
    def continues(self) -> np.ndarray:
        """Mask (V,) of subwords that continue a word."""
        if isinstance(self._pipeline.model, models.WordPiece):
            inside = [token.startswith(CONTINUES) and token != CONTINUES for token in self.tokens]
        else:
            inside = [not token.startswith((WORD_MARK, BYTE_SPACE)) for token in self.tokens]
        return np.array(inside) & ~self.special

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; tokens without characters of the text, and spaces, have empty spans."""
        encoding = self._pipeline.encode(_valid(text))
        clusters = cluster_spans(text)
        offsets: list[Span] = []
        for i, span, sequence in zip(encoding.ids, encoding.offsets, encoding.sequence_ids, strict=True):
            if sequence is None:
                end = len(text) if offsets else 0
                offsets.append((end, end))
            else:
                offsets.append(_span(text, span, clusters, bare=self.tokens[i] == WORD_MARK))
        return Encoding(ids=encoding.ids, tokens=[self.tokens[i] for i in encoding.ids], offsets=offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, with special tokens; the same as `encode`'s."""
        return list(ids_of(self._pipeline, map(_valid, texts)))

    @property
    def pair_marks(self) -> PairMarks:
        """The tokens around two texts, as the post-processor adds them."""
        return self._pair_marks

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without the special tokens around it."""
        before, after = len(self._pair_marks.before), len(self._pair_marks.after)
        return [ids[before : len(ids) - after] for ids in self.encode_batch(texts)]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word, int32, without special tokens, as if preceded by a space unless `space` is "none"."""
        if space != "none":
            of_bytes = isinstance(self._pipeline.model, models.BPE)
            return self.bodies([f" {word}" if of_bytes else word for word in words])
        if isinstance(self._pipeline.model, models.WordPiece):
            return inside_words(self._pipeline, [_valid(word) for word in words])
        encodings = self._without_prefix.encode_batch_fast([_valid(word) for word in words], add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    @cached_property
    def _without_prefix(self) -> Pipeline:
        """The pipeline without the space that it adds before a text."""

        def changed(part: Any) -> Any:
            if isinstance(part, list):
                return [changed(item) for item in part]
            if not isinstance(part, dict):
                return part
            no_space = {"add_prefix_space": False, "prepend_scheme": "never"}
            return {key: no_space.get(key, changed(value)) for key, value in part.items()}

        content = json.loads(self._pipeline.to_str())
        return Pipeline.from_str(json.dumps({**content, "pre_tokenizer": changed(content["pre_tokenizer"])}))

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text without special tokens; what the pipeline has normalised is not restored."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))

    def parting(self, ids: Sequence[int]) -> int:
        """0: the library has its own spacing rules."""
        return 0

    def to_json(self) -> str:
        """Contents of `tokenizer.json`; special tokens of unusual names are under a key of their own."""
        if not self._named:
            return super().to_json()
        return json.dumps({SPECIAL_TOKENS: self._named, **json.loads(super().to_json())}, indent=2, ensure_ascii=False)

    def huggingface_files(self) -> dict[str, bytes]:
        """Tokenizer files by name, for a folder that the `transformers` library can open."""
        tokens = {"bos": self.bos_id, "eos": self.eos_id, "cls": self.bos_id, "sep": self.eos_id}
        tokens |= {"pad": self.pad_id, "unk": self.unk_id}
        tokens |= {} if self.mask_id is None else {"mask": self.mask_id}
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
        config |= {f"{role}_token": self.tokens[i] for role, i in tokens.items()}
        return {
            "tokenizer.json": str(self._pipeline.to_str(pretty=True)).encode(),
            "tokenizer_config.json": (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode(),
        }


def pair_marks(pipeline: Pipeline) -> PairMarks:
    """The ids that a pipeline adds before, between and after two texts."""
    encoding = pipeline.encode("a", "a")
    sequences = encoding.sequence_ids
    if 0 not in sequences or 1 not in sequences:
        return PairMarks((), ())
    first_end, second = len(sequences) - sequences[::-1].index(0), sequences.index(1)
    second_end = len(sequences) - sequences[::-1].index(1)
    ids = encoding.ids
    return PairMarks(tuple(ids[: sequences.index(0)]), tuple(ids[first_end:second]), tuple(ids[second_end:]))


def usual_names(pipeline: Pipeline) -> dict[str, str]:
    """Special tokens by role: the first of NAMES that the pipeline declares, for "unk" what its model says."""
    declared = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    names = {role: next((n for n in usual if n in declared), None) for role, usual in NAMES.items()}
    if isinstance(pipeline.model, models.Unigram):
        unknown = json.loads(pipeline.to_str())["model"]["unk_id"]
        names["unk"] = pipeline.id_to_token(unknown) if unknown is not None else names["unk"]
    else:
        names["unk"] = getattr(pipeline.model, "unk_token", None) or names["unk"]
    return {role: name for role, name in names.items() if name is not None}


def is_pretrained(pipeline: Pipeline) -> bool:
    """True for a published encoder's pipeline: it has a mask token, and marks beginning and end of texts.

    BERT's own, of WordPieces between [CLS] and [SEP], has a class of its own (text.wordpiece).
    """
    if pipeline.post_processor is None or "mask" not in usual_names(pipeline):
        return False
    marks = pair_marks(pipeline)
    is_bert = isinstance(pipeline.model, models.WordPiece) and pipeline.token_to_id("[CLS]") in marks.before
    return bool(marks.before and marks.after) and not is_bert


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
