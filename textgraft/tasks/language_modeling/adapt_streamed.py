"""Adaptation to text that is read while the model trains on it: a corpus larger than the disk, or behind a URL."""

from __future__ import annotations

from pathlib import Path

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.models.default_models import default_models_for
from textgraft.tasks.language_modeling.adapt import Plan, stage_of, train_and_save, with_language_model_head
from textgraft.tasks.language_modeling.streamed_text import Addresses, StreamedText
from textgraft.text.character_encoding import MARKS
from textgraft.training.driver import validate_new_path, weights_hash, work_folder
from textgraft.training.objectives import objective
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings, prepared


@exclusive
def adapt_streamed(
    text: StreamedText,
    out: Path | str,
    *,
    model: str | Path | None = None,
    recipe: str = "default",
    tokens: float | None = None,
    valid: Addresses | None = None,
    settings: Settings | None = None,
    context: RunContext | None = None,
) -> Path:
    """Adapt a language model to streamed text and save it as an artifact folder, as `adapt` does to texts in memory.

    The model keeps its vocabulary. After a kill the same call resumes.

    Args:
        text: The sources.
        out: Folder for the language model.
        model: Name or folder of a language model; None: the default model of the first texts.
        recipe: Name or path of a recipe.
        tokens: How many tokens to train on; None: until `settings.minutes` are over.
        valid: Files of held-out text; None: the first 300 texts.
        settings: Of the training.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The folder.

    Raises:
        UserError: `out` exists, a source cannot be read, the training has no known end, or `model` is not a language
            model or needs a vocabulary of the texts.
    """
    out = Path(out)
    context, settings = prepared(context, settings or Settings())
    validate_new_path(out, context.overwrite)
    model = model or default_models_for(text.first_texts()).alone
    source = with_language_model_head(loading.load_network(model), settings.seed)
    if source.tokenizer.tokens == list(MARKS):
        message = "this model needs a vocabulary of the texts, which streamed text does not have."
        raise UserError(message, where=str(model), remedy="Name another model, or texts that fit on the disk.")
    recipe, stage = stage_of(source, recipe)
    head = source.model.describe()["head"]
    listed = text.for_training(valid, stage=stage, head=head, tokens=tokens, settings=settings.of(stage))
    identity = {
        "stage": "adapt",
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "texts": listed.identity(),
        "tokens": tokens,
        "recipe": stage.identity(),
        "settings": settings.identity(),
    }
    plan = Plan(source, objective(source.model, str(model)), recipe, stage, False, identity, tokens)
    corpora = listed.corpora(source.tokenizer, work_folder(out, identity), seed=settings.seed, show=context.show)
    data = {"sources": listed.names()}
    return train_and_save(plan, corpora.train, corpora.held, out, data=data, settings=settings, context=context)
