"""Seats of episodes that failed: they have no values, and are counted as missing in every comparison."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.seat_results import SeatResult, with_labels
from sotopia_env.reports.turn_counts import TurnCounts
from sotopia_env.storage.directory import read_failures, read_run
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.episode import Episode


def with_failed_seats(rows: Sequence[SeatResult], paths: Sequence[Path]) -> list[SeatResult]:
    """Returns the rows and those of the episodes that failed in run directories and have not been played since.

    A failed episode is known by its task: its seats are like those of the task's other episodes. A task that nobody
    finished has seats of its own, which are counted as missing and share nothing with others.
    """
    failures = {failure.key: failure for path in paths if path.is_dir() for failure in read_failures(path)}
    for key in {row.key for row in rows}:
        failures.pop(key, None)
    if not failures:
        return list(rows)
    templates: dict[str, dict[int, SeatResult]] = defaultdict(dict)
    variants: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for row in rows:
        templates[row.task].setdefault(row.seat, row)
        variants[row.policies[row.seat][0]].add(row.policies[row.seat])
    for failure in failures.values():
        if failure.task not in templates:
            templates[failure.task] = _unfinished(failure, rows)
    failed = [seat for failure in failures.values() for seat in _seats(failure, templates[failure.task], variants)]
    return with_labels([*rows, *failed])


def finished_episodes(paths: Sequence[Path]) -> Iterator[Episode]:
    """Yields the finished episodes of runs one by one, because a run may not fit into memory.

    Raises:
        InvalidValueError: there are none, but there are episodes that failed.
    """
    empty = True
    for episode in itertools.chain.from_iterable(map(read_run, paths)):
        empty = False
        yield episode
    failures = [(path, failure) for path in paths if path.is_dir() for failure in read_failures(path)]
    if failures and empty:
        path, last = failures[-1]
        raise InvalidValueError(
            f"all {len(failures)} failed",
            field="episodes",
            expected="at least one that was finished",
            got=f"{last.kind}: {last.message}",
            where=path,
            hint="`sotopia show RUN` lists the failures; the command that played the run plays these episodes again",
        )


def _unfinished(failure: FailureRecord, rows: Sequence[SeatResult]) -> dict[int, SeatResult]:
    """Seats of a task of which no episode says what it contains: only its id is known."""
    size = len(failure.policies)
    if not rows:
        return {}
    name = failure.task
    first = replace(rows[0], task=name, scenario=name, vignette=name, casting=name, content=name, seats=size)
    first = replace(first, family=None, levels={}, conditions={})
    return {seat: replace(first, seat=seat, first=seat == 0) for seat in range(size)}


def _seats(
    failure: FailureRecord, seats: dict[int, SeatResult], variants: dict[str, set[tuple[str, str]]]
) -> Iterator[SeatResult]:
    # A failure names its policies without their parameters; a name of several policies gives a label of its own.
    policies = tuple(
        next(iter(variants[name])) if len(variants[name]) == 1 else (name, "{}") for name in failure.policies
    )
    for row in seats.values():
        if row.seats == len(policies):
            yield replace(
                row,
                key=failure.key,
                policies=policies,
                values={},
                unscored=f"failed ({failure.kind})",
                failed=True,
                participant="",
                people=(),
                by_order=False,
                counts=TurnCounts(),
            )
