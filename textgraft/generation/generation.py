"""`textgraft.generate`, `stream` and `score`: a language model goes on from a prompt, or says how likely a text is.

Any model that reads from the left and has a language-model head will do, whatever its family.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch, pad
from textgraft.data.examples import validate_not_single_text
from textgraft.data.sequences import budget_batches
from textgraft.generation.decoding import Ended, GenerateOptions, Tokens, beam_search, write
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.nn.cpu.precision import computing_in
from textgraft.text.incremental_decoding import IncrementalText
from textgraft.text.tokenizer import Tokenizer

ROWS = 32
"""So many prompts go through the model together."""
SCORED_TOKENS = 4096


@dataclass(frozen=True)
class Generated:
    """What follows a prompt: the text, its tokens, the sum of their log probabilities, and why it is over."""

    text: str
    ids: list[int]
    log_probability: float
    ended: Ended


@dataclass(frozen=True)
class Scored:
    """How likely a continuation is: the sum of the log probabilities (nats) of its tokens, and how many these are."""

    log_probability: float
    tokens: int


def generate(
    model: str | Path | Artifact, prompts: Sequence[str], options: GenerateOptions | None = None, *, device: str = "cpu"
) -> list[Generated]:
    """What follows each prompt, in order. A stop string is not part of the text, though of the ids.

    Raises UserError where the model cannot go on from a text or the prompt is longer than it can look at, and for one
    prompt that is not in a list.
    """
    validate_not_single_text(prompts, name="prompts", remedy="Pass a list of prompts.")
    options = options or GenerateOptions()
    artifact = left_to_right(model, device)
    tokens = special_tokens(artifact.tokenizer)
    results: list[Generated] = []
    for first in range(0, len(prompts), ROWS):
        encoded = [prompt_ids(artifact.tokenizer, prompt) for prompt in prompts[first : first + ROWS]]
        if options.beams > 1:
            found = beam_search(artifact.model, encoded, options, tokens)
            rows = [Generated("", f.ids, f.log_probability, f.ended) for f in found]
        else:
            rows = _written(artifact, encoded, options, tokens, first)
        for ids, row in zip(encoded, rows, strict=True):
            text = continuation(artifact.tokenizer, ids, row.ids, tokens)
            cut = cut_at(text, options.stop)
            results.append(replace(row, text=cut, ended="stop" if len(cut) < len(text) else row.ended))
    return results


def _written(
    artifact: Artifact, prompts: list[list[int]], options: GenerateOptions, tokens: Tokens, first_row: int
) -> list[Generated]:
    """Greedy or drawn continuations, their texts still to come."""

    texts = [_Continued(artifact.tokenizer, prompt) for prompt in prompts] if options.stop else []

    def stopped(row: int, ids: list[int]) -> bool:
        text = texts[row].read(ids).text if texts else ""
        return cut_at(text, options.stop) != text

    rows = [Generated("", [], 0.0, "length") for _ in prompts]
    for new in write(artifact.model, prompts, options, tokens, first_row=first_row, stopped=stopped):
        row = rows[new.row]
        total = row.log_probability + new.log_probability
        rows[new.row] = Generated("", [*row.ids, new.token], total, new.ended or "length")
    return rows


def stream(
    model: str | Path | Artifact, prompt: str, options: GenerateOptions | None = None, *, device: str = "cpu"
) -> Iterator[str]:
    """What `generate` gives for one prompt, piece by piece as it is written; no piece splits a character.

    A piece is held back for as long as further tokens may change it or make it part of a stop string. Raises UserError
    as `generate` does, and for beam search, which knows no text before its end.
    """
    options = options or GenerateOptions()
    if options.beams > 1:
        raise UserError("beam search has no text before its end.", remedy="Leave out the beams, or do not stream.")
    artifact = left_to_right(model, device)
    tokenizer, tokens = artifact.tokenizer, special_tokens(artifact.tokenizer)
    prompt_tokens = prompt_ids(tokenizer, prompt)
    written, said = _Continued(tokenizer, prompt_tokens), ""
    ids: list[int] = []

    def stopped(row: int, so_far: list[int]) -> bool:
        text = written.read(so_far).text if options.stop else ""
        return cut_at(text, options.stop) != text

    for new in write(artifact.model, [prompt_tokens], options, tokens, stopped=stopped):
        ids.append(new.token)
        text = cut_at(written.read(_without_end(ids, tokens)).text, options.stop)
        if new.ended is None:
            text = _without_beginning_of(text[: _shared(text, written.settled)], options.stop)
        if len(text) > len(said):
            yield text[len(said) :]
            said = text


def score(
    model: str | Path | Artifact,
    prompts: Sequence[str],
    continuations: Sequence[str],
    *,
    precision: str = "auto",
    device: str = "cpu",
) -> list[Scored]:
    """How likely each continuation is after its prompt: log P(continuation | prompt), summed over tokens, not averaged.

    Prompt and continuation are tokenised as one text, so give the space between them; where a token reaches over the
    border it counts as the continuation's. After an empty prompt the continuation begins a text. Raises UserError where
    there are not as many prompts as continuations, the model does not read from the left, or a text is too long for it.
    """
    for name, given in (("prompts", prompts), ("continuations", continuations)):
        validate_not_single_text(given, name=name, remedy=f"Pass a list of {name}.")
    if len(prompts) != len(continuations):
        message = f"{len(prompts)} prompts and {len(continuations)} continuations do not make pairs."
        raise UserError(message, remedy="Give one prompt for each continuation.")
    artifact = left_to_right(model, device)
    pairs = [_pair(artifact.tokenizer, *pair) for pair in zip(prompts, continuations, strict=True)]
    results = [Scored(0.0, 0) for _ in pairs]
    lengths = [len(ids) for ids, _ in pairs]
    for rows in budget_batches(lengths, tokens=SCORED_TOKENS, rows=ROWS) if pairs else []:
        batch = pad([np.array(pairs[row][0]) for row in rows], artifact.tokenizer.pad_id)
        targets = torch.full_like(batch.ids, IGNORE)
        for index, row in enumerate(rows):
            ids, border = pairs[row]
            targets[index, border - 1 : len(ids) - 1] = torch.tensor(ids[border:], dtype=torch.int64)
        for row, value in zip(rows, _summed(artifact, batch.with_targets(targets), precision), strict=True):
            results[row] = Scored(value, lengths[row] - pairs[row][1])
    return results


@torch.no_grad()
def _summed(artifact: Artifact, batch: Batch, precision: str) -> list[float]:
    """The sum of each row's log probabilities of its targets."""
    model, head = artifact.model.eval(), artifact.model.head
    assert isinstance(head, LanguageModelHead)
    batch = batch.to(model.device)
    with computing_in(precision, model.device):
        found = head.target_log_probs(model.encoder(batch), batch)
    return found.double().sum(dim=1).tolist()


