"""Selection of episodes to train on: the two filters of SOTOPIA-π (arXiv 2403.08715, appendix B.2).

Both rank the episodes of one *social task* by a score, separately for each seat. A social task is one scenario with its
goals, with any characters (:func:`sotopia_env.tasks.open_scenario.task_key`): ten pairs of characters give ten ranks.

* **Behaviour cloning** (:class:`~sotopia_training.collect.selection.BCFilter`) selects the best two of every task and
seat. At
  each further rank it compares every seat's score with the smaller of the seat's mean in this task and its mean over
  all tasks. If all seats are above these thresholds, all are selected, otherwise none, which keeps the data balanced
  between the seats.
* **Self-reinforcement** (:class:`~sotopia_training.collect.selection.SRFilter`) selects the best fifth of every task
and seat.

Equal scores are ranked by the mean of the seven dimensions if all are scored (the predecessors' rule), then by the
episode's key, so that the order of completion has no effect. A score is above a threshold only if it is greater. A seat
without a score is left out and counted, and is not part of a mean: a failed evaluation is not 0.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.settings import Settings
from sotopia_env.reports.seat_results import OVERALL, choose_evaluator
from sotopia_env.storage import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.storage.recordings import Recording, recordings
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.world import DIMENSIONS
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import dimension
from sotopia_training.collect.selection import (
    AnyFilter,
    BCFilter,
    FilterChoice,
    FilterReport,
    FilterResult,
    SeatReport,
    SelectedSeat,
    Why,
)
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
SELECTION, REPORT, TABLE = "selection.jsonl", "report.json", "report.txt"


@dataclass(frozen=True, slots=True)
class _RankedSeat:
    """A seat of an episode with its score; sorts best first."""

    score: float
    overall: float
    episode: str

    @property
    def rank_key(self) -> tuple[float, float, str]:
        return (-self.score, -self.overall, self.episode)


@dataclass(slots=True)
class _SeatScores:
    """The scores of one seat of one task."""

    task: str
    ranked: list[_RankedSeat] = field(default_factory=list)
    unscored: int = 0

    @property
    def mean(self) -> float | None:
        return fmean(item.score for item in self.ranked) if self.ranked else None


@dataclass(frozen=True, slots=True)
class FilterInput:
    """One seat of one episode with its scores.

    Attributes:
        group: the key of the task or scenario; see ``group`` of the filter's settings.
        task: the id of the task or scenario.
        seat: the agent's id.
        scores: by evaluator, the pair (score on the dimension, overall score), or the reason for its absence.
    """

    group: str
    task: str
    seat: str
    scores: Mapping[str, tuple[float, float] | str]


def select(episodes: Iterable[Episode], settings: AnyFilter, preferred: Iterable[str] = ()) -> FilterResult:
    """Returns the filter's selection of the episodes, which are read once and not held in memory.

    Args:
        episodes: the episodes of one or several runs; two records of an episode count once.
        settings: the settings of the filter.
        preferred: the evaluators to prefer if all episodes share several, such as those of the runs.

    Raises:
        InvalidValueError: ``episodes`` is empty, contains two plays of one episode or has no score, or several
            evaluators are possible.
        UnknownNameError: no episode has an evaluation by this evaluator, a score on this dimension, or one of these
            policies.
    """
    counts: Counter[str] = Counter()
    members: set[str] = set()
    parameters: dict[str, Mapping[str, Any]] = {}
    reader = _FilterReader(settings)
    for record in recordings(episodes, one_play=True):
        counts.update(record.evaluators)
        members.update(name for evaluation in record.episode.evaluations for name in evaluation.members)
        parameters.update({e.evaluator: e.parameters for e in record.episode.evaluations})
        reader.read(record)
    inputs = reader.inputs
    if not inputs:
        raise InvalidValueError(field="filter", expected="at least one episode")
    reader.check_names()
    # A single evaluator needs no choice: episodes without its evaluation are unscored.
    name = next(iter(counts)) if settings.evaluator is None and len(counts) == 1 else settings.evaluator
    evaluator = choose_evaluator(counts, len(inputs), name, preferred, "filter.evaluator", members, parameters)
    if evaluator is None:
        raise InvalidValueError(
            f"none of {len(inputs)} episodes has been evaluated", field="filter", hint="evaluate the run first"
        )
    return _Selector(settings, evaluator, inputs, reader.not_focal).selection()


@dataclass
class _FilterReader:
    """Reads episodes, and collects the names of policies and dimensions."""

    settings: AnyFilter
    policies: set[str] = field(default_factory=set)
    custom: set[str] = field(default_factory=set)
    not_focal: int = 0
    inputs: dict[str, list[FilterInput]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dimension = _dimension(self.settings.dimension)

    def read(self, record: Recording) -> None:
        """Adds the seats of an episode, or further scores of the same seats."""
        episode, items = record.episode, self._items(record.episode)
        if record.first:
            self.inputs[episode.key] = items
            self.not_focal += len(episode.task.agents) - len(items)
            return
        # The earlier record wins where both have a score by the same evaluator.
        pairs = zip(self.inputs[episode.key], items, strict=True)
        self.inputs[episode.key] = [replace(new, scores={**new.scores, **old.scores}) for old, new in pairs]

    def _items(self, episode: Episode) -> list[FilterInput]:
        group = task_key(episode.task) if self.settings.group == "scenario" else episode.task.content_hash
        names = {info.agent: info.name for info in episode.policies}
        self.policies |= set(names.values())
        self.custom |= {custom.name for evaluation in episode.evaluations for custom in evaluation.dimensions}
        task = episode.task.scenario.id if self.settings.group == "scenario" else episode.task.id
        inputs = []
        for seat in episode.task.agents:
            if not self.settings.policies or names.get(seat) in self.settings.policies:
                scores = {e.evaluator: _score(e, seat, self.dimension) for e in episode.evaluations}
                inputs.append(FilterInput(group, task, seat, scores))
        return inputs

    def check_names(self) -> None:
        for name in self.settings.policies:
            if name not in self.policies:
                raise UnknownNameError(field="filter.policies", got=name, valid=sorted(self.policies))
        dimensions = [OVERALL, *(d.value for d in DIMENSIONS), *sorted(self.custom)]
        if self.dimension not in dimensions:
            raise UnknownNameError(field="filter.dimension", got=self.dimension, valid=dimensions)


def _dimension(name: str) -> str:
    try:
        return dimension(name).value
    except UnknownNameError:
        # ``overall``, or a custom dimension, which is checked after all episodes were read.
        return name


def _score(evaluation: Evaluation, seat: str, axis: str) -> tuple[float, float] | str:
    if evaluation.unscored is not None:
        return evaluation.unscored
    scores = evaluation.by_agent.get(seat, {})
    seven = [scores[d].value for d in DIMENSIONS if d in scores]
    # -inf: without all seven dimensions, an episode ranks after equal scores that have them.
    overall = math.fsum(seven) / len(DIMENSIONS) if len(seven) == len(DIMENSIONS) else -math.inf
    if axis == OVERALL:
        return (overall, overall) if math.isfinite(overall) else f"{evaluation.evaluator}: not all seven dimensions"
    value = next((score.value for name, score in scores.items() if str(name) == axis), None)
    return f"{evaluation.evaluator}: no score for {seat} on {axis}" if value is None else (value, overall)


@dataclass
class _Selector:
    """Ranks the seats, and selects by the filter's rules."""

    settings: AnyFilter
    evaluator: str
    inputs: Mapping[str, Sequence[FilterInput]]
    not_focal: int

    def selection(self) -> FilterResult:
        """Returns the selection with its report."""
        self._rank()
        selected_seats: list[SelectedSeat] = []
        lines: list[SeatReport] = []
        for group in sorted(self.groups, key=lambda key: (self._label(key), key)):
            seats = self.groups[group]
            selected = self._select(seats)
            selected_seats += [
                SelectedSeat(item.episode, seat, why) for seat, items in selected.items() for item, why in items
            ]
            lines += [self._line(group, seat, selected[seat]) for seat in sorted(seats)]
        report = FilterReport(
            filter=self.settings,
            evaluator=self.evaluator,
            episodes=len(self.inputs),
            unscored_episodes=self.unscored,
            reasons=dict(self.reasons.most_common()),
            not_focal=self.not_focal,
            global_means=self.global_means,
            kept_episodes=len({item.episode for item in selected_seats}),
            kept_seats=len(selected_seats),
            seats=tuple(lines),
        )
        return FilterResult(tuple(sorted(selected_seats)), report)

    def _rank(self) -> None:
        self.groups: dict[str, dict[str, _SeatScores]] = defaultdict(dict)
        self.reasons: Counter[str] = Counter()
        self.unscored = 0
        for key, items in self.inputs.items():
            # A list, not any(): every seat must be added, also after the first one with a score.
            self.unscored += bool(items) and True not in [self._note(key, item) for item in items]
        # Means are over ranked seats of all tasks, so a task with more episodes has more weight.
        by_seat: dict[str, list[float]] = defaultdict(list)
        for seats in self.groups.values():
            for seat, seat_scores in seats.items():
                seat_scores.ranked.sort(key=lambda item: item.rank_key)
                by_seat[seat] += [item.score for item in seat_scores.ranked]
        self.global_means = {seat: fmean(scores) for seat, scores in sorted(by_seat.items()) if scores}
        if not self.global_means:
            first = "".join(f"; {count} × {reason}" for reason, count in self.reasons.most_common(1))
            raise InvalidValueError(
                f"no seat of {len(self.inputs)} episodes has a score on {self.settings.dimension!r} by "
                f"{self.evaluator!r}{first}",
                field="filter",
            )

    def _note(self, key: str, item: FilterInput) -> bool:
        """Adds a seat to its task, and returns whether it has a score."""
        seat_scores = self.groups[item.group].setdefault(item.seat, _SeatScores(item.task))
        # Tasks of one scenario may have different ids; the smallest is independent of the order of the episodes.
        seat_scores.task = min(seat_scores.task, item.task)
        score = item.scores.get(self.evaluator, f"not evaluated by {self.evaluator}")
        if isinstance(score, str):
            self.reasons[score] += 1
            seat_scores.unscored += 1
            return False
        seat_scores.ranked.append(_RankedSeat(score[0], score[1], key))
        return True

    def _label(self, group: str) -> str:
        return min(seat_scores.task for seat_scores in self.groups[group].values())

    def _select(self, seats: Mapping[str, _SeatScores]) -> dict[str, list[tuple[_RankedSeat, Why]]]:
        why: Why = "top" if isinstance(self.settings, BCFilter) else "share"
        selected: dict[str, list[tuple[_RankedSeat, Why]]] = {
            seat: [(item, why) for item in self._best(seat_scores) if self._enough(item)]
            for seat, seat_scores in seats.items()
        }
        if isinstance(self.settings, BCFilter):
            for at_rank in self._ranks_passed(seats, self.settings.top):
                for seat, item in at_rank.items():
                    selected[seat].append((item, "rank"))
        return selected

    def _ranks_passed(self, seats: Mapping[str, _SeatScores], top: int) -> Iterator[dict[str, _RankedSeat]]:
        """Yields the ranks after ``top`` at which every seat is above its threshold."""
        thresholds = {seat: self._threshold(seat, seat_scores) for seat, seat_scores in seats.items()}
        # Only ranks that every seat reaches; a seat without any score reaches none.
        for rank in range(top, min(len(seat_scores.ranked) for seat_scores in seats.values())):
            at_rank = {seat: seat_scores.ranked[rank] for seat, seat_scores in seats.items()}
            if all(_above(item.score, thresholds[seat]) and self._enough(item) for seat, item in at_rank.items()):
                yield at_rank

    def _threshold(self, seat: str, seat_scores: _SeatScores) -> float | None:
        assert isinstance(self.settings, BCFilter)
        rule = self.settings.threshold
        if not isinstance(rule, str):
            return rule
        if seat_scores.mean is None:
            return None
        local, everywhere = seat_scores.mean, self.global_means[seat]
        return {"min": min(local, everywhere), "max": max(local, everywhere), "local": local, "global": everywhere}[
            rule
        ]

    def _best(self, seat_scores: _SeatScores) -> list[_RankedSeat]:
        """Returns the seats that are selected by rank alone; the minimum is not applied yet."""
        if isinstance(self.settings, BCFilter):
            return seat_scores.ranked[: self.settings.top]
        # Exact: as a binary float, 0.29 × 100 is less than 29 and would be rounded down to 28.
        share = Fraction(str(self.settings.ratio)) * len(seat_scores.ranked)
        return seat_scores.ranked[: max(1, math.floor(share))]

    def _enough(self, item: _RankedSeat) -> bool:
        return self.settings.minimum is None or item.score >= self.settings.minimum

    def _line(self, group: str, seat: str, selected: Sequence[tuple[_RankedSeat, Why]]) -> SeatReport:
        seat_scores = self.groups[group][seat]
        reasons = Counter(why for _, why in selected)
        return SeatReport(
            task=seat_scores.task,
            key=group,
            seat=seat,
            scored=len(seat_scores.ranked),
            unscored=seat_scores.unscored,
            local_mean=seat_scores.mean,
            threshold=self._threshold(seat, seat_scores) if isinstance(self.settings, BCFilter) else None,
            top=reasons["top"],
            rank=reasons["rank"],
            share=reasons["share"],
            below_minimum=sum(not self._enough(item) for item in self._best(seat_scores)),
            lowest=min((item.score for item, _ in selected), default=None),
        )


