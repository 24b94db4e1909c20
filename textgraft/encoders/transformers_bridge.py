"""The bridge to the `transformers` library: any of its encoders that returns a vector for each token of the input.

The network is the library's own, built from the checkpoint's config.json; this file adapts it to the Encoder seam. Code
inside a checkpoint is never run. Families that textgraft has itself do not come here (conversion.huggingface.READERS).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.streams.permutation import PREDICTED
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.cpu.precision import Linear, int8_is_enabled
from textgraft.nn.two_streams import at_positions, permutation_mask, target_mapping

INSTALL = 'Install it by: pip install "textgraft[transformers]"'
ENCODER_PARTS = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
"""Encoder-decoders of which the encoder is used, with the library's class for it."""
OTHER_OBJECTIVES = {
    **dict.fromkeys(ENCODER_PARTS, "its decoder, which restores spans, is not part of the encoder"),
    "canine": "it masks characters, whose numbers are no vocabulary",
}
"""Reasons why a family's encoder cannot be trained further without labels."""
REPLACED = ("electra",)
"""Families whose encoder has learned to detect replaced tokens; the generators among them have masked ones."""
PERMUTED = ("xlnet",)
"""Families of two-stream attention, which predict tokens in a random order (permutation language modelling)."""


@dataclass(frozen=True)
class TransformersBridgeConfig:
    """A checkpoint's architecture, and the facts about it that the seam needs (conversion.bridge finds them).

    Args:
        model_type: The library's name of the architecture.
        checkpoint: The checkpoint's config.json, without what concerns tasks, files and number formats.
        vocab_size: Rows of the token table.
        embedding_dim: Width D of the last layer.
        num_layers: Layers above the embeddings that can be shown.
        max_length: Most tokens of a text; None for no limit.
        dropouts: Dropout rates by their names in `checkpoint`, whose values there they replace.
        shown: Indices of the library's hidden states that have a vector for each token; None for all.
        layer_widths: Width of each of these; None for D.
        segments: The network takes segments.
        special_segments: Token ids with a segment of their own: [id, segment] each.
        pad_id: Id that stands in the padding.
        position_offset: Number of the first position, if the network is told positions; None if it counts itself.
        mixes_padding: Padding would change a text's vectors, so that only texts of one length are encoded together.
        only_fp32: The network does not run in bfloat16 (DeBERTa's mask overflows).
        text_position: Pooling (nn.pooling) for classification: where the token that stands for a text is.
    """

    model_type: str
    checkpoint: Mapping[str, Any]
    vocab_size: int
    embedding_dim: int
    num_layers: int
    max_length: int | None = None
    dropouts: Mapping[str, float] = field(default_factory=dict)
    shown: list[int] | None = None
    layer_widths: list[int] | None = None
    segments: bool = False
    special_segments: list[list[int]] = field(default_factory=list)
    pad_id: int = 0
    position_offset: int | None = None
    mixes_padding: bool = False
    only_fp32: bool = False
    text_position: str = "first"


