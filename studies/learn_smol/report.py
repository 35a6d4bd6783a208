"""The report: GOAL of every stage and reference by partner, the declared claims, and differences by partner.

A claim about a method is about other training seeds and other tasks, so it is decided over both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import METHOD, Estimate, estimate, show_number
from sotopia_env.reports.seat_results import SeatResult, seat_results
from sotopia_env.reports.seats.crossed import crossed_estimate
from sotopia_env.reports.sheet import Report, Sheet, Value, show_percent
from sotopia_env.storage import read_run
from studies.accepted_offers import Accepted, accepted_sheet, add_accepted
from studies.learn.claims import MARGIN, gain_range, over_seeds, p_values, verdict
from studies.learn_smol import stages
from studies.learn_smol.stages import EVALUATION, SHARED
from studies.study import times_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: Mapping[str, str] = {
    "base-constrained": "SmolLM2-135M, constrained to legal moves",
    "clone": "clone of the teacher",
    "grpo": "+ multi-turn GRPO on FIN",
    "relabelled": "clone + the teacher's answers in its own states",
}
"""The models of the study in order: the base model, and the trained ones."""
REFERENCES = ("random-offers", "conceder", "linear", "boulware")
MET, NEVER_MET = "met", "never met"
PARTNERS: Mapping[str, str] = {**dict.fromkeys(stages.MET, MET), **dict.fromkeys(stages.NEVER_MET, NEVER_MET)}
"""The partners of the evaluation, and whether GRPO met them in training."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that was declared before the study ran.

    Attributes:
        one: the policy that should score higher.
        other: the policy that is subtracted.
        side: the partners, :data:`MET` or :data:`NEVER_MET`, whose mean counts.
        margin: the points of GOAL by which ``one`` may be worse; 0 if it must be better.
    """

    one: str
    other: str
    side: str
    margin: float = 0.0

    @property
    def text(self) -> str:
        """The claim in words."""
        sign = f"≥ {self.other} - {self.margin}" if self.margin else f"> {self.other}"
        return f"{self.one} {sign}, partners {self.side}"


CLAIMS = (
    Claim("clone", "random-offers", MET),
    Claim("clone", "random-offers", NEVER_MET),
    Claim("grpo", "clone", MET),
    Claim("grpo", "linear", MET, MARGIN),
    Claim("grpo", "random-offers", NEVER_MET),
)
"""The claims that decide the study."""
RELABELLED = Claim("relabelled", "clone", MET)
"""The claim about an arm that is trained on demand; decided apart, so that the others do not depend on it."""
PAIRS = (
    ("clone", "base-constrained"),
    ("clone", "random-offers"),
    ("grpo", "clone"),
    ("grpo", "random-offers"),
    ("grpo", "linear"),
    ("relabelled", "clone"),
)
"""The differences that are reported for every partner: the first policy minus the second."""
GOAL, FIN = "goal", "financial_and_material_benefits"
_RANGE = (0.0, 10.0)
# Task id and seat.
_TaskSeat = tuple[str, int]


@dataclass(slots=True)
class Results:
    """GOAL, losing deals and turns of every policy with every partner.

    Attributes:
        goals: by policy and partner; for each training seed, GOAL by task and seat. Policies that are not trained have
            one entry, :data:`~studies.learn_smol.stages.SHARED`.
        losing: by policy and partner: of each episode, whether its deal was worse for the policy than none.
        turns: by policy: the number of own turns, and of those that were not an action or not allowed.
        accepted: by policy: which open offers it accepted, by their worth, and which of its own would lose.
    """

    goals: dict[tuple[str, str], dict[str, dict[_TaskSeat, float]]] = field(default_factory=dict)
    losing: dict[tuple[str, str], list[bool]] = field(default_factory=dict)
    turns: dict[str, list[int]] = field(default_factory=dict)
    accepted: Accepted = field(default_factory=dict)

    def add(self, folder: Path, evaluation: str = EVALUATION) -> None:
        """Adds an evaluation from the directory of a training seed, or from the shared one."""
        for run in sorted((folder / evaluation / "runs").iterdir()):
            # Runs are named POLICY-vs-PARTNER-NUMBER.
            policy, partner = run.name.rsplit("-", 1)[0].split("-vs-")
            episodes = list(read_run(run))
            for episode in episodes:
                add_accepted(episode, self.accepted, [policy])
            rows = own_rows(seat_results(episodes), policy)
            goals = {(row.task, row.seat): row.values[GOAL] for row in rows}
            self.goals.setdefault((policy, partner), {})[folder.name] = goals
            # FIN is below 0 only if a deal is worse than none, which GOAL pays like none.
            self.losing.setdefault((policy, partner), []).extend(row.values[FIN] < 0 for row in rows)
            counts = self.turns.setdefault(policy, [0, 0])
            counts[0] += sum(row.counts.turns for row in rows)
            counts[1] += sum(row.counts.illegal + (row.counts.invalid or 0) for row in rows)

    def by_task(self, policy: str, partner: str) -> dict[str, dict[_TaskSeat, float]]:
        """Returns GOAL by training seed, task and seat; with :data:`MET` or :data:`NEVER_MET`, means of these partners.

        The mean has the tasks and seats that were played with all of them.
        """
        if partner not in (MET, NEVER_MET):
            return self.goals.get((policy, partner), {})
        parts = [self.goals.get((policy, name), {}) for name, how in PARTNERS.items() if how == partner]
        seeds = set(parts[0]).intersection(*parts[1:])
        return {
            seed: {
                key: fmean(part[seed][key] for part in parts)
                for key in set(parts[0][seed]).intersection(*(part[seed] for part in parts[1:]))
            }
            for seed in sorted(seeds)
        }

    def mean(self, policy: str, partner: str) -> Estimate | None:
        """Returns the mean over tasks, each task's over seats and training seeds; ``None`` without episodes."""
        seeds = self.by_task(policy, partner).values()
        values = [(task, goal) for goals in seeds for (task, _), goal in goals.items()]
        return estimate([goal for _, goal in values], [task for task, _ in values], _RANGE) if values else None

    def difference(self, one: str, other: str, partner: str) -> Estimate | None:
        """Returns the mean of ``one`` minus ``other``, with an interval over training seeds and tasks together.

        Args:
            one: a policy.
            other: the policy that is subtracted; a policy that is not trained is the same for every seed.
            partner: the partner of both, :data:`MET` or :data:`NEVER_MET`.
        """
        first, second, groups = self.by_task(one, partner), self.by_task(other, partner), []
        for weight, own, others in ((1.0, first, second), (-1.0, second, first)):
            values = _paired(own, others)
            if not values:
                return None
            goals, tasks, names = (list(column) for column in zip(*values, strict=True))
            # A policy that is not trained varies with its tasks alone.
            groups.append((weight, goals, tasks, [() if name == SHARED else (name,) for name in names]))
        return crossed_estimate(groups, _RANGE)

    def _pairs(self, one: str, other: str, partner: str, seeds: Sequence[str]) -> list[dict[_TaskSeat, float]]:
        """Returns the difference of every task of each training seed that has episodes of both policies."""
        first, second = self.by_task(one, partner), self.by_task(other, partner)
        pairs = []
        for seed in seeds:
            own, others = first.get(seed, {}), second.get(seed) or second.get(SHARED, {})
            pairs.append({key: own[key] - others[key] for key in sorted(own.keys() & others.keys())})
        return [gains for gains in pairs if gains]

    def by_seed(self, one: str, other: str, partner: str, seeds: Sequence[str]) -> list[float]:
        """Returns the mean difference of each training seed that has episodes of both policies, paired by task.

        One episode of a script is compared with those of all seeds, so that its chance does not show between seeds.
        """
        return [fmean(gains.values()) for gains in self._pairs(one, other, partner, seeds)]

    def over_tasks(self, one: str, other: str, partner: str, seeds: Sequence[str]) -> Estimate | None:
        """Returns the mean of tasks with an interval over tasks, for these training seeds; ``None`` without pairs."""
        pairs = self._pairs(one, other, partner, seeds)
        values = [(task, gain) for gains in pairs for (task, _), gain in gains.items()]
        gains, names = [gain for _, gain in values], [task for task, _ in values]
        # Without bounds: a difference has its interval on the plain scale, as that over seeds and its p.
        return estimate(gains, names, over="tasks") if values else None


