"""Adaptive embeddings and the output layers tied to them, token by token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import build
from textgraft.nn.embedding import AdaptiveEmbedding, Embedding
from textgraft.nn.softmax import AdaptiveSoftmax

V, D, CUTOFFS = 30, 8, [5, 12]


def embedding(div_value: float = 2.0, *, project_first: bool = False) -> AdaptiveEmbedding:
    torch.manual_seed(0)
    made = AdaptiveEmbedding(V, D, cutoffs=CUTOFFS, div_value=div_value, project_first=project_first)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_of_parts_add_up_to_the_whole(tied: bool) -> None:
    """Rows read once, twice, in one part, in both and never; tied, the table is the output layer as well."""
    torch.manual_seed(0)
    ours, theirs = Embedding(V, D), nn.Embedding(V, D)
    theirs.load_state_dict(ours.state_dict())
    parts = [torch.tensor([[1, 1, 2], [3, 4, 4]]), torch.tensor([[2, 2, 5]]), torch.tensor([[0]])]

    def loss(table: nn.Embedding, ids: Tensor) -> Tensor:
        read = table(ids).tanh()
        return (read @ table.weight.T if tied else read).square().sum()

    for ids in parts:
        loss(ours, ids).backward()
        assert ours.weight.grad.layout == torch.strided
    sum(loss(theirs, ids) for ids in parts).backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    assert bool(ours.weight.grad[7].any()) == tied


def vector(made: AdaptiveEmbedding, token: int) -> Tensor:
    which, start = next((i, s) for i, s in ((2, 12), (1, 5), (0, 0)) if token >= s)
    table, projection = made.parts()[which]
    return table[token - start] if projection is None else projection.T @ table[token - start]


@pytest.mark.parametrize(("div_value", "widths"), [(1.0, [8, 8, 8]), (2.0, [8, 4, 2]), (4.0, [8, 2, 1])])
@pytest.mark.parametrize("project_first", [False, True])
def test_each_token_by_its_own_table(div_value: float, widths: list[int], project_first: bool) -> None:
    made = embedding(div_value, project_first=project_first)
    assert [tuple(table.shape) for table, _ in made.parts()] == list(zip([5, 7, 18], widths, strict=True))
    projected = [projection is not None for _, projection in made.parts()]
    assert projected == [project_first, div_value > 1, div_value > 1]
    ids = torch.randint(V, (3, 7))
    found = made(ids)
    assert found.shape == (3, 7, D)
    for row in range(3):
        for t in range(7):
            torch.testing.assert_close(found[row, t], vector(made, int(ids[row, t])))


def test_gradients_reach_the_tokens_that_are_there_and_every_matrix() -> None:
    made = embedding(project_first=True)
    ids = torch.tensor([[0, 4, 5], [11, 12, 29]])
    made(ids).pow(2).sum().backward()
    for (table, projection), rows in zip(made.parts(), ([0, 4], [0, 6], [0, 17]), strict=True):
        assert table.grad is not None
        assert table.grad.abs().sum(dim=1).nonzero()[:, 0].tolist() == rows
        assert projection is not None
        assert projection.grad is not None
        assert projection.grad.abs().min() > 0


@pytest.mark.parametrize("tied_projections", [True, False])
@pytest.mark.parametrize("project_first", [False, True])
def test_tied_it_is_a_head_softmax_times_a_cluster_softmax(tied_projections: bool, project_first: bool) -> None:
    """Each token's score is its vector's product with the hidden one, brought to the width of its cluster."""
    made = embedding(project_first=project_first)
    layer = AdaptiveSoftmax(V, D, weight=made, tied_projections=tied_projections)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    shared = {id(p) for p in layer.parameters()} & {id(p) for p in made.parameters()}
    assert len(shared) == 3 + 2 * tied_projections
    assert (layer.first_projection is not None) == project_first
    assert layer.bias is not None
    assert layer.cluster_bias is not None
    tables = [table for table, _ in made.parts()]
    hidden, targets = torch.randn(12, D, requires_grad=True), torch.randint(V, (12,))
    log_p = layer.log_probs(hidden)
    for row, found in zip(hidden, log_p, strict=True):
        inside = row if layer.first_projection is None else layer.first_projection @ row
        head = torch.cat([tables[0] @ inside + layer.bias[:5], layer.cluster_weight @ inside + layer.cluster_bias])
        expected = head.softmax(0)[:5]
        for i, (low, high) in enumerate([(5, 12), (12, V)]):
            scores = tables[i + 1] @ (layer.projections[i] @ row) + layer.bias[low:high]
            expected = torch.cat([expected, head.softmax(0)[5 + i] * scores.softmax(0)])
        torch.testing.assert_close(found.exp(), expected)
    total, count = layer.loss(hidden, targets)
    assert count == 12
    torch.testing.assert_close(total, -log_p.gather(1, targets[:, None]).sum())
    ours = torch.autograd.grad(total, [hidden, *layer.parameters()])
    theirs = torch.autograd.grad(-log_p.gather(1, targets[:, None]).sum(), [hidden, *layer.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_with_a_division_of_one_it_is_one_table_cut_in_three() -> None:
    made, hidden = embedding(1.0), torch.randn(6, D)
    tied = AdaptiveSoftmax(V, D, weight=made)
    assert len(tied.projections) == 0
    whole = AdaptiveSoftmax(V, D, weight=nn.Parameter(torch.cat([t for t, _ in made.parts()])), cutoffs=CUTOFFS)
    whole.cluster_weight = tied.cluster_weight
    torch.testing.assert_close(tied.log_probs(hidden), whole.log_probs(hidden))


def test_all_tokens_start_equally_long() -> None:
    torch.manual_seed(0)
    made = AdaptiveEmbedding(900, 64, cutoffs=[300, 600], div_value=4.0, project_first=True)
    for ids in torch.arange(900).split(300):
        assert made(ids).std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("cutoffs", [[0, 5], [5, 5], [5, V], [12, 5]])
def test_cutoffs_that_cannot_be(cutoffs: list[int]) -> None:
    with pytest.raises(UserError, match="does not rise"):
        AdaptiveEmbedding(V, D, cutoffs=cutoffs)
    with pytest.raises(UserError, match="wider"):
        AdaptiveEmbedding(V, D, cutoffs=[5], div_value=0.5)


def test_other_output_layers_are_not_tied_to_it() -> None:
    with pytest.raises(UserError, match="several tables"):
        LanguageModelHead(LanguageModelConfig(V, D), embedding())
    with pytest.raises(ValueError, match="tied table"):
        AdaptiveSoftmax(V + 1, D, weight=embedding())
    assert LanguageModelHead(LanguageModelConfig(V, D, tied=False), embedding()).output.vocab_size == V


def test_weights_that_a_token_is_multiplied_with() -> None:
    """Tables that the input alone looks up are none; tied ones are, each once."""
    encoder = {"name": "transformer_xl", "vocab_size": V, "embedding_dim": D, "hidden_dim": 4, "num_layers": 1}
    encoder |= {"num_heads": 2, "cutoffs": CUTOFFS, "div_value": 2.0}
    head = {"name": "language_model", "vocab_size": V, "input_dim": D, "output_layer": "adaptive"}
    block, biases, matrices = 5 * D * D + 2 * 4 * D, 2 * D, (4 + 2) * D
    tables, clusters = 5 * D + 7 * 4 + 18 * 2, 2 * D
    tied = build({"encoder": encoder, "head": head})
    assert tied.multiplied() == block + biases + matrices + tables + clusters
    untied = build({"encoder": encoder, "head": {**head, "tied": False}})
    of_head = 3 * D + 12 * 2 + 15 * 1 + 2 * D + 2 * D + 1 * D  # its own cutoffs: 3 and 15; each a quarter as wide
    assert untied.multiplied() == block + biases + matrices + of_head
