"""fastai's side of the language-model comparison: its AWD_LSTM, LinearDecoder, data loader, Adam and Learner.

Started by lm.py in the peers' environment; answers its commands on stdin (`timing.serve`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import fastai
import numpy as np
import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.rnn import rnn_cbs
from fastai.callback.schedule import Learner  # the Learner with its fit_one_cycle
from fastai.data.core import DataLoaders
from fastai.losses import CrossEntropyLossFlat
from fastai.text.data import LMDataLoader
from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config, awd_lstm_lm_split
from fastai.text.models.core import get_language_model
from timing import Parts, clocks, flop_per_token, matmul_peaks, serve, since
from torch import Tensor
from torch.nn import functional as F

WEIGHT_DECAY = 0.01  # fastai's default


class StopAfter(Callback):
    """Makes an epoch of so many batches, for the schedule too, and notes how long their training took."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done = steps, 0
        self.spent: dict[str, float] = {}

    def before_train(self) -> None:
        self.started = clocks()

    def before_batch(self) -> None:
        self.learn.n_iter = self.steps  # what Learner computes the schedule's progress from

    def after_batch(self) -> None:
        if not self.training:
            return
        self.done += 1
        if self.done >= self.steps:
            self.spent = since(self.started)
            raise CancelFitException()


class Side:
    """fastai's language model under its own Learner."""

    def __init__(self, shape: dict[str, Any]) -> None:
        self.shape = shape
        self.learner = self.new_learner()

    def new_learner(self, regularised: bool = True) -> Learner:
        torch.manual_seed(0)
        shape = self.shape
        sizes = {"emb_sz": shape["embedding_dim"], "n_hid": shape["hidden_dim"], "n_layers": shape["num_layers"]}
        config = {**awd_lstm_lm_config, **sizes}
        # At exactly 0 its weight drop hands out the parameter itself, which its next reset then fails to replace.
        drop_mult = 1.0 if regularised else 1e-9
        model = get_language_model(AWD_LSTM, shape["vocab_size"], config=config, drop_mult=drop_mult)
        loaders = [
            LMDataLoader([(torch.from_numpy(np.load(path).astype(np.int64)),)], bs=shape["rows"], seq_len=shape["bptt"])
            for path in (shape["train"], shape["valid"])
        ]
        # What language_model_learner and text_learner set up, without a vocabulary of strings.
        return Learner(
            DataLoaders(*loaders),
            model,
            loss_func=CrossEntropyLossFlat(),
            splitter=awd_lstm_lm_split,
            wd=WEIGHT_DECAY,
            cbs=rnn_cbs(alpha=2.0 * regularised, beta=1.0 * regularised),
        )

    def speed(self, steps: int) -> dict[str, float]:
        """Seconds of so many training steps inside Learner.fit, and the tokens in them."""
        stop = StopAfter(steps)
        with self.learner.no_bar(), self.learner.no_logging():
            self.learner.fit(1, lr=self.shape["lr"], cbs=stop)
        return {"tokens": steps * self.shape["rows"] * self.shape["bptt"], **stop.spent}

    def parts(self, steps: int) -> dict[str, float]:
        """The share of a step's processor time in each part."""
        parts, learner = Parts(), self.learner
        parts.wrap(learner.model[0], "forward", "encoder forward")
        parts.wrap(learner.model[1], "forward", "output layer")
        parts.wrap(learner.loss_func.func, "forward", "output layer")
        parts.wrap(Tensor, "backward", "backward")
        parts.wrap(learner.opt, "step", "optimizer")
        return parts.shares(self.speed(steps)["cpu"])

    def learn(self, steps: int) -> dict[str, Any]:
        """Train anew, one-cycle, not regularised; the validation loss is over the whole vocabulary."""
        learner, stop = self.new_learner(regularised=False), StopAfter(steps)
        with learner.no_bar(), learner.no_logging():
            learner.fit_one_cycle(1, self.shape["lr"], cbs=stop)
        tokens = self.shape["rows"] * self.shape["bptt"] * steps
        return {**stop.spent, "steps": stop.done, "tokens": tokens, "valid_loss": self.validate(learner)}

    @torch.no_grad()
    def validate(self, learner: Learner) -> float:
        """Nats per token of the validation text, state carried; Learner.validate takes a mean of means."""
        model = learner.model.eval()
        model.reset()
        total, count = 0.0, 0
        for ids, targets in learner.dls.valid:
            logits = model(ids)[0]
            total += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
            count += targets.numel()
        return total / count

    def describe(self) -> dict[str, Any]:
        return {
            "fastai": fastai.__version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "precision": "fp32",
            "matmul_peak": matmul_peaks(),
            "flop_per_token": flop_per_token(self.shape, self.shape["vocab_size"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", type=Path, help="JSON: sizes, learning rate and token files")
    arguments = parser.parse_args()
    side = Side(json.loads(arguments.shape.read_text("utf-8")))
    serve({"describe": side.describe, "speed": side.speed, "parts": side.parts, "learn": side.learn})


if __name__ == "__main__":
    main()
