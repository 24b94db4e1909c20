"""GPT and GPT-2 against transformers, same tiny random weights: logits, gradients, caches, and files both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.conversion.gpt import from_huggingface, to_huggingface
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.models.model import Model, build

transformers = pytest.importorskip("transformers")

V, WIDTH, LAYERS, HEADS, POSITIONS = 23, 12, 3, 2, 16
LENGTHS = (9, 6, 1)
TYPES = ("gpt2", "openai-gpt")


def theirs(model_type: str, *, tied: bool = True, bare: bool = False) -> Any:
    """A model of transformers with random weights, larger than it would draw them, so that errors show."""
    shape = {"vocab_size": V, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS}
    shape |= {"tie_word_embeddings": tied, "bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(0)
    if model_type == "gpt2":
        cls = transformers.GPT2Model if bare else transformers.GPT2LMHeadModel
        model = cls(transformers.GPT2Config(**shape))
    else:
        cls = transformers.OpenAIGPTModel if bare else transformers.OpenAIGPTLMHeadModel
        model = cls(transformers.OpenAIGPTConfig(**shape))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def converted(model: Any) -> Model:
    return from_huggingface(model.config.to_dict(), model.state_dict())


def right_padded() -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(V, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    targets = torch.randint(V, ids.shape, generator=generator).masked_fill(~mask, IGNORE)
    return Batch(ids=ids, mask=mask, targets=targets)


def close(ours: Tensor, expected: Tensor, name: str = "") -> None:
    """Equal to 1e-5; of float32 sums near zero, to 1e-5 of the tensor's scale."""
    atol = 1e-5 * float(expected.detach().abs().max())
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=atol, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", TYPES)
def test_logits_and_gradients_with_right_padding(model_type: str, tied: bool) -> None:
    reference = theirs(model_type, tied=tied)
    model, batch = converted(reference), right_padded()
    assert model.head.config.tied == tied
    logits = reference(input_ids=batch.ids, attention_mask=batch.mask.long()).logits
    close(model(batch)[batch.mask], logits.log_softmax(dim=-1)[batch.mask])
    F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum").backward()
    model.loss(batch).total.backward()
    # Gradients are turned and named like the weights, so they go through the same table.
    for parameter in model.parameters():
        parameter.data.copy_(parameter.grad)
    _, found = to_huggingface(model)
    expected = {name: p.grad for name, p in reference.named_parameters()}
    assert expected.keys() <= found.keys()
    assert found.keys() - expected.keys() <= {"lm_head.weight"}
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0
        close(found[name], gradient, name)


@pytest.mark.parametrize("model_type", TYPES)
def test_every_layer_is_theirs(model_type: str) -> None:
    reference = theirs(model_type)
    batch = right_padded()
    hidden = reference(batch.ids, attention_mask=batch.mask.long(), output_hidden_states=True).hidden_states
    layers = converted(reference).encoder(batch, keep="all").layers
    assert len(layers) == len(hidden) == LAYERS + 1
    for ours, expected in zip(layers, hidden, strict=True):
        close(ours[batch.mask], expected[batch.mask])


@pytest.mark.parametrize("model_type", TYPES)
def test_a_model_below_its_head_and_older_files(model_type: str) -> None:
    """The bare model's weights give the tied language model; masks that older files hold change nothing."""
    bare = theirs(model_type, bare=True)
    weights = bare.state_dict()
    weights |= {"h.0.attn.bias": torch.ones(1, 1, 16, 16), "h.2.attn.masked_bias": torch.tensor(-1e4)}
    model, batch = from_huggingface(bare.config.to_dict(), weights), right_padded()
    assert model.head.config.tied
    expected = bare(batch.ids, attention_mask=batch.mask.long()).last_hidden_state
    close(model.encoder(batch).top[batch.mask], expected[batch.mask])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", TYPES)
def test_round_trips(model_type: str, tied: bool, tmp_path: Path) -> None:
    """Theirs -> ours -> theirs gives the same weights, which their own loader reads; ours -> theirs -> ours too."""
    reference = theirs(model_type, tied=tied)
    model, batch = converted(reference), right_padded()
    config, weights = to_huggingface(model)
    given = reference.state_dict()
    assert weights.keys() == given.keys()
    assert all(torch.equal(weights[name], value) for name, value in given.items())
    again = type(reference)(type(reference.config)(**config))
    again.load_state_dict(weights, strict=True)
    assert config["architectures"] == [type(reference).__name__]
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    assert torch.equal(again.eval()(**inputs).logits, reference(**inputs).logits)
    ours = from_huggingface(config, weights)
    assert ours.describe() == model.describe()
    assert all(torch.equal(value, model.values()[name]) for name, value in ours.values().items())


@pytest.mark.parametrize(
    ("model_type", "settings", "complaint"),
    [
        ("gpt2", {"model_type": "gpt3"}, "'gpt3' is not a GPT"),
        ("gpt2", {"activation_function": "relu"}, "activation_function = 'relu'"),
        ("gpt2", {"n_inner": 7}, "n_inner = 7"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ("openai-gpt", {"afn": "swish"}, "afn = 'swish'"),
        ("openai-gpt", {"n_layer": 4}, "missing: h.3.attn.c_attn.bias"),
        ("gpt2", {"n_layer": 2}, "left over: h.2.attn.c_attn.bias"),
        ("gpt2", {"model_type": "openai-gpt"}, "missing: positions_embed.weight, tokens_embed.weight; left over: ln_f"),
        ("gpt2", {"n_positions": 17}, "'encoder.positions.weight' are (16, 12), not (17, 12)"),
        ("gpt2", {"n_head": 5}, "5 heads do not divide"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(model_type: str, settings: dict[str, Any], complaint: str) -> None:
    reference = theirs(model_type)
    with pytest.raises(UserError, match=re.escape(complaint)):
        from_huggingface(reference.config.to_dict() | settings, reference.state_dict())


def test_an_untransposed_matrix_is_refused() -> None:
    reference = theirs("gpt2")
    weights = reference.state_dict()
    weights["transformer.h.1.mlp.c_fc.weight"] = weights["transformer.h.1.mlp.c_fc.weight"].t()
    with pytest.raises(UserError, match=re.escape("'encoder.layers.1.widen.weight' are (12, 48), not (48, 12)")):
        from_huggingface(reference.config.to_dict(), weights)


@pytest.mark.parametrize(
    ("encoder", "head"),
    [
        ({"attention": "banded"}, {}),
        ({"attention": "local-compressed"}, {}),
        ({}, {"bias": True}),
        ({}, {"output_layer": "adaptive"}),
    ],
)
def test_what_their_gpt_cannot_be_is_refused(encoder: dict[str, Any], head: dict[str, Any]) -> None:
    description = converted(theirs("gpt2")).describe()
    model = build({"encoder": description["encoder"] | encoder, "head": description["head"] | head})
    with pytest.raises(UserError, match="dense attention only, no bias"):
        to_huggingface(model)
