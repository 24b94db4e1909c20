"""Artifacts: a network with its tokenizer as a folder of config.json, model.safetensors, tokenizer.json and run.json.

A classifier's has labels.json too. README.md is the model card; model_folder.py has what all kinds of models share.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.examples import TargetKind
from textgraft.data.labels import Labels
from textgraft.data.sequences import TokenIds, Truncation, encode_beginnings, encode_texts
from textgraft.data.text_forms import in_form
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.models.card import model_card
from textgraft.models.default_recipes import DEFAULT, recommended_recipe, with_bundled_recipe
from textgraft.models.inference import predict_logits
from textgraft.models.model import Model, build_unfilled
from textgraft.models.model_folder import (
    RESTORE,
    bundled_name,
    config,
    read_config,
    read_files,
    run_record,
    to_json,
    validate_new_path,
    write_folder,
)
from textgraft.models.sentence_embedding import KEY, SentenceEmbedding, sentence_embedding
from textgraft.models.shared_files import names_of_files
from textgraft.models.text_vectors import embed_texts
from textgraft.models.upgrade import upgraded_weights
from textgraft.nn.layer_aggregation import LAST
from textgraft.text import known_texts
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import RAW, TEXT_FORM, VISIBLE, TextForm, text_form

STACK = "textgraft.word_embeddings.stack:Stack.load"
"""Loader of the frozen models in a tagger's folder."""
FILES = ("model.safetensors", "tokenizer.json", "run.json")
"""The files of every artifact, beside config.json and README.md; a classifier has labels.json too."""
OF_STACK = ("/config.json", "/memory.json", "/memory.safetensors")
"""Files of the frozen models' folders whose hashes are in a tagger's own config.json."""
GENERAL_HEADS = (
    *("bidirectional_language_model", "features", "language_model", "masked_language_model", "replaced_tokens"),
)
"""Heads of models that no task has trained yet."""
TARGET = "target_tokenizer.json"
"""A further file of a translator."""


class Predictor(Protocol):
    """A trained model of any kind that can be saved as a folder.

    Attributes:
        run: The content of run.json.
    """

    run: dict[str, Any]

    @property
    def labels(self) -> Labels | None:
        """The labels of a classifier; None for a language model."""
        ...

    @property
    def has_vectors(self) -> bool:
        """True if `embed` is supported."""
        ...

    @property
    def head_name(self) -> str:
        """Name of the head, which determines the task (tasks.registry)."""
        ...

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray:
        """A classifier's probabilities (N, C) in the order of `labels.names`, or standardised values (N,)."""
        ...

    def knows(self, texts: Sequence[str]) -> np.ndarray:
        """Mask (N,) of the texts in which a classifier's vocabulary knows something."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = LAST,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Vectors (N, D) float32. Raises UserError if `has_vectors` is False."""
        ...

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the folder by name, config.json and the card too; `half`: float16 where that saves space."""
        ...


@dataclass(repr=False)
class Artifact(Brief):
    """A network with everything that is saved beside it.

    Attributes:
        model: Encoder and head.
        tokenizer: Of the texts.
        labels: Of a classifier.
        run: The content of run.json: provenance and results.
        target: Tokenizer of a translator's target language.
        stack: Frozen models whose word vectors are a tagger's input (word_embeddings.stack.Stack); they are saved as
            folders inside its own.
        embedding: How the model represents a whole text by one vector, if it was trained to do so.
        text_form: The form in which tasks give it texts (text.visible).
    """

    model: Model
    tokenizer: Tokenizer
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)
    target: Tokenizer | None = None
    stack: Any = None  # a word_embeddings.stack.Stack
    embedding: SentenceEmbedding | None = None
    text_form: TextForm = VISIBLE

    has_vectors = True

    @property
    def head_name(self) -> str:
        """The head, as models.model.HEADS names it."""
        return str(self.model.describe()["head"]["name"])

    def recommended_recipe(self, recipe: str, kind: TargetKind | None = None) -> str:
        """Resolve the recipe "default" to the recommended one (models.default_recipes); other names are returned as is.

        Args:
            recipe: Name or path of a recipe.
            kind: The kind of labels in the classification of single texts; None for any other task.
        """
        if recipe != DEFAULT:
            return recipe
        return recommended_recipe(self.run, self.model.family, compares=self.compares, kind=kind).recipe

    @property
    def compares(self) -> bool:
        """True if the weights were trained to compare whole texts by one vector each (sentence embeddings)."""
        return self.embedding is not None

    @property
    def pooling(self) -> str | None:
        """The pooling that the weights were trained with; None: the family's own."""
        return None if self.embedding is None else self.embedding.pooling

    def encoded(
        self, texts: Sequence[str], max_tokens: int, prompt: str | None = None
    ) -> tuple[list[TokenIds], Truncation]:
        """Token ids of texts, truncated to `max_tokens` and the encoder's maximum length, and its counts.

        The beginning and more of the end are kept, as suits a task; of a sentence encoder the beginning, up to its own
        maximum, as it was trained.
        """
        limit = self.model.encoder.max_length or max_tokens
        texts = in_form(texts, self.text_form)
        if self.embedding is not None or prompt is not None:
            texts = (self.embedding or SentenceEmbedding()).prepared(texts, prompt)
        if self.embedding is not None:
            return encode_beginnings(self.tokenizer, texts, min(max_tokens, self.embedding.limit(limit)))
        return encode_texts(self.tokenizer, texts, min(max_tokens, limit))

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray:
        """A classifier's temperature-scaled probabilities (N, C), or standardised values (N,)."""
        assert self.labels is not None, "a language model has no outputs"
        if "max_tokens" not in self.run:
            raise UserError("damaged ('max_tokens' is missing).", where="run.json", remedy=RESTORE)
        sequences, _ = self.encoded(texts, self.run["max_tokens"])
        logits = predict_logits(self.model, sequences, self.tokenizer.pad_id, precision)
        return outputs_from_logits(logits, self.labels.kind, self.run.get("temperature") or 1.0)

    def knows(self, texts: Sequence[str]) -> np.ndarray:
        """Mask (N,) of the texts of which the tokenizer knows something (text.known_texts)."""
        return known_texts.knows(self.tokenizer, texts)

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = LAST,
        prompt: str | None = None,
        precision: str = "auto",
    ) -> np.ndarray:
        """Pooled vectors of texts.

        Args:
            texts: N texts.
            pooling: A name of nn.pooling.POOLINGS. None: as the model describes itself (`embedding`), else "mean".
            max_tokens: Maximum length, for language models; a classifier has that of its training. None: the
                description's, else 512.
            layers: A name of nn.layer_aggregation.LAYER_AGGREGATIONS; other layers than the last are pooled alone.
            prompt: Name of one of the description's prompts, or a text to write before each text.
            precision: A name of nn.cpu.precision.

        Returns:
            (N, D) float32.

        Raises:
            UserError: The model has no such prompt.
        """
        return embed_texts(
            self, texts, pooling=pooling, max_tokens=max_tokens, layers=layers, prompt=prompt, precision=precision
        )

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the artifact's folder by name, config.json and the model card among them."""
        files: dict[str, bytes] = {
            "model.safetensors": weights(self.model, self.embedding, half=half),
            "tokenizer.json": self.tokenizer.to_json().encode(),
            "run.json": to_json(self.run),
        }
        if self.labels is not None:
            files["labels.json"] = self.labels.to_json().encode()
        if self.target is not None:
            files[TARGET] = self.target.to_json().encode()
        card = model_card(self.run).encode()
        description, below = self.model.describe() | {TEXT_FORM: self.text_form}, {}
        if self.stack is not None:
            description["stack"], below = self.stack.described(), self.stack.files()
        if self.embedding is not None:
            description[KEY] = self.embedding.describe()
        # The config.json of each folder inside has the hashes of its other files, except those that the tagger adds.
        hashed = files | {name: data for name, data in below.items() if name.endswith(OF_STACK)}
        return {**files, **below, "config.json": config(description, hashed), "README.md": card}


