"""Pretraining of a language model on general text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.core.memory import keep_freed_memory
from textgraft.data.streams.base import TokenSource
from textgraft.data.streams.blocks import by_blocks, in_use
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build_fresh, has_setting, with_dropout
from textgraft.nn.uninitialized import Uninitialized
from textgraft.tasks.language_modeling.pretraining_text import (
    Paths,
    PretrainingText,
    load_or_train_tokenizer,
    naming_language,
    pretraining_text,
    tokenizer_file,
)
from textgraft.tasks.language_modeling.streamed_text import StreamedText, amount_of
from textgraft.tasks.language_modeling.token_shards import Corpora
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.driver import drive, held_out_scores, put_in_place, validate_new_path, weights_hash, work_folder
from textgraft.training.loop import Run
from textgraft.training.neighbour_attention import init_neighbour_attention, validate_position_table
from textgraft.training.objectives import Objective, objective
from textgraft.training.phases import STRICT, Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import find_recipe, read_toml
from textgraft.training.run_lock import exclusive
from textgraft.training.run_state import load_values
from textgraft.training.settings import Settings, prepared
from textgraft.training.token_vectors import (
    cached_token_vectors,
    embedding_table,
    gensim_word2vec,
    start_from_vectors,
)

VALIDATION_TOKENS = 100_000
"""Number of held-out tokens in validations during training; the final evaluation takes all of them."""
VECTORS = "vectors.f32"
COUNT_CHUNK = 1 << 22
TOKENIZER_SETTINGS = (
    *("kind", "model", "vocab_size", "min_frequency"),
    *("max_characters", "max_unspaced", "segmenter", "lowercase"),
)
"""The keys of a recipe's tokenizer: the keyword arguments of Tokenizer.train."""


@dataclass(frozen=True)
class PretrainRecipe:
    """Tokenizer, architecture and training of a language model.

    Attributes:
        name: Of the recipe.
        description: A sentence.
        language: Of the text.
        licence: Of the model.
        tokenizer: Keyword arguments of Tokenizer.train.
        model: The fields of the encoder's config, without vocab_size.
        stage: Phases, batch size and dropout.
        head: The fields of the language-model head's config.
        tokenizer_every: Train the tokenizer on every n-th text.
        token_vectors: Number of tokens of a skip-gram training that initializes the embedding table (0: random).
        validate_every: Steps between validations.
        start_from_counts: Initialize the output biases from the tokens' frequencies. Without, where a few tokens are a
            tenth of the text, the first steps move all rows of the tied table in the same direction.
        smoothing: Exponent S of data.streams.languages, for sources by language.
        start_near: Number of the lowest layers whose heads are initialized to attend to neighbours
            (training.neighbour_attention).
        recommended_recipe: The default recipe to adapt and fine-tune the model by; "": that of its architecture.
    """

    name: str
    description: str
    language: str
    licence: str
    tokenizer: dict[str, Any]
    model: dict[str, Any]
    stage: Stage
    head: dict[str, Any]
    tokenizer_every: int = 1
    token_vectors: int = 0
    validate_every: int = 600
    start_from_counts: bool = False
    smoothing: float = 0.7
    start_near: int = 0
    recommended_recipe: str = ""

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing <= 1:
            remedy = "It must be from 0 (equal shares) to 1 (shares in proportion to the text)."
            raise UserError(f"smoothing is {self.smoothing}.", remedy=remedy)

    def identity(self) -> dict[str, Any]:
        """All entries but the recipe for later stages, and the smoothing, which the identity of the sources has."""
        return identity_of(self, without=("smoothing", "recommended_recipe"))


