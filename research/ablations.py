"""Ways to get more out of a hundred labels, each beside the default fine-tuning: `python research/ablations.py trec`.

Fine-tunes a language model in a dozen ways on the same draws of labelled texts of a data set that research/curves.py
reads, and prints mean accuracy with the lowest and highest draw, beside the linear classifier. No way sees the test
labels.
What is measured is kept in research/results at once, a file for each data set, model and number of labels; the same
command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from consistency import Consistent, Replacing, pairs_of
from curves import DATA, HERE, examples
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.context import QUIET, RunContext
from textgraft.core.files import write_atomically
from textgraft.core.identity import content_hash
from textgraft.data.batch import Batch, iterate
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.sequences import budget_batches, encode_texts
from textgraft.data.splits import nested_order
from textgraft.data.streams.base import ExampleStream
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.linear_layer import fit_output
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.inference import predict_logits
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.nn.pooling import POOLINGS
from textgraft.tasks.classification.model_selection import selection_splits
from textgraft.tasks.classification.training import (
    EncodedTexts,
    Plan,
    TrainedClassifier,
    as_model,
    new_classifier,
    train_classifier,
)
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.loop import Run
from textgraft.training.phases import Phase, Stage
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

MAX_TOKENS = 256
PAPER = {"embedding_dropout": 0.02, "input_dropout": 0.25, "weight_dropout": 0.2, "hidden_dropout": 0.15}
"""AWD-LSTM's dropouts as ULMFiT uses them (Howard & Ruder 2018, §4.1: 0.4 of these and more)."""


@dataclass(frozen=True)
class Draw:
    """A sample of labelled texts, the texts to answer for and the unlabelled ones, as a language model reads them."""

    source: Artifact
    backward: Artifact | None
    train: Examples
    labels: Labels
    texts: Sequence[str]
    pool: Sequence[str]
    seed: int

    def encoded(self, source: Artifact, texts: Sequence[str]) -> list[np.ndarray]:
        return encode_texts(source.tokenizer, texts, MAX_TOKENS)[0]

    @cached_property
    def targets(self) -> np.ndarray:
        return self.labels.encode(self.train)

    def plan(self, source: Artifact, stage: Stage, *, dropouts: dict[str, float] | None = None) -> Plan:
        model = source.model
        if dropouts:
            model = with_dropouts(model, dropouts)
        return Plan(
            language_model=model,
            from_scratch=False,
            stage=stage,
            settings=Settings(seed=self.seed),
            labels=self.labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
        )


def with_dropouts(model: Model, dropouts: dict[str, float]) -> Model:
    """The same weights under other dropouts."""
    from textgraft.models.model import build_unfilled

    description = model.describe()
    made = build_unfilled({**description, "encoder": {**description["encoder"], **dropouts}})
    made.load_state_dict(model.state_dict())
    return made


def tuned(draw: Draw, **how: Any) -> np.ndarray:
    """Probabilities (N, C) of a fine-tuning, as in `trained`."""
    return outputs_from_logits(trained(draw, **how).logits["test"], "single")


def trained(
    draw: Draw,
    *,
    source: Artifact | None = None,
    stage: Stage | None = None,
    dropouts: dict[str, float] | None = None,
    more: tuple[Sequence[str], np.ndarray] | None = None,
    seed: int | None = None,
) -> TrainedClassifier:
    """A fine-tuning with its answers for the texts, as "test"; `more` are texts with guessed labels to learn from."""
    source, stage = source or draw.source, stage or load_recipe("default").finetune
    texts, targets = list(draw.train.texts), draw.targets
    if more is not None:
        texts, targets = [*texts, *more[0]], np.concatenate([targets, more[1]])
    with tempfile.TemporaryDirectory() as folder:
        return train_classifier(
            draw.plan(source, stage, dropouts=dropouts),
            EncodedTexts(draw.encoded(source, texts), targets),
            {"test": EncodedTexts(draw.encoded(source, draw.texts))},
            title="run",
            context=RunContext(Path(folder), draw.seed if seed is None else seed, show=False),
        )


def at_least(steps: int) -> Stage:
    return replace(load_recipe("default").finetune, min_steps=steps)


def linear(draw: Draw) -> np.ndarray:
    classifier = LinearBaseline(seed=draw.seed)
    classifier.fit(draw.train.texts, draw.targets, num_classes=draw.labels.num_outputs)
    return classifier.predict_proba(draw.texts)


