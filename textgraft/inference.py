"""From texts to logits and vectors: length-sorted token-budget batches inside, the caller's order outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.data.batch import Batch, PairIds, Rows, TokenIds, budget_batches, iterate
from textgraft.data.examples import Choice, Pair, reads
from textgraft.errors import UserError
from textgraft.model import Model
from textgraft.nn.pooling import POOLINGS
from textgraft.nn.precision import computing_in
from textgraft.nn.readout import LAST, Readout, new_readout
from textgraft.text.tokenizer import Tokenizer

TOKENS_PER_BATCH = 16_384


@dataclass(frozen=True)
class Truncation:
    """How much text a model never saw because documents were longer than it reads."""

    texts: int
    cut_texts: int
    tokens: int
    lost_tokens: int

    @property
    def share(self) -> float:
        """Of all tokens, how many were lost."""
        return self.lost_tokens / max(1, self.tokens)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
    """The texts' token ids, each at most `max_tokens`, and what this cut off.

    A long text keeps its first quarter of the limit and its last three: reviews and articles say what they are at
    the beginning and what they think at the end (Sun et al. 2019, arXiv:1905.05583, "head + tail"). A Pair becomes
    PairIds, whose marks are kept: the longer text is cut until both are of one length, then both (BERT cuts ends, we
    cut as above). A Choice becomes Rows, a pair for each option. Raises UserError where `max_tokens` leaves no room
    for two texts.
    """
    if reads(texts) == "texts":
        sequences = tokenizer.encode_batch(texts)
        cut: list[TokenIds] = [_cut(s, max_tokens) for s in sequences]
        return cut, _truncation([len(s) for s in sequences], [len(s) for s in cut])
    bundles = [text.pairs if isinstance(text, Choice) else (_pair(text, i),) for i, text in enumerate(texts)]
    whole = _encoded_pairs(tokenizer, [pair for bundle in bundles for pair in bundle])
    kept = [cut_pair(pair, max_tokens) for pair in whole]
    pairs = iter(kept)
    found = [tuple(next(pairs) for _ in bundle) for bundle in bundles]
    examples: list[TokenIds] = [
        Rows(rows) if isinstance(text, Choice) else rows[0] for text, rows in zip(texts, found, strict=True)
    ]
    return examples, _truncation([len(pair) for pair in whole], [len(pair) for pair in kept])


def _pair(text: str, index: int) -> Pair:
    if isinstance(text, Pair):
        return text
    raise UserError(f"text {index + 1} is a single text among pairs.", remedy="Give two texts for each.")


def _encoded_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[PairIds]:
    bodies, marks = (
        tokenizer.bodies([text for pair in pairs for text in (pair.first, pair.second)]),
        tokenizer.pair_marks,
    )
    return [PairIds(a, b, marks) for a, b in zip(bodies[::2], bodies[1::2], strict=True)]


def cut_pair(pair: PairIds, max_tokens: int) -> PairIds:
    """The pair with no more than `max_tokens`, marks among them; the shorter text loses only what is over half.

    Raises UserError where there is no room for a token of each text.
    """
    room = max_tokens - (len(pair) - len(pair.first) - len(pair.second))
    if room < 2:
        raise UserError(f"{max_tokens} tokens leave no room for two texts.", remedy="Raise max_tokens.")
    a, b = len(pair.first), len(pair.second)
    if a + b > room:
        a, b = (min(a, max(room - b, (room + 1) // 2)), min(b, max(room - a, room // 2)))
    return PairIds(_cut(pair.first, a), _cut(pair.second, b), pair.marks)


def _cut(ids: np.ndarray, most: int) -> np.ndarray:
    """No more than `most` ids: the first quarter of them from the beginning, the rest from the end."""
    head = most // 4
    return ids if len(ids) <= most else np.concatenate([ids[:head], ids[len(ids) - most + head :]])


def _truncation(before: Sequence[int], after: Sequence[int]) -> Truncation:
    lost = [a - b for a, b in zip(before, after, strict=True) if a > b]
    return Truncation(len(before), len(lost), sum(before), sum(lost))


def as_read_by(model: Model, sequences: Sequence[TokenIds]) -> Sequence[TokenIds]:
    """The examples as the model's head wants them: pairs in both orders, if it adds these up.

    Raises UserError where it does and something is no pair.
    """
    if not getattr(model.head.config, "both_orders", False):
        return sequences
    if not all(isinstance(s, PairIds) for s in sequences):
        raise UserError("this model reads pairs in both orders, and these are no pairs.", remedy="Give pairs of texts.")
    return [s.in_both_orders() for s in sequences if isinstance(s, PairIds)]


@torch.no_grad()
def predict_logits(model: Model, sequences: Sequence[TokenIds], pad_id: int, precision: str = "auto") -> np.ndarray:
    """(N, outputs) float32 logits of the head, one row a text in the order given.

    Of questions with options (N, most options), -inf where there are fewer.
    """
    return _over_batches(model, as_read_by(model, sequences), pad_id, precision, model)


@torch.no_grad()
def embed_sequences(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    pooling: str = "mean",
    precision: str = "auto",
    *,
    layers: str = LAST,
) -> np.ndarray:
    """(N, D) float32 vectors: the encoder's top layer, or what `layers` reads (nn.readout), pooled (nn.pooling).

    Raises UserError for questions with options, which have a vector for each option, for layers that cannot be read so,
    and for a mix that the model has not learned.
    """
    if any(isinstance(s, Rows) for s in sequences):
        raise UserError("a question with options is not one text.", remedy="Embed texts or pairs.")
    readout = frozen_readout(model, layers)

    def pooled(batch: Batch) -> Tensor:
        batch = batch.to(model.device)
        if readout is None:
            vectors = model.encoder(batch).top
        else:
            vectors = readout(model.encoder(batch, keep="all").layers)
        return POOLINGS[pooling](vectors, batch.mask, model.encoder.direction)

    return _over_batches(model, sequences, pad_id, precision, pooled)


def frozen_readout(model: Model, name: str) -> Readout | None:
    """What reads the layers, with what the model has learned of it; None for the top layer as it is.

    Raises UserError for layers that cannot be read so, and for a mix that the model has not learned.
    """
    if name == LAST:
        return None
    if model.readout is not None and model.head.config.readout == name:
        return model.readout
    made = new_readout(name, model.encoder.widths)
    if list(made.parameters()):
        remedy = f"Fine-tune it with the readout '{name}', or name another one."
        raise UserError(f"the readout '{name}' has to be learned, and this model has not.", remedy=remedy)
    return made


def _over_batches(
    model: Model, sequences: Sequence[TokenIds], pad_id: int, precision: str, answer: Callable[[Batch], Tensor]
) -> np.ndarray:
    was_training = model.training
    model.eval()
    results: list[Tensor] = []
    rows: list[int] = []
    batches = budget_batches([len(s) for s in sequences], tokens=TOKENS_PER_BATCH, rows=512)
    for indices, batch in zip(batches, iterate(sequences, batches, pad_id), strict=True):
        with computing_in(precision, model.device):
            results.append(answer(batch).float().cpu())
        rows += indices
    model.train(was_training)
    width = max(result.shape[1] for result in results)
    output = torch.cat([F.pad(r, (0, width - r.shape[1]), value=-torch.inf) for r in results])
    ordered = torch.empty_like(output)
    ordered[torch.tensor(rows)] = output
    return ordered.numpy()
