"""`finetune --recipe gpt`: the language model learns beside the classifier, and stays behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from made_up_reviews import reviews
from programs import Program, call, spawn, unchanged, write_csv
from safetensors.torch import load_file

from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.byte_level import train_byte_level
from textgraft.text.wordpiece import train as train_wordpiece


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.csv, test.csv, choice.jsonl, and a GPT and a BERT, both tiny, neither pretrained."""
    folder = tmp_path_factory.mktemp("gpt")
    for name, count, seed in (("train", 40, 1), ("test", 12, 2)):
        write_csv(folder / f"{name}.csv", list(zip(*reviews(count, seed))))
    sides = "wet.", "dry and warm."
    rows = [{"context": f"At {i} it is", "choices": sides, "answer": "AB"[i % 2]} for i in range(12)]
    (folder / "choice.jsonl").write_text("\n".join(map(json.dumps, rows)))
    texts = reviews(60, 3)[0]
    shape = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "max_length": 96}
    for name, tokenizer, head, more in (
        ("gpt", train_byte_level(texts, vocab_size=300), {"name": "language_model", "bias": False}, {}),
        ("bert", train_wordpiece(texts, vocab_size=150), {"name": "masked_language_model"}, {"feed_forward_dim": 16}),
    ):
        size = tokenizer.vocab_size
        with torch.random.fork_rng():
            torch.manual_seed(0)
            encoder = {"name": name, "vocab_size": size, **shape, **more}
            model = build({"encoder": encoder, "head": {**head, "vocab_size": size, "input_dim": 8}})
        run = {"name": name, "stage": "pretrain", "licence": "", "language": "en"}
        artifact.save(Artifact(model, tokenizer, None, run), folder / name)
    return folder


@pytest.mark.slow
def test_a_classifier_by_gpts_recipe(desk: Path, tmp_path: Path) -> None:
    command = ["finetune", desk / "train.csv", "--test", desk / "test.csv", "--model", desk / "gpt", "--json"]
    command += ["--quiet", "--precision", "fp32", "--no-baselines"]
    done = call(*command, "--recipe", "gpt", "--out", tmp_path / "with")
    assert done.code == 0, done
    assert done.json()["out"] == str(tmp_path / "with")
    shipped = next(path for path in (Path(__file__).parents[2] / "recipes").glob("gpt.toml"))
    alone = tmp_path / "alone.toml"
    alone.write_text(shipped.read_text().replace("auxiliary_lm_weight = 0.5\n", ""))
    assert spawn(*command, "--recipe", alone, "--out", tmp_path / "without").code == 0
    found, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert found.keys() == plain.keys()
    assert not any("auxiliary" in name or "output" in name for name in found if name.startswith("head."))
    assert not torch.equal(found["encoder.embedding.weight"], plain["encoder.embedding.weight"])
    run = loading.load_network(tmp_path / "with").run
    assert run["recipe"] == "gpt"
    assert run["history"][-1]["train_loss"] > 2  # half of log(300) and the classifier's, where alone it is log(2)


@pytest.mark.slow
def test_choices_by_gpts_recipe(desk: Path, tmp_path: Path, run: Program) -> None:
    options = ["--kind", "choice", "--recipe", "gpt", "--model", desk / "gpt", "--folds", "2", "--json", "--quiet"]
    done = run("finetune", desk / "choice.jsonl", *options, "--out", tmp_path / "out")
    assert done.code == 0, done
    assert loading.load_network(tmp_path / "out").model.describe()["head"]["name"] == "choice"


def test_bert_is_refused_with_nothing_written(desk: Path, tmp_path: Path, run: Program) -> None:
    command = ["finetune", desk / "train.csv", "--model", desk / "bert", "--recipe", "gpt", "--out", tmp_path / "out"]
    with unchanged(tmp_path):
        run(*command, "--unlabelled", desk / "train.csv").mistake("auxiliary", "looks both ways", "another recipe")
