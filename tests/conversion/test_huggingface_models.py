"""Models of the transformers library by `hf:` names: loaded, adapted, fine-tuned, converted there and back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_reviews import reviews

import textgraft
from textgraft import UserError
from textgraft.conversion import huggingface
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.models import artifact, loading
from textgraft.models.model import build
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.training import Plan, new_classifier
from textgraft.text.wordpiece import WordPieceTokenizer, train
from textgraft.training.recipes import find_recipe, load_recipe
from textgraft.training.settings import Settings

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the library writes it: a masked language model of BERT's shape, with its tokenizer."""
    folder = tmp_path_factory.mktemp("hub") / "bert"
    tokenizer = train(reviews(200, 7)[0], vocab_size=300)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    for name, data in tokenizer.huggingface_files().items():
        (folder / name).write_bytes(data)
    return folder


def test_the_library_and_we_see_the_same_text(bert: Path) -> None:
    texts = reviews(5, 1)[0]
    theirs = transformers.BertModel.from_pretrained(bert, add_pooling_layer=False).eval()
    encoded = transformers.BertTokenizerFast.from_pretrained(bert)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**encoded).last_hidden_state
    mask = encoded["attention_mask"][..., None]
    expected = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
    source = loading.load_network(f"hf:{bert}")
    found = source.embed(texts)
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.02)  # ours may multiply in bfloat16
    assert source.run["parameters"] == sum(p.numel() for p in source.model.parameters())


@pytest.mark.slow
def test_adapt_then_finetune_then_predict(bert: Path, tmp_path: Path) -> None:
    pool, (texts, labels) = reviews(120, 3)[0], reviews(60, 1)
    adapted = textgraft.adapt(pool, tmp_path / "adapted", model=f"hf:{bert}", context=QUIET)
    record = loading.load_network(adapted).run
    assert record["recipe"] == "transformer"
    before, after = record["held_out"]["before"], record["held_out"]["after"]
    assert after["loss"] < before["loss"]
    assert "bits_per_character" not in after  # of masked tokens it would mean nothing
    test = Examples(*reviews(40, 2), "single")
    done = textgraft.finetune(
        Examples(texts, labels, "single"),
        tmp_path / "model",
        model=adapted,
        test=test,
        options=FinetuneOptions(recipe="default", baselines=False, max_tokens=4_000),
        context=QUIET,
    )
    assert done.record["recipe"] == "transformer"
    saved = loading.load_network(tmp_path / "model").model.describe()["head"]
    assert (saved["pooling"], saved["hidden_dim"], saved["batch_norm"]) == ("first", 0, False)
    long = " ".join(reviews(50, 9)[0])  # longer than the model has positions for
    answers = list(textgraft.predict(tmp_path / "model", [*test.texts, long]))
    assert len(answers) == 41
    assert all(answer.label in ("neg", "pos") for answer in answers)


def test_there_and_back(bert: Path, tmp_path: Path) -> None:
    ours = textgraft.convert(f"hf:{bert}", tmp_path / "ours")
    theirs = textgraft.convert(ours, tmp_path / "theirs", to="huggingface")
    for one, other in ((bert, theirs), (ours, textgraft.convert(f"hf:{theirs}", tmp_path / "again"))):
        first, second = (loading.load_network(p if p == ours or p.name == "again" else f"hf:{p}") for p in (one, other))
        for (name, a), b in zip(first.model.values().items(), second.model.values().values(), strict=True):
            assert torch.equal(a, b), name
        assert first.tokenizer.encode("An été, Ça!").ids == second.tokenizer.encode("An été, Ça!").ids
    opened = transformers.AutoModelForMaskedLM.from_pretrained(theirs)
    assert opened.config.num_hidden_layers == 2
    assert transformers.AutoTokenizer.from_pretrained(theirs)("a film")["input_ids"][0] == 2


def test_a_gpt_there_and_back(tmp_path: Path) -> None:
    tokenizer = textgraft.Tokenizer.train(reviews(200, 7)[0], model="byte_level", vocab_size=300)
    torch.manual_seed(0)
    encoder = {"name": "gpt", "vocab_size": tokenizer.vocab_size, "embedding_dim": 16, "num_layers": 2, "num_heads": 2}
    head = {"name": "language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 16, "bias": False}
    ours = artifact.save(
        artifact.Artifact(build({"encoder": encoder, "head": head}), tokenizer, None, {"stage": "pretrain"}),
        tmp_path / "gpt",
    )
    theirs = textgraft.convert(ours, tmp_path / "theirs", to="huggingface")
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    again = transformers.AutoTokenizer.from_pretrained(theirs)
    text = "A film for the whole family 🙂"
    assert again(text)["input_ids"] == tokenizer.encode(text).ids
    scored = textgraft.score(f"hf:{theirs}", [""], [text], precision="fp32")[0]
    ids = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        log_p = model(ids).logits.log_softmax(-1)[0, :-1]
    expected = float(log_p.gather(1, ids[0, 1:, None]).sum())
    assert scored.log_probability == pytest.approx(expected, rel=1e-4)


def test_a_classifier_of_the_library_answers_by_its_own_names(tmp_path: Path) -> None:
    tokenizer = train(reviews(200, 7)[0], vocab_size=300)
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        id2label={0: "bad", 1: "good", 2: "so-so"},
        label2id={"bad": 0, "good": 1, "so-so": 2},
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "c")
    for name, data in tokenizer.huggingface_files().items():
        (tmp_path / "c" / name).write_bytes(data)
    (answer,) = textgraft.predict(f"hf:{tmp_path / 'c'}", ["a film"])
    assert answer.label in ("bad", "good", "so-so")
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-3)


