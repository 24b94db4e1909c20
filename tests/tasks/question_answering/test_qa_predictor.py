"""From logits to answers over several windows, and a reader's answers beside loops over its own model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from textgraft.core.errors import UserError
from textgraft.data.squad import Answer, Question, Squad, parse_squad, single_question
from textgraft.data.windows import Window, WindowSettings, encode_questions
from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.tasks.question_answering.baseline import nearest_sentences
from textgraft.tasks.question_answering.network import window_logits
from textgraft.tasks.question_answering.predictor import QAModel, SearchSettings, answers_by_id, predict_answer, scores
from textgraft.text import wordpiece
from textgraft.text.sentences import sentence_spans

CONTEXT = "aa bb cc dd ee ff"
SPANS = np.array([[3 * i, 3 * i + 2] for i in range(6)])


def window(start: int, end: int, owned: tuple[int, ...]) -> Window:
    """[CLS] q [SEP], the context's tokens from start to end, [SEP]; of `owned` it is the one with most context."""
    ids = np.arange(4 + end - start)
    owner = np.isin(np.arange(start, end), owned)
    return Window(0, ids, second=3, first=3, start=start, spans=SPANS[start:end], most_context=owner)


def logits(length: int, **at: tuple[float, float]) -> np.ndarray:
    """(T, 2) of zeros but for what is given: p3=(begin, end) at position 3."""
    made = np.zeros((length, 2), dtype=np.float32)
    for name, values in at.items():
        made[int(name[1:])] = values
    return made


FIRST, SECOND = window(0, 4, (0, 1, 2)), window(2, 6, (3, 4, 5))
QUESTION = Question("q", "?")


def test_the_best_span_over_all_windows_is_the_answer() -> None:
    read = [(FIRST, logits(8, p4=(5, 0), p5=(0, 4)), 1.0), (SECOND, logits(8, p5=(6, 0), p6=(0, 5)), 3.0)]
    found = predict_answer(QUESTION, CONTEXT, read, SearchSettings(n_best=3))
    assert found.text == "ee ff"
    assert (found.best[0].start, found.best[0].end, found.best[0].score) == (12, 17, 11.0)
    assert [f.text for f in found.best] == ["ee ff", "bb cc", "ee"]
    assert found.no_answer_score == 1.0 - 11.0  # of the window that sees least of no answer
    powers = np.exp(np.array([f.score for f in found.best]) - 11)
    assert [f.probability for f in found.best] == pytest.approx((powers / powers.sum()).tolist())


def test_a_token_begins_an_answer_only_where_it_has_most_context() -> None:
    """Token 2 (cc) is at position 5 of the first window and at position 3 of the second, which knows less of it."""
    read = [(FIRST, logits(8, p5=(2, 2)), 0.0), (SECOND, logits(8, p3=(9, 9)), 0.0)]
    found = predict_answer(QUESTION, CONTEXT, read, SearchSettings())
    assert found.text == "cc"
    assert found.best[0].score == 4.0


def test_marks_and_the_question_are_never_an_answer_and_length_has_a_limit() -> None:
    high = {f"p{i}": (50.0, 50.0) for i in (0, 1, 2, 7)}
    read = [(FIRST, logits(8, **high, p3=(3, 0), p6=(0, 3)), 0.0)]
    assert predict_answer(QUESTION, CONTEXT, read, SearchSettings()).text == "aa bb cc dd"
    short = predict_answer(QUESTION, CONTEXT, read, SearchSettings(max_answer_tokens=2))
    assert all(f.end - f.start <= 5 for f in short.best)


def test_no_answer_where_it_scores_higher_by_more_than_the_threshold() -> None:
    read = [(FIRST, logits(8, p4=(2, 2)), 5.0), (SECOND, logits(8), 7.0)]
    assert predict_answer(QUESTION, CONTEXT, read, SearchSettings()).text == "bb"
    none = predict_answer(QUESTION, CONTEXT, read, SearchSettings(may_be_none=True))
    assert (none.text, none.no_answer_score) == ("", 1.0)
    assert [f.text for f in none.best[:2]] == ["", "bb"]
    assert predict_answer(QUESTION, CONTEXT, read, SearchSettings(may_be_none=True, threshold=1.0)).text == "bb"


def test_of_equal_texts_the_better_stays() -> None:
    same = "aa aa"
    spans = np.array([[0, 2], [3, 5]])
    only = Window(0, np.arange(6), second=3, first=3, start=0, spans=spans, most_context=np.ones(2, dtype=bool))
    found = predict_answer(QUESTION, same, [(only, logits(6, p3=(1, 1), p4=(2, 2)), 0.0)], SearchSettings())
    assert [f.text for f in found.best].count("aa") == 1
    assert next(f for f in found.best if f.text == "aa").start == 3


