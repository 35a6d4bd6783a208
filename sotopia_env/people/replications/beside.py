"""Results of policies, or of people here, in the design of a published experiment, beside those of people there.

Intervals of episodes are those of every report (:mod:`sotopia_env.reports.seats.units`): over scenarios, and over
people and scenarios where people play. Published intervals are shown as they were published, and say what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean
from typing import TYPE_CHECKING

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.people.replications.design import Figure, People, Replication, citation
from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import PUBLICATION, UNBOUNDED, Bounds, Estimate, least_share, show_number
from sotopia_env.reports.seat_results import SeatResult, seat_results, with_labels
from sotopia_env.reports.seats.units import averaged, seat_mean
from sotopia_env.reports.sheet import Missing, Report, Sheet, Value
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.storage.recordings import recordings
from sotopia_env.world.dynamics import StopReason
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.tables import final_table

if TYPE_CHECKING:
    import matplotlib.figure

    from sotopia_env.world.episode import Episode
    from sotopia_env.world.scenario import Task

PEOPLE = "people"
_INTERVALS = (
    "Intervals of episodes are over scenarios, and over people where they play, each for itself: they are not adjusted "
    "for the number of figures and policies."
)
_UNFINISHED = "Games that ended before all choices were made, and count with the choices that were"
_ABSENT = "no supported figure"


def beside_people(
    name: str, plan: Replication, episodes: Iterable[Episode], failures: Iterable[FailureRecord] = ()
) -> Report:
    """Returns the report of episodes in the design of a replication.

    Args:
        name: the name of the replication.
        plan: the replication.
        episodes: episodes in its tasks; others are left out and counted.
        failures: episodes that failed; those that were not played since are counted.

    Raises:
        InvalidValueError: no episode is in its tasks.
    """
    rows, unfinished, left_out = _rows(plan, episodes)
    if not rows:
        raise InvalidValueError(field="episodes", expected=f"episodes of {plan.design.tasks}", got=f"{left_out} others")
    labels = sorted({_label(plan, row) for row in rows})
    estimates = {
        (key, label): _estimate([row for row in rows if _label(plan, row) == label], key, figure)
        for key, figure in plan.figures.items()
        for label in labels
    }
    played = {row.key for row in rows}
    failed = Counter(" and ".join(dict.fromkeys(one.policies)) for one in failures if one.key not in played)
    sheet = Sheet(
        name="replication",
        columns=("figure", PEOPLE, *labels),
        rows=[
            (
                figure.label,
                _published(figure.people, len(plan.sources) > 1),
                *(_cell(figure, estimates[key, label]) for label in labels),
            )
            for key, figure in plan.figures.items()
        ],
        title=f"{plan.title}: people and policies",
    )
    notes = [_INTERVALS]
    notes += [f"{left_out} episodes of other tasks were left out."] if left_out else []
    notes += [f"Episodes that failed and are in no figure: {_by_policy(failed)}."] if failed else []
    notes += [f"{_UNFINISHED}: {_by_policy(unfinished)}."] if unfinished else []
    return Report(
        name="replication",
        parts=[
            sheet,
            *notes,
            "Sources of the figures on people:\n" + citation(tuple(plan.sources.items())),
            "What differs:\n" + "\n".join(f"- {line}" for line in plan.differs),
        ],
        sheets=[sheet],
        content={
            "replication": name,
            "left_out": left_out,
            "failed": failed,
            "unfinished": unfinished,
            "rows": sheet.records(),
            "design": plan.model_dump(),
        },
        charts=lambda: {"replication": _chart(plan, labels, estimates)},
        title=plan.title,
    )


def _by_policy(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {names}" for names, count in sorted(counts.items()))


def _rows(plan: Replication, episodes: Iterable[Episode]) -> tuple[list[SeatResult], Counter[str], int]:
    """Every seat with its values by figure, the unfinished games by policy, and the number of other tasks' episodes."""
    rows: list[SeatResult] = []
    unfinished: Counter[str] = Counter()
    left_out = 0
    for _, episode, is_first, _ in recordings(episodes):
        if episode.task.scenario.shared_data.get("family") != plan.design.tasks:
            left_out += 1
        elif is_first:
            for name, figure in plan.figures.items():
                if figure.measured:
                    _check_figure(f"figures.{name}", figure, episode.task)
            seats = enumerate(seat_results([episode], None))
            rows += [replace(row, values=dict(_values(plan, episode, seat))) for seat, row in seats]
            if episode.stop is not StopReason.SETTLED:
                unfinished[" and ".join(dict.fromkeys(policy.name for policy in episode.policies))] += 1
    return with_labels(rows), unfinished, left_out


