"""Decoding from a left-to-right language model: greedy, sampling, or beam search.

Ids in, ids out. It needs only what all such families have: `begin`, the state, and the head's next-token logits.
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

FinishReason = Literal["end", "stop", "length"]
"""Reason for the end of a text: the model ended it, a stop string occurred, or the maximum length is reached."""
IMPOSSIBLE = -1e9


@dataclass(frozen=True)
class GenerateOptions:
    """Options of generation. The same seed gives the same text.

    Args:
        max_tokens: Maximum number of new tokens.
        temperature: 0 is greedy decoding; above it tokens are sampled, 1 without change of the distribution.
        top_k: Sample from the k most likely tokens.
        top_p: Sample from the fewest tokens with this total probability (Holtzman et al. 2020).
        beams: Number of beams; above 1 beam search replaces sampling.
        length_penalty: Beam search divides log probabilities by length ** `length_penalty`.
        repetition_penalty: Divides the logits of tokens in the text and the prompt (Keskar et al. 2019, §4.1), or
            multiplies them where they are negative, which Keskar et al. leave open. As in `transformers`, beam search
            applies it to log probabilities; so does the adaptive output layer, which has no logits.
        stop: A text ends at any of these strings.
        seed: Seed of sampling.
        precision: Arithmetic of the model.

    Raises:
        UserError: A value is out of range, or beams are combined with a temperature.
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
        minima = {"max_tokens": 1, "temperature": 0, "top_k": 1, "beams": 1, "repetition_penalty": 1, "seed": 0}
        for name, minimum in minima.items():
            value = getattr(self, name)
            if value is not None and not minimum <= value < float("inf"):
                raise UserError(f"{name} is {value}.", remedy=f"Give {minimum} or more.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}.", remedy="Give a number above 0 and up to 1.")
        if "" in self.stop:
            raise UserError("an empty stop string ends every text.", where="stop", remedy="Leave it out.")
        if self.beams > 1 and self.temperature:
            remedy = "Leave out the temperature, or the beams."
            raise UserError("beam search does not sample, so a temperature has no effect.", remedy=remedy)
        if not self.temperature and (self.top_k is not None or self.top_p is not None):
            remedy = "Give a temperature too, such as 1."
            raise UserError("top_k and top_p only apply to sampling.", remedy=remedy)


