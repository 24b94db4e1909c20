"""RoBERTa, XLM-R, CamemBERT and MPNet against the transformers library: outputs, losses, gradients, folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import published
import pytest
import torch
from torch import Tensor

from textgraft.conversion import huggingface
from textgraft.conversion.convert import convert
from textgraft.conversion.hub import load
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch, pad
from textgraft.encoders.mpnet import distance_buckets
from textgraft.heads.classification import ClassificationHead
from textgraft.heads.features import FeaturesHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.heads.span import SpanHead
from textgraft.heads.tagging import TaggingHead
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model

transformers = pytest.importorskip("transformers")

V, LENGTHS, POSITIONS = 31, (7, 4, 1), 12
CLOSE = {"rtol": 1e-5, "atol": 2e-6}
FIELDS = {
    "vocab_size": V,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": POSITIONS + 2,
    "layer_norm_eps": 1e-5,
    "attn_implementation": "eager",
}
FAMILIES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert", "mpnet": "MPNet"}
TASKS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
)
NAMES = [f"{family}{task}" for family in ("Roberta", "MPNet") for task in TASKS]
NAMES += ["XLMRobertaForMaskedLM", "CamembertForSequenceClassification"]
IDLE = {"ForMultipleChoice": "classifier.bias", "ForQuestionAnswering": "qa_outputs.bias"}
"""Biases that move all scores alike; textgraft has none, and writes zeros."""


def parts(name: str) -> tuple[str, str]:
    """The family's prefix and the task of a class name."""
    family = next(f for f in sorted(FAMILIES.values(), key=len, reverse=True) if name.startswith(f))
    return family, name.removeprefix(family)


def theirs(name: str, **fields: Any) -> Any:
    """The library's model with weights large enough that each of them matters, but zeros as the padding's."""
    config = getattr(transformers, f"{parts(name)[0]}Config")
    one_segment = {} if name.startswith("MPNet") else {"type_vocab_size": 1}
    torch.manual_seed(0)
    model = getattr(transformers, name)(config(**FIELDS, **one_segment, **fields))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.eval()


def batch() -> Batch:
    """Ids that are not the padding token's, 1, except in the padding."""
    generator = torch.Generator().manual_seed(1)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(2, V, shape, generator=generator).masked_fill(~mask, 1)
    targets = torch.full(shape, IGNORE)
    targets[:, 0] = torch.tensor([3, 4, 5])
    segments = torch.randint(2, shape, generator=generator)  # which these families do not tell apart
    return Batch(ids=ids, mask=mask, segments=segments, targets=targets, pair_targets=torch.tensor([1, 0, 1]))


def tags(given: Batch) -> Tensor:
    assert given.targets is not None
    return torch.where(given.targets == IGNORE, IGNORE, given.targets % 2)


def their_results(model: Any, given: Batch) -> tuple[Tensor, Tensor]:
    """The main output and a loss, the one that the library itself computes where it has one."""
    inputs = {"input_ids": given.ids, "attention_mask": given.mask.long()}
    match parts(type(model).__name__)[1]:
        case "ForMaskedLM":
            out = model(**inputs, labels=given.targets)
            return out.logits.log_softmax(-1), out.loss
        case "ForSequenceClassification":
            out = model(**inputs, labels=given.pair_targets)
            return out.logits, out.loss
        case "ForTokenClassification":
            out = model(**inputs, labels=tags(given))
            return out.logits, out.loss
        case "ForQuestionAnswering":
            out = model(**inputs)
            return torch.stack([out.start_logits, out.end_logits], dim=2) - model.qa_outputs.bias, span_loss(
                torch.stack([out.start_logits, out.end_logits], dim=2), given
            )
        case "ForMultipleChoice":
            options = {key: torch.stack([value, value.roll(1, dims=0)], dim=1) for key, value in inputs.items()}
            out = model(**options, labels=given.pair_targets)
            return out.logits - model.classifier.bias, out.loss
    out = model(**inputs)
    loss = out.last_hidden_state[given.mask].pow(3).sum() + out.pooler_output.pow(3).sum()
    return out.last_hidden_state, loss


