"""Greedy and beam search beside transformers' generate, same tiny random weights, prompts padded on the left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from textgraft.conversion.gpt import from_huggingface
from textgraft.generation.decoding import GenerateOptions, Tokens, beam_search, filter_logits, process_logits, write
from textgraft.models.model import Model

transformers = pytest.importorskip("transformers")

V, END = 31, 0
PROMPTS = [[5, 9, 2, 17, 4], [8], [3, 3, 21], [30, 1, 2, 3, 4, 5, 6, 7]]


def exact(**settings: Any) -> GenerateOptions:
    return GenerateOptions(precision="fp32", **settings)


@pytest.fixture(scope="module", params=[0, 1, 2])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Model]:
    """transformers' model and ours; weights so large that the likeliest tokens differ from step to step."""
    torch.manual_seed(request.param)
    config = transformers.GPT2Config(
        vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=40, bos_token_id=END, eos_token_id=END
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return theirs, from_huggingface(theirs.config.to_dict(), theirs.state_dict())


def their_ids(theirs: Any, max_tokens: int, **settings: Any) -> list[list[int]]:
    """What transformers appends to each prompt, up to and with the first end token."""
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[END] * (width - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in PROMPTS])
    settings |= {"do_sample": False, "pad_token_id": END, "max_new_tokens": max_tokens}
    found = theirs.generate(ids, attention_mask=mask, **settings)[:, width:].tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in found]


def test_greedy(pair: tuple[Any, Model]) -> None:
    theirs, ours = pair
    found: list[list[int]] = [[] for _ in PROMPTS]
    endings = {}
    for new in write(ours, PROMPTS, exact(max_tokens=20), Tokens(frozenset({END}))):
        found[new.row].append(new.token)
        endings[new.row] = new.ended
    assert found == their_ids(theirs, 20)
    assert endings == {row: "end" if ids[-1] == END else "length" for row, ids in enumerate(found)}
    assert len({token for ids in found for token in ids}) > 3


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("beams", [2, 4])
def test_beam_search(pair: tuple[Any, Model], beams: int, length_penalty: float) -> None:
    theirs, ours = pair
    for max_tokens in (1, 6, 15):
        options = exact(max_tokens=max_tokens, beams=beams, length_penalty=length_penalty)
        found = [f.ids for f in beam_search(ours, PROMPTS, options, Tokens(frozenset({END})))]
        assert found == their_ids(theirs, max_tokens, num_beams=beams, length_penalty=length_penalty)


def test_beam_search_with_a_repetition_penalty(pair: tuple[Any, Model]) -> None:
    """transformers counts the padding as repeated tokens, so each prompt goes alone."""
    theirs, ours = pair
    options = exact(max_tokens=12, beams=3, repetition_penalty=1.7)
    for prompt in PROMPTS:
        settings = {"num_beams": 3, "repetition_penalty": 1.7, "do_sample": False, "pad_token_id": END}
        ids = torch.tensor([prompt])
        expected = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, **settings)
        row = expected[0, len(prompt) :].tolist()
        row = row[: row.index(END) + 1] if END in row else row
        assert beam_search(ours, [prompt], options, Tokens(frozenset({END})))[0].ids == row


@pytest.mark.slow
def test_greedy_with_a_repetition_penalty(pair: tuple[Any, Model]) -> None:
    """Logits of either sign: with a large penalty every token but the likeliest positive ones comes before a repeat."""
    theirs, ours = pair
    for penalty in (1.2, 1.7, 5.0):
        options = exact(max_tokens=20, repetition_penalty=penalty)
        for prompt in PROMPTS:
            ids = torch.tensor([prompt])
            settings = {"repetition_penalty": penalty, "do_sample": False, "pad_token_id": END, "max_new_tokens": 20}
            row = theirs.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(prompt) :].tolist()
            row = row[: row.index(END) + 1] if END in row else row
            assert [new.token for new in write(ours, [prompt], options, Tokens(frozenset({END})))] == row


@given(
    values=st.lists(st.floats(-5, 5, width=32), min_size=V, max_size=V),
    text=st.lists(st.integers(0, V - 1), min_size=1, max_size=9),
    penalty=st.sampled_from([1.0, 1.1, 1.5, 20.0]),
)
def test_the_repetition_penalty_of_any_scores(values: list[float], text: list[int], penalty: float) -> None:
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    scores = torch.tensor([values])
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([text]), scores.clone())
    assert torch.equal(process_logits(scores, [text], exact(repetition_penalty=penalty)), expected)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, None), (None, 0.6), (7, 0.8), (1, None), (None, 0.01)])
def test_filters(top_k: int | None, top_p: float | None) -> None:
    from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

    scores = torch.randn(50, V, generator=torch.Generator().manual_seed(0)) * 2
    expected = scores
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = TopPLogitsWarper(top_p)(None, expected)
    assert torch.equal(filter_logits(scores, top_k=top_k, top_p=top_p), expected)
