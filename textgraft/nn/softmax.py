"""Output layers of a language model: from hidden vectors to a loss over the vocabulary.

All have one interface, `OutputLayer`, and all but the adaptive one the same parameters, so that a model trained with
one can continue with another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE
from textgraft.nn.chunked import chunked_cross_entropy
from textgraft.nn.cpu.precision import cast_once, compute_dtype, linear
from textgraft.nn.embedding import AdaptiveEmbedding


class OutputLayer(nn.Module):
    """Hidden vectors (N, D) to a loss, or to log probabilities, over V tokens.

    Args:
        vocab_size: V.
        input_dim: D.
        weight: Embedding table (V, D) to tie the layer to (Press & Wolf 2017; Inan et al. 2017).
        label_smoothing: Label smoothing.
        bias: Use a bias for each token.
    """

    def __init__(
        self,
        vocab_size: int,
        input_dim: int,
        *,
        weight: nn.Parameter | AdaptiveEmbedding | None = None,
        label_smoothing: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.has_bias = bias
        if weight is not None:
            shape = (weight.vocab_size, weight.dim) if isinstance(weight, AdaptiveEmbedding) else tuple(weight.shape)
            if shape != (vocab_size, input_dim):
                raise ValueError(f"the tied table is {shape}, not ({vocab_size}, {input_dim})")
        self.vocab_size, self.label_smoothing = vocab_size, label_smoothing

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, int]:
        """Summed negative log likelihood of `targets` (N,), and the number of those that are not -100.

        `weights` (N,), if given, multiply each target's term.
        """
        raise NotImplementedError

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log probabilities (N, V), exact even where the loss is approximate."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (N, V); the log probabilities, unless the layer computes others."""
        return self.log_probs(hidden)

    @torch.no_grad()
    def start_from_counts(self, counts: Tensor) -> None:
        """Initialise the biases with the log frequencies of the tokens.

        `counts` (V,) are of the training text; a half is added to each, so that none is impossible. A language model
        otherwise needs its first hundred steps to learn them.

        Raises:
            UserError: The layer has no biases.
        """
        if not self.has_bias:
            remedy = "Leave out start_from_counts, or give the head bias = true."
            raise UserError("this output layer has no biases to start from the counts.", remedy=remedy)
        if counts.shape != (self.vocab_size,):
            raise ValueError(f"counts are {tuple(counts.shape)}, not ({self.vocab_size},)")
        counts = counts.to(torch.float64) + 0.5
        self._set_biases((counts / counts.sum()).log())

    def _set_biases(self, log_p: Tensor) -> None:
        raise NotImplementedError


class FullSoftmax(OutputLayer):
    """The plain softmax, all N x V logits at once; the reference for the others."""

    def __init__(
        self,
        vocab_size: int,
        input_dim: int,
        *,
        weight: nn.Parameter | None = None,
        label_smoothing: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__(vocab_size, input_dim, weight=weight, label_smoothing=label_smoothing, bias=bias)
        self.weight = _new_weight(vocab_size, input_dim) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, int]:
        logits = _at_least_float32(F.linear(hidden, self.weight, self.bias))
        reduction = "sum" if weights is None else "none"
        total = F.cross_entropy(
            logits, targets, ignore_index=IGNORE, reduction=reduction, label_smoothing=self.label_smoothing
        )
        return total if weights is None else (total * weights).sum(), int((targets != IGNORE).sum())

    def log_probs(self, hidden: Tensor) -> Tensor:
        return self.logits(hidden).log_softmax(dim=1)

    def logits(self, hidden: Tensor) -> Tensor:
        return _logits(hidden, self.weight, self.bias)

    def _set_biases(self, log_p: Tensor) -> None:
        assert self.bias is not None
        self.bias.copy_(log_p)


class ChunkedSoftmax(FullSoftmax):
    """The result of `FullSoftmax`, a few hundred rows at a time: memory does not grow with N x V."""

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, int]:
        smoothing = self.label_smoothing
        return chunked_cross_entropy(
            hidden, self.weight, self.bias, targets, weights=weights, label_smoothing=smoothing
        )


