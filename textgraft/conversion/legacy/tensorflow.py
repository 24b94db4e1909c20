"""Conversion of the original BERT, GPT-2 and Transformer-XL checkpoints, TensorFlow 1, without TensorFlow.

A BERT is bert_config.json, vocab.txt and a checkpoint of `google-research/bert` (before or after fine-tuning with its
run_classifier.py); a GPT-2 is hparams.json, encoder.json, vocab.bpe and a checkpoint of `openai/gpt-2`; a
Transformer-XL is config.json with the flags of its training, vocab.txt with a word per line and a checkpoint
(legacy.transformer_xl). Variables of the first two are renamed to those of the `transformers` library and converted
like its models. Google's later code computes GELU by the tanh approximation, the library and textgraft by erf, which
differ by less than 0.001.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textgraft.conversion import bert, gpt
from textgraft.conversion.legacy import transformer_xl
from textgraft.conversion.legacy.tensorflow_checkpoint import read_index, read_values
from textgraft.core.errors import UserError
from textgraft.models.model import Model
from textgraft.models.model_folder import TENSORFLOW
from textgraft.text.byte_level import read_gpt2
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.word_list import read_word_list
from textgraft.text.wordpiece import SPECIAL, WordPieceTokenizer

Loaded = tuple[dict[str, Any], Model, Tokenizer]
OPTIMIZER = re.compile(r"(?:.*/)?(?:adam_[mv]|Adam(?:_1)?|global_step|beta[12]_power)")
"""Variables of the optimizer, which are left out."""
_FILE_OF = re.compile(r"\.(?:index|meta|data-\d+-of-\d+)$")
"""What the names of a checkpoint's files have after its own."""
CASED_SHARE = 0.01
"""Minimum share of subwords with capitals of a cased vocabulary: an uncased one has almost none, a cased one has names
and beginnings of sentences.
"""


@dataclass(frozen=True)
class Variable:
    """Name of a variable in the `transformers` library, and whether it is transposed or has an extra dimension."""

    name: str
    transposed: bool = False
    squeezed: bool = False

    def tensor(self, value: np.ndarray) -> Tensor:
        if self.squeezed and value.ndim == 3 and len(value) == 1:
            value = value[0]
        return torch.from_numpy(np.array(value.T if self.transposed else value))


def load(name: str) -> Loaded:
    """Load `tf:FOLDER`, or `tf:FOLDER/model.ckpt-1000` where there are several checkpoints.

    Returns:
        The config as in the `transformers` library, the model in float32 and eval mode, and the tokenizer.

    Raises:
        UserError: A file is missing or damaged, the model is of no known family, or variables are missing, unexpected
            or of a wrong shape.
    """
    prefix = find(name)
    folder = prefix.parent
    family = next((family for settings, family in FAMILIES.items() if (folder / settings).is_file()), None)
    if family is None:
        remedy = f"Put the settings that came with the checkpoint beside it: {', '.join(FAMILIES)}."
        message = "this is neither Google's BERT, OpenAI's GPT-2 nor a Transformer-XL."
        raise UserError(message, where=str(folder), remedy=remedy)
    config, model, tokenizer = family(prefix)
    return config, model.eval(), tokenizer


def _bert(prefix: Path) -> Loaded:
    config = {"layer_norm_eps": 1e-12, **_json(prefix.parent / "bert_config.json"), "model_type": "bert"}
    return config, _model(bert, config, prefix), _word_pieces(prefix.parent)


def _gpt2(prefix: Path) -> Loaded:
    settings = prefix.parent / "hparams.json"
    hparams = _json(settings)
    names = {"vocab_size": "n_vocab", "n_positions": "n_ctx", "n_embd": "n_embd", "n_layer": "n_layer"}
    names |= {"n_head": "n_head"}
    absent = [theirs for theirs in names.values() if theirs not in hparams]
    if absent:
        raise UserError(f"the setting '{absent[0]}' is missing.", where=str(settings))
    config = {"model_type": "gpt2", **{ours: hparams[theirs] for ours, theirs in names.items()}}
    model = _model(gpt, config, prefix)
    return config, model, read_gpt2(prefix.parent / "encoder.json", prefix.parent / "vocab.bpe")


