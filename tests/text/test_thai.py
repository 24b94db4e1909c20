"""Words in Thai: where they begin, offsets into the user's text, a bound on time, files that name their segmenter."""

from __future__ import annotations

import importlib.util
import inspect
import json
import lzma
import time
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.tasks.language_modeling.adapt import _own_tokenizer
from textgraft.tasks.language_modeling.pretrain import TOKENIZER_SETTINGS
from textgraft.text import thai
from textgraft.text.clusters import cluster_spans
from textgraft.text.normalize import align, normalize
from textgraft.text.tokenizer import Encoding, Tokenizer

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "thaigov" / "valid.jsonl.xz"
TEXTS = [
    "ประเทศไทยมีนายกรัฐมนตรี กำลังทดสอบระบบ 5G น้ำ ในปี2567",
    "นายกรัฐมนตรีกล่าวว่าประเทศไทยทดสอบน้ำดื่ม โดย NASA's team",
] * 3
HAS_EXTRA = all(importlib.util.find_spec(name) for name in ("pythainlp", "nlpo3"))
needs_extra = pytest.mark.skipif(not HAS_EXTRA, reason="the extra [thai] is not installed")
SOME = [
    *"กขคงนมยรลวสหอ",
    *"ะาำิีึืุูเแโใไ็่้๊๋์ํๆฯ๕฿",
    "น้ำ",
    "ประเทศไทย",
    "ตากลม",
    "นานา",
    "ກຳ",
    "日本語",
    "か\u3099",
    "The",
    "USA",
    "5",
    " ",
    "xxbos",
    "xxrep 4 ก",
    "ฟฟฟฟ",
    "👨‍👩‍👧",
    "🇹🇭",
    "\u200b",
    "\u200d",
    "\u0301",
    "\u0e4d\u0e32",
    "<br />",
    "▁",
]
STRINGS = st.lists(st.sampled_from(SOME) | st.text(max_size=3), max_size=12).map("".join)