def test_an_empty_context_has_no_answer() -> None:
    empty = Window(0, np.arange(4), 3, 3, 0, np.zeros((0, 2), dtype=int), np.zeros(0, dtype=bool))
    found = predict_answer(QUESTION, "", [(empty, logits(4), 0.0)], SearchSettings())
    assert found.text == ""
    assert [f.text for f in found.best] == [""]


TEXT = "The tower is tall. It was built in 1889 by Eiffel. It is painted every seven years. " * 3


@pytest.fixture(scope="module")
def reader() -> Artifact:
    made = wordpiece.train([TEXT], vocab_size=80)
    encoder = {"name": "bert", "vocab_size": made.vocab_size, "embedding_dim": 8, "num_layers": 1, "num_heads": 2}
    encoder |= {"feed_forward_dim": 16, "max_length": 32, "pooler": False}
    torch.manual_seed(2)
    model = build({"encoder": encoder, "head": {"name": "span", "input_dim": 8}}).eval()
    with torch.no_grad():
        model.head.output.weight.normal_()
    run = {"windows": {"max_tokens": 30, "stride": 9, "max_question": 8}, "search": {"n_best": 5}}
    return Artifact(model, made, run=run)


def test_batches_change_no_logit(reader: Artifact) -> None:
    asked = [(TEXT[:n], Question(str(n), "When was it built?")) for n in (200, 30, 90, 0)]
    windows = encode_questions(asked, reader.tokenizer, WindowSettings(30, 9, 8))
    together = window_logits(reader.model, windows, reader.tokenizer.pad_id, "fp32")
    for one, found in zip(windows, together, strict=True):
        (alone,) = window_logits(reader.model, [one], reader.tokenizer.pad_id, "fp32")
        assert found.shape == (len(one.ids), 2)
        np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)


def test_a_reader_answers_with_characters_of_the_context(reader: Artifact, tmp_path: Path) -> None:
    folder = artifact.save(reader, tmp_path / "reader")
    loaded = QAModel(folder, precision="fp32")
    found = loaded.ask("When was it built?", TEXT)
    assert found.text
    assert len(found.best) == 5
    assert all(TEXT[f.start : f.end] == f.text for f in found.best)
    assert found == QAModel(reader, precision="fp32").ask("When was it built?", TEXT)
    assert len(QAModel(folder, n_best=2).ask("When?", TEXT).best) == 2
    asked = Squad((*single_question("When?", TEXT, "a").articles, *single_question("Who?", "", "b").articles))
    assert answers_by_id(loaded.answer(asked)).keys() == {"a", "b"}
    assert answers_by_id(loaded.answer(asked))["b"] == ""


def test_evaluation_of_a_reader_is_that_of_its_answers(reader: Artifact) -> None:
    own = QAModel(reader, precision="fp32").ask("When?", TEXT).text
    paragraph = {"context": TEXT, "qas": []}
    for id, text in (("own", own), ("other", "Eiffel")):
        answers = [{"text": text, "answer_start": TEXT.index(text)}]
        paragraph["qas"].append({"id": id, "question": "When?", "answers": answers})
    found = QAModel(reader, precision="fp32").evaluate(parse_squad({"data": [{"paragraphs": [paragraph]}]}))
    assert found["questions"] == 2
    assert found["exact_match"]["mean"] == 0.5


def test_mistakes(tiny_lm: Path) -> None:
    with pytest.raises(UserError, match=r"does not answer questions.*textgraft qa finetune"):
        QAModel(tiny_lm)
    with pytest.raises(UserError, match=r"'1' the first.*qa answer"):
        scores(single_question("Who?", "x"), {})
    for bad in ({"n_best": 0}, {"max_answer_tokens": 0}):
        with pytest.raises(UserError):
            SearchSettings(**bad)


def test_sentences_end_at_marks_or_else_at_spaces() -> None:
    def cut(text: str) -> list[str]:
        return [text[a:b] for a, b in sentence_spans(text)]

    assert cut("One. Two! (Three?) Four") == ["One.", "Two!", "(Three?)", "Four"]
    assert cut("It costs 3.5 metres.\nNext") == ["It costs 3.5 metres.", "Next"]
    assert cut("一。二。") == ["一。", "二。"]
    assert cut("หอคอยสูง 330 เมตร") == ["หอคอยสูง", "330", "เมตร"]
    assert cut("  ") == []
    assert cut("Only one.") == ["Only one."]


def test_the_nearest_sentence_shares_most_with_the_question() -> None:
    asked = [
        (TEXT, Question("a", "Who painted it, and how many years?", (Answer("x", 0),))),
        (TEXT, Question("b", "How tall is the tower?")),
        ("หอคอยสูง 330เมตร ทาสีปี1892", Question("c", "ทาสีปีไหน")),
        ("", Question("d", "?")),
    ]
    found = nearest_sentences(asked)
    assert found == {"a": "It is painted every seven years.", "b": "The tower is tall.", "c": "ทาสีปี1892", "d": ""}
    assert nearest_sentences([("", Question("d", "?"))]) == {"d": ""}
