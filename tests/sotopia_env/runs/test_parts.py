"""Parts of a run: each plays its share, and merging takes everything once, wherever it is cut short."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.spending.ledger import LEDGER, Ledger, LedgerEntry, read_ledger
from sotopia_env.cli.app import app
from sotopia_env.foundation.errors import BudgetExceededError, DamagedRecordError, InUseError, InvalidValueError
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.parts import PARTS, MergeResult, Part, merge_run
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import RunDirectory, read_failures, read_unfinished
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.world.episode import to_line
from tests.errors import raises
from tests.sotopia_env.runs.model_runs import keys_of, start, table_server
from tests.sotopia_env.runs.rollout_doubles import Faulty, Speaker, make_task

ONE, TWO = Part(1, 2), Part(2, 2)


def plans() -> list[EpisodePlan]:
    episode_plans = plan_episodes([make_task(f"s{i}") for i in range(6)], [(Speaker("a"),)])
    return [*episode_plans, EpisodePlan(make_task("broken"), (Faulty("f"), Speaker("a")))]


def keys(run: Path) -> list[str]:
    return [episode.key for episode in read_run(run)]


def write_ledger(path: Path, count: int) -> None:
    with Ledger(path) as ledger:
        for _ in range(count):
            ledger.record(LedgerEntry(role="agent", spec="local/a", model="a", prompt_tokens=10))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose two parts have been played."""
    write_ledger(tmp_path, 1)
    for number, part in enumerate((ONE, TWO)):
        asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=part))
        write_ledger(part.path(tmp_path), 3 + number)
    return tmp_path


def merge(run: Path) -> int:
    return merge_run(run).recorded


def check(run: Path) -> None:
    assert not (run / PARTS).exists()
    assert sorted(keys(run)) == sorted(plan.key for plan in plans()[:6])
    assert [failure.task for failure in read_failures(run)] == ["broken/0"]
    assert len(list(read_ledger(run))) == 1 + 3 + 4


def test_every_episode_failure_and_call_is_taken_once(run: Path) -> None:
    assert merge(run) == 6
    check(run)
    assert merge(run) == 6
    check(run)


class CutShortError(Exception):
    """The process died here."""


POINTS = {
    "append": (RunDirectory, "append"),
    "ledger": (os, "fsync"),
    "unlink": (Path, "unlink"),
    "rmtree": (shutil, "rmtree"),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("at", [1, 2])
def test_merging_that_is_cut_short_anywhere_is_finished_the_next_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, point: str, at: int
) -> None:
    calls = [0]

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == at:
                raise CutShortError
            return real(*arguments, **more)

        return wrapper

    owner, name = POINTS[point]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name)))
        with pytest.raises(CutShortError):
            merge(run)
    assert merge(run) == 6
    check(run)


def test_torn_lines_of_a_killed_process_are_cut_off(run: Path) -> None:
    for file in ("episodes.jsonl", LEDGER):
        with (TWO.path(run) / file).open("ab") as stream:
            stream.write(b'{"half')
    assert merge(run) == 6
    check(run)


def test_a_part_without_anything_yet_and_one_that_is_being_played(run: Path) -> None:
    (run / PARTS / "killed").mkdir()
    with RunDirectory(TWO.path(run)), raises(InUseError, file="2-of-2"):
        merge(run)
    assert keys(ONE.path(run))  # nothing was taken
    assert merge(run) == 6
    check(run)


def test_an_invalid_note_is_refused(run: Path) -> None:
    (run / PARTS / "merging.json").write_text(json.dumps({"size": 3}))
    with raises(InvalidValueError, file="merging.json"):
        merge(run)


def test_the_same_command_without_a_part_merges_and_continues(tmp_path: Path) -> None:
    asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=TWO))
    result = asyncio.run(run_episodes(plans(), run_dir=tmp_path))
    assert (result.planned, result.resumed, result.played) == (7, 3, 3)
    assert sorted(keys(tmp_path)) == sorted(plan.key for plan in plans()[:6])
    assert not (tmp_path / PARTS).exists()


