"""Requests that wait are answered together: a network takes hardly longer for a few texts than for one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from textgraft.core.errors import UserError

TOGETHER = 64
"""Items that are computed at a time: a long request does not keep short ones waiting for its end."""
MOST_WAITING = 10_000
"""Items; who comes then is sent away, and may come again."""


class Busy(Exception):
    """More is waiting than will be answered soon."""


class Job:
    """One request: its items, the answers so far, and who waits for all of them."""

    def __init__(self, items: Sequence[Any], done: asyncio.Future[list[Any]]) -> None:
        self.items, self.done = items, done
        self.answers: list[Any] = []

    @property
    def left(self) -> int:
        return len(self.items) - len(self.answers)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Batcher:
    """Answers items in one thread, `together` at most at a time, of all the requests that wait by turns.

    An item that cannot be read fails its own request and no other.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Any]], list[Any]],
        *,
        together: int = TOGETHER,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.answer, self.together, self.most_waiting = answer, together, most_waiting
        self.answered = 0
        self._jobs: deque[Job] = deque()
        self._some = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Items without an answer yet."""
        return sum(job.left for job in self._jobs)

    async def ask(self, items: Sequence[Any]) -> list[Any]:
        """The answers, in order. Raises Busy where too much is waiting, and what `answer` raises of these items."""
        if self.waiting + len(items) > self.most_waiting:
            raise Busy
        job = Job(items, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._some.set()
        return await job.done

    async def work(self) -> None:
        """Answers until it is cancelled."""
        with ThreadPoolExecutor(1, "answering") as thread:
            while True:
                await self._some.wait()
                while self._jobs:
                    await self._answer(self._next(), thread)
                self._some.clear()

    def _next(self) -> list[tuple[Job, Sequence[Any]]]:
        """What is computed next: the same number of items of each job that waits, those that came first before."""
        share = max(1, self.together // len(self._jobs))
        jobs = [self._jobs[i] for i in range(min(len(self._jobs), self.together))]
        return [(job, job.items[len(job.answers) :][:share]) for job in jobs]

    async def _answer(self, parts: Sequence[tuple[Job, Sequence[Any]]], thread: ThreadPoolExecutor) -> None:
        items = [item for _, part in parts for item in part]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(thread, self.answer, items)
        except UserError as error:
            if len(parts) == 1:
                parts[0][0].fail(error)
            else:
                for one in parts:
                    await self._answer([one], thread)
        except Exception as error:
            for job, _ in parts:
                job.fail(error)
        else:
            found = iter(answers)
            for job, part in parts:
                job.answers += [next(found) for _ in part]
                if not job.left and not job.done.done():
                    job.done.set_result(job.answers)
            self.answered += len(items)
        self._jobs = deque(job for job in self._jobs if not job.done.done())
