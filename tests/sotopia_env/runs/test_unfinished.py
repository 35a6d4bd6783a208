"""A run that is stopped loses no turn that was paid for, and near its limit it finishes what it began."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from sotopia_env.chat_model.spending.ledger import Ledger, Totals, read_ledger
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import BudgetExceededError, DamagedRecordError
from sotopia_env.policies import Decision
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.storage.manifest import UNFINISHED
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world import Observation
from sotopia_env.world.episode import Episode, Evaluation
from tests.errors import raises
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.runs.model_runs import keys_of, start, table_server
from tests.sotopia_env.runs.rollout_doubles import Faulty, Speaker, make_task

EPISODES, TURNS = 40, 10


def command(server: LoopbackServer, run: Path, *more: object) -> list[object]:
    return [
        *("rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", EPISODES, "--max-turns", TURNS),
        *("--evaluator", "none", "--api-base", server.api_base, "--out", run, *more),
    ]


def play(server: LoopbackServer, run: Path, *more: object) -> tuple[int, str]:
    process = start(*command(server, run, *more))
    output, errors = process.communicate(timeout=60)
    return process.returncode, output + errors


def booked(run: Path) -> Totals:
    totals = Totals()
    for entry in read_ledger(run):
        totals.add(entry)
    return totals


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Tokens of the run without an interruption."""
    run = tmp_path_factory.mktemp("whole")
    with table_server() as server:
        assert play(server, run)[0] == 0
    assert booked(run).answered == EPISODES * TURNS
    return booked(run).tokens


def check_resumed(run: Path, whole: int) -> None:
    assert set(keys_of(run).values()) == {1}
    assert len(keys_of(run)) == EPISODES
    assert all(len(episode.turns) == TURNS for episode in read_run(run))
    assert whole <= booked(run).tokens <= 1.02 * whole
    assert not (run / UNFINISHED).exists()


def test_near_its_limit_a_run_finishes_the_started_episodes(tmp_path: Path, whole: int) -> None:
    limit = int(0.75 * whole)
    with table_server() as server:
        code, text = play(server, tmp_path, "--set", f"models.max_tokens={limit}")
        assert code == 1, text
        assert 0.6 * EPISODES <= len(keys_of(tmp_path)) <= 0.75 * EPISODES
        assert booked(tmp_path).tokens <= limit
        code, text = play(server, tmp_path, "--set", f"models.max_tokens={2 * whole}")
        assert code == 0, text
    check_resumed(tmp_path, whole)


def test_stopped_by_a_signal_in_midst_of_all_episodes_none_is_played_again(tmp_path: Path, whole: int) -> None:
    with table_server(latency=0.05) as server:  # all episodes are under way at once
        process = start(*command(server, tmp_path))
        deadline = time.monotonic() + 240
        while server.total < EPISODES * TURNS // 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        assert process.returncode == 130, errors
        assert "unfinished; the same command resumes them" in output
        assert len(keys_of(tmp_path)) < EPISODES / 2
        assert play(server, tmp_path)[0] == 0
    check_resumed(tmp_path, whole)


def test_unfinished_turns_that_contradict_the_rules_are_refused_with_their_place(tmp_path: Path) -> None:
    plans = plan_episodes([make_task()], [(Speaker("a"),)])
    broken = plan_episodes([make_task()], [(Faulty("a", at=3),)])
    asyncio.run(run_episodes(broken, run_dir=tmp_path))
    lines = (tmp_path / UNFINISHED).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    for damaged in (lines[1], lines[0].replace("agent_0", "agent_7")):
        (tmp_path / UNFINISHED).write_text(f"{damaged}\n", encoding="utf-8")
        with raises(DamagedRecordError, file="unfinished.jsonl"):
            asyncio.run(run_episodes(plans, run_dir=tmp_path))


def test_an_unfinished_line_that_was_cut_short_is_removed_with_a_warning(tmp_path: Path) -> None:
    asyncio.run(run_episodes(plan_episodes([make_task()], [(Faulty("a", at=3),)]), run_dir=tmp_path))
    text = (tmp_path / UNFINISHED).read_text(encoding="utf-8")
    (tmp_path / UNFINISHED).write_text(text[:-30], encoding="utf-8")
    result = asyncio.run(run_episodes(plan_episodes([make_task()], [(Speaker("a"),)]), run_dir=tmp_path))
    assert [UNFINISHED in sentence for sentence in result.repaired] == [True]
    assert (result.played, (tmp_path / UNFINISHED).exists()) == (1, False)


def test_an_episode_that_only_lacked_its_verdict_leaves_nothing_unfinished(tmp_path: Path) -> None:
    class Spent(FixedEvaluator):
        async def evaluate(self, episode: Episode) -> Evaluation:
            raise BudgetExceededError("nothing is left")

    plans = plan_episodes([make_task()], [(Speaker("a"),)])
    assert asyncio.run(run_episodes(plans, evaluator=Spent(), run_dir=tmp_path)).unfinished == 1
    assert (tmp_path / UNFINISHED).exists()
    assert asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path)).played == 1
    assert not (tmp_path / UNFINISHED).exists()


def test_episodes_that_wait_for_admission_do_not_hold_up_the_end_of_a_run() -> None:
    stop = Stop(grace=600)

    class Stopping(Speaker):
        async def act(self, observation: Observation, seed: int) -> Decision:
            stop.ask("enough")
            await asyncio.sleep(0.01)
            return await super().act(observation, seed)

    plans = plan_episodes([make_task()], [(Stopping("a"),)], repeats=40)
    run = run_episodes(plans, ledger=Ledger(None, None, 1000), stop=stop)
    result = asyncio.run(asyncio.wait_for(run, 240))
    assert (result.stopped, result.played) == ("enough", 0)
    assert 0 < result.unfinished <= 8


def test_a_failed_episode_continues_from_the_turn_that_failed(tmp_path: Path) -> None:
    turns: list[int] = []

    class Counting(Faulty):
        async def act(self, observation: Observation, seed: int) -> Decision:
            turns.append(observation.turn)
            return await super().act(observation, seed)

    policy = Counting("a", at=3)
    plans = plan_episodes([make_task()], [(policy,)])
    first = asyncio.run(run_episodes(plans, run_dir=tmp_path))
    assert [len(failure.turns) for failure in first.failures] == [2]
    policy.broken[0] = False
    (episode,) = asyncio.run(run_episodes(plans, run_dir=tmp_path)).episodes
    assert turns == [1, 2, 3, 3, 4]
    assert [turn.generation is not None for turn in episode.turns] == [True] * 4
    assert asyncio.run(run_episodes(plans)).episodes[0].turns == episode.turns
