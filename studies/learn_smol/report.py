"""The report: GOAL of every stage and reference by partner, and paired differences between stages.

A claim about a method is about other training seeds, so differences are decided over seeds, as in ``studies.learn``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import METHOD, Estimate, difference_estimate, estimate, show_number
from sotopia_env.reports.seat_results import seat_results
from sotopia_env.reports.sheet import Report, Sheet, Value, show_percent
from sotopia_env.storage import read_run
from studies.learn.claims import gain_range, over_seeds, p_values, verdict
from studies.learn_smol.stages import EVALUATION, SHARED, TIMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: Mapping[str, str] = {
    "base-constrained": "SmolLM2-135M, constrained to legal moves",
    "clone": "clone of `boulware`",
    "relabelled": "+ the teacher's answers in its own states",
    "grpo": "+ multi-turn GRPO on the signed share",
}
"""The models of the study in order: the base model, and the trained ones."""
REFERENCES = ("random-offers", "conceder", "linear", "boulware")
PARTNERS: Mapping[str, str] = {"conceder": "met", "boulware": "met", "tit-for-tat": "never met", "micro": "never met"}
"""The partners of the evaluation, and whether GRPO met them in training."""
CLAIMS = (
    ("clone", "base-constrained"),
    ("clone", "random-offers"),
    ("relabelled", "clone"),
    ("grpo", "relabelled"),
    ("grpo", "random-offers"),
    ("grpo", "linear"),
)
"""The reported differences: the first policy minus the second."""
GOAL = "goal"
_RANGE = (0.0, 10.0)
# Task id and seat.
_TaskSeat = tuple[str, int]


@dataclass(slots=True)
class Results:
    """GOAL and turns of every policy with every partner.

    Attributes:
        goals: by policy and partner; for each training seed, GOAL by task and seat. Policies that are not trained have
            one entry, :data:`~studies.learn_smol.stages.SHARED`.
        turns: by policy: the number of own turns, and of those that were not an action or not allowed.
    """

    goals: dict[tuple[str, str], dict[str, dict[_TaskSeat, float]]] = field(default_factory=dict)
    turns: dict[str, list[int]] = field(default_factory=dict)

    def add(self, folder: Path, evaluation: str = EVALUATION) -> None:
        """Adds an evaluation from the directory of a training seed, or from the shared one."""
        for run in sorted((folder / evaluation / "runs").iterdir()):
            # Runs are named POLICY-vs-PARTNER-NUMBER.
            policy, partner = run.name.rsplit("-", 1)[0].split("-vs-")
            rows = [row for row in seat_results(read_run(run)) if row.policies[row.seat][0] == policy]
            goals = {(row.task, row.seat): row.values[GOAL] for row in rows}
            self.goals.setdefault((policy, partner), {})[folder.name] = goals
            counts = self.turns.setdefault(policy, [0, 0])
            counts[0] += sum(row.counts.turns for row in rows)
            counts[1] += sum(row.counts.illegal + (row.counts.invalid or 0) for row in rows)

    def mean(self, policy: str, partner: str) -> Estimate | None:
        """Returns the mean over tasks, each task's over seats and training seeds; ``None`` without episodes."""
        seeds = self.goals.get((policy, partner), {}).values()
        values = [(task, goal) for goals in seeds for (task, _), goal in goals.items()]
        return estimate([goal for _, goal in values], [task for task, _ in values], _RANGE) if values else None

    def difference(self, one: str, other: str, partner: str, seed: str = "") -> Estimate | None:
        """Returns the mean of ``one`` minus ``other``, paired by training seed, task and seat.

        Args:
            one: a policy.
            other: the policy that is subtracted; a policy that is not trained is the same for every seed.
            partner: the partner of both.
            seed: a training seed; all seeds by default.
        """
        first, second = self.goals.get((one, partner), {}), self.goals.get((other, partner), {})
        pairs = [
            (goals, second.get(name) or second.get(SHARED, {})) for name, goals in first.items() if seed in ("", name)
        ]
        values = [(task, a[task, seat] - b[task, seat]) for a, b in pairs for task, seat in sorted(a.keys() & b.keys())]
        return difference_estimate([v for _, v in values], [task for task, _ in values], _RANGE) if values else None

    def by_seed(self, one: str, other: str, partner: str, seeds: Sequence[str]) -> list[float]:
        """Returns the mean difference of each training seed that has episodes of both policies."""
        own = [self.difference(one, other, partner, seed) for seed in seeds]
        return [item.mean for item in own if item is not None]