def load_pretrain_recipe(name: str) -> PretrainRecipe:
    """Load a recipe by name or path.

    Raises:
        UserError: It has unknown keys, or is not the recipe of a model.
    """
    path = find_recipe(name, "pretrain")
    recipe = read_toml(path, PretrainRecipe, "pretrain")
    recipe.stage.validate_no_classifier_settings(str(path))
    for key in recipe.tokenizer:
        if key not in TOKENIZER_SETTINGS:
            where = f"{path}, tokenizer"
            raise UserError(f"unknown key '{key}'.", where=where, remedy=did_you_mean(key, TOKENIZER_SETTINGS))
    try:
        if recipe.recommended_recipe:
            find_recipe(recipe.recommended_recipe)
        with torch.device("meta"), Uninitialized():  # takes neither time nor memory
            model = new_language_model(recipe, recipe.tokenizer.get("vocab_size", 1000), seed=0)
            if recipe.token_vectors:
                embedding_table(model)
            if recipe.start_near:
                validate_position_table(model.encoder, recipe.start_near)
        _validate_input(model, by_characters=recipe.tokenizer.get("model") == "spelling")
    except UserError as error:
        raise UserError(error.message, where=error.where or str(path), remedy=error.remedy) from error
    except (
        TypeError,
        ValueError,
        KeyError,
        RuntimeError,
    ) as error:  # a missing setting, or one of the wrong type or size
        raise UserError(
            f"this is not the recipe of a model ({error!r}).", where=str(path), remedy="Correct it."
        ) from error
    return recipe


def _validate_input(model: Model, *, by_characters: bool) -> None:
    """Raise UserError if one of encoder and tokenizer is of character-encoded words, and the other of ids."""
    if model.encoder.uses_characters != by_characters:
        inputs = "token ids" if by_characters else "character-encoded words"
        remedy = "Leave out model." if by_characters else 'Set kind = "word" and model = "spelling".'
        message = f"this encoder takes {inputs}, which this tokenizer does not produce."
        raise UserError(message, where="tokenizer", remedy=remedy)


@dataclass(frozen=True)
class PretrainOptions:
    """Options of pretraining, without the data and the initial model.

    Attributes:
        recipe: Name below recipes/pretrain, or a .toml file.
        tokens: How many tokens the model is trained on; None: those of the recipe's epochs.
        settings: Of the training. `settings.minutes` limits its time; `settings.patience` stops it after so many
            validations without an improvement. The best weights are kept.
    """

    recipe: str = "en-ulmfit"
    tokens: float | None = None
    settings: Settings = field(default_factory=Settings)


