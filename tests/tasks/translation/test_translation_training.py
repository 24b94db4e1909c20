"""A translator learned whole: it translates, looks where it should, resumes to the bit, and its encoder is CoVe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_translations import LEXICON, pairs, translated, write_translation_recipe

import textgraft
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.parallel import Parallel
from textgraft.generation.decoding import GenerateOptions, Tokens, continue_from, search
from textgraft.heads.translation import BEGIN, END
from textgraft.models import artifact, loading
from textgraft.nn.attention_scores import REACHES, SCORES
from textgraft.tasks.translation import train as stage
from textgraft.tasks.translation.predictor import NEVER, Translator, _Decoder
from textgraft.tasks.translation.train import CoVeOptions, cove_train, load_translation_recipe
from textgraft.training.loop import Run
from textgraft.training.recipes import RECIPE_FOLDERS, recipe_names
from textgraft.training.settings import Settings

pytestmark = pytest.mark.slow

TRAIN, VALID = pairs(400, 1), pairs(40, 2)
FEW = pairs(60, 1)
SETTINGS = Settings(precision="fp32")


def options(folder: Path, epochs: float, **more: Any) -> CoVeOptions:
    recipe = str(write_translation_recipe(folder, epochs))
    return CoVeOptions(**{"recipe": recipe, "bleu": False, "settings": SETTINGS, **more})


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator that has learned."""
    folder = tmp_path_factory.mktemp("learned")
    cove_train(TRAIN, folder / "cove", valid=VALID, options=options(folder, 12), context=QUIET)
    return folder / "cove"


@pytest.fixture(scope="module")
def translator(learned: Path) -> Translator:
    return Translator(learned, precision="fp32")


def test_it_translates_sentences_it_has_not_read(translator: Translator) -> None:
    for beams in (1, 3):
        found = translator.translate(VALID.source, beams=beams)
        right = sum(a == b for a, b in zip(found, VALID.target, strict=True))
        assert right >= 0.9 * len(VALID), found[:5]


def test_it_looks_at_the_word_it_translates(translator: Translator) -> None:
    """In reverse order: the first word written is the last one read."""
    hits = total = 0
    for source in VALID.source:
        found = translator.align(source, translated(source))
        assert found.weights.shape == (len(found.target), len(found.source))
        np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-5)
        for word, weights in zip(found.target[:-1], found.weights[:-1], strict=True):
            hits += LEXICON.get(found.source[int(weights.argmax())]) == word
            total += 1
    assert hits > 0.6 * total
    assert translator.align("red dog").to_dict()["target"][-1] == "xxeos"


def test_the_record_says_what_was_learned_from(learned: Path) -> None:
    run = json.loads((learned / "run.json").read_text())
    assert run["data"] == {
        "pairs": 400,
        "held out": 40,
        "files": ["", ""],
        "left out, blank": 0,
        "left out, too long": 0,
    }
    assert run["held_out"]["after"]["loss"] == pytest.approx(min(row["loss"] for row in run["history"]), rel=1e-5)
    assert run["held_out"]["after"]["perplexity"] < 1.5
    assert "A translation model" in (learned / "README.md").read_text()
    assert not learned.with_name("cove.run").exists()


def test_a_sentence_is_translated_alike_alone_and_among_others(translator: Translator) -> None:
    texts = ["", *VALID.source[:9], "   "]
    together = translator.translate(texts)
    assert [together[0], together[-1]] == ["", ""]
    assert together[1:-1] == [translator.translate([text])[0] for text in texts[1:-1]]
    endless = translator.stream(f"{text}" for text in iter(lambda: "red dog", None))
    assert list(islice(endless, 2)) == translator.translate(["red dog"] * 2)


def test_beams_find_what_looking_at_everything_does(translator: Translator) -> None:
    """One beam a word of the vocabulary and two words: nothing is lost, so all continuations are compared."""
    ids = translator.tokenizer.encode_batch(["old cat"])
    size = translator.target.vocab_size
    everything = GenerateOptions(max_tokens=2, beams=size)
    tokens = Tokens(ends=frozenset([END]), never=NEVER)
    with torch.no_grad():
        found = search(_Decoder(translator.model, ids, 1, "fp32"), [[BEGIN]], [2], everything, tokens)[0]
        best = -np.inf
        first = _Decoder(translator.model, ids, 1, "fp32").next_logits().log_softmax(1)[0]
        best = max(best, float(first[END]))
        for word in range(size):
            if word in NEVER or word == END:
                continue
            reader = _Decoder(translator.model, ids, 1, "fp32")
            reader.add([word], [0])
            second = reader.next_logits().log_softmax(1)[0]
            second[list(NEVER)] = -np.inf
            best = max(best, float(first[word] + second.max()) / 2)
    assert found.log_probability / len(found.ids) == pytest.approx(best, rel=1e-4)


