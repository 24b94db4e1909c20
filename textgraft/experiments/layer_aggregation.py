"""Comparison of layer aggregations: a head on a frozen encoder through each of them, with several seeds.

Source: table 7 of Devlin et al. 2019, on any tagging or classification task and any encoder. Differences: the head over
words is one linear layer, unless the options have a network (in the paper, two LSTM layers); sums are unweighted;
learned mixes are added to the paper's six.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.data.conll import Tagged
from textgraft.data.examples import Examples, validate_types
from textgraft.data.splits import nested_order
from textgraft.experiments.layer_tasks import Cell, Labelling, LayerOptions, NetworkTagging, Tagging, Task
from textgraft.metrics.paired_differences import holm
from textgraft.metrics.tagging import Ratio, paired_ratio_test
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation
from textgraft.training.driver import weights_hash
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.results_folder import run_experiment, validate_new_path


def inspect_layers(
    train: Tagged | Examples,
    out: Path | str,
    *,
    test: Tagged | Examples,
    model: str | Path | None = None,
    options: LayerOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Train a head through every layer aggregation that `model` allows; write `out`/results.json and report.html.

    All layer aggregations are trained on the same texts; the seeds are those of the head and of the order of the texts.
    Nothing is chosen by `test`, on which all are measured. After an interruption the same call continues and ends with
    the same numbers.

    Args:
        train: Tagged sentences, or labelled texts.
        out: Folder to write; it must not exist.
        test: Data of the same kind.
        model: Encoder (None: the default model for the script of the texts, textgraft.models.default_models).
        options: Layer aggregations, seeds and recipe.
        show: Show progress on stderr.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; the data are of two kinds; the model allows none of the layer aggregations.
    """
    validate_new_path(Path(out))
    readers = "textgraft.read or read_tagged"
    validate_types(train=train, test=test, wanted=(Examples, Tagged), reader=readers)
    options, source = options or LayerOptions(), loading.load_network(model or _default_model(train))
    task = _task(source, train, test, options)
    options = replace(options, recipe=task.recipe)
    allowed, left_out = possible_layer_aggregations(task, options.layer_aggregations)
    identity = {
        "stage": "inspect layers",
        "data": task.described(),
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "recipe": load_recipe(task.recipe).finetune.identity(),
        "options": options.identity(),
    }

    def make_results(folder: Path) -> tuple[dict[str, Any], str]:
        cells: dict[str, list[Cell]] = {name: [] for name in allowed}
        for name in allowed:
            for seed in range(options.settings.seed, options.settings.seed + options.seeds):
                cells[name].append(_cached_training(task, name, seed, folder, show=show))
        rows = summary(cells, source.model.encoder.widths)
        sizes = {name: next(iter(about.values())) for name, about in task.described().items()}
        results = {"metric": task.metric, "unit": task.unit, "sizes": sizes, "seeds": options.seeds}
        results |= {"rows": rows, "left_out": left_out, "verdict": verdict(rows, task.metric)}
        settings = options.settings.of(load_recipe(task.recipe).finetune)
        about: dict[str, Any] = {"data": task.described(), "recipe": task.recipe, "settings": settings}
        results["run"] = provenance(stage="inspect layers", name=Path(out).name, base=source.run, **about)
        # Imported here because matplotlib takes as long to load as torch.
        from textgraft.experiments.layer_aggregation_report import render_layers

        return results, render_layers(results)

    return run_experiment(Path(out), identity, make_results)


def _default_model(train: Tagged | Examples) -> str:
    """The default language model for the texts."""
    texts = (" ".join(s.words) for s in train.sentences) if isinstance(train, Tagged) else train.texts
    return default_models_for(texts).alone


def sampled(data: Tagged | Examples, n: int | None) -> Tagged | Examples:
    """A sample of n sentences or texts, contained in every larger one; all for None."""
    if n is None or n >= len(data):
        return data
    return data.sample(n) if isinstance(data, Tagged) else data.take(sorted(nested_order(data, 0)[:n]))


