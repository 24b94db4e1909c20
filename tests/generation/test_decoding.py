"""Decoding beside brute force: what may be drawn, how often it is, what a penalty does, how texts end."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.generation.decoding import GenerateOptions, Tokens, beam_search, filter_logits, process_logits, write
from textgraft.models.model import Model, build

V = 7
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {"name": "gpt", "embedding_dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 24},
    "lstm": {"name": "awd_lstm", "embedding_dim": 8, "hidden_dim": 6, "num_layers": 2},
    "qrnn": {"name": "awd_lstm", "embedding_dim": 8, "hidden_dim": 6, "num_layers": 2, "cell": "qrnn"},
}
PROMPTS = [[1, 2, 3], [4], [5, 6, 1, 2, 2], [3]]
NO_END = Tokens(frozenset())
every_family = pytest.mark.parametrize("family", FAMILIES)


def model_of(family: str) -> Model:
    torch.manual_seed(0)
    head = {"name": "language_model", "vocab_size": V, "input_dim": 8}
    model = build({"encoder": {**FAMILIES[family], "vocab_size": V}, "head": head}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def exact(**settings: Any) -> GenerateOptions:
    return GenerateOptions(precision="fp32", **settings)


def log_probs(model: Model, ids: list[int]) -> Tensor:
    """(T, V) of one text without state, cache or padding."""
    with torch.no_grad():
        tensor = torch.tensor([ids])
        return model(Batch(tensor, torch.ones_like(tensor, dtype=torch.bool)))[0]


def collected(model: Model, prompts: list[list[int]], options: GenerateOptions, tokens: Tokens = NO_END) -> Any:
    rows: list[list[int]] = [[] for _ in prompts]
    shares, endings = [0.0] * len(prompts), [None] * len(prompts)
    for new in write(model, prompts, options, tokens):
        assert endings[new.row] is None
        rows[new.row].append(new.token)
        shares[new.row] += new.log_probability
        endings[new.row] = new.ended
    return rows, shares, endings


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0]), min_size=1, max_size=8), st.integers(1, 9))
def test_top_k_by_counting(values: list[float], k: int) -> None:
    kept = filter_logits(torch.tensor([values]), top_k=k)[0].isfinite().tolist()
    assert kept == [sum(other > value for other in values) < k for value in values]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=7, unique=True), st.floats(0.01, 1))
def test_top_p_is_the_smallest_set_that_reaches_it(values: list[float], p: float) -> None:
    scores = torch.tensor([values])
    shares = scores.double().softmax(dim=1)[0].tolist()
    kept = filter_logits(scores, top_p=p)[0].isfinite().tolist()
    mass = math.fsum(s for s, k in zip(shares, kept, strict=True) if k)
    assert mass >= p - 1e-9
    sizes = [
        n for n in range(1, len(values) + 1) if max(math.fsum(c) for c in itertools.combinations(shares, n)) >= p + 1e-9
    ]
    assert sum(kept) <= min(sizes, default=len(values))
    least = min(s for s, k in zip(shares, kept, strict=True) if k)
    assert all(s <= least for s, k in zip(shares, kept, strict=True) if not k)


@every_family
def test_greedy_by_whole_passes(family: str) -> None:
    model = model_of(family)
    rows, shares, endings = collected(model, PROMPTS, exact(max_tokens=9))
    assert endings == ["length"] * 4
    for prompt, row, share in zip(PROMPTS, rows, shares, strict=True):
        ids, total = list(prompt), 0.0
        for _ in range(9):
            last = log_probs(model, ids)[-1]
            total += float(last.max())
            ids.append(int(last.argmax()))
        assert row == ids[len(prompt) :]
        assert share == pytest.approx(total, abs=1e-4)


@pytest.mark.slow
@every_family
def test_enough_beams_find_the_likeliest_text(family: str) -> None:
    """With as many beams as there are texts of three tokens, search is exhaustive."""
    model, steps = model_of(family), 3
    options = exact(max_tokens=steps, beams=V**2, length_penalty=0.0)
    for prompt, found in zip(PROMPTS, beam_search(model, PROMPTS, options, NO_END), strict=True):
        scores = {
            ids: sum(float(log_probs(model, [*prompt, *ids])[len(prompt) - 1 + i, ids[i]]) for i in range(steps))
            for ids in itertools.product(range(V), repeat=steps)
        }
        best = max(scores, key=scores.__getitem__)
        assert tuple(found.ids) == best
        assert found.log_probability == pytest.approx(scores[best], abs=1e-4)


@pytest.mark.slow
@every_family
def test_draws_follow_the_model(family: str) -> None:
    """4,000 first tokens at temperature 0.7, of the fewest tokens that reach 0.9, against their probabilities."""
    model, n = model_of(family), 4000
    options = exact(max_tokens=1, temperature=0.7, top_p=0.9, seed=1)
    rows, _, _ = collected(model, [[1, 2, 3]] * n, options)
    expected = filter_logits(log_probs(model, [1, 2, 3])[-1:] / 0.7, top_p=0.9).softmax(dim=1)[0].tolist()
    assert 1 < sum(p > 0 for p in expected) < V
    counts = Counter(row[0] for row in rows)
    for token, p in enumerate(expected):
        assert abs(counts[token] / n - p) <= 4 * math.sqrt(p * (1 - p) / n)


def test_a_seed_draws_the_same_again_and_rows_draw_their_own() -> None:
    model = model_of("gpt")
    options = exact(max_tokens=12, temperature=1.0, seed=3)
    rows, _, _ = collected(model, [[1]] * 3, options)
    assert collected(model, [[1]] * 3, options)[0] == rows
    assert collected(model, [[1]], options)[0][0] == rows[0]
    assert rows[0] != rows[1] != rows[2]
    assert collected(model, [[1]], exact(max_tokens=12, temperature=1.0, seed=4))[0][0] != rows[0]


def test_a_penalty_lowers_the_scores_of_what_was_written() -> None:
    scores = torch.tensor([[0.5, 2.0, -1.0, 0.0, -3.0, 1.0, 4.0], [1.0, -2.0, 3.0, 0.0, 0.1, 0.2, 0.3]])
    changed = process_logits(scores, [[1, 1, 4], [2]], exact(repetition_penalty=1.5), never=(6,))
    for row, seen in enumerate([{1: 2 / 1.5, 4: -3 * 1.5}, {2: 3 / 1.5}]):
        for token in range(V):
            expected = -math.inf if token == 6 else seen.get(token, float(scores[row, token]))
            assert float(changed[row, token]) == pytest.approx(expected)


@every_family
def test_greedy_with_a_penalty_by_whole_passes(family: str) -> None:
    """Of logits, and the log probability that is told is the model's own, without the penalty."""
    model, penalty = model_of(family), 2.5
    rows, shares, _ = collected(model, PROMPTS, exact(max_tokens=9, repetition_penalty=penalty))
    for prompt, row, share in zip(PROMPTS, rows, shares, strict=True):
        ids, total = list(prompt), 0.0
        for _ in range(9):
            with torch.no_grad():
                tensor = torch.tensor([ids])
                top = model.encoder(Batch(tensor, torch.ones_like(tensor, dtype=torch.bool))).top[:, -1]
                logits = model.head.output.logits(top)[0].tolist()
            new = [(x / penalty if x > 0 else x * penalty) if i in ids else x for i, x in enumerate(logits)]
            ids.append(max(range(V), key=new.__getitem__))
            total += float(log_probs(model, ids[:-1])[-1, ids[-1]])
        assert row == ids[len(prompt) :]
        assert share == pytest.approx(total, abs=1e-4)
    assert rows != collected(model, PROMPTS, exact(max_tokens=9))[0]


