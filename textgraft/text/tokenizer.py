"""Text to token ids and back, over the `tokenizers` library: subword (unigram or BPE) or whole words.

Our rules (see normalize.py) run before the library's own steps. A saved tokenizer is a plain `tokenizer.json` that
the library reads: its model says the kind, and a file of a later rules version would say so. One that needs a segmenter
(see thai.py) names it under a key of its own, and the library refuses it: alone it would read other words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, get_args

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import write_atomically
from textgraft.core.keywords import check_keywords
from textgraft.text.clusters import cluster_spans
from textgraft.text.detokenize import detokenize, parting, settled
from textgraft.text.limits import limited, limited_unspaced, without_rare_characters
from textgraft.text.normalize import CONTROL, RULES_VERSION, Kind, Span, align, normalize
from textgraft.text.thai import Segmenter, joined

ModelName = Literal["unigram", "bpe", "byte_level", "wordpiece", "spelling"]
Side = Literal["before", "after", "none"]

_SEGMENTER = "textgraft_segmenter"
_SPELLING = "textgraft_spelling"
_RESTORE = "Give a tokenizer.json that textgraft wrote, or train one."

SIZES: dict[str, int] = {"word": 60_000, "subword": 10_000, "character": 1_000}
"""How many tokens a vocabulary of each kind has where nobody says."""
MIN_FREQUENCY = 2
MAX_CHARACTERS, MAX_UNSPACED = 200_000_000, 4_000_000

PIECE_CHARACTERS = 100_000
"""Longer texts go to the library in pieces, so that its memory stays small and both cores have work."""
CHARACTERS_AT_ONCE = 1 << 20
"""So many go to the library together: what it says of them takes thirty times their room, and only the ids are kept."""

_ANY_CONTROL = Regex(rf" ?(?:{'|'.join(CONTROL)})(?= |$)")
_DIGIT = Regex(r"\p{N}")
# Clitics as spaCy cuts them (do|n't, it|'s), then words, numbers with their points, and any other cluster by itself.
_WORD = Regex(
    r"\p{L}[\p{L}\p{M}]*?(?=n['’]t(?![\p{L}\p{M}]))|n['’]t(?![\p{L}\p{M}])|['’](?:s|m|d|re|ve|ll)(?![\p{L}\p{M}])"
    r"|\p{N}+(?:[.,]\p{N}+)*|[\p{L}\p{M}][\p{L}\p{M}\p{N}]*|(?!\s)\X"
)


@dataclass(frozen=True)
class PairMarks:
    """The ids that stand before, between and after two texts that are read as one sequence."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """One text as T tokens.

    `offsets` are [start, end) in the user's own string, never inside a grapheme cluster; two pieces of one cluster
    both get the whole of it. A token that stands for none of the user's characters (a control word, a bare word
    mark) has an empty span.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[Span]


class TokenizerSettings(TypedDict, total=False):
    """The keyword arguments of Tokenizer.train.

    Attributes:
        kind: "subword" (the default), "word", or Flair's "character" (see characters.py; no control words, no rules).
        model: "unigram" (the default), "bpe"; GPT-2's "byte_level" (see byte_level.py: no control words, no rules,
            every text comes back); BERT's "wordpiece" (see wordpiece.py); of kind "word", ELMo's "spelling".
        vocab_size: A ceiling that counts the control words (10,000 subwords, 60,000 words as in ULMFiT, 1,000
            characters).
        min_frequency: Of a word (word level), of a pair to be merged (BPE), or of a character to be part of any
            subword; the rest becomes `xxunk`.
        max_characters: How many characters are read at most.
        max_unspaced: How many characters of text without spaces (Thai, Chinese), where every stretch is a new one,
            subwords learn from; a unigram model needs about half a minute for each million.
        segmenter: "thai" for kind "word", or None.
        lowercase: Of wordpiece alone; True by default.
    """

    kind: Kind
    model: ModelName
    vocab_size: int | None
    min_frequency: int
    max_characters: int
    max_unspaced: int
    segmenter: str | None
    lowercase: bool


