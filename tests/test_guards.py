"""What speed and memory rest on, counted and not timed: padding, operations, passes over text, what an import loads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from packaging.requirements import Requirement
from torch.utils.flop_counter import FlopCounterMode

from textgraft import FinetuneOptions, Settings, finetune, load
from textgraft.core.context import QUIET
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.examples import Examples
from textgraft.data.sequences import TokenIds
from textgraft.data.streams.base import ExampleStream
from textgraft.encoders.awd_lstm import AWDLSTM
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.generation import decoding
from textgraft.generation.decoding import Decoder
from textgraft.heads.masked_language_model import MaskedLanguageModelConfig, MaskedLanguageModelHead
from textgraft.models.inference import embed_sequences
from textgraft.models.loading import load_network as load_model
from textgraft.models.model import Model, build
from textgraft.nn import key_value_cache
from textgraft.nn.cpu.precision import computing_in
from textgraft.nn.uninitialized import Uninitialized
from textgraft.tasks.classification.predictor import STREAM_TEXTS
from textgraft.text.tokenizer import Tokenizer

PREDICTING, TRAINING = 1.10, 1.15
"""Positions computed for each real token, at most; texts as they come have 1.8 to 2.5 here."""
IMPORTS = {"import textgraft": 60, "from textgraft.cli import main": 400}
"""Modules that may be loaded, beyond those that Python starts with."""


def lengths_of_reviews(count: int) -> np.ndarray:
    """Tokens of film reviews: lognormal, mean near 230, cut at 512."""
    drawn = np.random.default_rng(0).lognormal(5.2, 0.65, count)
    return np.clip(drawn, 5, 512).astype(int)


def sequences(count: int) -> list[TokenIds]:
    return [np.full(length, 7, dtype=np.int32) for length in lengths_of_reviews(count)]


def share(batches: list[list[int]], lengths: np.ndarray) -> float:
    """Positions, padding among them, for each real token."""
    return sum(len(batch) * lengths[batch].max() for batch in batches) / lengths.sum()


def test_texts_as_they_come_would_be_half_padding() -> None:
    lengths = lengths_of_reviews(600)
    for rows in (8, 32):
        batches = [list(range(i, min(i + rows, 600))) for i in range(0, 600, rows)]
        assert share(batches, lengths) > 1.6


def test_prediction_pads_little(tiny_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    inner = AWDLSTM.forward

    def forward(self: AWDLSTM, batch: Batch, *args: object, **kwargs: object) -> object:
        counted["positions"] += batch.ids.numel()
        counted["tokens"] += int(batch.mask.sum())
        return inner(self, batch, *args, **kwargs)

    monkeypatch.setattr(AWDLSTM, "forward", forward)
    artifact = load_model(tiny_lm)
    embed_sequences(artifact.model, sequences(600), artifact.tokenizer.pad_id)
    assert counted["tokens"] == lengths_of_reviews(600).sum()
    assert counted["positions"] < PREDICTING * counted["tokens"]


@pytest.mark.parametrize("rows", [8, 16, 32])
def test_fine_tuning_pads_little(rows: int) -> None:
    stream = ExampleStream(sequences(600), torch.zeros(600, dtype=torch.int64), pad_id=0, rows=rows)
    batches = list(stream.batches(0))
    positions, tokens = (
        sum(int(count(b)) for b in batches) for count in (lambda b: b.ids.numel(), lambda b: b.mask.sum())
    )
    assert tokens == lengths_of_reviews(600).sum()
    assert positions < TRAINING * tokens


def masked_step(masked: int) -> int:
    """Operations of products of a step of masked language modelling with so many of 64 positions masked."""
    torch.manual_seed(0)
    encoder = BERT(BERTConfig(500, 16, 1, 2, 32))
    head = MaskedLanguageModelHead(MaskedLanguageModelConfig(500, 16, next_sentence=False), encoder.embedding.weight)
    ids = torch.randint(5, 500, (2, 32))
    targets = torch.full_like(ids, IGNORE).flatten()
    targets[:masked] = ids.flatten()[:masked]
    batch = Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets.view_as(ids))
    # torch counts no products of float32 that oneDNN computes.
    with FlopCounterMode(display=False) as counter, computing_in("bf16"):
        Model(encoder, head).loss(batch).total.backward()
    return int(counter.get_total_flops())


def test_the_output_layer_is_computed_where_something_is_masked_alone() -> None:
    none_more = masked_step(20) - masked_step(10)
    per_target = 3 * 2 * 16 * (500 + 16)  # the table and the layer before it; forward, and backward for both factors
    assert none_more == 10 * per_target


def test_texts_that_all_go_on_are_not_copied_at_each_step() -> None:
    shape = {"name": "gpt", "vocab_size": 50, "embedding_dim": 16, "num_layers": 2, "num_heads": 2, "max_length": 32}
    head = {"name": "language_model", "vocab_size": 50, "input_dim": 16}
    with torch.no_grad():
        reader = Decoder(build({"encoder": shape, "head": head}), [[1, 2], [3], [4, 5]], "fp32")
        for rows, same in (([0, 1, 2], True), ([0, 2], False), ([1, 0], False)):
            state = reader.encoded.state
            assert state is not None
            found = decoding._select_rows(state, rows, before=len(reader.encoded.mask))
            assert (found is state) == same
            for layer, kept in zip(state, found, strict=True):
                assert all(torch.equal(a[rows], b) for a, b in zip(layer, kept, strict=True))
            reader.add([7] * len(rows), rows)
            assert len(reader.encoded.mask) == len(rows)


@pytest.mark.parametrize("attention", ["dense", "alternating"])
def test_what_a_text_has_been_read_to_is_copied_only_when_its_room_is_full(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_value_cache, "CACHE_ROOM", 4)
    shape = {"name": "gpt", "vocab_size": 50, "embedding_dim": 16, "num_layers": 2, "num_heads": 2, "max_length": 32}
    shape |= {"attention": attention, "window": 3}
    head = {"name": "language_model", "vocab_size": 50, "input_dim": 16}
    model = build({"encoder": shape, "head": head}).eval()
    texts, places = [[1, 2, 3], [4], [5, 6]], []
    with torch.no_grad():
        reader = Decoder(model, texts, "fp32")
        for step, rows in enumerate([[0, 1, 2]] * 6 + [[2, 0]] + [[0, 1]] * 3 + [[1, 1, 0]] + [[0, 1, 2]] * 5):
            tokens = [10 + step + row for row in range(len(rows))]
            reader.add(tokens, rows)
            texts = [[*texts[row], token] for row, token in zip(rows, tokens, strict=True)]
            assert reader.encoded.state is not None
            places.append(reader.encoded.state[1][0].data_ptr())
            for row, text in enumerate(texts):
                ids = torch.tensor([text])
                whole = model.encoder(Batch(ids, torch.ones_like(ids, dtype=torch.bool))).top
                assert torch.allclose(reader.encoded.top[row, -1], whole[0, -1], atol=1e-5)
    moved = sum(before != after for before, after in pairwise(places))
    assert len(places) == 16
    assert 3 <= moved <= 5  # rows changed twice, and every fourth token room is made


def passes(monkeypatch: pytest.MonkeyPatch, tiny_lm: Path, out: Path, epochs: int) -> dict[str, int]:
    """How often each text was cut into tokens while a classifier was fine-tuned for so many epochs."""
    counted: Counter[str] = Counter()
    inner = Tokenizer.encode_batch

    def encode_batch(self: Tokenizer, texts: list[str]) -> list[np.ndarray]:
        counted.update(texts)
        return inner(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_batch", encode_batch)
    recipe = out.with_suffix(".toml")
    recipe.write_text(
        'name = "some"\ndescription = "Some epochs"\nsource = "Ours"\n'
        f'[finetune]\nbatch_size = 8\n[[finetune.phases]]\nname = "all"\nepochs = {epochs}\nlr = 0.001\n'
    )
    texts, labels = reviews(40)
    options = FinetuneOptions(recipe=str(recipe), baselines=False, settings=Settings(seed=0))
    train = Examples(texts[:30], labels[:30], "single", source="train")
    test = Examples(texts[30:], labels[30:], "single", source="test")
    finetune(train, out, model=tiny_lm, test=test, options=options, context=QUIET)
    monkeypatch.undo()
    return {text: counted[text] for text in texts}


def test_more_epochs_cut_no_text_again(monkeypatch: pytest.MonkeyPatch, tiny_lm: Path, tmp_path: Path) -> None:
    few = passes(monkeypatch, tiny_lm, tmp_path / "few", 1)
    many = passes(monkeypatch, tiny_lm, tmp_path / "many", 3)
    assert few == many
    assert max(many.values()) == 1


@pytest.mark.slow
def test_predicting_a_stream_takes_no_more_memory_for_more_texts(tiny_classifier: Path) -> None:
    classifier = load(tiny_classifier)

    def peak(count: int) -> int:
        def texts() -> Iterator[str]:
            yield from (f"text {n} " + "word " * 20 for n in range(count))

        tracemalloc.start()
        for _ in classifier.predict(texts()):
            pass
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(10)  # what is loaded at first use
    assert peak(3 * STREAM_TEXTS) < 1.2 * peak(STREAM_TEXTS)


@pytest.fixture(scope="module")
def tiny_classifier(tiny_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("guards") / "classifier"
    texts, labels = reviews(30)
    options = FinetuneOptions(recipe="frozen", baselines=False)
    test = Examples(texts[:10], labels[:10], "single", source="test")
    train = Examples(texts, labels, "single", source="train")
    finetune(train, out, model=tiny_lm, test=test, options=options, context=QUIET)
    return out


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_loads_little_and_no_torch(statement: str) -> None:
    program = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "sklearn", "scipy", "pandas", "duckdb", "matplotlib", "transformers", "gensim", "onnxruntime"}
    assert not heavy & set(loaded)
    assert len(loaded) < IMPORTS[statement]


@pytest.mark.slow
def test_pretraining_and_fine_tuning_load_no_compiler(tiny_recipe: Path, tmp_path: Path) -> None:
    texts, labels = reviews(20)
    (tmp_path / "pool.txt").write_text("\n".join(texts * 8))
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    program = f"""
import sys
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe, pretrain
from textgraft import FinetuneOptions, PretrainOptions, RunContext, finetune, read
for name in ("en-ulmfit", "en-bert-small", "en-xl-small", "en-elmo-small"):
    load_pretrain_recipe(name)
