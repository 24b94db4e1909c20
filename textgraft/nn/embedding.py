"""Embedding tables: one that learns part by part at the price of its rows, one with narrower rows for rarer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.nn.cpu.precision import cast_once, compute_dtype


class Embedding(nn.Embedding):
    """torch's, but a gradient that comes on top of another is only of the rows that were read.

    A step of several parts (training.loop) would otherwise make, clear and add a table for each, nearly all zeros:
    60 ms of 30,522 rows of 384. Sparse and dense gradients add up to a dense one, so only the first has to be dense.
    """

    def forward(self, ids: Tensor) -> Tensor:
        """(…) ids to (…, D)."""
        further = self.weight.grad is not None and self.weight.device.type == "cpu"
        return F.embedding(ids, self.weight, self.padding_idx, sparse=further)


class Cluster(nn.Module):
    """The vectors of one stretch of the vocabulary, and what brings them to the width of the others."""

    def __init__(self, size: int, width: int, dim: int, *, projected: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width)
        self.projection = nn.Parameter(torch.empty(width, dim)) if projected else None


class AdaptiveEmbedding(nn.Module):
    """Token ids (…) to vectors (…, D) from tables that grow narrower (Baevski & Auli 2019, arXiv:1809.10853, §3).

    Token ids must go by falling frequency; `cutoffs` are the first ids of the clusters after the first. The vectors of
    cluster i are `div_value` ** i narrower than D and multiplied by a matrix (width, D). As in Transformer-XL's code
    these are all or none: with a `div_value` of 1 no cluster has one, else all but the first, and that too with
    `project_first`. Vectors start with a deviation of 0.02 and matrices with width ** -0.5, so that all tokens start
    equally long; that code has 0.01 for these, which leaves rare tokens all but invisible in a small model.

    Raises UserError for cutoffs that do not rise within the vocabulary, and for a div_value below 1.
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
        """Each cluster's table (size, width) and its matrix (width, D), if it has one."""
        return [(cluster.table.weight, cluster.projection) for cluster in self.clusters]  # type: ignore[union-attr,misc]

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.flatten().contiguous()
        cluster = torch.bucketize(flat, flat.new_tensor(self.cutoffs), right=True)
        parts = self.parts()
        found = parts[0][0].new_zeros(len(flat), self.dim)
        for i, (start, (table, projection)) in enumerate(zip([0, *self.cutoffs], parts, strict=True)):
            rows = (cluster == i).nonzero().squeeze(1)
            vectors = F.embedding(flat[rows] - start, table)
            vectors = vectors if projection is None else vectors @ cast_once(projection, compute_dtype(vectors))
            found = found.index_copy(0, rows, vectors.to(found.dtype))
        return found.view(*ids.shape, self.dim)
