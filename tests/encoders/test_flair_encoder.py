"""Flair's encoder against one step at a time; words' vectors against sentences read whole; the memory of words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.conll import Sentence
from textgraft.data.sequences import Direction
from textgraft.encoders.flair import Flair, FlairConfig
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build
from textgraft.text.characters import of_vocabulary
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.words import spaced
from textgraft.word_embeddings.contextual import word_vectors
from textgraft.word_embeddings.pooled_memory import WordMemory

CHARACTERS = of_vocabulary(["<unk>", "\n", " ", *"abcdefgABCก"])
DIRECTIONS: tuple[Direction, ...] = ("left", "right")
every_direction = pytest.mark.parametrize("direction", DIRECTIONS)


def artifact(direction: Direction = "left", layers: int = 1, projection: int = 0) -> Artifact:
    torch.manual_seed(3)
    config = FlairConfig(CHARACTERS.vocab_size, 4, 5, layers, projection, direction)
    head = {"name": "features", "input_dim": projection or 5}
    model = build({"encoder": {"name": "flair", **vars(config)}, "head": head})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    return Artifact(model.eval(), CHARACTERS)


def by_hand(encoder: Flair, ids: list[int]) -> Tensor:
    """(T, D) by the equations of an LSTM, one character at a time, in the order of the text."""
    order = ids if encoder.direction == "left" else ids[::-1]
    rows = [encoder.embedding.weight[i] for i in order]
    for layer in encoder.layers:
        h = c = torch.zeros(layer.hidden_dim)  # type: ignore[arg-type]
        found = []
        for x in rows:
            i, f, g, o = (layer.weight_ih @ x + layer.weight_hh @ h + layer.bias).chunk(4)  # type: ignore[operator]
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            found.append(h)
        rows = found
    if encoder.projection is not None:
        rows = [encoder.projection.weight @ h + encoder.projection.bias for h in rows]
    return torch.stack(rows if encoder.direction == "left" else rows[::-1])


@every_direction
@pytest.mark.parametrize(("layers", "projection"), [(1, 0), (2, 0), (1, 3), (3, 2)])
def test_equals_one_character_at_a_time(direction: Direction, layers: int, projection: int) -> None:
    encoder = artifact(direction, layers, projection).model.encoder
    ids = torch.randint(CHARACTERS.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    top = encoder(Batch(ids, mask)).top
    torch.testing.assert_close(top[0], by_hand(encoder, ids[0].tolist()))
    torch.testing.assert_close(top[1, :6], by_hand(encoder, ids[1, :6].tolist()))
    assert encoder.output_dim == (projection or 5) == encoder.widths[-1]


def test_a_direction_that_it_does_not_have() -> None:
    with pytest.raises(UserError, match="unknown direction 'both'"):
        Flair(FlairConfig(9, direction="both"))


def test_dropout_is_on_characters_between_layers_and_nowhere_else() -> None:
    torch.manual_seed(0)
    encoder = Flair(FlairConfig(9, 4, 5, input_dropout=0.0, hidden_dropout=0.9)).train()
    batch = Batch(torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(encoder(batch).top, encoder(batch).top)  # one layer: nothing is between
    encoder = Flair(FlairConfig(9, 4, 5, input_dropout=0.5)).train()
    assert not torch.equal(encoder(batch).top, encoder(batch).top)
    assert torch.equal(encoder(batch, keep="all").layers[0], encoder.embedding(batch.ids))


words = st.lists(st.text(st.sampled_from("abgAก é"), min_size=1, max_size=9), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(words, min_size=1, max_size=4), st.integers(1, 20), st.sampled_from(DIRECTIONS))
def test_words_are_read_as_in_the_whole_sentence(sentences: list[list[str]], window: int, direction: Direction) -> None:
    """The state at the space that is read after a word, however short the windows in which a sentence is read."""
    source = artifact(direction)
    found = word_vectors(source, sentences, window=window, precision="fp32")
    for sentence, vectors in zip(sentences, found, strict=True):
        whole, before = Sentence.of(sentence), spaced(sentence)
        after = [*before[1:], not sentence[-1].isspace()]
        text = f"\n{whole.text}{' ' * after[-1]}" if direction == "left" else f"{' ' * before[0]}{whole.text}\n"
        states = by_hand(source.model.encoder, CHARACTERS.bodies([text])[0].tolist())
        first = 1 if direction == "left" else int(before[0])
        for (start, end), space, behind, vector in zip(whole.spans, before, after, vectors, strict=True):
            place = first + (end - 1 + behind if direction == "left" else start - space)
            np.testing.assert_allclose(vector, states[place].detach().numpy(), atol=1e-5)


@every_direction
def test_among_many_a_sentence_has_the_vectors_that_it_has_alone(direction: Direction) -> None:
    """Many are read a few characters at a time, and those that are over leave the batch."""
    drawn = np.random.default_rng(0)
    sentences = [["ab" * int(n) for n in drawn.integers(1, 9, size=int(size))] for size in drawn.integers(1, 40, 300)]
    source = artifact(direction)
    found = word_vectors(source, sentences, precision="fp32")
    for number in (0, 7, int(np.argmax([len(s) for s in sentences])), 299):
        alone = word_vectors(source, [sentences[number]], precision="fp32")[0]
        np.testing.assert_allclose(found[number], alone, atol=1e-5)


def test_words_vectors_of_other_families_come_through_windows() -> None:
    """Whoever looks both ways, or not further than so far, reads windows; an AWD-LSTM's state is carried on."""
    tokenizer = Tokenizer.train(["a b c d e f g"], kind="word", min_frequency=1)
    sentence = [list("abcdefgabcdefg"), ["a"], list("gg")]
    bert = {"name": "bert", "embedding_dim": 4, "num_layers": 1, "num_heads": 1, "feed_forward_dim": 4, "max_length": 8}
    for encoder in (bert, {"name": "awd_lstm", "embedding_dim": 4, "hidden_dim": 3, "num_layers": 2}):
        torch.manual_seed(0)
        head = {"name": "features", "input_dim": 4}
        model = build({"encoder": {**encoder, "vocab_size": tokenizer.vocab_size}, "head": head}).train()
        source = Artifact(model, tokenizer)
        found = word_vectors(source, sentence, window=5, precision="fp32")
        assert model.training
        assert [v.shape for v in found] == [(14, 4), (1, 4), (2, 4)]
        assert all(np.abs(v).sum(axis=1).all() for v in found)
        if encoder["name"] == "awd_lstm":
            np.testing.assert_allclose(found[0], whole(model.eval(), tokenizer, sentence[0]), atol=1e-5)