def span_loss(logits: Tensor, given: Batch) -> Tensor:
    """Cross entropy of the first position as start and end, over the real positions."""
    return -logits.masked_fill(~given.mask[:, :, None], -1e9).log_softmax(dim=1)[:, 0].mean()


def our_results(model: Model, given: Batch) -> tuple[Tensor, Tensor]:
    if isinstance(model.head, FeaturesHead):
        encoded = model.encoder(given)
        assert encoded.pooled is not None
        return encoded.top, encoded.top[given.mask].pow(3).sum() + encoded.pooled.pow(3).sum()
    if isinstance(model.head, ClassificationHead):
        given = given.with_targets(given.pair_targets)
    if isinstance(model.head, SpanHead):
        logits = model(given)
        return logits, span_loss(logits, given)
    if isinstance(model.head, TaggingHead):  # every piece a word of its own, of which one has a tag
        first = replace(given, words=torch.zeros(len(LENGTHS), 1, dtype=torch.long), targets=tags(given)[:, :1])
        loss = model.loss(first)
        return model(given), loss.total / loss.count
    if isinstance(model.head, ChoiceHead):
        rows = [torch.stack([x, x.roll(1, dims=0)], dim=1).flatten(0, 1) for x in (given.ids, given.mask)]
        groups = torch.arange(len(LENGTHS)).repeat_interleave(2)
        given = Batch(rows[0], rows[1], given.pair_targets, groups=groups)
    loss = model.loss(given)
    return model(given), loss.total / loss.count


@pytest.mark.parametrize("name", NAMES)
def test_outputs_loss_and_gradients_are_the_librarys(name: str, tmp_path: Path) -> None:
    reference, given = theirs(name), batch()
    reference.save_pretrained(tmp_path)
    model = huggingface.load(tmp_path)
    assert model.encoder.max_length == POSITIONS
    expected, expected_loss = their_results(reference, given)
    found, loss = our_results(model, given)
    if expected.ndim == 3:
        expected, found = expected[given.mask], found[given.mask]
    torch.testing.assert_close(found, expected, **CLOSE)
    torch.testing.assert_close(loss, expected_loss, **CLOSE)
    expected_loss.backward()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.copy_(parameter.grad)
    writer = huggingface.import_module(huggingface.WRITERS[model.family])
    _, gradients = writer.to_huggingface(model)  # each under the library's name
    tied = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    reference_gradients = {tied.get(n, n): p.grad for n, p in reference.named_parameters()}
    assert gradients.keys() == reference_gradients.keys()
    # What options or positions share cancels; what rounding leaves of it depends on the processor.
    near = 1e-4 if name.endswith(("ForMultipleChoice", "ForQuestionAnswering")) else 1e-6
    scale = max(float(g.abs().max()) for g in reference_gradients.values())
    for key, gradient in gradients.items():
        torch.testing.assert_close(
            gradient,
            reference_gradients[key],
            rtol=1e-5,
            atol=near * scale,
            msg=lambda m, key=key: f"{key} of {scale}: {m}",
        )


