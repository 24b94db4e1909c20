"""Every method that `compare` knows keeps one contract, and the quick ones learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import reviews
from small_comparisons import examples, quick_options, write_family, write_vectors

from textgraft.comparison.methods import (
    METHODS,
    MODEL_METHODS,
    Method,
    MethodOptions,
    Predictions,
    model_for,
    new_method,
)
from textgraft.comparison.methods.base import KINDS as KINDS_OF_TARGETS
from textgraft.comparison.methods.base import ONE_LABEL
from textgraft.comparison.methods.default import Default
from textgraft.comparison.methods.linear import linear_method
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.linear import fasttext
from textgraft.linear.methods import LINEAR_METHODS
from textgraft.models import inference
from textgraft.models.default_models import THAI
from textgraft.tasks.classification import early_rejection, model_selection
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.linear_candidates import CANDIDATE_METHODS
from textgraft.training.phases import Stage
from textgraft.training.settings import Settings


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasttext, "MIN_TEXTS_SEEN", 600)


@pytest.fixture
def quick(tmp_path: Path, tiny_lm: Path) -> MethodOptions:
    return quick_options(tmp_path, tiny_lm)


KINDS: dict[str, Any] = {
    "single": lambda names: names,
    "multi": lambda names: [("film", name) if name == "pos" else ("film",) for name in names],
    "numeric": lambda names: [100.0 * (name == "pos") + i % 5 for i, name in enumerate(names)],
}


CALLS = [
    *METHODS,  # a method with a model of its own is given one as small in its place
    "vectors@VECTORS",
    "features@LM+VECTORS",
    "no-adapt@LM+FLAIR",
    "default@LM+FLAIR",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_lm: Path) -> dict[str, str]:
    """The models that CALLS name, and those of the families."""
    folder = tmp_path_factory.mktemp("models")
    own = {name: write_family(folder, name) for name, method in METHODS.items() if method.model}
    return own | {"LM": str(tiny_lm), "VECTORS": str(write_vectors(folder)), "FLAIR": own["flair"].split("+")[0]}


def called(name: str, models: dict[str, str], options: MethodOptions) -> Method:
    method, _, named = name.partition("@")
    model = models[method] if method in models else "+".join(models[part] for part in named.split("+") if part)
    return new_method(f"{method}@{model}" if model else method, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in CALLS for kind in METHODS[name.partition("@")[0]].kinds]
)
def test_every_method_answers(
    name: str, kind: TargetKind, quick: MethodOptions, models: dict[str, str], tmp_path: Path
) -> None:
    texts, names = reviews(24, 1)
    train = Examples(texts, KINDS[kind](names), kind)
    labels, unseen = Labels.fit(train), reviews(9, 2)[0]

    def answered(folder: Path) -> Predictions:
        method = called(name, models, quick)
        method.prepare(reviews(60, 3)[0] if method.needs_pool else [], folder / "prepared")
        return method.train_and_predict(train, unseen, labels, 5, folder / "cell")

    answers = answered(tmp_path / "one")
    assert answers.outputs.shape == ((9,) if kind == "numeric" else (9, 2))
    assert np.isfinite(answers.outputs).all()
    if kind != "numeric":
        assert answers.outputs.min() >= 0
        assert answers.outputs.max() <= 1
    if kind == "single":
        assert answers.outputs.sum(1) == pytest.approx(np.ones(9))
    assert answers.outputs.std(0).max() > 0
    assert answers.model_bytes > 100
    assert answers.about
    assert np.array_equal(answered(tmp_path / "two").outputs, answers.outputs)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    assert method.about.endswith(".")
    assert MODEL_METHODS.get(name, method).name == name
    assert not method.model or name in MODEL_METHODS


def test_a_line_of_linear_methods_is_a_method_of_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [name for name in METHODS if name in LINEAR_METHODS] == list(LINEAR_METHODS)
    linear = LINEAR_METHODS["linear"]
    monkeypatch.setitem(LINEAR_METHODS, "another", replace(linear, about="Another.", one_label_only=True))
    another, lsa = linear_method("another"), METHODS["lsa"]
    assert (another.name, another.about, another.needs_pool, another.kinds) == ("another", "Another.", False, ONE_LABEL)
    assert (lsa.needs_pool, lsa.kinds) == (True, KINDS_OF_TARGETS)


def test_a_line_of_linear_methods_is_a_candidate_of_finetune() -> None:
    assert tuple(name for name in LINEAR_METHODS if name != "vectors") == CANDIDATE_METHODS


@pytest.mark.parametrize("name", ["linear", "lsa", "vectors", "co-training", "fasttext"])
def test_the_quick_methods_learn(name: str, quick: MethodOptions, tmp_path: Path) -> None:
    train, test = examples(60), examples(40, seed=2)
    labels, method = Labels.fit(train), METHODS[name](quick)
    method.prepare(reviews(100, 3)[0], tmp_path)
    outputs = method.train_and_predict(train, test.texts, labels, 0, tmp_path).outputs
    assert (outputs.argmax(1) == labels.encode(test)).mean() > 0.8


@pytest.mark.slow
def test_the_default_is_what_finetune_makes(tiny_lm: Path, tmp_path: Path) -> None:
    train, test, pool = examples(30), examples(12, seed=2), reviews(40, 3)[0]
    options = FinetuneOptions(max_tokens=32, settings=Settings(seed=4))
    made = finetune(train, tmp_path / "made", model=tiny_lm, test=test, unlabelled=pool, options=options, context=QUIET)
    method = Default(MethodOptions(model=tiny_lm, max_tokens=32, seed=4, show=False))
    for one in method._models:  # finetune leaves adapting to the command line
        one._adapt_stage = Stage  # type: ignore[method-assign]
    method.prepare(pool, tmp_path / "prepared")
    answers = method.train_and_predict(train, test.texts, Labels.fit(train), 4, tmp_path / "cell")
    assert made.comparison.outcomes[0].name == "ensemble"
    np.testing.assert_array_equal(answers.outputs, made.comparison.outcomes[0].outputs[0])
    assert answers.about.startswith(made.comparison.outcomes[0].about)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "readings"),
    [("frozen", "single", 1), ("frozen", "numeric", 1), ("no-adapt", "single", 3), ("default", "single", 4)],
)
def test_what_a_model_that_stands_still_says_of_the_test_is_asked_once(
    name: str, kind: TargetKind, readings: int, quick: MethodOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three trainings: of 20, 30 and 20 texts, asked for the same 40; and each answers as if it were the only one."""
    quick = replace(quick, precision="fp32")  # in bfloat16 an answer depends on what is read beside it
    texts, names = reviews(30, 1)
    train, asked = Examples(texts, KINDS[kind](names), kind), reviews(40, 2)[0]
    labels = Labels.fit(train)
    monkeypatch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 0.0)  # no candidate is rejected
    monkeypatch.setattr(
        model_selection, "ensemble_weights", lambda answers, *_, **__: np.full(len(answers), 1 / len(answers))
    )
    read: list[int] = []
    real = inference.budget_batches
    monkeypatch.setattr(inference, "budget_batches", lambda sizes, **how: read.append(len(sizes)) or real(sizes, **how))

    def made() -> Method:
        method = METHODS[name](quick)
        method.prepare([], tmp_path / "prepared")
        return method

    def answered(method: Method, count: int, cell: str) -> np.ndarray:
        some = train.take(list(range(count)))
        return method.train_and_predict(some, asked, labels, 5, tmp_path / cell).outputs

    once, cells = made(), [(20, "a"), (30, "b"), (20, "c")]
    together = [answered(once, count, cell) for count, cell in cells]
    tests_read = read.count(40)
    alone = [answered(made(), count, f"{cell}-alone") for count, cell in cells]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert tests_read == readings  # of default: the probe's, and each training's
    assert answered(once, 20, "again").tolist() == together[0].tolist()
    other = once.train_and_predict(train.take(list(range(20))), asked[:5], labels, 5, tmp_path / "others")
    np.testing.assert_allclose(other.outputs, together[0][:5], atol=1e-5)


