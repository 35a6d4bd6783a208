"""The tools ``observe``, ``say`` and ``move``, by which any agent product takes a seat of an episode.

To the episode the product is a policy (:class:`OutsidePolicy`) whose decisions arrive from outside, so it is played,
recorded, continued after an interruption and evaluated like every other episode of a run. An action that is not
possible is an error of its tool that says what is, and takes no turn.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.prompts import reader
from sotopia_env.foundation.records import Record
from sotopia_env.world.action import ActionType, ParseFailure, to_json
from sotopia_env.world.episode import Episode, Generation
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.play.table import Table

with extra("mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, TextContent

_TEXTS = dict(line.split(": ", 1) for line in reader(__package__)("tools").splitlines())


class SeatNews(Record):
    """The answer of every tool.

    Attributes:
        text: what the seat reads: everything with ``observe``, else what is new.
        your_turn: whether it is to act now; false only after the end.
        action_types: the action types that ``say`` accepts.
        open_moves: the JSON schema of the moves that are open; empty if none is.
        stop: why the episode ended; ``None`` while it is running.
        scores: the seat's own scores after the end, by dimension.
        unscored: why there are none after the end.
    """

    text: str
    your_turn: bool
    action_types: tuple[str, ...] = ()
    open_moves: dict[str, Any] = Field(default_factory=dict)
    stop: str | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    unscored: str | None = None


Answer = Annotated[CallToolResult, SeatNews]


class OutsidePolicy:
    """A policy that waits for the decisions of somebody outside the process.

    Attributes:
        name: its name in records.
        asked: the observations that wait for a decision.
        decisions: these decisions.
    """

    parameters: Mapping[str, Any] = {}

    def __init__(self, name: str = "mcp") -> None:
        self.name = name
        self.asked: asyncio.Queue[Observation] = asyncio.Queue()
        self.decisions: asyncio.Queue[Decision] = asyncio.Queue()

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the decision from outside."""
        self.asked.put_nowait(observation)
        return await self.decisions.get()


class McpSeat:
    """One seat of one episode, behind the three tools."""

    def __init__(self, policy: OutsidePolicy, agent: str, play: Callable[[], Awaitable[Episode]]) -> None:
        """Prepares the seat; nothing is played before a tool is called.

        Args:
            policy: the policy that has the seat.
            agent: the seat's agent id.
            play: plays the episode and returns its record.
        """
        self._policy, self._agent, self._play = policy, agent, play
        self._episode: asyncio.Task[Episode] | None = None
        self._asked: asyncio.Task[Observation] | None = None
        self._observation: Observation | None = None
        self._since, self._refused = 0.0, 0
        self._one_call = asyncio.Lock()

    async def observe(self) -> Answer:
        """Returns everything that the seat may know now."""
        async with self._one_call:
            observation = await self._turn()
            if observation is None:
                return _ended(self._record(), self._agent, whole=True)
            return _answer(observation, observation.text.removesuffix(observation.briefing.answer))

    async def say(self, words: str, to: list[str] | None = None, action_type: ActionType = ActionType.SPEAK) -> Answer:
        """Takes a turn without a move; by default everybody hears the words."""
        return await self._take({"action_type": action_type.value, "argument": words, "to": to or []})

    async def move(self, move: dict[str, Any], words: str = "", to: list[str] | None = None) -> Answer:
        """Takes a turn with a move, in the JSON of :mod:`sotopia_env.outcomes.move`."""
        return await self._take({"action_type": "speak", "argument": words, "to": to or [], "move": move})

    async def close(self) -> None:
        """Stops the episode where it is; the turns so far are recorded."""
        for task in filter(None, (self._asked, self._episode)):
            task.cancel()
        await asyncio.gather(*filter(None, (self._asked, self._episode)), return_exceptions=True)

    async def _take(self, fields: dict[str, Any]) -> Answer:
        async with self._one_call:
            observation = await self._turn()
            if observation is None:
                stop = self._record().stop
                raise ToolError(
                    f"That does not count: the episode has ended ({stop}); start the server again for another."
                )
            self._policy.decisions.put_nowait(self._decision(observation, fields))
            self._observation = None
            following = await self._turn()
            if following is None:
                return _ended(self._record(), self._agent)
            return _answer(following, following.news)

    def _decision(self, observation: Observation, fields: dict[str, Any]) -> Decision:
        """The action of these fields; a tool's error with the reason if it is not possible now."""
        # An empty list of recipients means everybody.
        action = observation.parse(json.dumps({key: value for key, value in fields.items() if key != "to" or value}))
        problem = action.reason if isinstance(action, ParseFailure) else observation.move_problem(action)
        if isinstance(action, ParseFailure) or problem is not None:
            self._refused += 1
            raise ToolError(f"That is not possible, and your turn goes on: {problem}")
        written = Generation(text=to_json(action), reasks=self._refused, latency=time.perf_counter() - self._since)
        return Decision(action, written)

    async def _turn(self) -> Observation | None:
        """The observation that waits for a decision; ``None`` once the episode has ended."""
        if self._episode is None:
            self._episode = asyncio.ensure_future(self._play())
        if self._observation is None:
            # Kept if this call is cancelled: the observation that it gets must not be lost.
            self._asked = self._asked or asyncio.ensure_future(self._policy.asked.get())
            await asyncio.wait([self._asked, self._episode], return_when=asyncio.FIRST_COMPLETED)
            if not self._asked.done():
                return None
            self._observation, self._asked = self._asked.result(), None
            self._since, self._refused = time.perf_counter(), 0
        return self._observation

    def _record(self) -> Episode:
        """The episode, which has ended; a tool's error if it failed."""
        assert self._episode is not None
        try:
            return self._episode.result()
        except SotopiaError as error:
            raise ToolError(f"The episode failed ({error}); start the server again to continue it.") from error


