"""Reports for authors of tasks: a card with the complete content of one task, and the composition of a set of tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from sotopia_env.foundation.quoting import escape, escape_line
from sotopia_env.reports.charts import PAGE_WIDTH, new_figure, save_figure
from sotopia_env.reports.sheet import Report, Sheet, show_percent
from sotopia_env.reports.transcript import fact_lines
from sotopia_env.reports.views.outcome_space import outcome_view
from sotopia_env.tasks.composition import Composition, verified_share
from sotopia_env.world.outcome import references
from sotopia_env.world.perception.briefing import DISCLOSURE
from sotopia_env.world.scenario import Task

# Characters per line of a card.
_WIDTH = 110
# Panels per row of the chart, and the height of a bar in inches.
_COLUMNS, _ROW_HEIGHT = 3, 0.16
_LEGEND = (
    "name: all that strangers know; profile: also age, occupation and public information; character: also personality, "
    "traits and values; story: their backstory; all: also the secret, the goals and the private information"
)


def card(task: Task) -> str:
    """Returns the complete content of a task, including secrets and answers, as plain text for a terminal."""
    parts = [_head(task), _matrix(task), *_seats(task), *_ties(task), *_outcome(task), *_facts(task), *_interview(task)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(escape_line(text), _WIDTH, initial_indent=indent, subsequent_indent="  " + indent)


def _head(task: Task) -> str:
    scenario = task.scenario
    facts = {
        "scenario": scenario.id,
        "source": scenario.source,
        "tags": ", ".join(scenario.tags),
        "turns": "" if scenario.max_turns is None else f"at most {scenario.max_turns}",
        "messages": "private ones are possible" if scenario.private_messages else "",
        "domain": scenario.interview.domain if scenario.interview is not None and scenario.interview.domain else "",
    }
    line = "; ".join(f"{name}: {value}" for name, value in facts.items() if value)
    context = [textwrap.fill(escape_line(line), _WIDTH) for line in scenario.context.split("\n")]
    return "\n".join([f"task {escape_line(task.id)}", _wrapped(line), "", *context])


def _matrix(task: Task) -> str:
    names = [character.name for character in task.characters]
    rows: list[tuple[str, ...]] = [
        (name, *(_knowledge(task, seat, other) for other in range(len(names)))) for seat, name in enumerate(names)
    ]
    return Sheet("knowledge", ("knows … of", *names), rows, notes=(_wrapped(f"({_LEGEND})"),)).text()


def _knowledge(task: Task, seat: int, other: int) -> str:
    if seat == other:
        return "all"
    tie = task.relationship(seat, other)
    fields = DISCLOSURE[tie.kind]
    # From the most to the least that a relationship discloses; the first level that applies is shown.
    levels = {"character": "personality" in fields, "profile": "occupation" in fields, "name": True}
    level = next(name for name, is_known in levels.items() if is_known)
    return f"{level} + story" if tie.backstory else level


def _seats(task: Task) -> Iterator[str]:
    scenario = task.scenario
    for number, (person, seat) in enumerate(zip(task.characters, scenario.seats, strict=True)):
        interview = scenario.interview
        role = f", {interview.roles[number].value}" if interview is not None and interview.roles else ""
        lines = [f"seat {number}: {person.name}, {person.age}, {person.gender}, {person.occupation}{role}"]
        for index, goal in enumerate(seat.goals):
            kind = None if interview is None else interview.goal_type(number, index)
            lines.append(f"goal: {goal}" if kind is None else f"goal ({kind.value}): {goal}")
        lines += [f"hint: {hint}" for hint in seat.hints]
        lines += [f"private: {seat.private_info}"] if seat.private_info else []
        lines += [f"secret: {person.secret}"] if person.secret else []
        yield "\n".join([escape_line(lines[0]), *(_wrapped(line, "  ") for line in lines[1:])])


def _ties(task: Task) -> Iterator[str]:
    lines = []
    for tie in task.relationships:
        facts = ", ".join(f"{name}: {value}" for name, value in tie.facts.items())
        names = " and ".join(task.characters[seat].name for seat in tie.seats)
        story = f": {tie.backstory}" if tie.backstory else ""
        lines.append(_wrapped(f"{names}, {tie.kind.value}{f' ({facts})' if facts else ''}{story}"))
    yield "\n".join(lines)


def _outcome(task: Task) -> Iterator[str]:
    spec, view = task.scenario.outcome, outcome_view(task.scenario, task.names)
    if spec is None or view is None:
        yield "no verified outcome: judges score the result"
        return
    yield _wrapped(f"outcome ({spec.protocol.kind}): {view.rules}")
    yield "\n".join(_wrapped(f"worth to {name}: {worth}") for name, worth in view.worths)
    points = references(task)
    columns = (points.disagreement, points.best, points.best_joint)
    rows: list[tuple[str | float, ...]] = [
        (name, *(float(column[seat]) for column in columns)) for seat, name in enumerate(task.names.values())
    ]
    yield Sheet("worth", ("worth", "without an outcome", "at best", "at the joint best"), rows).text()


def _facts(task: Task) -> Iterator[str]:
    if task.scenario.facts is not None:
        yield "\n".join(_wrapped(line) for line in fact_lines(task, task.scenario.facts))


def _interview(task: Task) -> Iterator[str]:
    interview = task.scenario.interview
    if interview is None:
        return
    names = list(task.names.values())
    for question in interview.questions:
        respondents = ", ".join(names[seat] for seat in question.asked_seats(len(names)))
        yield "\n".join(
            [
                _wrapped(f"question about {names[question.about]}, to {respondents}: {question.text}"),
                _wrapped(f"right: {question.answer}", "  "),
                *(_wrapped(f"wrong: {answer}", "  ") for answer in question.wrong),
            ]
        )
    tests = []
    for test in interview.goal_tests:
        worth = "" if test.worth_at_least is None else f" worth at least {test.worth_at_least:g}"
        terms = f" terms {dict(test.terms)}" if test.terms else ""
        tests.append(_wrapped(f"goal {test.goal} of {names[test.seat]} is reached with{worth}{terms}"))
    yield escape("\n".join(tests))


# --- a set --------------------------------------------------------------------------------------------------------


def composition_report(counts: Composition) -> Report:
    """Returns a report with a table of counts and shares for each property of the tasks."""
    share = verified_share(counts)
    parts: list[str | Sheet] = [] if share is None else [f"share verified: {show_percent(share)} %"]
    for part, names in counts.items():
        total = sum(names.values())
        rows = [(name, number, number / total) for name, number in names.items()]
        parts.append(Sheet(part, (part, "n", "share %"), rows, formats={"share %": show_percent}))
    return Report("composition", parts)


def composition_chart(counts: Composition, title: str, path: str | Path) -> Path:
    """Draws a panel of bars for each property of the tasks.

    Args:
        counts: the counts of each property.
        title: the title of the task set.
        path: the file to write; its suffix is one of :data:`~sotopia_env.reports.charts.FORMATS`.

    Returns:
        ``path``, which is written atomically.

    Raises:
        UnknownNameError: the suffix is not a known format.
    """
    rows = [list(counts.items())[start : start + _COLUMNS] for start in range(0, len(counts), _COLUMNS)]
    most = [max(len(names) for _, names in row) for row in rows]
    heights = [bars * _ROW_HEIGHT + 0.6 for bars in most]
    figure = new_figure(PAGE_WIDTH, sum(heights) + 0.5)
    grid = figure.add_gridspec(len(rows), _COLUMNS, height_ratios=heights)
    for number, row in enumerate(rows):
        for column, (part, names) in enumerate(row):
            axes = figure.add_subplot(grid[number, column])
            bars = axes.barh(range(len(names)), list(names.values()), color="#7a9cc6")
            axes.bar_label(bars, padding=2, fontsize=7)
            axes.set_yticks(range(len(names)), list(names), fontsize=7)
            # All panels of a row have the same scale, so that bars are equally thick.
            axes.set_ylim(most[number] - 0.5, -0.5)
            axes.margins(x=0.15)
            axes.set_xticks([])
            axes.set_title(part, fontsize=8)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
    share = verified_share(counts)
    about = title if share is None else f"{title}: {share:.0%} with a verified outcome"
    figure.suptitle(f"{about}; counts", fontsize=8)
    (file,) = save_figure(figure, Path(path).with_suffix(""), [Path(path).suffix.removeprefix(".")])
    return file
