"""The matrix of the contract suite: every encoder and every head, each a line of plain config.

A new family is one line in ENCODERS, a new task one in HEADS (with its targets in `targets`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textgraft.data.batch import IGNORE, Batch
from textgraft.models.model import Model, build, with_dropout
from textgraft.text.character_encoding import encode_word
from textgraft.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a b c d e f g h i j k l m n o p q r s t u v w x"], kind="word", min_frequency=1)
V = TOKENIZER.vocab_size
CLASSES = 4
TOKEN_HEADS = ("language_model", "masked_language_model", "bidirectional_language_model")
POSITION_HEADS = (*TOKEN_HEADS, "replaced_tokens", "span", "tagging")
ENTITY_TAGS = ["O", "B-a", "I-a", "B-b", "I-b"]
LENGTHS = (9, 7, 5, 2)
CHARACTER_IDS = torch.from_numpy(
    np.stack([encode_word(token * (1 + i % 4)) for i, token in enumerate(TOKENIZER.tokens)])
).long()
"""How each id is written, for encoders that read spellings: words of one to sixteen characters."""

AWD_LSTM = {"name": "awd_lstm", "vocab_size": V, "embedding_dim": 6, "hidden_dim": 5, "truncate": 4}
BERT = {
    "name": "bert",
    "vocab_size": V,
    "embedding_dim": 6,
    "num_layers": 2,
    "num_heads": 2,
    "feed_forward_dim": 10,
    "max_length": 16,
    "hidden_dropout": 0.1,  # named here, so that `made` can take it away
    "attention_dropout": 0.1,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm-left-2": {**AWD_LSTM, "cell": "lstm", "direction": "left", "num_layers": 2},
    "lstm-right-3": {**AWD_LSTM, "cell": "lstm", "direction": "right", "num_layers": 3, "input_scale": 2.0},
    "qrnn-left-3": {**AWD_LSTM, "cell": "qrnn", "direction": "left", "num_layers": 3, "input_scale": 2.0},
    "lstm-left-even": {**AWD_LSTM, "cell": "lstm", "direction": "left", "num_layers": 4, "hidden_dim": 6},
    "qrnn-right-2": {**AWD_LSTM, "cell": "qrnn", "direction": "right", "num_layers": 2},
    "bert": {**BERT, "pooler": False},
    "bert-pooler": {**BERT, "pooler": True},
    "distilbert": {**BERT, "pooler": False, "num_segments": 0, "num_layers": 4},
    "roberta": {**BERT, "name": "roberta", "num_layers": 4},
    "mpnet": {**BERT, "name": "mpnet", "num_layers": 4, "num_buckets": 8, "max_distance": 6},
    "mpnet-pooler": {**BERT, "name": "mpnet", "pooler": True, "num_buckets": 8, "max_distance": 6},
    "roberta-pooler": {**BERT, "name": "roberta", "pooler": True},
}
GPT = {"name": "gpt", "vocab_size": V, "embedding_dim": 6, "num_layers": 2, "num_heads": 2, "max_length": 16}
ENCODERS |= {
    "gpt-post": {**GPT, "norm": "post"},
    "gpt-pre": {**GPT, "norm": "pre", "num_layers": 4},
    "gpt-banded": {**GPT, "attention": "banded", "window": 5},
    "gpt-alternating": {**GPT, "attention": "alternating", "window": 3},
    "gpt-local": {**GPT, "attention": "local", "window": 4},
    "gpt-compressed": {**GPT, "attention": "compressed", "norm": "post"},
    "gpt-local-compressed": {**GPT, "attention": "local-compressed", "window": 5, "num_layers": 4},
}
TRANSFORMER_XL = {"name": "transformer_xl", "vocab_size": V, "embedding_dim": 6, "hidden_dim": 10, "num_layers": 2}
TRANSFORMER_XL |= {"num_heads": 2, "memory_length": 12, "attention_dropout": 0.1}
ENCODERS |= {
    "xl-post": {**TRANSFORMER_XL, "norm": "post"},
    "xl-pre": {**TRANSFORMER_XL, "norm": "pre", "shared_biases": False, "head_dim": 2},
    "xl-same-length": {**TRANSFORMER_XL, "same_length": True, "memory_length": 5, "clamp_length": 3},
    "xl-adaptive": {**TRANSFORMER_XL, "cutoffs": [6, 15], "div_value": 2.0, "memory_length": 11},
}
MODERNBERT = {"name": "modernbert", "vocab_size": V, "embedding_dim": 6, "num_layers": 4, "num_heads": 1}
MODERNBERT |= {"feed_forward_dim": 8, "max_length": 16, "global_every": 2, "window": 2}
MODERNBERT |= {"embedding_dropout": 0.1, "hidden_dropout": 0.1, "attention_dropout": 0.1}
ENCODERS |= {
    "modernbert": MODERNBERT,
    "modernbert-pooler": {**MODERNBERT, "pooler": "mean", "transform": True, "global_every": 1, "num_layers": 2},
}
LLAMA = {"name": "llama", "vocab_size": V, "embedding_dim": 6, "num_layers": 2, "num_heads": 3, "head_dim": 2}
LLAMA |= {"num_key_value_heads": 1, "feed_forward_dim": 12, "max_length": 16}
LLAMA |= {"embedding_dropout": 0.1, "hidden_dropout": 0.1, "attention_dropout": 0.1}
LLAMA3 = {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8}
ENCODERS |= {
    "llama": LLAMA,
    "llama-window": {**LLAMA, "window": 3, "window_from": 1, "num_layers": 4, "num_key_value_heads": 3},
    "llama-qwen": {**LLAMA, "attention_bias": "inputs", "query_key_norm": True, "head_dim": 4},
    "llama-stretched": {**LLAMA, "attention_bias": "all", "feed_forward_bias": True, "no_positions": [1]},
}
ENCODERS["llama-stretched"] |= {"rotary_scaling": LLAMA3, "num_key_value_heads": 3}
FLAIR = {"name": "flair", "vocab_size": V, "embedding_dim": 6, "truncate": 4}
ENCODERS |= {
    "flair-left": {**FLAIR, "direction": "left", "hidden_dim": 6, "num_layers": 1},
    "flair-right-projected": {**FLAIR, "direction": "right", "hidden_dim": 5, "num_layers": 2, "projection_dim": 6},
}
ENCODERS |= {
    "elmo": {
        "name": "elmo",
        "character_dim": 4,
        "filters": [[1, 3], [2, 5]],
        "projection_dim": 3,
        "hidden_dim": 7,
        "num_layers": 2,
    },
}
ENCODERS["elmo-without-skips"] = ENCODERS["elmo"] | {"skip_connections": False}
COVE = {"name": "cove", "vocab_size": V, "embedding_dim": 6, "hidden_dim": 4}
ENCODERS |= {
    "cove": {**COVE, "num_layers": 2},
    "cove-one-layer": {**COVE, "num_layers": 1},
}
WORD_LSTM = {"name": "word_lstm", "vectors_dim": 5, "projection_dim": 4, "character_dim": 4, "character_filters": 2}
ENCODERS |= {
    "word-lstm": {**WORD_LSTM, "hidden_dim": 3, "num_layers": 2},
    "word-lstm-given": {**WORD_LSTM, "hidden_dim": 3, "num_layers": 4, "projection_dim": 6, "character_filters": 0},
}
ELECTRA = {"vocab_size": V, "embedding_size": 6, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}
ELECTRA |= {"intermediate_size": 10, "max_position_embeddings": 16}
ENCODERS |= {
    "bridge-electra": {
        "name": "transformers",
        "model_type": "electra",
        "checkpoint": ELECTRA,
        "vocab_size": V,
        "embedding_dim": 6,
        "num_layers": 2,
        "max_length": 16,
        "dropouts": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
        "segments": True,
    },
}
SPELLED = ("elmo", "word_lstm")
VECTORS = torch.randn(V, 5, generator=torch.Generator().manual_seed(0))
"""What another model says of each id, for encoders that read such."""
WIDTH = 6  # of what every encoder shows, but CoVe
MASKED = ("bert", "roberta", "mpnet", "modernbert", "transformers")
"""Families that predict masked tokens."""
SEE_ALL = (*MASKED, "cove", *SPELLED)
STATEFUL = [name for name, config in ENCODERS.items() if config["name"] not in SEE_ALL]
RECURRENT = [name for name, config in ENCODERS.items() if "truncate" in config]
HEADS: dict[str, dict[str, Any]] = {
    f"lm-{layer}-{'tied' if tied else 'untied'}": {"name": "language_model", "output_layer": layer, "tied": tied}
    for layer in ("full", "chunked", "adaptive", "sampled")
    for tied in (True, False)
}
HEADS |= {
    f"both-ways-{layer}": {"name": "bidirectional_language_model", "output_layer": layer}
    for layer in ("full", "chunked", "adaptive", "sampled")
}
HEADS |= {
    "lm-no-bias": {"name": "language_model", "bias": False, "alpha": 0.0, "beta": 0.0},
    "single": {"name": "classification", "outputs": CLASSES, "kind": "single"},
    "multi": {"name": "classification", "outputs": CLASSES, "kind": "multi"},
    "numeric": {"name": "classification", "outputs": 1, "kind": "numeric"},
    "pool-first": {"name": "classification", "outputs": CLASSES, "pooling": "first"},
    "pool-last": {"name": "classification", "outputs": CLASSES, "pooling": "last"},
    "pool-mean": {"name": "classification", "outputs": CLASSES, "pooling": "mean"},
    "pool-max": {"name": "classification", "outputs": CLASSES, "pooling": "max"},
    "pool-mean-sqrt": {"name": "classification", "outputs": CLASSES, "pooling": "mean_sqrt"},
    "pool-weighted-mean": {"name": "classification", "outputs": CLASSES, "pooling": "weighted_mean"},
    "sentence": {
        "name": "classification",
        "outputs": CLASSES,
        "pooling": "max+mean",
        "dense": [{"output_dim": 5, "bias": True, "activation": "tanh"}, {"output_dim": 4, "activation": "silu"}],
        "normalize": True,
        "hidden_dim": 0,
        "batch_norm": False,
        "input_dropout": 0.0,
    },
    "words": {"name": "classification", "outputs": CLASSES, "words_dim": 6},
    "both-orders": {"name": "classification", "outputs": 1, "kind": "numeric", "both_orders": True},
    "both-orders-words": {"name": "classification", "outputs": CLASSES, "both_orders": True, "words_dim": 6},
    "choice": {"name": "choice"},
    "choice-words": {"name": "choice", "words_dim": 6, "batch_norm": False},
}
POOLED = {"name": "classification", "outputs": CLASSES, "pooling": "pooled", "hidden_dim": 0, "batch_norm": False}
HEADS |= {
    "pool-pooled": {**POOLED, "input_dropout": 0.1},
    "choice-pooled": {
        "name": "choice",
        "pooling": "pooled",
        "hidden_dim": 0,
        "batch_norm": False,
        "input_dropout": 0.1,
    },
    "no-batch-norm": {"name": "classification", "outputs": CLASSES, "batch_norm": False},
    "tanh": {"name": "classification", "outputs": CLASSES, "batch_norm": False, "activation": "tanh"},
    "mlm-tied": {"name": "masked_language_model"},
    "mlm-untied": {"name": "masked_language_model", "tied": False},
    "mlm-next-sentence": {"name": "masked_language_model", "next_sentence": True},
    "replaced": {"name": "replaced_tokens"},
    "span": {"name": "span"},
    "tags": {"name": "tagging", "tags": ["x", "y", "z"]},
    "tags-last-piece": {"name": "tagging", "tags": ENTITY_TAGS, "scheme": "IOB2", "subword_pooling": "last"},
    "tags-crf": {"name": "tagging", "tags": ENTITY_TAGS, "scheme": "IOB2", "crf": True},
}
HEADS |= {
    "read-first": {"name": "classification", "outputs": CLASSES, "layer_aggregation": "first"},
    "read-second-to-last": {"name": "tagging", "tags": ["x", "y", "z"], "layer_aggregation": "second-to-last"},
    "read-sum": {"name": "span", "layer_aggregation": "sum"},
    "read-sum-last-4": {"name": "choice", "words_dim": 6, "batch_norm": False, "layer_aggregation": "sum-last-4"},
    "read-concat-last-4": {
        "name": "tagging",
        "tags": ENTITY_TAGS,
        "scheme": "IOB2",
        "layer_aggregation": "concat-last-4",
    },
    "read-mix": {"name": "tagging", "tags": ENTITY_TAGS, "scheme": "IOB2", "crf": True, "layer_aggregation": "mix"},
    "read-mix-pool-mean": {"name": "classification", "outputs": CLASSES, "pooling": "mean", "layer_aggregation": "mix"},
    "read-mix-span": {"name": "span", "layer_aggregation": "mix"},
    "read-elmo-mix": {"name": "tagging", "tags": ["x", "y", "z"], "layer_aggregation": "elmo-mix"},
}
TRANSLATION = {"name": "translation", "embedding_dim": 5, "hidden_dim": 7, "window": 2}
TRANSLATION |= {"input_dropout": 0.1, "hidden_dropout": 0.1}
HEADS |= {
    "translate": {**TRANSLATION, "num_layers": 2, "score": "general"},
    "translate-additive-near": {**TRANSLATION, "num_layers": 1, "score": "additive", "reach": "local-p"},
    "translate-location-near": {**TRANSLATION, "num_layers": 1, "score": "location", "reach": "local-m"},
    "translate-hard": {**TRANSLATION, "num_layers": 1, "score": "general", "reach": "hard"},
    "translate-content": {**TRANSLATION, "num_layers": 1, "score": "content", "hidden_dim": 8, "words_dim": 6},
    "translate-dot": {**TRANSLATION, "num_layers": 1, "score": "dot", "hidden_dim": 8, "words_dim": 6},
    "translate-scaled-dot": {**TRANSLATION, "num_layers": 1, "score": "scaled_dot", "hidden_dim": 8, "words_dim": 6},
}


def direction(encoder: str) -> str:
    """What a position may look at; the recurrent families say so in their config."""
    below = ENCODERS[encoder]
    return below.get("direction", "both" if below["name"] in SEE_ALL else "left")


def reached(encoder: str, position: int, others: Tensor) -> Tensor:
    """Which of `others` can depend on a position, in the direction of the encoder."""
    below = ENCODERS[encoder]
    match below.get("attention"):
        case "local":  # no layer sees across the border of a block
            return others // below["window"] == position // below["window"]
        case "compressed":  # a position is seen with its group of three, when that is complete
            return (others == position) | (others >= position // 3 * 3 + 2)
        case _:
            return torch.ones_like(others, dtype=torch.bool)


def fits(encoder: str, head: str) -> bool:
    """Whether the head can be on the encoder: who has seen the next token does not predict it.

    A pooler goes with heads that read it and only with them, since every parameter is to learn something. An adaptive
    embedding can only be tied to an adaptive output layer. A layer aggregation needs its layers, and most that they be
    of one width.
    """
    below, above = ENCODERS[encoder], HEADS[head]
    one_width = below.get("hidden_dim", 6) == 6 or below["name"] not in ("awd_lstm", "flair", "cove")
    match above.get("layer_aggregation", "last"):
        case "sum-last-4" | "concat-last-4":
            if below["num_layers"] < 4:
                return False
        case "second-to-last":
            if below["num_layers"] < 2:
                return False
        case "sum" | "mix" | "elmo-mix":
            if not one_width:
                return False
    reads_pooled = above.get("pooling") == "pooled" or above.get("next_sentence", False)
    sees_all = direction(encoder) == "both"
    if above.get("pooling") == "first" and direction(encoder) == "left":
        return False  # which has read one token there
    if above.get("pooling") in ("first", "last") and below["name"] in ("cove", "word_lstm"):
        return False  # of which one side has read one token there
    if above.get("tied", True) and above["name"] in TOKEN_HEADS and below["name"] == "cove":
        return False  # what it shows is wider than its table
    match above["name"]:
        case "translation":
            return not below.get("pooler", False) and ("words_dim" not in above or below["name"] == "cove")
        case "language_model":
            several_tables, is_tied = "cutoffs" in below, above.get("tied", True)
            return not sees_all and (above.get("output_layer") == "adaptive" or not (several_tables and is_tied))
        case "bidirectional_language_model":
            return below["name"] == "elmo"
        case "masked_language_model" | "replaced_tokens":
            return below["name"] in MASKED and reads_pooled == bool(below.get("pooler", False))
        case _:
            return reads_pooled == bool(below.get("pooler", False))


def read_dim(encoder: str, head: str) -> int:
    """The width of the vectors that the head reads."""
    below = ENCODERS[encoder]
    match HEADS[head].get("layer_aggregation", "last"):
        case "concat-last-4":
            return 4 * WIDTH
        case "second-to-last" if below["name"] == "cove":
            return 2 * int(below["hidden_dim"])
        case "last" if below["name"] == "cove":
            return int(below["embedding_dim"] + 2 * below["hidden_dim"])
        case "second-to-last" if below["name"] in ("awd_lstm", "flair"):
            return int(below["hidden_dim"])
        case _:
            return WIDTH


def tied_head(encoder: str) -> str:
    """A language-model head that shares the encoder's tables, if it has any."""
    if ENCODERS[encoder]["name"] in SPELLED:
        return "both-ways-full"
    if ENCODERS[encoder]["name"] == "cove":
        return "lm-full-untied"
    return "lm-adaptive-tied" if "cutoffs" in ENCODERS[encoder] else "lm-full-tied"


