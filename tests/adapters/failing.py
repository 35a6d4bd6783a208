"""Partners that fail, and the table of what an adapter makes of them, which the tests of every adapter check.

====================== ============================================================================================
the partner            the host
====================== ============================================================================================
never fails            gets the episode and its reward
fails once             gets the same: the seat asks again
fails twice            gets a failure; a host that repeats the call gets the same episode and reward after it
fails for good         gets no reward, in its own form: ``None``, NaN, an error of the sample, an exception; never 0
====================== ============================================================================================
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sotopia_env import naming
from sotopia_env.foundation.errors import PolicyError

SEED = 5
"""The seed of an episode in which :func:`answer` and the partner agree, so that the reward is not 0."""
LISTENS = 8
"""The number of turns for which :func:`answer` makes no move."""


class Partner:
    """A conceder, in records too, that fails at its third call and those after it."""

    name = "conceder"
    failures = 0

    def __init__(self) -> None:
        self._policy = naming.make_policy("conceder")
        self.parameters = self._policy.parameters
        self.calls = 0

    async def act(self, observation, seed):
        self.calls += 1
        if 3 <= self.calls < 3 + self.failures:
            raise PolicyError("the model is down")
        return await self._policy.act(observation, seed)


class Once(Partner):
    failures = 1


class Twice(Partner):
    failures = 2


class ForGood(Partner):
    failures = 10**9


class Slow(Partner):
    """Waits at its first call for half a second, and not again."""

    async def act(self, observation, seed):
        self.calls += 1
        if self.calls == 1:
            await asyncio.sleep(0.5)
        return await self._policy.act(observation, seed)


def named(kind: type[Partner]) -> str:
    """The name by which a host makes the partner."""
    return f"tests.adapters.failing:{kind.__name__}"


NAMES = tuple(named(kind) for kind in (Partner, Once, Twice, ForGood, Slow))


def answer(turns: int, offers: tuple[int, ...] = ()) -> str:
    """The text of a seat at its turn number ``turns``, which accepts the latest of ``offers`` once it has listened."""
    move = {"move": {"accept": offers[-1]}} if offers and turns >= LISTENS else {}
    return json.dumps({"action_type": "speak", "argument": "Well?", **move})


def answer_to(messages: list[dict[str, str]]) -> str:
    """:func:`answer` to a conversation."""
    offers = [int(part.split("}")[0]) for part in messages[-1]["content"].split('{"accept": ')[1:]]
    return answer(sum(message["role"] == "assistant" for message in messages), tuple(offers))


def turns_of(episode) -> str:
    """The record without the time that it took, byte for byte."""
    return episode.model_copy(update={"duration": 0.0}).model_dump_json()


def persistently(call, attempts: int = 3):
    """The result of a call that a host repeats when it fails; ``None`` if it fails every time."""
    for _ in range(attempts):
        with suppress(PolicyError):
            return call()
    return None


def check_failing_partners(play: Callable[[str], tuple[Any, float | None]], *, repeats: bool) -> None:
    """Plays an episode with every partner of the table.

    Args:
        play: plays the episode with the partner of a name by :func:`answer`, and returns what the host has of it and
            the reward, ``None`` in whatever form the host has no reward.
        repeats: whether ``play`` repeats a call that failed, as a host can.
    """
    episode, reward = play(named(Partner))
    assert reward is not None
    assert reward > 0
    assert play(named(Once)) == (episode, reward)
    assert play(named(Twice)) == ((episode, reward) if repeats else (None, None))
    assert play(named(ForGood)) == (None, None)
