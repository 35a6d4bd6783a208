"""What becomes of a conversation whose worker is killed: another takes it over, and the page says so meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sotopia_studio import live
from sotopia_studio.auth import Principal
from sotopia_studio.pages import seat
from sotopia_studio.store import jobs, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.work.presence import Presence
from sqlalchemy import update

from sotopia_env.world import Rules
from tests.sotopia_studio.server import studio
from tests.sotopia_studio.test_live import begin, spec, until, working

DOOMED = """
import sys, time
from pathlib import Path
from sotopia_studio.work.presence import Presence
print(Presence(Path(sys.argv[1])).name, flush=True)
time.sleep(600)
"""


def test_the_living_are_not_dead(tmp_path: Path) -> None:
    first, second = Presence(tmp_path), Presence(tmp_path)
    assert first.dead() == second.dead() == []
    second.close()
    assert first.dead() == []
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    first.close()


def test_jobs_of_a_killed_worker_are_taken_over_before_their_lease_ends(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DOOMED, str(tmp_path / "workers")]
    doomed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert doomed.stdout is not None
    name = doomed.stdout.readline().strip()

    async def play() -> None:
        database = Database(url)
        episode = await begin(database, spec(policies={"agent_0": "boulware", "agent_1": "conceder"}))
        async with database.write() as connection:
            assert await jobs.claim(connection, name) is not None
        await database.close()
        async with working(url, data=tmp_path) as database:
            await asyncio.sleep(1.5)
            async with database.read() as connection:
                assert not (await live.LiveEpisode.load(connection, episode)).table.turns  # its worker lives
            doomed.kill()
            doomed.wait(60)
            start = time.monotonic()
            assert (await until(database, episode)).status == "done"
            assert time.monotonic() - start < jobs.LEASE / 2

    try:
        asyncio.run(play())
    finally:
        doomed.kill()
        doomed.wait(60)
        doomed.stdout.close()
    assert not list((tmp_path / "workers").iterdir())


@pytest.mark.parametrize(
    ("state", "delay"),
    [
        ({"worker": "a", "attempts": 1, "leased_until": jobs.LEASE}, ""),
        ({"worker": "a", "attempts": 1, "leased_until": jobs.LEASE - 9}, "interrupted"),
        ({"worker": "", "attempts": 1, "leased_until": None}, "interrupted"),
        ({"worker": "", "attempts": 1, "leased_until": None, "error": "ModelCallError: down"}, "retrying"),
        ({"worker": "", "attempts": 0, "leased_until": None, "not_before": -9.0}, "queued"),
        ({"worker": "", "attempts": 0, "leased_until": None, "not_before": 0.0}, ""),
    ],
)
def test_the_page_and_its_stream_say_why_a_partner_is_silent(
    sqlite_url: str, tmp_path: Path, state: dict[str, object], delay: str
) -> None:
    async def work() -> None:
        async with studio(sqlite_url, workers=0, data=tmp_path) as service:
            turns = {"agent_0": "boulware", "agent_1": "human"}
            episode = await begin(service.database, spec(policies=turns, rules=Rules(max_turns=4)))
            browser = await service.researcher()
            times = {name: time.time() + value for name, value in state.items() if isinstance(value, float)}
            async with service.database.write() as connection:
                await connection.execute(update(tables.job).values(**{**state, **times}))
            page = (await browser.get(f"/seat/{episode}/agent_1")).text
            assert ("data-delay" in page) == bool(delay)
            assert not delay or f'data-delay="{delay}"' in page
            parts = service.app.state.services  # type: ignore[attr-defined]
            person = Principal("", "admin", frozenset())
            stream = seat.changes(parts, person, episode, "agent_1", 2)  # the number of the latest event
            if not delay:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 2.9)
            else:
                # Nothing happens in the episode, and the page is told to look again.
                assert (await asyncio.wait_for(anext(stream), 9)).raw_data == "delay"
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(work())