CASES = [(encoder, head) for encoder in ENCODERS for head in HEADS if fits(encoder, head)]


def quick_cells() -> set[tuple[str, str]]:
    """Every third encoder of those that fit under a head, from another one on for each head."""
    found = set()
    for number, head in enumerate(HEADS):
        fitting = [encoder for encoder, other in CASES if other == head]
        found |= {(encoder, head) for encoder in fitting[min(number % 3, len(fitting) - 1) :: 3]}
    return found


QUICK = quick_cells()
"""A third of the cells, in which every encoder and every head has its share; the others are slow tests, as in CI."""


@cache
def _complete(encoder: str, head: str) -> dict[str, Any]:
    """What describes the model of one cell; every dropout has its default there, to be multiplied."""
    below = ENCODERS[encoder]
    above = {**HEADS[head], "input_dim": read_dim(encoder, head)}
    has_table = above["name"] in (*TOKEN_HEADS, "translation")
    if above["name"] not in ("tagging", "replaced_tokens"):
        above |= {"vocab_size": V} if has_table else {"direction": direction(encoder)}
    return build({"encoder": below, "head": above}).describe()


def made(encoder: str, head: str, *, dropout: float = 0.0, seed: int = 0) -> Model:
    """The model of one cell of the matrix, fresh, in eval mode; `dropout` multiplies all its dropouts."""
    description = with_dropout(_complete(encoder, head), dropout)  # which may draw when it is first asked
    torch.manual_seed(seed)
    model = build(description)
    if HEADS[head]["name"] in ("classification", "choice"):  # running statistics as after some training, not 0 and 1
        for module in model.head.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    if ENCODERS[encoder]["name"] == "flair":
        with torch.no_grad():  # characters start so alike that options differ by what bfloat16 rounds away
            model.encoder.embedding.weight.mul_(10)
    return model.eval()


