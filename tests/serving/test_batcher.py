"""Requests that wait are computed together, by turns, and each gets its own answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.serving.batcher import Batcher, Busy


class Doubling:
    """Doubles numbers, and keeps what it was asked together; it waits for `gate` before each answer."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.gate.wait(10)
        self.asked.append(list(items))
        if -1 in items:
            raise UserError("-1 cannot be doubled.")
        if -2 in items:
            raise RuntimeError("a defect")
        return [2 * item for item in items]


def at_work(batcher: Batcher, doing: Callable[[], Awaitable[Any]]) -> Any:
    async def both() -> Any:
        work = asyncio.create_task(batcher.work())
        try:
            return await asyncio.wait_for(doing(), 30)
        finally:
            work.cancel()

    return asyncio.run(both())


async def all_of(batcher: Batcher, requests: Sequence[Sequence[int]]) -> list[Any]:
    return await asyncio.gather(*(batcher.ask(items) for items in requests), return_exceptions=True)


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), max_size=9), st.integers(1, 7))
def test_every_request_gets_its_own_answers_in_order(requests: list[list[int]], batch_items: int) -> None:
    double = Doubling()
    batcher = Batcher(double, batch_items=batch_items)
    found = at_work(batcher, lambda: all_of(batcher, requests))
    assert found == [[2 * item for item in items] for items in requests]
    assert all(len(items) <= batch_items for items in double.asked)
    assert batcher.answered == sum(map(len, requests))
    assert batcher.waiting == 0


def test_what_waits_is_computed_together_and_a_long_request_does_not_keep_a_short_one() -> None:
    double = Doubling()
    batcher = Batcher(double, batch_items=4)

    async def doing() -> list[str]:
        double.gate.clear()
        order: list[str] = []

        async def asking(name: str, items: list[int]) -> None:
            await batcher.ask(items)
            order.append(name)

        tasks = [asyncio.create_task(asking("long", list(range(20)))), asyncio.create_task(asking("short", [50]))]
        await asyncio.sleep(0.05)  # the first four of the long one are being computed
        tasks.append(asyncio.create_task(asking("later", [60, 61])))
        await asyncio.sleep(0.05)
        double.gate.set()
        await asyncio.gather(*tasks)
        return order

    assert at_work(batcher, doing) == ["short", "later", "long"]
    assert len(double.asked) < 12
    assert any(50 in items and len(items) > 1 for items in double.asked)


def test_an_item_that_cannot_be_read_fails_its_own_request_alone() -> None:
    batcher = Batcher(Doubling(), batch_items=8)
    found = at_work(batcher, lambda: all_of(batcher, [[1, 2], [3, -1], [4]]))
    assert found[0] == [2, 4]
    assert found[2] == [8]
    assert isinstance(found[1], UserError)


def test_a_defect_reaches_those_who_asked_and_the_next_are_answered() -> None:
    batcher = Batcher(Doubling(), batch_items=8)

    async def doing() -> list[Any]:
        return [*await all_of(batcher, [[-2]]), *await all_of(batcher, [[5]])]

    defect, found = at_work(batcher, doing)
    assert isinstance(defect, RuntimeError)
    assert found == [10]


def test_who_comes_when_too_much_waits_is_sent_away() -> None:
    double = Doubling()
    batcher = Batcher(double, batch_items=2, max_waiting=5)

    async def doing() -> list[Any]:
        double.gate.clear()
        first = asyncio.create_task(batcher.ask([1, 2, 3]))
        await asyncio.sleep(0.02)
        with pytest.raises(Busy):
            await batcher.ask([4, 5, 6])
        assert batcher.waiting == 3
        second = asyncio.create_task(batcher.ask([4, 5]))
        double.gate.set()
        return [await first, await second]

    assert at_work(batcher, doing) == [[2, 4, 6], [8, 10]]


def test_who_no_longer_waits_is_not_computed_for() -> None:
    double = Doubling()
    batcher = Batcher(double, batch_items=2)

    async def doing() -> list[int]:
        double.gate.clear()
        asked = [asyncio.create_task(batcher.ask(items)) for items in ([1], list(range(10, 30)), [2])]
        await asyncio.sleep(0.05)
        asked[1].cancel()
        double.gate.set()
        return [*await asked[0], *await asked[2]]

    assert at_work(batcher, doing) == [2, 4]
    assert sum(map(len, double.asked)) < 8
