"""The REST API: every endpoint of the published interface, and the faults of its reference implementation."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from sotopia_studio import auth
from sotopia_studio.app import create_app
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import tables
from sotopia_studio.store.engine import Database
from sotopia_studio.worker import Worker
from sqlalchemy import update

from sotopia_env import naming, tasks
from sotopia_env.runs import RunSpec, plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world.episode import to_line

ROOT = "http://127.0.0.1/api/v1"
Work = Callable[[httpx.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def studio(url: str, data: Path, *, workers: int = 1, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with workers in this process."""
    parts = ServiceSettings(database=url, data=data, **settings)  # type: ignore[arg-type]
    app, database = create_app(parts), Database(url)
    async with app.router.lifespan_context(app):
        async with database.write() as connection:
            secret = await auth.add_token(connection, "lab", "test", frozenset({"read", "run"}))
        crew = [Worker(parts, database) for _ in range(workers)]
        running = [asyncio.create_task(worker.run()) for worker in crew]
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {secret}"}
        try:
            async with httpx.AsyncClient(
                transport=transport, base_url=ROOT, headers=headers, follow_redirects=True
            ) as client:
                yield client
        finally:
            for worker in crew:
                worker.stop()
            await asyncio.gather(*running)
            await database.close()


def run(url: str, data: Path, work: Work, **options: object) -> None:
    async def inside() -> None:
        async with studio(url, data, **options) as client:  # type: ignore[arg-type]
            await work(client)

    asyncio.run(inside())


