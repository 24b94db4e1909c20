"""Dynamic batching of requests: a network takes hardly longer for a few texts than for one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from textgraft.core.errors import UserError

BATCH_ITEMS = 64
"""Maximum number of items in a batch: short requests do not wait for the end of a long one."""
MAX_WAITING = 10_000
"""Maximum number of waiting items; further requests are rejected."""


class Busy(Exception):
    """Raised when too many items are waiting."""


class Job:
    """One request: its items, the predictions so far, and the future for all of them."""

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
    """Computes items in one thread, at most `batch_items` at a time, taking turns between the waiting requests.

    An invalid item fails its own request and no other.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Any]], list[Any]],
        *,
        batch_items: int = BATCH_ITEMS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.answer, self.batch_items, self.max_waiting = answer, batch_items, max_waiting
        self.answered = 0
        self._jobs: deque[Job] = deque()
        self._some = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of items without a prediction."""
        return sum(job.left for job in self._jobs)

    async def ask(self, items: Sequence[Any]) -> list[Any]:
        """Predictions, in order. Raises Busy where too many items are waiting, and the errors of `answer` for these
        items.
        """
        if self.waiting + len(items) > self.max_waiting:
            raise Busy
        job = Job(items, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._some.set()
        return await job.done

    async def work(self) -> None:
        """Process requests until cancelled."""
        with ThreadPoolExecutor(1, "answering") as thread:
            while True:
                await self._some.wait()
                while self._jobs:
                    await self._answer(self._next(), thread)
                self._some.clear()

    def _next(self) -> list[tuple[Job, Sequence[Any]]]:
        """The next batch: the same number of items from each waiting job, oldest jobs first."""
        share = max(1, self.batch_items // len(self._jobs))
        jobs = [self._jobs[i] for i in range(min(len(self._jobs), self.batch_items))]
        return [(job, job.items[len(job.answers) :][:share]) for job in jobs]

    async def _answer(self, parts: Sequence[tuple[Job, Sequence[Any]]], thread: ThreadPoolExecutor) -> None:
        items = [item for _, part in parts for item in part]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(thread, self.answer, items)
        except UserError as error:
            if len(parts) == 1:
                parts[0][0].fail(error)
            else:
                for part_of_job in parts:
                    await self._answer([part_of_job], thread)
        except Exception as error:
            for job, _ in parts:
                job.fail(error)
        else:
            predictions = iter(answers)
            for job, part in parts:
                job.answers += [next(predictions) for _ in part]
                if not job.left and not job.done.done():
                    job.done.set_result(job.answers)
            self.answered += len(items)
        self._jobs = deque(job for job in self._jobs if not job.done.done())
