"""An episode in which GOAL alone is measured: the other six dimensions have no number in any output."""

import asyncio
import json
from pathlib import Path

import pytest
from sotopia_studio.store import episodes as store
from sotopia_studio.store import runs

from sotopia_env import naming
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.importers.formats.evaluations import rewards_of
from sotopia_env.reports import comparison_report
from sotopia_env.reports.compare import compare
from sotopia_env.reports.transcript import to_text
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import ABBREVIATIONS
from tests.goal_alone import UNMEASURED, GoalAlone
from tests.sotopia_studio.conftest import create_tables
from tests.sotopia_studio.server import studio


# The second case is a record of an earlier version, whose evaluation holds counts of words.
@pytest.fixture(params=[False, True], ids=["absent", "counts of words"])
def evaluator(request) -> GoalAlone:
    return GoalAlone(request.param)


def played(evaluator: GoalAlone, folder: Path | None = None) -> list[Episode]:
    policies = [naming.make_policy(name) for name in ("boulware", "conceder")]
    plans = plan_episodes(naming.task_set("bargaining", 3, 0, "medium"), all_matchups(policies, False))
    return list(asyncio.run(run_episodes(plans, evaluator=evaluator, run_dir=folder, progress=False)).episodes)


def names(value: object) -> set[str]:
    """All keys and texts of a JSON value."""
    if isinstance(value, dict):
        return {str(key) for key in value}.union(*map(names, value.values()), set())
    if isinstance(value, list | tuple):
        return set().union(*map(names, value))
    return {value} if isinstance(value, str) else set()


def test_trainers_read_what_was_measured(evaluator):
    async def play() -> TextSeat:
        seat = TextSeat.against("bargaining", evaluator=evaluator)
        await seat.begin()
        while not seat.done:
            await seat.say('{"action_type": "leave", "argument": ""}')
        return seat

    assert asyncio.run(play()).scores == {"goal": 4.0}


def test_reports_charts_and_exports_name_what_was_measured(evaluator):
    episodes = played(evaluator)
    comparison = compare(episodes)
    report = comparison_report(comparison)
    assert comparison.main == "goal"
    assert "overall" not in comparison.metrics
    texts = [report.text(), report.markdown(), report.json(), *report.csv().values(), *report.charts()]
    for dimension in UNMEASURED:
        assert not [text for text in texts if dimension.value in text]
    for episode in episodes[:1]:
        text = to_text(episode)
        assert not [d for d in UNMEASURED if f"{ABBREVIATIONS[d]} 0" in text]
        assert [set(values) for _, values in rewards_of(episode.evaluations[-1], episode.task)] == [
            {"goal", "overall_score"}
        ] * 2
        assert [overall for overall, _ in rewards_of(episode.evaluations[-1], episode.task)] == [None, None]


def test_the_studio_shows_what_was_measured(evaluator, tmp_path):
    records = played(evaluator, tmp_path / "run")

    async def inside() -> None:
        database = f"sqlite:///{tmp_path}/studio.db"
        await create_tables(database)
        async with studio(database, workers=0) as service:
            browser = await service.researcher()
            async with service.database.write() as connection:
                run = await runs.add(connection, "{}", directory=str(tmp_path / "run"), planned=6, status="done")
                for episode in records:
                    await store.add_recorded(connection, run, [(episode, "")], 0.0)
            items = (await browser.get("/api/v1/episodes", params={"run": run})).json()["items"]
            assert [item["scores"] for item in items] == [{"agent_0": {"goal": 4.0}, "agent_1": {"goal": 4.0}}] * 6
            page = (await browser.get(f"/episodes/{items[0]['id']}")).text
            assert 'aria-label="goal of' in page
            assert not [d for d in UNMEASURED if f'aria-label="{d.value.replace("_", " ")} of' in page]
            answer = json.loads((await browser.get("/api/v1/compare", params={"run": run})).text)
            assert not {dimension.value for dimension in UNMEASURED} & names(answer)
            assert "believability" not in (await browser.get("/compare", params={"run": run})).text

    asyncio.run(inside())
