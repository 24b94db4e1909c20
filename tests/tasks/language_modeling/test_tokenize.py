"""Tokens made before pretraining: the same model as from the text, wherever they lie; kills, damage, mistakes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from made_up_reviews import reviews
from safetensors.torch import load_file
from torch import equal

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.streams import shards
from textgraft.models import loading
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.tasks.language_modeling.pretraining_text import Paths
from textgraft.tasks.language_modeling.streamed_text import StreamedText
from textgraft.tasks.language_modeling.tokenize import token_counts, tokenize
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

FP32 = Settings(precision="fp32", save_seconds=0)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.txt"
    path.write_text("\n".join(reviews(400)[0]))
    return path


@pytest.fixture
def recipe(tiny_recipe: Path) -> str:
    return str(tiny_recipe)


def same(one: Path, other: Path) -> bool:
    """Whether two models have the same values, bit for bit."""
    values, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    return values.keys() == others.keys() and all(equal(value, others[name]) for name, value in values.items())


@pytest.mark.slow
def test_the_same_model_as_from_the_text_which_may_be_gone(pool: Path, recipe: str, tmp_path: Path) -> None:
    whole = pretrain([pool], tmp_path / "whole", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    assert {path.name for path in tokens.iterdir()} == {"tokenizer.json", "train", "valid", "tokens.json"}
    elsewhere = shutil.move(tokens, tmp_path / "elsewhere")
    pool.unlink()
    made = pretrain(
        [elsewhere], tmp_path / "made", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET
    )
    assert same(made, whole)
    ours, theirs = (json.loads((folder / "run.json").read_text()) for folder in (made, whole))
    assert ours["data"] == theirs["data"]
    assert ours["held_out"] == theirs["held_out"]
    assert ours["data"]["sources"] == ["pool.txt"]


@pytest.mark.slow
def test_processes_change_nothing(pool: Path, recipe: str, tmp_path: Path) -> None:
    for processes in (0, 1):
        tokenize([pool], tmp_path / str(processes), recipe=recipe, processes=processes, show=False)
    manifests = [(tmp_path / str(processes) / "tokens.json").read_bytes() for processes in (0, 1)]
    assert manifests[0] == manifests[1]
    with pytest.raises(UserError, match="tokenizer_processes"):
        tokenize([pool], tmp_path / "x", recipe=recipe, processes=-1, show=False)


def test_one_pass_over_a_url(pool: Path, recipe: str, tiny_lm: Path, tmp_path: Path) -> None:
    texts = pool.read_text().splitlines()
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts[number::3]))
    sources = StreamedText(f"file://{tmp_path}/*.jsonl", text="body")
    out = tokenize(sources, tmp_path / "tokens", recipe=recipe, tokenizer=tiny_lm, show=False)
    counts = token_counts(out)
    assert counts["train"]["documents"] + counts["valid"]["documents"] == 400
    assert counts["valid"]["documents"] == 40
    assert sum(corpus["characters"] for corpus in counts.values()) == sum(map(len, texts))
    pretrain([out], tmp_path / "lm", options=PretrainOptions(recipe=recipe, tokens=500), context=QUIET)
    several = StreamedText({"a": files[0], "b": files[1]}, text="body")
    with pytest.raises(UserError, match="a mixture by weight has no end"):
        tokenize(several, tmp_path / "x", recipe=recipe, tokenizer=tiny_lm, show=False)


@pytest.mark.slow
def test_so_with_languages_whose_shares_are_chosen_when_they_are_read(pool: Path, recipe: str, tmp_path: Path) -> None:
    other = tmp_path / "few.txt"
    other.write_text("\n".join(f"{text} {text}" for text in reviews(90, 5)[0]))
    sources: Mapping[str, Paths] = {"en": [pool], "xx": [other]}
    whole = pretrain(sources, tmp_path / "whole", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    tokens = tokenize(sources, tmp_path / "tokens", recipe=recipe, show=False)
    assert list(token_counts(tokens)) == ["train-en", "train-xx", "valid-en", "valid-xx"]
    assert not (tokens / "characters.json").exists()
    made = pretrain([tokens], tmp_path / "made", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    assert same(made, whole)
    assert load_network(made).run["languages"] == load_network(whole).run["languages"]
    even = tmp_path / "even.toml"
    even.write_text(Path(recipe).read_text().replace("validate_every", "smoothing = 0.0\nvalidate_every"))
    evened = load_network(
        pretrain([tokens], tmp_path / "evened", options=PretrainOptions(recipe=str(even), settings=FP32), context=QUIET)
    ).run
    shares = [about["share_read"] for about in evened["languages"].values()]
    assert shares == pytest.approx([0.5, 0.5], abs=0.01)


def test_counted_are_the_texts_that_are_there(pool: Path, recipe: str, tmp_path: Path) -> None:
    texts, held = pool.read_text().split("\n"), ["One held out.", "And another one."]
    (tmp_path / "valid.txt").write_text("\n".join(held))
    valid: Paths = [tmp_path / "valid.txt"]
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, valid=valid, show=False)
    counts = token_counts(tokens)
    tokenizer = Tokenizer.load(tokens / "tokenizer.json")
    for name, some in (("train", texts), ("valid", held)):
        assert counts[name] == {
            "documents": len(some),
            "tokens": sum(map(len, tokenizer.corpus_ids(some))),
            "words": sum(len(text.split()) for text in some),
            "characters": sum(map(len, some)),
        }


def test_killed_it_goes_on_and_another_call_is_refused(
    pool: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenize([pool], tmp_path / "whole", recipe=recipe, show=False)
    written: list[Path] = []
    finish = shards._ShardFile.finish

    def fatal(file: shards._ShardFile) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(file.path)
        finish(file)

    with monkeypatch.context() as patch:
        patch.setattr(shards._ShardFile, "finish", fatal)
        with pytest.raises(KeyboardInterrupt):
            tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    assert [path.parent.name for path in written] == ["train", "train"]
    assert not (tmp_path / "tokens").exists()
    with pytest.raises(UserError, match="differs in: valid"):
        tokenize([pool], tmp_path / "tokens", recipe=recipe, valid=[pool], show=False)
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    for path in (path for path in whole.rglob("*") if path.is_file()):
        assert (tokens / path.relative_to(whole)).read_bytes() == path.read_bytes(), path
    assert not (tmp_path / "tokens.run").exists()
    with pytest.raises(UserError, match=r"exists already.*Name another\.$"):
        tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)


@pytest.mark.slow
def test_a_training_goes_on_where_the_tokens_were_moved(
    pool: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    whole = pretrain([tokens], tmp_path / "whole", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    save, saved = Run.save, []

    def fatal(run: Run, path: Path) -> None:
        save(run, path)
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", fatal)
        with pytest.raises(KeyboardInterrupt):
            pretrain([tokens], tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    moved = shutil.move(tokens, tmp_path / "moved")
    assert same(
        pretrain([moved], tmp_path / "lm", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET), whole
    )


@pytest.mark.slow
def test_a_model_goes_on_with_tokens_of_its_own_tokenizer_only(pool: Path, recipe: str, tmp_path: Path) -> None:
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    first = pretrain([tokens], tmp_path / "first", options=PretrainOptions(recipe=recipe, settings=FP32), context=QUIET)
    again = Settings(seed=1, precision="fp32")
    second = pretrain(
        [tokens],
        tmp_path / "second",
        model=first,
        options=PretrainOptions(recipe=recipe, settings=again),
        context=QUIET,
    )
    assert loading.load_network(second).run["earlier"][0]["name"] == "first"
    smaller = tmp_path / "smaller.json"
    Tokenizer.train(reviews(100, 7)[0], vocab_size=120).save(smaller)
    strange = tokenize([pool], tmp_path / "strange", recipe=recipe, tokenizer=smaller, show=False)
    assert Tokenizer.load(strange / "tokenizer.json").fingerprint == Tokenizer.load(smaller).fingerprint
    with pytest.raises(UserError, match="of another tokenizer"):
        pretrain(
            [strange],
            tmp_path / "third",
            model=first,
            options=PretrainOptions(recipe=recipe, settings=again),
            context=QUIET,
        )
    with pytest.raises(UserError, match="of another tokenizer"):
        pretrain(
            [tokens],
            tmp_path / "fourth",
            tokenizer=smaller,
            options=PretrainOptions(recipe=recipe, settings=FP32),
            context=QUIET,
        )


def test_what_is_not_possible_is_refused(pool: Path, recipe: str, tmp_path: Path) -> None:
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)

    def refused(match: str, sources: Paths, valid: Paths | None = None) -> None:
        with pytest.raises(UserError, match=match):
            pretrain(sources, tmp_path / "lm", valid=valid, options=PretrainOptions(recipe=recipe), context=QUIET)
        assert not (tmp_path / "lm").exists()

    refused("must be the only source", [tokens, pool])
    refused("held-out text is given beside a folder of tokens", [tokens], [pool])
    with pytest.raises(UserError, match="tokens already"):
        tokenize([tokens], tmp_path / "again", recipe=recipe, show=False)
    with pytest.raises(UserError, match=r"nowhere\.txt"):
        tokenize([tmp_path / "nowhere.txt"], tmp_path / "again", recipe=recipe, show=False)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("tokens.json", "damaged"),
        ("tokenizer.json", "tokenizer.json"),
        ("train/index.json", "altered since it was written"),
        ("train/tokens-00000.bin", "bytes instead of"),
        ("valid/starts-00000.bin", "bytes instead of"),
    ],
)
def test_a_truncated_part_is_named(name: str, word: str, pool: Path, recipe: str, tmp_path: Path) -> None:
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    path = tokens / name
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError) as caught:
        pretrain([tokens], tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)
    assert word in str(caught.value)
    assert path.name in f"{caught.value} {caught.value.where}"
    path.unlink()
    with pytest.raises(UserError):
        pretrain([tokens], tmp_path / "lm2", options=PretrainOptions(recipe=recipe), context=QUIET)


def test_an_altered_byte_and_a_later_version(pool: Path, recipe: str, tmp_path: Path) -> None:
    tokens = tokenize([pool], tmp_path / "tokens", recipe=recipe, show=False)
    shard = tokens / "train" / "tokens-00000.bin"
    data = bytearray(shard.read_bytes())
    data[10] ^= 1
    shard.write_bytes(bytes(data))
    with pytest.raises(UserError, match="altered"):
        pretrain([tokens], tmp_path / "lm", options=PretrainOptions(recipe=recipe), context=QUIET)
    path = tokens / "tokens.json"
    later = {"format": json.loads(path.read_text())["format"], "version": 9}  # and who knows what else
    path.write_text(json.dumps(later))
    with pytest.raises(UserError, match="newer textgraft") as raised:
        pretrain([tokens], tmp_path / "lm2", options=PretrainOptions(recipe=recipe), context=QUIET)
    assert "damaged" not in str(raised.value)