class TransformersBridge(Encoder):
    """Token ids, and segments where the network takes them, to one vector a position, by a network of `transformers`.

    Every layer's hidden states are returned with keep="all"; the last is the network's output, after a final
    normalisation if it has one. There is no pooler. With `Batch.order` (XLNet) `top` is of the query stream, at the
    positions to predict, and 0 elsewhere. Raises UserError where the library is missing or does not have the
    architecture.
    """

    config: TransformersBridgeConfig
    direction = "both"
    recurrent = False
    method = "bert"

    def __init__(self, config: TransformersBridgeConfig) -> None:
        super().__init__()
        self.config, self.output_dim, self.max_length = config, config.embedding_dim, config.max_length
        self.permuted = config.model_type in PERMUTED
        self.module = new_module(library_config(config.model_type, {**config.checkpoint, **config.dropouts}))
        use_own_products(self.module)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D); `state` is not used.

        Raises:
            UserError: A text is longer than the network has positions for.
        """
        length, limit = batch.ids.shape[1], self.config.max_length
        if limit is not None and length > limit:
            message = f"a text of {length} tokens is longer than the {limit} positions that this model has."
            raise UserError(message, remedy=f"Cut texts to at most {limit} tokens.")
        every = keep == "all"
        padded = self.config.mixes_padding and not bool(batch.mask.all())
        layers = self._by_length(batch, every) if padded else self._layers(batch, every)
        return Encoded(top=layers[-1], mask=batch.mask, layers=layers if every else ())

    def _layers(self, batch: Batch, every: bool) -> tuple[Tensor, ...]:
        """All layers that are shown, or the last alone."""
        inputs = inputs_of(self.config, batch)
        kind = batch.ids.device.type
        # Products in int8 are float32, which the library's code does not expect beside bfloat16.
        autocast = torch.is_autocast_enabled(kind) and not self.config.only_fp32 and not int8_is_enabled()
        with torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=autocast):
            output = self.module(**inputs, output_hidden_states=every, return_dict=True)
        top: Tensor = output.last_hidden_state
        if batch.order is not None:
            return (at_positions(top, batch.order),)
        if not every:
            return (top,)
        states = output.hidden_states
        shown = self.config.shown if self.config.shown is not None else range(len(states))
        return (*[states[index] for index in shown][:-1], top)

    def _by_length(self, batch: Batch, every: bool) -> tuple[Tensor, ...]:
        """`_layers` of rows of one length at a time, for networks that do not keep padding apart; 0 in the padding."""
        lengths = batch.mask.sum(dim=1)
        whole: list[Tensor] = []
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero().squeeze(1)
            segments = None if batch.segments is None else batch.segments[rows, :length]
            part = Batch(ids=batch.ids[rows, :length], mask=batch.mask[rows, :length], segments=segments)
            parts = self._layers(part, every)
            shape = batch.ids.shape
            whole = whole or [one.new_zeros(*shape, one.shape[2]) for one in parts]
            padding = [(0, 0, 0, shape[1] - length)] * len(parts)
            whole = [
                total.index_copy(0, rows, nn.functional.pad(one, pad).to(total.dtype))
                for total, one, pad in zip(whole, parts, padding, strict=True)
            ]
        return tuple(whole)

    @property
    def embedding(self) -> nn.Module:
        """The token table."""
        network: Any = self.module
        table: nn.Module = network.get_input_embeddings()
        return table

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each of `Encoded.layers`, bottom (embeddings) to top."""
        return tuple(self.config.layer_widths or (self.output_dim,) * (1 + self.config.num_layers))

    @property
    def not_adaptable(self) -> str:
        """Reason why the network has no objective without labels; empty if it has."""
        if self.permuted:
            return ""
        if reason := OTHER_OBJECTIVES.get(self.config.model_type):
            return reason
        from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

        known = self.config.model_type in MASKED
        return "" if known else "the transformers library has no masked language model of this architecture"

    @property
    def detects_replaced(self) -> bool:
        """True for ELECTRA."""
        return self.config.model_type in REPLACED

    @property
    def languages(self) -> Mapping[str, int]:
        """As config.json names them (`lang2id`), else "0", "1", ...; empty for one language."""
        checkpoint = self.config.checkpoint
        count = int(checkpoint.get("n_langs", 1)) if checkpoint.get("use_lang_emb") else 1
        names: dict[str, int] = checkpoint.get("lang2id") or {str(number): number for number in range(count)}
        return names if count > 1 else {}

    def classifier(self) -> dict[str, Any]:
        """One linear layer on the vector of the token that stands for the text, or on the mean where there is none."""
        rates = [rate for name, rate in self.config.dropouts.items() if "hidden" in name or name.startswith("dropout")]
        return {**ONE_LAYER, "pooling": self.config.text_position, "input_dropout": max(rates, default=0.0)}

    def masked_language_model(self) -> dict[str, Any]:
        """XLNet's: the table on the last layer, and the share of tokens that are predicted."""
        return {"transform": False, "masked": PREDICTED} if self.permuted else {}

    def layer_groups(self) -> list[LayerGroup]:
        """Embeddings, each block, and what is above the blocks."""
        blocks = blocks_of(self.module)
        inside = {id(p) for block in blocks for module in block for p in module.parameters()}
        tables = {id(p) for m in self.module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        below: list[nn.Parameter] = []
        above: list[nn.Parameter] = []
        reached = False
        for parameter in self.parameters():
            reached = reached or id(parameter) in inside
            if id(parameter) not in inside:
                (above if reached and id(parameter) not in tables else below).append(parameter)
        groups = [LayerGroup("embedding", tuple(below))]
        seen = {id(p) for p in (*below, *above)}
        for number, block in enumerate(blocks, start=1):
            own = {id(p): p for module in block for p in module.parameters() if id(p) not in seen}
            seen |= own.keys()
            groups.append(LayerGroup(f"layer {number}", tuple(own.values())))
        groups.append(LayerGroup("rest", tuple(above)))
        return [group for group in groups if group.parameters]


def inputs_of(config: TransformersBridgeConfig, batch: Batch) -> dict[str, Tensor]:
    """The arguments of the network for a batch."""
    mask = batch.mask
    inputs = {"input_ids": torch.where(mask, batch.ids, config.pad_id), "attention_mask": mask.long()}
    if config.segments:
        segments = torch.zeros_like(batch.ids) if batch.segments is None else batch.segments
        for token_id, segment in config.special_segments:
            segments = torch.where(batch.ids == token_id, segment, segments)
        inputs["token_type_ids"] = segments
    if config.position_offset is not None:
        positions = torch.arange(batch.ids.shape[1], device=mask.device) + config.position_offset
        inputs["position_ids"] = positions.expand_as(batch.ids)
    if config.model_type == "longformer":  # as the library's heads do: the first token attends to the whole text
        inputs["global_attention_mask"] = (torch.arange(mask.shape[1], device=mask.device) == 0) & mask
    if batch.languages is not None:  # each text of a pair begins at the first position (Lample & Conneau 2019, §3.3)
        assert batch.segments is not None
        first = (mask & (batch.segments == 0)).sum(dim=1, keepdim=True)
        positions = torch.arange(mask.shape[1], device=mask.device) - first * batch.segments
        inputs |= {"langs": batch.languages, "position_ids": positions}
    if batch.order is not None:
        inputs |= {"perm_mask": permutation_mask(batch.order), "target_mapping": target_mapping(batch.order)}
    return inputs


def blocks_of(module: nn.Module) -> list[list[nn.Module]]:
    """The modules of each block: the list of modules with most parameters, and lists beside it of the same length.

    Lists of lists (Funnel's blocks of layers) are one. XLM has a list of each kind of sublayer, which are taken
    together.
    """
    lists = [(parent, items) for parent, items in _outermost_lists(module, "") if items]
    if not lists:
        return []

    def size(entry: tuple[str, list[nn.Module]]) -> int:
        return sum(p.numel() for item in entry[1] for p in item.parameters())

    parent, largest = max(lists, key=size)
    beside = [items for other, items in lists if other == parent and len(items) == len(largest)]
    return [list(block) for block in zip(*beside, strict=True)]


def _outermost_lists(module: nn.Module, name: str) -> Iterator[tuple[str, list[nn.Module]]]:
    """The name of the parent, and the items, of each list that is inside no other."""
    for child_name, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            yield name, list(_flat(child))
        else:
            yield from _outermost_lists(child, f"{name}.{child_name}")


def _flat(items: Iterable[nn.Module]) -> Iterator[nn.Module]:
    for item in items:
        if isinstance(item, nn.ModuleList):
            yield from _flat(item)
        else:
            yield item


def library() -> Any:
    """The `transformers` library. Raises UserError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        message = "this model runs through the transformers library, which is not installed."
        raise UserError(message, remedy=INSTALL) from error
    return transformers


def library_config(model_type: str, checkpoint: Mapping[str, Any]) -> Any:
    """The library's configuration of an architecture.

    Raises:
        UserError: The library is missing, does not have the architecture, or rejects a setting.
    """
    transformers = library()
    known = transformers.CONFIG_MAPPING
    if model_type not in known:
        message = f"the transformers library {transformers.__version__} has no architecture '{model_type}'."
        raise UserError(message, where="config.json", remedy=did_you_mean(model_type, list(known.keys())))
    settings = {name: value for name, value in checkpoint.items() if name != "model_type"}
    try:
        return transformers.AutoConfig.for_model(model_type, **settings)
    except Exception as error:  # of the library's validation, which has classes of its own
        first = str(error).strip().split("\n")[0]
        message = f"this is no config of '{model_type}' ({type(error).__name__}: {first})."
        raise UserError(message, where="config.json", remedy="Use the file that came with the model.") from error


def module_class(config: Any) -> Any:
    """The library's class of the encoder alone.

    Raises:
        UserError: The library has none, or it is an encoder-decoder whose encoder cannot be used alone.
    """
    transformers = library()
    if config.model_type in ENCODER_PARTS:
        return getattr(transformers, ENCODER_PARTS[config.model_type])
    if getattr(config, "is_encoder_decoder", False):
        message = f"'{config.model_type}' is an encoder-decoder."
        remedy = f"Of these, the encoders of {', '.join(ENCODER_PARTS)} can be used."
        raise UserError(message, where="config.json", remedy=remedy)
    try:
        found = transformers.MODEL_MAPPING[type(config)]
    except KeyError as error:
        message = f"the transformers library has no model of '{config.model_type}' without a task."
        raise UserError(message, where="config.json", remedy="Use an encoder of text.") from error
    return found[0] if isinstance(found, tuple) else found


def without_pooler(cls: Any) -> dict[str, bool]:
    """The argument that leaves out the pooler, where the class has one."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(cls.__init__).parameters else {}


def new_module(config: Any) -> nn.Module:
    """The network of a library's configuration, with random weights in float32."""
    cls = module_class(config)
    try:
        module: nn.Module = cls(config, **without_pooler(cls)).float()
    except (TypeError, ValueError, AttributeError, RuntimeError, AssertionError, ImportError) as error:
        message = f"the transformers library cannot build this '{config.model_type}' ({error})."
        raise UserError(message, where="config.json", remedy="Use an encoder of text.") from error
    return module


def use_own_products(module: nn.Module) -> None:
    """Let the linear layers of a network multiply by nn.cpu.precision.linear: cached casts, packed weights, int8."""
    for child in module.modules():
        if type(child) is nn.Linear:
            child.__class__ = Linear
