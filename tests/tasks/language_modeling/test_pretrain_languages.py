"""Pretraining on several languages: their shares, what is told of them, going on after a kill, mistakes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from made_up_reviews import reviews
from safetensors.torch import load_file

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.streams.languages import smoothed_shares
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, load_pretrain_recipe, pretrain
from textgraft.tasks.language_modeling.pretraining_text import TextByLanguage, pretraining_text
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

THAI = ("หนัง", "เรื่อง", "นี้", "สนุก", "มาก", "เพลง", "ดี", "ไม่", "ชอบ", "นักแสดง", "เล่น", "บท", "เศร้า", "ยาว")
RECIPE = """
name = "tiny-bert"
description = "For tests"
language = "several"
licence = "none"
validate_every = 5

[tokenizer]
model = "wordpiece"
lowercase = false
vocab_size = 200

[model]
name = "bert"
embedding_dim = 8
num_layers = 1
num_heads = 2
feed_forward_dim = 16
max_length = 32

[head]
name = "masked_language_model"

[stage]
batch_size = 8
bptt = 32

[[stage.phases]]
name = "all"
epochs = 1
lr = 0.01
"""
FP32 = Settings(precision="fp32", save_seconds=0)


def thai(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return ["".join(generator.choices(THAI, k=generator.randint(4, 12))) for _ in range(count)]


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, list[str | Path]]:
    """Four hundred English reviews in two files and forty Thai ones."""
    english = reviews(400)[0]
    for name, some in (("en-1", english[:250]), ("en-2", english[250:]), ("th", thai(40, 1))):
        (tmp_path / f"{name}.txt").write_text("\n".join(some))
    return {"th": [tmp_path / "th.txt"], "en": [tmp_path / "en-1.txt", tmp_path / "en-2.txt"]}


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny-bert.toml"
    path.write_text(RECIPE)
    return str(path)


@pytest.mark.slow
def test_each_language_has_its_share_and_its_figures(
    sources: Mapping[str, list[str | Path]], recipe: str, tmp_path: Path
) -> None:
    made = load_network(
        pretrain(sources, tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    )
    languages, held = made.run["languages"], made.run["held_out"]
    assert list(languages) == ["en", "th"]
    assert made.run["language"] == "en, th"
    sizes = {name: about["tokens"] for name, about in languages.items()}
    wanted = smoothed_shares(sizes, 0.7)
    for name, about in languages.items():
        assert about["share"] == pytest.approx(sizes[name] / sum(sizes.values()))
        assert about["share_read"] == pytest.approx(wanted[name], abs=0.01)
    assert languages["en"]["times_read"] == 1
    assert languages["th"]["times_read"] == pytest.approx((sizes["en"] / sizes["th"]) ** 0.3, rel=0.02)
    assert (languages["en"]["texts"], languages["th"]["texts"]) == (398, 39)  # every 200th is held out
    assert made.run["data"]["tokens"] == pytest.approx(sizes["en"] + sizes["th"] * languages["th"]["times_read"])
    assert held["tokens"] == sum(about["held_out"]["tokens"] for about in languages.values())
    losses = [about["held_out"]["loss"] for about in languages.values()]
    assert losses[0] != losses[1]
    card = (tmp_path / "lm" / "README.md").read_text()
    assert "Language: en, th." in card
    row = next(line for line in card.splitlines() if line.startswith("| th |"))
    assert f"{100 * languages['th']['share']:.1f} %" in row
    assert f"{languages['th']['times_read']:.2f}" in row
    assert f"{losses[1]:.4g}" in row


def test_the_tokenizer_has_read_them_in_their_shares(sources: Mapping[str, list[str | Path]], tmp_path: Path) -> None:
    """Two tiny corpora of different scripts, at three exponents; every second text halves both."""
    sizes = {name: sum(len(Path(p).read_text().replace("\n", "")) for p in paths) for name, paths in sources.items()}
    for exponent in (0.0, 0.7, 1.0):
        for every in (1, 2):
            text = pretraining_text(sources, None, exponent)
            (tmp_path / f"{exponent}").mkdir(exist_ok=True)
            found = list(text.for_tokenizer(every, tmp_path / f"{exponent}"))
            counts = {"th": sum(len(t) for t in found if "ก" <= t[0] <= "๛")}
            counts["en"] = sum(map(len, found)) - counts["th"]
            whole = sum(counts.values())
            assert counts["th"] / whole == pytest.approx(smoothed_shares(sizes, exponent)["th"], abs=0.01)
            assert counts["en"] == pytest.approx(sizes["en"] / every, abs=100)


def test_the_order_in_which_languages_are_named_does_not_matter_and_all_else_does(
    sources: dict[str, list[str | Path]], recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.drive", stop)

    def begun(named: Mapping[str, list[str | Path]] | list[str | Path], path: str = recipe) -> None:
        with pytest.raises(KeyboardInterrupt):
            pretrain(named, tmp_path / "lm", options=PretrainOptions(recipe=path), context=QUIET)

    begun(sources)
    begun(dict(reversed(list(sources.items()))))
    with pytest.raises(UserError, match=r"differs in: sources \(th\.txt changed\)"):
        begun({"en": sources["en"], "lo": sources["th"]})
    with pytest.raises(UserError, match="differs in: smoothing, sources"):
        begun([path for paths in sources.values() for path in paths])
    less = tmp_path / "less.toml"
    less.write_text(RECIPE.replace("validate_every", "smoothing = 0.5\nvalidate_every"))
    with pytest.raises(UserError, match=r"differs in: smoothing\."):
        begun(sources, str(less))
    assert load_pretrain_recipe(str(less)).identity() == load_pretrain_recipe(recipe).identity()


@pytest.mark.slow
def test_stopped_anywhere_it_goes_on_to_the_same_bits(
    sources: Mapping[str, list[str | Path]], recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the tokenizer, after the first language's corpus, after the second, and in the middle of the training."""
    pretrain(sources, tmp_path / "whole", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    from textgraft.tasks.language_modeling import pretraining_text as module

    build, save = module.build_corpora, Run.save

    def stopping(count: int) -> None:
        made: list[int] = []

        def fatal(*arguments: object, **named: object) -> object:
            if len(made) == count:
                raise KeyboardInterrupt
            made.append(1)
            return build(*arguments, **named)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(module, "build_corpora", fatal)
            killed()

    def killed() -> None:
        with pytest.raises(KeyboardInterrupt):
            pretrain(sources, tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)

    for count in (0, 1):
        stopping(count)

    def saved_then_stopped(run: Run, path: Path) -> None:
        save(run, path)
        if run.progress.step == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", saved_then_stopped)
        killed()
    assert (tmp_path / "lm.run" / "checkpoint.safetensors").exists()
    pretrain(sources, tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("lm", "whole"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    told = [json.loads((tmp_path / name / "run.json").read_text())["languages"] for name in ("lm", "whole")]
    assert told[0] == told[1]


@pytest.mark.slow
def test_held_out_text_of_ones_own_and_a_tokenizer_that_is_there(
    sources: Mapping[str, list[str | Path]], recipe: str, tmp_path: Path
) -> None:
    Tokenizer.train(reviews(400)[0] + thai(40, 1), model="wordpiece", vocab_size=150).save(tmp_path / "tokenizer.json")
    (tmp_path / "held-en.txt").write_text("\n".join(reviews(9, 7)[0]))
    (tmp_path / "held-th.txt").write_text("\n".join(thai(9, 7)))
    valid: dict[str, list[str | Path]] = {name: [tmp_path / f"held-{name}.txt"] for name in ("en", "th")}
    given = tmp_path / "tokenizer.json"
    made = load_network(
        pretrain(
            sources,
            tmp_path / "lm",
            valid=valid,
            tokenizer=given,
            options=PretrainOptions(recipe=recipe, settings=FP32),
            context=QUIET,
        )
    )
    assert [about["texts"] for about in made.run["languages"].values()] == [400, 40]
    assert made.tokenizer.vocab_size == 150


def test_one_language_is_all_of_it(sources: Mapping[str, list[str | Path]], recipe: str, tmp_path: Path) -> None:
    made = load_network(
        pretrain(
            {"en": sources["en"]},
            tmp_path / "lm",
            options=PretrainOptions(recipe=recipe, tokens=500, settings=FP32),
            context=QUIET,
        )
    )
    (about,) = made.run["languages"].values()
    assert (about["share"], about["share_read"], about["times_read"]) == (1, 1, 1)


@pytest.mark.parametrize("language", ["", "e", "english language", "en_US!", "../en", "en/US", "ไทย"])
def test_a_language_that_is_spelt_like_none(
    language: str, sources: Mapping[str, list[str | Path]], recipe: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"is not a language code.*en, th or zh-Hans"):
        pretrain({language: sources["en"]}, tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)
    assert not (tmp_path / "lm.run").exists()


def test_mistakes_name_the_language(sources: dict[str, list[str | Path]], recipe: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "one.txt").write_text("only one\n")
    cases: list[tuple[dict[str, list[str | Path]], str]] = [
        ({**sources, "lo": []}, "language lo: there is no source"),
        ({**sources, "lo": [tmp_path / "empty.txt"]}, r"language lo, .*empty\.txt: the file contains no text"),
        ({**sources, "lo": [tmp_path / "nowhere.txt"]}, r"language lo, .*nowhere\.txt: no such file"),
        (
            {**sources, "lo": [tmp_path / "one.txt"]},
            r"language lo, .*one\.txt: there is a single text, which would be held",
        ),
        ({}, "no languages were named"),
    ]
    for named, message in cases:
        with pytest.raises(UserError, match=message):
            pretrain(named, tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)
        assert not (tmp_path / "lm.run").exists()
    with pytest.raises(UserError, match=r"held-out text is not of the same ones.*en, th"):
        pretrain(
            sources, tmp_path / "lm", valid={"en": sources["en"]}, options=PretrainOptions(recipe=recipe), context=QUIET
        )
    with pytest.raises(UserError, match="held-out text is not of the same ones"):
        pretrain(sources, tmp_path / "lm", valid=sources["en"], options=PretrainOptions(recipe=recipe), context=QUIET)
    with pytest.raises(UserError, match="held-out text is by language, and the sources are not"):
        pretrain(sources["en"], tmp_path / "lm", valid=sources, options=PretrainOptions(recipe=recipe), context=QUIET)


def test_too_little_to_measure_on_is_found_before_the_training(
    sources: dict[str, list[str | Path]], tmp_path: Path
) -> None:
    """Next sentence prediction needs two documents, and of forty texts one is held out."""
    path = tmp_path / "pairs.toml"
    path.write_text(RECIPE.replace('"masked_language_model"', '"masked_language_model"\nnext_sentence = true'))
    path.write_text(path.read_text().replace('name = "bert"', 'name = "bert"\npooler = true'))
    with pytest.raises(UserError, match="language th: pairs of texts need at least two documents"):
        pretrain(sources, tmp_path / "lm", options=PretrainOptions(recipe=str(path)), context=QUIET)
    assert not (tmp_path / "lm.run" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("smoothing", ["-0.1", "1.5", "nan"])
def test_a_smoothing_out_of_range(smoothing: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(RECIPE.replace("validate_every", f"smoothing = {smoothing}\nvalidate_every"))
    with pytest.raises(UserError, match="smoothing"):
        load_pretrain_recipe(str(path))


def test_the_recipe_that_ships() -> None:
    recipe = load_pretrain_recipe("multilingual-bert-small")
    assert recipe.smoothing == 0.7
    assert recipe.tokenizer["lowercase"] is False
    text = pretraining_text({"en": ["x"]}, None, recipe.smoothing)
    assert isinstance(text, TextByLanguage)