async def until(client: httpx.AsyncClient, path: str, field: str, *values: str | int) -> dict[str, object]:
    """What is at ``path`` once its ``field`` is one of ``values``."""
    for _ in range(4800):
        answer = (await client.get(path)).json()
        if answer[field] in values:
            return answer  # type: ignore[no-any-return]
        await asyncio.sleep(0.05)
    raise AssertionError(answer)


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    """The problem details of an answer."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    details: dict[str, object] = answer.json()
    assert details["status"] == status
    assert details["detail"]
    return details


def task_json() -> dict[str, object]:
    task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
    return task.model_dump(mode="json")


def test_an_empty_library_stays_empty_until_a_set_is_imported(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/agents", "/scenarios", "/relationship", "/episodes", "/evaluation_dimensions/", "/tasks"):
            assert (await client.get(path)).json() == {"items": [], "total": 0, "next": None}
        added = (await client.post("/library/import/starter")).json()["added"]
        agents = (await client.get("/agents", params={"limit": 500})).json()
        scenarios = (await client.get("/scenarios/")).json()
        assert 0 < agents["total"] + scenarios["total"] <= added
        assert (await client.post("/library/import/starter")).json() == {"added": 0}
        first = agents["items"][0]
        for get_by, value in (("id", first["id"]), ("gender", first["record"]["gender"]), ("tag", "starter")):
            answer = (await client.get(f"/agents/{get_by}/{value}")).json()
            assert first["id"] in [item["id"] for item in answer["items"]]
        name = scenarios["items"][0]["name"]
        assert (await client.get(f"/scenarios/name/{name}")).json()["items"][0]["name"] == name
        castings = (await client.get(f"/scenarios/{scenarios['items'][0]['id']}/castings")).json()
        assert castings["total"] > 0
        problem(await client.get("/agents/secret/x"), 422)
        problem(await client.get("/agents/age/old"), 422)

    run(sqlite_url, tmp_path, work, workers=0)


def test_a_record_is_added_once_and_returned_unchanged(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        scenario = tasks.starter_scenarios()[0]
        answer = await client.post("/scenarios/", json=scenario.model_dump(mode="json"), params={"tag": "mine"})
        assert answer.status_code == 201
        identity = answer.json()["id"]
        assert answer.headers["location"] == f"/api/v1/scenarios/{identity}"
        assert (await client.post("/scenarios", json=scenario.model_dump(mode="json"))).status_code == 200
        stored = (await client.get(f"/scenarios/{identity}")).json()
        assert stored["record"] == json.loads(scenario.model_dump_json())
        assert "mine" in stored["tags"]
        assert (await client.get(f"/scenarios/{stored['hash'][:10]}")).json() == stored
        assert (await client.delete(f"/scenarios/{identity}")).json() == {"id": identity}
        problem(await client.get(f"/scenarios/{identity}"), 404)
        assert (await client.put(f"/scenarios/{identity}", json={})).status_code == 405

    run(url, tmp_path, work, workers=0)


def test_invalid_bodies_are_refused_with_the_field_and_the_nearest_name(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        character = tasks.starter_cast().characters[0].model_dump(mode="json")
        misspelt = {**character, "occupaton": "baker"}
        details = problem(await client.post("/agents", json=misspelt), 422)
        assert (details["field"], details["nearest"]) == ("occupaton", "occupation")
        details = problem(await client.post("/agents", json={**character, "age": 900}), 422)
        assert details["field"] == "age"
        broken = ['{"first_name": "A", "first_name": "B"}', '{"age": NaN}', "[" * 100_000, "{", '"\\ud800"', "", "null"]
        for text in broken:
            answer = await client.post("/agents", content=text, headers={"content-type": "application/json"})
            problem(answer, 422)
        details = problem(await client.get("/agents", params={"limit": 0}), 422)
        assert details["field"] == "limit"
        problem(await client.get("/nothing"), 404)

    run(sqlite_url, tmp_path, work, workers=0)


def test_relationships_are_of_two_in_either_order_and_strangers_are_404(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        people = [character.model_dump(mode="json") for character in tasks.starter_cast().characters[:3]]
        ids = [(await client.post("/agents", json=person)).json()["id"] for person in people]
        problem(await client.get(f"/relationship/{ids[0]}/{ids[1]}"), 404)
        pair = {"first": ids[0], "second": ids[1], "kind": "friend"}
        identity = (await client.post("/relationship", json=pair)).json()["id"]
        for first, second in ((0, 1), (1, 0)):
            answer = (await client.get(f"/relationship/{ids[first]}/{ids[second]}")).json()
            assert answer["record"]["kind"] == "friend"
        details = problem(await client.delete(f"/agents/{ids[0]}"), 409)
        assert identity in str(details["detail"])
        problem(await client.post("/relationship", json={**pair, "kind": "family"}), 409)
        problem(await client.post("/relationship", json={**pair, "second": "unknown"}), 404)
        problem(await client.post("/relationship", json={**pair, "second": ids[0]}), 422)
        assert (await client.delete(f"/relationship/{identity}")).status_code == 200
        assert (await client.delete(f"/agents/{ids[0]}")).status_code == 200

    run(sqlite_url, tmp_path, work, workers=0)


def test_a_simulation_with_three_seats_is_stored_and_has_a_status(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        group = next(task for task in tasks.everyday_group_tasks() if len(task.agents) >= 3)
        task = (await client.post("/tasks", json=group.model_dump(mode="json"))).json()["id"]
        request = {"task": task, "policies": ["boulware"], "rules": {"max_turns": 9}, "tag": "group"}
        answer = await client.post("/simulate/", json=request)
        assert answer.status_code == 202
        (episode,) = answer.json()["episodes"]
        assert answer.headers["location"] == f"/api/v1/episodes/{episode}"
        status = await until(client, f"/simulation_status/{episode}", "status", "done", "failed")
        assert status == (await client.get(f"/simulate/status/{episode}")).json()
        assert status["status"] == "done"
        (row,) = (await client.get("/episodes", params={"tag": "group"})).json()["items"]
        assert row["id"] == episode
        record = (await client.get(f"/episodes/{episode}/record")).json()
        assert len(record["task"]["characters"]) == len(group.agents)
        assert len(record["turns"]) == status["turns"]
        lines = (await client.get("/episodes/export.jsonl", params={"tag": "group"})).text.splitlines()
        assert [json.loads(line) for line in lines] == [record]
        for named in (f"id/{episode}", "tag/group"):  # whole records, as in S4
            assert (await client.get(f"/episodes/{named}")).json() == {"items": [record], "total": 1, "next": None}
        await client.patch(f"/episodes/{episode}", json={"add_tags": ["record"]})
        assert (await client.get("/episodes/tag/record")).json()["items"] == [record]
        statuses = [(await client.get(f"/episodes/{named}")).status_code for named in ("id/none", "tag/none", "mood/x")]
        assert statuses == [404, 404, 422]

    run(url, tmp_path, work)


def test_unknown_objects_are_404_and_start_nothing(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/library/import/starter")
        scenario = (await client.get("/scenarios", params={"limit": 1})).json()["items"][0]["id"]
        agents = [item["id"] for item in (await client.get("/agents", params={"limit": 3})).json()["items"]]
        good = {"scenario": scenario, "agents": agents[:2], "policies": ["boulware"]}
        for change in ({"scenario": "unknown"}, {"agents": [agents[0], "unknown"]}):
            problem(await client.post("/simulate", json={**good, **change}), 404)
        for change in (
            {"agents": agents},
            {"agents": [agents[0], agents[0]]},
            {"policies": ["boulwar"]},
            {"policies": ["boulware"] * 3},
            {"evaluator": "verifed"},
            {"evaluator": "verified", "dimensions": "unknown"},
            {"rules": {"first_seat": 7}},
            {"task": "x"},
            {"repeats": 0},
        ):
            answer = await client.post("/simulate", json={**good, **change})
            assert answer.status_code in (404, 422), change
            problem(answer, answer.status_code)
        for path in (
            "/episodes/x", "/episodes/x/record", "/episodes/x/events", "/simulation_status/x", "/simulate/status/x",
            "/runs/x", "/runs/x/events", "/jobs/x", "/agents/x", "/scenarios/x", "/tasks/x",
            "/episodes/x/seats/agent_0",
        ):  # fmt: skip
            problem(await client.get(path), 404)
        for path in ("/agents/x", "/scenarios/x", "/relationship/x", "/episodes/x", "/evaluation_dimensions/x"):
            problem(await client.delete(path), 404)
        for path in ("/runs/x/stop", "/runs/x/resume", "/episodes/x/stop"):
            problem(await client.post(path), 404)
        assert (await client.get("/episodes")).json()["total"] == 0

    run(sqlite_url, tmp_path, work, workers=0)


def test_only_issued_tokens_are_valid(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for value in ("Bearer demo-token", "Bearer x", "Bearer "):
            answer = await client.get("/agents", headers={"authorization": value})
            problem(answer, 401)
            assert "access-control-allow-origin" not in answer.headers
        answer = await client.options("/agents", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers

    run(sqlite_url, tmp_path, work, workers=0)


def test_a_person_plays_through_the_api_and_sees_only_the_seat(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        task = task_json()
        request = {"task": task, "policies": ["human", "boulware"], "rules": {"max_turns": 6}, "evaluator": "none"}
        episode = (await client.post("/simulate", json=request)).json()["episodes"][0]
        seat, turns = f"/episodes/{episode}/seats/agent_0", 0
        while True:
            for _ in range(4800):
                view = (await client.get(seat)).json()
                if view["acting"] or view["ended"]:
                    break
                await asyncio.sleep(0.05)
            if view["ended"]:
                break
            other = task["scenario"]["seats"][1]  # type: ignore[index]
            assert other["goals"][0] not in json.dumps(view)
            assert "boulware" not in json.dumps(view)
            body = {"turn": view["turn"], "key": f"k{turns}", "action": {"argument": f"Word {turns}."}}
            first = await client.post(f"{seat}/actions", json=body)
            assert first.status_code == 202
            assert (await client.post(f"{seat}/actions", json=body)).status_code == 202  # the same request again
            problem(await client.post(f"{seat}/actions", json={**body, "key": "other"}), 409)
            turns += 1
        assert turns == 3
        await until(client, f"/simulation_status/{episode}", "status", "done")  # the record comes after the last turn
        record = (await client.get(f"/episodes/{episode}/record")).json()
        assert sum(turn["turn"]["actor"] == "agent_0" for turn in record["turns"]) == 3
        problem(await client.get(f"/episodes/{episode}/seats/agent_7"), 404)

    run(url, tmp_path, work)


def test_an_impossible_action_changes_nothing(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"task": task_json(), "policies": ["human", "boulware"]}
        episode = (await client.post("/simulate", json=request)).json()["episodes"][0]
        await until(client, f"/simulation_status/{episode}", "status", "waiting")
        path = f"/episodes/{episode}/seats/agent_0/actions"
        body = {"turn": 0, "key": "a", "action": {"argument": "x", "move": {"accept": 99}}}
        problem(await client.post(path, json=body), 422)
        problem(await client.post(path, json={**body, "action": {"action_type": "shout"}}), 422)
        problem(await client.post(path.replace("agent_0", "agent_1"), json={**body, "action": {}}), 403)
        assert (await client.get(f"/simulation_status/{episode}")).json()["turns"] == 0
        problem(await client.delete(f"/episodes/{episode}"), 409)
        assert (await client.post(f"/episodes/{episode}/stop")).json()["status"] == "stopped"
        assert (await client.delete(f"/episodes/{episode}")).status_code == 200

    run(sqlite_url, tmp_path, work)


def test_the_number_of_live_episodes_is_limited(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"task": task_json(), "policies": ["human", "boulware"], "repeats": 2}
        assert (await client.post("/simulate", json=request)).status_code == 202
        problem(await client.post("/simulate", json=request), 429)
        assert (await client.get("/episodes")).json()["total"] == 2

    run(sqlite_url, tmp_path, work, workers=0, live_episodes=3)


def test_episodes_are_uploaded_all_or_none_and_compared(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        policies = tuple(naming.make_policy(name) for name in ("boulware", "conceder"))
        plans = plan_episodes(naming.task_set("bargaining", 3, 0, "medium"), [policies])
        records = (await run_episodes(plans, evaluator=naming.make_evaluator("verified"))).episodes
        text = "".join(to_line(record) for record in records)
        problem(await client.post("/episodes", content=text + "{}"), 422)
        problem(await client.post("/episodes", content=b"\xff"), 422)
        assert (await client.get("/episodes")).json()["total"] == 0
        ids = (await client.post("/episodes", content=text)).json()["ids"]
        assert len(ids) == len(records)
        assert (await client.get(f"/episodes/{ids[0]}/record")).text + "\n" == to_line(records[0])
        for episode in ids:
            labels = {"starred": True, "add_tags": ["pilot"]}
            assert (await client.patch(f"/episodes/{episode}", json=labels)).json()["tags"] == ["pilot"]
        assert (await client.get("/episodes", params={"starred": True, "policy": "boulware"})).json()["total"] == len(
            ids
        )
        assert (await client.get("/episode_values/policy")).json()["values"]["boulware"] == len(ids)
        pages = [(await client.get("/episodes", params={"limit": 2})).json()]
        while pages[-1]["next"]:
            pages.append((await client.get("/episodes", params={"limit": 2, "after": pages[-1]["next"]})).json())
        assert sorted(item["id"] for page in pages for item in page["items"]) == sorted(ids)
        report = (await client.get("/compare", params={"tag": "pilot"})).json()
        assert {"boulware", "conceder"} == set(report["policies"])
        table = await client.get("/compare.csv", params={"tag": "pilot"})
        assert "boulware" in table.text
        assert table.headers["content-type"].startswith("text/csv")
        chart = await client.get("/compare.svg", params={"tag": "pilot"})
        assert "<svg" in chart.text
        problem(await client.get("/compare.csv", params={"tag": "pilot", "sheet": "nothing"}), 422)
        problem(await client.get("/compare", params={"tag": "unused"}), 422)
        problem(await client.get("/compare"), 422)

    run(url, tmp_path, work, workers=0)


def test_a_run_is_played_counted_and_evaluated_again_by_another(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        spec = {"policies": ["boulware", "conceder"], "tasks": "bargaining", "n": 2}
        forecast = (await client.post("/runs", params={"dry_run": True}, json={"spec": spec})).json()
        assert (await client.get("/runs")).json()["total"] == 0
        started = (await client.post("/runs", json={"spec": spec, "name": "first", "tag": ["pilot"]})).json()
        assert started["planned"] == forecast["episodes"]
        row = await until(client, f"/runs/{started['run']}", "status", "done", "failed")
        assert (row["status"], row["played"], row["failed"]) == ("done", started["planned"], 0)
        assert (row["tokens"], row["cost"]) == (0, 0.0)
        listed = (await client.get("/episodes", params={"run": started["run"]})).json()
        assert listed["total"] == started["planned"]
        on_disk = {to_line(episode) for episode in read_run(str(row["directory"]))}
        lines = (await client.get("/episodes/export.jsonl", params={"run": started["run"]})).text.splitlines(
            keepends=True
        )
        assert set(lines) == on_disk
        problem(await client.post(f"/runs/{started['run']}/stop"), 409)
        problem(await client.delete(f"/episodes/{listed['items'][0]['id']}"), 409)
        job = (await client.post(f"/runs/{started['run']}/evaluations", json={"evaluator": "diligence"})).json()["job"]
        assert (await until(client, f"/jobs/{job}", "state", "done", "failed"))["state"] == "done"
        assert started["planned"] == (await client.get("/episodes", params={"evaluator": "diligence"})).json()["total"]
        one = listed["items"][0]["id"]
        job = (await client.post(f"/episodes/{one}/evaluations", json={"evaluator": "verified"})).json()["job"]
        assert (await until(client, f"/jobs/{job}", "state", "done", "failed"))["state"] == "done"
        names = [item["evaluator"] for item in (await client.get(f"/episodes/{one}/record")).json()["evaluations"]]
        assert {"diligence", "verified"} <= set(names)
        assert (await client.post(f"/runs/{started['run']}/resume")).status_code == 202
        row = await until(client, f"/runs/{started['run']}", "status", "done", "failed")
        assert (row["status"], row["played"]) == ("done", started["planned"])  # nothing is played twice

    run(url, tmp_path, work)


def test_a_run_cannot_set_addresses_or_keys_of_models(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        spec = {"policies": ["boulware"], "models": {"api_base": {"": "http://evil.example"}}}
        assert problem(await client.post("/runs", json={"spec": spec}), 422)["field"] == "models.api_base"
        for change in ({"policies": ["os:system"]}, {"policies": ["./"]}, {"tasks": "/etc/passwd"}):
            problem(await client.post("/runs", json={"spec": {"policies": ["boulware"], **change}}), 422)
        RunSpec()  # what is refused is refused by the service alone
        problem(await client.post("/simulate", json={"task": task_json(), "policies": ["os:system"]}), 422)

    run(sqlite_url, tmp_path, work, workers=0, accounts=True)


def test_a_run_is_stopped_and_continued(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        slow = "tests.sotopia_studio.slow:Slow"
        spec = {"policies": [slow], "tasks": "bargaining", "n": 60, "max_turns": 8, "concurrency": 2}
        started = (await client.post("/runs", json={"spec": spec})).json()
        for _ in range(4800):
            row = (await client.get(f"/runs/{started['run']}")).json()
            if row["played"]:
                break
            await asyncio.sleep(0.02)
        assert (await client.post(f"/runs/{started['run']}/stop")).status_code == 202
        row = await until(client, f"/runs/{started['run']}", "status", "stopped", "done", "failed")
        assert row["status"] == "stopped"
        assert 0 < int(str(row["played"])) < started["planned"]
        await client.post(f"/runs/{started['run']}/resume")
        row = await until(client, f"/runs/{started['run']}", "status", "done", "failed")
        assert row["played"] == started["planned"]

    run(sqlite_url, tmp_path, work)


def test_dry_runs_and_jobs_that_need_a_model_say_what_is_missing(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"task": task_json(), "policies": ["human", "boulware"]}
        forecast = (await client.post("/simulate", params={"dry_run": True}, json=request)).json()
        assert (forecast["episodes"], forecast["cost_high"]) == (1, 0)
        assert (await client.get("/episodes")).json()["total"] == 0
        problem(await client.post("/design", json={"text": "Two neighbours share a fence."}), 422)
        trust = {"name": "trust", "low": 0, "high": 10, "instruction": "How far does the agent trust the other?"}
        mine = (await client.post("/evaluation_dimensions/", json={"name": "mine", "dimensions": [trust]})).json()["id"]
        answer = await client.post("/simulate", json={**request, "dimensions": mine, "evaluator": "verified"})
        assert problem(answer, 422)["field"] == "evaluator"
        judge = {**request, "dimensions": mine, "evaluator": "judge:local/m:api_base=http://127.0.0.1:9/v1"}
        assert (await client.post("/simulate", json=judge)).status_code == 202

    run(sqlite_url, tmp_path, work, workers=0)


def test_dry_runs_at_once_forecast_each_its_own_tasks(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        records = naming.task_set("bargaining", 3, 0, "medium")
        ids = [(await client.post("/tasks", json=task.model_dump(mode="json"))).json()["id"] for task in records]
        counts = [1, 3, 2, 1, 3, 2]
        bodies = [{"spec": {"policies": ["boulware"]}, "tasks": ids[:count]} for count in counts]
        requests = [client.post("/runs", params={"dry_run": True}, json=body) for body in bodies]
        answers = [answer.json() for answer in await asyncio.gather(*requests)]
        assert [answer["episodes"] for answer in answers] == counts
        assert not list(tmp_path.rglob("*.jsonl"))  # a forecast leaves nothing behind

    run(sqlite_url, tmp_path, work, workers=0)


def test_a_blank_evaluator_name_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        simulation = {"task": task_json(), "policies": ["boulware"], "evaluator": "none"}
        episode = (await client.post("/simulate", json=simulation)).json()["episodes"][0]
        await until(client, f"/simulation_status/{episode}", "status", "done")
        blank, page = {"evaluator": " \t"}, f"http://127.0.0.1/episodes/{episode}/evaluations"
        assert problem(await client.post(f"/episodes/{episode}/evaluations", json=blank), 422)["field"] == "evaluator"
        assert problem(await client.post(page, data=blank), 422)["field"] == "evaluator"
        assert (await client.post(page, data={"evaluator": " verified ", "dimensions": ""})).status_code == 200
        for _ in range(4800):
            record = (await client.get(f"/episodes/{episode}/record")).json()
            if record["evaluations"]:
                break
            await asyncio.sleep(0.05)
        assert [evaluation["evaluator"] for evaluation in record["evaluations"]] == ["verified"]

    run(sqlite_url, tmp_path, work)


def test_health_counts_jobs_that_no_worker_takes(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/simulate", json={"task": task_json(), "policies": ["boulware"]})
        assert (await client.get("/health")).json()["waiting"] == 0
        database = Database(url)
        async with database.write() as connection:
            await connection.execute(update(tables.job).values(not_before=time.time() - 11))
        await database.close()
        health = (await client.get("/health")).json()
        assert (health["status"], health["waiting"]) == ("degraded", 1)

    run(url, tmp_path, work, workers=0)


def test_health_needs_no_token_and_metrics_and_models_hold_no_secret(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/simulate", json={"task": task_json(), "policies": ["human", "boulware"]})
        assert (await client.get("/health", headers={"authorization": ""})).json()["database"] == "ok"
        text = (await client.get("/metrics")).text
        assert 'studio_episodes{status="waiting"} 1.0' in text
        labels = 'method="POST",route="/api/v1/simulate",status="202"'
        assert f"studio_request_seconds_count{{{labels}}} 1.0" in text
        catalog = (await client.get("/models")).json()
        assert catalog["models"] == ["local/m"]
        assert "boulware" in [policy["name"] for policy in catalog["policies"]]

    run(sqlite_url, tmp_path, work, workers=0, model_names=("local/m",))


def test_the_response_contains_the_link_to_a_seat_once(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"task": task_json(), "policies": ["link", "human"], "turn_seconds": 1.5, "rules": {"max_turns": 8}}
        started = (await client.post("/simulate", json=request)).json()
        (episode,), (link,) = started["episodes"], started["links"]
        assert (link["episode"], link["agent"]) == (episode, "agent_0")
        action = {"turn": 0, "key": "one", "action": {"action_type": "speak", "argument": "Hello."}}
        problem(await client.post(f"/episodes/{episode}/seats/agent_0/actions", json=action), 403)
        await asyncio.sleep(3)  # a participant's time starts when the link is opened
        assert (await client.get(f"/simulation_status/{episode}")).json()["turns"] == 0
        (newer,) = (await client.post(f"/episodes/{episode}/links")).json()
        guest = httpx.AsyncClient(transport=client._transport, headers={"origin": "http://127.0.0.1"})
        assert (await guest.post(link["address"])).status_code == 404  # the newer one has replaced it
        answer = await guest.post(newer["address"], follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, f"/seat/{episode}/agent_0")
        assert (await guest.post(newer["address"])).status_code == 404
        for path in (f"/seat/{episode}/agent_1", f"/episodes/{episode}", f"/api/v1/episodes/{episode}", "/episodes"):
            assert (await guest.get(f"http://127.0.0.1{path}")).status_code in (403, 404), path
        state = await until(client, f"/simulation_status/{episode}", "status", "done")  # now it runs
        assert state["reason"] == "left"
        problem(await client.post("/episodes/unknown/links"), 404)

    run(url, tmp_path, work)


def test_a_stopped_episode_is_resumed_from_its_last_turn(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"task": task_json(), "policies": ["human", "boulware"], "rules": {"max_turns": 4}}
        episode = (await client.post("/simulate", json=request)).json()["episodes"][0]
        problem(await client.post(f"/episodes/{episode}/resume"), 409)
        action = {"turn": 0, "key": "one", "action": {"action_type": "speak", "argument": "Hello."}}
        await client.post(f"/episodes/{episode}/seats/agent_0/actions", json=action)
        await until(client, f"/episodes/{episode}", "turns", 2)
        await client.post(f"/episodes/{episode}/stop")
        resumed = await client.post(f"/episodes/{episode}/resume")
        assert (resumed.status_code, resumed.json()["turns"], resumed.json()["reason"]) == (202, 2, "")
        await client.post(f"/episodes/{episode}/seats/agent_0/actions", json={**action, "turn": 2, "key": "two"})
        assert (await until(client, f"/episodes/{episode}", "status", "done", "failed"))["turns"] == 4
        problem(await client.post("/episodes/unknown/resume"), 404)

    run(sqlite_url, tmp_path, work)
