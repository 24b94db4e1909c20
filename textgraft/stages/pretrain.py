"""Stage one: a language model from general text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from textgraft.artifact import Artifact
from textgraft.data.corpus import Corpus, build_corpus
from textgraft.data.fingerprint import fingerprints
from textgraft.data.readers import read_texts
from textgraft.errors import UserError, did_you_mean
from textgraft.model import Model, build
from textgraft.provenance import provenance
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run, Settings
from textgraft.training.objectives import objective
from textgraft.training.phases import STRICT, Stage, find_recipe, read_toml
from textgraft.training.session import drive, put_in_place, refuse_existing, work_folder
from textgraft.training.token_vectors import cached_token_vectors, only_table, start_from_vectors

HELD_OUT_EVERY = 200
HELD_OUT_TEXTS = 300
VALIDATION_TOKENS = 100_000
"""How many of the held-out tokens a look during training reads; the end reads all of them."""
COUNTED_AT_ONCE = 1 << 22
TOKENIZER_SETTINGS = (
    *("kind", "model", "vocab_size", "min_frequency", "max_characters", "max_unspaced", "segmenter"),
    "lowercase",
)
"""What a recipe may say of its tokenizer: the keyword arguments of Tokenizer.train."""


@dataclass(frozen=True)
class PretrainRecipe:
    """How a language model is made: its tokenizer, its shape, its training.

    `tokenizer` are keyword arguments of Tokenizer.train, and `tokenizer_every` says to train it on every so many-th
    text. `model` are the fields of the encoder's config but vocab_size, `head` those of the language-model head.
    `token_vectors` is how many tokens skip-gram reads to start the embedding table (0: start at random), and
    `start_from_counts` has the output biases start at how frequent each token is. Without, where a few tokens are a
    tenth of the text, the first steps teach that to the tied table, whose rows then all point the same way.
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
    start_from_counts: bool = field(default=False, repr=False)  # younger than runs that are known by the rest's repr

    __pydantic_config__: ClassVar[Any] = STRICT


def load_pretrain_recipe(name: str) -> PretrainRecipe:
    """A recipe by name or path. Raises UserError for unknown keys, and where it describes no model."""
    path = find_recipe(name, "pretrain")
    recipe = read_toml(path, PretrainRecipe)
    recipe.stage.refuse_auxiliary(str(path))
    for key in recipe.tokenizer:
        if key not in TOKENIZER_SETTINGS:
            where = f"{path}, tokenizer"
            raise UserError(f"unknown key '{key}'.", where=where, remedy=did_you_mean(key, TOKENIZER_SETTINGS))
    try:
        with torch.device("meta"):  # takes neither time nor memory
            new_language_model(recipe, recipe.tokenizer.get("vocab_size", 1000), seed=0)
    except UserError as error:
        raise UserError(error.message, where=error.where or str(path), remedy=error.remedy) from error
    except (TypeError, ValueError, KeyError, RuntimeError) as error:  # a setting missing, of the wrong kind or size
        raise UserError(f"this describes no model ({error!r}).", where=str(path), remedy="Correct it.") from error
    return recipe


