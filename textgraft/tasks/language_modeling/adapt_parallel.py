"""Adaptation to sentences and their translations: translation language modelling of an XLM."""

from __future__ import annotations

from pathlib import Path

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.parallel import Parallel
from textgraft.data.streams.translations import TranslatedCorpus
from textgraft.models import loading
from textgraft.models.model import Model
from textgraft.tasks.language_modeling.adapt import Plan, stage_of, train_and_save, with_language_model_head
from textgraft.training.driver import validate_new_path, weights_hash
from textgraft.training.objectives import TranslatedTokens
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings, prepared


@exclusive
def adapt_parallel(
    pairs: Parallel,
    out: Path | str,
    *,
    model: str | Path,
    languages: tuple[str, str],
    recipe: str = "default",
    settings: Settings | None = None,
    context: RunContext | None = None,
) -> Path:
    """Adapt a multilingual language model to sentences and their translations, and save it as an artifact folder.

    Lample & Conneau 2019 (arXiv:1901.07291), §3.3: a sentence and its translation are one text, with the embeddings of
    their languages and positions from the beginning for each, and masked tokens in both are predicted. One pair in
    fifty (at most 1,000) is held out. After a kill the same call resumes.

    Args:
        pairs: Sentences and their translations.
        out: Folder for the language model.
        model: Name or folder of a model with embeddings of several languages (XLM).
        languages: Names of the languages of both sides, as the model names them (`lang2id` of its config.json).
        recipe: Name or path of a recipe.
        settings: Of the training; `settings.minutes` cuts it to a time.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The folder.

    Raises:
        UserError: `out` exists, there are fewer than two pairs, or `model` does not have both languages.
    """
    out = Path(out)
    context, settings = prepared(context, settings or Settings())
    validate_new_path(out, context.overwrite)
    source = with_language_model_head(loading.load_network(model), settings.seed)
    numbers = _numbers(source.model, languages, str(model))
    recipe, stage = stage_of(source, recipe)
    identity = {
        "stage": "adapt_parallel",
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "texts": pairs.content_hash(),
        "languages": list(languages),
        "recipe": stage.identity(),
        "settings": settings.identity(),
    }
    plan = Plan(source, TranslatedTokens(), recipe, stage, False, identity)
    train, valid = (TranslatedCorpus.of(part, source.tokenizer, numbers) for part in pairs.held_out())
    data = {"texts": len(pairs), "languages": list(languages), "sha256": identity["texts"], "tokens": train.num_tokens}
    return train_and_save(plan, train, valid, out, data=data, settings=settings, context=context)


def _numbers(model: Model, languages: tuple[str, str], where: str) -> tuple[int, int]:
    """The languages' numbers in the model. Raises UserError for a model without them, and for equal languages."""
    known = model.encoder.languages
    if not known:
        message = "this model has no embeddings of languages, which translation language modelling needs."
        remedy = "Use an XLM of several languages, or adapt this one to the texts of each language."
        raise UserError(message, where=where, remedy=remedy)
    for language in languages:
        if language not in known:
            remedy = did_you_mean(language, list(known))
            raise UserError(f"this model has no language '{language}'.", where="languages", remedy=remedy)
    if languages[0] == languages[1]:
        message = f"both sides are '{languages[0]}'."
        raise UserError(message, where="languages", remedy="Name the two languages in the order of the sides.")
    return known[languages[0]], known[languages[1]]
