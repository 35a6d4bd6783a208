"""The report: what the models win, make others believe and promise, by game, condition and role.

There is one training seed, so no verdict is given: intervals are over tasks, and say nothing of another seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from sotopia_training.stage.directory import StageDirectory

from sotopia_env.naming.seats import role_of
from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import METHOD, Bounds, Estimate, difference_estimate, estimate
from sotopia_env.reports.seat_results import seat_results
from sotopia_env.reports.sheet import Report, Sheet, Value
from sotopia_env.storage import read_run
from studies.social_learning.evaluation import EvaluationSettings
from studies.social_learning.stages import STAGES, Study
from studies.study import times_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIN = "win"
_SHARE = (0.0, 1.0)
ROLE_METRICS: Mapping[str, Bounds] = {WIN: _SHARE, "persuasion": (-1.0, 1.0), "truth_telling": _SHARE}
"""The figures of games of roles, with their ranges; :data:`WIN` is a tenth of GOAL."""
CHOICE_METRICS: Mapping[str, Bounds] = {
    "promised": _SHARE,
    "promise_keeping": _SHARE,
    "cooperation": _SHARE,
    "goal": (0.0, 10.0),
    "broken_selfish": _SHARE,
}
"""The figures of games of choices; ``promised`` is the share of seats that made a promise which was kept or broken."""
ROLE_PAIRS = (("win", "clone"), ("belief", "clone"), ("belief", "win"))
CHOICE_PAIRS = (("outcome", "clone"), ("promises", "clone"), ("promises", "outcome"))
"""The reported differences: the first model less the second."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy got in one seat of one episode.

    Attributes:
        game: the game.
        condition: who the partners were.
        policy: the short name of the policy.
        role: the role of its seat; empty in games of choices.
        task: the id of the task.
        seat: the number of the seat.
        values: the figures that the seat has.
    """

    game: str
    condition: str
    policy: str
    role: str
    task: str
    seat: int
    values: Mapping[str, float]


def results_of(settings: EvaluationSettings) -> Iterator[Result]:
    """Yields the results of the policies, each combination of task, seat and partners once; not those of partners."""
    keys = set[tuple[str, str, int, str]]()
    for game, condition, policy, item in settings.collections():
        name = item.agent.rpartition("name=")[2] if item.agent.startswith("./") else f"wordless({_script(item.agent)})"
        episodes = list(read_run(item.output))
        tasks = {episode.task.id: episode.task for episode in episodes}
        for row in seat_results(episodes):
            # A seat's partners may be the same in two conditions, which differ in its own role alone.
            key = (row.task, policy, row.seat, row.partner)
            if row.policies[row.seat][0] == name and key not in keys:
                keys.add(key)
                role = role_of(tasks[row.task], f"agent_{row.seat}")
                promised = float("promise_keeping" in row.values)
                values = {**row.values, WIN: row.values["goal"] / 10, "promised": promised}
                role = "" if role.startswith("agent_") else role
                yield Result(game.name, condition, policy, role, row.task, row.seat, values)


def _script(agent: str) -> str:
    return agent.rpartition("policy=(")[2].removesuffix(")")


def mean(results: Iterable[Result], metric: str, bounds: Bounds) -> Estimate | None:
    """Returns the mean of a figure over tasks; ``None`` if no seat has it."""
    pairs = [(item.values[metric], item.task) for item in results if metric in item.values]
    return estimate([value for value, _ in pairs], [task for _, task in pairs], bounds) if pairs else None


def difference(one: Iterable[Result], other: Iterable[Result], metric: str, bounds: Bounds) -> Estimate | None:
    """Returns the mean of ``one`` less ``other``, paired by task and seat; ``None`` without pairs that have both."""
    second = {(item.task, item.seat): item.values for item in other}
    pairs = [
        (item.values[metric] - second[item.task, item.seat][metric], item.task)
        for item in one
        if metric in item.values and metric in second.get((item.task, item.seat), {})
    ]
    return difference_estimate([v for v, _ in pairs], [task for _, task in pairs], bounds) if pairs else None


def write_report(study: Study) -> Path:
    """Writes ``report.md``, CSV files and ``figures.svg`` into the directory of the study; returns the first."""
    *training, last = STAGES
    settings = study.settings(last)
    with chdir(study.out):
        results = list(results_of(settings))
    sheets = [
        *(_means(game.name, results) for game in settings.games),
        *(_differences(game.name, results) for game in settings.games),
        _training(study, [study.settings(stage).output for stage in training if stage.command == "grpo"]),
        replace(times_sheet(study.out), title="minutes"),
    ]
    report = Report(
        name="report",
        title="What a tiny model learns socially",
        parts=[_BEGIN, *sheets, METHOD],
        sheets=sheets,
        charts=lambda: {"figures": _chart(results)},
    )
    return report.write(study.out, ("svg",), markdown=True)[0]


_BEGIN = (
    "One training seed: no difference here is a claim about a method. Intervals are over test tasks, which no stage "
    "trained on, with this seed fixed. `clone` imitates the script `deceiver:lies=0.5`; `win` and `belief` are GRPO "
    "from it as detective (`informed`) and villager (`plain`) of Mini-Mafia, paid by the result or by what each turn "
    "made the others believe; `outcome` and `promises` are GRPO from it in dilemmas of one round, paid by GOAL, or by "
    "GOAL and SOC, which falls with broken promises. The role `hidden` and the conditions `unseen` and `transfer` were "
    "never trained. In games of choices a seat that promised nothing has no share of kept promises."
)


def _metrics(results: Sequence[Result]) -> Mapping[str, Bounds]:
    return ROLE_METRICS if any(item.role for item in results) else CHOICE_METRICS


def _cells(results: Sequence[Result]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((item.condition, item.role) for item in results))


def _at(results: Sequence[Result], cell: tuple[str, str], policy: str) -> list[Result]:
    return [item for item in results if (item.condition, item.role, item.policy) == (*cell, policy)]


def _means(game: str, results: Sequence[Result]) -> Sheet:
    own = [item for item in results if item.game == game]
    metrics, policies = _metrics(own), dict.fromkeys(item.policy for item in own)
    rows: list[tuple[Value, ...]] = [
        (*cell, policy, *(mean(_at(own, cell, policy), metric, bounds) for metric, bounds in metrics.items()))
        for cell in _cells(own)
        for policy in policies
    ]
    return Sheet(_file(game), ("partners", "role", "policy", *metrics), rows, title=game)


def _differences(game: str, results: Sequence[Result]) -> Sheet:
    own = [item for item in results if item.game == game]
    metrics = _metrics(own)
    pairs = ROLE_PAIRS if metrics is ROLE_METRICS else CHOICE_PAIRS
    rows: list[tuple[Value, ...]] = [
        (
            *cell,
            f"{one} - {other}",
            *(difference(_at(own, cell, one), _at(own, cell, other), name, ends) for name, ends in metrics.items()),
        )
        for cell in _cells(own)
        for one, other in pairs
    ]
    return Sheet(
        f"{_file(game)}_differences",
        ("partners", "role", "difference", *metrics),
        rows,
        title=f"{game}: differences, paired by task and seat",
    )


def _file(game: str) -> str:
    return game.replace("-", "_")


def _training(study: Study, outputs: Sequence[str]) -> Sheet:
    """Sampled tokens of each arm, and its mean reward in the first and in the last quarter of its steps."""
    rows: list[tuple[Value, ...]] = []
    for output, stage in ((name, item) for name in outputs for item in STAGES if study.settings(item).output == name):
        figures = StageDirectory(study.out / output, "", study.settings(stage)).figures or {}
        log = [entry for entry in figures.get("log", ()) if "reward" in entry]
        quarter = max(1, len(log) // 4)
        key = "turns/reward" if any("turns/reward" in entry for entry in log) else "reward"
        parts = [[entry[key] for entry in part] for part in (log[:quarter], log[-quarter:])]
        tokens = sum(entry.get("tokens/sampled", 0) for entry in log)
        rows.append((output, len(log), tokens, key, *(fmean(part) if part else None for part in parts)))
    columns = ("arm", "steps", "sampled tokens", "reward", "first quarter", "last quarter")
    return Sheet("training", columns, rows, title="training", formats=dict.fromkeys(columns[4:], "{:.3f}".format))


def _chart(results: Sequence[Result]) -> Figure:
    """Wins of detective and villager, and kept promises, of every policy and condition."""
    metrics = {("mini_mafia", "informed"): WIN, ("mini_mafia", "plain"): WIN, ("dilemma", ""): "promise_keeping"}
    panels = []
    for (game, role), metric in metrics.items():
        own = [item for item in results if (item.game, item.role) == (game, role)]
        lines = [
            (f"{policy}, {cell[0]}", value)
            for cell in _cells(own)
            for policy in dict.fromkeys(item.policy for item in own)
            if (value := mean(_at(own, cell, policy), metric, _SHARE)) is not None
        ]
        panels.append(Panel(metric.replace("_", " "), lines, f"{game} {role}".strip()))
    return forest_chart(panels, "Test tasks, one training seed")
