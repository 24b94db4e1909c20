"""ELMo through the stages: pretrained by recipe, adapted, published ones given words to predict, tasks on top of it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_questions import questions, write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences
from programs import call

from textgraft import Settings, TextClassifier, Tokenizer, UserError, adapt, convert, distil, generate, pretrain
from textgraft.core.context import QUIET
from textgraft.data.batch import Batch
from textgraft.data.squad import parse_squad
from textgraft.data.streams.base import BothEndsStream
from textgraft.data.streams.shards import Corpus
from textgraft.data.windows import WindowSettings
from textgraft.models.loading import load_network
from textgraft.models.model import build
from textgraft.tasks.language_modeling.adapt import held_out
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, load_pretrain_recipe, new_language_model
from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
from textgraft.tasks.tagging.finetune import TagOptions, tag_finetune
from textgraft.text.character_encoding import MARKS, CharacterEncodingTokenizer, train
from textgraft.training.loop import Run
from textgraft.training.objectives import OBJECTIVES
from textgraft.training.perplexity import bidirectional_validator
from textgraft.training.phases import Phase, Stage

pytestmark = pytest.mark.slow

RECIPE = """
name = "tiny-elmo"
description = "For tests"
language = "en"
licence = "none"
start_from_counts = true

[tokenizer]
kind = "word"
model = "spelling"
vocab_size = 200
min_frequency = 1

[model]
name = "elmo"
character_dim = 4
filters = [[1, 8], [2, 8], [3, 16]]
num_highways = 1
projection_dim = 12
hidden_dim = 24
hidden_dropout = 0.0

[head]
name = "bidirectional_language_model"
input_dim = 24
output_dropout = 0.0

[stage]
batch_size = 8
bptt = 12