@exclusive
def pretrain(
    sources: Paths | Mapping[str, Paths] | StreamedText,
    out: Path | str,
    *,
    valid: Paths | Mapping[str, Paths] | None = None,
    tokenizer: Path | str | None = None,
    model: Path | str | None = None,
    options: PretrainOptions | None = None,
    context: RunContext | None = None,
) -> Path:
    """Train a tokenizer and a language model on files of general text.

    Tokenizer, token shards and checkpoint are in `OUT.run/`; after a kill the same call resumes, on any device, if the
    sources are the same (data.fingerprint).

    Args:
        sources: Files, folders, globs or data sets as read_texts takes them, or one folder of tokens
            (tasks.language_modeling.tokenize), whose tokenizer and held-out text are then used. A mapping from
            languages to such: each language has the recipe's smoothed share, in the tokenizer's training too. A
            StreamedText is read while the model trains on it, and not written to disk.
        out: Folder for the language model.
        valid: Held-out text, by language if the sources are; None: every 200th text (at most 300, of each language).
        tokenizer: An existing tokenizer.json, or a folder with one; None: a new one is trained.
        model: Name or folder of a language model of the recipe's architecture to continue training, with its tokenizer
            (the same seed would train it on the same windows again).
        options: Recipe, number of tokens and settings.
        context: Seed, device, precision, threads and progress.

    Returns:
        The folder.

    Raises:
        UserError: `out` exists; sources or a language have no text or have changed since the run began; the recipe does
            not fit; or `model` has another shape, or is given beside a `tokenizer`.
    """
    out, options = Path(out), options or PretrainOptions()
    validate_new_path(out, overwrite=None)
    context, settings = prepared(context, options.settings)
    plan, tokens, show = load_pretrain_recipe(options.recipe), options.tokens, context.show
    before = None if model is None else _initial_model(plan, model, tokenizer)
    settings = replace(settings.of(plan.stage), validate_every=plan.validate_every)
    text: PretrainingText
    if isinstance(sources, StreamedText):
        text = sources.for_training(valid, stage=plan.stage, head=plan.head, tokens=tokens, settings=settings)
    else:
        text = pretraining_text(sources, valid, plan.smoothing)
    folder = work_folder(out, _run_identity(plan, text, tokenizer, settings, tokens, before))
    if before is None and plan.token_vectors and not (folder / VECTORS).exists():
        gensim_word2vec()
    if before is not None:
        tok = before.tokenizer
    else:
        tok = load_or_train_tokenizer(text, tokenizer, plan.tokenizer_every, plan.tokenizer, folder)
    language_model = new_language_model(plan, tok.vocab_size, settings.seed)
    _validate_input(language_model, by_characters=tok.spells)
    corpora = text.corpora(tok, folder, seed=settings.seed, show=show)
    train, held = corpora.train, corpora.held
    if before is not None:
        load_values(language_model, before.model.values())
    elif not (folder / "checkpoint.safetensors").exists():
        initialize_model(language_model, train, recipe=plan, path=folder / VECTORS, seed=settings.seed)
    task_objective = objective(language_model, plan.name)
    _validate_held_out(corpora, language_model, tok, task_objective, plan.stage)
    stream = by_blocks(task_objective.stream(language_model, train, tok, plan.stage, settings.seed), train)
    phases = plan.stage.plan_of_tokens(len(language_model.layer_groups()), train.num_tokens, tokens)
    validate = task_objective.validator(language_model, held, tok, tokens=VALIDATION_TOKENS)
    run = Run(language_model, phases, stream, settings, validate)
    with keep_freed_memory(), in_use(train):
        drive(run, folder / "checkpoint.safetensors", title="pretrain", show=show)
    data = {"sources": text.names(), **amount_of(train)}
    base = {} if before is None else before.run
    record = provenance(stage="pretrain", name=out.name, base=base, data=data, recipe=plan.name, settings=settings)
    language = ", ".join(corpora.languages) or plan.language
    record |= {"recommended_recipe": plan.recommended_recipe} if plan.recommended_recipe else {}
    record |= {"licence": plan.licence, "language": language, "description": plan.description}
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record |= {
        "stopped_by": _stopped_by(run, tokens),
        "parameters": sum(p.numel() for p in language_model.parameters()),
    }
    record |= {"earlier": _earlier_trainings(before.run)} if before is not None else {}
    record |= _held_out_results(language_model, tok, corpora, task_objective, show=show)
    put_in_place(Artifact(language_model, tok, None, record), out, half=True)
    return out


def _initial_model(plan: PretrainRecipe, name: Path | str, tokenizer: Path | str | None) -> Artifact:
    """The model to continue. Raises UserError for another architecture than the recipe's, or a tokenizer beside it."""
    if tokenizer is not None:
        message = "continued training keeps the tokenizer of the model."
        raise UserError(message, where=str(tokenizer), remedy="Leave out the tokenizer, or the model.")
    before = loading.load_network(name)
    with torch.device("meta"), Uninitialized():
        expected = new_language_model(plan, before.tokenizer.vocab_size, seed=0)
    if _architecture(expected) != _architecture(before.model):
        message = f"this model does not have the architecture of the recipe '{plan.name}'."
        raise UserError(message, where=str(name), remedy="Name the recipe that it was pretrained by.")
    return before


