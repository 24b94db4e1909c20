"""Tiny random checkpoints of many architectures, as folders of the transformers library with a tokenizer each."""

from __future__ import annotations

import string
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from made_up_reviews import reviews
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

from textgraft.models import loading

VOCABULARY, WIDTH, POSITIONS = 200, 16, 64
USUAL: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": POSITIONS,
}
XLM = {"emb_dim": WIDTH, "n_layers": 2, "n_heads": 2, "max_position_embeddings": POSITIONS}
T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
DISENTANGLED = {**USUAL, "relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
BRIDGED: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("albert", {**USUAL, "embedding_size": 8}),
    "big_bird": ("bert", USUAL),
    "convbert": ("bert", {**USUAL, "embedding_size": 8}),
    "deberta": ("bert", DISENTANGLED),
    "deberta-v2": ("albert", {**DISENTANGLED, "position_buckets": 16, "norm_rel_ebd": "layer_norm"}),
    "electra": ("bert", {**USUAL, "embedding_size": 8}),
    "ernie": ("bert", USUAL),
    "funnel": (
        "funnel",
        {"d_model": WIDTH, "n_head": 2, "d_head": 8, "d_inner": 32, "block_sizes": [1, 1], "num_decoder_layers": 1},
    ),
    "gte": ("bert", USUAL),
    "longformer": ("roberta", {**USUAL, "attention_window": [4, 4], "type_vocab_size": 1}),
    "megatron-bert": ("bert", USUAL),
    "mobilebert": ("bert", {**USUAL, "embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8}),
    "nomic_bert": ("bert", USUAL),
    "rembert": ("albert", {**USUAL, "input_embedding_size": 8, "output_embedding_size": 8}),
    "roberta-prelayernorm": ("roberta", USUAL),
    "roformer": ("bert", {**USUAL, "embedding_size": WIDTH}),
    "squeezebert": ("bert", {**USUAL, "embedding_size": WIDTH}),
    "t5": ("t5", T5),
    "xlm": ("xlm", XLM),
    "xlnet": ("xlnet", {"d_model": WIDTH, "n_layer": 2, "n_head": 2, "d_inner": 32}),
}
"""For each model_type a kind of tokenizer, and settings of its config.json."""
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", USUAL),
    "distilbert": (
        "bert",
        {"dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": POSITIONS},
    ),
    "gpt2": ("gpt2", {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS}),
    "llama": ("gpt2", {**USUAL, "num_key_value_heads": 1}),
    "modernbert": ("roberta", USUAL),
    "mpnet": ("roberta", USUAL),
    "roberta": ("roberta", {**USUAL, "type_vocab_size": 1}),
}
"""The same of architectures that textgraft has itself."""
BERTS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTAS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KINDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "bert": (BERTS, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "albert": (BERTS, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "funnel": (BERTS, "[CLS]:2 $A [SEP]", "[CLS]:2 $A [SEP] $B:1 [SEP]:1"),
    "gpt2": (("<|endoftext|>",), "$A", "$A $B"),
    "roberta": (ROBERTAS, "<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "xlm": (ROBERTAS, "<s> $A </s>", "<s> $A </s> $B </s>"),
    "t5": (("<pad>", "</s>", "<unk>"), "$A </s>", "$A </s> $B </s>"),
    "xlnet": (
        ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"),
        "$A <sep> <cls>:2",
        "$A <sep> $B:1 <sep>:1 <cls>:2",
    ),
}
"""Special tokens in the order of their ids, and templates of a text and of a pair."""
ROLE_OF = {
    "[PAD]": "pad",
    "[UNK]": "unk",
    "[CLS]": "cls",
    "[SEP]": "sep",
    "[MASK]": "mask",
    "<pad>": "pad",
    "<unk>": "unk",
    "<mask>": "mask",
    "<s>": "bos",
    "</s>": "eos",
    "<cls>": "cls",
    "<sep>": "sep",
    "<|endoftext|>": "eos",
}


def pipeline_of(kind: str, texts: Sequence[str] | None = None, tokens: int = VOCABULARY) -> Pipeline:
    """A tokenizer of `tokens` tokens or fewer, trained on texts; by default on made-up reviews."""
    special, single, pair = KINDS[kind]
    unknown = "[UNK]" if "[UNK]" in special else "<unk>"
    options: dict[str, Any] = {"vocab_size": tokens, "special_tokens": list(special), "show_progress": False}
    trainer: Any
    if kind in ("bert", "funnel"):
        pipeline = Pipeline(models.WordPiece(unk_token=unknown))
        pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
        pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        pipeline.decoder = decoders.WordPiece()
        # Characters inside words are numbered in hash order, which decides ties, if they are not named first.
        inside = [f"##{character}" for character in string.ascii_lowercase]
        trainer = trainers.WordPieceTrainer(**options | {"special_tokens": [*special, *inside]})
    elif kind in ("roberta", "gpt2"):
        pipeline = Pipeline(models.BPE())
        pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        pipeline.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            **options | {"vocab_size": 330}, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    else:
        pipeline = Pipeline(models.Unigram())
        pipeline.normalizer = normalizers.NFKC()
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
        pipeline.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(**options, unk_token=unknown)
    learner = Pipeline.from_str(pipeline.to_str())  # what a trainer takes for special stays so in its pipeline
    learner.train_from_iterator(reviews(200, 7)[0] if texts is None else texts, trainer)
    pipeline.model = learner.model
    pipeline.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    ids = [(token, pipeline.token_to_id(token)) for token in special]
    pipeline.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return pipeline


def save_tokenizer(kind: str, folder: Path, pipeline: Pipeline | None = None) -> int:
    """Write the files of a tokenizer as the library does; return its number of tokens."""
    import transformers

    pipeline = pipeline or pipeline_of(kind)
    special = {f"{ROLE_OF[token]}_token": token for token in KINDS[kind][0]}
    if kind in ("roberta", "xlm"):
        special |= {"cls_token": "<s>", "sep_token": "</s>"}
    inputs = ["input_ids", "attention_mask"]
    inputs += [] if kind in ("roberta", "xlm", "t5", "gpt2") else ["token_type_ids"]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pipeline, model_input_names=inputs, **special)
    tokenizer.save_pretrained(folder)
    return pipeline.get_vocab_size()


def save_checkpoint(
    model_type: str,
    folder: Path,
    *,
    auto: str = "AutoModel",
    seed: int = 0,
    pipeline: Pipeline | None = None,
    **more: Any,
) -> Path:
    """Write a random checkpoint of an architecture in OWN or BRIDGED with its tokenizer.

    Args:
        model_type: The architecture.
        folder: The new folder.
        auto: The library's class that makes it.
        seed: Of the weights.
        pipeline: The tokenizer, of the architecture's kind.
        more: Further entries of its config.json.
    """
    import transformers

    kind, settings = (OWN | BRIDGED)[model_type]
    tokens = save_tokenizer(kind, folder, pipeline)
    special = {role: KINDS[kind][0].index(token) for token, role in ROLE_OF.items() if token in KINDS[kind][0]}
    ids = {f"{role}_token_id": i for role, i in special.items() if role in ("pad", "bos", "eos")}
    if model_type == "xlm":
        ids |= {"pad_index": special["pad"], "unk_index": special["unk"], "bos_index": 0, "eos_index": 2}
    if model_type == "funnel":
        more = {"architectures": ["FunnelModel"], **more}
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **{"vocab_size": tokens, **settings, **ids, **more})
    if model_type == "t5" and auto == "AutoModel":
        model = transformers.T5ForConditionalGeneration(config)
    elif model_type == "llama" and auto == "AutoModel":
        model = transformers.LlamaForCausalLM(config)  # as published
    else:
        model = getattr(transformers, auto).from_config(config)
    for parameter in model.parameters():  # wider than published starts, so that mistakes show
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def opened_whole(folder: Path) -> Any:
    """The checkpoint as textgraft opens it, without a warning that something was left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return loading.load_network(f"hf:{folder}")