[[stage.phases]]
name = "pretrain"
epochs = 6
lr = 0.02
"""
FP32 = Settings(precision="fp32")


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    (folder / "elmo.toml").write_text(RECIPE)
    (folder / "pool.txt").write_text("\n".join(reviews(400)[0]))
    return pretrain(
        [folder / "pool.txt"], folder / "lm", options=PretrainOptions(recipe=str(folder / "elmo.toml")), context=QUIET
    )


def test_learns_both_directions_and_says_how_well(elmo: Path) -> None:
    made = load_network(elmo)
    assert isinstance(made.tokenizer, CharacterEncodingTokenizer)
    after = made.run["held_out"]["after"]
    assert 1 < after["perplexity_forward"] < 0.8 * made.tokenizer.vocab_size
    assert 1 < after["perplexity_backward"] < 0.8 * made.tokenizer.vocab_size
    mean = math.sqrt(after["perplexity_forward"] * after["perplexity_backward"])
    assert after["perplexity"] == pytest.approx(mean) == pytest.approx(math.exp(after["loss"]))
    assert made.embed(["the film", "a completely unheard-of wordling"]).shape == (2, 24)
    with pytest.raises(UserError, match="left"):
        generate(made, ["the film"])


def test_adapts_and_a_classifier_grows_on_it(elmo: Path, tmp_path: Path) -> None:
    texts, labels = reviews(60, 7)
    praise = [f"{text} and the sequel was the best of all" for text in reviews(200, 8)[0]]
    out = adapt(praise, out=tmp_path / "domain", model=elmo, recipe="full", context=QUIET)
    scores = load_network(out).run["held_out"]
    for name in ("perplexity", "perplexity_forward", "perplexity_backward"):
        assert scores["after"][name] < scores["before"][name]
    classifier = TextClassifier(model=str(out), adapt=False).fit(texts, labels)
    assert classifier.score(texts, labels) > 0.7


def test_words_of_the_texts_are_learned_if_asked(elmo: Path, tmp_path: Path) -> None:
    praise = [f"{text} and the sequel was the best of all" for text in reviews(200, 8)[0]]
    made = load_network(
        adapt(praise, out=tmp_path / "domain", model=elmo, recipe="full", own_vocabulary=True, context=QUIET)
    )
    assert {"sequel", "best"} <= set(made.tokenizer.tokens)
    assert not {"sequel", "best"} & set(load_network(elmo).tokenizer.tokens)
    assert made.model.values()["head.output.weight"].shape == (made.tokenizer.vocab_size, 12)


def test_a_published_model_is_adapted_under_a_softmax_of_the_texts(elmo: Path, tmp_path: Path) -> None:
    """Its files have no words to predict; it takes those of the texts, and its encoder learns from where it was."""
    pytest.importorskip("h5py")
    convert(elmo, tmp_path / "theirs", to="elmo")
    name = f"elmo:{tmp_path / 'theirs'}"
    assert load_network(name).tokenizer.tokens == list(MARKS)
    texts = reviews(200, 8)[0]
    made = load_network(adapt(texts, out=tmp_path / "adapted", model=name, recipe="full", context=QUIET))
    assert set(load_network(elmo).tokenizer.tokens) - set(made.tokenizer.tokens) == set()
    scores = made.run["held_out"]
    assert scores["after"]["perplexity"] < scores["before"]["perplexity"] < 1.2 * made.tokenizer.vocab_size
    convert(tmp_path / "adapted", tmp_path / "again", to="elmo")
    again = load_network(f"elmo:{tmp_path / 'again'}")
    np.testing.assert_allclose(again.embed(texts[:2]), made.embed(texts[:2]), atol=1e-5)


@pytest.mark.slow
def test_reads_questions_and_tags(elmo: Path, tmp_path: Path) -> None:
    recipe = str(write_recipe(tmp_path, 12))
    asked = TagOptions(recipe=recipe, settings=FP32)
    tagged = tag_finetune(
        sentences(120, 1), tmp_path / "tagger", model=elmo, test=sentences(30, 2), options=asked, context=QUIET
    )
    assert tagged.record["results"]["methods"]["tagger"]["accuracy"]["mean"] > 0.8
    windows = WindowSettings(max_tokens=24, stride=6)
    answered = qa_finetune(
        parse_squad(questions(60, 1)),
        tmp_path / "reader",
        model=elmo,
        test=parse_squad(questions(20, 2)),
        options=QAOptions(recipe=recipe, windows=windows, settings=FP32),
        context=QUIET,
    )
    assert answered.record["results"]["methods"]["QA model"]["f1"]["mean"] > 0.3


def test_it_teaches_no_language_model(elmo: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two words at every position"):
        distil(str(elmo), reviews(40, 3)[0], tmp_path / "student", context=QUIET)


def test_by_the_command_line(elmo: Path, tmp_path: Path) -> None:
    texts = elmo.parent / "pool.txt"
    done = call("adapt", texts, "--model", elmo, "--recipe", "full", "--out", tmp_path / "out", "--json")
    after = done.json()["held_out"]["after"]
    assert after["perplexity_forward"] > 1
    assert after["perplexity_backward"] > 1


TEXTS = ["one two three four five six seven", "eight nine ten eleven twelve"] * 30


def corpus() -> tuple[CharacterEncodingTokenizer, Corpus]:
    tokenizer = train(TEXTS, min_frequency=1)
    ids = tokenizer.corpus_ids(TEXTS)
    return tokenizer, Corpus.from_ids(ids, tokenizer, words=360, characters=1830)


@pytest.mark.parametrize("variable", [True, False])
def test_both_ends_meet_every_token_with_its_neighbour(variable: bool) -> None:
    """Joined in reading order, the windows are the contiguous streams from either end; targets the next and the
    previous word.
    """
    tokenizer, text = corpus()
    settings: dict[str, Any] = {"rows": 3, "bptt": 10, "shuffle": False, "variable": variable, "seed": 1}
    stream = BothEndsStream(text, tokenizer.character_ids, **settings)
    batches = list(stream.batches(0))
    assert len(batches) == stream.length(0) > 5
    number = {row.tobytes(): i for i, row in enumerate(tokenizer.character_ids.astype(np.int64))}

    def words(batch: Batch, ids: torch.Tensor | None) -> torch.Tensor:
        assert batch.character_ids is not None
        assert ids is not None
        assert int(ids.min()) > 0
        return torch.tensor([[number[batch.character_ids[i].numpy().tobytes()] for i in row] for row in ids])

    from_left = torch.cat([words(b, b.ids) for b in batches], dim=1)
    from_right = torch.cat([words(b, b.from_right) for b in batches[::-1]], dim=1)
    targets = torch.cat([b.targets for b in batches if b.targets is not None], dim=1)
    previous = torch.cat([b.targets for b in batches[::-1] if b.targets is not None], dim=1)[:, :, 1]
    whole = torch.from_numpy(text.read(0, text.num_tokens).astype(np.int64))
    for row in range(3):
        stream_length = whole[row * stream.stream_length : (row + 1) * stream.stream_length + 1]
        assert torch.equal(from_left[row], stream_length[:-1])
        assert torch.equal(targets[row, :, 0], stream_length[1:])
        assert torch.equal(from_right[row], stream_length[1:])
        assert torch.equal(previous[row], stream_length[:-1])
    later = list(stream.batches(0, 3))
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(later, batches[3:], strict=True))


def tiny(tokenizer: CharacterEncodingTokenizer, **head: Any) -> Any:
    encoder = {"name": "elmo", "character_dim": 3, "filters": [[1, 4], [2, 4]], "projection_dim": 4, "hidden_dim": 6}
    above = {"name": "bidirectional_language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 8, **head}
    torch.manual_seed(0)
    return build({"encoder": encoder, "head": above})


def test_states_carried_from_both_ends_equal_one_long_window() -> None:
    """Both perplexities of windows with their states are those of each lane read whole, from either end."""
    tokenizer, text = corpus()
    model = tiny(tokenizer).eval()
    with torch.no_grad():
        found = bidirectional_validator(text, tokenizer.character_ids, rows=3, window=7)(model)
        contiguous_streams = BothEndsStream(
            text, tokenizer.character_ids, rows=3, bptt=7, variable=False, shuffle=False
        )
        nats = torch.zeros(2)
        for row in range(3):
            ids = text.read(
                row * contiguous_streams.stream_length, (row + 1) * contiguous_streams.stream_length + 1
            ).astype(np.int64)
            spelled = torch.from_numpy(tokenizer.character_ids[ids].astype(np.int64))
            places = torch.arange(len(ids))[None]
            log_p = model.head(model.encoder(Batch(places, torch.ones_like(places).bool(), character_ids=spelled)))[0]
            after, before = torch.from_numpy(ids[1:]), torch.from_numpy(ids[:-1])
            nats[0] -= log_p[:-1, 0].gather(1, after[:, None]).sum()
            nats[1] -= log_p[1:, 1].gather(1, before[:, None]).sum()
    expected = (nats / (3 * contiguous_streams.stream_length)).exp()
    assert found["perplexity_forward"] == pytest.approx(float(expected[0]), rel=1e-4)
    assert found["perplexity_backward"] == pytest.approx(float(expected[1]), rel=1e-4)


def test_sampled_in_training_and_exact_otherwise() -> None:
    """With a sample as large as the vocabulary training has the exact loss; both directions share the table."""
    tokenizer, text = corpus()
    stream = OBJECTIVES["bidirectional_language_model"].stream(tiny(tokenizer), text, tokenizer, Stage(batch_size=2), 0)
    batch = next(stream.batches(0))
    exact = tiny(tokenizer, output_layer="full").eval()
    sampled = tiny(tokenizer, output_layer="sampled", output_dropout=0.0)
    sampled.encoder.config = replace(sampled.encoder.config, hidden_dropout=0.0)
    expected = exact.loss(batch)
    assert expected.count == 2 * batch.ids.numel() == expected.parts["forward"] + expected.parts["backward"]
    for training in (True, False):
        torch.testing.assert_close(sampled.train(training).loss(batch).total, expected.total)
    assert expected.parts["nll"] == pytest.approx(expected.parts["forward_nll"] + expected.parts["backward_nll"])
    assert {name for name in exact.values() if name.startswith("head")} == {"head.output.weight", "head.output.bias"}


def test_resumed_in_the_midst_of_a_text_with_its_states(tmp_path: Path) -> None:
    texts = reviews(100)[0]
    tokenizer = train(texts, min_frequency=1)
    learned, _ = held_out(texts, tokenizer)

    def new_run() -> Run:
        stream = BothEndsStream(learned, tokenizer.character_ids, rows=4, bptt=10)
        return Run(tiny(tokenizer), [Phase("all", 0.2, 0.01)], stream, FP32)

    whole = new_run()
    total = sum(1 for _ in whole.steps())
    begun = new_run()
    for _ in islice(begun.steps(), 4):
        pass
    begun.save(tmp_path / "checkpoint.safetensors")
    resumed = new_run()
    assert resumed.resume(tmp_path / "checkpoint.safetensors")
    assert resumed.state is not None
    assert [tuple(part.shape) for part in resumed.state[0]] == [(4, 4), (4, 6)] * 2
    assert sum(1 for _ in resumed.steps()) == total - 4 > 2
    assert all(torch.equal(value, whole.model.values()[name]) for name, value in resumed.model.values().items())


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('model = "spelling"\n', "", "takes character-encoded words"),
        ('name = "elmo"', 'name = "elmo"\nembedding_dim = 3', "unknown setting"),
        ("input_dim = 24", "input_dim = 23", "23 is odd"),
        ("input_dim = 24", 'input_dim = 24\noutput_layer = "smpled"', "sampled"),
        ("filters = [[1, 8], [2, 8], [3, 16]]", "filters = []", "not filters"),
        ("licence =", "token_vectors = 1000\nlicence =", "no token table"),
    ],
)
def test_recipes_that_describe_no_model(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(RECIPE.replace(old, new))
    with pytest.raises(UserError, match=complaint) as raised:
        load_pretrain_recipe(str(tmp_path / "wrong.toml"))
    assert raised.value.where


def test_a_tokenizer_of_another_kind_is_refused(elmo: Path, tiny_recipe: Path, tmp_path: Path) -> None:
    """Whichever of the two is wrong."""
    pool, spelled = elmo.parent / "pool.txt", elmo / "tokenizer.json"
    with pytest.raises(UserError, match="takes token ids"):
        pretrain(
            [pool], tmp_path / "lm", tokenizer=spelled, options=PretrainOptions(recipe=str(tiny_recipe)), context=QUIET
        )
    ids = tmp_path / "ids.json"
    Tokenizer.train(reviews(50)[0], kind="word", min_frequency=1).save(ids)
    with pytest.raises(UserError, match="character-encoded words"):
        pretrain(
            [pool],
            tmp_path / "lm2",
            tokenizer=ids,
            options=PretrainOptions(recipe=str(elmo.parent / "elmo.toml")),
            context=QUIET,
        )


def test_the_recipe_that_ships_is_small_enough() -> None:
    plan = load_pretrain_recipe("en-elmo-small")
    with torch.device("meta"):
        model = new_language_model(plan, plan.tokenizer["vocab_size"], seed=0)
    assert sum(p.numel() for p in model.parameters()) <= 10.2e6
    assert 2 * sum(p.numel() for p in model.parameters()) < 25e6
    assert OBJECTIVES[model.describe()["head"]["name"]]
