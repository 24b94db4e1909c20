"""`textgraft.prompt`: what a language model that reads from the left answers without being trained for the question.

Labels and options are chosen by their likelihood after a prompt (Brown et al. 2020, §2.4), if asked for calibrated
against prompts without content (Zhao et al. 2021). Texts are written with `complete`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import ONE_OF, Choice, Examples, Pair
from textgraft.data.readers import read
from textgraft.generation.decoding import GenerateOptions
from textgraft.generation.generation import Generated, generate, left_to_right
from textgraft.generation.likelihood import SCORINGS, Likelihood, Request, likelihoods
from textgraft.generation.prompting import Prompt, Template, build, demonstrations, draw, load_template, room
from textgraft.metrics.classification import bootstrap_interval, evaluate, paired_test
from textgraft.models.artifact import Artifact

CONTENT_FREE = ("N/A", "[MASK]", "")
"""Texts that say nothing, as Zhao et al. 2021 average over."""


@dataclass(frozen=True)
class PromptOptions:
    """How to ask: how many examples, which scoring (a name of generation.likelihood.SCORINGS), calibrated or not.

    `seed` draws and orders the examples. `max_tokens` limits a prompt where the model would read more. Raises UserError
    for values out of range.
    """

    shots: int = 0
    scoring: str = "sum"
    calibrate: bool = False
    seed: int = 0
    max_tokens: int | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.scoring not in SCORINGS:
            raise UserError(f"unknown scoring '{self.scoring}'.", remedy=did_you_mean(self.scoring, SCORINGS))
        for name, least in (("shots", 0), ("seed", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} is {value}.", remedy=f"Give {least} or more.")


@dataclass(frozen=True)
class Answer:
    """A label with the probabilities of all; for a choice the label is the option's number, from "1" on."""

    label: str
    probabilities: dict[str, float]
    option: str | None = None


@dataclass(frozen=True)
class Prompted:
    """The answers to N texts, and the `demonstrations` that stood before them, or as many as there was room for."""

    texts: Examples
    answers: list[Answer]
    prompts: list[Prompt]
    demonstrations: list[str]

    def evaluate(self) -> dict[str, Any]:
        """Accuracy with its 95 % interval, beside always giving the most frequent label, and whether the two differ.

        The most frequent of these very texts, which is more than one could know: the stricter of the two ways. Texts
        without a label are left out. Raises UserError where none has one.
        """
        given = cast(Sequence[str], self.texts.labels or ())
        known = [i for i, label in enumerate(given) if label != ""]
        if not known:
            raise UserError("the texts have no labels to compare answers with.", where=self.texts.source)
        names = list(dict.fromkeys(name for answer in self.answers for name in answer.probabilities))
        targets = np.array([names.index(given[i]) for i in known])
        table = np.array([[self.answers[i].probabilities.get(name, 0.0) for name in names] for i in known])
        assert self.texts.kind is not None
        scores = {k: v for k, v in evaluate(self.texts.kind, targets, table).items() if k != "micro_f1"}
        right = np.array([self.answers[i].label == given[i] for i in known], dtype=np.float64)
        frequent = min(Counter(given[i] for i in known).items(), key=lambda entry: (-entry[1], entry[0]))[0]
        always = np.array([given[i] == frequent for i in known], dtype=np.float64)
        interval, beside = bootstrap_interval(right)._asdict(), bootstrap_interval(always)._asdict()
        test = paired_test(right, always)
        return {
            "texts": len(known),
            "accuracy": interval,
            "most_frequent": {"label": frequent, **beside},
            "difference": {"points": 100 * test.difference, "p": test.p},
            "metrics": scores,
        }


@dataclass(frozen=True)
class Calibration:
    """q = W p + b, W diagonal, normalised to sum to 1 (Zhao et al. 2021 have a softmax in that place).

    A softmax of probabilities would leave the choice as it is and flatten them to nearly nothing.
    """

    weights: np.ndarray
    bias: np.ndarray

    @classmethod
    def fit(cls, content_free: np.ndarray) -> Calibration:
        """From probabilities (M, C) after M prompts without content: W = diag(mean)^-1, b = 0, so that theirs are even.

        Normalised first, as the paper does.
        """
        mean = (content_free / content_free.sum(1, keepdims=True)).mean(0)
        return cls(1 / mean.clip(np.finfo(np.float64).tiny), np.zeros(len(mean)))

    def apply(self, probabilities: np.ndarray) -> np.ndarray:
        """(C,) or (N, C) probabilities, calibrated."""
        found = probabilities * self.weights + self.bias
        return found / found.sum(-1, keepdims=True)


