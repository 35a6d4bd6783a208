import asyncio
import itertools
import random

import pytest

from sotopia_env.chat_model import ChatReply, ChatRequest
from sotopia_env.chat_model.limits import Limiter, Limits, estimate_tokens
from sotopia_env.foundation.errors import InvalidValueError
from tests.errors import raises

QUESTION = ChatRequest(messages=({"role": "user", "content": "x" * 384},))  # an estimate of 100 tokens


class FakeTime:
    """A clock that moves only while all tasks sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, next(self._numbers), future))
        await future

    async def run(self, *coroutines) -> list:
        tasks = [asyncio.ensure_future(one) for one in coroutines]
        while not all(task.done() for task in tasks):
            for _ in range(10):
                await asyncio.sleep(0)
            self._sleepers = [item for item in self._sleepers if not item[2].done()]
            if self._sleepers:
                due = min(self._sleepers)
                self._sleepers.remove(due)
                self.now = max(self.now, due[0])
                due[2].set_result(None)
        return [task.result() for task in tasks]


def most_in_a_minute(times: list[float]) -> int:
    return max(sum(start <= time < start + 60 - 1e-6 for time in times) for start in times)


async def send(limiter: Limiter, time: FakeTime, takes: float = 0.0, tokens: int | None = None) -> float:
    async with limiter.slot(QUESTION) as slot:
        start = time.now
        if takes:
            await time.sleep(takes)
        if tokens is not None:
            slot.settle(ChatReply(text="", prompt_tokens=tokens))
    return start


@pytest.mark.parametrize("rpm", [1, 2, 7, 60, 600])
def test_no_minute_sees_more_requests_than_allowed(rpm):
    time = FakeTime()
    limiter = Limiter(Limits(concurrency=50, rpm=rpm), clock=lambda: time.now, sleep=time.sleep)
    times = asyncio.run(time.run(*(send(limiter, time) for _ in range(3 * rpm + 1))))
    assert most_in_a_minute(times) <= rpm
    assert max(times) == pytest.approx(180, abs=1)  # and none is wasted
    assert times == sorted(times)


def test_a_pause_does_not_save_up_a_burst():
    time = FakeTime()
    limiter = Limiter(Limits(rpm=60), clock=lambda: time.now, sleep=time.sleep)
    asyncio.run(time.run(send(limiter, time)))
    time.now += 3600
    times = asyncio.run(time.run(*(send(limiter, time) for _ in range(5))))
    assert [round(moment - times[0], 6) for moment in times] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("tokens", "minutes"), [(None, 1.0), (100, 1.0), (300, 3.0), (50, 0.5)])
def test_tokens_per_minute_are_estimated_and_then_corrected(tokens, minutes):
    time = FakeTime()
    limiter = Limiter(Limits(concurrency=1, tpm=6000), clock=lambda: time.now, sleep=time.sleep)
    times = asyncio.run(time.run(*(send(limiter, time, tokens=tokens) for _ in range(61))))
    assert max(times) == pytest.approx(60 * minutes, rel=0.01)


def test_an_estimate_counts_characters_and_messages():
    assert estimate_tokens(QUESTION) == 100
    assert estimate_tokens(ChatRequest(messages=())) == 0


def test_places_are_bounded_whatever_happens_in_them():
    rng = random.Random(5)
    limiter = Limiter(Limits(concurrency=4))
    inside, most = 0, 0

    async def visit() -> None:
        nonlocal inside, most
        async with limiter.slot(QUESTION):
            inside += 1
            most = max(most, inside)
            try:
                await asyncio.sleep(rng.random() / 500)
                if rng.random() < 0.3:
                    raise ValueError
            finally:
                inside -= 1

    async def run() -> None:
        await asyncio.gather(*(visit() for _ in range(60)), return_exceptions=True)

    asyncio.run(run())
    asyncio.run(run())  # another event loop
    assert (inside, most) == (0, 4)


def test_a_cancelled_wait_gives_back_what_it_took():
    time = FakeTime()
    limiter = Limiter(Limits(rpm=1), clock=lambda: time.now, sleep=time.sleep)

    async def run() -> float:
        await send(limiter, time)
        waiting = [asyncio.ensure_future(send(limiter, time)) for _ in range(5)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return (await time.run(send(limiter, time)))[0]

    assert asyncio.run(run()) == pytest.approx(60)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": None}, {"rpm": 0}, {"rpm": 1.5}, {"tpm": -1}, {"tpm": True},
     {"rpm": 100, "tpm": 99}],
)  # fmt: skip
def test_invalid_limits_are_refused(options):
    *_, (field, value) = options.items()
    with raises(InvalidValueError, field=field, got=value):
        Limits(**options)
