"""Tokenizers of published encoders: ids of the transformers library, offsets, words, pairs, files both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest
from published import KINDS, SENTENCES
from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.data.examples import Pair
from textgraft.data.sequences import PairIds, encode_texts
from textgraft.data.streams.masking import MaskingTokens
from textgraft.data.windows import tokenize
from textgraft.data.words import encode_words
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.pretrained_folder import read_pretrained
from textgraft.text.sentencepiece import read_sentencepiece
from textgraft.text.tokenizer import PairMarks, Tokenizer

TEXTS = [
    *SENTENCES,
    "",
    " two  spaces ",
    "a <mask> film, <s> and </s>",
    "émoji 👩‍👩‍👧 น้ำ",
    "newline\nand\ttab",
    "ﬁne ①",
]


def opened(kind: str, folder: Path, *, whole: bool = True) -> PretrainedTokenizer:
    tokenizer = read_pretrained(published.save(kind, folder, whole=whole), kind)
    assert isinstance(tokenizer, PretrainedTokenizer)
    return tokenizer


def theirs(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    tokenizer, pipeline = opened(kind, tmp_path), published.pipeline(kind)
    batch = tokenizer.encode_batch(TEXTS)
    for text, ids in zip(TEXTS, batch, strict=True):
        assert tokenizer.encode(text).ids == pipeline.encode(text).ids == ids.tolist()
    assert all(ids.dtype == np.int32 for ids in batch)
    assert tokenizer.vocab_size == pipeline.get_vocab_size()


@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
@pytest.mark.parametrize("whole", [True, False], ids=["tokenizer.json", "older-files"])
def test_ids_are_those_of_the_transformers_library(kind: str, whole: bool, tmp_path: Path) -> None:
    tokenizer = opened(kind, tmp_path, whole=whole)
    reference = theirs(tmp_path)
    reference.backend_tokenizer.no_truncation()
    reference.backend_tokenizer.no_padding()
    for text in TEXTS:
        assert tokenizer.encode(text).ids == reference(text, truncation=False)["input_ids"], text
    pairs = encode_texts(tokenizer, [Pair(SENTENCES[0], SENTENCES[2])], 512)[0]
    assert isinstance(pairs[0], PairIds)
    assert pairs[0].ids.tolist() == reference(SENTENCES[0], SENTENCES[2], truncation=False)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_the_folders(kind: str, tmp_path: Path) -> None:
    tokenizer = opened(kind, tmp_path)
    first, last = (5, 6) if kind == "camembert" else (0, 2)
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_id) == (first, 1, last)
    assert tokenizer.pair_marks == PairMarks((first,), (last, last), (last,))
    assert tokenizer.tokens[tokenizer.unk_id] == ("[UNK]" if kind == "mpnet" else "<unk>")
    assert tokenizer.mask_id == tokenizer.vocab_size - 1
    assert tokenizer.special[[first, 1, last, tokenizer.mask_id]].all()
    assert not tokenizer.special[tokenizer.encode("film").ids[1:-1]].any()


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert"])
def test_a_sentencepiece_file_alone_gives_fairseqs_ids(kind: str, tmp_path: Path) -> None:
    alone, whole = opened(kind, tmp_path / "old", whole=False), opened(kind, tmp_path / "new")
    assert alone.tokens == whole.tokens
    for text in SENTENCES[:2]:
        assert alone.encode(text) == whole.encode(text)
    convert = pytest.importorskip("transformers.convert_slow_tokenizer")  # of the library, which lacks a reader here
    name = "CamembertConverter" if kind == "camembert" else "XLMRobertaConverter"
    pieces = read_sentencepiece(tmp_path / "old" / "sentencepiece.bpe.model").pieces
    assert alone.tokens == [piece for piece, _ in getattr(convert, name).convert_from_spm(vocab=list(pieces))["vocab"]]


def test_a_sentencepiece_files_character_map_is_applied(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁a", -1.0), ("da", -2.0), ("A", -0.5)]
    data = published.sentencepiece(pieces, character_map=published.upper_to_lower_a())
    (tmp_path / "sentencepiece.bpe.model").write_bytes(data)
    tokenizer = read_pretrained(tmp_path, "xlm-roberta")
    assert tokenizer.encode("Ada").tokens == ["<s>", "▁a", "da", "</s>"]
    assert read_sentencepiece(tmp_path / "sentencepiece.bpe.model").pieces == tuple(pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_slice_the_words_out_of_the_original(kind: str, tmp_path: Path) -> None:
    tokenizer = opened(kind, tmp_path)
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        assert encoding.offsets[0] == (0, 0)
        assert encoding.offsets[-1] == (len(text), len(text))
        covered = np.zeros(len(text), dtype=bool)
        for start, end in encoding.offsets:
            assert text[start:end] == text[start:end].strip()
            covered[start:end] = True
        seen = [c for c, known in zip(text, covered, strict=True) if not known]
        assert "".join(seen).strip() == "", text
    text = "  Ada met   น้ำตาล!"
    for word in ("Ada", "met", "น้ำตาล"):
        spans = [s for s in tokenizer.encode(text).offsets if text.find(word) <= s[0] < s[1] <= len(text) - 1]
        spans = [s for s in spans if s[1] <= text.find(word) + len(word)]
        assert (spans[0][0], spans[-1][1]) == (text.find(word), text.find(word) + len(word)), word
    inside = text.index("้ำ")
    assert all(inside not in span and inside + 1 not in span for span in tokenizer.encode(text).offsets)


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_sentence_have_the_ids_of_the_text(kind: str, tmp_path: Path) -> None:
    """With spaces where the text has them, and without between two Thai words."""
    tokenizer = opened(kind, tmp_path)
    words = ["Ada", "met", "Grace", "in", "London"]
    whole = tokenizer.bodies([" " + " ".join(words)])[0]
    assert np.concatenate(tokenizer.words(words)).tolist() == whole.tolist()
    apart = encode_words(tokenizer, [["ดี", "มาก"]])[0]
    if kind != "mpnet":  # which continues a word with pieces of another kind
        assert tokenizer.decode(apart.ids).strip() == "ดีมาก"
    assert not np.isin(apart.ids, [tokenizer.bos_id, tokenizer.eos_id]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_a_question_and_of_masking(kind: str, tmp_path: Path) -> None:
    tokenizer = opened(kind, tmp_path)
    inside = tokenize(tokenizer, "the film")
    assert inside.ids.tolist() == tokenizer.encode("the film").ids[1:-1]
    assert "".join("the film"[a:b] for a, b in inside.spans) == "thefilm"
    masking = MaskingTokens.of(tokenizer)
    assert (masking.cls_id, masking.sep_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert masking.mask_id == tokenizer.tokens.index("<mask>")
    begins = ~masking.continues[tokenizer.words(["London"])[0]]
    assert begins[0]
    assert not begins[1:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_everything(kind: str, tmp_path: Path) -> None:
    tokenizer = opened(kind, tmp_path / "a")
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert type(again) is PretrainedTokenizer
    assert Pipeline.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == again.vocab_size
    assert again.fingerprint == tokenizer.fingerprint
    assert vars(again)["pad_id"] == tokenizer.pad_id
    (tmp_path / "b").mkdir()
    for name, data in tokenizer.huggingface_files().items():
        (tmp_path / "b" / name).write_bytes(data)
    reference = theirs(tmp_path / "b")
    for text in TEXTS:
        assert reference(text)["input_ids"] == tokenizer.encode(text).ids, text
    assert (reference.pad_token_id, reference.mask_token_id) == (tokenizer.pad_id, tokenizer.mask_id)


def test_tokens_of_bytes_that_continue_a_word() -> None:
    tokenizer = PretrainedTokenizer(published.pipeline("roberta"))
    continues = {tokenizer.tokens[i] for i in np.flatnonzero(tokenizer.continues)}
    assert {"a", "0", "Ã"} <= continues  # Ã begins the bytes of an é
    assert not {"Ġ", "Ġf", ".", "Ċ", ",", "<s>", "<mask>"} & continues


def test_a_word_after_a_space_without_a_token_for_it() -> None:
    """The space is a token of its own, as in a sentence, where no token begins with one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: i for i, token in enumerate(["<s>", "</s>", "<mask>", *alphabet])}
    pipeline = Pipeline(models.BPE(vocab=ids, merges=[]))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PretrainedTokenizer(pipeline, {"bos": "<s>", "eos": "</s>"})
    assert [tokenizer.tokens[i] for i in tokenizer.words(["hi"])[0]] == ["Ġ", "h", "i"]
    assert [tokenizer.tokens[i] for i in tokenizer.words(["hi"], space="none")[0]] == ["h", "i"]


