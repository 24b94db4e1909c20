"""ModernBERT and its heads against transformers, same tiny random weights: outputs, gradients, files both ways."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.conversion.modernbert import from_huggingface, to_huggingface
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.models.model import Model, build

transformers = pytest.importorskip("transformers")

V, LAYERS, LENGTHS = 31, 5, (13, 8, 1)
SHAPE = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": LAYERS}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 20, "local_attention": 6, "num_labels": 3}
SHAPE |= {f"{name}_token_id": None for name in ("pad", "bos", "eos", "cls", "sep")}
SHAPE |= {"attn_implementation": "eager"}
TASKS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
every_task = pytest.mark.parametrize("task", TASKS)


def theirs(task: str, **settings: Any) -> Any:
    """A model of transformers with random weights, larger than it would draw them, so that errors show."""
    if task == "ForQuestionAnswering":
        settings["num_labels"] = 2
    torch.manual_seed(0)
    model = getattr(transformers, f"ModernBert{task}")(transformers.ModernBertConfig(**SHAPE | settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def described(model: Any) -> dict[str, Any]:
    """What config.json has of the model."""
    return model.config.to_dict() | {"architectures": [type(model).__name__]}


def converted(model: Any) -> Model:
    return from_huggingface(described(model), model.state_dict()).eval()


def padded() -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(V, (len(LENGTHS), max(LENGTHS)), generator=generator)
    return Batch(ids=ids, mask=torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None])


def their_output(model: Any, batch: Batch) -> Tensor:
    out = model(input_ids=batch.ids, attention_mask=batch.mask.long())
    return torch.stack([out.start_logits, out.end_logits], dim=2) if hasattr(out, "start_logits") else out[0]


def close(ours: Tensor, expected: Tensor, name: str = "") -> None:
    """Equal to 1e-5; of float32 sums near zero, to 1e-5 of the tensor's scale."""
    atol = 1e-5 * float(expected.detach().abs().max())
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=atol, msg=lambda m: f"{name}: {m}")


@every_task
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_outputs_and_gradients_of_every_head(task: str, pooling: str) -> None:
    """Gradients of the sum of random multiples of all outputs."""
    reference = theirs(task, classifier_pooling=pooling)
    model, batch = converted(reference), padded()
    expected, found = their_output(reference, batch), model(batch)
    if task == "ForMaskedLM":
        expected = expected.log_softmax(dim=-1)
    if task == "ForQuestionAnswering":  # the bias of a position-independent score
        found = found + reference.classifier.bias
    if task != "ForSequenceClassification":
        expected, found = expected[batch.mask], found[batch.mask]
    close(found, expected)
    factors = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    (expected * factors).sum().backward()
    (found * factors).sum().backward()
    for parameter in model.parameters():
        parameter.data.copy_(parameter.grad)
    _, gradients = to_huggingface(model)
    named = {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}
    if task == "ForQuestionAnswering":
        named.pop("classifier.bias")
        gradients.pop("classifier.bias")
    assert named.keys() == gradients.keys()
    for name, gradient in named.items():
        assert gradient.abs().max() > 0
        close(gradients[name], gradient, name)


def test_losses_of_masked_tokens() -> None:
    reference, batch = theirs("ForMaskedLM"), padded()
    targets = torch.where(batch.mask & (torch.arange(13) % 3 == 0), batch.ids, IGNORE)
    model = converted(reference)
    logits = their_output(reference, batch)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    close(model.loss(batch.with_targets(targets)).total, expected)


@pytest.mark.parametrize("window", [2, 4, 6, 40])  # 1, 2 and 3 on either side: in blocks, and with a mask
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_every_layer_is_theirs(window: int, every: int) -> None:
    """Local windows narrower and wider than the texts, and all spacings of global layers."""
    kinds = ["sliding_attention" if i % every else "full_attention" for i in range(LAYERS)]
    reference, batch = theirs("Model", local_attention=window, layer_types=kinds), padded()
    hidden = reference(batch.ids, attention_mask=batch.mask.long(), output_hidden_states=True).hidden_states
    layers = converted(reference).encoder(batch, keep="all").layers
    assert len(layers) == len(hidden) == LAYERS + 1
    for ours, expected in zip(layers, hidden, strict=True):
        close(ours[batch.mask], expected[batch.mask])


