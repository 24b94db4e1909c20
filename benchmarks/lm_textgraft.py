"""Our side of the language-model comparison: textgraft's own model, stream, optimizer and training loop.

Started by lm.py; answers its commands on stdin (`timing.serve`).
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import Parts, clocks, flop_per_token, matmul_peaks, serve, since
from torch import Tensor

from textgraft.data.streams.base import LanguageModelStream
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.encoders.base import State
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.nn.softmax import AdaptiveSoftmax, OutputLayer, SampledSoftmax
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

UNREGULARISED = {
    "encoder": dict.fromkeys(("embedding_dropout", "input_dropout", "weight_dropout", "hidden_dropout"), 0.0),
    "head": {"output_dropout": 0.0, "alpha": 0.0, "beta": 0.0},
}


class Tokens:
    """Token ids in memory, as LanguageModelStream reads them."""

    def __init__(self, path: str) -> None:
        self.ids = np.load(path)
        self.num_tokens, self.document_starts = len(self.ids), np.zeros(1, dtype=np.int64)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop]


class Side:
    """One configuration of ours, trained step by step."""

    def __init__(self, shape: dict[str, Any], output_layer: str, precision: str) -> None:
        self.shape, self.output_layer, self.precision = shape, output_layer, precision
        self.train = Tokens(shape["train"])
        self.valid = Tokens(shape["valid"])
        self.run = self.new_run(epochs=1000, schedule="constant")
        self.steps = self.run.steps()

    def new_run(self, epochs: float, schedule: str, **regularisation: dict[str, float]) -> Run:
        """A fresh model to train; `regularisation` may replace settings of its "encoder" and its "head"."""
        torch.manual_seed(0)
        shape = self.shape
        config = AWDLSTMConfig(
            shape["vocab_size"],
            shape["embedding_dim"],
            shape["hidden_dim"],
            shape["num_layers"],
            input_scale=shape["embedding_dim"] ** 0.5,  # as our pretraining recipes have it
            **regularisation.get("encoder", {}),
        )
        encoder = AWDLSTM(config)
        head = LanguageModelHead(
            LanguageModelConfig(
                shape["vocab_size"],
                shape["embedding_dim"],
                output_layer=self.output_layer,
                **regularisation.get("head", {}),
            ),
            encoder.embedding.weight,
        )
        head.output.start_from_counts(torch.from_numpy(np.bincount(self.train.ids, minlength=shape["vocab_size"])))
        stream = LanguageModelStream(self.train, rows=shape["rows"], bptt=shape["bptt"], variable=False)
        phase = Phase("train", epochs, shape["lr"], schedule=schedule, warmup=0.25, weight_decay=0.01)
        return Run(Model(encoder, head), [phase], stream, Settings(precision=self.precision, clip=None))

    def speed(self, steps: int) -> dict[str, float]:
        """Seconds of so many training steps, and the tokens in them."""
        before, start = self.run.progress.tokens, clocks()
        for _ in itertools.islice(self.steps, steps):
            pass
        return {"tokens": self.run.progress.tokens - before, **since(start)}

    def parts(self, steps: int) -> dict[str, float]:
        """The share of a step's processor time in each part; our output layer makes its gradients going forward."""
        parts, run = Parts(), self.run
        parts.wrap(run.model.encoder, "forward", "encoder forward")
        parts.wrap(run.model.head, "loss", "output layer")
        parts.wrap(Tensor, "backward", "backward")
        parts.wrap(run.optimizer, "step", "optimizer")
        return parts.shares(self.speed(steps)["cpu"])

    def learn(self, steps: int) -> dict[str, Any]:
        """Train anew, one-cycle, not regularised; the validation loss is over the whole vocabulary."""
        run = self.new_run(steps / self.run.stream.length(0), "one_cycle", **UNREGULARISED)
        start = clocks()
        losses = [step.loss for step in run.steps()]
        spent = since(start)
        return {**spent, "steps": len(losses), "tokens": run.progress.tokens, "valid_loss": self.validate(run.model)}

    @torch.no_grad()
    def validate(self, model: Model) -> float:
        """Nats per token of the validation text, state carried, in full precision."""
        model.eval()
        stream = LanguageModelStream(
            self.valid, rows=self.shape["rows"], bptt=self.shape["bptt"], variable=False, shuffle=False
        )
        total, count = 0.0, 0
        state: State | None = None
        with computing_in("fp32"):
            for batch in stream.batches(0):
                loss = model.loss(batch, state)
                state, total, count = loss.state, total + loss.parts["nll"], count + loss.count
        return total / count

    def describe(self) -> dict[str, Any]:
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "precision": self.run.precision,
            "matmul_peak": matmul_peaks(),
            "flop_per_token": flop_per_token(self.shape, columns(self.run.model.head.output, self.train.ids)),
        }


def columns(layer: OutputLayer, targets: np.ndarray) -> float:
    """How many rows of the output table a token of the training text is multiplied by, on average."""
    if isinstance(layer, SampledSoftmax):
        return float(layer.inclusion.sum())
    if not isinstance(layer, AdaptiveSoftmax):
        return layer.vocab_size
    shares = np.bincount(np.searchsorted(layer.starts, targets, side="right"), minlength=len(layer.sizes)) / len(
        targets
    )
    return layer.shortlist + len(layer.starts) + float(shares[1:] @ layer.sizes[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", type=Path, help="JSON: sizes, learning rate and token files")
    parser.add_argument("--output-layer", required=True)
    parser.add_argument("--precision", required=True)
    arguments = parser.parse_args()
    side = Side(json.loads(arguments.shape.read_text("utf-8")), arguments.output_layer, arguments.precision)
    serve({"describe": side.describe, "speed": side.speed, "parts": side.parts, "learn": side.learn})


if __name__ == "__main__":
    main()