def pretrain(
    sources: Sequence[str | Path],
    out: Path | str,
    *,
    recipe: str = "en-ulmfit",
    valid: Sequence[str | Path] | None = None,
    tokenizer: Path | str | None = None,
    tokens: float | None = None,
    settings: Settings | None = None,
    show: bool = True,
) -> Path:
    """Train a tokenizer and a language model on files of general text and save them at `out`.

    `sources` are files, folders, globs or data sets as read_texts takes them. Held-out text comes from `valid`, or is
    every 200th text (at most 300). `tokenizer` takes an existing tokenizer.json instead of training one. The recipe's
    epochs, `tokens` (how many the model sees) or `settings.minutes` say when to stop; `settings.patience` stops after
    so many validations without a gain, and the best state is kept. Tokenizer, token shards and checkpoint live in
    `OUT.run/`; killed, the same call goes on from there, on any device, if the sources are the same (data.fingerprint).

    Raises UserError if `out` exists, for sources without text or that have changed since the run began, and for a
    recipe that does not fit.
    """
    out = Path(out)
    refuse_existing(out, overwrite=False)
    plan = load_pretrain_recipe(recipe)
    settings = replace((settings or Settings()).of(plan.stage), validate_every=plan.validate_every)
    asked = {
        "stage": "pretrain",
        "sources": fingerprints(sources),  # which also finds out whether all of it is there
        "valid": fingerprints(valid) if valid is not None else None,
        "tokenizer": Tokenizer.load(tokenizer).fingerprint if tokenizer is not None else None,
        "recipe": repr(plan),
        "settings": repr(settings),
        "tokens": tokens,
    } | ({"start_from_counts": True} if plan.start_from_counts else {})
    folder = work_folder(out, asked)
    tok = _tokenizer(plan, sources, tokenizer, folder)
    model = new_language_model(plan, tok.vocab_size, settings.seed)
    train, held = _corpora(sources, valid, tok, folder, show)
    if not (folder / "checkpoint.safetensors").exists():
        start_model(model, train, recipe=plan, path=folder / "vectors.f32", seed=settings.seed)
    learns = objective(model, plan.name)
    stream = learns.stream(model, train, tok, plan.stage, settings.seed)
    phases = plan.stage.plan(len(model.layer_groups()))
    if tokens is not None:
        total = sum(phase.epochs for phase in phases) * train.num_tokens
        phases = [replace(phase, epochs=phase.epochs * tokens / total) for phase in phases]
    run = Run(model, phases, stream, settings, learns.validator(model, held, tok, tokens=VALIDATION_TOKENS))
    drive(run, folder / "checkpoint.safetensors", title="pretrain", show=show)
    with torch.no_grad():
        scores = learns.validator(model, held, tok, tokens=math.inf)(model.eval())
    data = {"sources": [Path(p).name for p in sources], "tokens": train.num_tokens, "words": train.num_words}
    record = provenance(stage="pretrain", name=out.name, base={}, data=data, recipe=plan.name, settings=settings)
    record |= {"licence": plan.licence, "language": plan.language, "description": plan.description}
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record |= {"stopped_by": _stopped_by(run, tokens), "parameters": sum(p.numel() for p in model.parameters())}
    record["held_out"] = {"tokens": held.num_tokens, "words": held.num_words, "after": scores}
    put_in_place(Artifact(model, tok, None, record), out, half=True)
    return out


def _stopped_by(run: Run, tokens: float | None) -> str:
    """What ended the training, in the words of the options."""
    if run.out_of_patience():
        return "patience"
    if run.settings.minutes is not None:
        return "minutes"
    return "epochs" if tokens is None else "tokens"


def new_language_model(recipe: PretrainRecipe, vocab_size: int, seed: int) -> Model:
    """The recipe's model with fresh weights."""
    encoder = {"name": "awd_lstm", "vocab_size": vocab_size, **recipe.model}
    head = {
        "name": "language_model",
        "vocab_size": vocab_size,
        "input_dim": recipe.model.get("embedding_dim"),
        **recipe.head,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build({"encoder": encoder, "head": head})


def start_model(model: Model, corpus: Corpus, *, recipe: PretrainRecipe, path: Path, seed: int) -> None:
    """Give the model what the recipe wants it to know from the start; skip-gram vectors are kept at `path`."""
    size, dim = model.encoder.config.vocab_size, model.encoder.output_dim
    if recipe.token_vectors:
        only_table(model)  # finds out before the vectors are trained
        vectors = cached_token_vectors(path, corpus, dim, size, tokens=recipe.token_vectors, seed=seed)
        start_from_vectors(model, vectors)
    if recipe.start_from_counts:
        counts = np.zeros(size, dtype=np.int64)
        for first in range(0, corpus.num_tokens, COUNTED_AT_ONCE):
            stretch = corpus.read(first, min(first + COUNTED_AT_ONCE, corpus.num_tokens))
            counts += np.bincount(stretch, minlength=size)
        head: Any = model.head
        head.output.start_from_counts(torch.from_numpy(counts))


def _tokenizer(
    recipe: PretrainRecipe, sources: Sequence[str | Path], given: Path | str | None, folder: Path
) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        if given is not None:
            Tokenizer.load(given).save(path)
        else:
            texts = islice(read_texts(sources), 0, None, recipe.tokenizer_every)
            Tokenizer.train(texts, **recipe.tokenizer).save(path)
    return Tokenizer.load(path)


def _corpora(
    sources: Sequence[str | Path], valid: Sequence[str | Path] | None, tokenizer: Tokenizer, folder: Path, show: bool
) -> tuple[Corpus, Corpus]:
    """The training and the held-out corpus, as token shards in the work folder."""

    def build(texts: Iterable[str], name: str) -> Corpus:
        return build_corpus(texts, tokenizer, folder / name, source_description=name, progress=show)

    if valid is not None:
        return build(read_texts(sources), "train"), build(read_texts(valid), "valid")
    held = islice(read_texts(sources), 0, HELD_OUT_EVERY * HELD_OUT_TEXTS, HELD_OUT_EVERY)
    return build(_kept(read_texts(sources)), "train"), build(held, "valid")


def _kept(texts: Iterator[str]) -> Iterator[str]:
    """All texts but those that `_corpora` holds out."""
    for index, text in enumerate(texts):
        if index % HELD_OUT_EVERY or index >= HELD_OUT_EVERY * HELD_OUT_TEXTS:
            yield text
