"""Which layers have tasks learned to read? The softmax weights and the scale of learned mixes, model by model.

Peters et al. 2018 (NAACL), equation 1 and figure 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS, Mix
from textgraft.training.driver import content_hash, weights_hash
from textgraft.training.results_folder import experiment, refuse_existing
from textgraft.word_embeddings.layers import layer_names

LEARNED = tuple(name for name, (kind, _, _) in LAYER_AGGREGATIONS.items() if issubclass(kind, Mix))


def inspect_weights(models: Sequence[str | Path], out: Path | str) -> dict[str, Any]:
    """What share each layer has in the learned mix of each of `models`; writes `out`/results.json and report.html.

    `models` are folders fine-tuned with the layer aggregation "mix" or "elmo-mix": classifiers, taggers, readers. Of an
    ensemble each member with a mix has a row. Shares are those of `Mix.shares` in use, gamma is the scale.

    Raises UserError if `out` exists, for no models, and for one without a learned mix.
    """
    refuse_existing(Path(out))
    if not models:
        raise UserError("there is no model to look at.", where="models", remedy="Name folders of fine-tuned models.")
    found = [(row, artifact) for model in models for row, artifact in _mixes(str(model))]
    asked = {
        "stage": "inspect weights",
        "models": content_hash(weights_hash(artifact.model) for _, artifact in found),
        "names": [row["name"] for row, _ in found],
    }

    def made(_: Path) -> tuple[dict[str, Any], str]:
        # Here, because drawing loads matplotlib, which takes as long as torch.
        from textgraft.experiments.layer_weights_report import render_weights

        results = {"models": [row for row, _ in found]}
        return results, render_weights(results)

    return experiment(Path(out), asked, made)


def _mixes(name: str) -> list[tuple[dict[str, Any], Artifact]]:
    """A row for each network in a folder that has learned a mix. Raises UserError where none has."""
    members = loading.open_models(name).members
    mixes = [m for m in members if isinstance(m, Artifact) and isinstance(m.model.layer_aggregation, Mix)]
    if not mixes:
        remedy = f"Fine-tune one with --layer-aggregation {' or '.join(LEARNED)}."
        raise UserError("this model has learned no mix of layers.", where=name, remedy=remedy)
    short = Path(name).name or name
    numbered = [short] if len(mixes) == 1 else [f"{short} {i}" for i in range(1, len(mixes) + 1)]
    return [(_row(own, one), one) for own, one in zip(numbered, mixes, strict=True)]


@torch.no_grad()
def _row(name: str, artifact: Artifact) -> dict[str, Any]:
    mix = artifact.model.layer_aggregation
    assert isinstance(mix, Mix)
    head = artifact.model.describe()["head"]
    return {
        "name": name,
        "task": head["name"],
        "layer_aggregation": head["layer_aggregation"],
        "base": (artifact.run.get("base") or {}).get("name"),
        "layers": layer_names(artifact.model.encoder),
        "shares": mix.shares().tolist(),
        "gamma": float(mix.scale),
    }
