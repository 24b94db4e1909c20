"""Batched likelihoods of continuations of prompts under a left-to-right language model.

Like `textgraft.score`, for prompts with common beginnings: the shared prefix of a group (an instruction, worked
examples) is encoded once, its state is copied to every row, equal requests are computed once, and rows of similar
length are batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch, pad
from textgraft.data.sequences import budget_batches
from textgraft.encoders.base import Encoded, State
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models.artifact import Artifact
from textgraft.nn.cpu.precision import computing_in
from textgraft.text.tokenizer import Tokenizer

ROWS = 64
TOKENS = 4096
MIN_SHARED_TOKENS = 8
"""Minimum length of a shared prefix for a separate pass."""
PREDICTED_AT_ONCE = 512


@dataclass(frozen=True)
class Request:
    """A continuation of a prompt; requests with the same `shared` begin with that text and are batched."""

    prompt: str
    continuation: str
    shared: str = ""


@dataclass(frozen=True)
class Likelihood:
    """Log probability of a continuation (nats, summed), its length in tokens and bytes, and whether greedy decoding
    gives it.
    """

    log_probability: float
    tokens: int
    bytes: int
    greedy: bool


@dataclass(frozen=True)
class Scoring:
    """Function from a continuation's likelihood to a comparable score; `alone` is the likelihood after a content-free
    prompt.
    """

    value: Callable[[Likelihood, Likelihood], float]
    about: str
    needs_alone: bool = False


SCORINGS: dict[str, Scoring] = {
    "sum": Scoring(lambda likelihood, alone: likelihood.log_probability, "log P(option | prompt)"),
    "length": Scoring(lambda likelihood, alone: likelihood.log_probability / likelihood.tokens, "the same by token"),
    "bytes": Scoring(
        lambda likelihood, alone: likelihood.log_probability / likelihood.bytes, "the same by byte of UTF-8"
    ),
    "unconditional": Scoring(
        lambda likelihood, alone: likelihood.log_probability - alone.log_probability,
        "log P(option | prompt) - log P(option | 'Answer:')",
        needs_alone=True,
    ),
}
"""Brown et al. 2020, §2.4: the mean by token, and P(option | context) / P(option | "Answer:") for some tasks."""


@dataclass(frozen=True)
class Row:
    """Ids of a prompt with its continuation, which begins at `border`."""

    ids: np.ndarray
    border: int


def likelihoods(artifact: Artifact, requests: Sequence[Request], *, precision: str = "auto") -> list[Likelihood]:
    """Likelihood of each request's continuation, in order.

    Prompt and continuation are tokenised as one text, as in `textgraft.score`.

    Raises:
        UserError: A continuation has no token of its own, or a text is longer than the model's maximum length (the last
            token needs no position).
    """
    unique = list(dict.fromkeys(requests))
    rows = _rows(artifact, unique)
    groups: dict[str, list[int]] = {}
    for index, request in enumerate(unique):
        groups.setdefault(request.shared, []).append(index)
    by_request: dict[Request, Likelihood] = {}
    for members in groups.values():
        values = _score_rows(artifact, [rows[i] for i in members], precision)
        for index, (log_probability, greedy) in zip(members, values, strict=True):
            row, request = rows[index], unique[index]
            size = len(request.continuation.encode("utf-8", "surrogatepass"))
            by_request[request] = Likelihood(log_probability, len(row.ids) - row.border, size, greedy)
    return [by_request[request] for request in requests]


def token_rows(tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str]) -> list[Row]:
    """Ids of each prompt with its continuation; after an empty prompt the continuation begins a text."""
    names = list(dict.fromkeys(prompts))
    before = dict(zip(names, tokenizer.encode_batch(names), strict=True))
    whole = tokenizer.encode_batch([prompt + text for prompt, text in zip(prompts, continuations, strict=True)])
    rows = []
    for prompt, ids in zip(prompts, whole, strict=True):
        border = _common_prefix([before[prompt], ids])
        rows.append(Row(ids, border) if border else Row(np.concatenate([[tokenizer.bos_id], ids]), 1))
    return rows


def _rows(artifact: Artifact, requests: Sequence[Request]) -> list[Row]:
    rows = token_rows(artifact.tokenizer, [r.prompt for r in requests], [r.continuation for r in requests])
    maximum = artifact.model.encoder.max_length
    for request, row in zip(requests, rows, strict=True):
        if len(row.ids) <= row.border:
            message = f"'{request.continuation}' has no token in this model's vocabulary."
            raise UserError(message, remedy="Give options of one word or more.")
        if maximum is not None and len(row.ids) - 1 > maximum:
            message = f"a prompt of {len(row.ids):,} tokens is longer than the {maximum:,} positions of this model."
            raise UserError(message, where=request.prompt[:40] + "…", remedy="Shorten it.")
    return rows


@torch.no_grad()
def _score_rows(artifact: Artifact, rows: Sequence[Row], precision: str) -> list[tuple[float, bool]]:
    """Summed log probability of each row, and whether greedy decoding gives it."""
    model = artifact.model.eval()
    start, state = 0, None
    shared = min(_common_prefix([row.ids for row in rows]), min(row.border for row in rows) - 1)
    if len(rows) > 1 and shared >= MIN_SHARED_TOKENS and model.encoder.remembers(shared):
        ids = torch.from_numpy(rows[0].ids[None, :shared].astype(np.int64))
        with computing_in(precision, model.device):
            encoded = model.encoder.begin(Batch(ids, torch.ones_like(ids, dtype=torch.bool)).to(model.device))
        start, state = shared, encoded.state
    results = [(0.0, False)] * len(rows)
    lengths = [len(row.ids) - 1 - start for row in rows]
    for members in budget_batches(lengths, tokens=TOKENS, rows=ROWS):
        batch = pad([rows[i].ids[start:-1] for i in members], artifact.tokenizer.pad_id)
        targets = torch.full_like(batch.ids, IGNORE)
        for index, member in enumerate(members):
            row = rows[member]
            first = row.border - 1 - start
            targets[index, first : lengths[member]] = torch.from_numpy(row.ids[row.border :].astype(np.int64))
        batch = batch.with_targets(targets).to(model.device)
        with computing_in(precision, model.device):
            log_probs, is_greedy = _targets(artifact, model.encoder(batch, _repeat_state(state, len(members))), batch)
        for member, total, greedy in zip(members, log_probs.sum(1).tolist(), is_greedy.all(1).tolist(), strict=True):
            results[member] = (total, greedy)
    return results


def _targets(artifact: Artifact, encoded: Encoded, batch: Batch) -> tuple[Tensor, Tensor]:
    """Log probability (B, T) of each target, 0 where there is none, and whether it is the most likely token."""
    head = artifact.model.head
    assert isinstance(head, LanguageModelHead)
    assert batch.targets is not None
    counted = batch.targets != IGNORE
    log_p = torch.zeros(counted.shape, dtype=torch.float64, device=counted.device)
    is_greedy = torch.ones_like(counted)
    values, best = [], []
    for hidden, targets in zip(
        encoded.top[counted].split(PREDICTED_AT_ONCE), batch.targets[counted].split(PREDICTED_AT_ONCE)
    ):
        all_log_probs = head.output.log_probs(hidden)
        values.append(all_log_probs.gather(1, targets[:, None])[:, 0].double())
        best.append(all_log_probs.argmax(1) == targets)
    log_p[counted], is_greedy[counted] = torch.cat(values), torch.cat(best)
    return log_p, is_greedy


def _repeat_state(state: State | None, rows: int) -> State | None:
    """The state of one row, repeated."""
    if state is None:
        return None
    return tuple(tuple(t.expand(rows, *t.shape[1:]).contiguous() for t in layer) for layer in state)


def _common_prefix(sequences: Sequence[np.ndarray]) -> int:
    """Length of the common prefix of all sequences."""
    shortest = min(map(len, sequences))
    same = np.ones(shortest, dtype=bool)
    for ids in sequences[1:]:
        same &= ids[:shortest] == sequences[0][:shortest]
    return shortest if same.all() else int(same.argmin())