def own_rows(rows: Sequence[SeatResult], policy: str) -> list[SeatResult]:
    """Returns the scored row of each episode in the policy's seat: the first one, also if it plays against itself."""
    own: dict[str, SeatResult] = {}
    for row in rows:
        if row.policies[row.seat][0] == policy:
            own.setdefault(row.key, row)
    # An episode without scores would otherwise end the report; differences leave its task out on both sides.
    return [row for row in own.values() if GOAL in row.values and FIN in row.values]


def _paired(
    own: Mapping[str, Mapping[_TaskSeat, float]], others: Mapping[str, Mapping[_TaskSeat, float]]
) -> list[tuple[float, str, str]]:
    """Returns GOAL, task and training seed where the other policy played the task too, with this seed if it has any."""
    values = []
    for seed, goals in own.items():
        if seed in others or SHARED in others:
            plays = [others.get(seed, others.get(SHARED, {}))]
        else:  # a script's episodes pair with those of all seeds
            plays = list(others.values()) if seed == SHARED else []
        values += [(goals[key], key[0], seed) for key in sorted(goals) if any(key in play for play in plays)]
    return values


def write_report(folder: Path, seeds: Sequence[int], changed: Sequence[str] = ()) -> Path:
    """Writes ``report.md``, ``goal.svg`` and the tables as CSV; returns the first.

    Args:
        folder: the directory of the study, with one evaluation for each seed and one of the references.
        seeds: the training seeds.
        changed: what differs from the declared study, as text.
    """
    results = Results()
    names = [str(seed) for seed in seeds]
    for name in (SHARED, *names):
        results.add(folder / name)
    goals, losing, claims = _goals(results), _losing(results), _claims(results, names)
    accepted = accepted_sheet(results.accepted, _policies())
    differences, times = _differences(results, names), times_sheet(folder)
    begin, turns, lost, read, declared, paired, minutes = _TEXTS
    parts: list[str | Sheet] = [begin.format(seeds=", ".join(names)), declared, claims]
    parts += [_APART] if RELABELLED.one in results.turns else []
    parts += [turns, goals, lost, losing]
    parts += [read, accepted]
    if changed:
        parts.insert(1, _CHANGED.format(changed=", ".join(f"`{item}`" for item in changed)))
    report = Report(
        name="report",
        title="SmolLM2-135M: clone and GRPO, decided over training seeds and tasks",
        parts=[*parts, paired, differences, METHOD, minutes, times],
        sheets=[claims, goals, losing, accepted, differences, times],
        charts=lambda: {"goal": _chart(results)},
    )
    return report.write(folder, ("svg",), markdown=True)[0]


