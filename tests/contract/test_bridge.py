"""What every architecture that runs through the transformers library must keep, on tiny random checkpoints."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from tiny_checkpoints import BRIDGED, WIDTH, save_checkpoint

import textgraft
from textgraft import UserError
from textgraft.conversion import huggingface
from textgraft.data.batch import Batch, pad
from textgraft.data.examples import Choice, Pair
from textgraft.data.sequences import encode_texts
from textgraft.data.words import word_windows
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build, graft, with_dropout

transformers = pytest.importorskip("transformers", minversion="5")
TEXTS = [text[:60] for text in reviews(4, 1)[0]] + ["a film"]
PAIRS = [Pair(text[:40], "the plot is dull"[: 3 + 4 * i]) for i, text in enumerate(TEXTS)]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
every = pytest.mark.parametrize("model_type", BRIDGED)
MASKED = [name for name in BRIDGED if name not in ("xlnet", "t5", "mobilebert", "gte")]
"""Those whose masked-language-model head is taken over."""
Opened = Callable[..., tuple[Path, Artifact]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A function from an architecture and a class of the library to a folder and the artifact opened from it."""

    @cache
    def opening(model_type: str, auto: str = "AutoModel") -> tuple[Path, Artifact]:
        folder = save_checkpoint(model_type, tmp_path_factory.mktemp(model_type) / "checkpoint", auto=auto)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return folder, loading.load_network(f"hf:{folder}")

    return opening


def library_model(model_type: str, folder: Path, auto: str = "AutoModel") -> Any:
    auto = "T5EncoderModel" if model_type == "t5" else auto
    options = {"attention_type": "original_full"} if model_type == "big_bird" else {}
    return getattr(transformers, auto).from_pretrained(folder, **options).eval()


def library_inputs(model_type: str, folder: Path, texts: list[Any]) -> dict[str, torch.Tensor]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = [(t.first, t.second) if isinstance(t, Pair) else t for t in texts]
    encoded = dict(tokenizer(given, padding=True, return_tensors="pt"))
    if model_type in ("deberta", "deberta-v2", "gte"):
        encoded.pop("token_type_ids", None)  # of which the library says that there is only one type
    if model_type == "longformer":
        encoded["global_attention_mask"] = torch.zeros_like(encoded["input_ids"])
        encoded["global_attention_mask"][:, 0] = 1
    return encoded


def our_batch(source: Artifact, texts: list[Any]) -> Batch:
    sequences, _ = encode_texts(source.tokenizer, texts, 64)
    return pad(sequences, source.tokenizer.pad_id)


def library_output(model: Any, inputs: dict[str, torch.Tensor], rowwise: bool, **options: Any) -> list[Any]:
    """The library's output for each row; all rows at once, or one by one without padding."""
    if not rowwise:
        together = model(**inputs, **options)
        return [together]
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    rows = range(len(lengths))
    return [model(**{k: v[i : i + 1, : lengths[i]] for k, v in inputs.items()}, **options) for i in rows]


@every
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_ids_and_every_layer_are_the_librarys(model_type: str, texts: list[Any], opened: Opened) -> None:
    """The same ids, and hidden states of all layers, in a batch of unequal lengths."""
    folder, source = opened(model_type)
    encoder: Any = source.model.encoder
    batch, inputs = our_batch(source, texts), library_inputs(model_type, folder, texts)
    assert torch.equal(batch.ids[batch.mask], inputs["input_ids"][inputs["attention_mask"].bool()])
    with torch.no_grad():
        found = encoder(batch, keep="all")
        rowwise = encoder.config.mixes_padding
        outputs = library_output(library_model(model_type, folder), inputs, rowwise, output_hidden_states=True)
    expected = [
        torch.cat([output.hidden_states[i].flatten(0, 1) for output in outputs])
        for i in range(len(outputs[0].hidden_states))
        if outputs[0].hidden_states[i].shape[1] == outputs[0].last_hidden_state.shape[1]
    ]
    assert len(found.layers) == len(expected) == len(encoder.widths)
    real = torch.ones(int(batch.mask.sum()), dtype=torch.bool) if rowwise else batch.mask.flatten()
    for ours, theirs in zip(found.layers, expected, strict=True):
        torch.testing.assert_close(ours[batch.mask], theirs[real], **CLOSE)
    last = torch.cat([output.last_hidden_state.flatten(0, 1) for output in outputs])
    torch.testing.assert_close(found.top[batch.mask], last[real], **CLOSE)
    assert torch.equal(found.top, found.layers[-1])
    with torch.no_grad():
        assert torch.equal(found.top, encoder(batch).top)


