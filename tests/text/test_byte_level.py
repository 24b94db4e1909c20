"""GPT's and GPT-2's byte pair encodings: transformers' ids, every text back, offsets, files, bad input."""

from __future__ import annotations

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, normalizers, pre_tokenizers, trainers

from textgraft.core.errors import UserError
from textgraft.text.byte_level import END, BytePairTokenizer, read_gpt, read_gpt2, train_byte_level
from textgraft.text.clusters import cluster_spans
from textgraft.text.tokenizer import Tokenizer

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
CORPUS = [
    "The quick brown fox jumps over the lazy dog; the dog didn't mind, and the fox didn't either.",
    "In 2019 they trained a language model on 40 GB of text. They'd said it's too large, we'll see!",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ça va? Où est-il allé, déjà?",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ 日本語も同じです。 Привет, мир! Γειά σου Κόσμε 👩‍👩‍👧‍👦 🇹🇭 naïve café",
] * 4
NASTY = [
    "",
    " ",
    "a",
    "  two  spaces,   three",
    "tabs\tand\nnewlines\r\n\n\n  indented\n",
    "trailing space ",
    "it's I'm they'll DON'T I'D we've ' 's''s",
    "👩‍👩‍👧‍👦 family, 🇹🇭 flag, 👍🏽 thumb, e\u0301 accent, क्षि",
    "ภาษาไทยไม่มีช่องว่าง น้ำ เก่ง",
    "\x00\x01\x1f\x7f\x85\u200b\u200d\ufeff\u2028\u2029\xa0\u3000 controls",
    "x" * 3000,
    "日本語" * 500,
    "1234567890 3.14159 1,000,000 ½ ² Ⅻ",
    "<|endoftext|> in a text <|endoftext|>",
    "<unk> in a text, </w> too",
    "\ufffd replacement \U0001f600\U0010ffff",
    "İstanbul ŞIŞ ǅ ß ﬁ",
    "mixed日本語and英語，with。full-width！",
    "_under_score__ #hash @at $5 100% a/b\\c ~`^",
]