def drawn_batch(model: Model, lengths: tuple[int, ...] = LENGTHS, *, extra: int = 0, seed: int = 1) -> Batch:
    """Random texts of these lengths with targets for the model's head, which may want two rows for each of them.

    Padding, `extra` columns more than need be, holds arbitrary tokens: only the mask may tell it apart.
    """
    generator = np.random.default_rng(seed)
    each = rows_of_each(model)
    lengths = tuple(max(1, length - number) for length in lengths for number in range(each))
    rows = [torch.from_numpy(generator.integers(V, size=length)) for length in lengths]
    next_tokens = [torch.from_numpy(generator.integers(V, size=length)) for length in lengths]
    width = max(lengths) + extra
    ids = torch.from_numpy(np.random.default_rng([seed, extra]).integers(V, size=(len(lengths), width)))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    shifted = torch.full_like(ids, IGNORE)
    for row, (tokens, following) in enumerate(zip(rows, next_tokens, strict=True)):
        ids[row, : len(tokens)] = tokens
        shifted[row, : len(tokens)] = following
    masked = torch.from_numpy(generator.random(len(lengths) * max(lengths)) < 0.5).view(len(lengths), -1)
    masked[:, 0] = True
    shifted[:, : max(lengths)][~masked & (model.describe()["head"]["name"] == "masked_language_model")] = IGNORE
    second = torch.arange(width) >= torch.tensor(lengths)[:, None] // 2
    return Batch(
        ids=ids,
        mask=mask,
        targets=targets(model, shifted[::each], generator),
        groups=None if each == 1 else torch.arange(len(lengths)) // each,
        segments=second.long(),
        pair_targets=torch.from_numpy(generator.integers(2, size=len(lengths))),
        answerable=_answerable(lengths, width),
        words=words(lengths),
        character_ids=CHARACTER_IDS if model.describe()["encoder"]["name"] in SPELLED else None,
        vectors=VECTORS[ids] if model.describe()["encoder"]["name"] == "word_lstm" else None,
    )


