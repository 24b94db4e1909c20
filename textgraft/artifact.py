"""An artifact is a folder that anyone can read: config.json, model.safetensors, tokenizer.json, labels.json, run.json.

README.md in it is the model card. config.json lists every other file's sha256, so that a missing, truncated or altered
file is an error with a name, not a wrong prediction. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.data.batch import TokenIds
from textgraft.data.labels import Labels
from textgraft.errors import UserError, did_you_mean
from textgraft.files import cannot_write, write_atomically
from textgraft.inference import Truncation, embed_sequences, encode_texts, predict_logits
from textgraft.model import Model, build_unfilled
from textgraft.nn.pooling import pooled_dim
from textgraft.nn.readout import LAST, new_readout
from textgraft.report.card import model_card
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.calibration import probabilities

if TYPE_CHECKING:
    from textgraft.words.stack import Stack

FORMAT = 1
FILES = ("model.safetensors", "tokenizer.json", "run.json")
"""What every artifact holds, beside config.json and README.md; a classifier has labels.json too."""
OF_STACK = ("/config.json", "/memory.json", "/memory.safetensors")
"""What of its sources' folders a tagger's config.json vouches for."""
TARGET = "target_tokenizer.json"
"""What a translator has too."""
MODEL_FOLDERS = (Path(__file__).parent / "pretrained", Path(__file__).parents[1] / "pretrained")
"""Where the models that ship are: inside an installed package, or beside it in a checkout."""

FOREIGN, TENSORFLOW, ELMO = "hf:", "tf:", "elmo:"
"""How the names of other programs' models begin: the transformers library's, TensorFlow checkpoints, ELMo's files."""
FLAIR = "flair:"
"""How Flair's files are named, which only `convert` opens, since they are pickles (foreign.flair)."""


class Predictor(Protocol):
    """A finished model of any kind, that answers for texts and that a folder can hold.

    `labels` is None for a language model, which has no `outputs`. These are (N, C) probabilities in the order of
    `labels.names`, or (N,) standardised values. `embed` gives (N, D) float32 vectors and raises UserError where
    `has_vectors` is False. `files` is what the folder holds, by name: config.json and the card too; `half` asks for
    float16 where that saves room.
    """

    run: dict[str, Any]

    @property
    def labels(self) -> Labels | None: ...

    @property
    def has_vectors(self) -> bool: ...

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray: ...

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = LAST
    ) -> np.ndarray: ...

    def files(self, *, half: bool = False) -> dict[str, bytes]: ...


@dataclass
class Artifact:
    """A model with all it needs to be used again; `run` is what run.json says of how it came to be.

    `target` is the tokenizer of the language that a translator writes.
    `stack` holds the frozen models that a tagger over words reads; they are folders inside its own.
    """

    model: Model
    tokenizer: Tokenizer
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)
    target: Tokenizer | None = None
    stack: Stack | None = None

    has_vectors = True

    def suited(self, recipe: str) -> str:
        """The recipe that `recipe` stands for with this model.

        "default" is the one that the model's own pretraining recipe names (`suits`), or else its kind of network's.
        """
        return str(self.run.get("suits") or self.model.encoder.recipe) if recipe == "default" else recipe

    def encoded(self, texts: Sequence[str], max_tokens: int) -> tuple[list[TokenIds], Truncation]:
        """The texts' token ids, no more of each than `max_tokens` and than the encoder can look at (inference)."""
        most = self.model.encoder.max_length or max_tokens
        return encode_texts(self.tokenizer, texts, min(max_tokens, most))

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray:
        """What a classifier answers: (N, C) temperature-scaled probabilities, or (N,) standardised values."""
        assert self.labels is not None, "a language model does not answer"
        sequences, _ = self.encoded(texts, self.run["max_tokens"])
        logits = predict_logits(self.model, sequences, self.tokenizer.pad_id, precision)
        if self.labels.kind == "numeric":
            return logits[:, 0]
        return probabilities(logits, self.labels.kind, self.run.get("temperature") or 1.0)

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = LAST
    ) -> np.ndarray:
        """(N, D) vectors of the top layer, or of what `layers` reads (nn.readout), pooled.

        A classifier reads as much of a text as it was trained on.
        """
        sequences, _ = self.encoded(texts, self.run.get("max_tokens", max_tokens))
        if not sequences:
            width = new_readout(layers, self.model.encoder.widths).output_dim
            return np.zeros((0, pooled_dim(pooling, width)), dtype=np.float32)
        return embed_sequences(self.model, sequences, self.tokenizer.pad_id, pooling, layers=layers)

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the artifact's folder by name, config.json and the model card among them."""
        files: dict[str, bytes] = {
            "model.safetensors": weights(self.model, half=half),
            "tokenizer.json": self.tokenizer.to_json().encode(),
            "run.json": to_json(self.run),
        }
        if self.labels is not None:
            files["labels.json"] = self.labels.to_json().encode()
        if self.target is not None:
            files[TARGET] = self.target.to_json().encode()
        card = model_card(self.run).encode()
        description, below = self.model.describe(), {}
        if self.stack is not None:
            description["stack"], below = self.stack.described(), self.stack.files()
        # The config.json of each folder inside vouches for the rest of it, but for what the tagger's own has put there.
        vouched = files | {name: data for name, data in below.items() if name.endswith(OF_STACK)}
        return {**files, **below, "config.json": config(description, vouched), "README.md": card}