def test_parts_share_the_plan_and_each_is_resumed_by_itself(tmp_path: Path) -> None:
    parts = [Part(number, 3) for number in (1, 2, 3)]
    planned = [asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=part)).planned for part in parts]
    assert planned == [3, 2, 2]
    again = asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=parts[0]))
    assert (again.resumed, again.played, len(again.failures)) == (2, 0, 1)
    all_keys = [key for part in parts for key in keys(part.path(tmp_path))]
    assert sorted(all_keys) == sorted(plan.key for plan in plans()[:6])
    assert read_manifest(parts[1].path(tmp_path)).part == "2/3"


def test_missing_episodes_are_reported_and_the_part_continues_after_the_merge(tmp_path: Path) -> None:
    asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=TWO))
    assert merge_run(tmp_path) == MergeResult(planned=7, recorded=3, new=3, failed=0, absent=("1/2",))
    assert merge_run(tmp_path).missing == 4
    assert read_manifest(tmp_path).finished is None
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=TWO)).played == 0  # the run has them
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, part=ONE)).played == 3
    result = merge_run(tmp_path)
    assert (result.recorded, result.new, result.failed, result.missing) == (6, 3, 1, 0)
    manifest = read_manifest(tmp_path)
    assert (manifest.part, manifest.finished is not None) == (None, True)
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path)).resumed == 6
    assert merge_run(tmp_path).recorded == 6


def test_started_episodes_continue_from_their_last_turn_in_a_part_and_after_the_merge(tmp_path: Path) -> None:
    policy = Faulty("f", at=3)
    plan, part = [EpisodePlan(make_task("s"), (policy, policy))], Part(1, 1)
    for _ in range(2):
        assert len(asyncio.run(run_episodes(plan, run_dir=tmp_path, part=part)).failures) == 1
        assert len(read_unfinished(part.path(tmp_path))) == 2
        merge_run(tmp_path)
        assert len(read_unfinished(tmp_path)) == 2
    policy.broken[0] = False
    assert asyncio.run(run_episodes(plan, run_dir=tmp_path)).played == 1
    assert read_unfinished(tmp_path) == ()


def test_parts_of_another_run_or_another_division_are_refused(run: Path) -> None:
    with raises(InvalidValueError, field="part", got="3/3"):
        asyncio.run(run_episodes(plans(), run_dir=run, part=Part(3, 3)))
    TWO.path(run).rename(run / "elsewhere")
    other = plan_episodes([make_task("x")], [(Speaker("b"),)])
    asyncio.run(run_episodes(other, run_dir=run, part=TWO))
    with raises(InvalidValueError, field="tasks"):
        merge(run)
    shutil.rmtree(TWO.path(run))
    (run / "elsewhere").rename(TWO.path(run))
    assert merge(run) == 6
    with raises(InvalidValueError, field="tasks"):
        asyncio.run(run_episodes(other, run_dir=run, part=TWO))


def test_an_episode_that_two_processes_played_otherwise_is_refused_and_nothing_is_lost(run: Path) -> None:
    copy = next(iter(read_run(ONE.path(run))))
    turn = copy.turns[0]
    other = replace(turn.turn, action=replace(turn.turn.action, argument="something else"))
    changed = copy.model_copy(update={"turns": (turn.model_copy(update={"turn": other}), *copy.turns[1:])})
    with RunDirectory(TWO.path(run)) as directory:
        directory.append(changed)
    with raises(InvalidValueError, record=f'episode "{copy.key}"'):
        merge(run)
    file = TWO.path(run) / "episodes.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert merge(run) == 6
    check(run)


