"""Unpadding: layers that take each position by itself compute those with a token only.

In a batch of sentences as they come, half of the positions are padding. Products, activations, norms and dropout then
take half of the time; attention alone has the padded form.

Source: Portes et al. 2023, "MosaicBERT" (arXiv:2312.17482), and Warner et al. 2024, "ModernBERT" (arXiv:2412.13663).
Differs in that attention is over the padded batch, where theirs takes texts of any length one after the other.
"""

from __future__ import annotations

from torch import Tensor

MIN_PADDING = 0.1
"""Share of padding from which it pays to leave it out: each layer copies its queries, keys and values once more. With
less, MiniLM is up to a tenth faster or slower (research/lab-notes.md)."""


class Unpadding:
    """The positions of a padded batch that have a token.

    Args:
        mask: (B, T) bool, False = padding.

    >>> import torch
    >>> unpadding = Unpadding(torch.tensor([[True, True], [True, False]]))
    >>> rows = unpadding.remove(torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]))
    >>> rows.tolist()
    [[1.0], [2.0], [3.0]]
    >>> unpadding.restore(rows).tolist()
    [[[1.0], [2.0]], [[3.0], [0.0]]]
    """

    def __init__(self, mask: Tensor) -> None:
        self._shape, self._places = mask.shape, mask.flatten().nonzero().squeeze(1)

    @classmethod
    def where_it_pays(cls, mask: Tensor) -> Unpadding | None:
        """The unpadding of a batch on a processor with at least MIN_PADDING of padding, else None.

        On a GPU the number of tokens would have to be waited for.

        Args:
            mask: (B, T) bool, False = padding.
        """
        if mask.device.type != "cpu" or mask.count_nonzero().item() > (1 - MIN_PADDING) * mask.numel():
            return None
        return cls(mask)

    def remove(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (N, D), the N positions with a token."""
        return x.flatten(0, 1).index_select(0, self._places)

    def restore(self, x: Tensor) -> Tensor:
        """(N, D) -> (B, T, D), zeros at padding."""
        rows = x.new_zeros(self._shape.numel(), x.shape[-1]).index_copy(0, self._places, x)
        return rows.view(*self._shape, x.shape[-1])


def padded(x: Tensor, unpadding: Unpadding | None) -> Tensor:
    """`x` with its padding, (B, T, D), where it was left out."""
    return x if unpadding is None else unpadding.restore(x)


def unpadded(x: Tensor, unpadding: Unpadding | None) -> Tensor:
    """`x` (B, T, D) without its padding, (N, D), where it is to be left out."""
    return x if unpadding is None else unpadding.remove(x)
