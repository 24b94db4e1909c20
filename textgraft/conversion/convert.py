"""`textgraft.convert`: convert a model between formats."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal, get_args

from textgraft.conversion import huggingface, scikit_learn, sentence_transformers
from textgraft.conversion.legacy import elmo, flair
from textgraft.conversion.output_scale import fold_output_scale
from textgraft.conversion.weights import named_labels
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import write_atomically
from textgraft.encoders.bert import BERT
from textgraft.encoders.modernbert import ModernBERT
from textgraft.generation.generation import special_tokens
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models import artifact, loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.card import model_card
from textgraft.models.model import graft
from textgraft.text.characters import CharacterTokenizer
from textgraft.text.pretrained import PretrainedTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer

Format = Literal["textgraft", "huggingface", "sentence-transformers", "elmo", "flair"]


def convert(
    model: str | Path, out: Path | str, *, to: Format = "textgraft", half: bool = False, overwrite: bool = False
) -> Path:
    """Write `model` in another format.

    Args:
        model: Any model that can be loaded: a bundled one, `minilm`, a textgraft folder, `hf:FOLDER`, `hf:NAME`,
            `tf:FOLDER` or `elmo:FOLDER` (hub.py), and here alone `flair:FILE` (flair.py).
        out: Folder to write (a file for "flair").
        to: "textgraft": an artifact; "huggingface": a folder for the transformers library, with tokenizer,
            whose classifier has our probabilities as softmax or sigmoid of its logits, and whose language model
            generates by default what `generate` does; "sentence-transformers": the
            encoder, with the vectors that `embed` makes by it, and beside it a classifier's linear layer as parameters
            of scikit-learn's LogisticRegression; "elmo": options.json and weights.hdf5 for AllenNLP, without a
            vocabulary; "flair": a file for Flair, a pickle as it needs.
        half: Store float16 weights ("textgraft" only).
        overwrite: Replace an existing path.

    Returns:
        The path.

    Raises:
        UserError: The format cannot represent the model, or `out` exists.
    """
    if to not in get_args(Format):
        raise UserError(f"unknown format '{to}'.", remedy=did_you_mean(str(to), get_args(Format)))
    _validate_out(Path(out), to, overwrite)
    source = flair.load(str(model)) if str(model).startswith(model_folder.FLAIR) else loading.load_network(model)
    if to == "flair":
        write_atomically(Path(out), flair.to_flair(source.model, source.tokenizer))
        return Path(out)
    if to == "textgraft":
        return artifact.save(source, out, half=half, overwrite=overwrite)
    if to == "elmo":
        return elmo.save(source.model, out, overwrite=overwrite)
    _validate_padding(source)
    if type(source.tokenizer) in (Tokenizer, CharacterTokenizer):
        message = "the transformers library does not prepare texts as this model's tokenizer does, which is textgraft's"
        warnings.warn(f"{message} own: encode texts by textgraft.Tokenizer, and pass on the ids.", stacklevel=2)
    if to == "sentence-transformers":
        return _save_sentence_encoder(source, Path(out), overwrite=overwrite)
    fold_output_scale(source)
    others = _others(source) | _generation_config(source)
    written = huggingface.save(source.model, out, overwrite=overwrite, others=others, settings=_settings(source))
    if source.labels is not None and source.embedding is not None and (prompt := source.embedding.prompt()):
        message = f"the transformers library writes no prompt before texts: put {prompt!r} before each."
        warnings.warn(message, stacklevel=2)
    return written


def _save_sentence_encoder(source: Artifact, out: Path, *, overwrite: bool) -> Path:
    """Write the encoder, and how a text becomes a vector; beside it a classifier's linear layer, for scikit-learn.

    Warns if a classifier's head is no such layer, and is left out.
    """
    encoder = source.model.encoder
    description = source.model.describe() | {"head": {"name": "features", "input_dim": encoder.output_dim}}
    if isinstance(encoder, ModernBERT):  # of which the library's bare class has no pooler
        description["encoder"]["pooler"] = False
    bare = graft(encoder, description, 0)
    embedding = scikit_learn.embedding_of(source)
    others = {**_others(source), **sentence_transformers.files(embedding, encoder.output_dim, encoder.max_length)}
    card, reason = model_card(source.run).encode(), None
    if source.labels is not None:
        reason = scikit_learn.reason_against(source, embedding)
        layer = {} if reason else scikit_learn.files(source, embedding)
        card += layer.pop("README.md", b"")
        others |= layer
    written = huggingface.save(bare, out, overwrite=overwrite, others={**others, "README.md": card})
    if reason:
        warnings.warn(f"{out} has the encoder only: the classifier's head is left out, since {reason}.", stacklevel=3)
    return written


def _validate_out(out: Path, to: Format, overwrite: bool) -> None:
    """Raise UserError where `out` may not be written; for Flair's format it is a file."""
    if to != "flair":
        model_folder.validate_new_path(out, overwrite)
    elif out.is_dir():
        raise UserError("this is a folder, and Flair's models are files.", where=str(out), remedy="Name a file.")
    elif out.exists() and not overwrite:
        remedy = "Name another, or pass overwrite=True to replace it."
        raise UserError("this file exists already.", where=str(out), remedy=remedy)


