"""Our AWD-LSTM language model against fastai's, same weights: logits, loss, gradients, state carried, and names."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from make_fastai_fixture import PATH, fastai_model, fastai_results, windows
from safetensors.torch import load_file
from torch import Tensor

from textgraft.conversion.fastai import from_fastai, to_fastai
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.encoders.base import State
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model

needs_fastai = pytest.mark.skipif(importlib.util.find_spec("fastai") is None, reason="fastai is not installed")


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Tensor]:
    assert PATH.stat().st_size < 200_000
    return load_file(PATH)


def without_dropout(converted: Model, output_layer: str) -> Model:
    """The same weights in a model that drops nothing, with another output layer."""
    encoder = AWDLSTM(
        replace(
            converted.encoder.config, embedding_dropout=0.0, input_dropout=0.0, weight_dropout=0.0, hidden_dropout=0.0
        )
    )
    config = replace(converted.head.config, output_layer=output_layer, output_dropout=0.0)
    model = Model(encoder, LanguageModelHead(config, encoder.embedding.weight))
    model.load_state_dict(converted.state_dict())
    return model


def our_results(model: Model) -> dict[str, Tensor]:
    """What `fastai_results` gives, from our model; each gradient under fastai's name."""
    model.train()
    state: State | None = None
    results = {}
    for index, (ids, targets) in enumerate(windows()):
        batch = Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)
        encoded = model.encoder(batch, state)
        logits = torch.nn.functional.linear(encoded.top, model.head.output.weight, model.head.output.bias)
        model.zero_grad()
        loss = model.loss(batch, state)
        (loss.total / loss.count).backward()
        assert loss.state is not None
        state = tuple(tuple(t.detach() for t in layer) for layer in loss.state)
        results |= {f"{index}.logits": logits.detach(), f"{index}.loss": (loss.total / loss.count).detach()}
        grads = {name: p.grad for name, p in model.named_parameters()}
        for i in range(model.encoder.config.num_layers):
            theirs, ours = f"{index}.grad.0.rnns.{i}", f"encoder.layers.{i}"
            results[f"{theirs}.module.weight_ih_l0"] = grads[f"{ours}.weight_ih"]
            results[f"{theirs}.weight_hh_l0_raw"] = grads[f"{ours}.weight_hh"]
            results |= {f"{theirs}.module.{bias}_l0": grads[f"{ours}.bias"] for bias in ("bias_ih", "bias_hh")}
        results[f"{index}.grad.0.encoder.weight"] = grads["encoder.embedding.weight"]
        results[f"{index}.grad.1.decoder.bias"] = grads["head.output.bias"]
    return results


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor], rtol: float) -> None:
    """Same names, and every number equal to `rtol`; of float32 sums near zero, to `rtol` of the tensor's scale."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        atol = rtol * float(expected.abs().max())
        torch.testing.assert_close(ours[name], expected, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("output_layer", ["full", "chunked"])
def test_float32_logits_loss_and_gradients_are_fastais(recorded: dict[str, Tensor], output_layer: str) -> None:
    model = without_dropout(from_fastai(under(recorded, "weight.")), output_layer)
    assert_equal(our_results(model), under(recorded, "float32."), rtol=1e-5)


def test_float64_logits_loss_and_gradients_are_fastais(recorded: dict[str, Tensor]) -> None:
    model = without_dropout(from_fastai(under(recorded, "weight.")), "full").double()
    assert_equal(our_results(model), under(recorded, "float64."), rtol=1e-10)


@needs_fastai
def test_against_the_fastai_installed_here(recorded: dict[str, Tensor]) -> None:
    theirs = fastai_model()
    model = without_dropout(from_fastai(theirs.state_dict()), "chunked")
    assert_equal(our_results(model), fastai_results(theirs), rtol=1e-5)


@needs_fastai
def test_fastai_loads_what_we_write(recorded: dict[str, Tensor]) -> None:
    theirs = fastai_model()
    theirs.load_state_dict(to_fastai(from_fastai(under(recorded, "weight."))), strict=True)
    assert_equal(fastai_results(theirs), under(recorded, "float32."), rtol=1e-5)


def test_to_fastai_and_back_is_exact() -> None:
    torch.manual_seed(0)
    for tied in (True, False):
        encoder = AWDLSTM(AWDLSTMConfig(vocab_size=11, embedding_dim=4, hidden_dim=6, num_layers=2))
        head = LanguageModelHead(LanguageModelConfig(11, 4, tied=tied), encoder.embedding.weight)
        model = Model(encoder, head)
        back = from_fastai(to_fastai(model))
        assert back.describe() == model.describe()
        assert {n: t.tolist() for n, t in back.values().items()} == {n: t.tolist() for n, t in model.values().items()}


def test_to_fastai_has_fastais_names_and_shapes(recorded: dict[str, Tensor]) -> None:
    given = under(recorded, "weight.")
    written = to_fastai(from_fastai(given))
    assert {n: t.shape for n, t in written.items()} == {n: t.shape for n, t in given.items()}
    for index in range(3):
        ours, theirs = ([s[f"0.rnns.{index}.module.bias_{b}_l0"] for b in ("ih", "hh")] for s in (written, given))
        assert torch.equal(ours[0], theirs[0] + theirs[1])
        assert not ours[1].any()


def test_copies_of_dropped_weights_in_older_files_are_passed_over(recorded: dict[str, Tensor]) -> None:
    given = under(recorded, "weight.")
    older = given | {"0.rnns.0.module.weight_hh_l0": given["0.rnns.0.weight_hh_l0_raw"] * 2}
    assert torch.equal(from_fastai(older).encoder.layers[0].weight_hh, given["0.rnns.0.weight_hh_l0_raw"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"0.rnns.1.module.weight_ih_l0": None}, "missing: ['0.rnns.1.module.weight_ih_l0']"),
        ({"0.rnns.0.linear.weight": torch.zeros(2)}, "unknown: ['0.rnns.0.linear.weight']"),
        ({"0.rnns.1.module.weight_ih_l0": torch.zeros(48, 11)}, "'encoder.layers.1.weight_ih' are (48, 11), not"),
        ({"0.encoder_dp.emb.weight": torch.zeros(40, 8)}, "but differ here"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    recorded: dict[str, Tensor], change: dict[str, Tensor | None], complaint: str
) -> None:
    changed = {n: t for n, t in (under(recorded, "weight.") | change).items() if t is not None}
    with pytest.raises(UserError, match=re.escape(complaint)):
        from_fastai(changed)


def test_what_fastai_cannot_be_is_refused() -> None:
    encoder = AWDLSTM(AWDLSTMConfig(vocab_size=11, embedding_dim=4, hidden_dim=6, num_layers=2, cell="qrnn"))
    head = LanguageModelHead(LanguageModelConfig(11, 4), encoder.embedding.weight)
    with pytest.raises(UserError, match="no QRNN cell"):
        to_fastai(Model(encoder, head))


def test_the_package_never_imports_fastai() -> None:
    sources = (Path(__file__).parents[2] / "textgraft").rglob("*.py")
    assert not [p for p in sources if re.search(r"^\s*(import|from) fastai\b", p.read_text("utf-8"), re.MULTILINE)]
