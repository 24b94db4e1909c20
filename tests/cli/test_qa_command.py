"""`textgraft qa` as its users run it: what it prints, writes, survives and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_up_questions import write_encoder, write_questions, write_recipe
from programs import Program, Result, call, environment, interrupt, snapshot, spawn

from textgraft.cli.qa import VERBS
from textgraft.conversion import huggingface
from textgraft.models import loading
from textgraft.text.wordpiece import WordPieceTokenizer

HEAVY = ("torch", "duckdb", "sklearn", "matplotlib", "pandas", "scipy", "tokenizers")


@dataclass(frozen=True)
class Made:
    """A folder with questions, a tiny encoder, a reader, and what the command that made the reader said."""

    folder: Path
    said: Result

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("qa")
    for name, count, seed in (("train", 40, 1), ("test", 12, 2)):
        write_questions(folder / f"{name}.json", count, seed)
    write_encoder(folder, "bert")
    write_recipe(folder, 8)
    arguments = ["--test", folder / "test.json", "--model", folder / "bert", "--recipe", folder / "quick-8.toml"]
    arguments += ["--max-tokens", "24", "--stride", "6", "--precision", "fp32"]
    return Made(folder, call("qa", "finetune", folder / "train.json", "--out", folder / "reader", *arguments))


def test_finetune_says_how_good_it_is(made: Made) -> None:
    assert made.said.code == 0, made.said
    assert "exact match [95 % interval]" in made.said.out
    assert "on 12 questions" in made.said.out
    assert f"Written: {made / 'reader'}" in made.said.out
    assert "qa: all" in made.said.err  # the progress
    assert "answering" in made.said.err
    files = {path.name for path in (made / "reader").iterdir()}
    assert {"config.json", "model.safetensors", "predictions.json", "nbest.json", "run.json", "README.md"} <= files
    assert not (made / "reader.run").exists()


def test_finetune_as_json_with_samples(made: Made, tmp_path: Path, run: Program) -> None:
    arguments = ["--test", made / "test.json", "--model", made / "bert", "--recipe", made / "quick-8.toml"]
    arguments += ["--questions", "10", "--test-questions", "5", "--max-tokens", "30", "--quiet", "--json"]
    done = run("qa", "finetune", made / "train.json", "--out", tmp_path / "out", *arguments)
    assert done.code == 0, done
    shown = done.json()
    assert (shown["labels"], shown["test_n"], shown["evaluation_split"]) == (10, 5, "test")
    asked = [q["id"] for a in json.loads((made / "test.json").read_text())["data"] for q in a["paragraphs"][0]["qas"]]
    assert json.loads((tmp_path / "out" / "predictions.json").read_text()).keys() < set(asked)
    assert set(shown["methods"]) == {"QA model", "sentence"}
    assert done.err == ""


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on(made: Made, tmp_path: Path) -> None:
    arguments = ["qa", "finetune", made / "train.json", "--out", tmp_path / "again", "--test", made / "test.json"]
    arguments += ["--model", made / "bert", "--recipe", made / "quick-8.toml", "--max-tokens", "24", "--stride", "6"]
    arguments += ["--precision", "fp32"]
    stopped = interrupt(*arguments, when=tmp_path / "again.run" / "plan.json")
    assert stopped.code == 130, stopped
    assert "the same command resumes it" in stopped.err
    done = spawn(*arguments)
    assert done.code == 0, done
    weights = "model.safetensors"
    assert snapshot(tmp_path / "again")[weights] == snapshot(made / "reader")[weights]


def test_evaluate_and_score_agree(made: Made, tmp_path: Path, run: Program) -> None:
    out, n_best = tmp_path / "answers.json", tmp_path / "best.json"
    arguments = ["--out", out, "--n-best", n_best, "--precision", "fp32", "--json"]
    found = run("qa", "evaluate", made / "reader", made / "test.json", *arguments)
    assert found.code == 0, found
    shown = found.json()
    assert (shown["questions"], shown["unanswered"]) == (12, 0)
    assert shown["exact_match"]["low"] <= shown["exact_match"]["mean"] <= shown["exact_match"]["high"]
    assert json.loads(out.read_text()) == json.loads((made / "reader" / "predictions.json").read_text())
    assert json.loads(n_best.read_text()) == json.loads((made / "reader" / "nbest.json").read_text())
    assert run("qa", "score", made / "test.json", out, "--json").json() == shown
    told = run("qa", "score", made / "test.json", out)
    assert "12 questions" in told.out
    assert "exact match" in told.out
    some = tmp_path / "some.json"
    some.write_text(json.dumps(dict(list(json.loads(out.read_text()).items())[:7])))
    assert "5 questions have no prediction" in run("qa", "score", made / "test.json", some).out


def test_answer_a_file_or_a_question(made: Made, tmp_path: Path, run: Program) -> None:
    expected = json.loads((made / "reader" / "predictions.json").read_text())
    listed = run("qa", "answer", made / "reader", made / "test.json", "--quiet")
    assert dict(line.split("\t") for line in listed.out.splitlines()) == expected
    assert run("qa", "answer", made / "reader", made / "test.json", "--json", "-q").json() == {"answers": expected}
    out = tmp_path / "answers.json"
    written = run("qa", "answer", made / "reader", made / "test.json", "--out", out, "--quiet")
    assert (written.out, json.loads(out.read_text())) == ("", expected)
    text = tmp_path / "text.txt"
    text.write_text("river stone 42 lamp.\ngarden bread.")
    asked = ["--question", "how many stone?", "--question", "how many lamp?", "--context", text]
    told = run("qa", "answer", made / "reader", *asked)
    assert [line.split("\t")[0] for line in told.out.splitlines()] == ["how many stone?", "how many lamp?"]
    shown = run("qa", "answer", made / "reader", *asked, "--json").json()
    best = shown["n_best"]["how many stone?"][0]
    assert best["text"] == shown["answers"]["how many stone?"] == text.read_text()[best["start"] : best["end"]]


def test_readers_of_the_transformers_library_answer(made: Made, tmp_path: Path, run: Program) -> None:
    reader = loading.load_network(made / "reader")
    assert isinstance(reader.tokenizer, WordPieceTokenizer)
    huggingface.save(reader.model, tmp_path / "theirs", others=reader.tokenizer.huggingface_files())
    shown = run("qa", "evaluate", f"hf:{tmp_path / 'theirs'}", made / "test.json", "--quiet", "--json").json()
    assert shown["questions"] == 12
    assert shown["exact_match"]["mean"] > 0.5


def test_half_a_surrogate_pair_and_nothing_at_all(made: Made, tmp_path: Path, run: Program) -> None:
    data = json.loads((made / "test.json").read_text())
    first, second = (article["paragraphs"][0] for article in data["data"][:2])
    first |= {"context": "\ud800" * 9, "qas": [{"id": "a", "question": "\udfff?", "answers": []}]}
    second |= {"context": "", "qas": [{"id": "b", "question": ""}]}
    (tmp_path / "odd.json").write_text(json.dumps({"data": data["data"][:2]}))
    out = tmp_path / "answers.json"
    done = run(
        "qa", "answer", made / "reader", tmp_path / "odd.json", "--out", out, "--n-best", tmp_path / "n.json", "-q"
    )
    assert done.code == 0, done
    answers = json.loads(out.read_text())
    assert answers.keys() == {"a", "b"}
    assert set(answers["a"]) <= {"\ud800"}
    assert answers["b"] == ""
    shown = run("qa", "answer", made / "reader", tmp_path / "odd.json", "--quiet")
    assert shown.code == 0
    assert shown.out.startswith("a\t")


def test_mistakes(made: Made, tmp_path: Path, run: Program) -> None:
    new = ["--out", tmp_path / "out", "--quiet"]
    damaged = json.loads((made / "test.json").read_text())
    damaged["data"][1]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    (tmp_path / "moved.json").write_text(json.dumps(damaged))
    moved = run("qa", "finetune", tmp_path / "moved.json", *new)
    moved.mistake(
        "moved.json article 2 '2-1', paragraph 1, question 1 '2-1', answer 1", "where the context has '", "--drop-"
    )
    run("qa", "finetune", made / "nothing.json", *new).mistake("nothing.json", "no such file")
    run("qa", "finetune", made / "train.json", "--held-out", "1.5", *new).mistake("a share of 1.5 cannot be held out")
    run("qa", "finetune", made / "train.json", *new, "--model", "hf:" + str(tmp_path)).mistake("neither a folder")
    run("qa", "evaluate", made / "bert", made / "test.json").mistake("does not answer questions", "qa finetune")
    run("qa", "evaluate", made / "reader", made / "test.json", "--out", tmp_path / "a.csv").mistake("a.csv", ".json")
    run("qa", "answer", made / "reader").mistake("name either a file, or --question and --context")
    run("qa", "answer", made / "reader", "--question", "who?").mistake("--context")
    run("predict", made / "reader", "--input-text", "x").mistake("it answers questions about texts", "textgraft qa")
    (tmp_path / "list.json").write_text("[1]")
    run("qa", "score", made / "test.json", tmp_path / "list.json").mistake("list.json", "no JSON object")
    (tmp_path / "number.json").write_text('{"x": 3}')
    run("qa", "score", made / "test.json", tmp_path / "number.json").mistake("the answer to 'x' is no text")
    (tmp_path / "number.json").write_text("[" * 100_000)
    run("qa", "score", made / "test.json", tmp_path / "number.json").mistake("number.json", "this is not JSON")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"] * 3


@pytest.mark.parametrize("name", [name for name, _, _ in VERBS])
def test_every_verb_has_an_example_in_its_help(run: Program, name: str) -> None:
    shown = run("qa", name, "--help")
    assert shown.code == 0
    assert f"Example: textgraft qa {name} " in " ".join(shown.out.split())
    assert name in run("qa", "--help").out
    assert "qa " in run("--help").out
    assert run("qa") == run("qa", "--help")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from textgraft.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", code, "qa", "finetune", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "[]"