@pytest.mark.parametrize("name", NAMES)
def test_round_trips_lose_nothing_that_is_used(name: str, tmp_path: Path) -> None:
    reference, given = theirs(name), batch()
    family, task = parts(name)
    reference.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs")
    huggingface.save(ours, tmp_path / "ours")
    library = getattr(transformers, ("MPNet" if family == "MPNet" else "Roberta") + task)
    reopened, info = library.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    values = reopened.state_dict()
    for key, value in reference.state_dict().items():
        wanted = torch.zeros_like(value) if key == IDLE.get(task) else value
        unused = 2 if key.endswith("position_embeddings.weight") else 0  # of the positions before the first token's
        assert torch.equal(values[key][unused:], wanted[unused:]), key
    assert huggingface.load(tmp_path / "ours").describe() == ours.describe()
    # The reopened model may compute attention by another kernel.
    expected, found = their_results(reference, given)[0], their_results(reopened, given)[0]
    torch.testing.assert_close(found[:, 0], expected[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_folder_with_its_tokenizer_opens_whole_and_converts_back(kind: str, tmp_path: Path) -> None:
    tokenizer = published.pipeline(kind)
    config = getattr(transformers, f"{FAMILIES[kind]}Config")(
        **FIELDS | {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 42}
    )
    reference = getattr(transformers, f"{FAMILIES[kind]}Model")(config).eval()
    reference.save_pretrained(tmp_path / "theirs")
    published.save(kind, tmp_path / "theirs")
    opened = load(f"hf:{tmp_path / 'theirs'}")
    assert isinstance(opened, Artifact)
    texts = ["the cat was bad", "London", "ดีมาก"]
    given = pad(opened.tokenizer.encode_batch(texts), opened.tokenizer.pad_id)
    for row, text in enumerate(texts):
        assert given.ids[row][given.mask[row]].tolist() == tokenizer.encode(text).ids
    expected = reference(input_ids=given.ids, attention_mask=given.mask.long()).last_hidden_state
    torch.testing.assert_close(opened.model.encoder(given).top[given.mask], expected[given.mask], **CLOSE)
    convert(f"hf:{tmp_path / 'theirs'}", tmp_path / "ours", to="huggingface")
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")(texts, return_tensors="pt", padding=True)
    assert torch.equal(inputs["input_ids"], given.ids)
    found = again(**inputs).last_hidden_state
    torch.testing.assert_close(found[given.mask], expected[given.mask], rtol=1e-4, atol=1e-5)


def changed(folder: Path, **settings: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("RobertaModel", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("RobertaModel", {"is_decoder": True}, "is_decoder is True"),
        (
            "RobertaModel",
            {"architectures": ["RobertaForCausalLM"]},
            "RobertaForCausalLM is none of: RobertaForMaskedLM",
        ),
        ("RobertaModel", {"pad_token_id": 3}, r"position_embeddings.weight is \(10, 12\), not \(8, 12\)"),
        ("MPNetModel", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("MPNetModel", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16"),
        ("RobertaModel", {"vocab_size": 30}, r"word_embeddings.weight is \(31, 12\), not \(30, 12\)"),
    ],
)
def test_a_config_that_ours_is_not_is_refused(
    name: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    theirs(name).save_pretrained(tmp_path)
    if "pad_token_id" in settings:
        settings = {**settings, "max_position_embeddings": POSITIONS}
    with pytest.raises(UserError, match=message):
        huggingface.load(changed(tmp_path, **settings))


def test_positions_are_counted_from_another_padding_too(tmp_path: Path) -> None:
    reference, given = theirs("RobertaModel", pad_token_id=0), batch()
    reference.save_pretrained(tmp_path / "a")
    model = huggingface.load(tmp_path / "a")
    assert (model.encoder.config.padding_id, model.encoder.max_length) == (0, POSITIONS + 1)
    given = replace(given, ids=given.ids.masked_fill(~given.mask, 0))
    expected = their_results(reference, given)[0][given.mask]
    torch.testing.assert_close(model.encoder(given).top[given.mask], expected, **CLOSE)
    huggingface.save(model, tmp_path / "b")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["pad_token_id"] == 0


def test_only_the_first_segment_is_read(tmp_path: Path) -> None:
    """The library gives these families no other, whatever the table has."""
    reference, given = (
        transformers.RobertaModel(transformers.RobertaConfig(**FIELDS, type_vocab_size=2)).eval(),
        batch(),
    )
    reference.save_pretrained(tmp_path)
    model = huggingface.load(tmp_path)
    assert model.encoder.config.num_segments == 1
    torch.testing.assert_close(
        model.encoder(given).top[given.mask], their_results(reference, given)[0][given.mask], **CLOSE
    )


def test_a_model_whose_tokenizer_pads_with_another_id_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    config = transformers.RobertaConfig(**FIELDS | {"vocab_size": 500}, pad_token_id=0)
    transformers.RobertaModel(config).save_pretrained(folder)
    published.save("roberta", folder)
    with pytest.raises(UserError, match="pads with token 1, and the model counts positions from 0"):
        convert(f"hf:{folder}", tmp_path / "b", to="huggingface")
    assert not (tmp_path / "b").exists()


def test_buckets_of_distances_are_the_librarys() -> None:
    encoder = transformers.models.mpnet.modeling_mpnet.MPNetEncoder
    distances = torch.arange(-600, 601)
    expected = encoder.relative_position_bucket(distances, num_buckets=32)
    assert torch.equal(distance_buckets(distances, 32, 128), expected)
