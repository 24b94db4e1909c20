"""Pretraining left alone: it stops by patience and says so, survives kill -9 meanwhile, knows its files by content."""

from __future__ import annotations

import bz2
import gzip
import lzma
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from safetensors.torch import load_file

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.fingerprint import END_BYTES, difference, fingerprint
from textgraft.data.streams.shards import Corpus
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.tasks.language_modeling.tokenize import tokenize
from textgraft.training.driver import work_folder
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

PATIENT = Settings(precision="fp32", patience=2, save_seconds=0)


@pytest.fixture
def recipe(tiny_recipe: Path, tmp_path: Path) -> str:
    """The tiny recipe, validated often, at a rate that soon stops learning."""
    path = tmp_path / "patient.toml"
    text = tiny_recipe.read_text().replace("validate_every = 100", "validate_every = 3")
    path.write_text(text.replace("epochs = 1", "epochs = 40").replace("lr = 0.01", "lr = 0.2"))
    return str(path)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.txt"
    path.write_text("\n".join(reviews(400)[0]))
    return path


def in_a_process(task: Callable[[], object]) -> int:
    """The exit code of a fork that does the task; negative: the signal that killed it."""
    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.slow
def test_patience_ends_it_says_so_and_keeps_the_best(
    pool: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_network(pretrain([pool], tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=PATIENT))).run
    scores = [row["score"] for row in run["history"]]
    best = scores.index(max(scores))
    assert run["stopped_by"] == "patience"
    assert len(scores) == best + 3  # the best, and two without a gain
    assert best > 0
    step = run["history"][best]["step"]
    told = " ".join(capsys.readouterr().err.split())
    assert "stopped after 2 validations without an improvement; kept the state at" in told
    assert f"step {step})" in told
    # All held-out text is fewer tokens than a look during training reads; the weights are rounded to half precision.
    assert run["held_out"]["after"]["score"] == pytest.approx(max(scores), rel=1e-4)
    assert run["held_out"]["after"]["score"] != pytest.approx(scores[-1], rel=1e-4)


@pytest.mark.slow
def test_without_patience_the_option_that_ended_it_is_told(pool: Path, recipe: str, tmp_path: Path) -> None:
    settings = Settings(precision="fp32")
    run = load_network(
        pretrain(
            [pool],
            tmp_path / "a",
            options=PretrainOptions(recipe=recipe, tokens=3000, settings=settings),
            context=QUIET,
        )
    ).run
    assert run["stopped_by"] == "tokens"
    assert run["tokens_seen"] == pytest.approx(3000, abs=8 * 90)
    run = load_network(
        pretrain(
            [pool],
            tmp_path / "b",
            options=PretrainOptions(recipe=recipe, settings=Settings(minutes=0.01)),
            context=QUIET,
        )
    ).run
    assert run["stopped_by"] == "minutes"


@pytest.mark.slow
@pytest.mark.parametrize("stale", [1, 2])
def test_killed_while_it_waits_for_a_gain_it_waits_on(
    stale: int, pool: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 just after the checkpoint that has counted one validation without a gain, or the last one allowed."""
    pretrain([pool], tmp_path / "whole", options=PretrainOptions(recipe=recipe, settings=PATIENT), context=QUIET)
    save = Run.save

    def fatal(run: Run, path: Path) -> None:
        save(run, path)
        if run.progress.stale == stale:
            os.kill(os.getpid(), signal.SIGKILL)

    def task() -> None:
        torch.set_num_threads(1)
        pretrain([pool], tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=PATIENT), context=QUIET)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", fatal)
        assert in_a_process(task) == -signal.SIGKILL
    assert (tmp_path / "lm.run" / "checkpoint.safetensors").exists()
    assert in_a_process(task) == 0
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("lm", "whole"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    histories = [[row["score"] for row in load_network(tmp_path / name).run["history"]] for name in ("lm", "whole")]
    assert histories[0] == histories[1]


def begun(sources: list[Path], tmp_path: Path, recipe: str, **more: object) -> None:
    """A pretraining that ends right after its corpora are built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textgraft.tasks.language_modeling.pretrain.drive", stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain(
                sources, tmp_path / "lm", options=PretrainOptions(recipe=recipe, tokens=500), context=QUIET, **more
            )  # type: ignore[arg-type]


def test_output_biases_start_from_the_training_texts_counts(
    pool: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Run] = []

    def caught(run: Run, *_: object, **__: object) -> None:
        started.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.drive", caught)
    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.COUNT_CHUNK", 100)
    told = Path(recipe).with_name("told.toml")
    told.write_text(Path(recipe).read_text().replace("licence =", "start_from_counts = true\nlicence ="))
    for name, path in (("plain", recipe), ("counts", told)):
        with pytest.raises(KeyboardInterrupt):
            pretrain([pool], tmp_path / name, options=PretrainOptions(recipe=str(path)), context=QUIET)
    plain, counts = (dict(run.model.named_parameters()) for run in started)
    corpus = Corpus.open(tmp_path / "counts.run" / "train")
    bias = counts["head.output.bias"].detach().numpy()
    smooth = np.bincount(corpus.read(0, corpus.num_tokens), minlength=len(bias)) + 0.5
    assert bias == pytest.approx(np.log(smooth / smooth.sum()), rel=1e-5)
    assert not plain["head.output.bias"].any()
    assert all(torch.equal(counts[name], value) for name, value in plain.items() if name != "head.output.bias")
    with pytest.raises(UserError, match=r"differs in: recipe\.start_from_counts\."):
        pretrain([pool], tmp_path / "plain", options=PretrainOptions(recipe=str(told)), context=QUIET)


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_changed_file_is_named(pool: Path, recipe: str, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(reviews(50)[0]))
    begun([pool, other], tmp_path, recipe)
    text = pool.read_text()
    pool.write_text(text.replace("a", "e", 1))
    with pytest.raises(UserError, match=r"differs in: sources \(pool\.txt changed\)"):
        begun([pool, other], tmp_path, recipe)
    pool.write_text(text)
    with pytest.raises(UserError, match=r"sources \(other\.txt gone\)"):
        begun([pool], tmp_path, recipe)
    with pytest.raises(UserError, match=r"sources \(in another order\)"):
        begun([other, pool], tmp_path, recipe)
    with pytest.raises(UserError, match="differs in: valid"):
        begun([pool, other], tmp_path, recipe, valid=[other])
    begun([pool, other], tmp_path, recipe)  # the same text again, however young the file