def _answerable(lengths: tuple[int, ...], width: int) -> Tensor:
    """All but the first and the last position of a text, and arbitrary ones in the padding."""
    positions, last = torch.arange(width), torch.tensor(lengths)[:, None] - 1
    return ((positions > 0) & (positions < last)) | ((positions > last) & (positions % 2 == 0))


def words(lengths: tuple[int, ...]) -> Tensor:
    """(B, W) every other position from the last on backwards: a word of one or two pieces each."""
    rows = [list(range(length - 1, -1, -2))[::-1] for length in lengths]
    width = max(map(len, rows))
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows])


def targets(model: Model, next_tokens: Tensor, generator: np.random.Generator) -> Tensor:
    """What the model's head wants for B texts."""
    if model.describe()["head"]["name"] == "bidirectional_language_model":
        previous = torch.where(next_tokens == IGNORE, IGNORE, (next_tokens + 1) % V)
        previous[:, 0] = IGNORE
        return torch.stack([next_tokens, previous], dim=2)
    if model.describe()["head"]["name"] == "replaced_tokens":
        return torch.where(next_tokens == IGNORE, IGNORE, next_tokens % 2)
    if is_of_tokens(model):
        return next_tokens
    rows = len(next_tokens)
    if model.describe()["head"]["name"] == "span":  # of texts of nine, seven, five and two, or of twelve, tokens
        return torch.tensor([[2, 4], [5, 5], [-1, -1], [-1, -1]])[:rows]
    if model.describe()["head"]["name"] == "tagging":  # legal ones: what may not be has no gradient
        drawn = (
            torch.tensor([0, 1, 2, 2, 0, 1]) if len(model.head.config.tags) > 3 else torch.tensor([1, 0, 2, 2, 1, 0])
        )
        places = words(tuple((next_tokens != IGNORE).sum(dim=1).tolist()))
        return torch.where(places >= 0, drawn[: places.shape[1]], IGNORE)
    match getattr(model.head.config, "kind", "single" if hasattr(model.head.config, "outputs") else "choice"):
        case "choice":
            return torch.from_numpy(generator.integers(2, size=rows))
        case "single":
            return torch.from_numpy(generator.integers(CLASSES, size=rows))
        case "multi":
            return torch.from_numpy(generator.integers(2, size=(rows, CLASSES))).float()
        case _:
            return torch.from_numpy(generator.normal(size=rows)).float()


