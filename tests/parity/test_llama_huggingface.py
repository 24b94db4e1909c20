"""Llama, Mistral, Qwen2, Qwen3 and SmolLM3 against transformers, same tiny random weights."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.conversion.llama import from_huggingface, rotary_settings, to_huggingface
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.generation.decoding import GenerateOptions, Tokens, write
from textgraft.models.model import Model, build

transformers = pytest.importorskip("transformers")

V, LAYERS, POSITIONS = 29, 4, 40
LENGTHS = (11, 6, 1)
SHAPE = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": LAYERS}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS}
SHAPE |= {"pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": "eager"}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10_000.0}
SEVERAL = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 4, "rms_norm_eps": 1e-5}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1, "head_dim": 6}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-linear": ("Llama", {"rope_parameters": LINEAR}),
    "mistral": ("Mistral", {"sliding_window": 4, "head_dim": 6}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {**SEVERAL, "tie_word_embeddings": False}),
    "qwen3": ("Qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
    "qwen3-biased": ("Qwen3", {"head_dim": 4, "attention_bias": True, **SEVERAL}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1, 0], "tie_word_embeddings": True}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def theirs(name: str, task: str = "ForCausalLM", **settings: Any) -> Any:
    """A model of transformers with random weights, larger than it would draw them, so that errors show."""
    prefix, own = MODELS[name]
    config = getattr(transformers, f"{prefix}Config")(**SHAPE | own | settings)
    torch.manual_seed(0)
    model = getattr(transformers, prefix + task)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def described(model: Any) -> dict[str, Any]:
    """What config.json has of the model."""
    return model.config.to_dict() | {"architectures": [type(model).__name__]}


def converted(model: Any) -> Model:
    return from_huggingface(described(model), model.state_dict())


def padded(*, left: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(V, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    targets = torch.randint(V, ids.shape, generator=generator)
    mask = mask.flip(1) if left else mask
    return Batch(ids=ids, mask=mask, targets=targets.masked_fill(~mask, IGNORE))


def their_inputs(batch: Batch) -> dict[str, Tensor]:
    positions = (batch.mask.long().cumsum(dim=1) - 1).clamp(min=0)
    return {"input_ids": batch.ids, "attention_mask": batch.mask.long(), "position_ids": positions}


def close(ours: Tensor, expected: Tensor, name: str = "") -> None:
    """Equal to 1e-5; of float32 sums near zero, to 1e-5 of the tensor's scale."""
    atol = 1e-5 * float(expected.detach().abs().max())
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=atol, msg=lambda m: f"{name}: {m}")


@every_model
def test_logits_and_gradients_with_right_padding(name: str) -> None:
    reference = theirs(name)
    model, batch = converted(reference), padded()
    assert model.head.config.tied == reference.config.tie_word_embeddings
    logits = reference(**their_inputs(batch)).logits
    close(model(batch)[batch.mask], logits.log_softmax(dim=-1)[batch.mask])
    F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum").backward()
    model.loss(batch).total.backward()
    # Gradients are split and named like the weights, so they go through the same table.
    for parameter in model.parameters():
        parameter.data.copy_(parameter.grad)
    _, found = to_huggingface(model)
    expected = {key: p.grad for key, p in reference.named_parameters()}
    assert expected.keys() == found.keys()
    for key, gradient in expected.items():
        assert gradient.abs().max() > 0
        close(found[key], gradient, key)


@every_model
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_every_layer_is_theirs(name: str, left: bool) -> None:
    """Beginnings of texts in generation are padded on the left."""
    reference, batch = theirs(name), padded(left=left)
    hidden = reference(**their_inputs(batch), output_hidden_states=True).hidden_states
    layers = converted(reference).encoder(batch, keep="all").layers
    assert len(layers) == len(hidden) == LAYERS + 1
    for ours, expected in zip(layers, hidden, strict=True):
        close(ours[batch.mask], expected[batch.mask])


@every_model
def test_windows_with_the_cache_are_the_whole_text(name: str) -> None:
    model, ids = converted(theirs(name)), torch.randint(V, (2, 13), generator=torch.Generator().manual_seed(2))
    whole = model.encoder(Batch(ids, torch.ones_like(ids, dtype=torch.bool))).top
    state, tops = model.encoder.initial_state(2), []
    for part in ids.split([5, 1, 4, 1, 2], dim=1):
        encoded = model.encoder(Batch(part, torch.ones_like(part, dtype=torch.bool)), state)
        state = model.encoder.with_room(encoded.state)
        tops.append(encoded.top)
    close(torch.cat(tops, dim=1), whole)


