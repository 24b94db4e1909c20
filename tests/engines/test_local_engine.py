"""The engine that is this process, and the registry of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from textgraft import UserError
from textgraft.engines.local import LOCAL
from textgraft.engines.registry import open_engine


class Doubling:
    """Doubles numbers; it counts how often it was opened."""

    opened = 0
    on_gpu = False

    def open(self) -> Callable[[int], int]:
        self.opened += 1
        return lambda number: 2 * number


def below(number: int) -> Iterator[int]:
    return iter(range(number))


def test_items_come_in_order_from_a_worker_that_is_opened_once() -> None:
    worker = Doubling()
    assert list(LOCAL.map(worker, [3, 1])) == [6, 2]
    assert (list(LOCAL.stream(worker, below, [2, 0, 3])), worker.opened) == ([0, 2, 0, 2, 4], 2)
    assert (list(LOCAL.map(worker, [])), list(LOCAL.stream(worker, below, [])), worker.opened) == ([], [], 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rai", {}, "unknown engine 'rai'.*Did you mean 'ray'"),
        ("local", {"address": "auto"}, "address: the local engine is this process alone"),
        ("local", {"workers": 2}, "workers: the local engine"),
    ],
)
def test_mistakes(name: str, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message), open_engine(name, **options):
        pass
