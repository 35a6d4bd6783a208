"""What language models do in the studio: they draft, play, judge a researcher's own dimensions, and are interviewed.

The model is a server on loopback that gives the answers which are asked for; the pages are read as a browser gets them.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sotopia_studio.viewing import load
from sotopia_studio.work.batch import import_run

from sotopia_env import naming
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import Task
from sotopia_env.world.episode import to_line
from sotopia_env.world.reward import CustomDimension
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.evaluators.judge_doubles import SEVEN, verdict
from tests.sotopia_env.interviewed import RIGHT, fair, question_of
from tests.sotopia_env.runs.model_runs import form_of
from tests.sotopia_env.writing.test_simulation import simulation
from tests.sotopia_studio.server import Studio, simulation_form, studio
from tests.sotopia_studio.studio import bargaining

WARMTH = {"name": "warmth", "low": 0, "high": 5, "instruction": "How warm is the agent?"}
DRAFTING = "Three flatmates decide who gets the large room."
Work = Callable[[Studio, httpx.AsyncClient], Awaitable[None]]


def reply(body: dict[str, Any]) -> str:
    """Drafts where the sentence is sent, judges, answers an interview, or speaks."""
    form = form_of(body)
    if DRAFTING in str(body["messages"]):
        return json.dumps(simulation())
    if "verdicts" in form:
        agents = form["verdicts"]["required"]
        names = form["verdicts"]["properties"][agents[0]]["required"]
        return verdict(agents, names, score=lambda _, name: SEVEN[name][0] if name in SEVEN else 4)
    if "answer" in form:
        options = question_of(body["messages"][-1]["content"])
        return json.dumps({"answer": next((key for key, text in options.items() if text == RIGHT), "yes")})
    return json.dumps({"action_type": "speak", "argument": "Let us see."})


def with_model(url: str, data: Path, work: Work) -> None:
    """Runs a studio whose model is on loopback."""

    async def inside(base: str) -> None:
        models = {"api_base": base}
        async with studio(url, data=data, models=models, model_names=("local/tiny",)) as service:
            await work(service, await service.researcher())

    with LoopbackServer(reply=reply, keep_requests=False, models=("tiny",)) as server:
        asyncio.run(inside(server.api_base))


async def until(browser: httpx.AsyncClient, path: str, field: str, *values: str) -> dict[str, Any]:
    for _ in range(4800):
        answer: dict[str, Any] = (await browser.get(f"/api/v1{path}")).json()
        if answer[field] in values:
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(answer)


async def begin(browser: httpx.AsyncClient, task: Task, *policies: str, **options: Any) -> str:
    """The id of a live episode that has ended."""
    request = {"task": task.model_dump(mode="json"), "policies": policies, "rules": {"max_turns": 3}, **options}
    answer = await browser.post("/api/v1/simulate", json=request)
    assert answer.status_code == 202, answer.text
    episode = str(answer.json()["episodes"][0])
    assert (await until(browser, f"/simulation_status/{episode}", "status", "done", "failed"))["status"] == "done"
    return episode


async def page_after_job(browser: httpx.AsyncClient, page: httpx.Response) -> str:
    """A page whose job has ended, as it is after a reload."""
    assert page.status_code == 200, page.text
    state = await until(browser, f"/jobs/{page.url.params['job']}", "state", "done", "failed")
    assert state["state"] == "done", state
    return html.unescape((await browser.get(str(page.url))).text)


def test_custom_dimensions_are_judged_at_the_end_of_an_episode_and_later(url: str, tmp_path: Path) -> None:
    async def work(_: Studio, browser: httpx.AsyncClient) -> None:
        new = await browser.post("/api/v1/evaluation_dimensions", json={"name": "mine", "dimensions": [WARMTH]})
        own = {"evaluator": "judge:local/tiny", "dimensions": new.json()["id"]}
        for later in (False, True):
            episode = await begin(browser, bargaining(), "local/tiny", "linear", **({} if later else own))
            if later:
                page = await page_after_job(browser, await browser.post(f"/episodes/{episode}/evaluations", data=own))
            else:
                page = (await browser.get(f"/episodes/{episode}")).text
            record = (await browser.get(f"/api/v1/episodes/{episode}/record")).json()
            scores = [one for item in record["evaluations"] for one in item["scores"] if one["dimension"] == "warmth"]
            assert [(one["agent"], one["value"], one["reasoning"]) for one in scores] == [
                (agent, 4, f"{agent} on warmth") for agent in ("agent_0", "agent_1")
            ]
            assert "agent_1 on warmth" in page
        listed = await browser.get("/api/v1/episodes", params={"dimension": "warmth", "low": 4, "high": 4})
        assert listed.json()["total"] == 2

    with_model(url, tmp_path, work)


def test_the_dimensions_of_a_task_are_judged_in_a_later_evaluation(sqlite_url: str, tmp_path: Path) -> None:
    async def work(_: Studio, browser: httpx.AsyncClient) -> None:
        plain = bargaining()
        scenario = plain.scenario.model_copy(update={"dimensions": (CustomDimension(**WARMTH),)})
        episode = await begin(browser, plain.model_copy(update={"scenario": scenario}), "linear")
        form = {"evaluator": "judge:local/tiny"}
        page = await page_after_job(browser, await browser.post(f"/episodes/{episode}/evaluations", data=form))
        assert "agent_1 on warmth" in page

    with_model(sqlite_url, tmp_path, work)


def test_a_wrong_evaluator_is_explained_on_the_page(sqlite_url: str, tmp_path: Path) -> None:
    async def work(_: Studio, browser: httpx.AsyncClient) -> None:
        episode = await begin(browser, bargaining(), "linear", evaluator="none")
        answer = await browser.post(f"/episodes/{episode}/evaluations", data={"evaluator": "judgement"})
        assert answer.status_code == 422
        assert 'role="alert"' in answer.text

    with_model(sqlite_url, tmp_path, work)


def test_the_seats_are_interviewed(sqlite_url: str, tmp_path: Path) -> None:
    async def work(_: Studio, browser: httpx.AsyncClient) -> None:
        episode = await begin(browser, fair(), "local/tiny", evaluator="none")
        job = (await browser.post(f"/api/v1/episodes/{episode}/interviews", json={})).json()["job"]
        assert (await until(browser, f"/jobs/{job}", "state", "done", "failed"))["state"] == "done"
        record = (await browser.get(f"/api/v1/episodes/{episode}/record")).json()
        (evaluation,) = record["evaluations"]
        assert {answer["choice"] for answer in evaluation["answers"] if answer["view"] is None} == {RIGHT}
        episode = await begin(browser, fair(), "local/tiny", evaluator="none", seed=1)
        page = await browser.post(f"/episodes/{episode}/evaluations", data={"evaluator": "interview"})
        assert RIGHT in (await page_after_job(browser, page)).split('id="evaluations"')[1]

    with_model(sqlite_url, tmp_path, work)


def test_a_sentence_becomes_a_task_that_keeps_its_rules_and_dimensions(url: str, tmp_path: Path) -> None:
    async def work(_: Studio, browser: httpx.AsyncClient) -> None:
        job = (await browser.post("/api/v1/design", json={"text": DRAFTING})).json()["job"]
        state = await until(browser, f"/jobs/{job}", "state", "done", "failed")
        (drafted,) = json.loads(state["result"])["drafts"]
        assert drafted["tasks"][0]["id"] == "large-room"
        page = await page_after_job(browser, await browser.post("/design", data={"text": DRAFTING}))
        draft = re.search(r'<textarea class="record"[^>]*>(.*?)</textarea>', page, re.DOTALL)
        assert draft is not None
        saved = await browser.post("/design/save", data={"draft": draft[1], "then": "run"})
        assert (saved.status_code, saved.url.path) == (200, "/simulate")
        form = simulation_form(saved.text)
        assert (form["turn_order"], form["evaluator"]) == ("simultaneous", "judge:local/tiny")
        form |= {f"policy_{seat}": "silent" for seat in range(3)}
        answer = await browser.post("/simulate", data=form)
        assert answer.status_code == 200, answer.text
        episode = answer.url.params["episode"]
        await until(browser, f"/simulation_status/{episode}", "status", "done", "failed")
        record = (await browser.get(f"/api/v1/episodes/{episode}/record")).json()
        assert (record["rules"]["turn_order"], record["rules"]["max_silent_turns"]) == ("simultaneous", 5)
        assert {"fairness"} <= {score["dimension"] for score in record["evaluations"][-1]["scores"]}
        wrong = await browser.post("/design/save", data={"draft": draft[1].replace("simultaneous", "sideways")})
        assert (wrong.status_code, "turn_order" in wrong.text) == (422, True)

    with_model(url, tmp_path, work)


def test_drafting_shows_its_progress_and_can_be_stopped(sqlite_url: str, tmp_path: Path) -> None:
    answers = iter(["{}", *[json.dumps(simulation())] * 9])

    async def inside(base: str) -> None:
        settings = {"models": {"api_base": base}, "model_names": ("local/tiny",)}
        async with studio(sqlite_url, data=tmp_path, **settings) as service:
            browser = await service.researcher()
            job = (await browser.post("/api/v1/design", json={"text": DRAFTING, "n": 4})).json()["job"]
            steps: list[str] = []
            while not any("draft 2 of 4" in step for step in steps):
                state = (await browser.get(f"/api/v1/jobs/{job}")).json()
                assert state["state"] in ("queued", "running"), state
                steps += [json.loads(state["result"])["step"]] if state["result"] else []
                await asyncio.sleep(0.1)
            assert any("draft 1 of 4, once more since an answer was refused" in step for step in steps)
            page = html.unescape((await browser.get(f"/design?job={job}")).text)
            assert "local/tiny is writing draft" in page
            assert (await browser.post("/design/stop", data={"job": job})).status_code == 200
            state = await until(browser, f"/jobs/{job}", "state", "done", "failed")
            result = json.loads(state["result"])
            assert (state["state"], result["stopped"], 1 <= len(result["drafts"]) < 4) == ("done", True, True)
            page = (await browser.get(f"/design?job={job}")).text
            assert page.count('class="record"') == len(result["drafts"])
            assert "It was stopped" in page
            assert "/design/stop" not in page

    with LoopbackServer(reply=lambda _: next(answers), latency=0.7, keep_requests=False, models=("tiny",)) as server:
        asyncio.run(inside(server.api_base))


# --- runs from elsewhere ------------------------------------------------------------------------------------------
@pytest.fixture
def directory(tmp_path: Path) -> Path:
    policies = tuple(naming.make_policy(name) for name in ("boulware", "conceder"))
    plans = plan_episodes(naming.task_set("bargaining", 2, 0, "medium"), [policies])
    asyncio.run(run_episodes(plans, evaluator=naming.make_evaluator("verified"), run_dir=tmp_path / "run"))
    return tmp_path / "run"


def test_an_imported_run_is_evaluated_as_a_whole_and_episode_by_episode(
    sqlite_url: str, tmp_path: Path, directory: Path
) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        run, count = await import_run(studio.database, directory)
        items = (await browser.get("/api/v1/episodes", params={"run": run})).json()["items"]
        one = items[0]["id"]
        await page_after_job(
            browser, await browser.post(f"/episodes/{one}/evaluations", data={"evaluator": "verified"})
        )
        page = await browser.post(f"/runs/{run}/evaluations", data={"evaluator": "diligence"})
        await page_after_job(browser, page)
        listed = await browser.get("/api/v1/episodes", params={"evaluator": "diligence"})
        assert listed.json()["total"] == count
        record = (await browser.get(f"/api/v1/episodes/{one}/record")).json()
        # Reading the directory again has not dropped what was made here.
        assert {"verified", "diligence"} <= {item["evaluator"] for item in record["evaluations"]}
        directory.rename(tmp_path / "moved")
        answer = await browser.post(f"/runs/{run}/evaluations", data={"evaluator": "diligence"})
        assert (answer.status_code, str(directory) in answer.text) == (422, True)

    with_model(sqlite_url, tmp_path, work)


def test_a_run_that_was_read_from_a_file_is_evaluated_episode_by_episode(
    sqlite_url: str, tmp_path: Path, directory: Path
) -> None:
    async def work(studio: Studio, browser: httpx.AsyncClient) -> None:
        file = tmp_path / "episodes.jsonl"
        file.write_text("".join(to_line(episode) for episode in read_run(directory)))
        await load(studio.database, [file])
        (run,) = (await browser.get("/api/v1/runs")).json()["items"]
        answer = await browser.post(f"/api/v1/runs/{run['id']}/evaluations", json={"evaluator": "verified"})
        assert answer.status_code == 409
        one = (await browser.get("/api/v1/episodes")).json()["items"][0]["id"]
        page = await browser.post(f"/episodes/{one}/evaluations", data={"evaluator": "diligence"})
        await page_after_job(browser, page)

    with_model(sqlite_url, tmp_path, work)
