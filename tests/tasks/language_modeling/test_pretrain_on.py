"""Pretraining that goes on from a model: the same network and tokenizer, further text, and what the card says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made_up_reviews import reviews

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

FP32 = Settings(precision="fp32", seed=1)


@pytest.fixture
def more(tmp_path: Path) -> Path:
    path = tmp_path / "more.txt"
    path.write_text("\n".join(reviews(300, 5)[0]))
    return path


def test_begins_as_the_model_is(
    tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Run] = []

    def caught(run: Run, *_: object, **__: object) -> None:
        begun.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.drive", caught)
    with pytest.raises(KeyboardInterrupt):
        pretrain(
            [more],
            tmp_path / "on",
            model=tiny_lm,
            options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32),
            context=QUIET,
        )
    expected = load_network(tiny_lm).model.values()
    assert all(torch.equal(value, expected[name]) for name, value in begun[0].model.values().items())


@pytest.mark.slow
def test_learns_more_and_says_what_came_before(tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path) -> None:
    out = pretrain(
        [more],
        tmp_path / "on",
        model=tiny_lm,
        options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32),
        context=QUIET,
    )
    fresh = pretrain(
        [more],
        tmp_path / "fresh",
        tokenizer=tiny_lm / "tokenizer.json",
        options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32),
        context=QUIET,
    )
    before, on = load_network(tiny_lm), load_network(out)
    assert on.tokenizer.fingerprint == before.tokenizer.fingerprint
    assert on.run["base"]["name"] == "lm"
    assert on.run["base"]["tokens_seen"] == before.run["tokens_seen"]
    assert on.run["earlier"] == [{k: before.run[k] for k in ("name", "tokens_seen", "seconds", "history")}]
    assert "It started from `lm` (pretrain" in (out / "README.md").read_text()
    found, other = (load_network(folder).run["held_out"]["after"]["loss"] for folder in (out, fresh))
    assert found < other - 0.05


def test_another_model_is_another_run(
    tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = pretrain(
        [more], tmp_path / "other", options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32), context=QUIET
    )

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.drive", stop)
    with pytest.raises(KeyboardInterrupt):
        pretrain(
            [more],
            tmp_path / "on",
            model=tiny_lm,
            options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32),
            context=QUIET,
        )
    with pytest.raises(UserError, match=r"differs in: model, vocabulary"):
        pretrain(
            [more],
            tmp_path / "on",
            model=other,
            options=PretrainOptions(recipe=str(tiny_recipe), settings=FP32),
            context=QUIET,
        )


@pytest.mark.parametrize(
    "other", ["hidden_dim = 32", "hidden_dim = 24\ncell = 'qrnn'", "hidden_dim = 24\nnum_layers = 2"]
)
def test_a_model_of_another_shape_is_refused(
    other: str, tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.toml"
    path.write_text(tiny_recipe.read_text().replace("hidden_dim = 24", other))
    with pytest.raises(UserError, match=r"does not have the architecture of the recipe 'tiny'"):
        pretrain([more], tmp_path / "on", model=tiny_lm, options=PretrainOptions(recipe=str(path)), context=QUIET)
    assert not (tmp_path / "on.run").exists()


def test_dropouts_may_be_others(tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path) -> None:
    path = tmp_path / "dry.toml"
    path.write_text(tiny_recipe.read_text().replace("hidden_dim = 24", "hidden_dim = 24\nhidden_dropout = 0.0"))
    out = pretrain(
        [more],
        tmp_path / "on",
        model=tiny_lm,
        options=PretrainOptions(recipe=str(path), tokens=500, settings=FP32),
        context=QUIET,
    )
    assert load_network(out).model.describe()["encoder"]["hidden_dropout"] == 0


def test_a_tokenizer_beside_a_model_is_refused(tiny_lm: Path, tiny_recipe: Path, more: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keeps the tokenizer of the model"):
        pretrain(
            [more],
            tmp_path / "on",
            model=tiny_lm,
            tokenizer=tiny_lm / "tokenizer.json",
            options=PretrainOptions(recipe=str(tiny_recipe)),
        )
