"""textgraft.generate, stream and score on texts: families alike, pieces, stop strings, batches, likelihoods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up_reviews import reviews

import textgraft
from textgraft import GenerateOptions, Tokenizer, UserError, generate, score, stream
from textgraft.data.batch import pad
from textgraft.generation.generation import continuation, cut_at, prompt_ids, special_tokens
from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.byte_level import train_byte_level

TEXTS = [*reviews(60, 5)[0], "ภาษาไทย is spoken 👩‍👩‍👧 here, naïve café", "日本語 too"] * 2
TOKENIZERS = {
    "byte_level": lambda: train_byte_level(TEXTS, vocab_size=300),
    "unigram": lambda: Tokenizer.train(TEXTS, vocab_size=150),
    "bpe": lambda: Tokenizer.train(TEXTS, model="bpe", vocab_size=150),
    "word": lambda: Tokenizer.train(TEXTS, kind="word"),
    "character": lambda: Tokenizer.train(TEXTS, kind="character"),
    "wordpiece": lambda: Tokenizer.train(TEXTS, model="wordpiece", vocab_size=200),
}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {"name": "gpt", "embedding_dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 64},
    "awd_lstm": {"name": "awd_lstm", "embedding_dim": 8, "hidden_dim": 6, "num_layers": 2},
}
PROMPTS = ["The film was", "", "a great", "I liked the acting of everyone in it and"]


@pytest.fixture(scope="module")
def made() -> Any:
    """A language model by family and tokenizer, weights drawn large; each made once."""
    tokenizers = {name: train() for name, train in TOKENIZERS.items()}
    kept: dict[tuple[str, str], Artifact] = {}

    def model(family: str, tokenizer: str, **settings: Any) -> Artifact:
        if settings or (family, tokenizer) not in kept:
            size = tokenizers[tokenizer].vocab_size
            torch.manual_seed(0)
            encoder = {**FAMILIES[family], "vocab_size": size, **settings}
            head = {"name": "language_model", "vocab_size": size, "input_dim": 8}
            built = build({"encoder": encoder, "head": head}).eval()
            with torch.no_grad():
                for parameter in built.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.5)
            kept[family, tokenizer] = Artifact(built, tokenizers[tokenizer])
        return kept[family, tokenizer]

    return model


PAIRS = [*(("gpt", tokenizer) for tokenizer in TOKENIZERS), ("awd_lstm", "byte_level"), ("awd_lstm", "word")]
every_pair = pytest.mark.parametrize(("family", "tokenizer"), PAIRS)


def drawn(**settings: Any) -> GenerateOptions:
    return GenerateOptions(**{"temperature": 1.0, "max_tokens": 30, "precision": "fp32", **settings})


@every_pair
def test_a_batch_equals_one_by_one_and_the_pieces_make_the_text(made: Any, family: str, tokenizer: str) -> None:
    model = made(family, tokenizer)
    together = generate(model, PROMPTS, drawn(temperature=0.0))
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert generate(model, [prompt], drawn(temperature=0.0))[0].ids == found.ids
        assert "".join(stream(model, prompt, drawn(temperature=0.0))) == found.text
    for seed in range(4):
        alone = generate(model, ["The film"], drawn(seed=seed))[0]
        pieces = list(stream(model, "The film", drawn(seed=seed)))
        assert "".join(pieces) == alone.text
        assert all(pieces)
        assert len(alone.ids) == 30 or alone.ended == "end"
    assert len(pieces) > 2 or tokenizer == "wordpiece"  # of which nothing is settled before the end


def test_no_piece_splits_a_character(made: Any) -> None:
    """A model that only knows one text of three-byte characters, in tokens of one byte."""
    model = made("gpt", "byte_level")
    text = "ก👩‍👩‍👧日"
    tokenizer = model.tokenizer
    ids = [tokenizer.tokens.index(t) for t in _byte_tokens(text)]
    shown = [tokenizer.settled(ids[:n]) for n in range(len(ids) + 1)]
    assert shown[-1] == text
    assert all("\ufffd" not in s and text.startswith(s) for s in shown)
    assert len(set(shown)) == len(text) + 1


def _byte_tokens(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [char for piece, _ in pieces for char in piece]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_settled_text_is_a_beginning_of_whatever_follows(made: Any, name: str, data: st.DataObject) -> None:
    tokenizer = made("gpt", name).tokenizer
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12))
    whole = tokenizer.decode(ids)
    for n in range(len(ids) + 1):
        assert whole.startswith(tokenizer.settled(ids[:n]))


@every_pair
def test_stop_strings(made: Any, family: str, tokenizer: str) -> None:
    model, tried = made(family, tokenizer), 0
    for seed in range(5):
        free = generate(model, ["The film"], drawn(seed=seed))[0]
        middle = len(free.text) // 2
        stop = free.text[middle : middle + 3]
        if not stop:
            continue
        tried += 1
        found = generate(model, ["The film"], drawn(seed=seed, stop=("never to be seen", stop)))[0]
        assert found.text == free.text[: free.text.index(stop)]
        assert found.ended == "stop"
        assert found.ids == free.ids[: len(found.ids)]
        assert "".join(stream(model, "The film", drawn(seed=seed, stop=(stop,)))) == found.text
    assert tried > 1
    beams = generate(model, ["The film"], drawn(temperature=0.0, beams=3))[0]
    cut = generate(model, ["The film"], drawn(temperature=0.0, beams=3, stop=(beams.text[-2:] or "x",)))[0]
    assert cut.text == cut_at(beams.text, [beams.text[-2:] or "x"])


def test_more_prompts_than_a_batch_holds_come_back_in_order(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("gpt", "byte_level")
    whole = generate(model, PROMPTS, drawn())
    monkeypatch.setattr("textgraft.generation.generation.ROWS", 3)
    assert [g.ids for g in generate(model, PROMPTS, drawn())] == [g.ids for g in whole]
    assert generate(model, [], drawn()) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_is_close(made: Any, family: str) -> None:
    """Texts about as likely, though not the same ones; states and caches go through bfloat16 as well."""
    model = made(family, "byte_level")
    for beams in (1, 2):
        options = [drawn(temperature=0.0, beams=beams, precision=p, max_tokens=8) for p in ("fp32", "bf16")]
        exact, low = (generate(model, PROMPTS, o) for o in options)
        totals = np.array([[a.log_probability, b.log_probability] for a, b in zip(exact, low, strict=True)])
        assert np.isfinite(totals).all()
        assert np.abs(totals[:, 0] - totals[:, 1]).mean() < 3
    texts = [" and so it goes on"] * 3
    exact, low = (score(model, PROMPTS[:3], texts, precision=p) for p in ("fp32", "bf16"))
    for one, other in zip(exact, low, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, rel=0.02)


def test_control_words_are_not_written_and_a_new_text_ends_the_old(made: Any) -> None:
    model = made("awd_lstm", "word")
    names = {t: i for i, t in enumerate(model.tokenizer.tokens)}
    tokens = special_tokens(model.tokenizer)
    assert tokens.ends == {names["xxbos"], names["xxeos"]}
    assert set(tokens.never) == {names["xxunk"], names["xxpad"]}
    written = {i for g in generate(model, PROMPTS * 10, drawn(temperature=3.0)) for i in g.ids[:-1]}
    assert not written & {names[t] for t in ("xxbos", "xxeos", "xxunk", "xxpad")}
    ended = [g for g in generate(model, PROMPTS * 10, drawn(temperature=3.0)) if g.ended == "end"]
    assert ended
    assert all("xx" not in g.text and g.ids[-1] in tokens.ends for g in ended)


def test_a_continuation_runs_on_from_its_prompt(made: Any) -> None:
    tokenizer = made("awd_lstm", "bpe").tokenizer
    tokens = special_tokens(tokenizer)
    for text, border in (("The film was great", 8), ("The film was great", 6), ("don't go", 5)):
        ids = tokenizer.encode(text).ids
        before = prompt_ids(tokenizer, text[:border])
        if ids[: len(before)] == before:
            assert continuation(tokenizer, before, ids[len(before) :], tokens) == text[border:]


@every_pair
def test_scores_by_hand(made: Any, family: str, tokenizer: str) -> None:
    """Every conditional probability by a pass over just what comes before it; batches of unequal texts."""
    model = made(family, tokenizer)
    prompts = ["The film was", "", "The film was", "a", "The film"]
    texts = [" great and long and very good", "The film", "", " bad", " was"]
    found = score(model, prompts, texts, precision="fp32")
    for prompt, text, scored in zip(prompts, texts, found, strict=True):
        before, ids = model.tokenizer.encode(prompt).ids, model.tokenizer.encode(prompt + text).ids
        if ids[0] != model.tokenizer.bos_id:
            before, ids = [model.tokenizer.bos_id, *before], [model.tokenizer.bos_id, *ids]
        border = next((i for i, (a, b) in enumerate(zip(before, ids)) if a != b), min(len(before), len(ids)))
        with torch.no_grad():
            steps = [
                float(model.model(pad([np.array(ids[:n])], 0))[0, -1, ids[n]]) for n in range(max(1, border), len(ids))
            ]
        assert scored.tokens == len(steps)
        assert scored.log_probability == pytest.approx(sum(steps), abs=1e-3)
    assert found[2] == textgraft.generation.generation.Scored(0.0, 0)
    assert score(model, [], []) == []


def test_a_text_scores_what_generate_said(made: Any) -> None:
    model, same = made("gpt", "byte_level"), 0
    before = model.tokenizer.encode("The film").ids
    for seed in range(20):
        found = generate(model, ["The film"], drawn(max_tokens=3, seed=seed))[0]
        if model.tokenizer.encode("The film" + found.text).ids == [*before, *found.ids]:
            same += 1
            scored = score(model, ["The film"], [found.text], precision="fp32")[0]
            assert scored.log_probability == pytest.approx(found.log_probability, abs=1e-4)
    assert same > 3


def test_models_that_cannot(made: Any, tiny_lm: Path) -> None:
    backward = made("awd_lstm", "word", direction="right")
    for ask in (
        lambda model: generate(model, ["a"]),
        lambda model: list(stream(model, "a")),
        lambda model: score(model, ["a"], ["b"]),
    ):
        with pytest.raises(UserError, match="is not left-to-right"):
            ask(backward)
    classifier = build(
        {
            "encoder": {**FAMILIES["awd_lstm"], "vocab_size": 20},
            "head": {"name": "classification", "input_dim": 8, "outputs": 2},
        }
    )
    with pytest.raises(UserError, match="cannot generate text"):
        generate(Artifact(classifier, backward.tokenizer), ["a"])
    with pytest.raises(UserError, match="2 prompts and 1 continuations"):
        score(tiny_lm, ["a", "b"], ["c"])
    with pytest.raises(UserError, match="no text before its end"):
        list(stream(tiny_lm, "a", GenerateOptions(beams=2)))


def test_one_prompt_is_not_taken_for_one_a_character(tiny_lm: Path) -> None:
    for ask in (
        lambda: generate(tiny_lm, "a film"),
        lambda: score(tiny_lm, "a", ["b"]),
        lambda: score(tiny_lm, ["a"], "b"),
        lambda: textgraft.last_words(tiny_lm, "a film"),
    ):
        with pytest.raises(UserError, match=r"this is one text\. Pass a list of (prompts|continuations|passages)"):
            ask()


def test_a_prompt_longer_than_the_model_can_look_at(made: Any) -> None:
    model = made("gpt", "word")
    with pytest.raises(UserError, match="longer than the 64"):
        generate(model, [" ".join(TEXTS)], drawn())
    with pytest.raises(UserError, match="longer than the 64"):
        score(model, [TEXTS[0]], [" ".join(TEXTS)])


def test_a_gpt_is_saved_and_loaded_with_its_vocabulary(made: Any, tmp_path: Path) -> None:
    model = made("gpt", "byte_level")
    folder = artifact.save(model, tmp_path / "gpt")
    assert generate(folder, PROMPTS, drawn()) == generate(model, PROMPTS, drawn())
