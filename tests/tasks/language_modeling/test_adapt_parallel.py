"""Translation language modelling: rows of pairs, the library's outputs for them, and what the translation tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_checkpoints import save_checkpoint
from tiny_xlm import LANGUAGES, WORDS, checkpoint, pairs

import textgraft
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.parallel import Parallel
from textgraft.data.streams.masking import MaskingTokens
from textgraft.data.streams.translations import TranslatedCorpus, TranslatedStream
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.training.settings import Settings

transformers = pytest.importorskip("transformers", minversion="5")
FP32 = Settings(precision="fp32", save_seconds=0.0)


@pytest.fixture(scope="module")
def xlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("xlm") / "checkpoint")


def recipe(folder: Path, epochs: int) -> str:
    path = folder / "parallel.toml"
    path.write_text(
        'like = "default"\nname = "parallel"\ndescription = "Fast."\n'
        "[adapt]\nbatch_size = 16\nbptt = 64\ndropout = 1.0\nclip = 1.0\n"
        f'[[adapt.phases]]\nname = "all"\nepochs = {epochs}\nlr = 0.01\nschedule = "one_cycle"\nweight_decay = 0.0\n'
    )
    return str(path)


def adapted(model: Path, folder: Path, corpus: Parallel, epochs: int) -> Path:
    return textgraft.adapt_parallel(
        corpus,
        folder / "out",
        model=f"hf:{model}",
        languages=("en", "de"),
        recipe=recipe(folder, epochs),
        settings=FP32,
        context=QUIET,
    )


def rows(source: Artifact, corpus: Parallel, **settings: Any) -> TranslatedStream:
    made = TranslatedCorpus.of(corpus, source.tokenizer, (0, 1))
    return TranslatedStream(made, MaskingTokens.of(source.tokenizer), **settings)


def test_rows_are_pairs_with_marks_languages_and_masked_tokens_in_both_texts(xlm: Path) -> None:
    source = loading.load_network(f"hf:{xlm}")
    corpus = pairs(40)
    stream = rows(source, corpus, rows=8, seed=3)
    batches = list(stream.batches(1))
    assert len(batches) == stream.length(1) == 5
    expected = {
        (*a, *b): len(a)
        for a, b in zip(*(map(tuple, source.tokenizer.encode_batch(side)) for side in (corpus.source, corpus.target)))
    }
    predicted: list[int] = []
    for batch in batches:
        assert batch.targets is not None
        assert batch.segments is not None
        assert batch.languages is not None
        for row, length in enumerate(batch.mask.sum(1).tolist()):
            whole = torch.where(batch.targets != IGNORE, batch.targets, batch.ids)[row, :length]
            first = expected.pop(tuple(whole.tolist()))
            assert batch.segments[row, :length].tolist() == [0] * first + [1] * (length - first)
            assert torch.equal(batch.languages[row, :length], batch.segments[row, :length])
            chosen = (batch.targets[row] != IGNORE).nonzero().squeeze(1)
            assert len(chosen) == max(1, round(0.15 * (length - 4)))
            predicted += batch.segments[row][chosen].tolist()
    assert not expected
    assert 0 < sum(predicted) < len(predicted)
    for one, other in zip(batches[2:], stream.batches(1, 2), strict=True):
        assert torch.equal(one.ids, other.ids)


def test_a_long_sentence_is_cut_to_half_a_row_and_keeps_its_end(xlm: Path) -> None:
    source = loading.load_network(f"hf:{xlm}")
    long = Parallel.of([" ".join(WORDS)], ["abx"])
    (batch,) = rows(source, long, length=16, rate=0.01).batches(0)
    assert batch.segments is not None
    assert batch.targets is not None
    whole = torch.where(batch.targets != IGNORE, batch.targets, batch.ids)[0]
    assert int((batch.segments == 0).sum()) == 8
    assert whole[7] == source.tokenizer.eos_id
    assert whole[:7].tolist() == source.tokenizer.encode(" ".join(WORDS)).ids[:7]


def test_loss_and_gradients_are_the_librarys_with_languages_and_restarted_positions(xlm: Path) -> None:
    source = loading.load_network(f"hf:{xlm}")
    model: Any = source.model
    (batch,) = rows(source, pairs(12)).batches(0)
    assert batch.targets is not None
    assert batch.segments is not None
    theirs = transformers.XLMWithLMHeadModel.from_pretrained(xlm).eval()
    positions = torch.zeros_like(batch.ids)
    for row, length in enumerate(batch.mask.sum(1).tolist()):
        first = length - int(batch.segments[row].sum())
        positions[row, :length] = torch.tensor([*range(first), *range(length - first)])
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long(), "langs": batch.segments}
    output = theirs(**inputs, position_ids=positions, labels=batch.targets)
    loss = model.loss(batch)
    torch.testing.assert_close(loss.total / loss.count, output.loss, rtol=1e-5, atol=1e-6)
    model.zero_grad()
    (loss.total / loss.count).backward()
    output.loss.backward()
    gradients = {n.removeprefix("transformer."): p.grad for n, p in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in model.encoder.module.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-5, atol=1e-6 * largest)
    assert float(model.encoder.module.lang_embeddings.weight.grad.abs().min()) > 0


def nats(source: Artifact, corpus: Parallel, changed: Callable[[Batch], Batch]) -> float:
    """Mean loss of masked tokens of the first language."""
    total, count = 0.0, 0
    for batch in rows(source, corpus).batches(0):
        assert batch.targets is not None
        assert batch.segments is not None
        first = batch.with_targets(torch.where(batch.segments == 0, batch.targets, IGNORE))
        with torch.no_grad():
            loss = source.model.loss(changed(first))
        total, count = total + float(loss.total), count + loss.count
    return total / count


def alone(batch: Batch) -> Batch:
    assert batch.segments is not None
    return replace(batch, mask=batch.mask & (batch.segments == 0))


@pytest.mark.slow
def test_words_are_predicted_better_with_their_translation_in_sight(tmp_path: Path) -> None:
    """Random words, of which nothing else in the sentence tells; the translation of another does not help."""
    folder = checkpoint(tmp_path / "checkpoint", emb_dim=32, n_heads=4)
    done = adapted(folder, tmp_path, pairs(1500, 1), 8)
    source, fresh = loading.load_network(done), pairs(100, 2)
    wrong = replace(fresh, target=(*fresh.target[1:], fresh.target[0]))
    seen, unseen, misled = (
        nats(source, fresh, lambda b: b),
        nats(source, fresh, alone),
        nats(source, wrong, lambda b: b),
    )
    assert seen < 0.5 * unseen
    assert seen < 0.5 * misled


@pytest.mark.slow
def test_adapting_lowers_held_out_loss_and_goes_back_to_the_library(xlm: Path, tmp_path: Path) -> None:
    done = adapted(xlm, tmp_path, pairs(400, 1), 3)
    run = json.loads((done / "run.json").read_text())
    assert run["held_out"]["after"]["loss"] < run["held_out"]["before"]["loss"] - 0.5
    assert run["data"]["languages"] == ["en", "de"]
    source = loading.load_network(done)
    assert source.model.encoder.languages == LANGUAGES
    back = textgraft.convert(done, tmp_path / "theirs", to="huggingface")
    theirs = transformers.XLMWithLMHeadModel.from_pretrained(back).eval()
    ids = torch.arange(6, 16).view(1, -1)
    with torch.no_grad():
        ours = source.model(Batch(ids, torch.ones_like(ids).bool()))
        torch.testing.assert_close(theirs(input_ids=ids).logits.log_softmax(-1), ours, rtol=1e-4, atol=1e-4)


class Killed(BaseException):
    """What ends a process between two steps."""


@pytest.mark.slow
def test_killed_it_ends_with_the_same_bits(xlm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = recipe(tmp_path, 2)

    def attempt(name: str, languages: tuple[str, str] = ("en", "de")) -> bytes:
        out = tmp_path / name
        textgraft.adapt_parallel(
            pairs(150), out, model=f"hf:{xlm}", languages=languages, recipe=fast, settings=FP32, context=QUIET
        )
        return (out / "model.safetensors").read_bytes()

    whole, batches = attempt("whole"), TranslatedStream.batches

    def killing(self: TranslatedStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == 3:
                raise Killed
            yield batch

    monkeypatch.setattr(TranslatedStream, "batches", killing)
    with pytest.raises(Killed):
        attempt("out")
    monkeypatch.setattr(TranslatedStream, "batches", batches)
    with pytest.raises(UserError, match="an unfinished run is here that differs in: languages"):
        attempt("out", ("de", "en"))
    assert attempt("out") == whole


def test_models_and_languages_that_do_not_fit_are_refused(xlm: Path, tmp_path: Path) -> None:
    def attempt(model: Path, *languages: str) -> None:
        textgraft.adapt_parallel(pairs(50), tmp_path / "out", model=f"hf:{model}", languages=languages)

    with pytest.raises(UserError, match="no language 'dee'"):
        attempt(xlm, "en", "dee")
    with pytest.raises(UserError, match="both sides are 'en'"):
        attempt(xlm, "en", "en")
    one = save_checkpoint("xlm", tmp_path / "one")
    with pytest.raises(UserError, match="no embeddings of languages"):
        attempt(one, "en", "de")
    assert not (tmp_path / "out").exists()


def test_languages_without_names_are_numbers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", lang2id=None, n_langs=3)
    assert loading.load_network(f"hf:{folder}").model.encoder.languages == {"0": 0, "1": 1, "2": 2}
