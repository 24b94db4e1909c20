"""Distillation losses: a student is trained on a teacher's output distribution (Hinton, Vinyals & Dean 2015).

A `DistilledModel` is the student during training: the training loop sees a model like any other, whose loss is a
`DistillationLoss`. The loss, which contains the teacher, is not part of the model, so neither the optimizer nor a
checkpoint contains the teacher. After training `DistilledModel.student` returns the student alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from textgraft.core.device import on_cpu
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.examples import TargetKind
from textgraft.distillation.targets import DISTILLED_TARGETS
from textgraft.encoders.base import Encoded, State
from textgraft.heads.base import Head, Loss
from textgraft.models.model import Model
from textgraft.nn.chunked import CHUNK_ROWS


class DistillationLoss(Protocol):
    """Replacement of a model's own loss during distillation."""

    def loss(self, student: Model, batch: Batch, state: State | None) -> Loss: ...


class DistilledModel(Model):
    """A student with its distillation loss: used in training; in evaluation its own loss."""

    def __init__(self, student: Model, distillation: DistillationLoss) -> None:
        super().__init__(student.encoder, student.head)
        self.layer_aggregation, self.distillation = student.layer_aggregation, distillation

    def loss(self, batch: Batch, state: State | None = None) -> Loss:
        return self.distillation.loss(self, batch, state) if self.training else super().loss(batch, state)

    @property
    def student(self) -> Model:
        """The student alone, in eval mode."""
        model = Model(self.encoder, self.head)
        model.layer_aggregation = self.layer_aggregation
        return model.eval()


@dataclass(frozen=True)
class ClassifierDistillation:
    """Loss of a classifier on a teacher's logits for its N training texts, and on labels where there are any.

    A text without a label has `soft_losses`; one with a label (1 - alpha) of that plus `alpha` of `hard_losses` (Hinton
    et al. 2015, §2).

    Args:
        answers: The teacher's logits (N, C) (`DistilledTarget.logits`), indexed by `Batch.rows`.
        kind: Kind of the labels.
        temperature: T.
        alpha: Weight of the hard label.
    """

    answers: Tensor
    kind: TargetKind
    temperature: float
    alpha: float

    def loss(self, student: Model, batch: Batch, state: State | None) -> Loss:
        assert batch.rows is not None
        assert batch.targets is not None
        logits = student(batch)
        answers = self.answers[batch.rows.cpu()].to(logits.device)
        target = DISTILLED_TARGETS[self.kind]
        soft = target.soft_losses(logits, answers, self.temperature)
        hard, labelled = target.hard_losses(logits, batch.targets.to(logits.device))
        losses = torch.where(labelled, (1 - self.alpha) * soft + self.alpha * hard, soft)
        return Loss(total=losses.sum(), count=len(logits))


@dataclass(frozen=True)
class LanguageModelDistillation:
    """Loss of a language model on a larger one over the same vocabulary (Sanh et al. 2019, §2 and §3).

    At every position with a target: `soft` times T² KL of the two distributions at temperature T, and `hard` times the
    student's own loss; and `hidden` times the mean of 1 - cos between the last hidden vectors over all real positions,
    multiplied by the number of targets, which the sum is divided by later. The state contains the student's and the
    teacher's.
    """

    teacher: Model
    temperature: float
    soft: float
    hard: float
    hidden: float

    def validate(self, student: Model) -> None:
        """Raise UserError where hidden vectors are to be compared but have different widths."""
        student_width, teacher_width = student.encoder.output_dim, self.teacher.encoder.output_dim
        if self.hidden and student_width != teacher_width:
            message = f"the student's hidden vectors have {student_width} dimensions, the teacher's {teacher_width}."
            raise UserError(message, where="hidden", remedy="Use the recipe 'any-width', or set hidden = 0 in yours.")

    def loss(self, student: Model, batch: Batch, state: State | None) -> Loss:
        batch = batch.to(student.device)
        assert batch.targets is not None
        student_state, teacher_state = split_state(state)
        student_encoded: Encoded = student.encoder(batch, student_state, keep=student.head.keep)
        with torch.no_grad():
            teacher_encoded: Encoded = self.teacher.encoder(batch, teacher_state)
        plain = student.head.loss(student_encoded, batch)
        counted = batch.targets != IGNORE
        soft = soft_token_loss(
            student.head,
            self.teacher.head,
            student_encoded.top[counted],
            teacher_encoded.top[counted],
            self.temperature,
        )
        total = self.hard * plain.total + self.soft * soft
        parts = plain.parts | {"soft": float(soft.detach())}
        if self.hidden:
            distances = 1 - F.cosine_similarity(
                student_encoded.top[batch.mask].float(), teacher_encoded.top[batch.mask].float(), dim=-1
            )
            parts["hidden"] = float(distances.detach().mean()) * plain.count
            total = total + self.hidden * plain.count * distances.mean()
        return Loss(
            total=total, count=plain.count, parts=parts, state=join_states(student_encoded.state, teacher_encoded.state)
        )


def soft_token_loss(
    student: Head, teacher: Head, student_hidden: Tensor, teacher_hidden: Tensor, temperature: float
) -> Tensor:
    """T² KL(teacher || student) at temperature T in nats, summed over N positions.

    Logits are computed for a few hundred positions at a time, and again for the gradient, so that memory does not grow
    with N x V.

    Args:
        student: The student's head.
        teacher: The teacher's head.
        student_hidden: (N, D).
        teacher_hidden: (N, D').
        temperature: T.
    """
    rows = CHUNK_ROWS[on_cpu(student_hidden)]
    total = student_hidden.new_zeros((), dtype=torch.float32)
    for student_chunk, teacher_chunk in zip(student_hidden.split(rows), teacher_hidden.split(rows), strict=True):
        with torch.no_grad():
            teacher_log_p = _at_temperature(teacher, teacher_chunk, temperature)
        total = total + checkpoint(
            _divergence,
            student,
            student_chunk,
            teacher_log_p,
            temperature,
            use_reentrant=False,
            preserve_rng_state=False,
        )
    return temperature**2 * total


def _divergence(head: Head, hidden: Tensor, teacher_log_p: Tensor, temperature: float) -> Tensor:
    return F.kl_div(_at_temperature(head, hidden, temperature), teacher_log_p, log_target=True, reduction="sum")


def _at_temperature(head: Head, hidden: Tensor, temperature: float) -> Tensor:
    """Log probabilities (N, V); these are divided, not logits, since all output layers have them."""
    mask = torch.ones(1, len(hidden), dtype=torch.bool, device=hidden.device)
    return (head(Encoded(top=hidden[None], mask=mask))[0] / temperature).log_softmax(dim=1)


def join_states(first: State | None, second: State | None) -> State | None:
    """Two states as one, which can be passed on and saved like any: first the number of the first one's layers."""
    if first is None and second is None:
        return None
    return ((torch.tensor(len(first or ())),), *(first or ()), *(second or ()))


def split_state(state: State | None) -> tuple[State | None, State | None]:
    """The inverse of `join_states`."""
    if state is None:
        return None, None
    (count,), *layers = state
    first, second = tuple(layers[: int(count)]), tuple(layers[int(count) :])
    return first or None, second or None
