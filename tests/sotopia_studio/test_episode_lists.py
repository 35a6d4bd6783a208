"""Lists of episodes and runs, on both databases: every filter, pages without gaps, counts."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import io

import pytest
from sotopia_studio import live
from sotopia_studio.menus import COLUMNS, EpisodeMenus
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import episode_lists, episodes, jobs, runs
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.engine import Database
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.event_records import LiveSpec
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.world import Rules
from sotopia_env.world.episode import Episode, to_line
from tests.sotopia_studio.server import studio


async def played() -> list[Episode]:
    policies = [naming.make_policy(name) for name in ("boulware", "conceder")]
    plans = plan_episodes(naming.task_set("bargaining", 3, 0, "medium"), [tuple(policies)], rules=Rules(max_turns=8))
    return list((await run_episodes(plans, evaluator=naming.make_evaluator("verified"))).episodes)


def test_episodes_are_filtered_paged_and_counted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        database, records = Database(url), await played()
        async with database.write() as connection:
            run = await runs.add(connection, "{}", name="first", planned=len(records), directory="/runs/first")
            entries = [(record, "") for record in records]
            ids = [identity for identity, _ in await episodes.add_recorded(connection, run, entries, 1.0)]
            again = await episodes.add_recorded(connection, run, entries, 1.0)
            assert again == [(identity, False) for identity in ids]
            await tag_store.add(connection, "episode", ids[0], ["odd"])
            await episode_lists.star(connection, ids[1], True)
            ((loose, _),) = await episodes.add_recorded(connection, None, entries[:1], 2.0)
        async with database.read() as connection:
            listing: list[str] = []
            while page := await episode_lists.page(connection, after=listing[-1] if listing else "", limit=2):
                listing += [row.id for row in page]
            assert listing == sorted({*ids, loose}, reverse=True)
            assert await episode_lists.count(connection) == len(ids) + 1
            record = records[0]
            goals = [score.value for item in records for score in item.evaluation().scores if score.dimension == "goal"]  # type: ignore[union-attr]
            filters: dict[str, object] = {
                "run": run, "tag": "odd", "scenario": record.task.scenario.id, "task": record.task.id,
                "task_hash": record.task.content_hash, "policy": "boulware",
                "character": record.task.characters[0].name, "status": "done",
                "stop": record.stop.value if record.stop else "", "starred": True, "dimension": "goal",
            }  # fmt: skip
            for name, value in filters.items():
                only = EpisodeFilter(**{name: value})  # type: ignore[arg-type]
                rows = await episode_lists.page(connection, only, limit=100)
                assert 0 < len(rows) == await episode_lists.count(connection, only), name
                number = (await episode_lists.values(connection, name))[str(value)]
                assert number == len(rows), name
            best = await episode_lists.page(connection, EpisodeFilter(dimension="goal", low=max(goals)))
            assert {score["goal"] for row in best for score in row.scores.values()} & {max(goals)}
            assert await episode_lists.count(connection, EpisodeFilter(dimension="goal", low=max(goals) + 1)) == 0
            # Whether many scores fit or few decides how a page is found, and not what is on it.
            scored = [{"dimension": "goal", "low": min(goals)}, {"evaluator": "verified"}, {"low": 1.0, "high": 9.5}]
            scored += [{**fields, "policy": "boulware"} for fields in scored]
            for fields in scored:
                only = EpisodeFilter(**fields)  # type: ignore[arg-type]
                pages = []
                for most in (50_000, 0):
                    monkeypatch.setattr(episode_lists, "_MOST_SORTED", most)
                    pages.append(await episode_lists.page(connection, only, limit=100))
                assert pages[0] == pages[1]
                assert len(pages[0]) == await episode_lists.count(connection, only) > 0
            assert await episode_lists.distinct(connection, "evaluator") == ["verified"]
            assert await episode_lists.count(connection, EpisodeFilter(status="open")) == 0
            middle = listing[1]
            assert await episode_lists.neighbours(connection, EpisodeFilter(), middle) == (listing[0], listing[2])
            assert await episodes.line_of(connection, ids[0]) == to_line(record).rstrip("\n")
            with pytest.raises(UnknownNameError):
                await episode_lists.values(connection, "record")
            with pytest.raises(MissingError):
                await episode_lists.one(connection, "unknown")
        async with database.write() as connection:
            with pytest.raises(ConflictError):
                await episode_lists.remove(connection, ids[0])  # a run is kept whole
            await episode_lists.remove(connection, loose)
            with pytest.raises(MissingError):
                await episode_lists.one(connection, loose)
        await database.close()

    asyncio.run(act())


def test_an_episode_that_is_being_played_is_not_deleted(url: str) -> None:
    async def act() -> None:
        database = Database(url)
        task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
        what = LiveSpec(task=task, rules=Rules(), policies={"agent_0": "human", "agent_1": "boulware"}, tag="live")
        async with database.write() as connection:
            identity = await live.begin(connection, what)
            assert [row.id for row in await episode_lists.page(connection, EpisodeFilter(status="open"))] == [identity]
            assert (await episode_lists.one(connection, identity)).tags == ("live",)
            with pytest.raises(ConflictError):
                await episode_lists.remove(connection, identity)
        await live.end(database, identity, "stopped", "enough")
        async with database.write() as connection:
            await episode_lists.remove(connection, identity)
            assert await episode_lists.count(connection) == 0
        await database.close()

    asyncio.run(act())


def test_runs_are_listed_stopped_and_continued(url: str) -> None:
    async def act() -> None:
        database = Database(url)
        async with database.write() as connection:
            ids = [await runs.add(connection, "{}", name=str(number), owner="me") for number in range(3)]
            await tag_store.add(connection, "run", ids[0], ["pilot"])
            assert [row.id for row in await runs.page(connection, limit=2)] == sorted(ids, reverse=True)[:2]
            assert [row.id for row in await runs.page(connection, tag="pilot", status="queued", owner="me")] == [ids[0]]
            await runs.ask_to_play(connection, ids[0])
            await runs.ask_to_stop(connection, ids[0])  # before a worker has begun
            assert (await runs.one(connection, ids[0])).status == "stopped"
            with pytest.raises(ConflictError):
                await runs.ask_to_stop(connection, ids[0])
            await runs.ask_to_play(connection, ids[0])
            await runs.change(connection, ids[0], status="running", played=2, cost=0.5)
            with pytest.raises(ConflictError):
                await runs.ask_to_play(connection, ids[0])
            await runs.ask_to_stop(connection, ids[0])
            row = await runs.one(connection, ids[0])
            assert (row.status, row.played, row.cost) == ("running", 2, 0.5)  # its worker ends it
            job = await jobs.claim(connection, "worker", (runs.PLAY,))
            assert job is not None
            assert await jobs.renew(connection, job, "worker") is True
            for unknown in (runs.one, runs.ask_to_play, runs.ask_to_stop):
                with pytest.raises(MissingError):
                    await unknown(connection, "unknown")
        await database.close()

    asyncio.run(act())


def test_no_page_waits_for_the_first_count_of_a_large_database(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = episode_lists.values

    async def slow(connection: AsyncConnection, column: str) -> dict[str, int]:
        await asyncio.sleep(0.1)
        return await values(connection, column)

    async def act() -> None:
        async with studio(sqlite_url, workers=0) as service:
            await service.app.state.services.menus.begin()  # type: ignore[attr-defined]
            records = await played()
            async with service.database.write() as connection:
                await episodes.add_recorded(connection, None, [(one, "") for one in records], 1.0)
            state = service.app.state  # type: ignore[attr-defined]
            state.services = dataclasses.replace(state.services, menus=EpisodeMenus(service.database))
            menus = state.services.menus
            monkeypatch.setattr(episode_lists, "values", slow)
            browser = await service.researcher()
            page = await browser.get("/episodes", params={"policy": "boulware"})
            assert '<input id="f-policy" name="policy" value="boulware">' in page.text  # to type into meanwhile
            assert page.text.count('<a class="strong"') == len(records)
            await menus.begin()
            assert (
                f'<option value="boulware" selected>boulware ({len(records)})'
                in (await browser.get(str(page.url))).text
            )
            await menus.close()

    asyncio.run(act())


def test_a_filtered_list_is_exported_as_it_is_filtered(url: str) -> None:
    async def act() -> None:
        async with studio(url, workers=0) as service:
            browser, records = await service.researcher(), await played()
            async with service.database.write() as connection:
                added = await episodes.add_recorded(connection, None, [(one, "") for one in records], 1.0)
                await tag_store.add(connection, "episode", added[1][0], ["odd"])
            page = (await browser.get("/episodes?tag=odd")).text
            for form in ("csv", "jsonl"):
                assert f'href="/api/v1/episodes/export.{form}?tag=odd"' in page
            text = (await browser.get("/api/v1/episodes/export.csv?tag=odd")).text
            (row,) = csv.DictReader(io.StringIO(text))
            assert (row["id"], row["tags"], row["stop"]) == (added[1][0], "odd", records[1].stop.value)  # type: ignore[union-attr]
            scores = {score.agent: score.value for score in records[1].evaluation().scores if score.dimension == "goal"}  # type: ignore[union-attr]
            assert {agent: float(row[f"{agent}.goal"]) for agent in scores} == scores
            every = list(csv.DictReader(io.StringIO((await browser.get("/api/v1/episodes/export.csv")).text)))
            assert [line["id"] for line in every] == sorted((identity for identity, _ in added), reverse=True)

    asyncio.run(act())


def test_menus_that_are_slow_to_count_keep_no_page_waiting(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, pause, counts, gate = episode_lists.values, 0.0, 0, asyncio.Event()

    async def counted(connection: AsyncConnection, column: str) -> dict[str, int]:
        nonlocal counts
        counts += 1
        await asyncio.sleep(pause)
        await gate.wait()
        return await values(connection, column)

    async def act() -> None:
        nonlocal pause
        database, records = Database(sqlite_url), await played()
        menus = EpisodeMenus(database)
        monkeypatch.setattr(episode_lists, "values", counted)
        gate.set()

        async def add(number: int) -> None:
            async with database.write() as connection:
                await episodes.add_recorded(connection, None, [(records[number], "")], 1.0)

        await add(0)
        assert (await menus.begin())["status"] == {"done": 1}
        pause = 0.03
        await add(1)
        while (await menus.get())["status"] != {"done": 2}:  # a small database is counted at every click
            await asyncio.sleep(0.01)  # a busy machine counts slowly
        gate.clear()
        await add(2)
        for _ in range(3):  # now counting is known to be slow: no click waits for a count, however long it takes
            async with asyncio.timeout(60):
                assert (await menus.get())["status"] == {"done": 2}
        gate.set()
        while (await menus.get())["status"] != {"done": 3}:  # and the count comes all the same
            await asyncio.sleep(0.05)
        before = counts
        for _ in range(100):
            await menus.get()
        assert counts - before <= len(COLUMNS)
        await menus.close()
        await database.close()

    asyncio.run(act())
