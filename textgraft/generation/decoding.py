"""Token after token from a language model that reads from the left: greedy, sampled, or by beam search.

Ids in, ids out. Only what every such family has is used: `begin`, the state, the head's next-token probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded, State
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import Casts, computing_in

Ended = Literal["end", "stop", "length"]
"""Why a text is over: the model ended it, a stop string came, or it may not be longer."""
IMPOSSIBLE = -1e9


@dataclass(frozen=True)
class GenerateOptions:
    """How to go on from a prompt.

    `temperature` 0 takes the likeliest token each time, above that one is drawn, 1 as the model has it; of the `top_k`
    likeliest, or of the fewest that together have a probability of `top_p` (Holtzman et al. 2020). `beams` above 1
    looks for the likeliest text instead, log probabilities divided by length ** `length_penalty`. Logits of tokens that
    stand in the text already, the prompt too, are divided by `repetition_penalty` (Keskar et al. 2019, §4.1), or
    multiplied where they are negative, which Keskar et al. leave open. As in `transformers`, beam search does that to
    log probabilities; so does an output layer that has no logits of all tokens, the adaptive one. A text is over at any
    of the `stop` strings. The same seed gives the same text.

    Raises UserError for values out of range, and for beams with a temperature.
    """

    max_tokens: int = 50
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    beams: int = 1
    length_penalty: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        least = {"max_tokens": 1, "temperature": 0, "top_k": 1, "beams": 1, "repetition_penalty": 1, "seed": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not low <= value < float("inf"):
                raise UserError(f"{name} is {value}.", remedy=f"Give {low} or more.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}.", remedy="Give a number above 0 and up to 1.")
        if "" in self.stop:
            raise UserError("an empty stop string stops everything.", where="stop", remedy="Leave it out.")
        if self.beams > 1 and self.temperature:
            remedy = "Leave out the temperature, or the beams."
            raise UserError("beam search looks for the likeliest text and draws nothing.", remedy=remedy)
        if not self.temperature and (self.top_k is not None or self.top_p is not None):
            remedy = "Give a temperature too, such as 1."
            raise UserError("top_k and top_p choose what to draw from, and nothing is drawn.", remedy=remedy)


@dataclass(frozen=True)
class Tokens:
    """What a vocabulary holds that is no text: `ends` are over with a text, `never` are not to be written."""

    ends: frozenset[int]
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Written:
    """One more token of a text: which of the texts, the token, its log probability, and whether that was the last."""

    row: int
    token: int
    log_probability: float
    ended: Ended | None


@dataclass(frozen=True)
class Found:
    """What beam search found: the tokens, the sum of their log probabilities, why it is over."""

    ids: list[int]
    log_probability: float
    ended: Ended


class Continuing(Protocol):
    """B texts that go on: logits of what comes next, rows kept or copied, tokens added."""

    def next_logits(self) -> Tensor:
        """(B, V) numbers whose softmax is the probabilities of the next token, float32."""

    def add(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        """The texts are now those of `rows` (which may repeat), each with one token more."""


class Reader:
    """A language model at work on B texts: logits of what comes next, rows kept or copied, tokens added."""

    def __init__(self, model: Model, prompts: Sequence[Sequence[int]], precision: str) -> None:
        self.model, self.precision, self.casts = model.eval(), precision, Casts()
        width = max(len(prompt) for prompt in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.int64)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = True
        with computing_in(precision, model.device, casts=self.casts):
            self.encoded: Encoded = model.encoder.begin(Batch(ids, mask).to(model.device))

    def next_logits(self) -> Tensor:
        """(B, V) numbers whose softmax is the probabilities of the next token, float32."""
        head: Any = self.model.head
        with computing_in(self.precision, self.model.device, casts=self.casts):
            return head.next_logits(self.encoded).float()

    def add(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        """The texts are now those of `rows` (which may repeat), each with one token more."""
        assert self.encoded.state is not None
        device = self.model.device
        column = torch.tensor(tokens, device=device)[:, None]
        state = self.model.encoder.with_room(_rows_of(self.encoded.state, rows, before=len(self.encoded.mask)))
        with computing_in(self.precision, device, casts=self.casts):
            self.encoded = self.model.encoder(Batch(column, torch.ones_like(column, dtype=torch.bool)), state)


def _rows_of(state: State, rows: Sequence[int], *, before: int) -> State:
    """The state of these of the rows that there were before; itself, not copied, where all go on."""
    if list(rows) == list(range(before)):
        return state
    return tuple(tuple(tensor[torch.tensor(rows, device=tensor.device)] for tensor in layer) for layer in state)


def room(model: Model, prompt: Sequence[int], max_tokens: int) -> int:
    """How many tokens may follow a prompt; the last one need not be read, so one more than there are positions."""
    most = model.encoder.max_length
    return max_tokens if most is None else min(max_tokens, most - len(prompt) + 1)


@torch.no_grad()
def write(
    model: Model,
    prompts: Sequence[Sequence[int]],
    options: GenerateOptions,
    tokens: Tokens,
    *,
    first_row: int = 0,
    stopped: Callable[[int, list[int]], bool] = lambda row, ids: False,
) -> Iterator[Written]:
    """The texts' next tokens as they come, greedy or drawn; `stopped` may end a text (row, its new ids so far).

    Row i draws its own random numbers, by the seed and `first_row` + i. Raises UserError for a prompt longer than the
    model can look at.
    """
    rooms = [room(model, prompt, options.max_tokens) for prompt in prompts]
    reader = Reader(model, prompts, options.precision)
    yield from go_on(reader, prompts, rooms, options, tokens, first_row=first_row, stopped=stopped)


def go_on(
    reader: Continuing,
    prompts: Sequence[Sequence[int]],
    rooms: Sequence[int],
    options: GenerateOptions,
    tokens: Tokens,
    *,
    first_row: int = 0,
    stopped: Callable[[int, list[int]], bool] = lambda row, ids: False,
) -> Iterator[Written]:
    """`write` for whatever goes on from `prompts`, which `reader` has read; `rooms` are the most tokens of each."""
    ids: list[list[int]] = [[] for _ in prompts]
    generators = [np.random.default_rng([options.seed, first_row + row]) for row in range(len(prompts))]
    active = list(range(len(prompts)))
    while True:
        logits = reader.next_logits()
        log_p = logits.log_softmax(dim=1)
        changed = processed(logits, [[*prompts[row], *ids[row]] for row in active], options, tokens.never)
        chosen = _chosen(changed, options, [generators[row] for row in active])
        shares = log_p.gather(1, torch.tensor(chosen, device=log_p.device)[:, None])[:, 0].tolist()
        kept: list[int] = []
        for index, (row, token, share) in enumerate(zip(active, chosen, shares, strict=True)):
            ids[row].append(token)
            ended: Ended | None = None
            if token in tokens.ends:
                ended = "end"
            elif stopped(row, ids[row]):
                ended = "stop"
            elif len(ids[row]) >= rooms[row]:
                ended = "length"
            else:
                kept.append(index)
            yield Written(row, token, share, ended)
        if not kept:
            return
        reader.add([chosen[index] for index in kept], kept)
        active = [active[index] for index in kept]


def processed(
    scores: Tensor, texts: Sequence[Sequence[int]], options: GenerateOptions, never: Collection[int] = ()
) -> Tensor:
    """Scores (B, V) with what is never written ruled out and what stands in `texts` made less likely."""
    changed, penalty = scores.clone(), options.repetition_penalty
    if penalty != 1:
        for row, text in enumerate(texts):
            seen = torch.tensor(sorted(set(text)), device=scores.device)
            old = changed[row, seen]
            changed[row, seen] = torch.where(old < 0, old * penalty, old / penalty)
    if never:
        changed[:, list(never)] = -torch.inf
    return changed


def _chosen(scores: Tensor, options: GenerateOptions, generators: Sequence[np.random.Generator]) -> list[int]:
    if not options.temperature:
        return scores.argmax(dim=1).tolist()
    p = filtered(scores / options.temperature, top_k=options.top_k, top_p=options.top_p).double().softmax(dim=1)
    cumulative = p.cumsum(dim=1)
    draws = torch.tensor([generator.random() for generator in generators], dtype=p.dtype, device=p.device)[:, None]
    return torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)[:, 0].tolist()


def filtered(scores: Tensor, *, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Scores (B, V) with -inf for all but the `top_k` largest, and of these all but the likeliest that reach `top_p`.

    A token as likely as the k-th stays too; the likeliest always stays.
    """
    if top_k is not None and top_k < scores.shape[1]:
        least = scores.topk(top_k, dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        p = ordered.double().softmax(dim=1)
        outside = p.cumsum(dim=1) - p >= top_p
        outside[:, 0] = False
        scores = scores.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return scores


class _Search:
    """One prompt's beams: running texts with their scores, and the best that are finished."""

    def __init__(self, beams: int, length_penalty: float) -> None:
        self.beams, self.length_penalty = beams, length_penalty
        self.running: list[list[int]] = [[] for _ in range(beams)]
        self.scores = [0.0] + [IMPOSSIBLE] * (beams - 1)  # the first step has one text to go on from
        self.finished: list[tuple[float, Found]] = []

    def advance(self, log_p: Tensor, tokens: Tokens, last: bool) -> tuple[list[int], list[int]]:
        """One step by (beams, V) log probabilities: the running texts' new tokens and which beams they go on from.

        So many candidates are looked at that enough go on though every beam ends in each way there is; but only the
        first `beams` of them may finish.
        """
        total = log_p + torch.tensor(self.scores, device=log_p.device)[:, None]
        count = min(max(2, 1 + len(tokens.ends)) * self.beams, total.numel())
        best = total.flatten().topk(count)
        going: list[tuple[list[int], float, int]] = []
        for rank, (score, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            beam, token = divmod(place, log_p.shape[1])
            ids = [*self.running[beam], token]
            if token in tokens.ends or last:
                if rank < self.beams and score > IMPOSSIBLE / 2:
                    ended: Ended = "end" if token in tokens.ends else "length"
                    self.finished.append((score / len(ids) ** self.length_penalty, Found(ids, score, ended)))
            elif len(going) < self.beams:
                going.append((ids, score, beam))
        self.finished = sorted(self.finished, key=lambda entry: -entry[0])[: self.beams]
        going += going[:1] * (self.beams - len(going))  # a vocabulary too small for so many beams
        self.running, self.scores = [ids for ids, _, _ in going], [score for _, score, _ in going]
        return [ids[-1] for ids in self.running], [beam for _, _, beam in going]

    def may_improve(self) -> bool:
        """Whether the best running text, as long as it is now, beats the worst of enough finished ones."""
        if len(self.finished) < self.beams:
            return True
        return self.scores[0] / len(self.running[0]) ** self.length_penalty > self.finished[-1][0]


@torch.no_grad()
def beam_search(
    model: Model, prompts: Sequence[Sequence[int]], options: GenerateOptions, tokens: Tokens
) -> list[Found]:
    """For each prompt the likeliest continuation that `options.beams` beams find.

    As transformers searches with `early_stopping=False`: over when no running text, at its present length, would be
    better than the worst of `beams` finished ones. Raises UserError for a prompt longer than the model can look at.
    """
    rooms = [room(model, prompt, options.max_tokens) for prompt in prompts]
    return search(Reader(model, prompts, options.precision), prompts, rooms, options, tokens)


def search(
    reader: Continuing,
    prompts: Sequence[Sequence[int]],
    rooms: Sequence[int],
    options: GenerateOptions,
    tokens: Tokens,
) -> list[Found]:
    """`beam_search` for whatever goes on from `prompts`, as in `go_on`."""
    beams = options.beams
    searches = [_Search(beams, options.length_penalty) for _ in prompts]
    active = list(range(len(prompts)))
    log_p, written = reader.next_logits().log_softmax(dim=1).repeat_interleave(beams, dim=0), 0
    while active:
        written += 1
        texts = [[*prompts[row], *ids] for row in active for ids in searches[row].running]
        changed = processed(log_p, texts, options, tokens.never)
        kept, next_tokens, rows = [], [], []
        for index, row in enumerate(active):
            search, last = searches[row], written >= rooms[row]
            added, origins = search.advance(changed[index * beams : (index + 1) * beams], tokens, last)
            if not last and search.may_improve():
                kept.append(row)
                next_tokens += added
                # The first step was made with one row for each prompt.
                rows += [index if written == 1 else index * beams + origin for origin in origins]
        if kept:
            reader.add(next_tokens, rows)
            log_p = reader.next_logits().log_softmax(dim=1)
        active = kept
    return [search.finished[0][1] for search in searches]