def save(
    artifact: Predictor,
    folder: Path | str,
    *,
    half: bool = False,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write an artifact as a folder, atomically.

    Args:
        artifact: The model.
        folder: Its folder.
        half: Store the weights as float16.
        overwrite: Replace an existing model folder.
        documents: Further files by name, such as a report, whose hashes are not in config.json.

    Returns:
        The folder.

    Raises:
        UserError: `folder` exists (without `overwrite`) or cannot be written.
    """
    folder = Path(folder)
    validate_new_path(folder, overwrite)
    return write_folder(folder, {**artifact.files(half=half), **(documents or {})})


def weights(model: Model, embedding: SentenceEmbedding | None = None, *, half: bool = False) -> bytes:
    """The content of model.safetensors, with those of an embedding's dense layers; with `half` in float16.

    Raises:
        UserError: A weight is too large for float16.
    """
    values = {name: value.detach().contiguous() for name, value in model.values().items()}
    values |= {} if embedding is None else embedding.values()
    if half:
        floats = {name: value for name, value in values.items() if value.is_floating_point()}
        if large := [name for name, value in floats.items() if (value.abs() > torch.finfo(torch.float16).max).any()]:
            message = f"float16 cannot represent weights of this model ({', '.join(large[:8])})."
            raise UserError(message, where="half", remedy="Save it in float32.")
        values |= {name: value.half() for name, value in floats.items()}
    return to_safetensors(values)


def has_weights(folder: Path, expected: bytes) -> bool:
    """True if `folder` is an artifact with exactly these weights (the content of model.safetensors)."""
    if not (folder / "config.json").is_file():
        return False
    return bool(read_config(folder)["files"].get("model.safetensors") == hashlib.sha256(expected).hexdigest())


def from_folder(folder: Path, config: Mapping[str, Any]) -> Artifact:
    """Load an artifact; models.loading determines the kind of a folder.

    Args:
        folder: The folder.
        config: The content of its config.json.

    Raises:
        UserError: A file is missing, truncated or altered, or weights do not match the config.
    """
    return from_files(read_files(folder, config), config, folder)


def from_files(files: Mapping[str, bytes], config: Mapping[str, Any], folder: Path = Path()) -> Artifact:
    """`from_folder` of files that are in memory; `folder` is for messages."""
    model = _built(config, folder / "config.json")
    where = str(folder / "model.safetensors")
    try:
        values = upgraded_weights(from_safetensors(files["model.safetensors"]))
        of_embedding = {name: value for name, value in values.items() if name.startswith(f"{KEY}.")}
        fill(model, {name: value for name, value in values.items() if name not in of_embedding}, where=where)
    except SafetensorError as error:
        raise UserError(f"damaged ({error}).", where=where, remedy=RESTORE) from error
    labels = None
    if "labels.json" in files:
        where = str(folder / "labels.json")
        labels = Labels.from_json(files["labels.json"], where=where)
        outputs = model.describe()["head"].get("outputs", labels.num_outputs)
        if outputs != labels.num_outputs:
            message = f"the model has {outputs} outputs, and there are {labels.num_outputs} labels."
            raise UserError(message, where=where, remedy=RESTORE)
    tokenizer = Tokenizer.from_json(files["tokenizer.json"], where=str(folder / "tokenizer.json"))
    validate_vocabulary(model, tokenizer, str(folder / "tokenizer.json"))
    target = Tokenizer.from_json(files[TARGET], where=str(folder / TARGET)) if TARGET in files else None
    run, bundled = run_record(files), bundled_name(folder)
    if bundled:
        run = with_bundled_recipe(run, bundled)
    stack = config.get("stack")
    stack = None if stack is None else resolve(STACK)(folder, stack)
    embedding = _embedding(config, of_embedding, model, folder / "config.json")
    form = _text_form(config, model, folder / "config.json")
    return Artifact(model.eval(), tokenizer, labels, run, target, stack, embedding, form)


def validate_vocabulary(model: Model, tokenizer: Tokenizer, where: str) -> None:
    """Raise UserError for a tokenizer with more tokens than the model's table has rows; it may have fewer."""
    rows = math.inf if model.encoder.uses_characters else getattr(model.encoder.config, "vocab_size", math.inf)
    if tokenizer.vocab_size > rows:
        message = f"the tokenizer has {tokenizer.vocab_size:,} tokens and the model's table {rows:,}."
        raise UserError(message, where=where, remedy="Take both from the same model.")


def _text_form(config: Mapping[str, Any], model: Model, path: Path) -> TextForm:
    """The form of a config.json. Models of a task that were saved without one were trained on raw texts."""
    if TEXT_FORM in config:
        return text_form(config[TEXT_FORM], where=str(path))
    return VISIBLE if model.describe()["head"]["name"] in GENERAL_HEADS else RAW


def _embedding(
    config: Mapping[str, Any], values: Mapping[str, Tensor], model: Model, path: Path
) -> SentenceEmbedding | None:
    if not isinstance(config.get(KEY), dict):
        return None
    try:
        return sentence_embedding(config[KEY], values, model.encoder.output_dim)
    except UserError as error:
        raise UserError(error.message, where=str(path), remedy=error.remedy or RESTORE) from error


def _built(config: Mapping[str, Any], path: Path) -> Model:
    """The model of a config.json, with uninitialized weights."""
    absent = [key for key in ("encoder", "head") if not isinstance(config.get(key), dict)]
    absent += [name for name in FILES if name not in names_of_files(config)]
    if absent:
        message = f"this is not the config of a model: '{absent[0]}' is missing."
        raise UserError(message, where=str(path), remedy=RESTORE)
    settings = [*config["encoder"].items(), *config["head"].items()]
    dropouts = [(name, rate) for name, rate in settings if name.endswith("dropout")]
    if wrong := [name for name, rate in dropouts if not isinstance(rate, int | float) or not 0 <= rate <= 1]:
        message = f"this is not the config of a model ('{wrong[0]}' is no probability)."
        raise UserError(message, where=str(path), remedy=RESTORE)
    try:
        return build_unfilled({"encoder": config["encoder"], "head": config["head"]})
    except UserError as error:
        raise UserError(error.message, where=str(path), remedy=error.remedy or RESTORE) from error
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError, ArithmeticError) as error:
        # A setting of the wrong type or out of range.
        raise UserError(f"this is not the config of a model ({error}).", where=str(path), remedy=RESTORE) from error


def fill(model: Model, values: Mapping[str, Tensor], *, where: str) -> None:
    """Copy saved weights into the model; every name and shape must match.

    Args:
        model: The model.
        values: Weights by name.
        where: The file, for messages.

    Raises:
        UserError: Weights are missing, left over, or of another shape; the message lists them.
    """
    targets = model.values()
    wrong = [f"missing: {n}" for n in targets.keys() - values.keys()]
    wrong += [f"left over: {n}" for n in values.keys() - targets.keys()]
    wrong += [
        f"{n} is {tuple(values[n].shape)}, not {tuple(targets[n].shape)}"
        for n in targets.keys() & values.keys()
        if targets[n].shape != values[n].shape
    ]
    if wrong:
        raise UserError("the weights do not match the config (" + "; ".join(sorted(wrong)[:8]) + ").", where=where)
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(values[name])