def _answer(observation: Observation, text: str, **fields: Any) -> CallToolResult:
    menu = observation.moves
    news = SeatNews(
        text=text.strip(),
        your_turn=observation.acting,
        action_types=tuple(kind.value for kind in observation.available) if observation.acting else (),
        open_moves=menu.json_schema() if menu else {},
        **fields,
    )
    return CallToolResult(
        content=[TextContent(type="text", text=news.text)], structured_content=news.model_dump(mode="json")
    )


def _ended(episode: Episode, agent: str, whole: bool = False) -> CallToolResult:
    """What happened last, or all of it, and the seat's own scores: those of others would tell it their goals."""
    assert episode.stop is not None
    verdict = episode.evaluations[-1] if episode.evaluations else None
    scores = {} if verdict is None else {s.dimension: s.value for s in verdict.scores if s.agent == agent}
    unscored = "no evaluator" if verdict is None else verdict.unscored
    lines = [f"The episode has ended: {episode.stop.value}."]
    lines += [f"Your scores: {', '.join(f'{name} {value:g}' for name, value in scores.items())}."] if scores else []
    lines += [f"It is not scored: {unscored}."] if unscored else []
    observation = Table.resume(episode).observe(agent)
    text = observation.text if whole else observation.news
    return _answer(observation, "\n".join([text, *lines]), stop=episode.stop.value, scores=scores, unscored=unscored)


def make_server(seat: McpSeat) -> MCPServer:
    """Returns the server with the tools of a seat."""
    server = MCPServer("sotopia", instructions=_TEXTS["instructions"], log_level="WARNING")
    for tool in (seat.observe, seat.say, seat.move):
        server.tool(description=_TEXTS[tool.__name__])(tool)
    return server


async def serve(seat: McpSeat, port: int | None = None) -> None:
    """Serves a seat until the client leaves, over stdin and stdout, or over HTTP until the process is stopped.

    Args:
        seat: the seat.
        port: a port of 127.0.0.1, where ``/mcp`` is the address; ``None`` for stdin and stdout.
    """
    server = make_server(seat)
    try:
        await (server.run_stdio_async() if port is None else server.run_streamable_http_async(port=port))
    finally:
        await seat.close()
