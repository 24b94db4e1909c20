"""Construction of networks without initialising weights that are loaded afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}


class Uninitialized(TorchFunctionMode):
    """Context in which weights are not initialised: the caller loads all of them.

    Random and orthogonal initialisation takes half of the loading time. On the device `meta`, which has no values, this
    keeps torch from importing the compiler used by its random functions there.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`, unless it is a random initialiser; a QR decomposition returns the matrix itself."""
        named = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else named["tensor"]
        if func is torch.linalg.qr:
            return args[0], args[0]
        return func(*args, **named)
