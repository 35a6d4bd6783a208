"""OpenEnv's server for seats: ``uvicorn sotopia_env.adapters.openenv_server:app``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from sotopia_env import naming, tasks
from sotopia_env.adapters.openenv_types import SotopiaAction, SotopiaObservation
from sotopia_env.adapters.rows import refuse_unknown
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.adapters.seat_reward import check_kind
from sotopia_env.foundation.errors import (
    InvalidActionError,
    InvalidValueError,
    PolicyError,
    SotopiaError,
    UnknownNameError,
    check_whole,
)
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.waiting import wait
from sotopia_env.world import DIMENSIONS, Rules

with extra("openenv"):
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from openenv.core.env_server import Environment, State, create_fastapi_app

TASKS = (*naming.SHIPPED, *tasks.FAMILIES)
_ASKING = "verified+facts:probe=turns,trust=false"
PARTNERS = tuple(name for name in naming.POLICY_NAMES if name != "human")
SCALARISATIONS = ("overall", "mean", "share", *(dimension.value for dimension in DIMENSIONS))
MOST_EPISODES = 1024
"""Maximum number of episodes over plain HTTP; then the oldest one that has ended is dropped, or else the oldest."""


@dataclass(frozen=True, slots=True)
class Offers:
    """The names that the clients of a server may choose."""

    tasks: Sequence[str]
    partners: Sequence[str]
    scalarisations: Sequence[str]


@dataclass(slots=True)
class ServedSeat:
    """A seat and the answers to its requests.

    Attributes:
        seat: the seat.
        lock: held by the request in progress; a repeated one waits for it.
        ended: whether the last step of the episode was answered.
        answers: the action and the observation of each step that had a ``request_id``.
    """

    seat: TextSeat
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: bool = False
    answers: dict[str, tuple[Any, SotopiaObservation]] = field(default_factory=dict)

    async def step(self, action: SotopiaAction, request_id: str | None) -> SotopiaObservation:
        """Takes an action, unless a step with this id was answered already: then it is answered the same again.

        Raises:
            InvalidActionError: the episode has ended, or an earlier step with this id had another action.
            PolicyError: a partner failed.
        """
        async with self.lock:
            if request_id is not None and request_id in self.answers:
                earlier, observation = self.answers[request_id]
                if action.answer != earlier:
                    expected = "another id for another action"
                    raise InvalidActionError(field="request_id", expected=expected, got=request_id)
                return observation
            messages, self.ended = await self.seat.say(action.answer, action.ending)
            await self.seat.seats.measure()
            observation = _observation(self.seat, messages)
            if request_id is not None:
                self.answers[request_id] = action.answer, observation
            return observation


class SotopiaEnvironment(Environment[SotopiaAction, SotopiaObservation, State]):
    """One seat of an episode: a WebSocket session, or over plain HTTP all requests with one ``episode_id``."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, episodes: dict[str, ServedSeat], offers: Offers) -> None:
        """Args are shared by all sessions: the episodes by id, and the names that a client may choose."""
        super().__init__()
        self._episodes, self._offers = episodes, offers
        self._served: ServedSeat | None = None
        self._state = State()

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        tasks: str = "bargaining",
        partner: str = "boulware",
        focal: int = 0,
        max_turns: int | None = None,
        scalarisation: str | None = None,
        turn_rewards: str = "standing",
        **others: Any,
    ) -> SotopiaObservation:
        """Starts an episode: ``seed`` draws the task; see :meth:`sotopia_env.adapters.seat.TextSeat.against`.

        With ``turn_rewards="belief"``, in tasks with facts, ``turn_reward`` is the change of what the partners believe.

        Raises:
            UnknownNameError: the server does not offer the tasks, the partner or the scalarisation; or there is no
                argument of a name, which OpenEnv would leave out without a word.
            InvalidValueError: an argument is invalid.
        """
        refuse_unknown("reset", others, [*signature(self.reset_async).parameters][:-1])
        if seed is not None:
            check_whole("seed", seed, 0)
        offers = {"tasks": (tasks, self._offers.tasks), "partner": (partner, self._offers.partners)}
        if scalarisation is not None:
            offers["scalarisation"] = (scalarisation, self._offers.scalarisations)
        for name, (got, valid) in offers.items():
            if got not in valid:
                raise UnknownNameError(field=name, got=got, valid=valid)
        options = {"rules": Rules(max_turns=max_turns), "seed": seed or 0, "scalarisation": scalarisation}
        if (turns := check_kind(turn_rewards)) == "belief":
            options |= {"turns": turns, "evaluator": _ASKING}
        seat = TextSeat.against(tasks, partner, focal, **options)
        self._state = State(episode_id=episode_id, step_count=0)
        messages = await seat.begin()
        self._served = ServedSeat(seat)
        if episode_id is not None:
            # Removed first: a new episode of an old id is the newest.
            self._episodes.pop(episode_id, None)
            self._episodes[episode_id] = self._served
            self._drop()
        return _observation(seat, messages, first=True)

    async def step_async(
        self,
        action: SotopiaAction,
        timeout_s: float | None = None,
        episode_id: str | None = None,
        request_id: str | None = None,
    ) -> SotopiaObservation:
        """Takes the seat's action, and lets the partners act until it is the seat's turn again.

        A step with the ``request_id`` of an earlier one of the episode is answered as that one was, and not played.

        Raises:
            InvalidActionError: no episode was started, it has ended, or the earlier step had another action.
            PolicyError: a partner failed, or the partners did not act within ``timeout_s``; the same action goes on.
        """
        served = self._served = self._served or self._episodes.get(episode_id or "")
        if served is None:
            hint = "over plain HTTP, send the same episode_id with /reset and every /step"
            raise InvalidActionError(
                field="episode_id", expected="an episode that was started", got=episode_id, hint=hint
            )
        try:
            async with asyncio.timeout(timeout_s):
                observation = await served.step(action, request_id)
        except TimeoutError:
            raise PolicyError(f"the partners did not act within {timeout_s:g} s; send the same action again") from None
        self._state.step_count += 1
        return observation

    def _drop(self) -> None:
        """Drops an episode if there are too many: one that has ended, or else one whose client may have left."""
        if len(self._episodes) > MOST_EPISODES:
            ended = (name for name, served in self._episodes.items() if served.ended)
            del self._episodes[next(ended, next(iter(self._episodes)))]

    def reset(self, *args: Any, **kwargs: Any) -> SotopiaObservation:
        """The synchronous form of :meth:`reset_async`."""
        return wait(self.reset_async(*args, **kwargs))

    def step(self, *args: Any, **kwargs: Any) -> SotopiaObservation:
        """The synchronous form of :meth:`step_async`."""
        return wait(self.step_async(*args, **kwargs))

    @property
    def state(self) -> State:
        """The id of the episode and the number of steps."""
        return self._state


