"""Token shards: reading across borders, restarting after a kill, damage, flat memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from textgraft.core.errors import UserError
from textgraft.data.streams import shards as corpus_module
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.text.tokenizer import Tokenizer

WORDS = ["the", "a", "film", "cat", "saw", "good", "bad", "Great", "was", "and", "of", "USA", "1984", "never", "story"]


def made_texts(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(0, 40))) for _ in range(count)]


TEXTS = made_texts(300)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, vocab_size=80)


def build(texts, tokenizer: Tokenizer, folder: Path, **options) -> Corpus:
    settings = {"source_description": "made", "shard_tokens": 1000, "progress": False} | options
    return build_corpus(texts, tokenizer, folder, **settings)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_processes_write_the_same_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for processes in (0, 1):
        build(iter(TEXTS), tokenizer, tmp_path / str(processes), processes=processes)
    assert contents(tmp_path / "0") == contents(tmp_path / "1")


def test_a_corpus_holds_every_document_in_order(tokenizer: Tokenizer, tmp_path: Path) -> None:
    corpus = build(iter(TEXTS), tokenizer, tmp_path / "c")
    ids = tokenizer.encode_batch(TEXTS)
    whole = np.concatenate(ids)
    assert len(list((tmp_path / "c").glob("tokens-*.bin"))) > 5
    assert corpus.num_tokens == len(whole)
    assert corpus.num_documents == len(TEXTS)
    assert corpus.num_words == sum(len(text.split()) for text in TEXTS)
    assert corpus.num_characters == sum(map(len, TEXTS))
    assert corpus.read(0, corpus.num_tokens).tolist() == whole.tolist()
    assert corpus.document_starts.tolist() == np.cumsum([0, *map(len, ids[:-1])]).tolist()
    assert corpus.tokenizer_fingerprint == tokenizer.fingerprint


def test_reading_any_stretch_across_borders(tokenizer: Tokenizer, tmp_path: Path) -> None:
    on_disk = build(TEXTS, tokenizer, tmp_path / "c", shard_tokens=300)
    ids = tokenizer.encode_batch(TEXTS)
    in_memory = Corpus.from_ids(ids, tokenizer, words=on_disk.num_words, characters=on_disk.num_characters)
    whole = np.concatenate(ids)
    generator = np.random.default_rng(1)
    stretches = np.sort(generator.integers(0, len(whole) + 1, size=(300, 2))).tolist()
    for start, stop in [*stretches, [300, 300], [0, 0]]:
        for corpus in (on_disk, in_memory):
            assert corpus.read(start, stop).tolist() == whole[start:stop].tolist()
    assert in_memory.document_starts.tolist() == on_disk.document_starts.tolist()
    assert in_memory.num_documents == on_disk.num_documents
    for start, stop in ((-1, 2), (5, 4), (0, len(whole) + 1)):
        with pytest.raises(IndexError):
            on_disk.read(start, stop)


def test_an_empty_corpus_in_memory(tokenizer: Tokenizer) -> None:
    corpus = Corpus.from_ids([], tokenizer, words=0, characters=0)
    assert (corpus.num_tokens, corpus.num_documents, len(corpus.read(0, 0))) == (0, 0, 0)


@pytest.mark.parametrize(("vocab_size", "size"), [(65_535, 2), (65_536, 4)])
def test_ids_take_two_bytes_or_four(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch, vocab_size: int, size: int
) -> None:
    monkeypatch.setattr(tokenizer, "vocab_size", vocab_size)
    corpus = build(TEXTS[:5], tokenizer, tmp_path / "c")
    assert (tmp_path / "c" / "tokens-00000.bin").stat().st_size == size * corpus.num_tokens
    assert corpus.read(0, 1).dtype.itemsize == size


def test_a_finished_corpus_is_reused_without_reading_the_texts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    first = build(TEXTS, tokenizer, tmp_path / "c")

    def unread() -> Iterator[str]:
        raise AssertionError("the texts were read")
        yield

    again = build(unread(), tokenizer, tmp_path / "c")
    assert again.num_tokens == first.num_tokens


def test_shards_do_not_depend_on_how_texts_are_batched(tokenizer: Tokenizer, tmp_path: Path, monkeypatch) -> None:
    build(TEXTS, tokenizer, tmp_path / "large")
    monkeypatch.setattr(corpus_module, "BATCH_CHARACTERS", 100)
    build(TEXTS, tokenizer, tmp_path / "small")
    assert contents(tmp_path / "large") == contents(tmp_path / "small")


KILLED = """
import os, signal, sys
from pathlib import Path
from textgraft.data.streams import shards as corpus
from textgraft.text.tokenizer import Tokenizer
corpus.BATCH_CHARACTERS = 500
texts = Path(sys.argv[1]).read_text().split("\\n")
def stream():
    for i, text in enumerate(texts):
        if i == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield text
corpus.build_corpus(stream(), Tokenizer.load(sys.argv[2]), sys.argv[3], source_description="made", shard_tokens=1000,
                    progress=False)
"""


def test_killed_and_called_again_the_shards_are_the_same_to_the_byte(tokenizer: Tokenizer, tmp_path: Path) -> None:
    build(TEXTS, tokenizer, tmp_path / "whole")
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    tokenizer.save(tmp_path / "t.json")
    for place in (3, 150, 290):  # the same folder: three kills in a row, before and after complete shards
        arguments = [str(tmp_path / name) for name in ("texts", "t.json", "killed")]
        run = subprocess.run([sys.executable, "-c", KILLED, *arguments, str(place)], check=False)
        assert run.returncode == -signal.SIGKILL
    assert json.loads((tmp_path / "killed" / "index.json").read_text())["complete"] is False
    with pytest.raises(UserError, match="unfinished"):
        Corpus.open(tmp_path / "killed")
    build(TEXTS, tokenizer, tmp_path / "killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def interrupted(tokenizer: Tokenizer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave some complete shards in `folder` and stop, as Ctrl-C does."""
    monkeypatch.setattr(corpus_module, "BATCH_CHARACTERS", 500)

    def stream() -> Iterator[str]:
        yield from TEXTS[:200]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(stream(), tokenizer, folder)


