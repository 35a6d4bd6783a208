"""Rate limits as a queue: the window of a route against token buckets, by a fake clock and over a socket."""

import asyncio
import random
import time
from dataclasses import replace

import pytest

from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.window import Window
from tests.sotopia_env.chat_model.conftest import ASK
from tests.sotopia_env.chat_model.server import SPEAK
from tests.sotopia_env.chat_model.test_contract import ask
from tests.sotopia_env.chat_model.test_limits import FakeTime

RATE = 3.0
EPISODES, TURNS = 24, 10


class Provider:
    """A token bucket with :data:`RATE` requests per second, of which ``burst`` may come at once."""

    def __init__(self, burst: float, clock: FakeTime) -> None:
        self.burst = self.tokens = burst
        self.clock, self.refilled, self.rejected, self.rate = clock, 0.0, 0, RATE

    def takes(self) -> bool:
        self.tokens = min(self.burst, self.tokens + (self.clock.now - self.refilled) * self.rate)
        self.refilled = self.clock.now
        if self.tokens < 1:
            self.rejected += 1
            return False
        self.tokens -= 1
        return True


async def episode(window: Window, provider: Provider, clock: FakeTime, latency: float, wait: float | None) -> None:
    for _ in range(TURNS):
        is_repeated = False
        while True:
            sent = await window.enter(is_repeated)
            try:
                if provider.takes():
                    await clock.sleep(latency)
                    window.note_answer(sent)
                    break
                await clock.sleep(0.01)
                window.note_rejection(sent, wait)
                is_repeated = True
            finally:
                window.leave()


@pytest.mark.parametrize("wait", [None, 1.0])
@pytest.mark.parametrize(("burst", "latency"), [(3, 0.05), (10, 0.05), (1, 0.05), (3, 2.0), (3, 0.002)])
def test_a_queue_before_a_rate_limit_takes_less_than_twice_the_ideal_time(burst, latency, wait):
    clock = FakeTime()
    provider = Provider(burst, clock)
    window = Window(128, rng=random.Random(3), clock=lambda: clock.now, sleep=clock.sleep)
    asyncio.run(clock.run(*(episode(window, provider, clock, latency, wait) for _ in range(EPISODES))))
    assert clock.now <= 2 * EPISODES * TURNS / RATE
    # Without a queue, each of 24 concurrent calls would be rejected again and again.
    assert provider.rejected < EPISODES * TURNS


def test_the_window_grows_again_after_the_limit_is_lifted():
    clock = FakeTime()
    provider = Provider(3, clock)
    window = Window(16, rng=random.Random(3), clock=lambda: clock.now, sleep=clock.sleep)
    asyncio.run(clock.run(*(episode(window, provider, clock, 0.5, None) for _ in range(12))))
    assert window.width < 6
    provider.rate = provider.burst = provider.tokens = 1e6
    asyncio.run(clock.run(*(episode(window, provider, clock, 0.5, None) for _ in range(40))))
    assert window.width == 16


class Throttle:
    """Rejects requests of a loopback server above a rate; an iterator for its ``script``."""

    def __init__(self, rate: float, fault: str) -> None:
        self.rate, self.fault, self.tokens, self.time = rate, fault, 5.0, time.monotonic()

    def __iter__(self):
        return self

    def __next__(self) -> str | None:
        now = time.monotonic()
        self.tokens, self.time = min(5.0, self.tokens + (now - self.time) * self.rate), now
        if self.tokens < 1:
            return self.fault
        self.tokens -= 1
        return None


@pytest.mark.parametrize("fault", ["rate_limit", "rate_limit_after"])
def test_rejections_never_use_up_the_retries_while_others_are_answered(way, serve, fault):
    server = serve(script=Throttle(100, fault), retry_after="0.02")
    policy = RetryPolicy(retries=1, base=0.02, cap=0.1, patience=30)
    replies = ask(way.make(server, retries=policy), *[ASK] * 100)
    assert [reply.text for reply in replies] == [SPEAK] * 100
    assert server.happened[fault]


def test_one_request_that_is_always_rejected_fails_alone_after_the_patience(direct, serve):
    async def run():
        model = direct.make(server, retries=RetryPolicy(retries=2, base=0.01, cap=0.05, patience=0.4))
        poison = asyncio.ensure_future(model.complete(replace(ASK, messages=({"role": "user", "content": "poison"},))))
        replies = []
        while not poison.done():
            replies.append(await model.complete(ASK))
        await model.close()
        return poison.exception(), replies

    server = serve(fails_on="poison", fails_with="rate_limit")
    error, replies = asyncio.run(run())
    assert (type(error).__name__, error.kind) == ("ModelCallError", "rate_limit")
    assert {reply.text for reply in replies} == {SPEAK}
