"""The report: GOAL of every stage and reference by partner, and paired differences between stages, over test tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.files import csv_text, read_lines, write_text_atomically
from sotopia_env.json_text import decode_json
from sotopia_env.reports import (
    METHOD,
    Estimate,
    difference_estimate,
    estimate,
    new_figure,
    save_figure,
    seat_results,
    show_number,
)
from sotopia_env.storage import read_run
from studies.learn_smol.stages import EVALUATION, SHARED, TIMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: Mapping[str, str] = {
    "base": "SmolLM2-135M, free text",
    "base-constrained": "SmolLM2-135M, constrained to legal moves",
    "clone": "clone of `conceder` and `linear`",
    "sr-1": "+ self-reinforcement, round 1",
    "sr-2": "+ self-reinforcement, round 2",
    "grpo": "+ multi-turn GRPO",
}
"""What the study trains and what it begins from, in their order."""
REFERENCES = ("random-offers", "conceder", "linear", "boulware")
PARTNERS: Mapping[str, str] = {"conceder": "seen", "boulware": "unseen"}
"""The partners of the evaluation; whether the learner met them in training."""
CLAIMS = (
    ("clone", "base"),
    ("clone", "base-constrained"),
    ("sr-1", "clone"),
    ("sr-2", "sr-1"),
    ("sr-2", "clone"),
    ("grpo", "sr-2"),
    ("grpo", "clone"),
)
"""Differences that are reported: the first less the second."""
GOAL = "goal"
_RANGE = (0.0, 10.0)
_Place = tuple[str, int]  # task and seat


@dataclass(slots=True)
class Results:
    """GOAL and turns of every policy with every partner.

    Attributes:
        goals: by policy and partner; for each training seed, GOAL by task and seat. What is not trained has one entry,
            :data:`~studies.learn_smol.stages.SHARED`.
        turns: by policy: all own turns, and those that were no action or not allowed.
    """

    goals: dict[tuple[str, str], dict[str, dict[_Place, float]]] = field(default_factory=dict)
    turns: dict[str, list[int]] = field(default_factory=dict)

    def add(self, folder: Path) -> None:
        """Adds the evaluation in the directory of a training seed, or of what all seeds share."""
        for run in sorted((folder / EVALUATION / "runs").iterdir()):
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
        """Returns the mean of ``one`` less ``other``, paired by training seed, task and seat.

        Args:
            one: a policy.
            other: the policy that is subtracted; one that is not trained is the same for every seed.
            partner: of both.
            seed: a training seed; all of them by default.
        """
        first, second = self.goals.get((one, partner), {}), self.goals.get((other, partner), {})
        pairs = [
            (goals, second.get(name) or second.get(SHARED, {})) for name, goals in first.items() if seed in ("", name)
        ]
        values = [(task, a[task, seat] - b[task, seat]) for a, b in pairs for task, seat in sorted(a.keys() & b.keys())]
        return difference_estimate([v for _, v in values], [task for task, _ in values], _RANGE) if values else None


def write_report(folder: Path, seeds: Sequence[int]) -> Path:
    """Writes ``report.md``, ``goal.csv``, ``differences.csv`` and ``goal.svg`` into ``folder``, and returns the first.

    Args:
        folder: of the study, with one evaluation for each seed and one of the references.
        seeds: the training seeds.
    """
    results = Results()
    names = [str(seed) for seed in seeds]
    for name in (SHARED, *names):
        results.add(folder / name)
    goals, differences = _goal_rows(results), _difference_rows(results, names)
    write_text_atomically(folder / "goal.csv", csv_text(goals[0], goals[1:]))
    write_text_atomically(folder / "differences.csv", csv_text(differences[0], differences[1:]))
    save_figure(_chart(results), folder / "goal", ("svg",))
    text = _TEXT.format(
        seeds=", ".join(names), method=METHOD, goals=_markdown(goals), differences=_markdown(differences),
        times=_markdown(_time_rows(folder)),
    )  # fmt: skip
    write_text_atomically(folder / "report.md", text)
    return folder / "report.md"


_TEXT = """# A small real model learns from its own play