@every_model
def test_greedy_generation_is_theirs(name: str) -> None:
    """Prompts of several lengths, padded on the left, continued with both caches."""
    reference, prompts, end = theirs(name), [[5, 9, 2, 17, 4], [8], [3, 3, 21], [28, 1, 2, 3, 4, 5, 6, 7]], 0
    model, width = converted(reference), 8
    ids = torch.tensor([[end] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    settings = {"do_sample": False, "pad_token_id": end, "eos_token_id": end, "max_new_tokens": 20}
    rows = reference.generate(ids, attention_mask=mask, **settings)[:, width:].tolist()
    expected = [row[: row.index(end) + 1] if end in row else row for row in rows]
    found: list[list[int]] = [[] for _ in prompts]
    for new in write(model, prompts, GenerateOptions(precision="fp32", max_tokens=20), Tokens(frozenset({end}))):
        found[new.row].append(new.token)
    assert found == expected
    assert len({token for row in found for token in row}) > 3


@every_model
@pytest.mark.parametrize("task", ["ForCausalLM", "ForSequenceClassification", "Model"])
def test_round_trips(name: str, task: str) -> None:
    """Theirs -> ours -> theirs gives the same weights and outputs; ours -> theirs -> ours the same model."""
    reference = theirs(name, task, num_labels=3)
    model, batch = converted(reference), padded()
    config, weights = to_huggingface(model)
    given = reference.state_dict()
    tied = {"lm_head.weight"} if reference.config.tie_word_embeddings else set()
    assert weights.keys() == given.keys() - tied
    assert all(torch.equal(given[key], value) for key, value in weights.items())
    assert (config["model_type"], config["architectures"]) == (reference.config.model_type, [type(reference).__name__])
    again = type(reference)(type(reference.config)(**config, attn_implementation="eager")).eval()
    assert not again.load_state_dict(weights, strict=False).unexpected_keys
    again.tie_weights()
    inputs = their_inputs(batch)
    if task == "ForSequenceClassification":
        assert torch.equal(again(batch.ids[:1]).logits, reference(batch.ids[:1]).logits)
    else:
        assert torch.equal(again(**inputs)[0], reference(**inputs)[0])
    ours = from_huggingface(config, weights)
    assert ours.describe() == model.describe()
    assert all(torch.equal(value, model.values()[key]) for key, value in ours.values().items())


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_a_classifier_reads_the_last_token(name: str) -> None:
    reference = theirs(name, "ForSequenceClassification", num_labels=3, pad_token_id=V - 1)
    model, batch = converted(reference), padded()
    batch.ids[batch.ids == V - 1] = 3
    ids = batch.ids.masked_fill(~batch.mask, V - 1)
    expected = reference(ids, attention_mask=batch.mask.long()).logits
    close(model(batch), expected)
    assert model.head.config.bias is False


def test_bare_models_and_older_files() -> None:
    """A model below its head has features; with config.json naming a language model its tied head is there."""
    bare = theirs("qwen2", "Model")
    weights = bare.state_dict() | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    batch = padded()
    model = from_huggingface(described(bare), weights)
    assert model.describe()["head"]["name"] == "features"
    close(model.encoder(batch).top[batch.mask], bare(**their_inputs(batch)).last_hidden_state[batch.mask])
    named = from_huggingface(described(bare) | {"architectures": ["Qwen2ForCausalLM"]}, weights)
    assert named.head.config.tied
    half = from_huggingface(described(bare), {key: value.bfloat16() for key, value in weights.items()})
    assert all(value.dtype == torch.float32 for value in half.values().values())
    table = bare.embed_tokens.weight.bfloat16().float()
    assert torch.equal(half.encoder.embedding.weight, table)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (10_000.0, None)),
        ({"rope_theta": 5.0, "rope_scaling": None}, (5.0, None)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, (7.0, None)),
        (
            {"rope_theta": 5.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            (5.0, {"type": "linear", "factor": 2.0}),
        ),
    ],
)
def test_rotary_settings_of_old_and_new_files(config: dict[str, Any], expected: tuple[float, Any]) -> None:
    assert rotary_settings(config, 10_000.0) == expected


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("llama", {"model_type": "llama9"}, "'llama9' is none of"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "lacks the number low_freq_factor"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        (
            "llama",
            {"architectures": ["LlamaForTokenClassification"]},
            "architecture LlamaForTokenClassification is none",
        ),
        (
            "llama",
            {"architectures": ["LlamaForSequenceClassification"]},
            "lack the head of a classifier (score.weight)",
        ),
        ("llama", {"tie_word_embeddings": True}, "are one according to config.json, but differ"),
        ("llama", {"num_hidden_layers": 5}, "missing: layers.4."),
        ("llama", {"num_hidden_layers": 3}, "left over: layers.3."),
        ("llama", {"attention_bias": True}, "missing: layers.0.self_attn.k_proj.bias"),
        ("llama", {"intermediate_size": 21}, "layers.0.mlp.gate_proj.weight is (20, 16), not (21, 16)"),
        ("llama", {"num_key_value_heads": 3}, "4 query heads cannot share 3 heads"),
        ("qwen2-window", {"layer_types": ["sliding_attention", *["full_attention"] * 3]}, "layer_types is"),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window is True"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name: str, settings: dict[str, Any], complaint: str) -> None:
    reference = theirs(name)
    with pytest.raises(UserError, match=re.escape(complaint)):
        from_huggingface(described(reference) | settings, reference.state_dict())


@pytest.mark.parametrize(
    ("encoder", "head", "complaint"),
    [
        ({"query_key_norm": True, "attention_bias": "inputs"}, {}, "this combination"),
        ({"window": 3, "attention_bias": "all"}, {}, "this combination"),
        ({}, {"bias": True}, "no model of Llama's kind with such a head"),
        ({}, {"output_layer": "adaptive"}, "no model of Llama's kind with such a head"),
    ],
)
def test_what_theirs_cannot_be_is_refused(encoder: dict[str, Any], head: dict[str, Any], complaint: str) -> None:
    description = converted(theirs("llama")).describe()
    model = build({"encoder": description["encoder"] | encoder, "head": description["head"] | head})
    with pytest.raises(UserError, match=complaint):
        to_huggingface(model)