def save(
    artifact: Predictor,
    folder: Path | str,
    *,
    half: bool = False,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the artifact as a folder, all of it or nothing; `half` stores the weights as float16.

    `documents` are files for people to lie beside it, such as a report: config.json does not vouch for them.

    Raises UserError where `folder` exists (without `overwrite`) or cannot be written.
    """
    folder = Path(folder)
    refuse_existing(folder, overwrite)
    return write_folder(folder, {**artifact.files(half=half), **(documents or {})})


def config(description: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """config.json: what `description` says, the sha256 of each of `files`, and its own."""
    return config_of(description, {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())})


def config_of(description: Mapping[str, Any], hashes: Mapping[str, str]) -> bytes:
    """The same of files whose sha256 is known already, such as one too large for memory."""
    content = {"format": FORMAT, **description, "files": dict(hashes)}
    return to_json(content | {"sha256": _digest(content)})


def weights(model: Model, *, half: bool = False) -> bytes:
    """The model's values as model.safetensors holds them, float16 with `half`."""
    values = {name: value.detach().contiguous() for name, value in model.values().items()}
    return to_safetensors({n: v.half() if half and v.is_floating_point() else v for n, v in values.items()})


def has_weights(folder: Path, expected: bytes) -> bool:
    """Whether `folder` is an artifact with just these weights."""
    if not (folder / "config.json").is_file():
        return False
    return bool(read_config(folder)["files"].get("model.safetensors") == hashlib.sha256(expected).hexdigest())


def refuse_existing(folder: Path, overwrite: bool = False) -> None:
    """Raises UserError if `folder` is there already and may not be replaced."""
    if folder.exists() and not overwrite:
        raise UserError(
            "this path exists already.", where=str(folder), remedy="Name another, or pass --overwrite to replace it."
        )
    if folder.exists() and not (folder / "config.json").exists():
        raise UserError(
            "this is not a model folder, so it is not overwritten.", where=str(folder), remedy="Name another path."
        )


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A folder with `files`, put in place by one rename.

    Raises UserError where it cannot be written; a folder that was there before is then there still.
    """
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        for name, data in files.items():
            write_atomically(beside / name, data)
        put_in_place(beside, folder)
    except UserError as error:
        raise UserError(error.message, where=str(folder), remedy=error.remedy) from error
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def put_in_place(beside: Path, folder: Path) -> None:
    """Rename `beside` to `folder`, which is set aside first if it is there, and put back if that fails."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    replaces = folder.exists()
    if replaces:
        os.replace(folder, old)
    try:
        os.replace(beside, folder)
    except OSError:
        if replaces:
            os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def find(name: str | Path) -> Path:
    """The folder of a model given by path, or by the name of one that ships.

    Raises UserError, with the names there are, if there is none.
    """
    for folder in (Path(name), *(base / str(name) for base in MODEL_FOLDERS)):
        if (folder / "config.json").is_file():
            return folder
    if str(name).startswith(FLAIR):
        remedy = f"Convert it first: textgraft convert {name} --out FOLDER; then name FOLDER."
        raise UserError("a file of Flair's is a pickle, which only convert opens.", where=str(name), remedy=remedy)
    if Path(name).is_dir():
        raise UserError(
            "there is no config.json here, so this is not a model folder.",
            where=str(name),
            remedy="Name the folder that textgraft wrote, or restore what is missing.",
        )
    remedy = f"{did_you_mean(str(name), names())} Give the path of a model's folder, or the name of one that ships."
    raise UserError(f"no model '{name}'.", remedy=remedy.strip())


def is_foreign(name: str | Path) -> bool:
    """Whether a model's name says that another program made it (foreign.hub)."""
    return str(name).startswith((FOREIGN, TENSORFLOW, ELMO))


def names() -> list[str]:
    """The models that ship, by name."""
    return sorted({config.parent.name for base in MODEL_FOLDERS for config in base.glob("*/config.json")})


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, checked against its own hash and for its format version.

    Raises UserError if it is damaged, altered or from a later textgraft.
    """
    path = folder / "config.json"
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
        theirs = "format" not in config and "model_type" in config
        version = FORMAT if theirs else config["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({type(error).__name__}: {error}).", where=str(path), remedy=RESTORE) from error
    if theirs:
        message = "this is a model of the transformers library."
        raise UserError(message, where=str(folder), remedy=f"Name it {FOREIGN}{folder}.")
    if version != FORMAT:
        remedy = "Install a newer textgraft." if isinstance(version, int) and version > FORMAT else RESTORE
        raise UserError(
            f"this is format {version}, and this textgraft reads format {FORMAT}.", where=str(path), remedy=remedy
        )
    expected = config.pop("sha256", None)
    if expected is not None and expected != _digest(config):
        raise UserError("altered since it was saved.", where=str(path), remedy=RESTORE)
    if not isinstance(config.get("files"), dict):
        raise UserError("damaged (the list of files is missing).", where=str(path), remedy=RESTORE)
    return config


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(content)).hexdigest()


RESTORE = "Restore the folder from where it came, or make it again."


def read_files(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """The artifact's files, each checked against its sha256. Raises UserError naming the one that differs."""
    files: dict[str, bytes] = {}
    for name, expected in config["files"].items():
        path = folder / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=RESTORE) from error
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise UserError("truncated or altered since it was saved.", where=str(path), remedy=RESTORE)
    return files


