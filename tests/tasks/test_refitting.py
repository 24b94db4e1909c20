"""An estimator from a folder can be fitted again, and then is what the first fit gave."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import textgraft
from textgraft import SequenceTagger, TextClassifier
from textgraft.data.examples import Examples
from textgraft.tasks.classification.finetune_options import FinetuneOptions

TEXTS = [f"a {word} {what} number {i}" for i in range(6) for word in ("great", "poor") for what in ("film", "end")]
LABELS = ["pos", "pos", "neg", "neg"] * 6
DATA = TEXTS, LABELS
POOL = [
    f"the {word} {what} was {word} {i}" for i in range(40) for word in ("great", "poor") for what in ("film", "end")
]
WORDS = [["Ann", "lives", "in", "Rome"], ["Bob", "works"], ["Rome", "is", "old"], ["Ann", "is", "old"]]
TAGS = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O"], ["B-LOC", "O", "O"], ["B-PER", "O", "O"]]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "lsa", "co-training", "linear-probe"])
def test_a_refitted_classifier_predicts_the_same(method: str, tmp_path: Path) -> None:
    model = "en-gpt-small" if method == "linear-probe" else None
    pool = POOL if method in ("lsa", "co-training") else None
    first = TextClassifier(model, method=method, seed=3, max_tokens=64, adapt=False).fit(*DATA, unlabelled=pool)
    again = TextClassifier.from_artifact(first.save(tmp_path / "model"))
    expected = {"model": model, "method": method, "seed": 3, "max_tokens": 64}
    assert {name: again.get_params()[name] for name in expected} == expected
    before = again.predict_proba(TEXTS)
    for refitted in (again.set_params(adapt=False), clone(again)):
        refitted.fit(*DATA, unlabelled=pool)
        np.testing.assert_array_equal(refitted.predict_proba(TEXTS), before)
        assert list(refitted.candidates_) == list(first.candidates_)


def test_what_finetune_saved_has_its_method_too(tmp_path: Path) -> None:
    """A linear classifier that was named is fitted again; one that was selected is selected again."""
    train = Examples(TEXTS, LABELS, "single")
    textgraft.finetune(train, tmp_path / "named", options=FinetuneOptions(method="linear", report=False))
    named = TextClassifier.from_artifact(tmp_path / "named")
    assert (named.method, named.model) == ("linear", None)
    assert named.fit(TEXTS, LABELS).report_.method == "linear"


@pytest.mark.parametrize(
    ("run", "parameters"),
    [
        ({"method": "ensemble", "base": {"name": "en-gpt-small"}}, ("ensemble", "en-gpt-small")),
        ({"ensemble": {}, "base": None}, ("ensemble", None)),
        ({"method": "fine-tuned", "base": {"name": "my-model"}}, ("fine-tuned", None)),
        ({}, ("fine-tuned", None)),
    ],
    ids=["selected", "earlier ensemble", "another model", "no record"],
)
def test_parameters_by_record(run: dict[str, Any], parameters: tuple[str, str | None], tmp_path: Path) -> None:
    """A classifier that is no network is nothing to start from; a language model is, if it is bundled."""
    first = TextClassifier(method="linear").fit(TEXTS, LABELS)
    first.models_.run.pop("method")
    for key in ("ensemble", "results", "base"):
        first.models_.run.pop(key, None)
    first.models_.run.update(run)
    again = TextClassifier.from_artifact(first.save(tmp_path / "model"))
    assert (again.method, again.model) == parameters


@pytest.mark.slow
def test_a_refitted_tagger_keeps_its_tags(tmp_path: Path) -> None:
    """One over a stack starts from its folder, in which the stack is; its CRF and scheme are learned again."""
    first = SequenceTagger(stack=["en-vectors"], seed=2, minutes=0.005).fit(WORDS, TAGS)
    folder = first.save(tmp_path / "tagger")
    again = SequenceTagger.from_artifact(folder)
    expected = {"model": str(folder), "stack": None, "crf": True, "scheme": "BIOES", "seed": 2}
    assert {name: again.get_params()[name] for name in expected} == expected
    again.set_params(minutes=0.005).fit(WORDS, TAGS)
    assert again.classes_ == first.classes_
    assert again.tagger_.artifact.stack.names == ["en-vectors"]
    assert again.tagger_.config.crf
