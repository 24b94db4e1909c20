"""CoVe and its decoder beside torch's own bidirectional LSTM and the equations written out step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.cove import CoVe, CoVeConfig, init_from_word_vectors
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.heads.translation import BEGIN, TranslationConfig, TranslationHead
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.nn.attention_scores import REACHES
from textgraft.text.tokenizer import Tokenizer
from textgraft.word_embeddings.contextual import word_vectors

V, E, H = 12, 5, 4
LENGTHS = (6, 3, 1)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def encoder(num_layers: int = 2) -> CoVe:
    torch.manual_seed(1)
    return CoVe(CoVeConfig(V, E, H, num_layers, input_dropout=0.0, hidden_dropout=0.0))


def drawn(seed: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(V, (len(LENGTHS), max(LENGTHS)), generator=generator)
    return Batch(ids, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None])


def torch_lstm(model: CoVe) -> nn.LSTM:
    """torch's own with the same weights; its second bias is zero."""
    lstm = nn.LSTM(E, H, len(model.layers), batch_first=True, bidirectional=True)
    values = lstm.state_dict()
    for i, layer in enumerate(model.layers):
        sides: Any = ((layer.forward_lstm, ""), (layer.backward_lstm, "_reverse"))
        for side, suffix in sides:
            values[f"weight_ih_l{i}{suffix}"] = side.weight_ih.detach()
            values[f"weight_hh_l{i}{suffix}"] = side.weight_hh.detach()
            values[f"bias_ih_l{i}{suffix}"] = side.bias.detach()
            values[f"bias_hh_l{i}{suffix}"] = torch.zeros(4 * H)
    lstm.load_state_dict(values)
    return lstm


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_top_is_the_words_beside_torchs_bidirectional_lstm(num_layers: int) -> None:
    model, batch = encoder(num_layers).eval(), drawn()
    words = model.embedding(batch.ids)
    packed = nn.utils.rnn.pack_padded_sequence(words, torch.tensor(LENGTHS), batch_first=True)
    read, _ = nn.utils.rnn.pad_packed_sequence(torch_lstm(model)(packed)[0], batch_first=True)
    shown = model(batch, keep="all")
    torch.testing.assert_close(shown.top[batch.mask], torch.cat([words, read], dim=2)[batch.mask], **CLOSE)
    assert len(shown.layers) == num_layers + 1
    assert torch.equal(shown.layers[0], words)


def test_dropout_leaves_the_words_themselves_alone() -> None:
    """What tasks read of a word is its vector, whole, in training too: dropout is what the LSTMs see."""
    torch.manual_seed(3)
    model = CoVe(CoVeConfig(V, E, H, 2, input_dropout=0.5, hidden_dropout=0.5)).train()
    batch = drawn()
    top = model(batch).top
    assert torch.equal(top[:, :, :E], model.embedding(batch.ids))
    assert bool((top[:, :, E:][batch.mask] == 0).any())


def test_a_capital_leaves_a_word_its_own_vector() -> None:
    tokenizer = Tokenizer.train(["The dog sees the cat"] * 3, kind="word", min_frequency=1)
    model = CoVe(CoVeConfig(tokenizer.vocab_size, E, H))
    source = Artifact(Model(model, FeaturesHead(FeaturesConfig(model.output_dim))), tokenizer)
    the = model.embedding.weight[tokenizer.tokens.index("the")].detach().numpy()
    for words in (["The", "dog"], ["the", "dog"]):
        (vectors,) = word_vectors(source, [words], precision="fp32")
        np.testing.assert_allclose(vectors[0, :E], the, atol=1e-6)


def test_no_layers_are_refused() -> None:
    with pytest.raises(UserError, match="num_layers is 0"):
        CoVe(CoVeConfig(V, E, H, 0))


class Vectors:
    """Vectors of some words."""

    dimensions = E

    def place(self, word: str) -> int | None:
        return {"dog": 0, "cat": 1}.get(word)

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        return np.stack([np.full(self.dimensions, 1 + self.place(word)) for word in words])


def test_the_table_starts_from_vectors() -> None:
    model, tokens = encoder(), ["xxunk", "cat", "dog", *[f"other {i}" for i in range(V - 3)]]
    before = model.embedding.weight.detach().clone()
    assert init_from_word_vectors(model, tokens, Vectors()) == (2, V - 2)
    after = model.embedding.weight.detach()
    assert after[1].tolist() == [2.0] * E
    assert after[2].tolist() == [1.0] * E
    assert torch.equal(after[3:], before[3:])
    assert torch.equal(after[0], before[0])


def test_vectors_that_know_no_word_change_nothing() -> None:
    model = encoder()
    before = model.embedding.weight.detach().clone()
    assert init_from_word_vectors(model, [f"other {i}" for i in range(V)], Vectors()) == (0, V)
    assert torch.equal(model.embedding.weight, before)


def test_vectors_of_another_width_are_refused() -> None:
    model = CoVe(CoVeConfig(V, E + 1, H))
    with pytest.raises(UserError, match=f"{E} dimensions and the table {E + 1}"):
        init_from_word_vectors(model, ["dog"] * V, Vectors())