def load(name: str | Path) -> Artifact:
    """The artifact in a folder of ours, or one that ships by its name; weights in float32, the model in eval mode.

    `opening.load` takes other programs' models too, and opens the stack that a tagger reads, which is None here. Raises
    UserError for a missing, truncated, altered or future file, and lists weights that do not fit.
    """
    folder = find(name)
    config = read_config(folder)
    if "linear" in config:
        remedy = "Use it with predict and evaluate, or name a language model."
        raise UserError("this is a linear classifier, not a network.", where=str(folder), remedy=remedy)
    if "vectors" in config:
        remedy = "Use them with textgraft vectors and embed, or name a language model."
        raise UserError("these are word vectors, not a network.", where=str(folder), remedy=remedy)
    files = read_files(folder, config)
    model = _built(config, folder / "config.json")
    where = str(folder / "model.safetensors")
    try:
        fill(model, from_safetensors(files["model.safetensors"]), where=where)
    except SafetensorError as error:
        raise UserError(f"damaged ({error}).", where=where, remedy=RESTORE) from error
    labels = None
    if "labels.json" in files:
        labels = Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json"))
    tokenizer = Tokenizer.from_json(files["tokenizer.json"].decode(), where=str(folder / "tokenizer.json"))
    target = Tokenizer.from_json(files[TARGET].decode(), where=str(folder / TARGET)) if TARGET in files else None
    return Artifact(model.eval(), tokenizer, labels, json.loads(files["run.json"]), target)


def _built(config: Mapping[str, Any], path: Path) -> Model:
    """The model that `config` describes, its weights to be filled."""
    absent = [key for key in ("encoder", "head") if not isinstance(config.get(key), dict)]
    absent += [name for name in FILES if name not in config["files"]]
    if absent:
        message = f"this describes no model: '{absent[0]}' is missing."
        raise UserError(message, where=str(path), remedy=RESTORE)
    try:
        return build_unfilled({"encoder": config["encoder"], "head": config["head"]})
    except UserError as error:
        raise UserError(error.message, where=str(path), remedy=error.remedy or RESTORE) from error
    except (TypeError, ValueError, RuntimeError, KeyError) as error:  # a setting of the wrong kind or out of range
        raise UserError(f"this describes no model ({error}).", where=str(path), remedy=RESTORE) from error


def fill(model: Model, values: Mapping[str, Tensor], *, where: str) -> None:
    """Copy saved values into the model; every name and shape must match.

    Raises UserError listing what is missing, left over, or of another shape.
    """
    own = model.values()
    wrong = [f"missing: {n}" for n in own.keys() - values.keys()]
    wrong += [f"left over: {n}" for n in values.keys() - own.keys()]
    wrong += [
        f"{n} is {tuple(values[n].shape)}, not {tuple(own[n].shape)}"
        for n in own.keys() & values.keys()
        if own[n].shape != values[n].shape
    ]
    if wrong:
        raise UserError("the weights do not fit the config (" + "; ".join(sorted(wrong)[:8]) + ").", where=where)
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(values[name])


def to_json(value: Any) -> bytes:
    """JSON as every artifact's files have it: the same value, the same bytes."""
    return (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
