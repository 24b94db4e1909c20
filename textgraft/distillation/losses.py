"""What a small model learns from a large one: to answer as it does, not only rightly (Hinton, Vinyals & Dean 2015).

A `DistilledModel` model is the student while it trains: the training loop sees a model like any other, whose loss is a
`Lesson`'s. The lesson, with the teacher in it, is no part of the model, so neither the optimizer nor a checkpoint ever
holds the teacher. What is over when training is over is taken out again with `DistilledModel.student`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from textgraft.core.device import on_cpu
from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.examples import TargetKind
from textgraft.encoders.base import Encoded, State
from textgraft.heads.base import Head, Loss
from textgraft.models.model import Model
from textgraft.nn.chunked import CHUNK_ROWS

LEAST_PROBABILITY = 1e-12
"""A teacher's answer is never surer than this: a logit has to be a number."""


class Lesson(Protocol):
    """What stands in the place of a model's own loss while it is taught."""

    def loss(self, student: Model, batch: Batch, state: State | None) -> Loss: ...


class DistilledModel(Model):
    """A student and its lesson. In training its loss is the lesson's, in evaluation its own."""

    def __init__(self, student: Model, lesson: Lesson) -> None:
        super().__init__(student.encoder, student.head)
        self.layer_aggregation, self.lesson = student.layer_aggregation, lesson

    def loss(self, batch: Batch, state: State | None = None) -> Loss:
        return self.lesson.loss(self, batch, state) if self.training else super().loss(batch, state)

    @property
    def student(self) -> Model:
        """The student without its lesson, in eval mode."""
        model = Model(self.encoder, self.head)
        model.layer_aggregation = self.layer_aggregation
        return model.eval()


