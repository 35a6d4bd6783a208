"""Readers of results: cards, runs of a suite, and any other episodes whose tasks, rules and evaluator are the suite's.

Episodes that are not of the suite are left out, and the card says how many and why.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from sotopia_env.arena.card import CARD_FILE, Card, FailedEpisode, LeftOut, check_same, merged_cards, outstanding
from sotopia_env.arena.rows import CardRow, rows_of
from sotopia_env.arena.suites import SUITE_FILE, Suite
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError, Verbatim
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.records import read_record
from sotopia_env.foundation.waiting import wait
from sotopia_env.naming import EVALUATOR_NAMES, make_evaluator
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.evaluator_names import recorded_evaluator
from sotopia_env.storage.manifest import RUN, read_manifest
from sotopia_env.world import Rules
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.scenario import Task


def card_of_runs(paths: Iterable[Path], suite: Suite | None = None) -> Card:
    """Returns one card of cards, run directories and files of episodes.

    Args:
        paths: cards, or folders with one; run directories; ``.jsonl`` files of episodes, such as exports of the studio.
        suite: the suite; by default that of the first card or run of ``sotopia arena run``.

    Raises:
        InvalidValueError: the paths are of different suites, nothing names the suite, or a path has no episode of it.
        DamagedRecordError: a record cannot be read.
    """
    paths = list(paths)
    if not paths:
        raise InvalidValueError(field="runs", expected="at least one run of a suite, file of episodes, or card")
    common = suite or next(filter(None, map(_suite_of, paths)), None)
    cards = [read_card(path, common) for path in paths]
    if common is not None:
        for card in cards:
            check_same(common, card.suite)
    return merged_cards(cards)


def read_card(path: Path, suite: Suite | None = None) -> Card:
    """Returns the card in a JSON file or in a folder with one, or the card of a run directory or a file of episodes.

    Args:
        path: the path.
        suite: the suite of the episodes; not needed for cards and for runs of ``sotopia arena run``.

    Raises:
        InvalidValueError: ``path`` is none of these, nothing names the suite, or no episode is of the suite.
        DamagedRecordError: a record cannot be read.
    """
    if (file := _card_file(path)) is not None:
        return read_record(Card, read_text(file), file)
    if not _is_run(path) and path.suffix != ".jsonl":
        raise InvalidValueError(expected="a card, a run directory, or a .jsonl file of episodes", where=path)
    suite = _suite_of(path) or suite
    if suite is None:
        raise InvalidValueError(
            field="suite",
            expected="the suite to which the tasks belong",
            hint="name it: `sotopia arena rate --suite NAME`",
            where=path,
        )
    return _Selection(path, suite).card()


def _is_run(path: Path) -> bool:
    return (path / SUITE_FILE).is_file() or (path / RUN).is_file()


def _card_file(path: Path) -> Path | None:
    if path.is_file():
        return None if path.suffix == ".jsonl" else path
    return path / CARD_FILE if (path / CARD_FILE).is_file() and not _is_run(path) else None


def _suite_of(path: Path) -> Suite | None:
    """The suite that a path names itself."""
    if (path / SUITE_FILE).is_file():
        return read_record(Suite, read_text(path / SUITE_FILE), path / SUITE_FILE)
    return read_card(path).suite if _card_file(path) is not None else None


class _Selection:
    """The episodes of a path that are of a suite."""

    def __init__(self, path: Path, suite: Suite) -> None:
        self.path, self.suite = path, suite
        self.is_arena_run = (path / SUITE_FILE).is_file()
        self.hashes = set(suite.hashes)
        # A run of the suite was played by its rules, which may otherwise be in a task file that is not here.
        self.rules = read_manifest(path).config.rules if self.is_arena_run else (suite.rules,)
        # A module that somebody else's suite names is not imported.
        names = set(suite.evaluator.split("+"))
        self.evaluator = make_evaluator(suite.evaluator) if names <= set(EVALUATOR_NAMES) else None

    def card(self) -> Card:
        """Returns the card of the episodes."""
        code, tasks, rows = set[str](), dict[str, Task](), list[CardRow]()
        left_out: Counter[str] = Counter()
        for record in read_run(self.path):
            # The episodes of a task share its reference points and rankings, which the task remembers.
            episode = record.model_copy(update={"task": tasks.setdefault(record.task.content_hash, record.task)})
            if reason := self._obstacle(episode):
                left_out[reason] += 1
                continue
            evaluated = self._evaluated(episode)
            name = self._recorded(evaluated)
            if name is None:
                left_out[f"not evaluated by {self.suite.evaluator!r}, which `sotopia evaluate` adds"] += 1
                continue
            seats = rows_of(evaluated, name, self.suite.metric)
            if not seats:
                left_out["every seat faces several policies at once"] += 1
                continue
            code.add(episode.code_version)
            rows += seats
        if left_out and not rows:
            raise self._nothing(left_out)
        failures, of_others = self._failures({task.id for key, task in tasks.items() if key in self.hashes})
        left_out.update(of_others)
        return Card(
            suite=self.suite,
            code=tuple(sorted(code)),
            rows=tuple(rows),
            failures=outstanding(failures, rows),
            left_out=tuple(LeftOut(source=self.path.name, reason=r, episodes=n) for r, n in left_out.items()),
        )

    def _obstacle(self, episode: Episode) -> str:
        """Why an episode is not one of the suite; empty if it is."""
        if episode.task.content_hash not in self.hashes:
            return "the task is not in the suite"
        if episode.stop is None:
            return "the episode did not end"
        if {info.agent for info in episode.policies} != set(episode.task.agents):
            return "a seat has no recorded policy"
        rules = _effective(episode.rules, episode.task)
        if all(_effective(suite_rules, episode.task) != rules for suite_rules in self.rules):
            return "the rules of play, such as turn order or turn limit, are not the suite's"
        return ""

    def _evaluated(self, episode: Episode) -> Episode:
        """The episode with an evaluation by the suite's evaluator, if that needs no model."""
        if self.evaluator is None or episode.evaluation(self.evaluator.name) is not None:
            return episode
        try:
            return episode.with_evaluation(wait(self.evaluator.evaluate(episode)))
        except EvaluationError as error:
            return episode.with_evaluation(Evaluation(evaluator=self.evaluator.name, unscored=str(error)))

    def _recorded(self, episode: Episode) -> str | None:
        try:
            parameters = {item.evaluator: item.parameters for item in episode.evaluations}
            return recorded_evaluator(self.suite.evaluator, parameters, parameters)
        except UnknownNameError:
            return None

    def _failures(self, tasks: set[str]) -> tuple[list[FailedEpisode], Mapping[str, int]]:
        """The failures in the suite's tasks, and the number of others by reason; in another run, by the tasks' ids."""
        records = read_failures(self.path) if self.path.is_dir() else ()
        failures = [
            FailedEpisode(
                key=item.key,
                policies=item.culprits or item.policies,
                kind=item.kind,
                task=item.task,
                seats=item.policies,
            )
            for item in records
            if self.is_arena_run or item.task in tasks
        ]
        others = len(records) - len(failures)
        return failures, {"the episode failed in a task that is not in the suite": others} if others else {}

    def _nothing(self, left_out: Counter[str]) -> InvalidValueError:
        reasons = "; ".join(f"{count} × {reason}" for reason, count in left_out.most_common())
        return InvalidValueError(
            f"no episode is one of suite {self.suite.name!r} version {self.suite.version}",
            field="episodes",
            expected="its tasks, rules and evaluator",
            got=Verbatim(reasons),
            where=self.path,
        )


def _effective(rules: Rules, task: Task) -> Rules:
    """Rules with the turn limit that holds in the task, and without the first seat, whose effect ratings estimate."""
    return dataclasses.replace(rules, max_turns=rules.turn_limit(task), first_seat=0)
