"""Which turns are worth learning: the two filters of SOTOPIA-π (arXiv 2403.08715, appendix B.2).

Both rank the episodes of one *social task* by a score, for each seat on its own. A social task is one scenario with its
goals, whoever plays it (:func:`training.data.held_out.task_key`): ten pairs of characters give ten ranks.

* **Behaviour cloning** (:class:`BCFilter`) takes the best two of every task and seat. At each further rank it compares
  every seat's score with the lesser of the seat's mean in this task and its mean over all tasks; where all seats are
  above theirs, all are taken, else none: the data stay balanced between the seats.
* **Self-reinforcement** (:class:`SRFilter`) takes the best fifth of every task and seat.

Equal scores are ranked by the mean of the seven dimensions where all are scored (the predecessors' rule), then by the
episode's key, so that the order in which episodes were finished decides nothing. A score counts as above a threshold
only if it is greater. A seat without a score is dropped and counted, and enters no mean: a failed evaluation is not 0.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from pydantic import Field

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.files import write_text_atomically
from sotopia_env.reports.seat_results import OVERALL, choose_evaluator
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import DIMENSIONS, dimension
from training.collect.selection import (
    AnyFilter,
    BCFilter,
    Chosen,
    FilterChoice,
    FilterReport,
    SeatReport,
    Selection,
    SRFilter,
    Why,
)
from training.data.held_out import task_key
from training.stage.directory import StageDirectory
from training.stage.settings import Settings

logger = logging.getLogger(__name__)
SELECTION, REPORT, TABLE = "selection.jsonl", "report.json", "report.txt"


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A seat of an episode with its score; sorts best first."""

    score: float
    overall: float
    episode: str

    @property
    def place(self) -> tuple[float, float, str]:
        return (-self.score, -self.overall, self.episode)


@dataclass(slots=True)
class _SeatOfTask:
    """All that was seen of one seat of one task."""

    task: str
    ranked: list[_Ranked] = field(default_factory=list)
    unscored: int = 0

    @property
    def mean(self) -> float | None:
        return fmean(item.score for item in self.ranked) if self.ranked else None


@dataclass(frozen=True, slots=True)
class _Reading:
    """One seat of one episode; a score is a pair (by the dimension, overall), or the reason why there is none."""

    group: str
    task: str
    seat: str
    scores: Mapping[str, tuple[float, float] | str]


def select(episodes: Iterable[Episode], settings: AnyFilter, preferred: Iterable[str] = ()) -> Selection:
    """Returns what the filter takes of the episodes, which are read once and not kept.

    Args:
        episodes: of one or several runs.
        settings: which filter, and how.
        preferred: evaluators that decide where the episodes share several; the runs' own.

    Raises:
        InvalidValueError: no episodes, one that occurs twice, several evaluators of which all share not just one, or no
            score at all.
        UnknownNameError: no episode has an evaluation by this evaluator, a score on this dimension, or one of these
            policies.
    """
    read: dict[str, list[_Reading]] = {}
    counts: Counter[str] = Counter()
    found = _Found(settings)
    for episode in episodes:
        if episode.key in read:
            raise InvalidValueError(f"episode {episode.key!r} occurs twice; is a run named twice?")
        counts.update({evaluation.evaluator for evaluation in episode.evaluations})
        read[episode.key] = found.readings(episode)
    if not read:
        raise InvalidValueError("filter: expected at least one episode, got none")
    found.check_names()
    # An evaluator that is alone needs no choosing: what it has not seen is unscored, as what it could not score.
    wanted = next(iter(counts)) if settings.evaluator is None and len(counts) == 1 else settings.evaluator
    evaluator = choose_evaluator(counts, len(read), wanted, preferred, setting="filter.evaluator")
    if evaluator is None:
        raise InvalidValueError(f"filter: none of {len(read)} episodes has been evaluated; evaluate the run first")
    return _Choice(settings, evaluator, read, found.not_focal).selection()


@dataclass
class _Found:
    """Reads episodes, and notes which names occur."""

    settings: AnyFilter
    policies: set[str] = field(default_factory=set)
    custom: set[str] = field(default_factory=set)
    not_focal: int = 0

    def __post_init__(self) -> None:
        self.asked = _dimension(self.settings.dimension)

    def readings(self, episode: Episode) -> list[_Reading]:
        group = task_key(episode.task) if self.settings.group == "scenario" else episode.task.content_hash
        named = {info.agent: info.name for info in episode.policies}
        self.policies |= set(named.values())
        self.custom |= {custom.name for evaluation in episode.evaluations for custom in evaluation.dimensions}
        task = episode.task.scenario.id if self.settings.group == "scenario" else episode.task.id
        read = []
        for number, seat in enumerate(episode.task.agents):
            if not self._focal(number, named.get(seat)):
                self.not_focal += 1
                continue
            scores = {e.evaluator: _score(e, seat, self.asked) for e in episode.evaluations}
            read.append(_Reading(group, task, seat, scores))
        return read

    def _focal(self, number: int, policy: str | None) -> bool:
        wanted = self.settings
        return (not wanted.policies or policy in wanted.policies) and (not wanted.seats or number in wanted.seats)

    def check_names(self) -> None:
        for name in self.settings.policies:
            if name not in self.policies:
                raise UnknownNameError(f"filter, policies: {name_hint(name, sorted(self.policies))}")
        known = [OVERALL, *(d.value for d in DIMENSIONS), *sorted(self.custom)]
        if self.asked not in known:
            raise UnknownNameError(f"filter, dimension: {name_hint(self.asked, known)}")


