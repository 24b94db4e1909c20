"""Adaptation: continued pretraining of a language model on unlabelled text of the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.core.memory import keep_freed_memory
from textgraft.data.examples import validate_not_single_text
from textgraft.data.streams.blocks import BlockCorpus, by_blocks, in_use
from textgraft.data.streams.shards import Corpus
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model, build_unfilled, graft, with_dropout
from textgraft.nn.embedding import AdaptiveEmbedding
from textgraft.tasks.language_modeling.streamed_text import amount_of
from textgraft.text.byte_level import BytePairTokenizer
from textgraft.text.character_encoding import MARKS, CharacterEncodingTokenizer
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.tokenizer import Tokenizer, vocabulary_map
from textgraft.text.wordpiece import WordPieceTokenizer
from textgraft.training.driver import drive, held_out_scores, put_in_place, validate_new_path, weights_hash, work_folder
from textgraft.training.loop import Run
from textgraft.training.objectives import Objective, objective
from textgraft.training.phases import Stage
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings, prepared

HELD_OUT_TOKENS = 100_000
FEW_TEXTS = 1_000
"""Number of texts up to which `validate_adapt` tokenizes them to count tokens."""
FEWEST_TEXTS = 20
ENOUGH_CHARACTERS = 20_000
"""Number of characters that are more than the 1,000 tokens that `held_out` needs, in any language."""
MIN_WORDS = 30_000
"""Minimum size of the vocabulary that is built for an ELMo, if it had fewer words."""
TOKEN_ROWS = {"encoder.embedding.weight", "head.output.weight", "head.output.bias"}
"""The weights of a language model with a row for each token."""


class TooFewTexts(UserError):
    """The texts are too few to adapt a language model to."""


@exclusive
def adapt(
    texts: Sequence[str],
    out: Path | str,
    *,
    model: str | Path | None = None,
    recipe: str = "default",
    own_vocabulary: bool = False,
    settings: Settings | None = None,
    reuse: bool = False,
    context: RunContext | None = None,
) -> Path:
    """Fine-tune a language model on unlabelled texts of the domain and save it as an artifact folder.

    Howard & Ruder 2018, §3.2: discriminative rates and slanted triangular schedules, as the recipe's `adapt` phases
    say. One document in twenty (at most 100,000 tokens) is held out to measure perplexity before and after; the best
    weights are kept. An encoder that was published without its language-model head gets a new one that is trained with
    it, and an ELMo, which was, also a vocabulary of the texts. After a kill the same call resumes.

    Args:
        texts: Texts without labels, 20 or more.
        out: Folder for the language model.
        model: Name or folder of a language model; None: the default model of the texts.
        recipe: Name or path of a recipe.
        own_vocabulary: Train a new tokenizer on the texts; tokens in both vocabularies keep their vectors, new ones
            start from the mean.
        settings: Of the training; `settings.minutes` cuts it to a time.
        reuse: Return the folder at `out` if the same call has written it.
        context: Seed, device, precision, threads, progress, and whether `out` may be replaced.

    Returns:
        The folder.

    Raises:
        UserError: `out` exists, there is too little text, or `model` is not a language model.
    """
    out = Path(out)
    context, settings = prepared(context, settings or Settings())
    if not reuse:
        validate_new_path(out, context.overwrite)
    validate_not_single_text(texts, name="texts")
    model = model or default_models_for(texts).alone
    plan = _plan(texts, model, recipe, own_vocabulary, settings)
    if reuse and out.exists() and _is_result_of(plan.key, out, context.overwrite):
        return out
    if plan.own_vocabulary:
        folder = work_folder(out, plan.identity)
        tokenizer = _own_tokenizer(texts, plan.source.tokenizer, folder / "tokenizer.json")
        plan = replace(plan, source=move_to_vocabulary(plan.source, tokenizer))
    train, held = held_out(texts, plan.source.tokenizer)
    data = {"texts": len(texts), "sha256": plan.identity["texts"], "tokens": train.num_tokens}
    return train_and_save(plan, train, held, out, data=data, settings=settings, context=context)


def train_and_save(
    plan: Plan, train: Any, valid: Any, out: Path, *, data: dict[str, Any], settings: Settings, context: RunContext
) -> Path:
    """Train as planned, from where an interrupted run stopped, and save the model with its held-out scores.

    Args:
        plan: The adaptation.
        train, valid: Corpora of the plan's objective.
        out: Folder for the language model.
        data: Facts about the data for run.json.
        settings: Of the training.
        context: Progress, and whether `out` may be replaced.
    """
    source, stage = plan.source, plan.stage
    adapted = with_dropout_of(stage, source.model)
    stream = by_blocks(plan.objective.stream(adapted, train, source.tokenizer, stage, settings.seed), train)
    validate = plan.objective.validator(adapted, valid, source.tokenizer, tokens=math.inf)
    shown: dict[str, Any] = {"title": "adapt", "show": context.show}
    folder = work_folder(out, plan.identity)
    source.model.to(resolve_device(settings.device))
    before = held_out_scores(validate, source.model, valid.num_tokens, **shown)
    phases = stage.plan_of_tokens(len(adapted.layer_groups()), train.num_tokens, plan.tokens)
    run = Run(adapted, phases, stream, settings.of(stage), validate)
    with keep_freed_memory(), in_use(train):
        drive(run, folder / "checkpoint.safetensors", **shown)
    after = held_out_scores(validate, adapted, valid.num_tokens, **shown)
    if isinstance(train, BlockCorpus):
        data = data | amount_of(train)
    about: dict[str, Any] = {"data": data, "recipe": plan.recipe, "settings": settings.of(stage)}
    record = provenance(stage="adapt", name=out.name, base=source.run, **about)
    record |= {"tokens_seen": run.progress.tokens, "seconds": run.progress.seconds, "history": run.progress.history}
    record |= {"held_out": {"tokens": valid.num_tokens, "before": before, "after": after}, "asked": plan.key}
    result = Artifact(adapted, source.tokenizer, None, record, embedding=source.embedding)
    put_in_place(result, out, overwrite=context.overwrite)
    return out


def validate_adapt(
    texts: Sequence[str], out: Path, model: str | Path, recipe: str, settings: Settings, *, overwrite: bool = False
) -> None:
    """Raise the UserError, such as TooFewTexts, that `adapt` with `reuse` would raise later."""
    plan = _plan(texts, model, recipe, False, settings)
    if out.exists():
        _is_result_of(plan.key, out, overwrite)
    if len(texts) <= FEW_TEXTS and not plan.own_vocabulary:
        held_out(texts, plan.source.tokenizer)


@dataclass(frozen=True)
class Plan:
    """An adaptation before training, to a number of `tokens` or the recipe's epochs.

    `identity` is everything that the result depends on, `key` its hash.
    """

    source: Artifact
    objective: Objective
    recipe: str
    stage: Stage
    own_vocabulary: bool
    identity: dict[str, Any]
    tokens: float | None = None

    @property
    def key(self) -> str:
        return content_hash(self.identity.items())


def _plan(texts: Sequence[str], model: str | Path, recipe: str, own_vocabulary: bool, settings: Settings) -> Plan:
    """The plan of an adaptation. Raises UserError for a recipe without adapt phases, and for other models."""
    source = with_language_model_head(loading.load_network(model), settings.seed)
    task_objective = objective(source.model, str(model))
    recipe, stage = stage_of(source, recipe)
    own_vocabulary = own_vocabulary or source.tokenizer.tokens == list(MARKS)
    identity = {
        "stage": "adapt",
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "texts": content_hash(texts),
        "recipe": stage.identity(),
        "settings": settings.identity(),
        "own_vocabulary": own_vocabulary,
    }
    return Plan(source, task_objective, recipe, stage, own_vocabulary, identity)


def stage_of(source: Artifact, recipe: str) -> tuple[str, Stage]:
    """The recipe for a model, and its stage of adapting. Raises UserError for one without phases."""
    recipe = source.recommended_recipe(recipe)
    stage = load_recipe(recipe).adapt
    if not stage.phases:
        raise UserError("this recipe has no phases for adapting.", where=recipe, remedy="Name one that has.")
    return recipe, stage


def _is_result_of(key: str, out: Path, overwrite: bool) -> bool:
    """True if `out` is the result of a run by its run.json; `key` is the hash of the run's identity.

    Raises UserError if it is not, and may not be replaced.
    """
    if (out / "config.json").is_file() and loading.load_network(out).run.get("asked") == key:
        return True
    if not overwrite:
        raise UserError(
            "this path exists, and was not adapted from the same model on the same texts with these settings.",
            where=str(out),
            remedy="Name another path, pass overwrite=True, or remove it.",
        )
    validate_new_path(out, overwrite)
    return False


def enough_to_adapt(texts: Sequence[str]) -> bool:
    """True for texts that `adapt` accepts with any tokenizer, as rows without a label may not be."""
    return len(texts) >= FEWEST_TEXTS and sum(map(len, texts)) >= ENOUGH_CHARACTERS


def held_out(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Corpus, Corpus]:
    """The texts as a training corpus and a held-out one: every twentieth text, up to HELD_OUT_TOKENS.

    Raises:
        TooFewTexts: There are fewer than 20 texts, or too few tokens to train on.
    """
    sequences = tokenizer.corpus_ids(list(texts))
    kept: list[int] = []
    tokens = 0
    for index in range(0, len(texts), 20):
        if tokens >= HELD_OUT_TOKENS:
            break
        kept.append(index)
        tokens += len(sequences[index])
    valid_indices = set(kept)
    parts = [[i for i in range(len(texts)) if (i in valid_indices) == is_valid] for is_valid in (False, True)]
    if len(texts) < FEWEST_TEXTS or sum(len(sequences[i]) for i in parts[0]) < 1000 or tokens < 20:
        raise TooFewTexts(
            f"{len(texts)} {'text is' if len(texts) == 1 else 'texts are'} too few to adapt a language model to.",
            remedy="Give at least 20 texts and 1,000 tokens, or fine-tune without adapting (adapt=False).",
        )
    train, valid = (
        Corpus.from_ids(
            [sequences[i] for i in part],
            tokenizer,
            words=sum(len(texts[i].split()) for i in part),
            characters=sum(len(texts[i]) for i in part),
        )
        for part in parts
    )
    return train, valid


def _own_tokenizer(texts: Sequence[str], old: Tokenizer, path: Path) -> Tokenizer:
    """A tokenizer of the texts, of the old one's kind and size, saved at `path`.

    Raises UserError for a published encoder's, which is not retrained.
    """
    if isinstance(old, PretrainedTokenizer):
        message = "this model's tokenizer is a published one, which cannot be trained on other texts."
        raise UserError(message, where="own_vocabulary", remedy="Leave it out: the model keeps its vocabulary.")
    if not path.exists():
        segmenter = "thai" if old.segmenter else None
        settings: dict[str, Any] = {"kind": old.kind, "vocab_size": old.vocab_size, "segmenter": segmenter}
        if isinstance(old, WordPieceTokenizer):
            settings |= {"model": "wordpiece", "lowercase": old.normalizer.get("lowercase", True)}
        elif isinstance(old, BytePairTokenizer):
            settings["model"] = "byte_level"
        elif isinstance(old, CharacterEncodingTokenizer):
            settings |= {"model": "spelling", "vocab_size": max(old.vocab_size, MIN_WORDS)}
        Tokenizer.train(texts, **settings).save(path)
    return Tokenizer.load(path)


def with_language_model_head(source: Artifact, seed: int) -> Artifact:
    """A bidirectional encoder without a language-model head with a new one; any other model is returned as is.

    The head predicts masked tokens; that of an ELECTRA detects replaced ones, and that of an ELMo predicts the next and
    the previous word, with special tokens as its only vocabulary until `move_to_vocabulary`.
    """
    description, encoder = source.model.describe(), source.model.encoder
    if description["head"]["name"] != "features" or encoder.direction != "both":
        return source
    if reason := encoder.not_adaptable:
        message = f"this encoder cannot be adapted to unlabelled texts: {reason}."
        raise UserError(message, remedy="Fine-tune it without adapting, or adapt another model.")
    if encoder.detects_replaced:
        description["head"] = {"name": "replaced_tokens", "input_dim": encoder.output_dim}
        return replace(source, model=graft(encoder, description, seed).eval())
    by_characters = encoder.uses_characters
    description["head"] = {
        "name": "bidirectional_language_model" if by_characters else "masked_language_model",
        "vocab_size": source.tokenizer.vocab_size if by_characters else encoder.config.vocab_size,
        "input_dim": encoder.output_dim,
        **({} if by_characters else encoder.masked_language_model()),
    }
    table = None if by_characters else encoder.tied()
    if isinstance(table, torch.Tensor) and table.shape[1] != encoder.output_dim:
        description["head"]["table_dim"] = table.shape[1]
    return replace(source, model=graft(encoder, description, seed).eval())


def with_dropout_of(stage: Stage, model: Model) -> Model:
    """A copy of a model with its dropout rates multiplied by the stage's factor."""
    copy = build_unfilled(with_dropout(model.describe(), stage.dropout))
    artifact.fill(copy, model.values(), where="model")
    return copy


