"""Likelihoods, scorings and calibration against what a loop and a sheet of paper say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from textgraft import PromptOptions, Tokenizer, UserError, cloze, last_words, score
from textgraft.data.batch import pad
from textgraft.generation import likelihood
from textgraft.generation.likelihood import SCORINGS, Likelihood, Request, likelihoods
from textgraft.generation.prompt_tasks import Calibration, scores
from textgraft.generation.prompting import Prompt
from textgraft.models.artifact import Artifact
from textgraft.models.model import build

WORDS = "the film was good bad long and I liked it not very : . a b c d e f g h"
TOKENIZER = Tokenizer.train([WORDS] * 2, kind="word")
V = TOKENIZER.vocab_size
XL = {"name": "transformer_xl", "embedding_dim": 8, "hidden_dim": 12, "num_layers": 2, "num_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "awd_lstm": {"name": "awd_lstm", "embedding_dim": 8, "hidden_dim": 6, "num_layers": 2},
    "qrnn": {"name": "awd_lstm", "cell": "qrnn", "embedding_dim": 8, "hidden_dim": 6, "num_layers": 2},
    "gpt": {"name": "gpt", "embedding_dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 40},
    "gpt-banded": {
        "name": "gpt",
        "embedding_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "max_length": 40,
        "attention": "alternating",
        "window": 4,
    },
    "gpt-local-compressed": {
        "name": "gpt",
        "embedding_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "max_length": 40,
        "attention": "local-compressed",
        "window": 4,
    },
    "xl": {**XL, "memory_length": 60},
    "xl-short-memory": {**XL, "memory_length": 5},
    "xl-same-length": {**XL, "memory_length": 30, "same_length": True},
}
SHARED = "the film was good and I liked it . "


def model(family: str) -> Artifact:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        head = {"name": "language_model", "vocab_size": V, "input_dim": 8}
        made = build({"encoder": {**FAMILIES[family], "vocab_size": V}, "head": head}).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.4)
    return Artifact(made, TOKENIZER)


@torch.no_grad()
def one_by_one(made: Artifact, prompt: str, text: str) -> tuple[float, int, bool]:
    """The log probability of each next token, each from a pass over just what comes before it."""
    before, ids = made.tokenizer.encode(prompt).ids, made.tokenizer.encode(prompt + text).ids
    assert ids[: len(before)] == before
    total, greedy = 0.0, True
    for place in range(len(before), len(ids)):
        log_p: Any = made.model(pad([np.array(ids[:place])], 0))[0, -1]
        total += float(log_p[ids[place]])
        greedy &= int(log_p.argmax()) == ids[place]
    return total, len(ids) - len(before), greedy


@pytest.mark.parametrize("family", FAMILIES)
def test_options_are_as_likely_as_token_by_token(family: str) -> None:
    made = model(family)
    requests = [
        Request(shared + own, option, shared)
        for shared in (SHARED, "")
        for own in ("a b c :", "d :", "", "e f g h a b c d :")
        for option in (" good", " not very bad .", " long")
    ]
    found = likelihoods(made, requests, precision="fp32")
    greedy = 0
    for request, one in zip(requests, found, strict=True):
        total, tokens, is_greedy = one_by_one(made, request.prompt, request.continuation)
        assert one.log_probability == pytest.approx(total, abs=2e-4)
        assert (one.tokens, one.greedy) == (tokens, is_greedy)
        assert one.bytes == len(request.continuation)
        greedy += is_greedy
    scored = score(made, [r.prompt for r in requests], [r.continuation for r in requests], precision="fp32")
    for one, other in zip(found, scored, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=2e-4)
    assert likelihoods(made, []) == []


def test_greedy_is_what_the_model_would_write() -> None:
    made = model("gpt")
    first = one_token_after(made, SHARED)
    second = one_token_after(made, SHARED + first)
    found = likelihoods(made, [Request(SHARED, first + " " + second), Request(SHARED, first + " h g")])
    assert [one.greedy for one in found] == [True, False]


@torch.no_grad()
def one_token_after(made: Artifact, prompt: str) -> str:
    """The likeliest word after a prompt; control words and the unknown one would not come back as they are."""
    ids = np.array(made.tokenizer.encode(prompt).ids)
    log_p: Any = made.model(pad([ids], 0))[0, -1]
    token = made.tokenizer.tokens[int(log_p.argmax())]
    assert not token.startswith("xx")
    return token


@pytest.mark.parametrize(("family", "passes"), [("gpt", 1), ("awd_lstm", 1), ("xl", 1), ("xl-short-memory", 0)])
def test_what_is_shared_is_read_once(family: str, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(family)
    read: list[tuple[int, ...]] = []
    forward = type(made.model.encoder).forward

    def counted(self: Any, batch: Any, *rest: Any, **more: Any) -> Any:
        read.append(tuple(batch.ids.shape))
        return forward(self, batch, *rest, **more)

    monkeypatch.setattr(type(made.model.encoder), "forward", counted)
    requests = [Request(SHARED + own + " :", " good", SHARED) for own in "abcdef"] * 3
    likelihoods(made, requests, precision="fp32")
    shared = len(TOKENIZER.encode(SHARED).ids)
    assert read == ([(1, shared), (6, 2)] if passes else [(6, shared + 2)])


def test_batches_do_not_change_a_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model("awd_lstm")
    requests = [Request("a b c d e f g h"[: 2 * n + 1], " very good", "") for n in range(8)]
    whole = likelihoods(made, requests, precision="fp32")
    monkeypatch.setattr(likelihood, "ROWS", 2)
    monkeypatch.setattr(likelihood, "PREDICTED_AT_ONCE", 3)
    for one, other in zip(likelihoods(made, requests, precision="fp32"), whole, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_mistakes() -> None:
    made = model("gpt")
    with pytest.raises(UserError, match="' ' has no token"):
        likelihoods(made, [Request("a", " ")])
    assert likelihoods(made, [Request(" ".join("abcd" * 9), " a b c d")])[0].tokens == 4  # 40 are read, one predicted
    with pytest.raises(UserError, match="a prompt of 42 tokens is longer than the 40"):
        likelihoods(made, [Request(" ".join("abcd" * 9), " a b c d e")])


def test_scorings_by_hand() -> None:
    found, alone = Likelihood(-6.0, 3, 12, False), Likelihood(-8.0, 3, 12, False)
    values = {name: scoring.value(found, alone) for name, scoring in SCORINGS.items()}
    assert values == {"sum": -6.0, "length": -2.0, "bytes": -0.5, "unconditional": 2.0}


@pytest.mark.parametrize("scoring", SCORINGS)
def test_each_option_is_scored_by_its_own_likelihood(scoring: str) -> None:
    made = model("awd_lstm")
    prompts = [Prompt(SHARED, "a :", (" good", " not very bad")), Prompt(SHARED, "b :", (" long", " it", " c d"))]
    found = scores(made, prompts, answer_context="the :", options=PromptOptions(scoring=scoring, precision="fp32"))
    for prompt, values in zip(prompts, found, strict=True):
        for option, value in zip(prompt.options, values, strict=True):
            total, tokens, _ = one_by_one(made, prompt.text, option)
            alone = one_by_one(made, "the :", option)[0]
            by_hand = {"sum": total, "length": total / tokens, "bytes": total / len(option)}
            assert value == pytest.approx({**by_hand, "unconditional": total - alone}[scoring], abs=2e-4)


def test_calibration_by_hand() -> None:
    """Without content 0.8 to 0.2 and 0.6 to 0.4, on average 0.7 to 0.3."""
    fitted = Calibration.fit(np.array([[0.8, 0.2], [1.2, 0.8]]))
    assert fitted.weights == pytest.approx([1 / 0.7, 1 / 0.3])
    assert fitted.bias == pytest.approx([0, 0])
    assert fitted.apply(np.array([0.7, 0.3])) == pytest.approx([0.5, 0.5])
    # 0.6 / 0.7 = 0.857 and 0.4 / 0.3 = 1.333: the choice turns round
    assert fitted.apply(np.array([[0.6, 0.4], [0.9, 0.1]])) == pytest.approx(
        np.array([[18 / 46, 28 / 46], [27 / 34, 7 / 34]])
    )


def test_last_words() -> None:
    made = model("awd_lstm")
    passages = ["the film was good", "I  liked it \n", "a b c d e"]
    found = last_words(made, passages, precision="fp32")
    expected = [one_by_one(made, *pair) for pair in (("the film was", " good"), ("I  liked", " it"), ("a b c d", " e"))]
    assert found.log_probabilities == pytest.approx([total for total, *_ in expected], abs=2e-4)
    assert found.right == [greedy for *_, greedy in expected]
    assert found.perplexity == pytest.approx(np.exp(-sum(total for total, *_ in expected) / 3), rel=1e-3)
    written = SHARED + one_token_after(made, SHARED)
    assert last_words(made, [written, "the film was good"]).accuracy == (1 + found.right[0]) / 2
    for wrong in (["a b", "word"], ["a b", " "]):
        with pytest.raises(UserError, match="passage 2: there is no word before"):
            last_words(made, wrong)
    with pytest.raises(UserError, match="no passages"):
        last_words(made, [])


def test_a_cloze_counts_what_follows_the_blank() -> None:
    made = model("gpt")
    candidates = ["good", "bad", "it", "very long"]
    found = cloze(made, ["the film was XXXXX and I liked it ."] * 2, [candidates, candidates[::-1]])
    totals = [one_by_one(made, "the film was", f" {word} and I liked it .")[0] for word in candidates]
    best = int(np.argmax(totals))
    assert found == [best, 3 - best]
    short = [one_by_one(made, "the film was", f" {word}")[0] for word in candidates]
    assert np.argsort(totals).tolist() != np.argsort(short).tolist()
    for passage in ("no blank", "XXXXX and XXXXX"):
        with pytest.raises(UserError, match="blanks 'XXXXX'"):
            cloze(made, [passage], [candidates])
    with pytest.raises(UserError, match="0 candidates"):
        cloze(made, ["XXXXX"], [[]])
