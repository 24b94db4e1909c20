"""Pairs of texts and questions with options through the commands, on a tiny model of every family."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_reviews import reviews
from programs import Program, call, spawn

from textgraft import Settings, lr_find
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.byte_level import train_byte_level
from textgraft.text.wordpiece import train as train_wordpiece

PLACES = ("Rome", "Oslo", "Lima", "Bern")
THINGS = ("cat", "dog", "bird", "fish")
RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.005
"""


def statements(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """A premise, a hypothesis, and whether they name the same thing."""
    generator = random.Random(seed)
    for number in range(count):
        thing, place = generator.choice(THINGS), generator.choice(PLACES)
        other = thing if number % 2 else generator.choice([t for t in THINGS if t != thing])
        yield f"A {thing} is in {place}.", f"There is a {other}.", ("no", "yes")[number % 2]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of pairs, of pairs with a number, and of questions; and the recipe."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, count, seed in (("train", 24, 1), ("test", 16, 2)):
        found = list(statements(count, seed))
        pairs = [{"premise": a, "hypothesis": b, "label": y} for a, b, y in found]
        write(folder / f"{name}.jsonl", pairs)
        near = [
            {"sentence1": a, "sentence2": b, "score": f"{4 * (y == 'yes') + i / 10:.1f}"}
            for i, (a, b, y) in enumerate(found)
        ]
        write(folder / f"{name}-near.jsonl", near)
        questions = []
        for number, (a, b, y) in enumerate(found):
            thing = a.split()[1] if y == "no" else next(t for t in THINGS if t not in a)
            options = [b, f"There is a {thing}.", "It rains."][: 2 + number % 3 % 2]
            questions.append({"context": a, "choices": options, "answer": "A" if y == "yes" else "B"})
        write(folder / f"{name}-choice.jsonl", questions)
    (folder / "quick.toml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module", params=["awd_lstm", "bert", "gpt"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_lm: Path) -> tuple[str, Path]:
    """A tiny model of each family with random weights; the LSTM has been pretrained for a moment."""
    name = str(request.param)
    if name == "awd_lstm":
        return name, tiny_lm
    texts = [*reviews(50)[0], *(side for a, b, _ in statements(50, 3) for side in (a, b))]
    tokenizer = train_wordpiece(texts, vocab_size=400) if name == "bert" else train_byte_level(texts, vocab_size=300)
    shape = {"vocab_size": tokenizer.vocab_size, "embedding_dim": 8, "num_layers": 1, "num_heads": 2, "max_length": 64}
    encoder = {"name": name, **shape} | ({"feed_forward_dim": 16} if name == "bert" else {})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build({"encoder": encoder, "head": {"name": "features", "input_dim": 8}})
    with torch.no_grad():  # as they start, weights are too small for any token to matter in the last layer
        for parameter in model.parameters():
            parameter.mul_(15 if parameter.ndim > 1 else 1)
    run = {"name": "tiny", "stage": "pretrain", "licence": "", "language": "en"}
    folder = tmp_path_factory.mktemp(name) / "lm"
    return name, artifact.save(Artifact(model, tokenizer, None, run), folder)


METHODS = {"awd_lstm": "ulmfit", "bert": "bert", "gpt": "gpt"}


def finetuned(run: Program, desk: Path, model: Path, data: str, out: Path, *more: str) -> dict[str, Any]:
    files = (desk / f"train{data}.jsonl", "--test", desk / f"test{data}.jsonl")
    common = ("--model", model, "--recipe", desk / "quick.toml", "--max-tokens", "48", "--quiet", "--json")
    result = run("finetune", *files, *common, "--out", out, *more)
    assert result.code == 0, result.err
    return result.json()


@pytest.mark.slow
def test_pairs_end_to_end(run: Program, desk: Path, family: tuple[str, Path], tmp_path: Path) -> None:
    name, model = family
    results = finetuned(run, desk, model, "", tmp_path / "out")
    assert results["metric"] == "accuracy"
    # Whether both name one thing: nothing that either side says by itself, everything that they share.
    assert results["methods"]["linear"]["accuracy"]["mean"] == 1.0
    assert (tmp_path / "out" / "report.html").exists()
    scores = run("evaluate", tmp_path / "out", desk / "test.jsonl", "--json").json()
    assert scores["texts"] == 16
    tested = results["methods"][METHODS[family[0]]]["accuracy"]["mean"]
    assert scores["metrics"]["accuracy"] == pytest.approx(tested)
    answers = run("predict", tmp_path / "out", desk / "test.jsonl")
    labels = [json.loads(line)["label"] for line in answers.out.splitlines()]
    truth = [json.loads(line)["label"] for line in (desk / "test.jsonl").read_text().splitlines()]
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) / 16 == pytest.approx(tested)
    if name == "bert":  # the second text is known as such
        loaded = loading.load_network(tmp_path / "out")
        assert loaded.model.encoder.segments is not None
        before = loaded.outputs([Pair("a cat", "a dog")])
        with torch.no_grad():
            loaded.model.encoder.segments.weight[1] *= -1
        assert (loaded.outputs([Pair("a cat", "a dog")]) != before).any()


@pytest.mark.slow
def test_similarity_end_to_end(run: Program, desk: Path, family: tuple[str, Path], tmp_path: Path) -> None:
    """Read in both orders, a pair has one answer whichever comes first; read in one order, two."""
    swapped = [Pair("A cat is here.", "There is a dog."), Pair("There is a dog.", "A cat is here.")]
    for more, same in ((("--both-orders",), True), ((), False)):
        out = tmp_path / f"out{same}"
        results = finetuned(run, desk, family[1], "-near", out, *more)
        assert results["metric"] == "mae"
        assert {"pearson", "spearman"} <= results["methods"][METHODS[family[0]]].keys()
        assert results["methods"]["linear"]["pearson"]["mean"] > 0.8
        assert results["methods"]["linear"]["spearman"]["mean"] > 0.5
        first, second = loading.load_network(out).outputs(swapped)
        assert (abs(first - second) < 1e-5) == same


@pytest.mark.slow
def test_choices_end_to_end(run: Program, desk: Path, family: tuple[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = finetuned(run, desk, family[1], "-choice", out, "--kind", "choice")
    assert set(results["methods"]) == {METHODS[family[0]], "word-overlap", "usual-place"}
    assert results["methods"]["word-overlap"]["accuracy"]["mean"] == 1.0
    assert {"mean", "low", "high"} <= results["methods"][METHODS[family[0]]]["accuracy"].keys()
    scores = run("evaluate", out, desk / "test-choice.jsonl", "--json").json()
    assert scores["metrics"]["accuracy"] == pytest.approx(results["methods"][METHODS[family[0]]]["accuracy"]["mean"])
    answers = [json.loads(line) for line in run("predict", out, desk / "test-choice.jsonl").out.splitlines()]
    questions = [json.loads(line) for line in (desk / "test-choice.jsonl").read_text().splitlines()]
    assert [a["option"] for a in answers] == [q["choices"][int(a["label"]) - 1] for a, q in zip(answers, questions)]
    detailed = run("predict", out, desk / "test-choice.jsonl", "--probabilities").out.splitlines()
    for line, question in zip(detailed, questions, strict=True):
        shown = json.loads(line)["probabilities"]
        assert list(shown) == [str(n + 1) for n in range(len(question["choices"]))]
        assert sum(shown.values()) == pytest.approx(1, abs=5e-5 * len(shown))  # four digits each
    # As many options as one likes, though none of those in training had five.
    assert loading.load_network(out).outputs([Choice("A cat.", ["a", "b", "c", "d", "e"])]).shape == (1, 5)


@pytest.mark.slow
def test_choices_by_folds(run: Program, desk: Path, tiny_lm: Path, tmp_path: Path) -> None:
    """Without a test set; folds may hold fewer options than others."""
    common = ("--model", tiny_lm, "--recipe", desk / "quick.toml", "--folds", "3", "--quiet", "--json")
    done = run("finetune", desk / "train-choice.jsonl", "--kind", "choice", *common, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert done.json()["test_n"] == 24
    assert json.loads((tmp_path / "out" / "run.json").read_text())["temperature"] > 0


@pytest.mark.slow
def test_pairs_without_a_recipe_become_a_blend(run: Program, desk: Path, tiny_lm: Path, tmp_path: Path) -> None:
    common = ("--model", tiny_lm, "--quiet", "--json", "--out", tmp_path / "out")
    done = run("finetune", desk / "train.jsonl", "--test", desk / "test.jsonl", *common)
    assert done.code == 0, done.err
    assert {"linear", "ulmfit"} & set(done.json()["methods"])
    scores = run("evaluate", tmp_path / "out", desk / "test.jsonl", "--json").json()
    assert scores["metrics"]["accuracy"] == pytest.approx(1.0)


@pytest.mark.slow
def test_compare_takes_pairs_and_refuses_choices(run: Program, desk: Path, tiny_lm: Path, tmp_path: Path) -> None:
    common = (
        "--methods",
        "linear,frozen",
        "--labels",
        "12,all",
        "--seeds",
        "1",
        "--model",
        tiny_lm,
        "--quiet",
        "--json",
    )
    done = run("compare", desk / "train.jsonl", "--test", desk / "test.jsonl", *common, "--out", tmp_path / "curve")
    assert done.code == 0, done.err
    assert done.json()["budgets"][-1]["methods"]["linear"]["accuracy"]["mean"] == 1.0
    files = (desk / "train-choice.jsonl", "--kind", "choice", "--out", tmp_path / "no", "--model", tiny_lm)
    run("compare", *files, "--quiet").mistake("no method supports labels of kind 'choice'", "finetune")


def test_a_learning_rate_is_found_on_pairs(run: Program, desk: Path, family: tuple[str, Path]) -> None:
    """Both texts are read, in the order of the columns named, as `lr_find` reads tuples."""
    common = ("--model", family[1], "--recipe", desk / "quick.toml", "--steps", "20", "--precision", "fp32", "--json")
    columns = {"both": (), "swapped": ("--text", "hypothesis", "--text2", "premise"), "one": ("--text", "premise")}
    losses = {}
    for name, more in columns.items():
        done = run("lr-find", desk / "train.jsonl", *common, *more)
        assert done.code == 0, done.err
        losses[name] = [step["loss"] for step in done.json()["steps"]]
    assert losses["both"] != losses["swapped"] != losses["one"] != losses["both"]
    rows = [json.loads(line) for line in (desk / "train.jsonl").read_text().splitlines()]
    pairs = Examples([Pair(r["premise"], r["hypothesis"]) for r in rows], [r["label"] for r in rows], "single")
    settings = Settings(precision="fp32")
    found = lr_find(pairs, model=family[1], recipe=str(desk / "quick.toml"), steps=20, settings=settings)
    assert [step.loss for step in found.steps] == losses["both"]


def test_a_language_models_rate_is_found_on_pairs_as_adapt_reads_them(tiny_lm: Path) -> None:
    texts = [side for a, b, _ in statements(200, 5) for side in (a, b)]
    pairs = [Pair(a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    single, paired = (lr_find(given, model=tiny_lm, steps=3) for given in (texts, pairs))
    assert [step.loss for step in single.steps] == [step.loss for step in paired.steps]


@pytest.mark.slow
@pytest.mark.parametrize(("data", "more"), [("", ()), ("-choice", ("--kind", "choice"))], ids=["pairs", "choices"])
def test_inspect_transfer_on(
    data: str, more: tuple[str, ...], run: Program, desk: Path, tiny_lm: Path, tmp_path: Path
) -> None:
    """Beside what knows only words that both texts have, which here is all there is to know."""
    files = (desk / f"train{data}.jsonl", "--test", desk / f"test{data}.jsonl", "--max-tokens", "32", *more)
    out = tmp_path / "out"
    made = (tiny_lm, "--recipe", desk / "quick.toml", "--layers", "1", "--seeds", "1", "--quiet", "--json")
    done = run("inspect", "transfer", *files, "--model", *made, "--out", out)
    assert done.code == 0, done.err
    assert done.json()["baseline"]["mean"] == 1.0
    assert (done.json()["metric"], done.json()["test_n"]) == ("accuracy", 16)
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_inspect_transfer_reads_the_columns_named(run: Program, desk: Path, tiny_lm: Path, tmp_path: Path) -> None:
    common = ("--model", tiny_lm, "--recipe", desk / "quick.toml", "--layers", "1", "--seeds", "1", "--quiet")
    files = (desk / "train.jsonl", "--test", desk / "test.jsonl", "--max-tokens", "32", *common, "--json")
    one = run("inspect", "transfer", *files, "--text", "premise", "--out", tmp_path / "one").json()
    both = run("inspect", "transfer", *files, "--text", "hypothesis", "--text2", "premise", "--out", tmp_path / "both")
    assert one["baseline"]["mean"] < 0.9 < both.json()["baseline"]["mean"]
    wrong = ("--text2", "hypotesis", "--out", tmp_path / "wrong")
    run("inspect", "transfer", *files, *wrong).mistake("Did you mean 'hypothesis'?")


@pytest.mark.parametrize("data", ["", "-near"])
def test_check_and_embed_take_pairs(data: str, run: Program, desk: Path, tiny_lm: Path, tmp_path: Path) -> None:
    checked = run("check", desk / f"train{data}.jsonl", "--test", desk / f"test{data}.jsonl", "--json")
    assert checked.json()["texts"] == 24
    assert "empty-text" not in {problem["name"] for problem in checked.json()["problems"]}
    done = run("embed", tiny_lm, desk / f"train{data}.jsonl", "--out", tmp_path / "v.npz", "--json")
    assert done.json()["texts"] == 24


@pytest.fixture(scope="module")
def classifier(desk: Path, tiny_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained in a process of its own, as its users do."""
    out = tmp_path_factory.mktemp("classifier") / "out"
    options = ("--model", tiny_lm, "--recipe", desk / "quick.toml", "--no-baselines", "--quiet", "--text", "hypothesis")
    done = call(
        "finetune", desk / "train.jsonl", "--test", desk / "test.jsonl", *options, "--text2", "premise", "--out", out
    )
    assert done.code == 0, done.err
    return out


@pytest.mark.slow
def test_named_columns_and_stdin_and_options_say_the_same(classifier: Path, desk: Path, run: Program) -> None:
    rows = [json.loads(line) for line in (desk / "test.jsonl").read_text().splitlines()][:3]
    columns = ("--text-column", "hypothesis", "--text2-column", "premise")
    of_file = [
        json.loads(line)["confidence"]
        for line in run("predict", classifier, desk / "test.jsonl", *columns).out.splitlines()
    ]
    stdin = "".join(f"{row['hypothesis']}\t{row['premise']}\n" for row in rows).encode()
    of_stdin = [
        json.loads(line)["confidence"] for line in call("predict", classifier, "-", stdin=stdin).out.splitlines()
    ]
    given = [word for row in rows for word in ("--input-text", row["hypothesis"], "--input-text2", row["premise"])]
    of_options = [json.loads(line)["confidence"] for line in run("predict", classifier, *given).out.splitlines()]
    assert of_stdin == pytest.approx(of_file[:3], abs=1e-6)
    assert of_options == pytest.approx(of_file[:3], abs=1e-6)
    assert len(set(of_file)) > 1


@pytest.mark.slow
def test_mistakes_with_pairs(classifier: Path, desk: Path, run: Program, tiny_lm: Path, tmp_path: Path) -> None:
    run("predict", classifier, "--input-text", "a cat").mistake(
        "was trained on two texts each, and here is a single text"
    )
    run("predict", classifier, "--input-text", "a", "--input-text", "b", "--input-text2", "c").mistake(
        "2 first texts and 1 second ones"
    )
    broken = spawn("predict", classifier, "-", stdin=b"one\ttwo\nthree\n")
    assert (broken.code, "stdin line 2: no tab between two texts." in broken.err) == (2, True)
    run("evaluate", classifier, desk / "test.jsonl", "--text", "premise").mistake("here is a single text")
    run("evaluate", classifier, desk / "test.jsonl", "--text2", "hypotesis").mistake("Did you mean 'hypothesis'?")
    options = ("--model", tiny_lm, "--recipe", desk / "quick.toml", "--out", tmp_path / "out", "--quiet")
    single = ("--test", desk / "test.jsonl", "--text", "premise", "--both-orders")
    run("finetune", desk / "train.jsonl", *options, *single).mistake("only pairs can be encoded in both orders")
    tight = ("--test", desk / "test.jsonl", "--max-tokens", "8", "--class-weights", "balanced", "--kind", "choice")
    run("finetune", desk / "train-choice.jsonl", *options, *tight).mistake("no columns look like options")
    weights = ("--class-weights", "balanced", "--kind", "choice", "--test", desk / "test-choice.jsonl")
    run("finetune", desk / "train-choice.jsonl", *options, *weights).mistake("has no classes to weight")
