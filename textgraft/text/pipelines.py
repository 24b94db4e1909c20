"""Pipelines of the `tokenizers` library for subword and word level, before and after training."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from textgraft.text.normalize import CONTROL, Kind

_ANY_CONTROL = Regex(rf" ?(?:{'|'.join(CONTROL)})(?= |$)")
_DIGIT = Regex(r"\p{N}")
# Clitics as spaCy splits them (do|n't, it|'s), then words, numbers with their points, and any other cluster.
_WORD = Regex(
    r"\p{L}[\p{L}\p{M}]*?(?=n['’]t(?![\p{L}\p{M}]))|n['’]t(?![\p{L}\p{M}])|['’](?:s|m|d|re|ve|ll)(?![\p{L}\p{M}])"
    r"|\p{N}+(?:[.,]\p{N}+)*|[\p{L}\p{M}][\p{L}\p{M}\p{N}]*|(?!\s)\X"
)


def new_pipeline(kind: Kind, model: str, vocab_size: int, min_frequency: int) -> tuple[Pipeline, Any]:
    """An untrained pipeline and its trainer.

    Args:
        kind: "subword" or "word".
        model: "unigram" or "bpe", for subwords.
        vocab_size: Most tokens, control words included.
        min_frequency: Occurrences of a word, or of a pair to be merged.
    """
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": list(CONTROL),
        "show_progress": False,
    }
    if kind == "word":
        pipeline = Pipeline(models.WordLevel(unk_token="xxunk"))
        trainer: Any = trainers.WordLevelTrainer(min_frequency=min_frequency, **common)
    elif model == "unigram":
        pipeline = Pipeline(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token="xxunk", max_piece_length=16, **common)
    else:
        pipeline = Pipeline(models.BPE(unk_token="xxunk", fuse_unk=True))
        trainer = trainers.BpeTrainer(min_frequency=min_frequency, max_token_length=16, **common)
    # Control words are not training text; in encoding they are added tokens and never reach this step.
    cuts = pre_tokenizers.Split(_ANY_CONTROL, "removed")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([cuts, *_pre_tokenizers(kind)])
    return pipeline, trainer


def _pre_tokenizers(kind: Kind) -> list[Any]:
    if kind == "word":
        return [pre_tokenizers.Split(_WORD, "removed", invert=True)]
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    return [metaspace, pre_tokenizers.Split(_DIGIT, "isolated")]


def finalized(pipeline: Pipeline, kind: Kind) -> Pipeline:
    """The trained pipeline with control words and decoder."""
    if isinstance(pipeline.model, models.Unigram):
        pipeline.model = _deterministic(pipeline)
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(_pre_tokenizers(kind))
    controls = [AddedToken(word, normalized=False, special=True, lstrip=True) for word in CONTROL]
    pipeline.add_special_tokens(controls)
    if kind == "subword":
        pipeline.decoder = decoders.Metaspace()
    return pipeline


def _deterministic(pipeline: Pipeline) -> models.Unigram:
    """The trained unigram model without the trainer's nondeterminism.

    The trainer iterates over hash maps whose order changes from run to run: sums differ in their last bits, and single
    characters without a score of their own get the lowest score plus 0.0001 for each one before them, in any order.
    """
    vocabulary = [(str(piece), float(score)) for piece, score in json.loads(pipeline.to_str())["model"]["vocab"]]
    pieces = vocabulary[len(CONTROL) :]
    lowest = min((score for _, score in pieces), default=0.0)
    singles = [piece for piece, _ in pieces if len(piece) == 1]
    late = {piece for piece, score in pieces if len(piece) == 1 and score < lowest + 0.0001 * (len(singles) + 1)}
    scores = {piece: round(lowest, 6) + 0.0001 * rank for rank, piece in enumerate(sorted(late))}
    settled = [(piece, round(scores.get(piece, score), 6)) for piece, score in pieces]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*vocabulary[: len(CONTROL)], *settled], unk_id=0, byte_fallback=False)
