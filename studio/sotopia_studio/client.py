"""A client of the studio's API for Python programs, with and without ``async``.

::

    with Studio("http://127.0.0.1:8321", token="sot_…") as studio:
        run = studio.start_run({"policies": ["boulware", "conceder"], "tasks": "bargaining", "n": 5})
        print(studio.wait_for_run(run)["played"])

:class:`AsyncStudio` has the same methods as coroutines. An error response raises :class:`StudioError` with the message
of the service. Records are instances of the package's classes: :class:`~sotopia_env.world.Character`,
:class:`~sotopia_env.world.Scenario`, :class:`~sotopia_env.world.Task`, :class:`~sotopia_env.world.episode.Episode`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.world import Character, Scenario, Task
from sotopia_env.world.episode import Episode, read_episode, to_line

P = ParamSpec("P")
T = TypeVar("T")
_POLL = 0.3
"""Seconds between two requests for a status."""
_PATHS: dict[type, str] = {Character: "/agents", Scenario: "/scenarios", Task: "/tasks"}
_OVER = frozenset({"done", "failed", "stopped"})


class StudioError(SotopiaError):
    """The studio returned an error.

    Attributes:
        status: HTTP status.
        problem: the problem details: ``detail``, and optionally ``field``, ``expected`` and ``nearest``.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail", status)))
        self.status = status
        self.problem = dict(problem)


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    is_problem = answer.headers.get("content-type", "").endswith("problem+json")
    raise StudioError(answer.status_code, answer.json() if is_problem else {"detail": answer.text[:200]})


