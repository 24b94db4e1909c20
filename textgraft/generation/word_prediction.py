"""GPT-2's tasks of one word, without a template: the last of a passage, and the one for a blank.

Radford et al. 2019, §3.2 and §3.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import validate_not_single_text
from textgraft.generation.generation import left_to_right
from textgraft.generation.likelihood import Request, likelihoods
from textgraft.generation.prompt_tasks import PromptOptions, scores
from textgraft.generation.prompting import Prompt
from textgraft.models.artifact import Artifact


@dataclass(frozen=True)
class LastWords:
    """How well the last words of N passages are predicted.

    `right` are those that greedy decoding would have written, every token of them; `log_probabilities` are in nats.
    """

    right: list[bool]
    log_probabilities: list[float]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.right))

    @property
    def perplexity(self) -> float:
        """By word: exp of the mean of -log P(last word | what comes before it)."""
        return float(np.exp(-np.mean(self.log_probabilities)))


def last_words(
    model: str | Path | Artifact, passages: Sequence[str], *, precision: str = "auto", device: str = "cpu"
) -> LastWords:
    """The last word of each passage given the rest of it, as LAMBADA asks (Paperno et al. 2016; GPT-2, §3.3).

    A word is what stands after the last space; GPT-2's filter of stop words is left out. Raises UserError for no
    passages, and for one of a single word.
    """
    validate_not_single_text(passages, name="passages", remedy="Pass a list of passages.")
    artifact, requests = left_to_right(model, device), []
    for number, passage in enumerate(passages, start=1):
        match = re.fullmatch(r"(.*\S)(\s+\S+)\s*", passage, re.DOTALL)
        if match is None:
            raise UserError("there is no word before the last.", where=f"passage {number}", remedy="Leave it out.")
        requests.append(Request(match[1], match[2]))
    if not requests:
        raise UserError("there are no passages.", remedy="Give one or more.")
    found = likelihoods(artifact, requests, precision=precision)
    return LastWords([one.greedy for one in found], [one.log_probability for one in found])


def cloze(
    model: str | Path | Artifact,
    passages: Sequence[str],
    candidates: Sequence[Sequence[str]],
    *,
    options: PromptOptions | None = None,
    blank: str = "XXXXX",
    device: str = "cpu",
) -> list[int]:
    """Which of its candidates fits the blank in each passage (Hill et al. 2016, Children's Book Test; GPT-2, §3.2).

    A candidate's score is that of itself and of all that follows the blank. Returns their places, from 0 on. Raises
    UserError for a passage with no blank or several, or with no candidates.
    """
    artifact, prompts = left_to_right(model, device), []
    for number, (passage, words) in enumerate(zip(passages, candidates, strict=True), start=1):
        if passage.count(blank) != 1 or not words:
            message = f"it has {passage.count(blank)} blanks '{blank}' and {len(words)} candidates."
            raise UserError(message, where=f"passage {number}", remedy="Give one blank and one or more candidates.")
        before, _, after = passage.partition(blank)
        start = before.rstrip()
        prompts.append(Prompt("", start, tuple(before[len(start) :] + word + after for word in words)))
    return [int(values.argmax()) for values in scores(artifact, prompts, options=options)]