SmolLM2-135M-Instruct on bargaining tasks with `brief` prompts, LoRA in bfloat16; training seeds {seeds}. GOAL, from 0
to 10, on test tasks that no stage trained on, each in both seats, at temperature 0.7. No stage met `boulware`.

{goals}

Turns: own turns that were not an action or not allowed, of all own turns in the evaluation.

![GOAL of every stage](goal.svg)

Differences are paired by training seed, task and seat. The mean over all seeds has a 95 % interval over tasks, which
holds these seeds fixed: how far another seed would be off is seen in the last column, each seed's own mean.

{differences}

{method}

Wall and processor minutes of all stages; seeds run side by side.

{times}
"""


def _goal_rows(results: Results) -> list[list[str]]:
    head = [f"{partner} ({how})" for partner, how in PARTNERS.items()]
    rows = [["GOAL", *head, "turns not legal"]]
    for policy, title in [*TITLES.items(), *((name, f"script `{name}`") for name in REFERENCES)]:
        turns, failed = results.turns.get(policy, (0, 0))
        cells = [_cell(results.mean(policy, partner)) for partner in PARTNERS]
        rows.append([title, *cells, f"{failed / turns:.0%}" if turns else "n/a"])
    return rows


def _difference_rows(results: Results, seeds: Sequence[str]) -> list[list[str]]:
    rows = [["difference", "partner", "all seeds", "each seed"]]
    for one, other in CLAIMS:
        for partner in PARTNERS:
            own = [results.difference(one, other, partner, seed) for seed in seeds]
            each = ", ".join(show_number(None if item is None else item.mean) for item in own)
            rows.append([f"{one} - {other}", partner, _cell(results.difference(one, other, partner)), each])
    return rows


def _cell(item: Estimate | None) -> str:
    return "n/a" if item is None else f"{show_number(item.mean)} [{show_number(item.low)}, {show_number(item.high)}]"


def _time_rows(folder: Path) -> list[list[str]]:
    """Minutes by stage, summed over seeds and over the runs of a study that was interrupted."""
    sums: dict[str, list[float]] = {}
    for _, line in read_lines(folder / TIMES):
        record = decode_json(line)
        item = sums.setdefault(record["stage"], [0.0, 0.0])
        item[0] += record["seconds"] / 60
        item[1] += record["cpu_seconds"] / 60
    sums["all"] = [sum(item[0] for item in sums.values()), sum(item[1] for item in sums.values())]
    return [["stage", "wall", "processor"], *([name, f"{a:.1f}", f"{b:.1f}"] for name, (a, b) in sums.items())]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body))


def _chart(results: Results) -> Figure:
    """GOAL of every stage and script with its interval, a colour for each partner."""
    names = [*TITLES, *REFERENCES]
    figure = new_figure(7.0, 0.42 * len(names) + 1.2)
    axes = figure.subplots()
    for number, (partner, how) in enumerate(PARTNERS.items()):
        for row, name in enumerate(names):
            item, height = results.mean(name, partner), row + 0.24 * (number - 0.5)
            if item is not None and item.low is not None and item.high is not None:
                axes.plot([item.low, item.high], [height, height], color=f"C{number}", linewidth=1.6)
            if item is not None:
                label = f"{partner} ({how})" if name == "clone" else None
                axes.plot(item.mean, height, "o", color=f"C{number}", markersize=5, label=label)
    axes.set_yticks(range(len(names)), [TITLES.get(name, name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("GOAL on test tasks, 0 to 10 (mean, 95 % interval over tasks)")
    axes.legend(title="partner", frameon=False)
    axes.grid(axis="x", linewidth=0.3)
    return figure
