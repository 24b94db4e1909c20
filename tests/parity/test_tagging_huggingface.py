"""Published taggers and models of multiple choice, opened by name and used, beside what the library answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import textgraft
from textgraft.conversion import huggingface
from textgraft.conversion.bert import to_huggingface
from textgraft.conversion.hub import load
from textgraft.data.examples import Choice
from textgraft.data.tags import scheme_of_names
from textgraft.heads.tagging import TaggingConfig, TaggingHead
from textgraft.models.model import Model
from textgraft.text import wordpiece

transformers = pytest.importorskip("transformers")

TEXT = "ada met grace in london , and charles stayed at home"
TAGS = ["O", "B-person", "I-person", "B-place", "I-place"]


def published(name: str, folder: Path, **fields: Any) -> Any:
    """A folder of the library's, model and vocabulary, and the model."""
    made = wordpiece.train([TEXT] * 3, vocab_size=90)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=made.vocab_size, max_position_embeddings=40, **sizes, **fields)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    model.save_pretrained(folder)
    for file, data in made.huggingface_files().items():
        (folder / file).write_bytes(data)
    return model


def test_a_published_tagger_tags_each_word_by_its_first_piece(tmp_path: Path) -> None:
    model = published("BertForTokenClassification", tmp_path, id2label=dict(enumerate(TAGS)))
    opened = load(f"hf:{tmp_path}")
    assert opened.model.head.config.scheme == "IOB2"
    prediction = textgraft.Tagger(f"hf:{tmp_path}", precision="fp32").tag_texts([TEXT])[0]
    pieces = opened.tokenizer.encode(TEXT)
    logits = model(input_ids=torch.tensor([pieces.ids])).logits[0]
    starts = {start for start, _ in prediction.sentence.spans}
    first = [row for row, (start, end) in enumerate(pieces.offsets) if start in starts and end > start]
    assert len(first) == len(prediction.tags) == len(TEXT.split())
    best, _ = opened.model.head.decode(logits[None, first], torch.ones(1, len(first), dtype=torch.bool))
    assert list(prediction.tags) == [TAGS[i] for i in best[0]]


def test_a_published_model_of_choices_chooses(tmp_path: Path) -> None:
    model = published("BertForMultipleChoice", tmp_path)
    question = Choice("ada met grace", ("in london", "at home", "and charles"))
    (found,) = textgraft.load(f"hf:{tmp_path}", precision="fp32").predict([question])
    tokenizer = load(f"hf:{tmp_path}").tokenizer
    pairs = [tokenizer.encode_pair(question.context, option) for option in question.options]
    scores = [
        model(input_ids=torch.tensor([[p.ids]]), token_type_ids=torch.tensor([[p.segments]])).logits[0, 0]
        for p in pairs
    ]
    expected = torch.stack(scores).softmax(dim=0).detach().numpy()
    assert list(found.probabilities.values()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (TAGS, "IOB2"),
        (["O", "I-a", "I-b", "B-a"], "IOB1"),
        (["O", "B-a", "I-a", "E-a", "S-a"], "BIOES"),
        (["NOUN", "VERB", "O"], "plain"),
        (["LABEL_0", "LABEL_1"], "plain"),
        (["O"], "plain"),
    ],
)
def test_the_scheme_follows_from_the_names(tags: list[str], scheme: str) -> None:
    assert scheme_of_names(tags) == scheme


def test_a_tagger_that_the_library_has_not_is_refused(tmp_path: Path) -> None:
    published("BertModel", tmp_path)
    encoder = huggingface.load(tmp_path).encoder
    tagger = Model(encoder, TaggingHead(TaggingConfig(12, TAGS, "IOB2")))
    config, _ = to_huggingface(tagger)
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {str(i): tag for i, tag in enumerate(TAGS)}
    for settings in ({"crf": True}, {"subword_pooling": "last"}):
        odd = Model(encoder, TaggingHead(TaggingConfig(12, TAGS, "IOB2", **settings)))  # type: ignore[arg-type]
        with pytest.raises(textgraft.UserError, match="no Bert with such a head") as caught:
            to_huggingface(odd)
        assert "CRF" in caught.value.remedy
