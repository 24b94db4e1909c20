"""A translator at work: translations by greedy or beam search, where it looks at each word, how good they are."""

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

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, pad
from textgraft.data.examples import each_text, validate_types
from textgraft.data.parallel import Parallel
from textgraft.data.sequences import budget_batches
from textgraft.generation.decoding import GenerateOptions, Tokens, continue_from, search
from textgraft.heads.translation import BEGIN, END, Decoding, TranslationHead
from textgraft.metrics.bleu import corpus_bleu, sacrebleu
from textgraft.models import artifact, loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.loading import OpenedModels
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import Casts, computing_in
from textgraft.tasks.registry import validate_task
from textgraft.tasks.translation.spec import TRANSLATION
from textgraft.text.normalize import CONTROL
from textgraft.text.tokenizer import Tokenizer

MAX_TOKENS = 100
AT_ONCE, ROWS, TOKENS_PER_BATCH = 1024, 64, 4096
NEVER = tuple(CONTROL.index(word) for word in ("xxunk", "xxpad", "xxbos", "xxfld"))
"""What a translation is not to hold."""


def translation_targets(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> list[np.ndarray]:
    """What a decoder is to write: each text's ids, `max_tokens` at most, and END behind them."""
    return [np.append(ids[: max_tokens - 1], END).astype(np.int64) for ids in tokenizer.bodies(texts)]


def padded_targets(targets: Sequence[np.ndarray]) -> Tensor:
    """(N, T') int64 of all of them, IGNORE behind each one's end."""
    padded = torch.full((len(targets), max(map(len, targets))), IGNORE, dtype=torch.int64)
    for row, ids in enumerate(targets):
        padded[row, : len(ids)] = torch.from_numpy(ids)
    return padded


@dataclass(frozen=True)
class Alignment:
    """A sentence, its translation, and where the decoder looked for each word of that: weights (T', S).

    Both are tokens as the model has them, the source's first mark and the translation's END among them.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        rounded = [[round(float(weight), 6) for weight in row] for row in self.weights]
        return {"source": list(self.source), "target": list(self.target), "weights": rounded}


class _Decoder:
    """The translations of B texts as decoding.NextTokenModel wants them."""

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
            chosen = self.decoding.rows(torch.tensor(list(rows), device=device))
            self.decoding, _ = self.head.step(torch.tensor(list(tokens), device=device), chosen)


class Translator:
    """A model made by `cove_train`, as a folder or in memory holds it.

    Raises UserError for a model of another task.
    """

    def __init__(self, model: str | Path | Artifact, *, precision: str = "auto") -> None:
        self.artifact = model if isinstance(model, Artifact) else loading.load_network(model)
        self.model, self.tokenizer = self.artifact.model, self.artifact.tokenizer
        where = "" if isinstance(model, Artifact) else str(model)
        validate_task(TRANSLATION, self.artifact.head_name, where=where)
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
        """One translation a text, in order, from a stream of any length; a blank text has a blank one.

        Each word is the likeliest, or with `beams` the whole is the likeliest that so many find, by its mean log
        probability a word. A translation is no longer than twice its text and ten tokens more. Raises UserError for
        beams out of range, one text by itself, and what is no text.
        """
        return self._stream(each_text(texts), GenerateOptions(max_tokens=self.max_tokens, beams=beams))

    def _stream(self, rest: Iterator[str], options: GenerateOptions) -> Iterator[str]:
        while part := list(islice(rest, AT_ONCE)):
            found = [""] * len(part)
            wanted = [i for i, text in enumerate(part) if text.strip()]
            ids = [ids[: self.max_tokens] for ids in self.tokenizer.encode_batch([part[i] for i in wanted])]
            rows = max(1, ROWS // options.beams)
            for batch in budget_batches([len(one) for one in ids], tokens=TOKENS_PER_BATCH, rows=rows):
                for index, written in zip(batch, self._written([ids[i] for i in batch], options), strict=True):
                    found[wanted[index]] = self.target.decode(written)
            yield from found

    def translate(self, texts: Sequence[str], *, beams: int = 1) -> list[str]:
        """`stream` for texts that are all in memory."""
        return list(self.stream(texts, beams=beams))

    @torch.no_grad()
    def _written(self, ids: Sequence[np.ndarray], options: GenerateOptions) -> list[list[int]]:
        """The ids of the translations of texts' ids, without END."""
        was_training = self.model.training
        self.model.eval()
        reader = _Decoder(self.model, ids, self.tokenizer.pad_id, self.precision)
        prompts, rooms = [[BEGIN]] * len(ids), [min(options.max_tokens, 2 * len(one) + 10) for one in ids]
        tokens = Tokens(ends=frozenset([END]), never=NEVER)
        if options.beams > 1:
            found = [one.ids for one in search(reader, prompts, rooms, options, tokens)]
        else:
            found = [[] for _ in ids]
            for written in continue_from(reader, prompts, rooms, options, tokens):
                found[written.row].append(written.token)
        self.model.train(was_training)
        return [[token for token in one if token != END] for one in found]

    @torch.no_grad()
    def align(self, source: str, target: str | None = None) -> Alignment:
        """Where the decoder looks as it writes `target`, or without one its own translation of `source`.

        Raises UserError for a blank text.
        """
        if not source.strip() or (target is not None and not target.strip()):
            raise UserError("a blank text has no words to align.", remedy="Give a sentence.")
        ids = self.tokenizer.encode_batch([source])[0][: self.max_tokens]
        options = GenerateOptions(max_tokens=self.max_tokens)
        if target is None:
            wanted = np.append(np.array(self._written([ids], options)[0], dtype=np.int64), END)
        else:
            wanted = translation_targets(self.target, [target], self.max_tokens)[0]
        was_training = self.model.training
        self.model.eval()
        with computing_in(self.precision, self.model.device, casts=Casts()):
            encoded = self.model.encoder(pad([ids], self.tokenizer.pad_id).to(self.model.device), keep="top")
            weights = self.head.alignment(encoded, torch.from_numpy(wanted)[None].to(self.model.device))
        self.model.train(was_training)
        words = tuple(self.tokenizer.tokens[i] for i in ids), tuple(self.target.tokens[i] for i in wanted)
        return Alignment(*words, weights[0].float().cpu().numpy())

    @torch.no_grad()
    def loss(self, data: Parallel) -> dict[str, float]:
        """`loss`, nats a target token with each sentence's end, and `perplexity`, over all of `data`."""
        ids = [ids[: self.max_tokens] for ids in self.tokenizer.encode_batch(data.source)]
        targets = translation_targets(self.target, data.target, self.max_tokens)
        return held_out_loss(self.model, ids, targets, self.tokenizer.pad_id, self.precision)

    def evaluate(self, data: Parallel, *, beams: int = 1) -> dict[str, Any]:
        """How good it is on pairs: loss, perplexity, and BLEU (metrics.bleu). Raises UserError without sacrebleu."""
        validate_types(data=data, wanted=Parallel, reader="textgraft.read_parallel")
        sacrebleu()
        numbers = {"pairs": len(data), "beams": beams, **self.loss(data)}
        return numbers | corpus_bleu(self.translate(data.source, beams=beams), data.target)


def held_out_loss(
    model: Model, ids: Sequence[np.ndarray], targets: Sequence[np.ndarray], pad_id: int, precision: str
) -> dict[str, float]:
    """The mean loss of a target token, and its exponential, in eval mode."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad(), computing_in(precision, model.device, casts=Casts()):
        for rows in budget_batches([len(one) for one in ids], tokens=TOKENS_PER_BATCH, rows=ROWS):
            batch = pad([ids[i] for i in rows], pad_id)
            loss = model.loss(replace(batch, targets=padded_targets([targets[i] for i in rows])))
            total, count = total + float(loss.total), count + loss.count
    model.train(was_training)
    return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count))}


def cove_translate(model: str | Path, texts: Iterable[str], *, beams: int = 1) -> Iterator[str]:
    """What a translator's folder makes of each text, in order."""
    return Translator(model).stream(texts, beams=beams)


def cove_evaluate(model: str | Path, data: Parallel, *, beams: int = 1) -> dict[str, Any]:
    """How good a translator's folder is on pairs: Translator.evaluate."""
    return Translator(model).evaluate(data, beams=beams)


def cove_align(model: str | Path, source: str, target: str | None = None) -> Alignment:
    """Where a translator's folder looks as it translates: Translator.align."""
    return Translator(model).align(source, target)