@every
def test_gradients_are_the_librarys(model_type: str, opened: Opened) -> None:
    folder, source = opened(model_type)
    encoder: Any = source.model.encoder
    batch, model = our_batch(source, TEXTS), library_model(model_type, folder)
    weights = torch.randn(int(batch.mask.sum()), WIDTH, generator=torch.Generator().manual_seed(0))
    encoder.zero_grad()
    (encoder(batch).top[batch.mask] * weights).sum().backward()
    inputs = library_inputs(model_type, folder, TEXTS)
    outputs = library_output(model, inputs, encoder.config.mixes_padding)
    if encoder.config.mixes_padding:
        vectors = torch.cat([output.last_hidden_state[0] for output in outputs])
    else:
        vectors = outputs[0].last_hidden_state[inputs["attention_mask"].bool()]
    (vectors * weights).sum().backward()
    theirs = dict(model.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in theirs.values() if p.grad is not None)
    compared = 0
    for name, parameter in encoder.module.named_parameters():
        expected = theirs[name].grad
        if expected is None:
            assert parameter.grad is None
            continue
        # What a softmax makes 0 is the rounding of larger gradients.
        close = {"rtol": 1e-5, "atol": 1e-6 * largest}
        torch.testing.assert_close(parameter.grad, expected, **close, msg=lambda m, name=name: f"{name}: {m}")
        compared += 1
    assert compared > 10
    encoder.zero_grad()


@every
def test_layer_groups_hold_every_parameter_once(model_type: str, opened: Opened) -> None:
    encoder = opened(model_type)[1].model.encoder
    groups = encoder.layer_groups()
    grouped = [id(p) for group in groups for p in group.parameters]
    assert sorted(grouped) == sorted(id(p) for p in encoder.parameters())
    blocks = ["layer 1"] if model_type == "albert" else ["layer 1", "layer 2"]
    names = [group.name for group in groups]
    assert names[: 1 + len(blocks)] == ["embedding", *blocks]
    assert names[1 + len(blocks) :] in ([], ["rest"])
    table: Any = encoder.tied()
    assert any(p is table for p in groups[0].parameters)


@every
def test_padding_is_invisible(model_type: str, opened: Opened) -> None:
    """Whatever is in the padding, and however much of it there is, a text has the vectors that it has alone."""
    source = opened(model_type)[1]
    batch = our_batch(source, TEXTS)
    extra = torch.randint(3, 20, (len(TEXTS), 3))
    ids = torch.where(batch.mask, batch.ids, 7)
    padded = Batch(torch.cat([ids, extra], dim=1), torch.cat([batch.mask, torch.zeros_like(extra).bool()], dim=1))
    with torch.no_grad():
        top = source.model.encoder(padded).top
        for row, length in enumerate(batch.mask.sum(dim=1).tolist()):
            alone = source.model.encoder(Batch(batch.ids[row : row + 1, :length], batch.mask[row : row + 1, :length]))
            torch.testing.assert_close(top[row, :length], alone.top[0], rtol=1e-4, atol=1e-5)


