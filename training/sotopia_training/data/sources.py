"""Sources of training rows: run directories, with or without a selection, mixed with weights.

A run is the output of ``sotopia rollout``; imported episodes are a ``.jsonl`` file of the same records. A selection is
a JSON Lines file of ``{"episode", "seat", "why"}``, as the filters of SOTOPIA-π write it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, UnknownNameError, Where
from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.foundation.settings import Settings
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import is_unscored
from sotopia_env.world.episode import Episode
from sotopia_training.data.held_out import evaluation_scenarios
from sotopia_training.data.samples import RowMaker, TrainingRow, refuse_evaluation_scenarios, weighted

logger = logging.getLogger(__name__)
_POLICY = "policy:"
Labels = dict[tuple[str, str], dict[int, str]]
"""A teacher's answers by (episode, seat) and turn."""


class SourceSettings(Settings):
    """Episodes to train on.

    Attributes:
        run: a run directory, or a ``.jsonl`` file of episodes.
        selection: JSON Lines of the episodes' seats to take; ``None`` takes every episode. Sources may share one that
            names episodes of all their runs.
        labels: the labels of a stage ``relabel`` (:mod:`sotopia_training.collect.relabelling`): rows are made of the
            turns that it labels, with a teacher's answers instead of the recorded ones. Sources may share one
            that labels episodes of all their runs.
        seats: agent ids (``agent_0``) or policies (``policy:NAME``) whose turns are taken; ``None`` takes all.
        scored: whether to leave out episodes without an evaluation, or whose latest evaluation failed; false for data
            without scores, such as human dialogues.
        min_scores: the minimum of a seat's score by dimension (``{goal: 7}``), in the latest evaluation of its episode;
            seats with a lower score, or without one, are left out.
        weight: the number of times each seat's turns in an episode are taken; a fraction takes all turns of that share
            of the seats.
    """

    run: str
    selection: str | None = None
    labels: str | None = None
    seats: tuple[str, ...] | None = None
    scored: bool = True
    min_scores: dict[str, float] = Field(default_factory=dict)
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)


def source_rows(
    sources: Sequence[SourceSettings], maker: RowMaker, evaluation_tasks: str | None = None
) -> Iterator[TrainingRow]:
    """Yields the rows of all sources, one source after the other.

    Args:
        sources: the sources, at least one.
        maker: cuts the episodes into rows, and counts the turns of all sources.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; rows of its scenarios are refused.

    Raises:
        InvalidValueError: a source cannot be read or gives no row, or a row's scenario is reserved for evaluation.
        UnknownNameError: no episode of a source has a seat of this name.
        DamagedRecordError: a record cannot be read or replayed.
    """
    reserved = evaluation_scenarios(evaluation_tasks)
    shared = {path: _SharedSelection(path, sources) for path in dict.fromkeys(s.selection for s in sources) if path}
    labels = {path: read_labels(path) for path in dict.fromkeys(source.labels for source in sources) if path}
    for number, source in enumerate(sources):
        count = 0
        rows = _rows(source, maker, shared.get(source.selection or ""), labels.get(source.labels or ""))
        for row in weighted(refuse_evaluation_scenarios(rows, reserved) if reserved else rows, source.weight):
            count += 1
            yield row
        if source.labels and all(later.labels != source.labels for later in sources[number + 1 :]):
            _check_used(labels[source.labels], source.labels, sources)
        if not count and source.weight:
            raise InvalidValueError("the run gives no rows", hint=maker.counts.text(), where=source.run)


class _SharedSelection:
    """A selection, and those of its episodes that no source has read yet."""

    def __init__(self, path: str, sources: Sequence[SourceSettings]) -> None:
        self.path, self.pairs = path, read_selection(path)
        self.keys = frozenset(key for key, _ in self.pairs)
        self._missing = set(self.keys)
        self._runs = [source.run for source in sources if source.selection == path]
        self._unread = len(self._runs)

    def note(self, keys: Iterable[str]) -> None:
        """Notes the keys of a source's episodes; after the last source, raises if the selection names others."""
        self._missing.difference_update(keys)
        self._unread -= 1
        if self._missing and not self._unread:
            runs = ", ".join(self._runs)
            raise InvalidValueError(field="episode", expected=f"one of {runs}", got=min(self._missing), where=self.path)


def _rows(
    source: SourceSettings, maker: RowMaker, selection: _SharedSelection | None, labels: Labels | None
) -> Iterator[TrainingRow]:
    for episode, seat in source_seats(source, selection):
        if labels is None:
            yield from maker.rows(episode, seat)
        elif answers := labels.pop((episode.key, seat), None):
            yield from maker.rows(episode, seat, labels=answers)


def _check_used(labels: Labels, path: str, sources: Sequence[SourceSettings]) -> None:
    """Refuses labels that are left over: a file of another run would leave out turns silently."""
    if labels:
        runs = ", ".join(source.run for source in sources if source.labels == path)
        raise InvalidValueError(
            field="episode", expected=f"one of {runs} in the selected seats", got=min(labels)[0], where=path
        )


