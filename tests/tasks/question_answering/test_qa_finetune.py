"""Fine-tuning to answer questions: it learns, with every family, and a run that was killed ends with the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_questions import encoder, questions, write_encoder, write_recipe

from textgraft.conversion import huggingface
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.squad import Squad, parse_squad
from textgraft.data.streams.windows import WindowStream
from textgraft.data.windows import WindowSettings
from textgraft.models import loading
from textgraft.tasks.question_answering import finetune as stage
from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
from textgraft.tasks.question_answering.predictor import QAModel, SearchSettings
from textgraft.text.wordpiece import WordPieceTokenizer
from textgraft.training.settings import Settings

TRAIN, TEST = parse_squad(questions(60, 1)), parse_squad(questions(30, 2))
FP32 = Settings(precision="fp32")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("models"), "bert")


def options(folder: Path, epochs: int = 1, **others: Any) -> QAOptions:
    windows = WindowSettings(max_tokens=24, stride=6)
    return QAOptions(**{"recipe": str(write_recipe(folder, epochs)), "windows": windows, "settings": FP32} | others)


@pytest.mark.slow
def test_learns_to_answer_and_is_measured_beside_the_nearest_sentence(bert: Path, tmp_path: Path) -> None:
    done = qa_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=options(tmp_path, 12), context=QUIET)
    results = done.record["results"]
    assert results["methods"]["QA model"]["exact_match"]["mean"] > 0.9
    assert results["methods"]["sentence"]["exact_match"]["mean"] == 0.0
    assert 0.0 < results["methods"]["sentence"]["f1"]["mean"] < 0.6
    assert "better than the nearest sentence" in results["verdict"]
    assert (results["test_n"], results["labels"], results["metric"]) == (30, 60, "f1")
    assert results["verdict"] in done.table()
    folder = done.folder
    assert not (tmp_path / "out.run").exists()
    answers = json.loads((folder / "predictions.json").read_text())
    assert answers.keys() == {q.id for _, q in TEST.asked()}
    n_best = json.loads((folder / "nbest.json").read_text())
    contexts = {q.id: context for context, q in TEST.asked()}
    for id, found in n_best.items():
        assert found[0]["text"] == answers[id]
        assert all(contexts[id][f["start"] : f["end"]] == f["text"] for f in found)
        assert sum(f["probability"] for f in found) == pytest.approx(1.0)
    card = (folder / "README.md").read_text()
    assert "extractive question answering" in card
    assert "30 held-out questions" in card
    reader = QAModel(folder, precision="fp32")
    assert reader.evaluate(TEST)["exact_match"] == results["methods"]["QA model"]["exact_match"]
    assert [r.text for r in reader.answer(TEST)] == [answers[q.id] for _, q in TEST.asked()]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt", "xl", "lstm", "backward"])
def test_every_family_learns(family: str, tmp_path: Path) -> None:
    """Those that read one way too: where there is no answer they say so where they have read everything."""
    source = write_encoder(tmp_path, family)
    train, test = (parse_squad(questions(n, seed, impossible=True)) for n, seed in ((60, 1), (30, 2)))
    asked = options(tmp_path, 12, windows=WindowSettings(max_tokens=40))
    done = qa_finetune(train, tmp_path / "out", model=source, test=test, options=asked, context=QUIET)
    reader = done.record["results"]["methods"]["QA model"]
    assert reader["exact_match"]["mean"] > 0.7
    assert reader["no_answer_accuracy"] > 0.5
    assert reader["has_answer_exact_match"] > 0.5
    assert done.record["search"]["may_be_none"]


class Killed(BaseException):
    """What ends a process between two steps."""


def kill(*arguments: Any, **others: Any) -> None:
    raise Killed


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = options(tmp_path, 2, settings=replace(FP32, save_seconds=0.0))
    parts: dict[str, Squad] = {"valid": TEST.sample(6), "test": TEST}
    whole = qa_finetune(TRAIN, tmp_path / "whole", model=bert, options=often, context=QUIET, **parts)
    batches = WindowStream.batches

    def killing(self: WindowStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == 3:
                raise Killed
            yield batch

    def attempt() -> None:
        qa_finetune(TRAIN, tmp_path / "out", model=bert, options=often, context=QUIET, **parts)

    for _ in range(3):
        monkeypatch.setattr(WindowStream, "batches", killing)
        with pytest.raises(Killed):
            attempt()
        assert not (tmp_path / "out").exists()
    monkeypatch.setattr(WindowStream, "batches", batches)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "put_in_place", kill)
        with pytest.raises(Killed):  # trained, but not yet in place
            attempt()
    monkeypatch.setattr(WindowStream, "batches", kill)  # nothing is trained any more
    attempt()
    for name in ("model.safetensors", "predictions.json", "nbest.json"):
        assert (tmp_path / "out" / name).read_bytes() == (whole.folder / name).read_bytes(), name
    history = json.loads((tmp_path / "out" / "run.json").read_text())["history"]
    assert [(row["epoch"], row["f1"]) for row in history] == [(r["epoch"], r["f1"]) for r in whole.record["history"]]


def test_another_question_is_refused_while_a_run_waits(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "put_in_place", kill)
    with pytest.raises(Killed):
        qa_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=options(tmp_path), context=QUIET)
    other = options(tmp_path, windows=WindowSettings(max_tokens=30))
    with pytest.raises(UserError, match="an unfinished run is here that differs in: options"):
        qa_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=other, context=QUIET)


@pytest.mark.parametrize(("most", "kept"), [({}, (48, 12)), ({"questions": 30, "evaluation_questions": 5}, (30, 5))])
def test_without_a_test_articles_are_held_out(
    bert: Path, tmp_path: Path, most: dict[str, int], kept: tuple[int, int]
) -> None:
    asked = options(tmp_path, held_out=0.2, baseline=False, **most)
    done = qa_finetune(TRAIN, tmp_path / "out", model=bert, options=asked, context=QUIET)
    data = done.record["data"]
    assert (data["train"]["questions"], data["held out"]["questions"]) == kept
    assert done.record["evaluation_split"] == "held out"
    assert "no baseline was run" in done.record["results"]["verdict"]
    assert {a.title for a in done.evaluation.articles} <= {a.title for a in TRAIN.articles}


def test_empty_windows_can_be_left_out(bert: Path, tmp_path: Path) -> None:
    lengths = []
    for empty in (True, False):
        asked = options(tmp_path, empty_windows=empty, windows=WindowSettings(max_tokens=20, stride=6), baseline=False)
        out = tmp_path / str(empty)
        done = qa_finetune(TRAIN, out, model=bert, test=TEST.sample(3), options=asked, context=QUIET)
        lengths.append(done.record["history"][-1]["step"])
    assert lengths[0] > lengths[1] > 60 / 8 - 1


def test_the_encoder_starts_as_it_was_and_its_pooler_stays_behind(bert: Path) -> None:
    source = loading.load_network(bert)
    made = stage.new_qa_model(source.model, stage.load_recipe("transformer").finetune, seed=1)
    values = made.encoder.state_dict()
    assert not any(name.startswith("pooler") for name in values)
    assert all(torch.equal(value, source.model.encoder.state_dict()[name]) for name, value in values.items())
    again = stage.new_qa_model(source.model, stage.load_recipe("transformer").finetune, seed=1)
    assert torch.equal(made.head.output.weight.detach(), again.head.output.weight.detach())
    other = stage.new_qa_model(source.model, stage.load_recipe("transformer").finetune, seed=2)
    assert not torch.equal(made.head.output.weight.detach(), other.head.output.weight.detach())


def test_a_reader_learns_on_from_where_it_was(bert: Path, tmp_path: Path) -> None:
    first = qa_finetune(TRAIN, tmp_path / "first", model=bert, test=TEST, options=options(tmp_path), context=QUIET)
    before = loading.load_network(first.folder).model
    again = stage.new_qa_model(before, stage.load_recipe("transformer").finetune, seed=9)
    assert all(torch.equal(again.values()[name], value) for name, value in before.values().items())


def test_windows_are_no_longer_than_the_encoder_can_look(bert: Path) -> None:
    source = loading.load_network(bert)
    asked = stage.resolved_options(QAOptions(), source, TRAIN)
    assert (asked.windows.max_tokens, asked.recipe) == (40, "transformer")
    lstm = stage.resolved_options(QAOptions(search=SearchSettings(n_best=3)), encoder("lstm"), TRAIN)
    assert (lstm.windows.max_tokens, lstm.recipe, lstm.search.n_best) == (384, "default", 3)


def test_a_folder_of_transformers_becomes_a_reader(bert: Path, tmp_path: Path) -> None:
    source = loading.load_network(bert)
    assert isinstance(source.tokenizer, WordPieceTokenizer)
    huggingface.save(source.model, tmp_path / "theirs", others=source.tokenizer.huggingface_files())
    asked, made = options(tmp_path), []
    for name, model in (("ours", bert), ("read", f"hf:{tmp_path / 'theirs'}")):
        done = qa_finetune(TRAIN, tmp_path / name, model=model, test=TEST.sample(3), options=asked, context=QUIET)
        made.append((done.folder / "model.safetensors").read_bytes())
    assert made[0] == made[1]


def test_mistakes(bert: Path, tmp_path: Path) -> None:
    data = questions(8, 3)
    data["data"][2]["paragraphs"][0]["qas"][0]["answers"] = []
    with pytest.raises(UserError, match="1 of 8 questions have no answer, '3-2' the first"):
        qa_finetune(parse_squad(data), tmp_path / "out", model=bert, test=TEST, context=QUIET)
    tight = options(tmp_path, windows=WindowSettings(max_tokens=8))
    with pytest.raises(UserError, match="leave no room"):
        qa_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=tight, context=QUIET)
    with pytest.raises(UserError, match="questions is 0"):
        QAOptions(questions=0)
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"):
        qa_finetune(TRAIN, tmp_path / "there", model=bert, test=TEST, context=QUIET)