def _pair(tokenizer: Tokenizer, prompt: str, text: str) -> tuple[list[int], int]:
    """The ids of both together, and where the continuation's begin."""
    before, whole = tokenizer.encode(prompt).ids, tokenizer.encode(prompt + text).ids
    border = _shared(before, whole)
    return (whole, border) if border else ([tokenizer.bos_id, *whole], 1)


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's ids; an empty one's are the token that begins a text."""
    return tokenizer.encode(prompt).ids or [tokenizer.bos_id]


def special_tokens(tokenizer: Tokenizer) -> Tokens:
    """What ends a text, be it the beginning of another, and what stands for no text at all."""
    ends = frozenset({tokenizer.bos_id, tokenizer.eos_id})
    return Tokens(ends, tuple({tokenizer.unk_id, tokenizer.pad_id} - ends))


def continuation(tokenizer: Tokenizer, prompt: list[int], ids: list[int], tokens: Tokens) -> str:
    """What `ids` add to the text of `prompt`, which may run into it."""
    before, whole = tokenizer.decode(prompt), tokenizer.decode([*prompt, *_without_end(ids, tokens)])
    return whole[_shared(before, whole) :]


def _without_end(ids: list[int], tokens: Tokens) -> list[int]:
    return ids[:-1] if ids and ids[-1] in tokens.ends else ids


class _Continued:
    """`continuation` of a prompt by ids that become more and more, of whose text only the end is decoded anew."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int]) -> None:
        self._before = tokenizer.decode(prompt)
        self._whole, self._count = IncrementalText(tokenizer, prompt), 0

    def read(self, ids: list[int]) -> _Continued:
        """Those read before and perhaps further ones."""
        self._whole.add(ids[self._count :])
        self._count = len(ids)
        return self

    @property
    def text(self) -> str:
        return self._added(self._whole.text)

    @property
    def settled(self) -> str:
        """As far as more tokens keep it."""
        return self._added(self._whole.settled)

    def _added(self, whole: str) -> str:
        return whole[_shared(self._before, whole) :]


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements two sequences have in common at their beginning; compares slices, not elements."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda i: one[: i + 1] != other[: i + 1])


def cut_at(text: str, stop: Iterable[str]) -> str:
    """The text before the first stop string in it."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def _without_beginning_of(text: str, stop: Iterable[str]) -> str:
    """The text without what may become a stop string at its end."""
    held = max((n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
    return text[: len(text) - held]


def left_to_right(model: str | Path | Artifact, device: str) -> Artifact:
    """The model, if it is one that says what comes next. Raises UserError for any other."""
    artifact = model if isinstance(model, Artifact) else loading.load_network(model)
    head = artifact.model.describe()["head"]["name"]
    if not head.endswith("language_model"):
        raise UserError("this model labels texts and writes none.", remedy="Name a language model.")
    if head != "language_model" or artifact.model.encoder.direction != "left":
        message = "this model does not read from the left, so it cannot say what comes next."
        raise UserError(message, remedy="Name a language model that reads forward.")
    artifact.model.to(resolve_device(device))
    return artifact