def move_to_vocabulary(source: Artifact, tokenizer: Tokenizer) -> Artifact:
    """A language model with another vocabulary: shared tokens keep their vector and bias, new ones get the mean.

    Howard & Ruder 2018, §3.2 and their code.

    Args:
        source: The language model.
        tokenizer: The new vocabulary.

    Raises:
        UserError: The model has an adaptive embedding.
    """
    if any(isinstance(module, AdaptiveEmbedding) for module in source.model.encoder.modules()):
        message = "this model has an adaptive embedding, whose vocabulary cannot be replaced."
        raise UserError(message, remedy="Adapt without own_vocabulary=True.")
    old_ids = torch.from_numpy(vocabulary_map(source.tokenizer, tokenizer))
    description = source.model.describe()
    for part in description.values():
        if "vocab_size" in part:
            part["vocab_size"] = tokenizer.vocab_size
    model = build_unfilled(description)
    values = source.model.values()
    for name in TOKEN_ROWS & values.keys():
        moved = values[name][old_ids.clamp(min=0)].clone()
        moved[old_ids < 0] = values[name].mean(dim=0)
        values[name] = moved
    artifact.fill(model, values, where="the new vocabulary")
    return Artifact(model.eval(), tokenizer, None, source.run, embedding=source.embedding)
