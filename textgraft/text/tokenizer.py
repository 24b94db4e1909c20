"""Tokenizers over the `tokenizers` library: text to token ids and back, subword (unigram or BPE) or word level.

Text normalisation (text.normalize) runs before the library's pipeline. A saved tokenizer is a plain `tokenizer.json`
that the library reads: its model determines the kind, and a file of a later rules version would say so. A tokenizer
that needs a segmenter (text.thai) names it under a key of its own, and the library rejects it: without the segmenter it
would produce other words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import write_atomically
from textgraft.text.clusters import cluster_spans
from textgraft.text.damaged import as_user_errors, try_out
from textgraft.text.detokenize import detokenize, parting, settled
from textgraft.text.limits import limited, limited_unspaced, without_rare_characters
from textgraft.text.normalize import CONTROL, RULES_VERSION, Kind, Span, align, normalize
from textgraft.text.pipelines import finalized, new_pipeline
from textgraft.text.thai import Segmenter, joined

ModelName = Literal["unigram", "bpe", "byte_level", "wordpiece", "spelling"]
Side = Literal["before", "after", "none"]

_SEGMENTER = "textgraft_segmenter"
_SPELLING = "textgraft_spelling"
SPECIAL_TOKENS = "textgraft_special_tokens"
"""Key of tokenizer.json with the special tokens of a published tokenizer by role (text.pretrained)."""
_RESTORE = "Use a tokenizer.json written by textgraft, or train one."

DEFAULT_VOCAB_SIZES: dict[str, int] = {"word": 60_000, "subword": 10_000, "character": 1_000}
"""Default vocabulary size of each kind."""
MIN_FREQUENCY = 2

PIECE_CHARACTERS = 100_000
"""Longer texts are passed to the library in pieces, to limit its memory and use all cores."""
MAX_CHARACTERS_PER_CALL = 1 << 20
"""Characters per call of the library: its result takes thirty times their memory, of which only the ids are kept."""


@dataclass(frozen=True)
class PairMarks:
    """Ids before, between and after two texts that form one sequence."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """One text as T tokens.

    `offsets` are start and end in the original string, never inside a grapheme cluster; both of two subwords of a
    cluster have its whole span. A token without characters of the text (a control word, a bare word mark) has an empty
    span.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[Span]


