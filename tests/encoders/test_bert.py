"""BERT and its heads against the paper's formulas written out: one position at a time, no shared code."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.encoders.bert import BERT, BERT_SHAPES, BERTConfig, Block
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.masked_language_model import MaskedLanguageModelConfig, MaskedLanguageModelHead
from textgraft.models.model import Model, build

CONFIG = BERTConfig(
    vocab_size=11, embedding_dim=6, num_layers=2, num_heads=3, feed_forward_dim=8, max_length=5, layer_norm_eps=1e-3
)
PAIRS = MaskedLanguageModelConfig(11, 6, next_sentence=True)


def encoder(config: BERTConfig = CONFIG) -> BERT:
    """With weights large enough that everything matters."""
    torch.manual_seed(0)
    made = BERT(config).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


def batch(lengths: tuple[int, ...] = (5, 3)) -> Batch:
    generator = torch.Generator().manual_seed(1)
    shape = (len(lengths), max(lengths))
    mask = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    ids, segments = (torch.randint(size, shape, generator=generator) for size in (11, 2))
    targets = torch.full(shape, IGNORE)
    targets[0, 1], targets[0, 4], targets[1, 2] = 3, 7, 9
    return Batch(ids=ids, mask=mask, segments=segments, targets=targets, pair_targets=torch.tensor([1, 0]))


def normed(x: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.pow(2).mean() + norm.eps).sqrt() * norm.weight + norm.bias


def block_by_loop(block: Block, rows: list[Tensor], heads: int) -> list[Tensor]:
    width = len(rows[0])
    size = width // heads
    projected = [block.attention.inputs.weight @ x + block.attention.inputs.bias for x in rows]
    results = []
    for x, own in zip(rows, projected, strict=True):
        mixed = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            query = own[:width][part]
            keys, values = ([p[k * width : (k + 1) * width][part] for p in projected] for k in (1, 2))
            scores = torch.stack([query @ key / math.sqrt(size) for key in keys]).exp()
            mixed.append(sum((s * v for s, v in zip(scores / scores.sum(), values, strict=True)), torch.zeros(size)))
        attended = block.attention.output.weight @ torch.cat(mixed) + block.attention.output.bias
        x = normed(x + attended, block.attention_norm)
        inner = block.feed_forward.weight @ x + block.feed_forward.bias
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        results.append(normed(x + block.output.weight @ inner + block.output.bias, block.output_norm))
    return results


def test_the_encoder_is_the_paper_written_out() -> None:
    made, given = encoder(), batch()
    assert made.segments is not None
    assert made.pooler is not None
    assert given.segments is not None
    encoded = made(given, keep="all")
    for row, length in enumerate((5, 3)):
        rows = []
        for t in range(length):
            token, segment = int(given.ids[row, t]), int(given.segments[row, t])
            summed = made.embedding.weight[token] + made.positions.weight[t] + made.segments.weight[segment]
            rows.append(normed(summed, made.embedding_norm))
        shown = [rows]
        for block in made.layers:
            rows = block_by_loop(block, rows, CONFIG.num_heads)
            shown.append(rows)
        assert len(encoded.layers) == 3
        for ours, by_loop in zip(encoded.layers, shown, strict=True):
            torch.testing.assert_close(ours[row, :length], torch.stack(by_loop))
        assert encoded.pooled is not None
        torch.testing.assert_close(encoded.pooled[row], torch.tanh(made.pooler.weight @ rows[0] + made.pooler.bias))


def test_no_segments_are_the_first_segment() -> None:
    made, given = encoder(), batch()
    zeros = replace(given, segments=torch.zeros_like(given.ids))
    assert torch.equal(made(replace(given, segments=None)).top, made(zeros).top)
    assert not torch.allclose(made(given).top, made(zeros).top)


def test_without_segments_and_pooler_there_are_no_such_weights() -> None:
    made = encoder(replace(CONFIG, num_segments=0, pooler=False))
    assert made(batch()).pooled is None
    assert not [name for name, _ in made.named_parameters() if "segments" in name or "pooler" in name]
    assert torch.equal(made(batch()).top, made(replace(batch(), segments=None)).top)


def test_a_text_longer_than_the_table_is_refused_with_both_numbers() -> None:
    with pytest.raises(UserError, match=r"6 tokens .* 5 positions .* Cut texts to at most 5"):
        encoder()(Batch(ids=torch.zeros(1, 6, dtype=torch.int64), mask=torch.ones(1, 6, dtype=torch.bool)))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match="4 heads"):
        BERT(replace(CONFIG, num_heads=4))


def test_weights_start_normal_with_the_papers_deviation() -> None:
    torch.manual_seed(0)
    made = BERT(replace(CONFIG, vocab_size=2000, embedding_dim=60, feed_forward_dim=240))
    for name, parameter in made.named_parameters():
        if parameter.numel() > 2000:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        if name.endswith("bias"):
            assert (parameter == 0).all(), name


def test_the_small_shapes_are_those_of_the_table() -> None:
    """Turc et al. 2019, table 1: BERT-tiny has 4.4 million parameters, -mini 11.3, -small 29.1, -medium 41.7."""
    assert len(BERT_SHAPES) == 24
    published = {"bert-2-128": 4.4, "bert-4-256": 11.3, "bert-4-512": 29.1, "bert-8-512": 41.7, "bert-12-768": 110.1}
    for name, millions in published.items():
        with torch.device("meta"):
            made = BERT(BERTConfig(30_522, **BERT_SHAPES[name]))
            head = MaskedLanguageModelHead(MaskedLanguageModelConfig(30_522, made.output_dim), made.embedding.weight)
        # The published counts are those of the masked language model.
        assert round(sum(p.numel() for p in Model(made, head).parameters()) / 1e6, 1) == millions, name


def test_tables_that_are_looked_up_are_not_multiplied() -> None:
    described = {"name": "bert", **asdict(replace(CONFIG, pooler=False))}
    blocks = 2 * (6 * 18 + 6 * 6 + 2 * 6 * 8)
    single = build({"encoder": described, "head": {"name": "classification", "input_dim": 6, "outputs": 4}})
    assert single.multiplied() == blocks + 18 * 50 + 50 * 4
    masked = {"name": "masked_language_model", "vocab_size": 11, "input_dim": 6}
    assert build({"encoder": described, "head": masked}).multiplied() == blocks + 6 * 6 + 11 * 6
    untied = build({"encoder": described, "head": {**masked, "tied": False}})
    assert untied.multiplied() == blocks + 6 * 6 + 11 * 6


def test_masked_tokens_and_pairs_by_hand() -> None:
    """A sum over masked positions, and each text's pair loss once for each of its masked positions."""
    made, given = encoder(), batch()
    head = MaskedLanguageModelHead(PAIRS, made.embedding.weight).double()
    assert head.next_sentence is not None
    loss = Model(made, head).loss(given)
    encoded = made(given)
    assert encoded.pooled is not None
    tokens = torch.zeros(())
    for row, position, target in ((0, 1, 3), (0, 4, 7), (1, 2, 9)):
        h = F.gelu(head.dense.weight @ encoded.top[row, position] + head.dense.bias)
        logits = made.embedding.weight @ normed(h, head.norm) + head.output.bias
        tokens = tokens - logits.log_softmax(0)[target]
    pairs = [
        -(head.next_sentence.weight @ encoded.pooled[row] + head.next_sentence.bias).log_softmax(0)[label]
        for row, label in ((0, 1), (1, 0))
    ]
    assert loss.count == 3
    torch.testing.assert_close(loss.total.double(), tokens + 2 * pairs[0] + pairs[1], rtol=1e-6, atol=1e-6)
    assert loss.parts["nll"] == pytest.approx(tokens.item(), rel=1e-6)
    assert loss.parts["next_sentence_nll"] == pytest.approx((2 * pairs[0] + pairs[1]).item(), rel=1e-6)


