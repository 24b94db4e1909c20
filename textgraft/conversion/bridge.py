"""Checkpoints of the `transformers` library that run through that library (encoders.transformers_bridge).

Weights are read by textgraft (safetensors, or a pickle of tensors alone) and assigned by the library, which knows older
names. What the seam needs to know of a network is measured on a short text: which hidden states have a vector for each
token, and whether padding changes a text's vectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.conversion import bridge_heads, bridge_tokenizer
from textgraft.conversion.bridge_tokenizer import TokenizerFacts
from textgraft.conversion.weights import SENTENCE_ENCODER
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.transformers_bridge import (
    INSTALL,
    TransformersBridge,
    TransformersBridgeConfig,
    inputs_of,
    library,
    library_config,
    module_class,
    without_pooler,
)
from textgraft.heads.classification import ClassificationHead
from textgraft.heads.features import FeaturesHead
from textgraft.models.model import Model, build_unfilled
from textgraft.text.tokenizer import Tokenizer

LEFT_OUT = {
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
    *("id2label", "label2id", "problem_type", "finetuning_task", "task_specific_params"),
    *(
        "output_hidden_states",
        "output_attentions",
        "return_dict",
        "use_cache",
        "gradient_checkpointing",
        "pruned_heads",
    ),
}
"""Entries of config.json that concern tasks, files and number formats, not the network."""
FIXED: dict[str, dict[str, Any]] = {"big_bird": {"attention_type": "original_full"}}
"""Settings that replace the checkpoint's: BigBird's blocks would depend on the length of the first text."""
NOT_IN_ENCODER = ("classifier", "pooler", "summary", "head", "layerdrop", "token_dropout")
"""Parts of the names of dropout rates that do not act in the encoder."""
POOLERS = ("pooler", "sequence_summary", "sequence_summarizer")
"""Layers over a single vector that published encoders may have and no task here uses."""
PROBE = (9, 6)
"""Tokens of two texts on which a network is measured."""
TOO_LARGE = 3
"""A network with this many times more parameters than there are weights is of another model."""
CLOSE = 1e-4
"""Largest relative difference that another order of summation causes."""


def validate(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError where a config.json is not of an encoder that can run through the library."""
    kind = str(config.get("model_type"))
    try:
        library_types = library().CONFIG_MAPPING
    except UserError as error:
        message = f"model_type '{kind}' is not one that textgraft has itself, and transformers is not installed."
        raise UserError(message, where=where, remedy=INSTALL) from error
    code = config.get("auto_map")
    if code and kind not in library_types:
        message = f"this is a '{kind}' with code of its own (auto_map), which is never run."
        raise UserError(message, where=where, remedy="Use a checkpoint of an architecture that transformers has.")
    if config.get("quantization_config"):
        message = "these weights are quantised, and cannot be trained or converted."
        raise UserError(message, where=where, remedy="Use the checkpoint in float32, float16 or bfloat16.")
    try:
        module_class(library_config(kind, _settings(config)))
    except UserError as error:
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    if code:
        message = f"{where}: the checkpoint's own code (auto_map) is not run; transformers' '{kind}' is used instead."
        warnings.warn(message, stacklevel=3)


def from_folder(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[Model, Tokenizer]:
    """The encoder of a checkpoint, with its language-model head where it has one, and its tokenizer.

    Heads of other tasks are left out, with a warning.

    Args:
        folder: The folder, for the tokenizer.
        config: The content of config.json.
        weights: By name, in float32.

    Raises:
        UserError: The library cannot build the network, weights are missing or left over, or it gives no vector for
            each token.
    """
    validate(config, str(folder / "config.json"))
    with _quiet():
        tokenizer, facts = bridge_tokenizer.from_folder(folder)
        known = library_config(str(config["model_type"]), _settings(config))
        encoder, masked = _loaded(known, weights, folder)
        described = _described(known, encoder, tokenizer, facts)
        head: dict[str, Any] = {"name": "features", "input_dim": described.embedding_dim}
        found = None if masked is None else bridge_heads.head_of(masked, known, described)
        if found is not None:
            head = found.description
        model = build_unfilled({"encoder": {"name": "transformers", **asdict(described)}, "head": head})
    _fill(model, encoder, {} if masked is None or found is None else found.weights(masked))
    if masked is not None and (found is None or not bridge_heads.agrees(model, masked)):
        features = {"name": "features", "input_dim": described.embedding_dim}
        with _quiet():
            model = build_unfilled({"encoder": model.describe()["encoder"], "head": features})
        _fill(model, encoder, {})
        warnings.warn(f"{folder}: the language-model head has a form of its own and is left out.", stacklevel=3)
    return model.eval(), tokenizer


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The library's config.json and weights, with the language-model head if the library has it in this form.

    Any other head is left out, with a warning.
    """
    encoder = model.encoder
    assert isinstance(encoder, TransformersBridge)
    config = encoder.config
    with _quiet():
        whole = bridge_heads.to_library(model)
    module = encoder.module if whole is None else whole
    cls = type(module).__name__
    if whole is None and not isinstance(model.head, FeaturesHead):
        name = model.describe()["head"]["name"]
        message = f"the encoder alone is written, as {cls}: its head '{name}' has no counterpart and is left out."
        more = f" {SENTENCE_ENCODER}" if isinstance(model.head, ClassificationHead) else ""
        warnings.warn(message + more, stacklevel=3)
    content = {**config.checkpoint, **config.dropouts, "model_type": config.model_type}
    content |= {"architectures": [cls], "dtype": "float32"}
    values: dict[str, Tensor] = dict(module.named_parameters())
    persistent = module.state_dict().keys()
    values |= {name: value for name, value in module.named_buffers() if name in persistent}
    return content, {name: value.detach() for name, value in values.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Context without the library's reports and progress bars; what they say is checked here."""
    logging = library().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in config.items() if name not in LEFT_OUT}
    return kept | FIXED.get(str(config.get("model_type")), {})


