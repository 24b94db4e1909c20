"""Every attention score and reach beside the papers' equations, written out in loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.nn.attention import attend, surrounding
from textgraft.nn.attention_scores import (
    REACHES,
    SCORES,
    Hard,
    Location,
    Reach,
    new_attention,
    self_attention_weights,
)

B, S, WIDTH = 3, 7, 6
LENGTHS = (7, 4, 1)


def made(score: str, reach: str = "global", *, key_dim: int = WIDTH, window: int = 2) -> Reach:
    torch.manual_seed(1)
    return new_attention(score, reach, query_dim=WIDTH, key_dim=key_dim, window=window).double()


def drawn(key_dim: int = WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """A query, keys and a mask of rows of unequal lengths."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(B, WIDTH, generator=generator, dtype=torch.float64)
    keys = torch.randn(B, S, key_dim, generator=generator, dtype=torch.float64)
    return query, keys, torch.arange(S) < torch.tensor(LENGTHS)[:, None]


def by_loops(score: str, module: Reach, q: Tensor, k: Tensor, place: int) -> float:
    """One score of one query (Q,) and one key (K,) as its paper has it."""
    inner = module.score
    values = {name: p.detach() for name, p in inner.named_parameters()}
    match score:
        case "dot":
            return sum(float(a) * float(b) for a, b in zip(q, k, strict=True))
        case "scaled_dot":
            return sum(float(a) * float(b) for a, b in zip(q, k, strict=True)) / math.sqrt(len(k))
        case "general":
            w = values["keys.weight"]
            return sum(float(q[i]) * float(w[i, j]) * float(k[j]) for i in range(len(q)) for j in range(len(k)))
        case "additive":
            wq, wk, v = values["query.weight"], values["keys.weight"], values["vector.weight"][0]
            return sum(
                float(v[i]) * math.tanh(sum(float(wq[i, j] * q[j]) for j in range(len(q))) + float(wk[i] @ k))
                for i in range(len(v))
            )
        case "location":
            return float(values["places.weight"][place] @ q)
        case "content":
            strength = math.log1p(math.exp(float(values["strength.weight"][0] @ q) + float(values["strength.bias"])))
            return strength * float(q @ k) / math.sqrt(float(q @ q) * float(k @ k))
    raise AssertionError(score)


@pytest.mark.parametrize("score", SCORES)
def test_scores_are_those_of_the_papers(score: str) -> None:
    module, (query, keys, _) = made(score), drawn()
    found = module.score(query, module.prepared(keys))
    wanted = [[by_loops(score, module, query[b], keys[b, s], s) for s in range(S)] for b in range(B)]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("score", ["general", "additive", "location"])
def test_queries_and_keys_may_differ_in_width(score: str) -> None:
    module, (query, keys, _) = made(score, key_dim=4), drawn(key_dim=4)
    found = module.score(query, module.prepared(keys))
    assert float(found[1, 2].detach()) == pytest.approx(by_loops(score, module, query[1], keys[1, 2], 2))


def weights_by_loops(score: str, module: Reach, reach: str, step: int) -> list[list[float]]:
    query, keys, _ = drawn()
    rows = []
    for b, length in enumerate(LENGTHS):
        scores = [by_loops(score, module, query[b], keys[b, s], s) for s in range(length)]
        centre = float(min(step, length - 1))
        if reach == "local-p":
            named = {name: p.detach() for name, p in module.named_parameters()}
            hidden = torch.tanh(named["hidden.weight"] @ query[b])
            centre = (length - 1) / (1 + math.exp(-float(named["centre.weight"][0] @ hidden)))
        near = [s for s in range(length) if reach in ("global", "hard") or abs(s - centre) <= module.window]
        total = sum(math.exp(scores[s]) for s in near)
        row = [math.exp(scores[s]) / total if s in near else 0.0 for s in range(length)]
        if reach == "local-p":
            deviation = module.window / 2
            row = [w * math.exp(-((s - centre) ** 2) / (2 * deviation**2)) for s, w in enumerate(row)]
        rows.append(row + [0.0] * (S - length))
    return rows


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("step", [0, 3, 9])
def test_weights_are_those_of_the_papers(score: str, reach: str, step: int) -> None:
    """Of texts of unequal lengths, at the first step, amid them, and behind the end of all."""
    module, (query, keys, mask) = made(score, reach), drawn()
    found = module(query, module.prepared(keys), mask, step)
    wanted = torch.tensor(weights_by_loops(score, module, reach, step))
    torch.testing.assert_close(found.float(), wanted, rtol=1e-4, atol=1e-6)


