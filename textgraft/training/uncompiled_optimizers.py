"""torch's optimizers without the import of torch's compiler.

torch wraps their methods to exclude them from compilation, which imports the compiler: three seconds and 71 MB in every
process that trains on a CPU, where nothing is compiled. These classes have the unwrapped methods.
"""

from __future__ import annotations

from inspect import unwrap

import torch
from torch import optim


class Uncompiled(optim.Optimizer):
    """Optimizer base class with the unwrapped methods other than `step`."""

    add_param_group = unwrap(optim.Optimizer.add_param_group)
    zero_grad = unwrap(optim.Optimizer.zero_grad)
    state_dict = unwrap(optim.Optimizer.state_dict)
    load_state_dict = unwrap(optim.Optimizer.load_state_dict)


class Adam(Uncompiled, optim.Adam):
    """torch's Adam, bit for bit."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class AdamW(Uncompiled, optim.AdamW):
    """torch's AdamW, bit for bit."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class SGD(Uncompiled, optim.SGD):
    """torch's SGD, bit for bit."""

    step = torch.no_grad()(unwrap(optim.SGD.step))
