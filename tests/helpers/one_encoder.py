"""Classifiers on one tiny frozen encoder: a linear probe, and co-training with its vectors as a view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_up_reviews import reviews

from textgraft.data.labels import Labels
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.encoder_features import EncoderFeatures
from textgraft.linear.methods import LSA, FeatureMaps
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.tasks.classification.linear_probe import fit_probe, probe_artifact
from textgraft.text import wordpiece

TEXTS, NAMES = reviews(80, 1)
LABELS = Labels("single", ("neg", "pos"))
TARGETS = np.array([LABELS.names.index(name) for name in NAMES])


def tiny_encoder() -> Artifact:
    tokenizer = wordpiece.train(TEXTS, vocab_size=200)
    torch.manual_seed(0)
    size = {"vocab_size": tokenizer.vocab_size, "embedding_dim": 16, "num_layers": 1, "num_heads": 2}
    described = {"name": "bert", **size, "feed_forward_dim": 32, "max_length": 64, "pooler": True}
    model = build({"encoder": described, "head": {"name": "features", "input_dim": 16}}).eval()
    embedding = SentenceEmbedding("mean", normalize=True, max_length=24)
    return Artifact(model, tokenizer, None, {"stage": "pretrain", "name": "tiny"}, embedding=embedding)


def probe_of(encoder: Artifact, labels: Labels = LABELS, targets: np.ndarray = TARGETS, **run: Any) -> Artifact:
    layer, _ = fit_probe(encoder.embed(TEXTS, max_tokens=20), targets, labels, 0)
    return probe_artifact(
        encoder, layer, labels, {}, {"stage": "finetune", "max_tokens": 20, "temperature": 2.5, **run}
    )


def members_on(encoder: Artifact, folder: Path) -> dict[str, Any]:
    """The members of an ensemble on an encoder; feature maps are kept in `folder`."""
    maps = FeatureMaps(TEXTS, folder)
    lsa = maps.of(LSA)
    features = EncoderFeatures(encoder, lambda texts: encoder.embed(texts, max_tokens=20), max_tokens=20).fit(TEXTS)
    pool = Pool.of(maps.counted, {"encoder": [features] * len(lsa), "LSA": lsa})
    views = CoTrainedClassifier(pool).fit(TEXTS[:20], TARGETS[:20]).fitted
    return {"probe": probe_of(encoder), "co-training": LinearArtifact(views, LABELS, {"stage": "finetune"})}