def _label(plan: Replication, row: SeatResult) -> str:
    """The policy of a seat, and its partners where these are others than the design has."""
    is_usual = row.policy == row.partner or (plan.design.mixed and not row.people)
    return row.policy if is_usual else f"{row.policy} with {row.partner}"


def _values(plan: Replication, episode: Episode, seat: int) -> Iterator[tuple[str, float]]:
    task = episode.task
    for name, figure in plan.figures.items():
        if figure.measured and _counts(figure, task, seat):
            numbers = [_lone_payoff(episode)] if figure.lone else list(_numbers(figure, episode, seat))
            if numbers:
                yield name, fmean(numbers)


def _check_figure(field: str, figure: Figure, task: Task) -> None:
    """Raises InvalidValueError if a figure speaks of seats, options or parameters that the task does not have."""
    spec, seats = task.scenario.outcome, range(len(task.agents))
    only = () if figure.only is None else (figure.only.seat,)
    if strange := [seat for seat in (*figure.seats, *only) if seat not in seats]:
        raise InvalidValueError(field=field, expected=f"seats from 0 to {seats[-1]} in {task.id}", got=strange[0])
    if strange_keys := figure.where.keys() - task.scenario.shared_data.get("parameters", {}).keys():
        problem = f"{task.id} does not have the parameter"
        raise InvalidValueError(problem, field=f"{field}.where", got=min(strange_keys), hint="leave it out")
    if figure.lone:
        if spec is None or 1 not in [spec.worth.count(worth) for worth in spec.worth]:
            raise InvalidValueError(field=f"{field}.lone", expected=f"one seat with a worth of its own in {task.id}")
        return
    if spec is None or not isinstance(spec.protocol, ChoicesRules):
        got = "no outcome" if spec is None else spec.protocol.kind
        raise InvalidValueError(field=field, expected=f"a game of choices, but {task.id} is none", got=got)
    menus = [spec.protocol.options_of(agent) for agent in task.agents]
    if figure.share and spec.protocol.amounts is None:
        hint = "give a number for each option as 'at'"
        raise InvalidValueError(field=f"{field}.share", expected="choices of amounts", got=menus[0][0], hint=hint)
    if figure.only is not None and any(
        not 0 <= option < len(menus[figure.only.seat]) for option in figure.only.options
    ):
        expected = f"indices from 0 to {len(menus[figure.only.seat]) - 1}"
        raise InvalidValueError(field=f"{field}.only.options", expected=expected, got=list(figure.only.options))
    for seat in seats:
        if figure.at and _counts(figure, task, seat) and len(figure.at) != len(menus[seat]):
            expected = f"a number for each of the {len(menus[seat])} options of seat {seat} in {task.id}"
            raise InvalidValueError(field=f"{field}.at", expected=expected, got=len(figure.at))


def _counts(figure: Figure, task: Task, seat: int) -> bool:
    """Whether the seat counts, and the task is one of those that the figure is for."""
    parameters = task.scenario.shared_data.get("parameters", {})
    role = task.scenario.seats[seat].private_data.get("role")
    return (
        (not figure.seats or seat in figure.seats)
        and (not figure.roles or role in figure.roles)
        and all(low <= parameters[key] <= high for key, (low, high) in figure.where.items())
    )


