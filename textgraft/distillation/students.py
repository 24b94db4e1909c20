"""Students: language models with half the layers, initialised from a larger one."""

from __future__ import annotations

import re
from typing import Any

from textgraft.core.errors import UserError
from textgraft.models import artifact
from textgraft.models.model import Model, build_fresh, build_unfilled, with_dropout

REMOVED_PARTS: dict[str, dict[str, Any]] = {
    "encoder": {"num_segments": 0, "pooler": False},
    "head": {"next_sentence": False},
}
"""Parts that the student does not have, where its family has them (Sanh et al. 2019, §3)."""
_LAYER = re.compile(r"^encoder\.layers\.(\d+)\.")


def kept_layers(total: int) -> list[int]:
    """Numbers of the teacher's layers, from 0, that initialise the student: one in two, including the lowest and the
    highest.

    The paper says "one layer out of two"; of 12 its code keeps 0, 2, 4, 7, 9 and 11, as here.

    Raises:
        UserError: The model has a single layer.

    >>> kept_layers(12)
    [0, 2, 4, 7, 9, 11]
    """
    if total < 2:
        raise UserError("a model of one layer cannot be halved.", remedy="Give a student=… of its own.")
    count = (total + 1) // 2
    return [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]


def half_of(teacher: Model, *, dropout: float = 1.0) -> Model:
    """The teacher with `kept_layers` only, without segments, pooler and next sentence prediction; other weights are
    copied.

    Source: Sanh et al. 2019, §3, for every family. Difference: the first segment's vector, which is added at every
    position of a single text, is added to the position table instead of being dropped. `dropout` multiplies every
    dropout.

    Raises:
        UserError: The widths of the kept layers do not match.
    """
    layers = kept_layers(int(teacher.describe()["encoder"]["num_layers"]))
    student = build_unfilled(with_dropout(halved(teacher), dropout))
    teacher_values = teacher.values()
    values = {name: teacher_values[_source_name(name, layers)] for name in student.values()}
    if "encoder.segments.weight" in teacher_values:
        values["encoder.positions.weight"] = (
            teacher_values["encoder.positions.weight"] + teacher_values["encoder.segments.weight"][0]
        )
    if any(values[name].shape != value.shape for name, value in student.values().items()):
        shown = ", ".join(str(layer + 1) for layer in layers)
        message = f"the widths of layers {shown} of this teacher, which the student would have, do not match."
        raise UserError(message, remedy="Give a student=… over the same vocabulary.")
    artifact.fill(student, values, where="the student")
    return student


def without_next_sentence(model: Model) -> Model:
    """A copy that only predicts masked tokens, to be evaluated on the same rows as a student that does."""
    description = model.describe()
    description["head"]["next_sentence"] = False
    copy = build_unfilled(description)
    values = model.values()
    artifact.fill(copy, {name: values[name] for name in copy.values()}, where="the teacher")
    return copy.eval()


def fresh_half_of(teacher: Model, *, seed: int, dropout: float = 1.0) -> Model:
    """A model of the shape of `half_of`, with new weights for `seed`."""
    kept_layers(int(teacher.describe()["encoder"]["num_layers"]))
    return build_fresh(with_dropout(halved(teacher), dropout), seed)


def halved(teacher: Model) -> dict[str, Any]:
    """Description of a model with half the layers."""
    described = teacher.describe()
    for part, settings in REMOVED_PARTS.items():
        described[part] |= {key: value for key, value in settings.items() if key in described[part]}
    described["encoder"]["num_layers"] = len(kept_layers(described["encoder"]["num_layers"]))
    return described


def _source_name(name: str, layers: list[int]) -> str:
    """Name of the teacher's value that initialises the student's value `name`."""
    match = _LAYER.match(name)
    return _LAYER.sub(f"encoder.layers.{layers[int(match[1])]}.", name) if match else name