@every_family
def test_ends_and_what_is_never_written(family: str) -> None:
    model = model_of(family)
    rows, _, _ = collected(model, PROMPTS, exact(max_tokens=12))
    end = rows[0][4]
    tokens = Tokens(frozenset({end}))
    cut, _, endings = collected(model, PROMPTS, exact(max_tokens=12), tokens)
    for row, short, ended in zip(rows, cut, endings, strict=True):
        assert short == (row[: row.index(end) + 1] if end in row else row)
        assert ended == ("end" if end in row else "length")
    without, _, _ = collected(model, PROMPTS, exact(max_tokens=12), Tokens(frozenset(), (end,)))
    assert all(end not in row for row in without)


def test_a_text_is_over_where_the_positions_are() -> None:
    """24 positions: a prompt of 20 may be followed by five tokens, the last of which is never read."""
    model = model_of("gpt")
    prompts = [[1] * 20, [2] * 3, [3] * 24]
    rows, _, endings = collected(model, prompts, exact(max_tokens=10))
    assert [len(row) for row in rows] == [5, 10, 1]
    assert endings == ["length"] * 3
    beams = beam_search(model, prompts, exact(max_tokens=10, beams=2), NO_END)
    assert [len(found.ids) for found in beams] == [5, 10, 1]
    with pytest.raises(UserError, match="25 tokens is longer than the 24"):
        collected(model, [[1] * 25], exact(max_tokens=1))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": 1.0, "top_k": 0}, "top_k is 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p is 0"),
        ({"temperature": 1.0, "top_p": 1.5}, "top_p is 1.5"),
        ({"beams": 0}, "beams is 0"),
        ({"repetition_penalty": 0.5}, "repetition_penalty is 0.5"),
        ({"beams": 2, "temperature": 1.0}, "does not sample"),
        ({"top_k": 3}, "Give a temperature too"),
        ({"stop": ("x", "")}, "an empty stop string"),
    ],
)
def test_options_that_cannot_be(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        GenerateOptions(**settings)
