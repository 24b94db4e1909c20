"""`textgraft.generate`, `stream` and `score`: text generation, and likelihoods of texts, with a language model.

Any left-to-right model with a language-model head can be used, whatever its family.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from textgraft.core.brief import Brief
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch, pad
from textgraft.data.examples import validate_not_single_text
from textgraft.data.sequences import budget_batches
from textgraft.generation.decoding import FinishReason, GenerateOptions, Tokens, beam_search, write
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.nn.cpu.precision import computing_in
from textgraft.text.incremental_decoding import IncrementalText
from textgraft.text.tokenizer import Tokenizer

ROWS = 32
"""Number of prompts in a batch."""
SCORED_TOKENS = 4096


@dataclass(frozen=True, repr=False)
class Generated(Brief):
    """Continuation of a prompt: the text, its tokens, the sum of their log probabilities, and why it finished."""

    text: str
    ids: list[int]
    log_probability: float
    ended: FinishReason


@dataclass(frozen=True, repr=False)
class Scored(Brief):
    """Likelihood of a continuation: the sum of its tokens' log probabilities (nats), and their number."""

    log_probability: float
    tokens: int


def generate(
    model: str | Path | Artifact, prompts: Sequence[str], options: GenerateOptions | None = None, *, device: str = "cpu"
) -> list[Generated]:
    """Generate a continuation of each prompt, in order.

    Args:
        model: Name, folder, or loaded model.
        prompts: Texts to continue.
        options: Options of generation.
        device: Device.

    Returns:
        The continuations. A stop string is left out of the text, but not of the ids.

    Raises:
        UserError: The model cannot generate text, a prompt is longer than its maximum length, or `prompts` is one
            string.
    """
    validate_not_single_text(prompts, name="prompts", remedy="Pass a list of prompts.")
    options = options or GenerateOptions()
    artifact = left_to_right(model, device)
    tokens = special_tokens(artifact.tokenizer)
    results: list[Generated] = []
    for first in range(0, len(prompts), ROWS):
        encoded = [prompt_ids(artifact.tokenizer, prompt) for prompt in prompts[first : first + ROWS]]
        if options.beams > 1:
            beam_results = beam_search(artifact.model, encoded, options, tokens)
            rows = [Generated("", result.ids, result.log_probability, result.ended) for result in beam_results]
        else:
            rows = _generate_batch(artifact, encoded, options, tokens, first)
        for ids, row in zip(encoded, rows, strict=True):
            text = continuation(artifact.tokenizer, ids, row.ids, tokens)
            cut = cut_at(text, options.stop)
            results.append(replace(row, text=cut, ended="stop" if len(cut) < len(text) else row.ended))
    return results


def _generate_batch(
    artifact: Artifact, prompts: list[list[int]], options: GenerateOptions, tokens: Tokens, first_row: int
) -> list[Generated]:
    """Greedy or sampled continuations, without their texts."""

    texts = [_Continuation(artifact.tokenizer, prompt) for prompt in prompts] if options.stop else []

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
    """Generate a continuation of one prompt, piece by piece; no piece splits a character.

    A piece is delayed while further tokens may change it or make it part of a stop string. Raises UserError as
    `generate` does, and for beam search, whose text is only known at its end.
    """
    options = options or GenerateOptions()
    if options.beams > 1:
        raise UserError("beam search has no text before its end.", remedy="Leave out the beams, or do not stream.")
    artifact = left_to_right(model, device)
    tokenizer, tokens = artifact.tokenizer, special_tokens(artifact.tokenizer)
    prompt_tokens = prompt_ids(tokenizer, prompt)
    generated, emitted = _Continuation(tokenizer, prompt_tokens), ""
    ids: list[int] = []

    def stopped(row: int, new_ids: list[int]) -> bool:
        text = generated.read(new_ids).text if options.stop else ""
        return cut_at(text, options.stop) != text

    for new in write(artifact.model, [prompt_tokens], options, tokens, stopped=stopped):
        ids.append(new.token)
        text = cut_at(generated.read(_without_end(ids, tokens)).text, options.stop)
        if new.ended is None:
            text = _without_partial_stop(text[: _common_prefix(text, generated.settled)], options.stop)
        if len(text) > len(emitted):
            yield text[len(emitted) :]
            emitted = text


