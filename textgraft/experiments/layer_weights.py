"""Learned layer mixes: softmax weights and scale of each fine-tuned model.

Source: Peters et al. 2018 (NAACL), equation 1 and figure 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS, Mix
from textgraft.training.driver import weights_hash
from textgraft.training.results_folder import run_experiment, validate_new_path
from textgraft.word_embeddings.layers import layer_names

LEARNED_MIXES = tuple(name for name, (kind, _, _) in LAYER_AGGREGATIONS.items() if issubclass(kind, Mix))


def inspect_weights(models: Sequence[str | Path], out: Path | str) -> dict[str, Any]:
    """Collect the layer weights of each model's learned mix; write `out`/results.json and report.html.

    Args:
        models: Folders fine-tuned with the layer aggregation "mix" or "elmo-mix": classifiers, taggers, QA models. Of
            an ensemble each member with a mix has a row. Weights are those of `Mix.shares` in use; gamma is the scale.
        out: Folder to write; it must not exist.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; there are no models, or one without a learned mix.
    """
    validate_new_path(Path(out))
    if not models:
        raise UserError("no models are given.", where="models", remedy="Give folders of fine-tuned models.")
    mixes = [(row, artifact) for model in models for row, artifact in _mix_rows(str(model))]
    identity = {
        "stage": "inspect weights",
        "models": content_hash(weights_hash(artifact.model) for _, artifact in mixes),
        "names": [row["name"] for row, _ in mixes],
    }

    def make_results(_: Path) -> tuple[dict[str, Any], str]:
        # Imported here because matplotlib takes as long to load as torch.
        from textgraft.experiments.layer_weights_report import render_weights

        results = {"models": [row for row, _ in mixes]}
        return results, render_weights(results)

    return run_experiment(Path(out), identity, make_results)


def _mix_rows(name: str) -> list[tuple[dict[str, Any], Artifact]]:
    """A row for each network of a folder with a learned mix. Raises UserError where there is none."""
    members = loading.open_models(name).members
    mixes = [m for m in members if isinstance(m, Artifact) and isinstance(m.model.layer_aggregation, Mix)]
    if not mixes:
        remedy = f"Fine-tune one with layer_aggregation={' or '.join(LEARNED_MIXES)}."
        raise UserError("this model has no learned mix of layers.", where=name, remedy=remedy)
    short = Path(name).name or name
    numbered = [short] if len(mixes) == 1 else [f"{short} {i}" for i in range(1, len(mixes) + 1)]
    return [(_row(row_name, artifact), artifact) for row_name, artifact in zip(numbered, mixes, strict=True)]


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
