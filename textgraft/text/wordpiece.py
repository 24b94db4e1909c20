"""WordPiece, BERT's tokenizer: words are split into the longest known subwords from the left.

Schuster & Nakajima 2012; Wu et al. 2016, §4.1; the normaliser and the special tokens are those of Devlin et al. 2019.
Ids equal those of the `transformers` library's BertTokenizer, also for "[SEP]" in a text, which becomes the token. The
length of the longest word is part of the saved tokenizer.
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
from textgraft.text.tokenizer import Encoding, PairMarks, Side, Tokenizer

SEP = "[SEP]"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", SEP, "[MASK]")
"""Special tokens as named by every published BERT, in the order of their ids in `train`."""

CONTINUES = "##"
CHUNKS_PER_CALL = 1000
LONGEST_WORD, LONGEST_WORD_OF_LIBRARY = 200, 100
"""Characters of the longest word that is not [UNK], in the authors' code and in the `transformers` library."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_RESTORE = "Use a BERT's vocab.txt, or the tokenizer.json beside it."


@dataclass(frozen=True)
class PairEncoding(Encoding):
    """Two texts as the T tokens of [CLS] first [SEP] second [SEP]; each offset refers to its own text.

    `segments` are 0 up to the first [SEP] and 1 after it.
    """

    segments: list[int]