@pytest.fixture(scope="module", params=thai._ENGINES)
def words(request: pytest.FixtureRequest) -> Tokenizer:
    if not HAS_EXTRA:
        pytest.skip("the extra [thai] is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thai, "_ENGINES", (request.param,))
        tokenizer = Tokenizer.train(TEXTS, kind="word", min_frequency=1, segmenter="thai")
    assert tokenizer.segmenter is not None
    assert tokenizer.segmenter.engine == request.param
    return tokenizer


@pytest.fixture(scope="module")
def subwords() -> Tokenizer:
    return Tokenizer.train(TEXTS, vocab_size=150)


def slices(text: str, encoding: Encoding) -> list[str]:
    return [text[start:end] for start, end in encoding.offsets if start < end]


def check_offsets(text: str, encoding: Encoding) -> None:
    """In order, all of the text but its spaces, never a part of a cluster."""
    starts, ends = cluster_spans(text)
    previous = 0
    for start, end in encoding.offsets:
        assert previous <= start <= end <= len(text)
        assert start == len(text) or starts[start] == start
        assert start == end or ends[end - 1] == end
        previous = start
    covered = {i for start, end in encoding.offsets for i in range(start, end)}
    for i, char in enumerate(text):
        assert i in covered or char.isspace() or char == "▁" or "<br" in text or not normalize(char).strip()


@pytest.mark.slow
def test_words_of_thai_and_of_what_stands_between(words: Tokenizer) -> None:
    text = "นายกรัฐมนตรีกำลังทดสอบน้ำในปี2567 โดยNASA"
    encoding = words.encode(text)
    assert slices(text, encoding) == ["นายกรัฐมนตรี", "กำลัง", "ทดสอบ", "น้ำ", "ใน", "ปี", "2567", "โดย", "NASA"]
    assert words.unk_id not in encoding.ids
    assert words.decode(encoding.ids).startswith("นายกรัฐมนตรีกำลังทดสอบน้ำในปี")


def test_scripts_without_a_dictionary_are_cut_at_clusters(words: Tokenizer) -> None:
    for text, wanted in (("日本語ไทย", ["日", "本", "語", "ไทย"]), ("ກຳລັງ", ["ກຳ", "ລັ", "ງ"])):
        assert slices(text, words.encode(text)) == wanted


@pytest.mark.slow
@settings(max_examples=150)
@given(text=STRINGS)
@example(text="ก\u0e4d\u0e32กำ่ำ")
@example(text="e\u0e31กก\u200d👨‍👩‍👧ก")
def test_word_offsets(words: Tokenizer, text: str) -> None:
    check_offsets(text, words.encode(text))


@settings(max_examples=150)
@given(text=STRINGS)
def test_subword_offsets(subwords: Tokenizer, text: str) -> None:
    check_offsets(text, subwords.encode(text))


@settings(max_examples=60)
@given(texts=st.lists(STRINGS, max_size=4))
def test_batches_give_the_same_ids_as_single_texts(words: Tokenizer, texts: list[str]) -> None:
    singles = [words.encode(text).ids for text in texts]
    assert [ids.tolist() for ids in words.encode_batch(texts)] == singles
    assert [words.encode(text).ids for text in texts] == singles


@needs_extra
@settings(max_examples=60)
@given(text=STRINGS)
def test_only_spaces_are_put_in_and_origins_stay_in_order(text: str) -> None:
    segmenter = thai.Segmenter.installed()
    aligned = align(text, "word")
    spaced = segmenter.spaced_aligned(aligned)
    assert spaced.text == segmenter.spaced(aligned.text)
    assert spaced.text.replace(" ", "") == aligned.text.replace(" ", "")
    assert len(spaced.text) == len(spaced.starts) == len(spaced.ends)
    assert all(np.diff(spaced.starts) >= 0)
    assert all(np.diff(spaced.ends) >= 0)
    if text.isspace() or not text:
        assert spaced == aligned


@needs_extra
def test_windows_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "นายกรัฐมนตรีกล่าวว่าประเทศไทยกำลังทดสอบระบบน้ำดื่มในจังหวัดเชียงใหม่" * 4
    segmenter = thai.Segmenter.installed()
    monkeypatch.setattr(thai, "WINDOW", 10_000)
    whole = segmenter.borders(text)
    for window in (80, 120):
        monkeypatch.setattr(thai, "WINDOW", window)
        monkeypatch.setattr(thai, "MARGIN", 40)
        assert segmenter.borders(text) == whole


def test_the_clock_is_looked_at_between_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def slow(text: str) -> list[str]:
        nonlocal calls
        calls += 1
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return [text]

    segmenter = thai.Segmenter("newmm", "nlpo3", "pythainlp 5", "0" * 64)
    monkeypatch.setattr(thai, "_load_newmm", lambda engine, digest: slow)
    monkeypatch.setattr(thai, "SECONDS", 0.2)
    monkeypatch.setattr(thai, "SECONDS_PER_CHARACTER", 0.0)
    for text in ("ก" * 20_000, "ก " * 20_000):
        calls = 0
        with pytest.warns(UserWarning, match="too ambiguous"):
            segmenter.borders(text)
        assert 3 <= calls <= 11


@pytest.mark.parametrize("unit", ["ก", "ออกรบ"])
def test_a_budget_of_time_is_kept(words: Tokenizer, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte without a space costs its budget and what cutting at clusters costs; nlpo3 would take a minute."""
    assert words.segmenter is not None
    text = (unit * 333_333)[:333_333]  # three bytes a character
    monkeypatch.setattr(thai, "SECONDS", 0.2)
    monkeypatch.setattr(thai, "SECONDS_PER_CHARACTER", 0.0)
    words.segmenter.borders(unit)  # loads the dictionary
    began = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        borders = words.segmenter.borders(text)
    assert time.thread_time() - began < 0.2 + 6.0
    starts, _ = cluster_spans(text[:3000])
    assert all(starts[b] == b for b in borders if b < 3000)


def test_out_of_time_is_said_once_and_the_rest_is_cut_at_clusters(
    words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thai, "SECONDS", -1.0)
    monkeypatch.setattr(thai, "SECONDS_PER_CHARACTER", 0.0)
    text = "กำลังทดสอบ น้ำ USA"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            encoding = words.encode(text)
    assert ["too ambiguous" in str(warning.message) for warning in said] == [True]
    assert slices(text, encoding) == ["กำ", "ลั", "ง", "ท", "ด", "ส", "อ", "บ", "น้ำ", "USA"]
    check_offsets(text, encoding)


def test_ordinary_text_is_far_from_its_budget(words: Tokenizer) -> None:
    assert words.segmenter is not None
    text = " ".join(TEXTS) * 40
    words.segmenter.borders("ก")
    began = time.thread_time()
    words.segmenter.borders(text)
    assert time.thread_time() - began < (thai.SECONDS + thai.SECONDS_PER_CHARACTER * len(text)) / 2


@needs_extra
def test_both_engines_cut_alike() -> None:
    found = [thai._load_newmm(engine, thai._dictionary()[1])("นายกรัฐมนตรีตากลมกำลังทดสอบน้ำๆ") for engine in thai._ENGINES]
    assert found[0] == found[1]


def test_a_file_says_what_it_needs(words: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    words.save(path)
    loaded = Tokenizer.load(path)
    assert (loaded.tokens, loaded.fingerprint, loaded.segmenter) == (words.tokens, words.fingerprint, words.segmenter)
    assert loaded.encode(TEXTS[0]) == words.encode(TEXTS[0])
    assert json.loads(path.read_text("utf-8"))["textgraft_segmenter"]["name"] == "newmm"
    with pytest.raises(Exception, match="expected"):  # better than other words
        tokenizers.Tokenizer.from_file(str(path))
    assert Tokenizer(words._pipeline).fingerprint != words.fingerprint


def test_the_same_dictionary_and_engine_or_none(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads(words.to_json())
    for key, value, said in (
        ("dictionary_sha256", "0" * 64, "pip install pythainlp=="),
        ("engine", "deepcut", "unknown way"),
        ("name", "attacut", "unknown way"),
        ("model", "x", "unknown way"),
    ):
        changed = {**content, "textgraft_segmenter": {**content["textgraft_segmenter"], key: value}}
        with pytest.raises(UserError, match=said) as caught:
            Tokenizer.from_json(json.dumps(changed), where="t.json")
        assert caught.value.where == "t.json"
    with pytest.raises(UserError, match="unknown way"):
        Tokenizer.from_json(json.dumps({**content, "textgraft_segmenter": "newmm"}))
    here = words.to_json()
    monkeypatch.setattr(thai.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "textgraft\[thai\]"'):
        Tokenizer.from_json(here)


def test_what_else_makes_tokenizers_knows_of_segmenters(words: Tokenizer, tmp_path: Path) -> None:
    assert _own_tokenizer(TEXTS, words, tmp_path / "tokenizer.json").segmenter is not None
    settings = inspect.signature(Tokenizer.train).parameters
    assert set(TOKENIZER_SETTINGS) == {name for name, p in settings.items() if p.kind is p.KEYWORD_ONLY}


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    thai._dictionary.cache_clear()
    monkeypatch.setattr(thai.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "textgraft\[thai\]"'):
        Tokenizer.train(TEXTS, kind="word", segmenter="thai")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"kind": "word", "segmenter": "tha"}, "Did you mean 'thai'"), ({"segmenter": "thai"}, "not subwords")],
)
def test_settings_that_do_not_fit(settings: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Tokenizer.train(TEXTS, **settings)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not here")
def test_real_news(words: Tokenizer) -> None:
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, 8)]
    subwords = Tokenizer.train(texts, vocab_size=400)
    for tokenizer in (words, subwords):
        encodings = [tokenizer.encode(text) for text in texts]
        for text, encoding in zip(texts, encodings):
            check_offsets(text, encoding)
        assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == [encoding.ids for encoding in encodings]
