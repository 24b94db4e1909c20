"""Folders that say how they pool: each step against a plain computation on single texts; saved, opened, written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_questions import TEXT, encoder
from safetensors.torch import save_file

import textgraft
from textgraft import UserError
from textgraft.conversion import huggingface
from textgraft.data.batch import pad
from textgraft.models import artifact, loading, packaged
from textgraft.models.artifact import Artifact
from textgraft.models.model import build_fresh

LIBRARY = "sentence_transformers.models."
TEXTS = ["What is it?", "", " ".join(TEXT.split()[:9]), "the film", " ".join([TEXT] * 3)[:400]]
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
WIDTH = 16
PUBLISHED = [[-0.0401746, 0.0358429, -0.0898883, 0.0320708], [-0.0641257, -0.0493075, 0.0095498, -0.0168292]]
"""First coordinates of two vectors of all-MiniLM-L6-v2."""


def write(folder: Path, *, dense: list[dict[str, Any]] | None = None, normalize: bool = True, **pooling: Any) -> Path:
    """A folder as the library writes it: a tiny BERT, pooling, dense layers of 5 and scaling to length 1."""
    made = encoder("bert")
    description = made.model.describe()
    description["encoder"]["pooler"] = False
    huggingface.save(build_fresh(description, 1), folder, others=made.tokenizer.huggingface_files())  # type: ignore[attr-defined]
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")]
    put(folder, "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, **(pooling or {"pooling_mode": "mean"})})
    for about in dense or []:
        path = f"{len(steps)}_Dense"
        put(folder, f"{path}/config.json", about)
        generator = torch.Generator().manual_seed(len(steps))
        tensors = {"linear.weight": torch.randn(about["out_features"], about["in_features"], generator=generator)}
        if about.get("bias", True):
            tensors["linear.bias"] = torch.randn(about["out_features"], generator=generator)
        save_file(tensors, folder / path / "model.safetensors")
        steps.append((path, "Dense"))
    if normalize:
        steps.append((f"{len(steps)}_Normalize", "Normalize"))
    listed = [{"idx": i, "name": str(i), "path": p, "type": LIBRARY + kind} for i, (p, kind) in enumerate(steps)]
    put(folder, "modules.json", listed)
    return folder


def put(folder: Path, name: str, content: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))


def load(folder: Path) -> Artifact:
    return loading.load_network(f"hf:{folder}")


def hidden(source: Artifact, text: str, limit: int = 40) -> np.ndarray:
    """The top layer (T, D) of one text alone, float64; of a long one what its beginning and the last token give."""
    ids = list(source.tokenizer.encode(text).ids)
    ids = ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]
    with torch.no_grad():
        top = source.model.encoder(pad([np.array(ids)], source.tokenizer.pad_id)).top[0]
    return top.double().numpy()


def pooled(rows: np.ndarray, mode: str) -> np.ndarray:
    """One pooling of a text's rows, by its definition."""
    weights = np.arange(1, len(rows) + 1)[:, None]
    return {
        "cls": rows[0],
        "max": rows.max(0),
        "mean": rows.sum(0) / len(rows),
        "mean_sqrt_len_tokens": rows.sum(0) / np.sqrt(len(rows)),
        "weightedmean": (rows * weights).sum(0) / weights.sum(),
        "lasttoken": rows[-1],
    }[mode]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_every_pooling_is_its_definition(mode: str, normalize: bool, tmp_path: Path) -> None:
    source = load(write(tmp_path / "st", normalize=normalize, pooling_mode=mode))
    expected = np.stack([pooled(hidden(source, text), mode) for text in TEXTS])
    expected = np.stack([unit(row) for row in expected]) if normalize else expected
    # Batches and single texts differ by the rounding of float32 sums.
    np.testing.assert_allclose(source.embed(TEXTS), expected, atol=1e-5)
    assert textgraft.embed(f"hf:{tmp_path / 'st'}", []).shape == (0, WIDTH)


def test_old_switches_and_several_modes(tmp_path: Path) -> None:
    """The library concatenates in an order of its own where switches say the modes, and in the given one in a list."""
    switches = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": False}
    old = load(write(tmp_path / "old", normalize=False, **switches))
    new = load(write(tmp_path / "new", normalize=False, pooling_mode=["mean", "cls"]))
    rows = hidden(old, TEXTS[0])
    parts = [pooled(rows, "cls"), pooled(rows, "mean")]
    np.testing.assert_allclose(old.embed(TEXTS[:1])[0], np.concatenate(parts), atol=1e-5)
    np.testing.assert_allclose(new.embed(TEXTS[:1])[0], np.concatenate(parts[::-1]), atol=1e-5)
    assert old.embed([]).shape == (0, 2 * WIDTH)


