"""Tokenizers of Llama and ModernBERT: the library's ids, spans of characters, words, and text that comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published_tokenizers import MARKS, PIPELINES, modernbert, sentencepiece

from textgraft import UserError
from textgraft.data.streams.masking import MaskingTokens
from textgraft.data.windows import tokenize
from textgraft.generation.generation import special_tokens
from textgraft.text.byte_level import BytePairTokenizer, read_llama
from textgraft.text.incremental_decoding import IncrementalText
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.pretrained_folder import read_modernbert
from textgraft.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = ["A film for the whole family.", " two  spaces", "été 🙂 ไทย\nline", "", "a", "x" * 40]


@pytest.mark.parametrize("name", PIPELINES)
def test_ids_are_the_librarys_and_survive_saving(name: str, tmp_path: Path) -> None:
    PIPELINES[name]().save(str(tmp_path / "tokenizer.json"))
    tokenizer = (read_modernbert if name == "modernbert" else read_llama)(tmp_path)
    assert type(tokenizer) is (PretrainedTokenizer if name == "modernbert" else BytePairTokenizer)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    expected = [theirs(text)["input_ids"] or [tokenizer.bos_id] for text in TEXTS]
    assert [tokenizer.encode(text).ids for text in TEXTS] == expected
    assert [ids.tolist() for ids in tokenizer.encode_batch(TEXTS)] == expected
    tokenizer.save(tmp_path / "ours.json")
    again = Tokenizer.load(tmp_path / "ours.json")
    assert type(again) is type(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("name", PIPELINES)
def test_text_comes_back_whole_and_token_by_token(name: str) -> None:
    tokenizer = Tokenizer.from_json(PIPELINES[name]().to_str())
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        if text:
            assert tokenizer.decode(ids) == text
        growing = IncrementalText(tokenizer)
        for i in ids:
            growing.add([i])
        assert growing.text == tokenizer.decode(ids)


@pytest.mark.parametrize("name", PIPELINES)
def test_spans_are_of_characters(name: str) -> None:
    tokenizer = Tokenizer.from_json(PIPELINES[name]().to_str())
    text = "Ça va, été 🙂?"
    tokens = tokenize(tokenizer, text)
    assert np.array_equal(tokens.ids, tokenizer.bodies([text])[0])
    covered = {i for start, end in tokens.spans for i in range(start, end)}
    assert covered == {i for i, c in enumerate(text) if c != " "}
    assert len(tokenize(tokenizer, "").ids) == 0


@pytest.mark.parametrize("name", PIPELINES)
def test_words_with_and_without_a_space_before(name: str) -> None:
    tokenizer = Tokenizer.from_json(PIPELINES[name]().to_str())
    words = ["film", "family", "é"]
    whole = tokenizer.bodies(["film family é"])[0] if name == "llama" else tokenizer.bodies([" film family é"])[0]
    assert np.array_equal(np.concatenate(tokenizer.words(words)), whole)
    for word, ids in zip(words, tokenizer.words(words, space="none"), strict=True):
        assert tokenizer.decode(ids) == word
        assert not tokenizer.tokens[ids[0]].startswith(("▁", "Ġ"))


def test_roles_of_special_tokens() -> None:
    llama, qwen = (Tokenizer.from_json(PIPELINES[name]().to_str()) for name in ("llama", "qwen"))
    assert [llama.tokens[i] for i in (llama.bos_id, llama.eos_id, llama.pad_id, llama.unk_id)] == [
        *("<s>", "</s>", "</s>", "<unk>")  # no token for padding: it is masked, so any will do
    ]
    assert [qwen.tokens[i] for i in (qwen.bos_id, qwen.eos_id, qwen.pad_id)] == ["<|endoftext|>"] * 3
    assert {qwen.tokens[i] for i in special_tokens(qwen).ends} == {"<|endoftext|>", "<|im_end|>"}
    assert {llama.tokens[i] for i in special_tokens(llama).ends} == {"<s>", "</s>"}


def test_masking_knows_what_is_special_and_what_continues_a_word() -> None:
    tokenizer = Tokenizer.from_json(modernbert().to_str())
    tokens = MaskingTokens.of(tokenizer)
    assert tokenizer.tokens[tokens.mask_id] == "[MASK]"
    assert {tokenizer.tokens[i] for i in np.flatnonzero(tokens.special)} == {*MARKS, "<|padding|>"}
    continues = {tokenizer.tokens[i] for i in np.flatnonzero(tokens.continues)}
    assert {"a", "0", "Ã"} <= continues  # Ã begins the bytes of an é
    assert not {"Ġ", "Ġa", ".", "Ċ", "["} & continues
    assert tokenizer.pair_marks == tokenizer.pair_marks.__class__((tokens.cls_id,), (tokens.sep_id,), (tokens.sep_id,))


def test_folders_without_a_tokenizer_that_can_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the tokenizer"):
        read_llama(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(UserError, match=r"there is a tokenizer\.model, but no tokenizer\.json") as caught:
        read_llama(tmp_path)
    assert "save_pretrained" in caught.value.remedy
    sentencepiece().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="not the tokenizer of a ModernBERT"):
        read_modernbert(tmp_path)
    Tokenizer.train(["a b c"], kind="word", min_frequency=1).save(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="not a byte pair encoding"):
        read_llama(tmp_path)
