"""How likely a language model that reads from the left finds continuations of prompts, many at a time.

`textgraft.score` for prompts that begin alike: what all of a group share (an instruction, worked examples) is read
once, its state goes to every row, equal requests are answered once, and rows of like length are read together.
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
SHARED_AT_LEAST = 8
"""Fewer tokens than that in common are not worth a pass of their own."""
PREDICTED_AT_ONCE = 512


@dataclass(frozen=True)
class Request:
    """A continuation of a prompt; requests with the same `shared` begin with that text and are read together."""

    prompt: str
    continuation: str
    shared: str = ""


@dataclass(frozen=True)
class Likelihood:
    """A continuation's log probability (nats, summed), its length, and whether each token was the likeliest there."""

    log_probability: float
    tokens: int
    bytes: int
    greedy: bool


@dataclass(frozen=True)
class Scoring:
    """What makes a continuation's likelihood one number to compare; `alone` is that after a prompt without content."""

    value: Callable[[Likelihood, Likelihood], float]
    about: str
    needs_alone: bool = False


SCORINGS: dict[str, Scoring] = {
    "sum": Scoring(lambda found, alone: found.log_probability, "log P(option | prompt)"),
    "length": Scoring(lambda found, alone: found.log_probability / found.tokens, "the same by token"),
    "bytes": Scoring(lambda found, alone: found.log_probability / found.bytes, "the same by byte of UTF-8"),
    "unconditional": Scoring(
        lambda found, alone: found.log_probability - alone.log_probability,
        "log P(option | prompt) - log P(option | 'Answer:')",
        needs_alone=True,
    ),
}
"""Brown et al. 2020, §2.4, has the mean by token, and P(option | context) / P(option | "Answer:") for some tasks."""


@dataclass(frozen=True)
class Row:
    """The ids of a prompt with its continuation, which begins at `border`."""

    ids: np.ndarray
    border: int


def likelihoods(artifact: Artifact, requests: Sequence[Request], *, precision: str = "auto") -> list[Likelihood]:
    """The likelihood of each request's continuation, in order.

    Prompt and continuation are tokenised as one text, as `textgraft.score` does. Raises UserError for a continuation
    that is not one token, and for a text that is longer than the model can look at (the last token is not read).
    """
    unique = list(dict.fromkeys(requests))
    rows = _rows(artifact, unique)
    groups: dict[str, list[int]] = {}
    for index, request in enumerate(unique):
        groups.setdefault(request.shared, []).append(index)
    found: dict[Request, Likelihood] = {}
    for members in groups.values():
        values = _read(artifact, [rows[i] for i in members], precision)
        for index, (log_probability, greedy) in zip(members, values, strict=True):
            row, request = rows[index], unique[index]
            size = len(request.continuation.encode("utf-8", "surrogatepass"))
            found[request] = Likelihood(log_probability, len(row.ids) - row.border, size, greedy)
    return [found[request] for request in requests]


def token_rows(tokenizer: Tokenizer, prompts: Sequence[str], continuations: Sequence[str]) -> list[Row]:
    """Each prompt with its continuation as ids; after a prompt of nothing the continuation begins a text."""
    names = list(dict.fromkeys(prompts))
    before = dict(zip(names, tokenizer.encode_batch(names), strict=True))
    whole = tokenizer.encode_batch([prompt + text for prompt, text in zip(prompts, continuations, strict=True)])
    rows = []
    for prompt, ids in zip(prompts, whole, strict=True):
        border = _common([before[prompt], ids])
        rows.append(Row(ids, border) if border else Row(np.concatenate([[tokenizer.bos_id], ids]), 1))
    return rows


def _rows(artifact: Artifact, requests: Sequence[Request]) -> list[Row]:
    rows = token_rows(artifact.tokenizer, [r.prompt for r in requests], [r.continuation for r in requests])
    most = artifact.model.encoder.max_length
    for request, row in zip(requests, rows, strict=True):
        if len(row.ids) <= row.border:
            message = f"'{request.continuation}' is not one token of this model's vocabulary."
            raise UserError(message, remedy="Give options of one word or more.")
        if most is not None and len(row.ids) - 1 > most:
            message = f"a prompt of {len(row.ids):,} tokens is longer than the {most:,} that this model can look at."
            raise UserError(message, where=request.prompt[:40] + "…", remedy="Shorten it.")
    return rows


@torch.no_grad()
def _read(artifact: Artifact, rows: Sequence[Row], precision: str) -> list[tuple[float, bool]]:
    """Each row's summed log probability, and whether it is what greedy decoding would have written."""
    model = artifact.model.eval()
    start, state = 0, None
    shared = min(_common([row.ids for row in rows]), min(row.border for row in rows) - 1)
    if len(rows) > 1 and shared >= SHARED_AT_LEAST and model.encoder.remembers(shared):
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
            found, likeliest = _targets(artifact, model.encoder(batch, _repeated(state, len(members))), batch)
        for member, total, greedy in zip(members, found.sum(1).tolist(), likeliest.all(1).tolist(), strict=True):
            results[member] = (total, greedy)
    return results


def _targets(artifact: Artifact, encoded: Encoded, batch: Batch) -> tuple[Tensor, Tensor]:
    """(B, T) the log probability of each target, 0 where there is none, and whether no token is likelier."""
    head = artifact.model.head
    assert isinstance(head, LanguageModelHead)
    assert batch.targets is not None
    counted = batch.targets != IGNORE
    log_p = torch.zeros(counted.shape, dtype=torch.float64, device=counted.device)
    likeliest = torch.ones_like(counted)
    values, best = [], []
    for hidden, wanted in zip(
        encoded.top[counted].split(PREDICTED_AT_ONCE), batch.targets[counted].split(PREDICTED_AT_ONCE)
    ):
        every = head.output.log_probs(hidden)
        values.append(every.gather(1, wanted[:, None])[:, 0].double())
        best.append(every.argmax(1) == wanted)
    log_p[counted], likeliest[counted] = torch.cat(values), torch.cat(best)
    return log_p, likeliest


def _repeated(state: State | None, rows: int) -> State | None:
    """The state of one row as that of many."""
    if state is None:
        return None
    return tuple(tuple(t.expand(rows, *t.shape[1:]).contiguous() for t in layer) for layer in state)


def _common(sequences: Sequence[np.ndarray]) -> int:
    """How many ids all sequences have in common at their beginning."""
    shortest = min(map(len, sequences))
    same = np.ones(shortest, dtype=bool)
    for ids in sequences[1:]:
        same &= ids[:shortest] == sequences[0][:shortest]
    return shortest if same.all() else int(same.argmin())
