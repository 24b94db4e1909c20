"""Tokenizers: training, offsets in the user's own text, control words, files."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.text import tokenizer as tokenizer_module
from textgraft.text.clusters import cluster_spans
from textgraft.text.detokenize import detokenize
from textgraft.text.normalize import CONTROL, Kind, normalize
from textgraft.text.tokenizer import Tokenizer, ids_of, vocabulary_map

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
ENGLISH = [
    "The film was good, but the USA's actors didn't know what they were doing.",
    "A good cat and a good dog saw the film in 1984; they liked it, café and all!",
    "What a really, really unbelievable story: unbelievably boring and well-made.",
] * 5
THAI = ["ประเทศไทยมีนายกรัฐมนตรี กำลังทดสอบ", "นายกรัฐมนตรีกล่าวว่า ประเทศไทยทดสอบน้ำ"] * 8
SETTINGS = {
    "unigram": {"vocab_size": 200},
    "bpe": {"model": "bpe", "vocab_size": 200},
    "word": {"kind": "word"},
}
HOSTILE = [
    "xxbos",
    "XXMAJ",
    "xxrep 4 c",
    "กำ",
    "น้ำ",
    "👨‍👩‍👧",
    "🇹🇭",
    "e\u0301",
    "\u0301\u0301\u0301\u0301",
    "<br />",
    "ฟฟฟ",
    "▁",
    "The",
    "USA",
]
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), max_size=6).map("".join)


@pytest.fixture(scope="module", params=SETTINGS)
def trained(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(ENGLISH + THAI, **SETTINGS[request.param])


def test_control_words_have_the_first_ids(trained: Tokenizer) -> None:
    assert tuple(trained.tokens[: len(CONTROL)]) == CONTROL
    assert (trained.unk_id, trained.pad_id, trained.bos_id, trained.eos_id) == (0, 1, 2, 3)
    assert len(trained.tokens) == trained.vocab_size == len(set(trained.tokens))


def test_what_encode_says_of_a_text(trained: Tokenizer) -> None:
    text = "The  USA's good film"
    encoding = trained.encode(text)
    spans = {token: text[a:b] for token, (a, b) in zip(encoding.tokens, encoding.offsets)}
    assert encoding.tokens[0] == "xxbos"
    assert encoding.offsets[0] == (0, 0)
    assert spans["xxmaj"] == spans["xxup"] == ""
    assert spans["good" if trained.kind == "word" else "▁good"] == "good"
    assert encoding.offsets[encoding.tokens.index("xxup")] == (5, 5)


@given(text=TEXTS)
@example(text="n\u0301\u0301\u0301\u0301A")
@example(text="กำลัง \u200dA\u0301")
def test_offsets_are_inside_in_order_and_never_split_a_cluster(trained: Tokenizer, text: str) -> None:
    encoding = trained.encode(text)
    starts, ends = cluster_spans(text)
    previous = 0
    for start, end in encoding.offsets:
        assert previous <= start <= end <= len(text)
        assert start == len(text) or starts[start] == start
        assert end == 0 or start == end or ends[end - 1] == end
        previous = start
    covered = {i for start, end in encoding.offsets for i in range(start, end)}
    for i, char in enumerate(text):
        assert i in covered or char.isspace() or char == "▁" or "<br" in text or not normalize(char).strip()


@given(text=TEXTS)
def test_slices_normalise_to_their_tokens(trained: Tokenizer, text: str) -> None:
    encoding = trained.encode(text)
    for token, (start, end) in zip(encoding.tokens, encoding.offsets):
        if start < end and token not in CONTROL:
            assert token.lstrip("▁") in normalize(text[start:end], trained.kind).replace(" ", "")


@given(texts=st.lists(TEXTS, max_size=5))
def test_batches_give_the_same_ids_as_single_texts(trained: Tokenizer, texts: list[str]) -> None:
    batch = trained.encode_batch(texts)
    assert [ids.tolist() for ids in batch] == [trained.encode(text).ids for text in texts]
    assert all(ids.dtype == np.int32 for ids in batch)


class Counting:
    """Stands in for the library's tokenizer: an id for each character; remembers how many came together."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[Any]:
        assert add_special_tokens
        self.asked.append(sum(map(len, texts)))
        return [SimpleNamespace(ids=[ord(c) for c in text]) for text in texts]