@torch.no_grad()
def features(source: Artifact, sequences: Sequence[np.ndarray]) -> np.ndarray:
    """(N, 3 D) mean vectors of the table, of the second layer and of the top one, each part of length 1."""
    model, rows, found = source.model.eval(), [], []
    batches = budget_batches([len(s) for s in sequences], tokens=8_192, rows=256)
    for indices, batch in zip(batches, iterate(sequences, batches, source.tokenizer.pad_id), strict=True):
        with computing_in("auto"):
            encoded = model.encoder(batch, keep="all")
        parts = [POOLINGS["mean"](encoded.layers[i].float(), encoded.mask, "left") for i in (0, 2, -1)]
        found.append(torch.cat([F.normalize(p, dim=1) for p in parts], dim=1))
        rows += indices
    return torch.cat(found)[np.argsort(rows)].numpy()


def logistic(draw: Draw, source: Artifact | None = None) -> np.ndarray:
    """Logistic regression on the frozen model's layers; C by cross-validation."""
    source = source or draw.source
    known, asked = (features(source, draw.encoded(source, t)) for t in (draw.train.texts, draw.texts))
    return fit_output(known, draw.targets, "single", draw.labels.num_outputs, draw.seed).predict(asked)


def ensemble(draw: Draw, stage: Stage) -> np.ndarray:
    return np.mean([tuned(draw, stage=stage, seed=100 * draw.seed + i) for i in range(5)], axis=0)


def of_folds(draw: Draw) -> list[TrainedClassifier]:
    """The networks that model selection needs anyway, each trained without a fifth of the labels, and one on all."""
    kept = [kept for kept, _ in selection_splits(draw.train, draw.seed)]
    parts = [*(draw.train.take(indices) for indices in kept), draw.train]
    return [trained(replace(draw, train=part), stage=recommended_recipe(draw)) for part in parts]


def averaged_answers(draw: Draw) -> np.ndarray:
    return np.mean([outputs_from_logits(one.logits["test"], "single") for one in of_folds(draw)], axis=0)


def averaged_weights(draw: Draw) -> np.ndarray:
    """One network whose weights are the mean of theirs (Wortsman et al. 2022, "uniform soup")."""
    plan, networks = draw.plan(draw.source, recommended_recipe(draw)), of_folds(draw)
    names, count = networks[0].values, len(networks)
    mean = {name: sum((one.values[name] for one in networks[1:]), names[name]) / count for name in names}
    logits = predict_logits(
        as_model(plan, replace(networks[0], values=mean)), draw.encoded(draw.source, draw.texts), plan.pad_id
    )
    return outputs_from_logits(logits, "single")


def recommended_recipe(draw: Draw) -> Stage:
    """What `finetune` would take for the model."""
    return load_recipe(draw.source.recommended_recipe("default")).finetune


def pooled(name: str) -> Callable[[Draw], np.ndarray]:
    """A text's vector made by that one of nn.pooling.POOLINGS, whatever the recipe says."""
    return lambda draw: tuned(draw, stage=replace(recommended_recipe(draw), pooling=name))


def both_directions(draw: Draw) -> np.ndarray:
    assert draw.backward is not None
    return (tuned(draw, stage=at_least(120)) + tuned(draw, source=draw.backward, stage=at_least(120))) / 2


def adapted(epochs: float) -> Callable[[Draw], np.ndarray]:
    """The language model reads the pool so often first; once for all draws."""

    def way(draw: Draw) -> np.ndarray:
        key = f"adapted-{epochs:g}"
        folder = Path(tempfile.gettempdir()) / f"ablations-{key}-{content_hash([ADAPTED_FROM[0], *draw.pool])[:12]}"
        if not folder.exists():
            recipe = load_recipe("default")
            phases = tuple(replace(p, epochs=epochs) for p in recipe.adapt.phases)
            text = f'name = "{key}"\ndescription = "x"\nsource = "x"\n' + _toml(replace(recipe.adapt, phases=phases))
            path = folder.with_suffix(".toml")
            path.write_text(text)
            adapt(draw.pool, folder, model=ADAPTED_FROM[0], recipe=str(path), context=QUIET)
        return tuned(draw, source=loading.load_network(folder), stage=at_least(120))

    return way


ADAPTED_FROM: list[str] = []


