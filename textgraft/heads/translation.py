"""Translation: an LSTM decoder with attention over the encoded source text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded, State
from textgraft.heads.base import Head, Loss
from textgraft.nn.attention_scores import Hard, new_attention
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.recurrent import LSTMLayer
from textgraft.nn.softmax import ChunkedSoftmax
from textgraft.text.normalize import CONTROL

BEGIN, END = CONTROL.index("xxbos"), CONTROL.index("xxeos")
"""Tokens before the first word of a translation, and after the last."""


@dataclass(frozen=True)
class TranslationConfig:
    """Configuration of a decoder with a vocabulary of its own; `score`, `reach` and `window` are those of
    nn.attention_scores.

    The first `words_dim` of the encoder's `input_dim` features are not attended to: CoVe's word vectors, which are
    concatenated with the outputs of its LSTMs.
    """

    vocab_size: int
    input_dim: int
    words_dim: int = 0
    embedding_dim: int = 300
    hidden_dim: int = 600
    num_layers: int = 2
    score: str = "general"
    reach: str = "global"
    window: int = 10
    input_dropout: float = 0.2
    hidden_dropout: float = 0.2


@dataclass(frozen=True)
class Decoding:
    """State of the decoder for B translations."""

    keys: Tensor  # (B, S, K) encoded source
    prepared: Tensor  # (B, S, any) keys prepared for the score
    mask: Tensor  # (B, S)
    hidden: Tensor  # (B, H) h̃, input of the output layer and of the next step
    layers: State  # of each LSTM layer (h, c), (B, H)
    step: int = 0

    def rows(self, index: Tensor) -> Decoding:
        """The states of these rows, which may repeat."""
        selected = (self.keys[index], self.prepared[index], self.mask[index], self.hidden[index])
        return Decoding(*selected, tuple(tuple(t[index] for t in layer) for layer in self.layers), self.step)


class TranslationHead(Head):
    """LSTM decoder with input feeding and attention.

        h_t = LSTM([z_t-1; h̃_t-1], h_t-1)    α_t = attention(h_t, H)
        h̃_t = tanh(W [Hᵀ α_t; h_t] + b)       p(word t) = softmax(W_out h̃_t + b_out)

    Source: McCann et al. 2017, §3; Luong et al. 2015, §3.3. Differences: McCann et al.'s score has a bias on the query,
    Luong's "general" has none; the initial state is tanh of a linear layer of the first and last position of the text
    (Bahdanau et al. 2015, A.2.2, use one side), because an encoder here returns vectors and not its cell states.

    Raises:
        UserError: The score or reach is unknown, or does not fit the widths.
    """

    config: TranslationConfig

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        self.config = config
        keys, hidden = config.input_dim - config.words_dim, config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)
        self.start = Linear(2 * keys, config.num_layers * hidden)
        widths = [config.embedding_dim + hidden] + [hidden] * (config.num_layers - 1)
        self.layers = nn.ModuleList(LSTMLayer(width, hidden) for width in widths)
        self.attention = new_attention(config.score, config.reach, query_dim=hidden, key_dim=keys, window=config.window)
        self.combined = Linear(keys + hidden, hidden)
        self.output = ChunkedSoftmax(config.vocab_size, hidden)

    def forward(self, encoded: Encoded) -> Tensor:
        """Log probabilities (B, V) of the first word."""
        begin = torch.full((len(encoded.top),), BEGIN, device=encoded.top.device)
        decoding, _ = self.step(begin, self.begin(encoded))
        return self.next_word(decoding)

    def begin(self, encoded: Encoded) -> Decoding:
        """The initial state."""
        keys = encoded.top[:, :, self.config.words_dim :]
        last = (encoded.mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, keys.shape[2])
        ends = torch.cat([keys.gather(1, last)[:, 0], keys[:, 0]], dim=1)
        starts = torch.tanh(self.start(ends)).to(keys.dtype).chunk(self.config.num_layers, dim=1)
        layers = tuple((start, torch.zeros_like(start)) for start in starts)
        hidden = torch.zeros_like(starts[0])
        return Decoding(keys, self.attention.prepared(keys), encoded.mask, hidden, layers)

    def step(self, words: Tensor, decoding: Decoding) -> tuple[Decoding, Tensor]:
        """Decode one word (B,), BEGIN first: the new state and the attention weights (B, S)."""
        decoding, _, chosen = self._step(self._embedded(words), decoding)
        return decoding, chosen

    def next_word(self, decoding: Decoding) -> Tensor:
        """Log probabilities (B, V) of the next word."""
        return self.output.log_probs(decoding.hidden)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over target words, with teacher forcing, and their number.

        `batch.targets` (B, T') are the ids of a translation, END, then IGNORE. With hard attention in training it is
        that of sampled positions, and its gradient an estimate (nn.attention_scores.Hard).
        """
        assert batch.targets is not None
        targets = _without_empty_columns(batch.targets)
        hidden, weights, chosen = self._teacher_forced(encoded, targets)
        total, count = self.output.loss(hidden.reshape(-1, hidden.shape[2]), targets.reshape(-1))
        if isinstance(self.attention, Hard) and self.training:
            log_probs = self._target_log_probs(hidden, targets)
            surrogate = self.attention.surrogate(weights, chosen, log_probs, targets != IGNORE)
            total = total + (surrogate - surrogate.detach()).to(total.dtype)  # changes the gradient alone
        return Loss(total=total, count=count)

    @torch.no_grad()
    def _target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Log probabilities (B, T') of targets, 0 where there is none; a column of words at a time."""
        columns = zip(hidden.unbind(1), targets.clamp(min=0).unbind(1), strict=True)
        found = [self.output.log_probs(h).gather(1, word[:, None])[:, 0] for h, word in columns]
        return torch.stack(found, dim=1).float().masked_fill(targets == IGNORE, 0.0)

    @torch.no_grad()
    def alignment(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Attention weights (B, T', S) for each word of given translations, with targets as in `loss`."""
        return self._teacher_forced(encoded, targets)[2]

    def _teacher_forced(self, encoded: Encoded, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h̃ (B, T', H), attention weights (B, T', S) and those of the context, with teacher forcing."""
        before = F.pad(targets[:, :-1], (1, 0), value=BEGIN)
        words = self._embedded(before.masked_fill(before == IGNORE, END))
        decoding, steps = self.begin(encoded), []
        for step in range(targets.shape[1]):
            decoding, weights, chosen = self._step(words[:, step], decoding)
            steps.append((decoding.hidden, weights, chosen))
        hidden, weights, chosen = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        return hidden, weights, chosen

    def _embedded(self, words: Tensor) -> Tensor:
        return F.dropout(self.embedding(words), self.config.input_dropout, self.training)

    def _step(self, embedded: Tensor, decoding: Decoding) -> tuple[Decoding, Tensor, Tensor]:
        """The new state, the attention weights (B, S), and those of the context vector."""
        x, layers = torch.cat([embedded, decoding.hidden], dim=1), []
        for layer, state in zip(self.layers, decoding.layers, strict=True):
            outputs, new_state = layer(x[None], state)
            x = F.dropout(outputs[0], self.config.hidden_dropout, self.training)
            layers.append(new_state)
        x = x.to(decoding.keys.dtype)
        weights = self.attention(x, decoding.prepared, decoding.mask, decoding.step)
        chosen = self.attention.selected(weights)
        context = torch.bmm(chosen[:, None].to(decoding.keys.dtype), decoding.keys)[:, 0]
        hidden = torch.tanh(self.combined(torch.cat([context.to(x.dtype), x], dim=1))).to(x.dtype)
        hidden = F.dropout(hidden, self.config.hidden_dropout, self.training)
        return replace(decoding, hidden=hidden, layers=tuple(layers), step=decoding.step + 1), weights, chosen


def _without_empty_columns(targets: Tensor) -> Tensor:
    """Targets (B, T') without columns that are padding in every row."""
    return targets[:, : int((targets != IGNORE).sum(dim=1).max())]