def files(pipeline: Pipeline, folder: Path) -> tuple[Path, Path]:
    """vocab.json and merges.txt, as GPT-2 came."""
    model = json.loads(pipeline.to_str())["model"]
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    lines = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    merges.write_text("#version: 0.2\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return vocab, merges


@pytest.fixture(scope="module")
def gpt2_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pipeline = Pipeline(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    pipeline.train_from_iterator(CORPUS, trainer)
    return files(pipeline, tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def gpt_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pipeline = Pipeline(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    pipeline.train_from_iterator(CORPUS, trainer)
    return files(pipeline, tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def gpt2(gpt2_files: tuple[Path, Path]) -> BytePairTokenizer:
    return read_gpt2(*gpt2_files)


@pytest.fixture(scope="module")
def gpt(gpt_files: tuple[Path, Path]) -> BytePairTokenizer:
    return read_gpt(*gpt_files)


def assert_the_same(ours: BytePairTokenizer, theirs: object, texts: list[str]) -> None:
    """Ids of every text, one by one and in a batch; an empty text is what begins one."""
    batch = ours.encode_batch(texts)
    for text, ids in zip(texts, batch, strict=True):
        expected = theirs(text)["input_ids"] or [ours.bos_id]
        assert ours.encode(text).ids == expected, text
        assert ids.tolist() == expected, text


def real_lines() -> list[str]:
    """2,400 lines of novels and of an encyclopedia."""
    lines: list[str] = []
    for name in ("novels/novels.txt.xz", "wikitext-2/valid.txt.xz", "wikitext-2/test.txt.xz"):
        with lzma.open(DATA / name, "rt", encoding="utf-8") as file:
            lines += islice(file, 800)
    return lines


def test_gpt2_ids_are_those_of_transformers(gpt2: BytePairTokenizer, gpt2_files: tuple[Path, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    for cls in {transformers.GPT2Tokenizer, transformers.GPT2TokenizerFast}:
        assert_the_same(gpt2, cls(*map(str, gpt2_files)), NASTY + CORPUS)


def test_gpt_ids_are_those_of_transformers(gpt: BytePairTokenizer, gpt_files: tuple[Path, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    for cls in {transformers.OpenAIGPTTokenizer, transformers.OpenAIGPTTokenizerFast}:
        assert_the_same(gpt, cls(*map(str, gpt_files)), NASTY + CORPUS)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not here")
def test_ids_of_real_lines_are_those_of_transformers(
    gpt2: BytePairTokenizer, gpt: BytePairTokenizer, gpt2_files: tuple[Path, Path], gpt_files: tuple[Path, Path]
) -> None:
    lines = real_lines()
    assert len(lines) == 2_400
    transformers = pytest.importorskip("transformers")
    for ours, theirs in (
        (gpt2, transformers.GPT2Tokenizer(*map(str, gpt2_files))),
        (gpt, transformers.OpenAIGPTTokenizer(*map(str, gpt_files))),
    ):
        expected = theirs(lines)["input_ids"]
        assert [ids.tolist() for ids in ours.encode_batch(lines)] == [e or [ours.bos_id] for e in expected]
    assert [gpt2.decode(ids.tolist()) for ids in gpt2.encode_batch(lines)] == lines


def test_the_files_of_transformers_are_read(
    gpt2_files: tuple[Path, Path], gpt_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """A tokenizer.json that transformers wrote gives the ids that its own class does."""
    transformers = pytest.importorskip("transformers")
    for cls, pair in ((transformers.GPT2Tokenizer, gpt2_files), (transformers.OpenAIGPTTokenizer, gpt_files)):
        theirs = cls(*map(str, pair))
        theirs.save_pretrained(tmp_path)
        ours = Tokenizer.load(tmp_path / "tokenizer.json")
        assert isinstance(ours, BytePairTokenizer)
        assert_the_same(ours, theirs, NASTY)


@pytest.fixture(scope="module")
def trained() -> BytePairTokenizer:
    return train_byte_level(CORPUS, vocab_size=500)


def test_the_empty_text_is_no_end_mark(gpt2: BytePairTokenizer) -> None:
    ids = gpt2.encode("").ids
    assert (len(ids), gpt2.decode(ids), gpt2.parting(ids)) == (1, "", 0)
    end = "<|endoftext|>"
    assert gpt2.decode([*ids, *ids]) == 2 * end
    assert gpt2.decode([*ids, *gpt2.encode(" a").ids]) == f"{end} a"


@given(st.text(max_size=60))
def test_every_text_comes_back(trained: BytePairTokenizer, gpt2: BytePairTokenizer, text: str) -> None:
    for tokenizer in (trained, gpt2):
        ids = tokenizer.encode(text).ids
        assert tokenizer.encode_batch([text])[0].tolist() == ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", NASTY)
def test_nasty_texts_come_back(trained: BytePairTokenizer, text: str) -> None:
    assert trained.decode(trained.encode(text).ids) == text


def test_half_a_surrogate_pair_reads_as_the_replacement_character(trained: BytePairTokenizer) -> None:
    encoding = trained.encode("a\ud83db")
    assert trained.decode(encoding.ids) == "a\ufffdb"
    assert encoding.offsets[-1] == (2, 3)


def test_offsets_cover_whole_clusters_in_order(trained: BytePairTokenizer, gpt: BytePairTokenizer) -> None:
    for text in NASTY + CORPUS[:4]:
        if "endoftext" in text:
            continue
        starts, ends = (set(x) for x in cluster_spans(text))
        encoding = trained.encode(text)
        assert len(encoding.offsets) == len(encoding.ids) == len(encoding.tokens)
        assert all(s in starts and e in ends for s, e in encoding.offsets if s < e)
        covered = set().union(*(range(s, e) for s, e in encoding.offsets))
        assert {i for i, char in enumerate(text) if not char.isspace()} <= covered
        assert encoding.offsets == sorted(encoding.offsets)
        of_gpt = gpt.encode(text)
        assert all(s in starts and e in ends for s, e in of_gpt.offsets if s < e)
    words = [text[s:e] for text in ["The Café"] for s, e in gpt.encode(text).offsets]
    assert "".join(words) == "TheCafé"


def test_what_stands_for_what(trained: BytePairTokenizer, gpt2: BytePairTokenizer, gpt: BytePairTokenizer) -> None:
    for tokenizer, name in ((trained, END), (gpt2, END), (gpt, "<unk>")):
        roles = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id}
        assert {tokenizer.tokens[i] for i in roles} == {name}
    assert trained.encode("a").tokens == [END, "a"]
    assert trained.encode("").tokens == [END]
    assert gpt2.encode("a").tokens == ["a"]
    assert trained.vocab_size == 500 == len(trained.tokens)
    assert gpt.decode(gpt.encode("The Fox, didn't").ids) == "the fox , didn ' t"


def test_saving_loading_and_the_same_training_again(
    trained: BytePairTokenizer, gpt: BytePairTokenizer, tmp_path: Path
) -> None:
    for tokenizer in (trained, gpt):
        tokenizer.save(tmp_path / "tokenizer.json")
        loaded = Tokenizer.load(tmp_path / "tokenizer.json")
        assert type(loaded) is BytePairTokenizer
        assert loaded.fingerprint == tokenizer.fingerprint
        assert [loaded.encode(t).ids for t in NASTY] == [tokenizer.encode(t).ids for t in NASTY]
    assert train_byte_level(CORPUS, vocab_size=500).fingerprint == trained.fingerprint


@given(st.text(max_size=20), st.data())
def test_settled_text_stays(trained: BytePairTokenizer, text: str, data: st.DataObject) -> None:
    """What is shown of a beginning of the tokens is a beginning of the whole, and holds no half character."""
    ids = trained.encode(text).ids
    shown = trained.settled(ids[: data.draw(st.integers(0, len(ids)))])
    assert text.startswith(shown)


@pytest.mark.parametrize(
    ("vocab", "merges", "complaint"),
    [
        (None, "", "cannot read the vocabulary"),
        ("[1, 2]", "", "cannot read the vocabulary"),
        ("{", "", "cannot read the vocabulary"),
        ('{"a": 0, "b": 1}', "#version: 0.2\na b\n", "merges.txt line 2: the vocabulary has no 'ab' to merge"),
        ('{"a": 0, "b": 1, "ab": 2}', "a b c\n", "merges.txt line 1: this is not a pair"),
        ('{"a": 0, "b": 1, "ab": 2}', "#version: 0.2\na\n", "merges.txt line 2: this is not a pair"),
        ('{"a": 0, "b": 5}', "", "ids of this vocabulary have gaps"),
    ],
)
def test_damaged_files(tmp_path: Path, vocab: str | None, merges: str, complaint: str) -> None:
    if vocab is not None:
        (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(UserError, match=complaint):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_a_vocabulary_of_bytes_is_not_gpts(gpt2_files: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="there is no '<unk>'"):
        read_gpt(*gpt2_files)


@pytest.mark.parametrize("settings", [{"vocab_size": 256}, {"min_frequency": 0}])
def test_settings_out_of_range(settings: dict[str, int]) -> None:
    with pytest.raises(UserError, match="out of range"):
        train_byte_level(CORPUS, **settings)
    with pytest.raises(UserError, match="no text"):
        train_byte_level(["", ""])