def _numbers(figure: Figure, episode: Episode, seat: int) -> Iterator[float]:
    """The numbers of the choices of a seat in the rounds that count."""
    spec, table = episode.task.scenario.outcome, final_table(episode.task, episode.plain_turns)[0]
    assert spec is not None
    assert isinstance(spec.protocol, ChoicesRules)
    menus = [spec.protocol.options_of(agent) for agent in episode.task.agents]
    played: Sequence[tuple[str, ...]] = getattr(table, "inner", table).played
    for number, row in enumerate(played):
        indices = [menu.index(option) for menu, option in zip(menus, row, strict=True)]
        is_due = {"all": True, "first": number == 0, "last": number == spec.protocol.length - 1}[figure.rounds]
        if is_due and (figure.only is None or indices[figure.only.seat] in figure.only.options):
            yield float(Fraction(row[seat]) / Fraction(menus[seat][-1])) if figure.share else figure.at[indices[seat]]


def _lone_payoff(episode: Episode) -> float:
    """The payoff of the seat whose worth no other seat has."""
    spec = episode.task.scenario.outcome
    assert spec is not None
    seat = next(seat for seat, worth in enumerate(spec.worth) if spec.worth.count(worth) == 1)
    return outcome_of(episode.task, episode.plain_turns).payoffs[seat]


def _estimate(rows: Sequence[SeatResult], key: str, figure: Figure) -> Estimate | None:
    seats = averaged(rows, key)
    return seat_mean(seats, key, _bounds(figure, [seat.values[key] for seat in seats])) if seats else None


def _bounds(figure: Figure, values: Sequence[float]) -> Bounds:
    """The lowest and the highest number that a choice may have; a payoff has them if it is a share."""
    if figure.at:
        return min(figure.at), max(figure.at)
    return (0, 1) if all(0 <= value <= 1 for value in values) else UNBOUNDED


def _cell(figure: Figure, estimate: Estimate | None) -> Value:
    if estimate is not None:
        return estimate
    return Missing("no such choice" if figure.measured else "published alone")


def _ends(people: People) -> tuple[float, float] | None:
    """The ends of what was published, or of our exact interval of a count (Clopper and Pearson 1934)."""
    if people.count is not None:
        cases, size = people.count
        low = least_share(cases, size) if cases else 0.0
        return low, 1 - least_share(size - cases, size) if cases < size else 1.0
    return None if people.low is None or people.high is None else (people.low, people.high)


def _mean(people: People) -> float | None:
    return people.mean if people.count is None else people.count[0] / people.count[1]


def _published(people: People | None, with_source: bool) -> Value:
    if people is None:
        return Missing(_ABSENT)
    mean, ends = _mean(people), _ends(people)
    what = people.interval or "exact 95 %, ours, as if games were independent"
    span = "" if ends is None else f"{show_number(ends[0])} to {show_number(ends[1])} ({what})"
    number = "" if mean is None else show_number(mean)
    count = "" if people.count is None else f"{people.count[0]} of {people.count[1]}"
    return "; ".join(filter(None, [number, count, span, people.sample, people.source * with_source]))


def _chart(
    plan: Replication, labels: Sequence[str], estimates: Mapping[tuple[str, str], Estimate | None]
) -> matplotlib.figure.Figure:
    """One panel for each figure: people on top, then the policies."""
    panels = []
    for key, figure in plan.figures.items():
        if not figure.measured:
            continue
        lines = [(label, one) for label in labels if (one := estimates[key, label]) is not None]
        if figure.people is not None:
            lines.insert(0, (PEOPLE, _as_estimate(figure.people)))
        panels.append(Panel("share", lines, figure.label))
    return forest_chart([panel for panel in panels if panel.lines], f"{plan.title}: people, as published, and policies")


def _as_estimate(people: People) -> Estimate:
    """What was published as a point of a chart, in the middle of a range without a mean."""
    mean, ends = _mean(people), _ends(people)
    low, high = ends or (None, None)
    middle = mean if mean is not None else ((low or 0.0) + (high or 0.0)) / 2
    return Estimate(0, 1, middle, low, high, None, PUBLICATION)