def test_where_no_model_is_named_a_blend_has_the_gpt_and_who_is_asked_about_ulmfits() -> None:
    assert {name: model_for(name, MethodOptions()) for name in ("default", "ulmfit", "features", "bert")} == {
        "default": "en-gpt-small",
        "ulmfit": "en-ulmfit",
        "features": "en-ulmfit",
        "bert": "en-bert-small",
    }
    assert model_for("default@a+b", MethodOptions(model="th-ulmfit")) == "a+b"
    assert {model_for(name, MethodOptions(model="th-ulmfit")) for name in ("default", "ulmfit")} == {"th-ulmfit"}
    thai = MethodOptions(default_models=THAI)
    assert [model_for(name, thai) for name in ("default", "ulmfit", "bert")] == [*reversed(THAI), "en-bert-small"]


def test_the_ngrams_that_fasttext_hashes() -> None:
    first, second, third, one, two = fasttext.hashed_ngrams("Good, bad good").tolist()
    assert first == third != second
    assert one != two  # "good bad" is not "bad good"
    assert fasttext.hashed_ngrams("bad good").tolist() == [second, first, two]
    assert len(fasttext.hashed_ngrams("ดี มาก", words=False)) == 5 + 4 + 3
    assert len(fasttext.hashed_ngrams("one")) == 1
    assert len(fasttext.hashed_ngrams("")) == 0
    assert fasttext.hashed_ngrams("many words in here", bins=3).max() < 3


def test_fasttext_reads_scripts_without_spaces(quick: MethodOptions, tmp_path: Path) -> None:
    texts = [("ดีมากชอบ" if i % 2 else "แย่มากไม่ชอบเลย") * (1 + i % 3) for i in range(30)]
    train = Examples(texts, ["good" if i % 2 else "bad" for i in range(30)], "single")
    answers = METHODS["fasttext"](quick).train_and_predict(
        train, ["ดีมาก", "แย่ไม่เลย", ""], Labels.fit(train), 0, tmp_path
    )
    assert answers.outputs.argmax(1)[:2].tolist() == [1, 0]
    assert "character" in answers.about
