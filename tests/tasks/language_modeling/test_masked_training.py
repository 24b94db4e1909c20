"""A small BERT learns what can be learned of masked pairs, and nothing of what cannot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_models import VOCAB, Tokens, masked_language_model, masking_tokens

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.heads.base import Loss
from textgraft.models.model import Model, build
from textgraft.training.loop import Run
from textgraft.training.objectives import objective
from textgraft.training.phases import Phase, Stage
from textgraft.training.settings import Settings


class Constant(Tokens):
    """Documents of one token each, sixteen kinds: neighbours say what is hidden and whose text it is."""

    def __init__(self) -> None:
        super().__init__(3200)
        self.ids = np.repeat(4 + np.arange(32) % 16, 100)
        self.document_starts = np.arange(0, 3200, 100)


class Random(Tokens):
    def __init__(self, seed: int) -> None:
        super().__init__(2000)
        self.ids = np.random.default_rng(seed).integers(4, VOCAB, 2000)


def constant_pairs() -> MaskedStream:
    return MaskedStream(Constant(), masking_tokens(), length=16, rows=16, pairs=True)


def scored(model: Model, stream: MaskedStream) -> tuple[float, float]:
    """Nats for each masked token, and for each pair, on an epoch that was not trained on."""
    with torch.no_grad():
        losses = [model.eval().loss(batch) for batch in stream.batches(100)]
    count = sum(loss.count for loss in losses)
    of_tokens, of_pairs = (sum(loss.parts[name] for loss in losses) for name in ("nll", "next_sentence_nll"))
    return of_tokens / count, of_pairs / count


def train(model: Model, stream: MaskedStream, phase: Phase) -> Model:
    for _ in Run(model, [phase], stream, Settings(precision="fp32", clip=1.0)).steps():
        pass
    return model


def test_a_fresh_model_knows_nothing() -> None:
    tokens, pairs = scored(masked_language_model(), constant_pairs())
    assert tokens == pytest.approx(math.log(VOCAB), abs=0.1)
    assert pairs == pytest.approx(math.log(2), abs=0.02)


@pytest.mark.slow
def test_hidden_tokens_and_pairs_are_learned() -> None:
    phase = Phase("p", 40, 0.005, schedule="one_cycle", weight_decay=0.01)
    tokens, pairs = scored(train(masked_language_model(width=32), constant_pairs(), phase), constant_pairs())
    assert tokens < 0.3 < math.log(16)
    # A document is of the same kind as its pair's other one by chance, now and then, and no one could tell.
    assert pairs < 0.4 < math.log(2)


def test_of_random_text_nothing_is_learned() -> None:
    """No token's own id leaks to its place, but for the one in ten that may read as itself."""
    model = masked_language_model(width=16)
    model.head.next_sentence = None
    train(model, MaskedStream(Random(1), masking_tokens(), length=16, rows=32), Phase("p", 6, 0.004))
    with torch.no_grad():
        losses = [model.eval().loss(batch) for batch in MaskedStream(Random(2), masking_tokens(), length=16).batches(0)]
    assert sum(loss.parts["nll"] for loss in losses) / sum(loss.count for loss in losses) > 0.75 * math.log(VOCAB - 4)


@pytest.mark.parametrize("masked", [0.15, 0.4])
def test_the_head_says_how_much_training_hides_and_held_out_text_hides_15_per_cent(
    masked: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = masked_language_model(max_length=64).describe()
    model = build({**described, "head": {**described["head"], "masked": masked}})
    monkeypatch.setattr(MaskingTokens, "of", lambda _: masking_tokens())
    tokenizer: Any = None  # of which only those tokens are wanted
    stage = Stage(batch_size=8, bptt=43, phases=(Phase("p", 1, 0.01),))
    stream = objective(model, "x").stream(model, Tokens(), tokenizer, stage, 0)
    shares = []
    for batch in stream.batches(0):
        assert batch.targets is not None
        ordinary = torch.where(batch.targets == IGNORE, batch.ids, batch.targets) >= 4
        shares += ((batch.targets != IGNORE).sum(1) / ordinary.sum(1)).tolist()
    assert np.mean(shares) == pytest.approx(masked, abs=0.02)

    read = []
    monkeypatch.setattr(model, "loss", lambda batch: read.append(batch) or Loss(torch.tensor(1.0), 1, {"nll": 1.0}))
    objective(model, "x").validator(model, Tokens(), tokenizer, tokens=math.inf)(model)
    hidden = sum(int((batch.targets != IGNORE).sum()) for batch in read)
    assert hidden / sum(int(batch.mask.sum()) for batch in read) == pytest.approx(0.14, abs=0.02)


def test_a_share_that_hides_everything_is_refused() -> None:
    described = masked_language_model().describe()
    with pytest.raises(UserError, match="masked is 1"):
        build({**described, "head": {**described["head"], "masked": 1.0}})
