"""Training of CoVe: a translator of pairs of sentences, whose encoder other tasks start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.data.examples import validate_types
from textgraft.data.parallel import Parallel
from textgraft.data.streams.base import ExampleStream
from textgraft.data.text_forms import in_form
from textgraft.encoders.cove import CoVe, CoVeConfig, StaticVectors, init_from_word_vectors
from textgraft.metrics.bleu import sacrebleu
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build_fresh
from textgraft.nn.uninitialized import Uninitialized
from textgraft.tasks.translation.predictor import (
    MAX_TOKENS,
    Translator,
    held_out_loss,
    padded_targets,
    translation_targets,
)
from textgraft.text.tokenizer import DEFAULT_VOCAB_SIZES, MIN_FREQUENCY, Tokenizer
from textgraft.text.visible import VISIBLE
from textgraft.training.driver import drive, put_in_place, validate_new_path, weights_hash, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import STRICT, Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import find_recipe, read_toml
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings, prepared

RECIPES = "cove"
TOKENIZER_SETTINGS = ("vocab_size", "min_frequency", "max_characters", "segmenter")


@dataclass(frozen=True)
class TranslationRecipe:
    """Vocabularies, architecture and training of a translator.

    Attributes:
        name: Of the recipe.
        description: A sentence.
        source: The paper.
        language: Of the encoder.
        licence: Of the model.
        tokenizer: Keyword arguments of Tokenizer.train for the encoder's language; of whole words.
        target_tokenizer: The same for the decoder's language.
        model: The fields of CoVeConfig.
        head: The fields of TranslationConfig, without those that follow from the others.
        stage: Phases, batch size and dropout.
    """

    name: str
    description: str
    source: str
    language: str
    licence: str
    tokenizer: dict[str, Any]
    target_tokenizer: dict[str, Any]
    model: dict[str, Any]
    head: dict[str, Any]
    stage: Stage

    __pydantic_config__: ClassVar[Any] = STRICT

    def identity(self) -> dict[str, Any]:
        """The whole recipe."""
        return identity_of(self)


@dataclass(frozen=True)
class CoVeOptions:
    """Options of the training, without the data.

    Attributes:
        recipe: A name below recipes/cove, or a .toml file.
        score: A name of nn.attention_scores in place of the recipe's.
        reach: A name of nn.attention_scores in place of the recipe's.
        max_tokens: Training pairs with a longer side are left out; held-out pairs are truncated.
        bleu: Compute BLEU of the held-out pairs at the end.
        settings: Of the training.
    """

    recipe: str = "multi30k"
    score: str | None = None
    reach: str | None = None
    max_tokens: int = MAX_TOKENS
    bleu: bool = True
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.max_tokens < 2:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 2 or more.")

    def identity(self) -> dict[str, Any]:
        """All entries but `bleu`, which does not change the weights."""
        return identity_of(self, without=("bleu",))


def load_translation_recipe(name: str) -> TranslationRecipe:
    """Load a recipe by name or path.

    Raises:
        UserError: It has unknown keys, or is not the recipe of a translator.
    """
    path = find_recipe(name, RECIPES)
    recipe = read_toml(path, TranslationRecipe, RECIPES)
    recipe.stage.validate_no_classifier_settings(str(path))
    for table in ("tokenizer", "target_tokenizer"):
        for key in getattr(recipe, table):
            if key not in TOKENIZER_SETTINGS:
                where = f"{path}, {table}"
                raise UserError(f"unknown key '{key}'.", where=where, remedy=did_you_mean(key, TOKENIZER_SETTINGS))
    try:
        with torch.device("meta"), Uninitialized():  # takes neither time nor memory
            recipe.stage.plan(len(new_translator(recipe, (100, 100), seed=0).layer_groups()))
    except UserError as error:
        where = f"{path}, head.{error.where}" if error.where in recipe.head else error.where or str(path)
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    except (TypeError, ValueError, RuntimeError) as error:  # a missing setting, or one of the wrong type or size
        raise UserError(
            f"this is not the recipe of a translator ({error!r}).", where=str(path), remedy="Correct it."
        ) from error
    return recipe


def new_translator(recipe: TranslationRecipe, vocabularies: tuple[int, int], seed: int) -> Model:
    """The recipe's model, for source and target vocabularies of these sizes, with random weights."""
    encoder = CoVeConfig(vocab_size=vocabularies[0], **recipe.model)
    width = encoder.embedding_dim + 2 * encoder.hidden_dim
    head = {"name": "translation", "vocab_size": vocabularies[1], "input_dim": width}
    head |= {"words_dim": encoder.embedding_dim, **recipe.head}
    return build_fresh({"encoder": {"name": "cove", **asdict(encoder)}, "head": head}, seed)


