"""Conversion of Flair's character language models (LanguageModel.save), without Flair.

A file is a pickle: the weights, the shape, and the vocabulary as an object of Flair's class Dictionary, in pickle
protocol 4, which torch's weights-only loader does not support. It is therefore loaded by an unpickler that only allows
the names in ALLOWED, plain containers and numbers, and two stand-ins, one for Dictionary and one that makes tensors; at
any other name the file is rejected, and nothing in it runs. TorchScript is rejected too.

torch keeps two biases for each layer, which only appear as their sum; textgraft keeps the sum.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from zipfile import BadZipFile

import torch
from torch import Tensor

from textgraft.conversion.weights import validate_finite
from textgraft.core.errors import UserError
from textgraft.encoders.flair import Flair, FlairConfig
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build_unfilled
from textgraft.models.model_folder import FLAIR
from textgraft.nn.softmax import FullSoftmax
from textgraft.text.characters import LINE_END, CharacterTokenizer, of_vocabulary

ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("builtins", "int"): int,
}
"""Names that a file may use, beside the two stand-ins and the types of torch's storages."""
REMEDY = "Get the file again, or write it with Flair's LanguageModel.save."
SETTINGS = ("is_forward_lm", "hidden_size", "nlayers", "embedding_size", "nout", "dropout", "dictionary", "state_dict")


class DisallowedName(pickle.UnpicklingError):
    """A file uses a name that might be code."""


def load(name: str) -> Artifact:
    """Load the language model in the file of `flair:FILE`, in float32 and eval mode; an encoder alone has no decoder.

    Raises:
        UserError: The file is missing or damaged, contains more than a language model, or a GRU.
    """
    path = Path(name.removeprefix(FLAIR))
    content = read(path)
    try:
        model, tokenizer = from_flair(content)
    except UserError as error:
        raise UserError(error.message, where=str(path), remedy=error.remedy) from error
    validate_finite(model, str(path))
    run: dict[str, Any] = {
        "stage": "pretrain",
        "name": path.stem,
        "description": f"Flair's character language model from {path.name}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "base": None,
    }
    return Artifact(model.eval(), tokenizer, None, run)


def read(path: Path) -> dict[str, Any]:
    """Contents of a file by name, the vocabulary (`dictionary`) as the bytes of its items in order.

    Raises UserError as `load` does.
    """
    try:
        file = io.BytesIO(path.read_bytes())
        _validate_no_script(file)
        content = torch.load(file, map_location="cpu", weights_only=False, pickle_module=_restricted_pickle())
    except OSError as error:
        raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=REMEDY) from error
    except DisallowedName as error:
        message = f"this file uses {error}, which no language model of Flair contains."
        raise UserError(message, where=str(path), remedy="It is not opened, since it could run code.") from error
    except (pickle.UnpicklingError, BadZipFile, RuntimeError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy=REMEDY) from error
    except (AttributeError, IndexError, AssertionError, OverflowError, MemoryError) as error:  # raised by the unpickler
        raise UserError(f"damaged ({error!r}).", where=str(path), remedy=REMEDY) from error
    absent = [key for key in SETTINGS if not isinstance(content, dict) or key not in content]
    items = None if absent else getattr(content["dictionary"], "__dict__", {}).get("idx2item")
    if not isinstance(items, list) or not all(isinstance(item, bytes) for item in items):
        message = f"this is not a language model of Flair ('{(absent or ['dictionary'])[0]}' is missing)."
        raise UserError(message, where=str(path), remedy=REMEDY)
    return {**content, "dictionary": items}


def _validate_no_script(file: io.BytesIO) -> None:
    """Raise DisallowedName for TorchScript, which torch.load would pass to another loader."""
    if file.getvalue().startswith(b"PK") and "constants.pkl" in torch._C.PyTorchFileReader(file).get_all_records():
        raise DisallowedName("TorchScript")
    file.seek(0)