def test_texts_of_one_length_need_no_mask() -> None:
    model, batch = converted(theirs("Model")), padded()
    whole = Batch(ids=batch.ids, mask=torch.ones_like(batch.mask))
    masks = model.encoder._masks(whole.mask)
    assert masks[True] == (None, None)
    assert masks[False][0] is not None
    for row in range(3):
        alone = Batch(ids=batch.ids[row : row + 1], mask=whole.mask[:1])
        close(model.encoder(alone).top[0], model.encoder(whole).top[row])


@every_task
def test_round_trips(task: str) -> None:
    """Theirs -> ours -> theirs gives the same weights and outputs; ours -> theirs -> ours the same model."""
    reference = theirs(task, classifier_pooling="mean")
    model, batch = converted(reference), padded()
    config, weights = to_huggingface(model)
    given = reference.state_dict()
    tied = {"decoder.weight"} if task == "ForMaskedLM" else set()
    assert weights.keys() == given.keys() - tied
    idle = {"classifier.bias"} if task == "ForQuestionAnswering" else set()
    assert all(torch.equal(given[key], value) for key, value in weights.items() if key not in idle)
    again = type(reference)(transformers.ModernBertConfig(**config, attn_implementation="eager")).eval()
    assert not again.load_state_dict(weights, strict=False).unexpected_keys
    again.tie_weights()
    if not idle:
        assert torch.equal(their_output(again, batch), their_output(reference, batch))
    ours = from_huggingface(config, weights)
    assert ours.describe() == model.describe()
    assert all(torch.equal(value, model.values()[key]) for key, value in ours.values().items())


def test_settings_of_older_versions_of_the_library() -> None:
    reference = theirs("Model")
    config, weights = described(reference), reference.state_dict()
    for name in ("layer_types", "rope_parameters"):
        config.pop(name)
    older = {"global_attn_every_n_layers": 2, "global_rope_theta": 900.0, "local_rope_theta": None}
    found = from_huggingface(config | older, weights).encoder.config
    assert (found.global_every, found.global_rotary_base, found.local_rotary_base) == (2, 900.0, 900.0)
    found = from_huggingface(config, weights).encoder.config
    assert (found.global_every, found.global_rotary_base, found.local_rotary_base) == (3, 160_000.0, 10_000.0)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"norm_bias": True}, "norm_bias is True"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
        ({"layer_types": ["sliding_attention"] + ["full_attention"] * 4}, "layer_types is"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"classifier_pooling": "max"}, "classifier_pooling 'max' is not known"),
        ({"architectures": ["ModernBertForMultipleChoice"]}, "architecture ModernBertForMultipleChoice is none of"),
        (
            {"architectures": ["ModernBertForTokenClassification"]},
            "lack the head of a ModernBertForTokenClassification",
        ),
        ({"num_hidden_layers": 6, "layer_types": None}, "missing: layers.5.attn.Wo.weight"),
        ({"intermediate_size": 21}, "layers.0.mlp.Wi.weight is (40, 16), not (42, 16)"),
        ({"num_attention_heads": 3}, "3 heads cannot share a width of 16"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(settings: dict[str, Any], complaint: str) -> None:
    reference = theirs("ForMaskedLM")
    with pytest.raises(UserError, match=re.escape(complaint)):
        from_huggingface(described(reference) | settings, reference.state_dict())


@pytest.mark.parametrize(
    ("encoder", "head"),
    [
        ({}, {"name": "classification", "input_dim": 16, "outputs": 2, "pooling": "mean"}),
        ({"transform": True}, {"name": "tagging", "input_dim": 16, "tags": ["x", "y"], "crf": True}),
        ({}, {"name": "masked_language_model", "input_dim": 16, "vocab_size": V}),
    ],
)
def test_what_theirs_cannot_be_is_refused(encoder: dict[str, Any], head: dict[str, Any]) -> None:
    description = converted(theirs("Model")).describe()
    model = build({"encoder": description["encoder"] | encoder, "head": head})
    with pytest.raises(UserError, match="no ModernBERT with such a head"):
        to_huggingface(model)