def test_names_that_mean_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bert: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"neither a folder with a config\.json nor a model in") as caught:
        loading.load_network("hf:somebody/small-bert")
    assert "textgraft fetch somebody/small-bert" in str(caught.value.remedy)
    snapshot = tmp_path / "models--somebody--small-bert" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(bert)
    refs = tmp_path / "models--somebody--small-bert" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    assert loading.load_network("hf:somebody/small-bert").run["name"] == "small-bert"


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        (["mean_tokens"], "mean"),
        (["cls_token"], "first"),
        (["mean_tokens", "max_tokens"], "max+mean"),
        (["weightedmean_tokens"], "weighted_mean"),
        (None, "pooled"),
    ],
)
def test_a_classifier_pools_as_the_sentence_vectors_were_made(
    modes: list[str] | None, pooling: str, bert: Path, tmp_path: Path
) -> None:
    transformers.BertModel.from_pretrained(bert).save_pretrained(tmp_path / "bare")
    if modes is not None:
        said = {f"pooling_mode_{mode}": mode in modes for mode in ("cls_token", "mean_tokens", "max_tokens", *modes)}
        (tmp_path / "bare" / "1_Pooling").mkdir()
        (tmp_path / "bare" / "1_Pooling" / "config.json").write_text(
            json.dumps(said | {"word_embedding_dimension": 16})
        )
    for name, data in WordPieceTokenizer.from_huggingface(bert).huggingface_files().items():
        (tmp_path / "bare" / name).write_bytes(data)
    source = loading.load_network(f"hf:{tmp_path / 'bare'}")
    stage, labels = load_recipe("transformer").finetune, Labels("single", ("a", "b"))
    plan = Plan(source.model, False, stage, Settings(), labels, None, source.tokenizer.pad_id, pooling=source.pooling)
    assert new_classifier(plan, 0).head.config.pooling == pooling


@pytest.mark.slow
def test_a_bare_encoder_learns_to_tell_masked_tokens(bert: Path, tmp_path: Path) -> None:
    bare = transformers.BertModel.from_pretrained(bert)
    bare.save_pretrained(tmp_path / "bare")
    tokenizer = WordPieceTokenizer.from_huggingface(bert)
    for name, data in tokenizer.huggingface_files().items():
        (tmp_path / "bare" / name).write_bytes(data)
    source = f"hf:{tmp_path / 'bare'}"
    settings = Settings(precision="fp32")
    recipe = tmp_path / "quick.toml"
    text = (
        find_recipe("transformer")
        .read_text()
        .replace("lr = 0.0001", "lr = 0.01")
        .replace("epochs = 1\n", "epochs = 8\n")
    )
    recipe.write_text(text.replace("batch_size = 16\nbptt = 128", "batch_size = 4\nbptt = 24"))
    pool = reviews(120, 3)[0]
    twice = [
        textgraft.adapt(pool, tmp_path / out, model=source, recipe=str(recipe), settings=settings, context=QUIET)
        for out in ("one", "two")
    ]
    adapted = loading.load_network(twice[0])
    assert adapted.model.describe()["head"]["name"] == "masked_language_model"
    before, after = (adapted.run["held_out"][when]["loss"] for when in ("before", "after"))
    assert before == pytest.approx(math.log(tokenizer.vocab_size), rel=0.2)  # the head is fresh
    assert after < 0.8 * before
    again = loading.load_network(twice[1]).model.values()
    assert all(torch.equal(value, again[name]) for name, value in adapted.model.values().items())
    moved = adapted.model.encoder.layers[0].feed_forward.weight - bare.encoder.layer[0].intermediate.dense.weight
    assert moved.abs().max() > 0
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    (tmp_path / "bare" / "config.json").write_text(json.dumps(config | {"model_type": "roberto"}))
    with pytest.raises(UserError, match="has no architecture 'roberto'"):
        huggingface.load(tmp_path / "bare")


def test_a_classifier_is_not_adapted(bert: Path, tmp_path: Path) -> None:
    transformers.BertForSequenceClassification.from_pretrained(bert).save_pretrained(tmp_path / "c")
    for name, data in WordPieceTokenizer.from_huggingface(bert).huggingface_files().items():
        (tmp_path / "c" / name).write_bytes(data)
    with pytest.raises(UserError, match="has been fine-tuned for a task"):
        textgraft.adapt(reviews(60, 3)[0], tmp_path / "adapted", model=f"hf:{tmp_path / 'c'}", context=QUIET)
