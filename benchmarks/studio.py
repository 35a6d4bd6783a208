"""The studio: lists of 100,000 episodes, and the way of an event to 200 watchers while 50 episodes are live.

On SQLite, and on the PostgreSQL database that ``SOTOPIA_BENCH_POSTGRES`` names, which must be empty.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
from sotopia_studio import auth
from sotopia_studio.client import AsyncStudio
from sotopia_studio.store import episode_lists, events, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.migrations import upgrade

from benchmarks.measure import Figure
from sotopia_env import naming
from sotopia_env.world import Action, Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.reward import DIMENSIONS

Watch = Callable[[str, list[tuple[int, float]]], Coroutine[Any, Any, None]]
"""Watches an episode and notes number and time of each event."""
EPISODES, CHUNK, ROUNDS = 100_000, 5_000, 5
WATCHERS, LIVE, TURNS, THINKING = 200, 50, 8, 2.0
SEEN = 6
"""The number of the last event that may have been there before all watchers were."""
STREAMS = {
    "an event's way to a program": ("/api/v1/episodes/{}/events", "closed"),
    "a turn's way to a page": ("/episodes/{}/stream", "close"),
}
"""The streams of an episode, as JSON and as HTML: their addresses, and the event at their ends."""
FILTERS: Mapping[str, EpisodeFilter] = {
    "all": EpisodeFilter(),
    "status": EpisodeFilter(status="done"),
    "run": EpisodeFilter(run="run-3"),
    "tag": EpisodeFilter(tag="odd"),
    "scenario": EpisodeFilter(scenario="scenario-7"),
    "task": EpisodeFilter(task="task-77"),
    "stop": EpisodeFilter(stop="left"),
    "starred": EpisodeFilter(starred=True),
    "policy": EpisodeFilter(policy="policy-2"),
    "character": EpisodeFilter(character="character-11"),
    "score": EpisodeFilter(dimension="goal", low=9.0),
    "policy and score": EpisodeFilter(policy="policy-2", dimension="goal", low=9.0),
    "run and stop": EpisodeFilter(run="run-3", stop="left"),
}


class Thinker:
    """Takes as long as a language model."""

    name = "thinker"
    parameters: Mapping[str, Any] = {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a sentence after a second."""
        await asyncio.sleep(THINKING)
        return Decision(Action(argument="I would rather plant beans, and I say why at some length, as people do."))


def rows(number: int) -> dict[str, list[dict[str, Any]]]:
    """The rows of one episode, by table."""
    identity = f"{number:021x}"
    episode = {"id": identity, "run": f"run-{number % 50}", "key": identity, "task": f"task-{number % 450}"}
    episode |= {"task_hash": f"{number % 450:016x}", "scenario": f"scenario-{number % 90}", "seats": 2}
    episode |= {"characters": f"character-{number % 40}, character-{number % 39}", "policies": "policy-1, policy-2"}
    episode |= {"status": "done", "stop": ("settled", "left", "max_turns")[number % 3], "turns": 12, "seed": number}
    episode |= {"starred": number % 100 == 0, "created": float(number), "ended": float(number)}
    agents = [("agent_0", f"character-{number % 40}"), ("agent_1", f"character-{number % 39}")]
    seats = [
        {"episode": identity, "agent": agent, "character": character, "policy": f"policy-{(number + seat) % 7}"}
        for seat, (agent, character) in enumerate(agents)
    ]
    scores = [
        {"episode": identity, "agent": agent, "evaluator": "judge", "dimension": str(dimension), "value": float(value)}
        for agent, _ in agents
        for dimension, value in zip(DIMENSIONS, range(number % 5, number % 5 + 7), strict=True)
    ]
    tags = [{"kind": "episode", "item": identity, "tag": "odd"}] if number % 200 == 1 else []
    document = [{"episode": identity, "record": "x" * 1000}]
    return {"episode": [episode], "document": document, "seat": seats, "score": scores, "tag": tags}


async def fill(database: Database) -> None:
    """Adds the episodes."""
    async with database.write() as connection:
        for number in range(50):
            run = {"id": f"run-{number}", "kind": "batch", "spec": "{}", "status": "done", "created": 0.0}
            await connection.execute(tables.run.insert().values(**run))
        for start in range(0, EPISODES, CHUNK):
            parts: dict[str, list[dict[str, Any]]] = {}
            for number in range(start, start + CHUNK):
                for name, lines in rows(number).items():
                    parts.setdefault(name, []).extend(lines)
            for name, lines in parts.items():
                await connection.execute(tables.metadata.tables[name].insert(), lines)
        if not database.is_sqlite:  # PostgreSQL does it by itself within a minute or so
            await connection.exec_driver_sql("ANALYZE")


async def lists(url: str) -> list[Figure]:
    """Milliseconds of the slowest filter: the median over rounds of a page, of a later page, and of a count."""
    database = Database(url)
    await upgrade(database)
    await fill(database)
    slowest = {"a page": (0.0, ""), "a later page": (0.0, ""), "a count": (0.0, "")}
    middle = f"{EPISODES // 2:021x}"
    async with database.read() as connection:
        for name, only in FILTERS.items():
            works = {
                "a page": lambda only=only: episode_lists.page(connection, only),
                "a later page": lambda only=only: episode_lists.page(connection, only, after=middle),
                "a count": lambda only=only: episode_lists.count(connection, only),
            }
            for work, begin in works.items():
                times = []
                for _ in range(ROUNDS):
                    start = time.perf_counter()
                    await begin()
                    times.append(1000 * (time.perf_counter() - start))
                slowest[work] = max(slowest[work], (statistics.median(times), f"slowest filter: {name}"))
    await database.close()
    what = f"of {EPISODES:,} episodes"
    return [Figure(f"{work} {what}", value, "ms", 100, note=note) for work, (value, note) in slowest.items()]


