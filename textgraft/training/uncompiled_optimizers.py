"""torch's optimizers, without its compiler.

Their methods are wrapped to be left alone by it, and import it for that: three seconds and 71 MB of every process that
trains on a processor, where nothing is compiled. What they wrap is what is here.
"""

from __future__ import annotations

from inspect import unwrap

import torch
from torch import optim


class Uncompiled(optim.Optimizer):
    """What all optimizers do beside their step."""

    add_param_group = unwrap(optim.Optimizer.add_param_group)
    zero_grad = unwrap(optim.Optimizer.zero_grad)
    state_dict = unwrap(optim.Optimizer.state_dict)
    load_state_dict = unwrap(optim.Optimizer.load_state_dict)


class Adam(Uncompiled, optim.Adam):
    """Adam, bit for bit torch's."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class AdamW(Uncompiled, optim.AdamW):
    """AdamW, bit for bit torch's."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class SGD(Uncompiled, optim.SGD):
    """Stochastic gradient descent, bit for bit torch's."""

    step = torch.no_grad()(unwrap(optim.SGD.step))