def _dimension(name: str) -> str:
    try:
        return dimension(name).value
    except UnknownNameError:
        return name  # overall, or a custom one; whether there is one is known when all episodes are read


def _score(evaluation: Evaluation, seat: str, asked: str) -> tuple[float, float] | str:
    if evaluation.unscored is not None:
        return evaluation.unscored
    scores = evaluation.by_agent.get(seat, {})
    seven = [scores[d].value for d in DIMENSIONS if d in scores]
    overall = math.fsum(seven) / len(DIMENSIONS) if len(seven) == len(DIMENSIONS) else -math.inf
    if asked == OVERALL:
        return (overall, overall) if math.isfinite(overall) else f"{evaluation.evaluator}: not all seven dimensions"
    own = next((score.value for name, score in scores.items() if str(name) == asked), None)
    return f"{evaluation.evaluator}: no score for {seat} on {asked}" if own is None else (own, overall)


@dataclass
class _Choice:
    """Ranks what was read, and takes by the rules."""

    settings: AnyFilter
    evaluator: str
    read: Mapping[str, Sequence[_Reading]]
    not_focal: int

    def selection(self) -> Selection:
        """The selection with its report."""
        self._rank()
        chosen: list[Chosen] = []
        lines: list[SeatReport] = []
        for group in sorted(self.groups, key=lambda key: (self._label(key), key)):
            seats = self.groups[group]
            taken = self._taken(seats)
            chosen += [Chosen(item.episode, seat, why) for seat, items in taken.items() for item, why in items]
            lines += [self._line(group, seat, taken[seat]) for seat in sorted(seats)]
        report = FilterReport(
            filter=self.settings,
            evaluator=self.evaluator,
            episodes=len(self.read),
            unscored_episodes=self.unscored,
            reasons=dict(self.reasons.most_common()),
            not_focal=self.not_focal,
            global_means=self.global_means,
            kept_episodes=len({item.episode for item in chosen}),
            kept_seats=len(chosen),
            seats=tuple(lines),
        )
        return Selection(tuple(sorted(chosen)), report)

    def _rank(self) -> None:
        self.groups: dict[str, dict[str, _SeatOfTask]] = defaultdict(dict)
        self.reasons: Counter[str] = Counter()
        self.unscored = 0
        for key, readings in self.read.items():
            self.unscored += bool(readings) and True not in [self._note(key, reading) for reading in readings]
        by_seat: dict[str, list[float]] = defaultdict(list)
        for seats in self.groups.values():
            for seat, seen in seats.items():
                seen.ranked.sort(key=lambda item: item.place)
                by_seat[seat] += [item.score for item in seen.ranked]
        self.global_means = {seat: fmean(scores) for seat, scores in sorted(by_seat.items()) if scores}
        if not self.global_means:
            first = "".join(f"; {count} × {reason}" for reason, count in self.reasons.most_common(1))
            raise InvalidValueError(
                f"filter: no seat of {len(self.read)} episodes has a score on {self.settings.dimension!r} by "
                f"{self.evaluator!r}{first}"
            )

    def _note(self, key: str, reading: _Reading) -> bool:
        """Files a seat under its task; whether it has a score."""
        seen = self.groups[reading.group].setdefault(reading.seat, _SeatOfTask(reading.task))
        seen.task = min(seen.task, reading.task)
        score = reading.scores.get(self.evaluator, f"not evaluated by {self.evaluator}")
        if isinstance(score, str):
            self.reasons[score] += 1
            seen.unscored += 1
            return False
        seen.ranked.append(_Ranked(score[0], score[1], key))
        return True

    def _label(self, group: str) -> str:
        return min(seen.task for seen in self.groups[group].values())

    def _taken(self, seats: Mapping[str, _SeatOfTask]) -> dict[str, list[tuple[_Ranked, Why]]]:
        why: Why = "top" if isinstance(self.settings, BCFilter) else "share"
        taken: dict[str, list[tuple[_Ranked, Why]]] = {
            seat: [(item, why) for item in self._best(seen) if self._enough(item)] for seat, seen in seats.items()
        }
        if isinstance(self.settings, BCFilter):
            for at_rank in self._ranks_passed(seats, self.settings.top):
                for seat, item in at_rank.items():
                    taken[seat].append((item, "rank"))
        return taken

    def _ranks_passed(self, seats: Mapping[str, _SeatOfTask], top: int) -> Iterator[dict[str, _Ranked]]:
        """The ranks after ``top`` at which every seat is above its threshold."""
        thresholds = {seat: self._threshold(seat, seen) for seat, seen in seats.items()}
        # Beyond the rank to which every seat comes there are no pairs; a seat without any score comes to none.
        for rank in range(top, min(len(seen.ranked) for seen in seats.values())):
            at_rank = {seat: seen.ranked[rank] for seat, seen in seats.items()}
            if all(_above(item.score, thresholds[seat]) and self._enough(item) for seat, item in at_rank.items()):
                yield at_rank

    def _threshold(self, seat: str, seen: _SeatOfTask) -> float | None:
        assert isinstance(self.settings, BCFilter)
        how = self.settings.threshold
        if not isinstance(how, str):
            return how
        if seen.mean is None:
            return None
        local, everywhere = seen.mean, self.global_means[seat]
        return {"min": min(local, everywhere), "max": max(local, everywhere), "local": local, "global": everywhere}[how]

    def _best(self, seen: _SeatOfTask) -> list[_Ranked]:
        """Those that are taken for their rank alone, if they reach the minimum."""
        if isinstance(self.settings, BCFilter):
            return seen.ranked[: self.settings.top]
        share = Fraction(str(self.settings.ratio)) * len(seen.ranked)  # 0.2 × 15 is more than 3 in binary
        return seen.ranked[: max(self.settings.at_least, math.floor(share))]

    def _enough(self, item: _Ranked) -> bool:
        return self.settings.minimum is None or item.score >= self.settings.minimum

    def _line(self, group: str, seat: str, taken: Sequence[tuple[_Ranked, Why]]) -> SeatReport:
        seen = self.groups[group][seat]
        reasons = Counter(why for _, why in taken)
        return SeatReport(
            task=seen.task,
            key=group,
            seat=seat,
            scored=len(seen.ranked),
            unscored=seen.unscored,
            local_mean=seen.mean,
            threshold=self._threshold(seat, seen) if isinstance(self.settings, BCFilter) else None,
            top=reasons["top"],
            rank=reasons["rank"],
            share=reasons["share"],
            below_minimum=sum(not self._enough(item) for item in self._best(seen)),
            lowest=min((item.score for item, _ in taken), default=None),
        )