def source_seats(source: SourceSettings, selection: _SharedSelection | None = None) -> Iterator[tuple[Episode, str]]:
    """Yields the episodes of a source with each seat that is taken of them.

    Raises:
        InvalidValueError: the run has no episodes, or none with a score.
        UnknownNameError: no episode has a seat of this name.
    """
    for episode in _episodes(source, selection):
        for seat in seats_of(episode, source.seats):
            is_selected = selection is None or (episode.key, seat) in selection.pairs
            if is_selected and _has_scores(episode, seat, source.min_scores):
                yield episode, seat


def _has_scores(episode: Episode, seat: str, minima: Mapping[str, float]) -> bool:
    latest = episode.evaluation()
    scores = {str(s.dimension): s.value for s in latest.scores if s.agent == seat} if latest is not None else {}
    return all(dimension in scores and scores[dimension] >= low for dimension, low in minima.items())


def _episodes(source: SourceSettings, selection: _SharedSelection | None) -> Iterator[Episode]:
    """Yields the episodes of a source; after the last one, raises for names and episodes that it does not contain."""
    total, unscored = 0, 0
    seats: set[str] = set()
    dimensions: set[str] = set()
    keys: set[str] = set()
    for episode in read_run(source.run):
        total += 1
        keys.add(episode.key)
        latest = episode.evaluation()
        if latest is not None:
            dimensions.update(str(score.dimension) for score in latest.scores)
        seats.update(episode.task.agents, (f"{_POLICY}{info.name}" for info in episode.policies))
        if source.scored and (latest is None or is_unscored(episode)):
            unscored += 1
        elif selection is None or episode.key in selection.keys:
            yield episode
    if not total:
        raise InvalidValueError("the run has no episodes", where=source.run)
    if unscored == total:
        raise InvalidValueError(
            f"all {total} episodes are unscored", hint="rate the run first, or set scored: false", where=source.run
        )
    if unscored:
        logger.warning("%s: %d of %d episodes are unscored and left out", source.run, unscored, total)
    if selection is not None:
        selection.note(keys)
    for name in source.seats or ():
        # Seats differ between tasks: only a name that occurs in no episode is a mistake.
        if name not in seats:
            raise UnknownNameError(field="seats", got=name, valid=sorted(seats), where=source.run)
    for name in source.min_scores:
        if name not in dimensions:
            raise UnknownNameError(field="min_scores", got=name, valid=sorted(dimensions), where=source.run)


def seats_of(episode: Episode, seats: Iterable[str] | None) -> list[str]:
    """Returns the seats of an episode that ``seats`` names by agent id or ``policy:NAME``; all seats for ``None``."""
    if seats is None:
        return list(episode.task.agents)
    names = set(seats)
    policies = {info.agent: f"{_POLICY}{info.name}" for info in episode.policies}
    return [agent for agent in episode.task.agents if agent in names or policies.get(agent) in names]


def read_selection(path: str | Path) -> frozenset[tuple[str, str]]:
    """Returns the (episode, seat) pairs of a selection.

    Raises:
        InvalidValueError: the file does not exist, or is empty.
        DamagedRecordError: a line is not a pair; names the line.
    """
    if not Path(path).is_file():
        raise InvalidValueError(expected="a selection (JSON Lines with episode and seat)", where=path)
    pairs = frozenset(_pair(where, line) for where, line in read_lines(Path(path)))
    if not pairs:
        raise InvalidValueError("selects no episode", where=path)
    return pairs


def _pair(where: Where, line: str) -> tuple[str, str]:
    try:
        item = decode_json(line)
        return str(item["episode"]), str(item["seat"])
    except (ValueError, KeyError, TypeError):
        raise DamagedRecordError(expected="an object with episode and seat", where=where) from None


class Label(Record):
    """A teacher's answer in a state of a recorded episode.

    Attributes:
        episode: the key of the episode.
        seat: the agent id of the seat.
        turn: the index of the turn before which the state is.
        completion: the answer: the teacher's action as JSON.
    """

    episode: str
    seat: str
    turn: int
    completion: str


def read_labels(path: str | Path) -> Labels:
    """Returns the answers of a file of :class:`Label`, by (episode, seat) and turn.

    Raises:
        InvalidValueError: the file does not exist, or is empty.
        DamagedRecordError: a line is not a label; names the line.
    """
    if not Path(path).is_file():
        raise InvalidValueError(expected="the labels.jsonl of a stage 'relabel'", where=path)
    labels: Labels = {}
    for where, line in read_lines(Path(path)):
        label = read_record(Label, line, where)
        labels.setdefault((label.episode, label.seat), {})[label.turn] = label.completion
    if not labels:
        raise InvalidValueError("labels no turn", where=path)
    return labels