def test_with_equal_counts_the_loss_is_the_papers_sum_of_means() -> None:
    made, given = encoder(), batch()
    assert given.targets is not None
    targets = given.targets.clone()
    targets[0, 4] = IGNORE
    given = replace(given, targets=targets)
    head = MaskedLanguageModelHead(PAIRS, made.embedding.weight).double()
    loss = Model(made, head).loss(given)
    encoded = made(given)
    masked = F.nll_loss(head(encoded).transpose(1, 2), targets)
    assert given.pair_targets is not None
    following = F.cross_entropy(head.pair_logits(encoded), given.pair_targets)
    torch.testing.assert_close(loss.total.double() / loss.count, masked + following, rtol=1e-6, atol=1e-6)


def test_only_masked_positions_reach_the_output_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = encoder(), batch()
    head = MaskedLanguageModelHead(MaskedLanguageModelConfig(11, 6), made.embedding.weight).double()
    seen = []
    plain = head.output.loss
    monkeypatch.setattr(head.output, "loss", lambda h, t: seen.append((h.shape, t.tolist())) or plain(h, t))
    Model(made, head).loss(given)
    assert seen == [((3, 6), [3, 7, 9])]


def test_a_batch_without_masked_positions_counts_nothing() -> None:
    made, given = encoder(), batch()
    head = MaskedLanguageModelHead(MaskedLanguageModelConfig(11, 6), made.embedding.weight).double()
    loss = Model(made, head).loss(replace(given, targets=torch.full_like(given.ids, IGNORE)))
    assert (loss.count, loss.total.item()) == (0, 0.0)
    loss.total.backward()


def test_what_needs_a_pooler_says_so() -> None:
    bare = encoder(replace(CONFIG, pooler=False))
    head = MaskedLanguageModelHead(PAIRS, bare.embedding.weight).double()
    with pytest.raises(UserError, match=r"encoder with a pooler.*pooler=True"):
        Model(bare, head).loss(batch())
    classifier = ClassificationHead(ClassificationConfig(6, 2, pooling="pooled"))
    with pytest.raises(UserError, match=r"needs an encoder with a pooler.*Choose another pooling \(concat, first"):
        Model(bare, classifier)(batch())


def test_berts_classifier_is_dropout_and_one_linear_layer() -> None:
    """Devlin et al. 2019, §4.1: softmax(C W^T) of the pooled vector."""
    config = ClassificationConfig(6, 3, pooling="pooled", hidden_dim=0, input_dropout=0.1, batch_norm=False)
    head = ClassificationHead(config)
    assert [type(layer).__name__ for layer in head.layers] == ["Dropout", "Linear"]
    pooled = torch.randn(4, 6)
    nothing = torch.zeros(4, 2, 6)
    encoded = Encoded(top=nothing, mask=torch.ones(4, 2, dtype=torch.bool), pooled=pooled)
    linear = head.layers[1]
    torch.testing.assert_close(head.eval()(encoded), pooled @ linear.weight.t() + linear.bias)
