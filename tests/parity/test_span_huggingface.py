"""Our span head beside the transformers library's: logits, loss and gradients, and its folders both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from textgraft.conversion import huggingface
from textgraft.conversion.bert import from_huggingface, to_huggingface
from textgraft.data.batch import Batch
from textgraft.heads.span import SpanHead
from textgraft.tasks.question_answering.predictor import QAModel
from textgraft.text import wordpiece

transformers = pytest.importorskip("transformers")

V, WIDTH = 31, 12
CLOSE = {"rtol": 1e-5, "atol": 2e-6}
NAMES = ["BertForQuestionAnswering", "DistilBertForQuestionAnswering"]


def theirs(name: str, vocab_size: int = V) -> Any:
    """The library's model, its weights and biases large enough that each of them matters."""
    common = {"vocab_size": vocab_size, "max_position_embeddings": 40, "attn_implementation": "eager"}
    if name.startswith("Distil"):
        config = transformers.DistilBertConfig(dim=WIDTH, n_layers=2, n_heads=3, hidden_dim=20, **common)
    else:
        sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
        config = transformers.BertConfig(**sizes, **common)
    torch.manual_seed(0)
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.eval()


@pytest.mark.parametrize("name", NAMES)
def test_logits_loss_and_gradients(name: str) -> None:
    """With every position allowed, as there, and texts of one length, since its softmax runs over padding too."""
    model = theirs(name)
    ours = from_huggingface(model.config.to_dict(), model.state_dict()).eval()
    assert isinstance(ours.head, SpanHead)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, V, (3, 7), generator=generator)
    mask, segments = torch.ones_like(ids, dtype=torch.bool), (torch.arange(7) >= 3).long().expand(3, 7)
    batch = Batch(ids, mask, torch.tensor([[3, 5], [6, 6], [-1, -1]]), segments=segments, answerable=mask)
    extra = {} if name.startswith("Distil") else {"token_type_ids": segments}
    places = {"start_positions": torch.tensor([3, 6, 0]), "end_positions": torch.tensor([5, 6, 0])}
    expected = model(input_ids=ids, attention_mask=mask.long(), **extra, **places)
    logits = torch.stack([expected.start_logits, expected.end_logits], dim=2)
    assert model.qa_outputs.bias.abs().min() > 0.01
    torch.testing.assert_close(ours(batch), logits - model.qa_outputs.bias, **CLOSE)
    loss = ours.loss(batch)
    torch.testing.assert_close(loss.total / loss.count, expected.loss, **CLOSE)
    (loss.total / loss.count).backward()
    expected.loss.backward()
    gradients = dict(ours.named_parameters())
    table, weight = gradients["encoder.embedding.weight"].grad, gradients["head.output.weight"].grad
    inside = model.distilbert if name.startswith("Distil") else model.bert
    torch.testing.assert_close(table, inside.embeddings.word_embeddings.weight.grad, **CLOSE)
    torch.testing.assert_close(weight, model.qa_outputs.weight.grad, **CLOSE)
    assert model.qa_outputs.bias.grad.abs().max() < 1e-6  # why we have none


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str) -> None:
    """All weights but the idle bias, which comes back as zeros."""
    model = theirs(name)
    ours = from_huggingface(model.config.to_dict(), model.state_dict())
    config, weights = to_huggingface(ours)
    assert config["architectures"] == [name]
    again = getattr(transformers, name)(type(model.config)(**config))
    again.load_state_dict(weights)
    for key, value in model.state_dict().items():
        wanted = torch.zeros(2) if key == "qa_outputs.bias" else value
        assert torch.equal(again.state_dict()[key], wanted), key


def test_a_published_reader_answers(tmp_path: Path) -> None:
    text = "the tower was built in 1889 by eiffel , and painted again in 1892 ."
    made = wordpiece.train([text] * 3, vocab_size=80)
    model = theirs("BertForQuestionAnswering", made.vocab_size)
    ours = from_huggingface(model.config.to_dict(), model.state_dict())
    huggingface.save(ours, tmp_path / "reader", others=made.huggingface_files())
    reader = QAModel(f"hf:{tmp_path / 'reader'}", precision="fp32")
    assert reader.windows.max_tokens == 40
    found = reader.ask("when was it built ?", text)
    pair = made.encode_pair("when was it built ?", text)
    shape = {"input_ids": torch.tensor([pair.ids]), "token_type_ids": torch.tensor([pair.segments])}
    scores = model(**shape)
    start, end = scores.start_logits[0].tolist(), scores.end_logits[0].tolist()
    context = [i for i, segment in enumerate(pair.segments[:-1]) if segment]
    best = max((start[a] + end[b], -a, -b) for a in context for b in context if a <= b < a + 30)
    assert found.text == text[pair.offsets[-best[1]][0] : pair.offsets[-best[2]][1]]
    assert found.best[0].score == pytest.approx(best[0] - model.qa_outputs.bias.sum().item(), rel=1e-4)
    assert not reader.search.may_be_none
    assert QAModel(f"hf:{tmp_path / 'reader'}", threshold=-1e9).ask("when ?", text).text == ""
