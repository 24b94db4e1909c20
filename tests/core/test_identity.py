"""Identity of a run: plain dictionaries that say what differs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from textgraft.core.identity import changed_keys, identity_of, identity_text
from textgraft.distillation.options import DistilOptions, load_distil_recipe
from textgraft.experiments.geometry import GeometryOptions
from textgraft.experiments.layer_tasks import LayerOptions
from textgraft.experiments.transfer import TransferOptions
from textgraft.experiments.word_contexts import WordOptions
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.language_modeling.pretrain import PretrainRecipe, load_pretrain_recipe
from textgraft.tasks.question_answering.finetune import QAOptions
from textgraft.tasks.tagging.finetune import TagOptions
from textgraft.tasks.tagging.stacked import Network
from textgraft.tasks.translation.train import CoVeOptions, load_translation_recipe
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

OPTIONS = [
    *(Settings(), Network(), FinetuneOptions(), TagOptions(), QAOptions(), CoVeOptions(), DistilOptions()),
    *(TransferOptions(), LayerOptions(), GeometryOptions(), WordOptions(), load_recipe("transformer").finetune),
    *(load_distil_recipe("default"), load_pretrain_recipe("en-ulmfit"), load_translation_recipe("multi30k")),
]
WITHOUT_EFFECT = {
    Settings: {"save_seconds", "device", "sharding", "activation_checkpointing"},
    FinetuneOptions: {"adapt"},  # has a key of its own in the plan, where there are unlabelled texts
    TagOptions: {"network"},  # has a key of its own in the plan, over a stack
    CoVeOptions: {"bleu"},
    TransferOptions: {"layers"},  # likewise
    PretrainRecipe: {"smoothing", "recommended_recipe"},  # the first likewise, for sources by language
}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: type(options).__name__)
def test_every_option_identifies_a_run_but_those_without_effect(options: Any) -> None:
    identity = options.identity()
    assert identity.keys() - {"version"} == vars(options).keys() - WITHOUT_EFFECT.get(type(options), set())
    assert identity["version"] == 1
    assert json.loads(json.dumps(identity)) == identity


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    name: str = "a"
    inner: Inner = Inner()
    parts: tuple[Inner, ...] = (Inner(), Inner())
    shown: bool = False


def test_the_keys_that_differ_are_named_at_their_depth() -> None:
    plain = Outer()
    identity = identity_of(plain, without=("shown",))
    assert identity == {"version": 1, "name": "a", "inner": {"version": 1, "rate": 0.1}} | {
        "parts": [{"version": 1, "rate": 0.1}] * 2
    }

    def changed(other: Outer) -> list[str]:
        return changed_keys(identity_of(other, without=("shown",)), identity)

    assert changed(replace(plain, shown=True)) == []
    assert changed(replace(plain, name="b", inner=Inner(0.2))) == ["inner.rate", "name"]
    assert changed(replace(plain, parts=(Inner(), Inner(0.2)))) == ["parts[1].rate"]
    assert changed(replace(plain, parts=(Inner(),))) == ["parts"]
    assert changed_keys({"data": {"sha256": "1", "texts": 1}}, {"data": {"sha256": "2", "texts": 2}}) == ["data"]
    assert changed_keys({"a": 1}, {"b": 1}) == ["a", "b"]
    assert changed_keys({"options": identity}, {"options": "Outer(...)"}) == ["options"]


def test_equal_identities_have_one_text() -> None:
    assert identity_text({"a": 1, "b": [2]}) == identity_text({"b": [2], "a": 1}) != identity_text({"a": 1})
