"""Embedding tables: with sparse accumulated gradients, and adaptive, with narrower vectors for rarer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.nn.cpu.precision import cast_once, compute_dtype


class Embedding(nn.Embedding):
    """torch's embedding, with sparse gradients where they are added to existing ones.

    A step of several micro-batches (training.loop) would otherwise allocate, clear and add a table for each, nearly all
    zeros: 60 ms for 30,522 rows of 384. Sparse and dense gradients add up to a dense one, so only the first has to be
    dense.
    """

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (…) to vectors (…, D)."""
        accumulating = self.weight.grad is not None and self.weight.device.type == "cpu"
        return F.embedding(ids, self.weight, self.padding_idx, sparse=accumulating)


class Cluster(nn.Module):
    """Vectors of one range of the vocabulary, and the projection to the common width."""

    def __init__(self, size: int, width: int, dim: int, *, projected: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width)
        self.projection = nn.Parameter(torch.empty(width, dim)) if projected else None


class AdaptiveEmbedding(nn.Module):
    """Token ids (…) to vectors (…, D) from tables that grow narrower (Baevski & Auli 2019, arXiv:1809.10853, §3).

    The vectors of cluster i are `div_value` ** i narrower than D and multiplied by a matrix (width, D). As in
    Transformer-XL's code: with a `div_value` of 1 no cluster has a matrix, else all but the first, and that too with
    `project_first`. Vectors start with a standard deviation of 0.02 and matrices with width ** -0.5, so that all tokens
    start with the same length; that code has 0.01 for matrices, which makes rare tokens nearly zero in a small model.

    Args:
        vocab_size: V; token ids must be sorted by falling frequency.
        dim: D.
        cutoffs: First ids of the clusters after the first.
        div_value: Factor between the widths of consecutive clusters.
        project_first: The first cluster has a matrix too.

    Raises:
        UserError: The cutoffs do not rise within the vocabulary, or div_value is below 1.
    """

    def __init__(
        self, vocab_size: int, dim: int, *, cutoffs: Sequence[int], div_value: float = 1.0, project_first: bool = False
    ) -> None:
        super().__init__()
        bounds = [0, *cutoffs, vocab_size]
        if any(low >= high for low, high in pairwise(bounds)):
            message = (
                f"{list(cutoffs)} does not rise from at least 1 to below {vocab_size}, the size of the vocabulary."
            )
            raise UserError(message, where="cutoffs", remedy="Give the first token ids of the clusters, in order.")
        if not div_value >= 1:
            message = f"{div_value} would make rare tokens' vectors wider."
            raise UserError(message, where="div_value", remedy="Give 1 or more.")
        self.vocab_size, self.dim, self.cutoffs, self.div_value = vocab_size, dim, list(cutoffs), div_value
        self.clusters = nn.ModuleList(
            Cluster(
                high - low,
                max(1, int(dim // div_value**i)),
                dim,
                projected=project_first if i == 0 else div_value > 1,
            )
            for i, (low, high) in enumerate(pairwise(bounds))
        )
        for table, projection in self.parts():
            nn.init.normal_(table, std=0.02)
            if projection is not None:
                nn.init.normal_(projection, std=len(projection) ** -0.5)

    def parts(self) -> list[tuple[nn.Parameter, nn.Parameter | None]]:
        """Table (size, width) of each cluster and its matrix (width, D), if it has one."""
        return [(cluster.table.weight, cluster.projection) for cluster in self.clusters]  # type: ignore[union-attr,misc]

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.flatten().contiguous()
        cluster = torch.bucketize(flat, flat.new_tensor(self.cutoffs), right=True)
        parts = self.parts()
        vectors_by_row = parts[0][0].new_zeros(len(flat), self.dim)
        for i, (start, (table, projection)) in enumerate(zip([0, *self.cutoffs], parts, strict=True)):
            rows = (cluster == i).nonzero().squeeze(1)
            vectors = F.embedding(flat[rows] - start, table)
            vectors = vectors if projection is None else vectors @ cast_once(projection, compute_dtype(vectors))
            vectors_by_row = vectors_by_row.index_copy(0, rows, vectors.to(vectors_by_row.dtype))
        return vectors_by_row.view(*ids.shape, self.dim)