def translator(reach: str = "global", num_layers: int = 2, words_dim: int = E) -> Model:
    torch.manual_seed(4)
    config = TranslationConfig(
        9, E + 2 * H, words_dim, 3, 6, num_layers, "general", reach, 2, input_dropout=0.0, hidden_dropout=0.0
    )
    return Model(encoder(), TranslationHead(config)).eval()


TARGETS = torch.tensor([[4, 8, 5, 3], [6, 3, IGNORE, IGNORE], [3, IGNORE, IGNORE, IGNORE]])


def written_out(model: Model, keys: Tensor, targets: list[int], reach: str) -> tuple[float, Tensor]:
    """The loss and the weights of one sentence, by torch's LSTMCell and the paper's equations."""
    head: Any = model.head
    ends = torch.cat([keys[-1], keys[0]])
    states = [(start, torch.zeros(6)) for start in torch.tanh(head.start(ends)).chunk(len(head.layers))]
    fed, before, loss, seen = torch.zeros(6), BEGIN, torch.zeros(()), []
    for step, target in enumerate(targets):
        x = torch.cat([head.embedding.weight[before], fed])
        for i, layer in enumerate(head.layers):
            cell = nn.LSTMCell(len(x), 6)
            cell.weight_ih, cell.weight_hh, cell.bias_ih = layer.weight_ih, layer.weight_hh, layer.bias
            nn.init.zeros_(cell.bias_hh)
            h, c = cell(x[None], (states[i][0][None], states[i][1][None]))
            states[i] = (h[0], c[0])
            x = h[0]
        scores = keys @ head.attention.score.keys.weight.t() @ x
        allowed = torch.ones(len(keys), dtype=torch.bool)
        if reach == "local-m":
            allowed = (torch.arange(len(keys)) - min(step, len(keys) - 1)).abs() <= 2
        elif reach == "local-p":
            centre = (len(keys) - 1) * torch.sigmoid(head.attention.centre(torch.tanh(head.attention.hidden(x))))
            allowed = (torch.arange(len(keys)) - centre).abs() <= 2
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(0)
        if reach == "local-p":
            weights = weights * torch.exp(-((torch.arange(len(keys)) - centre) ** 2) / 2)
        if reach == "hard":
            weights = (torch.arange(len(keys)) == weights.argmax()).float()
        fed = torch.tanh(head.combined(torch.cat([weights @ keys, x])))
        logits = head.output.weight @ fed + head.output.bias
        loss = loss - logits.log_softmax(0)[target]
        seen.append(weights)
        before = target
    return float(loss.detach()), torch.stack(seen).detach()


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_decoder_is_what_the_paper_says(reach: str, num_layers: int) -> None:
    """Loss and weights of sentences of unequal lengths, read together, equal each one's written out."""
    model, batch = translator(reach, num_layers), drawn().with_targets(TARGETS)
    loss = model.loss(batch)
    encoded = model.encoder(batch)
    seen = model.head.alignment(encoded, TARGETS)  # type: ignore[operator]
    total = 0.0
    for row, length in enumerate(LENGTHS):
        targets = [t for t in TARGETS[row].tolist() if t != IGNORE]
        alone, weights = written_out(model, encoded.top[row, :length, E:], targets, reach)
        total += alone
        torch.testing.assert_close(seen[row, : len(targets), :length], weights, **CLOSE)
        assert bool((seen[row, :, length:] == 0).all())
    assert loss.count == 7
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-5)


def test_the_words_are_not_looked_at() -> None:
    """With `words_dim` the decoder knows the text only through the LSTMs."""
    model, batch = translator(), drawn().with_targets(TARGETS)
    encoded = model.encoder(batch)
    first = model.head.loss(encoded, batch).total
    encoded.top = torch.cat([encoded.top[:, :, :E] + 1, encoded.top[:, :, E:]], dim=2)
    assert torch.equal(model.head.loss(encoded, batch).total, first)


def test_stepping_tells_what_teaching_does() -> None:
    """The product of next-word probabilities along a translation is the exponential of its loss."""
    model, batch = translator(), drawn().with_targets(TARGETS)
    head: Any = model.head
    decoding, total = head.begin(model.encoder(batch)), 0.0
    words = torch.full((len(LENGTHS),), BEGIN)
    for column in TARGETS.t():
        decoding, _ = head.step(words, decoding)
        log_p = head.next_word(decoding)
        for row in range(len(LENGTHS)):
            if column[row] != IGNORE:
                total -= float(log_p[row, column[row]].detach())
        words = column.clamp(min=0)
    assert float(model.loss(batch).total.detach()) == pytest.approx(total, rel=1e-5)
    assert decoding.step == TARGETS.shape[1]


def test_rows_of_a_decoding_go_on_as_they_would_have() -> None:
    model, batch = translator("local-m"), drawn()
    head: Any = model.head
    decoding, _ = head.step(torch.tensor([BEGIN] * 3), head.begin(model.encoder(batch)))
    index = torch.tensor([2, 0, 0])
    whole, _ = head.step(torch.tensor([4, 5, 6]), decoding)
    chosen, weights = head.step(torch.tensor([6, 4, 4]), decoding.rows(index))
    torch.testing.assert_close(chosen.hidden, whole.hidden[index], **CLOSE)
    assert weights.shape == (3, max(LENGTHS))
