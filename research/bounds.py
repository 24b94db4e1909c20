"""What bounds of batch norm are worth (textgraft.nn.batch_norm): `python research/bounds.py trec --labels 100`.

Fine-tunes a language model on draws of labels as `research/curves.py NAME --methods no-adapt` does and asks each
network for the test texts several times, with one bound after the other; `none` is torch's own layer. Prints accuracy,
log loss, and log loss at the temperature that suits these very texts, means over the draws. It is one network each
time, so what differs between rows is the bound alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import curves
import numpy as np

from textgraft.core.context import RunContext
from textgraft.data.labels import Labels
from textgraft.data.sequences import TokenIds
from textgraft.data.splits import nested_order
from textgraft.metrics.calibration import fit_temperature, probabilities
from textgraft.models import loading
from textgraft.models.inference import predict_logits
from textgraft.models.model import Model
from textgraft.nn import batch_norm
from textgraft.tasks.classification.ensemble_weights import mean_loss
from textgraft.tasks.classification.training import EncodedTexts, Plan, as_model, train_classifier
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from record import Record

HERE = Path(__file__).parent
BOUNDS = {"none": math.inf, "15": 15.0, "10": 10.0, "8": 8.0, "6": 6.0, "5": 5.0, "4": 4.0, "3": 3.0}


def measured(model: Model, texts: list[TokenIds], truth: np.ndarray, pad_id: int) -> dict[str, list[float]]:
    """Accuracy, log loss and log loss at the texts' own temperature of a classifier's answers within each bound."""
    found = {}
    for name, bound in BOUNDS.items():
        with patch.object(batch_norm, "MAX_DEVIATIONS", bound):
            logits = predict_logits(model, texts, pad_id, "fp32")
        temperatures = (1.0, fit_temperature(logits, truth))
        losses = [mean_loss("single", truth, probabilities(logits, "single", t)) for t in temperatures]
        found[name] = [float((logits.argmax(1) == truth).mean()), *losses]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=curves.DATA)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="en-ulmfit")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--tested", type=int, default=5000)
    asked = parser.parse_args()
    folder, read = curves.DATA[asked.name]
    rows, test_rows, _ = read(asked.data / folder)
    train = curves.examples(rows, asked.name)
    test = curves.examples(curves.sample(test_rows, min(asked.tested, len(test_rows))), f"{asked.name} test")
    labels, source = Labels.fit(train), loading.load_network(asked.model)
    truth, stage = labels.encode(test), load_recipe(source.recommended_recipe("default")).finetune
    texts, pad_id = source.encoded(test.texts, asked.max_tokens)[0], source.tokenizer.pad_id

    def draw(seed: int) -> dict[str, list[float]]:
        mine = train.take(sorted(nested_order(train, seed)[: asked.labels]))
        known = EncodedTexts(source.encoded(mine.texts, asked.max_tokens)[0], labels.encode(mine))
        plan = Plan(source.model, False, stage, Settings(seed=seed), labels, None, pad_id)
        with tempfile.TemporaryDirectory() as work:
            trained = train_classifier(plan, known, {}, title=f"draw {seed}", context=RunContext(Path(work), seed))
        return measured(as_model(plan, trained), texts, truth, pad_id)

    settings = {name: value for name, value in vars(asked).items() if name not in ("data", "seeds")}
    record = Record(HERE / "results" / "bounds" / f"{asked.name}-{asked.labels}.json", settings)
    found = [record.once(str(seed), lambda seed=seed: draw(seed)) for seed in range(asked.seeds)]
    print(f"{asked.name}, {asked.labels:,} labels, {asked.seeds} draws, {len(test):,} tests")
    for name in BOUNDS:
        each = np.array([one[name] for one in found])
        gain = 100 * (each[:, 0] - [one["none"][0] for one in found])
        accuracy, loss, tempered = each.mean(0)
        shown = f"{100 * accuracy:5.1f} %  {gain.min():+.1f} to {gain.max():+.1f}  {loss:.3f} {tempered:.3f} nats"
        print(f"  {name:>4}  {shown}")


if __name__ == "__main__":
    main()
