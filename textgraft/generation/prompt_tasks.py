"""`textgraft.prompt`: zero- and few-shot classification with a left-to-right language model.

Labels and options are chosen by their likelihood after a prompt (Brown et al. 2020, §2.4), optionally calibrated with
content-free prompts (Zhao et al. 2021). `complete` generates texts.
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

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.data.readers import read
from textgraft.data.targets import target_of
from textgraft.generation.decoding import GenerateOptions
from textgraft.generation.generation import Generated, generate, left_to_right
from textgraft.generation.likelihood import SCORINGS, Likelihood, Request, likelihoods
from textgraft.generation.prompting import Prompt, Template, build, demonstrations, draw, load_template, room
from textgraft.metrics.classification import bootstrap_interval, evaluate, paired_test
from textgraft.models.artifact import Artifact

CONTENT_FREE = ("N/A", "[MASK]", "")
"""Content-free texts, averaged over as in Zhao et al. 2021."""


@dataclass(frozen=True)
class PromptOptions:
    """Options of prompting.

    Args:
        shots: Number of examples in a prompt.
        scoring: Name in generation.likelihood.SCORINGS.
        calibrate: Calibrate probabilities with content-free prompts.
        seed: Seed of the sample and order of the examples.
        max_tokens: Maximum length of a prompt, below the model's.
        precision: Arithmetic of the model.

    Raises:
        UserError: A value is out of range.
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
        for name, minimum in (("shots", 0), ("seed", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(f"{name} is {value}.", remedy=f"Give {minimum} or more.")


@dataclass(frozen=True)
class Answer:
    """A predicted label with the probabilities of all; for a choice the label is the option's number, from "1" on."""

    label: str
    probabilities: dict[str, float]
    option: str | None = None


@dataclass(frozen=True, repr=False)
class Prompted(Brief):
    """Predictions for N texts, and the `demonstrations` in their prompts, as far as there was room."""

    texts: Examples
    answers: list[Answer]
    prompts: list[Prompt]
    demonstrations: list[str]

    def evaluate(self) -> dict[str, Any]:
        """Accuracy with its 95 % interval, compared with the most frequent label, with a paired test.

        The most frequent label is that of these same texts, which makes the comparison stricter. Texts without a label
        are left out.

        Raises:
            UserError: No text has a label.
        """
        labels = cast(Sequence[str], self.texts.labels or ())
        labelled = [i for i, label in enumerate(labels) if label != ""]
        if not labelled:
            raise UserError("the texts have no labels to evaluate predictions with.", where=self.texts.source)
        names = list(dict.fromkeys(name for answer in self.answers for name in answer.probabilities))
        targets = np.array([names.index(labels[i]) for i in labelled])
        table = np.array([[self.answers[i].probabilities.get(name, 0.0) for name in names] for i in labelled])
        assert self.texts.kind is not None
        scores = {k: v for k, v in evaluate(self.texts.kind, targets, table).items() if k != "micro_f1"}
        correct = np.array([self.answers[i].label == labels[i] for i in labelled], dtype=np.float64)
        frequent = min(Counter(labels[i] for i in labelled).items(), key=lambda entry: (-entry[1], entry[0]))[0]
        baseline_correct = np.array([labels[i] == frequent for i in labelled], dtype=np.float64)
        interval, baseline = bootstrap_interval(correct)._asdict(), bootstrap_interval(baseline_correct)._asdict()
        test = paired_test(correct, baseline_correct)
        return {
            "texts": len(labelled),
            "accuracy": interval,
            "most_frequent": {"label": frequent, **baseline},
            "difference": {"points": 100 * test.difference, "p": test.p},
            "metrics": scores,
        }


@dataclass(frozen=True)
class Calibration:
    """q = W p + b, W diagonal, normalised to sum to 1 (Zhao et al. 2021 have a softmax instead).

    A softmax of probabilities would give the same choice but flatten them to almost nothing.
    """

    weights: np.ndarray
    bias: np.ndarray

    @classmethod
    def fit(cls, content_free: np.ndarray) -> Calibration:
        """Fit on probabilities (M, C) after M content-free prompts, normalised first as in the paper: W =
        diag(mean)^-1, b = 0.
        """
        mean = (content_free / content_free.sum(1, keepdims=True)).mean(0)
        return cls(1 / mean.clip(np.finfo(np.float64).tiny), np.zeros(len(mean)))

    def apply(self, probabilities: np.ndarray) -> np.ndarray:
        """Calibrate probabilities (C,) or (N, C)."""
        scaled = probabilities * self.weights + self.bias
        return scaled / scaled.sum(-1, keepdims=True)


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
    """Predict the label of each text, or the option of each choice, that is most likely after a prompt.

    Warns where a prompt has room for fewer examples, or a text is truncated.

    Args:
        model: Name, folder, or loaded model.
        data: Texts, as `textgraft.read` takes them.
        template: Name, path, or template.
        options: Options of prompting.
        examples: Labelled texts to draw examples from, as `textgraft.read` takes them; those that are also in `data`
            are not used. None: drawn from `data`, and not predicted.
        device: Device.
        columns: Options of `textgraft.read` for both.

    Raises:
        UserError: The model is not left-to-right, the template generates its answers, or it has no words for a label.
    """
    options = options or PromptOptions()
    loaded_template = load_template(template) if isinstance(template, str) else template
    if loaded_template.writes:
        remedy = "Use textgraft.complete, or a template with a verbaliser."
        raise UserError(
            f"the template '{loaded_template.name}' generates answers and has no labels to choose from.", remedy=remedy
        )
    artifact = left_to_right(model, device)
    texts, pool, demonstrations_shown = _prepare_examples(loaded_template, data, examples, options, columns)
    labels = _labels(loaded_template, texts, pool)
    fits = room(artifact.tokenizer, _limit(artifact, options.max_tokens))
    continuations = [loaded_template.answer(word) for label in labels for word in loaded_template.words(label)]
    prompts = []
    for text in texts.texts:
        text_options = (
            [loaded_template.answer(option) for option in text.options] if isinstance(text, Choice) else continuations
        )
        prompts.append(build(loaded_template, text, shown=demonstrations_shown, options=text_options, fits=fits))
    _warn(prompts, len(demonstrations_shown))
    groups = [[len(loaded_template.words(label)) for label in labels] or [1] * len(p.options) for p in prompts]
    probabilities = _probabilities(
        artifact, loaded_template, texts=texts.texts, prompts=prompts, groups=groups, options=options
    )
    answers = []
    for text, values in zip(texts.texts, probabilities, strict=True):
        names = labels or [str(number + 1) for number in range(len(values))]
        best = int(values.argmax())
        option = text.options[best] if isinstance(text, Choice) else None
        answers.append(Answer(names[best], dict(zip(names, values.tolist(), strict=True)), option))
    return Prompted(texts, answers, prompts, demonstrations_shown)


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
    """Generate a text after a prompt for each text, such as a summary, a translation, an answer.

    Like `prompt`, but without `examples` there are none. `generation` has precedence over the template's `max_tokens`
    and `stop`.

    Raises:
        UserError: The template chooses among labels.
    """
    options = options or PromptOptions()
    loaded_template = load_template(template) if isinstance(template, str) else template
    if not loaded_template.writes:
        remedy = "Use textgraft.prompt, or a template with max_tokens."
        raise UserError(
            f"the template '{loaded_template.name}' has no max_tokens, so it cannot generate text.", remedy=remedy
        )
    if options.shots and examples is None:
        raise UserError("there are no examples to show.", remedy="Give a file of texts with their answers as labels.")
    artifact = left_to_right(model, device)
    generation = generation or GenerateOptions(max_tokens=loaded_template.max_tokens, stop=loaded_template.stop)
    texts, _, demonstrations_shown = _prepare_examples(loaded_template, data, examples, options, columns)
    maximum = _limit(artifact, options.max_tokens)
    fits = room(artifact.tokenizer, None if maximum is None else maximum - generation.max_tokens)
    prompts = [
        build(loaded_template, text, shown=demonstrations_shown, options=[""], fits=fits) for text in texts.texts
    ]
    _warn(prompts, len(demonstrations_shown))
    generated = generate(artifact, [p.text for p in prompts], generation, device=device)
    return [replace(row, text=row.text.strip()) for row in generated]


def _limit(artifact: Artifact, max_tokens: int | None) -> int | None:
    limits = [n for n in (artifact.model.encoder.max_length, max_tokens) if n is not None]
    return min(limits, default=None)


def _prepare_examples(
    template: Template, data: Any, examples: Any, options: PromptOptions, columns: dict[str, Any]
) -> tuple[Examples, Examples | None, list[str]]:
    """Texts to predict, the pool of examples, and the examples drawn, formatted."""
    texts = read(data, **columns)
    if examples is None:
        drawn = draw(texts, options.shots, options.seed)
        remaining = sorted(set(range(len(texts))) - set(drawn))
        if not remaining:
            raise UserError("all texts are used as examples; none is left to predict.", where=texts.source)
        return (texts.take(remaining) if drawn else texts), None, demonstrations(template, texts, drawn)
    pool = read(examples, **columns)
    predicted = set(texts.texts)
    pool = pool.take([i for i, text in enumerate(pool.texts) if text not in predicted])
    for label in set(pool.labels or ()) if template.verbaliser and target_of(pool).has_one_label else ():
        _validate_label(template, str(label), pool)
    return texts, pool, demonstrations(template, pool, draw(pool, options.shots, options.seed))


def _validate_label(template: Template, label: str, examples: Examples) -> None:
    if label != "" and label not in template.verbaliser:
        message = f"the template '{template.name}' has no words for the label '{label}'."
        suggestion = did_you_mean(label, template.verbaliser)
        remedy = f"{suggestion} Copy it and write a verbaliser for your labels."
        raise UserError(message, where=examples.source, remedy=remedy)


def _labels(template: Template, texts: Examples, pool: Examples | None) -> list[str]:
    """The labels to choose among, in the template's order or sorted; none where each text has its own options."""
    if isinstance(texts.texts[0], Choice):
        if template.verbaliser:
            remedy = "Use one without labels, such as 'choice' or 'question'."
            raise UserError("the texts have options of their own, and the template has labels.", remedy=remedy)
        return []
    for part in (texts, pool):
        if part is not None and part.labels is not None and not target_of(part).is_exclusive:
            message = "prompting needs one label a text; these are of another kind."
            raise UserError(message, where=part.source, remedy="Set the right column with label=….")
    if template.verbaliser:
        for label in dict.fromkeys(texts.labels or ()):
            _validate_label(template, str(label), texts)
        return list(template.verbaliser)
    labels = {str(label) for part in (texts, pool) if part is not None for label in part.labels or () if label != ""}
    if len(labels) < 2:
        remedy = "Use a template with a verbaliser, or labelled texts."
        raise UserError("there are fewer than two labels to choose from.", where=texts.source, remedy=remedy)
    return sorted(labels)


def _warn(prompts: Sequence[Prompt], shots: int) -> None:
    fewer = [p.shots for p in prompts if p.shots < shots]
    if fewer:
        message = f"{len(fewer):,} of {len(prompts):,} prompts have room for fewer than {shots} examples"
        warnings.warn(f"{message}; the fewest have {min(fewer)}.", stacklevel=3)
    if cut := sum(p.is_cut for p in prompts):
        warnings.warn(f"{cut:,} of {len(prompts):,} texts were truncated for lack of room.", stacklevel=3)


def _probabilities(
    artifact: Artifact,
    template: Template,
    *,
    texts: Sequence[str],
    prompts: Sequence[Prompt],
    groups: Sequence[Sequence[int]],
    options: PromptOptions,
) -> list[np.ndarray]:
    """Probability of each label for each prompt; `groups` has the number of words of each label."""
    prompt_rows = [[p] for p in prompts]
    if options.calibrate:
        for row, text in zip(prompt_rows, texts, strict=True):
            row += [
                replace(row[0], own_text=template.question(_without_content(text, content))) for content in CONTENT_FREE
            ]
    scored = scores(
        artifact, [p for row in prompt_rows for p in row], options=options, answer_context=template.answer_context
    )
    results, first = [], 0
    for row, sizes in zip(prompt_rows, groups, strict=True):
        table = np.stack([_softmax(_by_label(s, sizes)) for s in scored[first : first + len(row)]])
        first += len(row)
        results.append(Calibration.fit(table[1:]).apply(table[0]) if options.calibrate else table[0])
    return results


def _without_content(text: str, content: str) -> str:
    """The same kind of text with `content` in place of its content."""
    if isinstance(text, Pair):
        return Pair(content, content)
    return Choice(content, text.options, content if text.question else "") if isinstance(text, Choice) else content


def scores(
    artifact: Artifact,
    prompts: Sequence[Prompt],
    *,
    options: PromptOptions | None = None,
    answer_context: str = "Answer:",
) -> list[np.ndarray]:
    """Scores of the options of each prompt, by `options.scoring`."""
    options = options or PromptOptions()
    scoring = SCORINGS[options.scoring]
    requests = [Request(p.text, option, p.shared) for p in prompts for option in p.options]
    conditional = likelihoods(artifact, requests, precision=options.precision)
    alone: list[Likelihood] = conditional
    if scoring.needs_alone:
        without = [Request(answer_context, request.continuation, answer_context) for request in requests]
        alone = likelihoods(artifact, without, precision=options.precision)
    values = iter([scoring.value(likelihood, other) for likelihood, other in zip(conditional, alone, strict=True)])
    return [np.array([next(values) for _ in p.options]) for p in prompts]


def _by_label(scored: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Label scores: the log of the mean of exp(score) over each label's words."""
    parts = np.split(scored, np.cumsum(sizes)[:-1])
    return np.array([np.logaddexp.reduce(part) - math.log(len(part)) for part in parts])


def _softmax(values: np.ndarray) -> np.ndarray:
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()