def test_ctrl_c_leaves_complete_shards_and_no_scraps(tokenizer: Tokenizer, tmp_path: Path, monkeypatch) -> None:
    interrupted(tokenizer, tmp_path / "c", monkeypatch)
    names = set(contents(tmp_path / "c"))
    assert "tokens-00000.bin" in names
    assert not any(name.endswith(".part") for name in names)


@pytest.mark.parametrize("changed", [["other", *TEXTS[1:]], TEXTS[:20]])
def test_changed_texts_are_noticed_when_going_on(tokenizer: Tokenizer, tmp_path: Path, monkeypatch, changed) -> None:
    interrupted(tokenizer, tmp_path / "c", monkeypatch)
    before = contents(tmp_path / "c")
    with pytest.raises(UserError, match="source has changed"):
        build(changed, tokenizer, tmp_path / "c")
    assert contents(tmp_path / "c") == before


def test_another_tokenizer_or_source_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    build(TEXTS, tokenizer, tmp_path / "c")
    other = Tokenizer.train(TEXTS, kind="word")
    with pytest.raises(UserError, match="another tokenizer"):
        build(TEXTS, other, tmp_path / "c")
    with pytest.raises(UserError, match=r"another source \(made\)"):
        build(TEXTS, tokenizer, tmp_path / "c", source_description="new")


def test_a_folder_with_other_files_is_left_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="other files"):
        build(TEXTS, tokenizer, tmp_path)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}


def test_a_build_killed_before_its_first_index_begins_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    build(TEXTS, tokenizer, tmp_path / "whole")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "tokens-00000.bin").write_bytes(b"scraps")
    (tmp_path / "c" / "starts-00000.bin.part").write_bytes(b"scraps")
    build(TEXTS, tokenizer, tmp_path / "c")
    assert contents(tmp_path / "c") == contents(tmp_path / "whole")


def test_a_file_where_the_folder_should_be(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        build(TEXTS, tokenizer, tmp_path / "c")


@pytest.mark.parametrize(("texts", "said"), [([], "no text"), (["a", None], "text 2 is not a string but NoneType")])
def test_nothing_or_no_text_to_encode(tokenizer: Tokenizer, tmp_path: Path, texts: list, said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(texts, tokenizer, tmp_path / "c")
    assert contents(tmp_path / "c") == {}


def test_a_full_disk_is_a_clear_error_and_the_build_goes_on_later(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch
) -> None:
    calls = iter(range(100))

    def failing(descriptor: int) -> None:
        if next(calls) > 6:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(UserError, match="disk is full"):
            build(TEXTS, tokenizer, tmp_path / "c")
    assert "tokens-00001.bin" in contents(tmp_path / "c")
    build(TEXTS, tokenizer, tmp_path / "c")
    build(TEXTS, tokenizer, tmp_path / "whole")
    assert contents(tmp_path / "c") == contents(tmp_path / "whole")


def damage_truncated(folder: Path) -> None:
    path = folder / "tokens-00001.bin"
    path.write_bytes(path.read_bytes()[:-2])


def damage_altered(folder: Path) -> None:
    path = folder / "starts-00001.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def damage_missing(folder: Path) -> None:
    (folder / "tokens-00000.bin").unlink()


def damage_index(folder: Path) -> None:
    (folder / "index.json").write_text('{"format": "textgraft corpus", "version": 1, "shards": [')


def damage_format(folder: Path) -> None:
    (folder / "index.json").write_text('{"shards": []}')


def damage_version(folder: Path) -> None:
    content = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(content | {"version": 2}))


@pytest.mark.parametrize(
    ("damage", "place", "said"),
    [
        (damage_truncated, "tokens-00001.bin", "bytes instead of"),
        (damage_altered, "starts-00001.bin", "altered"),
        (damage_missing, "tokens-00000.bin", "missing"),
        (damage_index, "index.json", "damaged"),
        (damage_format, "index.json", "damaged"),
        (damage_version, "index.json", "later version"),
    ],
)
def test_damage_is_named_with_its_place(tokenizer: Tokenizer, tmp_path: Path, damage, place: str, said: str) -> None:
    build(TEXTS, tokenizer, tmp_path / "c")
    damage(tmp_path / "c")
    with pytest.raises(UserError, match=said) as caught:
        Corpus.open(tmp_path / "c")
    assert caught.value.where == str(tmp_path / "c" / place)
    assert caught.value.remedy


def test_no_corpus_here(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus here"):
        Corpus.open(tmp_path)


def test_the_progress_bar_goes_to_stderr(tokenizer: Tokenizer, tmp_path: Path, capsys) -> None:
    build(TEXTS, tokenizer, tmp_path / "c", progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "300 documents" in captured.err
    assert "tokens/s" in captured.err


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tokenizer: Tokenizer, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(corpus_module, "BATCH_CHARACTERS", 20_000)

    def peak(count: int) -> int:
        texts = (f"{i} " + "the good cat saw a bad film " * 400 for i in range(count))
        tracemalloc.start()
        build(texts, tokenizer, tmp_path / f"c{count}", shard_tokens=20_000)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(2)  # imports and caches
    assert peak(32) < peak(4) + 100_000  # the 28 texts more are 300,000 characters