def test_the_library_gets_a_bounded_part_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MAX_CHARACTERS_PER_CALL", 10)
    pipeline: Any = Counting()
    texts = ["abcd", "", "efghi", "jk", "x" * 25, "l"]
    assert [[chr(i) for i in ids] for ids in ids_of(pipeline, iter(texts))] == [list(text) for text in texts]
    assert pipeline.asked == [11, 25, 1]
    assert list(ids_of(pipeline, [])) == []


@given(texts=st.lists(TEXTS, max_size=5), size=st.integers(1, 50))
def test_parts_give_the_same_ids_as_all_at_once(trained: Tokenizer, texts: list[str], size: int) -> None:
    whole = [ids.tolist() for ids in trained.encode_batch(texts)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tokenizer_module, "MAX_CHARACTERS_PER_CALL", size)
        assert [ids.tolist() for ids in trained.encode_batch(texts)] == whole


@pytest.mark.parametrize("control", CONTROL)
def test_the_users_text_never_becomes_a_control_token(trained: Tokenizer, control: str) -> None:
    plain = {trained.unk_id, CONTROL.index("xxmaj"), CONTROL.index("xxup")}
    for text in (control, f"a{control}b", f" {control} ", f"3{control}"):
        assert not set(trained.encode(text).ids[1:]) & (set(range(len(CONTROL))) - plain | {7, 8})
    assert set(trained.encode(control.upper()).ids[1:]) & set(range(len(CONTROL))) <= plain


