"""No byte of another seat's secrets reaches a participant, whatever page or stream is read, over many episodes."""

from __future__ import annotations

import asyncio
import html
import itertools
from collections.abc import Iterator

import httpx
import pytest
from sotopia_studio import auth, live
from sotopia_studio.store import studies
from sotopia_studio.store.event_records import LiveSpec

from sotopia_env import naming
from sotopia_env.outcomes.descriptions import describe_worth
from sotopia_env.world import Rules, Task
from tests.sotopia_studio.server import Studio, hidden, studio

SOURCES = (
    *(("everyday", 4), ("bargaining", 2), ("division", 2), ("hiring", 2), ("group_decision", 2)),
    *(("mini_mafia", 1), ("briefing", 1)),
)
POLICY = "conceder"


def secrets_of(task: Task, agent: str) -> Iterator[str]:
    """What only one seat knows, as texts of some length, which cannot be there by chance."""
    seat = task.seat_of[agent]
    side, character = task.scenario.seats[seat], task.characters[seat]
    yield from side.goals
    yield from side.hints
    yield side.private_info
    yield character.secret
    yield from character.private_attributes.values()
    if task.scenario.facts is not None:
        knowledge = task.scenario.facts.view(agent).knowledge
        yield from (f"{name} = {value}" for name, value in knowledge.items())
    if task.scenario.outcome is not None:
        yield describe_worth(task.scenario.outcome, seat, task.names)


def known_to(task: Task, agent: str) -> str:
    """All that a seat may know at the beginning, to tell what it shares with others by right."""
    return live.Table(task).observe(agent).text


def forbidden(task: Task, agent: str, transcript: str = "") -> list[str]:
    """What the seat may not know, unless it was ``said``: scripts, too, may tell their goals."""
    own = known_to(task, agent) + transcript
    others = (text for other in task.agents if other != agent for text in secrets_of(task, other))
    return [text for text in dict.fromkeys(others) if len(text) > 15 and text not in own]


async def begin(studio: Studio, task: Task, number: int) -> tuple[str, httpx.AsyncClient]:
    """An episode with a person in seat 0, and the person's browser."""
    policies = {agent: "human" if agent == "agent_0" else POLICY for agent in task.agents}
    spec = LiveSpec(task=task, rules=Rules(max_turns=3 * len(task.agents)), policies=policies, seed=number)
    async with studio.database.write() as connection:
        person = await studies.add_participant(connection, STUDY)
        await studies.change_participant(connection, person, state="active")
        episode = await live.begin(connection, spec, participants={"agent_0": person})
        session = await auth.open_session(connection, person, "participant", STUDY)
    browser = studio.browser()
    browser.cookies.set("studio", session)
    return episode, browser


STUDY = "a-study"


async def read_everything(browser: httpx.AsyncClient, episode: str, task: Task) -> str:
    """Plays two turns and returns all that the person's browser was sent."""
    address, texts = f"/seat/{episode}/agent_0", []
    for _ in range(2):
        for _ in range(4800):
            page = await browser.get(address)
            if "It is your turn" in page.text or "is over" in page.text:
                break
            await asyncio.sleep(0.02)
        texts.append(page.text)
        if "is over" in page.text:
            break
        form = {name: hidden(page.text, name) for name in ("turn", "key", "opened")}
        stale = {**form, "turn": "99", "argument": "?"}
        texts += [(await browser.post(address, data=fields)).text for fields in (stale, {**form, "argument": "Hm."})]
        texts.append((await browser.get(f"{address}/view")).text)
    paths = [f"/seat/{episode}/{agent}" for agent in task.agents[1:]]
    paths += [f"/episodes/{episode}", f"/api/v1/episodes/{episode}", f"/api/v1/episodes/{episode}/events"]
    paths += [f"/api/v1/episodes/{episode}/seats/agent_1", "/", "/episodes", "/api/v1/episodes", "/api/v1/studies"]
    for path in paths:
        answer = await browser.get(path)
        assert answer.status_code in (403, 404), (path, answer.status_code)
        texts.append(answer.text)
    return html.unescape("\n".join(texts))


@pytest.mark.parametrize("times", [2, pytest.param(25, marks=pytest.mark.slow("plays 300 episodes"))])
def test_nothing_of_another_seat_reaches_a_participant(sqlite_url: str, times: int) -> None:
    async def work() -> None:
        async with studio(sqlite_url) as service:
            async with service.database.write() as connection:
                from sotopia_studio.store import tables
                from sqlalchemy import insert

                values = {
                    "id": STUDY,
                    "name": STUDY,
                    "kind": "play",
                    "settings": "{}",
                    "status": "open",
                    "created": 0.0,
                }
                await connection.execute(insert(tables.study).values(**values))
            checked = 0
            tasks = itertools.chain(*(naming.task_set(source, times * n, 3, "medium") for source, n in SOURCES))
            for number, task in enumerate(tasks):
                episode, browser = await begin(service, task, number)
                text = await read_everything(browser, episode, task)
                async with service.database.read() as connection:
                    turns = (await live.LiveEpisode.load(connection, episode)).table.turns
                transcript = "\n".join(item.turn.action.argument for item in turns)
                leaks = [secret for secret in forbidden(task, "agent_0", transcript) if secret in text]
                assert not leaks, (task.id, leaks[0])
                assert POLICY not in text, task.id
                assert task.scenario.seats[0].goals[0] in text, task.id  # the reading is not blind
                checked += len(forbidden(task, "agent_0"))
                await browser.aclose()
            assert checked > 40

    asyncio.run(work())
