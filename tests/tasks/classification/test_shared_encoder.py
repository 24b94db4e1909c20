"""An ensemble whose members have one frozen encoder stores it once and encodes every text once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_encoder import LABELS, TARGETS, TEXTS, members_on, probe_of, tiny_encoder

import textgraft
from textgraft.data.labels import Labels
from textgraft.models import artifact, shared_files
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.probe_as_linear import as_linear
from textgraft.tasks.classification.shared_encoder import encoding_once
from textgraft.text import wordpiece


@pytest.fixture(scope="module")
def encoder() -> Artifact:
    return tiny_encoder()


@pytest.fixture(scope="module")
def members(encoder: Artifact, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return members_on(encoder, tmp_path_factory.mktemp("maps"))


@pytest.mark.parametrize(
    ("labels", "targets"),
    [
        (LABELS, TARGETS),
        (Labels("single", ("a", "b", "c")), np.arange(80) % 3),
        (Labels("single", ("a", "b", "c", "d")), np.arange(80) % 3),
        (Labels("multi", ("a", "b", "c")), np.stack([np.arange(80) % k == 0 for k in (2, 3, 5)], axis=1).astype(float)),
        (Labels("numeric", (), 3.0, 2.0), np.arange(80) / 80),
    ],
)
def test_a_probe_is_a_linear_classifier(encoder: Artifact, labels: Labels, targets: np.ndarray) -> None:
    probe = probe_of(encoder, labels, targets, temperature=2.5)
    linear = as_linear(probe)
    assert linear is not None
    texts = [*TEXTS[:9], " ".join(TEXTS)]
    np.testing.assert_allclose(linear.outputs(texts), probe.outputs(texts, "fp32"), atol=2e-6)


def test_a_probe_alone_predicts_as_it_was_measured(encoder: Artifact) -> None:
    """Its scores are those on float32 vectors, also where networks predict in bfloat16 by themselves."""
    probe = probe_of(encoder)
    (alone,) = encoding_once([probe])
    assert alone is not probe
    np.testing.assert_array_equal(Classifier([probe]).outputs(TEXTS[:9]), alone.outputs(TEXTS[:9]))
    np.testing.assert_allclose(alone.outputs(TEXTS[:9]), probe.outputs(TEXTS[:9], "fp32"), atol=2e-6)
    assert encoding_once([probe], "bf16") == (probe,)
    tuned = Artifact(probe.model, probe.tokenizer, LABELS, {**probe.run, "frozen": False}, embedding=probe.embedding)
    assert encoding_once([tuned]) == (tuned,)  # a fine-tuned encoder is measured as a network


def test_what_is_no_probe_is_none(encoder: Artifact) -> None:
    probe = probe_of(encoder)
    assert as_linear(encoder) is None
    assert as_linear(Artifact(probe.model, probe.tokenizer, LABELS, probe.run)) is None  # which embeds another vector


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of texts that the tokenizer of a BERT encodes, call by call."""
    calls: list[int] = []
    encode = wordpiece.WordPieceTokenizer.encode_batch

    def encode_batch(self: Any, texts: Sequence[str]) -> Any:
        calls.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(wordpiece.WordPieceTokenizer, "encode_batch", encode_batch)
    return calls


def test_it_is_stored_once_and_texts_are_encoded_once(
    members: dict[str, Any], encoder: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "MIN_BYTES", 256)
    folder = save_ensemble(members, {"stage": "finetune"}, tmp_path / "both", weights=[3, 1])
    alone = [artifact.save(member, tmp_path / name) for name, member in members.items()]

    def size(path: Path) -> int:
        return sum(file.stat().st_size for file in path.rglob("*.safetensors"))

    weights = sum(value.nbytes for value in encoder.model.encoder.state_dict().values())
    assert size(folder) < sum(map(size, alone)) - 0.8 * weights
    model = textgraft.load(folder, precision="fp32")
    expected = np.average(
        [textgraft.load(path, precision="fp32").outputs(TEXTS) for path in alone], axis=0, weights=[3, 1]
    )
    calls = counted(monkeypatch)
    np.testing.assert_allclose(model.outputs(TEXTS), expected, atol=2e-6)
    assert calls == [len(TEXTS)]
    model.outputs(TEXTS[:3])
    assert calls == [len(TEXTS), 3]
    for name in members:  # a member is a model of its own
        assert len(list(textgraft.predict(folder / name, TEXTS[:2]))) == 2


def test_a_folder_saved_before_is_read_and_encodes_once_too(
    members: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "MIN_BYTES", 1 << 40)
    before = save_ensemble(members, {}, tmp_path / "before")
    assert not (before / "shared").exists()
    monkeypatch.setattr(shared_files, "MIN_BYTES", 256)
    now = save_ensemble(members, {}, tmp_path / "now")
    assert (now / "shared").is_dir()
    first, second = textgraft.load(before), textgraft.load(now)
    calls = counted(monkeypatch)
    np.testing.assert_array_equal(first.outputs(TEXTS), second.outputs(TEXTS))
    assert calls == [len(TEXTS)] * 2
    save_ensemble(members, {}, now)  # the same again
    file = next((now / "shared").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(textgraft.UserError, match="truncated or altered"):
        textgraft.load(now)
    file.unlink()
    with pytest.raises(textgraft.UserError, match="missing or unreadable"):
        textgraft.load(now / "probe")


def test_other_encoders_are_not_taken_for_the_same(members: dict[str, Any], encoder: Artifact) -> None:
    changed = probe_of(encoder)
    with torch.no_grad():
        next(iter(changed.model.encoder.parameters()))[5] += 1
    shorter = probe_of(encoder)
    shorter.run["max_tokens"] = 9
    for probe in (changed, shorter):
        pair = (probe, members["co-training"])
        assert encoding_once(pair) == pair
        expected = np.mean([member.outputs(TEXTS, "fp32") for member in pair], axis=0)
        np.testing.assert_array_equal(Classifier(pair, precision="fp32").outputs(TEXTS), expected)
    same = (members["probe"], members["co-training"])
    assert encoding_once(same) != same
    assert encoding_once(same, "bf16") == same
