"""`textgraft tag` with a stack, and what `tag predict` shows in a terminal and on a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_questions import write_recipe
from made_up_tags import NOUNS, write_encoder, write_sentences
from programs import Program, call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sentences and a tagger over an untrained encoder and word vectors."""
    folder = tmp_path_factory.mktemp("stack")
    for name, count, seed in (("train", 60, 1), ("test", 12, 2)):
        write_sentences(folder / f"{name}.conll", count, seed, names=True)
    write_encoder(folder, "bert")
    (folder / "words.txt").write_text("".join(f"{noun} {i} {i % 3} 1\n" for i, noun in enumerate(NOUNS)))
    write_recipe(folder, 8)
    stack = f"{folder / 'bert'}@first,{folder / 'words.txt'}"
    more = ["--stack", stack, "--recipe", folder / "quick-8.toml", "--precision", "fp32", "--json"]
    done = call(
        "tag", "finetune", folder / "train.conll", "--test", folder / "test.conll", "--out", folder / "t", *more
    )
    assert done.code == 0, done
    assert json.loads(done.out)["methods"]["tagger"]["f1"]["mean"] > 0.8
    return folder


@pytest.mark.slow
def test_the_folder_is_a_tagger_like_any_other(made: Path, run: Program) -> None:
    record = json.loads((made / "t" / "run.json").read_text())
    assert (record["crf"], record["scheme"], len(record["stack"])) == (True, "BIOES", 2)
    done = run("tag", "evaluate", made / "t", made / "test.conll", "--precision", "fp32", "--quiet", "--json")
    assert json.loads(done.out)["f1"]["mean"] == pytest.approx(record["results"]["methods"]["tagger"]["f1"]["mean"])
    done = run("tag", "predict", made / "t", "--input-text", "captain river sees .", "--format", "json")
    assert json.loads(done.out)["entities"][0]["text"] == "river"


@pytest.mark.slow
def test_a_pooled_source(made: Path, tmp_path: Path, run: Program) -> None:
    more = [
        "--stack",
        f"pooled:{made / 'bert'}@first",
        "--recipe",
        made / "quick-8.toml",
        "--precision",
        "fp32",
        "--json",
    ]
    conll = ["tag", "finetune", made / "train.conll", "--test", made / "test.conll", "--out", tmp_path / "p"]
    done = call(*conll, *more, "--quiet")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)["methods"]["tagger"]["f1"]["mean"]
    again = run("tag", "evaluate", tmp_path / "p", made / "test.conll", "--precision", "fp32", "--quiet", "--json")
    assert json.loads(again.out)["f1"]["mean"] == found
    assert json.loads((tmp_path / "p" / "run.json").read_text())["stack"] == [f"pooled:{made / 'bert'}@first"]
    assert (tmp_path / "p" / "sources" / "0" / "memory.safetensors").is_file()


def test_colours_of_a_file_and_a_page(made: Path, tmp_path: Path, run: Program) -> None:
    hostile = 'captain <script>alert(1)</script> river sees . & "x"'
    (tmp_path / "in.txt").write_text(f"{hostile}\ncity stone takes .\n")
    shown = run("tag", "predict", made / "t", tmp_path / "in.txt", "--colour")
    assert "[stone" in shown.out
    done = run("tag", "predict", made / "t", tmp_path / "in.txt", "--html", tmp_path / "out.html")
    assert done.code == 0, done
    page = (tmp_path / "out.html").read_text()
    assert "<script" not in page
    assert "&lt;" in page
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert "http" not in page.replace("http-equiv", "")
    assert '">place</small></mark>' in page
    assert "<h2>Legend</h2>" in page
    assert page.count('<p dir="auto">') == 2


def test_mistakes(made: Path, tmp_path: Path, run: Program) -> None:
    predict = ["tag", "predict", made / "t", "--input-text", "a"]
    finetune = ["tag", "finetune", made / "train.conll", "--out", tmp_path / "out", "--quiet"]
    for arguments, said in (
        ([*finetune, "--stack", "berts"], "no model 'berts'"),
        ([*finetune, "--stack", f"{made / 'bert'},"], "a name is missing"),
        ([*finetune, "--stack", made / "t"], "this is a tagger"),
        ([*finetune, "--stack", f"pooled:{made / 'words.txt'}"], "pooling has no effect"),
        ([*finetune, "--stack", f"pooled:{made / 'bert'}", "--keep-gb", "0"], "have to be kept on disk"),
        ([*finetune, "--stack", made / "bert", "--model", made / "bert"], "both a model and a stack"),
        ([*predict, "--colour", "--format", "json"], "colours are not json"),
        (
            ["tag", "predict", made / "t", "--input-text", "a", "--html", "a.html", "--out", "b.conll"],
            "both a page and a file",
        ),
    ):
        done = run(*arguments)
        assert done.code != 0
        assert said in " ".join(done.err.split()), done
    assert not (tmp_path / "out").exists()