_TEXTS = (
    "SmolLM2-135M-Instruct on bargaining tasks with `brief` prompts, LoRA; training seeds {seeds}. GOAL, "
    "from 0 to 10, on test tasks that no stage trained on, each in one seat, at temperature 0.7.",
    "Means, with intervals over tasks, these seeds fixed. Turns: own turns that were not an action or not allowed, of "
    "all own turns with the partners that the policy has here.",
    "Losing deals: deals that are worse for the policy than none, in percent of episodes. GOAL pays them like none.",
    "Accepted offers, in percent of the turns in which the policy could accept one, by what the best of them was "
    "worth to it, and how many of its new offers would be a loss to it. A script that concedes to the end accepts a "
    "gain in its last turn, and never accepts or offers a loss.",
    "The claims, declared before the study ran. *over seeds* is the 95 % t-interval of the seeds' means: the mean that "
    "other training seeds would have, on these tasks and with these episodes of scripts, which all seeds share. "
    "Against a script it is too narrow: the chance of its episodes is not counted. *over seeds and tasks* also says "
    "how other tasks would come out, and counts that chance; ‡ takes training seeds for people. *over tasks* is about "
    "other tasks with these very models: no verdict depends on it. *p* is of the "
    "two-sided t-test over seeds against 0 (or what the claim allows), adjusted for all rows of the table (Benjamini "
    "and Hochberg). A claim holds, or its opposite does, if neither interval holds 0 (or what the claim allows) and p "
    "is below 0.05.",
    "Differences by partner in the same way, none of which was declared. All are paired by task and seat, and by "
    "training seed if both policies were trained.",
    "Wall and processor minutes of all stages; seeds run side by side.",
)


_APART = (
    "The last row, on the relabelled clone, was declared apart: its p is not adjusted, nor are the others for it. That "
    "clone is trained for a quarter more steps than the other, so that a gain need not come from the labels."
)
_CHANGED = (
    "**This is not the declared study**, from which these settings differ: {changed}. Its claims, and what *met* and "
    "*never met* say of partners, are those of the declared study."
)


def _goals(results: Results) -> Sheet:
    rows: list[tuple[Value, ...]] = []
    for policy, title in _policies():
        turns, failed = results.turns.get(policy, (0, 0))
        means = [results.mean(policy, partner) for partner in PARTNERS]
        rows.append((title, *means, failed / turns if turns else None))
    columns = ("GOAL", *_partner_columns(), "turns not legal %")
    return Sheet("goal", columns, rows, formats={columns[-1]: show_percent})


def _losing(results: Results) -> Sheet:
    rows: list[tuple[Value, ...]] = []
    for policy, title in _policies():
        episodes = [results.losing.get((policy, partner)) for partner in PARTNERS]
        rows.append((title, *(fmean(losing) if losing else None for losing in episodes)))
    columns = _partner_columns()
    return Sheet("losing", ("losing deals %", *columns), rows, formats=dict.fromkeys(columns, show_percent))


