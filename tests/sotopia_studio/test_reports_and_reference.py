"""Comparisons through the API, a chart and a sheet by name; the reference of the API as a page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sotopia_studio.store import episodes, runs

from sotopia_env import naming
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_studio.server import studio


def test_charts_and_sheets_are_requested_by_name(sqlite_url: str, tmp_path: Path) -> None:
    async def inside() -> None:
        policies = [naming.make_policy(name) for name in ("boulware", "conceder")]
        plans = plan_episodes(naming.task_set("bargaining", 4, 0, "medium"), all_matchups(policies, False))
        evaluator = naming.make_evaluator("verified")
        result = await run_episodes(plans, evaluator=evaluator, run_dir=tmp_path / "run", progress=False)
        async with studio(sqlite_url, workers=0) as service:
            browser = await service.researcher()
            async with service.database.write() as connection:
                run = await runs.add(connection, "{}", directory=str(tmp_path / "run"), planned=8, status="done")
                for episode in result.episodes:
                    await episodes.add_recorded(connection, run, [(episode, "")], 0.0)
            drawing = await browser.get("/api/v1/compare.svg", params={"run": run, "chart": "means"})
            assert drawing.headers["content-type"].startswith("image/svg+xml"), drawing.text
            assert (await browser.get("/api/v1/compare.svg", params={"run": run, "chart": "pie"})).status_code == 422
            sheet = await browser.get("/api/v1/compare.csv", params={"run": run, "sheet": "ranking"})
            assert "boulware" in sheet.text

    asyncio.run(inside())


def test_the_reference_of_the_api_needs_no_other_server(sqlite_url: str) -> None:
    async def inside() -> None:
        async with studio(sqlite_url, workers=0) as service:
            page = await service.browser().get("/api/docs")
            assert page.status_code == 200
            assert "/api/v1/simulate" in page.text
            assert "https://" not in page.text

    asyncio.run(inside())
