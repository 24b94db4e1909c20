"""All layers of words at once, of every family: those of one layer aggregation at a time, in whatever order they are
asked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_questions import encoder
from made_up_tags import TEXT, sentences, write_encoder

from textgraft import save_vectors
from textgraft.core.errors import UserError
from textgraft.data.contexts import (
    Context,
    WordPosition,
    positions_of,
    read_contexts,
    sample_positions,
    sentence_counts,
)
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.characters import of_vocabulary
from textgraft.text.tokenizer import Tokenizer
from textgraft.word_embeddings.contextual import layer_vectors, word_vectors
from textgraft.word_embeddings.layers import AT_ONCE, WordLayers
from textgraft.word_embeddings.word_vectors import WordVectors

SENTENCES = [s.words for s in sentences(20, 3, clauses=2).sentences]


def made(family: str) -> Artifact:
    """A tiny untrained encoder of any family."""
    torch.manual_seed(1)
    if family in ("bert", "gpt", "xl", "lstm", "backward"):
        return encoder(family, TEXT, num_layers=2)
    if family == "flair":
        tokenizer = of_vocabulary(["<unk>", "\n", " ", *sorted(set(TEXT) - {" "})])
        below = {"name": "flair", "vocab_size": tokenizer.vocab_size, "embedding_dim": 6, "hidden_dim": 8}
        above = 8
        below |= {"num_layers": 1, "projection_dim": 0, "direction": "left"}
    elif family == "cove":
        tokenizer = Tokenizer.train([TEXT] * 3, kind="word")
        below = {"name": "cove", "vocab_size": tokenizer.vocab_size, "embedding_dim": 6, "hidden_dim": 4}
        above, below["num_layers"] = 14, 2
    else:
        tokenizer = Tokenizer.train([TEXT] * 3, kind="word", model="spelling", min_frequency=1)
        below = {"name": "elmo", "character_dim": 4, "filters": [[1, 3], [2, 5]], "projection_dim": 3}
        above = 6
        below |= {"hidden_dim": 7, "num_layers": 2}
    return Artifact(build({"encoder": below, "head": {"name": "features", "input_dim": above}}).eval(), tokenizer)


@pytest.mark.parametrize("family", ["bert", "gpt", "xl", "lstm", "backward", "flair", "cove", "elmo"])
def test_layers_are_those_of_one_readout_at_a_time(family: str) -> None:
    source = made(family)
    found = layer_vectors(source, SENTENCES[:6], window=20, precision="fp32")
    for layer_aggregation, layer in (("first", 0), ("last", -1)):
        expected = word_vectors(source, SENTENCES[:6], window=20, layer_aggregation=layer_aggregation, precision="fp32")
        for layers, vectors in zip(found, expected, strict=True):
            np.testing.assert_array_equal(layers[layer], vectors)
    assert [layer.shape[1] for layer in found[0]] == list(source.model.encoder.widths)
    assert [layer.shape[0] for layer in found[5]] == [len(SENTENCES[5])] * len(source.model.encoder.widths)


def contexts(count: int) -> list[Context]:
    return [Context.of(" ".join(words)) for words in (SENTENCES * 5)[:count]]


def test_rows_are_at_their_places_in_any_order(tmp_path: Path) -> None:
    layers = WordLayers(write_encoder(tmp_path, "lstm", num_layers=2), precision="fp32")
    assert layers.names == ["embeddings", "layer 1", "layer 2"]
    read = contexts(AT_ONCE + 5)
    generator = np.random.default_rng(0)
    places = [
        WordPosition(int(s), int(generator.integers(len(read[s].spans)))) for s in generator.integers(0, len(read), 40)
    ]
    found = layers.at(read, places, title="reading")
    whole = layer_vectors(loading.load_network(tmp_path / "lstm"), [c.words for c in read], precision="fp32")
    for row, (sentence, word) in enumerate(places):
        for layer in range(3):
            np.testing.assert_allclose(found[layer][row], whole[sentence][layer][word], atol=1e-6)


def test_word_vectors_are_one_layer_and_know_some_words(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    save_vectors(WordVectors(["river", "the"], rows), tmp_path / "words.txt", to="glove")
    layers = WordLayers(tmp_path / "words.txt")
    assert layers.names == ["word vectors"]
    context = Context.of("the silver river .")
    assert (layers.knows("river"), layers.knows("silver")) == (True, False)
    kept = context.filter_words(layers.knows)
    assert kept.words == ["the", "river"]
    ((found,),) = list(layers.read([kept], title="reading"))
    np.testing.assert_allclose(found, rows[[1, 0]])


def test_taggers_and_what_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        WordLayers(tmp_path / "nowhere")


def test_sentences_of_texts_are_different_and_neither_headings_nor_lists() -> None:
    texts = ["A heading\nThe cat sat. The cat sat. A dog ran off!", "no full stop in this line", "x " * 200]
    found = read_contexts(texts, 100)
    assert [context.text for context in found] == ["The cat sat.", "A dog ran off!", "no full stop in this line"]
    assert found[0].words == ["The", "cat", "sat", "."]
    assert [c.text for c in read_contexts(texts, 2)] == ["The cat sat.", "A dog ran off!"]
    assert read_contexts([], 5) == []
    with pytest.raises(UserError, match="without a word"):
        Context.of("  ")


def test_places_are_the_first_of_each_sentence() -> None:
    read = [Context.of(text) for text in ("the cat and the dog", "The end", "a dog, the dog")]
    assert positions_of(read, ["the", "dog", "cow"]) == {
        "the": [WordPosition(0, 0), WordPosition(2, 3)],
        "dog": [WordPosition(0, 4), WordPosition(2, 1)],
        "cow": [],
    }
    assert positions_of(read, ["the"], key=str.casefold)["the"] == [
        WordPosition(0, 0),
        WordPosition(1, 0),
        WordPosition(2, 3),
    ]
    assert sentence_counts(read)["dog"] == 2


def test_drawn_places_are_one_a_sentence_and_all_words_are_drawn() -> None:
    read = [Context.of("one two three"), Context.of("four five"), Context.of("six")]
    seen = set()
    for seed in range(200):
        drawn = sample_positions(read, 2, np.random.default_rng(seed))
        assert len({place.sentence for place in drawn}) == 2
        seen |= {read[place.sentence].words[place.word] for place in drawn}
    assert seen == {"one", "two", "three", "four", "five", "six"}
    assert len(sample_positions(read, 10, np.random.default_rng(0))) == 3
    assert sample_positions([], 3, np.random.default_rng(0)) == []