@given(
    score=st.sampled_from(list(SCORES)),
    reach=st.sampled_from(list(REACHES)),
    window=st.integers(1, 9),
    step=st.integers(0, 30),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
)
@settings(max_examples=60)
def test_weights_are_shares_of_what_is_there(score: str, reach: str, window: int, step: int, scale: float) -> None:
    """Never negative, none at padding, 1 in all (no more than 1 under a Gaussian), whatever the sizes."""
    module, (query, keys, mask) = made(score, reach, window=window), drawn()
    found = module(scale * query, module.prepared(scale * keys), mask, step)
    assert bool((found >= 0).all())
    assert bool((found[~mask] == 0).all())
    totals = found.double().sum(dim=1)
    assert bool((totals <= 1 + 1e-6).all())
    if reach != "local-p":
        torch.testing.assert_close(totals, torch.ones(B, dtype=torch.float64))
    else:
        assert bool((totals > 0).all())


def test_hard_attention_samples_by_the_weights_in_training_and_takes_the_highest_elsewhere() -> None:
    module = made("dot", "hard")
    weights = torch.tensor([[0.1, 0.0, 0.6, 0.3, 0.0]])
    assert module.eval().selected(weights).tolist() == [[0, 0, 1, 0, 0]]
    torch.manual_seed(0)
    drawn = module.train().selected(weights.expand(20_000, -1))
    assert bool((drawn.sum(dim=1) == 1).all())
    assert drawn[:, [1, 4]].sum() == 0
    torch.testing.assert_close(drawn.mean(dim=0), weights[0], rtol=0, atol=4 * math.sqrt(0.25 / 20_000))
    torch.manual_seed(3)
    padded = module.selected(torch.nn.functional.pad(weights, (0, 4)).expand(50, -1))
    torch.manual_seed(3)
    assert torch.equal(padded[:, :5], module.selected(weights.expand(50, -1)))


def test_the_gradient_of_hard_attention_by_hand() -> None:
    """Two words of one text: - sum of (gains from the word on) log p - the entropy's share, and the new baseline."""
    module = made("dot", "hard")
    assert isinstance(module, Hard)
    module.baseline.fill_(-1.0)
    weights = torch.tensor([[[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]])
    chosen = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    counted = torch.tensor([[True, True, False]])
    found = module.surrogate(weights, chosen, torch.tensor([[-3.0, -0.5, -9.0]]), counted)
    gains = (-2.0 + 0.5, 0.5)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75) + math.log(2)
    wanted = -gains[0] * math.log(0.25) - gains[1] * math.log(0.5) - Hard.ENTROPY * entropy
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    assert float(module.baseline) == pytest.approx(0.9 * -1.0 + 0.1 * (-3.5 / 2))


def test_self_attention_is_attention_whose_queries_are_the_text() -> None:
    """scaled_dot and global: softmax(X Xᵀ / √K); local-m: the same within a band; hard: one position each."""
    _, x, mask = drawn()
    whole = self_attention_weights(made("scaled_dot"), x, mask)
    scores = (x @ x.transpose(1, 2) / math.sqrt(WIDTH)).masked_fill(~mask[:, None], -torch.inf)
    torch.testing.assert_close(whole, scores.float().softmax(dim=2))
    torch.testing.assert_close(
        whole.double() @ x, attend(*(x[:, None],) * 3, mask[:, None, None])[:, 0], rtol=1e-5, atol=1e-6
    )
    near = self_attention_weights(made("scaled_dot", "local-m", window=2), x, mask)
    banded = scores.masked_fill(~surrounding(S, 2), -torch.inf)
    torch.testing.assert_close(near[0], banded[0].float().softmax(dim=1))
    one = self_attention_weights(made("scaled_dot", "hard").eval(), x, mask)
    assert torch.equal(one.argmax(dim=2), whole.argmax(dim=2))
    assert torch.equal(one.sum(dim=2), torch.ones(B, S))


def test_locations_behind_the_last_that_has_weights_are_not_looked_at() -> None:
    length = Location.LONGEST + 5
    keys, query = torch.randn(1, length, WIDTH), torch.randn(1, WIDTH)
    for reach in ("global", "local-m"):
        attention = new_attention("location", reach, query_dim=WIDTH, key_dim=WIDTH, window=3)
        found = attention(query, attention.prepared(keys), torch.ones(1, length, dtype=torch.bool), 2)
        assert bool((found[0, Location.LONGEST :] == 0).all())
    # A window that lies wholly behind it has no better place to look at, and still adds up to one.
    found = attention(query, attention.prepared(keys), torch.ones(1, length, dtype=torch.bool), length)
    assert float(found.sum().detach()) == pytest.approx(1)


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "content"])
def test_a_score_that_multiplies_unequal_widths_is_refused(score: str) -> None:
    with pytest.raises(UserError, match="width 6 with positions of width 4") as refused:
        made(score, key_dim=4)
    assert "general" in refused.value.remedy


@pytest.mark.parametrize(
    ("score", "reach", "window", "said"),
    [("genral", "global", 1, "Did you mean 'general'"), ("dot", "locl-m", 1, "local-m"), ("dot", "global", 0, "1 or")],
)
def test_attention_that_there_is_not(score: str, reach: str, window: int, said: str) -> None:
    with pytest.raises(UserError) as refused:
        made(score, reach, window=window)
    assert said in str(refused.value)