class Tokenizer:
    """A vocabulary of V tokens and the way from text to their ids; made by `train` or `load`.

    Ids 0 to 8 are the control words (normalize.CONTROL). Every text starts with `xxbos`. Where it `spells`, what it
    gives for a text are no ids but characters, (T, 50) (spelling.py).
    """

    spells = False

    unk_id, pad_id, bos_id, eos_id = (CONTROL.index(word) for word in ("xxunk", "xxpad", "xxbos", "xxeos"))

    def __init__(self, pipeline: Pipeline, segmenter: Segmenter | None = None) -> None:
        pipeline.no_padding()
        pipeline.no_truncation()
        self._pipeline, self.segmenter = pipeline, segmenter
        self.kind: Kind = "word" if isinstance(pipeline.model, models.WordLevel) else "subword"
        self.vocab_size: int = pipeline.get_vocab_size()
        vocabulary = pipeline.get_vocab()
        self.tokens: list[str] = sorted(vocabulary, key=vocabulary.__getitem__)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical file and the rules version: equal where all texts get equal ids."""
        content = {"rules": RULES_VERSION, "tokenizer": json.loads(self.to_json())}
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, text: str) -> Encoding:
        """One text with its tokens and their offsets. `xxbos` comes first, at (0, 0)."""
        aligned = align(text, self.kind)
        if self.segmenter:
            aligned = self.segmenter.spaced_aligned(aligned)
        encoding = self._pipeline.encode(aligned.text)
        cluster_starts, cluster_ends = cluster_spans(text)
        offsets: list[Span] = [(0, 0)]
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets):
            # Pass over the word mark's space, and over one that a control word swallowed.
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
        """The ids of each text, int32, `xxbos` first; the same as `encode`'s, on all cores and much faster."""
        pieces = [list(_pieces(_prepared(text, self.kind, self.segmenter))) for text in texts]
        ids = ids_of(self._pipeline, chain.from_iterable(pieces))
        bos = np.array([self.bos_id], dtype=np.int32)
        return [np.concatenate([bos, *islice(ids, len(text))]) for text in pieces]

    @property
    def pair_marks(self) -> PairMarks:
        """`xxbos` first `xxfld` second: the word that parts fields in fastai's texts parts those of a pair."""
        return PairMarks((self.bos_id,), (CONTROL.index("xxfld"),))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, without the marks that `encode_batch` puts around it."""
        return [ids[1:] for ids in self.encode_batch(texts)]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """The ids of each word of a sentence, int32, without marks; none where the vocabulary has nothing for it.

        `space` says which of the spaces beside it is the word's own, where a vocabulary has spaces; "none" where it
        follows another word without one.
        """
        if self.kind == "word" or space != "none":
            return self.bodies(words)
        # The mark of a space goes before the digit, which is a piece by itself.
        encodings = self._pipeline.encode_batch_fast([f"0{normalize(word, self.kind)}" for word in words])
        found = [np.array(encoding.ids[2:], dtype=np.int32) for encoding in encodings]
        mark = np.array([self._pipeline.token_to_id("▁") or self.unk_id], dtype=np.int32)
        return [mark if word.isspace() else ids for word, ids in zip(words, found, strict=True)]

    def corpus_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, by which a language model predicts it: those of `encode_batch`."""
        return self.encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text: case and repetitions are put back, other control words left out, spacing is a guess."""
        text = detokenize([self.tokens[i] for i in ids], self.kind)
        return joined(text) if self.segmenter else text

    def settled(self, ids: Sequence[int]) -> str:
        """The beginning of `decode`'s text that no further token changes."""
        return self.decode(ids[: settled([self.tokens[i] for i in ids], self.kind)])

    def parting(self, ids: Sequence[int]) -> int:
        """A place in settled text that parts it, 0 for none known: whatever ids follow, before it nothing changes.

        And what they add depends on no more than the ids from any earlier such place on, if these have a text.
        """
        return parting([self.tokens[i] for i in ids], self.kind)

    def to_json(self) -> str:
        """The text of `tokenizer.json`."""
        text = str(self._pipeline.to_str(pretty=True))
        if self.segmenter is None:
            return text
        return json.dumps({_SEGMENTER: self.segmenter.describe(), **json.loads(text)}, indent=2, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, atomically. Raises UserError where it cannot be written."""
        write_atomically(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read what `save` wrote. Raises UserError for a missing, damaged or foreign file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the tokenizer ({error}).", where=str(path), remedy=_RESTORE) from error
        return cls.from_json(text, where=str(path))

    @classmethod
    def from_json(cls, text: str, *, where: str = "tokenizer.json") -> Tokenizer:
        """The inverse of `to_json`: GPT's and GPT-2's come as a BytePairTokenizer, ELMo's and Flair's as their own too.

        Raises UserError for a damaged or foreign one, or without its segmenter.
        """
        described = spelled = None
        try:
            if f'"{_SEGMENTER}"' in text or f'"{_SPELLING}"' in text:
                content = json.loads(text)
                described, spelled = content.pop(_SEGMENTER, None), content.pop(_SPELLING, None)
                text = json.dumps(content, ensure_ascii=False)
            pipeline = Pipeline.from_str(text)
        except Exception as error:  # the library raises bare Exception for whatever it cannot parse
            raise UserError(f"this tokenizer is damaged ({error}).", where=where, remedy=_RESTORE) from error
        from textgraft.text import tokenizer_kinds  # which imports this module

        own = tokenizer_kinds.found(pipeline, spelled=spelled is not None, where=where)
        if own is not None:
            return own
        if [pipeline.id_to_token(i) for i in range(len(CONTROL))] != list(CONTROL):
            message = f"this tokenizer is another program's: its first tokens are not {', '.join(CONTROL)}."
            raise UserError(message, where=where, remedy=_RESTORE)
        return cls(pipeline, described and Segmenter.from_description(described, where=where))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        **settings: Unpack[TokenizerSettings],
    ) -> Tokenizer:
        """A tokenizer learned from one pass over `texts`, the same for the same stream.

        The library holds its counts in memory: shuffle a corpus that is sorted by topic before you pass it.

        Word level cuts at whitespace and punctuation and splits off English clitics. fastai uses spaCy's rules, which
        also keep abbreviations ("U.S."), URLs and emoticons whole; we cut these, and need no model. Languages
        written without spaces want subwords, or the `segmenter` "thai" (see thai.py; extra `[thai]`).

        Args:
            texts: Texts, in any number.
            settings: The keys of TokenizerSettings.

        Raises:
            UserError: A setting is out of range, or there is no text.
        """
        check_keywords("Tokenizer.train", settings, TokenizerSettings.__annotations__)
        kind, model = settings.get("kind", "subword"), settings.get("model", "unigram")
        vocab_size, min_frequency = settings.get("vocab_size"), settings.get("min_frequency", MIN_FREQUENCY)
        max_characters = settings.get("max_characters", MAX_CHARACTERS)
        size = vocab_size if vocab_size is not None else SIZES.get(kind, 0)
        _check_settings(kind, model, size, min_frequency)
        cutter = _segmenter(settings.get("segmenter"), kind)
        from textgraft.text import tokenizer_kinds  # which imports this module

        sizes = {"vocab_size": size, "min_frequency": min_frequency, "max_characters": max_characters}
        own = tokenizer_kinds.trained(kind, model, texts, lowercase=settings.get("lowercase", True), **sizes)
        if own is not None:
            return own
        pipeline, trainer = _untrained(kind, model, size, min_frequency)
        stream: Iterator[str] = (_prepared(text, kind, cutter) for text in limited(texts, max_characters))
        if kind == "subword":
            spaced = limited_unspaced(stream, settings.get("max_unspaced", MAX_UNSPACED))
            stream = without_rare_characters(spaced, min_frequency)
        pipeline.train_from_iterator(stream, trainer)
        return cls(_finished(pipeline, kind), cutter)


def vocabulary_map(old: Tokenizer, new: Tokenizer) -> np.ndarray:
    """Where to find each new token in the old vocabulary: (V_new,) int64, the old id or -1.

    The embedding of a token marked -1 starts as the mean of the old ones (Howard & Ruder 2018, §3.2 and their code).
    """
    ids = {token: i for i, token in enumerate(old.tokens)}
    return np.array([ids.get(token, -1) for token in new.tokens], dtype=np.int64)


def _check_settings(kind: str, model: str, vocab_size: int, min_frequency: int) -> None:
    if kind not in SIZES:
        raise UserError(f"there is no tokenizer kind '{kind}'.", remedy=did_you_mean(kind, SIZES))
    if model not in get_args(ModelName):
        remedy = did_you_mean(model, get_args(ModelName))
        raise UserError(f"there is no subword model '{model}'.", remedy=remedy)
    if model == "spelling" and kind != "word":
        raise UserError("what is spelled are words.", where="model", remedy="Make the kind 'word'.")
    if vocab_size <= len(CONTROL):
        remedy = f"It counts the {len(CONTROL)} control words; give some thousands."
        raise UserError(f"a vocabulary of {vocab_size} is too small.", where="vocab_size", remedy=remedy)
    if min_frequency < 1:
        raise UserError(f"{min_frequency} is out of range.", where="min_frequency", remedy="Give 1 or more.")


def _segmenter(name: str | None, kind: Kind) -> Segmenter | None:
    if name is None:
        return None
    if name != "thai":
        raise UserError(f"there is no segmenter '{name}'.", where="segmenter", remedy=did_you_mean(name, ("thai",)))
    if kind != "word":
        message, remedy = f"a segmenter cuts words, and these are {kind}s.", "Leave it out, or make the kind 'word'."
        raise UserError(message, where="segmenter", remedy=remedy)
    return Segmenter.installed()


def _prepared(text: str, kind: Kind, segmenter: Segmenter | None) -> str:
    """What the library's pipeline is given of a user's text."""
    text = normalize(text, kind)
    return segmenter.spaced(text) if segmenter else text


def _untrained(kind: Kind, model: ModelName, vocab_size: int, min_frequency: int) -> tuple[Pipeline, Any]:
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": list(CONTROL),
        "show_progress": False,
    }
    if kind == "word":
        pipeline = Pipeline(models.WordLevel(unk_token="xxunk"))
        trainer: Any = trainers.WordLevelTrainer(min_frequency=min_frequency, **common)
    elif model == "unigram":
        pipeline = Pipeline(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token="xxunk", max_piece_length=16, **common)
    else:
        pipeline = Pipeline(models.BPE(unk_token="xxunk", fuse_unk=True))
        trainer = trainers.BpeTrainer(min_frequency=min_frequency, max_token_length=16, **common)
    # Control words are no text to learn from; when encoding they are added tokens and never reach this step.
    cuts = pre_tokenizers.Split(_ANY_CONTROL, "removed")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([cuts, *_pre_tokenizers(kind)])
    return pipeline, trainer


def _pre_tokenizers(kind: Kind) -> list[Any]:
    if kind == "word":
        return [pre_tokenizers.Split(_WORD, "removed", invert=True)]
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    return [metaspace, pre_tokenizers.Split(_DIGIT, "isolated")]


def _finished(pipeline: Pipeline, kind: Kind) -> Pipeline:
    if isinstance(pipeline.model, models.Unigram):
        pipeline.model = _settled(pipeline)
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(_pre_tokenizers(kind))
    controls = [AddedToken(word, normalized=False, special=True, lstrip=True) for word in CONTROL]
    pipeline.add_special_tokens(controls)
    if kind == "subword":
        pipeline.decoder = decoders.Metaspace()
    return pipeline


def _settled(pipeline: Pipeline) -> models.Unigram:
    """The trained unigram model with what the trainer leaves to chance made certain.

    The trainer walks hash maps whose order changes from run to run: sums differ in their last bits, and characters
    that no piece of its own earned a place get the lowest score plus 0.0001 for each one before them, in any order.
    """
    vocabulary = [(str(piece), float(score)) for piece, score in json.loads(pipeline.to_str())["model"]["vocab"]]
    pieces = vocabulary[len(CONTROL) :]
    lowest = min((score for _, score in pieces), default=0.0)
    singles = [piece for piece, _ in pieces if len(piece) == 1]
    late = {piece for piece, score in pieces if len(piece) == 1 and score < lowest + 0.0001 * (len(singles) + 1)}
    scores = {piece: round(lowest, 6) + 0.0001 * rank for rank, piece in enumerate(sorted(late))}
    settled = [(piece, round(scores.get(piece, score), 6)) for piece, score in pieces]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*vocabulary[: len(CONTROL)], *settled], unk_id=0, byte_fallback=False)


def ids_of(pipeline: Pipeline, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """The ids of each text as `pipeline` has them, int32; the memory is that of CHARACTERS_AT_ONCE."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= CHARACTERS_AT_ONCE:
            yield from _ids(pipeline, part)
            part, characters = [], 0
    yield from _ids(pipeline, part)


def _ids(pipeline: Pipeline, texts: list[str]) -> list[np.ndarray]:
    return [np.array(encoding.ids, dtype=np.int32) for encoding in pipeline.encode_batch_fast(texts)]


def _pieces(text: str) -> Iterator[str]:
    """Cut a normalised text before spaces into pieces of PIECE_CHARACTERS or a little more, if it has spaces.

    No token crosses a space, so the ids are those of the whole.
    """
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        end = text.find(" ", start + PIECE_CHARACTERS)
        if end < 0:
            break
        yield text[start:end]
        start = end
    yield text[start:]