def test_episodes_that_were_not_planned_are_found(tmp_path: Path) -> None:
    whole = plan_episodes([make_task(f"s{i}") for i in range(4)], [(Speaker("a"),)])
    asyncio.run(run_episodes(whole, run_dir=tmp_path, part=ONE))
    asyncio.run(run_episodes(whole, run_dir=tmp_path, part=TWO))
    foreign = asyncio.run(run_episodes(plan_episodes([make_task("x")], [(Speaker("a"),)]))).episodes[0]
    file = TWO.path(tmp_path) / "episodes.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0] + to_line(foreign).encode())
    with raises(DamagedRecordError, field="plan_hash", file="run.json"):
        merge(tmp_path)


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/2/3", "1.0/2"])
def test_a_text_that_is_not_a_part_is_refused(text: str) -> None:
    with raises(InvalidValueError, field="part", got=text):
        Part.parse(text)


def test_limits_are_divided_and_what_is_left_too(tmp_path: Path) -> None:
    options = ModelOptions(concurrency=10, rpm=7, tpm=100, max_tokens=1000)
    share = Part(2, 3).limits(options, tmp_path)
    assert (share.concurrency, share.rpm, share.tpm, share.max_tokens) == (3, 2, 33, 333)
    with Ledger(tmp_path) as ledger:
        ledger.record(LedgerEntry(role="agent", spec="local/a", model="a", prompt_tokens=390, completion_tokens=10))
    assert Part(2, 3).limits(options, tmp_path).max_tokens == 200
    with pytest.raises(BudgetExceededError):
        Part(2, 3).limits(options.model_copy(update={"max_tokens": 400}), tmp_path)


def test_a_folder_without_a_run_or_parts_is_refused(tmp_path: Path) -> None:
    with raises(InvalidValueError, file=tmp_path.name):
        merge_run(tmp_path)


# --- the command --------------------------------------------------------------------------------------------------


def sotopia(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_parts_by_the_command_line_are_the_run_of_one_process(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = ["rollout", "--policy", "random", "--tasks", "bargaining", "-n", 10]
    sotopia(*command, "--out", whole)
    for number in (1, 3):
        sotopia(*command, "--out", parts, "--part", f"{number}/3")
    assert "2/3" in sotopia("merge", parts, code=1)
    sotopia(*command, "--out", parts, "--part", "2/3")
    sotopia("merge", parts)
    one, other = ({e.key: e.model_copy(update={"duration": 0.0}) for e in read_run(run)} for run in (whole, parts))
    assert one == other
    assert "0 played now, 10 before" in sotopia(*command, "--out", parts)


def test_a_killed_part_continues_and_budgets_are_divided(tmp_path: Path) -> None:
    def finished(*arguments: object) -> int:
        process = start(*arguments)
        process.communicate(timeout=60)
        return process.returncode

    with table_server(latency=0.05) as server:
        rollout = ["rollout", "--policy", "local/tiny", "--tasks", "bargaining", "-n", 20, "--max-turns", 4]
        rollout += ["--evaluator", "none", "--api-base", server.api_base, "--set", "models.concurrency=8"]
        rollout += ["--out", tmp_path]
        process = start(*rollout, "--part", "1/2")
        deadline = time.monotonic() + 240
        while server.total < 15 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        assert finished(*rollout, "--part", "1/2") == 0
        assert server.most_at_once <= 4
        assert finished(*rollout, "--part", "2/2", "--set", "models.max_tokens=20000") == 1
        spent = sum(entry.prompt_tokens + entry.completion_tokens for entry in read_ledger(TWO.path(tmp_path)))
        assert 5_000 < spent <= 10_000
        assert 0 < merge_run(tmp_path).missing <= 10
        assert finished(*rollout) == 0
    assert sorted(keys_of(tmp_path).values()) == [1] * 20
    answered = sum(entry.outcome == "answered" for entry in read_ledger(tmp_path))
    assert 80 <= answered <= 80 + 4  # a turn that was answered and not written when the process died is asked again
