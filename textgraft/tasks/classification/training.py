"""Training of one classifier: a language model's encoder, a fresh head, the phases of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.data.labels import Labels
from textgraft.data.sequences import TokenIds
from textgraft.data.streams.base import ExampleStream, MixedStream
from textgraft.encoders.base import ONE_LAYER, Encoder
from textgraft.heads.auxiliary_language_model import AuxiliaryLanguageModel
from textgraft.heads.classification import LOSSES, POOLED, ClassificationHead
from textgraft.heads.language_model import LanguageModelHead
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.metrics.classification import document_scores, evaluate, predictable
from textgraft.models.artifact import Artifact
from textgraft.models.inference import extract_features, head_inputs, predict_logits
from textgraft.models.model import Model, build_fresh, graft, new_head, with_dropout
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation
from textgraft.training.checkpoint import load_checkpoint, remove_checkpoint, save_checkpoint
from textgraft.training.driver import drive
from textgraft.training.frozen_features import has_same_encoder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import Stage
from textgraft.training.run_state import load_values
from textgraft.training.settings import Settings


@dataclass(frozen=True)
class EncodedTexts:
    """Token ids of N texts and, where known, their targets.

    `read` caches vectors of the texts by purpose, for texts that many trainings predict with the same frozen encoder.
    None: no cache.
    """

    sequences: Sequence[TokenIds]
    targets: np.ndarray | None = None
    read: dict[str, np.ndarray] | None = field(default=None, repr=False, compare=False)

    def once(self, purpose: str, reading: Callable[[], np.ndarray]) -> np.ndarray:
        """The result of `reading`, computed once for each purpose."""
        if self.read is None:
            return reading()
        if purpose not in self.read:
            self.read[purpose] = reading()
        return self.read[purpose]

    def take(self, indices: Sequence[int]) -> EncodedTexts:
        targets = None if self.targets is None else self.targets[list(indices)]
        return EncodedTexts([self.sequences[i] for i in indices], targets)


@dataclass(frozen=True)
class Plan:
    """The configuration that all classifiers of one fine-tuning share: the start, the training, the labels."""

    language_model: Model
    from_scratch: bool
    stage: Stage
    settings: Settings
    labels: Labels
    class_weights: np.ndarray | None
    pad_id: int
    words: bool = True
    both_orders: bool = False
    layer_aggregation: str = LAST
    pooling: str | None = None  # that the weights were trained with; None: the family's

    @classmethod
    def of(
        cls, source: Artifact, stage: Stage, settings: Settings, labels: Labels, *, from_scratch: bool = False
    ) -> Plan:
        """A plan without class weights and special readouts, from a language model with its tokenizer."""
        pad_id, pooling = source.tokenizer.pad_id, source.pooling
        return cls(source.model, from_scratch, stage, settings, labels, None, pad_id, pooling=pooling)


@dataclass(frozen=True)
class TrainedClassifier:
    """A trained classifier: weights by name, logits for each evaluated set of texts, history and seconds."""

    values: dict[str, Tensor]
    logits: dict[str, np.ndarray]
    history: list[dict[str, Any]]
    seconds: float


def new_classifier(plan: Plan, seed: int) -> Model:
    """Graft a fresh head onto the pretrained encoder; the encoder is fresh too if the plan is from scratch.

    Raises:
        UserError: The encoder's layers do not allow the layer aggregation.
    """
    source = plan.language_model.encoder
    description = plan.language_model.describe()
    description["head"] = {
        "name": "classification",
        "input_dim": source.output_dim,
        "outputs": plan.labels.num_outputs,
        "kind": plan.labels.kind,
        "direction": source.direction,
        **source.classifier(),
    }
    if plan.pooling is not None:  # of a sentence encoder, whose vectors are compared as they are
        description["head"] |= ONE_LAYER
        _set_pooling(plan.pooling, description)
    if plan.layer_aggregation != LAST:
        _aggregate_layers(plan.layer_aggregation, description, source)
    if plan.stage.pooling is not None:
        _set_pooling(plan.stage.pooling, description)
    if not plan.words:
        description["head"]["words_dim"] = 0
    if plan.labels.target.reads == "choices":
        description["head"] = {k: v for k, v in description["head"].items() if k not in ("outputs", "kind", "bias")}
        description["head"]["name"] = "choice"
    elif plan.both_orders:
        description["head"]["both_orders"] = True
    description = with_dropout(description, plan.stage.dropout)
    model = build_fresh(description, seed) if plan.from_scratch else graft(source, description, seed)
    if plan.class_weights is not None:
        weights: Any = model.head.class_weights
        weights.copy_(torch.from_numpy(plan.class_weights))
    return model


def _aggregate_layers(layer_aggregation: str, description: dict[str, Any], encoder: Encoder) -> None:
    """Let the head of a classifier's description use other layers than the last, with mean pooling.

    A head on one position (a special token, or the last one) needs the last layer, which represents the text there.
    """
    head = description["head"]
    head |= {
        "layer_aggregation": layer_aggregation,
        "input_dim": new_layer_aggregation(layer_aggregation, encoder.widths).output_dim,
    }
    if "pooling" in head:
        _set_pooling("mean", description)


def _set_pooling(pooling: str, description: dict[str, Any]) -> None:
    """Set the head's pooling; the encoder's pooler is removed where it is not that pooling."""
    description["head"]["pooling"] = pooling
    if "pooler" in description["encoder"] and pooling != POOLED:
        description["encoder"]["pooler"] = False


def classifier_to_train(plan: Plan, seed: int) -> Model:
    """`new_classifier` with label smoothing and the auxiliary loss of the stage.

    The auxiliary loss uses the pretrained head of the language model, or a fresh one from scratch.

    Raises:
        UserError: As `validate_next_token_head`.
    """
    model = new_classifier(plan, seed)
    if isinstance(model.head, ClassificationHead):
        model.head.label_smoothing = plan.stage.label_smoothing
    if not plan.stage.auxiliary_lm_weight:
        return model
    validate_next_token_head(plan.language_model, plan.stage)
    source = plan.language_model.head
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = new_head(with_dropout(plan.language_model.describe(), plan.stage.dropout)["head"], model.encoder)
    assert isinstance(head, LanguageModelHead)
    model.auxiliary = AuxiliaryLanguageModel(head, plan.stage.auxiliary_lm_weight, model.encoder.direction)
    if not plan.from_scratch:
        own, values = {id(p) for p in model.auxiliary.own(model.encoder)}, dict(source.named_parameters())
        with torch.no_grad():
            for name, parameter in head.named_parameters():
                if id(parameter) in own:  # what is shared has the encoder's values already
                    parameter.copy_(values[name])
    return model


def validate_next_token_head(language_model: Model, stage: Stage) -> None:
    """Raise UserError where the stage has an auxiliary loss and the model does not predict the next token."""
    if not stage.auxiliary_lm_weight or isinstance(language_model.head, LanguageModelHead):
        return
    both = language_model.encoder.direction == "both"
    why = "this model, which looks both ways, does not predict one" if both else "this model has no head for that"
    remedy = "Take another recipe" + ("." if both else ", or the language model with its head.")
    raise UserError(f"the auxiliary loss is that of the next token, and {why}.", where="auxiliary", remedy=remedy)


def train_classifier(
    plan: Plan,
    train: EncodedTexts,
    evaluated: dict[str, EncodedTexts],
    *,
    context: RunContext,
    title: str,
    watched: str | None = None,
    max_seconds: float | None = None,
) -> TrainedClassifier:
    """Train one classifier and predict other sets of texts.

    The result is saved in the run's folder as `title`.safetensors and loaded from there next time; a checkpoint is
    saved beside it during training.

    Args:
        plan: What all classifiers of the fine-tuning share.
        train: Texts with targets to train on.
        evaluated: Sets of texts to predict, by name; "valid" among them also guides early stopping.
        context: Folder, seed and progress.
        title: Name of the training, in the folder and on screen.
        watched: Name of a set in `evaluated` that every validation scores without any effect: the run ends with its
            last weights, and each row of the history has every text's score (metrics.document_scores) as "by_text".
        max_seconds: Seconds that the training may take.

    Returns:
        Weights, (N, C) logits of every set, history and seconds.

    Raises:
        TooSlow: It would take more than `max_seconds` seconds.
    """
    done = context.work / f"{title}.safetensors"
    if done.exists():
        return _read(done)
    plan.stage.validate_label_kind(plan.labels.kind)
    seed = context.first_seed
    model = classifier_to_train(plan, seed)
    assert train.targets is not None
    targets = torch.from_numpy(train.targets)
    stream_of = MixedStream if any(phase.contrastive_temperature for phase in plan.stage.phases) else ExampleStream
    stream = stream_of(
        head_inputs(model, train.sequences), targets, pad_id=plan.pad_id, rows=plan.stage.batch_size, seed=seed
    )
    phases = plan.stage.plan(len(model.layer_groups()), stream.length(0))
    settings = replace(plan.settings.of(plan.stage), seed=seed)
    run = Run(model, phases, stream, settings, _validator(plan, evaluated.get("valid")))
    if watched is not None:
        run.validate = _monitor(run, plan, evaluated[watched])
    checkpoint = context.work / f"{title}.checkpoint.safetensors"
    drive(run, checkpoint, title=title, show=context.show, max_seconds=max_seconds)
    model.auxiliary, model.contrastive_temperature = None, 0.0  # only for training, no part of the classifier
    logits = {name: _predict(model, plan, part) for name, part in evaluated.items() if part.sequences}
    trained = TrainedClassifier(model.values(), logits, run.progress.history, run.progress.seconds)
    _write(done, trained)
    remove_checkpoint(checkpoint)
    return _read(done)


@torch.no_grad()
def _predict(model: Model, plan: Plan, part: EncodedTexts) -> np.ndarray:
    """Logits for each text; where only the head was trained, from the cached inputs of the head."""
    precision = plan.settings.precision
    if (
        part.read is None
        or not isinstance(model.head, ClassificationHead)
        or not has_same_encoder(model, plan.language_model)
    ):
        return predict_logits(model, part.sequences, plan.pad_id, precision)
    sequences = head_inputs(model, part.sequences)
    seen = part.once("head", lambda: extract_features(model, sequences, plan.pad_id, precision).numpy())
    head: Any = model.eval().head
    answers: np.ndarray = head.logits_of(torch.from_numpy(seen).to(model.device)).cpu().numpy()
    return answers


def drop_weights(trained: TrainedClassifier, folder: Path, title: str) -> TrainedClassifier:
    """`trained` without its weights, in `folder` too, so that the predictions of many trainings need little space."""
    if trained.values:
        trained = replace(trained, values={})
        _write(folder / f"{title}.safetensors", trained)
    return trained


def keep(trained: TrainedClassifier, folder: Path, title: str) -> None:
    """Save a result for the next `train_classifier` of that title, if there is none."""
    path = folder / f"{title}.safetensors"
    if not path.exists():
        _write(path, trained)


def _write(path: Path, trained: TrainedClassifier) -> None:
    tensors = {f"model.{n}": t for n, t in trained.values.items()}
    tensors |= {f"logits.{n}": torch.from_numpy(a) for n, a in trained.logits.items()}
    save_checkpoint(path, tensors, {"history": trained.history, "seconds": trained.seconds})


def _read(path: Path) -> TrainedClassifier:
    tensors, state = load_checkpoint(path)
    values = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    logits = {n.removeprefix("logits."): t.numpy() for n, t in tensors.items() if n.startswith("logits.")}
    return TrainedClassifier(values, logits, state["history"], state["seconds"])


def _validator(plan: Plan, valid: EncodedTexts | None) -> Callable[[Model], Scores] | None:
    if valid is None or valid.targets is None:
        return None
    targets, kind = valid.targets, plan.labels.kind

    def validate(model: Model) -> Scores:
        logits = predict_logits(model, valid.sequences, plan.pad_id, plan.settings.precision)
        outputs = outputs_from_logits(logits, kind)
        loss = _mean_loss(logits, targets, kind)
        scores = {k: v for k, v in evaluate(kind, targets, outputs).items() if v is not None}
        # The loss selects the epoch: with few validation texts accuracy is too coarse to tell two epochs apart.
        return {"loss": loss, "score": -loss} | scores

    return validate


def _monitor(run: Run, plan: Plan, watched: EncodedTexts) -> Callable[[Model], Scores]:
    """A validator whose last score is always the best, so that the last weights are kept."""
    kind, targets = plan.labels.kind, watched.targets
    assert targets is not None

    def watch(model: Model) -> Scores:
        logits = predict_logits(model, watched.sequences, plan.pad_id, plan.settings.precision)
        by_text: Any = document_scores(kind, targets, outputs_from_logits(logits, kind)).tolist()
        return {
            "loss": _mean_loss(logits, targets, kind),
            "score": float(len(run.progress.history)),
            "by_text": by_text,
        }

    return watch


def _mean_loss(logits: np.ndarray, targets: np.ndarray, kind: TargetKind) -> float:
    targets, logits = predictable(kind, targets, logits)
    return float(LOSSES[kind](torch.from_numpy(logits), torch.from_numpy(targets), reduction="mean"))


def as_model(plan: Plan, trained: TrainedClassifier) -> Model:
    """The trained classifier as a model in eval mode."""
    model = new_classifier(plan, seed=0)
    load_values(model, trained.values)
    return model.eval()
