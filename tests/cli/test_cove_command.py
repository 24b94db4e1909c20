"""`textgraft cove` as its users run it: what it prints, writes, survives and refuses."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_up_translations import write_pairs, write_translation_recipe
from programs import Program, Result, call, interrupt, spawn, unchanged

from textgraft.cli.cove import VERBS


@dataclass(frozen=True)
class Made:
    """A folder with pairs, a recipe, a translator, and what the command that made it said."""

    folder: Path
    said: Result

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


def arguments(folder: Path, epochs: float = 4) -> list[str | Path]:
    more = ["--recipe", folder / f"tiny-{epochs}.toml", "--precision", "fp32", "--no-bleu"]
    return ["cove", "train", folder / "train.en", folder / "train.xx", *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("cove")
    for name, count, seed in (("train", 150, 1), ("valid", 20, 2)):
        write_pairs(folder, name, count, seed)
    for epochs in (4, 500):
        write_translation_recipe(folder, epochs)
    valid = ["--valid", folder / "valid.en", folder / "valid.xx"]
    return Made(folder, call(*arguments(folder), *valid, "--out", folder / "model"))


def test_train_says_how_good_it_is(made: Made) -> None:
    assert made.said.code == 0, made.said
    assert "20 held-out pairs" in made.said.out
    assert "perplexity" in made.said.out
    assert f"Written: {made / 'model'}" in made.said.out
    assert "cove: all" in made.said.err  # the progress
    files = {path.name for path in (made / "model").iterdir()}
    assert files == {
        *("config.json", "model.safetensors", "run.json", "README.md"),
        *("tokenizer.json", "target_tokenizer.json"),
    }
    assert not (made / "model.run").exists()


def test_train_as_json_with_pairs_held_out(made: Made, tmp_path: Path, run: Program) -> None:
    more = ["--score", "additive", "--reach", "local-p", "--quiet", "--json"]
    done = run(*arguments(made.folder), "--out", tmp_path / "out", *more)
    assert done.code == 0, done
    shown = done.json()
    assert (shown["stage"], shown["data"]["pairs"], shown["held_out"]["pairs"]) == ("cove", 147, 3)
    assert shown["vectors"] is None
    assert done.err == ""
    head = json.loads((tmp_path / "out" / "config.json").read_text())["head"]
    assert (head["score"], head["reach"]) == ("additive", "local-p")


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_goes_on(made: Made, tmp_path: Path) -> None:
    # Long enough that a busy machine, too, gets to the interruption before the end.
    asked = [*arguments(made.folder, 500), "--minutes", "0.1", "--out", tmp_path / "again"]
    stopped = interrupt(*asked, when=tmp_path / "again.run" / "plan.json")
    assert stopped.code == 130, stopped
    assert "the same command resumes it" in stopped.err
    assert spawn(*asked).code == 0
    assert (tmp_path / "again" / "config.json").exists()


def test_translate_texts_and_files(made: Made, tmp_path: Path, run: Program) -> None:
    said = run(
        "cove", "translate", made / "model", "--input-text", "red dog", "--input-text", "old cat", "--precision", "fp32"
    )
    assert (said.code, len(said.out.splitlines())) == (0, 2)
    (tmp_path / "lines.txt").write_text("red dog\n\nold cat\n")
    out = tmp_path / "out.txt"
    done = run(
        *("cove", "translate", made / "model", tmp_path / "lines.txt", "--out", out, "--beams", "2"),
        *("--precision", "fp32"),
    )
    assert (done.code, done.out) == (0, "")
    assert "3 sentences" in done.err
    lines = out.read_text().splitlines()
    assert len(lines) == 3
    assert lines[1] == ""
    assert all(set(line.split()) <= {"hund", "katze", "sieht", "läuft", "rot", "alt", "vogel"} for line in lines)


def test_align_as_table_json_and_plot(made: Made, tmp_path: Path, run: Program) -> None:
    with unchanged(made.folder):
        asked = ("cove", "align", made / "model", "red dog", "hund rot", "--precision", "fp32")
        for name in ("map.svg", "map.png"):
            done = run(*asked, "--plot", tmp_path / name)
            assert done.code == 0, done
            assert "highest attention" in done.out
            assert f"Written: {tmp_path / name}" in done.out
        shown = run(*asked, "--json").json()
    assert shown["source"] == ["xxbos", "red", "dog"]
    assert shown["target"] == ["hund", "rot", "xxeos"]
    assert [sum(row) for row in shown["weights"]] == pytest.approx([1, 1, 1], abs=1e-4)
    drawn = (tmp_path / "map.svg").read_text()
    assert ">hund<" in drawn
    assert ">dog<" in drawn
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_gives_bleu(made: Made, run: Program) -> None:
    pytest.importorskip("sacrebleu")
    asked = ("cove", "evaluate", made / "model", made / "valid.en", made / "valid.xx", "--precision", "fp32")
    found = run(*asked, "--json").json()
    assert (found["pairs"], found["beams"]) == (20, 1)
    assert 0 <= found["bleu"]["mean"] <= 100
    shown = run(*asked, "--beams", "3")
    assert "BLEU [95 % interval]" in shown.out
    assert "tok:13a" in shown.out


def test_bleu_that_cannot_be_counted_is_told_first(
    made: Made, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    pairs = (made / "train.en", made / "train.xx")
    done = run("cove", "train", *pairs, "--out", tmp_path / "out")
    done.mistake("sacrebleu", "pip install 'textgraft[translate]'", "--no-bleu")
    assert list(tmp_path.iterdir()) == []
    run("cove", "evaluate", made / "model", *pairs).mistake("sacrebleu")


def test_mistakes_are_told_in_a_line(made: Made, tmp_path: Path, run: Program) -> None:
    (tmp_path / "short.xx").write_text("hund\n")
    out = ["--out", tmp_path / "out", "--no-bleu"]
    pair = (made / "train.en", tmp_path / "short.xx")
    run("cove", "train", *pair, *out).mistake("train.en line 2", "short.xx ends with line 1")
    run("cove", "train", made / "train.en", tmp_path / "no.xx", *out).mistake("no.xx", "no such file")
    run(*arguments(made.folder), "--score", "dott", *out).mistake("unknown score 'dott'", "Did you mean 'dot'?")
    run(*arguments(made.folder), "--reach", "near", *out).mistake("unknown reach 'near'", "local-m")
    run(*arguments(made.folder), "--out", made / "model").mistake("exists already", "--overwrite")
    run("cove", "train", *pair, "--recipe", "multi", *out).mistake("short.xx ends")
    run("cove", "translate", made / "model").mistake("either a file or --input-text")
    run("cove", "align", made / "model", "red", "--plot", tmp_path / "map.txt").mistake(".png or .svg")
    run("cove", "align", made / "model", " ").mistake("no words to align")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.xx"]


def test_the_translator_is_a_model_like_any_other(made: Made, tmp_path: Path, run: Program) -> None:
    (tmp_path / "texts.csv").write_text("text\nred dog\nold cat\n")
    done = run("embed", made / "model", tmp_path / "texts.csv", "--out", tmp_path / "vectors.npz")
    assert done.code == 0, done
    assert (tmp_path / "vectors.npz").exists()
    run("predict", made / "model", tmp_path / "texts.csv").mistake("no labels")
    run("adapt", tmp_path / "texts.csv", "--model", made / "model", "--out", tmp_path / "a").mistake(
        "language-model head"
    )


def test_vectors_start_the_table(made: Made, tmp_path: Path, run: Program) -> None:
    rows = [("dog", 1), ("cat", 2), ("unheard", 3)]
    (tmp_path / "glove.txt").write_text("".join(f"{word} " + " ".join([f"{n}.5"] * 6) + "\n" for word, n in rows))
    done = run(*arguments(made.folder), "--vectors", tmp_path / "glove.txt", "--out", tmp_path / "out", "--quiet")
    assert done.code == 0, done
    assert "2 of " in done.err
    assert json.loads((tmp_path / "out" / "config.json").read_text())["encoder"]["embedding_dim"] == 6


@pytest.mark.parametrize(("name", "example"), [(name, example) for name, _, example in VERBS])
def test_help_with_an_example(name: str, example: str, run: Program) -> None:
    shown = run("cove", name, "--help")
    assert shown.code == 0
    assert example.split(" --")[0] in " ".join(shown.out.split())
    assert example.startswith(f"textgraft cove {name} ")
    assert os.linesep in shown.out


def test_recipes_list_it(run: Program) -> None:
    listed = {recipe["name"]: recipe["stages"] for recipe in run("recipes", "--json").json()["recipes"]}
    assert listed["multi30k"] == listed["fixed-words"] == ["cove train"]
