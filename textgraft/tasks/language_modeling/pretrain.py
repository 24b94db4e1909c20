"""Stage one: a language model from general text."""

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
)
from textgraft.tasks.language_modeling.token_shards import Corpora
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.driver import drive, held_out_scores, put_in_place, validate_new_path, weights_hash, work_folder
from textgraft.training.loop import Run, load_values
from textgraft.training.neighbour_attention import init_neighbour_attention, validate_position_table
from textgraft.training.objectives import Objective, objective
from textgraft.training.phases import STRICT, Phase, Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import find_recipe, read_toml
from textgraft.training.settings import Settings, prepared
from textgraft.training.token_vectors import (
    cached_token_vectors,
    embedding_table,
    gensim_word2vec,
    start_from_vectors,
)

VALIDATION_TOKENS = 100_000
"""How many of the held-out tokens a look during training reads; the end reads all of them."""
VECTORS = "vectors.f32"
COUNTED_AT_ONCE = 1 << 22
TOKENIZER_SETTINGS = (
    *("kind", "model", "vocab_size", "min_frequency"),
    *("max_characters", "max_unspaced", "segmenter", "lowercase"),
)
"""The keys of a recipe's tokenizer: the keyword arguments of Tokenizer.train."""


@dataclass(frozen=True)
class PretrainRecipe:
    """How a language model is made: its tokenizer, its shape, its training.

    `tokenizer` are keyword arguments of Tokenizer.train, and `tokenizer_every` says to train it on every so many-th
    text. `model` are the fields of the encoder's config but vocab_size, `head` those of the language-model head.
    `token_vectors` is how many tokens skip-gram reads to start the embedding table (0: start at random), and
    `start_from_counts` has the output biases start at how frequent each token is. Without, where a few tokens are a
    tenth of the text, the first steps teach that to the tied table, whose rows then all point the same way.
    `start_near` is in how many of the lowest layers heads look at neighbours from the start
    (training.neighbour_attention). `smoothing` is the exponent S of data.streams.languages, for sources by language.
    `recommended_recipe` names the recipe by which such a model is adapted and fine-tuned where nobody names one ("":
    its kind of network's).
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
            remedy = "It must be from 0 (all languages alike) to 1 (as much as there is of each)."
            raise UserError(f"smoothing is {self.smoothing}.", remedy=remedy)

    def identity(self) -> dict[str, Any]:
        """All but the smoothing, of which a plan has what the sources need, and the recipe for later stages."""
        return identity_of(self, without=("smoothing", "recommended_recipe"))


def load_pretrain_recipe(name: str) -> PretrainRecipe:
    """A recipe by name or path. Raises UserError for unknown keys, and where it describes no model."""
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
        _check_reading(model, spelled=recipe.tokenizer.get("model") == "spelling")
    except UserError as error:
        raise UserError(error.message, where=error.where or str(path), remedy=error.remedy) from error
    except (TypeError, ValueError, KeyError, RuntimeError) as error:  # a setting missing, of the wrong kind or size
        raise UserError(f"this describes no model ({error!r}).", where=str(path), remedy="Correct it.") from error
    return recipe


def _check_reading(model: Model, *, spelled: bool) -> None:
    """Raises UserError where the encoder wants words by their characters and is given ids, or the reverse."""
    if model.encoder.uses_characters != spelled:
        wants = "token ids" if spelled else "spelled words"
        remedy = "Leave out model." if spelled else 'Set kind = "word" and model = "spelling".'
        message = f"this encoder reads {wants}, which this tokenizer does not give."
        raise UserError(message, where="tokenizer", remedy=remedy)


@dataclass(frozen=True)
class PretrainOptions:
    """Everything about pretraining but the data and what it starts from.

    Attributes:
        recipe: Name below recipes/pretrain, or a .toml file.
        tokens: How many tokens the model is trained on; None: those of the recipe's epochs.
        settings: Of the training. `settings.minutes` says when to stop too; `settings.patience` stops after so many
            validations without a gain, and the best state is kept.
    """

    recipe: str = "en-ulmfit"
    tokens: float | None = None
    settings: Settings = field(default_factory=Settings)


def pretrain(
    sources: Paths | Mapping[str, Paths],
    out: Path | str,
    *,
    valid: Paths | Mapping[str, Paths] | None = None,
    tokenizer: Path | str | None = None,
    model: Path | str | None = None,
    options: PretrainOptions | None = None,
    context: RunContext | None = None,
) -> Path:
    """Train a tokenizer and a language model on files of general text and save them at `out`.

    Tokenizer, token shards and checkpoint live in `OUT.run/`; killed, the same call goes on from there, on any device,
    if the sources are the same (data.fingerprint).

    Args:
        sources: Files, folders, globs or data sets as read_texts takes them, or one folder of tokens
            (tasks.language_modeling.tokenize), whose tokenizer and held-out text are then the model's. A mapping from
            languages to such gives each language the recipe's smoothed share, in the tokenizer's training too.
        out: Folder for the language model.
        valid: Held-out text, by language if the sources are; None: every 200th text (at most 300, of each language).
        tokenizer: An existing tokenizer.json; None: a new one is trained.
        model: Name or folder of a language model of the recipe's shape to go on from, with its tokenizer (under the
            seed that it had it would be trained on the same windows again).
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
    before = None if model is None else _model_before(plan, model, tokenizer)
    settings = replace(settings.of(plan.stage), validate_every=plan.validate_every)
    text = pretraining_text(sources, valid, plan.smoothing)
    folder = work_folder(out, _asked(plan, text, tokenizer, settings, tokens, before))
    if before is None and plan.token_vectors and not (folder / VECTORS).exists():
        gensim_word2vec()
    if before is not None:
        tok = before.tokenizer
    else:
        tok = load_or_train_tokenizer(text, tokenizer, plan.tokenizer_every, plan.tokenizer, folder)
    learner = new_language_model(plan, tok.vocab_size, settings.seed)
    _check_reading(learner, spelled=tok.spells)
    corpora = text.corpora(tok, folder, seed=settings.seed, show=show)
    train, held = corpora.train, corpora.held
    if before is not None:
        load_values(learner, before.model.values())
    elif not (folder / "checkpoint.safetensors").exists():
        start_model(learner, train, recipe=plan, path=folder / VECTORS, seed=settings.seed)
    learns = objective(learner, plan.name)
    _check_held_out(corpora, learner, tok, learns, plan.stage)
    stream = learns.stream(learner, train, tok, plan.stage, settings.seed)
    phases = _phases(plan.stage, learner, train.num_tokens, tokens)
    run = Run(learner, phases, stream, settings, learns.validator(learner, held, tok, tokens=VALIDATION_TOKENS))
    with keep_freed_memory():
        drive(run, folder / "checkpoint.safetensors", title="pretrain", show=show)
    data = {"sources": text.names(), "tokens": train.num_tokens, "words": train.num_words}
    base = {} if before is None else before.run
    record = provenance(stage="pretrain", name=out.name, base=base, data=data, recipe=plan.name, settings=settings)
    language = ", ".join(corpora.languages) or plan.language
    record |= {"recommended_recipe": plan.recommended_recipe} if plan.recommended_recipe else {}
    record |= {"licence": plan.licence, "language": language, "description": plan.description}
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record |= {"stopped_by": _stopped_by(run, tokens), "parameters": sum(p.numel() for p in learner.parameters())}
    record |= {"earlier": _legs(before.run)} if before is not None else {}
    record |= _measured(learner, tok, corpora, learns, show=show)
    put_in_place(Artifact(learner, tok, None, record), out, half=True)
    return out