def write_report(folder: Path, seeds: Sequence[int]) -> Path:
    """Writes ``report.md``, ``goal.csv``, ``differences.csv``, ``minutes.csv`` and ``goal.svg``; returns the first.

    Args:
        folder: the directory of the study, with one evaluation for each seed and one of the references.
        seeds: the training seeds.
    """
    results = Results()
    names = [str(seed) for seed in seeds]
    for name in (SHARED, *names):
        results.add(folder / name)
    goals, differences, times = _goals(results), _differences(results, names), _times(folder)
    begin, turns, paired, minutes = _TEXTS
    report = Report(
        name="report",
        title="SmolLM2-135M: cloning, self-reinforcement and GRPO, decided over training seeds",
        parts=[begin.format(seeds=", ".join(names)), goals, turns, differences, paired, METHOD, minutes, times],
        sheets=[goals, differences, times],
        charts=lambda: {"goal": _chart(results)},
    )
    return report.write(folder, ("svg",), markdown=True)[0]


_TEXTS = (
    "SmolLM2-135M-Instruct on bargaining tasks with `brief` prompts, LoRA in bfloat16; training seeds {seeds}. GOAL, "
    "from 0 to 10, on test tasks that no stage trained on, each in both seats, at temperature 0.7. No stage met "
    "`boulware`.",
    "Turns: own turns that were not an action or not allowed, of all own turns in the evaluation.",
    "Differences are paired by training seed, task and seat. *over seeds* is the 95 % t-interval of the seeds' means, "
    "which decides the verdict together with *p*: how another training seed would do, on these tasks. *p* is of the "
    "t-test over seeds, adjusted for all differences of the table (Benjamini and Hochberg). A difference holds if its "
    "interval does not hold 0 and p is below 0.05. *over tasks* is an interval for "
    "these seeds and other tasks; it decides nothing, since it says nothing of another seed.",
    "Wall and processor minutes of all stages; seeds run side by side.",
)


def _goals(results: Results) -> Sheet:
    rows: list[tuple[Value, ...]] = []
    for policy, title in [*TITLES.items(), *((name, f"script `{name}`") for name in REFERENCES)]:
        turns, failed = results.turns.get(policy, (0, 0))
        means = [results.mean(policy, partner) for partner in PARTNERS]
        rows.append((title, *means, failed / turns if turns else None))
    columns = ("GOAL", *(f"{partner} ({how})" for partner, how in PARTNERS.items()), "turns not legal %")
    return Sheet("goal", columns, rows, formats={columns[-1]: show_percent})


def _differences(results: Results, seeds: Sequence[str]) -> Sheet:
    pairs = [(one, other, partner) for one, other in CLAIMS for partner in PARTNERS]
    rows: list[tuple[Value, ...]] = []
    means = [results.by_seed(*item, seeds) for item in pairs]
    for item, own, p in zip(pairs, means, adjusted_p(means), strict=True):
        one, other, partner = item
        rows.append((f"{one} - {other}", partner, *decided(own, p), p, shown(own), results.difference(*item)))
    columns = ("difference", "partner", "over seeds", "verdict", "p", "each seed", "over tasks")
    return Sheet("differences", columns, rows, formats={"p": "{:.3f}".format})


def decided(means: Sequence[float], p: float | None = None) -> tuple[str, str]:
    """Returns the interval over seeds as text, and the verdict that follows from it.

    Args:
        means: the mean difference of each training seed.
        p: the p that is adjusted for all differences of the table; ``None`` if the difference was declared before.
    """
    if len(means) < 2:
        return "n/a", "open: two seeds or more decide"
    gain = over_seeds(means, gain_range("goal"))
    return gain.text(), verdict(gain, p=p or 0.0)


def adjusted_p(means: Sequence[Sequence[float]]) -> list[float | None]:
    """Returns the p of each difference over seeds, adjusted for all of them; ``None`` with fewer than two seeds."""
    several = [own for own in means if len(own) > 1]
    tested = iter(p_values(several, [0.0] * len(several)))
    return [next(tested) if len(own) > 1 else None for own in means]


def shown(means: Sequence[float]) -> str:
    """Returns the seeds' means as text."""
    return ", ".join(map(show_number, means))


def _times(folder: Path) -> Sheet:
    """Minutes by stage, summed over seeds and over the runs of a study that was interrupted."""
    sums: dict[str, list[float]] = {}
    for _, line in read_lines(folder / TIMES):
        record = decode_json(line)
        item = sums.setdefault(record["stage"], [0.0, 0.0])
        item[0] += record["seconds"] / 60
        item[1] += record["cpu_seconds"] / 60
    sums["all"] = [sum(item[0] for item in sums.values()), sum(item[1] for item in sums.values())]
    one = "{:.1f}".format
    rows = [(name, wall, processor) for name, (wall, processor) in sums.items()]
    return Sheet("minutes", ("stage", "wall", "processor"), rows, formats={"wall": one, "processor": one})


def _chart(results: Results) -> Figure:
    """GOAL of every stage and script with its interval, a panel for each partner."""
    panels = []
    for partner, how in PARTNERS.items():
        means = [(TITLES.get(name, name), results.mean(name, partner)) for name in (*TITLES, *REFERENCES)]
        lines = [(name.replace("`", ""), item) for name, item in means if item is not None]
        panels.append(Panel("GOAL (scale 0 to 10)", lines, f"partner: {partner} ({how} in training)"))
    return forest_chart(panels, "GOAL on test tasks")
