"""SequenceTagger as scikit-learn uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up_questions import write_recipe
from made_up_tags import sentences, write_encoder
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from textgraft import SequenceTagger
from textgraft.cli import main
from textgraft.core.errors import UserError
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.tasks.tagging.stacked import Network

X, Y = ([list(getattr(s, part)) for s in sentences(90, 1, names=True).sentences] for part in ("words", "tags"))
SMALL = Network(hidden_dim=12, character_filters=4)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("estimator")
    recipe = str(write_recipe(folder, 16))
    return {"stack": [str(write_encoder(folder, "bert"))], "recipe": recipe, "network": SMALL, "precision": "fp32"}


@pytest.mark.slow
def test_learns_answers_and_is_saved_as_any_tagger(given: dict[str, Any], tmp_path: Path) -> None:
    tagger = SequenceTagger(**given).fit(X[:70], Y[:70])
    assert tagger.score(X[70:], Y[70:]) > 0.8
    found, sure = tagger.predict(X[70:]), tagger.predict_confidence(X[70:])
    assert [len(row) for row in found] == [len(row) for row in sure] == [len(words) for words in X[70:]]
    assert {tag for row in found for tag in row} <= set(tagger.classes_)
    assert all(0 <= p <= 1 for row in sure for p in row)
    folder = tagger.save(tmp_path / "saved")
    predictions = Tagger(folder, precision="fp32").tag([tuple(words) for words in X[70:]])
    assert [list(r.probabilities) for r in predictions] == sure
    _texts_are_no_sentences(Tagger(folder))
    again = SequenceTagger(**given).fit(X[:70], Y[:70])
    assert again.predict_confidence(X[70:]) == sure  # bit for bit


@pytest.mark.slow
@pytest.mark.parametrize("stacked", [False, True])
def test_fit_is_what_tag_finetune_of_the_command_line_does(
    stacked: bool, given: dict[str, Any], tmp_path: Path
) -> None:
    """The same tags and probabilities to the digit, from the same sentences by the same seed."""
    given = {key: value for key, value in given.items() if key != "network"}
    encoder = given["stack"][0]
    if not stacked:
        del given["stack"]
        given["model"] = encoder
    train = tmp_path / "train.conll"
    sentences = ["".join(f"{w} {t}\n" for w, t in zip(*both, strict=True)) for both in zip(X[:40], Y[:40], strict=True)]
    train.write_text("\n".join(sentences))
    command = ["tag", "finetune", train, "-o", tmp_path / "cli", "--stack" if stacked else "--model", encoder]
    command += ["--recipe", given["recipe"], "--precision", "fp32", "--seed", 3, "--quiet"]
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in command])
    assert not left.value.code
    tagger = SequenceTagger(**given, seed=3).fit(X[:40], Y[:40])
    theirs = Tagger(tmp_path / "cli", precision="fp32").tag([tuple(words) for words in X[70:]])
    assert tagger.predict_confidence(X[70:]) == [list(prediction.probabilities) for prediction in theirs]
    for folder in (tmp_path / "cli", tagger.save(tmp_path / "estimator")):
        again = SequenceTagger.from_artifact(folder, precision="fp32")
        assert again.predict_confidence(X[70:]) == tagger.predict_confidence(X[70:])
        assert again.classes_ == tagger.classes_
        assert {n: c.score for n, c in again.candidates_.items()} == {n: c.score for n, c in tagger.candidates_.items()}


@pytest.mark.slow
def test_the_report_has_the_held_out_score_beside_the_baseline(given: dict[str, Any]) -> None:
    tagger = SequenceTagger(**given).fit(X[:70], Y[:70])
    report = tagger.report_
    assert report is not None
    assert (report.method, report.metric, report.evaluated_on, report.texts) == ("tagger", "f1", "held out", 6)
    assert report.interval[0] <= report.score <= report.interval[1]
    assert {name: one.weight for name, one in tagger.candidates_.items()} == {"tagger": 1, "frequent tag": 0}
    assert "frequent tag" in str(report)
    assert "frequent tag" in report._repr_html_()


def _texts_are_no_sentences(tagger: Tagger) -> None:
    """Their characters are not tagged as if they were words."""
    for given, place in (("one text", "sentences"), (["one text"], r"sentences\[0\]")):
        with pytest.raises(UserError, match=f"^{place}: this is one text. Pass a list of lists of words"):
            tagger.tag(given)
    with pytest.raises(UserError, match=r"^texts: this is one text\. Pass a list of texts"):
        tagger.tag_texts("one text")
    with pytest.raises(UserError, match=r"texts\[1\]: the text is missing"):
        tagger.tag_texts(["one text", None])


def test_one_encoder_and_tags_of_other_schemes(given: dict[str, Any]) -> None:
    bioes = [["S-x", "O"], ["B-x", "E-x"]] * 8
    words = [["a", "."], ["a", "b"]] * 8
    tagger = SequenceTagger(given["stack"][0], recipe=given["recipe"], precision="fp32").fit(words, bioes)
    assert set(tagger.classes_) == {"O", "B-x", "I-x"}
    assert {tag for row in tagger.predict(words) for tag in row} <= {"O", "B-x", "I-x"}


@pytest.mark.slow
def test_clone_search_and_cross_validation(given: dict[str, Any]) -> None:
    tagger = SequenceTagger(**given)
    assert clone(tagger).get_params() == tagger.get_params()
    with pytest.raises(NotFittedError):
        clone(tagger).predict(X[:1])
    quick = tagger.set_params(network=Network(hidden_dim=4, character_filters=2))
    search = GridSearchCV(quick, {"crf": [False, True]}, cv=2, error_score="raise").fit(X[:30], Y[:30])
    assert set(search.cv_results_["param_crf"]) == {False, True}
    assert len(cross_val_score(quick, X[:30], Y[:30], cv=2, error_score="raise")) == 2


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("a text", [["O"]], "one text"),
        (["a text"], [["O"]], "no list of words"),
        ([[]], [[]], "no list of words"),
        ([["a", 1]], [["O", "O"]], "not a string"),
        ([["a", "b"]], [["O"]], "a tag for each word"),
        ([["a"]], [["O"], ["O"]], "inconsistent"),
        ([["a", "b", "c"]], [["B-x", "O", "I-x"]], "sentence 'a b c', word 2: I-x may not"),
    ],
)
def test_what_is_no_data_is_explained(given: dict[str, Any], x: Any, y: Any, message: str) -> None:
    with pytest.raises((UserError, ValueError), match=f"(?i){message}"):
        SequenceTagger(**given).fit(x, y)