@every
def test_saving_and_opening_is_exact_and_offline(
    model_type: str, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = opened(model_type)

    def refuse(*_: Any) -> None:
        raise AssertionError("something opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    loaded = loading.load_network(artifact.save(source, tmp_path / "ours"))
    assert loaded.model.describe() == source.model.describe()
    values = source.model.values()
    assert all(torch.equal(value, values[name]) for name, value in loaded.model.values().items())
    assert loaded.tokenizer.fingerprint == source.tokenizer.fingerprint
    batch = our_batch(loaded, PAIRS)
    assert torch.equal(loaded.model.encoder(batch).top, source.model.encoder(our_batch(source, PAIRS)).top)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = loading.load_network(f"hf:{folder}")
    assert all(torch.equal(value, values[name]) for name, value in again.model.values().items())


@every
def test_there_and_back(model_type: str, opened: Opened, tmp_path: Path) -> None:
    """`convert --to huggingface` writes what the library opens, with the same vectors and ids."""
    folder, source = opened(model_type)
    theirs = textgraft.convert(artifact.save(source, tmp_path / "ours"), tmp_path / "theirs", to="huggingface")
    inputs = library_inputs(model_type, theirs, TEXTS)
    first = library_inputs(model_type, folder, TEXTS)
    assert inputs.keys() == first.keys()
    assert all(torch.equal(inputs[name], first[name]) for name in first)
    with torch.no_grad():
        one, other = (library_model(model_type, path)(**inputs).last_hidden_state for path in (folder, theirs))
    mask = inputs["attention_mask"].bool()
    torch.testing.assert_close(other[mask], one[mask], **CLOSE)


@pytest.mark.slow
@every
def test_training_reduces_the_loss(model_type: str, opened: Opened) -> None:
    source = opened(model_type)[1]
    texts, labels = reviews(16, 3)
    head = {"name": "classification", "outputs": 2, "input_dim": WIDTH, "direction": "both"}
    head |= source.model.encoder.classifier()
    model = graft(source.model.encoder, {**source.model.describe(), "head": head}, 0).train()
    batch = our_batch(source, [text[:80] for text in texts])
    batch = batch.with_targets(torch.tensor([int(label == labels[0]) for label in labels]))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    torch.manual_seed(0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.total.backward()
        losses.append(float(loss.total.detach()) / loss.count)
        optimizer.step()
    assert np.median(losses[-10:]) < 0.8 * max(losses[:3])


@pytest.mark.parametrize("model_type", MASKED)
def test_the_masked_language_model_is_the_librarys(model_type: str, opened: Opened) -> None:
    folder, source = opened(model_type, "AutoModelForMaskedLM")
    assert source.head_name == "masked_language_model"
    inputs = library_inputs(model_type, folder, TEXTS[:1])
    with torch.no_grad():
        expected = library_model(model_type, folder, "AutoModelForMaskedLM")(**inputs).logits.log_softmax(-1)
        found = source.model(our_batch(source, TEXTS[:1]))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@every
def test_dropout_is_multiplied(model_type: str, opened: Opened) -> None:
    description = opened(model_type)[1].model.describe()
    rates = description["encoder"]["dropouts"]
    assert rates
    half, none = (with_dropout(description, factor)["encoder"]["dropouts"] for factor in (0.5, 0.0))
    assert half == {name: rate / 2 for name, rate in rates.items()}
    assert set(none.values()) == {0.0}
    raised = {**description["encoder"], "dropouts": dict.fromkeys(rates, 0.5)}
    torch.manual_seed(0)
    model = build({**description, "encoder": raised}).train()
    batch = Batch(torch.arange(8).view(1, -1) + 8, torch.ones(1, 8, dtype=torch.bool))
    assert not torch.equal(model.encoder(batch).top, model.encoder(batch).top)
    model = build({**description, "encoder": {**raised, "dropouts": none}}).train()
    assert torch.equal(model.encoder(batch).top, model.encoder(batch).top)


@every
def test_words_have_their_tokens_in_a_sentence_and_offsets_their_characters(model_type: str, opened: Opened) -> None:
    source = opened(model_type)[1]
    words = ["the", "plot", "is", "dull"]
    windows, _ = word_windows(source.tokenizer, [words], 64)
    of_bytes = BRIDGED[model_type][0] == "roberta"  # each word is encoded as after a space
    text = " " * of_bytes + " ".join(words)
    whole = source.tokenizer.encode(text)
    assert windows[0].ids.tolist() == whole.ids
    spelled = [text[a:b] for a, b in whole.offsets if a < b]
    assert "".join(spelled) == "".join(words)


def test_int8_and_bf16_are_close(opened: Opened) -> None:
    source = opened("deberta-v2")[1]
    from textgraft.models.inference import embed_sequences

    sequences, _ = source.encoded(TEXTS, 64)
    exact, int8, bf16 = (embed_sequences(source.model, sequences, 0, precision=p) for p in ("fp32", "int8", "bf16"))
    for low in (int8, bf16):
        cosines = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
        assert cosines.min() > 0.98


def damaged(folder: Path, **entries: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    return folder


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": "new", "auto_map": {"AutoModel": "a--modeling.New"}}, "a 'new' with code of its own"),
        ({"model_type": "elektra"}, r"has no architecture 'elektra'"),
        ({"model_type": "bart"}, "'bart' is an encoder-decoder"),
        ({"model_type": "llava"}, "parameters are described and"),
        ({"num_hidden_layers": 3}, r"the weights do not fit config.json \(missing: encoder.layer.2"),
        ({"num_hidden_layers": 1}, r"the weights do not fit config.json \(left over: encoder.layer.1"),
        ({"intermediate_size": 24}, r"the weights do not fit config.json \(of another shape: "),
        ({"quantization_config": {"quant_method": "gptq"}}, "these weights are quantised"),
        ({"hidden_size": "wide"}, "this is no config of 'electra'"),
    ],
)
def test_what_cannot_be_opened_is_refused_by_name(entries: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = damaged(save_checkpoint("electra", tmp_path / "m"), **entries)
    with pytest.raises(UserError, match=message) as caught:
        loading.load_network(f"hf:{folder}")
    assert str(folder) in caught.value.where


def test_code_in_a_folder_is_not_run_where_the_library_has_the_architecture(tmp_path: Path) -> None:
    folder = damaged(save_checkpoint("nomic_bert", tmp_path / "m"), auto_map={"AutoModel": "modeling.Evil"})
    (folder / "modeling.py").write_text("raise AssertionError('this has run')")
    with pytest.warns(UserWarning, match=r"own code \(auto_map\) is not run; transformers' 'nomic_bert' is used"):
        loading.load_network(f"hf:{folder}")


def test_a_tokenizer_that_is_code_is_refused(tmp_path: Path) -> None:
    folder = save_checkpoint("electra", tmp_path / "m")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoTokenizer": ["t.T", None]}}))
    with pytest.raises(UserError, match=r"this tokenizer is code inside the checkpoint"):
        loading.load_network(f"hf:{folder}")


def test_a_sentencepiece_model_is_converted_or_its_library_named(tmp_path: Path) -> None:
    """A folder with spiece.model alone gives the ids of the tokenizer that the library makes of it."""
    protocol = pytest.importorskip("transformers.convert_slow_tokenizer").import_protobuf()
    folder = save_checkpoint("t5", tmp_path / "m", vocab_size=200)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    content = protocol.ModelProto()
    content.trainer_spec.model_type, content.trainer_spec.unk_id = 1, 2
    for number, (token, score) in enumerate(vocabulary):
        piece = content.pieces.add()
        piece.piece, piece.score, piece.type = token, score, {0: 3, 1: 3, 2: 2}.get(number, 1)
    (folder / "spiece.model").write_bytes(content.SerializeToString())
    if importlib.util.find_spec("sentencepiece") is None:
        with pytest.raises(UserError, match="a SentencePiece model, which needs sentencepiece") as caught:
            loading.load_network(f"hf:{folder}")
        assert "textgraft[transformers]" in str(caught.value.remedy)
        return
    source = loading.load_network(artifact.save(loading.load_network(f"hf:{folder}"), tmp_path / "ours"))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in (*TEXTS, "Ünï  code"):
        encoding = source.tokenizer.encode(text)
        assert encoding.ids == theirs(text)["input_ids"]
        spelled = "".join(text[a:b] for a, b in encoding.offsets)
        assert spelled == "".join(text.split())  # a bare space mark has an empty span


def test_questions_of_several_choices_are_read(opened: Opened) -> None:
    """Multiple choice: two options a question, each a pair with its segments."""
    source = opened("xlnet")[1]
    head = {"name": "choice", "input_dim": WIDTH, "direction": "both", **source.model.encoder.classifier()}
    model = graft(source.model.encoder, {**source.model.describe(), "head": head}, 0).eval()
    options = Choice("the plot is", ("dull", "very good indeed"))
    sequences, _ = encode_texts(source.tokenizer, [options, options], 64)
    scores = model(pad(sequences, source.tokenizer.pad_id)).detach()
    assert scores.shape == (2, 2)
    assert float((scores[0, 0] - scores[0, 1]).abs()) > 1e-3
    torch.testing.assert_close(scores[0], scores[1], **CLOSE)


def test_a_head_of_another_task_is_named_and_left(tmp_path: Path) -> None:
    folder = save_checkpoint("electra", tmp_path / "m", auto="AutoModelForTokenClassification")
    with pytest.warns(UserWarning, match="weights of another task are left out: classifier"):
        assert loading.load_network(f"hf:{folder}").head_name == "features"


def test_without_the_library_the_extra_is_named(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = opened("electra")
    saved = artifact.save(source, tmp_path / "ours")
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in (f"hf:{folder}", saved):
        with pytest.raises(UserError, match="transformers") as caught:
            loading.load_network(name)
        assert "textgraft[transformers]" in str(caught.value.remedy)


@pytest.mark.parametrize(("model_type", "reason"), [("t5", "its decoder")])
def test_what_cannot_be_adapted_says_why(model_type: str, reason: str, opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot be adapted .*{reason}"):
        textgraft.adapt(reviews(60, 3)[0], tmp_path / "out", model=f"hf:{opened(model_type)[0]}")


def test_an_electra_generator_keeps_its_head_and_needs_no_word_about_it(opened: Opened, tmp_path: Path) -> None:
    folder, _ = opened("electra", "AutoModelForMaskedLM")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        textgraft.adapt(reviews(60, 3)[0], tmp_path / "out", model=f"hf:{folder}")


def test_sentence_transformers_pooling_is_used(tmp_path: Path) -> None:
    folder = save_checkpoint("nomic_bert", tmp_path / "m")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    source = loading.load_network(f"hf:{folder}")
    assert source.embedding is not None
    batch = our_batch(source, TEXTS[:1])
    expected = source.model.encoder(batch).top.mean(dim=1).detach().numpy()
    np.testing.assert_allclose(source.embed(TEXTS[:1]), expected, rtol=0.05, atol=0.02)  # may multiply in bfloat16


def test_a_family_of_textgrafts_own_does_not_come_here() -> None:
    assert not set(BRIDGED) & set(huggingface.READERS)
    assert len(BRIDGED) + len(huggingface.READERS) >= 14
