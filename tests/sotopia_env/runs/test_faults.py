"""A server on a bad day: every episode ends evaluated or explicitly failed, and every count adds up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sotopia_env import naming, tasks
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.ledger import Totals, read_ledger
from sotopia_env.foundation.errors import ModelRefusedError
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan, plan_episodes
from sotopia_env.runs.rollout import RunResult
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.runs.model_runs import SCORES, table_server

KINDS = ("rate_limit", "rate_limit_after", "server_error", "hang", "reset", "truncated", "malformed", "empty")
SHARE = 0.1 / (len(KINDS) + 1)
BAD_DAY = dict.fromkeys((*KINDS, "wrong_language"), SHARE)


def plans_of(models: ModelPool, episodes: int) -> list[EpisodePlan]:
    """Episodes of two to four turns."""
    plans = []
    for turns in (2, 3, 4):
        count = (episodes + 3 - turns + 1) // 3 if turns < 4 else episodes - len(plans)
        task_set = tasks.generate("bargaining", count, seed=turns)
        pair = (naming.make_policy("local/tiny", models), naming.make_policy("local/tiny:reasks=1", models))
        plans += plan_episodes(task_set, [pair], rules=Rules(max_turns=turns), both_seats=False)
    return plans[:episodes]


async def play(server: LoopbackServer, run: Path, episodes: int, retries: int) -> tuple[RunResult, list[EpisodePlan]]:
    options = ModelOptions(
        api_base=server.api_base,
        timeout=5.0,  # longer than a busy machine stalls, or requests that never left would be counted
        retries=RetryPolicy(retries, base=0.01, cap=0.05, patience=30.0 if retries > 1 else 0.0),
        concurrency=64,
    )
    models = ModelPool(options)
    judge = naming.make_evaluator("judge:local/tiny", model_factory=models.judge)
    models.open(run)
    try:
        plans = plans_of(models, episodes)
        result = await run_episodes(
            plans, evaluator=judge, run_dir=run, concurrency=64, progress=False, ledger=models.ledger
        )
        return result, plans
    finally:
        await models.close()


def sums(run: Path) -> Totals:
    totals = Totals()
    for entry in read_ledger(run):
        totals.add(entry)
    return totals


def check_counts(server: LoopbackServer, run: Path, result: RunResult, plans: list[EpisodePlan]) -> list[Episode]:
    """Everything is where it belongs, once."""
    episodes, failures = list(read_run(run)), read_failures(run)
    recorded, failed = {e.key for e in episodes}, {f.key for f in failures}
    assert len(recorded) == len(episodes)
    assert len(failed) == len(failures)
    assert recorded | failed == {plan.key for plan in plans}
    assert not recorded & failed
    assert (result.played, len(result.failures), result.unfinished, result.stopped) == (
        len(episodes),
        len(failures),
        0,
        "",
    )
    counts = read_manifest(run).counts
    assert counts is not None
    assert (counts.episodes, counts.failed) == (len(episodes), len(failures))
    assert counts.unscored == sum(e.evaluations[-1].unscored is not None for e in episodes)
    ledger = sums(run)
    assert ledger.attempts == server.total
    assert ledger.answered == server.happened["answer"] + server.happened["wrong_language"]
    generations = [t.generation for e in [*episodes, *failures] for t in e.turns if t.generation is not None]
    agents = sum(entry.role == "agent" and entry.outcome == "answered" for entry in read_ledger(run))
    requests = sum(1 + generation.reasks for generation in generations)
    assert requests <= agents <= requests + 2 * len(failures)  # a failed turn may have been answered, unusably, before
    return episodes


def check_scores(episodes: list[Episode]) -> None:
    for episode in episodes:
        assert episode.stop is not None
        (verdict,) = episode.evaluations
        if verdict.unscored is not None:
            assert verdict.scores == ()
            assert len(verdict.unscored) > 20, "no reason"
            continue
        assert {(s.agent, s.dimension.value): s.value for s in verdict.scores} == {  # type: ignore[union-attr]
            (agent, name): score for agent in episode.task.agents for name, score in SCORES.items()
        }


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow("plays a thousand episodes"))])
def test_episodes_with_a_tenth_of_the_calls_failing_are_all_evaluated(tmp_path: Path, count: int) -> None:
    with table_server(faults=BAD_DAY, seed=3, retry_after="0.02") as server:
        result, plans = asyncio.run(play(server, tmp_path, count, retries=6))
        episodes = check_counts(server, tmp_path, result, plans)
    assert len(plans) == count
    check_scores(episodes)
    assert all(server.happened[kind] > count // 100 for kind in BAD_DAY)
    spread = 3 * (0.1 * 0.9 / server.total) ** 0.5
    assert 0.1 - spread < 1 - server.happened["answer"] / server.total < 0.1 + spread
    assert len(episodes) >= count - 5
    assert sum(e.evaluations[-1].unscored is None for e in episodes) >= count - 10
    assert any(t.generation.reasks for e in episodes for t in e.turns if t.generation)


def test_without_retries_a_failed_episode_has_its_reason_and_the_others_continue(tmp_path: Path) -> None:
    with table_server(faults=BAD_DAY, seed=4, retry_after="0.02") as server:
        result, plans = asyncio.run(play(server, tmp_path, 150, retries=0))
        episodes = check_counts(server, tmp_path, result, plans)
    check_scores(episodes)
    failures = read_failures(tmp_path)
    assert 15 < len(failures) < 75
    assert all(f.kind == "PolicyError" and "model 'local/tiny': " in f.message for f in failures)
    messages = " ".join(f.message for f in failures) + " ".join(e.evaluations[-1].unscored or "" for e in episodes)
    for kind in ("rate_limit", "server", "timeout", "connection", "malformed"):
        assert f"({kind}, after 1 attempt" in messages
    assert any(e.evaluations[-1].unscored for e in episodes)
    assert len(episodes) > 75


@pytest.mark.parametrize("kind", [*KINDS, "wrong_language"])
def test_a_permanent_fault_is_named_in_every_record(tmp_path: Path, kind: str) -> None:
    with table_server(faults={kind: 1.0}, retry_after="0.01") as server:
        if kind == "malformed":  # unreadable: the model counts as absent, and the third call ends the run
            with pytest.raises(ModelRefusedError, match="malformed"):
                asyncio.run(play(server, tmp_path, 3, retries=1))
            return
        result, plans = asyncio.run(play(server, tmp_path, 3, retries=1))
        episodes = check_counts(server, tmp_path, result, plans)
    if kind == "wrong_language":
        assert not result.failures
        assert all(t.generation and t.generation.parse_failure for e in episodes for t in e.turns)
        assert all(e.evaluations[-1].unscored and not e.evaluations[-1].scores for e in episodes)
    else:
        assert len(result.failures) == 3
        assert not episodes
