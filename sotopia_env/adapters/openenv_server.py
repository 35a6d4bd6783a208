"""OpenEnv's server for seats: ``uvicorn sotopia_env.adapters.openenv_server:app``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from sotopia_env import naming, tasks
from sotopia_env.adapters.openenv_types import SotopiaAction, SotopiaObservation
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, UnknownNameError
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.waiting import wait
from sotopia_env.world import Rules

with extra("openenv"):
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from openenv.core.env_server import Environment, State, create_fastapi_app

TASKS = (*naming.SHIPPED, *tasks.FAMILIES)
PARTNERS = tuple(name for name in naming.POLICY_NAMES if name != "human")
MOST_EPISODES = 1024
"""Maximum number of unfinished episodes over plain HTTP; then the oldest is dropped, whose client may have left."""


class SotopiaEnvironment(Environment[SotopiaAction, SotopiaObservation, State]):
    """One seat of an episode: a WebSocket session, or over plain HTTP all requests with one ``episode_id``."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        episodes: OrderedDict[str, TextSeat],
        task_names: Sequence[str] = TASKS,
        partners: Sequence[str] = PARTNERS,
    ) -> None:
        """Args are shared by all sessions: the episodes by id, and the names that a client may choose."""
        super().__init__()
        self._episodes, self._tasks, self._partners = episodes, task_names, partners
        self._seat: TextSeat | None = None
        self._state = State()

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        tasks: str = "bargaining",
        partner: str = "boulware",
        focal: int = 0,
        max_turns: int = 20,
        scalarisation: str | None = None,
    ) -> SotopiaObservation:
        """Starts an episode: ``seed`` draws the task; see :meth:`sotopia_env.adapters.seat.TextSeat.against`.

        Raises:
            UnknownNameError: the server does not offer the tasks or the partner.
            InvalidValueError: an argument is invalid.
        """
        for field, got, valid in (("tasks", tasks, self._tasks), ("partner", partner, self._partners)):
            if got not in valid:
                raise UnknownNameError(field=field, got=got, valid=valid)
        options = {"rules": Rules(max_turns=max_turns), "seed": seed or 0, "scalarisation": scalarisation}
        self._seat = TextSeat.against(tasks, partner, focal, **options)
        self._state = State(episode_id=episode_id, step_count=0)
        messages = await self._seat.begin()
        if episode_id is not None:
            self._episodes[episode_id] = self._seat
            if len(self._episodes) > MOST_EPISODES:
                self._episodes.popitem(last=False)
        return _observation(self._seat, messages)

    async def step_async(
        self, action: SotopiaAction, timeout_s: float | None = None, episode_id: str | None = None
    ) -> SotopiaObservation:
        """Takes the seat's action, and lets the partners act until it is the seat's turn again.

        Raises:
            InvalidActionError: no episode was started, or it has ended.
        """
        seat = self._seat = self._seat or self._episodes.get(episode_id or "")
        if seat is None:
            hint = "over plain HTTP, send the same episode_id with /reset and every /step"
            raise InvalidActionError(
                field="episode_id", expected="an episode that was started", got=episode_id, hint=hint
            )
        messages, done = await seat.say(action.answer)
        self._state.step_count += 1
        if done:
            self._episodes.pop(self._state.episode_id or episode_id or "", None)
        return _observation(seat, messages)

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


def _observation(seat: TextSeat, messages: Sequence[Any]) -> SotopiaObservation:
    rewards = seat.answer_rewards
    return SotopiaObservation(
        messages=list(messages),
        reward=seat.reward or 0.0,
        done=seat.done,
        turn_reward=rewards[-1] if rewards else None,
        scores=seat.scores,
        metadata=seat.info,
    )


def make_app(task_names: Sequence[str] = TASKS, partners: Sequence[str] = PARTNERS, max_sessions: int = 64) -> FastAPI:
    """Returns a server.

    Args:
        task_names: the task sets that clients may choose; by default those of the package, and no files.
        partners: the policies that clients may choose; by default those without a model.
        max_sessions: the number of WebSocket sessions at once.
    """
    make = partial(SotopiaEnvironment, OrderedDict(), task_names, partners)
    app = create_fastapi_app(make, SotopiaAction, SotopiaObservation, max_concurrent_envs=max_sessions)

    @app.exception_handler(InvalidValueError)
    async def refused(request: Request, error: InvalidValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    return app


app = make_app()
