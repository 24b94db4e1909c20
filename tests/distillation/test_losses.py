"""The losses of a distillation against closed forms, and a student's layers against its teacher's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import (
    VOCAB,
    Tokens,
    classifier,
    examples,
    language_model,
    masked_language_model,
    masking_tokens,
    pairs,
)
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.streams.base import LanguageModelStream
from textgraft.data.streams.masking import MaskedStream
from textgraft.distillation.losses import (
    ClassifierDistillation,
    DistilledModel,
    LanguageModelDistillation,
    join_states,
    soft_token_loss,
    split_state,
)
from textgraft.distillation.students import fresh_half_of, half_of, kept_layers
from textgraft.distillation.targets import DISTILLED_TARGETS
from textgraft.heads.base import Head
from textgraft.models.model import Model, build, with_dropout
from textgraft.training.loop import Run
from textgraft.training.objectives import objective
from textgraft.training.phases import Phase, Stage
from textgraft.training.settings import Settings

NUMBERS = st.lists(st.floats(-8, 8), min_size=3, max_size=3)
TEMPERATURES = st.floats(0.2, 10)


def softmax(row: list[float], temperature: float) -> list[float]:
    powers = [math.exp(x / temperature) for x in row]
    return [p / sum(powers) for p in powers]


def double(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@settings(max_examples=50)
@given(NUMBERS, NUMBERS, TEMPERATURES)
def test_soft_losses_are_the_papers_times_the_square_of_the_temperature(
    own: list[float], theirs: list[float], temperature: float
) -> None:
    p, q = softmax(theirs, temperature), softmax(own, temperature)
    expected = temperature**2 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    found = DISTILLED_TARGETS["single"].soft_losses(double(own), double(theirs), temperature)
    assert found.tolist() == pytest.approx([expected], rel=1e-6, abs=1e-7)

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x / temperature))

    signed = [(sign * t, sign * s) for t, s in zip(theirs, own, strict=True) for sign in (1, -1)]
    each = [sigmoid(t) * math.log(sigmoid(t) / sigmoid(s)) for t, s in signed]
    found = DISTILLED_TARGETS["multi"].soft_losses(double(own), double(theirs), temperature)
    assert found.tolist() == pytest.approx([temperature**2 * sum(each)], rel=1e-6, abs=1e-7)
    squares = DISTILLED_TARGETS["numeric"].soft_losses(double(own[:1]), double(theirs[:1]), temperature)
    assert squares.tolist() == pytest.approx([(own[0] - theirs[0]) ** 2])


@settings(max_examples=30)
@given(NUMBERS, TEMPERATURES, st.floats(-5, 5))
def test_a_student_that_answers_as_its_teacher_has_nothing_to_learn(
    answers: list[float], temperature: float, shift: float
) -> None:
    """Logits that differ by a constant are one answer."""
    own = double([x + shift for x in answers]).requires_grad_()
    loss = DISTILLED_TARGETS["single"].soft_losses(own, double(answers), temperature)
    (gradient,) = torch.autograd.grad(loss.sum(), own)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-9)
    assert gradient.abs().max() < 1e-9
    assert float(
        DISTILLED_TARGETS["multi"].soft_losses(double(answers), double(answers), temperature)
    ) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_a_teacher_that_is_sure_at_temperature_1_is_a_label(kind: Any) -> None:
    own = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, 0.5]], dtype=torch.float64, requires_grad=True)
    one_hot = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    answers = torch.from_numpy(DISTILLED_TARGETS[kind].logits(one_hot)).double()
    targets = torch.from_numpy(one_hot.argmax(1) if kind == "single" else one_hot)
    hard, labelled = DISTILLED_TARGETS[kind].hard_losses(own, targets)
    soft = DISTILLED_TARGETS[kind].soft_losses(own, answers, 1.0)
    assert labelled.all()
    assert soft.tolist() == pytest.approx(hard.tolist(), abs=1e-8)
    gradients = [torch.autograd.grad(each.sum(), own, retain_graph=True)[0] for each in (soft, hard)]
    assert torch.allclose(*gradients, atol=1e-8)


def test_the_gradient_keeps_its_size_when_the_temperature_is_high() -> None:
    """Hinton et al. 2015, eq. 4: towards (own - theirs) / C of centred logits."""
    own = torch.tensor([[0.5, -0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    theirs = double([1.0, 0.0, -1.0])
    (gradient,) = torch.autograd.grad(DISTILLED_TARGETS["single"].soft_losses(own, theirs, 1000.0).sum(), own)
    assert gradient.tolist()[0] == pytest.approx([-0.5 / 3, -0.5 / 3, 1.0 / 3], abs=1e-3)


def test_answers_become_logits_of_the_same_probabilities() -> None:
    p = np.array([[0.2, 0.7, 0.1], [1.0, 0.0, 0.0]])
    single, multi = (torch.from_numpy(DISTILLED_TARGETS[kind].logits(p)) for kind in ("single", "multi"))
    assert torch.allclose(single.softmax(1).double(), torch.from_numpy(p), atol=1e-6)
    assert torch.allclose(multi.sigmoid().double(), torch.from_numpy(p), atol=1e-6)
    assert torch.isfinite(single).all()
    assert torch.isfinite(multi).all()
    assert DISTILLED_TARGETS["numeric"].logits(np.array([0.5, -2.0])).tolist() == [[0.5], [-2.0]]


@pytest.mark.parametrize(
    ("kind", "target"),
    [("single", torch.tensor(1)), ("multi", torch.tensor([1.0, 0.0])), ("numeric", torch.tensor(0.4))],
)
def test_alpha_counts_only_where_there_is_a_label(kind: Any, target: Tensor) -> None:
    width = 1 if kind == "numeric" else 2
    logits, answers = (torch.randn(2, width, generator=torch.manual_seed(s)) for s in (1, 2))
    targets = torch.from_numpy(DISTILLED_TARGETS[kind].without_labels(2, width))
    targets[1] = target

    class Fixed:
        def __call__(self, batch: Batch) -> Tensor:
            return logits

    def taught(alpha: float) -> float:
        batch = Batch(torch.zeros(2, 1), torch.ones(2, 1, dtype=torch.bool), targets, rows=torch.tensor([1, 0]))
        student: Any = Fixed()
        loss = ClassifierDistillation(answers.flip(0), kind, 2.0, alpha).loss(student, batch, None)
        assert loss.count == 2
        return float(loss.total)

    soft = DISTILLED_TARGETS[kind].soft_losses(logits, answers, 2.0)
    hard, labelled = DISTILLED_TARGETS[kind].hard_losses(logits, targets)
    assert labelled.tolist() == [False, True]
    assert float(hard[0]) == 0.0
    for alpha in (0.0, 0.3, 1.0):
        expected = soft[0] + (1 - alpha) * soft[1] + alpha * hard[1]
        assert taught(alpha) == pytest.approx(float(expected), rel=1e-5)


def test_what_a_readout_learned_in_a_lesson_stays_with_the_student() -> None:
    description = classifier().describe()
    description["encoder"] |= {"embedding_dim": 6, "hidden_dim": 6}
    description["head"] |= {"layer_aggregation": "mix"}
    taught = DistilledModel(build(description), ClassifierDistillation(torch.zeros(1, 2), "single", 1.0, 0.5))
    with torch.no_grad():
        taught.layer_aggregation.weights[0] = 7.0  # type: ignore[union-attr, index, operator]
    assert taught.student.layer_aggregation.weights[0].item() == 7.0  # type: ignore[union-attr, index, operator]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_lesson_is_no_part_of_the_student(alpha: float) -> None:
    """With labels alone it trains to the bit as without a lesson; what is saved has the same names."""
    stream = examples()
    answers = torch.randn(40, 2, generator=torch.manual_seed(3))
    phases = [Phase("p", 1, 0.01)]
    runs = []
    for model in (DistilledModel(classifier(), ClassifierDistillation(answers, "single", 2.0, alpha)), classifier()):
        run = Run(model, phases, stream, Settings(precision="fp32"))
        list(run.steps())
        runs.append(run.model)
    taught, plain = runs
    assert taught.values().keys() == plain.values().keys()
    same = all(torch.equal(value, plain.values()[name]) for name, value in taught.values().items())
    assert same == (alpha == 1.0)
    assert taught.describe() == plain.describe()
    batch = next(iter(stream.batches(0)))
    with torch.no_grad():
        taught.eval()
        assert torch.equal(taught.loss(batch).total, Model(taught.encoder, taught.head).loss(batch).total)


def still(model: Model) -> Model:
    """The same model without dropout or AR and TAR."""
    description = with_dropout(model.describe(), 0.0)
    if "alpha" in description["head"]:
        description["head"] |= {"alpha": 0.0, "beta": 0.0}
    made = build(description)
    made.load_state_dict(model.state_dict())
    return made


def windows(model: Model) -> Any:
    if model.describe()["encoder"]["name"] == "bert":
        return pairs() if model.head.config.next_sentence else texts()
    return LanguageModelStream(Tokens(), rows=4, bptt=20)


def texts() -> MaskedStream:
    return MaskedStream(Tokens(), masking_tokens(), length=16, rows=8)


def log_probs(head: Head, hidden: Tensor) -> Tensor:
    output: Any = head
    transformed = output.transformed(hidden) if hasattr(output, "transformed") else hidden
    weight, bias = output.output.weight, output.output.bias
    return F.linear(transformed, weight, bias).log_softmax(-1)


@pytest.mark.parametrize("family", ["awd_lstm", "bert"])
def test_the_three_losses_of_a_language_model_are_what_they_should_be(family: str) -> None:
    made = {"awd_lstm": language_model, "bert": masked_language_model}[family]
    teacher, student = still(made(num_layers=3)).eval(), still(made(num_layers=2))
    for parameter in teacher.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(5))
    batch = next(iter(windows(student).batches(0)))
    with torch.no_grad():
        own, theirs = student.train().encoder(batch).top, teacher.encoder(batch).top
        wanted = batch.targets != IGNORE
        p, q = (log_probs(m.head, top[wanted]) / 2 for m, top in ((teacher, theirs), (student, own)))
        p, q = p.log_softmax(-1), q.log_softmax(-1)
        soft = 4 * float((p.exp() * (p - q)).sum())
        plain = student.loss(batch)
        cosine = F.cosine_similarity(own[batch.mask], theirs[batch.mask], dim=-1)
        hidden = float((1 - cosine).mean()) * plain.count
    assert soft > 0.1
    for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (5.0, 2.0, 1.0)):
        loss = DistilledModel(student, LanguageModelDistillation(teacher, 2.0, *weights)).train().loss(batch)
        expected = weights[0] * soft + weights[1] * float(plain.total) + weights[2] * hidden
        assert float(loss.total.detach()) == pytest.approx(expected, rel=1e-4)
        assert loss.count == plain.count == int(wanted.sum())
        assert loss.parts["nll"] == pytest.approx(plain.parts["nll"], rel=1e-5)


@pytest.mark.parametrize("output_layer", ["full", "adaptive", "sampled"])
def test_a_language_model_has_nothing_to_learn_from_itself(output_layer: str) -> None:
    description = language_model().describe()
    description["head"] |= {"output_layer": output_layer, "tied": False}
    model = build(description)
    hidden = torch.randn(1300, 6, requires_grad=True)  # several chunks of it
    loss = soft_token_loss(model.head, model.head, hidden, hidden.detach(), 2.0)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-2)
    assert hidden.grad is not None
    assert hidden.grad.abs().max() < 1e-5


def test_chunks_change_neither_the_loss_nor_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    student, teacher = language_model(), language_model(num_layers=3)
    own, theirs = torch.randn(50, 6, requires_grad=True), torch.randn(50, 6)
    found = []
    for rows in (1000, 7):
        monkeypatch.setattr("textgraft.distillation.losses.CHUNK_ROWS", {True: rows, False: rows})
        loss = soft_token_loss(student.head, teacher.head, own, theirs, 3.0)
        table = student.encoder.tied()
        found.append((loss, *torch.autograd.grad(loss, [own, table])))
    for whole, parts in zip(*found, strict=True):
        assert torch.allclose(whole, parts, rtol=1e-4, atol=1e-5)


def test_states_of_student_and_teacher_go_together() -> None:
    own, theirs = ((torch.ones(1), torch.ones(2)), (torch.ones(3),)), ((torch.zeros(1),),)
    for pair in ((own, theirs), (None, theirs), (own, None), (None, None)):
        assert split_state(join_states(*pair)) == pair


def test_the_teachers_state_is_handed_on_and_a_stopped_run_ends_with_the_same_bits(tmp_path: Any) -> None:
    teacher = still(language_model(num_layers=3)).eval()
    before = {name: value.clone() for name, value in teacher.values().items()}

    def new() -> Run:
        lesson = LanguageModelDistillation(teacher, 2.0, 5.0, 2.0, 1.0)
        stream = LanguageModelStream(Tokens(), rows=4, bptt=20)
        return Run(DistilledModel(language_model(), lesson), [Phase("p", 2, 0.01)], stream, Settings(precision="fp32"))

    whole = new()
    steps = len(list(whole.steps()))
    stopped = new()
    for _ in zip(range(5), stopped.steps()):
        pass
    stopped.save(tmp_path / "c")
    resumed = new()
    assert resumed.resume(tmp_path / "c")
    assert resumed.state is not None
    assert [len(part or ()) for part in split_state(resumed.state)] == [2, 3]
    assert len(list(resumed.steps())) + 5 == steps
    for name, value in whole.model.values().items():
        assert torch.equal(value, resumed.model.values()[name]), name
    assert all(torch.equal(before[name], value) for name, value in teacher.values().items())
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize(
    ("total", "kept"), [(12, [0, 2, 4, 7, 9, 11]), (6, [0, 2, 5]), (4, [0, 3]), (3, [0, 2]), (2, [0])]
)
def test_one_layer_in_two_is_kept(total: int, kept: list[int]) -> None:
    assert kept_layers(total) == kept


def test_a_bert_halved_is_a_distilbert_with_its_teachers_layers() -> None:
    teacher = masked_language_model(num_layers=6).eval()
    student = half_of(teacher).eval()
    config = student.describe()
    assert (config["encoder"]["num_segments"], config["encoder"]["pooler"]) == (0, False)
    assert config["head"]["next_sentence"] is False
    own, theirs = student.state_dict(), teacher.state_dict()
    for number, layer in enumerate((0, 2, 5)):
        names = [name for name in own if name.startswith(f"encoder.layers.{number}.")]
        assert names
        for name in names:
            assert torch.equal(own[name], theirs[name.replace(f"layers.{number}.", f"layers.{layer}.", 1)]), name
    for name in ("encoder.embedding.weight", "encoder.embedding_norm.weight", "head.dense.weight", "head.output.bias"):
        assert torch.equal(own[name], theirs[name])
    batch = replace(next(iter(texts().batches(0))), segments=None)
    with torch.no_grad():
        below = [model.encoder(batch, keep="all").layers[0] for model in (student, teacher)]
    assert torch.allclose(*below, atol=1e-6)  # the first segment's vector is in the positions now
    student.encoder.embedding.weight.data.zero_()
    assert theirs["encoder.embedding.weight"].abs().sum() > 0


OTHERS: dict[str, dict[str, Any]] = {
    "gpt": {"name": "gpt", "num_heads": 2, "max_length": 30},
    "xl": {"name": "transformer_xl", "num_heads": 2, "hidden_dim": 10, "memory_length": 12},
    "xl-adaptive": {
        "name": "transformer_xl",
        "num_heads": 2,
        "hidden_dim": 10,
        "memory_length": 12,
        "cutoffs": [6, 15],
    },
    "qrnn": {"name": "awd_lstm", "cell": "qrnn", "hidden_dim": 8},
    "backward": {"name": "awd_lstm", "direction": "right", "hidden_dim": 8},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", OTHERS)
def test_every_family_has_a_half_that_learns(family: str) -> None:
    """As long as it takes to hand a state on; the layers are the teacher's own, and move without it."""
    encoder = {"vocab_size": VOCAB, "embedding_dim": 8, "num_layers": 5, **OTHERS[family]}
    head = {"name": "language_model", "vocab_size": VOCAB, "input_dim": 8}
    teacher = build({"encoder": encoder, "head": head | ({"output_layer": "adaptive"} if "cutoffs" in encoder else {})})
    teacher.eval()
    student = half_of(teacher)
    assert [len(m.encoder.layers) for m in (student, teacher)] == [3, 5]  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in teacher.values().items()}
    for number, layer in enumerate((0, 2, 4)):
        own = dict(student.named_parameters(prefix="")).items()
        for name, value in own:
            if name.startswith(f"encoder.layers.{number}."):
                assert torch.equal(value, before[name.replace(f"layers.{number}.", f"layers.{layer}.", 1)]), name
    stage = Stage((Phase("p", 1, 0.01),), batch_size=4, bptt=20)
    stream = objective(student, "student").stream(student, Tokens(9600), None, stage, 0)  # type: ignore[arg-type]
    taught = DistilledModel(student, LanguageModelDistillation(teacher, 2.0, 5.0, 2.0, 1.0))
    run = Run(taught, [Phase("p", 1, 0.01)], stream, Settings(precision="fp32"))
    losses = [step.loss for step in run.steps()]
    assert sum(losses[-20:]) < sum(losses[:20])
    assert all(torch.equal(before[name], value) for name, value in teacher.values().items())