def whole(model: Model, tokenizer: Tokenizer, sentence: list[str]) -> np.ndarray:
    ids = torch.from_numpy(tokenizer.encode_batch([" ".join(sentence)])[0]).long()[None]
    with torch.no_grad():
        vectors: np.ndarray = model.encoder(Batch(ids, torch.ones_like(ids, dtype=torch.bool))).top[0, 1:].numpy()
    return vectors


def test_an_elmo_reads_words_by_their_spelling() -> None:
    texts = ["a bb ccc dd"] * 2
    tokenizer = Tokenizer.train(texts, kind="word", model="spelling", min_frequency=1)
    shape = {"character_dim": 4, "filters": [[1, 3], [2, 5]], "projection_dim": 3, "hidden_dim": 7, "num_layers": 1}
    model = build({"encoder": {"name": "elmo", **shape}, "head": {"name": "features", "input_dim": 6}})
    (found,) = word_vectors(Artifact(model.eval(), tokenizer), [["a", "new-word", "dd"]], precision="fp32")
    assert found.shape == (3, 6)
    assert len({row.tobytes() for row in found}) == 3


def test_nothing_and_nonsense() -> None:
    assert word_vectors(artifact(), []) == []
    with pytest.raises(UserError, match="without a word"):
        word_vectors(artifact(), [["a"], []])
    with pytest.raises(UserError, match="no room"):
        word_vectors(artifact(), [["a"]], window=0)


seen = st.lists(
    st.lists(st.lists(st.tuples(st.sampled_from("aAbB"), st.integers(-9, 9)), min_size=1, max_size=4), max_size=3),
    max_size=4,
)


@given(seen, st.sampled_from(["min", "max", "mean"]), st.booleans())
def test_the_memory_is_of_all_that_was_seen(
    batches: list[list[list[tuple[str, int]]]], pooling: str, only_capitalised: bool
) -> None:
    """Recomputed from the beginning for every batch: the batch itself is in it before it is read."""
    memory, everything = WordMemory(pooling, only_capitalised=only_capitalised), dict[str, list[np.ndarray]]()
    for batch in batches:
        vectors = [np.array([[x, -x] for _, x in sentence], dtype=np.float32) for sentence in batch]
        sentences = [[word for word, _ in sentence] for sentence in batch]
        for sentence, rows in zip(sentences, vectors, strict=True):
            for word, row in zip(sentence, rows, strict=True):
                everything.setdefault(word, []).append(row)
        for sentence, rows, found in zip(sentences, vectors, memory.pooled(sentences, vectors), strict=True):
            for word, row, both in zip(sentence, rows, found, strict=True):
                past = [row] if only_capitalised and word.islower() else everything[word]
                wanted = getattr(np, pooling)(np.stack(past), axis=0)
                np.testing.assert_allclose(both, [*row, *wanted], rtol=1e-6)
    assert len(memory) == len([w for w in everything if w.isupper() or not only_capitalised])
    memory.clear()
    assert len(memory) == 0


def test_a_memory_does_not_change_what_it_was_given() -> None:
    memory, vectors = WordMemory("mean"), [np.ones((2, 3), dtype=np.float32)]
    memory.pooled([["a", "a"]], vectors)
    memory.pooled([["a", "a"]], vectors)
    assert (vectors[0] == 1).all()
    with pytest.raises(ValueError):
        memory.pooled([["a"]], vectors)
    with pytest.raises(UserError, match="unknown pooling 'fade'"):
        WordMemory("fade")
