"""The vectors of a frozen encoder as a feature map, and as a view of co-training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews

from textgraft.data.labels import Labels
from textgraft.linear.artifact import LinearArtifact, from_folder
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.encoder_features import EncoderFeatures
from textgraft.linear.methods import LSA, FeatureMaps
from textgraft.linear.state import State
from textgraft.models import artifact, loading, model_folder

TEXTS, NAMES = reviews(80, 1)


@pytest.fixture(scope="module")
def features(tiny_lm: Path) -> EncoderFeatures:
    return EncoderFeatures(loading.load_network(tiny_lm)).fit(TEXTS)


def test_it_is_a_rotation_of_the_vectors_to_their_principal_axes(features: EncoderFeatures) -> None:
    x, vectors = features.transform(TEXTS), features.encoder.embed(TEXTS)
    variances = x.var(axis=0)
    assert features.width == vectors.shape[1]
    assert (np.diff(variances) <= 1e-9).all()
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x @ x.T, (v := vectors - vectors.mean(axis=0)) @ v.T, atol=1e-4)  # float32 inside
    off_diagonal = x.T @ x - np.diag(np.diag(x.T @ x))
    assert np.abs(off_diagonal).max() < 1e-4 * np.diag(x.T @ x).max()
    assert features.transform([]).shape == (0, features.width)


def test_its_state_is_all_of_it(features: EncoderFeatures) -> None:
    again = EncoderFeatures.from_state(features.state())
    np.testing.assert_array_equal(again.transform(TEXTS[:9]), features.transform(TEXTS[:9]))
    assert again.about == features.about
    assert again.size_in_bytes() == features.size_in_bytes()
    broken = features.state()
    del broken.arrays["axes"]
    with pytest.raises(ValueError, match="missing: axes"):
        EncoderFeatures.from_state(broken)
    with pytest.raises(ValueError, match="'run' is missing"):
        EncoderFeatures.from_state(State())


def test_a_saved_one_cuts_texts_as_it_was_fitted(tiny_lm: Path) -> None:
    encoder, long = loading.load_network(tiny_lm), [" ".join(TEXTS[i : i + 8]) for i in range(9)]
    short = EncoderFeatures(encoder, lambda texts: encoder.embed(texts, max_tokens=12), max_tokens=12).fit(TEXTS)
    again = EncoderFeatures.from_state(short.state())
    np.testing.assert_array_equal(again.transform(long), short.transform(long))
    assert not np.allclose(again.transform(long), EncoderFeatures(encoder).fit(TEXTS).transform(long), atol=1e-3)


def test_co_training_with_it_is_saved_and_opened(features: EncoderFeatures, tmp_path: Path) -> None:
    maps = FeatureMaps(TEXTS, tmp_path / "maps")
    lsa = maps.of(LSA)
    pool = Pool.of(maps.counted, {"encoder": [features] * len(lsa), "LSA": lsa})
    assert pool.vectors["encoder"][0] is pool.vectors["encoder"][1]  # encoded once
    targets = np.array([name == "pos" for name in NAMES[:20]]).astype(int)
    fitted = CoTrainedClassifier(pool).fit(TEXTS[:20], targets).fitted
    made = LinearArtifact(fitted, Labels("single", ("neg", "pos")), {"stage": "finetune", "name": "x"})
    folder = artifact.save(made, tmp_path / "saved")
    opened = from_folder(folder, model_folder.read_config(folder))
    np.testing.assert_allclose(opened.outputs(TEXTS), made.outputs(TEXTS), atol=1e-6)
    right = (made.outputs(TEXTS).argmax(axis=1) == [name == "pos" for name in NAMES]).mean()
    assert right > 0.6
