"""`textgraft tag` as its users run it: what it prints, writes, survives and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_up_questions import write_recipe
from made_up_tags import write_encoder, write_sentences
from processor import native_int8
from programs import Program, Result, call, environment, interrupt, snapshot, spawn

from textgraft.cli.tag import VERBS
from textgraft.data.conll import Sentence, read_conll
from textgraft.data.tags import entities

HEAVY = ("torch", "duckdb", "sklearn", "matplotlib", "pandas", "scipy", "tokenizers")


@dataclass(frozen=True)
class Made:
    """A folder with sentences, a tiny encoder, a tagger, and what the command that made the tagger said."""

    folder: Path
    said: Result

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


def arguments(folder: Path) -> list[object]:
    more = ["--model", folder / "bert", "--recipe", folder / "quick-8.toml", "--precision", "fp32"]
    return ["tag", "finetune", folder / "train.conll", "--test", folder / "test.conll", *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("tag")
    for name, count, seed in (("train", 60, 1), ("test", 12, 2)):
        write_sentences(folder / f"{name}.conll", count, seed, names=True)
    write_encoder(folder, "bert")
    write_recipe(folder, 8)
    return Made(folder, call(*arguments(folder), "--out", folder / "tagger"))


def test_finetune_says_how_good_it_is(made: Made) -> None:
    assert made.said.code == 0, made.said
    assert "F1 [95 % interval]" in made.said.out
    assert "on 12 sentences" in made.said.out
    assert f"Written: {made / 'tagger'}" in made.said.out
    assert "tag: all" in made.said.err  # the progress
    files = {path.name for path in (made / "tagger").iterdir()}
    assert {"config.json", "model.safetensors", "predictions.conll", "run.json", "README.md"} <= files
    assert not (made / "tagger.run").exists()


def test_finetune_as_json_with_samples(made: Made, tmp_path: Path, run: Program) -> None:
    more = ["--sentences", "10", "--test-sentences", "8", "--crf", "--scheme", "BIOES", "--quiet", "--json"]
    done = run(*arguments(made.folder), "--out", tmp_path / "out", *more)
    assert done.code == 0, done
    shown = done.json()
    assert (shown["test_n"], shown["evaluation_split"], shown["metric"]) == (8, "test", "f1")
    assert set(shown["methods"]) == {"tagger", "frequent tag"}
    assert shown["coverage"]["test"]["sentences"] == 8
    assert done.err == ""


@pytest.mark.slow
@native_int8
def test_a_stack_is_read_in_int8(made: Made, tmp_path: Path, run: Program) -> None:
    test = write_sentences(tmp_path / "test.conll", 250, 2, names=True)  # of more than a thousand words
    more = ["--stack", "en-flair-small-forward", "--recipe", made / "quick-8.toml", "--out", tmp_path / "tagger"]
    done = run("tag", "finetune", made / "train.conll", "--test", test, *more, "--quiet", "--json")
    assert done.code == 0, done
    shown = done.json()
    assert shown["int8_agreement"]["same"] >= 0.995 * shown["int8_agreement"]["words"] > 995
    assert shown["inference_precision"] == "int8"
    scored = run("tag", "evaluate", tmp_path / "tagger", test, "--json").json()
    assert scored["f1"] == shown["methods"]["tagger"]["f1"]
    said = run("tag", "finetune", made / "train.conll", "--test", test, *more, "--overwrite", "--quiet").out
    assert (
        f"Inference is in int8, which is faster, and so is the evaluation: {shown['int8_agreement']['same']:,} of 1,"
        in said
    )


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on(made: Made, tmp_path: Path) -> None:
    asked = [*arguments(made.folder), "--out", tmp_path / "again"]
    stopped = interrupt(*asked, when=tmp_path / "again.run" / "plan.json")
    assert stopped.code == 130, stopped
    assert "the same command resumes it" in stopped.err
    done = spawn(*asked)
    assert done.code == 0, done
    weights = "model.safetensors"
    assert snapshot(tmp_path / "again")[weights] == snapshot(made / "tagger")[weights]


def test_evaluate_says_the_same(made: Made, run: Program) -> None:
    found = run("tag", "evaluate", made / "tagger", made / "test.conll", "--precision", "fp32", "--json")
    assert found.code == 0, found
    record = json.loads((made / "tagger" / "run.json").read_text())
    assert found.json()["f1"] == record["results"]["methods"]["tagger"]["f1"]
    told = run("tag", "evaluate", made / "tagger", made / "test.conll", "--quiet")
    assert "12 sentences" in told.out
    assert "person" in told.out


def test_predict_a_file_of_columns_or_a_text(made: Made, tmp_path: Path, run: Program) -> None:
    shown = run("tag", "predict", made / "tagger", made / "test.conll", "--precision", "fp32")
    expected = [line.split(" ") for line in (made / "tagger" / "predictions.conll").read_text().splitlines()]
    assert [line.split("\t") for line in shown.out.splitlines()] == [[r[0], r[2]] if r[0] else [""] for r in expected]
    out = tmp_path / "out.jsonl"
    written = run("tag", "predict", made / "tagger", made / "test.conll", "--out", out)
    assert (written.code, written.out) == (0, "")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 12
    assert all(row["text"][e["start"] : e["end"]] == e["text"] for row in rows for e in row["entities"])
    assert all(0 < e["probability"] <= 1 for row in rows for e in row["entities"])
    texts = tmp_path / "texts.txt"
    texts.write_text("captain river sees.\n\ncity stone lamp likes.\n")
    columns = run("tag", "predict", made / "tagger", texts)
    assert [line.split("\t")[0] for line in columns.out.splitlines()][:6] == [
        "captain",
        "river",
        "sees",
        ".",
        "",
        "city",
    ]
    coloured = run("tag", "predict", made / "tagger", "--input-text", "captain river sees.")
    assert coloured.out == "captain [river person] sees.\n"


def test_unusual_text(made: Made, run: Program) -> None:
    odd = ["\ud800", "👩‍👩‍👧 [SEP] \x07", "x" * 500, "ก็ดี"]
    texts = [part for text in odd for part in ("--input-text", text)]
    shown = run("tag", "predict", made / "tagger", *texts, "--format", "json")
    assert shown.code == 0, shown
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert len(rows) == len(odd)
    assert "".join(word["word"] for word in rows[2]["words"]) == "x" * 500


def test_mistakes(made: Made, tmp_path: Path, run: Program) -> None:
    new = ["--out", tmp_path / "out", "--quiet"]
    wrong = tmp_path / "wrong.conll"
    wrong.write_text("a O\nb I-x\nc B-x\nd B-y\n")
    run("tag", "finetune", wrong, *new).mistake("wrong.conll line 2", "I-x may not follow O in IOB2", "--repair-tags")
    run("tag", "finetune", made / "nothing.conll", *new).mistake("nothing.conll", "no such file")
    run("tag", "finetune", made / "train.conll", "--scheme", "X", *new).mistake("cannot be learned as 'X'")
    run("tag", "finetune", made / "train.conll", "--tag-column", "7", *new).mistake("there is no column 7")
    run("tag", "finetune", made / "train.conll", "--sentences", "3", *new).mistake("there is no evaluation split")
    run("tag", "evaluate", made / "bert", made / "test.conll").mistake("does not tag words", "tag finetune")
    run("tag", "predict", made / "tagger").mistake("name either a file or --input-text")
    run("tag", "predict", made / "tagger", "--input-text", "a", "--format", "x").mistake("no format 'x'")
    run(
        "tag", "predict", made / "tagger", "--input-text", "a", "--out", tmp_path / "a.conll", "--format", "colour"
    ).mistake("a file has no colours")
    run("tag", "predict", made / "tagger", "--input-text", "a", "--out", tmp_path / "a.json").mistake(
        "Name a .jsonl file"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.conll"]


@pytest.mark.parametrize("name", [name for name, _, _ in VERBS])
def test_every_verb_has_an_example_in_its_help(run: Program, name: str) -> None:
    shown = run("tag", name, "--help")
    assert shown.code == 0
    assert f"Example: textgraft tag {name} " in " ".join(shown.out.split())
    assert name in run("tag", "--help").out
    assert run("tag") == run("tag", "--help")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from textgraft.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", code, "tag", "finetune", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_without_a_test_file_needs_no_note(made: Made, tmp_path: Path, run: Program) -> None:
    """The evaluation split is in the object; people who read the table are told on stderr."""
    command = ["tag", "finetune", made / "train.conll", "--model", made / "bert", "--recipe", made / "quick-8.toml"]
    done = run(*command, "--out", tmp_path / "out", "--no-baseline", "--json")
    assert done.json()["evaluation_split"] == "held out"
    assert "there is no --test" not in done.err


def as_spans(sentence: Sentence) -> list[list[object]]:
    return [[sentence.spans[e.first][0], sentence.spans[e.last][1], e.type] for e in entities(sentence.tags)]


def test_json_gives_the_model_that_columns_give(made: Made, tmp_path: Path, run: Program) -> None:
    """The same sentences as Hugging Face's tokens and as doccano's spans: the same scores."""
    scores = {"columns": run("tag", "evaluate", made / "tagger", made / "test.conll", "--json").json()}
    sentences = read_conll(made / "test.conll").sentences
    records = {
        "tokens": [{"tokens": s.words, "ner_tags": s.tags} for s in sentences],
        "spans": [{"id": i, "text": s.text, "label": as_spans(s)} for i, s in enumerate(sentences)],
    }
    for kind, of in records.items():
        (tmp_path / f"{kind}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in of))
        scores[kind] = run("tag", "evaluate", made / "tagger", tmp_path / f"{kind}.jsonl", "--json").json()
    assert scores["tokens"] == scores["columns"] == scores["spans"]
    assert scores["columns"]["f1"]["mean"] > 0


@pytest.mark.slow
def test_predict_json_as_json(made: Made, tmp_path: Path, run: Program) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "the captain stone sees."}\n{"tokens": ["the", "lamp"], "tags": [0, 1]}\n'
    )
    done = run("tag", "predict", made / "tagger", tmp_path / "a.jsonl")
    shown = [json.loads(line) for line in done.out.splitlines()]
    assert [[word["word"] for word in s["words"]] for s in shown] == [
        ["the", "captain", "stone", "sees", "."],
        ["the", "lamp"],
    ]
    assert [s["text"] for s in shown] == ["the captain stone sees.", "the lamp"]
    columns = run("tag", "predict", made / "tagger", tmp_path / "a.jsonl", "--format", "conll").out.splitlines()
    assert [line.split("\t")[0] for line in columns] == ["the", "captain", "stone", "sees", ".", "", "the", "lamp", ""]
    assert spawn("tag", "predict", made / "tagger", "-", stdin=(tmp_path / "a.jsonl").read_bytes()).out == done.out
    lines = call("tag", "predict", made / "tagger", "-", stdin=b"the captain\n\nthe lamp\n").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["the", "captain", "", "the", "lamp", ""]


def test_json_that_has_no_tags_is_not_trained_on(made: Made, tmp_path: Path, run: Program) -> None:
    more = ["--model", made / "bert", "--out", tmp_path / "out"]
    (tmp_path / "a.jsonl").write_text('{"text": "Anna Novak visited Bern."}\n')
    run("tag", "finetune", tmp_path / "a.jsonl", *more).mistake("a.jsonl line 1", "neither tags nor spans")
    (tmp_path / "a.jsonl").write_text('{"tokens": ["Anna"], "ner_tags": [1]}\n')
    run("tag", "finetune", tmp_path / "a.jsonl", *more).mistake("tags are numbers (1)", "--tag-names")
    (tmp_path / "a.jsonl").write_text('{"text": "Anna", "spans": [[1, 3, "PER"]]}\n')
    run("tag", "finetune", tmp_path / "a.jsonl", *more).mistake("cuts the word 'Anna'", "--repair-spans")
    (tmp_path / "names.txt").write_text("O\nB-person\n")
    (tmp_path / "a.jsonl").write_text('{"tokens": ["captain"], "ner_tags": [1]}\n')
    for names in ("O,B-person", tmp_path / "names.txt"):
        done = run("tag", "evaluate", made / "tagger", tmp_path / "a.jsonl", "--tag-names", names, "--json")
        assert done.json()["words"] == 1
