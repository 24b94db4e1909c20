"""A language model of half the layers, started from those of a larger one."""

from __future__ import annotations

import re
from typing import Any

from textgraft.core.errors import UserError
from textgraft.models import artifact
from textgraft.models.model import Model, build_fresh, build_unfilled, with_dropout

LEFT_OUT: dict[str, dict[str, Any]] = {
    "encoder": {"num_segments": 0, "pooler": False},
    "head": {"next_sentence": False},
}
"""What a smaller model does without, where its family has it (Sanh et al. 2019, §3)."""
_LAYER = re.compile(r"^encoder\.layers\.(\d+)\.")


def kept_layers(total: int) -> list[int]:
    """Which of a teacher's layers, from 0, its student starts from: one in two, the lowest and the highest among them.

    The paper says "one layer out of two"; of 12 its code keeps 0, 2, 4, 7, 9 and 11, as this does. Raises UserError
    for a single layer.
    """
    if total < 2:
        raise UserError("a model of one layer has no half.", remedy="Name a --student.")
    count = (total + 1) // 2
    return [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]


def half_of(teacher: Model, *, dropout: float = 1.0) -> Model:
    """The teacher with `kept_layers` only, without segments, pooler and next sentences; everything else copied.

    Sanh et al. 2019, §3, for every family. We differ in one thing: the vector of the first segment, which stood at
    every position of a single text, is added to the table of positions instead of being forgotten. `dropout`
    multiplies every dropout. Raises UserError where the layers do not fit on one another.
    """
    kept = kept_layers(int(teacher.describe()["encoder"]["num_layers"]))
    student = build_unfilled(with_dropout(halved(teacher), dropout))
    given = teacher.values()
    values = {name: given[_taken_from(name, kept)] for name in student.values()}
    if "encoder.segments.weight" in given:
        values["encoder.positions.weight"] = given["encoder.positions.weight"] + given["encoder.segments.weight"][0]
    if any(values[name].shape != own.shape for name, own in student.values().items()):
        shown = ", ".join(str(layer + 1) for layer in kept)
        message = f"of this teacher layers {shown} would be kept, whose widths do not fit on one another."
        raise UserError(message, remedy="Name a --student over the same vocabulary.")
    artifact.fill(student, values, where="the student")
    return student


def without_next_sentence(model: Model) -> Model:
    """A copy that predicts masked tokens only, so that it is measured on the same rows as a student that does."""
    description = model.describe()
    description["head"]["next_sentence"] = False
    made = build_unfilled(description)
    values = model.values()
    artifact.fill(made, {name: values[name] for name in made.values()}, where="the teacher")
    return made.eval()


def fresh_half_of(teacher: Model, *, seed: int, dropout: float = 1.0) -> Model:
    """`half_of` the teacher by its shape, with weights drawn anew for `seed`."""
    kept_layers(int(teacher.describe()["encoder"]["num_layers"]))
    return build_fresh(with_dropout(halved(teacher), dropout), seed)


def halved(teacher: Model) -> dict[str, Any]:
    """The description of a model of half the layers."""
    described = teacher.describe()
    for part, settings in LEFT_OUT.items():
        described[part] |= {key: value for key, value in settings.items() if key in described[part]}
    described["encoder"]["num_layers"] = len(kept_layers(described["encoder"]["num_layers"]))
    return described


def _taken_from(name: str, kept: list[int]) -> str:
    """The teacher's value that the student's value `name` starts as."""
    found = _LAYER.match(name)
    return _LAYER.sub(f"encoder.layers.{kept[int(found[1])]}.", name) if found else name
