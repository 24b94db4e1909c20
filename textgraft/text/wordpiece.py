"""WordPiece, the tokenizer of BERT: words cut into the longest pieces that the vocabulary knows, from the left.

Schuster & Nakajima 2012; Wu et al. 2016, §4.1; the normaliser and the marks are those of Devlin et al. 2019. Ids equal
those of the `transformers` library's BertTokenizer, also where the text itself says "[SEP]": it then is one.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.normalize import Span
from textgraft.text.token_cache import TokenCache
from textgraft.text.tokenizer import Encoding, PairMarks, Tokenizer

SEP = "[SEP]"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", SEP, "[MASK]")
"""The marks, by the names that every published BERT has for them, in the order in which `train` numbers them."""

CONTINUES = "##"
AT_ONCE = 1000
_LONGEST_WORD = 100  # characters; a longer word is [UNK], as in the authors' code
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_RESTORE = "Give a BERT's vocab.txt, or the tokenizer.json beside it."


@dataclass(frozen=True)
class PairEncoding(Encoding):
    """Two texts as the T tokens of [CLS] first [SEP] second [SEP]; each offset is in its own text.

    `segments` are 0 up to the first [SEP] and 1 after it.
    """

    segments: list[int]


class WordPieceTokenizer(Tokenizer):
    """A vocabulary of pieces, of which those that continue a word begin with ##; made by `train` or the `from_` ways.

    Every text is [CLS] text [SEP]. Raises UserError for a vocabulary without the marks.
    """

    def __init__(self, pipeline: Pipeline, *, where: str = "tokenizer.json") -> None:
        super().__init__(pipeline)
        ids = pipeline.get_vocab()
        absent = [mark for mark in SPECIAL if mark not in ids]
        if absent:
            raise UserError(f"this vocabulary lacks {', '.join(absent)}.", where=where, remedy=_RESTORE)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[mark] for mark in SPECIAL)
        self.bos_id, self.eos_id = self.cls_id, self.sep_id

    @property
    def special(self) -> np.ndarray:
        """(V,) bool: the marks."""
        marks = [self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id]
        return np.isin(np.arange(self.vocab_size), marks)

    @property
    def continues(self) -> np.ndarray:
        """(V,) bool: pieces that belong to the word before them."""
        return np.array([token.startswith(CONTINUES) and token != CONTINUES for token in self.tokens])

    @cached_property
    def normalizer(self) -> dict[str, Any]:
        """`lowercase`, `strip_accents` (None: as lowercase), `handle_chinese_chars` and `clean_text`."""
        return dict(json.loads(self._pipeline.to_str())["normalizer"] or {})

    def encode(self, text: str) -> Encoding:
        """One text with its tokens and their offsets; the marks at its ends have empty ones."""
        ids, offsets = self._encoded(text)
        return self._encoding([self.cls_id, *ids, self.sep_id], [(0, 0), *offsets, (len(text),) * 2])

    def encode_pair(self, first: str, second: str) -> PairEncoding:
        """Two texts as one sequence."""
        (a, of_a), (b, of_b) = self._encoded(first), self._encoded(second)
        ids = [self.cls_id, *a, self.sep_id, *b, self.sep_id]
        offsets = [(0, 0), *of_a, (len(first),) * 2, *of_b, (len(second),) * 2]
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        return PairEncoding(ids, [self.tokens[i] for i in ids], offsets, segments)

    def _encoding(self, ids: list[int], offsets: list[Span]) -> Encoding:
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets)

    def _encoded(self, text: str) -> tuple[list[int], list[Span]]:
        """The ids and offsets of a text, without marks."""
        encoding = self._pipeline.encode(_clean(text), add_special_tokens=False)
        starts, ends = cluster_spans(text)
        return encoding.ids, [(starts[a], ends[b - 1]) if a < b else (a, a) for a, b in encoding.offsets]

    @property
    def pair_marks(self) -> PairMarks:
        """[CLS] first [SEP] second [SEP]."""
        return PairMarks((self.cls_id,), (self.sep_id,), (self.sep_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, without marks."""
        return self._chunks.ids(texts)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, int32, with the marks; the same as `encode`'s, on all cores and much faster."""
        edge = {name: np.array([i], dtype=np.int32) for name, i in (("cls", self.cls_id), ("sep", self.sep_id))}
        return [np.concatenate([edge["cls"], ids, edge["sep"]]) for ids in self._chunks.ids(texts)]

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each pair the ids and the segments, int32, the same as `encode_pair`'s."""
        bodies = iter(self._chunks.ids([text for pair in pairs for text in pair]))
        results = []
        for a, b in zip(bodies, bodies, strict=True):
            ids = np.concatenate([[self.cls_id], a, [self.sep_id], b, [self.sep_id]]).astype(np.int32)
            results.append((ids, (np.arange(len(ids)) >= len(a) + 2).astype(np.int32)))
        return results

    @cached_property
    def _chunks(self) -> TokenCache:
        return TokenCache(self._apart.findall, self._cut)

    def _cut(self, chunks: list[str]) -> list[np.ndarray]:
        """The ids of each chunk; of a thousand chunks at once, which costs the library less than each by itself."""
        found: list[np.ndarray] = []
        for first in range(0, len(chunks), AT_ONCE):
            some = [_clean(chunk) for chunk in chunks[first : first + AT_ONCE]]
            joined = self._pipeline.encode_batch_fast([f" {SEP} ".join(some)], add_special_tokens=False)[0]
            parts = _parted(np.array(joined.ids, dtype=np.int32), self.sep_id)
            if len(parts) != len(some):  # one of them says [SEP]
                encodings = self._pipeline.encode_batch_fast(some, add_special_tokens=False)
                parts = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
            found += parts
        return found

    @cached_property
    def _apart(self) -> re.Pattern[str]:
        """What is read by itself: ASCII punctuation that no mark contains, and what stands between it and spaces."""
        marks = "".join(token.content for token in self._pipeline.get_added_tokens_decoder().values())
        alone = "".join(re.escape(c) for c in string.punctuation if c not in marks)
        spaces = "".join(c for c in " \n\t\r" if c not in marks)
        return re.compile(f"[^{alone}{spaces}]+|[{alone}]")

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text: words put together again, without marks; case and accents that were lost stay lost."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))

    def parting(self, ids: Sequence[int]) -> int:
        """None known: the library's rules for what goes without a space are its own."""
        return 0

    def huggingface_files(self) -> dict[str, bytes]:
        """The files of a tokenizer by name, for a folder that the `transformers` library opens."""
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.normalizer.get("lowercase", True),
            "strip_accents": self.normalizer.get("strip_accents"),
            "tokenize_chinese_chars": self.normalizer.get("handle_chinese_chars", True),
            **{f"{mark[1:-1].lower()}_token": mark for mark in SPECIAL},
        }
        return {
            "tokenizer.json": self.to_json().encode(),
            "tokenizer_config.json": (json.dumps(config, indent=1) + "\n").encode(),
            "vocab.txt": "".join(f"{token}\n" for token in self.tokens).encode(),
        }

    @classmethod
    def from_vocabulary(
        cls,
        tokens: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
        where: str = "vocab.txt",
    ) -> WordPieceTokenizer:
        """The tokenizer of these pieces, by their ids. Raises UserError for a piece that is there twice."""
        twice = [token for token, count in Counter(tokens).items() if count > 1]
        if twice:
            raise UserError(f"'{twice[0]}' is in this vocabulary twice.", where=where, remedy=_RESTORE)
        vocabulary = {token: i for i, token in enumerate(tokens)}
        if "[UNK]" not in vocabulary:
            raise UserError("this vocabulary lacks [UNK].", where=where, remedy=_RESTORE)
        model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD)
        pipeline = _dressed(Pipeline(model), lowercase, strip_accents, split_chinese)
        pipeline.decoder = decoders.WordPiece(prefix=CONTINUES)
        pipeline.add_special_tokens([AddedToken(m, normalized=False, special=True) for m in SPECIAL if m in vocabulary])
        made = cls(pipeline, where=where)
        pipeline.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", made.cls_id), ("[SEP]", made.sep_id)],
        )
        return made

    @classmethod
    def from_huggingface(cls, folder: str | Path) -> WordPieceTokenizer:
        """A published BERT's: tokenizer.json, or else vocab.txt as tokenizer_config.json says to read it.

        Raises UserError where neither is there, or a file is damaged or of another kind of tokenizer.
        """
        folder = Path(folder)
        whole, vocabulary, settings = (folder / n for n in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"))
        if whole.is_file():
            made = Tokenizer.load(whole)
            if not isinstance(made, cls):
                raise UserError("this is no WordPiece tokenizer.", where=str(whole), remedy=_RESTORE)
            return made
        try:
            tokens = vocabulary.read_text(encoding="utf-8").split("\n")
            config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the tokenizer ({error}).", where=str(folder), remedy=_RESTORE) from error
        while tokens and not tokens[-1]:
            tokens.pop()
        return cls.from_vocabulary(
            [token.removesuffix("\r") for token in tokens],
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            split_chinese=config.get("tokenize_chinese_chars", True),
            where=str(vocabulary),
        )


def train(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    min_frequency: int = 2,
    max_characters: int = 100_000_000,
) -> WordPieceTokenizer:
    """A WordPiece vocabulary learned from `texts`, the same for the same stream.

    Pieces are joined by how often they meet (as in byte pair encoding), which the `tokenizers` library does in place
    of the likelihood of Schuster & Nakajima 2012. Every character that is seen `min_frequency` times has a place, and
    one more where it continues words. `vocab_size` counts all, marks too, and is a ceiling. The texts are held in
    memory, up to `max_characters`. Raises UserError for no text, or a vocabulary too small for the characters.
    """
    pipeline = _dressed(Pipeline(models.WordPiece(unk_token="[UNK]")), lowercase, strip_accents, True)
    # The pipeline is locked while it trains, so that a generator could not use its normaliser.
    kept = [str(pipeline.normalizer.normalize_str(text)) for text in _limited(texts, max_characters)]
    counts = _words(pipeline, kept)
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    known = {c for c, count in characters.items() if count >= min_frequency}
    rare = {ord(c): " " for c in characters.keys() - known}
    words = [part for word in counts for part in word.translate(rare).split()]
    # The trainer numbers what continues words in the order of a hash map, and breaks ties by number: name them before.
    base = [*SPECIAL, *sorted(known), *sorted({CONTINUES + c for word in words for c in word[1:]})]
    if len(base) > vocab_size:
        message = f"a vocabulary of {vocab_size} cannot hold the {len(base)} marks and characters of this text."
        raise UserError(message, where="vocab_size", remedy=f"Give {2 * len(base)} or more, or raise min_frequency.")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=base,
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    pipeline.train_from_iterator((text.translate(rare) for text in kept), trainer)
    vocabulary = pipeline.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)[:vocab_size]
    return WordPieceTokenizer.from_vocabulary(tokens, lowercase=lowercase, strip_accents=strip_accents)


def _dressed(pipeline: Pipeline, lowercase: bool, strip_accents: bool | None, split_chinese: bool) -> Pipeline:
    """The pipeline with BERT's normaliser, and cuts at whitespace and at every punctuation mark."""
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return pipeline


def _limited(texts: Iterable[str], max_characters: int) -> list[str]:
    kept, read = [], 0
    for text in texts:
        kept.append(_clean(text[: max_characters - read]))
        read += len(kept[-1])
        if read >= max_characters:
            break
    if not read:
        raise UserError("there is no text to train a tokenizer on.", remedy="Check that the input is not empty.")
    return kept


def _words(pipeline: Pipeline, texts: Iterable[str]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    cut = pipeline.pre_tokenizer.pre_tokenize_str
    for text in texts:
        counts.update(word for word, _ in cut(text))
    return counts


def _parted(ids: np.ndarray, mark: int) -> list[np.ndarray]:
    """What stands before, between and behind the marks."""
    places = np.flatnonzero(ids == mark)
    return [ids[a:b] for a, b in zip([0, *places + 1], [*places, len(ids)], strict=True)]


def _clean(text: str) -> str:
    """JSON may carry half a surrogate pair; no encoder of Unicode text takes one, and BERT's drops U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)
