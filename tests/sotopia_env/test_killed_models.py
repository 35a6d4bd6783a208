"""``kill -9`` at random moments of a run with models and a judge: nothing lost, nothing twice, every call booked.

``make soak`` kills 50 times; the default run as often as fits.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from sotopia_env.chat_model import Totals, read_ledger
from sotopia_env.chat_model.ledger import LEDGER
from sotopia_env.rollout import read_run
from sotopia_env.run_directory import read_failures, read_manifest
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.model_runs import SCORES, keys_of, start, table_server

KILLS = int(os.environ.get("SOTOPIA_KILLS", "15"))
EPISODES, TURNS, AT_ONCE = 200, 4, 8


def command(server: LoopbackServer, run: Path) -> list[object]:
    return [
        *("rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", EPISODES, "--max-turns", TURNS),
        *("--evaluator", "judge:local/tiny", "--api-base", server.api_base, "--out", run),
        *("--concurrency", AT_ONCE, "--model-concurrency", AT_ONCE),
    ]


def booked(run: Path) -> Totals:
    """What the ledger holds."""
    totals = Totals()
    for entry in read_ledger(run) if (run / LEDGER).exists() else ():
        totals.add(entry)
    return totals


def quiet(server: LoopbackServer) -> int:
    """The requests that have come, once nothing is under way any more."""
    deadline = time.monotonic() + 5
    while server.at_once and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not server.at_once
    return server.total


def test_killed_again_and_again_every_episode_is_there_once_and_the_ledger_is_right_to_the_call(tmp_path: Path) -> None:
    generator, run = random.Random(11), tmp_path / "run"
    missing, recorded = [0], [0]
    with table_server(latency=0.02) as server:
        for kill in range(KILLS):
            before = server.total
            process = start(*command(server, run))
            if kill % 5:  # at a moment of the run; every fifth time while it starts or resumes
                while server.total == before and process.poll() is None:
                    time.sleep(0.002)
            time.sleep(generator.uniform(0.0, max(0.2, 5.0 / KILLS) if kill % 5 else 0.8))
            process.kill()
            process.communicate()
            assert process.returncode == -9, f"it had ended before it was killed {kill + 1} times"
            # A call under way at the kill may have been answered without being booked: at most one for each place.
            gap = quiet(server) - booked(run).attempts
            assert 0 <= gap - missing[-1] <= AT_ONCE
            missing.append(gap)
            recorded.append(sum(keys_of(run).values()) if (run / "run.json").exists() else 0)
        last = start(*command(server, run))
        output = last.communicate()
        assert last.returncode == 0, output
        assert quiet(server) - booked(run).attempts == missing[-1]  # not one call more is missing without a kill
        check(run, recorded)
        assert booked(run).answered == server.happened["answer"] - missing[-1]


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
    assert ledger.answered >= EPISODES * (TURNS + 1)
    assert ledger.failed == 0
    manifest = read_manifest(run)
    assert manifest.counts is not None
    assert manifest.counts.model_dump() == {"episodes": EPISODES, "failed": 0, "unscored": 0}
    answered = {role: dict(models) for role, models in manifest.models.items()}
    assert sum(answered[role]["local/tiny"]["tiny-2026"] for role in ("agent", "judge")) == ledger.answered