async def live(url: str, folder: Path) -> list[Figure]:
    """Milliseconds of an event's way to a watcher, and of a list meanwhile."""
    database = Database(url)
    await upgrade(database)
    async with database.write() as connection:
        token = await auth.add_token(connection, "bench", "bench", frozenset({"read", "run"}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(port), "--database", url]
    options = ["--set", f"data={folder}", "--set", "concurrency=100", "--set", "live_episodes=100"]
    server = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    try:
        async with AsyncStudio(f"http://127.0.0.1:{port}", token) as studio:
            start = time.perf_counter()
            while not await answers(port):
                await asyncio.sleep(0.02)
            results = [Figure("from the command to the first answer", time.perf_counter() - start, "s", 5)]
            results += await pages(port, token)
            process = psutil.Process(server.pid)
            for name, (address, end) in STREAMS.items():
                before = sum(process.cpu_times()[:2])
                results += await watched(studio, database, name, partial(watch, port, token, address, end))
                used = sum(process.cpu_times()[:2]) - before
                results.append(Figure("the server's processor time meanwhile", used, "s", 4))
            return results
    finally:
        server.terminate()
        server.wait()
        await database.close()


async def pages(port: int, token: str) -> list[Figure]:
    """Milliseconds of the list as a page: the first one after the server's start, and the slowest filter."""
    headers = {"authorization": f"Bearer {token}", "accept": "text/html"}
    medians: dict[str, float] = {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
        for name, only in {"the first": EpisodeFilter(), **FILTERS}.items():
            times = []
            for _ in range(1 if name == "the first" else ROUNDS):
                start = time.perf_counter()
                (await http.get("/episodes", params=only.model_dump(exclude_none=True, mode="json"))).raise_for_status()
                times.append(1000 * (time.perf_counter() - start))
            medians[name] = statistics.median(times)
    first = medians.pop("the first")
    slowest = max(medians, key=lambda name: medians[name])
    return [
        Figure("the list's first page after the start", first, "ms", 300),
        Figure("a page of the list in HTML", medians[slowest], "ms", 300, note=f"slowest filter: {slowest}"),
    ]


async def answers(port: int) -> bool:
    """Whether the server answers; it listens before, while it is still being loaded."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(f"GET /static/icon.svg HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    await reader.readline()
    writer.close()
    return True


async def watched(studio: AsyncStudio, database: Database, name: str, watch: Watch) -> list[Figure]:
    """Begins the episodes, watches one, asks for lists meanwhile."""
    task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
    rules = {"max_turns": TURNS, "max_silent_turns": 0}
    options: dict[str, Any] = {"rules": rules, "evaluator": "none", "repeats": LIVE}
    begun = await studio.simulate(task, ["benchmarks.studio:Thinker"], **options)
    arrivals: list[tuple[int, float]] = []
    watchers = [asyncio.create_task(watch(begun[0], arrivals)) for _ in range(WATCHERS)]
    requests: list[float] = []
    while not all(task.done() for task in watchers):
        start = time.perf_counter()
        await studio.request("GET", "/episodes")
        requests.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(0.25)
    await asyncio.gather(*watchers)
    records = [await studio.wait_for(episode) for episode in begun]
    assert all(len(record.turns) == TURNS for record in records)
    async with database.read() as connection:
        appended = {event.number: event.at for event in await events.read(connection, begun[0])}
    # What was there before a watcher came is not on its way.
    delays = [1000 * (at - appended[number]) for number, at in arrivals if number > SEEN]
    load = f"{WATCHERS} watchers, {LIVE} live episodes"
    return [
        Figure(f"{name}, p95", p95(delays), "ms", 150, note=f"{load}; {len(delays)} deliveries"),
        Figure("a list of episodes meanwhile, p95", p95(requests), "ms", 150, note=f"{len(requests)} requests"),
    ]


async def watch(port: int, token: str, address: str, end: str, episode: str, arrivals: list[tuple[int, float]]) -> None:
    """Reads the events of an episode to its end; notes number and time of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET {address.format(episode)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    writer.write(f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
    while line := (await reader.readline()).decode():
        name, _, value = line.strip().partition(": ")
        if name == "id":
            arrivals.append((int(value), time.time()))
        elif (name, value) == ("event", end):
            break
    writer.close()


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def figures() -> list[Figure]:
    """Both parts on each database: 50 episodes are live beside 100,000 recorded ones."""
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/studio.db", *filter(None, [os.environ.get("SOTOPIA_BENCH_POSTGRES")])]
        results = []
        for url in urls:
            kind = url.partition(":")[0]
            own = asyncio.run(lists(url)) + asyncio.run(live(url, Path(folder)))
            results += [replace(figure, name=f"{kind}: {figure.name}") for figure in own]
        return results
