"""Models in this process are built in workers only: pages answer meanwhile, and other episodes go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from sotopia_env import naming
from sotopia_env.people.studies import design
from tests.sotopia_studio.process import Server, served
from tests.sotopia_studio.server import studio

HEAVY = "tests.sotopia_studio.slow:Heavy"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


def requests(policy: str) -> dict[str, dict[str, Any]]:
    """The bodies of the requests that name a policy, by path."""
    task = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).model_dump(mode="json")
    spec = {"policies": [policy, "boulware"], "tasks": "bargaining", "n": 1}
    study = {"kind": "play", "name": "talks", "title": "Talks", "tasks": "bargaining", "n": 1, "partner": policy}
    return {
        "/simulate?dry_run=true": {"task": task, "policies": [policy], "evaluator": "interview"},
        "/simulate": {"task": task, "policies": [policy]},
        "/runs?dry_run=true": {"spec": spec},
        "/runs": {"spec": spec},
        "/studies": study,
    }


def test_pages_answer_while_a_slow_model_is_named(server: Server) -> None:
    """Once each of these took as long as the model, and every page waited for it."""
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.address}/api/v1", headers=headers, timeout=120) as http:
        with ThreadPoolExecutor(1) as pool:
            for path, body in requests(f"{HEAVY}:seconds=60").items():
                answer = pool.submit(http.post, path, json=body)
                while not answer.done():
                    start = time.monotonic()
                    assert server.page().status_code == 200
                    assert time.monotonic() - start < 20, path
                assert answer.result().is_success, answer.result().text
        assert http.post("/simulate", json={**requests(f"{HEAVY}:second=1")["/simulate"]}).status_code == 422


def test_the_small_models_cost_is_known_without_the_model(server: Server) -> None:
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.address}/api/v1", headers=headers, timeout=120) as http:
        answers = {}
        for path, body in requests("smol:format=brief,max_tokens=50").items():
            answers[path] = http.post(path, json={**body, "name": "small"} if path == "/studies" else body)
            assert answers[path].is_success, answers[path].text
    for path in ("/simulate?dry_run=true", "/runs?dry_run=true"):
        assert any(line.startswith("agent smol: ") for line in answers[path].json()["lines"]), answers[path].text
    libraries = {Path(part.path).name for part in server.process.memory_maps()}
    assert not [name for name in libraries if "torch" in name]


def test_a_worker_goes_on_while_it_builds_a_model(sqlite_url: str, tmp_path: Path) -> None:
    longest = 0.0

    async def heartbeat() -> None:  # in the loop of the worker, which renews leases and plays other episodes
        nonlocal longest
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.05)
            longest = max(longest, time.monotonic() - start)

    async def work() -> None:
        async with studio(sqlite_url, data=tmp_path) as service:
            browser = await service.researcher()
            beating = asyncio.create_task(heartbeat())
            answer = await browser.post("/api/v1/simulate", json=requests(f"{HEAVY}:seconds=6")["/simulate"])
            (episode,) = answer.json()["episodes"]
            for _ in range(4800):
                row = (await browser.get(f"/api/v1/simulation_status/{episode}")).json()
                if row["status"] == "done":
                    break
                await asyncio.sleep(0.05)
            beating.cancel()
            assert row["status"] == "done", row

    asyncio.run(work())
    assert longest < 4, longest


def test_nobody_waits_while_the_tasks_of_a_study_are_made(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = {"kind": "play", "name": "talks", "title": "Talks", "tasks": "bargaining", "n": 3, "partner": "boulware"}
    make, begun, free = naming.task_set, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        begun.set()
        assert free.wait(60), "somebody waits for the tasks"
        return make(*arguments)

    async def work() -> None:
        async with studio(sqlite_url) as service:
            researcher = await service.researcher()
            assert (
                await researcher.post("/api/v1/studies", json={**study, "instructions": "Read."})
            ).status_code == 201
            browser = service.browser()
            await browser.post("/join/talks")
            await browser.post("/study/consent", data={"consent": "1"})
            monkeypatch.setattr(naming, "task_set", slowly)
            design._tasks.cache_clear()  # as after a restart
            step = asyncio.create_task(browser.post("/study/begin"))
            assert await asyncio.to_thread(begun.wait, 60)
            assert (await researcher.post("/api/v1/studies/talks/close")).status_code == 204
            assert not step.done()
            free.set()
            assert "/seat/" in str((await step).url)

    asyncio.run(work())
