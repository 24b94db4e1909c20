"""A prediction says where no model knows anything in the text."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_questions import encoder
from made_up_reviews import reviews
from programs import call

import textgraft
from textgraft.data.examples import Pair
from textgraft.data.labels import Labels
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.encoder_features import EncoderFeatures
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.word_vector_features import WordVectorFeatures
from textgraft.models.artifact import save
from textgraft.tasks.classification.explaining import explain
from textgraft.tasks.classification.explanation_page import explanations_page
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.service import ClassificationService

TEXTS, NAMES = reviews(120)
TARGETS = np.array([name == "pos" for name in NAMES]).astype(int)
NOTHING = ["", " \u00a0", "zxcv qwyp", "บริการดีมากครับ 2560"]


def linear(features: Any = None) -> LinearArtifact:
    method = LinearBaseline() if features is None else LsaBaseline(feature_maps=[features.fit(TEXTS)])
    return LinearArtifact(method.fit(TEXTS, TARGETS).fitted, Labels("single", ("neg", "pos")), {"stage": "finetune"})


@pytest.mark.parametrize(
    "features",
    [None, LSAFeatures(dimensions=4), ParagraphFeatures(dimensions=4), WordVectorFeatures(dimensions=4)],
)
def test_a_linear_method_knows_its_own_words(features: Any) -> None:
    model = linear(features)
    word = TEXTS[0].split()[0]
    assert model.knows([*TEXTS[:5], word.upper(), f"zxcv {word}"]).all()
    assert not model.knows(NOTHING).any()


def test_a_misspelt_word_is_known_by_its_letters() -> None:
    model, word = linear(), max(TEXTS[0].split(), key=len)
    assert model.knows([f"{word}{word[-1]}"]).all()


def test_a_feature_map_of_an_encoder_knows_what_its_tokenizer_knows() -> None:
    model = linear(EncoderFeatures(encoder("gpt"), max_tokens=40))
    assert model.knows(["the river stone lamp"]).all()
    assert not model.knows(["", "บริการดีมากครับ"]).any()


def test_scripts_without_spaces() -> None:
    thai = ["บริการดีมากครับ", "อินเทอร์เน็ตช้ามาก", "พอใช้ได้ธรรมดา"] * 10
    model = LinearBaseline().fit(thai, np.arange(30) % 2).fitted
    assert model.knows(["บริการช้ามาก", "OK", "", "hello world"]).tolist() == [True, False, False, False]


def test_an_ensemble_knows_what_a_member_knows_and_says_so_everywhere(tmp_path: Path) -> None:
    classifier = Classifier([linear(), linear(LSAFeatures(dimensions=4))])
    given = [TEXTS[0], *NOTHING]
    assert [prediction.known for prediction in classifier.predict(given)] == [True, False, False, False, False]
    service = ClassificationService(classifier)
    request: Any = service.REQUESTS["texts"](texts=given)
    answer = service.to_response(request, service.answer(service.to_items(request)))
    assert [one["known"] for one in answer["predictions"]] == [True, False, False, False, False]
    folder = save(linear(), tmp_path / "model")
    assert [one.known for one in textgraft.predict(folder, given[:2])] == [True, False]


def test_an_explanation_says_so_as_json_and_on_the_page(tmp_path: Path) -> None:
    known, unknown = explain(Classifier([linear()]), [TEXTS[0], "zxcv qwyp"])
    assert [one.as_json()["known"] for one in (known, unknown)] == [True, False]
    assert "knows nothing in this text" in "".join(explanations_page([unknown]))
    assert "knows nothing" not in "".join(explanations_page([known]))


def test_the_command_warns_of_them(tmp_path: Path) -> None:
    folder = save(linear(), tmp_path / "model")
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{TEXTS[0]}\n\nzxcv qwyp\n{TEXTS[1]}\n")
    done = call("predict", folder, texts)
    assert [json.loads(line)["known"] for line in done.out.splitlines()] == [True, False, True]
    assert "1 of 3 texts are unknown to the model (line 3)" in done.err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "unknown" not in call("predict", folder, "--input-text", TEXTS[0]).err


def test_numbers_and_pairs_too() -> None:
    model = LinearBaseline().fit(TEXTS, TARGETS.astype(float), kind="numeric").fitted
    predictions = Classifier([LinearArtifact(model, Labels("numeric", mean=0.0, std=1.0), {})]).predict(["zxcv qwyp"])
    assert [prediction.known for prediction in predictions] == [False]
    pairs = [Pair(a, b) for a, b in zip(TEXTS[::2], TEXTS[1::2])]
    of_pairs = LinearBaseline().fit(pairs, np.arange(60) % 2).fitted
    assert of_pairs.knows([pairs[0], Pair("zxcv", "qwyp")]).tolist() == [True, False]
