"""Our BERT and DistilBERT against those of the transformers library: outputs, losses, gradients, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from textgraft.conversion import huggingface
from textgraft.conversion.bert import from_huggingface, to_huggingface
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch, pad
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.heads.masked_language_model import MaskedLanguageModelHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.heads.tagging import TaggingHead
from textgraft.models.model import Model
from textgraft.text.wordpiece import WordPieceTokenizer, train

transformers = pytest.importorskip("transformers")

V, LENGTHS = 31, (7, 4, 1)
CLOSE = {"rtol": 1e-5, "atol": 2e-6}
BERT_FIELDS = {
    "vocab_size": V,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "attn_implementation": "eager",
}
DISTIL_FIELDS = {
    "vocab_size": V,
    "dim": 12,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 20,
    "max_position_embeddings": 9,
    "attn_implementation": "eager",
}
NAMES = [
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForMultipleChoice",
    "DistilBertModel",
    "DistilBertForMaskedLM",
    "DistilBertForSequenceClassification",
    "DistilBertForTokenClassification",
    "DistilBertForMultipleChoice",
]
IDLE = ("classifier.bias",)
"""Of multiple choice: it moves all options alike. Ours has none, and zeros are written."""


def theirs(name: str, **fields: Any) -> Any:
    """The library's model with weights large enough that each of them matters."""
    distil = name.startswith("Distil")
    config_class = transformers.DistilBertConfig if distil else transformers.BertConfig
    torch.manual_seed(0)
    model = getattr(transformers, name)(config_class(**{**(DISTIL_FIELDS if distil else BERT_FIELDS), **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.eval()


def batch() -> Batch:
    """No token is the library's padding token 0, whose embedding gets no gradient there."""
    generator = torch.Generator().manual_seed(1)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(1, V, shape, generator=generator)
    segments = torch.randint(2, shape, generator=generator)
    targets = torch.full(shape, IGNORE)
    targets[:, 0] = torch.tensor([3, 4, 5])
    return Batch(ids=ids, mask=mask, segments=segments, targets=targets, pair_targets=torch.tensor([1, 0, 1]))


def tags(given: Batch) -> Tensor:
    """The targets as tags of two kinds."""
    assert given.targets is not None
    return torch.where(given.targets == IGNORE, IGNORE, given.targets % 2)


def their_results(model: Any, given: Batch) -> tuple[Tensor, Tensor]:
    """The main output and a loss, the one that the library itself computes where it has one."""
    inputs = {"input_ids": given.ids, "attention_mask": given.mask.long()}
    name = type(model).__name__
    if not name.startswith("Distil"):
        inputs["token_type_ids"] = given.segments
    if name.endswith("ForPreTraining"):
        out = model(**inputs, labels=given.targets, next_sentence_label=given.pair_targets)
        return out.prediction_logits.log_softmax(-1), out.loss
    if name.endswith("ForMaskedLM"):
        out = model(**inputs, labels=given.targets)
        return out.logits.log_softmax(-1), out.loss
    if name.endswith("ForSequenceClassification"):
        out = model(**inputs, labels=given.pair_targets)
        return out.logits, out.loss
    if name.endswith("ForTokenClassification"):
        out = model(**inputs, labels=tags(given))
        return out.logits, out.loss
    if name.endswith("ForMultipleChoice"):
        options = {key: torch.stack([value, value.roll(1, dims=0)], dim=1) for key, value in inputs.items()}
        out = model(**options, labels=given.pair_targets)
        return out.logits - model.classifier.bias, out.loss
    out = model(**inputs)
    pooled = out.pooler_output.pow(3).sum() if name == "BertModel" else 0
    return out.last_hidden_state, out.last_hidden_state[given.mask].pow(3).sum() + pooled


def our_results(model: Model, given: Batch) -> tuple[Tensor, Tensor]:
    if isinstance(model.head, FeaturesHead):
        encoded = model.encoder(given)
        pooled = 0 if encoded.pooled is None else encoded.pooled.pow(3).sum()
        return encoded.top, encoded.top[given.mask].pow(3).sum() + pooled
    if isinstance(model.head, ClassificationHead):
        given = given.with_targets(given.pair_targets)
    if isinstance(model.head, TaggingHead):  # every piece a word of its own, of which one has a tag
        first = replace(given, words=torch.zeros(len(LENGTHS), 1, dtype=torch.long), targets=tags(given)[:, :1])
        loss = model.loss(first)
        return model(given), loss.total / loss.count
    if isinstance(model.head, ChoiceHead):
        assert given.segments is not None
        parts = given.ids, given.mask, given.segments
        rows = [torch.stack([x, x.roll(1, dims=0)], dim=1).flatten(0, 1) for x in parts]
        groups = torch.arange(len(LENGTHS)).repeat_interleave(2)
        given = Batch(rows[0], rows[1], given.pair_targets, segments=rows[2], groups=groups)
    loss = model.loss(given)
    return model(given), loss.total / loss.count


@pytest.mark.parametrize("name", NAMES)
def test_outputs_loss_and_gradients_are_the_librarys(name: str, tmp_path: Path) -> None:
    reference, given = theirs(name), batch()
    reference.save_pretrained(tmp_path)
    model = huggingface.load(tmp_path)
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
    _, gradients = to_huggingface(model)  # each under the library's name
    reference_gradients = {n: p.grad for n, p in reference.named_parameters()}
    assert gradients.keys() == reference_gradients.keys()
    # What options share is there, and cancels; what rounding leaves of it depends on the processor.
    near = 1e-4 if name.endswith("ForMultipleChoice") else 1e-6
    scale = max(float(g.abs().max()) for g in reference_gradients.values())
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, reference_gradients[key], rtol=1e-5, atol=near * scale, msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_round_trips_lose_nothing(name: str, tmp_path: Path) -> None:
    reference, given = theirs(name), batch()
    reference.save_pretrained(tmp_path / "theirs")
    huggingface.save(huggingface.load(tmp_path / "theirs"), tmp_path / "ours")
    reopened, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for key, value in reference.state_dict().items():
        idle = name.endswith("ForMultipleChoice") and key in IDLE
        assert torch.equal(reopened.state_dict()[key], torch.zeros_like(value) if idle else value), key
    ours_again = huggingface.load(tmp_path / "ours")
    assert ours_again.describe() == huggingface.load(tmp_path / "theirs").describe()
    # The reopened model may compute attention by another kernel.
    expected = their_results(reference, given)[0]
    torch.testing.assert_close(their_results(reopened, given)[0][:, 0], expected[:, 0], rtol=1e-4, atol=1e-5)
    same = {"classifier_dropout", "seq_classif_dropout", "layer_norm_eps", "id2label", "problem_type", "architectures"}
    if "Classification" not in name and "Choice" not in name:
        for key in same & reference.config.to_dict().keys():
            assert getattr(reopened.config, key) == getattr(reference.config, key), key


def test_an_untied_output_table_stays_its_own(tmp_path: Path) -> None:
    reference, given = theirs("BertForMaskedLM", tie_word_embeddings=False), batch()
    with torch.no_grad():
        reference.cls.predictions.decoder.bias.copy_(reference.cls.predictions.bias)
    reference.save_pretrained(tmp_path)
    model = huggingface.load(tmp_path)
    assert not model.head.config.tied
    torch.testing.assert_close(model(given)[given.mask], their_results(reference, given)[0][given.mask], **CLOSE)
    assert torch.equal(to_huggingface(model)[1]["cls.predictions.decoder.weight"], model.head.output.weight)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"num_labels": 1}, "numeric"), ({"num_labels": 4, "problem_type": "multi_label_classification"}, "multi")],
)
def test_what_is_classified_is_kept(fields: dict[str, Any], kind: str, tmp_path: Path) -> None:
    theirs("BertForSequenceClassification", classifier_dropout=0.3, **fields).save_pretrained(tmp_path)
    config = huggingface.load(tmp_path).head.config
    assert (config.kind, config.outputs, config.input_dropout) == (kind, fields["num_labels"], 0.3)
    assert (config.pooling, config.hidden_dim, config.batch_norm) == ("pooled", 0, False)


