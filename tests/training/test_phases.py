"""Recipes, phases and which layer groups they train."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.encoders.base import LayerGroup
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
from textgraft.training.optimizers import build_optimizer, set_rates
from textgraft.training.phases import Anneal, Phase, Stage, schedule_curve, schedule_table, set_trainable
from textgraft.training.recipes import load_recipe, recipe_names

NAMES = ["embedding", "layer 1", "layer 2", "layer 3", "head"]


def layer_groups() -> list[LayerGroup]:
    return [LayerGroup(name, (nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3)))) for name in NAMES]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text('name = "mine"\ndescription = "d"\nsource = "s"\n' + text)
    return str(path)


PHASE = '[[finetune.phases]]\nname = "all"\nepochs = 1\nlr = 0.1\n'


def test_the_papers_recipes_are_there() -> None:
    assert {"ulmfit", "ulmfit-one-cycle", "chain-thaw", "frozen", "full"} <= set(recipe_names())


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("stage_name", ["adapt", "finetune"])
def test_every_recipe_steps_and_each_epoch_trains_exactly_the_groups_it_says(name: str, stage_name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    stage: Stage = getattr(recipe, stage_name)
    groups, steps_per_epoch = layer_groups(), 3
    table = schedule_table(stage, NAMES, steps_per_epoch)
    epoch = 0
    for phase in stage.plan(len(groups), steps_per_epoch):
        trained = {group.name for group in set_trainable(groups, phase)}
        optimizer = build_optimizer(groups, phase)
        total = phase.steps(steps_per_epoch)
        for first in range(0, total, steps_per_epoch):
            epoch += 1
            before = [[p.detach().clone() for p in group.parameters] for group in groups]
            for step in range(first, min(first + steps_per_epoch, total)):
                set_rates(optimizer, phase, step, total)
                optimizer.zero_grad()
                torch.stack([(p**2).sum() for group in groups for p in group.parameters]).sum().backward()
                optimizer.step()
            moved = {
                group.name
                for group, old in zip(groups, before, strict=True)
                if any(not torch.equal(p, q) for p, q in zip(group.parameters, old, strict=True))
            }
            assert moved == trained
            assert {row.group for row in table if row.epoch == epoch and row.trainable} == trained
    assert epoch == max((row.epoch for row in table), default=0)


def test_ulmfit_thaws_one_more_group_each_epoch_from_the_last() -> None:
    table = schedule_table(load_recipe("ulmfit").finetune, NAMES, 100)
    trained = [[r.group for r in table if r.epoch == epoch and r.trainable] for epoch in range(1, 7)]
    assert trained == [NAMES[-1:], NAMES[-2:], NAMES[-3:], NAMES[-4:], NAMES, NAMES]
    peaks = [max(row.peak for row in table if row.group == name and row.epoch >= 5) for name in NAMES]
    assert peaks == pytest.approx([0.01 / 2.6**distance for distance in (4, 3, 2, 1, 0)])


def test_chain_thaw_trains_the_head_then_each_group_alone_from_the_bottom_then_all() -> None:
    plan = load_recipe("chain-thaw").finetune.plan(5)
    trained = [[n for n, rate in zip(NAMES, phase.rates(5), strict=True) if rate] for phase in plan]
    assert trained == [["head"], ["embedding"], ["layer 1"], ["layer 2"], ["layer 3"], NAMES]


def test_set_trainable_undoes_the_phase_before() -> None:
    groups = layer_groups()
    set_trainable(groups, Phase("all", epochs=1, lr=0.1))
    assert [g.name for g in set_trainable(groups, Phase("two", epochs=1, lr=0.1, trainable=2))] == NAMES[-2:]
    assert [all(p.requires_grad for p in g.parameters) for g in groups] == [False, False, False, True, True]
    assert [any(p.requires_grad for p in g.parameters) for g in groups] == [False, False, False, True, True]


def test_schedule_table_and_curve_by_hand() -> None:
    stage = Stage(
        (
            Phase("head", epochs=1, lr=1.0, trainable=1, schedule="constant", warmup=0),
            Phase("all", epochs=1.5, lr=1.0, lr_decay=2.0, schedule="linear", warmup=0.5),
        )
    )
    table = [
        (r.phase, r.epoch, r.group, r.trainable, r.start, r.peak, r.end)
        for r in schedule_table(stage, ["body", "head"], 4)
    ]
    assert table == [
        ("head", 1, "body", False, 0, 0, 0),
        ("head", 1, "head", True, 1, 1, 1),
        ("all", 2, "body", True, pytest.approx(1 / 6), 0.5, 0.5),
        ("all", 2, "head", True, pytest.approx(1 / 3), 1, 1),
        ("all", 3, "body", True, pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(1 / 6)),
        ("all", 3, "head", True, pytest.approx(2 / 3), pytest.approx(2 / 3), pytest.approx(1 / 3)),
    ]
    assert [len(curve) for curve in schedule_curve(stage, 2, 4)] == [10, 10]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PHASE + "lr_decy = 2.6\n",
            ["unknown key 'lr_decy'", "finetune.phases.1", "Did you mean 'lr_decay'?"],
        ),
        ("[finetune]\nbatch_siz = 3\n", ["unknown key 'batch_siz'", "Did you mean 'batch_size'?"]),
        ("[finetunes]\n[finetune]\n", ["unknown key 'finetunes'", "Did you mean 'finetune'?"]),
        (PHASE + 'schedule = "stlrr"\n', ["unknown schedule 'stlrr'", "Did you mean 'stlr'?"]),
        (PHASE + 'optimizer = "adamv"\n', ["optimizer", "adamw"]),
        (PHASE + 'trainable = "2"\n', ["finetune.phases.1.trainable", "integer"]),
        (PHASE + "trainable = 0\n", ["trainable is 0", "1 (the head alone) or more"]),
        (PHASE + "trainable = 1\nonly = 0\n", ["both set"]),
        (PHASE + "betas = [0.9]\n", ["finetune.phases.1.betas"]),
        (PHASE.replace("lr = 0.1", "lr = -0.1"), ["lr is -0.1", "above 0"]),
        (PHASE.replace("epochs = 1", "epochs = nan"), ["epochs"]),
        (PHASE.replace("lr = 0.1", ""), ["'lr' is missing", "finetune.phases.1"]),
        ("[finetune]\nbatch_size = 0\n", ["mine.toml, finetune", "batch_size is 0", "1 or more"]),
        ("[finetune]\nbatch_size = 1\n", ["finetune.batch_size is 1", "batch normalisation needs"]),
        ("[finetune]\n[adapt]\nbptt = -3\n", ["mine.toml, adapt", "bptt is -3"]),
        ("[finetune]\ndropout = -0.5\n", ["dropout is -0.5", "0 or more"]),
        ("[finetune]\nclip = nan\n", ["clip"]),
        ("", ["'finetune' is missing"]),
        ("[finetune\n", ["not a TOML file"]),
    ],
)
def test_a_mistake_in_a_recipe_is_named_with_its_place(tmp_path: Path, text: str, expected: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, text))
    assert "mine.toml" in str(caught.value)
    for part in expected:
        assert part in str(caught.value)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'ulmfit'"):
        load_recipe("ulmfitt")
    with pytest.raises(UserError, match="no such recipe file"):
        load_recipe("nowhere/mine.toml")


def test_a_group_that_the_model_lacks_is_a_users_mistake() -> None:
    stage = Stage((Phase("sixth", epochs=1, lr=0.1, only=5),))
    with pytest.raises(UserError, match=r"only layer group 5.*model has 5"):
        stage.plan(5)


def test_few_texts_are_read_more_often() -> None:
    stage = Stage((Phase("head", 4, 0.1, trainable=1), Phase("all", 1, 0.1)), min_steps=30)
    assert stage.plan(3) == list(stage.phases)
    assert stage.plan(3, steps_per_epoch=6) == list(stage.phases)  # 30 steps as it is
    longer = stage.plan(3, steps_per_epoch=2)
    assert [phase.epochs for phase in longer] == [12, 3]
    assert [(p.name, p.lr, p.trainable) for p in longer] == [(p.name, p.lr, p.trainable) for p in stage.phases]
    assert len(schedule_curve(stage, 3, 2)[0]) == 30
    assert max(row.epoch for row in schedule_table(stage, NAMES[:3], 2)) == 15
    each = Stage((Phase("one", 1, 0.1, only="each"),), min_steps=12)
    assert [phase.epochs for phase in each.plan(4, steps_per_epoch=1)] == [4, 4, 4]
    with pytest.raises(UserError, match=r"min_steps is -1\."):
        Stage(min_steps=-1)


def test_a_shortened_stage_goes_as_far_in_fewer_steps() -> None:
    stage = load_recipe("contrastive").finetune
    shorter = stage.shortened(0.5)
    whole, half = (one.plan(8, steps_per_epoch=3) for one in (stage, shorter))
    assert [phase.steps(3) for phase in whole] == [76, 19]
    assert [phase.steps(3) for phase in half] == [38, 19]  # the head alone costs little
    assert [b.lr / a.lr for a, b in zip(whole, half, strict=True)] == [2, 1]
    assert [phase.steps(500) for phase in shorter.plan(8, steps_per_epoch=500)] == [1_000, 500]  # many texts
    assert stage.shortened(1.0) == stage
    only_head = Stage((Phase("head", 4, 0.1, trainable=1), Phase("last", 2, 0.1, only=-1)), min_steps=30)
    assert only_head.shortened(0.5) == only_head
    assert Stage().shortened(0.5) == Stage()


def test_annealing_is_read_from_a_recipe_and_is_part_of_the_identity() -> None:
    stage = load_recipe("tagger-sgd").finetune
    (phase,) = stage.phases
    assert phase.anneal == Anneal(factor=0.5, patience=3, least=1e-4)
    without = replace(stage, phases=(replace(phase, anneal=None),))
    assert changed_keys(without.identity(), stage.identity()) == ["phases.anneal"]
    other = replace(stage, phases=(replace(phase, anneal=Anneal(0.25)),))
    assert changed_keys(other.identity(), stage.identity()) == ["phases.anneal.factor"]


def test_mistakes_in_annealing_are_named_with_their_place(tmp_path: Path) -> None:
    for text, expected in (("factor = 1.0", "factor is 1.0"), ("fact = 0.5", "Did you mean 'factor'")):
        path = tmp_path / "mine.toml"
        head = 'name = "m"\ndescription = "d"\nsource = "s"\n[finetune]\n[[finetune.phases]]\n'
        path.write_text(f'{head}name = "all"\nepochs = 1\nlr = 0.1\nanneal = {{ {text} }}\n')
        with pytest.raises(UserError) as error:
            load_recipe(str(path))
        assert "anneal" in str(error.value)
        assert expected in str(error.value)


def like(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_a_recipe_like_another_says_only_where_it_differs(tmp_path: Path) -> None:
    own = 'like = "lstm-small"\nname = "mine"\ndescription = "For tests"\n\n[finetune]\nbatch_size = 5\n'
    mine, base = load_recipe(str(like(tmp_path, "mine", own))), load_recipe("lstm-small")
    assert mine == replace(base, name="mine", description="For tests", finetune=replace(base.finetune, batch_size=5))
    phase = '\n[[finetune.phases]]\nname = "head"\nepochs = 1\nlr = 0.1\n'
    child = like(tmp_path, "child", 'like = "mine.toml"\nname = "child"\ndescription = "For tests"\n' + phase)
    found = load_recipe(str(child))
    assert found.adapt == base.adapt
    assert found.finetune == replace(mine.finetune, phases=(Phase("head", 1, 0.1),))


def test_a_recipe_for_pretraining_is_like_one_of_these() -> None:
    forward, backward = map(load_pretrain_recipe, ("en-ulmfit", "en-ulmfit-backward"))
    assert replace(backward, name="en-ulmfit", description=forward.description, model=forward.model) == forward
    assert backward.model == {**forward.model, "direction": "right"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('like = "lstm-smal"', ["mine.toml, like", "unknown recipe 'lstm-smal'", "Did you mean 'lstm-small'?"]),
        ('like = "en-ulmfit"', ["mine.toml, like", "unknown recipe 'en-ulmfit'"]),
        ('like = "gone.toml"', ["mine.toml, like", "no such recipe file"]),
        ("like = 3", ["mine.toml, like", "3 is not the name of a recipe"]),
        ('like = "mine.toml"', ["mine.toml, like", "inherits from itself"]),
        ('like = "other.toml"', ["other.toml, like", "inherits from itself"]),
        ('like = "lstm-small"', ["'name' is missing"]),
        (
            'like = "lstm-small"\nname = "x"\ndescription = ""\n[finetune]\nbatch_siz = 3',
            ["unknown key 'batch_siz'", "'batch_size'"],
        ),
        ('like = "lstm-small"\nname = "x"\ndescription = ""\nfinetune = 3', ["mine.toml, finetune"]),
    ],
)
def test_mistakes_in_a_recipe_like_another(tmp_path: Path, text: str, expected: list[str]) -> None:
    like(tmp_path, "other", 'like = "mine.toml"\nname = "other"\n')
    with pytest.raises(UserError) as raised:
        load_recipe(str(like(tmp_path, "mine", text)))
    for word in expected:
        assert word in str(raised.value)