def rows_of_each(model: Model) -> int:
    """How many rows one example has: a pair's two orders, or here two options."""
    head = model.describe()["head"]
    return 2 if head["name"] == "choice" or head.get("both_orders") else 1


def is_of_tokens(model: Model) -> bool:
    """Whether the head has a target for every position, or as many as if it had, not for the text."""
    return model.describe()["head"]["name"] in (*TOKEN_HEADS, "replaced_tokens", "translation")


def counts_targets(model: Model) -> bool:
    """Whether a loss is over targets, of which a text has several, not over texts."""
    return is_of_tokens(model) or model.describe()["head"]["name"] == "tagging"


def shows_positions(model: Model) -> bool:
    """Whether the head's scores are of positions."""
    return model.describe()["head"]["name"] in POSITION_HEADS


def embedded(model: Model, batch: Batch) -> Tensor:
    """(B, T, D) what the family's bottom layer should show of right-padded texts, in eval mode."""
    encoder: Any = model.encoder
    match model.describe()["encoder"]["name"]:
        case "awd_lstm":
            return encoder.embedding(batch.ids) * encoder.config.input_scale
        case "flair" | "cove":
            return encoder.embedding(batch.ids)
        case "llama":
            return encoder.embedding(batch.ids)
        case "modernbert":
            return encoder.embedding_norm(encoder.embedding(batch.ids))
        case "gpt":
            return encoder.embedding(batch.ids) + encoder.positions.weight[: batch.ids.shape[1]]
        case "bert" | "roberta" | "mpnet":
            known = encoder.embedding(batch.ids) + encoder.positions.weight[: batch.ids.shape[1]]
            assert batch.segments is not None
            return encoder.embedding_norm(
                known
                if encoder.segments is None
                else known + encoder.segments(batch.segments.clamp(max=encoder.config.num_segments - 1))
            )
        case "transformers":
            return encoder.module.embeddings(input_ids=batch.ids, token_type_ids=batch.segments)
        case "elmo":
            assert batch.character_ids is not None
            return torch.cat([encoder.characters(batch.character_ids)] * 2, dim=1)[batch.ids]
        case "word_lstm":
            given = [] if not encoder.config.vectors_dim else [batch.vectors]
            parts = [v if encoder.projection is None else encoder.projection(v) for v in given]
            if encoder.characters is not None:
                parts.append(encoder.characters(batch.character_ids)[batch.ids])
            return torch.cat(parts, dim=2)
        case "transformer_xl":
            return encoder.embedding(batch.ids) * encoder.config.embedding_dim**0.5
        case name:
            raise NotImplementedError(name)