def _settings(source: Artifact) -> dict[str, Any]:
    """Entries of config.json: ids of special tokens, and a classifier's labels."""
    tokenizer = source.tokenizer
    settings: dict[str, Any] = {"pad_token_id": tokenizer.pad_id}
    if not isinstance(source.model.encoder, BERT) or not isinstance(tokenizer, WordPieceTokenizer):
        # The library's BERT has no such settings; other families have the ids of their published models as defaults.
        settings |= {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    roles = tokenizer.roles if isinstance(tokenizer, PretrainedTokenizer) else {}
    if {"cls", "sep"} <= roles.keys() and "bos" not in roles:
        settings |= {"cls_token_id": tokenizer.bos_id, "sep_token_id": tokenizer.eos_id}
    labels = source.labels
    if labels is not None and labels.names and labels.target.shares_classes:  # options are not the model's
        settings |= named_labels(labels.names)
    return settings


def _validate_padding(source: Artifact) -> None:
    """Raise UserError for a model whose positions the transformers library would count from another token."""
    padding, counted = source.tokenizer.pad_id, getattr(source.model.encoder.config, "padding_id", None)
    if counted is not None and counted != padding:
        message = f"the tokenizer pads with token {padding}, and the model counts positions from {counted}."
        raise UserError(message, where="padding_id", remedy="Build the model with the tokenizer's padding_id.")


def _generation_config(source: Artifact) -> dict[str, bytes]:
    """generation_config.json of a left-to-right language model, by which the library generates what `generate` does."""
    model, tokenizer = source.model, source.tokenizer
    if not isinstance(model.head, LanguageModelHead) or model.encoder.direction != "left":
        return {}
    tokens = special_tokens(tokenizer)
    settings: dict[str, Any] = {"bos_token_id": tokenizer.bos_id, "pad_token_id": tokenizer.pad_id, "do_sample": False}
    settings["eos_token_id"] = sorted(tokens.ends) if len(tokens.ends) > 1 else min(tokens.ends)
    if tokens.never:
        settings["suppress_tokens"] = sorted(tokens.never)
    return {"generation_config.json": model_folder.to_json(settings)}


def _others(source: Artifact) -> dict[str, bytes]:
    """Files of the tokenizer."""
    tokenizer = source.tokenizer
    if isinstance(tokenizer, WordPieceTokenizer):
        config: Any = source.model.encoder.config
        segments = getattr(config, "num_segments", 0) > 0 or getattr(config, "segments", False)  # BERT's, the bridge's
        return tokenizer.huggingface_files(segments=segments)
    if isinstance(tokenizer, PretrainedTokenizer):
        return tokenizer.huggingface_files()
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    roles = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id, "unk": tokenizer.unk_id, "pad": tokenizer.pad_id}
    settings |= {f"{role}_token": tokenizer.tokens[i] for role, i in roles.items()}
    return {"tokenizer.json": tokenizer.to_json().encode(), "tokenizer_config.json": model_folder.to_json(settings)}
