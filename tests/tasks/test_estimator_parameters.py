"""Parameters of the estimators: `fit` refuses wrong ones by name, and no two remedies lead to each other."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

import textgraft
from textgraft import SequenceTagger, TextClassifier, TextEmbedder
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.tasks.classification import embedder
from textgraft.tasks.classification import estimator as classification
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.tagging import estimator as tagging

TEXTS = [f"{word} {what}" for word in ("great", "poor") for what in ("film", "story", "acting", "end")]
LABELS = ["pos"] * 4 + ["neg"] * 4
WORDS, TAGS = [["Ann", "sings"], ["Bob", "works"]], [["B-PER", "O"], ["B-PER", "O"]]
RULES = [
    (TextClassifier, classification.PARAMETERS, {"unlabelled"}),
    (TextEmbedder, embedder.PARAMETERS, set()),
    (SequenceTagger, tagging.PARAMETERS, set()),
]
WRONG: list[tuple[type, str, Any]] = [
    *((TextClassifier, "folds", value) for value in ("x", 2.5, 0, 1, True, np.float64(3))),
    *((kind, "minutes", value) for kind in (TextClassifier, SequenceTagger) for value in ("x", True, 0, float("nan"))),
    *((kind, "seed", value) for kind in (TextClassifier, SequenceTagger) for value in ("a", None, -1, 1.0, True)),
    *((kind, "max_tokens", value) for kind in (TextClassifier, TextEmbedder, SequenceTagger) for value in ("8", 0)),
    *((kind, "precision", "int7") for kind in (TextClassifier, TextEmbedder, SequenceTagger)),
    *((kind, "model", value) for kind in (TextClassifier, TextEmbedder, SequenceTagger) for value in (3, "")),
    *((TextClassifier, "class_weights", value) for value in ("auto", {"pos": "x"}, {"pos": 0}, None)),
    *((kind, "verbose", "yes") for kind in (TextClassifier, SequenceTagger)),
    (TextClassifier, "adapt", None),
    (TextClassifier, "method", "liner"),
    (TextClassifier, "method", None),
    (TextClassifier, "recipe", 3),
    (TextEmbedder, "pooling", 3),
    (TextEmbedder, "layers", "top"),
    (SequenceTagger, "stack", "en-gpt-small"),
    (SequenceTagger, "stack", []),
    (SequenceTagger, "recipe", None),
    (SequenceTagger, "crf", "yes"),
    (SequenceTagger, "scheme", "IOB"),
    (SequenceTagger, "network", 3),
]


@pytest.mark.parametrize(("kind", "rules", "others"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_parameter_has_a_rule_that_its_default_keeps(kind: type, rules: Any, others: set[str]) -> None:
    parameters = kind().get_params()
    assert set(rules) == set(parameters) - others
    assert {name: rule(parameters[name]) for name, rule in rules.items()} == dict.fromkeys(rules, "")


def test_the_time_limit_may_be_none_at_all() -> None:
    limit = classification.PARAMETERS["minutes"]
    assert {limit(value) for value in (None, math.inf, 0.5, np.float32(3))} == {""}
    assert all(limit(value) for value in (-math.inf, -1))


@pytest.mark.parametrize(("kind", "name", "value"), WRONG, ids=lambda value: getattr(value, "__name__", repr(value)))
def test_fit_refuses_a_wrong_value_by_name(kind: type, name: str, value: Any) -> None:
    made: Any = clone(kind()).set_params(**{name: value})  # neither __init__ nor set_params validates
    arguments = (WORDS, TAGS) if kind is SequenceTagger else (TEXTS, LABELS)
    with pytest.raises(UserError) as refused:
        made.fit(*arguments)
    assert (refused.value.where, refused.value.message) == (kind.__name__, f"the parameter {name} is {value!r}.")
    assert refused.value.remedy.startswith(("Give ", "Known: "))


@pytest.mark.slow
def test_numbers_of_a_grid_are_pythons_or_numpys() -> None:
    grid = {"seed": np.arange(2), "folds": np.array([2, 3]), "max_tokens": [np.int32(64)], "verbose": [0]}
    search = GridSearchCV(TextClassifier(method="linear"), grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_params_["folds"] in (2, 3)


def test_a_model_that_no_method_needs_must_exist_all_the_same() -> None:
    """A grid of methods may name one model for all of them; a misspelt one is found with the first method."""
    with pytest.raises(UserError, match=r"no model 'en-gtp-small'.*Did you mean 'en-gpt-small'"):
        TextClassifier("en-gtp-small", method="linear").fit(TEXTS, LABELS)
    with pytest.raises(UserError, match="no model 'nothing'"):
        TextClassifier("en-gpt-small+nothing", method="linear").fit(TEXTS, LABELS)
    assert TextClassifier("en-gpt-small", method="linear").fit(TEXTS, LABELS).classes_.tolist() == ["neg", "pos"]


@pytest.mark.parametrize("method", ["linear", "linear-probe"])
def test_minutes_need_something_that_may_be_left_out(method: str) -> None:
    with pytest.raises(UserError, match=f"minutes has no meaning for the method '{method}'.*method 'ensemble'"):
        TextClassifier(method=method, minutes=3).fit(TEXTS, LABELS)


def test_the_remedies_for_folds_do_not_lead_in_a_circle(tmp_path: Path) -> None:
    """Whoever follows a remedy is through: without folds, or with two."""
    with pytest.raises(UserError, match=r"the method 'linear' is measured on folds\. Leave it out, or give 2 or more"):
        FinetuneOptions(method="linear", folds=0)
    train = Examples(TEXTS, LABELS, "single")
    with pytest.raises(UserError, match=r"nothing to measure on.*two folds or more, or leave folds out"):
        textgraft.finetune(train, tmp_path / "a", options=FinetuneOptions(method="fine-tuned", folds=0))
    for number, folds in enumerate((None, 2)):
        out = tmp_path / str(number)
        textgraft.finetune(train, out, options=FinetuneOptions(method="linear", folds=folds, report=False))
        assert (out / "config.json").exists()


def test_a_model_and_a_stack_are_one_too_many() -> None:
    with pytest.raises(UserError, match="both a model and a stack are given"):
        SequenceTagger("en-gpt-small", stack=["en-vectors"]).fit(WORDS, TAGS)


def test_an_unknown_precision_of_inference_is_refused(tmp_path: Path) -> None:
    """For linear classifiers too, which have no precision."""
    folder = TextClassifier(method="linear").fit(TEXTS, LABELS).save(tmp_path / "linear")
    loaders: list[Any] = [TextClassifier.from_artifact, textgraft.load, textgraft.Tagger]
    for load in loaders:
        with pytest.raises(UserError, match=r"unknown precision 'int7'.*Did you mean 'int8'"):
            load(folder, precision="int7")
    assert isinstance(TextClassifier.from_artifact(folder, precision="int8"), BaseEstimator)
