"""What goes wrong for users: one line that says where and what to do, exit code 2, nothing written, nothing lost.

And what is not a mistake although it looks like one: that has to work.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import Desk, Program, environment, interrupt, unchanged, write_csv

from textgraft.core.files import cannot_write
from textgraft.models.loading import load_network

ROWS = list(zip(*reviews(12, 4)))
GOOD = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)  # 13 lines


@pytest.fixture
def finetune(desk: Desk, tmp_path: Path, run: Program) -> Callable[..., Callable[..., None]]:
    """`finetune(file, *options)(*parts)`: the command must be refused with these words and leave all as it was."""

    def refused(file: str, *options: str | Path) -> Callable[..., None]:
        quick = ["--model", desk.lm, "--recipe", desk / "quick.toml"]
        with unchanged(tmp_path), unchanged(desk.folder), unchanged(desk.lm):
            result = run("finetune", tmp_path / file, "--out", tmp_path / "out", *quick, *options)
        return result.mistake

    return refused


UNREADABLE = {
    "an empty file": ("", ["the file is empty", "Check that it is the right file"]),
    "a header only": ("text,label\n", ["a header but no row below", "Check that it is the right file"]),
    "invalid UTF-8": (
        GOOD.encode() + "café à è é ü,pos\n".encode() + b"bad \xff\xfe bytes,pos\n",
        [" line 15", "byte 0xff at offset", "is not utf-8", "--encoding"],
    ),
    "a stray quote": (
        GOOD + '"she said "no" again,pos\nfine,neg\n',
        [" line 14", "a stray double quote", 'Write a quote inside a quoted text twice: "She said ""no"".'],
    ),
    "a comma too many": (GOOD + "one, two,pos\n", [" line 14", "3 columns where the header has 2", "double quotes"]),
    "a column named twice": ("text,label,label\na,b,c\n", [" line 1", "names 'label' twice"]),
    "no column of texts": ("x,y,label\na,b,c\n", ["no column looks like the text", "with --text "]),
}
UNLEARNABLE = {
    "one row": ("text,label\ngood film,pos\n", ["every label is 'pos'", "add examples of another"]),
    "one class": ("text,label\ngood,pos\nfine,pos\n", ["every label is 'pos'", "add examples of another"]),
    "no labels": ("text\ngood\nbad\n", ["there are no labels to learn from", "--label"]),
}


@pytest.mark.parametrize("name", [*UNREADABLE, *UNLEARNABLE])
def test_data_that_cannot_be_learned_from(finetune: Callable, tmp_path: Path, name: str) -> None:
    content, parts = (UNREADABLE | UNLEARNABLE)[name]
    (tmp_path / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    finetune("bad.csv")("bad.csv", *parts)


@pytest.mark.parametrize("name", UNREADABLE)
def test_data_that_cannot_be_read_by_other_commands(desk: Desk, tmp_path: Path, run: Program, name: str) -> None:
    content, parts = UNREADABLE[name]
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with unchanged(tmp_path):
        run("check", path).mistake("bad.csv", *parts)
        run("predict", desk.classifier, path, "--out", tmp_path / "predictions.csv").mistake("bad.csv", *parts)
        run("embed", desk.lm, path, "--out", tmp_path / "vectors.npz").mistake("bad.csv", *parts)


@pytest.mark.parametrize("name", UNLEARNABLE)
def test_check_finds_what_cannot_be_learned_from(tmp_path: Path, run: Program, name: str) -> None:
    (tmp_path / "bad.csv").write_text(UNLEARNABLE[name][0])
    result = run("check", tmp_path / "bad.csv")
    assert (result.code, result.err) == (1, "")
    assert any(line.startswith("error") for line in result.out.splitlines())


def test_no_label_of_the_test_set_is_in_training(finetune: Callable, desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    test = write_csv(tmp_path / "test.csv", [("fine", "poss"), ("so so", "poss")])
    parts = ("test.csv line 2", "label 'poss' is not one of: neg, pos", "Did you mean 'pos'?")
    finetune("train.csv", "--test", test)(*parts)
    finetune("train.csv", "--valid", test)(*parts)
    run("evaluate", desk.classifier, test).mistake(*parts)
    found = run("check", tmp_path / "train.csv", "--test", test)
    assert found.code == 1
    assert "not in training: 'poss'" in found.out


def test_a_label_that_training_lacks_is_a_mistake_of_the_model_and_not_of_the_user(
    desk: Desk, tmp_path: Path, run: Program
) -> None:
    test = write_csv(tmp_path / "test.csv", [*zip(*reviews(6, 8)), ("so so", "mixed")])
    asked = ("--method", "linear", "--test", test, "--out", tmp_path / "out")
    done = run("finetune", desk / "train.csv", *asked)
    assert done.code == 0, done
    assert "test.csv line 8: 1 text with a label that is not in training: 'mixed'." in done.err
    told = "1 text has a label that training lacked ('mixed') and counts as a mistake; log loss is of the other 6."
    assert told in done.out
    measured = run("evaluate", desk.classifier, test, "--json")
    assert told in measured.err
    assert measured.json()["unseen_labels"] == {"mixed": 1}
    assert measured.json()["classes"][-1]["support"] == 1
    assert "Labels that training lacked count as mistakes ('mixed')" in run("evaluate", desk.classifier, test).out
    assert run("check", desk / "train.csv", "--test", test).code == 0


def test_a_column_that_is_not_there(finetune: Callable, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    finetune("train.csv", "--label", "lable")("train.csv", "no column 'lable'", "Did you mean 'label'?")
    finetune("train.csv", "--text", "words")("train.csv", "no column 'words'", "Known: text, label")
    run("check", tmp_path / "train.csv", "--id", "nr").mistake("no column 'nr'")


def test_a_file_that_is_not_there(finetune: Callable, desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    finetune("trian.csv")("trian.csv", "no such file", "Did you mean 'train.csv'?")
    finetune("train.csv", "--test", tmp_path / "x" / "y.csv")("y.csv", "The folder does not exist either")
    finetune("train.csv", "--unlabelled", tmp_path / "pool*.txt")("the pattern matches no file")
    recipe = ["--recipe", desk / "backward.toml"]
    with unchanged(tmp_path):
        run("pretrain", tmp_path / "no.txt", "--out", tmp_path / "lm", *recipe).mistake("no.txt", "no such file")
        run("adapt", tmp_path / "no.txt", "--out", tmp_path / "lm", "--model", desk.lm).mistake("no such file")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--model", "no-such-model"], ["no model 'no-such-model'", "path of a model folder"]),
        (["--recipe", "ulmfot"], ["unknown recipe 'ulmfot'", "Did you mean 'ulmfit'?"]),
        (["--recipe", "my.toml"], ["my.toml", "no such recipe file"]),
        (["--precision", "fp8"], ["unknown precision 'fp8'", "Known: auto, fp32, bf16"]),
        (["--class-weights", '{"pos": 0}'], ["the weight of 'pos' must be a positive number"]),
        (["--class-weights", '{"poss": 2}'], ["label 'poss' is not one of", "Did you mean 'pos'?"]),
        (["--class-weights", "{"], ["--class-weights: this is not JSON", 'Write for example {"rare": 5}']),
        (["--class-weights", "heavy"], ["unknown class weights 'heavy'", "Known: none, balanced"]),
        (["--folds", "0"], ["nothing to measure on", "Give a test set, or two folds or more"]),
        (["--folds", "500"], ["cannot make 500 folds of 12 different texts"]),
        (["--kind", "several"], ["unknown kind of label 'several'"]),
        (["--kind", "numeric"], [" line 2", "label 'neg' is not a finite number", "--kind"]),
        (["--encoding", "utf-9"], ["unknown encoding 'utf-9'", "Did you mean 'utf-8'?"]),
        (["--delimiter", "ab"], ["the delimiter must be one character"]),
        (["--seeds", "0"], ["--seeds", "See --help"]),
        (["--sedes", "3"], ["No such option: --sedes", "--seeds"]),
    ],
)
def test_options_that_do_not_fit(finetune: Callable, tmp_path: Path, options: list[str], parts: list[str]) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    finetune("train.csv", *options)(*parts)


def test_models_that_do_not_fit(finetune: Callable, desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    finetune("train.csv", "--model", f"{desk.lm}+")(f"{desk.lm}+", "a model's name is missing")
    finetune("train.csv", "--model", tmp_path)("no config.json here", "not a model folder")
    run("predict", desk.lm, "--input-text", "x").mistake("it is a language model", "Fine-tune it first")
    pool = ["adapt", desk / "pool.txt", "--out", tmp_path / "out"]
    with unchanged(tmp_path):
        run(*pool, "--model", desk.classifier).mistake("lost its language-model head", "Adapt the language model first")


def test_too_little_to_adapt_to(finetune: Callable, desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    (tmp_path / "pool.txt").write_text("three\nshort\ntexts\n")
    parts = ("3 texts are too few", "at least 20 texts")
    finetune("train.csv", "-u", tmp_path / "pool.txt")(*parts)
    with unchanged(tmp_path):
        run("adapt", tmp_path / "pool.txt", "--out", tmp_path / "lm", "--model", desk.lm).mistake(*parts)
        run("lr-find", tmp_path / "pool.txt", "--adapt", "--model", desk.lm).mistake(*parts)


def test_recipes_that_do_not_fit(desk: Desk, tmp_path: Path, run: Program) -> None:
    bad = tmp_path / "bad.toml"
    command = ["pretrain", desk / "pool.txt", "--out", tmp_path / "lm", "--recipe", bad]
    sound = (desk / "backward.toml").read_text()
    for old, new, parts in (
        ('kind = "subword"', 'knid = "subword"', ("tokenizer", "unknown key 'knid'", "Did you mean 'kind'?")),
        ("embedding_dim", "embeding_dim", ("embeding_dim",)),
        ("lr = 0.01", "lr = -1", ("bad.toml", "phases", "lr is -1")),
        ("[stage]", "[stage", ("bad.toml", "this is not a TOML file")),
    ):
        bad.write_text(sound.replace(old, new))
        with unchanged(tmp_path):
            run(*command, "--quiet").mistake(*parts)
    run("pretrain", desk / "pool.txt", "--out", tmp_path / "lm", "--recipe", "en-ulmft").mistake("'en-ulmfit'?")
    run("schedule", "frozen", "--stage", "adapt").mistake("has no phases in the stage adapt")
    run("schedule", "ulmfit", "--stage", "train").mistake("unknown stage 'train'", "Known: finetune, adapt")
    find = ["lr-find", desk / "train.csv", "--model", desk.lm]
    run(*find, "--phase", "hed", "--recipe", desk / "quick.toml").mistake("Did you mean 'head'?")


def test_a_path_that_exists(finetune: Callable, desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    finetune("train.csv", "--out", taken)(str(taken), "exists already", "Name another")
    finetune("train.csv", "--out", taken, "--overwrite")(str(taken), "not a model folder", "not overwritten")
    finetune("train.csv", "--out", tmp_path / "train.csv", "--overwrite")("read too")
    finetune("train.csv", "--out", tmp_path / "train.csv" / "x")("this is a file, not a folder")
    with unchanged(tmp_path):
        run("adapt", desk / "pool.txt", "--out", taken, "--model", desk.lm).mistake("exists already")
        run("pretrain", desk / "pool.txt", "--out", taken, "--recipe", desk / "backward.toml").mistake("exists already")


def test_outputs_of_the_wrong_kind(desk: Desk, tmp_path: Path, run: Program) -> None:
    with unchanged(tmp_path):
        run("predict", desk.classifier, "--input-text", "x", "--out", tmp_path / "x.xls").mistake(
            "x.xls", ".csv, .tsv or .jsonl"
        )
        run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "x.txt").mistake("x.txt", ".npz or .npy")
        run("schedule", "ulmfit", "--plot", tmp_path / "x.pdf").mistake("x.pdf", ".png or .svg")
        run("predict", desk.classifier).mistake("name either a file or texts")
        run("predict", desk.classifier, "--input-text", "x", "--abstain-below", "2").mistake("--abstain-below")
        run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "x.npz", "--pooling", "men").mistake("'mean'?")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "labels.json", "run.json", "config.json"])
def test_a_model_with_a_file_missing_truncated_or_altered(desk: Desk, tmp_path: Path, run: Program, name: str) -> None:
    whole = (desk.classifier / name).read_bytes()
    middle = len(whole) // 2
    altered = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (None, whole[:middle], altered):
        shutil.copytree(desk.classifier, tmp_path / "model", dirs_exist_ok=True)
        (tmp_path / "model" / name).unlink()
        if content is not None:
            (tmp_path / "model" / name).write_bytes(content)
        with unchanged(tmp_path):
            run("predict", tmp_path / "model", "--input-text", "x").mistake(name, "estore")


def test_a_format_of_the_future(desk: Desk, tmp_path: Path, run: Program) -> None:
    shutil.copytree(desk.classifier, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    parts = ("config.json", "this is format 2, and this textgraft reads format 1", "Install a newer textgraft")
    run("predict", tmp_path / "model", "--input-text", "x").mistake(*parts)
    run("evaluate", tmp_path / "model", desk / "test.csv").mistake(*parts)
    run("adapt", desk / "pool.txt", "--model", tmp_path / "model", "--out", tmp_path / "out").mistake(*parts)


def test_bytes_on_stdin_that_are_not_text(desk: Desk, run: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\n\xff no\n")))
    run("predict", desk.classifier, "-").mistake("stdin line 2", "byte 0xff is not utf-8", "--encoding")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\n")))
    run("predict", desk.classifier, "-", "--encoding", "utf-9").mistake("unknown encoding 'utf-9'")


def test_a_folder_that_may_not_be_written_to(
    finetune: Callable, desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.csv").write_text(GOOD)
    # Simulated, because who runs the tests may be root, whom no mode keeps out.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    parts = ("cannot write (Permission denied)", "Choose a folder that you may write to")
    finetune("train.csv")(str(tmp_path / "out"), *parts)
    with unchanged(tmp_path):
        run("adapt", desk / "pool.txt", "--model", desk.lm, "--out", tmp_path / "out").mistake(*parts)
        run("pretrain", desk / "pool.txt", "--out", tmp_path / "out", "--recipe", desk / "backward.toml").mistake(
            *parts
        )
        run("predict", desk.classifier, "--input-text", "x", "--out", tmp_path / "x.csv").mistake("x.csv", *parts)
        run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "x.npz").mistake("x.npz", *parts)
        run("schedule", "ulmfit", "--plot", tmp_path / "x.svg").mistake("x.svg", *parts)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_loses_nothing(
    desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    remedy = {errno.ENOSPC: "The disk is full: make room", errno.EROFS: "Choose a folder"}[code]
    shutil.copytree(desk.classifier, tmp_path / "model")
    (tmp_path / "x.csv").write_text("kept")
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--quiet"]
    tune = ["finetune", desk / "train.csv", "--out", tmp_path / "model", "--overwrite", "--test", desk / "test.csv"]

    def fails(_: int) -> None:
        raise OSError(code, os.strerror(code))

    with unchanged(tmp_path), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        run("predict", desk.classifier, desk / "test.csv", "--out", tmp_path / "x.csv").mistake("x.csv", remedy)
        run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "v.npz").mistake("v.npz", remedy)
        run(*tune, *quick, "--no-baselines").mistake("model", remedy)
        run("schedule", "ulmfit", "--plot", tmp_path / "s.svg").mistake("s.svg", remedy)


@pytest.mark.slow
def test_a_disk_full_at_the_end_of_training_keeps_the_work(
    desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(desk.classifier, tmp_path / "model")
    command = ["finetune", desk / "train.csv", "--out", tmp_path / "model", "--overwrite", "--test", desk / "test.csv"]
    command += ["--model", desk.lm, "--recipe", desk / "quick.toml", "--quiet", "--no-baselines", "--seed", "7"]

    def full(path: Path, _: bytes) -> None:
        raise cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with unchanged(tmp_path / "model"), monkeypatch.context() as patch:
        patch.setattr("textgraft.models.model_folder.write_atomically", full)
        run(*command).mistake(str(tmp_path / "model"), "The disk is full: make room and run the same command again")
    assert (tmp_path / "model.run" / "seed 7.safetensors").exists()
    assert run(*command).code == 0
    assert load_network(tmp_path / "model").run["settings"]["seed"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_ctrl_c_saves_the_run_and_says_how_to_go_on(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "lm"
    command = ["pretrain", desk / "pool.txt", "--out", out, "--recipe", tmp_path / "long.toml", "--quiet", "--json"]
    (tmp_path / "long.toml").write_text((desk / "backward.toml").read_text().replace("epochs = 1", "epochs = 5"))
    stopped = interrupt(*command, when=tmp_path / "lm.run" / "valid")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err == (f"textgraft: stopped; the run is saved in {out}.run; the same command resumes it.\n")
    assert not out.exists()
    run(*command[:5], desk / "backward.toml").mistake(
        "an unfinished run is here that differs in: recipe", "name another path"
    )
    assert run(*command).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lm", "long.toml"]


def pressed(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGINT)


def pressed_amid_compiled_code(*_: object, **__: object) -> None:
    try:
        pressed()
    except KeyboardInterrupt:
        raise ValueError("could not determine the shape") from None


class Dying:
    """Whose last act meets Ctrl-C: Python drops what is raised there."""

    def __del__(self) -> None:
        pressed()


def pressed_where_python_drops_it(*_: object, **__: object) -> None:
    Dying()
    time.sleep(5)
    pytest.fail("Ctrl-C was lost")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [pressed, pressed_amid_compiled_code, pressed_where_python_drops_it])
def test_ctrl_c_where_there_is_nothing_to_save(
    desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch, stop: Callable[..., None]
) -> None:
    monkeypatch.setattr("textgraft.tasks.language_modeling.adapt.held_out", stop)
    monkeypatch.setattr("textgraft.data.checks.check", stop)
    with unchanged(tmp_path):
        result = run("adapt", desk / "pool.txt", "--model", desk.lm, "--out", tmp_path / "lm")
        assert (result.code, result.out) == (130, "")
        assert result.err == "textgraft: stopped; no work is lost; the same command resumes it.\n"
        result = run("check", desk / "train.csv")
        assert (result.code, result.out, result.err) == (130, "", "textgraft: stopped.\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_amid_text_that_python_executes_ends_with_the_same_code(tmp_path: Path) -> None:
    """As where a dataclass of a library is made; only a module that Python runs can show it."""
    (tmp_path / "pressed.py").write_text(
        "from textgraft.cli import app\n"
        "def program(*_, **__): exec('raise KeyboardInterrupt')\n"
        "app._program = lambda: program\n"
        "app.main(['check', 'train.csv'])\n"
    )
    done = subprocess.run([sys.executable, "-m", "pressed"], cwd=tmp_path, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"textgraft: stopped.\n")


def test_a_defect_is_called_one(desk: Desk, run: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("textgraft.data.checks.check", broken)
    result = run("check", desk / "train.csv")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("textgraft: this is a bug in textgraft (ZeroDivisionError: division by zero)")
    assert "Traceback" in run("check", desk / "train.csv", "--debug").err


def test_nothing_is_written_over_what_is_read(desk: Desk, tmp_path: Path, run: Program) -> None:
    """The input was replaced by its predictions: of its texts nothing was left."""
    source = write_csv(tmp_path / "mine.csv", ROWS)
    (tmp_path / "link.csv").symlink_to(source)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.csv").write_bytes(source.read_bytes())
    vectors = tmp_path / "same.npy"
    vectors.write_bytes(source.read_bytes())
    with unchanged(tmp_path):
        run("predict", desk.classifier, source, "--out", source).mistake("written over", "--out")
        run("predict", desk.classifier, source, "--out", tmp_path / "link.csv", "--keep", "none").mistake("read too")
        run("predict", desk.classifier, texts, "--out", texts).mistake("read too")
        run("embed", desk.lm, vectors, "--out", vectors).mistake("same.npy", "read too")
        run("explain", desk.classifier, source, "--out", source).mistake("read too")
    assert run("predict", desk.classifier, source, "--out", tmp_path / "new.csv").code == 0
    assert run("predict", desk.classifier, source, "--out", tmp_path / "new.csv").code == 0  # what was not read


@pytest.mark.parametrize("out", ["", "/proc/model"])
def test_an_output_that_cannot_be(desk: Desk, tmp_path: Path, run: Program, out: str) -> None:
    source = write_csv(tmp_path / "mine.csv", ROWS)
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml"]
    with unchanged(tmp_path):
        run("finetune", source, "--out", out, *quick).mistake("names no new folder" if not out else "cannot write")


def test_a_rung_that_there_is_not(tmp_path: Path, desk: Desk, run: Program) -> None:
    source = write_csv(tmp_path / "mine.csv", ROWS)
    with unchanged(tmp_path):
        result = run("finetune", source, "--out", tmp_path / "out", "--model", desk.lm, "--rungs", "linar")
        result.mistake("rungs", "there is no rung 'linar'", "Did you mean 'linear'?")


def test_scores_of_the_training_texts_are_no_evaluation(desk: Desk, tmp_path: Path, run: Program) -> None:
    shutil.copy(desk / "train.csv", tmp_path / "again.csv")
    run("finetune", desk / "train.csv", "--method", "linear", "--out", tmp_path / "linear")
    told = "again.csv: the classifier was trained on exactly these texts"
    for model in (desk.classifier, tmp_path / "linear"):
        assert told in run("evaluate", model, tmp_path / "again.csv").err
        assert told not in run("evaluate", model, desk / "test.csv").err


def test_classes_with_a_separator_are_pointed_out_with_the_option_for_them(tmp_path: Path, run: Program) -> None:
    rows = [("a goal", "sport"), ("shares fell", "money"), ("a club sold shares", "sport|money")] * 2
    told = run("check", write_csv(tmp_path / "mine.csv", [(f"{t} {i}", y) for i, (t, y) in enumerate(rows)])).out
    assert "class names that have others in them, with '|' between: 'sport|money'" in told
    assert "say so: --label-separator '|'." in told


def test_a_pool_of_two_texts_is_no_view(tmp_path: Path, desk: Desk, run: Program) -> None:
    """What the unlabelled texts are too few for is left out with a reason: it was a crash after all other work."""
    source = write_csv(tmp_path / "mine.csv", ROWS)
    (tmp_path / "pool.txt").write_text("transfer help\ntransfer money\n")
    options = ["--model", desk.lm, "--rungs", "linear,lsa,co-training"]
    result = run("finetune", source, "-u", tmp_path / "pool.txt", "--out", tmp_path / "out", *options)
    assert result.code == 0
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert "n-gram" in record["ensemble"]["left_out"]["lsa"]
