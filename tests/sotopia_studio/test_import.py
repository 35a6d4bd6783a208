"""Run directories in the database: read by a command, once, with what was changed in them since."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sotopia_studio.store import episode_lists, episodes, runs
from sotopia_studio.store.engine import Database
from sotopia_studio.store.episode_lists import EpisodeFilter
from typer.testing import CliRunner

from sotopia_env import naming
from sotopia_env.cli.app import app
from sotopia_env.runs import evaluate_run, plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world.episode import to_line


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    policies = tuple(naming.make_policy(name) for name in ("boulware", "conceder"))
    plans = plan_episodes(naming.task_set("bargaining", 4, 0, "medium"), [policies])
    asyncio.run(run_episodes(plans, evaluator=naming.make_evaluator("verified"), run_dir=tmp_path / "run"))
    return tmp_path / "run"


def test_a_run_directory_is_read_once_and_again_for_what_has_changed(url: str, directory: Path) -> None:
    def read() -> None:
        result = CliRunner().invoke(app, ["db", "import", str(directory), "--database", url])
        assert result.exit_code == 0, result.output

    async def look() -> tuple[set[str], list[str], int]:
        database = Database(url)
        async with database.read() as connection:
            (row,) = await runs.page(connection)
            ids = [item.id for item in await episode_lists.page(connection, EpisodeFilter(run=row.id))]
            assert (row.played, row.planned, row.failed, row.status) == (len(ids), len(ids), 0, "done")
            lines = set(await episodes.lines_of(connection, ids))
            scored = await episode_lists.count(connection, EpisodeFilter(evaluator="diligence"))
        await database.close()
        return lines, ids, scored

    def on_disk() -> set[str]:
        return {to_line(episode).rstrip("\n") for episode in read_run(directory)}

    read()
    lines, ids, scored = asyncio.run(look())
    assert (lines, scored) == (on_disk(), 0)
    asyncio.run(evaluate_run(directory, naming.make_evaluator("diligence")))
    read()
    again, same, scored = asyncio.run(look())
    assert (again, same, scored) == (on_disk(), ids, len(ids))


def test_other_directories_than_run_directories_are_refused(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(app, ["db", "import", str(tmp_path / "empty"), "--database", sqlite_url])
    assert result.exit_code != 0
