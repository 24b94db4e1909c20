"""The heads against their formulas: AR and TAR, weight tying, the classifier's layers and losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import build
from textgraft.nn.dropout import variational_dropout
from textgraft.nn.softmax import OUTPUT_LAYERS

B, T, D, V, C = 3, 7, 5, 23, 4


def encoded(*, layers: tuple[Tensor, ...] = (), lengths: tuple[int, ...] = (T, T, T)) -> Encoded:
    torch.manual_seed(0)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    return Encoded(top=torch.randn(B, T, D, requires_grad=True), mask=mask, layers=layers)


def next_tokens() -> Batch:
    torch.manual_seed(1)
    ids = torch.randint(V, (B, T))
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=torch.randint(V, (B, T)))


def language_model(**settings: object) -> LanguageModelHead:
    torch.manual_seed(2)
    return LanguageModelHead(LanguageModelConfig(V, D, output_layer="full", tied=False, **settings))  # type: ignore[arg-type]


def test_activation_regularisation_by_hand() -> None:
    """Merity et al. 2017: α L2(m ⊙ h_t) on what dropout leaves, β L2(h_t - h_t+1) on what is not dropped.

    Both are means over everything, as in their code, so they count once for each target in the sum.
    """
    head = language_model(output_dropout=0.5, alpha=2.0, beta=3.0).train()
    hidden, batch = encoded(), next_tokens()
    torch.manual_seed(3)
    loss = head.loss(hidden, batch)
    torch.manual_seed(3)
    mask = torch.empty(1, B, D).bernoulli_(0.5)[0, :, None] / 0.5
    dropped = hidden.top * mask
    assert batch.targets is not None
    logits = dropped @ head.output.weight.t() + head.output.bias
    nll = F.cross_entropy(logits.reshape(-1, V), batch.targets.reshape(-1))
    ar = torch.stack([dropped[b, t].pow(2).mean() for b in range(B) for t in range(T)]).mean()
    differences = [hidden.top[b, t + 1] - hidden.top[b, t] for b in range(B) for t in range(T - 1)]
    tar = torch.stack(differences).pow(2).mean()
    assert loss.count == B * T
    assert loss.parts["nll"] == pytest.approx(nll.item() * B * T, rel=1e-5)
    torch.testing.assert_close(loss.total / loss.count, nll + 2 * ar + 3 * tar)


def test_regularisers_are_of_training_only() -> None:
    hidden, batch = encoded(), next_tokens()
    with_them = language_model(alpha=2.0, beta=3.0).eval().loss(hidden, batch)
    without = language_model(alpha=0.0, beta=0.0).eval().loss(hidden, batch)
    assert torch.equal(with_them.total, without.total)
    assert with_them.total.item() == with_them.parts["nll"]


def test_regularisers_of_one_position() -> None:
    """There is no difference between steps, and no division by zero either."""
    head = language_model(output_dropout=0.0, alpha=0.0, beta=1.0).train()
    batch = next_tokens()
    assert batch.targets is not None
    first = Encoded(top=encoded().top[:, :1], mask=batch.mask[:, :1])
    loss = head.loss(first, Batch(ids=batch.ids[:, :1], mask=batch.mask[:, :1], targets=batch.targets[:, :1]))
    assert loss.total.item() == loss.parts["nll"]


def test_output_dropout_is_variational() -> None:
    """One mask for all positions of a text, on what the softmax sees."""
    head = language_model(output_dropout=0.5, alpha=0.0, beta=0.0).train()
    hidden, batch = encoded(), next_tokens()
    torch.manual_seed(4)
    loss = head.loss(hidden, batch)
    torch.manual_seed(4)
    dropped = variational_dropout(hidden.top.transpose(0, 1), 0.5, training=True).transpose(0, 1)
    assert batch.targets is not None
    total, _ = head.output.loss(dropped.reshape(-1, D), batch.targets.reshape(-1))
    assert torch.equal(loss.total, total)
    gradient = torch.autograd.grad(loss.total, hidden.top)[0]
    gone = gradient == 0
    assert gone.any()
    assert torch.equal(gone, gone[:, :1].expand_as(gone))


def test_next_token_is_read_off_the_last_position() -> None:
    head, hidden = language_model().eval(), encoded()
    torch.testing.assert_close(head.next_logits(hidden).log_softmax(dim=1), head(hidden)[:, -1])
    torch.testing.assert_close(head(hidden).exp().sum(dim=-1), torch.ones(B, T))


@pytest.mark.parametrize("output_layer", OUTPUT_LAYERS)
def test_tied_weights_are_one_parameter(output_layer: str) -> None:
    """Counted, saved and trained once; its gradient is that of both its uses (Inan et al. 2017)."""
    size = {"vocab_size": V, "embedding_dim": D, "hidden_dim": D, "num_layers": 1}
    dropouts = dict.fromkeys(("embedding_dropout", "input_dropout", "weight_dropout", "hidden_dropout"), 0.0)
    encoder = {"name": "awd_lstm", **size, **dropouts}
    head = {"name": "language_model", "vocab_size": V, "input_dim": D, "output_layer": output_layer}
    torch.manual_seed(0)
    tied = build({"encoder": encoder, "head": {**head, "tied": True}}).eval()
    assert tied.head.output.weight is tied.encoder.embedding.weight
    assert [name for name, v in tied.values().items() if v.shape == (V, D)] == ["encoder.embedding.weight"]
    batch = next_tokens()
    tied.loss(batch).total.backward()
    both = tied.encoder.embedding.weight.grad
    table = tied.encoder.embedding.weight
    of_use = []
    for detached in ("input", "output"):
        hidden = tied.encoder(batch)
        if detached == "input":
            hidden.top = hidden.top.detach()
            loss = tied.head.loss(hidden, batch).total
        else:
            tied.head.output.weight = torch.nn.Parameter(table.detach().clone())
            loss = tied.head.loss(hidden, batch).total
        of_use.append(torch.autograd.grad(loss, table)[0])
    assert both is not None
    torch.testing.assert_close(both, of_use[0] + of_use[1])


def a_classifier(**settings: object) -> ClassificationHead:
    torch.manual_seed(5)
    return ClassificationHead(ClassificationConfig(D, **{"outputs": C, **settings}))  # type: ignore[arg-type]


@pytest.mark.parametrize("direction", ["left", "right"])
def test_classifier_layers_by_hand(direction: str) -> None:
    """[h_T, maxpool(H), meanpool(H)] and the words' mean and maximum, then BN-Linear-ReLU-BN-Linear (§3.3)."""
    head = a_classifier(direction=direction, words_dim=2)
    lengths = (7, 4, 1)
    hidden = encoded(layers=(torch.randn(B, T, 2),), lengths=lengths)
    texts = [hidden.top[b, :n] for b, n in enumerate(lengths)]
    words = [hidden.layers[0][b, :n] for b, n in enumerate(lengths)]
    last = -1 if direction == "left" else 0
    pooled = torch.stack([
        torch.cat([h[last], h.max(dim=0).values, h.mean(dim=0), w.mean(dim=0), w.max(dim=0).values])
        for h, w in zip(texts, words, strict=True)
    ])  # fmt: skip
    norm, _, linear, _, second_norm, _, output = head.layers
    for module in (norm, second_norm):
        torch.nn.init.normal_(module.weight)
        torch.nn.init.normal_(module.bias)
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 2)
    head.eval()
    x = (pooled - norm.running_mean) / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias
    x = (x @ linear.weight.t()).relu()
    x = (x - second_norm.running_mean) / (second_norm.running_var + 1e-5).sqrt() * second_norm.weight + second_norm.bias
    torch.testing.assert_close(head(hidden), x @ output.weight.t() + output.bias)


