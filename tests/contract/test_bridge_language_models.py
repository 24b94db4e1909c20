"""Language-model heads of checkpoints that run through the transformers library: XLNet's order, and the way back."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from tiny_checkpoints import opened_whole, save_checkpoint

import textgraft
from textgraft.core.context import QUIET
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.streams.masking import MaskingTokens
from textgraft.data.streams.permutation import PermutedStream, permute_tokens
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.nn.two_streams import permutation_mask
from textgraft.training.settings import Settings

transformers = pytest.importorskip("transformers", minversion="5")
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
FP32 = Settings(precision="fp32", save_seconds=0.0)


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint("xlnet", tmp_path_factory.mktemp("xlnet") / "checkpoint", auto="AutoModelForCausalLM")


def permuted(source: Artifact) -> tuple[Batch, list[list[int]]]:
    """Texts of unequal lengths, and the positions that each predicts, in the order they are predicted in."""
    sequences, _ = source.encoded([text[: 24 + 9 * i] for i, text in enumerate(reviews(4, 1)[0])], 64)
    ids = np.full((4, max(map(len, sequences))), source.tokenizer.pad_id)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    generator = np.random.default_rng(5)
    order, targets = permute_tokens(ids, MaskingTokens.of(source.tokenizer), generator=generator)
    places = [[i for _, i in sorted((p, i) for i, p in enumerate(row) if p)] for row in order.tolist()]
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    parts = map(torch.from_numpy, (ids, targets, order))
    return Batch(next(parts), mask, targets=next(parts), order=next(parts)), places


def librarys(model: Any, source: Artifact, batch: Batch, places: list[list[int]]) -> tuple[Any, torch.Tensor]:
    """The output of XLNetLMHeadModel for the permutations, and its labels, P of each row in the order of prediction."""
    width, shape = max(map(len, places)), batch.ids.shape
    mapping = torch.zeros(shape[0], width, shape[1])
    labels = torch.full((shape[0], width), IGNORE)
    hidden = torch.zeros(shape[0], shape[1], shape[1])
    for row, positions in enumerate(places):
        for number, position in enumerate(positions):
            mapping[row, number, position] = 1
            labels[row, number] = batch.ids[row, position]
            hidden[row, :, position] = 1  # from all but those after it
            hidden[row, positions[number + 1 :], position] = 0
    segments = torch.where(batch.ids == source.tokenizer.tokens.index("<cls>"), 2, 0)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long(), "token_type_ids": segments}
    return model(**inputs, perm_mask=hidden, target_mapping=mapping, labels=labels), labels


def test_outputs_loss_and_gradients_are_the_librarys_for_the_same_permutations(xlnet: Path) -> None:
    source = opened_whole(xlnet)
    model: Any = source.model
    theirs = transformers.XLNetLMHeadModel.from_pretrained(xlnet).eval()
    batch, places = permuted(source)
    output, labels = librarys(theirs, source, batch, places)
    logits = model(batch)
    for row, positions in enumerate(places):
        torch.testing.assert_close(
            logits[row, positions], output.logits[row, : len(positions)].log_softmax(-1), **CLOSE
        )
    loss = model.loss(batch)
    assert loss.count == int((labels != IGNORE).sum()) == sum(map(len, places))
    torch.testing.assert_close(loss.total / loss.count, output.loss, **CLOSE)
    model.zero_grad()
    (loss.total / loss.count).backward()
    output.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    ours = {f"transformer.{name}": p.grad for name, p in model.encoder.module.named_parameters()}
    ours["lm_loss.bias"] = model.head.output.bias.grad
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6 * largest}
        torch.testing.assert_close(ours[name], gradient, **close, msg=name)
    assert float(ours["transformer.mask_emb"].abs().max()) > 0


def test_a_token_and_those_after_it_in_the_order_do_not_move_its_logits_and_others_do(xlnet: Path) -> None:
    source = opened_whole(xlnet)
    batch, places = permuted(source)
    with torch.no_grad():
        before = source.model(batch)
        for row, positions in enumerate(places):
            for number, changed in enumerate(positions):
                ids = batch.ids.clone()
                ids[row, changed] = ids[row, changed] % 20 + 8
                moved = (source.model(Batch(ids, batch.mask, order=batch.order))[row] - before[row]).abs().amax(dim=1)
                assert moved[positions[: number + 1]].max() == 0
                assert (moved[positions[number + 1 :]] > 1e-6).all()
            context = int((batch.order[row] == 0).nonzero()[0])  # type: ignore[index]
            ids = batch.ids.clone()
            ids[row, context] = ids[row, context] % 20 + 8
            moved = (source.model(Batch(ids, batch.mask, order=batch.order))[row] - before[row]).abs().amax(dim=1)
            assert (moved[positions] > 1e-6).all()


def test_the_mask_is_that_of_the_authors_code(xlnet: Path) -> None:
    """Context is seen by all; its own mask never leads from context to a predicted token."""
    batch, places = permuted(opened_whole(xlnet))
    assert batch.order is not None
    mask = permutation_mask(batch.order)
    for row, positions in enumerate(places):
        context = [i for i in range(batch.ids.shape[1]) if i not in positions]
        assert mask[row][context][:, context].max() == 0
        assert mask[row][context][:, positions].min() == 1


def repeated(count: int = 240) -> list[str]:
    """Texts of eight words twice, so that one half tells the other."""
    rng = random.Random(0)
    words = ["great", "awful", "boring", "movie", "film", "plot", "actor", "lovely"]
    texts = []
    for _ in range(count):
        rng.shuffle(words)
        texts.append(" ".join([*words, *words]))
    return texts


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recipe") / "adapting.toml"
    path.write_text(
        'like = "default"\nname = "adapting"\ndescription = "Fast."\n'
        "[adapt]\nbatch_size = 16\nbptt = 48\ndropout = 0.0\nclip = 1.0\n"
        '[[adapt.phases]]\nname = "all"\nepochs = 2\nlr = 0.02\nschedule = "one_cycle"\nweight_decay = 0.0\n'
    )
    return str(path)


@pytest.mark.parametrize("auto", ["AutoModelForCausalLM", "AutoModel"])
def test_adapted_xlnet_predicts_held_out_text_better_and_goes_back_with_its_head(
    auto: str, tmp_path: Path, recipe: str
) -> None:
    """Also one that was published without a head, which gets the form of XLNet's."""
    folder = save_checkpoint("xlnet", tmp_path / "checkpoint", auto=auto)
    texts = repeated()
    done = textgraft.adapt(
        texts, tmp_path / "adapted", model=f"hf:{folder}", recipe=recipe, settings=FP32, context=QUIET
    )
    scores = json.loads((done / "run.json").read_text())["held_out"]
    assert scores["after"]["loss"] < scores["before"]["loss"] - 0.3
    source = loading.load_network(done)
    assert source.model.encoder.permuted
    back = textgraft.convert(done, tmp_path / "theirs", to="huggingface")
    theirs, report = transformers.XLNetLMHeadModel.from_pretrained(back, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch, places = permuted(source)
    with torch.no_grad():
        output, _ = librarys(theirs.eval(), source, batch, places)
        loss = source.model.loss(batch)
    torch.testing.assert_close(loss.total / loss.count, output.loss, **CLOSE)
    again = opened_whole(back)
    values = again.model.values()
    assert all(torch.equal(value, values[name]) for name, value in source.model.values().items())


class Killed(BaseException):
    """What ends a process between two steps."""


def test_killed_adaptation_of_xlnet_ends_with_the_same_bits(
    xlnet: Path, tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = repeated(200)

    def attempt(name: str) -> bytes:
        out = tmp_path / name
        textgraft.adapt(texts, out, model=f"hf:{xlnet}", recipe=recipe, settings=FP32, context=QUIET)
        return (out / "model.safetensors").read_bytes()

    whole, batches = attempt("whole"), PermutedStream.batches

    def killing(self: PermutedStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == 2 and self.rows == 16:  # of the training
                raise Killed
            yield batch

    monkeypatch.setattr(PermutedStream, "batches", killing)
    with pytest.raises(Killed):
        attempt("out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(PermutedStream, "batches", batches)
    assert attempt("out") == whole


def test_a_uniform_model_has_the_log_of_the_vocabulary_as_loss(xlnet: Path) -> None:
    source = opened_whole(xlnet)
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter.zero_()
        batch, _ = permuted(source)
        loss = source.model.loss(batch)
    assert float(loss.total) / loss.count == pytest.approx(math.log(source.tokenizer.vocab_size), rel=1e-5)


@pytest.mark.parametrize("model_type", ["electra", "deberta-v2", "albert", "xlm", "funnel", "rembert", "longformer"])
def test_a_masked_language_model_goes_back_with_its_head(model_type: str, tmp_path: Path) -> None:
    folder = save_checkpoint(model_type, tmp_path / "checkpoint", auto="AutoModelForMaskedLM")
    source = opened_whole(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        back = textgraft.convert(f"hf:{folder}", tmp_path / "theirs", to="huggingface")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    again = transformers.AutoModelForMaskedLM.from_pretrained(back).eval()
    ids = torch.arange(6, 22).view(1, -1)
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, theirs(input_ids=ids).logits, **CLOSE)
    values = opened_whole(back).model.values()
    assert all(torch.equal(value, values[name]) for name, value in source.model.values().items())


def test_a_head_of_another_form_is_named_and_left(tmp_path: Path, recipe: str) -> None:
    """MobileBERT's own head is not textgraft's; the one that adapting gave it has no place in the library."""
    folder = save_checkpoint("mobilebert", tmp_path / "checkpoint")
    done = textgraft.adapt(
        reviews(60, 3)[0], tmp_path / "out", model=f"hf:{folder}", recipe=recipe, settings=FP32, context=QUIET
    )
    with pytest.warns(UserWarning, match="the encoder alone is written, as MobileBertModel"):
        textgraft.convert(done, tmp_path / "theirs", to="huggingface")