class SampledSoftmax(ChunkedSoftmax):
    """In training, a softmax over the target and a sample of the vocabulary; in evaluation the exact one.

    Importance sampling of the partition function (Bengio & Senécal 2008; Jean et al. 2015): a sampled token's logit is
    corrected by -log of its sampling probability, so that Z = exp(s_target) + sum of exp(s_j) / q_j over the sample is
    unbiased. The loss, -s_target + log Z, is slightly biased (log is concave), less so the larger the sample. All rows
    of a batch share the sample; where it contains a row's own target, that is left out.

    Differences: each token is in or out of the sample independently (Poisson sampling), with probability min(1, τ p_j)
    and τ such that the expected size is `num_samples`. So q_j is exact, frequent tokens are always in, and with
    num_samples = V this is the full softmax. The target is always included and has no correction.

    p_j is proportional to `counts` ** 0.75 (Mikolov et al. 2013), or without counts log-uniform, which assumes token
    ids sorted by falling frequency.
    """

    inclusion: Tensor  # (V,) sampling probabilities q_j

    def __init__(
        self,
        vocab_size: int,
        input_dim: int,
        *,
        weight: nn.Parameter | None = None,
        label_smoothing: float = 0.0,
        bias: bool = True,
        num_samples: int = 2048,
        counts: Tensor | None = None,
    ) -> None:
        _validate_smoothing(label_smoothing, "sampled")
        super().__init__(vocab_size, input_dim, weight=weight, bias=bias)
        if counts is None:
            ranks = torch.arange(
                1, vocab_size + 1, dtype=torch.float64, device="cpu"
            )  # the device "meta" has no values
            proposal = ranks.reciprocal().log1p()
        else:
            proposal = counts.to(torch.float64).clamp(min=1) ** 0.75
        inclusion = inclusion_probabilities(proposal, num_samples).float()
        self.register_buffer("inclusion", inclusion, persistent=False)  # used in training only, not part of the model

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, int]:
        if not self.training:
            return super().loss(hidden, targets, weights)
        kept = targets != IGNORE
        weights = None if weights is None else weights[kept]
        hidden, targets = hidden[kept], targets[kept]
        sample = (torch.rand_like(self.inclusion) < self.inclusion).nonzero().squeeze(1)
        rows = F.embedding(torch.cat([targets, sample]), self.weight)
        target_weights, sample_weights = rows[: len(targets)], rows[len(targets) :]
        target_logits = _at_least_float32(hidden * target_weights).sum(dim=1)
        correction = -self.inclusion[sample].log()
        if self.bias is not None:
            target_logits = target_logits + self.bias[targets]
            correction = correction + self.bias[sample]
        logits = F.linear(hidden, sample_weights) + correction
        column = torch.full_like(self.inclusion, -1, dtype=torch.int64)
        column[sample] = torch.arange(len(sample), device=sample.device)
        hits = (column[targets] >= 0).nonzero().squeeze(1)
        logits[hits, column[targets[hits]]] = -torch.inf
        log_z = torch.logaddexp(target_logits, torch.logsumexp(logits, dim=1))
        nll = log_z - target_logits
        return (nll if weights is None else nll * weights).sum(), len(targets)


