"""The pages of the library and of comparisons: forms that say beside each field what is wrong, copies, drawings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
from sotopia_studio.store import episodes, library, runs
from sotopia_studio.store.kinds import CHARACTERS, SCENARIOS, TASKS

from sotopia_env import naming
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_studio.server import Studio, studio

SCENARIO = {
    "seats": "2",
    "id": "kitchen",
    "context": "Two flatmates share a kitchen.",
    "seats.0.goals": "Have the dishes done.\nStay friends.",
    "seats.1.goals": "Watch the match.",
    "seats.0.private_info": "The landlord visits tomorrow.",
    "tags": "pilot, mood=calm",
}


def run(url: str, work) -> None:
    async def inside() -> None:
        async with studio(url, workers=0) as service:
            await work(service, await service.researcher())

    asyncio.run(inside())


async def first(studio: Studio, kind):
    async with studio.database.read() as connection:
        return (await library.items(connection, kind))[0]


def test_a_scenario_is_written_copied_and_taken_out_of_use(sqlite_url: str) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        assert "No scenario yet" in (await browser.get("/scenarios")).text
        broken = await browser.post("/scenarios/new", data={**SCENARIO, "seats.1.goals": "", "max_turns": "many"})
        assert broken.status_code == 422
        assert 'id="e-seats.1.goals"' in broken.text
        assert 'id="e-max_turns"' in broken.text
        assert "The landlord visits tomorrow." in broken.text  # nothing typed is lost
        page = await browser.post("/scenarios/new", data=SCENARIO)
        record = (await first(studio, SCENARIOS)).read()
        assert record.seats[0].goals == ("Have the dishes done.", "Stay friends.")
        assert record.conditions == {"mood": "calm"}
        copy = await browser.get("/scenarios/new", params={"copy": str(page.url).rsplit("/", 1)[1]})
        assert "Have the dishes done.\nStay friends.</textarea>" in copy.text
        assert "kitchen" in (await browser.get("/scenarios", params={"tag": "pilot"})).text
        await browser.post(f"{page.url}/delete")
        assert "No scenario yet" in (await browser.get("/scenarios")).text

    run(sqlite_url, work)


def test_the_frontier_is_drawn_before_anything_is_added(sqlite_url: str) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        spec = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).scenario.outcome
        form = {**SCENARIO, "outcome": spec.model_dump_json(), "preview": "1"}
        page = await browser.post("/scenarios/new", data=form)
        assert "<polyline" in page.text
        assert "Nash solution" in page.text
        assert "No scenario yet" in (await browser.get("/scenarios")).text
        broken = json.loads(spec.model_dump_json()) | {"worth": []}
        page = await browser.post("/scenarios/new", data={**form, "outcome": json.dumps(broken)})
        assert 'id="e-outcome"' in page.text

    run(sqlite_url, work)


def test_people_are_written_related_and_cast(url: str) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        people = []
        for name in ("Ana", "Ben"):
            form = {"first_name": name, "age": "31", "gender": "woman", "pronouns": "she/her", "occupation": "nurse"}
            assert (await browser.post("/characters/new", data={**form, "age": "-3"})).status_code == 422
            people.append(str((await browser.post("/characters/new", data=form)).url).rsplit("/", 1)[1])
        tie = {"other": people[1], "kind": "friend", "backstory": "They met at work."}
        assert "They met at work." in (await browser.post(f"/characters/{people[0]}/relationships", data=tie)).text
        await browser.post("/scenarios/new", data=SCENARIO)
        scenario = (await first(studio, SCENARIOS)).id
        twice = {"scenario": scenario, "character.0": people[0], "character.1": people[0]}
        assert (await browser.post("/tasks/new", data=twice)).status_code == 422
        page = await browser.post("/tasks/new", data={**twice, "character.1": people[1]})
        assert "They met at work." in page.text
        assert (await first(studio, TASKS)).read().relationship(0, 1).kind.value == "friend"
        refused = await browser.post(f"/characters/{people[0]}/delete")
        assert refused.status_code == 409  # the task and the relationship refer to it

    run(url, work)


def test_built_in_sets_are_added_on_request(sqlite_url: str) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        page = await browser.post("/library/import")
        assert str(page.url).endswith("/scenarios")
        async with studio.database.read() as connection:
            count = await library.count(connection, CHARACTERS)
        assert count > 10
        filtered = await browser.get("/scenarios", params={"seats": "2", "q": "e"})
        assert filtered.status_code == 200
        assert (await browser.get("/scenarios", params={"seats": "two"})).status_code == 422

    run(sqlite_url, work)


def test_custom_dimensions(sqlite_url: str) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        form = await browser.get("/dimensions/new")
        text = form.text.split('spellcheck="false">')[1].split("</textarea>")[0]
        assert "courtesy" in (await browser.post("/dimensions/new", data={"text": text})).text
        assert (await browser.post("/dimensions/new", data={"text": "name: [a"})).status_code == 422
        assert (await browser.post("/dimensions/new", data={"text": "name: a\ndimensions: []"})).status_code == 422

    run(sqlite_url, work)


def test_two_policies_are_compared_with_tables_and_a_chart(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        policies = [naming.make_policy(name) for name in ("boulware", "conceder")]
        plans = plan_episodes(naming.task_set("bargaining", 4, 0, "medium"), all_matchups(policies, False))
        evaluator = naming.make_evaluator("verified")
        result = await run_episodes(plans, evaluator=evaluator, run_dir=tmp_path / "run", progress=False)
        async with studio.database.write() as connection:
            run_id = await runs.add(connection, "{}", directory=str(tmp_path / "run"), planned=8, status="done")
            await runs.change(connection, run_id, played=8)
            for episode in result.episodes:
                await episodes.add_recorded(connection, run_id, [(episode, "")], 0.0)
        assert run_id in (await browser.get("/compare")).text
        page = await browser.get("/compare", params={"run": run_id})
        assert "boulware" in page.text
        assert page.text.count("<table") >= 2
        chart = page.text.split('<img src="/api/v1/compare.svg')[1].split('"')[0].replace("&amp;", "&")
        drawing = await browser.get(f"/api/v1/compare.svg{chart}")
        assert drawing.headers["content-type"].startswith("image/svg+xml"), drawing.text
        wrong = await browser.get("/compare", params={"run": run_id, "baseline": "conceeder"})
        assert wrong.status_code == 422
        assert "conceder" in wrong.text

    run(sqlite_url, work)