def test_where_a_file_lies_and_when_it_was_written_do_not_count(pool: Path, recipe: str, tmp_path: Path) -> None:
    begun([pool], tmp_path, recipe)
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.move(pool, tmp_path / "elsewhere" / "pool.txt"))
    os.utime(moved, (0, 0))
    begun([moved], tmp_path, recipe)
    begun([tmp_path / "elsewhere"], tmp_path, recipe)  # a folder is the files in it


@pytest.mark.parametrize("size", [0, 1, END_BYTES - 1, END_BYTES, END_BYTES + 1, 2 * END_BYTES, 5 * END_BYTES])
def test_a_fingerprint_sees_both_ends_and_the_size(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    before = fingerprint(path)
    assert (before["name"], before["bytes"]) == ("file", size)
    for place in {0, min(size, END_BYTES) - 1, size - 1, max(0, size - END_BYTES)} & set(range(size)):
        changed = bytearray(b"x" * size)
        changed[place] = 0
        path.write_bytes(changed)
        assert fingerprint(path)["bytes"] == size
        assert fingerprint(path) != before, place
    path.write_bytes(b"x" * (size + 1))
    assert fingerprint(path) != before


def test_differences_in_words() -> None:
    a, b, a2 = ({"name": name, "bytes": size} for name, size in (("a", 1), ("b", 1), ("a", 2)))
    assert difference([a, b], [a, b]) == ""
    assert difference([a2, b], [a]) == "a changed; b new"
    assert difference([a, a], [a]) == "in another order"


def zstd_compress(data: bytes) -> bytes:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return bytes(import_module(name).compress(data))
        except ImportError:
            pass
    pytest.skip("no library for .zst")


PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd_compress}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_sources(suffix: str, pool: Path, recipe: str, tmp_path: Path) -> None:
    """The same model as of the plain file; a folder of it and a pattern that finds it are the same too."""
    packed = tmp_path / "packed" / f"pool.txt{suffix}"
    packed.parent.mkdir()
    packed.write_bytes(PACKERS[suffix](pool.read_bytes()))
    weights = []
    for number, source in enumerate([pool, packed, packed.parent, f"{packed.parent}/*{suffix}"]):
        out = tmp_path / f"lm{number}"
        pretrain([source], out, options=PretrainOptions(recipe=recipe, tokens=500), context=QUIET)
        weights.append((out / "model.safetensors").read_bytes())
    assert len(set(weights)) == 1


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"no such format" * 9])
def test_a_damaged_source_is_named(
    suffix: str, damage: Callable[[bytes], bytes], pool: Path, recipe: str, tmp_path: Path
) -> None:
    broken = tmp_path / f"broken.txt{suffix}"
    broken.write_bytes(damage(PACKERS[suffix](pool.read_bytes())))
    with pytest.raises(UserError, match=r"broken\.txt.*damaged or cut short"):
        pretrain([pool, broken], tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)


def test_a_source_that_may_not_be_read_is_named(pool: Path, recipe: str, tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    with pytest.raises(UserError, match=r"loop\.txt"):
        pretrain([pool, tmp_path / "loop.txt"], tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)
    assert not (tmp_path / "lm.run").exists()


def test_zst_without_a_library_says_what_to_install(
    pool: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    (tmp_path / "a.txt.zst").write_bytes(b"whatever")
    monkeypatch.setattr("textgraft.data.text_files.import_module", missing)
    with pytest.raises(UserError, match=r"a\.txt\.zst: .*pip install 'textgraft\[zstd\]'"):
        pretrain([tmp_path / "a.txt.zst"], tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)


def test_lists_that_are_no_files_are_told_by_their_key(tmp_path: Path) -> None:
    (work_folder(tmp_path / "out", {"at": [1, 2], "seed": 0}) / "work").write_bytes(b"")
    with pytest.raises(UserError, match=r"differs in: at\."):
        work_folder(tmp_path / "out", {"at": [1, 3], "seed": 0})


def test_one_text_is_too_few_and_nothing_is_left_of_it(pool: Path, recipe: str, tmp_path: Path) -> None:
    one, held = tmp_path / "one.txt", tmp_path / "held.txt"
    one.write_text("a film that was good in its way and bad in another\n")
    held.write_text("\n \n")
    for valid, message in (
        (None, r"one\.txt: there is a single text, which would be held out"),
        (held, "contains no text"),
    ):
        with pytest.raises(UserError, match=message):
            pretrain(one, tmp_path / "lm", valid=valid, options=PretrainOptions(recipe=recipe), context=QUIET)
        with pytest.raises(UserError, match=message):
            tokenize(one, tmp_path / "lm", recipe=recipe, valid=valid, show=False)
        assert list(tmp_path.glob("lm*")) == []
    made = load_network(
        pretrain(one, tmp_path / "lm", valid=pool, options=PretrainOptions(recipe=recipe, tokens=50), context=QUIET)
    )
    assert made.run["data"]["sources"] == ["one.txt"]
