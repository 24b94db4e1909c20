"""Root mean square layer normalisation."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), computed in float32 whatever the input's dtype.

    Queries and keys arrive in bfloat16 under autocast, where a mean of squares would lose its last bits.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D), in the dtype of x."""
        return F.rms_norm(x.float(), self.normalized_shape, self.weight, self.eps).to(x.dtype)
