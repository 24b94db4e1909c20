"""Word prediction as in GPT-2: the last word of a passage, and cloze tests.

Source: Radford et al. 2019, §3.2 and §3.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.data.examples import validate_not_single_text
from textgraft.generation.generation import left_to_right
from textgraft.generation.likelihood import Request, likelihoods
from textgraft.generation.prompt_tasks import PromptOptions, scores
from textgraft.generation.prompting import Prompt
from textgraft.models.artifact import Artifact


@dataclass(frozen=True, repr=False)
class LastWords(Brief):
    """Results of predicting the last words of N passages.

    `right` are those that greedy decoding gives, with all their tokens; `log_probabilities` are in nats.
    """

    right: list[bool]
    log_probabilities: list[float]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.right))

    @property
    def perplexity(self) -> float:
        """Perplexity by word: exp of the mean of -log P(last word | context)."""
        return float(np.exp(-np.mean(self.log_probabilities)))


def last_words(
    model: str | Path | Artifact, passages: Sequence[str], *, precision: str = "auto", device: str = "cpu"
) -> LastWords:
    """Score the last word of each passage given the rest, as in LAMBADA (Paperno et al. 2016; GPT-2, §3.3).

    A word is the text after the last space; GPT-2's stop-word filter is left out.

    Raises:
        UserError: There are no passages, or one has a single word.
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
    word_likelihoods = likelihoods(artifact, requests, precision=precision)
    return LastWords(
        [likelihood.greedy for likelihood in word_likelihoods],
        [likelihood.log_probability for likelihood in word_likelihoods],
    )


def cloze(
    model: str | Path | Artifact,
    passages: Sequence[str],
    candidates: Sequence[Sequence[str]],
    *,
    options: PromptOptions | None = None,
    blank: str = "XXXXX",
    device: str = "cpu",
) -> list[int]:
    """Choose a candidate for the blank in each passage (Hill et al. 2016, Children's Book Test; GPT-2, §3.2).

    A candidate's score includes the text after the blank.

    Returns:
        Indices of the chosen candidates.

    Raises:
        UserError: A passage does not have exactly one blank, or has no candidates.
    """
    artifact, prompts = left_to_right(model, device), []
    for number, (passage, words) in enumerate(zip(passages, candidates, strict=True), start=1):
        if passage.count(blank) != 1 or not words:
            message = f"the passage has {passage.count(blank)} blanks '{blank}' and {len(words)} candidates."
            raise UserError(message, where=f"passage {number}", remedy="Give one blank and one or more candidates.")
        before, _, after = passage.partition(blank)
        start = before.rstrip()
        prompts.append(Prompt("", start, tuple(before[len(start) :] + word + after for word in words)))
    return [int(values.argmax()) for values in scores(artifact, prompts, options=options)]