def prompt(
    model: str | Path | Artifact,
    data: Any,
    template: str | Template,
    *,
    options: PromptOptions | None = None,
    examples: Any = None,
    device: str = "cpu",
    **columns: Any,
) -> Prompted:
    """The label of each text, or the option of each choice, that is likeliest after a prompt.

    `data` and `examples` are what `read` takes, with `columns` for both; examples whose text is to be answered too are
    not shown. Without `examples` they are drawn from `data`, and those drawn are not answered. Warns where a prompt had
    to lose examples or a text its end. Raises UserError for a model that does not read from the left, a template that
    writes its answers, and labels that it has no words for.
    """
    options = options or PromptOptions()
    chosen = load_template(template) if isinstance(template, str) else template
    if chosen.writes:
        remedy = "Use textgraft.complete, or a template with a verbaliser."
        raise UserError(f"the template '{chosen.name}' writes its answers and has none to choose from.", remedy=remedy)
    artifact = left_to_right(model, device)
    texts, pool, shown = _shown(chosen, data, examples, options, columns)
    labels = _labels(chosen, texts, pool)
    fits = room(artifact.tokenizer, _limit(artifact, options.max_tokens))
    continuations = [chosen.answer(word) for label in labels for word in chosen.words(label)]
    prompts = []
    for text in texts.texts:
        own = [chosen.answer(option) for option in text.options] if isinstance(text, Choice) else continuations
        prompts.append(build(chosen, text, shown=shown, options=own, fits=fits))
    _warn(prompts, len(shown))
    groups = [[len(chosen.words(label)) for label in labels] or [1] * len(p.options) for p in prompts]
    found = _probabilities(artifact, chosen, texts=texts.texts, prompts=prompts, groups=groups, options=options)
    answers = []
    for text, values in zip(texts.texts, found, strict=True):
        names = labels or [str(number + 1) for number in range(len(values))]
        best = int(values.argmax())
        option = text.options[best] if isinstance(text, Choice) else None
        answers.append(Answer(names[best], dict(zip(names, values.tolist(), strict=True)), option))
    return Prompted(texts, answers, prompts, shown)


def complete(
    model: str | Path | Artifact,
    data: Any,
    template: str | Template,
    *,
    options: PromptOptions | None = None,
    examples: Any = None,
    generation: GenerateOptions | None = None,
    device: str = "cpu",
    **columns: Any,
) -> list[Generated]:
    """What the model writes for each text after a prompt, such as a summary, a translation, an answer.

    As `prompt`, but that without `examples` there are none. `generation` has precedence over the template's
    `max_tokens` and `stop`. Raises UserError for a template that chooses among labels.
    """
    options = options or PromptOptions()
    chosen = load_template(template) if isinstance(template, str) else template
    if not chosen.writes:
        remedy = "Use textgraft.prompt, or a template with max_tokens."
        raise UserError(f"the template '{chosen.name}' has no max_tokens, so it writes nothing.", remedy=remedy)
    if options.shots and examples is None:
        raise UserError("there are no examples to show.", remedy="Name a file of texts with their answers as labels.")
    artifact = left_to_right(model, device)
    generation = generation or GenerateOptions(max_tokens=chosen.max_tokens, stop=chosen.stop)
    texts, _, shown = _shown(chosen, data, examples, options, columns)
    most = _limit(artifact, options.max_tokens)
    fits = room(artifact.tokenizer, None if most is None else most - generation.max_tokens)
    prompts = [build(chosen, text, shown=shown, options=[""], fits=fits) for text in texts.texts]
    _warn(prompts, len(shown))
    written = generate(artifact, [p.text for p in prompts], generation, device=device)
    return [replace(row, text=row.text.strip()) for row in written]


def _limit(artifact: Artifact, max_tokens: int | None) -> int | None:
    limits = [n for n in (artifact.model.encoder.max_length, max_tokens) if n is not None]
    return min(limits, default=None)


def _shown(
    template: Template, data: Any, examples: Any, options: PromptOptions, columns: dict[str, Any]
) -> tuple[Examples, Examples | None, list[str]]:
    """The texts to answer, what examples may be drawn from, and those that were, written out."""
    texts = read(data, **columns)
    if examples is None:
        drawn = draw(texts, options.shots, options.seed)
        left = sorted(set(range(len(texts))) - set(drawn))
        if not left:
            raise UserError("all texts are shown as examples, and none is left to answer.", where=texts.source)
        return (texts.take(left) if drawn else texts), None, demonstrations(template, texts, drawn)
    pool = read(examples, **columns)
    asked = set(texts.texts)
    pool = pool.take([i for i, text in enumerate(pool.texts) if text not in asked])
    for label in set(pool.labels or ()) if template.verbaliser and pool.kind == "single" else ():
        _refuse_unknown(template, str(label), pool)
    return texts, pool, demonstrations(template, pool, draw(pool, options.shots, options.seed))


