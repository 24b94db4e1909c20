"""Where nobody names a language model, it is one for the script of the texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft import SequenceTagger, TextClassifier, TextEmbedder, adapt, compare, finetune
from textgraft.comparison.methods import MethodOptions
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.conll import Sentence, Tagged
from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import Labels
from textgraft.data.squad import Article, Paragraph, Question, Squad
from textgraft.distillation import distil
from textgraft.experiments import layer_aggregation, transfer
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline
from textgraft.models import default_models, loading
from textgraft.models.artifact import save
from textgraft.models.default_models import ENGLISH, THAI, DefaultModels, default_models_for
from textgraft.models.loading import load_network
from textgraft.models.model_folder import names
from textgraft.tasks import learning_rates
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.question_answering import finetune as qa
from textgraft.training.settings import Settings

TEXTS = ["ดีมาก ชอบมาก", "แย่ ไม่ชอบเลย", "สนุกดี", "น่าเบื่อมาก", "ดีจริง ๆ", "ไม่ดีเลย"] * 4
LABELS = ["ดี", "แย่"] * 12
QUICK = Settings(minutes=0.01)


@pytest.mark.parametrize(
    ("texts", "usual"),
    [
        (["What is this?"], ENGLISH),
        ([], ENGLISH),
        (["123 !?", ""], ENGLISH),
        (["Was ist das?", "Что это?"], ENGLISH),
        (["โทรศัพท์ของผมเสีย"], THAI),
        (["เน็ตช้า wifi", "hello", "อยากเปลี่ยนโปรโมชั่นครับ"], THAI),
        (["the word ครับ is polite", "so is ค่ะ"], ENGLISH),
        ([Pair("ราคาเท่าไร", "price")], THAI),
    ],
)
def test_the_script_of_most_letters_decides(texts: list[str], usual: DefaultModels) -> None:
    assert default_models_for(texts) == usual


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_text_has_one_and_digits_and_signs_have_no_say(texts: list[str]) -> None:
    found = default_models_for(texts)
    assert found in (ENGLISH, THAI)
    assert default_models_for([f"12 {text} ... ๓" for text in texts]) == found


def test_they_are_in_the_box() -> None:
    assert {*ENGLISH, *THAI} <= set(names())


def test_fine_tuning_takes_the_one_that_suits_what_is_made() -> None:
    english, thai = (Examples(texts, LABELS, "single") for texts in (["words of English"] * 24, TEXTS))
    assert FinetuneOptions().default_model(english) == ENGLISH.ensemble
    assert FinetuneOptions().default_model(thai) == THAI.ensemble
    for alone in (FinetuneOptions(recipe="ulmfit"), FinetuneOptions(from_scratch=True)):
        assert (alone.default_model(english), alone.default_model(thai)) == (ENGLISH.alone, THAI.alone)


@pytest.fixture
def small(tiny_lm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is quick to train in the place of the Thai ones; an English one would be a mistake."""
    monkeypatch.setattr(default_models, "THAI", DefaultModels(str(tiny_lm), str(tiny_lm)))
    monkeypatch.setattr(default_models, "ENGLISH", DefaultModels("no such model", "no such model"))
    return tiny_lm


@pytest.mark.slow
def test_whatever_learns_from_thai_texts_takes_it(small: Path, tmp_path: Path) -> None:
    train = Examples(TEXTS, LABELS, "single")
    base = loading.load_network(small).run["name"]
    adapted = load_network(adapt(TEXTS * 20, tmp_path / "adapted", settings=QUICK, context=QUIET))
    assert adapted.run["base"]["name"] == base
    asked: dict[str, Any] = {"options": FinetuneOptions(recipe="lstm-small", folds=2, settings=QUICK), "context": QUIET}
    assert finetune(train, tmp_path / "made", **asked).record["base"]["name"] == base
    options = MethodOptions(show=False, max_tokens=16, seeds=1)
    results = compare(train, tmp_path / "curve", methods=["frozen"], labels=[12], options=options)
    assert results["run"]["model"] == str(small)
    classifier = TextClassifier(recipe="lstm-small", folds=2, max_tokens=16).fit(TEXTS, LABELS)
    assert classifier.classifier_.members[0].run["base"]["name"] == base
    assert TextEmbedder().fit(TEXTS).artifact_.run["name"] == base
    tagger = SequenceTagger().fit([["ดี", "มาก"], ["มาก", "ดี"]] * 4, [["A", "B"], ["B", "A"]] * 4)
    assert np.shape(tagger.predict([["ดี", "มาก"]])) == (1, 2)


def reads(texts: list[str]) -> Squad:
    return Squad((Article("a", tuple(Paragraph(text, (Question(str(i), "?"),)) for i, text in enumerate(texts))),))


@pytest.mark.parametrize(("texts", "missing"), [(TEXTS, "Thai"), (["words of English"] * 24, "English")])
def test_so_does_whatever_else_has_texts(
    texts: list[str], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks for the model by its name, of which the error tells."""
    monkeypatch.setattr(default_models, "THAI", DefaultModels("no Thai model", ""))
    monkeypatch.setattr(default_models, "ENGLISH", DefaultModels("no English model", ""))
    train, tagged = Examples(texts, LABELS, "single"), Tagged((Sentence(tuple(texts), ("O",) * len(texts)),))
    labels = Labels.fit(train)
    fitted = LinearBaseline().fit(texts, labels.encode(train), kind="single", num_classes=2).fitted
    teacher = save(LinearArtifact(fitted, labels, {"name": "teacher", "stage": "finetune"}), tmp_path / "teacher")
    asked: list[Any] = [
        lambda: learning_rates.lr_find(train),
        lambda: learning_rates.lr_find(texts),
        lambda: transfer.inspect_transfer(train, tmp_path / "t"),
        lambda: layer_aggregation.inspect_layers(train, tmp_path / "r", test=train),
        lambda: layer_aggregation.inspect_layers(tagged, tmp_path / "r", test=tagged),
        lambda: qa.qa_finetune(reads(texts), tmp_path / "q"),
        lambda: distil.distil(teacher, [f"{text} {i}" for i, text in enumerate(texts)], tmp_path / "d"),
    ]
    for ask in asked:
        with pytest.raises(UserError, match=f"no {missing} model"):
            ask()
