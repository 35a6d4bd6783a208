"""Watching live episodes: every event once, whichever process appends it and whatever interrupts the watcher."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from sotopia_studio.hub import Hub, Once
from sotopia_studio.pages import episodes as pages
from sotopia_studio.pages.rendering import EventStream
from sotopia_studio.store import tags
from sotopia_studio.store.engine import Database

from sotopia_env.world import Action
from tests.sotopia_studio.conftest import act
from tests.sotopia_studio.server import studio
from tests.sotopia_studio.test_live import begin, spec, until

SCRIPTS = {"agent_0": "boulware", "agent_1": "conceder"}


def test_every_commit_of_another_connection_makes_a_new_version(url: str) -> None:
    async def play() -> None:
        database, other = Database(url), Database(url)
        async with database.watched() as version:
            first = await version()
            assert await version() == first
            for name in ("one", "two"):
                async with other.write() as connection:
                    await tags.add(connection, "episode", "some", [name])
                second = await version()
                assert second != first
                first = second
            async with database.write() as connection:
                await tags.add(connection, "episode", "some", ["three"])
            assert await version() != first
        await database.close()
        await other.close()

    asyncio.run(play())


def test_a_watcher_of_one_web_process_sees_what_another_one_appends(url: str) -> None:
    async def play() -> None:
        async with studio(url, workers=0) as watching, studio(url) as acting:
            episode = await begin(acting.database, spec())
            state = await until(acting.database, episode, "agent_0")
            hub = watching.app.state.services.hub  # type: ignore[attr-defined]
            async with aclosing(hub.batches(episode, state.number)) as stream, asyncio.timeout(60):
                news = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0.1)  # the hub polls by now, and knows of nothing new
                await act(acting.database, episode, "agent_0", Action("speak", "Hi."), turn=0, key="1")
                assert [event.kind for event in await news] == ["turn", "waiting"]

    asyncio.run(play())


@pytest.mark.parametrize("seat", [None, "agent_1"])
def test_a_page_that_connects_again_and_again_gets_every_turn_once(sqlite_url: str, seat: str | None) -> None:
    async def play() -> None:
        async with studio(sqlite_url) as server:
            parts = server.app.state.services  # type: ignore[attr-defined]
            episode = await begin(server.database, spec(policies=SCRIPTS))

            async def watch(cut: int) -> Counter[str]:
                """How often a page gets each turn, if its stream breaks after every ``cut`` fragments."""
                text, last, sent = "", 0, 0
                while True:
                    async with aclosing(pages.fragments(parts, episode, last, seat)) as stream:
                        async for item in stream:
                            text += item.decode()
                            if "event: close" in item.decode():
                                return Counter(re.findall(r'id="(turn-\d+)"', text))
                            last, sent = max([last, *map(int, re.findall(r"id: (\d+)\n", item.decode()))]), sent + 1
                            if sent % cut == 0:
                                break

            counts = await asyncio.gather(*(watch(cut) for cut in (1, 2, 1000)))
            turns = len((await until(server.database, episode)).table.turns)
            assert turns > 1
            assert counts == [{f"turn-{number}": 1 for number in range(1, turns + 1)}] * 3

    asyncio.run(play())


def test_a_silent_stream_says_that_it_is_alive(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        monkeypatch.setattr(pages, "PING", 0.05)
        async with studio(sqlite_url) as server:
            episode = await begin(server.database, spec())
            state = await until(server.database, episode, "agent_0")
            stream = EventStream(pages.fragments(server.app.state.services, episode, state.number, None))  # type: ignore[attr-defined]
            iterator: Any = stream.body_iterator
            async with aclosing(iterator), asyncio.timeout(60):
                ping = await anext(iterator)
            # A comment, which browsers ignore, and the end of an event.
            assert ping.startswith(b":")
            assert ping.endswith(b"\n\n")

    asyncio.run(play())


def test_watchers_go_on_after_the_database_did_not_answer(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        database, other, failures = Database(sqlite_url), Database(sqlite_url), iter([True])
        original = database.watched

        @asynccontextmanager
        async def watched():  # type: ignore[no-untyped-def]
            async with original() as version:

                async def unreliable() -> object:
                    if next(failures, False):
                        raise sqlite3.OperationalError("disk I/O error")
                    return await version()

                yield unreliable

        monkeypatch.setattr(database, "watched", watched)
        hub, episode = Hub(database), await begin(database, spec())
        async with aclosing(hub.batches(episode)) as stream, asyncio.timeout(60):
            number = (await anext(stream))[-1].number
            await act(other, episode, "agent_0", Action("speak", "Hi."), turn=0, key="1")
            assert (await anext(stream))[0].number == number + 1
        await hub.close()
        await database.close()
        await other.close()

    asyncio.run(play())


def test_results_are_computed_once_and_few_are_kept() -> None:
    async def play() -> None:
        once, computed = Once(2), Counter[str]()

        async def ask(key: str) -> int:
            async def compute() -> int:
                computed[key] += 1
                await asyncio.sleep(0)
                if key == "bad" and computed[key] == 1:
                    raise OSError("out of luck")
                return computed[key]

            return await once(key, compute)

        leaving = asyncio.ensure_future(ask("a"))
        await asyncio.sleep(0)
        staying = [asyncio.ensure_future(ask("a")) for _ in range(3)]
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asyncio.gather(*staying) == [1, 1, 1]
        with pytest.raises(OSError, match="luck"):
            await ask("bad")
        assert await ask("bad") == 2  # an error is not a result
        assert await ask("a") == 1
        assert await ask("c") == 1
        assert await ask("a") == 1
        assert await ask("bad") == 3  # forgotten: two were asked for later

    asyncio.run(play())