DENSE = [
    {"in_features": WIDTH, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"},
    {"in_features": 5, "out_features": 7, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"},
]


def through_dense(folder: Path, vector: np.ndarray) -> np.ndarray:
    from safetensors.numpy import load_file

    first, second = (load_file(folder / name / "model.safetensors") for name in ("2_Dense", "3_Dense"))
    return second["linear.weight"] @ np.tanh(first["linear.weight"] @ vector + first["linear.bias"])


def saved(source: Artifact, folder: Path, half: bool = False) -> Artifact:
    return loading.load_network(artifact.save(source, folder, half=half))


def test_dense_layers_there_and_back(tmp_path: Path) -> None:
    """From the library's folder to vectors, into our own folder, and into the library's form again: one result."""
    source = load(write(tmp_path / "st", dense=DENSE, pooling_mode="mean"))
    expected = np.stack([unit(through_dense(tmp_path / "st", pooled(hidden(source, t), "mean"))) for t in TEXTS])
    vectors = source.embed(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    again = saved(source, tmp_path / "ours")
    assert again.embedding == source.embedding
    np.testing.assert_array_equal(again.embed(TEXTS), vectors)
    np.testing.assert_allclose(saved(source, tmp_path / "half", half=True).embed(TEXTS), vectors, atol=0.01)
    written = textgraft.convert(tmp_path / "ours", tmp_path / "back", to="sentence-transformers")
    back = load(written)
    assert back.embedding == replace(source.embedding, max_length=40)  # type: ignore[type-var]
    np.testing.assert_array_equal(back.embed(TEXTS), vectors)
    listed = json.loads((written / "modules.json").read_text())
    assert [step["type"] for step in listed] == [
        LIBRARY + kind for kind in ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    ]
    about = json.loads((written / "1_Pooling" / "config.json").read_text())
    assert [key for key, value in about.items() if value is True] == ["include_prompt", "pooling_mode_mean_tokens"]
    assert json.loads((written / "sentence_bert_config.json").read_text())["max_seq_length"] == 40


def test_a_model_that_says_nothing_is_written_with_its_mean(tmp_path: Path) -> None:
    source = encoder("bert")
    artifact.save(source, tmp_path / "plain")
    back = load(textgraft.convert(tmp_path / "plain", tmp_path / "out", to="sentence-transformers"))
    assert back.embedding is not None
    assert (back.embedding.pooling, back.embedding.normalize) == ("mean", False)
    # Texts that fit: of longer ones the library keeps the beginning, and `embed` of such a model the end too.
    np.testing.assert_allclose(back.embed(TEXTS[:4]), source.embed(TEXTS[:4], precision="fp32"), atol=1e-5)


def test_a_long_text_keeps_its_beginning(tmp_path: Path) -> None:
    folder = write(tmp_path / "st", pooling_mode="lasttoken")
    put(folder, "sentence_bert_config.json", {"max_seq_length": 6, "do_lower_case": True})
    source = load(folder)
    assert source.embedding is not None
    assert (source.embedding.max_length, source.embedding.lowercase) == (6, True)
    expected = [unit(pooled(hidden(source, text.lower(), 6), "lasttoken")) for text in TEXTS]
    np.testing.assert_allclose(source.embed(TEXTS), np.stack(expected), atol=1e-5)
    np.testing.assert_allclose(source.embed(TEXTS, max_tokens=512), np.stack(expected), atol=1e-5)
    # What is asked for instead has nothing above its pooling.
    np.testing.assert_allclose(
        source.embed(TEXTS[:1], pooling="mean")[0], pooled(hidden(source, TEXTS[0].lower(), 6), "mean"), atol=1e-2
    )


def test_the_length_of_later_versions_is_the_tokenizers(tmp_path: Path) -> None:
    folder = write(tmp_path / "st")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    put(folder, "tokenizer_config.json", settings | {"model_max_length": 7})
    assert load(folder).embedding.max_length == 7  # type: ignore[union-attr]
    put(folder, "tokenizer_config.json", settings | {"model_max_length": 10**30})
    assert load(folder).embedding.max_length is None  # type: ignore[union-attr]


def prompted(folder: Path, default: str | None = None, **pooling: Any) -> Artifact:
    write(folder, **pooling)
    prompts = {"query": "the what ", "passage": "it is: "}
    put(folder, "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": default})
    return load(folder)


def test_prompts_by_name_as_text_and_by_default(tmp_path: Path) -> None:
    source, texts = prompted(tmp_path / "st", "passage"), ["what is it?", "the film"]
    name = f"hf:{tmp_path / 'st'}"

    def expected(before: str) -> np.ndarray:
        return np.stack([unit(pooled(hidden(source, before + text), "mean")) for text in texts])

    for asked, before in ((None, "it is: "), ("query", "the what "), ("", ""), ("is it: ", "is it: ")):
        np.testing.assert_allclose(textgraft.embed(name, texts, prompt=asked), expected(before), atol=1e-5)
    with pytest.raises(UserError, match="this model has no prompt 'qury'") as caught:
        textgraft.embed(name, texts, prompt="qury")
    assert "query ('the what '), passage ('it is: ')" in caught.value.remedy
    again = saved(source, tmp_path / "ours")
    np.testing.assert_array_equal(again.embed(texts), source.embed(texts))
    # A task reads the same texts as the vectors.
    ids = source.tokenizer.encode_batch(["it is: the film"])[0]
    assert source.encoded(["the film"], 30)[0][0].tolist() == ids.tolist()  # type: ignore[union-attr]
    with pytest.raises(UserError, match="has no prompt 'query'") as caught:
        encoder("bert").embed(texts, prompt="query")
    assert "Prompts of this model: none" in caught.value.remedy


@pytest.mark.parametrize("mode", ["cls", "mean", "weightedmean", "lasttoken"])
def test_a_prompt_that_is_not_pooled(mode: str, tmp_path: Path) -> None:
    """Its positions, and the special token before them, are read and left out; weights count from the beginning."""
    source, text = prompted(tmp_path / "st", pooling_mode=mode, include_prompt=False, normalize=False), "the film is it"
    skipped = len(source.tokenizer.encode("the what ").ids) - 1
    rows = hidden(source, "the what " + text)
    weights = np.arange(skipped + 1, len(rows) + 1)[:, None]
    later = rows[skipped:]
    expected = (later * weights).sum(0) / weights.sum() if mode == "weightedmean" else pooled(later, mode)
    np.testing.assert_allclose(source.embed([text], prompt="query")[0], expected, atol=1e-5)
    np.testing.assert_allclose(source.embed([text])[0], pooled(hidden(source, text), mode), atol=1e-5)


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        put(folder, name, change(json.loads((folder / name).read_text())))

    return edit


def step(index: int, kind: str) -> Callable[[Path], None]:
    def change(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        steps[index]["type"] = kind
        return steps

    return edited("modules.json", change)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (step(1, LIBRARY + "LSTM"), "the step 'LSTM' is not known"),
        (step(0, LIBRARY + "WordEmbeddings"), "the step 'WordEmbeddings' is not known"),
        (
            step(1, "custom_pooling.MyPooling"),
            r"the step 'custom_pooling\.MyPooling' is code that comes with the model",
        ),
        (step(1, LIBRARY + "Normalize"), "the step 'Normalize' cannot stand at place 2"),
        (edited("modules.json", lambda steps: {"idx": 1}), "this is not a list of steps"),
        (
            edited("modules.json", lambda s: [*s[:2], s[2] | {"path": "../away"}]),
            r"outside this folder \('\.\./away'\)",
        ),
        (
            edited("1_Pooling/config.json", lambda s: {"pooling_mode": "attention"}),
            r"pooling \['attention'\] is not known",
        ),
        (edited("1_Pooling/config.json", lambda s: {"pooling_mode_odd": True}), r"pooling \['pooling_mode_odd'\]"),
        (edited("1_Pooling/config.json", lambda s: []), "not a JSON object"),
        (
            edited("2_Dense/config.json", lambda s: s | {"activation_function": "my.Act"}),
            "activation 'my.Act' is not known",
        ),
        (edited("2_Dense/config.json", lambda s: s | {"use_residual": True}), "not one from a text's vector"),
        (edited("2_Dense/config.json", lambda s: s | {"out_features": 6}), "weights of the dense layers do not fit"),
        (lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(), "weights of this layer are missing"),
    ],
)
def test_what_is_not_known_is_refused_by_name(edit: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "st", dense=DENSE[:1])
    edit(folder)
    with pytest.raises(UserError, match=message) as caught:
        load(folder)
    assert str(folder) in caught.value.where


@pytest.mark.skipif(not packaged.is_installed("minilm"), reason="the extra [minilm] is not installed")
def test_the_published_vectors_of_minilm() -> None:
    """Coordinates that sentence-transformers 6.2 computed on this text and on one longer than 256 tokens."""
    vectors = textgraft.embed("minilm", ["A film that nobody saw.", "a good film " * 200])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[:, :4], PUBLISHED, atol=1e-5)