def _earlier_trainings(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Earlier trainings of a continued model, as in run.json, oldest first."""
    last = {key: run[key] for key in ("name", "tokens_seen", "seconds", "history") if key in run}
    return [*run.get("earlier", []), last]


def _architecture(model: Model) -> tuple[Any, ...]:
    """The description and shapes of a model, without dropout rates and penalties."""
    return with_dropout(model.describe(), 0)["encoder"], {name: v.shape for name, v in model.values().items()}


def _run_identity(
    plan: PretrainRecipe,
    text: PretrainingText,
    tokenizer: Path | str | None,
    settings: Settings,
    tokens: float | None,
    before: Artifact | None,
) -> dict[str, Any]:
    """Everything that the result depends on; runs that differ in it are different runs."""
    return {
        "stage": "pretrain",
        **text.identity(),  # which also fails if a file is missing
        "tokenizer": Tokenizer.load(tokenizer_file(tokenizer)).fingerprint if tokenizer is not None else None,
        "recipe": plan.identity(),
        "settings": settings.identity(),
        "tokens": tokens,
        **({"model": weights_hash(before.model), "vocabulary": before.tokenizer.fingerprint} if before else {}),
    }


def _validate_held_out(
    corpora: Corpora, model: Model, tokenizer: Tokenizer, task_objective: Objective, stage: Stage
) -> None:
    """Raise UserError for a language with too little held-out text, before the training."""
    for language, part in corpora.held_by_language.items():
        with naming_language(language):
            task_objective.stream(model, part, tokenizer, stage, 0)


def _held_out_results(
    model: Model, tokenizer: Tokenizer, corpora: Corpora, task_objective: Objective, *, show: bool
) -> dict[str, Any]:
    """Scores of the held-out text, and of each language, as in run.json."""
    scores = {}
    for name, part in {"": corpora.held, **corpora.held_by_language}.items():
        validate = task_objective.validator(model, part, tokenizer, tokens=math.inf)
        title = f"pretrain, {name}" if name else "pretrain"
        scores[name] = held_out_scores(validate, model, part.num_tokens, title=title, show=show)
    held = {"tokens": corpora.held.num_tokens, "words": corpora.held.num_words, "after": scores.pop("")}
    if not corpora.languages:
        return {"held_out": held}
    return {
        "held_out": held,
        "languages": {
            language: {
                **facts,
                "held_out": {"tokens": corpora.held_by_language[language].num_tokens, **scores[language]},
            }
            for language, facts in corpora.languages.items()
        },
    }


def _stopped_by(run: Run, tokens: float | None) -> str:
    """The option that ended the training."""
    if run.out_of_patience():
        return "patience"
    if run.settings.minutes is not None:
        return "minutes"
    return "epochs" if tokens is None else "tokens"


def new_language_model(recipe: PretrainRecipe, vocab_size: int, seed: int) -> Model:
    """The recipe's model with random weights."""
    encoder = {"name": "awd_lstm", **recipe.model}
    if has_setting(encoder["name"], "vocab_size"):
        encoder.setdefault("vocab_size", vocab_size)
    head = {
        "name": "language_model",
        "vocab_size": vocab_size,
        "input_dim": recipe.model.get("embedding_dim"),
        **recipe.head,
    }
    return build_fresh({"encoder": encoder, "head": head}, seed)


def initialize_model(model: Model, corpus: TokenSource, *, recipe: PretrainRecipe, path: Path, seed: int) -> None:
    """Initialize a model as the recipe says.

    Args:
        model: A language model with random weights.
        corpus: The training tokens.
        recipe: The recipe.
        path: File that caches the skip-gram vectors.
        seed: Of the skip-gram training.
    """
    head: Any = model.head
    size, dim = head.config.vocab_size, model.encoder.output_dim
    if recipe.token_vectors:
        vectors = cached_token_vectors(path, corpus, dim, size, tokens=recipe.token_vectors, seed=seed)
        start_from_vectors(model, vectors)
    if recipe.start_near:
        init_neighbour_attention(model.encoder, recipe.start_near)
    if recipe.start_from_counts:
        counts = np.zeros(size, dtype=np.int64)
        for first in range(0, corpus.num_tokens, COUNT_CHUNK):
            chunk = corpus.read(first, min(first + COUNT_CHUNK, corpus.num_tokens))
            counts += np.bincount(chunk, minlength=size)
        head.output.start_from_counts(torch.from_numpy(counts))
