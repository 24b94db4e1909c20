"""WordPiece: ids as the transformers library gives them, offsets, pairs, training, files."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.streams.masking import MaskingTokens
from textgraft.text.clusters import cluster_spans
from textgraft.text.token_cache import TokenCache
from textgraft.text.tokenizer import PIECE_CHARACTERS, Tokenizer
from textgraft.text.wordpiece import LONGEST_WORD, SPECIAL, WordPieceTokenizer, train

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
TEXTS = [
    "The film was good, but the USA's actors didn't know what they were doing.",
    "A good cat and a good dog saw the film in 1984; they liked it, café and all!",
    "Ein schöner Film über Zürich und die Straße, naïve Übermut 東京都 映画 と 中文字",
    "ประเทศไทยมีนายกรัฐมนตรี กำลังทดสอบ ещё Ёлка И́стина Αθήνα είναι 😀👍🏽 n\u0303 e\u0301",
] * 3
NASTY = [
    "",
    " ",
    "café CAFÉ cafe\u0301 naïve ÀÉÎÕÜ Ñandú Ångström",
    "東京都は日本の首都。film中文字good",
    "한국어 \u1112\u1161\u11ab 텍스트",
    "😀 👍🏽 👨‍👩‍👧 🇹🇭🇩🇪 good😀good",
    "a\x00b\x07c\u200bd\ufeffe\ufffdf\u00adg\u2028h",
    "tab\tnew\nline\r\nnbsp\u00a0thin\u2009ideographic\u3000end",
    "a" * 100 + " good" * 3,
    "ประเทศไทยมีนายกรัฐมนตรี กำลัง น้ำ",
    "[CLS] a [MASK] b [SEP] [PAD][UNK] [mask] x[SEP]y",
    "don't U.S.A. 3.14 1,000 @user #tag http://a.b/c?d=e&f",
    "ΑΣ ΣΑΣ İstanbul ıI ß ẞ ŉ ǆ ﬁ",
    "½ ² ª … “quotes” – — ‐ ¿ ¡ $ ^ ` | ~ < = > +",
    "ещё Ёлка И\u0301стина йод Й",
    "हिन्दी العربية עִבְרִית",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁 \U000e0001x",
    "##ing ## #",
]

LONG = "a" * 101 + " " + "a" * 200 + " " + "a" * 201 + " good" * 3
"""With words that the library's own files would make unknown."""


def made(cased: bool) -> WordPieceTokenizer:
    return train(TEXTS, vocab_size=400, lowercase=not cased)


@pytest.fixture(scope="module", params=[False, True], ids=["uncased", "cased"])
def both(request: pytest.FixtureRequest) -> tuple[WordPieceTokenizer, Any]:
    """Ours, and the library's for the same vocabulary."""
    transformers = pytest.importorskip("transformers")
    ours = made(request.param)
    vocabulary = {token: i for i, token in enumerate(ours.tokens)}
    theirs = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=not request.param)
    theirs.backend_tokenizer.model.max_input_chars_per_word = LONGEST_WORD  # by default 100
    return ours, theirs


def same_ids(ours: WordPieceTokenizer, theirs: Any, texts: list[str]) -> None:
    expected = theirs(texts)["input_ids"]
    for text, one, other in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert one.tolist() == other, text


def test_the_longest_word_is_the_authors_and_is_saved(tmp_path: Path) -> None:
    """Google's tokenization.py reads words of up to 200 characters, the transformers library up to 100."""
    vocabulary = [*SPECIAL, "a", "##a"]
    ours = WordPieceTokenizer.from_vocabulary(vocabulary)
    assert [len(ours.encode("a" * n).ids) for n in (100, 101, 200, 201)] == [102, 103, 202, 3]
    assert ours.encode("a" * 201).ids[1] == ours.unk_id
    shorter = WordPieceTokenizer.from_vocabulary(vocabulary, longest_word=100)
    for tokenizer, longest in ((ours, 200), (shorter, 100)):
        (tmp_path / "tokenizer.json").write_text(tokenizer.to_json())
        again = Tokenizer.load(tmp_path / "tokenizer.json")
        assert [len(again.encode("a" * n).ids) for n in (longest, longest + 1)] == [longest + 2, 3]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    library = WordPieceTokenizer.from_huggingface(tmp_path)
    assert [len(library.encode("a" * n).ids) for n in (100, 101)] == [102, 3]