def _transformer_xl(prefix: Path) -> Loaded:
    """A Transformer-XL: flags of its training in config.json, or of its vocabulary in corpus-info.json."""
    settings, corpus = prefix.parent / "config.json", prefix.parent / "corpus-info.json"
    config = (_json(corpus) if corpus.is_file() else {}) | _json(settings)
    tokenizer = read_word_list(prefix.parent / "vocab.txt")
    config = {"vocab_size": tokenizer.vocab_size} | {name: flag for name, flag in config.items() if flag is not None}
    shards, entries = read_index(prefix)
    variables = [name for name in entries if not OPTIMIZER.fullmatch(name)]
    values = read_values(prefix, shards, entries, variables)
    try:
        weights = {name: torch.from_numpy(np.array(value)).float() for name, value in values.items()}
        model = transformer_xl.from_original(config, weights)
    except UserError as error:
        raise UserError(error.message, where=error.where or str(prefix), remedy=error.remedy) from error
    except (KeyError, TypeError) as error:
        remedy = "Write the flags that it was trained with (n_layer, d_model, n_head, d_head, d_inner, …) as JSON."
        raise UserError(f"the flags lack {error}.", where=str(settings), remedy=remedy) from error
    size = model.describe()["encoder"]["vocab_size"]
    if tokenizer.vocab_size != size:
        message = f"there are {tokenizer.vocab_size:,} words, and the model has {size:,}."
        remedy = "Put the vocab.txt that it was trained with beside the checkpoint."
        raise UserError(message, where=str(prefix.parent / "vocab.txt"), remedy=remedy)
    return {"model_type": "transformer-xl", **config}, model, tokenizer


FAMILIES: Mapping[str, Callable[[Path], Loaded]] = {
    "bert_config.json": _bert,
    "hparams.json": _gpt2,
    "config.json": _transformer_xl,
}
"""Reader of each family of checkpoints, by the file with its settings."""


def find(name: str) -> Path:
    """Path of the checkpoint of `tf:…` (a folder, a checkpoint or a file of one), without `.index`.

    Raises UserError where there is none, or several.
    """
    path = Path(name.removeprefix(TENSORFLOW))
    if path.is_file():
        path = path.with_name(_FILE_OF.sub("", path.name))
    if path.name and path.with_name(path.name + ".index").is_file():
        return path
    if not path.is_dir():
        raise UserError("there is no such folder or checkpoint.", where=str(path), remedy="Check the path.")
    indices = sorted(path.glob("*.index"))
    if len(indices) == 1:
        return indices[0].with_suffix("")
    if indices:
        shown = ", ".join(f"{TENSORFLOW}{index.with_suffix('')}" for index in indices[:8])
        raise UserError("there are several checkpoints here.", where=str(path), remedy=f"Name one: {shown}.")
    message = "there is no TensorFlow checkpoint here (NAME.index and NAME.data-…)."
    raise UserError(message, where=str(path), remedy="Name the folder that holds its files.")


def _model(family: Any, config: Mapping[str, Any], prefix: Path) -> Model:
    shards, entries = read_index(prefix)
    variables = [name for name in entries if not OPTIMIZER.fullmatch(name)]
    try:
        expected = bert_variables(config, variables) if family is bert else gpt2_variables(config)
        errors = [f"missing: {name}" for name in sorted(expected.keys() - set(variables))]
        errors += [f"left over: {name}" for name in sorted(set(variables) - expected.keys())]
        if errors:
            shown = "; ".join(errors[:12]) + (f"; and {len(errors) - 12} more" if len(errors) > 12 else "")
            raise UserError(f"these are not the variables of such a model ({shown}).", where=str(prefix))
        values = read_values(prefix, shards, entries, variables)
        weights = {expected[name].name: expected[name].tensor(value).float() for name, value in values.items()}
        model: Model = family.from_huggingface(config, weights)
    except UserError as error:
        where = str(prefix.parent) if error.where in ("", "config.json") else error.where
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    except (KeyError, TypeError) as error:
        raise UserError(f"the config lacks {error}.", where=str(prefix.parent)) from error
    return model


