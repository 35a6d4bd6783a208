"""Merging what several processes wrote: once, wherever the merging is cut short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sotopia_env.chat_model import Ledger, LedgerEntry, read_ledger
from sotopia_env.chat_model.spending.ledger import LEDGER
from sotopia_env.errors import InvalidValueError
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan, plan_episodes
from sotopia_env.runs.rollout import open_run
from sotopia_env.runs.shards import SHARDS, merge_shards, shard_path
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import RunDirectory, read_failures
from tests.sotopia_env.runs.rollout_doubles import Faulty, Speaker, make_task


def plans() -> list[EpisodePlan]:
    found = plan_episodes([make_task(f"s{i}") for i in range(6)], [(Speaker("a"),)])
    return [*found, EpisodePlan(make_task("broken"), (Faulty("f"), Speaker("a")))]


def write_ledger(path: Path, count: int) -> None:
    with Ledger(path) as ledger:
        for _ in range(count):
            ledger.record(LedgerEntry(role="agent", spec="local/a", model="a", prompt_tokens=10))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of which two shards hold all: two episodes stand in both."""
    with open_run(plans(), None, tmp_path):
        pass
    write_ledger(tmp_path, 1)
    for number, part in enumerate((plans()[:4], plans()[2:])):
        run_episodes(part, run_dir=shard_path(tmp_path, number))
        write_ledger(shard_path(tmp_path, number), 3 + number)
    return tmp_path


def check(run: Path) -> None:
    assert not (run / SHARDS).exists()
    keys = [episode.key for episode in read_run(run)]
    assert sorted(keys) == sorted(plan.key for plan in plans()[:6])
    assert [failure.task for failure in read_failures(run)] == ["broken/0"]
    assert len(list(read_ledger(run))) == 1 + 3 + 4


def merge(run: Path) -> int:
    with open_run(plans(), None, run) as directory:
        return len(directory.done)


def test_every_episode_failure_and_call_is_taken_once(run: Path) -> None:
    assert merge(run) == 6
    check(run)
    assert merge(run) == 6
    check(run)


class CutShortError(Exception):
    """The process died here."""


POINTS = ["append", "ledger", "unlink", "rmtree"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("at", [1, 2])
def test_merging_that_is_cut_short_anywhere_is_finished_the_next_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, point: str, at: int
) -> None:
    seen = [0]

    def dying(real):  # type: ignore[no-untyped-def]
        def wrapper(*arguments, **more):  # type: ignore[no-untyped-def]
            seen[0] += 1
            if seen[0] == at:
                raise CutShortError
            return real(*arguments, **more)

        return wrapper

    owner, name = {
        "append": (RunDirectory, "append"),
        "ledger": (__import__("os"), "fsync"),
        "unlink": (Path, "unlink"),
        "rmtree": (shutil, "rmtree"),
    }[point]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name)))
        with pytest.raises(CutShortError):
            merge(run)
    assert merge(run) == 6
    check(run)


def test_torn_lines_of_a_killed_process_are_cut_off(run: Path) -> None:
    for file in ("episodes.jsonl", LEDGER):
        with (shard_path(run, 1) / file).open("ab") as stream:
            stream.write(b'{"half')
    assert merge(run) == 6
    check(run)


def test_a_shard_without_anything_yet_and_one_that_is_being_written(run: Path) -> None:
    shard_path(run, 7).mkdir()
    with RunDirectory(shard_path(run, 1)), pytest.raises(InvalidValueError, match="another process is writing"):
        merge(run)
    assert merge(run) == 6
    check(run)


def test_a_note_that_is_none_is_refused(run: Path) -> None:
    (run / SHARDS / "merging.json").write_text(json.dumps({"size": 3}))
    with pytest.raises(InvalidValueError, match="expected the note of a merging"):
        merge(run)


def test_a_run_without_shards_is_left_alone(tmp_path: Path) -> None:
    with open_run(plans(), None, tmp_path) as directory:
        assert merge_shards(directory) == (0, ())
