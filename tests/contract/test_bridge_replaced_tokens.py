"""ELECTRA's replaced-token detection: the library's numbers, adapting by its own head, and the way back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_reviews import reviews
from tiny_checkpoints import opened_whole, save_checkpoint

import textgraft
from textgraft.core.context import QUIET
from textgraft.data.batch import IGNORE, Batch
from textgraft.models import loading
from textgraft.training.settings import Settings

transformers = pytest.importorskip("transformers", minversion="5")
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
FP32 = Settings(precision="fp32", save_seconds=0.0)
TEXTS = reviews(60, 3)[0]


@pytest.fixture(scope="module")
def electra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint("electra", tmp_path_factory.mktemp("electra") / "m", auto="AutoModelForPreTraining")


def batch_of(mask: torch.Tensor) -> Batch:
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(6, 40, mask.shape, generator=generator)
    targets = torch.randint(2, mask.shape, generator=generator).where(mask, IGNORE)
    return Batch(ids, mask, targets=targets)


def test_outputs_loss_and_gradients_are_the_librarys(electra: Path) -> None:
    model: Any = opened_whole(electra).model
    theirs = transformers.ElectraForPreTraining.from_pretrained(electra).eval()
    batch = batch_of(torch.arange(12) < torch.tensor([12, 9, 5])[:, None])
    inputs = {"input_ids": batch.ids.where(batch.mask, 0), "attention_mask": batch.mask.long()}
    output = theirs(**inputs, labels=batch.targets.clamp(min=0))
    torch.testing.assert_close(model(batch)[batch.mask], output.logits[batch.mask], **CLOSE)
    loss = model.loss(batch)
    assert loss.count == 12 + 9 + 5
    torch.testing.assert_close(loss.total / loss.count, output.loss, **CLOSE)
    (loss.total / loss.count).backward()
    output.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    ours = {f"electra.{name}": p.grad for name, p in model.encoder.module.named_parameters()}
    head = "discriminator_predictions"
    ours |= {f"{head}.dense.{part}": getattr(model.head.dense, part).grad for part in ("weight", "bias")}
    ours |= {f"{head}.dense_prediction.{part}": getattr(model.head.output, part).grad for part in ("weight", "bias")}
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient, **CLOSE, msg=name)


def test_a_discriminator_is_adapted_by_its_own_head_and_goes_back_with_it(electra: Path, tmp_path: Path) -> None:
    done = textgraft.adapt(TEXTS, tmp_path / "out", model=f"hf:{electra}", settings=FP32, context=QUIET)
    adapted = loading.load_network(done)
    assert adapted.head_name == "replaced_tokens"
    held_out = json.loads((done / "run.json").read_text())["held_out"]
    assert set(held_out["after"]) == {"loss", "score"}
    assert held_out["after"]["loss"] < held_out["before"]["loss"]
    back = textgraft.convert(done, tmp_path / "theirs", to="huggingface")
    assert json.loads((back / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    batch = batch_of(torch.ones(2, 10, dtype=torch.bool))
    theirs = transformers.ElectraForPreTraining.from_pretrained(back).eval()
    with torch.no_grad():
        expected = theirs(input_ids=batch.ids, attention_mask=batch.mask.long()).logits
        torch.testing.assert_close(adapted.model(batch), expected, **CLOSE)
    values = opened_whole(back).model.values()
    assert all(torch.equal(value, values[name]) for name, value in adapted.model.values().items())


def test_an_encoder_without_its_head_gets_a_new_one(tmp_path: Path) -> None:
    folder = save_checkpoint("electra", tmp_path / "m")
    done = textgraft.adapt(TEXTS, tmp_path / "out", model=f"hf:{folder}", settings=FP32, context=QUIET)
    assert loading.load_network(done).head_name == "replaced_tokens"


def test_who_knows_nothing_has_the_loss_of_a_coin(electra: Path) -> None:
    model = opened_whole(electra).model
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.zero_()
        loss = model.loss(batch_of(torch.ones(3, 8, dtype=torch.bool)))
    assert float(loss.total) / loss.count == pytest.approx(math.log(2), rel=1e-6)
