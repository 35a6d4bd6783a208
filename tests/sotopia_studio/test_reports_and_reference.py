"""Comparisons through the API, a chart and a sheet by name; the reference of the API as a page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sotopia_studio.api import reports
from sotopia_studio.store import episode_lists, episodes, runs, tags

from sotopia_env import naming
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.sheet import Report
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_studio.server import Studio, studio


@asynccontextmanager
async def compared(url: str, folder: Path) -> AsyncIterator[tuple[Studio, httpx.AsyncClient, str]]:
    """A studio, a researcher's browser, and a run of two policies in ``folder``, whose episodes have the tag `both`."""
    policies = [naming.make_policy(name) for name in ("boulware", "conceder")]
    plans = plan_episodes(naming.task_set("bargaining", 4, 0, "medium"), all_matchups(policies, False))
    result = await run_episodes(
        plans, evaluator=naming.make_evaluator("verified"), run_dir=folder / "run", progress=False
    )
    async with studio(url, workers=0) as service:
        async with service.database.write() as connection:
            run = await runs.add(connection, "{}", directory=str(folder / "run"), planned=8, status="done")
            for episode in result.episodes:
                for identity, _ in await episodes.add_recorded(connection, run, [(episode, "")], 0.0):
                    await tags.add(connection, "episode", identity, ["both"])
        yield service, await service.researcher(), run


def test_charts_and_sheets_are_requested_by_name(sqlite_url: str, tmp_path: Path) -> None:
    async def inside() -> None:
        async with compared(sqlite_url, tmp_path) as (_, browser, run):
            drawing = await browser.get("/api/v1/compare.svg", params={"run": run, "chart": "means"})
            assert drawing.headers["content-type"].startswith("image/svg+xml"), drawing.text
            assert (await browser.get("/api/v1/compare.svg", params={"run": run, "chart": "pie"})).status_code == 422
            sheet = await browser.get("/api/v1/compare.csv", params={"run": run, "sheet": "ranking"})
            assert "boulware" in sheet.text

    asyncio.run(inside())


def test_a_comparison_is_computed_once_until_its_episodes_change(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(*arguments: Any) -> Report:
        computed.append(1)
        return comparison_report(*arguments)

    async def inside() -> None:
        async with compared(sqlite_url, tmp_path) as (service, browser, run):

            async def size(**query: str) -> int:
                """The number of episodes that a comparison counts."""
                return int((await browser.get("/api/v1/compare", params=query)).json()["episodes"])

            query = {"run": run}
            page = await browser.get("/compare", params=query)
            charts = re.findall(r'src="(/api/v1/compare\.svg[^"]+)"', page.text)
            assert len(charts) > 1
            drawings = await asyncio.gather(*(browser.get(chart.replace("&amp;", "&")) for chart in charts))
            assert len({drawing.text for drawing in drawings}) == len(charts)
            assert await size(**query) == 8
            assert len(computed) == 1
            await browser.get("/compare", params={**query, "policy": "boulware"})
            assert len(computed) == 2

            (file,) = (tmp_path / "run").glob("episodes*.jsonl")
            file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
            assert await size(**query) == 6

            assert await size(tag="both") == 8
            async with service.database.write() as connection:
                row = (await episode_lists.page(connection, limit=1))[0]
                await tags.remove(connection, "episode", row.id, ["both"])
            assert await size(tag="both") == 7

    monkeypatch.setattr(reports, "comparison_report", counted)
    asyncio.run(inside())


def test_the_reference_of_the_api_needs_no_other_server(sqlite_url: str) -> None:
    async def inside() -> None:
        async with studio(sqlite_url, workers=0) as service:
            page = await service.browser().get("/api/docs")
            assert page.status_code == 200
            assert "/api/v1/simulate" in page.text
            assert "https://" not in page.text

    asyncio.run(inside())