def _loaded(config: Any, weights: Mapping[str, Tensor], folder: Path) -> tuple[nn.Module, nn.Module | None]:
    """The network without a pooler, and the language model around it, if the weights have all of its head."""
    _validate_size(module_class(config), config, weights, folder)
    masked_cls = bridge_heads.class_of(config, weights)
    if masked_cls is not None and bridge_heads.present(weights):
        masked, report = _filled(masked_cls, config, weights, {})
        if not report["missing_keys"] and not report["mismatched_keys"]:
            encoder: nn.Module = getattr(masked, masked.base_model_prefix)
            _validate_left_over(report["unexpected_keys"], encoder, masked.base_model_prefix, folder)
            return encoder.eval(), masked.eval()
    cls = module_class(config)
    encoder, report = _filled(cls, config, weights, without_pooler(cls))
    missing = [name for name in report["missing_keys"] if not name.startswith(POOLERS)]
    wrong = [f"missing: {name}" for name in missing]
    wrong += [
        f"of another shape: {entry[0] if isinstance(entry, tuple) else entry}" for entry in report["mismatched_keys"]
    ]
    if wrong:
        raise _misfit(wrong, folder)
    _validate_left_over(report["unexpected_keys"], encoder, cls.base_model_prefix, folder)
    return encoder.eval(), None