def test_long_texts_give_the_same_ids_in_pieces(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(ENGLISH) + "<br />" + "".join(THAI)
    whole = trained.encode_batch([text])[0]
    for size in (1, 7, 100):
        monkeypatch.setattr(tokenizer_module, "PIECE_CHARACTERS", size)
        assert trained.encode_batch([text])[0].tolist() == whole.tolist()


def test_an_empty_text_is_just_its_beginning(trained: Tokenizer) -> None:
    assert trained.encode("").ids == trained.encode_batch([" \n"])[0].tolist() == [trained.bos_id]
    assert trained.encode_batch([]) == []


def test_thai_gets_sane_pieces() -> None:
    tokenizer = Tokenizer.train(THAI, vocab_size=120)
    text = "นายกรัฐมนตรีทดสอบน้ำ"
    encoding = tokenizer.encode(text)
    assert tokenizer.unk_id not in encoding.ids
    assert len(encoding.ids) < len(text) / 2
    assert tokenizer.decode(encoding.ids) == text


def test_decoding_puts_case_and_repetitions_back() -> None:
    text = "The USA's actors didn't know, good good good!!!!"
    word = Tokenizer.train([text], kind="word", min_frequency=1)
    assert word.decode([*word.encode(text).ids, word.pad_id, word.eos_id]) == text
    text = 'The (Good) "Café" was, in 1984, USA\'s film; a well-made film.'
    subword = Tokenizer.train([text, text], vocab_size=200)
    assert subword.decode(subword.encode(text).ids) == text
    assert subword.decode(subword.encode("a film ±").ids) == "a film \ufffd"


def test_a_huge_repetition_is_not_written_out() -> None:
    word = Tokenizer.train(["999999999 a"], kind="word", min_frequency=1)
    ids = [CONTROL.index("xxrep"), *word.encode("999999999 a").ids[1:]]
    assert word.decode(ids) == "a" * 100


def test_word_level_cuts_and_cut_offs() -> None:
    common = "Don't stop; it's John's co-op: $1,000.50 👨‍👩‍👧"
    texts = [f"{common} rare", common]
    tokenizer = Tokenizer.train(texts, kind="word", min_frequency=2)
    tokens = tokenizer.encode(texts[0]).tokens
    wanted = "xxbos xxmaj do n't stop ; it 's xxmaj john 's co - op : $ 1,000.50 👨‍👩‍👧 xxunk"
    assert tokens == wanted.split()
    assert Tokenizer.train(texts, kind="word", vocab_size=12).vocab_size == 12


def test_rare_characters_take_no_place() -> None:
    tokenizer = Tokenizer.train([*ENGLISH, "a § sign"], vocab_size=200, min_frequency=2)
    assert not any("§" in token for token in tokenizer.tokens)
    assert tokenizer.encode("§").ids[-1] == tokenizer.unk_id


def test_only_so_much_is_read() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "some words again"

    assert "some" in Tokenizer.train(endless(), kind="word", max_characters=1000).tokens


def test_unspaced_text_beyond_the_limit_is_left_out() -> None:
    late = "ฉันชอบอ่านหนังสือภาษาไทยทุกวันทุกคืนเลย"
    tokenizer = Tokenizer.train([THAI[0] * 3, late, late], vocab_size=300, min_frequency=1, max_unspaced=10)
    assert not any("ฉ" in token for token in tokenizer.tokens)


@pytest.mark.parametrize("name", SETTINGS)
def test_training_is_the_same_in_every_process(name: str) -> None:
    program = (
        "import json, sys; from textgraft.text.tokenizer import Tokenizer\n"
        "texts, settings = json.load(sys.stdin); print(Tokenizer.train(texts, **settings).fingerprint)"
    )
    texts = ENGLISH + THAI
    given = json.dumps([texts, SETTINGS[name]])
    run = [sys.executable, "-c", program]
    found = {subprocess.run(run, input=given, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert found == {Tokenizer.train(iter(texts), **SETTINGS[name]).fingerprint + "\n"}


def test_saving_and_loading_keep_everything(trained: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    trained.save(path)
    loaded = Tokenizer.load(path)
    assert (loaded.kind, loaded.tokens, loaded.fingerprint) == (trained.kind, trained.tokens, trained.fingerprint)
    assert loaded.encode(ENGLISH[0]) == trained.encode(ENGLISH[0])
    library = tokenizers.Tokenizer.from_file(str(path))
    assert library.encode(normalize(ENGLISH[0], trained.kind)).ids == trained.encode(ENGLISH[0]).ids[1:]
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_different_tokenizers_have_different_fingerprints() -> None:
    fingerprints = {Tokenizer.train(ENGLISH, **settings).fingerprint for settings in SETTINGS.values()}
    assert len(fingerprints) == len(SETTINGS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "damaged"),
        ("{}", "damaged"),
        ("[1, 2", "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (
            tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "xxunk": 1}, "xxunk")).to_str(),
            "another program's",
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_the_users_to_mend(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_truncated_file(tmp_path: Path, trained: Tokenizer) -> None:
    with pytest.raises(UserError, match="cannot read"):
        Tokenizer.load(tmp_path / "none.json")
    trained.save(tmp_path / "t.json")
    (tmp_path / "t.json").write_bytes((tmp_path / "t.json").read_bytes()[:-100])
    with pytest.raises(UserError, match="damaged"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "wrod"}, "Did you mean 'word'"),
        ({"model": "unigrm"}, "Did you mean 'unigram'"),
        ({"vocab_size": 5}, "too small"),
        ({"min_frequency": 0}, "out of range"),
    ],
)
def test_settings_out_of_range(settings: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Tokenizer.train(ENGLISH, **settings)


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_to_train_on(texts: list[str]) -> None:
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(texts)


def test_vocabulary_map_finds_known_tokens() -> None:
    old = Tokenizer.train(["a b c"], kind="word", min_frequency=1)
    new = Tokenizer.train(["c d b"], kind="word", min_frequency=1)
    mapped = vocabulary_map(old, new)
    assert mapped.dtype == np.int64
    assert [old.tokens[i] if i >= 0 else None for i in mapped] == [t if t in old.tokens else None for t in new.tokens]
    assert mapped[new.tokens.index("d")] == -1
    assert vocabulary_map(old, old).tolist() == list(range(old.vocab_size))


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not here")
def test_real_reviews_lose_no_word() -> None:
    with lzma.open(DATA / "imdb" / "unsup.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, 40)]
    tokenizer = Tokenizer.train(texts, model="bpe", vocab_size=2000, min_frequency=1)
    for text in texts:
        encoding = tokenizer.encode(text)
        covered = {i for start, end in encoding.offsets for i in range(start, end)}
        bare = text.replace("<br />", " " * 6)
        assert all(i in covered for i, char in enumerate(bare) if not char.isspace())


@pytest.mark.parametrize(
    ("marked", "read"),
    [
        ("xxmaj xxmaj film", "Film"),
        ("xxmaj xxmaj xxmaj film", "Film"),
        ("xxup xxmaj film", "Film"),
        ("xxmaj xxup film", "FILM"),
        ("xxup xxup film", "FILM"),
        ("xxmaj xxrep 3 a", "aaa"),
        ("xxrep 3 xxmaj a", "AAA"),
        ("a xxmaj xxmaj", "a"),
        ("xxmaj xxrepair", "Xxrepair"),
    ],
)
@pytest.mark.parametrize("kind", ["word", "subword"])
def test_a_mark_before_another_is_left_out(marked: str, read: str, kind: Kind) -> None:
    tokens = marked.split()
    pieces = [token if token in CONTROL else f"▁{token}" for token in tokens]
    assert detokenize(tokens if kind == "word" else pieces, kind) == read
