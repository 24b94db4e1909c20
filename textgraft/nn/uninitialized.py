"""Networks whose weights are about to come from elsewhere: made, and not drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}


class Uninitialized(TorchFunctionMode):
    """Inside, weights hold what memory held: whoever makes a network here fills all of it.

    Drawing and orthogonalising them is half of the time that loading takes. On the device `meta`, where there is
    nothing to draw, this keeps torch from importing the compiler that its draws there are written for.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """`func`, unless it draws; the factors of a matrix are the matrix itself."""
        named = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else named["tensor"]
        if func is torch.linalg.qr:
            return args[0], args[0]
        return func(*args, **named)