def test_a_pipeline_without_marks_around_texts_is_kept_by_its_roles(tmp_path: Path) -> None:
    pipeline = published.pipeline("xlm-roberta")
    pipeline.post_processor = None
    tokenizer = PretrainedTokenizer(pipeline, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"})
    assert (tokenizer.template.before, tokenizer.template.after, tokenizer.mask_id) == ((), (), None)
    assert tokenizer.tokens[tokenizer.bos_id] == "</s>"
    assert tokenizer.encode("").ids == [tokenizer.bos_id] == tokenizer.encode_batch([""])[0].tolist()
    assert tokenizer.encode("film").offsets[-1][1] == 4
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert type(again) is PretrainedTokenizer
    assert (again.roles, again.fingerprint) == (tokenizer.roles, tokenizer.fingerprint)
    assert len(tokenize(again, "").ids) == 0


def test_special_tokens_that_the_vocabulary_lacks_are_refused() -> None:
    with pytest.raises(UserError, match="the special token '<sep>' has no id"):
        PretrainedTokenizer(published.pipeline("roberta"), {"sep": "<sep>"})
    silent = Pipeline(models.WordPiece({"[UNK]x": 0}, unk_token="[UNK]x"))
    silent.normalizer = normalizers.Replace(Regex("."), "")
    with pytest.raises(UserError, match="represents no letter"):
        PretrainedTokenizer(silent, {})


def test_unusual_names_of_special_tokens_are_kept(tmp_path: Path) -> None:
    folder = published.save("roberta", tmp_path / "a")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "<unk>"}))
    tokenizer = read_pretrained(folder, "roberta")
    assert tokenizer.tokens[tokenizer.pad_id] == "<unk>"
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.pad_id, again.fingerprint) == (tokenizer.pad_id, tokenizer.fingerprint)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("readme.txt", b"", r"no tokenizer in this folder.*tokenizer.json, vocab.json and merges.txt"),
        ("sentencepiece.bpe.model", b"\xff\xff", "not a SentencePiece model, or it is damaged"),
        ("sentencepiece.bpe.model", b"", "has no pieces"),
        ("sentencepiece.bpe.model", published.sentencepiece([("<unk>", 0.0)], kind=2), "not a unigram model"),
        ("sentencepiece.bpe.model", published.sentencepiece([("a", 0.0)])[:-3], "damaged"),
        ("vocab.json", b'{"a": 0}', "merges.txt: cannot read the vocabulary"),
        ("vocab.txt", b"[UNK]\nword\n", "lacks <s>, </s>, <pad>, <mask>"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json: damaged"),
    ],
)
def test_folders_without_a_tokenizer_say_so(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_pretrained(tmp_path, "roberta")