def test_weights_in_shards_in_pickles_and_by_old_names_are_the_same(tmp_path: Path) -> None:
    reference = theirs("BertForPreTraining")
    reference.save_pretrained(tmp_path / "whole")
    reference.save_pretrained(tmp_path / "shards", max_shard_size="2KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    expected = huggingface.load(tmp_path / "whole").values()
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for n, t in reference.state_dict().items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(9)[None]
    config = (tmp_path / "whole" / "config.json").read_text()
    for folder, index in (("pickle", False), ("pickles", True)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(config)
        name = "pytorch_model-00001-of-00001.bin" if index else "pytorch_model.bin"
        torch.save(old, tmp_path / folder / name)
        if index:
            content = json.dumps({"weight_map": dict.fromkeys(old, name)})
            (tmp_path / folder / "pytorch_model.bin.index.json").write_text(content)
    for folder in ("shards", "pickle", "pickles"):
        found = huggingface.load(tmp_path / folder).values()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items()), folder


def test_half_precision_is_read_as_float32(tmp_path: Path) -> None:
    theirs("BertModel").bfloat16().save_pretrained(tmp_path)
    model = huggingface.load(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert stored.dtype == torch.bfloat16
    assert torch.equal(model.encoder.embedding.weight, stored.float())


def saved(tmp_path: Path, name: str = "BertModel", **config: Any) -> Path:
    """A folder of the library's, its config changed."""
    theirs(name).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "brt"}, r"has no architecture 'brt'.*Did you mean 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"architectures": ["BertLMHeadModel"]}, "BertLMHeadModel is none of: BertForMaskedLM"),
        ({"vocab_size": 30}, r"word_embeddings.weight is \(31, 12\), not \(30, 12\)"),
        ({"num_hidden_layers": 1}, r"left over: encoder.layer.1"),
        ({"num_hidden_layers": 3}, r"missing: encoder.layer.2"),
        ({"num_attention_heads": 5}, "5 heads"),
    ],
)
def test_a_config_that_ours_is_not_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        huggingface.load(saved(tmp_path, **changes))


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    config, weights = to_huggingface(huggingface.load(saved(tmp_path)))
    del config["intermediate_size"]
    with pytest.raises(UserError, match="'intermediate_size' is missing"):
        from_huggingface(config, weights)