class AdaptiveSoftmax(OutputLayer):
    """A softmax over the frequent tokens and a few clusters of rare ones, then one inside the target's cluster.

    As in torch.nn.AdaptiveLogSoftmaxWithLoss. Token ids must be sorted by falling frequency; `cutoffs` are the first
    ids of the clusters (by default an eighth and half of the vocabulary). The vectors of cluster i are `div_value` ** i
    narrower than the hidden ones. Tied to the embedding table, a cluster uses its rows of the table at full width: the
    only saving is then that most targets need no cluster. Differences: a bias for every token, and at most a few
    hundred rows of logits in memory.

    Tied to an `AdaptiveEmbedding` it uses that one's clusters, whatever `cutoffs` and `div_value` are, and its tables;
    also its matrices with `tied_projections`, except the first cluster's, which here multiplies the hidden vector
    before the head (Transformer-XL's `proj_share_all_but_first`).

    Source: Grave et al. 2017, equations 9 to 12.
    """

    def __init__(
        self,
        vocab_size: int,
        input_dim: int,
        *,
        weight: nn.Parameter | AdaptiveEmbedding | None = None,
        label_smoothing: float = 0.0,
        bias: bool = True,
        cutoffs: Sequence[int] | None = None,
        div_value: float = 4.0,
        tied_projections: bool = True,
    ) -> None:
        _validate_smoothing(label_smoothing, "adaptive")
        super().__init__(vocab_size, input_dim, weight=weight, bias=bias)
        if isinstance(weight, AdaptiveEmbedding):
            cutoffs = weight.cutoffs
        bounds = [*(cutoffs or (max(1, vocab_size // 8), max(2, vocab_size // 2))), vocab_size]
        if bounds[0] < 1 or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"cutoffs must rise from at least 1 to below {vocab_size}, not {cutoffs}")
        self.shortlist, self.starts = bounds[0], bounds[:-1]
        self.sizes = [high - low for low, high in pairwise([0, *bounds])]
        widths = [max(1, int(input_dim // div_value**i)) for i in range(len(self.sizes))]
        self.weight: nn.Parameter | None = None
        self.weights = nn.ParameterList()
        self.projections = nn.ParameterList()
        self.first_projection: nn.Parameter | None = None
        if weight is None:
            self.weights.extend(_new_weight(n, d) for n, d in zip(self.sizes, widths, strict=True))
            self.projections.extend(_new_weight(d, input_dim) for d in widths[1:])
        elif isinstance(weight, AdaptiveEmbedding):
            self._tie(weight, tied_projections)
        else:
            self.weight = weight
        self.cluster_weight = _new_weight(len(self.starts), input_dim)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.cluster_bias = nn.Parameter(torch.zeros(len(self.starts))) if bias else None

    def _tie(self, embedding: AdaptiveEmbedding, tied_projections: bool) -> None:
        parts = embedding.parts()
        self.weights.extend(table for table, _ in parts)
        first, *rest = [projection for _, projection in parts]
        if first is not None:
            self.first_projection = _new_weight(*first.shape)
        for projection in rest:
            if projection is not None:
                self.projections.append(projection if tied_projections else _new_weight(*projection.shape))

    def loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, int]:
        tables, biases = self._head_and_clusters(hidden)
        # 0: in the shortlist, or ignored
        cluster = torch.bucketize(targets.contiguous(), targets.new_tensor(self.starts), right=True)
        in_head = torch.where(cluster == 0, targets, self.shortlist + cluster - 1)
        head_input = self._before_head(hidden)
        total, count = chunked_cross_entropy(head_input, tables[0], biases[0], in_head, weights=weights)
        for i, start in enumerate(self.starts):
            rows = (cluster == i + 1).nonzero().squeeze(1)
            if len(rows):
                inside, cluster_targets = self._projected(hidden[rows], i), targets[rows] - start
                row_weights = None if weights is None else weights[rows]
                total = (
                    total
                    + chunked_cross_entropy(inside, tables[i + 1], biases[i + 1], cluster_targets, weights=row_weights)[
                        0
                    ]
                )
        return total, count

    def log_probs(self, hidden: Tensor) -> Tensor:
        weights, biases = self._head_and_clusters(hidden)
        head = _logits(self._before_head(hidden), weights[0], biases[0]).log_softmax(dim=1)
        parts = [head[:, : self.shortlist]]
        for i in range(len(self.starts)):
            inside = _logits(self._projected(hidden, i), weights[i + 1], biases[i + 1]).log_softmax(dim=1)
            parts.append(head[:, self.shortlist + i, None] + inside)
        return torch.cat(parts, dim=1)

    def _set_biases(self, log_p: Tensor) -> None:
        assert self.bias is not None
        assert self.cluster_bias is not None
        self.bias.copy_(log_p)
        cluster_log_p = log_p.split(self.sizes)[1:]
        self.cluster_bias.copy_(torch.stack([inside.logsumexp(dim=0) for inside in cluster_log_p]))

    def _head_and_clusters(self, hidden: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Weights and biases of the head (shortlist, then one row for each cluster) and of each cluster."""
        dtype = compute_dtype(hidden)
        if self.weight is None:
            weights = [cast_once(weight, dtype) for weight in self.weights]
        else:
            weights = list(cast_once(self.weight, dtype).split(self.sizes))
        weights[0] = torch.cat([weights[0], cast_once(self.cluster_weight, dtype)])
        if self.bias is None or self.cluster_bias is None:
            return weights, [None] * len(weights)
        shortlist_bias, *cluster_biases = self.bias.split(self.sizes)
        return weights, [torch.cat([shortlist_bias, self.cluster_bias]), *cluster_biases]

    def _projected(self, hidden: Tensor, cluster: int) -> Tensor:
        return linear(hidden, self.projections[cluster]) if len(self.projections) else hidden

    def _before_head(self, hidden: Tensor) -> Tensor:
        return hidden if self.first_projection is None else linear(hidden, self.first_projection)


OUTPUT_LAYERS: dict[str, type[OutputLayer]] = {
    "full": FullSoftmax,
    "chunked": ChunkedSoftmax,
    "adaptive": AdaptiveSoftmax,
    "sampled": SampledSoftmax,
}


def inclusion_probabilities(proposal: Tensor, num_samples: int) -> Tensor:
    """min(1, τ p_j) for the unnormalised `proposal` p (V,), with τ such that they sum to min(num_samples, V)."""
    if num_samples >= len(proposal):
        return torch.ones_like(proposal)
    ordered = proposal.sort(descending=True).values
    rest = ordered.flip(0).cumsum(0).flip(0)
    left = num_samples - torch.arange(len(proposal), device=proposal.device)
    certain = int((ordered * left <= rest).nonzero()[0])  # number of the largest that are clamped to 1
    return (proposal * left[certain] / rest[certain]).clamp(max=1)


def _new_weight(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(rows, columns).normal_(std=columns**-0.5))


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return _at_least_float32(linear(hidden, weight, bias))


def _at_least_float32(x: Tensor) -> Tensor:
    """Convert from bfloat16, in which a softmax over a vocabulary must not be summed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _validate_smoothing(label_smoothing: float, name: str) -> None:
    if label_smoothing:
        raise UserError(
            f"label smoothing needs the logit of every token, which the {name} softmax does not compute.",
            remedy="Use output layer 'chunked' or 'full', or no label smoothing.",
        )
