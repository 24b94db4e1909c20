"""A converted language model generates by the other library's defaults what it generates here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_reviews import reviews
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Pipeline

import textgraft
from textgraft.models import artifact, loading
from textgraft.models.model import build
from textgraft.text.byte_level import TURN_ENDS, BytePairTokenizer
from textgraft.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = reviews(200, 7)[0]
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {"name": "gpt", "norm": "post"},
    "gpt2": {"name": "gpt", "norm": "pre"},
    "llama": {"name": "llama", "feed_forward_dim": 32, "num_key_value_heads": 1},
}


def byte_pairs(*special: str) -> BytePairTokenizer:
    """A byte vocabulary with these special tokens, of which there may be none."""
    trained = json.loads(Tokenizer.train(TEXTS, model="byte_level", vocab_size=300).to_json())
    vocabulary = {token: i for i, token in enumerate(sorted(trained["model"]["vocab"].keys() - {"<|endoftext|>"}))}
    merges = [tuple(merge) for merge in trained["model"]["merges"]]
    pipeline = Pipeline.from_str(json.dumps(trained | {"added_tokens": [], "post_processor": None}))
    pipeline.model = models.BPE(vocab=vocabulary, merges=merges)
    pipeline.add_special_tokens([AddedToken(token, special=True) for token in special])
    return BytePairTokenizer(pipeline)


TOKENIZERS: dict[str, Tokenizer] = {
    "one end": Tokenizer.train(TEXTS, model="byte_level", vocab_size=300),
    "no end": byte_pairs(),
    "ends of texts and answers": byte_pairs("<|begin_of_text|>", "<|end_of_text|>", TURN_ENDS[1]),
    "of BERT": Tokenizer.train(TEXTS, model="wordpiece", vocab_size=300),
    "with control words": Tokenizer.train(TEXTS, model="bpe", vocab_size=300),
}


def saved(tokenizer: Tokenizer, family: str, folder: Path) -> Path:
    """A tiny language model, its weights so large that the likeliest tokens differ from step to step."""
    torch.manual_seed(0)
    encoder = {"vocab_size": tokenizer.vocab_size, "embedding_dim": 16, "num_layers": 1, "num_heads": 2}
    head = {"name": "language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 16, "bias": False}
    model = build({"encoder": encoder | FAMILIES[family], "head": head}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return artifact.save(artifact.Artifact(model, tokenizer, None, {"stage": "pretrain"}), folder)


@pytest.mark.filterwarnings("ignore:the transformers library does not prepare texts")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_it_generates_alike_by_default(kind: str, family: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]
    ours = saved(tokenizer, family, tmp_path / "ours")
    theirs = textgraft.convert(ours, tmp_path / "theirs", to="huggingface")
    config = json.loads((theirs / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (tokenizer.bos_id, tokenizer.eos_id)
    reference, source = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval(), loading.load_network(ours)
    options = textgraft.GenerateOptions(max_tokens=40, precision="fp32")
    for text in TEXTS[:20]:
        ids = tokenizer.encode(text[:30]).ids
        prompt = torch.tensor([ids])
        with torch.no_grad():
            found = reference.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40)
        assert found[0, len(ids) :].tolist() == textgraft.generate(source, [text[:30]], options)[0].ids


@pytest.mark.parametrize("family", FAMILIES)
def test_the_librarys_tokenizer_prepares_what_its_model_takes(family: str, tmp_path: Path) -> None:
    """With BERT's vocabulary, a GPT would add the ids of segments to the text, and a Llama refuses them."""
    ours = saved(TOKENIZERS["of BERT"], family, tmp_path / "ours")
    theirs = textgraft.convert(ours, tmp_path / "theirs", to="huggingface")
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(theirs)("A good film", return_tensors="pt")
    options = textgraft.GenerateOptions(max_tokens=20, precision="fp32")
    with torch.no_grad():
        found = model.generate(**inputs, max_new_tokens=20)[0, inputs["input_ids"].shape[1] :]
    written = textgraft.generate(ours, ["A good film"], options)
    assert found.tolist() == written[0].ids
    assert textgraft.generate(f"hf:{theirs}", ["A good film"], options) == written


def test_all_ends_and_the_tokens_that_are_never_generated_are_written(tmp_path: Path) -> None:
    for kind, ends in (("ends of texts and answers", 3), ("with control words", 2), ("of BERT", 2)):
        tokenizer = TOKENIZERS[kind]
        theirs = textgraft.convert(saved(tokenizer, "gpt2", tmp_path / kind), tmp_path / f"{kind} hf", to="huggingface")
        generation = json.loads((theirs / "generation_config.json").read_text())
        assert generation["eos_token_id"] == sorted(tokenizer.end_ids)
        assert len(generation["eos_token_id"]) == ends
        assert generation.get("suppress_tokens", []) == sorted({tokenizer.unk_id, tokenizer.pad_id} - tokenizer.end_ids)


def test_an_encoder_has_no_file_on_generation(tmp_path: Path) -> None:
    tokenizer = TOKENIZERS["of BERT"]
    encoder = {"name": "bert", "vocab_size": tokenizer.vocab_size, "embedding_dim": 8, "num_layers": 1, "num_heads": 2}
    model = build({"encoder": encoder, "head": {"name": "features", "input_dim": 8}})
    artifact.save(artifact.Artifact(model, tokenizer, None, {"stage": "pretrain"}), tmp_path / "ours")
    theirs = textgraft.convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface")
    assert not (theirs / "generation_config.json").exists()


def test_a_tokenizer_that_only_textgraft_has_is_told(tmp_path: Path) -> None:
    ours = saved(TOKENIZERS["with control words"], "gpt", tmp_path / "ours")
    with pytest.warns(UserWarning, match="does not prepare texts as this model's tokenizer does"):
        textgraft.convert(ours, tmp_path / "theirs", to="huggingface")