def bert_variables(config: Mapping[str, Any], variables: list[str]) -> dict[str, Variable]:
    """Variables of a BERT with this config. Pooler and heads are each complete or absent."""
    tables = {f"{part}_embeddings": f"{part}_embeddings.weight" for part in ("word", "position", "token_type")}
    names = {f"bert/embeddings/{ours}": Variable(f"bert.embeddings.{theirs}") for ours, theirs in tables.items()}
    names |= _norm("bert/embeddings/LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{index}"
        modules = [f"attention/self/{part}" for part in ("query", "key", "value")]
        for module in (*modules, "attention/output/dense", "intermediate/dense", "output/dense"):
            names |= _dense(f"{layer}/{module}")
        names |= _norm(f"{layer}/attention/output/LayerNorm") | _norm(f"{layer}/output/LayerNorm")
    predictions = {"cls/predictions/output_bias": Variable("cls.predictions.bias")}
    predictions |= _dense("cls/predictions/transform/dense") | _norm("cls/predictions/transform/LayerNorm")
    pairs = {f"cls/seq_relationship/output_{p}": Variable(f"cls.seq_relationship.{p[:6]}") for p in ("weights", "bias")}
    classes = {f"output_{p}": Variable(f"classifier.{p[:6]}") for p in ("weights", "bias")}
    for part in (_dense("bert/pooler/dense"), predictions, pairs, classes):
        if part.keys() & set(variables):
            names |= part
    return names


def _plain(name: str) -> str:
    return re.sub(r"layer_(\d+)", r"layer.\1", name).replace("/", ".")


def _dense(name: str) -> dict[str, Variable]:
    """Weights of a dense layer; Google's matrices are input x output."""
    plain = _plain(name)
    return {f"{name}/kernel": Variable(f"{plain}.weight", transposed=True), f"{name}/bias": Variable(f"{plain}.bias")}


def _norm(name: str) -> dict[str, Variable]:
    plain = _plain(name)
    return {f"{name}/gamma": Variable(f"{plain}.weight"), f"{name}/beta": Variable(f"{plain}.bias")}


def gpt2_variables(config: Mapping[str, Any]) -> dict[str, Variable]:
    """Variables of a GPT-2, whose matrices are 1 x input x output, as of convolutions of width 1."""
    names = {f"model/{table}": Variable(f"{table}.weight") for table in ("wte", "wpe")}
    norms = {"model/ln_f": "ln_f"}
    for index in range(config["n_layer"]):
        norms |= {f"model/h{index}/{part}": f"h.{index}.{part}" for part in ("ln_1", "ln_2")}
        for part in ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj"):
            theirs = f"h.{index}.{part.replace('/', '.')}"
            names[f"model/h{index}/{part}/w"] = Variable(f"{theirs}.weight", squeezed=True)
            names[f"model/h{index}/{part}/b"] = Variable(f"{theirs}.bias")
    for ours, theirs in norms.items():
        names |= {f"{ours}/g": Variable(f"{theirs}.weight"), f"{ours}/b": Variable(f"{theirs}.bias")}
    return names


def _word_pieces(folder: Path) -> WordPieceTokenizer:
    """The tokenizer of vocab.txt; whether it lower-cases is inferred from the subwords."""
    if (folder / "tokenizer_config.json").is_file():
        return WordPieceTokenizer.from_huggingface(folder)
    path = folder / "vocab.txt"
    try:
        pieces = path.read_text(encoding="utf-8").rstrip("\r\n").split("\n")
    except (OSError, ValueError) as error:
        remedy = "Put the vocab.txt that came with the checkpoint beside it."
        raise UserError(f"cannot read the vocabulary ({error}).", where=str(path), remedy=remedy) from error
    pieces = [piece.removesuffix("\r") for piece in pieces]
    capitals = sum(piece != piece.lower() for piece in pieces if piece not in SPECIAL)
    return WordPieceTokenizer.from_vocabulary(pieces, lowercase=capitals < CASED_SHARE * len(pieces), where=str(path))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy="Get the file again.") from error
    if not isinstance(content, dict):
        raise UserError("this is not a JSON object.", where=str(path), remedy="Get the file again.")
    return content