def _above(score: float, threshold: float | None) -> bool:
    return threshold is not None and score - threshold > 1e-9  # a mean of equal scores may be rounded either way


class FilteringSettings(Settings):
    """A filter over runs.

    Attributes:
        runs: run directories, or ``.jsonl`` files of episodes.
        filter: which, and how.
        output: where the selections and the report go.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    filter: FilterChoice
    output: str


def selection_path(output: str | Path, run: int = 0) -> Path:
    """Returns where the selection of the ``run``-th run of a filtering stage lies, counted from 0."""
    return Path(output) / (SELECTION if run == 0 else f"selection-{run}.jsonl")


def run(settings: FilteringSettings) -> None:
    """Filters runs together, and writes a selection for each beside the report; does nothing if that is done.

    Raises:
        InvalidValueError: see :func:`select`; or nothing of a run is taken.
        DamagedRecordError: a record cannot be read.
    """
    stage = StageDirectory(Path(settings.output), "filtering", settings)
    stage.open()
    if stage.figures is not None:
        logger.info("%s is complete: nothing to do", settings.output)
        return
    keys: list[list[str]] = [[] for _ in settings.runs]

    def episodes() -> Iterator[Episode]:
        for number, place in enumerate(settings.runs):
            for episode in read_run(place):
                keys[number].append(episode.key)
                yield episode

    configured = [configured_evaluator(Path(place)) for place in settings.runs]
    selection = select(episodes(), settings.filter, [named.name for named in configured if named is not None])
    found = [selection.lines(own) for own in keys]
    for place, lines, own in zip(settings.runs, found, keys, strict=True):
        if not lines:
            raise InvalidValueError(f"{place}: the filter takes none of its {len(own)} episodes; see its settings")
    for number, lines in enumerate(found):
        write_text_atomically(selection_path(settings.output, number), lines)
    report = selection.report
    write_text_atomically(stage.path / REPORT, report.model_dump_json(indent=2) + "\n")
    write_text_atomically(stage.path / TABLE, report.text())
    figures = {"episodes": report.episodes, "unscored": report.unscored_episodes, "kept_episodes": report.kept_episodes}
    stage.finish({**figures, "kept_seats": report.kept_seats})
    logger.info("%s", report.text().splitlines()[0])


__all__ = [
    "AnyFilter",
    "BCFilter",
    "Chosen",
    "FilterReport",
    "FilteringSettings",
    "SRFilter",
    "SeatReport",
    "Selection",
    "run",
    "select",
    "selection_path",
]
