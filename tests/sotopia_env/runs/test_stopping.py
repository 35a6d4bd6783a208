"""Runs that are brought to an end early: by a signal, by the budget; and go on later."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sotopia_env import naming, tasks
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import Totals, read_ledger
from sotopia_env.concurrency.stopping import Stop, stop_on_signals, woken_by_signals
from sotopia_env.runs import evaluate_run, run_episodes
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import RunResult
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.world.dynamics import Rules
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.runs.model_runs import keys_of, start, table_server


def booked(run: Path) -> Totals:
    totals = Totals()
    for entry in read_ledger(run):
        totals.add(entry)
    return totals


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with table_server(latency=0.1) as running:
        yield running


def command(server: LoopbackServer, run: Path, *more: object) -> list[object]:
    return [
        *("rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", 24, "--max-turns", 4),
        *("--evaluator", "judge:local/tiny", "--api-base", server.api_base, "--out", run, "--concurrency", 8, *more),
    ]


def wait_for(server: LoopbackServer, calls: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while server.total < calls and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_every_call_booked_and_it_can_be_resumed(
    server: LoopbackServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    process = start(*command(server, run))
    wait_for(server, 60, process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == code, errors
    assert "stopping: at most 20 s" in errors
    assert f"stopped by {number.name}; the same command continues the run in {run}" in errors
    assert "Traceback" not in errors
    ledger = booked(run)
    assert (ledger.attempts, ledger.answered, ledger.failed) == (server.total, server.total, 0)
    dropped = re.search(r"(\d+) unfinished", output)
    count = sum(keys_of(run).values())
    assert 0 < count < 24
    assert dropped
    assert 1 <= int(dropped[1]) <= 8
    assert all(episode.evaluations for episode in read_run(run))
    assert read_failures(run) == ()
    assert read_manifest(run).finished is None
    again = start(*command(server, run))
    output, errors = again.communicate(timeout=30)
    assert again.returncode == 0, errors
    assert f"24 episodes planned, {24 - count} played now, {count} before" in output
    assert set(keys_of(run).values()) == {1}
    assert read_manifest(run).finished is not None


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with table_server(latency=3600.0) as server:
        run = tmp_path / "run"
        process = start(*command(server, run))
        wait_for(server, 8, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        process.stderr.readline()
        assert "stopping" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=240)[1]
    assert process.returncode == 130
    assert f"interrupted; the same command continues the run in {run}" in errors
    ledger = booked(run)  # requests that were sent are counted, though their cost is unknown
    assert (ledger.attempts, ledger.failed) == (8, 8)
    assert read_failures(run) == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_tears_nothing_the_loop_is_at(number: signal.Signals) -> None:
    """A callback that it took along would be waited for for ever."""
    notices: list[str] = []

    async def work() -> None:
        signal.raise_signal(number)
        signal.raise_signal(number)
        notices.append("went on")
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt, match=number.name), stop_on_signals(Stop(), notices.append):
        asyncio.run(work())
    assert [text.split(":")[0] for text in notices] == ["stopping", "went on"]


def test_without_a_loop_a_second_signal_stops_where_it_comes() -> None:
    notices: list[str] = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        notices.append("went on")

    with pytest.raises(KeyboardInterrupt), stop_on_signals(Stop(), notices.append):
        work()
    assert len(notices) == 1


async def play(
    server: LoopbackServer, run: Path, options: ModelOptions, stop: Stop | None = None, episodes: int = 12
) -> tuple[RunResult, ModelPool]:
    models = ModelPool(options)
    policy, judge = (
        naming.make_policy("local/tiny", models),
        naming.make_evaluator("judge:local/tiny", model_factory=models.judge),
    )
    plans = plan_episodes(tasks.generate("bargaining", episodes, seed=1), [(policy,)], rules=Rules(max_turns=4))
    models.open(run)
    try:
        result = await run_episodes(
            plans, evaluator=judge, run_dir=run, concurrency=4, progress=False, stop=stop, ledger=models.ledger
        )
    finally:
        await models.close()
    return result, models


def test_unfinished_work_is_cancelled_and_dropped_after_the_grace_period(tmp_path: Path) -> None:
    async def stopped() -> RunResult:
        stop = Stop(grace=0.2)
        playing = asyncio.ensure_future(play(server, tmp_path, ModelOptions(api_base=server.api_base), stop))
        while server.total < 4:  # one of each worker
            await asyncio.sleep(0.01)
        stop.ask("enough")
        return (await playing)[0]

    with table_server(latency=3600.0) as server:
        result = asyncio.run(stopped())
    assert (result.stopped, result.unfinished, result.played, result.failures) == ("enough", 4, 0, ())
    assert booked(tmp_path).failed == 4


@pytest.mark.parametrize("limit", ["max_tokens", "max_cost"])
def test_a_spent_budget_ends_the_run_and_a_higher_one_continues_it(tmp_path: Path, limit: str) -> None:
    def options(value: float) -> ModelOptions:
        return ModelOptions(api_base=server.api_base, **{limit: value}, price={"": PRICE})  # type: ignore[arg-type]

    from sotopia_env.chat_model.spending.budget import Price

    PRICE = Price(1.0, 1.0)  # noqa: N806 - a dollar for a million tokens: cost is tokens / 1e6
    scale = 1e-6 if limit == "max_cost" else 1
    with table_server(latency=0.01) as server:
        first, _ = asyncio.run(play(server, tmp_path, options(30_000 * scale)))
        assert limit in first.stopped
        assert "nothing more is sent" in first.stopped
        assert first.failures == read_failures(tmp_path) == ()
        assert 0 < first.played < 12
        assert 1 <= first.unfinished <= 4
        assert all(episode.evaluations[-1].unscored is None for episode in read_run(tmp_path))
        spent = booked(tmp_path)
        assert 30_000 - 8_000 < spent.tokens <= 30_000  # what a judge might have needed did not fit any more
        assert spent.attempts == spent.answered == server.total
        at_once, _ = asyncio.run(play(server, tmp_path, options(30_000 * scale)))
        assert at_once.stopped
        assert booked(tmp_path).tokens <= 30_000
        result, _ = asyncio.run(play(server, tmp_path, options(1_000_000 * scale)))
        assert (result.stopped, result.played + result.resumed, result.failures) == ("", 12, ())
        assert set(keys_of(tmp_path).values()) == {1}
        assert booked(tmp_path).attempts == server.total


def test_the_command_says_how_to_continue_when_the_budget_is_spent(server: LoopbackServer, tmp_path: Path) -> None:
    process = start(*command(server, tmp_path / "run", "--set", "models.max_tokens=20_000"))
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert re.search(
        r"tokens: \d+ of max_tokens 20000 are used, and the next call may use \d+; nothing more is sent", errors
    )
    assert f"the same command with a higher limit continues the run in {tmp_path / 'run'}" in errors
    assert "agents: " in output


def test_an_evaluation_that_the_budget_stops_keeps_its_verdicts_for_the_next_time(tmp_path: Path) -> None:
    plans = plan_episodes(tasks.generate("bargaining", 10, seed=1), [(naming.make_policy("silent"),)])
    asyncio.run(run_episodes(plans, run_dir=tmp_path))

    async def judge(limit: int) -> object:
        models = ModelPool(ModelOptions(api_base=server.api_base, max_tokens=limit))
        evaluator = naming.make_evaluator("judge:local/tiny", model_factory=models.judge)
        models.open(tmp_path)
        try:
            return await evaluate_run(tmp_path, evaluator, concurrency=2, progress=False, ledger=models.ledger)
        finally:
            await models.close()

    with table_server() as server:
        first = asyncio.run(judge(12_000))
        assert "max_tokens" in first.stopped  # type: ignore[attr-defined]
        before = server.total
        assert 0 < before < 10
        assert not any(episode.evaluations for episode in read_run(tmp_path))
        second = asyncio.run(judge(1_000_000))
        assert server.total == 10  # none is asked for twice
        assert (second.stopped, second.unscored) == ("", 0)  # type: ignore[attr-defined]
    assert all(episode.evaluations[-1].scores for episode in read_run(tmp_path))
    assert json.dumps(dict(read_manifest(tmp_path).models)) == '{"judge": {"local/tiny": {"tiny-2026": 10}}}'


def test_a_signal_that_does_not_interrupt_the_loops_wait_ends_it() -> None:
    """As one does that comes just before the wait begins; here another thread takes it while the loop waits."""

    def raised(*_: object) -> None:
        raise KeyboardInterrupt

    async def wait() -> None:
        with woken_by_signals():
            threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
            await asyncio.sleep(3600)

    before = signal.signal(signal.SIGUSR1, raised)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(wait())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1