def test_layers_that_do_not_fit_and_a_single_one_are_explained() -> None:
    assert half_of(language_model(num_layers=3)).describe()["encoder"]["num_layers"] == 2
    with pytest.raises(UserError, match="which the student would have, do not match"):
        half_of(language_model(num_layers=2))
    with pytest.raises(UserError, match="one layer cannot be halved"):
        half_of(language_model(num_layers=1, hidden_dim=6))


def test_a_fresh_half_has_the_shape_and_nothing_else() -> None:
    teacher = masked_language_model(num_layers=4)
    one, again, other = (fresh_half_of(teacher, seed=seed) for seed in (1, 1, 2))
    assert one.describe() == half_of(teacher).describe()
    name = "encoder.embedding.weight"
    assert torch.equal(one.values()[name], again.values()[name])
    assert not torch.equal(one.values()[name], other.values()[name])
    assert not torch.equal(one.values()[name], teacher.values()[name])


def test_vectors_of_other_widths_have_no_angle() -> None:
    teacher = masked_language_model(width=8)
    student = masked_language_model(width=16)
    with pytest.raises(UserError, match="16 dimensions, the teacher's 8"):
        LanguageModelDistillation(teacher, 2.0, 5.0, 2.0, 1.0).validate(student)
    lesson = LanguageModelDistillation(teacher.eval(), 2.0, 5.0, 2.0, 0.0)
    lesson.validate(student)
    assert float(DistilledModel(student, lesson).train().loss(next(iter(pairs().batches(0)))).total.detach()) > 0
