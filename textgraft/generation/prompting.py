"""Prompts as GPT-3 was given them: an instruction, examples with their answers, and a text whose answer is to come.

A template file says how one example reads and which words stand for which label (Brown et al. 2020, §2 and appendix G;
the words that stand for labels are called a verbaliser since Schick & Schütze 2021). Prompts hold as many examples as
the model has room for; examples are left out whole, the first ones first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import ONE_OF, Choice, Examples, Pair
from textgraft.data.splits import nested_order
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.phases import STRICT
from textgraft.training.recipes import find_recipe, read_toml

FIELDS = ("text", "text2", "label")
_FIELD = re.compile(r"\{(\w*)\}")
STEPS = 256
"""A text that is too long for its prompt is cut to some 256ths."""


@dataclass(frozen=True)
class Template:
    """How an example is written out.

    `example` has {text}, perhaps {text2} (the second text of a pair, the question of a choice), and after them {label},
    where the answer stands; what follows {label} belongs to every answer. `separator` parts instruction and examples.
    `verbaliser` names the words for each label; of several the first stands in examples, and the label's probability is
    the mean of theirs. Without it the labels are their own words. `answer_context` is the prompt without content of the
    scoring "unconditional". With `max_tokens` the model writes its answer, as far as the first of the `stop` strings.

    Raises UserError for a format that cannot be used.
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
            raise UserError("in example something comes after {label}.", remedy="Let {label} be the last field.")
        if any(_FIELD.search(part) for part in (self.instruction, self.separator, self.answer_context)):
            raise UserError("only example may have fields in braces.", remedy="Take them out of the others.")
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
        """Whether answers are written, not chosen."""
        return self.max_tokens > 0

    def question(self, text: str, share: int = STEPS) -> str:
        """An example as far as its answer, without the space before that; of each text so many 256ths.

        Raises UserError where the template has no place for a part of the text, or a place for what it has not.
        """
        parts = {name: part[: len(part) * share // STEPS] for name, part in _parts(text).items()}
        head = self.example[: self.example.index("{label}")].rstrip()
        wanted = set(_FIELD.findall(head))
        if missing := wanted - set(parts):
            remedy = "Name the column with --text2, or take another template."
            raise UserError(f"the template '{self.name}' reads {{{missing.pop()}}}, which is not there.", remedy=remedy)
        if unused := [name for name, part in parts.items() if name not in wanted and part]:
            remedy = "Take one that does, or add it to a copy of this one."
            raise UserError(f"the template '{self.name}' does not read {{{unused[0]}}}.", remedy=remedy)
        return _FIELD.sub(lambda match: parts[match[1]], head)

    def answer(self, words: str) -> str:
        """What follows `question`, with these words in it."""
        head, _, tail = self.example.partition("{label}")
        return head[len(head.rstrip()) :] + words + tail

    def words(self, label: str) -> tuple[str, ...]:
        """The words for a label; itself, where the template names none."""
        return self.verbaliser.get(label, (label,))


def _parts(text: str) -> dict[str, str]:
    if isinstance(text, Pair):
        return {"text": text.first, "text2": text.second}
    if isinstance(text, Choice):
        return {"text": text.context, "text2": text.question}
    return {"text": text}


@dataclass(frozen=True)
class Prompt:
    """What a model is asked: `shared` is what others may begin with too, `options` are continuations to choose from.

    `shots` is how many examples are left; `is_cut` whether the text lost its end.
    """

    shared: str
    own: str
    options: tuple[str, ...]
    shots: int = 0
    is_cut: bool = False

    @property
    def text(self) -> str:
        return self.shared + self.own


def load_template(name: str) -> Template:
    """The template `name`, one that ships (recipes/prompts) or the path of a .toml file.

    Raises UserError, with file and key, for one that does not exist or cannot be used.
    """
    return read_toml(find_recipe(name, "prompts"), Template, "prompts")


def draw(examples: Examples, shots: int, seed: int) -> list[int]:
    """The examples for a prompt, in its order: a stratified draw, shuffled, both by `seed`.

    Of one seed the fewer are among the more. Raises UserError where there are too few with one label each.
    """
    if not shots:
        return []
    if examples.labels is None or examples.kind not in ONE_OF:
        raise UserError(
            "examples in a prompt need one answer each.", where=examples.source, remedy="Name labelled ones."
        )
    known = [i for i, label in enumerate(examples.labels) if label != "" and str(examples.texts[i]).strip()]
    if not 0 <= shots <= len(known):
        message = f"{shots} examples are asked for, and {len(known)} have a label."
        raise UserError(message, where=examples.source, remedy="Ask for fewer.")
    chosen = nested_order(examples.take(known), seed)[:shots]
    order = np.random.default_rng([seed, shots]).permutation(shots)
    return [known[chosen[i]] for i in order]


def demonstration(template: Template, text: str, label: str) -> str:
    """An example with its answer; of a choice the right option, whose number is the label."""
    if isinstance(text, Choice):
        return template.question(text) + template.answer(text.options[int(label) - 1])
    return template.question(text) + template.answer(template.words(label)[0])


def demonstrations(template: Template, examples: Examples, chosen: Sequence[int]) -> list[str]:
    """The chosen examples, written out."""
    labels = cast(Sequence[str], examples.labels or ())
    return [demonstration(template, examples.texts[i], labels[i]) for i in chosen]


def build(
    template: Template, text: str, *, shown: Sequence[str], options: Sequence[str], fits: Callable[[Prompt], bool]
) -> Prompt:
    """The prompt with as many of the last examples `shown` as fit; without any, as much of the text as does.

    Raises UserError where the template alone does not fit.
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
        shorter = replace(prompt, own=template.question(text, middle), is_cut=True)
        low, high = (middle, high) if fits(shorter) else (low, middle - 1)
    prompt = replace(prompt, own=template.question(text, low), is_cut=True)
    if not low and not fits(prompt):
        message = f"the model has no room for the template '{template.name}', even without a text."
        raise UserError(message, remedy="Shorten the template, or take a model that reads more.")
    return prompt


def room(tokenizer: Tokenizer, most: int | None) -> Callable[[Prompt], bool]:
    """Whether a prompt with each of its options has no more than `most` tokens to be read (None: any number).

    Of an option the last token is not read, only predicted.
    """

    def fits(prompt: Prompt) -> bool:
        if most is None:
            return True
        longest = max(map(len, tokenizer.encode_batch([prompt.text + option for option in prompt.options])))
        return longest - 1 <= most

    return fits