def test_classifier_dropouts_are_of_training_only() -> None:
    head = a_classifier(input_dropout=0.5, hidden_dropout=0.5)
    assert [type(m).__name__ for m in head.layers] == [
        "BoundedBatchNorm", "Dropout", "Linear", "ReLU", "BoundedBatchNorm", "Dropout", "Linear",
    ]  # fmt: skip
    hidden = encoded()
    assert not torch.equal(head.train()(hidden), head(hidden))
    assert torch.equal(head.eval()(hidden), head(hidden))


def batch_for(targets: Tensor) -> Batch:
    ids = torch.zeros(B, T, dtype=torch.int64)
    return Batch(ids=ids, mask=torch.ones(B, T, dtype=torch.bool), targets=targets)


def test_single_label_loss_by_hand() -> None:
    """Summed cross entropy, each text weighted by its class."""
    head, hidden = a_classifier().eval(), encoded()
    head.class_weights.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    targets = torch.tensor([3, 0, 1])
    loss = head.loss(hidden, batch_for(targets))
    log_p = head(hidden).log_softmax(dim=1)
    expected = -(4 * log_p[0, 3] + 1 * log_p[1, 0] + 2 * log_p[2, 1])
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == B


def test_multi_label_loss_by_hand() -> None:
    """Summed binary cross entropy; a class's weight multiplies its positive term."""
    head, hidden = a_classifier(kind="multi").eval(), encoded()
    head.class_weights.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    targets = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).float()
    loss = head.loss(hidden, batch_for(targets))
    p = head(hidden).sigmoid()
    expected = -(head.class_weights * targets * p.log() + (1 - targets) * (1 - p).log()).sum()
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == B


def test_numeric_loss_by_hand() -> None:
    head, hidden = a_classifier(kind="numeric", outputs=1).eval(), encoded()
    targets = torch.tensor([0.5, -1.0, 2.0])
    loss = head.loss(hidden, batch_for(targets))
    torch.testing.assert_close(loss.total, ((head(hidden)[:, 0] - targets) ** 2).sum())
    assert loss.count == B