@exclusive
def cove_train(
    train: Parallel,
    out: Path | str,
    *,
    valid: Parallel | None = None,
    vectors: StaticVectors | None = None,
    options: CoVeOptions | None = None,
    context: RunContext | None = None,
) -> dict[str, Any]:
    """Train a translator, whose encoder is CoVe.

    McCann et al. 2017, §3: any stage that takes a model takes the folder, without the decoder. The checkpoint is in
    `OUT.run/`; after a kill the same call resumes.

    Args:
        train: Pairs of sentences.
        out: Folder for the translator.
        valid: Pairs to validate on: the weights of the epoch with the lowest loss are kept. None: some pairs are held
            out (Parallel.held_out).
        vectors: Initial word table, of their dimension; words without a vector start at random. Where the recipe does
            not train the table, it has the other words of the vectors too, for later tasks, as published.
        options: Options of the training.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The record as in run.json.

    Raises:
        UserError: `out` exists, the recipe does not train the word table and there are no vectors, or `bleu` is set and
            sacrebleu is not installed.
    """
    out, options = Path(out), options or CoVeOptions()
    context, settings = prepared(context, options.settings)
    options = replace(options, settings=settings)
    validate_new_path(out, context.overwrite)
    validate_types(train=train, valid=valid, wanted=Parallel, reader="textgraft.read_parallel")
    if options.bleu:
        sacrebleu()
    recipe = resolved_recipe(options, vectors)
    held = valid
    if held is None:
        train, held = train.held_out()
    settings = options.settings.of(recipe.stage)
    tokenizers = _tokenizers(recipe, train, vectors)
    model = new_translator(recipe, (tokenizers[0].vocab_size, tokenizers[1].vocab_size), settings.seed)
    table = _start_table(model, tokenizers[0], vectors)
    identity: dict[str, Any] = {
        "stage": "cove",
        "train": train.content_hash(),
        "valid": held.content_hash(),
        "recipe": recipe.identity(),
    }
    identity |= {
        "vectors": None if vectors is None else weights_hash(model),
        "options": replace(options, settings=settings).identity(),
    }
    folder = work_folder(out, identity)
    run, left_out = _run(model, tokenizers, (train, held), recipe, replace(options, settings=settings))
    drive(run, folder / "checkpoint.safetensors", title="cove", show=context.show)
    translator = Artifact(run.model.cpu().eval(), tokenizers[0], None, {}, tokenizers[1])
    data = {"pairs": len(train) - left_out, "held out": len(held), "files": [Path(name).name for name in train.names]}
    data |= {"left out, blank": train.blank, "left out, too long": left_out}
    record = provenance(stage="cove", name=out.name, base={}, data=data, recipe=recipe.name, settings=settings)
    record |= {"licence": recipe.licence, "language": recipe.language, "description": recipe.description}
    record |= {"max_tokens": options.max_tokens, "vectors": table, "tokens_seen": run.progress.tokens}
    record |= {"seconds": run.progress.seconds, "history": run.progress.history}
    record |= {"parameters": sum(p.numel() for p in run.model.parameters())}
    translator.run = record
    record["held_out"] = {"pairs": len(held), "after": _held_out_scores(translator, held, options)}
    put_in_place(translator, out, overwrite=context.overwrite)
    return record


def resolved_recipe(options: CoVeOptions, vectors: StaticVectors | None) -> TranslationRecipe:
    """The recipe with the changes of the options and the vectors.

    Raises:
        UserError: It does not train the word table, and there are no vectors.
    """
    recipe = load_translation_recipe(options.recipe)
    changed = {"score": options.score, "reach": options.reach}
    recipe = replace(recipe, head=recipe.head | {name: value for name, value in changed.items() if value is not None})
    if vectors is not None:
        recipe = replace(recipe, model=recipe.model | {"embedding_dim": vectors.dimensions})
    if vectors is None and not _trains_words(recipe):
        message = "this recipe does not train the word table, and there are no vectors to initialize it."
        raise UserError(
            message, where=options.recipe, remedy="Name a file of word vectors with vectors=…, or another recipe."
        )
    return recipe