def _above(score: float, threshold: float | None) -> bool:
    # The mean of equal scores may be rounded up or down, which must not decide.
    return threshold is not None and score - threshold > 1e-9


class FilteringSettings(Settings):
    """Settings of a filter over runs.

    Attributes:
        runs: run directories, or ``.jsonl`` files of episodes; an episode of several runs belongs to the first.
        filter: the kind of the filter and its rules.
        output: the directory of the selections and the report.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    filter: FilterChoice
    output: str


def selection_path(output: str | Path, run: int = 0) -> Path:
    """Returns the path of the selection of run number ``run`` of a filtering stage, counted from 0."""
    return Path(output) / (SELECTION if run == 0 else f"selection-{run}.jsonl")


def run(settings: FilteringSettings) -> None:
    """Filters the runs together, and writes a selection of each run and a report; does nothing if it is complete.

    Raises:
        InvalidValueError: as :func:`select`, or no episode of a run is selected.
        DamagedRecordError: a record cannot be read.
    """
    stage = StageDirectory(Path(settings.output), "filtering", settings)
    if stage.is_complete():
        return
    stage.open()
    owners: dict[str, int] = {}

    def episodes() -> Iterator[Episode]:
        for number, path in enumerate(settings.runs):
            for episode in read_run(path):
                owners.setdefault(episode.key, number)
                yield episode

    configured = [configured_evaluator(Path(path)) for path in settings.runs]
    selection = select(
        episodes(), settings.filter, [evaluator.name for evaluator in configured if evaluator is not None]
    )
    keys = [[key for key, owner in owners.items() if owner == number] for number in range(len(settings.runs))]
    parts = [selection.lines(run_keys) for run_keys in keys]
    # All runs are checked before the first file is written.
    for path, lines, run_keys in zip(settings.runs, parts, keys, strict=True):
        if not run_keys:
            raise InvalidValueError(
                expected="episodes that no earlier run contains", hint="leave this run out", where=path
            )
        if not lines:
            raise InvalidValueError(
                f"the filter selects none of its {len(run_keys)} episodes", hint="see its settings", where=path
            )
    for number, lines in enumerate(parts):
        write_text_atomically(selection_path(settings.output, number), lines)
    report = selection.report
    write_text_atomically(stage.path / REPORT, report.model_dump_json(indent=2) + "\n")
    write_text_atomically(stage.path / TABLE, report.text())
    figures = {"episodes": report.episodes, "unscored": report.unscored_episodes, "kept_episodes": report.kept_episodes}
    stage.finish({**figures, "kept_seats": report.kept_seats})
    logger.info("%s", report.text().splitlines()[0])
