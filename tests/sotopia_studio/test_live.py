"""Live episodes: played from the database by policies and people, through any process, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sotopia_studio import live
from sotopia_studio.hub import Hub
from sotopia_studio.live import LiveEpisode
from sotopia_studio.pages.seat import page_of
from sotopia_studio.pages.seats.waiting import wait_of
from sotopia_studio.problems import ConflictError, ForbiddenError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, events, jobs, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.work.standing import Standing
from sotopia_studio.worker import Worker
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from sotopia_env import naming
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.outcomes import Move
from sotopia_env.world import Action, Rules, Task, TurnOrder
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import replay
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_studio.conftest import act
from tests.sotopia_studio.server import hidden, studio


def bargaining() -> Task:
    return next(iter(naming.task_set("bargaining", 1, 0, "medium")))


def spec(order: TurnOrder = TurnOrder.ROUND_ROBIN, **changes: object) -> LiveSpec:
    fields = {
        "task": bargaining(),
        "rules": Rules(max_turns=8, turn_order=order),
        "policies": {"agent_0": "human", "agent_1": "boulware"},
        **changes,
    }
    return LiveSpec(**fields)  # type: ignore[arg-type]


@asynccontextmanager
async def working(url: str, count: int = 1, **settings: object) -> AsyncIterator[Database]:
    """A database with workers in this process."""
    database = Database(url)
    workers = [Worker(ServiceSettings(database=url, **settings), database) for _ in range(count)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield database
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)
        await database.close()


async def load(database: Database, episode: str) -> LiveEpisode:
    async with database.read() as connection:
        return await LiveEpisode.load(connection, episode)


async def begin(database: Database, what: LiveSpec) -> str:
    async with database.write() as connection:
        return await live.begin(connection, what)


async def until(database: Database, episode: str, agent: str | None = None) -> LiveEpisode:
    """The episode once it waits for ``agent``, or is over."""
    for _ in range(4800):
        state = await load(database, episode)
        if state.status in live.CLOSED or (agent is not None and agent in state.awaited):
            return state
        await asyncio.sleep(0.05)
    raise AssertionError(f"{state.status} after {len(state.table.turns)} turns")


@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE])
def test_a_person_and_a_policy_play_to_an_agreement(url: str, order: TurnOrder) -> None:
    async def play() -> None:
        async with working(url, 2) as database:
            episode = await begin(database, spec(order))
            for _ in range(8):
                state = await until(database, episode, "agent_0")
                if state.ended:
                    break
                accept = state.table.observe("agent_0").moves
                number = accept.accept[0] if accept and accept.accept else None
                move = None if number is None else Move("accept", number)  # type: ignore[arg-type]
                turn = len(state.table.turns)
                await act(database, episode, "agent_0", Action("speak", "Fine.", move=move), turn=turn, key=f"{turn}")
            await until(database, episode)
            async with database.read() as connection:
                record = await episodes.record_of(connection, episode)
                log = await events.read(connection, episode)
            assert replay(record).stop is record.stop
            assert record.stop is not None
            assert record.stop.value == "settled"
            assert {policy.name for policy in record.policies} == {"human", "boulware"}
            assert [event.number for event in log] == list(range(1, len(log) + 1))
            assert sum(event.kind == "turn" for event in log) == len(record.turns)
            assert record.evaluation() is not None

    asyncio.run(play())


def test_an_answer_counts_once_and_only_in_its_turn(url: str) -> None:
    async def play() -> None:
        async with working(url) as database:
            episode = await begin(database, spec())
            await until(database, episode, "agent_0")
            hello = Action("speak", "Hello.")
            await act(database, episode, "agent_0", hello, turn=0, key="one")
            await act(database, episode, "agent_0", hello, turn=0, key="one")  # the same request, sent again
            with pytest.raises(ConflictError):
                await act(database, episode, "agent_0", hello, turn=0, key="two")  # a page that is out of date
            with pytest.raises(ForbiddenError):
                await act(database, episode, "agent_1", hello, turn=1, key="three")
            state = await until(database, episode, "agent_0")
            assert [item.turn.actor for item in state.table.turns] == ["agent_0", "agent_1"]

    asyncio.run(play())


def test_a_form_that_a_person_sends_rebuilds_the_episode_once(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = [], LiveEpisode.load

    async def counted(*arguments: Any, **options: Any) -> LiveEpisode:
        loads.append(arguments)
        return await load(*arguments, **options)

    async def play() -> None:
        async with studio(sqlite_url, workers=0) as server:
            browser, episode = await server.researcher(), await begin(server.database, spec())
            address = f"/seat/{episode}/agent_0"
            page = (await browser.get(address)).text
            form = {"argument": "Hello.", "turn": hidden(page, "turn"), "key": hidden(page, "key")}
            monkeypatch.setattr(LiveEpisode, "load", counted)
            forms = [
                ({**form, "argument": ""}, 422),  # nothing is said
                (form, 303),
                (form, 303),  # a double click
                ({**form, "key": "another"}, 409),  # the turn is over
            ]
            for number, (fields, status) in enumerate(forms, start=1):
                answer = await browser.post(address, data=fields, follow_redirects=False)
                assert (answer.status_code, len(loads)) == (status, number)

    asyncio.run(play())


@pytest.mark.parametrize("consequence", ["leave", "none"])
def test_a_person_who_does_not_answer_gets_the_configured_consequence(sqlite_url: str, consequence: str) -> None:
    async def play() -> None:
        async with working(sqlite_url) as database:
            episode = await begin(database, spec(turn_seconds=0.2, on_timeout=consequence))
            await asyncio.sleep(0.3)
            for _ in range(4800):
                state = await load(database, episode)
                if state.table.turns:
                    break
                await asyncio.sleep(0.05)
            first = state.table.turns[0]
            assert first.turn.action.action_type.value == consequence
            assert first.generation is not None
            assert first.generation.parse_failure == live.LATE_ANSWER

    asyncio.run(play())


def test_a_reconnecting_watcher_gets_every_event_once(url: str) -> None:
    async def play() -> None:
        async with working(url) as database:
            episode = await begin(database, spec(policies={"agent_0": "boulware", "agent_1": "conceder"}))
            hub = Hub(database)

            async def watch(cut: int) -> list[int]:
                """The numbers of all events, by a watcher whose stream is cut after every ``cut`` of them."""
                numbers: list[int] = []
                while True:
                    stream = hub.follow(episode, numbers[-1] if numbers else 0)
                    async for event in stream:
                        numbers.append(event.number)
                        if event.kind == "evaluated":
                            await stream.aclose()
                            return numbers
                        if len(numbers) % cut == 0:
                            await stream.aclose()
                            break

            sequences = await asyncio.gather(*(watch(cut) for cut in (1, 2, 3, 1000)))
            await hub.close()
            assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sequences)
            assert len({len(numbers) for numbers in sequences}) == 1

    asyncio.run(play())


def test_nothing_uses_the_database_after_the_hub_is_closed(sqlite_url: str) -> None:
    async def play() -> None:
        database = Database(sqlite_url)
        episode = await begin(database, spec(policies={"agent_0": "boulware", "agent_1": "human"}))
        hub = Hub(database)
        stream = hub.follow(episode)
        await anext(stream)
        await hub.close()
        # A task that still runs when the event loop ends may keep the process from ending.
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await stream.aclose()
        await database.close()

    asyncio.run(play())


def test_episodes_of_a_lost_worker_continue_elsewhere(url: str) -> None:
    async def play() -> None:
        database = Database(url)
        episode = await begin(database, spec(policies={"agent_0": "boulware", "agent_1": "conceder"}))
        async with database.write() as connection:
            assert await jobs.claim(connection, "lost") is not None
            assert await jobs.claim(connection, "other") is None  # its lease holds
        async with database.write() as connection:
            await connection.execute(update(tables.job).values(leased_until=time.time() - 1))
        await database.close()
        async with working(url) as database:
            assert (await until(database, episode)).status == "done"

    asyncio.run(play())


def test_events_tell_a_researcher_who_acts(sqlite_url: str) -> None:
    async def play() -> None:
        async with working(sqlite_url) as database:
            episode = await begin(database, spec())
            state = await until(database, episode, "agent_0")
            async with database.read() as connection:
                log = await events.read(connection, episode)
            assert [event.kind for event in log] == ["began", "waiting"]
            assert json.loads(log[-1].payload)["agents"] == ["agent_0"]
            assert state.status == "waiting"

    asyncio.run(play())


@pytest.mark.parametrize("outage", ["server_error", "reset"])
def test_an_episode_waits_for_an_unavailable_model_without_losing_a_turn(sqlite_url: str, outage: str) -> None:
    async def play() -> None:
        server = LoopbackServer(models=("tiny",))
        runner = await server.start()
        models = ModelOptions.model_validate({"api_base": server.api_base, "patience": 0.2, "retries": 1})
        what = spec(policies={"agent_0": "human", "agent_1": "local/tiny"})
        try:
            async with working(sqlite_url, models=models) as database:
                episode = await begin(database, what)
                await until(database, episode, "agent_0")
                server.outage = outage
                await act(database, episode, "agent_0", Action("speak", "Hello."), turn=0, key="one")
                state = await until(database, episode)
                assert state.status == "failed"
                assert [item.turn.actor for item in state.table.turns] == ["agent_0"]
                count = server.total
                server.outage = ""
                async with database.write() as connection:
                    await live.resume(connection, episode)
                state = await until(database, episode, "agent_0")
                assert [item.turn.actor for item in state.table.turns] == ["agent_0", "agent_1"]
                assert server.total == count + 1
                async with database.write() as connection:
                    with pytest.raises(ConflictError):
                        await live.resume(connection, episode)
        finally:
            await runner.cleanup()

    asyncio.run(play())


def test_an_episode_of_a_study_is_not_resumed(sqlite_url: str) -> None:
    async def play() -> None:
        database = Database(sqlite_url)
        episode = await begin(database, spec(study="a study"))
        await live.end(database, episode, "stopped", "enough")
        async with database.write() as connection:
            with pytest.raises(ConflictError):
                await live.resume(connection, episode)
        assert (await load(database, episode)).status == "stopped"
        await database.close()

    asyncio.run(play())


@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.REACTIVE])
def test_a_person_does_not_learn_whose_turn_it_is_in_reactive_order(sqlite_url: str, order: TurnOrder) -> None:
    """Who acts next is drawn there, and the other seats do not know it."""

    async def play() -> None:
        database, people = Database(sqlite_url), {"agent_0": "human", "agent_1": "human"}
        for seed in range(20):  # until the first tick is of one seat alone
            episode = await begin(database, spec(order, policies=people, seed=seed))
            state = await load(database, episode)
            if len(state.awaited) == 1:
                break
        (acting,) = state.awaited
        (waiting,) = {*people} - {acting}
        name = state.spec.task.names[acting]
        words = wait_of(state, waiting, Standing("", 0.0, False, frozenset())).words
        assert (name in words) == (order is TurnOrder.ROUND_ROBIN)
        assert page_of(state, acting).acting
        await database.close()

    asyncio.run(play())


def test_an_episode_that_is_stopped_takes_no_more_turns(sqlite_url: str) -> None:
    async def play() -> None:
        async with working(sqlite_url) as database:
            episode = await begin(database, spec())
            await until(database, episode, "agent_0")
            await live.end(database, episode, "stopped", "enough")
            with pytest.raises(ConflictError):
                await act(database, episode, "agent_0", Action("speak", "Hello."), turn=0, key="one")
            async with database.write() as connection:
                await live.resume(connection, episode)
            await act(database, episode, "agent_0", Action("speak", "Hello."), turn=0, key="one")
            assert len((await until(database, episode, "agent_0")).table.turns) == 2

    asyncio.run(play())


def test_a_temporary_database_error_does_not_end_episodes(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, problems = Worker._advance, [OperationalError("INSERT", {}, Exception("database or disk is full"))]

    async def failing(self: Worker, *arguments: Any) -> Any:
        if problems:
            raise problems.pop()
        return await advance(self, *arguments)

    monkeypatch.setattr(Worker, "_advance", failing)

    async def work() -> None:
        async with working(sqlite_url) as database:
            episode = await begin(database, spec())
            state = await until(database, episode, "agent_0")
            assert state.status == "waiting"

    asyncio.run(work())
    assert not problems


@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS])
@pytest.mark.parametrize("may_leave", [True, False])
def test_a_wish_to_leave_holds_until_the_turn_comes(sqlite_url: str, order: TurnOrder, may_leave: bool) -> None:
    kinds = tuple(kind for kind in ActionType if may_leave or kind is not ActionType.LEAVE)

    async def play() -> None:
        async with studio(sqlite_url) as server:
            policies = {"agent_0": "human", "agent_1": "human"}
            rules = Rules(max_turns=4, turn_order=order, action_types=kinds)
            episode = await begin(server.database, spec(policies=policies, rules=rules))
            browser = await server.researcher()
            for _ in range(2):  # twice is once
                assert (await browser.post(f"/seat/{episode}/agent_1/leave")).status_code in (200, 303)
            turn = 0
            while True:
                async with server.database.read() as connection:
                    state = await LiveEpisode.load(connection, episode)
                if state.ended:
                    break
                assert state.awaited == ("agent_0",)  # the other one is never waited for again
                await act(
                    server.database, episode, "agent_0", Action(ActionType.SPEAK, "Hm."), turn=turn, key=f"k{turn}"
                )
                async with server.database.read() as connection:
                    turn = len((await LiveEpisode.load(connection, episode)).table.turns)
            kinds_of_leaver = {
                item.turn.action.action_type for item in state.table.turns if item.turn.actor == "agent_1"
            }
            assert kinds_of_leaver == {ActionType.LEAVE if may_leave else ActionType.NONE}

    asyncio.run(play())