class WordPieceTokenizer(Tokenizer):
    """A vocabulary of subwords, those inside words beginning with ##; created by `train` or a `from_` constructor.

    Every text is [CLS] text [SEP]. Raises UserError for a vocabulary without the special tokens.
    """

    def __init__(self, pipeline: Pipeline, *, where: str = "tokenizer.json") -> None:
        super().__init__(pipeline)
        ids = pipeline.get_vocab()
        missing = [mark for mark in SPECIAL if mark not in ids]
        if missing:
            raise UserError(f"this vocabulary lacks {', '.join(missing)}.", where=where, remedy=_RESTORE)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[mark] for mark in SPECIAL)
        self.bos_id, self.eos_id = self.cls_id, self.sep_id

    @property
    def special(self) -> np.ndarray:
        """Mask (V,) of special tokens."""
        return np.isin(self.tokens, SPECIAL)

    @property
    def continues(self) -> np.ndarray:
        """Mask (V,) of subwords that continue a word."""
        return np.array([token.startswith(CONTINUES) and token != CONTINUES for token in self.tokens])

    @cached_property
    def normalizer(self) -> dict[str, Any]:
        """Options `lowercase`, `strip_accents` (None: as lowercase), `handle_chinese_chars` and `clean_text`."""
        return dict(json.loads(self._pipeline.to_str())["normalizer"] or {})

    def encode(self, text: str) -> Encoding:
        """Tokens and offsets of one text; special tokens have empty spans."""
        ids, offsets = self._encode_body(text)
        return self._encoding([self.cls_id, *ids, self.sep_id], [(0, 0), *offsets, (len(text),) * 2])

    def encode_pair(self, first: str, second: str) -> PairEncoding:
        """Two texts as one sequence."""
        (a, offsets_a), (b, offsets_b) = self._encode_body(first), self._encode_body(second)
        ids = [self.cls_id, *a, self.sep_id, *b, self.sep_id]
        offsets = [(0, 0), *offsets_a, (len(first),) * 2, *offsets_b, (len(second),) * 2]
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        return PairEncoding(ids, [self.tokens[i] for i in ids], offsets, segments)

    def _encoding(self, ids: list[int], offsets: list[Span]) -> Encoding:
        return Encoding(ids=ids, tokens=[self.tokens[i] for i in ids], offsets=offsets)

    def _encode_body(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids and offsets of a text without special tokens."""
        encoding = self._pipeline.encode(_clean(text), add_special_tokens=False)
        starts, ends = cluster_spans(text)
        return encoding.ids, [(starts[a], ends[b - 1]) if a < b else (a, a) for a, b in encoding.offsets]

    def words(self, words: Sequence[str], *, space: Side = "before") -> list[np.ndarray]:
        """Ids of each word, int32, without special tokens; with `space` "none" as it continues another."""
        return inside_words(self._pipeline, list(map(_clean, words))) if space == "none" else self.bodies(words)

    @property
    def pair_marks(self) -> PairMarks:
        """[CLS] first [SEP] second [SEP]."""
        return PairMarks((self.cls_id,), (self.sep_id,), (self.sep_id,))

    def bodies(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, without special tokens."""
        return self._chunks.ids(texts)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int32, with special tokens; the same as `encode`'s, on all cores and much faster."""
        edge = {name: np.array([i], dtype=np.int32) for name, i in (("cls", self.cls_id), ("sep", self.sep_id))}
        return [np.concatenate([edge["cls"], ids, edge["sep"]]) for ids in self._chunks.ids(texts)]

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ids and segments, int32, of each pair; the same as `encode_pair`'s."""
        bodies = iter(self._chunks.ids([text for pair in pairs for text in pair]))
        results = []
        for a, b in zip(bodies, bodies, strict=True):
            ids = np.concatenate([[self.cls_id], a, [self.sep_id], b, [self.sep_id]]).astype(np.int32)
            results.append((ids, (np.arange(len(ids)) >= len(a) + 2).astype(np.int32)))
        return results

    @cached_property
    def _chunks(self) -> TokenCache:
        return TokenCache(self._chunk_pattern.findall, self._encode_chunks)

    def _encode_chunks(self, chunks: list[str]) -> list[np.ndarray]:
        """Ids of each chunk; a thousand chunks per call cost the library less than separate calls."""
        encoded: list[np.ndarray] = []
        for first in range(0, len(chunks), CHUNKS_PER_CALL):
            batch = [_clean(chunk) for chunk in chunks[first : first + CHUNKS_PER_CALL]]
            joined = self._pipeline.encode_batch_fast([f" {SEP} ".join(batch)], add_special_tokens=False)[0]
            parts = _split_at(np.array(joined.ids, dtype=np.int32), self.sep_id)
            if len(parts) != len(batch):  # a chunk contains [SEP]
                encodings = self._pipeline.encode_batch_fast(batch, add_special_tokens=False)
                parts = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
            encoded += parts
        return encoded

    @cached_property
    def _chunk_pattern(self) -> re.Pattern[str]:
        """Chunks that are encoded independently: ASCII punctuation that occurs in no special token, and runs between it
        and spaces.
        """
        marks = "".join(token.content for token in self._pipeline.get_added_tokens_decoder().values())
        isolated = "".join(re.escape(c) for c in string.punctuation if c not in marks)
        spaces = "".join(c for c in " \n\t\r" if c not in marks)
        return re.compile(f"[^{isolated}{spaces}]+|[{isolated}]")

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text without special tokens; lost case and accents are not restored."""
        return str(self._pipeline.decode(list(map(int, ids)), skip_special_tokens=True))

    def parting(self, ids: Sequence[int]) -> int:
        """0: the library has its own spacing rules."""
        return 0

    def huggingface_files(self, *, segments: bool = True) -> dict[str, bytes]:
        """Tokenizer files by name, for a folder that the `transformers` library can open.

        Without `segments`, its tokenizer gives none to the model: GPT adds them to the text as tokens, Llama raises.
        """
        longest = json.loads(self._pipeline.to_str())["model"]["max_input_chars_per_word"]
        # The library's BertTokenizer reads words of up to 100 characters, whatever tokenizer.json says.
        config = {
            "tokenizer_class": "BertTokenizer" if longest == LONGEST_WORD_OF_LIBRARY else "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
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
        longest_word: int = LONGEST_WORD,
        where: str = "vocab.txt",
    ) -> WordPieceTokenizer:
        """Tokenizer of these subwords in the order of their ids.

        Args:
            tokens: The vocabulary, special tokens included.
            lowercase: Lower-case texts.
            strip_accents: Remove accents; None for as `lowercase`.
            split_chinese: Split Chinese into characters.
            longest_word: Characters of the longest word; a longer one is [UNK].
            where: Name of the vocabulary for error messages.

        Raises:
            UserError: A token occurs twice, or a special token is missing.
        """
        repeated = [token for token, count in Counter(tokens).items() if count > 1]
        if repeated:
            raise UserError(f"'{repeated[0]}' is in this vocabulary twice.", where=where, remedy=_RESTORE)
        vocabulary = {token: i for i, token in enumerate(tokens)}
        if "[UNK]" not in vocabulary:
            raise UserError("this vocabulary lacks [UNK].", where=where, remedy=_RESTORE)
        model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=longest_word)
        pipeline = _bert_pipeline(Pipeline(model), lowercase, strip_accents, split_chinese)
        pipeline.decoder = decoders.WordPiece(prefix=CONTINUES)
        pipeline.add_special_tokens([AddedToken(m, normalized=False, special=True) for m in SPECIAL if m in vocabulary])
        tokenizer = cls(pipeline, where=where)
        pipeline.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", tokenizer.cls_id), ("[SEP]", tokenizer.sep_id)],
        )
        return tokenizer

    @classmethod
    def from_huggingface(cls, folder: str | Path) -> WordPieceTokenizer:
        """Tokenizer of a published BERT: tokenizer.json, else vocab.txt with the options in tokenizer_config.json.

        Raises UserError where neither exists, or a file is damaged or of another kind of tokenizer.
        """
        folder = Path(folder)
        tokenizer_file, vocabulary, settings = (
            folder / n for n in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")
        )
        if tokenizer_file.is_file():
            tokenizer = Tokenizer.load(tokenizer_file)
            if not isinstance(tokenizer, cls):
                raise UserError("this is not a WordPiece tokenizer.", where=str(tokenizer_file), remedy=_RESTORE)
            return tokenizer
        try:
            tokens = vocabulary.read_text(encoding="utf-8").split("\n")
            config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"cannot read the tokenizer ({error}).", where=str(folder), remedy=_RESTORE) from error
        while tokens and not tokens[-1]:
            tokens.pop()
        return cls.from_vocabulary(
            [token.removesuffix("\r") for token in tokens],
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            split_chinese=config.get("tokenize_chinese_chars", True),
            longest_word=LONGEST_WORD_OF_LIBRARY,
            where=str(vocabulary),
        )


def inside_words(pipeline: Pipeline, words: Sequence[str]) -> list[np.ndarray]:
    """Ids of each word, int32, by a WordPiece pipeline, as they continue a word that begins with a digit."""
    encodings = pipeline.encode_batch_fast([f"0{word}" for word in words], add_special_tokens=False)
    return [np.array(encoding.ids[1:], dtype=np.int32) for encoding in encodings]


def train(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    min_frequency: int = 2,
    max_characters: int = 100_000_000,
) -> WordPieceTokenizer:
    """Train a WordPiece vocabulary; deterministic for the same stream.

    Subwords are merged by frequency (as in byte pair encoding), as the `tokenizers` library does, instead of by the
    likelihood of Schuster & Nakajima 2012. Every character that occurs `min_frequency` times is included, and once more
    where it continues words.

    Args:
        texts: Texts; they are held in memory.
        vocab_size: Most tokens, special ones included.
        lowercase: Lower-case texts.
        strip_accents: Remove accents; None for as `lowercase`.
        min_frequency: Occurrences of a character, and of a pair to be merged.
        max_characters: Characters to train on.

    Raises:
        UserError: There is no text, or the vocabulary is too small for its characters.
    """
    pipeline = _bert_pipeline(Pipeline(models.WordPiece(unk_token="[UNK]")), lowercase, strip_accents, True)
    # The pipeline is locked during training, so a generator could not use its normaliser.
    prepared = [str(pipeline.normalizer.normalize_str(text)) for text in _limited(texts, max_characters)]
    counts = _words(pipeline, prepared)
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    frequent = {c for c, count in characters.items() if count >= min_frequency}
    rare = {ord(c): " " for c in characters.keys() - frequent}
    words = [part for word in counts for part in word.translate(rare).split()]
    # The trainer numbers continuing characters in hash order and breaks ties by number, so they are listed first.
    base = [*SPECIAL, *sorted(frequent), *sorted({CONTINUES + c for word in words for c in word[1:]})]
    if len(base) > vocab_size:
        message = (
            f"a vocabulary of {vocab_size} cannot hold the {len(base)} special tokens and characters of this text."
        )
        raise UserError(message, where="vocab_size", remedy=f"Use {2 * len(base)} or more, or raise min_frequency.")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=base,
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    pipeline.train_from_iterator((text.translate(rare) for text in prepared), trainer)
    vocabulary = pipeline.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)[:vocab_size]
    return WordPieceTokenizer.from_vocabulary(tokens, lowercase=lowercase, strip_accents=strip_accents)


def _bert_pipeline(pipeline: Pipeline, lowercase: bool, strip_accents: bool | None, split_chinese: bool) -> Pipeline:
    """The pipeline with BERT's normaliser, split at white space and at every punctuation mark."""
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return pipeline


def _limited(texts: Iterable[str], max_characters: int) -> list[str]:
    limited, characters = [], 0
    for text in texts:
        limited.append(_clean(text[: max_characters - characters]))
        characters += len(limited[-1])
        if characters >= max_characters:
            break
    if not characters:
        raise UserError("there is no text to train a tokenizer on.", remedy="Check that the input is not empty.")
    return limited


def _words(pipeline: Pipeline, texts: Iterable[str]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    cut = pipeline.pre_tokenizer.pre_tokenize_str
    for text in texts:
        counts.update(word for word, _ in cut(text))
    return counts


def _split_at(ids: np.ndarray, mark: int) -> list[np.ndarray]:
    """Runs of ids before, between and after the occurrences of `mark`."""
    positions = np.flatnonzero(ids == mark)
    return [ids[a:b] for a, b in zip([0, *positions + 1], [*positions, len(ids)], strict=True)]


def _clean(text: str) -> str:
    """Replace lone surrogates, which no Unicode encoder accepts; BERT's normaliser drops U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)
