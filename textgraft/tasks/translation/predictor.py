"""Translation with a trained model: greedy or beam search, alignments, evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.precision import validate_precision
from textgraft.data.batch import IGNORE, pad
from textgraft.data.examples import each_text, validate_types
from textgraft.data.parallel import Parallel
from textgraft.data.sequences import budget_batches
from textgraft.data.text_forms import in_form
from textgraft.generation.decoding import GenerateOptions, Tokens, continue_from, search
from textgraft.heads.translation import BEGIN, END, Decoding, TranslationHead
from textgraft.metrics.bleu import corpus_bleu, sacrebleu
from textgraft.models import artifact, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.loading import OpenedModels
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import Casts, computing_in
from textgraft.tasks.registry import open_model_of, validate_task
from textgraft.tasks.translation.spec import TRANSLATION
from textgraft.text.normalize import CONTROL
from textgraft.text.tokenizer import Tokenizer

MAX_TOKENS = 100
STREAM_TEXTS, ROWS, TOKENS_PER_BATCH = 1024, 64, 4096
NEVER = tuple(CONTROL.index(word) for word in ("xxunk", "xxpad", "xxbos", "xxfld"))
"""Tokens that a translation must not contain."""


def translation_targets(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> list[np.ndarray]:
    """Targets of a decoder: each text's ids and END, `max_tokens` at most."""
    return [np.append(ids[: max_tokens - 1], END).astype(np.int64) for ids in tokenizer.bodies(texts)]


def padded_targets(targets: Sequence[np.ndarray]) -> Tensor:
    """Targets as one int64 tensor (N, T'), padded with IGNORE."""
    padded = torch.full((len(targets), max(map(len, targets))), IGNORE, dtype=torch.int64)
    for row, ids in enumerate(targets):
        padded[row, : len(ids)] = torch.from_numpy(ids)
    return padded