quiet, options = RunContext(show=False), PretrainOptions(recipe="{tiny_recipe}")
lm = pretrain(["{tmp_path}/pool.txt"], "{tmp_path}/lm", options=options, context=quiet)
options = FinetuneOptions(recipe="frozen")
finetune(read("{tmp_path}/train.csv"), "{tmp_path}/out", model=lm, options=options, context=quiet)
print(*{{"torch._dynamo", "torch._inductor", "sympy"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.strip()


def test_a_network_to_be_filled_is_not_drawn() -> None:
    encoder = {"name": "awd_lstm", "vocab_size": 50, "embedding_dim": 8, "hidden_dim": 12}
    head = {"name": "language_model", "vocab_size": 50, "input_dim": 8}
    states = torch.get_rng_state()
    with Uninitialized():
        nothing = torch.full((3, 3), 7.0)
        assert bool((nothing.normal_() == 7).all())
        torch.nn.init.orthogonal_(torch.empty(4, 3))
        assert isinstance(build({"encoder": encoder, "head": head}), Model)
    assert torch.equal(torch.get_rng_state(), states)
    assert not bool((nothing.normal_() == 7).all())


def test_the_libraries_that_tests_compare_with_are_installed() -> None:
    """The extra [test] names them: a test that is skipped for want of one would go unnoticed."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    required = map(Requirement, project["optional-dependencies"]["test"])
    names = [found.name for found in required if found.marker is None or found.marker.evaluate()]
    assert "datasets" in names
    for name in names:
        assert version(name), name