def _filled(
    cls: Any, config: Any, weights: Mapping[str, Tensor], options: dict[str, bool]
) -> tuple[Any, dict[str, Any]]:
    """The library's model with weights that are in memory, and its report."""
    try:
        return cls.from_pretrained(
            None,
            config=config,
            state_dict=dict(weights),
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    except (RuntimeError, ValueError, TypeError, AttributeError, ImportError, KeyError) as error:
        first = str(error).strip().split("\n")[0]
        message = f"the transformers library cannot load these weights ({type(error).__name__}: {first})."
        raise UserError(message, remedy="Check that config.json and weights are of the same model.") from error


def _validate_size(cls: Any, config: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Raise UserError where a network is far larger than its weights, before it takes memory."""
    try:
        with torch.device("meta"):
            described = sum(p.numel() for p in cls(config).parameters())
    except Exception:  # it is built again, with a message
        return
    stored = sum(value.numel() for value in weights.values())
    if described > TOO_LARGE * stored:
        wrong = f"{described:,} parameters are described and {stored:,} numbers stored"
        raise _misfit([wrong], folder)


def _misfit(wrong: list[str], folder: Path) -> UserError:
    shown = "; ".join(sorted(wrong)[:12]) + (f"; and {len(wrong) - 12} more" if len(wrong) > 12 else "")
    message = f"the weights do not fit config.json ({shown})."
    return UserError(message, where=str(folder), remedy="Check that both are of the same model.")


def _validate_left_over(names: Any, encoder: nn.Module, prefix: str, folder: Path) -> None:
    """Raise UserError for weights of the encoder that the network does not have; warn about those of other tasks."""
    parts = {name for name, _ in encoder.named_children()}
    plain = sorted(name.removeprefix(f"{prefix}.") for name in names)
    own = [
        n
        for n in plain
        if n.split(".")[0] in parts - set(POOLERS) and not n.endswith(("position_ids", "token_type_ids"))
    ]
    if own:
        raise _misfit([f"left over: {name}" for name in own], folder)
    heads = sorted({name.split(".")[0] for name in plain if not name.startswith(POOLERS)} - parts)
    if heads:
        message = f"{folder}: weights of another task are left out: {', '.join(heads[:6])}."
        warnings.warn(message, stacklevel=4)


def _described(config: Any, module: Any, tokenizer: Tokenizer, facts: TokenizerFacts) -> TransformersBridgeConfig:
    """What the seam needs to know of a network, measured on random tokens."""
    settings = {k: v for k, v in config.to_dict().items() if k not in LEFT_OUT and k != "model_type"}
    rates = {
        name: float(value)
        for name, value in settings.items()
        if "drop" in name and isinstance(value, float) and not any(part in name for part in NOT_IN_ENCODER)
    }
    takes = set(_parameters(module))
    kinds = getattr(config, "type_vocab_size", 2)
    offset = _position_offset(module) if "position_ids" in takes else None
    table = module.get_input_embeddings()
    provisional = TransformersBridgeConfig(
        model_type=config.model_type,
        checkpoint=settings,
        vocab_size=table.num_embeddings,
        embedding_dim=0,
        num_layers=0,
        max_length=_max_length(module, config, facts.max_length),
        dropouts=rates,
        segments=facts.segments and "token_type_ids" in takes and kinds > 1 and config.model_type not in WORDS_AS_TYPES,
        special_segments=facts.special_segments,
        pad_id=tokenizer.pad_id,
        position_offset=offset,
        text_position=facts.text_position,
    )
    return _measured(provisional, module)


WORDS_AS_TYPES = ("xlm", "flaubert")
"""Families that look segments up in the token table, which no pretraining did."""


def _parameters(module: nn.Module) -> list[str]:
    import inspect

    return list(inspect.signature(module.forward).parameters)


def _position_tables(module: nn.Module) -> list[nn.Embedding]:
    named = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Embedding)]
    return [m for name, m in named if "position" in name.rpartition(".")[2] and "entity" not in name]


def _position_offset(module: nn.Module) -> int | None:
    """Number of the first position, for RoBERTa's kin, which begin after the padding's; None for all others."""
    padding = [table.padding_idx for table in _position_tables(module) if table.padding_idx is not None]
    return padding[0] + 1 if padding else None


def _max_length(module: nn.Module, config: Any, limit: int | None) -> int | None:
    """Rows of the position table, less those before the first; without one, the tokenizer's limit or the config's."""
    tables = _position_tables(module)
    rows = [t.num_embeddings - (0 if t.padding_idx is None else t.padding_idx + 1) for t in tables]
    if rows:
        return min([*rows, *([limit] if limit else [])])
    named = getattr(config, "max_position_embeddings", None)
    return limit or (named if isinstance(named, int) and named > 0 else None)


@torch.no_grad()
def _measured(config: TransformersBridgeConfig, module: nn.Module) -> TransformersBridgeConfig:
    """The widths of the layers, those that have a vector for each token, and whether padding changes vectors."""
    kind, rows = config.model_type, min(config.vocab_size, 1000)
    ids = torch.arange(2 * PROBE[0]).view(2, -1) % rows
    mask = torch.arange(PROBE[0]) < torch.tensor(PROBE)[:, None]
    remedy = "Use an encoder that gives a vector for each token of the text."
    try:
        output: Any = module(**inputs_of(config, Batch(ids, mask)), output_hidden_states=True, return_dict=True)
        top, states = output.last_hidden_state, output.hidden_states
        short = Batch(ids[1:, : PROBE[1]], mask[1:, : PROBE[1]])
        alone = module(**inputs_of(config, short), return_dict=True).last_hidden_state
    except Exception as error:  # whatever a network of other inputs than texts does
        first = str(error).strip().split("\n")[0]
        message = f"'{kind}' does not encode token ids alone ({type(error).__name__}: {first})."
        raise UserError(message, where="config.json", remedy=remedy) from error
    if top.shape[:2] != ids.shape or states is None:
        message = f"'{kind}' gives {top.shape[1]} vectors for {ids.shape[1]} tokens."
        raise UserError(message, where="config.json", remedy=remedy)
    shown = [index for index, one in enumerate(states) if one.shape[:2] == ids.shape]
    widths = [int(states[index].shape[2]) for index in shown[:-1]] + [int(top.shape[2])]
    everything = shown == list(range(len(states))) and set(widths) == {top.shape[2]}
    difference = (alone[0] - top[1, : PROBE[1]]).abs().max() / alone.abs().max()
    return replace(
        config,
        embedding_dim=int(top.shape[2]),
        num_layers=len(shown) - 1,
        shown=None if everything else shown,
        layer_widths=None if everything else widths,
        mixes_padding=bool(difference > CLOSE),
        only_fp32=not _runs_in_bf16(module, inputs_of(config, short)),
    )


def _runs_in_bf16(module: nn.Module, inputs: dict[str, Tensor]) -> bool:
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            top: Tensor = module(**inputs, return_dict=True).last_hidden_state
    except RuntimeError:
        return False
    return bool(top.isfinite().all())


def _fill(model: Model, encoder: nn.Module, head: Mapping[str, Tensor]) -> None:
    bridge: Any = model.encoder
    values = encoder.state_dict()  # which may have a pooler
    bridge.module.load_state_dict({name: values[name] for name in bridge.module.state_dict()})
    with torch.no_grad():
        for name, parameter in model.head.named_parameters():
            if name in head:
                parameter.copy_(head[name])
            elif name == "output.bias":  # which the library's head may not have
                parameter.zero_()