class Tokenizer:
    """A vocabulary of V tokens and the mapping from text to their ids; created by `train` or `load`.

    Ids 0 to 8 are the control words (normalize.CONTROL). Every text starts with `xxbos`. If `spells` is true, texts are
    not ids but character encodings (T, 50) (text.character_encoding).
    """

    spells = False
    mask_id: int | None = None  # of tokenizers for masked language models

    unk_id, pad_id, bos_id, eos_id = (CONTROL.index(word) for word in ("xxunk", "xxpad", "xxbos", "xxeos"))

    def __init__(self, pipeline: Pipeline, segmenter: Segmenter | None = None) -> None:
        pipeline.no_padding()
        pipeline.no_truncation()
        self._pipeline, self.segmenter = pipeline, segmenter
        self.kind: Kind = "word" if isinstance(pipeline.model, models.WordLevel) else "subword"
        self.vocab_size: int = pipeline.get_vocab_size()
        vocabulary = pipeline.get_vocab()
        self.tokens: list[str] = sorted(vocabulary, key=vocabulary.__getitem__)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a generated text, including the begin of the next."""
        return frozenset({self.bos_id, self.eos_id})

    @cached_property
    def token_texts(self) -> list[str]:
        """The text of each token alone (V,): empty for special tokens, with U+FFFD for a part of a character."""
        texts: list[str] = self._pipeline.decode_batch([[i] for i in range(self.vocab_size)])
        return texts

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical file and the rules version: equal if all texts have equal ids."""
        content = {"rules": RULES_VERSION, "tokenizer": json.loads(self.to_json())}
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text, from `xxbos` at (0, 0)."""
        aligned = align(text, self.kind)
        if self.segmenter:
            aligned = self.segmenter.spaced_aligned(aligned)
        encoding = self._pipeline.encode(aligned.text)
        cluster_starts, cluster_ends = cluster_spans(text)
        offsets: list[Span] = [(0, 0)]
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets):
            # Skip the word mark's space, and a space absorbed by a control word.
            while start < end and aligned.text[start] in " ▁":
                start += 1
            bare = start == end or self.tokens[token_id] == "▁"
            first = aligned.starts[start] if start < len(aligned.text) else len(text)
            last = aligned.ends[end - 1] if not bare else first
            if first < last:
                offsets.append((cluster_starts[first], cluster_ends[last - 1]))
            else:
                offsets.append((cluster_starts[first],) * 2 if first < len(text) else (first, first))
        ids = [self.bos_id, *encoding.ids]
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, from `xxbos`; the same as `encode`'s, on all cores and much faster."""
        pieces = [list(_pieces(_prepare(text, self.kind, self.segmenter))) for text in texts]
        ids = ids_of(self._pipeline, chain.from_iterable(pieces))
        bos = np.array([self.bos_id], dtype=np.int32)
        return [np.concatenate([bos, *islice(ids, len(text))]) for text in pieces]

    @property
    def added_ids(self) -> frozenset[int]:
        """Ids of the tokens that are added to the model's vocabulary, special ones among them."""
        return frozenset(self._pipeline.get_added_tokens_decoder())

    @property
    def special(self) -> np.ndarray:
        """Mask (V,) of tokens that masking leaves alone."""
        return np.arange(self.vocab_size) < len(CONTROL)

    @property
    def continues(self) -> np.ndarray:
        """Mask (V,) of subwords that continue a word."""
        return np.array([self.kind == "subword" and not token.startswith("▁") for token in self.tokens])

    @property
    def pair_marks(self) -> PairMarks:
        """`xxbos` first `xxfld` second: fastai's separator of fields separates the texts of a pair."""
        return PairMarks((self.bos_id,), (CONTROL.index("xxfld"),))

    @property
    def window_marks(self) -> PairMarks:
        """Ids around and between question and context (data.windows): begin, separator, end."""
        return PairMarks((self.bos_id,), self.pair_marks.between, (self.eos_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without the special tokens that `encode_batch` adds."""
        return [ids[1:] for ids in self.encode_batch(texts)]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word of a sentence, int32, without special tokens; empty if the vocabulary cannot represent the
        word.

        Args:
            words: The words.
            space: Position of the space that belongs to a word, for vocabularies with spaces; "none" for words that
                follow another without a space.
        """
        if self.kind == "word" or space != "none":
            return self.bodies(words)
        # The word mark is attached to the digit, which is always a token of its own.
        encodings = self._pipeline.encode_batch_fast([f"0{normalize(word, self.kind)}" for word in words])
        encoded = [np.array(encoding.ids[2:], dtype=np.int32) for encoding in encodings]
        mark = np.array([self._pipeline.token_to_id("▁") or self.unk_id], dtype=np.int32)
        return [mark if word.isspace() else ids for word, ids in zip(words, encoded, strict=True)]

    def corpus_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, as the language model's targets: those of `encode_batch`."""
        return self.encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text: case and repetitions restored, other control words dropped, spacing guessed."""
        text = detokenize([self.tokens[i] for i in ids], self.kind)
        return joined(text) if self.segmenter else text

    def settled(self, ids: Sequence[int]) -> str:
        """The beginning of `decode`'s text that no further token changes."""
        return self.decode(ids[: settled([self.tokens[i] for i in ids], self.kind)])

    def parting(self, ids: Sequence[int]) -> int:
        """Index in the settled ids that divides the text; 0 if none is known.

        Whatever ids follow, the text before it does not change, and what they add depends only on the ids since any
        earlier such index, if these have text.
        """
        return parting([self.tokens[i] for i in ids], self.kind)

    def to_json(self) -> str:
        """Contents of `tokenizer.json`."""
        text = str(self._pipeline.to_str(pretty=True))
        if self.segmenter is None:
            return text
        return json.dumps({_SEGMENTER: self.segmenter.describe(), **json.loads(text)}, indent=2, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, atomically. Raises UserError if it cannot be written."""
        write_atomically(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a file of `save`. Raises UserError for a missing, damaged or foreign file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the tokenizer ({error}).", where=str(path), remedy=_RESTORE) from error
        return cls.from_json(text, where=str(path))

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "tokenizer.json") -> Tokenizer:
        """The inverse of `to_json`; tokenizers of published models, ELMo and Flair are of their own classes.

        Raises UserError for a damaged or foreign one, or if its segmenter is missing.
        """
        with as_user_errors(where, _RESTORE):
            text = text if isinstance(text, str) else text.decode()
            tokenizer = cls._from_json(text, where)
            _validate_ids(tokenizer)
            try_out(tokenizer)
            return tokenizer

    @classmethod
    def _from_json(cls, text: str, where: str) -> Tokenizer:
        """`from_json`, with whatever errors the library has for a damaged file."""
        segmenter = character_settings = special = None
        if any(f'"{key}"' in text for key in (_SEGMENTER, _SPELLING, SPECIAL_TOKENS)):
            content = json.loads(text)
            segmenter, character_settings = content.pop(_SEGMENTER, None), content.pop(_SPELLING, None)
            special = content.pop(SPECIAL_TOKENS, None)
            text = json.dumps(content, ensure_ascii=False)
        pipeline = Pipeline.from_str(text)
        from textgraft.text import tokenizer_kinds  # which imports this module

        spelled = character_settings is not None
        special_tokenizer = tokenizer_kinds.from_pipeline(pipeline, spelled=spelled, special=special, where=where)
        if special_tokenizer is not None:
            return special_tokenizer
        if [pipeline.id_to_token(i) for i in range(len(CONTROL))] != list(CONTROL):
            message = f"this tokenizer is another program's: its first tokens are not {', '.join(CONTROL)}."
            raise UserError(message, where=where, remedy=_RESTORE)
        return cls(pipeline, segmenter and Segmenter.from_description(segmenter, where=where))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Kind = "subword",
        model: ModelName = "unigram",
        vocab_size: int | None = None,
        min_frequency: int = MIN_FREQUENCY,
        max_characters: int = 200_000_000,
        max_unspaced: int = 4_000_000,
        segmenter: str | None = None,
        lowercase: bool = True,
    ) -> Tokenizer:
        """Train a tokenizer on one pass over texts; deterministic for the same stream.

        Word-level tokenizers split at white space and punctuation and split off English clitics. fastai uses spaCy's
        rules, which also keep abbreviations ("U.S."), URLs and emoticons whole; these are split here, without a model.
        Languages without spaces between words need subwords, or the `segmenter` "thai".

        Args:
            texts: The texts. The library keeps its counts in memory, so at most `max_characters` are read: shuffle a
                corpus that is sorted by topic.
            kind: "subword", "word", or "character" (Flair's: no control words, no rules; see text.characters).
            model: "unigram" or "bpe"; "byte_level" is GPT-2's (text.byte_level: no control words, no rules, lossless),
                "wordpiece" BERT's (text.wordpiece), "spelling" with kind "word" ELMo's (text.character_encoding).
            vocab_size: Most tokens, control words included; by default 10,000 subwords, 60,000 words as in ULMFiT, or
                1,000 characters.
            min_frequency: Occurrences of a word (word level), of a pair to be merged (BPE), or of a character to be
                part of any subword; the rest become `xxunk`.
            max_characters: Characters to train on.
            max_unspaced: Characters of text without spaces (Thai, Chinese) that subwords are trained on: there every
                run is a new one, and a unigram model needs about half a minute per million.
            segmenter: "thai" splits Thai into words (text.thai; extra `[thai]`).
            lowercase: Lower-case texts; for "wordpiece" only.

        Raises:
            UserError: A setting is out of range, or there is no text.
        """
        size = vocab_size if vocab_size is not None else DEFAULT_VOCAB_SIZES.get(kind, 0)
        _validate_settings(kind, model, size, min_frequency)
        word_segmenter = _segmenter(segmenter, kind)
        from textgraft.text import tokenizer_kinds  # which imports this module

        sizes = {"vocab_size": size, "min_frequency": min_frequency, "max_characters": max_characters}
        special_tokenizer = tokenizer_kinds.train_kind(kind, model, texts, lowercase=lowercase, **sizes)
        if special_tokenizer is not None:
            return special_tokenizer
        pipeline, trainer = new_pipeline(kind, model, size, min_frequency)
        stream: Iterator[str] = (_prepare(text, kind, word_segmenter) for text in limited(texts, max_characters))
        if kind == "subword":
            stream = without_rare_characters(limited_unspaced(stream, max_unspaced), min_frequency)
        pipeline.train_from_iterator(stream, trainer)
        return cls(finalized(pipeline, kind), word_segmenter)


def vocabulary_map(old: Tokenizer, new: Tokenizer) -> np.ndarray:
    """Index of each new token in the old vocabulary.

    The embedding of a token with index -1 is initialised with the mean of the old ones (Howard & Ruder 2018, §3.2 and
    their code).

    Returns:
        Old ids or -1, (V_new,) int64.
    """
    ids = {token: i for i, token in enumerate(old.tokens)}
    return np.array([ids.get(token, -1) for token in new.tokens], dtype=np.int64)


def _validate_settings(kind: str, model: str, vocab_size: int, min_frequency: int) -> None:
    if kind not in DEFAULT_VOCAB_SIZES:
        raise UserError(f"there is no tokenizer kind '{kind}'.", remedy=did_you_mean(kind, DEFAULT_VOCAB_SIZES))
    if model not in get_args(ModelName):
        remedy = did_you_mean(model, get_args(ModelName))
        raise UserError(f"there is no subword model '{model}'.", remedy=remedy)
    if model == "spelling" and kind != "word":
        raise UserError("model 'spelling' is for words.", where="model", remedy="Set the kind to 'word'.")
    if vocab_size <= len(CONTROL):
        remedy = f"It includes the {len(CONTROL)} control words; use some thousands."
        raise UserError(f"a vocabulary of {vocab_size} is too small.", where="vocab_size", remedy=remedy)
    if min_frequency < 1:
        raise UserError(f"{min_frequency} is out of range.", where="min_frequency", remedy="Use 1 or more.")


def _segmenter(name: str | None, kind: Kind) -> Segmenter | None:
    if name is None:
        return None
    if name != "thai":
        raise UserError(f"there is no segmenter '{name}'.", where="segmenter", remedy=did_you_mean(name, ("thai",)))
    if kind != "word":
        message, remedy = f"a segmenter is for words, not {kind}s.", "Leave it out, or set the kind to 'word'."
        raise UserError(message, where="segmenter", remedy=remedy)
    return Segmenter.installed()


def _prepare(text: str, kind: Kind, segmenter: Segmenter | None) -> str:
    """Normalised and segmented text for the library's pipeline."""
    text = normalize(text, kind)
    return segmenter.spaced(text) if segmenter else text


def ids_of(pipeline: Pipeline, texts: Iterable[str], *, special_tokens: bool = True) -> Iterator[np.ndarray]:
    """Ids of each text by a pipeline, int32, in memory for MAX_CHARACTERS_PER_CALL."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= MAX_CHARACTERS_PER_CALL:
            yield from _ids(pipeline, part, special_tokens)
            part, characters = [], 0
    yield from _ids(pipeline, part, special_tokens)


def _ids(pipeline: Pipeline, texts: list[str], special_tokens: bool) -> list[np.ndarray]:
    encodings = pipeline.encode_batch_fast(texts, add_special_tokens=special_tokens)
    return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]


def _pieces(text: str) -> Iterator[str]:
    """Split a normalised text before spaces into pieces of about PIECE_CHARACTERS, if it has spaces.

    No token crosses a space, so the ids are those of the whole text.
    """
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = text.find(" ", start + PIECE_CHARACTERS)
        if end < 0:
            break
        yield text[start:end]
        start = end
    yield text[start:]


def _validate_ids(tokenizer: Tokenizer) -> None:
    """Raise ValueError for a vocabulary with an id beyond its tokens."""
    highest = max(tokenizer._pipeline.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= len(tokenizer.tokens):
        raise ValueError(f"a token has the id {highest:,}, and there are {len(tokenizer.tokens):,} tokens")
