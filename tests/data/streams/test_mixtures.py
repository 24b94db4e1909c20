"""The endless stream of documents: shares, passes, resumption, and what is held out."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from textgraft.core.errors import UserError
from textgraft.data.streams.mixtures import (
    At,
    Source,
    documents,
    hold_out,
    progress,
    read_once,
    validated_weights,
)


def source(folder: Path, name: str, sizes: list[int], weight: float = 1.0) -> Source:
    """A source of files with so many texts, whose texts say which they are."""
    generator = random.Random(name)
    files = []
    for number, size in enumerate(sizes):
        path = folder / f"{name}{number}.txt"
        path.write_text("".join(f"{name}{number}-{i} " + "y" * generator.randrange(80) + "\n" for i in range(size)))
        files.append(str(path))
    return Source(name, tuple(files), None, weight)


@pytest.fixture
def mixture(tmp_path: Path) -> list[Source]:
    return [
        source(tmp_path, "a", [7, 5, 9], 0.5),
        source(tmp_path, "b", [3, 4], 0.3),
        source(tmp_path, "c", [2], 0.2),
    ]


def test_every_prefix_has_the_shares_to_within_a_text(mixture: list[Source]) -> None:
    longest, total, written = 0, 0, [0, 0, 0]
    for text, _ in islice(documents(mixture, (At(),) * 3, 0), 500):
        longest, total = max(longest, len(text)), total + len(text)
        written["abc".index(text[0])] += len(text)
        assert all(abs(n - s.weight * total) <= longest for n, s in zip(written, mixture, strict=True))


def test_each_pass_has_every_text_once_in_another_order_of_files(mixture: list[Source]) -> None:
    texts = [text for text, _ in islice(documents(mixture[:1], (At(),), 0), 4 * 21)]
    passes = [texts[i : i + 21] for i in range(0, 84, 21)]
    assert all(sorted(one) == sorted(passes[0]) for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    assert texts == [text for text, _ in islice(documents(mixture[:1], (At(),), 0), 84)]
    assert texts != [text for text, _ in islice(documents(mixture[:1], (At(),), 1), 84)]


def test_from_every_place_the_rest_is_the_same(mixture: list[Source]) -> None:
    whole = list(islice(documents(mixture, (At(),) * 3, 3), 150))
    for index in range(0, 150, 7):
        again = documents(mixture, whole[index][1], 3)
        assert list(islice(again, 150 - index)) == whole[index:]


def test_passes_are_counted(mixture: list[Source]) -> None:
    (*_, (_, places)) = islice(documents(mixture, (At(),) * 3, 0), 300)
    facts = progress(mixture, places)
    assert sum(entry["share"] for entry in facts.values()) == pytest.approx(1)
    assert facts["c"]["share"] == pytest.approx(0.2, abs=0.01)
    read = sum(1 for text, _ in islice(documents(mixture, (At(),) * 3, 0), 299) if text[0] == "c")
    assert facts["c"]["epochs"] == pytest.approx(read / 2, abs=1)


@pytest.mark.parametrize(("count", "held"), [(1, 1), (2, 2), (300, 2)])
def test_held_out_text_is_the_first_and_never_trained_on(mixture: list[Source], count: int, held: int) -> None:
    rest, texts = hold_out(mixture[0], count)
    assert [text.split()[0] for text in texts] == [f"a0-{i}" for i in range(held)]
    stream = [text for text, _ in islice(documents([rest], (At(),), 0), 100)]
    assert not set(texts) & set(stream)
    assert set(stream) | set(texts) == set(read_once(mixture[0]))


def test_files_can_be_held_out_whole(tmp_path: Path) -> None:
    many = source(tmp_path, "m", [2] * 30)
    rest, texts = hold_out(many, 5)
    assert [text.split()[0] for text in texts] == ["m0-0", "m0-1", "m1-0", "m1-1", "m2-0"]
    assert not set(texts) & {text for text, _ in islice(documents([rest], (At(),), 0), 120)}


def test_too_little_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x0\.txt: there is no text"):
        hold_out(source(tmp_path, "x", [0]), 300)
    with pytest.raises(UserError, match="a single text, which would be held out"):
        hold_out(source(tmp_path, "y", [1]), 300)
    with pytest.raises(UserError, match="there is no text to train on"):
        next(documents([source(tmp_path, "x", [0, 0])], (At(),), 0))


def test_a_file_that_disappears_is_named(mixture: list[Source]) -> None:
    stream = documents(mixture[:1], (At(),), 0)
    next(stream)
    for file in mixture[0].files:
        Path(file).unlink()
    with pytest.raises(UserError, match=r"a\d\.txt: no such file"):
        list(islice(stream, 50))


@pytest.mark.parametrize(
    ("weights", "part"),
    [
        ({"a": 0.5, "b": 0.6}, "the weights sum to 1.1, not to 1. In proportion: a=0.454545, b=0.545455."),
        ({"a": 1.5, "b": -0.5}, "the weight of 'b' is -0.5"),
        ({"a": 1.0, "b": float("nan")}, "the weight of 'b' is nan"),
        ({"a": 1.0}, "the source 'b' has no weight"),
        ({"a": 0.5, "c": 0.5}, "no source 'c' to weigh. Sources: a, b."),
    ],
)
def test_weights_that_are_none(weights: dict[str, float], part: str) -> None:
    with pytest.raises(UserError) as raised:
        validated_weights(["a", "b"], weights)
    assert part in str(raised.value)


def test_without_weights_shares_are_equal() -> None:
    assert validated_weights(["a", "b"], {}) == {"a": 0.5, "b": 0.5}
    assert validated_weights(["a", "b"], {"b": 0.75, "a": 0.25}) == {"a": 0.25, "b": 0.75}
