"""Write fastai_awd_lstm.safetensors: what fastai's AWD-LSTM language model makes of tiny random weights.

Run once, where fastai can be imported (benchmarks/README.md says how to get it), from the project's root:

    python tests/parity/make_fastai_fixture.py

It holds the weights, and, computed in float32 and in float64, for two windows of text, the second starting from the
first's state: the logits, the loss (cross entropy with AR α = 2 and TAR β = 1, all dropouts 0) and every gradient.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PATH = Path(__file__).with_name("fastai_awd_lstm.safetensors")
SHAPE: dict[str, Any] = {"emb_sz": 8, "n_hid": 12, "n_layers": 3, "pad_token": 1}
VOCAB, ROWS, STEPS = 40, 3, 6
ALPHA, BETA = 2.0, 1.0


def fastai_model() -> torch.nn.Module:
    """The language model of `language_model_learner(dls, AWD_LSTM)`, without dropout, with random biases."""
    from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
    from fastai.text.models.core import get_language_model

    no_dropout = {name: 0.0 for name in awd_lstm_lm_config if name.endswith("_p")}
    model: torch.nn.Module = get_language_model(AWD_LSTM, VOCAB, config={**awd_lstm_lm_config, **SHAPE, **no_dropout})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model


def windows() -> list[tuple[Tensor, Tensor]]:
    """Two windows (B, T) of token ids, each with its targets."""
    text = torch.randint(2, VOCAB, (ROWS, 2 * STEPS + 1), generator=torch.Generator().manual_seed(1))
    return [(text[:, s : s + STEPS], text[:, s + 1 : s + STEPS + 1]) for s in (0, STEPS)]


def fastai_results(model: torch.nn.Module) -> dict[str, Tensor]:
    """Logits, loss and gradients of each window by `<window>.<name>`, as fastai's RNNRegularizer makes the loss."""
    model.train()
    model.reset()
    results = {}
    for index, (ids, targets) in enumerate(windows()):
        logits, raw, dropped = model(ids)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss = loss + ALPHA * dropped.pow(2).mean() + BETA * (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
        model.zero_grad()
        loss.backward()
        results |= {f"{index}.logits": logits.detach(), f"{index}.loss": loss.detach()}
        results |= {f"{index}.grad.{n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return results


def main() -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = {name: tensor.clone() for name, tensor in fastai_model().state_dict().items()}
    tensors = {f"weight.{name}": tensor for name, tensor in weights.items()}
    for name in ("float32", "float64"):
        torch.set_default_dtype(getattr(torch, name))  # fastai's weight drop cannot follow `model.to`
        model = fastai_model()
        model.load_state_dict(weights)
        tensors |= {f"{name}.{n}": tensor.contiguous() for n, tensor in fastai_results(model).items()}
    save_file(tensors, PATH)
    print(f"{PATH}: {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
