"""The byte pair encodings of GPT and GPT-2, as the files that came with them say.

GPT-2's (Radford et al. 2019, §2.2) merges bytes, so that every text has tokens and every text comes back. GPT's
(Radford et al. 2018) merges characters of lower-cased words, whose ends are marked `</w>`; it loses case, accents and
kinds of spaces, and what it does not know reads as `<unk>`. GPT's authors also repaired broken Unicode (ftfy) and cut
words with spaCy; we cut at spaces and punctuation, as transformers does without these.
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
    "bos": ("<|startoftext|>", "<|endoftext|>", "<s>", "_start_"),
    "eos": ("<|endoftext|>", "</s>", "_extract_"),
    "pad": ("<|pad|>", "<|padding|>", "<pad>", "[PAD]"),
    "between": ("_delimiter_", "<|sep|>", "<sep>", "[SEP]"),
    "unk": ("<unk>", "<|unk|>", "[UNK]"),
}
"""What vocabularies call their special tokens; the first that is there counts."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class BytePairTokenizer(Tokenizer):
    """A GPT's or GPT-2's vocabulary, with everything that `Tokenizer` has; made by the functions below or `load`.

    Ids are those of the file's own program: a text starts with a special token only if the file says so, as those made
    by `train_byte_level` do. Where a vocabulary has no token for padding, unknown, begin or end, another special one
    stands in, GPT-2's `<|endoftext|>` for all four. An empty text is the one token that begins a text. Raises UserError
    for ids with gaps.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        if pipeline.token_to_id(self.tokens[-1]) != self.vocab_size - 1:
            raise UserError("the ids of this vocabulary have gaps.", remedy="Give every id from 0 on to one token.")
        ids = {token: i for i, token in enumerate(self.tokens)}
        found = {role: next((ids[n] for n in names if n in ids), None) for role, names in _NAMES.items()}
        any_special = next(i for i in (*found.values(), 0) if i is not None)
        self.eos_id = found["eos"] if found["eos"] is not None else any_special
        self.bos_id = found["bos"] if found["bos"] is not None else self.eos_id
        self.pad_id = found["pad"] if found["pad"] is not None else self.eos_id
        self.unk_id = found["unk"] if found["unk"] is not None else self.eos_id
        self.between_id = found["between"] if found["between"] is not None else self.eos_id
        self.starts = pipeline.encode("").ids

    def encode(self, text: str) -> Encoding:
        """One text with its tokens and their offsets; a token that is part of a character has the whole of it."""
        encoding = self._pipeline.encode(_valid(text))
        cluster_starts, cluster_ends = cluster_spans(text)
        offsets: list[Span] = []
        for start, end in encoding.offsets:
            offsets.append((cluster_starts[start], cluster_ends[end - 1]) if start < end else (start, start))
        ids = encoding.ids or [self.bos_id]
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets or [(0, 0)])

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32; the same as `encode`'s."""
        found = ids_of(self._pipeline, map(_valid, texts))
        return [ids if len(ids) else np.array([self.bos_id], dtype=np.int32) for ids in found]

    @property
    def pair_marks(self) -> PairMarks:
        """What starts a text, first, the delimiter, second (Radford et al. 2018, figure 1).

        GPT's delimiter was new to its vocabulary; where a vocabulary has none, its end of text parts the two.
        """
        return PairMarks(tuple(self.starts), (self.between_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, without what starts it."""
        return [ids[len(self.starts) :] for ids in ids_of(self._pipeline, map(_valid, texts))]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """The ids of each word, int32, as if a space stood before it, which is how the vocabulary knows most words."""
        return self.bodies(words if space == "none" else [f" {word}" for word in words])

    def decode(self, ids: Iterable[int]) -> str:
        """The text, to the last space if the vocabulary is one of bytes; a start that `encode` adds is left out."""
        kept = list(ids)
        if self.starts and kept[: len(self.starts)] == self.starts:
            kept = kept[len(self.starts) :]
        return str(self._pipeline.decode(kept, skip_special_tokens=False))

    def settled(self, ids: Sequence[int]) -> str:
        """The text but for a last character whose bytes are not all there yet."""
        return self.decode(ids).rstrip("\ufffd")

    def parting(self, ids: Sequence[int]) -> int:
        """Behind any whole character; 0 where `decode` leaves out a start of several tokens, which others may make."""
        return len(ids) if len(self.starts) < 2 and not self.decode(ids).endswith("\ufffd") else 0


def _valid(text: str) -> str:
    """Half of a surrogate pair, which no UTF-8 can hold, reads as U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def is_byte_pair(pipeline: Pipeline) -> bool:
    """Whether another program's tokenizer is one that `BytePairTokenizer` understands."""
    if not isinstance(pipeline.model, models.BPE):
        return False
    of_gpt = isinstance(pipeline.decoder, decoders.BPEDecoder) and pipeline.model.end_of_word_suffix == WORD_END
    return isinstance(pipeline.decoder, decoders.ByteLevel) or of_gpt


def train_byte_level(
    texts: Iterable[str], *, vocab_size: int = 10_000, min_frequency: int = 2, max_characters: int = 200_000_000
) -> BytePairTokenizer:
    """A tokenizer as GPT-2's, learned from one pass over `texts`; each text it encodes starts with `<|endoftext|>`.

    `vocab_size` counts the 256 bytes and `<|endoftext|>` (token 0), `min_frequency` is what a pair must reach to be
    merged. Raises UserError for settings out of range or no text.
    """
    if vocab_size < 257 or min_frequency < 1:
        where, value = ("vocab_size", vocab_size) if vocab_size < 257 else ("min_frequency", min_frequency)
        raise UserError(f"{value} is out of range.", where=where, remedy="Give 257 or more tokens, a frequency from 1.")
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
    """GPT-2's tokenizer from its vocab.json and merges.txt. Raises UserError for a missing or damaged file."""
    ids, pairs = _read(vocab, merges)
    pipeline = _of_bytes(models.BPE(vocab=ids, merges=pairs))
    if END in ids:
        pipeline.add_special_tokens([AddedToken(END, special=True, normalized=True)])
    return BytePairTokenizer(pipeline)


def read_gpt(vocab: Path | str, merges: Path | str) -> BytePairTokenizer:
    """GPT's tokenizer from its vocab.json and merges.txt. Raises UserError for a missing or damaged file."""
    ids, pairs = _read(vocab, merges)
    if UNKNOWN not in ids:
        message = f"there is no '{UNKNOWN}', so this is not GPT's vocabulary."
        raise UserError(message, where=str(vocab), remedy="Use read_gpt2 for a vocabulary of bytes.")
    pipeline = Pipeline(models.BPE(vocab=ids, merges=pairs, unk_token=UNKNOWN, end_of_word_suffix=WORD_END))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.BPEDecoder(suffix=WORD_END)
    pipeline.add_special_tokens([AddedToken(UNKNOWN, special=True, normalized=True)])
    return BytePairTokenizer(pipeline)


def _of_bytes(model: models.BPE) -> Pipeline:
    pipeline = Pipeline(model)
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _read(vocab: Path | str, merges: Path | str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The ids by token and the pairs to merge, in their order; the first line of merges.txt may be its version."""
    where = vocab
    try:
        ids = {str(token): int(i) for token, i in json.loads(Path(vocab).read_text(encoding="utf-8")).items()}
        where = merges
        lines = Path(merges).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        remedy = "Give the files that came with the model."
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(where), remedy=remedy) from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        place, remedy = f"{merges} line {number}", "Give two files of one model."
        if not left or not right or " " in right:
            raise UserError("this is not a pair of tokens.", where=place, remedy=remedy)
        lacking = [token for token in (left, right, left + right) if token not in ids]
        if lacking:  # the library would end the program
            raise UserError(f"the vocabulary has no '{lacking[0]}' to merge.", where=place, remedy=remedy)
        pairs.append((left, right))
    return ids, pairs
