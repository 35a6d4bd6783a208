"""Assistants of people: proposals, advice, acting for them; what the record holds, and what others may know of it."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import re

import httpx
import pytest
from sotopia_studio import live
from sotopia_studio.store import events, tables
from sotopia_studio.store.event_records import ADVICE
from sqlalchemy import select, update

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.studies.settings import study_of
from sotopia_env.world.action import Advice
from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.studio import bargaining
from tests.sotopia_studio.test_studies import PLAY, consented, joined, my_turn, opened, run, say

PEOPLE = {**PLAY, "seats": "first", "questionnaire": [], "adviser": "conceder"}


async def advised(browser: httpx.AsyncClient, words: str) -> httpx.Response:
    """The page of the seat once it says ``words``."""
    for _ in range(1200):
        page = await browser.get("/study")
        if words in page.text:
            return page
        await asyncio.sleep(0.05)
    raise AssertionError(page.text)


async def turns_of(researcher: httpx.AsyncClient) -> list[dict[str, str]]:
    text = (await researcher.get("/api/v1/studies/talks/tables/turns.csv")).text
    return list(csv.DictReader(io.StringIO(text)))


def test_a_proposal_is_copied_only_by_the_person_and_recorded(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, {**PEOPLE, "assistance": "propose"})
        browser = await joined(studio, "talks")
        await consented(browser)
        page = await advised(browser, "data-fill")
        match = re.search(r"data-fill='([^']*)'", page.text)
        assert match
        fields = json.loads(html.unescape(match[1]))
        assert fields["move"] == "offer"
        assert '<textarea id="argument-0"' in page.text
        assert fields["argument"] not in re.findall(r"<textarea.*?</textarea>", page.text, re.DOTALL)[0]
        assert "conceder" not in page.text
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        await say(browser, page, **texts, copied="1")
        page = await my_turn(browser)
        page = await advised(browser, "data-fill")
        await say(browser, page, argument="I have my own mind.")
        await say(browser, await my_turn(browser), action_type="leave")
        await browser.get("/study")
        own = [row for row in await turns_of(researcher) if row["participant"]]
        assert [(row["advice.response"], row["advice.copied"]) for row in own[:2]] == [
            ("same", "True"), ("other", "False"),
        ]  # fmt: skip
        assert own[0]["advice.content"] == own[0]["content"]
        assert {row["advice.policy"] for row in own[:2]} == {"conceder"}

    run(sqlite_url, work)


def test_an_assistant_acts_unless_the_person_takes_over(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**PEOPLE, "assistance": "act"})
        browser = await joined(studio, "talks")
        await consented(browser)
        page = await advised(browser, "unless you take over")
        assert "data-plays" in page.text
        page = await browser.post(f"{page.url}/steer", data={"by_person": "1"})
        assert "You act yourself now." in page.text
        assert "data-plays" not in page.text
        await say(browser, page, argument="My own words.")
        page = await my_turn(browser)
        assert "You act yourself now." in page.text
        # Handed back, the assistant acts after its pause, which is over here at once.
        await browser.post(f"{page.url}/steer", data={"by_person": "0"})
        await advised(browser, "unless you take over")
        async with studio.database.write() as connection:
            await connection.execute(update(tables.episode).values(deadline=1.0))
        for _ in range(400):
            if len(rows := await turns_of_live(studio)) >= 3:
                break
            await asyncio.sleep(0.05)
        assert rows[0].turn.action.argument == "My own words."
        generation = rows[2].generation
        assert generation is not None
        assert isinstance(generation.advice, Advice)
        assert generation.advice.response == "played"
        assert generation.advice.action == rows[2].turn.action

    run(sqlite_url, work)


async def turns_of_live(studio: Studio) -> list:
    async with studio.database.read() as connection:
        episode = (await connection.execute(select(tables.episode.c.id))).scalars().one()
        return list((await live.LiveEpisode.load(connection, episode)).table.turns)


def test_an_assistant_that_fails_leaves_the_person_to_act(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        # A model behind an address where nobody listens.
        await opened(studio, {**PEOPLE, "assistance": "advise", "adviser": "local/none"})
        browser = await joined(studio, "talks")
        await consented(browser)
        page = await advised(browser, "could not answer")
        await say(browser, page, argument="Alone, then.")
        assert "Alone, then." in (await my_turn(browser)).text

    run(sqlite_url, work, models={"api_base": "http://127.0.0.1:9/v1", "patience": 0.2, "retries": 1})


def test_nobody_else_learns_of_advice(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**PEOPLE, "partner": "person", "assistance": "advise"})
        first, second = await joined(studio, "talks"), await joined(studio, "talks")
        await consented(first)
        await consented(second)
        page = await advised(first, "proposed")
        words = re.search(r'class="proposed">([^<]*)<', page.text)
        assert words
        other = await second.get("/study")
        assert words[1] not in other.text
        episode = str(other.url).split("/")[-2]
        async with studio.database.read() as connection:
            log = await events.read(connection, episode)
        assert ADVICE in [event.kind for event in log]

    run(sqlite_url, work)


def test_an_assistant_needs_a_policy() -> None:
    with pytest.raises(InvalidValueError, match="adviser"):
        study_of({**PLAY, "assistance": "act"})
    levels = [{"name": name, "value": name} for name in ("none", "propose", "advise", "act")]
    factors = [{"name": "help", "varies": "assistance", "levels": levels}]
    with pytest.raises(InvalidValueError, match="the policy that helps"):
        study_of({**PLAY, "factors": factors})
    assert study_of({**PLAY, "factors": factors, "adviser": "conceder"})


def test_a_person_is_helped_outside_of_studies(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await studio.researcher()
        task = bargaining().model_dump(mode="json")
        helper = {"mode": "act", "policy": "conceder", "pause": 0.5}
        request = {"task": task, "policies": ["human", "boulware"], "rules": {"max_turns": 4}}
        for assistants, field in (
            ({"agent_1": helper}, "assistants"),
            ({"agent_0": {**helper, "policy": "x"}}, "policy"),
        ):
            answer = await browser.post("/api/v1/simulate", json={**request, "assistants": assistants})
            assert (answer.status_code, answer.json()["field"]) == (422, field)
        answer = await browser.post("/api/v1/simulate", json={**request, "assistants": {"agent_0": helper}})
        assert answer.status_code == 202, answer.text
        episode = answer.json()["episodes"][0]
        for _ in range(1200):
            if (await browser.get(f"/api/v1/simulation_status/{episode}")).json()["status"] == "done":
                break
            await asyncio.sleep(0.05)
        record = (await browser.get(f"/api/v1/episodes/{episode}/record")).json()
        advice = [item["generation"].get("advice") for item in record["turns"] if item["turn"]["actor"] == "agent_0"]
        assert advice
        assert all((one["policy"], one["response"]) == ("conceder", "played") for one in advice)
        assert "conceder" not in (await browser.get(f"/api/v1/episodes/{episode}/seats/agent_1")).text
        form = (await browser.get("/simulate", params={"again": episode})).text
        assert 'value="act" selected' in form
        assert 'name="adviser" list="policies" autocomplete="off" value="conceder"' in form

    run(sqlite_url, work)