def test_copies_that_differ_are_refused(tmp_path: Path) -> None:
    config, weights = to_huggingface(huggingface.load(saved(tmp_path, "BertForMaskedLM")))
    table = weights["bert.embeddings.word_embeddings.weight"]
    assert from_huggingface(config, {**weights, "cls.predictions.decoder.weight": table}).head.config.tied
    with pytest.raises(UserError, match=r"'cls.predictions.decoder.weight' are one according to config.json"):
        from_huggingface(config, {**weights, "cls.predictions.decoder.weight": table + 1})


class Harm:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, (Path("harm-was-done"),)  # type: ignore[return-value]


def test_a_pickle_with_code_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings": Harm()}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin: damaged, or more than weights.*as safetensors"):
        huggingface.load(folder)
    assert not (tmp_path / "harm-was-done").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", b"{", "config.json: damaged"),
        ("config.json", b"[]", "not a JSON object"),
        ("model.safetensors", b"short", "model.safetensors: damaged"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../secret.safetensors"}}', "outside this folder"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "gone.safetensors"}}', r"missing \(1 of 1\): gone"),
        ("model.safetensors.index.json", b"{}", "no weight_map"),
        ("pytorch_model.bin", b"", "pytorch_model.bin: damaged"),
    ],
)
def test_damaged_files_are_named(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    folder = saved(tmp_path)
    if file != "config.json":
        (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        huggingface.load(folder)


def test_a_folder_without_weights_or_with_too_few_shards_says_so(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no weights in this folder.*model.safetensors, "):
        huggingface.load(folder)
    save_file({"a": torch.zeros(1)}, folder / "part.safetensors")
    index = {"weight_map": dict.fromkeys(weights, "part.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"shards lack 39 of the index's weights"):
        huggingface.load(folder)


def test_what_the_library_has_no_class_for_is_not_written(tmp_path: Path) -> None:
    lstm = AWDLSTM(AWDLSTMConfig(V, 6, 5, 2))
    with pytest.raises(UserError, match=r"family 'awd_lstm'.*bert"):
        huggingface.save(Model(lstm, FeaturesHead(FeaturesConfig(6))), tmp_path / "x")
    small = {"vocab_size": V, "embedding_dim": 6, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 4}
    bert = BERT(BERTConfig(**small))
    with pytest.raises(UserError, match="no Bert with such a head"):
        huggingface.save(Model(bert, ClassificationHead(ClassificationConfig(6, 2, direction="both"))), tmp_path / "x")
    unsegmented = BERT(BERTConfig(**small, num_segments=0))
    with pytest.raises(UserError, match="without segments is a DistilBERT"):
        huggingface.save(Model(unsegmented, FeaturesHead(FeaturesConfig(6))), tmp_path / "x")
    huggingface.save(Model(bert, FeaturesHead(FeaturesConfig(6))), tmp_path / "x")
    with pytest.raises(UserError, match="exists already"):
        huggingface.save(Model(bert, FeaturesHead(FeaturesConfig(6))), tmp_path / "x")


def test_without_a_task_there_is_vectors_and_no_loss(tmp_path: Path) -> None:
    model, given = huggingface.load(saved(tmp_path)), batch()
    assert torch.equal(model(given), model.encoder(given).top)
    assert model.layer_groups()[-1].parameters == ()
    with pytest.raises(UserError, match="without a task cannot be trained"):
        model.loss(given)


def test_weights_of_both_tasks_are_read_whatever_the_architecture_says(tmp_path: Path) -> None:
    model = huggingface.load(saved(tmp_path, "BertForPreTraining", architectures=["BertForMaskedLM"]))
    assert isinstance(model.head, MaskedLanguageModelHead)
    assert model.head.config.tied
    assert model.head.config.next_sentence
    assert model.encoder.config.pooler


def test_a_folder_with_its_tokenizer_opens_whole(tmp_path: Path) -> None:
    tokenizer = train(["the film was good and the cat was bad"] * 3, vocab_size=V + 20)
    bert = BERT(BERTConfig(tokenizer.vocab_size, 6, 1, 2, 8, 16))
    model = Model(bert.eval(), FeaturesHead(FeaturesConfig(6)))
    huggingface.save(model, tmp_path / "x", others=tokenizer.huggingface_files())
    library = transformers.AutoModel.from_pretrained(tmp_path / "x").eval()
    texts = ["the good film", "bad"]
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")(texts, return_tensors="pt", padding=True)
    ours = pad(WordPieceTokenizer.from_huggingface(tmp_path / "x").encode_batch(texts), tokenizer.pad_id)
    assert torch.equal(inputs["input_ids"], ours.ids)
    expected = library(**inputs)
    found = huggingface.load(tmp_path / "x").encoder(ours)
    torch.testing.assert_close(found.top[ours.mask], expected.last_hidden_state[ours.mask], **CLOSE)
    torch.testing.assert_close(found.pooled, expected.pooler_output, **CLOSE)
