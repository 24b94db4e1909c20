"""Co-training with the vectors of a frozen sentence encoder as a view beside LSA and n-grams of unlabelled texts.

The linear probe of the labelled texts alone is in linear_probe.py.
"""

from __future__ import annotations

from textgraft.core.resource_meter import Meter
from textgraft.linear.co_training import Pool
from textgraft.linear.encoder_features import EncoderFeatures
from textgraft.linear.methods import LSA, FeatureMaps
from textgraft.tasks.classification.vector_cache import VectorCache

POOL_SIZES = (20_000, 10_000, 5_000, 2_000, 1_000)
"""Texts of the pool that are encoded: the most for which there is time."""


def encoder_co_training_name(encoder: str) -> str:
    """The name of co-training with the vectors of an encoder, as a candidate."""
    return f"{encoder}-co-training"


def pool_sizes(texts: int) -> list[int]:
    """Numbers of texts of a pool to choose from, the largest first."""
    whole = min(texts, POOL_SIZES[0])
    return [whole, *(size for size in POOL_SIZES[1:] if size < whole)]


def encoder_pool(vectors: VectorCache, feature_maps: FeatureMaps, limit: int) -> tuple[Pool, float]:
    """A random sample of at most `limit` unlabelled texts under each view, and the seconds of its preparation.

    Args:
        vectors: The encoder's vectors.
        feature_maps: Feature maps of the unlabelled texts.
        limit: Number of texts.
    """
    with Meter() as meter:
        lsa = feature_maps.of(LSA)
        sample = feature_maps.counted.sample(limit, seed=feature_maps.seed)
        encoder = EncoderFeatures(vectors.encoder, vectors, max_tokens=vectors.max_tokens).fit(sample.texts)
        pool = Pool.of(sample, {"encoder": [encoder] * len(lsa), "LSA": lsa}, seed=feature_maps.seed)
    return pool, meter.seconds
