"""Checkpoints of RoBERTa, XLM-R and MPNet on the command line: from embedding them to writing them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest
import torch
from made_up_questions import write_questions, write_recipe
from made_up_reviews import reviews
from made_up_tags import write_sentences
from programs import Program, write_csv
from test_export_tasks_command import without_torch

import textgraft

transformers = pytest.importorskip("transformers")

CLASSES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "mpnet": "MPNet"}
RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
batch_size = 8
bptt = 24

[[adapt.phases]]
name = "all"
epochs = 6
lr = 0.01

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 3
lr = 0.01
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews, sentences and questions, recipes, and a masked language model of each kind with its tokenizer."""
    folder = tmp_path_factory.mktemp("families")
    for name, count, seed in (("train", 40, 1), ("test", 20, 2)):
        write_csv(folder / f"{name}.csv", list(zip(*reviews(count, seed))))
        write_sentences(folder / f"{name}.conll", count, seed)
        write_questions(folder / f"{name}.json", count, seed)
    (folder / "pool.txt").write_text("\n".join(reviews(150, 3)[0]))
    (folder / "recipe.toml").write_text(RECIPE)
    write_recipe(folder, 3)
    for kind, classes in CLASSES.items():
        torch.manual_seed(0)
        config = getattr(transformers, f"{classes}Config")(
            vocab_size=published.pipeline(kind).get_vocab_size(),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=130,
        )
        getattr(transformers, f"{classes}ForMaskedLM")(config).save_pretrained(folder / kind)
        published.save(kind, folder / kind)
    return folder


def theirs(folder: Path, name: str, texts: list[str]) -> Any:
    """The library's output and mask by the model and tokenizer in a folder, in double precision."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    model = getattr(transformers, name).from_pretrained(folder, torch_dtype=torch.float64).eval()
    with torch.no_grad():
        return model(**{k: v for k, v in tokens.items() if k != "token_type_ids"}), tokens["attention_mask"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_embedded_adapted_fine_tuned_exported_and_written_back(
    kind: str, folder: Path, run: Program, tmp_path: Path
) -> None:
    texts = ["The film was great.", "the plot boring and awful", "wonderful"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    vectors = tmp_path / "v.npy"
    assert run("embed", f"hf:{folder / kind}", tmp_path / "texts.txt", "--out", vectors).code == 0
    out, mask = theirs(folder / kind, f"{CLASSES[kind]}Model", texts)
    weights = mask[..., None] / mask.sum(1)[:, None, None]
    expected = (out.last_hidden_state * weights).sum(1).numpy()
    np.testing.assert_allclose(np.load(vectors), expected, rtol=0.05, atol=0.02)  # perhaps in bfloat16
    adapt = ("adapt", folder / "pool.txt", "--recipe", folder / "recipe.toml", "--precision", "fp32", "--quiet")
    assert run(*adapt, "--model", f"hf:{folder / kind}", "--out", tmp_path / "adapted").code == 0
    held_out = json.loads((tmp_path / "adapted" / "run.json").read_text())["held_out"]
    assert held_out["after"]["loss"] < 0.9 * held_out["before"]["loss"]

    common = ("--model", tmp_path / "adapted", "--recipe", folder / "recipe.toml", "--precision", "fp32", "--quiet")
    test = folder / "test.csv"
    finetune = ("finetune", folder / "train.csv", "--test", test, "--no-baselines", "--out", tmp_path / "classifier")
    done = run(*finetune, *common)
    assert done.code == 0, done
    classifier = textgraft.load(tmp_path / "classifier", precision="fp32")
    expected = [p.probabilities for p in classifier.predict(texts)]
    int8 = [p.probabilities for p in textgraft.load(tmp_path / "classifier", precision="int8").predict(texts)]
    np.testing.assert_allclose(values(int8), values(expected), atol=0.05)

    graph = run("export", tmp_path / "classifier", "--onnx", tmp_path / "graph", "--json").json()
    assert graph["difference"] < 1e-5
    shown = without_torch("predict", tmp_path / "graph", "--input-text", texts[0])
    assert json.loads(shown)["label"] == next(iter(classifier.predict([texts[0]]))).label

    sentences = tmp_path / "sentences"
    done = run("convert", tmp_path / "classifier", "--to", "sentence-transformers", "--out", sentences)
    assert done.code == 0, done
    assert "the classifier's head is left out, since it has a hidden layer" in done.err
    written = tmp_path / "written"
    assert run("convert", tmp_path / "classifier", "--to", "huggingface", "--out", written).code == 0
    name = "MPNet" if kind == "mpnet" else "Roberta"
    out, _ = theirs(written, f"{name}ForSequenceClassification", texts)
    np.testing.assert_allclose(values(expected), out.logits.softmax(-1).numpy(), atol=1e-4)  # temperature included
    again = [p.probabilities for p in textgraft.load(f"hf:{written}", precision="fp32").predict(texts)]
    np.testing.assert_allclose(values(again), out.logits.softmax(-1).numpy(), atol=1e-4)


def values(probabilities: Any) -> np.ndarray:
    return np.array([list(p.values()) if isinstance(p, dict) else list(p) for p in probabilities])


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_taggers_and_qa_models_export_and_convert(kind: str, folder: Path, run: Program, tmp_path: Path) -> None:
    common = ("--model", f"hf:{folder / kind}", "--recipe", folder / "quick-3.toml", "--max-tokens", "64", "--quiet")
    name = "MPNet" if kind == "mpnet" else "Roberta"
    for task, ending, suffix in (("tag", "conll", "TokenClassification"), ("qa", "json", "QuestionAnswering")):
        files = (folder / f"train.{ending}", "--test", folder / f"test.{ending}")
        done = run(task, "finetune", *files, *common, "--out", tmp_path / task)
        assert done.code == 0, done
        assert (
            run("export", tmp_path / task, "--onnx", tmp_path / f"{task}-graph", "--json").json()["difference"] < 1e-5
        )
        assert run("convert", tmp_path / task, "--to", "huggingface", "--out", tmp_path / f"{task}-hf").code == 0
        theirs(tmp_path / f"{task}-hf", f"{name}For{suffix}", ["the river sees the stone ."])
        scores = [
            run(task, "evaluate", model, folder / f"test.{ending}", "--precision", "fp32", "--json").json()
            for model in (tmp_path / task, f"hf:{tmp_path / f'{task}-hf'}")
        ]
        metric = "accuracy" if task == "tag" else "f1"
        assert scores[0][metric] == scores[1][metric]
