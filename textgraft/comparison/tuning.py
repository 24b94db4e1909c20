"""Search for the settings of a recipe on the user's own labels: random trials, of which the worse half ends early."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from textgraft import __version__
from textgraft.comparison.search_space import SearchSpace, recipe_text, with_values
from textgraft.comparison.trials import AS_IT_IS, Search, TrialTrainer
from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.data.checks import check_and_warn
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.problems import to_json
from textgraft.data.readers import read
from textgraft.data.splits import stratified_folds
from textgraft.data.unlabelled import labelled_only
from textgraft.engines.base import Engine
from textgraft.engines.local import LOCAL
from textgraft.metrics.classification import HEADLINE, paired_test
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_encoders import default_encoder
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.ensemble_weights import LOSS_NAMES
from textgraft.training.driver import weights_hash, work_folder
from textgraft.training.recipes import Recipe, load_recipe
from textgraft.training.results_folder import finished, measurement_record, validate_new_path, write_results
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings

RECIPE = "recipe.toml"


@dataclass(frozen=True)
class TuneOptions:
    """Options of `tune`.

    Args:
        model: Language model (None: a sentence encoder at hand that suits the texts, else the bundled default).
        recipe: Recipe to begin with; "default": the one that is recommended for the model.
        space: Values to try, as a SearchSpace or its TOML file (None: SearchSpace.default).
        trials: How many sets of values are tried, the recipe as it is among them.
        folds: Parts of the cross-validation.
        max_tokens: Maximum length of a text in tokens.
        precision: Arithmetic of training.
        seed: Seed of the values, the folds and the trainings.
        engine: Where the trainings run (engines.registry.open_engine).
        show: Show progress on stderr.
    """

    model: str | Path | None = None
    recipe: str = "default"
    space: SearchSpace | Path | str | None = None
    trials: int = 16
    folds: int = 3
    max_tokens: int = 512
    precision: str = "auto"
    seed: int = 0
    engine: Engine = LOCAL
    show: bool = True

    def __post_init__(self) -> None:
        for name, least in (("trials", 2), ("folds", 2), ("max_tokens", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy=f"Give {least} or more.")


@exclusive
def tune(train: Any, out: Path | str, *, options: TuneOptions | None = None) -> dict[str, Any]:
    """Search for better settings of a recipe by cross-validation; write `out`/recipe.toml, results.json, report.html.

    The recipe is for `finetune(…, recipe=…)`. Its score was the best of many on these texts, and so is a little too
    good: measure on others. After an interruption the same call continues and ends with the same numbers.

    Args:
        train: Labelled texts, as `textgraft.read` takes them. Those without a label are left out.
        out: Folder to write; it must not exist.
        options: Language model, recipe, search space, number of trials.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; the space has a key or a value that the recipe cannot have; labels cannot be learned;
            every trial diverged.
    """
    out, options = Path(out), options or TuneOptions()
    validate_new_path(out)
    train = labelled_only(read(train))
    problems = check_and_warn(train)
    model = options.model or default_encoder(train.texts) or default_models_for(train.texts).alone
    source, labels = loading.load_network(model), Labels.fit(train)
    base = load_recipe(source.recommended_recipe(options.recipe, labels.kind))
    space = _space(options.space, base)
    values = [{}, *space.draw(options.trials - 1, options.seed)]
    recipes = [with_values(base, one) for one in values]
    for recipe in recipes:
        recipe.finetune.validate_label_kind(labels.kind)
        recipe.finetune.plan(len(source.model.encoder.layer_groups()) + 1)
    _warn_of_epochs(space, recipes, len(train))
    identity = _identity(train, source, base, space, options)
    folder = work_folder(out, identity)
    if out.exists():
        return finished(out, content_hash(identity.items()))
    settings = Settings(seed=options.seed, precision=options.precision)
    trainer = TrialTrainer(
        train,
        labels,
        stratified_folds(train, options.folds, options.seed),
        [recipe.finetune for recipe in recipes],
        model,
        options.max_tokens,
        settings,
        folder.absolute(),
    )
    search = Search(trainer, values)
    search.run(options.engine, options.show)
    best = search.best()
    found = replace(recipes[best], name=out.name, description=f"Found by textgraft tune from {base.name}.")
    run = measurement_record("tune", out, {"name": str(model)}, {"train": {"texts": len(train)}}, settings)
    results = _results(search, best, base) | {"model": str(model), "run": run, "problems": to_json(problems)}
    results["asked"] = content_hash(identity.items())
    # Imported here because matplotlib takes as long to load as torch.
    from textgraft.comparison.tuning_report import render_tuning

    write_results(out, results, render_tuning(results), {RECIPE: recipe_text(found).encode()})
    return results


def _identity(
    train: Examples, source: Artifact, base: Recipe, space: SearchSpace, options: TuneOptions
) -> dict[str, Any]:
    """What a call must have in common with an unfinished one to continue it."""
    return {
        "stage": "tune",
        "textgraft": __version__,
        "train": train.content_hash(),
        "model": content_hash([weights_hash(source.model), source.tokenizer.fingerprint]),
        "recipe": {"finetune": base.finetune.identity(), "adapt": base.adapt.identity()},
        "space": space.identity(),
        **{name: getattr(options, name) for name in ("trials", "folds", "max_tokens", "precision", "seed")},
    }


def _space(asked: SearchSpace | Path | str | None, base: Recipe) -> SearchSpace:
    if not base.finetune.phases:
        remedy = "Name a recipe that has."
        raise UserError("this recipe has no fine-tuning phases.", where=base.name, remedy=remedy)
    if asked is None:
        return SearchSpace.default(base.finetune)
    return asked if isinstance(asked, SearchSpace) else SearchSpace.read(Path(asked))


def _warn_of_epochs(space: SearchSpace, recipes: Sequence[Recipe], texts: int) -> None:
    """Warn where epochs are searched, and every trial is lengthened to the recipe's least number of steps anyway."""
    keys = [key for key in space.choices if key.endswith(".epochs")]
    stages = [recipe.finetune for recipe in recipes]
    steps = [sum(phase.epochs for phase in one.phases) * -(-texts // one.batch_size) for one in stages]
    if keys and all(few < one.min_steps for few, one in zip(steps, stages, strict=True)):
        message = f"the recipe trains at least min_steps = {stages[0].min_steps} steps, more than any of these epochs"
        warnings.warn(
            f"{message} ({', '.join(keys)}), which so have no effect. Search min_steps instead.", stacklevel=4
        )


def _results(search: Search, best: int, base: Recipe) -> dict[str, Any]:
    """The body of results.json."""
    labels = search.trainer.labels
    results: dict[str, Any] = {
        "recipe": base.name,
        "metric": HEADLINE[labels.kind],
        "loss": LOSS_NAMES[labels.kind],
        "folds": len(search.trainer.splits),
        "best": best,
        "trials": [search.row(trial) for trial in range(len(search.values))],
        "stage": json.loads(json.dumps(asdict(search.trainer.stages[best]))),
    }
    return results | {"verdict": _verdict(search, best)}


def _verdict(search: Search, best: int) -> str:
    name = formatting.metric_name(LOSS_NAMES[search.trainer.labels.kind])
    if best == AS_IT_IS:
        return (
            f"No trial is better than the recipe as it is: {search.score_text(best)}, {name} {search.loss(best):.3g}."
        )
    start = f"Trial {best} is the best by {name}, which decides: {search.loss(best):.3g}, {search.score_text(best)}"
    if AS_IT_IS in search.diverged:
        return f"{start}; the recipe as it is diverges."
    test = paired_test(search.losses(best), search.losses(AS_IT_IS))
    certain = "is more than chance" if test.p < 0.05 else "may be chance"
    before = f"{search.loss(AS_IT_IS):.3g}, {search.score_text(AS_IT_IS)}"
    return (
        f"{start}; the recipe as it is: {before}. The difference of losses {certain} ({formatting.p_value(test.p)}), "
        "but the best of many trials looks a little better than it is: measure it on other texts."
    )
