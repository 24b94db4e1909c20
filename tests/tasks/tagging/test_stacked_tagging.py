"""A tagger over a stack of frozen sources: it learns, resumes to the bit while it anneals, and moves as one folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_questions import write_recipe
from made_up_tags import NOUNS, TITLES, VERBS, sentences, write_encoder

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.words import WordStream
from textgraft.models import loading
from textgraft.tasks.tagging.finetune import STACKED, TagOptions, tag_finetune
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.loop import Run
from textgraft.training.settings import Settings
from textgraft.word_embeddings.formats import save_vectors
from textgraft.word_embeddings.sources import FrozenModel
from textgraft.word_embeddings.stack import Stack
from textgraft.word_embeddings.word_vectors import WordVectors

TRAIN, TEST = sentences(120, 1, names=True), sentences(30, 2, names=True)
FP32 = Settings(precision="fp32")
SMALL = Network(hidden_dim=16, character_filters=8)
ANNEALED = """
name = "annealed"
description = "For tests"
source = "none"
[finetune]
batch_size = 16
clip = 5.0
[[finetune.phases]]
name = "all"
epochs = 12
lr = 0.1
schedule = "constant"
warmup = 0.0
optimizer = "sgd"
betas = [0.0, 0.0]
anneal = { factor = 0.1, patience = 0, least = 0.005 }
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny language model, a BERT, and word vectors as a text file."""
    folder = tmp_path_factory.mktemp("sources")
    write_encoder(folder, "lstm")
    write_encoder(folder, "bert", num_layers=2)
    known = [*NOUNS, *VERBS, *TITLES, "the"]  # and no full stop
    rows = np.random.default_rng(0).normal(size=(len(known), 6)).astype(np.float32)
    save_vectors(WordVectors(known, rows), folder / "words.txt", to="glove")
    return folder


def opened(folder: Path, *names: str) -> Stack:
    return Stack.open([folder / name for name in names or ("lstm", "bert@sum", "words.txt")], precision="fp32")


def options(folder: Path, epochs: int = 1, **others: Any) -> TagOptions:
    recipe = str(write_recipe(folder, epochs))
    return replace(STACKED, **{"recipe": recipe, "settings": FP32, "network": SMALL} | others)


def annealed(folder: Path) -> TagOptions:
    (folder / "annealed.toml").write_text(ANNEALED)
    often = replace(FP32, save_seconds=0.0)
    return options(folder, recipe=str(folder / "annealed.toml"), settings=often)


@pytest.mark.slow
def test_learns_and_one_folder_holds_all_of_it(sources: Path, tmp_path: Path) -> None:
    stack = opened(sources)
    asked = replace(STACKED, settings=FP32, network=Network(hidden_dim=32, character_filters=8))
    done = tag_finetune(TRAIN, tmp_path / "out", model=stack, test=TEST, options=asked, context=QUIET)
    assert done.record["recipe"] == "tagger"
    assert done.record["results"]["methods"]["tagger"]["f1"]["mean"] > 0.95
    assert (done.record["scheme"], done.record["crf"]) == ("BIOES", True)
    assert done.record["stack"] == stack.names
    name = str(sources / "words.txt")
    assert done.record["words_without_vector"]["test"] == {
        name: sum(word == "." for s in TEST.sentences for word in s.words)
    }
    moved = tmp_path / "elsewhere" / "tagger"
    shutil.copytree(done.folder, moved)
    shutil.rmtree(done.folder)
    tagger = Tagger(moved, precision="fp32")
    assert tagger.artifact.stack is not None
    assert tagger.artifact.stack.width == stack.width
    predictions = tagger.tag(TEST.sentences)
    assert [r.tags for r in predictions] == [r.tags for r in done.predictions]
    alone = tagger.tag(TEST.sentences[:1])[0]
    np.testing.assert_allclose(alone.probabilities, predictions[0].probabilities, atol=1e-2)
    assert tagger.evaluate(TEST)["f1"] == done.record["results"]["methods"]["tagger"]["f1"]


def test_the_defaults_suit_a_stack() -> None:
    assert (STACKED.crf, STACKED.scheme, TagOptions().crf) == (True, "BIOES", False)


@pytest.mark.slow
def test_static_vectors_alone_and_characters_alone_learn_parts_of_speech(sources: Path, tmp_path: Path) -> None:
    train, test = sentences(120, 1), sentences(20, 2)
    for filters in (0, 8):
        network = replace(SMALL, character_filters=filters, projection_dim=0)
        asked = options(tmp_path, 4, network=network)
        model = opened(sources, "words.txt")
        out = tmp_path / f"out-{filters}"
        done = tag_finetune(train, out, model=model, test=test, options=asked, context=QUIET)
        assert done.record["results"]["methods"]["tagger"]["accuracy"]["mean"] > 0.9
        assert Tagger(out, precision="fp32").tag_texts(["the river sees ."])[0].tags[2] == "VERB"


@pytest.mark.slow
def test_vectors_that_another_process_is_writing_are_not_written_too(sources: Path, tmp_path: Path) -> None:
    """The second of two identical runs is refused at once, and goes on once the first is over."""
    pytest.importorskip("fcntl")
    out, folder = tmp_path / "out", tmp_path / "out.run"
    asked = options(tmp_path)
    holder = """
import sys
from pathlib import Path
from textgraft.training.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", holder, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another run is writing here"):
            tag_finetune(TRAIN, out, model=opened(sources), test=TEST, options=asked, context=QUIET)
        assert not list(folder.glob("vectors-*"))
        other.communicate("")
    done = tag_finetune(TRAIN, out, model=opened(sources), test=TEST, options=asked, context=QUIET)
    assert done.folder.is_dir()


