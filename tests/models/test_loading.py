"""The loader: what lies in a folder is opened once and used by the predictor of its task, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_questions import encoder as qa_encoder
from made_up_reviews import reviews

import textgraft
from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline
from textgraft.models import artifact, loading, model_folder
from textgraft.models.card import LIMITS, STAGES
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.registry import BY_HEAD, TASKS, task_of

TEXTS, NAMES = reviews(24, 1)
LABELS = Labels.fit(Examples(TEXTS, NAMES, "single"))


@pytest.fixture(scope="module")
def linear() -> LinearArtifact:
    fitted = LinearBaseline().fit(TEXTS, LABELS.encode(Examples(TEXTS, NAMES, "single")), num_classes=2).fitted
    return LinearArtifact(fitted, LABELS, {"stage": "finetune"})


@pytest.fixture
def configs_read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose config.json is read, in order."""
    folders: list[Path] = []
    real = model_folder.read_config

    def counted(folder: Path) -> dict[str, Any]:
        folders.append(folder)
        return real(folder)

    monkeypatch.setattr(model_folder, "read_config", counted)
    return folders


def test_a_prediction_reads_config_json_once(linear: LinearArtifact, configs_read: list[Path], tmp_path: Path) -> None:
    folder = artifact.save(linear, tmp_path / "model")
    configs_read.clear()
    assert len(list(textgraft.predict(folder, TEXTS[:2]))) == 2
    assert configs_read == [folder]


def test_an_ensemble_reads_its_own_and_each_member_s_once(
    linear: LinearArtifact, configs_read: list[Path], tmp_path: Path
) -> None:
    folder = save_ensemble({"a": linear, "b": linear}, {}, tmp_path / "both", weights=[3, 1])
    configs_read.clear()
    models = loading.open_models(folder)
    assert configs_read == [folder, folder / "a", folder / "b"]
    assert models.weights == [1.5, 0.5]
    assert np.allclose(textgraft.load(folder).outputs(TEXTS), linear.outputs(TEXTS))


def test_a_network_s_config_is_read_once(tiny_lm: Path, configs_read: list[Path]) -> None:
    loading.load_network(tiny_lm)
    assert configs_read == [tiny_lm]


def test_every_head_is_of_one_task_and_every_part_that_a_task_names_is_there() -> None:
    assert len(BY_HEAD) == sum(len(task.heads) for task in TASKS)
    for task in TASKS:
        for part in (
            task.predictor,
            task.graph,
            task.exporter,
            task.graph_difference,
            task.graph_outputs,
            task.service,
        ):
            assert part is None or callable(resolve(part))


def test_the_model_card_describes_the_models_of_every_task() -> None:
    assert {task.stage for task in TASKS} <= STAGES.keys() & LIMITS.keys()


def test_a_linear_classifier_is_shown_without_its_coefficients(linear: LinearArtifact) -> None:
    assert "stage" in repr(linear)
    assert len(repr(linear)) < 300


def test_every_head_of_the_registry_has_a_task() -> None:
    from textgraft.models.model import HEADS

    assert set(HEADS) <= set(BY_HEAD)


def test_a_model_of_no_predictor_is_refused_with_what_to_do(tiny_lm: Path) -> None:
    with pytest.raises(UserError, match=r"has no predictor: it is a language model.*textgraft finetune"):
        textgraft.load(tiny_lm)


def test_the_loader_returns_the_predictor_of_the_task(tmp_path: Path) -> None:
    source = qa_encoder("bert")
    assert task_of(source.head_name).name == "language modelling"
    with pytest.raises(UserError, match="no labels: it is a language model"):
        textgraft.predict(artifact.save(source, tmp_path / "encoder"), ["a text"])