def _observation(seat: TextSeat, messages: Sequence[Any], first: bool = False) -> SotopiaObservation:
    rewards = seat.answer_rewards
    return SotopiaObservation(
        messages=list(messages),
        briefing=seat.table.observe(seat.agent).briefing.head if first else "",
        reward=seat.result.paid() if seat.done else 0.0,
        done=seat.done,
        turn_reward=rewards[-1] if rewards else None,
        scores=dict(seat.scores),
        metadata=seat.info,
    )


def make_app(
    task_names: Sequence[str] = TASKS,
    partners: Sequence[str] = PARTNERS,
    max_sessions: int = 64,
    scalarisations: Sequence[str] = SCALARISATIONS,
) -> FastAPI:
    """Returns a server.

    Args:
        task_names: the task sets that clients may choose; by default those of the package, and no files.
        partners: the policies that clients may choose; by default those without a model.
        max_sessions: the number of WebSocket sessions at once.
        scalarisations: the rewards that clients may choose beside the default one, which is from 0 to 1; by default
            all, of which ``share`` is unbounded and a single dimension has its native range.
    """
    make = partial(SotopiaEnvironment, {}, Offers(task_names, partners, scalarisations))
    app = create_fastapi_app(make, SotopiaAction, SotopiaObservation, max_concurrent_envs=max_sessions)

    @app.exception_handler(InvalidValueError)
    async def refused(request: Request, error: InvalidValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.exception_handler(SotopiaError)
    async def failed(request: Request, error: SotopiaError) -> JSONResponse:
        # A partner or its model is down: the same request may succeed later.
        return JSONResponse({"detail": str(error)}, status_code=503)

    return app


app = make_app()