class Killed(BaseException):
    """What ends a process between two steps."""


@pytest.mark.slow
def test_killed_while_it_anneals_it_ends_with_the_same_bits(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = annealed(tmp_path)
    parts = {"valid": TEST.sample(6), "test": TEST}

    def attempt(out: str) -> Any:
        return tag_finetune(TRAIN, tmp_path / out, model=opened(sources), options=asked, context=QUIET, **parts)

    rates: list[float] = []
    finished: dict[str, int] = {}
    steps = Run.steps

    def watched(self: Run, *given: Any) -> Iterator[Any]:
        for step in steps(self, *given):
            rates.append(step.lr)
            yield step
        finished["epochs"] = len(self.progress.history)

    monkeypatch.setattr(Run, "steps", watched)
    whole = attempt("whole")
    assert sorted(set(np.round(rates, 6)), reverse=True) == [0.1, 0.01]  # at 0.001 it is over
    assert finished["epochs"] < 12
    monkeypatch.setattr(Run, "steps", steps)
    batches = WordStream.batches
    count = 0

    def killing(self: WordStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        nonlocal count
        for batch in batches(self, epoch, start):
            count += 1
            if count % 7 == 0:
                raise Killed
            yield batch

    monkeypatch.setattr(WordStream, "batches", killing)
    kills = 0
    for _ in range(60):
        try:
            again = attempt("out")
            break
        except Killed:
            kills += 1
            assert not (tmp_path / "out").exists()
            assert list((tmp_path / "out.run").glob("vectors-*.f16"))
    assert kills > 2
    read = [(folder / "model.safetensors").read_bytes() for folder in (whole.folder, again.folder)]
    assert read[0] == read[1]
    assert not (tmp_path / "out.run").exists()
    assert not list(again.folder.glob("**/*.f16"))


@pytest.mark.slow
def test_what_is_not_kept_gives_the_same_bits_and_is_told(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = options(tmp_path, 1)
    computed: dict[str, int] = {}
    vectors = FrozenModel.vectors

    def counted(self: Any, given: Sequence[Any]) -> Any:
        computed[Path(self.name).name] = computed.get(Path(self.name).name, 0) + len(given)
        return vectors(self, given)

    monkeypatch.setattr(FrozenModel, "vectors", counted)
    distinct = len({s.words for s in TRAIN.sentences})
    words = sum(len(words) for words in {s.words for s in TRAIN.sentences})
    room = 2 * 16 * words  # of one of the two models, which are 16 wide
    network = replace(SMALL, kept_bytes=room)
    two = replace(asked, network=network, recipe=str(write_recipe(tmp_path, 2)))
    test = TEST.sample(5)
    tag_finetune(TRAIN, tmp_path / "out", model=opened(sources), test=test, options=two)
    assert computed == {"lstm": distinct + 5, "bert": 2 * len(TRAIN) + 5}
    said = " ".join(capfd.readouterr().err.split())
    assert said.count("computed anew in every epoch") == 1
    assert "bert@sum" in said
    monkeypatch.undo()
    roomy = replace(two, network=SMALL)
    tag_finetune(TRAIN, tmp_path / "roomy", model=opened(sources), test=test, options=roomy, context=QUIET)
    ours, theirs = (loading.load_network(tmp_path / name).model.values() for name in ("out", "roomy"))
    for name, value in ours.items():  # a model reads other sentences beside them: rounding, and no more
        torch.testing.assert_close(value, theirs[name], rtol=1e-2, atol=2e-3)


def test_another_stack_is_another_run(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killing(*_: Any) -> Iterator[Batch]:
        raise Killed

    monkeypatch.setattr(WordStream, "batches", killing)
    asked = options(tmp_path, 1)
    with pytest.raises(Killed):
        tag_finetune(TRAIN, tmp_path / "out", model=opened(sources), test=TEST, options=asked, context=QUIET)
    with pytest.raises(UserError, match=r"differs in: .*stack"):
        tag_finetune(TRAIN, tmp_path / "out", model=opened(sources, "bert"), test=TEST, options=asked, context=QUIET)
    wider = replace(asked, network=replace(SMALL, hidden_dim=17))
    with pytest.raises(UserError, match=r"differs in: .*network"):
        tag_finetune(TRAIN, tmp_path / "out", model=opened(sources), test=TEST, options=wider, context=QUIET)


def test_malformed_stacks_are_explained(sources: Path, tmp_path: Path) -> None:
    for names, message in (
        (["nothing-of-that-name"], "no model 'nothing-of-that-name'"),
        ([f"{sources / 'bert'}@lats"], "unknown layer aggregation 'lats'"),
        ([f"{sources / 'words.txt'}@sum"], "no layer aggregation 'sum'"),
        ([sources / "bert", sources / "bert"], "comes twice"),
        ([""], "a name is missing"),
        ([], "a stack of nothing"),
    ):
        with pytest.raises(UserError, match=message):
            Stack.open(names)  # type: ignore[arg-type]
    assert Stack.open([sources / "bert", f"{sources / 'bert'}@first"]).width == 32
    tagger = tag_finetune(
        TRAIN, tmp_path / "out", model=opened(sources, "bert"), test=TEST, options=options(tmp_path), context=QUIET
    )
    with pytest.raises(UserError, match="this is a tagger"):
        Stack.open([tagger.folder])
    with pytest.raises(UserError, match="needs word vectors of"):
        loading.load_network(tagger.folder).embed(["a text"])
    (tagger.folder / "sources" / "0" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="altered"):
        Tagger(tagger.folder)
    shutil.rmtree(tagger.folder / "sources")
    with pytest.raises(UserError):
        Tagger(tagger.folder)