def test_greedy_takes_the_likeliest_word_each_time(translator: Translator) -> None:
    ids = translator.tokenizer.encode_batch(list(VALID.source[:3]))
    tokens = Tokens(ends=frozenset([END]), never=NEVER)
    with torch.no_grad():
        reader = _Decoder(translator.model, ids, 1, "fp32")
        written = list(continue_from(reader, [[BEGIN]] * 3, [20] * 3, GenerateOptions(), tokens))
        for row in range(3):
            alone = _Decoder(translator.model, ids[row : row + 1], 1, "fp32")
            for one in (w for w in written if w.row == row):
                assert one.token == int(alone.next_logits()[0].argmax())
                alone.add([one.token], [0])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_loss_is_a_mean_over_words_whatever_the_batches(
    translator: Translator, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Translator(translator.artifact, precision=precision).loss(VALID)
    monkeypatch.setattr("textgraft.tasks.translation.predictor.ROWS", 3)
    assert Translator(translator.artifact, precision=precision).loss(VALID)["loss"] == pytest.approx(
        whole["loss"], rel=2e-2 if precision == "bf16" else 1e-5
    )
    assert not translator.model.training


def test_a_killed_run_goes_on_and_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = options(tmp_path, 2)
    cove_train(FEW, tmp_path / "whole", valid=VALID, options=asked, context=QUIET)
    steps = Run.steps

    def cut(run: Run, *given: Any) -> Any:
        for number, step in enumerate(steps(run, *given)):
            yield step
            if number == 4:
                run.save(tmp_path / "killed.run" / "checkpoint.safetensors")
                raise KeyboardInterrupt

    monkeypatch.setattr(Run, "steps", cut)
    with pytest.raises(KeyboardInterrupt):
        cove_train(FEW, tmp_path / "killed", valid=VALID, options=asked, context=QUIET)
    monkeypatch.setattr(Run, "steps", steps)
    assert (tmp_path / "killed.run" / "checkpoint.safetensors").exists()
    with pytest.raises(UserError, match="an unfinished run is here that differs in: train"):
        cove_train(VALID, tmp_path / "killed", valid=VALID, options=asked, context=QUIET)
    with pytest.raises(
        UserError, match=r"differs in: recipe\.model\.embedding_dim, vectors\."
    ):  # whose width is the table's
        cove_train(FEW, tmp_path / "killed", valid=VALID, vectors=Vectors(), options=asked, context=QUIET)
    cove_train(FEW, tmp_path / "killed", valid=VALID, options=asked, context=QUIET)
    for name in ("model.safetensors", "tokenizer.json", artifact.TARGET):
        whole, killed = ((tmp_path / folder / name).read_bytes() for folder in ("whole", "killed"))
        assert whole == killed, name


@pytest.mark.parametrize(("score", "reach"), [(s, "global") for s in SCORES] + [("dot", r) for r in REACHES])
def test_every_attention_trains(score: str, reach: str, tmp_path: Path) -> None:
    asked = options(tmp_path, 1, score=score, reach=reach)
    record = cove_train(FEW, tmp_path / "cove", options=asked, context=QUIET)
    made = loading.load_network(tmp_path / "cove").model.head.config
    assert (made.score, made.reach) == (score, reach)
    assert record["held_out"]["pairs"] == 1
    assert record["held_out"]["after"]["loss"] < 4


class Vectors:
    """Vectors of two words, five wide."""

    dimensions = 5
    words: tuple[str, ...] = ("dog", "cat")

    def place(self, word: str) -> int | None:
        return {"dog": 0, "cat": 1, "zebra": 6, "yak": 7}.get(word)

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        return np.stack([np.full(5, 1.0 + self.place(word)) for word in words])


def frozen_recipe(folder: Path) -> str:
    path = folder / "frozen.toml"
    path.write_text(write_translation_recipe(folder, 1).read_text() + "trainable = 3\n")
    return str(path)


def test_a_table_from_vectors_stays_as_it_was_where_the_recipe_freezes_it(tmp_path: Path) -> None:
    asked = options(tmp_path, 1, recipe=frozen_recipe(tmp_path))
    record = cove_train(FEW, tmp_path / "cove", vectors=Vectors(), options=asked, context=QUIET)
    made = loading.load_network(tmp_path / "cove")
    table = dict(zip(made.tokenizer.tokens, made.model.encoder.embedding.weight.tolist(), strict=True))
    assert table["dog"] == [1.0] * 5
    assert table["cat"] == [2.0] * 5
    assert record["vectors"] == {"dimensions": 5, "found": 2, "not_found": len(table) - 2}


def test_a_table_that_stays_as_given_has_words_that_no_pair_has(tmp_path: Path) -> None:
    """Most frequent first, as many as there is room for; where the table trains, only what it can learn is in it."""
    given = Vectors()
    given.words = ("dog", "zebra", "yak", "cat")
    asked = options(tmp_path, 1, recipe=frozen_recipe(tmp_path))
    cove_train(FEW, tmp_path / "roomy", vectors=given, options=asked, context=QUIET)
    made = loading.load_network(tmp_path / "roomy")
    table = dict(zip(made.tokenizer.tokens, made.model.encoder.embedding.weight.tolist(), strict=True))
    assert (table["zebra"], table["yak"], table["dog"]) == ([7.0] * 5, [8.0] * 5, [1.0] * 5)
    size = made.tokenizer.vocab_size - 1
    text = Path(asked.recipe).read_text().replace("[tokenizer]\n", f"[tokenizer]\nvocab_size = {size}\n")
    Path(asked.recipe).write_text(text)
    cove_train(FEW, tmp_path / "tight", vectors=given, options=asked, context=QUIET)
    assert set(made.tokenizer.tokens) - set(loading.load_network(tmp_path / "tight").tokenizer.tokens) == {"yak"}
    trains = options(tmp_path, 1)
    cove_train(FEW, tmp_path / "trained", vectors=given, options=trains, context=QUIET)
    assert not {"zebra", "yak"} & set(loading.load_network(tmp_path / "trained").tokenizer.tokens)


def test_a_frozen_table_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no vectors to initialize it"):
        cove_train(FEW, tmp_path / "cove", options=options(tmp_path, 1, recipe=frozen_recipe(tmp_path)), context=QUIET)
    assert list(tmp_path.glob("cove*")) == []


def test_long_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    long = Parallel.of([*FEW.source, "red " + "dog cat " * 30], [*FEW.target, "x"])
    record = cove_train(long, tmp_path / "a", valid=VALID, options=options(tmp_path, 0.5, max_tokens=20), context=QUIET)
    assert (record["data"]["pairs"], record["data"]["left out, too long"]) == (60, 1)
    with pytest.raises(UserError, match="no pair has 2 tokens"):
        cove_train(FEW, tmp_path / "b", valid=VALID, options=options(tmp_path, 0.5, max_tokens=2), context=QUIET)
    # Of a vocabulary that has met nothing twice, every sentence is still read, and translated to something.
    assert isinstance(Translator(tmp_path / "a").translate(["unknown words only"])[0], str)


def test_bleu_is_missed_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(UserError, match="sacrebleu, which is not installed") as refused:
        cove_train(FEW, tmp_path / "cove", options=options(tmp_path, 1, bleu=True), context=QUIET)
    assert "textgraft[translate]" in refused.value.remedy
    assert list(tmp_path.glob("cove*")) == []


def test_bleu_stands_in_the_record(tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    record = cove_train(FEW, tmp_path / "cove", valid=VALID, options=options(tmp_path, 1, bleu=True), context=QUIET)
    bleu = record["held_out"]["after"]["bleu"]
    assert 0 <= bleu["low"] <= bleu["mean"] <= bleu["high"] <= 100
    assert bleu["mean"] == Translator(tmp_path / "cove", precision="fp32").evaluate(VALID)["bleu"]["mean"]


@pytest.mark.parametrize("name", recipe_names("cove"))
def test_recipes_that_ship_describe_translators(name: str) -> None:
    recipe = load_translation_recipe(name)
    assert recipe.name == name
    small = name == "en-cove-small"
    assert (recipe.model["hidden_dim"], recipe.head["hidden_dim"]) == ((200, 320) if small else (300, 600))
    with torch.device("meta"):
        groups = stage.new_translator(recipe, (100, 100), seed=0).layer_groups()
    assert [group.name for group in groups] == ["embedding", "layer 1", "layer 2", "head"]
    assert (recipe.stage.phases[0].rates(4)[0] is None) == (name != "multi30k")


def test_three_recipes_ship() -> None:
    assert {"multi30k", "fixed-words", "en-cove-small"} <= set(recipe_names("cove"))
    assert any((folder / "cove").is_dir() for folder in RECIPE_FOLDERS)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[tokenizer]\nmin_frequency", "[tokenizer]\nkind", "unknown key 'kind'"),
        ("hidden_dim = 16", "hidden_dims = 16", "not the recipe of a translator"),
        ("num_layers = 1", 'score = "genral"', "Did you mean 'general'"),
        ("num_layers = 1", 'score = "dot"\nhidden_dim = 31', "not a TOML file"),
        ("batch_size = 16", "batch_size = 16\nauxiliary_lm_weight = 0.5", "auxiliary loss is for classifiers"),
        ("epochs = 1", "epochs = 1\nonly = 9", "only layer group 9"),
    ],
)
def test_recipes_that_describe_none(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write_translation_recipe(tmp_path, 1)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as refused:
        load_translation_recipe(str(path))
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_score_that_does_not_go_with_the_recipe_is_refused_before_any_work(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(write_translation_recipe(tmp_path, 1).read_text().replace("hidden_dim = 32", "hidden_dim = 31"))
    with pytest.raises(UserError, match="width 31 with positions of width 32"):
        cove_train(FEW, tmp_path / "cove", options=options(tmp_path, 1, recipe=str(path), score="dot"), context=QUIET)
    assert list(tmp_path.glob("cove*")) == []


def test_only_a_translator_translates(tiny_lm: Path) -> None:
    with pytest.raises(UserError, match="does not translate"):
        Translator(tiny_lm)


def test_a_copy_translates_and_one_without_its_second_vocabulary_is_refused(learned: Path, tmp_path: Path) -> None:
    loaded = loading.load_network(learned)
    copy = artifact.save(loaded, tmp_path / "copy")
    assert Translator(copy, precision="fp32").translate(["red dog"]) == ["hund rot"]
    for wrong in (None, textgraft.Tokenizer.train(["other words"], kind="word", min_frequency=1)):
        with pytest.raises(UserError, match=f"{artifact.TARGET} is missing, or another model's"):
            Translator(artifact.save(replace(loaded, target=wrong), tmp_path / str(wrong is None)))


def test_a_damaged_target_vocabulary_is_named(learned: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cove"
    folder.mkdir()
    for file in learned.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    path = folder / artifact.TARGET
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=artifact.TARGET):
        Translator(folder)
    path.unlink()
    with pytest.raises(UserError, match="missing"):
        Translator(folder)


def test_blank_sentences_are_not_aligned(translator: Translator) -> None:
    for source, target in (("  ", None), ("red dog", " ")):
        with pytest.raises(UserError, match="no words to align"):
            translator.align(source, target)


def test_what_is_no_list_of_sentences_is_not_translated(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"this is one text\. Pass a list of texts"):
        translator.stream("red dog")
    with pytest.raises(UserError, match=r"texts\[1\]: the text is missing"):
        translator.translate(["red dog", None])


def test_out_of_range() -> None:
    with pytest.raises(UserError, match="max_tokens is 1"):
        CoVeOptions(max_tokens=1)
    with pytest.raises(UserError, match="beams"):
        GenerateOptions(beams=0)


def test_what_is_learned_does_not_depend_on_bleu() -> None:
    """Asked without it, a run that was killed while sacrebleu was missing goes on."""
    assert CoVeOptions(bleu=True).identity() == CoVeOptions(bleu=False).identity()
    assert changed_keys(CoVeOptions(score="dot").identity(), CoVeOptions().identity()) == ["score"]


def test_a_classifier_and_a_tagger_are_made_from_it(learned: Path, tmp_path: Path) -> None:
    """By the usual stages, which leave the decoder behind."""
    from textgraft.data.conll import Sentence, Tagged
    from textgraft.tasks.classification.finetune_options import FinetuneOptions

    texts = list(TRAIN.source[:60])
    labels = ["dog" if "dog" in text else "none" for text in texts]
    recipe = tmp_path / "quick.toml"
    recipe.write_text(
        'name = "q"\ndescription = "d"\nsource = "s"\n[finetune]\nbatch_size = 8\n'
        '[[finetune.phases]]\nname = "all"\nepochs = 3\nlr = 0.01\n'
    )
    asked = FinetuneOptions(recipe=str(recipe), baselines=False, settings=SETTINGS)
    data = textgraft.read((texts, labels))
    textgraft.finetune(data, tmp_path / "classifier", model=learned, options=asked, context=QUIET)
    made = loading.load_network(tmp_path / "classifier")
    assert made.model.describe()["encoder"]["name"] == "cove"
    assert not (tmp_path / "classifier" / artifact.TARGET).exists()
    sentences = [Sentence.of(t.split(), ["A" if w in ("red", "old") else "N" for w in t.split()]) for t in texts]
    tag_options = textgraft.TagOptions(recipe=str(recipe), baseline=False, settings=SETTINGS)
    done = textgraft.tag_finetune(
        Tagged(tuple(sentences), "plain", "made up"),
        tmp_path / "tagger",
        model=learned,
        options=tag_options,
        context=QUIET,
    )
    assert done.scores["tagger"].headline.value > 0.9
    assert textgraft.embed(learned, texts[:2]).shape == (2, 16 + 32)
