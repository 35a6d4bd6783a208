"""Many people fill one run, at the same time and after interruptions; records and comparisons know who played."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import InUseError, InvalidValueError
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.reports import compare_runs
from sotopia_env.runs import run_episodes
from sotopia_env.runs.participants import Session, in_order_of
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.directory import RunDirectory, read_run
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.world.answers import participant_of
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task

SOTOPIA = [sys.executable, "-m", "sotopia_env.cli.app"]
ROOT = Path(__file__).parents[3]
SCENARIOS = """\
- id: oven-warm
  context: Two people share a kitchen.
  tags: [vignette=oven, tone=warm]
  seats: [{goals: [Use the oven first.]}, {goals: [Use the oven first.]}]
- id: oven-cold
  context: Two people share a kitchen, and have not spoken since Friday.
  tags: [vignette=oven, tone=cold]
  seats: [{goals: [Use the oven first.]}, {goals: [Use the oven first.]}]
"""


def command(folder: Path, participant: str) -> list[str]:
    (folder / "oven.yaml").write_text(SCENARIOS, encoding="utf-8")
    source, out = str(folder / "oven.yaml"), str(folder / "run")
    return [*SOTOPIA, "play", "--tasks", source, "-n", "4", "--participant", participant, "--out", out]


def played(folder: Path) -> Counter[str]:
    return Counter(participant_of(episode.policies[0]) for episode in read_run(folder / "run"))


def play(folder: Path, participant: str, typed: str) -> str:
    done = subprocess.run(
        command(folder, participant), input=typed, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120
    )
    return done.stdout


@contextmanager
def at_the_prompt(folder: Path, participant: str, turn: int) -> Iterator[subprocess.Popen[str]]:
    """A session whose person has to answer at this turn."""
    with subprocess.Popen(
        command(folder, participant), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        wait_for(process, "Turn #1 is yours.")
        if turn > 1:
            write(process, "speak\nGood morning\n")
            wait_for(process, f"Turn #{turn} is yours.")
        yield process


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, "the session has ended"


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_people_play_at_once_and_a_killed_session_continues_from_its_last_turn(tmp_path: Path) -> None:
    with at_the_prompt(tmp_path, "p1", turn=3) as first:
        with at_the_prompt(tmp_path, "p2", turn=1) as second:
            write(second, "leave\n\nleave\nq\n")
            second.wait(timeout=60)
        assert played(tmp_path) == {"p2": 2}
        first.kill()
    again = play(tmp_path, "p1", "leave\n" + "\nleave\n" * 3)
    assert "Turn #1 is yours." not in again.partition("left:")[0]  # it was answered before
    assert played(tmp_path) == {"p1": 4, "p2": 2}
    assert list((tmp_path / "run" / "playing").iterdir()) == []
    assert "left" in play(tmp_path, "p1", "")  # nothing is left to play
    assert played(tmp_path)["p1"] == 4
    assert len(read_manifest(tmp_path / "run").configs) == 2


def test_one_person_does_not_play_an_episode_twice_at_once(tmp_path: Path) -> None:
    with at_the_prompt(tmp_path, "p1", turn=1) as first:
        other = subprocess.run(command(tmp_path, "p1"), input="leave\n", capture_output=True, text=True, cwd=ROOT)
        assert (other.returncode, other.stdout.count("is yours.")) == (2, 0)
        first.kill()


def session(folder: Path, participant: str, partner: str = "partner", tasks: int = 4) -> Session:
    person = HumanPolicy(read=lambda _: "leave", write=lambda _: None, participant=participant)
    all_tasks = [make_task(f"s{number}") for number in range(tasks)]
    plans = [EpisodePlan(task, (person, Speaker(partner))) for task in all_tasks]
    return Session(in_order_of(participant, plans, 0), FixedEvaluator(), folder)


def play_all(folder: Path, participant: str) -> None:
    whole = session(folder, participant)
    for plan in whole.todo():
        asyncio.run(whole.play(plan))
    assert whole.todo() == []


def test_every_participant_has_its_own_order_and_the_same_one_every_time(tmp_path: Path) -> None:
    orders = {name: [plan.task.id for plan in session(tmp_path, name, tasks=6).plans] for name in "abcdef"}
    assert len({tuple(order) for order in orders.values()}) > 1
    assert len({frozenset(order) for order in orders.values()}) == 1
    assert orders["a"] == [plan.task.id for plan in session(tmp_path, "a", tasks=6).plans]


def test_a_session_waits_while_others_write_and_says_so_when_that_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(tmp_path, "p1").todo()
    monkeypatch.setattr("sotopia_env.runs.participants._PATIENCE", 0.3)
    with RunDirectory(tmp_path), pytest.raises(InUseError):
        session(tmp_path, "p2").todo()
    assert len(session(tmp_path, "p2").todo()) == 4


def test_people_are_one_policy_and_participants_a_factor(tmp_path: Path) -> None:
    for participant in ("p1", "p2", "p3"):
        play_all(tmp_path, participant)
    report = compare_runs([tmp_path], metrics=["goal"], by="participant")
    assert set(report.policies) == {"human", "partner"}
    assert report.by is not None
    assert {(mean.policy, mean.level) for mean in report.by.means} == {("human", f"p{i}") for i in (1, 2, 3)}
    assert {item.name for item in report.by.contrasts} == {"p1 - p2", "p1 - p3", "p2 - p3"}
    assert report.by.left_out == 12  # the partner's seats
    cell = report.cell("human", "goal")
    assert cell is not None
    assert (cell.estimate.over, cell.estimate.clusters, cell.estimate.n) == ("participants × scenarios", 3, 12)


def test_a_run_takes_people_and_refuses_other_settings(tmp_path: Path) -> None:
    play_all(tmp_path, "p1")
    with pytest.raises(InvalidValueError):
        session(tmp_path, "p2", tasks=3).todo()
    person = HumanPolicy(read=lambda _: "leave", write=lambda _: None, participant="p3")
    other = [EpisodePlan(make_task(f"s{i}"), (person, Speaker("partner", parameters={"x": 1}))) for i in range(4)]
    with pytest.raises(InvalidValueError):
        Session(other, FixedEvaluator(), tmp_path).todo()
    asyncio.run(
        run_episodes(other, evaluator=FixedEvaluator(), run_dir=tmp_path / "other")
    )  # which is a run like any other


@pytest.mark.parametrize("code", ["a\nb", "x" * 81, "\u202e"])
def test_a_participants_code_is_a_short_line(code: str) -> None:
    with pytest.raises(InvalidValueError):
        HumanPolicy(participant=code)