@dataclass(frozen=True)
class Tokens:
    """Special tokens of a vocabulary: `ends` finish a text, `never` are not generated."""

    ends: frozenset[int]
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token: the row of its text, its id and log probability, and the reason if it is the last."""

    row: int
    token: int
    log_probability: float
    ended: FinishReason | None


@dataclass(frozen=True)
class BeamResult:
    """Result of beam search: the tokens, the sum of their log probabilities, and why it finished."""

    ids: list[int]
    log_probability: float
    ended: FinishReason


class NextTokenModel(Protocol):
    """B texts in generation: next-token logits, selection of rows, new tokens."""

    def next_logits(self) -> Tensor:
        """Next-token logits (B, V), float32."""

    def add(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        """Select the texts of `rows` (which may repeat) and append a token to each."""


class Decoder:
    """A language model with the state of B texts: next-token logits, selection of rows, new tokens."""

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
        """Next-token logits (B, V), float32."""
        head: Any = self.model.head
        with computing_in(self.precision, self.model.device, casts=self.casts):
            return head.next_logits(self.encoded).float()

    def add(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        """Select the texts of `rows` (which may repeat) and append a token to each."""
        assert self.encoded.state is not None
        device = self.model.device
        column = torch.tensor(tokens, device=device)[:, None]
        state = self.model.encoder.with_room(_select_rows(self.encoded.state, rows, before=len(self.encoded.mask)))
        with computing_in(self.precision, device, casts=self.casts):
            self.encoded = self.model.encoder(Batch(column, torch.ones_like(column, dtype=torch.bool)), state)


def _select_rows(state: State, rows: Sequence[int], *, before: int) -> State:
    """Rows of a state; the state itself, not copied, if all rows remain."""
    if list(rows) == list(range(before)):
        return state
    return tuple(tuple(tensor[torch.tensor(rows, device=tensor.device)] for tensor in layer) for layer in state)


def room(model: Model, prompt: Sequence[int], max_tokens: int) -> int:
    """Maximum number of tokens after a prompt; the last one needs no position, so one more than there are positions."""
    maximum = model.encoder.max_length
    return max_tokens if maximum is None else min(max_tokens, maximum - len(prompt) + 1)


@torch.no_grad()
def write(
    model: Model,
    prompts: Sequence[Sequence[int]],
    options: GenerateOptions,
    tokens: Tokens,
    *,
    first_row: int = 0,
    stopped: Callable[[int, list[int]], bool] = lambda row, ids: False,
) -> Iterator[GeneratedToken]:
    """Generate tokens for several prompts, greedily or by sampling.

    Args:
        model: The model.
        prompts: Ids of the prompts.
        options: Options of generation.
        tokens: Special tokens.
        first_row: Row i has its own random numbers, from the seed and `first_row` + i.
        stopped: Function of row and new ids that may end a text.

    Yields:
        The tokens of all texts as they are generated.

    Raises:
        UserError: A prompt is longer than the model's maximum length.
    """
    rooms = [room(model, prompt, options.max_tokens) for prompt in prompts]
    decoder = Decoder(model, prompts, options.precision)
    yield from continue_from(decoder, prompts, rooms, options, tokens, first_row=first_row, stopped=stopped)


def continue_from(
    decoder: NextTokenModel,
    prompts: Sequence[Sequence[int]],
    rooms: Sequence[int],
    options: GenerateOptions,
    tokens: Tokens,
    *,
    first_row: int = 0,
    stopped: Callable[[int, list[int]], bool] = lambda row, ids: False,
) -> Iterator[GeneratedToken]:
    """`write` for any model with `prompts` already encoded by `decoder`; `rooms` are maximum numbers of new tokens."""
    ids: list[list[int]] = [[] for _ in prompts]
    generators = [np.random.default_rng([options.seed, first_row + row]) for row in range(len(prompts))]
    active = list(range(len(prompts)))
    while True:
        logits = decoder.next_logits()
        log_p = logits.log_softmax(dim=1)
        modified = process_logits(logits, [[*prompts[row], *ids[row]] for row in active], options, tokens.never)
        next_ids = _select_tokens(modified, options, [generators[row] for row in active])
        log_probabilities = log_p.gather(1, torch.tensor(next_ids, device=log_p.device)[:, None])[:, 0].tolist()
        kept: list[int] = []
        for index, (row, token, log_probability) in enumerate(zip(active, next_ids, log_probabilities, strict=True)):
            ids[row].append(token)
            ended: FinishReason | None = None
            if token in tokens.ends:
                ended = "end"
            elif stopped(row, ids[row]):
                ended = "stop"
            elif len(ids[row]) >= rooms[row]:
                ended = "length"
            else:
                kept.append(index)
            yield GeneratedToken(row, token, log_probability, ended)
        if not kept:
            return
        decoder.add([next_ids[index] for index in kept], kept)
        active = [active[index] for index in kept]


def process_logits(
    scores: Tensor, texts: Sequence[Sequence[int]], options: GenerateOptions, never: Collection[int] = ()
) -> Tensor:
    """Scores (B, V) with `never` masked and the repetition penalty applied to the tokens of `texts`."""
    modified, penalty = scores.clone(), options.repetition_penalty
    if penalty != 1:
        for row, text in enumerate(texts):
            ids = torch.tensor(sorted(set(text)), device=scores.device)
            values = modified[row, ids]
            modified[row, ids] = torch.where(values < 0, values * penalty, values / penalty)
    if never:
        modified[:, list(never)] = -torch.inf
    return modified


def _select_tokens(scores: Tensor, options: GenerateOptions, generators: Sequence[np.random.Generator]) -> list[int]:
    if not options.temperature:
        return scores.argmax(dim=1).tolist()
    p = filter_logits(scores / options.temperature, top_k=options.top_k, top_p=options.top_p).double().softmax(dim=1)
    cumulative = p.cumsum(dim=1)
    draws = torch.tensor([generator.random() for generator in generators], dtype=p.dtype, device=p.device)[:, None]
    return torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)[:, 0].tolist()


def filter_logits(scores: Tensor, *, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Scores (B, V) with -inf for all but the `top_k` largest, and of these all but the most likely that reach `top_p`.

    Ties with the k-th token are kept; the most likely token is always kept.
    """
    if top_k is not None and top_k < scores.shape[1]:
        threshold = scores.topk(top_k, dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        p = ordered.double().softmax(dim=1)
        outside = p.cumsum(dim=1) - p >= top_p
        outside[:, 0] = False
        scores = scores.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return scores


class _Search:
    """Beams of one prompt: running texts with their scores, and the best finished ones."""

    def __init__(self, beams: int, length_penalty: float) -> None:
        self.beams, self.length_penalty = beams, length_penalty
        self.running: list[list[int]] = [[] for _ in range(beams)]
        self.scores = [0.0] + [IMPOSSIBLE] * (beams - 1)  # the first step continues a single text
        self.finished: list[tuple[float, BeamResult]] = []

    def advance(self, log_p: Tensor, tokens: Tokens, last: bool) -> tuple[list[int], list[int]]:
        """One step with (beams, V) log probabilities: the running texts' new tokens and the beams that they continue.

        There are enough candidates for all beams to continue even if each also ends in every possible way; but only the
        first `beams` candidates may finish.
        """
        total = log_p + torch.tensor(self.scores, device=log_p.device)[:, None]
        count = min(max(2, 1 + len(tokens.ends)) * self.beams, total.numel())
        best = total.flatten().topk(count)
        continuing: list[tuple[list[int], float, int]] = []
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            beam, token = divmod(index, log_p.shape[1])
            ids = [*self.running[beam], token]
            if token in tokens.ends or last:
                if rank < self.beams and score > IMPOSSIBLE / 2:
                    ended: FinishReason = "end" if token in tokens.ends else "length"
                    self.finished.append((score / len(ids) ** self.length_penalty, BeamResult(ids, score, ended)))
            elif len(continuing) < self.beams:
                continuing.append((ids, score, beam))
        self.finished = sorted(self.finished, key=lambda entry: -entry[0])[: self.beams]
        continuing += continuing[:1] * (
            self.beams - len(continuing)
        )  # the vocabulary is too small for this number of beams
        self.running, self.scores = [ids for ids, _, _ in continuing], [score for _, score, _ in continuing]
        return [ids[-1] for ids in self.running], [beam for _, _, beam in continuing]

    def may_improve(self) -> bool:
        """True if the best running text, at its current length, beats the worst of enough finished ones."""
        if len(self.finished) < self.beams:
            return True
        return self.scores[0] / len(self.running[0]) ** self.length_penalty > self.finished[-1][0]


@torch.no_grad()
def beam_search(
    model: Model, prompts: Sequence[Sequence[int]], options: GenerateOptions, tokens: Tokens
) -> list[BeamResult]:
    """The most likely continuation of each prompt found with `options.beams` beams.

    As in transformers with `early_stopping=False`: the search ends when no running text, at its current length, is
    better than the worst of `beams` finished ones.

    Raises:
        UserError: A prompt is longer than the model's maximum length.
    """
    rooms = [room(model, prompt, options.max_tokens) for prompt in prompts]
    return search(Decoder(model, prompts, options.precision), prompts, rooms, options, tokens)


def search(
    decoder: NextTokenModel,
    prompts: Sequence[Sequence[int]],
    rooms: Sequence[int],
    options: GenerateOptions,
    tokens: Tokens,
) -> list[BeamResult]:
    """`beam_search` for any model with `prompts` already encoded, as in `continue_from`."""
    beams = options.beams
    searches = [_Search(beams, options.length_penalty) for _ in prompts]
    active = list(range(len(prompts)))
    log_p, steps = decoder.next_logits().log_softmax(dim=1).repeat_interleave(beams, dim=0), 0
    while active:
        steps += 1
        texts = [[*prompts[row], *ids] for row in active for ids in searches[row].running]
        modified = process_logits(log_p, texts, options, tokens.never)
        unfinished, next_tokens, rows = [], [], []
        for index, row in enumerate(active):
            search, last = searches[row], steps >= rooms[row]
            new_tokens, origins = search.advance(modified[index * beams : (index + 1) * beams], tokens, last)
            if not last and search.may_improve():
                unfinished.append(row)
                next_tokens += new_tokens
                # In the first step there is one row for each prompt.
                rows += [index if steps == 1 else index * beams + origin for origin in origins]
        if unfinished:
            decoder.add(next_tokens, rows)
            log_p = decoder.next_logits().log_softmax(dim=1)
        active = unfinished
    return [search.finished[0][1] for search in searches]
