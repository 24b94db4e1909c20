"""Small tokenizers as published models have them, trained on made-up reviews."""

from __future__ import annotations

import json
from typing import Any

from made_up_reviews import reviews
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def sentencepiece() -> Pipeline:
    """A byte pair encoding as Llama's tokenizer.json has it: spaces as marks, unknown characters as bytes."""
    pieces = Pipeline(models.BPE(unk_token="<unk>"))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # no merges over the ends of words
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer: Any = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    pieces.train_from_iterator(reviews(200, 7)[0], trainer)
    model = json.loads(pieces.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    pipeline = Pipeline(models.BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    pipeline.normalizer = pieces.normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    pipeline.decoder = decoders.Sequence(steps)
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special[:3]])
    begin: Any = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", pipeline.token_to_id("<s>"))])
    pipeline.post_processor = begin
    return pipeline


def bytes_of(special: list[str]) -> Pipeline:
    """A byte-level byte pair encoding with these special tokens, which come last as in Qwen's and ModernBERT's."""
    pipeline = Pipeline(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    pipeline.train_from_iterator(reviews(200, 7)[0], trainer)
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return pipeline


def modernbert() -> Pipeline:
    pipeline = bytes_of([*MARKS, "<|padding|>"])
    pipeline.normalizer = normalizers.NFC()
    ends = [(name, pipeline.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    template: Any = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    pipeline.post_processor = template
    return pipeline


PIPELINES = {"llama": sentencepiece, "qwen": lambda: bytes_of(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])}
PIPELINES["modernbert"] = modernbert