def _toml(stage: Stage) -> str:
    """A stage of one phase as a recipe's adapt table, with an unused finetune table."""
    (phase,) = stage.phases
    lines = ["[adapt]", f"batch_size = {stage.batch_size}", f"bptt = {stage.bptt}", f"clip = {stage.clip}"]
    lines += ["[[adapt.phases]]", f'name = "{phase.name}"', f"epochs = {phase.epochs}", f"lr = {phase.lr}"]
    lines += [f"lr_decay = {phase.lr_decay}", f'schedule = "{phase.schedule}"', f"weight_decay = {phase.weight_decay}"]
    return "\n".join([*lines, "[finetune]", "[[finetune.phases]]", 'name = "x"', "epochs = 1", "lr = 0.001"])


def with_linear(draw: Draw) -> np.ndarray:
    """The mean of the log probabilities of a fine-tuning and of the linear classifier."""
    said = np.log(np.maximum(tuned(draw, stage=at_least(120)), 1e-9)) + np.log(np.maximum(linear(draw), 1e-9))
    return np.exp(said / 2)


def self_trained(draw: Draw, *, dropouts: dict[str, float] | None = None) -> np.ndarray:
    """The surest half of what fine-tuning and linear model say of the pool, at most 1,000 texts, is learned from too.

    With `dropouts` the student reads noisier texts than its teacher (Xie et al. 2020, "noisy student").
    """
    rest = [t for t in draw.pool if t not in set(draw.train.texts)]
    order = np.random.default_rng(draw.seed).permutation(len(rest))[:2_000]
    pool = [rest[i] for i in order]
    said = with_linear(replace(draw, texts=pool))
    sure = np.argsort(-said.max(axis=1))[: len(pool) // 2]
    return tuned(
        draw, stage=at_least(120), dropouts=dropouts, more=([pool[i] for i in sure], said[sure].argmax(axis=1))
    )


def consistent(draw: Draw) -> np.ndarray:
    """UDA: the pool's texts keep their answer when words that say little are replaced; three of them for a label."""
    source, stage = draw.source, at_least(120)
    pad_id, pool = source.tokenizer.pad_id, [text for text in draw.encoded(source, draw.pool) if len(text)]
    replacing = Replacing(pool, source.tokenizer.vocab_size, kept=[pad_id])
    plan = draw.plan(source, stage)
    model = Consistent(
        new_classifier(plan, draw.seed), pairs_of(pool, replacing, pad_id, rows=3 * stage.batch_size, seed=draw.seed)
    )
    known = draw.encoded(source, draw.train.texts)
    stream = ExampleStream(known, torch.from_numpy(draw.targets), pad_id=pad_id, rows=stage.batch_size, seed=draw.seed)
    phases = stage.plan(len(model.layer_groups()), stream.length(0))
    for _ in Run(model, phases, stream, replace(plan.settings.of(stage), seed=draw.seed)).steps():
        pass
    return outputs_from_logits(predict_logits(model, draw.encoded(source, draw.texts), pad_id), "single")


class Pairs(Head):
    """Texts of one class near each other, of two classes far: all pairs of a batch (Tunstall et al. 2022, "SetFit")."""

    config: Any = None

    def vectors(self, encoded: Encoded) -> Tensor:
        return F.normalize(POOLINGS["mean"](encoded.top.float(), encoded.mask, "left"), dim=1)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        assert batch.targets is not None
        vectors = self.vectors(encoded)
        alike = (batch.targets[:, None] == batch.targets[None, :]).float()
        upper = torch.ones_like(alike, dtype=torch.bool).triu(1)
        return Loss(F.mse_loss((vectors @ vectors.T)[upper], alike[upper], reduction="sum"), int(upper.sum()))


def pairs(draw: Draw) -> np.ndarray:
    """SetFit: the encoder learns pairs of labelled texts, then logistic regression reads its layers."""
    source = loading.load_network(ADAPTED_FROM[0])
    sequences = draw.encoded(source, draw.train.texts)
    stream = ExampleStream(sequences, torch.from_numpy(draw.targets), pad_id=source.tokenizer.pad_id, seed=draw.seed)
    model = Model(source.model.encoder, Pairs())
    phase = Phase("pairs", 120 / stream.length(0), 0.001, schedule="linear", lr_decay=1.3, weight_decay=0.01)
    for _ in Run(model, [phase], stream, Settings(seed=draw.seed, clip=1.0)).steps():
        pass
    return logistic(draw, source)


LINEAR_METHODS: dict[str, Callable[[Draw], np.ndarray]] = {
    "linear": linear,
    "default, as long as its epochs": lambda d: tuned(d, stage=at_least(0)),
    "default, at least 60 steps": lambda d: tuned(d, stage=at_least(60)),
    "default, at least 120 steps": lambda d: tuned(d, stage=at_least(120)),
    "default, at least 240 steps": lambda d: tuned(d, stage=at_least(240)),
    "120 steps, half of the paper's dropouts": lambda d: tuned(
        d, stage=at_least(120), dropouts={k: v / 2 for k, v in PAPER.items()}
    ),
    "120 steps, all of the paper's dropouts": lambda d: tuned(d, stage=at_least(120), dropouts=PAPER),
    "logistic regression on frozen layers": logistic,
    "120 steps, five seeds averaged": lambda d: ensemble(d, at_least(120)),
    "120 steps, forward and backward averaged": both_directions,
    "120 steps, adapted for half an epoch": adapted(0.5),
    "120 steps, adapted for 1 epoch": adapted(1.0),
    "120 steps, adapted for 3 epochs": adapted(3.0),
    "120 steps, mean with linear": with_linear,
    "120 steps, self-trained with linear on the pool": self_trained,
    "the same, student with the paper's dropouts": lambda d: self_trained(d, dropouts=PAPER),
    "120 steps, consistent on the pool": consistent,
    "pairs, then logistic regression": pairs,
    "lstm-small": lambda d: tuned(d, stage=load_recipe("lstm-small").finetune),
    "lstm-small, label smoothing 0.1": lambda d: tuned(
        d, stage=replace(load_recipe("lstm-small").finetune, label_smoothing=0.1)
    ),
    "the model's own recipe": lambda d: tuned(d, stage=recommended_recipe(d)),
    "the model's own recipe, five seeds averaged": lambda d: ensemble(d, recommended_recipe(d)),
    "the model's own recipe, answers of five folds and all labels averaged": averaged_answers,
    "the model's own recipe, weights of five folds and all labels averaged": averaged_weights,
    **{f"the model's own recipe, pooling {name}": pooled(name) for name in POOLINGS},
    "multifit": lambda d: tuned(d, stage=load_recipe("multifit").finetune),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=DATA)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--test", type=int, default=2_000, help="at most so many test texts")
    parser.add_argument("--model", default="en-ulmfit")
    parser.add_argument("--backward", help="a model that reads from the right")
    parser.add_argument("--ways", help="with semicolons; default: all. Of: " + "; ".join(LINEAR_METHODS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    folder, read = DATA[asked.name]
    rows, test_rows, pool = read(asked.data / folder)
    train, test = examples(rows, asked.name), examples(test_rows[: asked.test], "test")
    labels, ADAPTED_FROM[:] = Labels.fit(train), [asked.model]
    truth = labels.encode(test)
    which = asked.name if asked.model == "en-ulmfit" else f"{asked.name}-{Path(asked.model).name}"
    path = HERE / "results" / f"ablations-{which}-{asked.labels}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    ways = asked.ways.split(";") if asked.ways else [w for w in LINEAR_METHODS if asked.backward or "backward" not in w]
    for way in (w.strip() for w in ways):
        for seed in range(asked.seeds):
            done = found.setdefault(way, {})
            if str(seed) in done:
                continue
            sample = train.take(sorted(nested_order(train, seed)[: asked.labels]))
            backward = loading.load_network(asked.backward) if asked.backward else None
            draw = Draw(loading.load_network(asked.model), backward, sample, labels, test.texts, pool, seed)
            began = time.process_time()
            accuracy = float((LINEAR_METHODS[way](draw).argmax(axis=1) == truth).mean())
            done[str(seed)] = {"accuracy": accuracy, "seconds": time.process_time() - began}
            write_atomically(path, json.dumps(found, indent=1).encode())
        scores = [100 * r["accuracy"] for r in found[way].values()]
        spent = np.mean([r["seconds"] for r in found[way].values()])
        print(f"{np.mean(scores):5.1f} [{min(scores):.1f}, {max(scores):.1f}]  {spent:6.0f} s  {way}", flush=True)


if __name__ == "__main__":
    main()
