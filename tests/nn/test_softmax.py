"""Output layers against the full softmax, brute force and torch's adaptive softmax."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.nn.chunked import chunked_cross_entropy
from textgraft.nn.softmax import (
    OUTPUT_LAYERS,
    AdaptiveSoftmax,
    ChunkedSoftmax,
    FullSoftmax,
    OutputLayer,
    SampledSoftmax,
    inclusion_probabilities,
)

N, D, V = 40, 8, 30


def example(*, ignored: bool = True) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    targets = torch.randint(0, V, (N,))
    if ignored:
        targets[::7] = -100
    return torch.randn(N, D, requires_grad=True), targets


def fresh(layer: OutputLayer) -> OutputLayer:
    """The layer with random values everywhere, biases too."""
    torch.manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def value_and_gradients(layer: OutputLayer, hidden: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
    total, count = layer.loss(hidden, targets)
    assert count == int((targets >= 0).sum())
    return total, list(torch.autograd.grad(total, [hidden, *layer.parameters()]))


@pytest.mark.parametrize("name", sorted(OUTPUT_LAYERS))
@pytest.mark.parametrize("tied", [False, True])
def test_loss_is_minus_the_log_probabilities_of_the_targets(name: str, tied: bool) -> None:
    hidden, targets = example()
    table = nn.Parameter(torch.empty(V, D)) if tied else None
    layer = fresh(OUTPUT_LAYERS[name](V, D, weight=table)).eval()
    total, _ = layer.loss(hidden, targets)
    log_p = layer.log_probs(hidden)
    assert log_p.shape == (N, V)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(N))
    expected = -sum(log_p[i, t] for i, t in enumerate(targets.tolist()) if t != -100)
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("name", sorted(OUTPUT_LAYERS))
def test_a_tied_layer_trains_the_embedding_table(name: str) -> None:
    hidden, targets = example()
    table = nn.Parameter(torch.randn(V, D))
    layer = OUTPUT_LAYERS[name](V, D, weight=table)
    layer.loss(hidden, targets)[0].backward()
    assert any(p is table for p in layer.parameters())
    assert table.grad is not None
    assert (table.grad[targets[targets >= 0]].abs().sum(1) > 0).all()
    with pytest.raises(ValueError, match="tied table"):
        OUTPUT_LAYERS[name](V + 1, D, weight=table)


@pytest.mark.parametrize("name", sorted(OUTPUT_LAYERS))
def test_a_batch_without_targets_counts_nothing(name: str) -> None:
    hidden, targets = example()
    total, count = OUTPUT_LAYERS[name](V, D).loss(hidden, torch.full_like(targets, -100))
    assert (total.item(), count) == (0, 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunked_is_full_in_value_and_gradients(smoothing: float) -> None:
    hidden, targets = example()
    full = fresh(FullSoftmax(V, D, label_smoothing=smoothing))
    chunked = ChunkedSoftmax(V, D, label_smoothing=smoothing)
    chunked.load_state_dict(full.state_dict())
    torch.testing.assert_close(
        value_and_gradients(chunked, hidden, targets), value_and_gradients(full, hidden, targets)
    )


@pytest.mark.parametrize("chunk_rows", [1, 7, 40, 41])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_of_any_size_add_up_even_where_a_targets_probability_vanishes(chunk_rows: int, smoothing: float) -> None:
    hidden, targets = example()
    far = (hidden.detach() * 100).requires_grad_()  # logits hundreds apart: exp of the difference is 0 in float32
    weight, bias = torch.randn(V, D, requires_grad=True), torch.randn(V, requires_grad=True)
    total, count = chunked_cross_entropy(far, weight, bias, targets, label_smoothing=smoothing, chunk_rows=chunk_rows)
    exact = F.cross_entropy(far @ weight.t() + bias, targets, reduction="sum", label_smoothing=smoothing)
    assert count == int((targets >= 0).sum())
    torch.testing.assert_close(total, exact)
    inputs = [far, weight, bias]
    torch.testing.assert_close(
        torch.autograd.grad(total, inputs), torch.autograd.grad(exact, inputs), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("chunk_rows", [7, 41])
def test_what_is_done_to_a_few_rows_at_a_time_is_done_to_all(
    chunk_rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighed, smoothed and biased, three rows at a time; beside all rows of a chunk at once."""
    hidden, targets = (t.detach() for t in example())
    weights = torch.rand(len(targets))
    leaves = [hidden.to(dtype), torch.randn(V, D).to(dtype), torch.randn(V).to(dtype)]

    def answer(in_cache: int) -> list[torch.Tensor]:
        monkeypatch.setattr("textgraft.nn.chunked.IN_CACHE", in_cache)
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        total, _ = chunked_cross_entropy(
            inputs[0], inputs[1], inputs[2], targets, weights=weights, label_smoothing=0.1, chunk_rows=chunk_rows
        )
        return [total.detach(), *torch.autograd.grad(3 * total, inputs)]

    for few, whole in zip(answer(3 * V), answer(1 << 20), strict=True):
        torch.testing.assert_close(few, whole, rtol=1e-6 if dtype == torch.float32 else 2**-7, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_adaptive_is_a_head_softmax_times_a_cluster_softmax(tied: bool) -> None:
    # Grave et al. 2017: p(w) = p_head(w) on the shortlist, else p_head(cluster of w) * p_cluster(w), token by token.
    hidden, _ = example()
    table = nn.Parameter(torch.empty(V, D)) if tied else None
    layer = AdaptiveSoftmax(V, D, weight=table, cutoffs=[5, 12], div_value=2)
    fresh(layer)
    bias, cluster_bias = layer.bias, layer.cluster_bias
    assert bias is not None
    assert cluster_bias is not None
    for row, log_p in zip(hidden, layer.log_probs(hidden), strict=True):
        rows = [table[w] if table is not None else layer.weights[0][w] for w in range(5)]
        scores = torch.stack([row @ v for v in [*rows, *layer.cluster_weight]])
        head = (scores + torch.cat([bias[:5], cluster_bias])).softmax(0)
        expected = [head[w] for w in range(5)]
        for i, (low, high) in enumerate([(5, 12), (12, V)]):
            inside = row if table is not None else layer.projections[i] @ row
            vectors = table[low:high] if table is not None else layer.weights[i + 1]
            cluster = (vectors @ inside + bias[low:high]).softmax(0)
            expected += [head[5 + i] * p for p in cluster]
        torch.testing.assert_close(log_p.exp(), torch.stack(expected))


def test_adaptive_is_torchs_in_value_and_gradients() -> None:
    hidden, targets = example(ignored=False)
    layer = fresh(AdaptiveSoftmax(V, D, cutoffs=[5, 12], div_value=2, bias=False))
    assert isinstance(layer, AdaptiveSoftmax)
    reference = nn.AdaptiveLogSoftmaxWithLoss(D, V, cutoffs=[5, 12], div_value=2, head_bias=False)
    reference.load_state_dict(
        {
            "head.weight": torch.cat([layer.weights[0], layer.cluster_weight]),
            "tail.0.0.weight": layer.projections[0],
            "tail.0.1.weight": layer.weights[1],
            "tail.1.0.weight": layer.projections[1],
            "tail.1.1.weight": layer.weights[2],
        }
    )
    torch.testing.assert_close(layer.log_probs(hidden), reference.log_prob(hidden))
    total, _ = layer.loss(hidden, targets)
    expected = reference(hidden, targets).loss * N
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(torch.autograd.grad(total, hidden), torch.autograd.grad(expected, hidden))
    ours = torch.autograd.grad(layer.loss(hidden, targets)[0], [*layer.weights, *layer.projections])
    theirs = torch.autograd.grad(reference(hidden, targets).loss * N, list(reference.parameters()))
    torch.testing.assert_close(ours[0], theirs[0][:5])
    for mine, other in zip([ours[3], ours[1], ours[4], ours[2]], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("cutoffs", [[0, 5], [5, 5], [5, V], [12, 5]])
def test_adaptive_refuses_impossible_cutoffs(cutoffs: list[int]) -> None:
    with pytest.raises(ValueError, match="cutoffs must rise"):
        AdaptiveSoftmax(V, D, cutoffs=cutoffs)


def test_sampled_with_every_class_sampled_is_full_in_value_and_gradients() -> None:
    hidden, targets = example()
    full = fresh(FullSoftmax(V, D))
    sampled = SampledSoftmax(V, D, num_samples=V)
    sampled.load_state_dict(full.state_dict())
    torch.testing.assert_close(
        value_and_gradients(sampled, hidden, targets), value_and_gradients(full, hidden, targets)
    )


def over_all_samples(layer: SampledSoftmax, of_draw: Callable[[], Tensor]) -> Tensor:
    """The exact expectation of `of_draw()` over Poisson sampling, by brute force over every possible sample."""
    inclusion = layer.inclusion.clone()
    expected = torch.zeros(())
    for drawn in itertools.product([False, True], repeat=len(inclusion)):
        chosen = torch.tensor(drawn)
        probability = torch.where(chosen, inclusion, 1 - inclusion).prod()
        if probability > 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch, "rand_like", lambda *_, c=chosen: torch.where(c, -1.0, 2.0))
                expected = expected + probability * of_draw()
    return expected


def test_sampled_partition_function_is_unbiased() -> None:
    torch.manual_seed(0)
    layer = fresh(SampledSoftmax(6, D, num_samples=3))
    assert isinstance(layer, SampledSoftmax)
    layer.inclusion = inclusion_probabilities(torch.tensor([6.0, 5, 4, 3, 2, 1]), 3)
    hidden, targets = torch.randn(4, D), torch.tensor([0, 2, 5, 3])
    assert layer.bias is not None
    logits = hidden @ layer.weight.t() + layer.bias
    of_target = logits.gather(1, targets[:, None]).squeeze(1)

    def partition() -> Tensor:
        losses = [layer.loss(hidden[i : i + 1], targets[i : i + 1])[0] for i in range(4)]
        return (torch.stack(losses) + of_target).exp()

    torch.testing.assert_close(over_all_samples(layer, partition), logits.exp().sum(1))


def test_sampled_gradient_is_the_full_one_in_expectation_up_to_a_bias_that_the_sample_size_removes() -> None:
    torch.manual_seed(0)
    hidden, targets = torch.randn(3, D, requires_grad=True), torch.tensor([0, 2, 7])
    layer = SampledSoftmax(8, D, num_samples=8)
    exact = torch.autograd.grad(layer.loss(hidden, targets)[0], hidden)[0]
    errors = []
    for share in (0.25, 0.5, 0.75, 0.99):
        layer.inclusion = torch.full((8,), share)
        mean = over_all_samples(layer, lambda: torch.autograd.grad(layer.loss(hidden, targets)[0], hidden)[0])
        errors.append(float((mean - exact).norm() / exact.norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.01


def test_sampling_follows_its_probabilities() -> None:
    torch.manual_seed(0)
    layer = SampledSoftmax(1000, D, num_samples=100)
    inclusion = layer.inclusion
    assert inclusion.sum().item() == pytest.approx(100, rel=1e-4)
    ratio = inclusion[200] / inclusion[400]  # log-uniform: p_j ~ log(1 + 1 / (j + 1))
    assert ratio.item() == pytest.approx(math.log1p(1 / 201) / math.log1p(1 / 401), rel=1e-4)
    counts = torch.arange(1000, 0, -1)
    by_counts = SampledSoftmax(1000, D, num_samples=100, counts=counts).inclusion
    assert (by_counts[0] / by_counts[984]).item() == pytest.approx((1000 / 16) ** 0.75, rel=1e-4)


def test_inclusion_probabilities_are_capped_at_one_and_sum_to_the_sample_size() -> None:
    found = inclusion_probabilities(torch.tensor([100.0, 50.0, 1.0, 1.0, 2.0]), 3)
    torch.testing.assert_close(found, torch.tensor([1.0, 1.0, 0.25, 0.25, 0.5]))
    assert inclusion_probabilities(torch.rand(5), 9).tolist() == [1] * 5


@pytest.mark.parametrize("name", sorted(OUTPUT_LAYERS))
def test_started_from_counts_a_layer_says_how_frequent_tokens_are(name: str) -> None:
    counts = torch.randint(0, 100, (V,), generator=torch.Generator().manual_seed(0)).sort(descending=True).values
    layer = fresh(OUTPUT_LAYERS[name](V, D))
    layer.start_from_counts(counts)
    p = layer.log_probs(torch.zeros(1, D))[0].exp()
    torch.testing.assert_close(p, (counts + 0.5) / (counts + 0.5).sum())
    with pytest.raises(ValueError, match="counts are"):
        layer.start_from_counts(counts[1:])
    with pytest.raises(ValueError, match="no biases"):
        OUTPUT_LAYERS[name](V, D, bias=False).start_from_counts(counts)


@pytest.mark.parametrize("name", ["adaptive", "sampled"])
def test_label_smoothing_is_refused_where_it_cannot_be(name: str) -> None:
    with pytest.raises(UserError, match="label smoothing"):
        OUTPUT_LAYERS[name](V, D, label_smoothing=0.1)


@pytest.mark.parametrize("name", sorted(OUTPUT_LAYERS))
def test_loss_under_bfloat16_is_close_to_float32(name: str) -> None:
    hidden, targets = example()
    layer = fresh(OUTPUT_LAYERS[name](V, D)).eval()
    exact, _ = layer.loss(hidden, targets)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = layer.loss(hidden, targets)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.01, atol=0)
