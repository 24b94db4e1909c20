"""Which chip computes: chosen by name, never part of what a run is; the other devices' operations learn the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from small_models import Tokens, classifier, copied, examples, language_model

from textgraft.core import device
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.base import LanguageModelStream, ahead
from textgraft.models.inference import embed_sequences, predict_logits
from textgraft.models.model import Model, build
from textgraft.nn import chunked
from textgraft.nn.chunked import COMPILED_FROM, chunked_cross_entropy
from textgraft.nn.recurrent import LSTMLayer
from textgraft.training import driver
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def chunked_model() -> Model:
    description = language_model(truncate=6).describe()
    description["head"]["output_layer"] = "chunked"
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build(description)


def lm_run(settings: Settings) -> Run:
    return Run(chunked_model(), [Phase("p", 1, 0.01)], LanguageModelStream(Tokens(), rows=4, bptt=20), settings)


def test_names() -> None:
    assert device.resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match=r"unknown device 'cdua'.*'cuda'"):
        Settings(device="cdua")


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.resolve_device("auto").type == "cpu"  # the suite looks away from GPUs: see conftest.py
    monkeypatch.setattr(device, "has_cuda", lambda: True)
    assert device.resolve_device("auto").type == "cuda"


def test_without_a_gpu_cuda_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"no device 'cuda'.*device=.cpu."):
        Settings(device="cuda")


def test_the_device_does_not_identify_a_run() -> None:
    assert Settings(device="cpu").identity() == Settings(device="auto").identity()
    assert "device" not in Settings().identity()


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10G", None),
        ("Tesla T4", None),
        ("cpu", None),
    ],
)
def test_peaks_by_name(name: str, tera: float | None) -> None:
    assert device.peak(name) == (None if tera is None else tera * 1e12)


@pytest.mark.parametrize("tied", [True, False])
def test_only_matrices_that_multiply_are_counted(tied: bool) -> None:
    description = language_model().describe()
    description["head"]["tied"] = tied
    first, second = 4 * 8 * (6 + 8), 4 * 6 * (8 + 6)  # widths 6 -> 8 -> 6, four gates of input and recurrent weights
    assert build(description).multiplied() == first + second + 30 * 6  # the output table, once; no table looked up in


def test_the_progress_line_says_the_share_of_the_peak_only_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    run = lm_run(Settings(precision="bf16"))
    (step,) = islice(run.steps(), 1)
    step = replace(step, tokens=2_000_000, seconds=4.0)
    assert "of peak" not in driver._detail(step, driver._share_of_peak(run))
    monkeypatch.setattr(driver, "device_name", lambda _: "NVIDIA H200")
    share = driver._share_of_peak(run)
    assert share == pytest.approx(6 * run.model.multiplied() / 989e12)
    half = 989e12 / 2 / (6 * run.model.multiplied())
    assert driver._detail(replace(step, tokens=round(half * 4), seconds=4.0), share).split("  ")[3] == "50.0% of peak"
    assert driver._share_of_peak(lm_run(Settings(precision="fp32"))) is None


def test_a_batch_moves_whole() -> None:
    batch = Batch(torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool), targets=torch.ones(2))
    moved = batch.to(torch.device("meta"))
    assert {t.device.type for t in (moved.ids, moved.mask, moved.targets) if t is not None} == {"meta"}
    assert moved.rows is None
    assert batch.to(torch.device("cpu")) is batch


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the processor computes as any other device would."""
    for module in ("recurrent", "chunked"):
        monkeypatch.setattr(f"textgraft.nn.{module}.on_cpu", lambda _: False)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_other_devices_operations_learn_the_same(
    precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(precision=precision)
    expected = [step.loss for step in lm_run(settings).steps()]
    elsewhere(monkeypatch)
    found = [step.loss for step in lm_run(settings).steps()]
    assert found == pytest.approx(expected, rel=tolerance)
    assert len(found) > 10
    if precision == "bf16":
        assert found != expected  # they are other operations


def test_other_devices_products_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six chunks of rows on the processor, one elsewhere; loss and gradients of hidden vectors, weights and biases."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(600, 8, generator=generator), torch.randn(50, 8, generator=generator)
    bias, targets = torch.randn(50, generator=generator), torch.randint(50, (600,), generator=generator)
    targets[::7] = -100

    def gradients(rows: int | None) -> list[torch.Tensor]:
        leaves = [t.clone().requires_grad_() for t in (hidden, weight, bias)]
        total, count = chunked_cross_entropy(*leaves, targets, chunk_rows=rows)
        assert count == 514
        return [total.detach(), *torch.autograd.grad(total, leaves)]

    expected = gradients(100)
    elsewhere(monkeypatch)
    for value, right in zip(gradients(None), expected, strict=True):
        torch.testing.assert_close(value, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_what_is_compiled_on_a_gpu_says_the_same(
    smoothing: float, with_bias: bool, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that a GPU has compiled, as it stands, over a whole chunk and a part of one."""
    monkeypatch.setattr(chunked, "_compiled", lambda: chunked._gradients_in_place)
    monkeypatch.setattr(chunked, "CHUNK_ROWS", {True: 512, False: 40})
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(61, 8, generator=generator), torch.randn(50, 8, generator=generator)
    bias = torch.randn(50, generator=generator) if with_bias else None
    weights = torch.rand(61, generator=generator) if weighted else None
    targets = torch.randint(50, (61,), generator=generator)
    targets[::7] = -100
    leaves = [t.requires_grad_() for t in (hidden, weight, bias) if t is not None]
    total, _ = chunked_cross_entropy(hidden, weight, bias, targets, weights=weights, label_smoothing=smoothing)
    expected = [total.detach(), *torch.autograd.grad(total, leaves)]
    with torch.no_grad():
        found = chunked._compiled_loss(hidden, weight, bias, targets, weights, smoothing)
    assert (found[-1] is None) == (bias is None)
    for value, right in zip((v for v in found if v is not None), expected, strict=True):
        torch.testing.assert_close(value.float(), right, rtol=1e-5, atol=1e-5)


def test_batches_made_ahead_are_the_same_batches() -> None:
    stream = LanguageModelStream(Tokens(), rows=4, bptt=20)
    expected, found = list(stream.batches(0)), list(ahead(stream.batches(0)))
    assert len(found) == len(expected) == stream.length(0)
    for batch, other in zip(found, expected, strict=True):
        assert torch.equal(batch.ids, other.ids)
        assert torch.equal(batch.targets, other.targets)  # type: ignore[arg-type]


def test_what_goes_wrong_ahead_is_said_where_the_batch_is_asked_for() -> None:
    def broken() -> Iterator[Batch]:
        yield from islice(LanguageModelStream(Tokens(), rows=4, bptt=20).batches(0), 2)
        raise UserError("the disk is gone.")

    batches = ahead(broken())
    assert len(list(islice(batches, 2))) == 2
    with pytest.raises(UserError, match="the disk is gone"):
        next(batches)


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    """The distance of a from b, in lengths of b."""
    a, b = (t.detach().cpu().double() for t in (a, b))
    return float((a - b).norm() / b.norm())


@needs_cuda
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-3), ("bf16", 2e-2)])
def test_a_gpus_lstm_is_the_processors(precision: str, tolerance: float) -> None:
    torch.manual_seed(0)
    here, x = LSTMLayer(64, 128), torch.randn(30, 16, 64)
    there = LSTMLayer(64, 128).cuda()
    there.load_state_dict(here.state_dict())

    def learned(layer: LSTMLayer, x: torch.Tensor, *, low: bool = False) -> list[torch.Tensor]:
        x.requires_grad_()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=low):
            h, _ = layer(x)
        h.float().square().sum().backward()
        return [h, *(t.grad for t in (x, *layer.parameters()) if t.grad is not None)]

    found, expected = learned(there, x.cuda(), low=precision == "bf16"), learned(here, x)
    assert max(far(a, b) for a, b in zip(found, expected, strict=True)) < tolerance


@needs_cuda
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1000, COMPILED_FROM + 777])
def test_a_gpus_cross_entropy_is_the_processors(rows: int, smoothing: float) -> None:
    """In bfloat16, with few rows by single operations and with many compiled."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(shape, generator=generator) for shape in ((rows, 64), (500, 64), (500,))]
    leaves[1] *= 0.2
    targets = torch.randint(0, 500, (rows,), generator=generator)
    targets[::7] = -100
    learned = []
    for where in ("cpu", "cuda"):
        given = [t.to(where).requires_grad_() for t in leaves]
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=where == "cuda"):
            total, count = chunked_cross_entropy(*given, targets.to(where), label_smoothing=smoothing)
        learned.append([total, *torch.autograd.grad(total, given)])
        assert count == int((targets >= 0).sum())
    expected, found = learned
    assert far(found[0], expected[0]) < 1e-4
    assert max(far(a, b) for a, b in zip(found[1:], expected[1:], strict=True)) < 1e-2


@needs_cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_takes_the_processors_steps(precision: str) -> None:
    """Without dropout, whose draws differ by device: losses of three steps, then the weights."""

    def steps(where: str) -> tuple[list[float], Model]:
        plain = {k: 0.0 if k.endswith("dropout") else v for k, v in chunked_model().describe()["encoder"].items()}
        head = chunked_model().describe()["head"] | {"output_dropout": 0.0}
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = build({"encoder": plain, "head": head})
        stream = LanguageModelStream(Tokens(), rows=4, bptt=20)
        run = Run(model, [Phase("p", 1, 0.01)], stream, Settings(precision=precision, device=where))
        return [step.loss for step in islice(run.steps(), 3)], model

    on_cpu, expected = steps("cpu")
    on_gpu, found = steps("cuda")
    assert found.device.type == "cuda"
    assert on_gpu == pytest.approx(on_cpu, rel=1e-2)
    for name, value in copied(expected).items():
        torch.testing.assert_close(copied(found)[name].cpu(), value, rtol=1e-2, atol=1e-2, msg=name)


@needs_cuda
@pytest.mark.parametrize("there", ["cpu", "cuda"])
@pytest.mark.parametrize("here", ["cpu", "cuda"])
def test_a_run_goes_on_on_another_device(here: str, there: str, tmp_path: Path) -> None:
    first = lm_run(Settings(precision="fp32", device=here))
    list(islice(first.steps(), 5))
    first.save(tmp_path / "checkpoint")
    again = lm_run(Settings(precision="fp32", device=there))
    again.resume(tmp_path / "checkpoint")
    left = [step.loss for step in again.steps()]
    assert left == pytest.approx([step.loss for step in first.steps()], rel=0.2)  # dropout differs by device
    assert again.progress.tokens == first.progress.tokens
    assert {p.device.type for p in again.model.parameters()} == {there}


@needs_cuda
def test_a_classifier_trained_on_a_gpu_answers_as_on_the_processor() -> None:
    model = classifier()
    list(Run(model, [Phase("p", 1, 0.01)], examples(), Settings(device="cuda")).steps())
    sequences = examples().sequences
    answers = [predict_logits(model, sequences, 1, "fp32"), embed_sequences(model, sequences, 1, precision="fp32")]
    model.cpu()
    again = [predict_logits(model, sequences, 1, "fp32"), embed_sequences(model, sequences, 1, precision="fp32")]
    for found, expected in zip(answers, again, strict=True):
        assert found == pytest.approx(expected, rel=1e-2, abs=1e-3)
