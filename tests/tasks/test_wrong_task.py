"""A model of one task in the place of another's: every door names the folder, and says what the model does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import textgraft
from textgraft import SequenceTagger, TextClassifier
from textgraft.core.errors import UserError
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.predictor import load_classifier
from textgraft.text.tokenizer import Tokenizer

TEXTS, LABELS = ["great film", "great end", "poor film", "poor end"], ["pos", "pos", "neg", "neg"]
DOES = {
    "linear": "it classifies texts",
    "ensemble": "it classifies texts",
    "tagger": "it tags words",
    "language model": "it is a language model",
}
CLASSIFIERS: list[Callable[[Path], Any]] = [
    TextClassifier.from_artifact,
    lambda folder: list(textgraft.predict(folder, ["a"])),
    lambda folder: textgraft.evaluate(folder, {"text": ["a"], "label": ["b"]}),
]
TAGGERS: list[Callable[[Path], Any]] = [SequenceTagger.from_artifact, textgraft.Tagger]
OTHERS: list[Callable[[Path], Any]] = [textgraft.QAModel, textgraft.Translator]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    linear = TextClassifier(method="linear").fit(TEXTS, LABELS)
    linear.save(folder / "linear")
    members = {name: loading.open_model(folder / "linear") for name in ("a", "b")}
    save_ensemble(members, {}, folder / "ensemble")
    tokenizer = Tokenizer.train(TEXTS, kind="word", min_frequency=1)
    torch.manual_seed(0)
    encoder = {"name": "awd_lstm", "vocab_size": tokenizer.vocab_size, "embedding_dim": 4, "hidden_dim": 4}
    heads: dict[str, dict[str, Any]] = {
        "tagger": {"name": "tagging", "input_dim": 4, "tags": ["O", "X"], "scheme": "plain"},
        "language model": {"name": "language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 4},
    }
    for name, head in heads.items():
        model = build({"encoder": encoder | {"num_layers": 1}, "head": head})
        artifact.save(Artifact(model, tokenizer, None, {"name": name}), folder / name)
    return {name: folder / name for name in DOES}


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        *((door, kind) for door in CLASSIFIERS for kind in ("tagger", "language model")),
        *((door, kind) for door in TAGGERS for kind in ("linear", "ensemble", "language model")),
        *((door, kind) for door in OTHERS for kind in DOES),
    ],
)
def test_the_folder_is_named_and_what_it_does(door: Callable[[Path], Any], kind: str, folders: dict[str, Path]) -> None:
    with pytest.raises(UserError) as refused:
        door(folders[kind])
    assert refused.value.where == str(folders[kind])
    assert refused.value.message.endswith(f": {DOES[kind]}.")
    assert refused.value.remedy


def test_of_several_classifiers_the_wrong_one_is_named(folders: dict[str, Path], tmp_path: Path) -> None:

    with pytest.raises(UserError, match=r"tagger: this model has no labels: it tags words") as refused:
        load_classifier(folders["linear"], folders["tagger"])
    assert refused.value.where == str(folders["tagger"])
    other = TextClassifier(method="linear").fit(TEXTS, ["a", "a", "b", "b"]).save(tmp_path / "other")
    with pytest.raises(UserError, match="different labels") as refused:
        textgraft.load(folders["linear"], other)
    assert refused.value.where == f"{folders['linear']} + {other}"
