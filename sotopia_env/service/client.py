"""A client of the studio's API for Python programs, with and without ``async``.

::

    with Studio("http://127.0.0.1:8321", token="sot_…") as studio:
        run = studio.start_run({"policies": ["boulware", "conceder"], "tasks": "bargaining", "n": 5})
        print(studio.wait_for_run(run)["played"])

:class:`AsyncStudio` has the same methods as coroutines. An error response raises :class:`StudioError` with the message
of the service. Records are instances of the package's classes: :class:`~sotopia_env.world.Character`,
:class:`~sotopia_env.world.Scenario`, :class:`~sotopia_env.world.Task`, :class:`~sotopia_env.world.Episode`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self

import httpx

from sotopia_env.errors import SotopiaError
from sotopia_env.json_text import decode_json
from sotopia_env.world import Character, Episode, Scenario, Task
from sotopia_env.world.episode import read_episode, to_line

_POLL = 0.3
"""Seconds between two requests for a status."""
_OVER = frozenset({"done", "failed", "stopped"})


class StudioError(SotopiaError):
    """The studio refused a request.

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


def _simulation(
    what: Task | str, policies: list[str], agents: list[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the body of POST /simulate for a task, the id of a task, or the id of a scenario with characters."""
    if isinstance(what, Task):
        return {"task": what.model_dump(mode="json"), "policies": policies, **options}
    if agents is None:
        return {"task": what, "policies": policies, **options}
    return {"scenario": what, "agents": agents, "policies": policies, **options}


def _path(record: Character | Scenario | Task) -> str:
    return {Character: "/agents", Scenario: "/scenarios", Task: "/tasks"}[type(record)]


class AsyncStudio:
    """An asynchronous client of a studio."""

    def __init__(self, address: str, token: str, *, timeout: float = 60.0) -> None:
        """Creates a client; it connects at the first request.

        Args:
            address: address of the studio, such as ``http://127.0.0.1:8321``.
            token: token of this program.
            timeout: seconds to wait for a response.
        """
        self._http = httpx.AsyncClient(
            base_url=f"{address.rstrip('/')}/api/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=timeout,
            follow_redirects=True,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request to a path below ``/api/v1``; all other methods use this one.

        Raises:
            StudioError: the studio refused it.
        """
        return _checked(await self._http.request(method, path, **options))

    async def pages(self, path: str, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """Yields the items of a list, such as ``/agents``, ``/scenarios``, ``/episodes`` or ``/runs``, page by page."""
        while True:
            page = (await self.request("GET", path, params=filters)).json()
            for item in page["items"]:
                yield item
            if page["next"] is None:
                return
            filters["after"] = page["next"]

    async def add(self, record: Character | Scenario | Task, *tags: str) -> str:
        """Adds a record to the library and returns its id; a record with equal content keeps its id."""
        answer = await self.request(
            "POST", _path(record), json=record.model_dump(mode="json"), params={"tag": list(tags)}
        )
        return str(answer.json()["id"])

    async def simulate(
        self, what: Task | str, policies: list[str], agents: list[str] | None = None, **options: Any
    ) -> list[str]:
        """Begins live episodes and returns their ids.

        Args:
            what: a task, the id of a task, or the id of a scenario.
            policies: one for each seat, or one for all.
            agents: ids of the characters in the seats of a scenario.
            options: other fields of the request, such as ``repeats``, ``rules``, ``evaluator`` and ``tag``.
        """
        body = _simulation(what, policies, agents, options)
        return list((await self.request("POST", "/simulate", json=body)).json()["episodes"])

    async def events(self, episode: str, after: int = 0) -> AsyncIterator[tuple[int, str, Any]]:
        """Yields number, kind and content of each event of an episode until it ends; reconnects automatically."""
        while True:
            headers, kind, number, content = {"last-event-id": str(after)}, "", 0, "{}"
            async with self._http.stream("GET", f"/episodes/{episode}/events", headers=headers) as answer:
                if not answer.is_success:
                    await answer.aread()
                _checked(answer)
                async for line in answer.aiter_lines():
                    # Server-sent events: an empty line ends an event; lines that begin with a colon keep the
                    # connection alive.
                    name, _, value = line.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "id":
                        number = int(value)
                    elif not line and kind == "closed":
                        return
                    elif name == "data" and kind != "closed":
                        content = value
                    elif not line and kind:
                        after = number
                        yield number, kind, decode_json(content)
                        kind = ""

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

    async def start_run(self, spec: Mapping[str, Any], **options: Any) -> str:
        """Starts a batch run (the settings of ``RunSpec``) and returns its id."""
        return str((await self.request("POST", "/runs", json={"spec": dict(spec), **options})).json()["run"])

    async def wait_for_run(self, run: str, timeout: float = 3600.0) -> dict[str, Any]:
        """Waits until a run has ended and returns its row: status, counts and cost."""
        return await self._poll(f"/runs/{run}", timeout)

    async def compare(self, *runs: str, **options: Any) -> dict[str, Any]:
        """Returns the comparison of the policies in these runs."""
        return dict((await self.request("GET", "/compare", params={"run": list(runs), **options})).json())

    async def _poll(self, path: str, timeout: float) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            answer = dict((await self.request("GET", path)).json())
            if answer["status"] in _OVER:
                return answer
            await asyncio.sleep(_POLL)
        raise TimeoutError(f"{path} after {timeout:g} s")


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

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._studio, name)

        def wait(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return self._iterate(result) if isinstance(result, AsyncIterator) else self._runner.run(result)

        return wait

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while (item := self._runner.run(_next(items))) is not _END:
            yield item


_END: Any = object()


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items, _END)