def _refuse_unknown(template: Template, label: str, examples: Examples) -> None:
    if label != "" and label not in template.verbaliser:
        message = f"the template '{template.name}' has no words for the label '{label}'."
        known = did_you_mean(label, template.verbaliser)
        remedy = f"{known} Copy it and write a verbaliser for your labels."
        raise UserError(message, where=examples.source, remedy=remedy)


def _labels(template: Template, texts: Examples, pool: Examples | None) -> list[str]:
    """The labels to choose among, sorted as the template has them; none where each text brings its options."""
    if isinstance(texts.texts[0], Choice):
        if template.verbaliser:
            remedy = "Take one without, such as 'choice' or 'question'."
            raise UserError("the texts have options of their own, and the template has labels.", remedy=remedy)
        return []
    for part in (texts, pool):
        if part is not None and part.labels is not None and part.kind not in ONE_OF:
            message = "a prompt asks for one of several labels, and these are of another kind."
            raise UserError(message, where=part.source, remedy="Name the right column with label=….")
    if template.verbaliser:
        for label in dict.fromkeys(texts.labels or ()):
            _refuse_unknown(template, str(label), texts)
        return list(template.verbaliser)
    found = {str(label) for part in (texts, pool) if part is not None for label in part.labels or () if label != ""}
    if len(found) < 2:
        remedy = "Name a template with a verbaliser, or labelled texts."
        raise UserError("there are no two labels to choose from.", where=texts.source, remedy=remedy)
    return sorted(found)


def _warn(prompts: Sequence[Prompt], shots: int) -> None:
    fewer = [p.shots for p in prompts if p.shots < shots]
    if fewer:
        message = f"{len(fewer):,} of {len(prompts):,} prompts have room for fewer than {shots} examples"
        warnings.warn(f"{message}; the fewest have {min(fewer)}.", stacklevel=3)
    if cut := sum(p.is_cut for p in prompts):
        warnings.warn(f"{cut:,} of {len(prompts):,} texts lost their end, for want of room.", stacklevel=3)


def _probabilities(
    artifact: Artifact,
    template: Template,
    *,
    texts: Sequence[str],
    prompts: Sequence[Prompt],
    groups: Sequence[Sequence[int]],
    options: PromptOptions,
) -> list[np.ndarray]:
    """For each prompt the probability of each label; `groups` says how many words each has."""
    asked = [[p] for p in prompts]
    if options.calibrate:
        for row, text in zip(asked, texts, strict=True):
            row += [replace(row[0], own=template.question(_without_content(text, said))) for said in CONTENT_FREE]
    scored = scores(
        artifact, [p for row in asked for p in row], options=options, answer_context=template.answer_context
    )
    results, first = [], 0
    for row, sizes in zip(asked, groups, strict=True):
        table = np.stack([_softmax(_by_label(s, sizes)) for s in scored[first : first + len(row)]])
        first += len(row)
        results.append(Calibration.fit(table[1:]).apply(table[0]) if options.calibrate else table[0])
    return results


def _without_content(text: str, said: str) -> str:
    """The same kind of text with nothing in it but `said`."""
    if isinstance(text, Pair):
        return Pair(said, said)
    return Choice(said, text.options, said if text.question else "") if isinstance(text, Choice) else said


def scores(
    artifact: Artifact,
    prompts: Sequence[Prompt],
    *,
    options: PromptOptions | None = None,
    answer_context: str = "Answer:",
) -> list[np.ndarray]:
    """For each prompt the score of each of its options, by `options.scoring`."""
    options = options or PromptOptions()
    scoring = SCORINGS[options.scoring]
    requests = [Request(p.text, option, p.shared) for p in prompts for option in p.options]
    found = likelihoods(artifact, requests, precision=options.precision)
    alone: list[Likelihood] = found
    if scoring.needs_alone:
        without = [Request(answer_context, request.continuation, answer_context) for request in requests]
        alone = likelihoods(artifact, without, precision=options.precision)
    values = iter([scoring.value(one, other) for one, other in zip(found, alone, strict=True)])
    return [np.array([next(values) for _ in p.options]) for p in prompts]


def _by_label(scored: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The scores of the labels: the log of the mean of exp(score) over each one's words."""
    parts = np.split(scored, np.cumsum(sizes)[:-1])
    return np.array([np.logaddexp.reduce(part) - math.log(len(part)) for part in parts])


def _softmax(values: np.ndarray) -> np.ndarray:
    found = np.exp(values - values.max())
    return found / found.sum()
