"""``kill -9`` at random moments of a run with models and a judge: nothing lost, nothing twice, every call booked.

``make soak`` kills 50 times.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from sotopia_env.chat_model.spending.ledger import LEDGER, Totals, read_ledger
from sotopia_env.chat_model.transports.connections import request_id
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import read_manifest
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.runs.model_runs import SCORES, keys_of, start, table_server

EPISODES, TURNS, AT_ONCE = 200, 4, 8


def command(server: LoopbackServer, run: Path) -> list[object]:
    return [
        *("rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", EPISODES, "--max-turns", TURNS),
        *("--evaluator", "judge:local/tiny", "--api-base", server.api_base, "--out", run),
        *("--concurrency", AT_ONCE, "--set", f"models.concurrency={AT_ONCE}"),
    ]


def booked(run: Path) -> Totals:
    """What the ledger holds."""
    totals = Totals()
    for entry in read_ledger(run) if (run / LEDGER).exists() else ():
        totals.add(entry)
    return totals


def quiet(server: LoopbackServer) -> int:
    """The requests that have come, once nothing is under way any more."""
    deadline = time.monotonic() + 240
    while server.at_once and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not server.at_once
    return server.total


def request_ids(run: Path, *outcomes: str) -> set[str]:
    """The ids that the requests of calls with such outcomes went out with, as the ledger has them."""
    entries = list(read_ledger(run)) if (run / LEDGER).exists() else []
    ids = [
        request_id(f"{entry.call}.{n + 1}")
        for entry in entries
        if entry.outcome in outcomes
        for n in range(entry.attempts)
    ]
    assert len(set(ids)) == len(ids)
    return set(ids)


def check_ledger(server: LoopbackServer, run: Path) -> None:
    """Every request that came is in the ledger, and the ledger has no other but those that were cut short."""
    quiet(server)
    arrivals, certain, doubtful = (
        set(server.marks),
        request_ids(run, "answered", "failed"),
        request_ids(run, "interrupted"),
    )
    assert len(arrivals) == len(server.marks) == server.total
    assert certain <= arrivals <= certain | doubtful
    totals = booked(run)
    assert totals.answered == len(certain)
    assert totals.interrupted == totals.attempts - totals.answered == len(doubtful)
    # To the call: the requests that came are those of the calls that ended, and the interrupted ones that got through.
    assert server.total == totals.answered + len(doubtful & arrivals)


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow("kills 50 times"))])
@pytest.mark.timeout(1800)
def test_killed_again_and_again_every_episode_is_there_once_and_the_ledger_is_right_to_the_call(
    tmp_path: Path, kills: int
) -> None:
    generator, run = random.Random(11), tmp_path / "run"
    doubtful, recorded = 0, [0]
    with table_server(latency=0.02) as server:
        for kill in range(kills):
            before = server.total
            process = start(*command(server, run))
            if kill % 5:  # at a moment of the run; every fifth time while it starts or resumes
                calls = before + generator.randint(1, max(50, 1650 // kills))  # counted, since machines differ
                while server.total < calls and process.poll() is None:
                    time.sleep(0.002)
            time.sleep(generator.uniform(0.0, 0.03 if kill % 5 else 0.8))
            process.kill()
            process.communicate()
            assert process.returncode == -9, f"it had ended before it was killed {kill + 1} times"
            check_ledger(server, run)
            assert 0 <= booked(run).interrupted - doubtful <= AT_ONCE
            doubtful = booked(run).interrupted
            recorded.append(sum(keys_of(run).values()) if (run / "run.json").exists() else 0)
        last = start(*command(server, run))
        output = last.communicate()
        assert last.returncode == 0, output
        check_ledger(server, run)
        assert booked(run).interrupted == doubtful > 0  # without a kill there is no doubt
        assert "interrupted (unknown cost)" in output[0]
        check(run, recorded)


def check(run: Path, recorded: list[int]) -> None:
    assert recorded == sorted(recorded)
    assert any(0 < count < EPISODES for count in recorded)
    keys = keys_of(run)
    assert len(keys) == EPISODES
    assert set(keys.values()) == {1}
    assert read_failures(run) == ()
    for episode in read_run(run):
        (verdict,) = episode.evaluations
        assert len(episode.turns) == TURNS
        assert {(s.agent, str(s.dimension)): s.value for s in verdict.scores} == {
            (agent, name): score for agent in episode.task.agents for name, score in SCORES.items()
        }
    ledger = booked(run)
    # What was answered is not asked again, but for an answer that came in the moment between its two lines on disk.
    assert EPISODES * (TURNS + 1) <= ledger.answered <= 1.02 * EPISODES * (TURNS + 1)
    assert ledger.failed == 0
    manifest = read_manifest(run)
    assert manifest.counts is not None
    assert manifest.counts.model_dump() == {"episodes": EPISODES, "failed": 0, "unscored": 0}
    answers = {role: dict(models) for role, models in manifest.models.items()}
    assert sum(answers[role]["local/tiny"]["tiny-2026"] for role in ("agent", "judge")) == ledger.answered
