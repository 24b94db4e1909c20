"""Linear classifiers as folders: what was saved answers the same, what was damaged is named, and no code is in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from scipy.sparse import csr_matrix
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import textgraft
from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.linear import artifact as linear_artifact
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.fitted import FittedModel
from textgraft.linear.linear_layer import Linear
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.state import State
from textgraft.linear.word_vector_features import WordVectorFeatures
from textgraft.models import artifact, loading
from textgraft.models.card import model_card
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.predictor import Classifier
from textgraft.word_embeddings.stack import Stack

LABELS = Labels("single", ("bad", "ça va", "good"))
WORDS = (["awful", "dull", "weak"], ["so", "fair", "plain"], ["superb", "fine", "great"])
THAI = ("บริการดีมากครับประทับใจ", "อินเทอร์เน็ตช้ามากใช้ไม่ได้เลย", "พอใช้ได้ธรรมดา")


def reviews(count: int, seed: int = 0) -> tuple[list[str], NDArray]:
    generator = np.random.default_rng(seed)
    targets = np.arange(count) % 3
    filler = ["the", "film", "was", "with", "a", "plot", "ünd", "music"]
    return [" ".join([*generator.choice(filler, 6), *generator.choice(WORDS[t], 3)]) for t in targets], targets


def thai(count: int) -> list[str]:
    return [THAI[i % 3] * 2 for i in range(count)]


def fit(name: str) -> FittedModel:
    texts, targets = reviews(60)
    pool, _ = reviews(300, 1)
    match name:
        case "linear":
            return LinearBaseline().fit(texts, targets).fitted
        case "one class":
            return LinearBaseline().fit(texts, targets * 0 + 1, num_classes=3).fitted
        case "two of three classes":
            return LinearBaseline(characters=False).fit(texts, targets % 2 * 2, num_classes=3).fitted
        case "lsa":
            return LsaBaseline(feature_maps=[LSAFeatures(dimensions=8).fit(pool)]).fit(texts, targets).fitted
        case "vectors":
            return LsaBaseline(feature_maps=[WordVectorFeatures(dimensions=8).fit(pool)]).fit(texts, targets).fitted
        case "subwords":
            space = WordVectorFeatures(dimensions=3).fit(thai(300))
            return LsaBaseline(feature_maps=[space]).fit(thai(60), np.arange(60) % 3).fitted
        case "paragraphs":
            return LsaBaseline(feature_maps=[ParagraphFeatures(dimensions=8).fit(pool)]).fit(texts, targets).fitted
        case "self-trained on words":  # as versions before paragraph vectors saved it
            spaces = {
                "LSA": [LSAFeatures(dimensions=6).fit(pool)],
                "word vectors": [WordVectorFeatures(dimensions=6).fit(pool)],
            }
            return CoTrainedClassifier(Pool.of(NgramCounts.of(pool), spaces)).fit(texts, targets, num_classes=3).fitted
    spaces = {"LSA": [LSAFeatures(dimensions=6).fit(pool)], "paragraphs": [ParagraphFeatures(dimensions=6).fit(pool)]}
    return CoTrainedClassifier(Pool.of(NgramCounts.of(pool), spaces)).fit(texts, targets, num_classes=3).fitted


NAMES = (
    *("linear", "one class", "two of three classes", "lsa", "vectors", "subwords", "paragraphs"),
    *("co-training on words", "co-training"),
)
TEXTS = [*reviews(12, 5)[0], THAI[0], THAI[1], "", "zzz 😀"]


@pytest.fixture(scope="module")
def fitted() -> dict[str, LinearArtifact]:
    return {name: LinearArtifact(fit(name), LABELS, {"name": name, "stage": "finetune"}) for name in NAMES}


@pytest.fixture
def folder(fitted: dict[str, LinearArtifact], tmp_path: Path) -> Path:
    """Of the one with the most kinds of file."""
    return artifact.save(fitted["co-training"], tmp_path / "model")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change config.json as someone would who also knows its hash, by leaving that out."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]
    change(config)
    path.write_text(json.dumps(config))


def replace_file(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    edit_config(folder, lambda config: config["files"].update({name: hashlib.sha256(data).hexdigest()}))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_was_saved_answers_the_same(name: str, fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    saved = fitted[name]
    loaded = loading.open_model(artifact.save(saved, tmp_path / "first"))
    before, after = saved.outputs(TEXTS), loaded.outputs(TEXTS)
    assert after.shape == (len(TEXTS), 3)
    assert after == pytest.approx(before, abs=2e-3 if saved.has_vectors else 0)
    assert saved.outputs([]).shape == loaded.outputs([]).shape == (0, 3)
    assert (loaded.labels, loaded.run, loaded.model.about) == (saved.labels, saved.run, saved.model.about)
    again = artifact.save(loaded, tmp_path / "second")
    assert contents(again) == contents(tmp_path / "first")
    assert np.array_equal(loading.open_model(again).outputs(TEXTS), after)


@pytest.mark.parametrize("kind", ["multi", "numeric"])
@pytest.mark.parametrize("name", ["linear", "lsa"])
def test_other_kinds_of_target(kind: str, name: str, tmp_path: Path) -> None:
    texts, targets = reviews(60)
    given: NDArray = targets.astype(np.float32)
    labels = Labels("numeric", mean=1.0, std=0.8)
    if kind == "multi":  # one label by the words, one that all have, one that none has
        given, labels = np.stack([targets == 0, targets >= 0, targets < 0], axis=1).astype(np.float32), LABELS
        labels = Labels("multi", LABELS.names)
    baseline = (
        LinearBaseline() if name == "linear" else LsaBaseline(feature_maps=[LSAFeatures(dimensions=8).fit(texts)])
    )
    model = baseline.fit(texts, given, kind=labels.kind, num_classes=3 if kind == "multi" else None).fitted
    loaded = loading.open_model(artifact.save(LinearArtifact(model, labels), tmp_path / "model"))
    assert loaded.outputs(TEXTS) == pytest.approx(model.outputs(TEXTS), abs=5e-3 if name == "lsa" else 0)
    assert loaded.outputs([]).shape == ((0, 3) if kind == "multi" else (0,))
    if kind == "multi":
        assert (loaded.outputs(TEXTS)[:, 1:] == [1, 0]).all()


def test_a_layer_says_what_scikit_learn_says() -> None:
    generator = np.random.default_rng(0)
    for classes, sparse, dtype in ((2, False, np.float64), (3, True, np.float64), (4, False, np.float64)):
        features = generator.normal(size=(80, 7)).astype(dtype)
        targets = generator.integers(0, classes, 80) * 2
        rows: Any = csr_matrix(features) if sparse else features
        model = LogisticRegression(C=3).fit(rows, targets)
        got = Linear.of(model).probabilities(rows, 2 * classes)
        assert got[:, ::2] == pytest.approx(model.predict_proba(rows), abs=1e-12)
        assert (got[:, 1::2] == 0).all()
    ridge = Ridge(alpha=0.3).fit(features, targets)
    assert Linear.of(ridge).scores(features)[:, 0] == pytest.approx(ridge.predict(features), abs=1e-12)
    always = DummyClassifier().fit(features, np.full(80, 5))
    assert (Linear.of(always).probabilities(features, 7) == np.eye(7)[5]).all()


def test_a_layer_in_single_precision_says_what_scikit_learn_says() -> None:
    generator = np.random.default_rng(1)
    features = csr_matrix(generator.random((60, 9)).astype(np.float32))
    for classes in (2, 5):
        model = LogisticRegression().fit(features, np.arange(60) % classes)
        assert np.array_equal(Linear.of(model).probabilities(features, classes), model.predict_proba(features))


def test_a_co_training_classifier_leaves_its_pool_behind(fitted: dict[str, LinearArtifact]) -> None:
    state = fitted["co-training"].model.state()
    assert max(array.size for array in state.arrays.values()) < 300 * 6  # a row a text of the pool would be more
    assert not any("pool" in name for name in state.arrays)


def test_vectors_are_stored_in_half_precision(fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    for name, key in (("lsa", "space.components"), ("vectors", "space.vectors")):
        values = load_file(artifact.save(fitted[name], tmp_path / name) / "model.safetensors")
        assert values[key].dtype == np.float16
        assert values["output.0.coefficients"].dtype != np.float16


def test_anyone_can_read_the_folder(fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    folder = artifact.save(fitted["subwords"], tmp_path / "model")
    words = json.loads((folder / "space.words.json").read_text(encoding="utf-8"))
    assert len(words) == len(load_file(folder / "model.safetensors")["space.vectors"])
    assert textgraft.Tokenizer.load(folder / "space.tokenizer.json").encode(THAI[0]).tokens[1] in words
    assert json.loads((folder / "labels.json").read_text(encoding="utf-8"))["names"] == list(LABELS.names)
    assert json.loads((folder / "config.json").read_text())["linear"]["form"] == "space"
    assert all(path.suffix in (".json", ".safetensors", ".md") for path in folder.iterdir())


def test_the_card_says_what_it_is() -> None:
    run = {"name": "reviews", "stage": "finetune", "linear": "TF-IDF of 12 word 1-2-grams", "chosen": "Chosen: a | b"}
    card = model_card(run)
    assert card.startswith("# reviews\n\nA linear classifier")
    assert "TF-IDF of 12 word 1-2-grams.\n" in card
    assert "Chosen: a \\| b.\n" in card
    assert "neural network" not in model_card({"name": "reviews", "stage": "finetune"})
    weights = {"linear": {"weight": 0.4}, "lsa": {"weight": 0.6}, "ulmfit": {"weight": 0.0}}
    both = {"name": "reviews", "stage": "finetune", "ensemble": {"candidates": weights}}
    assert "weighted ensemble" in model_card(both)
    alone = both | {"ensemble": {"candidates": weights | {"linear": {"weight": 0.0}}}}
    assert "weighted ensemble" not in model_card(alone)


def test_words_that_utf8_cannot_hold(tmp_path: Path) -> None:
    texts = ["good \ud800x", "bad \udc00y"] * 4
    saved = LinearArtifact(LinearBaseline().fit(texts, np.array([1, 0] * 4)).fitted, Labels("single", ("no", "yes")))
    loaded = loading.open_model(artifact.save(saved, tmp_path / "model"))
    assert np.array_equal(loaded.outputs(texts), saved.outputs(texts))
    assert loaded.outputs(texts).argmax(1).tolist() == [1, 0] * 4


def test_a_temperature_scales_the_answers(fitted: dict[str, LinearArtifact]) -> None:
    plain = fitted["linear"]
    hot = LinearArtifact(plain.model, LABELS, {"temperature": 2.0})
    expected = np.sqrt(plain.outputs(TEXTS))
    assert hot.outputs(TEXTS) == pytest.approx(expected / expected.sum(1, keepdims=True), abs=1e-9)
    multi = Labels("multi", ("a",))
    p = np.array([[0.9], [0.5], [1.0], [0.0]])
    got = linear_artifact.scaled(p, multi, 2.0)[:, 0]
    assert got[:2] == pytest.approx([3 / 4, 0.5])
    assert got[2] > 0.9999
    assert got[3] < 0.0001
    assert linear_artifact.scaled(p, multi, None) is p


FILES = [
    "model.safetensors",
    "labels.json",
    "run.json",
    "config.json",
    "ngrams.0.words.json",
    "space0.ngrams.0.words.json",
    "space1.words.json",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "a folder"])
def test_damaged_files_are_named(name: str, damage: str, folder: Path) -> None:
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    match damage:
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "altered":
            changed = data.replace(b"0", b"1", 1) if name == "config.json" else data[:-2] + bytes([data[-2] ^ 1, 0])
            path.write_bytes(changed)
        case "a folder":
            path.mkdir()
    with pytest.raises(UserError) as caught:
        textgraft.load(folder)
    assert name in str(caught.value)
    if not (name == "config.json" and damage in ("missing", "a folder")):
        assert caught.value.where == str(path)
        assert "Restore the folder" in caught.value.remedy


def test_a_later_format(folder: Path) -> None:
    edit_config(folder, lambda config: config.update(format=2))
    with pytest.raises(UserError, match="this is format 2") as caught:
        textgraft.load(folder)
    assert "newer textgraft" in caught.value.remedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(linear=7), "'linear' is missing"),
        (lambda c: c["files"].pop("labels.json"), "'labels.json' is missing"),
        (lambda c: c["linear"].pop("form"), "form"),
        (lambda c: c["linear"].update(form="spce"), "unknown form 'spce'.*Did you mean 'space'"),
        (lambda c: c["linear"].update(form="space"), "not a linear model"),
        (lambda c: c["linear"].pop("settings"), "not a linear model"),
        (lambda c: c["linear"].update(documents=["x.json"]), "'x.json' is missing"),
        (lambda c: c["linear"]["documents"].remove("space1.words.json"), "words is missing"),
        (lambda c: c["linear"]["settings"].update(width=2), "not a linear model"),
        (lambda c: c["linear"]["settings"].update(width=True), "'width' is missing or not of type int"),
        (lambda c: c["linear"]["settings"].update(spaces=[]), "2 forms for 0 feature maps"),
        (lambda c: c["linear"]["settings"].update(forms=["lsa", "lda"]), "unknown feature map 'lda'"),
        (lambda c: c["linear"]["settings"]["ngrams"].update(kinds=["words"]), "unknown kinds of n-gram"),
    ],
)
def test_configs_that_describe_no_model(change: Callable[[dict[str, Any]], Any], message: str, folder: Path) -> None:
    edit_config(folder, change)
    with pytest.raises(UserError, match=message) as caught:
        textgraft.load(folder)
    assert caught.value.where == str(folder / "config.json")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale", np.ones(3, np.float32), r"scale is \(3,\), not \("),
        ("ngram_layer.classes", np.array([0, 1, 3]), "classes are not in 0..2"),
        ("ngram_layer.classes", np.array([0, 1, 1]), "not distinct integers"),
        ("layer0.coefficients", np.ones((3, 2)), r"coefficients is \(3, 2\), not \(3, 6\)"),
        ("space1.weights", np.ones(1), r"weights is \(1,\)"),
        ("space0.components", np.ones((6, 1)), "components is"),
        ("extra", np.ones(2), "unused: extra"),
        ("scale", None, "missing: scale"),
    ],
)
def test_values_that_do_not_fit(name: str, value: NDArray | None, message: str, folder: Path) -> None:
    values = load_file(folder / "model.safetensors") | {name: value}
    replace_file(folder, "model.safetensors", save({k: v for k, v in values.items() if v is not None}))
    with pytest.raises(UserError, match=message):
        textgraft.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "labels.json", "space1.words.json"])
@pytest.mark.parametrize("data", [b"{}", b"[", b'["a", "a"]'])
def test_foreign_files_are_refused(name: str, data: bytes, folder: Path) -> None:
    replace_file(folder, name, data)
    with pytest.raises(UserError):
        textgraft.load(folder)


def test_a_foreign_tokenizer_is_refused(fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    folder = artifact.save(fitted["subwords"], tmp_path / "model")
    replace_file(folder, "space.tokenizer.json", b"{}")
    with pytest.raises(UserError) as caught:
        textgraft.load(folder)
    assert caught.value.where == str(folder)


def writes(folder: Path) -> None:
    textgraft.generate(folder, ["a prompt"])


def answers_a_template(folder: Path) -> None:
    textgraft.prompt(folder, ["a text"], "sentiment")


@pytest.mark.parametrize("use", [loading.load_network, writes, answers_a_template, textgraft.Tagger, Stack.open])
def test_it_is_no_language_model(use: Callable[[Any], Any], fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    lone = artifact.save(fitted["lsa"], tmp_path / "lone")
    with pytest.raises(
        UserError,
        match=r"lone: this (is a linear classifier, not a network|model does not tag words: it classifies texts)",
    ):
        use([lone] if use == Stack.open else lone)
    both = save_ensemble({name: fitted[name] for name in ("linear", "lsa")}, {}, tmp_path / "both")
    with pytest.raises(
        UserError,
        match=r"both: this (is an ensemble of linear classifiers \(linear, lsa\)\. Use it|model does not tag words)",
    ):
        use([both] if use == Stack.open else both)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("one text", r"^texts: this is one text\. Pass a list of texts\.$"),
        (b"one text", "texts: this is one text"),
        (["a text", None], r"texts\[1\]: the text is missing, of type NoneType, not a string"),
        (["a text", float("nan")], r"texts\[1\]: the text is missing, of type float"),
        (["a text", 7], r"texts\[1\]: the text is of type int, not a string"),
        ([("a", None)], r"texts\[0\]: text 2 of the pair is missing"),
    ],
)
@pytest.mark.parametrize("ensemble", [False, True])
def test_what_is_no_list_of_texts_is_refused(
    given: Any, message: str, ensemble: bool, fitted: dict[str, LinearArtifact], tmp_path: Path
) -> None:
    members = {name: fitted[name] for name in ("lsa", "vectors")}
    folder = save_ensemble(members, {}, tmp_path / "m") if ensemble else artifact.save(fitted["lsa"], tmp_path / "m")
    model = textgraft.load(folder)
    for ask in (
        lambda: list(model.predict(given)),
        lambda: model.outputs(given),
        lambda: model.embed(given),
        lambda: list(textgraft.explain(model, given)),
        lambda: textgraft.embed(folder, given),
        lambda: list(textgraft.embed_stream(folder, given)),
    ):
        with pytest.raises(UserError, match=message):
            ask()
    if isinstance(given, str):
        with pytest.raises(UserError, match=message):
            model.predict(given)  # at once, and not with the first answer that somebody takes


def test_a_stream_says_which_of_its_texts_is_none(fitted: dict[str, LinearArtifact]) -> None:
    answers = Classifier([fitted["lsa"]]).predict(text if n < 3000 else None for n, text in enumerate(["a"] * 3001))
    with pytest.raises(UserError, match=r"texts\[3000\]: the text is missing"):
        list(answers)


def test_an_ensemble_weighs_its_members(fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    members = {name: fitted[name] for name in ("linear", "one class")}
    folder = save_ensemble(members, {"name": "both"}, tmp_path / "both", weights=[3, 1])
    answers = [fitted[name].outputs(TEXTS) for name in members]
    assert textgraft.load(folder).outputs(TEXTS) == pytest.approx(0.75 * answers[0] + 0.25 * answers[1])
    equal = save_ensemble(members, {"name": "both"}, tmp_path / "equal")
    assert np.array_equal(textgraft.load(equal).outputs(TEXTS), np.mean(answers, axis=0))
    # Three models in two folders: each counts for one, and inside a folder as its weights say.
    lone = artifact.save(fitted["two of three classes"], tmp_path / "lone")
    third = fitted["two of three classes"].outputs(TEXTS)
    together = textgraft.load(folder, lone).outputs(TEXTS)
    assert together == pytest.approx((1.5 * answers[0] + 0.5 * answers[1] + third) / 3)


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, -1], [1, "2"], [1, None], [1, float("nan")], "ab", {}])
def test_weights_that_are_none(weights: Any, fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    members = {name: fitted[name] for name in ("linear", "one class")}
    folder = save_ensemble(members, {}, tmp_path / "both", weights=[3, 1])
    edit_config(folder, lambda config: config.update(weights=weights))
    with pytest.raises(UserError, match="a positive weight each") as caught:
        textgraft.load(folder)
    assert caught.value.where == str(folder / "config.json")


def test_saving_the_same_ensemble_again_replaces_it(fitted: dict[str, LinearArtifact], tmp_path: Path) -> None:
    members = {name: fitted[name] for name in ("linear", "lsa")}
    folder = save_ensemble(members, {}, tmp_path / "both")
    save_ensemble(members, {}, folder)
    with pytest.raises(UserError, match="exists already"):
        save_ensemble(members | {"lsa": fitted["vectors"]}, {}, folder)


def test_embedding_is_the_place_in_the_space(fitted: dict[str, LinearArtifact], folder: Path, tmp_path: Path) -> None:
    vectors = textgraft.embed(folder, TEXTS)
    assert np.array_equal(textgraft.embed(folder, TEXTS, layers="first"), vectors)  # it has no layers
    assert vectors.shape == (len(TEXTS), 12)
    assert vectors.dtype == np.float32
    lsa, linear = fitted["lsa"], fitted["linear"]
    assert np.array_equal(Classifier([linear, lsa]).embed(TEXTS), lsa.embed(TEXTS))
    lone = artifact.save(linear, tmp_path / "linear")
    with pytest.raises(UserError, match="counts n-grams and has no text vectors"):
        textgraft.embed(lone, TEXTS)


def test_it_predicts_and_is_evaluated_like_any_classifier(folder: Path) -> None:
    texts, targets = reviews(30, 8)
    names = [LABELS.names[t] for t in targets]
    predicted = list(textgraft.predict(folder, texts))
    right = np.mean([one.label == name for one, name in zip(predicted, names, strict=True)])
    assert right > 0.8
    assert predicted[0].probabilities is not None
    assert predicted[0].confidence == max(predicted[0].probabilities.values())
    assert textgraft.evaluate(folder, (texts, names))["metrics"]["accuracy"] == pytest.approx(right)


def test_a_state_gives_back_its_parts() -> None:
    inner = State({"a": 1}, {"x": np.ones(2)}, {"words": ["b"]})
    outer = State({"own": True}).with_parts({"first": inner, "second": State().with_parts({"inner": inner})})
    assert outer.part("first") == inner
    assert outer.part("second").part("inner").word_list("words") == ["b"]
    with pytest.raises(ValueError, match="'third' is missing"):
        outer.part("third")