def _model_before(plan: PretrainRecipe, name: Path | str, tokenizer: Path | str | None) -> Artifact:
    """The model to go on from. Raises UserError where it is not of the recipe's shape, or a tokenizer is named too."""
    if tokenizer is not None:
        message = "a model that goes on keeps the tokenizer that it has."
        raise UserError(message, where=str(tokenizer), remedy="Leave out the tokenizer, or the model.")
    before = loading.load_network(name)
    with torch.device("meta"), Uninitialized():
        wanted = new_language_model(plan, before.tokenizer.vocab_size, seed=0)
    if _shape(wanted) != _shape(before.model):
        message = f"this is not a model as the recipe '{plan.name}' makes it."
        raise UserError(message, where=str(name), remedy="Name the recipe that it was pretrained by.")
    return before


def _legs(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Earlier trainings of a model that goes on, as in run.json, oldest first."""
    last = {key: run[key] for key in ("name", "tokens_seen", "seconds", "history") if key in run}
    return [*run.get("earlier", []), last]


def _shape(model: Model) -> tuple[Any, ...]:
    """The shape that two models must share for one to go on as the other: all but dropouts and penalties."""
    return with_dropout(model.describe(), 0)["encoder"], {name: v.shape for name, v in model.values().items()}


def _asked(
    plan: PretrainRecipe,
    text: PretrainingText,
    tokenizer: Path | str | None,
    settings: Settings,
    tokens: float | None,
    before: Artifact | None,
) -> dict[str, Any]:
    """Everything that the result depends on; two runs that differ in any of it are different runs."""
    return {
        "stage": "pretrain",
        **text.identity(),  # which also finds out whether all of it is there
        "tokenizer": Tokenizer.load(tokenizer).fingerprint if tokenizer is not None else None,
        "recipe": plan.identity(),
        "settings": settings.identity(),
        "tokens": tokens,
        **({"model": weights_hash(before.model), "vocabulary": before.tokenizer.fingerprint} if before else {}),
    }


def _phases(stage: Stage, model: Model, corpus_tokens: int, tokens: float | None) -> list[Phase]:
    """The stage's phases, all longer or shorter by the same factor where `tokens` says how many are read."""
    phases = stage.plan(len(model.layer_groups()))
    if tokens is None:
        return phases
    total = sum(phase.epochs for phase in phases) * corpus_tokens
    return [replace(phase, epochs=phase.epochs * tokens / total) for phase in phases]


def _check_held_out(corpora: Corpora, model: Model, tokenizer: Tokenizer, learns: Objective, stage: Stage) -> None:
    """Raises UserError for a language with too little held-out text: now, and not when the training is done."""
    for language, part in corpora.held_by_language.items():
        with naming_language(language):
            learns.stream(model, part, tokenizer, stage, 0)


def _measured(model: Model, tokenizer: Tokenizer, corpora: Corpora, learns: Objective, *, show: bool) -> dict[str, Any]:
    """Scores of the held-out text, and of each language, as in run.json."""
    scores = {}
    for name, part in {"": corpora.held, **corpora.held_by_language}.items():
        validate = learns.validator(model, part, tokenizer, tokens=math.inf)
        title = f"pretrain, {name}" if name else "pretrain"
        scores[name] = held_out_scores(validate, model, part.num_tokens, title=title, show=show)
    held = {"tokens": corpora.held.num_tokens, "words": corpora.held.num_words, "after": scores.pop("")}
    if not corpora.languages:
        return {"held_out": held}
    return {
        "held_out": held,
        "languages": {
            language: {
                **told,
                "held_out": {"tokens": corpora.held_by_language[language].num_tokens, **scores[language]},
            }
            for language, told in corpora.languages.items()
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
    """The recipe's model with fresh weights."""
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


def start_model(model: Model, corpus: TokenSource, *, recipe: PretrainRecipe, path: Path, seed: int) -> None:
    """Give the model what the recipe wants it to know from the start; skip-gram vectors are kept at `path`."""
    head: Any = model.head
    size, dim = head.config.vocab_size, model.encoder.output_dim
    if recipe.token_vectors:
        vectors = cached_token_vectors(path, corpus, dim, size, tokens=recipe.token_vectors, seed=seed)
        start_from_vectors(model, vectors)
    if recipe.start_near:
        init_neighbour_attention(model.encoder, recipe.start_near)
    if recipe.start_from_counts:
        counts = np.zeros(size, dtype=np.int64)
        for first in range(0, corpus.num_tokens, COUNTED_AT_ONCE):
            stretch = corpus.read(first, min(first + COUNTED_AT_ONCE, corpus.num_tokens))
            counts += np.bincount(stretch, minlength=size)
        head.output.start_from_counts(torch.from_numpy(counts))
