"""The command line with tiny checkpoints of ModernBERT, Llama and Qwen as transformers writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from made_up_tags import write_sentences
from programs import Program
from published_tokenizers import PIPELINES

transformers = pytest.importorskip("transformers")

RECIPE = """
name = "quick"
description = "A few steps."
source = "This test."

[adapt]
batch_size = 4
bptt = 24

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.001

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 1
lr = 0.001
"""
TEMPLATE = """
name = "quick-prompt"
description = "Good or bad."
example = "{text}\\nIt was {label}"

[verbaliser]
neg = ["bad"]
pos = ["good"]
"""
SHAPE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"max_position_embeddings": 256}
FAMILIES = ("llama", "qwen", "modernbert")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family: a language model with its tokenizer."""
    torch.manual_seed(0)
    written = {}
    for name in FAMILIES:
        folder = written[name] = tmp_path_factory.mktemp("published") / name
        pipeline = PIPELINES[name]()
        size: dict[str, Any] = SHAPE | {"vocab_size": pipeline.get_vocab_size()}
        if name == "modernbert":
            special = {f"{role}_token_id": pipeline.token_to_id(f"[{role.upper()}]") for role in ("pad", "cls", "sep")}
            config = transformers.ModernBertConfig(**size, **special, bos_token_id=None, eos_token_id=None)
            model = transformers.ModernBertForMaskedLM(config)
        elif name == "llama":
            config = transformers.LlamaConfig(**size, num_key_value_heads=2)
            model = transformers.LlamaForCausalLM(config).bfloat16()
        else:
            config = transformers.Qwen2Config(**size, num_key_value_heads=2, tie_word_embeddings=True)
            model = transformers.Qwen2ForCausalLM(config)
        model.save_pretrained(folder, max_shard_size="20KB")
        pipeline.save(str(folder / "tokenizer.json"))
    return written


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, seed in (("train", 1), ("test", 2)):
        texts, labels = reviews(40, seed)
        rows = "".join(f'"{text}",{label}\n' for text, label in zip(texts, labels, strict=True))
        (folder / f"{name}.csv").write_text("text,label\n" + rows)
        write_sentences(folder / f"{name}.conll", 30, seed)
    (folder / "quick.toml").write_text(RECIPE)
    (folder / "quick-prompt.toml").write_text(TEMPLATE)
    (folder / "pool.txt").write_text("\n".join(reviews(80, 3)[0]))
    return folder


def test_folders_are_in_shards(folders: dict[str, Path]) -> None:
    assert all((folder / "model.safetensors.index.json").is_file() for folder in folders.values())


@pytest.mark.parametrize("name", ["llama", "qwen"])
def test_generate_and_prompt(name: str, folders: dict[str, Path], data: Path, run: Program) -> None:
    model = f"hf:{folders[name]}"
    result = run("generate", model, "-p", "A great film", "-p", "Bad", "--max-tokens", "6", "--json")
    assert result.code == 0, result.err
    assert all(0 < text["tokens"] <= 6 for text in result.json()["texts"])
    template = f"{data}/quick-prompt.toml"
    result = run("prompt", model, data / "test.csv", "--template", template, "--shots", "0", "--json")
    assert result.code == 0, result.err


@pytest.mark.parametrize("name", FAMILIES)
def test_embed(name: str, folders: dict[str, Path], data: Path, tmp_path: Path, run: Program) -> None:
    for pooling in ("mean", "last"):
        out = tmp_path / f"{pooling}.npy"
        result = run("embed", f"hf:{folders[name]}", data / "test.csv", "--pooling", pooling, "--out", out)
        assert result.code == 0, result.err
        vectors = np.load(out)
        assert vectors.shape == (40, 16)
        assert np.isfinite(vectors).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_finetune_predict_export_and_back(
    name: str, folders: dict[str, Path], data: Path, tmp_path: Path, run: Program
) -> None:
    options = ["--recipe", data / "quick.toml", "--no-baselines"]
    result = run("finetune", data / "train.csv", "--model", f"hf:{folders[name]}", "-o", tmp_path / "m", *options)
    assert result.code == 0, result.err
    result = run("predict", tmp_path / "m", data / "test.csv", "--json")
    assert result.code == 0, result.err
    result = run("export", tmp_path / "m", "--onnx", tmp_path / "graph")
    assert result.code == 0, result.err
    result = run("convert", tmp_path / "m", "--out", tmp_path / "sentences", "--to", "sentence-transformers", "--json")
    assert result.code == 0, result.err
    assert (tmp_path / "sentences" / "classifier.json").is_file()
    result = run("convert", tmp_path / "m", "--out", tmp_path / "theirs", "--to", "huggingface")
    if name == "modernbert":  # whose classifiers have a transform below the linear layer
        result.mistake("no ModernBERT with such a head")
        return
    assert result.code == 0, result.err
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert set(config["id2label"].values()) == {"neg", "pos"}
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "theirs" / "tokenizer.json"))
    text = "A great film ."
    logits = theirs(torch.tensor([tokenizer(text)["input_ids"]])).logits
    assert logits.shape == (1, 2)
    again = run("predict", f"hf:{tmp_path / 'theirs'}", data / "test.csv", "--json")
    assert again.code == 0, again.err


@pytest.mark.parametrize("name", FAMILIES)
def test_tag(name: str, folders: dict[str, Path], data: Path, tmp_path: Path, run: Program) -> None:
    arguments = ["--model", f"hf:{folders[name]}", "--recipe", data / "quick.toml", "-o", tmp_path / "tagger"]
    result = run("tag", "finetune", data / "train.conll", *arguments)
    assert result.code == 0, result.err


@pytest.mark.parametrize("name", FAMILIES)
def test_adapt_and_convert_back(name: str, folders: dict[str, Path], data: Path, tmp_path: Path, run: Program) -> None:
    """A language model learns more text, and opens in transformers again with its own special tokens."""
    arguments = ["--model", f"hf:{folders[name]}", "--recipe", data / "quick.toml", "-o", tmp_path / "adapted"]
    result = run("adapt", data / "pool.txt", *arguments)
    assert result.code == 0, result.err
    result = run("convert", tmp_path / "adapted", "--out", tmp_path / "theirs", "--to", "huggingface")
    assert result.code == 0, result.err
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    tokenizer = PIPELINES[name]()
    end = {"llama": "</s>", "qwen": "<|endoftext|>", "modernbert": "[SEP]"}[name]
    assert config["eos_token_id"] == tokenizer.token_to_id(end)
    auto = transformers.AutoModelForMaskedLM if name == "modernbert" else transformers.AutoModelForCausalLM
    opened = auto.from_pretrained(tmp_path / "theirs")
    assert opened.config.model_type == {"qwen": "qwen2"}.get(name, name)