def possible_layer_aggregations(task: Task, layer_aggregations: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The layer aggregations that the task allows, and the reasons against the others.

    Raises:
        UserError: The model allows none.
    """
    allowed, left_out = [], {}
    for name in layer_aggregations:
        try:
            task.validate(name)
            allowed.append(name)
        except UserError as error:
            left_out[name] = error.message
    if not allowed:
        raise UserError(
            "this model allows none of these layer aggregations.", where="layers", remedy="Use 'first' or 'last'."
        )
    return allowed, left_out


def summary(cells: Mapping[str, Sequence[Cell]], widths: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each layer aggregation: score with interval, spread over seeds, paired test against `last`, and
    minutes.

    The score is that of all seeds together, with its 95 % interval over sentences or texts; "spread" is the standard
    deviation over seeds. "p_holm" is corrected for all tests against `last`.
    """
    ratios = {name: _pooled_ratio(runs) for name, runs in cells.items()}
    tests = {}
    if LAST in ratios and ratios[LAST].value is not None:
        others = [name for name in ratios if name != LAST and ratios[name].value is not None]
        tests = {name: paired_ratio_test(ratios[name], ratios[LAST]) for name in others}
    adjusted = holm({name: test.p for name, test in tests.items()})
    rows = []
    for name, runs in cells.items():
        seed_scores = [Ratio(np.array(run["part"]), np.array(run["whole"])).value or 0.0 for run in runs]
        interval = ratios[name].interval()
        row: dict[str, Any] = {
            "layer_aggregation": name,
            "width": new_layer_aggregation(name, widths).output_dim,
            "seeds": len(runs),
        }
        row |= {"score": None if interval is None else interval._asdict()}
        row |= {"spread": float(np.std(seed_scores, ddof=1)) if len(seed_scores) > 1 else None}
        row |= {"against_last": tests[name]._asdict() | {"p_holm": adjusted[name]} if name in tests else None}
        rows.append(row | {"minutes": float(np.mean([run["minutes"] for run in runs]))})
    return rows


def verdict(rows: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """A sentence on the best layer aggregation on the test set, with the paired test against the last layer."""
    scored = [row for row in rows if row["score"] is not None]
    if not scored:
        return ["No layer aggregation has a score: the denominator is 0."]
    best = (min if metric == "mae" else max)(scored, key=lambda row: row["score"]["mean"])
    shown = formatting.interval(best["score"]["mean"], best["score"]["low"], best["score"]["high"], metric)
    sentence = f"Best is {best['layer_aggregation']}: {formatting.metric_name(metric)} {shown}"
    test = best["against_last"]
    if test is None:
        return [f"{sentence}."]
    return [f"{sentence}, {formatting.compared(abs(test['difference']), test['p_holm'], metric, 'the last layer')}"]


def _task(source: Artifact, train: Tagged | Examples, test: Tagged | Examples, options: LayerOptions) -> Task:
    if isinstance(train, Tagged) and isinstance(test, Tagged):
        if options.network is not None:
            return NetworkTagging(source, train, test, options, options.network)
        return Tagging(source, train, test, options)
    if isinstance(train, Examples) and isinstance(test, Examples):
        if options.network is not None:
            message = "a network over words needs tagged sentences, and these are texts with one label each."
            raise UserError(message, where=train.source, remedy="Leave out network=…, or give tagged sentences.")
        return Labelling(source, train, test, options)
    raise UserError(
        "train and test are of two kinds: tagged sentences and texts.", where="test", remedy="Use data of one kind."
    )


def _cached_training(task: Task, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
    """One training, from its file in `folder` if there is one; unfinished work is removed once it is done."""
    result_file, work = folder / f"{layer_aggregation} {seed}.json", folder / f"{layer_aggregation} {seed}"
    if not result_file.exists():
        work.mkdir(exist_ok=True)
        cell = task.trained(layer_aggregation, seed, work, show=show)
        write_atomically(result_file, json.dumps(cell).encode())
    shutil.rmtree(work, ignore_errors=True)
    return dict(json.loads(result_file.read_text(encoding="utf-8")))


def _pooled_ratio(runs: Sequence[Cell]) -> Ratio:
    """The score of all seeds together: both sides added up, example by example."""
    return Ratio(*(np.sum([run[side] for run in runs], axis=0) for side in ("part", "whole")))