def _trains_words(recipe: TranslationRecipe) -> bool:
    """True if any phase trains the word table, the lowest layer group."""
    with torch.device("meta"), Uninitialized():
        groups = len(new_translator(recipe, (100, 100), seed=0).layer_groups())
    return any(phase.rates(groups)[0] is not None for phase in recipe.stage.plan(groups))


def _tokenizers(
    recipe: TranslationRecipe, train: Parallel, vectors: StaticVectors | None
) -> tuple[Tokenizer, Tokenizer]:
    """Tokenizers of the pairs' words; if the word table is not trained, also of other words that have a vector.

    The encoder can use the vector of a word that is not in the training text.
    """
    source = Tokenizer.train(train.source, kind="word", **recipe.tokenizer)
    if vectors is not None and not _trains_words(recipe):
        vocabulary = set(source.tokens)
        room = recipe.tokenizer.get("vocab_size", DEFAULT_VOCAB_SIZES["word"]) - source.vocab_size
        new_words = list(islice((word for word in vectors.words if word not in vocabulary), room))
        repeated = new_words * recipe.tokenizer.get("min_frequency", MIN_FREQUENCY)
        source = Tokenizer.train(chain(train.source, repeated), kind="word", **recipe.tokenizer)
    return source, Tokenizer.train(train.target, kind="word", **recipe.target_tokenizer)


def _start_table(model: Model, tokenizer: Tokenizer, vectors: StaticVectors | None) -> dict[str, int] | None:
    """Initialize the word table; returns counts for run.json."""
    if vectors is None:
        return None
    assert isinstance(model.encoder, CoVe)
    num_found, num_missing = init_from_word_vectors(model.encoder, tokenizer.tokens, vectors)
    return {"dimensions": vectors.dimensions, "found": num_found, "not_found": num_missing}


def _run(
    model: Model,
    tokenizers: tuple[Tokenizer, Tokenizer],
    parts: tuple[Parallel, Parallel],
    recipe: TranslationRecipe,
    options: CoVeOptions,
) -> tuple[Run, int]:
    """The training, and the number of pairs that are too long for it."""
    train, held = parts
    limit, settings = options.max_tokens, options.settings
    source, target = tokenizers
    ids = source.encode_batch(in_form(train.source, VISIBLE))
    targets = translation_targets(target, train.target, limit + 1)
    fitting = [i for i, (a, b) in enumerate(zip(ids, targets, strict=True)) if max(len(a), len(b)) <= limit]
    if not fitting:
        remedy = "Raise max_tokens."
        raise UserError(f"no pair has {limit} tokens or fewer on both sides.", where=train.names[0], remedy=remedy)
    stream = ExampleStream(
        [ids[i] for i in fitting],
        padded_targets([targets[i] for i in fitting]),
        pad_id=source.pad_id,
        rows=recipe.stage.batch_size,
        seed=settings.seed,
    )
    phases = recipe.stage.plan(len(model.layer_groups()), stream.length(0))
    held_ids = [row[:limit] for row in source.encode_batch(in_form(held.source, VISIBLE))]
    held_targets = translation_targets(target, held.target, limit)
    validate = _validator(held_ids, held_targets, source.pad_id, settings.precision)
    return Run(model, phases, stream, settings, validate), len(ids) - len(fitting)


def _validator(
    ids: list[np.ndarray], targets: list[np.ndarray], pad_id: int, precision: str
) -> Callable[[Model], Scores]:
    def validate(model: Model) -> Scores:
        scores = held_out_loss(model, ids, targets, pad_id, precision)
        return {**scores, "score": -scores["loss"]}

    return validate


def _held_out_scores(translator: Artifact, held: Parallel, options: CoVeOptions) -> dict[str, Any]:
    predictor = Translator(translator, precision=options.settings.precision)
    if not options.bleu:
        return predictor.loss(held)
    scores = predictor.evaluate(held)
    return {name: scores[name] for name in ("loss", "perplexity", "bleu", "signature")}