@dataclass(frozen=True)
class ClassifierDistillation:
    """A classifier learns from what a teacher answered to its N training texts, and from labels where there are any.

    `answers` (N, C) are the teacher's logits (`answer_logits`), found by `Batch.rows`. A text without a label weighs
    `soft_losses`; one with a label (1 - alpha) of that and `alpha` of `hard_losses` (Hinton et al. 2015, §2).
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
        soft = soft_losses(logits, answers, self.kind, self.temperature)
        hard, labelled = hard_losses(logits, batch.targets.to(logits.device), self.kind)
        each = torch.where(labelled, (1 - self.alpha) * soft + self.alpha * hard, soft)
        return Loss(total=each.sum(), count=len(logits))


def soft_losses(logits: Tensor, answers: Tensor, kind: TargetKind, temperature: float) -> Tensor:
    """(E,) how far each of E answers is from the teacher's, both (E, C) logits: 0 where they are the same.

    For one label T² KL(softmax(answers / T) || softmax(logits / T)) in nats, whose gradient is that of the paper's
    cross entropy and which stays of one size when T changes (Hinton et al. 2015, §2, eq. 4); for several labels the
    same of each label's sigmoid, summed; for a number the squared error. We differ in that the teacher's entropy is
    taken off.
    """
    if kind == "numeric":
        return (logits - answers).square().sum(dim=1)
    own, theirs = logits / temperature, answers / temperature
    if kind == "single":
        own, theirs = own.log_softmax(dim=1), theirs.log_softmax(dim=1)
        each = F.kl_div(own, theirs, log_target=True, reduction="none")
    else:
        p = theirs.sigmoid()
        each = F.binary_cross_entropy_with_logits(own, p, reduction="none")
        each = each - F.binary_cross_entropy_with_logits(theirs, p, reduction="none")
    return temperature**2 * each.sum(dim=1)


def hard_losses(logits: Tensor, targets: Tensor, kind: TargetKind) -> tuple[Tensor, Tensor]:
    """(E,) the classification head's own loss of each text, 0 without a label, and (E,) bool which have one.

    `targets` are the head's, with -100 (one label) or NaN (several, a number) where there is none (`without_labels`).
    """
    if kind == "single":
        return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none"), targets != IGNORE
    if kind == "multi":
        labelled = ~targets.isnan().any(dim=1)
        each = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(), reduction="none").sum(dim=1)
    else:
        labelled = ~targets.isnan()
        each = (logits.squeeze(1) - targets.nan_to_num()).square()
    return each * labelled, labelled


def without_labels(count: int, kind: TargetKind, classes: int) -> np.ndarray:
    """The targets of `count` texts that have no label, as `hard_losses` knows them."""
    if kind == "single":
        return np.full(count, IGNORE, dtype=np.int64)
    return np.full((count, classes) if kind == "multi" else count, np.nan, dtype=np.float32)


def answer_logits(outputs: np.ndarray, kind: TargetKind) -> np.ndarray:
    """What a classifier answers (`Predictor.outputs`) as float32 (N, C) logits, whatever it is made of.

    log p, or log p / (1 - p) for each of several labels; of an ensemble, of the mean. Standardised values stay.
    """
    if kind == "numeric":
        return outputs[:, None].astype(np.float32)
    p = np.asarray(outputs, dtype=np.float64).clip(LEAST_PROBABILITY, 1.0)
    if kind == "multi":
        p = p.clip(max=1 - LEAST_PROBABILITY)
        return (np.log(p) - np.log1p(-p)).astype(np.float32)
    return np.log(p).astype(np.float32)


@dataclass(frozen=True)
class LanguageModelDistillation:
    """A language model learns from a larger one over the same vocabulary (Sanh et al. 2019, §2 and §3).

    At every position that has a target, `soft` times T² KL of the two distributions at temperature T, and `hard` times
    the student's own loss; and `hidden` times the mean of 1 - cos between the two last hidden vectors over all real
    positions, multiplied by how many targets there are, so that it survives the division of the sum. The state is the
    student's and the teacher's. Raises UserError where vectors of unequal width are to be compared.
    """

    teacher: Model
    temperature: float
    soft: float
    hard: float
    hidden: float

    def check(self, student: Model) -> None:
        """Raises UserError where the hidden vectors are of unequal width and are to point the same way."""
        own, theirs = student.encoder.output_dim, self.teacher.encoder.output_dim
        if self.hidden and own != theirs:
            message = f"the student's vectors are {own} wide and the teacher's {theirs}, so they have no angle."
            raise UserError(message, where="hidden", remedy="Take the recipe 'any-width', or set hidden = 0 in yours.")

    def loss(self, student: Model, batch: Batch, state: State | None) -> Loss:
        batch = batch.to(student.device)
        assert batch.targets is not None
        own_state, their_state = parted(state)
        own: Encoded = student.encoder(batch, own_state, keep=student.head.keep)
        with torch.no_grad():
            theirs: Encoded = self.teacher.encoder(batch, their_state)
        plain = student.head.loss(own, batch)
        wanted = batch.targets != IGNORE
        soft = soft_token_loss(student.head, self.teacher.head, own.top[wanted], theirs.top[wanted], self.temperature)
        total = self.hard * plain.total + self.soft * soft
        parts = plain.parts | {"soft": float(soft.detach())}
        if self.hidden:
            apart = 1 - F.cosine_similarity(own.top[batch.mask].float(), theirs.top[batch.mask].float(), dim=-1)
            parts["hidden"] = float(apart.detach().mean()) * plain.count
            total = total + self.hidden * plain.count * apart.mean()
        return Loss(total=total, count=plain.count, parts=parts, state=joined(own.state, theirs.state))


def soft_token_loss(student: Head, teacher: Head, own: Tensor, theirs: Tensor, temperature: float) -> Tensor:
    """T² KL(teacher || student) at temperature T in nats, summed over N positions.

    `own` (N, D) and `theirs` (N, D') are hidden vectors of the two heads' encoders. Logits are made for a few hundred
    positions at a time, and again for the gradient, so that memory does not grow with N x V.
    """
    rows = CHUNK_ROWS[on_cpu(own)]
    total = own.new_zeros((), dtype=torch.float32)
    for mine, others in zip(own.split(rows), theirs.split(rows), strict=True):
        with torch.no_grad():
            wanted = _at_temperature(teacher, others, temperature)
        total = total + checkpoint(
            _divergence, student, mine, wanted, temperature, use_reentrant=False, preserve_rng_state=False
        )
    return temperature**2 * total


def _divergence(head: Head, hidden: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    return F.kl_div(_at_temperature(head, hidden, temperature), wanted, log_target=True, reduction="sum")


def _at_temperature(head: Head, hidden: Tensor, temperature: float) -> Tensor:
    """(N, V) log probabilities; any output layer has them, so they and not its logits are divided."""
    mask = torch.ones(1, len(hidden), dtype=torch.bool, device=hidden.device)
    return (head(Encoded(top=hidden[None], mask=mask))[0] / temperature).log_softmax(dim=1)


def joined(own: State | None, theirs: State | None) -> State | None:
    """Two states as one, to be handed on and saved like any: first of how many layers the first is."""
    if own is None and theirs is None:
        return None
    return ((torch.tensor(len(own or ())),), *(own or ()), *(theirs or ()))


def parted(state: State | None) -> tuple[State | None, State | None]:
    """The inverse of `joined`."""
    if state is None:
        return None, None
    (count,), *layers = state
    own, theirs = tuple(layers[: int(count)]), tuple(layers[int(count) :])
    return own or None, theirs or None