@dataclass(frozen=True, repr=False)
class Alignment(Brief):
    """A sentence, its translation, and the decoder's attention weights.

    Attributes:
        source: S tokens, the special token at the beginning included.
        target: T' tokens, END included.
        weights: (T', S).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """The alignment as JSON values."""
        rounded = [[round(float(weight), 6) for weight in row] for row in self.weights]
        return {"source": list(self.source), "target": list(self.target), "weights": rounded}


class _Decoder:
    """Decoder of the translations of B texts (decoding.NextTokenModel)."""

    def __init__(self, model: Model, ids: Sequence[np.ndarray], pad_id: int, precision: str) -> None:
        assert isinstance(model.head, TranslationHead)
        self.model, self.head, self.precision, self.casts = model, model.head, precision, Casts()
        with computing_in(precision, model.device, casts=self.casts):
            encoded = model.encoder(pad(list(ids), pad_id).to(model.device), keep="top")
            self.decoding: Decoding = self.head.begin(encoded)
        self.add([BEGIN] * len(ids), range(len(ids)))

    def next_logits(self) -> Tensor:
        with computing_in(self.precision, self.model.device, casts=self.casts):
            return self.head.output.logits(self.decoding.hidden).float()

    def add(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        device = self.model.device
        with computing_in(self.precision, device, casts=self.casts):
            selected = self.decoding.rows(torch.tensor(list(rows), device=device))
            self.decoding, _ = self.head.step(torch.tensor(list(tokens), device=device), selected)


class Translator:
    """Predictor of a translation model.

    Args:
        model: A folder of `cove_train`, or the opened model.
        precision: A name of nn.cpu.precision.

    Raises:
        UserError: The model is of another task, or the precision is unknown.
    """

    def __init__(self, model: str | Path | Artifact, *, precision: str = "auto") -> None:
        validate_precision(precision)
        self.artifact = model if isinstance(model, Artifact) else cast(Artifact, open_model_of(TRANSLATION, model))
        self.model, self.tokenizer = self.artifact.model, self.artifact.tokenizer
        where = "" if isinstance(model, Artifact) else str(model)
        validate_task(TRANSLATION, self.artifact.head_name)
        assert isinstance(self.model.head, TranslationHead)
        if self.artifact.target is None or self.artifact.target.vocab_size != self.model.head.config.vocab_size:
            message = f"{artifact.TARGET} is missing, or another model's."
            raise UserError(message, where=where, remedy=model_folder.RESTORE)
        self.head, self.target = self.model.head, self.artifact.target
        self.max_tokens, self.precision = int(self.artifact.run.get("max_tokens", MAX_TOKENS)), precision

    @classmethod
    def of(cls, models: OpenedModels, *, precision: str = "auto") -> Translator:
        """The translator of opened models."""
        return cls(cast(Artifact, models.members[0]), precision=precision)

    def stream(self, texts: Iterable[str], *, beams: int = 1) -> Iterator[str]:
        """Translate texts from a stream of any length, in order.

        A translation has at most twice as many tokens as its text, plus ten. That of a blank text is blank.

        Args:
            texts: The texts.
            beams: 1: greedy search. More: beam search for the highest mean log probability per token.

        Raises:
            UserError: `beams` is out of range, or `texts` is a single text or has other values than texts.
        """
        return self._stream(each_text(texts), GenerateOptions(max_tokens=self.max_tokens, beams=beams))

    def _stream(self, rest: Iterator[str], options: GenerateOptions) -> Iterator[str]:
        while part := list(islice(rest, STREAM_TEXTS)):
            translations = [""] * len(part)
            filled = [i for i, text in enumerate(part) if text.strip()]
            ids = self._ids([part[i] for i in filled])
            rows = max(1, ROWS // options.beams)
            for batch in budget_batches([len(row) for row in ids], tokens=TOKENS_PER_BATCH, rows=rows):
                for index, output in zip(batch, self._decode([ids[i] for i in batch], options), strict=True):
                    translations[filled[index]] = self.target.decode(output)
            yield from translations

    def translate(self, texts: Sequence[str], *, beams: int = 1) -> list[str]:
        """Translate a list of texts (see `stream`)."""
        return list(self.stream(texts, beams=beams))

    @torch.no_grad()
    def _decode(self, ids: Sequence[np.ndarray], options: GenerateOptions) -> list[list[int]]:
        """Token ids of the translations of texts given as token ids, without END."""
        was_training = self.model.training
        self.model.eval()
        decoder = _Decoder(self.model, ids, self.tokenizer.pad_id, self.precision)
        prompts, limits = [[BEGIN]] * len(ids), [min(options.max_tokens, 2 * len(row) + 10) for row in ids]
        tokens = Tokens(ends=frozenset([END]), never=NEVER)
        if options.beams > 1:
            outputs = [result.ids for result in search(decoder, prompts, limits, options, tokens)]
        else:
            outputs = [[] for _ in ids]
            for step in continue_from(decoder, prompts, limits, options, tokens):
                outputs[step.row].append(step.token)
        self.model.train(was_training)
        return [[token for token in output if token != END] for output in outputs]

    @torch.no_grad()
    def align(self, source: str, target: str | None = None) -> Alignment:
        """Attention weights of the decoder over `source`.

        Args:
            source: A sentence.
            target: Its translation; None: that of the model.

        Raises:
            UserError: A text is blank.
        """
        if not source.strip() or (target is not None and not target.strip()):
            raise UserError("a blank text has no words to align.", remedy="Give a sentence.")
        (ids,) = self._ids([source])
        options = GenerateOptions(max_tokens=self.max_tokens)
        if target is None:
            targets = np.append(np.array(self._decode([ids], options)[0], dtype=np.int64), END)
        else:
            targets = translation_targets(self.target, [target], self.max_tokens)[0]
        was_training = self.model.training
        self.model.eval()
        with computing_in(self.precision, self.model.device, casts=Casts()):
            encoded = self.model.encoder(pad([ids], self.tokenizer.pad_id).to(self.model.device), keep="top")
            weights = self.head.alignment(encoded, torch.from_numpy(targets)[None].to(self.model.device))
        self.model.train(was_training)
        words = tuple(self.tokenizer.tokens[i] for i in ids), tuple(self.target.tokens[i] for i in targets)
        return Alignment(*words, weights[0].float().cpu().numpy())

    def _ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self.tokenizer.encode_batch(in_form(texts, self.artifact.text_form))
        return [ids[: self.max_tokens] for ids in encoded]

    @torch.no_grad()
    def loss(self, data: Parallel) -> dict[str, float]:
        """`loss` in nats per target token, END included, and `perplexity`, over all of `data`."""
        ids = self._ids(data.source)
        targets = translation_targets(self.target, data.target, self.max_tokens)
        return held_out_loss(self.model, ids, targets, self.tokenizer.pad_id, self.precision)

    def evaluate(self, data: Parallel, *, beams: int = 1) -> dict[str, Any]:
        """Loss, perplexity and BLEU (metrics.bleu) on pairs. Raises UserError if sacrebleu is not installed."""
        validate_types(data=data, wanted=Parallel, reader="textgraft.read_parallel")
        sacrebleu()
        numbers = {"pairs": len(data), "beams": beams, **self.loss(data)}
        return numbers | corpus_bleu(self.translate(data.source, beams=beams), data.target)


def held_out_loss(
    model: Model, ids: Sequence[np.ndarray], targets: Sequence[np.ndarray], pad_id: int, precision: str
) -> dict[str, float]:
    """Mean loss per target token, and its exponential, in eval mode."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad(), computing_in(precision, model.device, casts=Casts()):
        for rows in budget_batches([len(row) for row in ids], tokens=TOKENS_PER_BATCH, rows=ROWS):
            batch = pad([ids[i] for i in rows], pad_id)
            loss = model.loss(replace(batch, targets=padded_targets([targets[i] for i in rows])))
            total, count = total + float(loss.total), count + loss.count
    model.train(was_training)
    return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count))}


def cove_translate(model: str | Path, texts: Iterable[str], *, beams: int = 1) -> Iterator[str]:
    """Translate texts with a model folder: Translator.stream."""
    return Translator(model).stream(texts, beams=beams)


def cove_evaluate(model: str | Path, data: Parallel, *, beams: int = 1) -> dict[str, Any]:
    """Evaluate a model folder on pairs: Translator.evaluate."""
    return Translator(model).evaluate(data, beams=beams)


def cove_align(model: str | Path, source: str, target: str | None = None) -> Alignment:
    """Attention weights of a model folder: Translator.align."""
    return Translator(model).align(source, target)