@pytest.mark.parametrize("longest", [100, 200])
def test_the_librarys_tokenizer_of_a_folder_reads_the_same_words(longest: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = WordPieceTokenizer.from_vocabulary([*SPECIAL, "a", "##a", "b"], longest_word=longest)
    for name, data in ours.huggingface_files().items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a" * longest, "a" * (longest + 1)):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    pair, expected = theirs("a b", "[MASK] B"), ours.encode_pair("a b", "[MASK] B")
    assert (pair["input_ids"], pair["token_type_ids"]) == (expected.ids, expected.segments)
    assert (theirs.mask_token, theirs.pad_token, theirs.unk_token) == ("[MASK]", "[PAD]", "[UNK]")


def test_ids_are_the_librarys(both: tuple[WordPieceTokenizer, Any]) -> None:
    same_ids(*both, texts=[*NASTY, LONG, *TEXTS])
    assert len({tuple(ids.tolist()) for ids in both[0].encode_batch(NASTY)}) >= len(NASTY) - 2


def test_pairs_are_the_librarys(both: tuple[WordPieceTokenizer, Any]) -> None:
    ours, theirs = both
    pairs = list(zip(NASTY, reversed(NASTY), strict=True))
    expected = theirs([a for a, _ in pairs], [b for _, b in pairs])
    for index, ((first, second), (ids, segments)) in enumerate(zip(pairs, ours.encode_pairs(pairs), strict=True)):
        assert ids.tolist() == expected["input_ids"][index]
        assert segments.tolist() == expected["token_type_ids"][index]
        alone = ours.encode_pair(first, second)
        assert (alone.ids, alone.segments) == (ids.tolist(), segments.tolist())
        assert len(alone.offsets) == len(alone.tokens) == len(alone.ids)
        middle = alone.ids.index(ours.sep_id) if "[SEP]" not in first else None
        if middle is not None:
            assert alone.offsets[: middle + 1] == ours.encode(first).offsets
            assert alone.offsets[middle + 1 :] == ours.encode(second).offsets[1:]


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here")
def test_ids_of_ten_thousand_real_lines_are_the_librarys(both: tuple[WordPieceTokenizer, Any]) -> None:
    with lzma.open(DATA / "wikitext-2" / "train.fastai-csv.xz", "rt", encoding="utf-8") as file:
        lines = (line for line in file if line.strip())
        same_ids(*both, texts=list(islice(lines, 10_000)))


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_offsets_rise_and_cut_no_cluster_and_batches_are_the_same(text: str) -> None:
    tokenizer = UNCASED
    encoding = tokenizer.encode(text)
    starts, ends = cluster_spans(text)
    assert (encoding.offsets[0], encoding.offsets[-1]) == ((0, 0), (len(text), len(text)))
    for begin, end in encoding.offsets:
        assert 0 <= begin <= end <= len(text)
        if begin < end:
            assert starts[begin] == begin
            assert ends[end - 1] == end
    assert [begin for begin, _ in encoding.offsets] == sorted(begin for begin, _ in encoding.offsets)
    assert tokenizer.encode_batch([text])[0].tolist() == encoding.ids


UNCASED = made(cased=False)


def test_offsets_are_of_the_users_own_text() -> None:
    text = "The CAFE\u0301 film!"
    encoding = UNCASED.encode(text)
    shown = [text[a:b].lower() for a, b in encoding.offsets]
    assert shown[0] == shown[-1] == ""
    assert "".join(shown) == text.lower().replace(" ", "")
    for piece, token in zip(shown[1:-1], encoding.tokens[1:-1], strict=True):
        assert token.removeprefix("##") == piece.replace("\u0301", "")


def test_half_a_surrogate_pair_and_a_long_text_are_read() -> None:
    assert UNCASED.encode("good \ud800film").ids == UNCASED.encode("good film").ids
    long = "good film " * (PIECE_CHARACTERS // 4)
    (ids,) = UNCASED.encode_batch([long])
    assert ids.dtype == np.int32
    assert ids.tolist() == UNCASED.encode(long).ids


def test_what_is_decoded_reads_as_it_was() -> None:
    ids = UNCASED.encode("The film was good, and the cat").ids
    assert UNCASED.decode(ids) == "the film was good, and the cat"
    assert made(cased=True).decode(made(cased=True).encode("The USA's cat!").ids) == "The USA ' s cat!"


def test_training_makes_a_vocabulary_of_the_size_and_the_characters() -> None:
    tokens = UNCASED.tokens
    assert tuple(tokens[:5]) == SPECIAL
    assert UNCASED.vocab_size <= 400
    assert {"film", "good", "##t", "東", "é"} & set(tokens) == {"film", "good", "##t", "東"}
    assert "USA" in made(cased=True).tokens
    assert "é" in made(cased=True).tokens
    smaller = train(TEXTS, vocab_size=250)
    assert smaller.vocab_size == 250 < UNCASED.vocab_size
    assert smaller.tokens == tokens[:250]


def test_rare_characters_have_no_place() -> None:
    texts = ["good film " * 3, "go☃od"]
    assert "☃" not in train(texts, vocab_size=60).tokens
    assert "☃" in train(texts, vocab_size=60, min_frequency=1).tokens


def test_the_same_text_gives_the_same_vocabulary_in_another_process() -> None:
    program = """
import json, sys
from textgraft.text.wordpiece import train
print(train(json.loads(sys.argv[1]), vocab_size=400).fingerprint)
"""
    prints = {
        subprocess.run(
            [sys.executable, "-c", program, json.dumps(TEXTS)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    assert prints == {UNCASED.fingerprint}


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    for tokenizer in (UNCASED, made(cased=True)):
        tokenizer.save(tmp_path / "tokenizer.json")
        loaded = Tokenizer.load(tmp_path / "tokenizer.json")
        assert isinstance(loaded, WordPieceTokenizer)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert (loaded.pad_id, loaded.cls_id, loaded.bos_id, loaded.sep_id, loaded.eos_id) == (0, 2, 2, 3, 3)
        assert [a.tolist() for a in loaded.encode_batch(NASTY)] == [a.tolist() for a in tokenizer.encode_batch(NASTY)]
    assert UNCASED.fingerprint != made(cased=True).fingerprint


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("whole", [False, True], ids=["vocab.txt", "tokenizer.json"])
def test_a_published_folder_is_read_and_written(cased: bool, whole: bool, tmp_path: Path) -> None:
    ours = made(cased)
    for name, data in ours.huggingface_files().items():
        if whole or name != "tokenizer.json":
            (tmp_path / name).write_bytes(data.replace(b"PreTrainedTokenizerFast", b"BertTokenizer"))
    loaded = WordPieceTokenizer.from_huggingface(tmp_path)
    assert [a.tolist() for a in loaded.encode_batch(NASTY)] == [a.tolist() for a in ours.encode_batch(NASTY)]
    transformers = pytest.importorskip("transformers")
    same_ids(ours, transformers.AutoTokenizer.from_pretrained(tmp_path), NASTY)


def test_a_files_own_padding_and_truncation_are_left_out(tmp_path: Path) -> None:
    content = json.loads(UNCASED.to_json())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    Path(tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert WordPieceTokenizer.from_huggingface(tmp_path).encode("good film good film").ids.count(UNCASED.sep_id) == 1
    assert len(WordPieceTokenizer.from_huggingface(tmp_path).encode("good film good film").ids) == 6


def test_windows_line_ends_in_a_vocabulary_are_read(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(UNCASED.tokens).encode())
    assert WordPieceTokenizer.from_huggingface(tmp_path).tokens == UNCASED.tokens


def test_what_is_no_wordpiece_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the tokenizer"):
        WordPieceTokenizer.from_huggingface(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\na\n")
    with pytest.raises(UserError, match=r"vocab.txt: this vocabulary lacks \[SEP\], \[MASK\]"):
        WordPieceTokenizer.from_huggingface(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "a"]))
    with pytest.raises(UserError, match="'a' is in this vocabulary twice"):
        WordPieceTokenizer.from_huggingface(tmp_path)
    Tokenizer.train(TEXTS, kind="word").save(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="not a WordPiece"):
        WordPieceTokenizer.from_huggingface(tmp_path)
    with pytest.raises(UserError, match="cannot hold the"):
        train(TEXTS, vocab_size=20)
    with pytest.raises(UserError, match="no text"):
        train(["", ""])
    with pytest.raises(UserError, match=r"no \[MASK\] token"):
        MaskingTokens.of(Tokenizer.train(TEXTS, kind="word"))


def test_masking_knows_marks_and_pieces() -> None:
    tokens = MaskingTokens.of(UNCASED)
    assert (tokens.pad_id, tokens.cls_id, tokens.sep_id, tokens.mask_id) == (0, 2, 3, 4)
    assert np.flatnonzero(tokens.special).tolist() == [0, 1, 2, 3, 4]
    assert tokens.continues.tolist() == [t.startswith("##") for t in UNCASED.tokens]
    assert tokens.continues.any()


@settings(max_examples=100)
@given(st.lists(st.sampled_from([*NASTY, *" \n[].,-_'\u0301", "[SEP]", "don't", "well-known", "é"]), max_size=12))
def test_a_text_read_in_remembered_chunks_has_the_ids_of_the_whole(parts: list[str]) -> None:
    text = "".join(parts)
    assert UNCASED.bodies([text, text])[1].tolist() == UNCASED._encode_body(text)[0]


def test_only_so_many_chunks_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def cut(chunks: list[str]) -> list[list[int]]:
        asked.extend(chunks)
        return [[len(chunk)] for chunk in chunks]

    monkeypatch.setattr("textgraft.text.token_cache.MAX_CHUNKS", 3)
    memory, long = TokenCache(str.split, cut), "z" * 50
    assert [ids.tolist() for ids in memory.ids([f"a bb a {long}", ""])] == [[1, 2, 1, 50], []]
    assert asked == ["a", "bb", long]
    memory.ids([f"a {long}"])
    assert asked == ["a", "bb", long, long]  # too long to be kept
    memory.ids(["c d"])
    memory.ids(["a"])
    assert asked[-3:] == ["c", "d", "a"]  # forgotten with the others


def test_words_without_a_space_before_them_have_no_special_tokens() -> None:
    made = train(["中国 很 大 0 a b ab"] * 3, vocab_size=40)
    tokens = [[made.tokens[i] for i in ids] for ids in made.words(["中", "大", "b"], space="none")]
    assert tokens == [["中"], ["大"], ["##b"]]
    assert [ids.tolist() for ids in made.words(["b", "a"])] == [ids.tolist() for ids in made.bodies(["b", "a"])]
