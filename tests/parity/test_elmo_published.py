"""ELMo beside what AllenNLP's biLM says of 30 sentences, and its two files to ours and back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from textgraft import UserError, convert
from textgraft.conversion.legacy import elmo
from textgraft.conversion.legacy.elmo import from_published, read_weights, to_published
from textgraft.data.batch import Batch, pad
from textgraft.models.loading import load_network
from textgraft.models.model import Model, build
from textgraft.text.character_encoding import CharacterEncodingTokenizer

h5py = pytest.importorskip("h5py")

FIXTURES = Path(__file__).parents[2] / ".." / "shared" / "fixtures" / "elmo"
TOKENIZER = CharacterEncodingTokenizer.from_vocabulary()
SMALL: dict[str, Any] = {"character_dim": 3, "filters": [[1, 2], [3, 4]], "projection_dim": 4, "hidden_dim": 6}


@pytest.fixture(scope="module")
def published() -> Model:
    if not FIXTURES.is_dir():
        pytest.skip(f"the stored numbers are not here ({FIXTURES})")
    return elmo.load(FIXTURES)


def stored(name: str, key: str) -> Tensor:
    with h5py.File(FIXTURES / name) as file:
        return torch.from_numpy(file[key][...])


def test_all_thirty_sentences_with_the_state_carried(published: Model) -> None:
    """Three contiguous streams of ten sentences; padding, and states that go on from each row's own last word."""
    contiguous_streams = json.loads((FIXTURES / "sentences.json").read_text("utf-8"))
    marks, state, worst, apart, compared = TOKENIZER.pair_marks, None, 0.0, 0.0, 0
    for number, sentences in enumerate(zip(*contiguous_streams, strict=True)):
        rows = [np.concatenate([marks.before, *TOKENIZER.words(s.split()), marks.after]) for s in sentences]
        batch = pad(rows, TOKENIZER.pad_id)
        with torch.no_grad():
            encoded, fresh = published.encoder(batch, state), published.encoder(batch)
        state = encoded.state
        for lane, row in enumerate(rows):
            forwards, backwards = stored(f"lm_embeddings_{lane}.hdf5", str(number))
            expected = torch.cat([forwards, backwards], dim=1)
            found = encoded.top[lane, 1 : len(row) - 1]
            assert found.shape == expected.shape
            worst = max(worst, float((found - expected).abs().max()))
            apart = max(apart, float((fresh.top[lane, 1 : len(row) - 1] - expected).abs().max()))
            compared += 1
    assert compared == 30
    assert worst < 1e-5
    assert apart > 1e-2  # the state tells


def test_words_alone(published: Model) -> None:
    """What the characters make of 458 words; those called <S> and </S> are the marks."""
    words = (FIXTURES / "vocab_test.txt").read_text("utf-8").split()
    marks = {"<S>": TOKENIZER.bos_id, "</S>": TOKENIZER.eos_id}
    rows = [marks.get(word, row[0]) for word, row in zip(words, TOKENIZER.words(words), strict=True)]
    encoder: Any = published.encoder
    found = encoder.characters(torch.from_numpy(np.array(rows, dtype=np.int64)))
    torch.testing.assert_close(found, stored("elmo_token_embeddings.hdf5", "embedding"), rtol=0, atol=1e-5)


def test_the_stored_weights_come_back(published: Model) -> None:
    options, weights = to_published(published)
    given = read_weights(FIXTURES / "lm_weights.hdf5")
    assert weights.keys() == given.keys()
    for name, value in given.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-7, msg=name)
    asked = json.loads((FIXTURES / "options.json").read_text("utf-8"))
    assert all(options[part][key] == value for part in asked for key, value in asked[part].items())


def ours(**settings: Any) -> Model:
    torch.manual_seed(0)
    encoder = {"name": "elmo", **SMALL, **settings}
    return build({"encoder": encoder, "head": {"name": "features", "input_dim": 8}}).eval()


def spelled(*texts: str) -> Batch:
    return pad(TOKENIZER.encode_batch(texts), 0)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_layers": 1},
        {"num_highways": 0},
        {"activation": "tanh"},
        {"cell_clip": 0.0, "projection_clip": 2.0},
        {"skip_connections": False},
    ],
)
def test_round_trips_through_files(settings: dict[str, Any], tmp_path: Path) -> None:
    model = ours(**settings)
    again = elmo.load(elmo.save(model, tmp_path / "theirs"))
    assert again.describe() == model.describe()
    batch = spelled("a cat sat here", "naïve 東京")
    torch.testing.assert_close(again(batch), model(batch))


