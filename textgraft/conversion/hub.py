"""Other programs' models by name: `hf:FOLDER`, `hf:NAME` for what lies in the hub's cache on this machine, `tf:FOLDER`.

Nothing is ever fetched here: `textgraft fetch` does that, when it is told to.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from textgraft.conversion import huggingface, sentence_transformers
from textgraft.conversion.legacy import elmo, tensorflow
from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.models import packaged
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model
from textgraft.models.model_folder import ELMO, TENSORFLOW, TRANSFORMERS
from textgraft.tasks.registry import task_of
from textgraft.text.byte_level import read_gpt, read_gpt2
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.wordpiece import WordPieceTokenizer


def load(name: str) -> Artifact:
    """The model and tokenizer that `hf:…`, `tf:…`, `elmo:…` or a packaged model's name names.

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
        in_package = packaged.is_packaged(name)
        folder = packaged.find(name) if in_package else find(name)
        config = huggingface.read_config(folder)
        model = huggingface.load(folder)
        embedding = sentence_transformers.read(folder, model.encoder.output_dim)
        tokenizer = TOKENIZERS[str(config["model_type"])](folder)
        record = packaged.record(name) if in_package else _fetched(folder)
    known, wanted = tokenizer.vocab_size, getattr(model.encoder.config, "vocab_size", math.inf)
    if known > wanted:
        message = f"the tokenizer has {known:,} tokens and the model's table {wanted:,}."
        raise UserError(message, where=str(folder), remedy="Take both from the same model.")
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
    """The folder that `hf:…` means. Raises UserError where there is none."""
    given = name.removeprefix(TRANSFORMERS)
    if (Path(given) / "config.json").is_file():
        return Path(given)
    cached = _cache() / f"models--{given.replace('/', '--')}"
    try:
        revision = (cached / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        revision = ""
    snapshot = cached / "snapshots" / revision
    if revision and (snapshot / "config.json").is_file():
        return snapshot
    raise UserError(
        f"'{given}' is neither a folder with a config.json nor a model in {_cache()}.",
        where=name,
        remedy=f"Where there is a network, `textgraft fetch {given} --out FOLDER` gets it; then name hf:FOLDER.",
    )


def _fetched(folder: Path) -> dict[str, Any]:
    """What `textgraft fetch` wrote beside the model of where it is from; nothing where another program got it."""
    try:
        record = json.loads((folder / "run.json").read_bytes())
        if record["stage"] != "fetch":
            return {}
        origin = {"fetched from": f"{record['endpoint']}/{record['name']}", "commit": record["commit"]}
        return {"data": origin} | {key: record[key] for key in ("name", "licence", "language")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _cache() -> Path:
    """Where the hub's own programs keep what they have fetched."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"])
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def _byte_pairs(read: Callable[[Path, Path], Tokenizer]) -> Callable[[Path], Tokenizer]:
    def tokenizer(folder: Path) -> Tokenizer:
        whole = folder / "tokenizer.json"
        return Tokenizer.load(whole) if whole.is_file() else read(folder / "vocab.json", folder / "merges.txt")

    return tokenizer


TOKENIZERS: Mapping[str, Callable[[Path], Tokenizer]] = {
    "bert": WordPieceTokenizer.from_huggingface,
    "distilbert": WordPieceTokenizer.from_huggingface,
    "gpt2": _byte_pairs(read_gpt2),
    "openai-gpt": _byte_pairs(read_gpt),
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
