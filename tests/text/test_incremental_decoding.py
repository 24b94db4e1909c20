"""Text that grows token by token is to the character what decoding all of it gives, at a cost that does not grow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up_reviews import reviews
from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models

from textgraft import Tokenizer
from textgraft.text.byte_level import BytePairTokenizer, read_gpt, train_byte_level
from textgraft.text.incremental_decoding import IncrementalText
from textgraft.text.normalize import CONTROL
from textgraft.text.thai import Segmenter

TEXTS = [*reviews(60, 5)[0], "ภาษาไทย is spoken 👩‍👩‍👧 here, naïve café", "日本語 too"] * 2
HOSTILE = [*"xupmajrwe", "xx", "up", "rep", "wrep", "xxu", "1", "2", "30", "foo", "n't", "'s", "’", "n", "t", "ß", "ก"]
HOSTILE += [*"()[]\"'-/.,“", "xwrep", "\ufffd"]


def hostile_words() -> Tokenizer:
    """The parts of control words, brackets and quotes as words, which no text of ours would become."""
    vocabulary = [*CONTROL, *HOSTILE]
    return Tokenizer(Pipeline(models.WordLevel({t: i for i, t in enumerate(vocabulary)}, unk_token="xxunk")))


def hostile_pieces() -> Tokenizer:
    vocabulary = [*CONTROL, "▁", *HOSTILE, *(f"▁{piece}" for piece in HOSTILE)]
    pipeline = Pipeline(models.Unigram([(piece, 0.0) for piece in vocabulary], unk_id=0))
    pipeline.decoder = decoders.Metaspace()
    return Tokenizer(pipeline)


def hostile_thai() -> Tokenizer:
    return Tokenizer(hostile_words()._pipeline, Segmenter("newmm", "none", "none", ""))


def gpt() -> Tokenizer:
    symbols = ["<unk>", *"abcdefgh", *(f"{c}</w>" for c in "abcdefgh")]
    pipeline = Pipeline(models.BPE({s: i for i, s in enumerate(symbols)}, [], end_of_word_suffix="</w>"))
    pipeline.decoder = decoders.BPEDecoder(suffix="</w>")
    return BytePairTokenizer(pipeline)


def byte_level(starts: Sequence[str]) -> Tokenizer:
    """A vocabulary of bytes whose texts start with these tokens."""
    content = json.loads(train_byte_level(TEXTS, vocab_size=290).to_json())
    ids = content["model"]["vocab"]
    content["post_processor"]["single"] = [
        *({"SpecialToken": {"id": token, "type_id": 0}} for token in starts),
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    content["post_processor"]["special_tokens"] = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in starts}
    return Tokenizer.from_json(json.dumps(content))


MADE: dict[str, Any] = {
    "byte_level": lambda: train_byte_level(TEXTS, vocab_size=300),
    "byte_level, no start": lambda: byte_level([]),
    "byte_level, two to start": lambda: byte_level(["<|endoftext|>", "a"]),
    "gpt": gpt,
    "unigram": lambda: Tokenizer.train(TEXTS, vocab_size=150),
    "bpe": lambda: Tokenizer.train(TEXTS, model="bpe", vocab_size=150),
    "word": lambda: Tokenizer.train(TEXTS, kind="word"),
    "wordpiece": lambda: Tokenizer.train(TEXTS, model="wordpiece", vocab_size=200),
    "character": lambda: Tokenizer.train(TEXTS, kind="character"),
    "hostile words": hostile_words,
    "hostile pieces": hostile_pieces,
    "hostile words without spaces": hostile_thai,
}
WHOLE = {"byte_level, two to start", "wordpiece"}
"""Of these no place is known from which on the rest may be decoded by itself."""


@pytest.fixture(scope="module")
def made() -> Any:
    kept: dict[str, Tokenizer] = {}
    return lambda name: kept.setdefault(name, kept.get(name) or MADE[name]())


def grows_as_the_whole(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> None:
    growing, ids = IncrementalText(tokenizer, parts[0] if parts else ()), [*parts[0]] if parts else []
    for part in ((), *parts[1:]):
        growing.add(part)
        ids += part
        assert growing.text == tokenizer.decode(ids)
        assert growing.settled == tokenizer.settled(ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
@settings(max_examples=100)
@given(data=st.data())
def test_any_tokens_in_any_portions(made: Any, name: str, data: st.DataObject) -> None:
    tokenizer = made(name)
    ids = st.integers(0, tokenizer.vocab_size - 1)
    if "hostile" in name:  # as often a control word as anything else
        ids = st.integers(CONTROL.index("xxrep"), CONTROL.index("xxmaj")) | ids
    if name.startswith("byte_level"):
        start = [tokenizer.tokens.index(token) for token in ("<|endoftext|>", "a")]
        ids = st.sampled_from(start) | ids
    grows_as_the_whole(tokenizer, data.draw(st.lists(st.lists(ids, max_size=3), max_size=25)))


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=30)
@given(text=st.text(max_size=60))
@example(text=" ".join(TEXTS[-4:]))
@example(text="He said (\"I don't know\") THREE!!!! times, times times times, '  quoted ' 2,000.50 x x x xx up xxup a")
@example(text="👩‍👩‍👧 ก็ ภาษาไทย 日本 \ud800 \n\n 中 e\u0301\u0301")
def test_texts_token_by_token(made: Any, name: str, text: str) -> None:
    tokenizer = made(name)
    if "hostile" not in name:
        grows_as_the_whole(tokenizer, [[int(i)] for i in tokenizer.encode_batch([text])[0]])


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("hostile words", "xxrep 2 xwrep 30 foo"),
        ("hostile words", "xxwrep 30 foo"),
        ("hostile words", "xxup xxmaj foo ( foo ) n't . 's"),
        ("hostile words", "xxmaj xxmaj foo xxup xxup foo xxmaj xxup foo xxup xxmaj foo xxrep 2 xxmaj"),
        ("hostile words without spaces", "ก ก foo ก xxup ก ก"),
        ("hostile pieces", "xxrep ▁2 ▁x wrep ▁30 ▁foo"),
        ("hostile pieces", "▁xx up ▁foo"),
        ("hostile pieces", "▁xx xxpad up ▁foo"),
        ("hostile pieces", "▁( xxup ▁foo ▁ xxup ▁foo - xxmaj foo ' xxmaj foo"),
    ],
)
def test_rules_that_go_over_words(made: Any, name: str, tokens: str) -> None:
    """Control words that only rules before have put together, one cut in two by nothing, what opens and closes."""
    tokenizer = made(name)
    row = [tokenizer.tokens.index(token) for token in tokens.split()]
    known = [tokenizer.tokens.index("foo" if name != "hostile pieces" else "▁foo")] * 2
    grows_as_the_whole(tokenizer, [[i] for i in [*known, *row, *known, *row, *known]])


@pytest.mark.parametrize("name", [n for n in MADE if "hostile" not in n and n not in ("gpt", *WHOLE)])
def test_what_is_decoded_does_not_grow(made: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long text no more than some words at a time."""
    tokenizer = made(name)
    ids = [int(i) for i in tokenizer.encode_batch([" ".join(TEXTS)])[0]]
    sizes: list[int] = []
    decode = tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda row: sizes.append(len(row)) or decode(row))
    growing = IncrementalText(tokenizer)
    for token in ids:
        growing.add([token])
        assert growing.text is not None
        assert growing.settled is not None
    assert len(ids) > 500
    assert max(sizes) < 100
    assert sum(sizes) < 60 * len(ids)
    monkeypatch.undo()
    assert growing.text == tokenizer.decode(ids)


def test_of_some_nothing_is_known_and_all_is_decoded(made: Any) -> None:
    for name in WHOLE:
        tokenizer = made(name)
        assert tokenizer.parting(tokenizer.encode("a long film and a good one").ids) == 0


def test_gpts_own_files_part_too(tmp_path: Path) -> None:
    symbols = ["<unk>", *"abc", *(f"{c}</w>" for c in "abc"), "ab</w>"]
    (tmp_path / "vocab.json").write_text(json.dumps({s: i for i, s in enumerate(symbols)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b</w>\n")
    tokenizer = read_gpt(tmp_path / "vocab.json", tmp_path / "merges.txt")
    ids = tokenizer.encode("ab abc z ab c").ids
    assert tokenizer.parting(ids) == len(ids)
    grows_as_the_whole(tokenizer, [[i] for i in ids])
