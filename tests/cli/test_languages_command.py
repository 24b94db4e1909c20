"""`pretrain --language th=…`: two languages, a tiny BERT."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import Program, call, unchanged

from textgraft.models.loading import load_network

RECIPE = """
name = "tiny-bert"
description = "For tests"
language = "several"
licence = "none"
validate_every = 100
smoothing = 0.5

[tokenizer]
model = "wordpiece"
vocab_size = 150

[model]
name = "bert"
embedding_dim = 8
num_layers = 1
num_heads = 2
feed_forward_dim = 16
max_length = 32

[head]
name = "masked_language_model"

[stage]
batch_size = 8
bptt = 32

[[stage.phases]]
name = "all"
epochs = 0.2
lr = 0.01
"""
CHINESE = "这是一部很好看的电影我不喜欢它太长了演员表演出色"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """en-1.txt and en-2.txt, zh.txt, none.txt without text, and the recipe."""
    folder = tmp_path_factory.mktemp("languages")
    english = reviews(300)[0]
    generator = random.Random(1)
    chinese = ["".join(generator.choices(CHINESE, k=generator.randint(5, 30))) for _ in range(60)]
    parts = {"en-1": english[:100], "en-2": english[100:], "zh": chinese, "none": [" "]}
    for name, some in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(some))
    (folder / "tiny.toml").write_text(RECIPE)
    return folder


def test_two_languages(texts: Path, tmp_path: Path) -> None:
    command = ["pretrain", "--language", f"zh-Hans={texts}/zh.txt", "--language", f"en={texts}/en-*.txt"]
    command += ["--recipe", texts / "tiny.toml", "--quiet"]
    done = call(*command, "--out", tmp_path / "lm", "--json")
    assert (done.code, done.err) == (0, ""), done
    languages = done.json()["languages"]
    assert list(languages) == ["en", "zh-Hans"]
    en, zh = languages.values()
    assert en["share_read"] / zh["share_read"] == pytest.approx((en["tokens"] / zh["tokens"]) ** 0.5, rel=0.02)
    assert (en["times_read"], en["texts"]) == (1, 298)
    assert {"tokens", "loss", "perplexity"} <= zh["held_out"].keys()
    made = load_network(tmp_path / "lm")
    assert made.run["data"]["sources"] == ["en: en-*.txt", "zh-Hans: zh.txt"]
    assert made.tokenizer.encode("电影很好").tokens == ["[CLS]", *"电影很好", "[SEP]"]
    told = call(*command, "--out", tmp_path / "told")
    assert told.code == 0, told
    assert "next sentence" not in told.out
    row = next(line for line in told.out.splitlines() if "zh-Hans" in line)
    assert f"{100 * zh['share_read']:.1f} %" in row
    assert f"{zh['times_read']:.2f}" in row
    assert f"{zh['held_out']['loss']:.4g}" in row


def test_a_file_more_than_once_is_several_of_one_language(texts: Path, tmp_path: Path, run: Program) -> None:
    options = ["--language", f"en={texts}/en-1.txt", "--language", f"en={texts}/en-2.txt", "--json", "--quiet"]
    options += ["--valid", f"en={texts}/en-1.txt", "--recipe", texts / "tiny.toml", "--out", tmp_path / "lm"]
    done = run("pretrain", *options)
    assert done.code == 0, done
    assert done.json()["languages"]["en"]["texts"] == 300


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--language", "en"], ["--language", "'en' is not of the form", "th=thai/*.txt"]),
        (["--language", "=DIR/zh.txt"], ["is not of the form LANGUAGE=FILES"]),
        (["--language", "zh="], ["is not of the form LANGUAGE=FILES"]),
        (["--language", "old english=DIR/en-1.txt"], ["'old english' is not a language code", "zh-Hans"]),
        (["--language", "en=DIR/nowhere.txt"], ["language en", "nowhere.txt"]),
        (["--language", "en=DIR/en-1.txt", "--language", "zh=DIR/none.txt"], ["language zh", "contains no text"]),
        (["DIR/en-1.txt", "--language", "en"], ["--language", "'en' names no files", "the recipe says which"]),
        (["DIR/en-1.txt", "--language", "zh=DIR/zh.txt"], ["some have none", "--language th=FILES"]),
        ([], ["no text was named"]),
        (["--language", "zh=DIR/zh.txt", "--valid", "DIR/zh.txt"], ["--valid", "is not of the form LANGUAGE=FILES"]),
        (["--language", "zh=DIR/zh.txt", "--valid", "en=DIR/en-1.txt"], ["not of the same ones", "zh"]),
    ],
)
def test_mistakes(arguments: list[str], parts: list[str], texts: Path, tmp_path: Path, run: Program) -> None:
    given = [argument.replace("DIR", str(texts)) for argument in arguments]
    with unchanged(tmp_path):
        done = run("pretrain", *given, "--out", tmp_path / "lm", "--recipe", texts / "tiny.toml", "--quiet")
    done.mistake(*parts)