class AsyncStudio:
    """An asynchronous client of a studio."""

    def __init__(self, address: str, token: str, *, timeout: float = 60.0) -> None:
        """Creates a client; it connects at the first request.

        Args:
            address: address of the studio, such as ``http://127.0.0.1:8321``.
            token: the token of this program.
            timeout: seconds to wait for a response.
        """
        base, headers = f"{address.rstrip('/')}/api/v1", {"authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=base, headers=headers, timeout=timeout, follow_redirects=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def request(self, /, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request to a path below ``/api/v1``; all other methods use this one.

        Raises:
            StudioError: the studio returned an error.
        """
        return _checked(await self._http.request(method, path, **options))

    async def pages(self, /, path: str, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """Yields the items of a list, such as ``/agents``, ``/scenarios``, ``/episodes`` or ``/runs``, page by page."""
        filters.setdefault("after", "")
        while filters["after"] is not None:
            page = (await self.request("GET", path, params=filters)).json()
            for item in page["items"]:
                yield item
            filters["after"] = page["next"]

    async def add(self, record: Character | Scenario | Task, *tags: str) -> str:
        """Adds a record to the library and returns its id; a record with equal content keeps its id."""
        body = record.model_dump(mode="json")
        answer = await self.request("POST", _PATHS[type(record)], json=body, params={"tag": list(tags)})
        return str(answer.json()["id"])

    async def simulate(
        self, /, what: Task | str, policies: list[str], agents: list[str] | None = None, **options: Any
    ) -> list[str]:
        """Starts live episodes and returns their ids.

        Args:
            what: a task, the id of a task, or the id of a scenario.
            policies: one for each seat, or one for all.
            agents: ids of the characters in the seats of a scenario.
            options: other fields of the request, such as ``repeats``, ``rules``, ``evaluator`` and ``tag``.
        """
        task = what.model_dump(mode="json") if isinstance(what, Task) else what
        cast = {"task": task} if agents is None else {"scenario": task, "agents": agents}
        body = {**cast, "policies": policies, **options}
        return list((await self.request("POST", "/simulate", json=body)).json()["episodes"])

    async def events(self, episode: str, after: int = 0) -> AsyncIterator[tuple[int, str, Any]]:
        """Yields number, kind and content of each event of an episode until it ends; reconnects automatically."""
        while True:
            headers, fields = {"last-event-id": str(after)}, {"event": ""}
            async with self._http.stream("GET", f"/episodes/{episode}/events", headers=headers) as answer:
                if not answer.is_success:
                    await answer.aread()
                _checked(answer)
                async for line in answer.aiter_lines():
                    # An empty line ends a server-sent event; lines that begin with a colon keep the connection alive.
                    name, _, value = line.partition(": ")
                    if line:
                        fields[name] = value
                    elif fields["event"] == "closed":
                        return
                    elif fields["event"]:
                        after = int(fields["id"])
                        yield after, fields["event"], decode_json(fields["data"])
                        fields["event"] = ""

    async def act(self, episode: str, agent: str, turn: int, action: Mapping[str, Any]) -> dict[str, Any]:
        """Sends the action of a person's seat; retried once after a broken connection, without a second effect."""
        body = {"turn": turn, "key": secrets.token_hex(8), "action": dict(action)}
        path = f"/episodes/{episode}/seats/{agent}/actions"
        try:
            return dict((await self.request("POST", path, json=body)).json())
        # The key is the same in both requests, so the studio carries the action out once.
        except httpx.TransportError:
            return dict((await self.request("POST", path, json=body)).json())

    async def seat(self, episode: str, agent: str) -> dict[str, Any]:
        """Returns the observation of a seat in a live episode."""
        return dict((await self.request("GET", f"/episodes/{episode}/seats/{agent}")).json())

    async def wait_for(self, episode: str, timeout: float = 600.0) -> Episode:
        """Waits until an episode has ended and returns its record.

        Raises:
            StudioError: the episode failed or was stopped.
            TimeoutError: the episode took longer than ``timeout`` seconds.
        """
        status = await self._poll(f"/simulation_status/{episode}", timeout)
        if status["status"] != "done":
            raise StudioError(409, {"detail": f"episode {episode} {status['status']}: {status['reason']}"})
        return await self.episode(episode)

    async def episode(self, episode: str) -> Episode:
        """Returns the record of an ended episode."""
        return read_episode((await self.request("GET", f"/episodes/{episode}/record")).text, f"episode {episode}")

    async def upload(self, *episodes: Episode) -> list[str]:
        """Adds recorded episodes and returns their ids."""
        text = "".join(map(to_line, episodes))
        return list((await self.request("POST", "/episodes", content=text.encode())).json()["ids"])

    async def start_run(self, /, spec: Mapping[str, Any], **options: Any) -> str:
        """Starts a batch run (the settings of ``RunSpec``) and returns its id."""
        return str((await self.request("POST", "/runs", json={"spec": dict(spec), **options})).json()["run"])

    async def wait_for_run(self, run: str, timeout: float = 3600.0) -> dict[str, Any]:
        """Waits until a run has ended and returns its row: status, counts and cost."""
        return await self._poll(f"/runs/{run}", timeout)

    async def compare(self, /, *runs: str, **options: Any) -> dict[str, Any]:
        """Returns the comparison of the policies in these runs."""
        return dict((await self.request("GET", "/compare", params={"run": list(runs), **options})).json())

    async def _poll(self, path: str, timeout: float) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while (answer := dict((await self.request("GET", path)).json()))["status"] not in _OVER:
            if time.monotonic() > end:
                raise TimeoutError(f"{path} after {timeout:g} s")
            await asyncio.sleep(_POLL)
        return answer


def _sync(call: Callable[Concatenate[AsyncStudio, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Studio, P], T]:
    """Turns a coroutine method into one that waits for the result."""

    @wraps(call)
    def wait(self: Studio, /, *args: P.args, **options: P.kwargs) -> T:
        return self._runner.run(call(self._studio, *args, **options))

    return wait


def _each(
    call: Callable[Concatenate[AsyncStudio, P], AsyncIterator[T]],
) -> Callable[Concatenate[Studio, P], Iterator[T]]:
    """Turns an asynchronous generator method into a generator that waits for each item."""

    @wraps(call)
    def iterate(self: Studio, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        items = call(self._studio, *args, **options)
        while (item := self._runner.run(_next(items))) is not None:
            yield item

    return iterate


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


class Studio:
    """A synchronous client of a studio, with the methods of :class:`AsyncStudio`."""

    def __init__(self, address: str, token: str, *, timeout: float = 60.0) -> None:
        """Creates a client; the arguments are those of :class:`AsyncStudio`."""
        # One event loop for the life of the client, because the connections of httpx belong to a loop.
        self._runner = asyncio.Runner()
        self._studio = AsyncStudio(address, token, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._studio.__aexit__())
        self._runner.close()

    request = _sync(AsyncStudio.request)
    pages = _each(AsyncStudio.pages)
    add = _sync(AsyncStudio.add)
    simulate = _sync(AsyncStudio.simulate)
    events = _each(AsyncStudio.events)
    act = _sync(AsyncStudio.act)
    seat = _sync(AsyncStudio.seat)
    wait_for = _sync(AsyncStudio.wait_for)
    episode = _sync(AsyncStudio.episode)
    upload = _sync(AsyncStudio.upload)
    start_run = _sync(AsyncStudio.start_run)
    wait_for_run = _sync(AsyncStudio.wait_for_run)
    compare = _sync(AsyncStudio.compare)