def _policies() -> list[tuple[str, str]]:
    return [*TITLES.items(), *((name, f"script `{name}`") for name in REFERENCES)]


def _partner_columns() -> tuple[str, ...]:
    return tuple(f"{partner} ({how})" for partner, how in PARTNERS.items())


def _claims(results: Results, seeds: Sequence[str]) -> Sheet:
    families = [CLAIMS, *([(RELABELLED,)] if RELABELLED.one in results.turns else [])]
    rows: list[tuple[Value, ...]] = []
    for claims in families:
        items = [(claim.one, claim.other, claim.side, claim.margin) for claim in claims]
        decisions = _decisions(results, seeds, items)
        rows += [(claim.text, *decision) for claim, decision in zip(claims, decisions, strict=True)]
    return Sheet("claims", ("claim", *_DECIDED), rows, formats=_FORMATS)


def _differences(results: Results, seeds: Sequence[str]) -> Sheet:
    items = [(one, other, partner, 0.0) for one, other in PAIRS for partner in PARTNERS]
    items = [item for item in items if results.difference(*item[:3]) is not None]
    names = [(f"{one} - {other}", partner) for one, other, partner, _ in items]
    rows = [(*name, *row) for name, row in zip(names, _decisions(results, seeds, items), strict=True)]
    return Sheet("differences", ("difference", "partner", *_DECIDED), rows, formats=_FORMATS)


_DECIDED = ("over seeds", "verdict", "p", "each seed", "over seeds and tasks", "over tasks")
_FORMATS = {"p": "{:.3f}".format}


def _decisions(
    results: Results, seeds: Sequence[str], items: Sequence[tuple[str, str, str, float]]
) -> list[tuple[Value, ...]]:
    """Returns the cells of :data:`_DECIDED` for each pair of policies, partner and margin."""
    means = [results.by_seed(*item[:3], seeds) for item in items]
    rows: list[tuple[Value, ...]] = []
    for item, own, p in zip(items, means, adjusted_p(means, [item[3] for item in items]), strict=True):
        crossed = results.difference(*item[:3])
        interval, word = decided(own, p, item[3], crossed)
        rows.append((interval, word, p, shown(own), crossed, results.over_tasks(*item[:3], seeds)))
    return rows


def decided(
    means: Sequence[float], p: float | None = None, margin: float = 0.0, crossed: Estimate | None = None
) -> tuple[str, str]:
    """Returns the interval over seeds as text, and the verdict that follows from both intervals.

    Args:
        means: the mean difference of each training seed.
        p: the p that is adjusted for all differences of the table; ``None`` if there is no other.
        margin: how much worse the first policy may be.
        crossed: the difference over seeds and tasks; ``None`` if only seeds decide.
    """
    if len(means) < 2:
        return "n/a", "open: two seeds or more decide"
    gain = over_seeds(means, gain_range("goal"))
    word = verdict(gain, margin, p=p or 0.0)
    if crossed is not None and not word.startswith("open") and _holds(crossed, -margin):
        word = f"open: with other tasks {'it' if word == 'holds' else 'the opposite'} may not hold"
    return gain.text(), word


def _holds(interval: Estimate, value: float) -> bool:
    """Whether the value is compatible with the estimate: in its interval, or there is none."""
    return interval.low is None or interval.high is None or interval.low <= value <= interval.high


def adjusted_p(means: Sequence[Sequence[float]], margins: Sequence[float] = ()) -> list[float | None]:
    """Returns the p of each difference over seeds, adjusted for all of them; ``None`` with fewer than two seeds.

    Args:
        means: the seeds' means of each difference.
        margins: how much worse the first policy of each may be; 0 by default.
    """
    several = [(own, margin) for own, margin in zip(means, margins or [0.0] * len(means), strict=True) if len(own) > 1]
    tested = iter(p_values([own for own, _ in several], [margin for _, margin in several]))
    return [next(tested) if len(own) > 1 else None for own in means]


def shown(means: Sequence[float]) -> str:
    """Returns the seeds' means as text."""
    return ", ".join(map(show_number, means))


def _chart(results: Results) -> Figure:
    """GOAL of every stage and script with its interval, a panel for each partner."""
    panels = []
    for partner, how in PARTNERS.items():
        means = [(TITLES.get(name, name), results.mean(name, partner)) for name in (*TITLES, *REFERENCES)]
        lines = [(name.replace("`", ""), item) for name, item in means if item is not None]
        if lines:
            panels.append(Panel("GOAL (scale 0 to 10)", lines, f"partner: {partner} ({how} in training)"))
    return forest_chart(panels, "GOAL on test tasks")