@pytest.mark.parametrize("options", [{"use_skip_connections": False}, {}])
def test_without_skip_connections(options: dict[str, Any]) -> None:
    """bilm-tf adds a layer's input to its output only if told to: with them, a layer of zeros outputs its input."""
    settings, weights = to_published(ours())
    lstm = {k: v for k, v in settings["lstm"].items() if k != "use_skip_connections"} | options
    silent = weights | {n: torch.zeros_like(w) for n, w in weights.items() if "Cell1" in n and n.endswith("W_P_0")}
    plain, skipping = (from_published({**settings, "lstm": of}, silent) for of in (lstm, settings["lstm"]))
    batch = spelled("a cat sat here", "naïve")
    with torch.no_grad():
        without, with_skips = (model.encoder(batch, keep="all").layers for model in (plain, skipping))
    assert torch.equal(without[1], with_skips[1])
    assert without[1][batch.mask].abs().min() > 0
    assert not without[2][batch.mask].any()
    assert torch.equal(with_skips[2][batch.mask], with_skips[1][batch.mask])


@pytest.mark.slow
def test_converted_there_and_back_and_named(tmp_path: Path) -> None:
    """By the command line into their files, and from these into an artifact that embeds."""
    elmo.save(ours(), tmp_path / "theirs")
    program = [sys.executable, "-m", "textgraft", "convert", f"elmo:{tmp_path / 'theirs'}", "--json"]
    done = subprocess.run([*program, "--out", str(tmp_path / "model")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["format"] == "textgraft"
    made, named = load_network(tmp_path / "model"), load_network(f"elmo:{tmp_path / 'theirs'}")
    assert made.run["name"] == "theirs"
    assert isinstance(made.tokenizer, CharacterEncodingTokenizer)
    texts = ["A small film.", "Not one that I'd see again!"]
    assert np.array_equal(made.embed(texts), named.embed(texts))
    assert made.embed(texts).shape == (2, 8)
    convert(tmp_path / "model", tmp_path / "back", to="elmo")
    first, second = (read_weights(tmp_path / name / "weights.hdf5") for name in ("theirs", "back"))
    assert all(torch.allclose(first[name], second[name], atol=1e-7) for name in first)


OPTIONS, WEIGHTS = to_published(ours())


@pytest.mark.parametrize(
    ("part", "change", "complaint"),
    [
        ("lstm", {"use_skip_connections": "false"}, "'use_skip_connections' is 'false', not true or false"),
        ("lstm", {"n_layers": 3}, "missing: .*Cell2/LSTMCell/B"),
        ("lstm", {"n_layers": 1}, "left over: .*Cell1/LSTMCell/B"),
        ("lstm", {"dim": 7}, r"LSTMCell/W_0' is \(8, 24\), not \(8, 28\) as the options say"),
        ("char_cnn", {"filters": [[1, 2], [2, 4]]}, r"W_cnn_1' is \(1, 3, 3, 4\), not \(1, 2, 3, 4\)"),
        ("char_cnn", {"max_characters_per_token": 40}, "words are not of 50 characters"),
        ("char_cnn", {"n_characters": 300}, "there are 300 characters"),
        ("char_cnn", {"activation": "gelu"}, "unknown activation"),
    ],
)
def test_options_that_do_not_fit(part: str, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        from_published({**OPTIONS, part: {**OPTIONS[part], **change}}, WEIGHTS)


def test_damaged_missing_and_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = elmo.save(ours(), tmp_path / "theirs")
    whole = (folder / "weights.hdf5").read_bytes()
    for content, complaint in ((b"no hdf5", "damaged"), (whole[: len(whole) // 2], "damaged")):
        (folder / "weights.hdf5").write_bytes(content)
        with pytest.raises(UserError, match=complaint) as raised:
            load_network(f"elmo:{folder}")
        assert raised.value.where.endswith("weights.hdf5")
    (folder / "weights.hdf5").write_bytes(whole)
    deep = "[" * 100_000
    for text, complaint in (
        ("{", "damaged"),
        (deep, "damaged"),
        ("{}", "does not describe an ELMo"),
        ("[]", "does not describe an ELMo"),
    ):
        (folder / "options.json").write_text(text)
        with pytest.raises(UserError, match=complaint):
            load_network(f"elmo:{folder}")
    (folder / "options.json").unlink()
    with pytest.raises(UserError, match=r"there are 0 files named …options\.json"):
        load_network(f"elmo:{folder}")
    with pytest.raises(UserError, match=r"nowhere: there is no such folder\. Check the path"):
        load_network(f"elmo:{folder / 'nowhere'}")
    gpt = {"name": "gpt", "vocab_size": 9, "embedding_dim": 8, "num_layers": 1, "num_heads": 2, "max_length": 4}
    other = build({"encoder": gpt, "head": {"name": "features", "input_dim": 8}})
    with pytest.raises(UserError, match="only an ELMo"):
        elmo.save(other, tmp_path / "other")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"needs h5py.*textgraft\[elmo\]"):
        read_weights(folder / "weights.hdf5")