def without_truncation(model: Model) -> Model:
    """The same model; gradients flow through time without end, where its family can stop them."""
    if hasattr(model.encoder.config, "truncate"):
        model.encoder.config = replace(model.encoder.config, truncate=0)
    return model


def some_rows(batch: Batch, rows: slice) -> Batch:
    """The examples of a batch that are numbered so, no wider than their longest text."""
    wanted = batch.targets
    assert wanted is not None
    asked, each = wanted[rows], len(batch.ids) // len(wanted)
    rows = slice(rows.start * each, rows.stop * each)
    width = int(batch.mask[rows].sum(dim=1).max())
    part = asked[:, :width] if wanted.dtype == torch.int64 and wanted.ndim > 1 else asked
    assert batch.segments is not None
    assert batch.pair_targets is not None
    assert batch.answerable is not None
    assert batch.words is not None
    return Batch(
        ids=batch.ids[rows, :width],
        mask=batch.mask[rows, :width],
        targets=part,
        segments=batch.segments[rows, :width],
        groups=None if batch.groups is None else batch.groups[rows] - batch.groups[rows][0],
        pair_targets=batch.pair_targets[rows],
        answerable=batch.answerable[rows, :width],
        words=batch.words[rows, :width],
        character_ids=batch.character_ids,
        vectors=None if batch.vectors is None else batch.vectors[rows, :width],
    )


def gradients(model: Model, *batches: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
    """The summed losses of the batches, the count, and the gradient of every parameter."""
    model.zero_grad()
    losses = [model.loss(batch) for batch in batches]
    for loss in losses:  # one by one, as a step of several parts has it
        loss.total.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    total = torch.stack([loss.total.detach() for loss in losses]).sum()
    return total, sum(loss.count for loss in losses), found
