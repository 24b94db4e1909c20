"""Few-shot prompts: an instruction, examples with their answers, and a text to be answered.

A template file has the format of an example and the words for each label (Brown et al. 2020, §2 and appendix G; the
words are called a verbaliser since Schick & Schütze 2021). Prompts contain as many examples as the model has room for;
whole examples are dropped, the first ones first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.data.splits import nested_order
from textgraft.data.targets import target_of
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.phases import STRICT
from textgraft.training.recipes import find_recipe, read_toml

FIELDS = ("text", "text2", "label")
_FIELD = re.compile(r"\{(\w*)\}")
STEPS = 256
"""Texts that are too long for their prompt are truncated to a number of 256ths."""


@dataclass(frozen=True)
class Template:
    """Format of a prompt.

    Args:
        name: Name.
        description: Description.
        example: Format of an example with {text}, optionally {text2} (the second text of a pair, the question of a
            choice), and then {label}; text after {label} is part of every answer.
        source: Source.
        instruction: Text before the examples.
        separator: Separator of instruction and examples.
        verbaliser: Words for each label; examples have the first, and a label's probability is the mean of all its
            words. Without it labels are their own words.
        answer_context: Content-free prompt of the scoring "unconditional".
        max_tokens: If above 0, answers are generated with at most this many tokens, up to the first of the `stop`
            strings.
        stop: Stop strings.

    Raises:
        UserError: The format cannot be used.
    """

    name: str
    description: str
    example: str
    source: str = ""
    instruction: str = ""
    separator: str = "\n\n"
    verbaliser: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answer_context: str = "Answer:"
    max_tokens: int = 0
    stop: tuple[str, ...] = ()

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        fields = _FIELD.findall(self.example)
        unknown = next((name for name in fields if name not in FIELDS), None)
        if unknown is not None:
            raise UserError(f"unknown field '{{{unknown}}}' in example.", remedy=did_you_mean(unknown, FIELDS))
        for name in ("text", "label"):
            if name not in fields:
                raise UserError(f"there is no {{{name}}} in example.", remedy='For example: "{text}\\nMood: {label}".')
        if fields.index("label") != len(fields) - 1:
            raise UserError("in example a field comes after {label}.", remedy="Make {label} the last field.")
        if any(_FIELD.search(part) for part in (self.instruction, self.separator, self.answer_context)):
            raise UserError("only example may have fields in braces.", remedy="Remove them from the others.")
        for label, words in self.verbaliser.items():
            if not words or not all(word.strip() for word in words):
                raise UserError(f"verbaliser has no word for '{label}'.", remedy="Give one or more, none empty.")
        if len(self.verbaliser) == 1:
            raise UserError("verbaliser has one label only.", remedy="Give two or more to choose from.")
        if self.max_tokens < 0 or "" in self.stop:
            raise UserError("max_tokens is below 0, or a stop string is empty.", remedy="Correct the value.")
        if self.max_tokens and self.verbaliser:
            raise UserError("there are both max_tokens and a verbaliser.", remedy="Keep one of them.")

    @property
    def writes(self) -> bool:
        """True if answers are generated, not chosen."""
        return self.max_tokens > 0

    def question(self, text: str, share: int = STEPS) -> str:
        """Format an example up to its answer, with `share` 256ths of each text.

        Raises:
            UserError: The template lacks a field for a part of the text, or has a field without one.
        """
        parts = {name: part[: len(part) * share // STEPS] for name, part in _parts(text).items()}
        head = self.example[: self.example.index("{label}")].rstrip()
        fields = set(_FIELD.findall(head))
        if missing := fields - set(parts):
            remedy = "Set the column with text2=…, or use another template."
            raise UserError(
                f"the template '{self.name}' needs {{{missing.pop()}}}, which the data lack.", remedy=remedy
            )
        if unused := [name for name, part in parts.items() if name not in fields and part]:
            remedy = "Use one that does, or add it to a copy of this one."
            raise UserError(f"the template '{self.name}' does not use {{{unused[0]}}}.", remedy=remedy)
        return _FIELD.sub(lambda match: parts[match[1]], head)

    def answer(self, words: str) -> str:
        """The text after `question`, with these words."""
        head, _, tail = self.example.partition("{label}")
        return head[len(head.rstrip()) :] + words + tail

    def words(self, label: str) -> tuple[str, ...]:
        """Words for a label; the label itself, where the template has none."""
        return self.verbaliser.get(label, (label,))


def _parts(text: str) -> dict[str, str]:
    if isinstance(text, Pair):
        return {"text": text.first, "text2": text.second}
    if isinstance(text, Choice):
        return {"text": text.context, "text2": text.question}
    return {"text": text}


@dataclass(frozen=True)
class Prompt:
    """Input of the model: `shared` is common to several prompts, `options` are continuations to choose from.

    `shots` is the number of examples; `is_cut` is True if the text is truncated.
    """

    shared: str
    own_text: str
    options: tuple[str, ...]
    shots: int = 0
    is_cut: bool = False

    @property
    def text(self) -> str:
        return self.shared + self.own_text


def load_template(name: str) -> Template:
    """Load the template `name`, a bundled one (recipes/prompts) or the path of a .toml file.

    Raises:
        UserError: It does not exist or cannot be used; the message has file and key.
    """
    return read_toml(find_recipe(name, "prompts"), Template, "prompts")


def draw(examples: Examples, shots: int, seed: int) -> list[int]:
    """Indices of the examples of a prompt, in its order: a stratified sample, shuffled, both by `seed`.

    Smaller samples of a seed are contained in larger ones.

    Raises:
        UserError: There are too few examples with one label each.
    """
    if not shots:
        return []
    if examples.labels is None or not target_of(examples).is_exclusive:
        raise UserError(
            "examples in a prompt need one answer each.", where=examples.source, remedy="Use labelled texts."
        )
    labelled = [i for i, label in enumerate(examples.labels) if label != "" and str(examples.texts[i]).strip()]
    if not 0 <= shots <= len(labelled):
        message = f"{shots} examples are more than the {len(labelled)} with a label."
        raise UserError(message, where=examples.source, remedy="Give fewer.")
    sampled = nested_order(examples.take(labelled), seed)[:shots]
    order = np.random.default_rng([seed, shots]).permutation(shots)
    return [labelled[sampled[i]] for i in order]


def demonstration(template: Template, text: str, label: str) -> str:
    """Format an example with its answer; for a choice the right option, whose number is the label."""
    if isinstance(text, Choice):
        return template.question(text) + template.answer(text.options[int(label) - 1])
    return template.question(text) + template.answer(template.words(label)[0])


def demonstrations(template: Template, examples: Examples, chosen: Sequence[int]) -> list[str]:
    """Format the chosen examples."""
    labels = cast(Sequence[str], examples.labels or ())
    return [demonstration(template, examples.texts[i], labels[i]) for i in chosen]


def build(
    template: Template, text: str, *, shown: Sequence[str], options: Sequence[str], fits: Callable[[Prompt], bool]
) -> Prompt:
    """Build the prompt with as many of the last examples `shown` as fit; without any, with as much of the text as fits.

    Raises:
        UserError: The template alone does not fit.
    """
    question = template.question(text)
    for first in range(len(shown) + 1):
        shots = len(shown) - first
        before = [*([template.instruction] if template.instruction else []), *shown[first:]]
        shared = "".join(part + template.separator for part in before)
        prompt = Prompt(shared, question, tuple(options), shots)
        if fits(prompt):
            return prompt
    low, high = 0, STEPS
    while low < high:
        middle = (low + high + 1) // 2
        shorter = replace(prompt, own_text=template.question(text, middle), is_cut=True)
        low, high = (middle, high) if fits(shorter) else (low, middle - 1)
    prompt = replace(prompt, own_text=template.question(text, low), is_cut=True)
    if not low and not fits(prompt):
        message = f"the model has no room for the template '{template.name}', even without a text."
        raise UserError(message, remedy="Shorten the template, or use a model with a longer context.")
    return prompt


def room(tokenizer: Tokenizer, most: int | None) -> Callable[[Prompt], bool]:
    """A function that returns True if a prompt with each of its options has at most `most` tokens (None: any number).

    The last token of an option is only predicted and needs no position.
    """

    def fits(prompt: Prompt) -> bool:
        if most is None:
            return True
        longest = max(map(len, tokenizer.encode_batch([prompt.text + option for option in prompt.options])))
        return longest - 1 <= most

    return fits
