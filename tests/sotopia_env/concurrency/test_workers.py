"""The pool of workers and its one rule for an early end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Dropped, Stop
from sotopia_env.concurrency.workers import work_through
from sotopia_env.foundation.errors import BudgetExceededError, ModelRefusedError

REFUSED = ModelRefusedError("no such model", kind="auth", status=401)


class Work:
    """Takes a while for each number, and does what it is told to for some."""

    def __init__(self, faults: dict[int, Callable[[], object]] | None = None, seconds: float = 0.01) -> None:
        self.faults, self.seconds = faults or {}, seconds
        self.begun: list[int] = []
        self.done: list[int] = []
        self.at_once = 0

    async def __call__(self, number: int) -> bool:
        self.begun.append(number)
        self.at_once = max(self.at_once, len(self.begun) - len(self.done))
        if number in self.faults:
            self.faults[number]()
        await asyncio.sleep(self.seconds)
        self.done.append(number)
        return number % 2 == 0


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def run(work: Work, count: int = 20, concurrency: int = 4, stop: Stop | None = None) -> tuple[Stop, Progress]:
    stop, progress = stop or Stop(), Progress(count, 0, False, "numbers")
    asyncio.run(asyncio.wait_for(work_through(range(count), work, stop, progress, concurrency), 240))
    return stop, progress


@pytest.mark.parametrize("concurrency", [1, 3, 100])
def test_every_item_is_done_once_and_no_more_at_once_than_there_are_workers(concurrency: int) -> None:
    work = Work()
    stop, progress = run(work, concurrency=concurrency)
    assert sorted(work.done) == work.begun == list(range(20))
    assert work.at_once == min(concurrency, 20)
    assert (stop.reason, stop.failure, progress.failed, progress.in_flight) == ("", None, 10, 0)


def test_items_are_taken_when_a_worker_is_free() -> None:
    work, count = Work(), 0

    def items() -> Iterator[int]:
        nonlocal count
        for number in range(20):
            count += 1
            assert count - len(work.done) <= 4
            yield number

    asyncio.run(work_through(items(), work, Stop(), Progress(20, 0, False, "numbers"), 4))
    assert len(work.done) == 20


@pytest.mark.parametrize("error", [REFUSED, BudgetExceededError("spent")])
def test_an_error_that_affects_all_items_ends_the_work_after_those_in_progress(
    error: BudgetExceededError | ModelRefusedError,
) -> None:
    work = Work({9: raising(error), 10: raising(error)})
    stop, progress = run(work)
    assert stop.failure is error
    assert stop.reason == str(error)
    assert set(work.begun) - set(work.done) <= {9, 10}
    assert max(work.begun) <= 12
    assert progress.in_flight == 0


def test_a_request_ends_the_work_and_other_items_are_neither_done_nor_failed() -> None:
    stop = Stop()
    work = Work({5: lambda: stop.ask("enough"), 6: stop.check, 7: raising(Dropped("left"))})
    _, progress = run(work, stop=stop, concurrency=8)
    assert sorted(work.done) == [0, 1, 2, 3, 4, 5]
    assert (progress.failed, progress.in_flight, stop.failure) == (3, 0, None)


def test_unfinished_work_is_cancelled_after_the_grace_period() -> None:
    stop = Stop(grace=0.1)
    work = Work({3: lambda: stop.ask("enough")}, seconds=3600)
    run(work, stop=stop)
    assert work.done == []


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt("twice")])
def test_any_other_error_leaves_at_once_as_itself(error: BaseException) -> None:
    work = Work({3: raising(error)}, seconds=3600)
    with pytest.raises(type(error)):
        run(work)


def test_work_that_never_waits_leaves_the_others_their_turn() -> None:
    stop = Stop()

    async def never_waiting(number: int) -> bool:
        assert number < 10_000
        return True

    async def ask_soon() -> None:
        await asyncio.sleep(0)
        stop.ask("enough")

    async def both() -> None:
        numbers = iter(range(10_001))
        await asyncio.gather(
            work_through(numbers, never_waiting, stop, Progress(0, 0, False, "numbers"), 1), ask_soon()
        )

    asyncio.run(both())
    assert stop.reason == "enough"
