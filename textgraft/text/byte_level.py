"""Byte pair encodings of GPT, GPT-2, Llama and their successors.

GPT-2 (Radford et al. 2019, §2.2) merges bytes, so every text has tokens and can be restored. GPT (Radford et al. 2018)
merges characters of lower-cased words, whose ends are marked `</w>`; it loses case, accents and kinds of spaces, and
unknown characters become `<unk>`. GPT's authors also repaired broken Unicode (ftfy) and split words with spaCy; here
words are split at spaces and punctuation, as transformers does without these libraries. Llama's (Touvron et al. 2023,
§2.2; SentencePiece) merges characters, in which a mark stands for a space, and falls back to bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.limits import limited
from textgraft.text.normalize import Span
from textgraft.text.tokenizer import Encoding, PairMarks, Side, Tokenizer, ids_of

END = "<|endoftext|>"
UNKNOWN = "<unk>"
WORD_END = "</w>"
_NAMES = {
    "bos": ("<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<s>", "_start_"),
    "eos": ("<|endoftext|>", "<|end_of_text|>", "</s>", "_extract_"),
    "pad": ("<|pad|>", "<|finetune_right_pad_id|>", "<|padding|>", "<pad>", "[PAD]"),
    "between": ("_delimiter_", "<|sep|>", "<sep>", "[SEP]"),
    "unk": ("<unk>", "<|unk|>", "[UNK]"),
}
"""Names of special tokens in common vocabularies; the first that exists is used."""
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_turn|>")
"""Tokens that end an answer of a model that was tuned on dialogues."""
SPACE = "\u2581"
"""SentencePiece's mark of a space."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class BytePairTokenizer(Tokenizer):
    """Tokenizer of GPT, GPT-2 or Llama; created by the functions below or `load`.

    Ids are those of the original program: a text starts with a special token only if the file says so, as those of
    `train_byte_level` do. Missing tokens for padding, unknown, begin or end are replaced by another special one,
    GPT-2's `<|endoftext|>` for all four. An empty text is encoded as the begin token. Raises UserError for ids with
    gaps.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        if pipeline.token_to_id(self.tokens[-1]) != self.vocab_size - 1:
            raise UserError("the ids of this vocabulary have gaps.", remedy="Assign every id from 0 to one token.")
        ids = {token: i for i, token in enumerate(self.tokens)}
        role_ids = {role: next((ids[n] for n in names if n in ids), None) for role, names in _NAMES.items()}
        any_special = next(i for i in (*role_ids.values(), 0) if i is not None)
        self.eos_id = role_ids["eos"] if role_ids["eos"] is not None else any_special
        self.bos_id = role_ids["bos"] if role_ids["bos"] is not None else self.eos_id
        self.pad_id = role_ids["pad"] if role_ids["pad"] is not None else self.eos_id
        self.unk_id = role_ids["unk"] if role_ids["unk"] is not None else self.eos_id
        self.between_id = role_ids["between"] if role_ids["between"] is not None else self.eos_id
        self._turn_ends = frozenset(ids[name] for name in TURN_ENDS if name in ids)
        self.starts = pipeline.encode("").ids
        marks = (*_NAMES["bos"], *_NAMES["eos"])
        self._empty = [self.bos_id] if not self.starts and self.tokens[self.bos_id] in marks else None
        letter = pipeline.encode("a", add_special_tokens=False).tokens
        self._adds_space = bool(letter) and letter[0].startswith(SPACE)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a generated text or, of a model for dialogues, an answer."""
        return super().end_ids | self._turn_ends

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; a token that is part of a character has the span of the whole character."""
        encoding = self._pipeline.encode(_valid(text))
        cluster_starts, cluster_ends = cluster_spans(text)
        offsets: list[Span] = []
        for start, end in encoding.offsets:
            offsets.append((cluster_starts[start], cluster_ends[end - 1]) if start < end else (start, start))
        ids = encoding.ids or [self.bos_id]
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets or [(0, 0)])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32; the same as `encode`'s."""
        encoded = ids_of(self._pipeline, map(_valid, texts))
        return [ids if len(ids) else np.array([self.bos_id], dtype=np.int32) for ids in encoded]

    @property
    def pair_marks(self) -> PairMarks:
        """Start tokens, first text, delimiter, second text (Radford et al. 2018, figure 1).

        GPT added its delimiter to the vocabulary; without one, the end-of-text token is used.
        """
        return PairMarks(tuple(self.starts), (self.between_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without start tokens."""
        return [ids[len(self.starts) :] for ids in ids_of(self._pipeline, map(_valid, texts))]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word, int32, as if preceded by a space: the vocabulary has most words in that form."""
        if not self._adds_space:
            return self.bodies(words if space == "none" else [f" {word}" for word in words])
        if space != "none":
            return self.bodies(words)
        # The tokenizer puts a space before every text: before a line break here, which merges with nothing.
        before, *encoded = self.bodies(["\n", *(f"\n{word}" for word in words)])
        return [ids[len(before) :] if np.array_equal(ids[: len(before)], before) else ids for ids in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        """The text, exactly for byte vocabularies, without the start tokens that `encode` adds.

        The begin token alone is the empty text, which `encode` gives it for.
        """
        remaining = list(ids)
        if remaining == self._empty:
            return ""
        if self.starts and remaining[: len(self.starts)] == self.starts:
            remaining = remaining[len(self.starts) :]
        return str(self._pipeline.decode(remaining, skip_special_tokens=False))

    def settled(self, ids: Sequence[int]) -> str:
        """The text without a last character whose bytes are incomplete."""
        return self.decode(ids).rstrip("\ufffd")

    def parting(self, ids: Sequence[int]) -> int:
        """The end, if the last character is complete; 0 where `decode` removes a start of several tokens, which others
        may form, and for the token of the empty text.
        """
        if list(ids) == self._empty or len(self.starts) > 1:
            return 0
        return 0 if self.decode(ids).endswith("\ufffd") else len(ids)


def _valid(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def is_byte_pair(pipeline: Pipeline) -> bool:
    """True for a tokenizer that `BytePairTokenizer` supports."""
    if not isinstance(pipeline.model, models.BPE):
        return False
    is_gpt = isinstance(pipeline.decoder, decoders.BPEDecoder) and pipeline.model.end_of_word_suffix == WORD_END
    falls_back_to_bytes = bool(pipeline.model.byte_fallback) and isinstance(pipeline.decoder, decoders.Sequence)
    return isinstance(pipeline.decoder, decoders.ByteLevel) or is_gpt or falls_back_to_bytes


def train_byte_level(
    texts: Iterable[str], *, vocab_size: int = 10_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> BytePairTokenizer:
    """Train a tokenizer like GPT-2's; each text it encodes starts with `<|endoftext|>`.

    Args:
        texts: Texts, read once.
        vocab_size: Number of tokens, including 256 bytes and `<|endoftext|>` (token 0).
        min_frequency: Occurrences of a pair to be merged.
        max_characters: Characters to train on.

    Raises:
        UserError: A setting is out of range, or there is no text.
    """
    if vocab_size < 257 or min_frequency < 1:
        where, value = ("vocab_size", vocab_size) if vocab_size < 257 else ("min_frequency", min_frequency)
        raise UserError(f"{value} is out of range.", where=where, remedy="Use 257 or more tokens, a frequency from 1.")
    pipeline = _of_bytes(models.BPE())
    trainer: Any = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator(map(_valid, limited(texts, max_characters)), trainer)
    end = pipeline.token_to_id(END)
    template: Any = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, end)])
    pipeline.post_processor = template
    return BytePairTokenizer(pipeline)


def read_gpt2(vocab: Path | str, merges: Path | str) -> BytePairTokenizer:
    """GPT-2's tokenizer from vocab.json and merges.txt. Raises UserError for a missing or damaged file."""
    ids, pairs = read_vocabulary(vocab, merges)
    pipeline = _of_bytes(models.BPE(vocab=ids, merges=pairs))
    if END in ids:
        pipeline.add_special_tokens([AddedToken(END, special=True, normalized=True)])
    return BytePairTokenizer(pipeline)


def read_gpt(vocab: Path | str, merges: Path | str) -> BytePairTokenizer:
    """GPT's tokenizer from vocab.json and merges.txt. Raises UserError for a missing or damaged file."""
    ids, pairs = read_vocabulary(vocab, merges)
    if UNKNOWN not in ids:
        message = f"there is no '{UNKNOWN}', so this is not GPT's vocabulary."
        raise UserError(message, where=str(vocab), remedy="Use read_gpt2 for a vocabulary of bytes.")
    pipeline = Pipeline(models.BPE(vocab=ids, merges=pairs, unk_token=UNKNOWN, end_of_word_suffix=WORD_END))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.BPEDecoder(suffix=WORD_END)
    pipeline.add_special_tokens([AddedToken(UNKNOWN, special=True, normalized=True)])
    return BytePairTokenizer(pipeline)


def read_llama(folder: Path) -> BytePairTokenizer:
    """Tokenizer of a folder of Llama, Mistral, Qwen or SmolLM: tokenizer.json, else vocab.json and merges.txt as
    GPT-2's.

    Raises:
        UserError: These are missing or damaged, or tokenizer.json is of another kind.
    """
    path = folder / "tokenizer.json"
    if not path.is_file() and (folder / "vocab.json").is_file():
        return read_gpt2(folder / "vocab.json", folder / "merges.txt")
    if not path.is_file() and (folder / "tokenizer.model").is_file():
        message = "there is a tokenizer.model, but no tokenizer.json, which is what can be opened."
        remedy = f"Write it: AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}') of transformers."
        raise UserError(message, where=str(folder), remedy=remedy)
    tokenizer = Tokenizer.load(path)
    if not isinstance(tokenizer, BytePairTokenizer):
        remedy = "Use the tokenizer.json that came with the model."
        raise UserError("this is not a byte pair encoding.", where=str(path), remedy=remedy)
    return tokenizer


def _of_bytes(model: models.BPE) -> Pipeline:
    pipeline = Pipeline(model)
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def read_vocabulary(vocab: Path | str, merges: Path | str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids by token, and the merges in order; the first line of merges.txt may be its version.

    Raises UserError for a missing or damaged file.
    """
    where = vocab
    try:
        ids = {str(token): int(i) for token, i in json.loads(Path(vocab).read_text(encoding="utf-8")).items()}
        where = merges
        lines = Path(merges).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        remedy = "Use the files that came with the model."
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(where), remedy=remedy) from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        location, remedy = f"{merges} line {number}", "Use two files of one model."
        if not left or not right or " " in right:
            raise UserError("this is not a pair of tokens.", where=location, remedy=remedy)
        missing = [token for token in (left, right, left + right) if token not in ids]
        if missing:  # the library would abort the process
            raise UserError(f"the vocabulary has no '{missing[0]}' to merge.", where=location, remedy=remedy)
        pairs.append((left, right))
    return ids, pairs