def score(
    model: str | Path | Artifact,
    prompts: Sequence[str],
    continuations: Sequence[str],
    *,
    precision: str = "auto",
    device: str = "cpu",
) -> list[Scored]:
    """Log likelihood of each continuation after its prompt: log P(continuation | prompt), summed over tokens, not
    averaged.

    Prompt and continuation are tokenised as one text, so include the space between them; a token across the border
    counts as the continuation's. After an empty prompt the continuation begins a text.

    Args:
        model: Name, folder, or loaded model.
        prompts: Prompts.
        continuations: A continuation for each prompt.
        precision: Arithmetic of the model.
        device: Device.

    Raises:
        UserError: The numbers of prompts and continuations differ, the model is not left-to-right, or a text is too
            long for it.
    """
    for name, texts in (("prompts", prompts), ("continuations", continuations)):
        validate_not_single_text(texts, name=name, remedy=f"Pass a list of {name}.")
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
        for row, value in zip(rows, _sum_log_probs(artifact, batch.with_targets(targets), precision), strict=True):
            results[row] = Scored(value, lengths[row] - pairs[row][1])
    return results


@torch.no_grad()
def _sum_log_probs(artifact: Artifact, batch: Batch, precision: str) -> list[float]:
    """Sum of each row's target log probabilities."""
    model, head = artifact.model.eval(), artifact.model.head
    assert isinstance(head, LanguageModelHead)
    batch = batch.to(model.device)
    with computing_in(precision, model.device):
        log_probs = head.target_log_probs(model.encoder(batch), batch)
    return log_probs.double().sum(dim=1).tolist()


def _pair(tokenizer: Tokenizer, prompt: str, text: str) -> tuple[list[int], int]:
    """Ids of prompt and continuation together, and the index where the continuation begins."""
    before, whole = tokenizer.encode(prompt).ids, tokenizer.encode(prompt + text).ids
    border = _common_prefix(before, whole)
    return (whole, border) if border else ([tokenizer.bos_id, *whole], 1)


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Ids of a prompt; for an empty one the begin-of-text token."""
    return tokenizer.encode(prompt).ids or [tokenizer.bos_id]


def special_tokens(tokenizer: Tokenizer) -> Tokens:
    """Tokens that end a text, including the begin of the next, and tokens without text."""
    ends = tokenizer.end_ids
    return Tokens(ends, tuple({tokenizer.unk_id, tokenizer.pad_id} - ends))


def continuation(tokenizer: Tokenizer, prompt: list[int], ids: list[int], tokens: Tokens) -> str:
    """Text that `ids` add to that of `prompt`."""
    before, whole = tokenizer.decode(prompt), tokenizer.decode([*prompt, *_without_end(ids, tokens)])
    return whole[_common_prefix(before, whole) :]


def _without_end(ids: list[int], tokens: Tokens) -> list[int]:
    return ids[:-1] if ids and ids[-1] in tokens.ends else ids


class _Continuation:
    """Incremental `continuation` of a prompt; only the end of the text is decoded again."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int]) -> None:
        self._before = tokenizer.decode(prompt)
        self._whole, self._count = IncrementalText(tokenizer, prompt), 0

    def read(self, ids: list[int]) -> _Continuation:
        """Update with `ids`, which extend the previous ones."""
        self._whole.add(ids[self._count :])
        self._count = len(ids)
        return self

    @property
    def text(self) -> str:
        return self._added(self._whole.text)

    @property
    def settled(self) -> str:
        """The part that further tokens do not change."""
        return self._added(self._whole.settled)

    def _added(self, whole: str) -> str:
        return whole[_common_prefix(self._before, whole) :]


def _common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of the common prefix of two sequences; compares slices, not elements."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda i: one[: i + 1] != other[: i + 1])


def cut_at(text: str, stop: Iterable[str]) -> str:
    """The text before the first stop string."""
    return text[: min((index for index in map(text.find, stop) if index >= 0), default=len(text))]


def _without_partial_stop(text: str, stop: Iterable[str]) -> str:
    """The text without a possible beginning of a stop string at its end."""
    held = max((n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
    return text[: len(text) - held]


def left_to_right(model: str | Path | Artifact, device: str) -> Artifact:
    """Load the model. Raises UserError if it is not a left-to-right language model."""
    artifact = model if isinstance(model, Artifact) else loading.load_network(model)
    head = artifact.model.describe()["head"]["name"]
    if not head.endswith("language_model"):
        raise UserError("this model cannot generate text.", remedy="Use a language model.")
    if head != "language_model" or artifact.model.encoder.direction != "left":
        message = "this model is not left-to-right, so it cannot predict the next token."
        raise UserError(message, remedy="Use a left-to-right language model.")
    artifact.model.to(resolve_device(device))
    return artifact