def _restricted_pickle() -> Any:
    """The pickle module for torch.load. The stand-ins are new for each file, so that no file can change another's."""

    class Dictionary:
        pass

    class RebuiltTensor:
        def __new__(cls, *arguments: Any) -> Any:
            rebuilt: Any = torch._utils._rebuild_tensor_v2
            return rebuilt(*arguments)

    allowed = ALLOWED | {
        ("flair.data", "Dictionary"): Dictionary,
        ("torch._utils", "_rebuild_tensor_v2"): RebuiltTensor,
    }

    class Reader(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Any:
            if (module_name, global_name) not in allowed:
                raise DisallowedName(f"'{module_name}.{global_name}'")
            return allowed[module_name, global_name]

    def load_one(file: Any, **settings: Any) -> Any:
        return Reader(file, **settings).load()

    return SimpleNamespace(__name__=__name__, Unpickler=Reader, load=load_one)


def from_flair(content: Mapping[str, Any]) -> tuple[Model, CharacterTokenizer]:
    """Convert the result of `read` to a model and its tokenizer.

    Raises:
        UserError: The model is a GRU, the document delimiter is not a line end, the vocabulary is not text, or weights
            are missing, unknown or of a wrong shape.
    """
    kind, delimiter = str(content.get("recurrent_type", "LSTM")), content.get("document_delimiter", LINE_END)
    if kind.lower() != "lstm":
        raise UserError(
            f"its recurrent layer is a {kind}.", remedy="Only LSTMs are supported, as all of Flair's own models are."
        )
    if delimiter != LINE_END:
        raise UserError(f"its texts are separated by {delimiter!r}.", remedy="Only a line end is supported.")
    try:
        tokenizer = of_vocabulary([item.decode("utf-8") for item in content["dictionary"]])
        dropout = float(content["dropout"])
        config = FlairConfig(
            vocab_size=tokenizer.vocab_size,
            embedding_dim=int(content["embedding_size"]),
            hidden_dim=int(content["hidden_size"]),
            num_layers=int(content["nlayers"]),
            projection_dim=int(content["nout"] or 0),
            direction="left" if content["is_forward_lm"] else "right",
            input_dropout=dropout,
            hidden_dropout=dropout,
        )
        encoder = {"name": "flair", **asdict(config)}
        width = config.projection_dim or config.hidden_dim
        head: dict[str, Any] = {"name": "features", "input_dim": width}
        if any(name.startswith("decoder.") for name in content["state_dict"]):
            settings = LanguageModelConfig(
                config.vocab_size, width, tied=False, output_dropout=dropout, alpha=0, beta=0
            )
            head = {"name": "language_model", **asdict(settings)}
        model = build_unfilled({"encoder": encoder, "head": head})
    except UserError:
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:  # a setting of the wrong kind or size
        raise UserError(f"the description of the model is invalid ({error}).", remedy=REMEDY) from error
    _fill(model, content["state_dict"])
    return model, tokenizer


def _names(num_layers: int, required: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each name in `required`, Flair's names of the tensors whose sum it is."""
    flair_names: dict[str, tuple[str, ...]] = {"encoder.embedding.weight": ("encoder.weight",)}
    for i in range(num_layers):
        ours = f"encoder.layers.{i}"
        flair_names |= {f"{ours}.{name}": (f"rnn.{name}_l{i}",) for name in ("weight_ih", "weight_hh")}
        flair_names[f"{ours}.bias"] = (f"rnn.bias_ih_l{i}", f"rnn.bias_hh_l{i}")
    for ours, theirs in (("encoder.projection", "proj"), ("head.output", "decoder")):
        flair_names |= {f"{ours}.{name}": (f"{theirs}.{name}",) for name in ("weight", "bias")}
    return {name: flair_names[name] for name in required}


def _fill(model: Model, weights: Mapping[str, Tensor]) -> None:
    names = _names(model.encoder.config.num_layers, model.values())
    expected = {theirs for group in names.values() for theirs in group}
    missing, unknown = sorted(expected - weights.keys()), sorted(map(str, weights.keys() - expected))
    if missing or unknown:
        message = f"the weights are not those of Flair's language model (missing: {missing}, unknown: {unknown})."
        raise UserError(message, remedy=REMEDY)
    with torch.no_grad():
        for name, parameter in model.values().items():
            for theirs in names[name]:
                value = weights[theirs]
                if not isinstance(value, Tensor) or value.shape != parameter.shape:
                    shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                    raise UserError(f"'{theirs}' is {shape}, not {tuple(parameter.shape)}.", remedy=REMEDY)
            parameter.copy_(torch.stack([weights[theirs].float() for theirs in names[name]]).sum(dim=0))


class _Dictionary:
    """Stand-in for Flair's Dictionary, with its attributes."""

    def __init__(self, items: list[str]) -> None:
        self.idx2item = [item.encode("utf-8") for item in items]
        self.item2idx = {item: i for i, item in enumerate(self.idx2item)}
        self.add_unk, self.multi_label, self.span_labels = True, False, False


_PythonPickler: Any = pickle._Pickler


class _Writer(_PythonPickler):
    """Writes the name of Flair's class for the stand-in; the C pickler would import it, and Flair need not be
    installed.
    """

    dispatch: ClassVar[dict[type, Any]] = dict(_PythonPickler.dispatch)

    def save_type(self, obj: type) -> None:
        if obj is _Dictionary:
            self.write(b"cflair.data\nDictionary\n")
            self.memoize(obj)
        else:
            super().save_type(obj)

    dispatch[type] = save_type


def to_flair(model: Model, tokenizer: Any) -> bytes:
    """Convert to a file for Flair's `LanguageModel.load_language_model` and `FlairEmbeddings`; biases are stored in
    `bias_ih`.

    Raises:
        UserError: Flair's language models cannot represent the family, head, vocabulary or output layer.
    """
    encoder, head = model.encoder, model.head
    bare = model.describe()["head"]["name"] == "features"
    if not isinstance(encoder, Flair) or not isinstance(tokenizer, CharacterTokenizer):
        raise UserError("only a character language model of the family 'flair' can be written for Flair.")
    if not bare and not (
        isinstance(head, LanguageModelHead) and isinstance(head.output, FullSoftmax) and head.config.bias
    ):
        remedy = "Convert the language model, with output layer 'chunked', 'sampled' or 'full' and a bias."
        raise UserError("Flair's language models have no such head.", remedy=remedy)
    values = model.values()
    state: OrderedDict[str, Tensor] = OrderedDict()
    if not bare:  # a tied table is stored twice in Flair
        output: Any = head.output
        values["head.output.weight"] = output.weight
    for ours, theirs in _names(encoder.config.num_layers, values).items():
        state |= {theirs[0]: values[ours].detach().clone()}
        state |= {name: torch.zeros_like(values[ours]) for name in theirs[1:]}
    config = encoder.config
    content = {
        "state_dict": state,
        "dictionary": _Dictionary(tokenizer.tokens),
        "is_forward_lm": config.direction == "left",
        "hidden_size": config.hidden_dim,
        "nlayers": config.num_layers,
        "embedding_size": config.embedding_dim,
        "nout": config.projection_dim or None,
        "document_delimiter": LINE_END,
        "dropout": config.input_dropout,
        "recurrent_type": "LSTM",
        "has_decoder": not bare,
    }
    file = io.BytesIO()
    torch.save(content, file, pickle_module=SimpleNamespace(__name__=__name__, Pickler=_Writer), pickle_protocol=4)
    return file.getvalue()
