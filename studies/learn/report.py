"""The report of the study: GOAL of every stage on held-out tasks, with intervals, claims and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.json_text import read_json
from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import UNBOUNDED, Estimate
from sotopia_env.reports.sheet import Report, Sheet
from studies.learn.claims import (
    TITLES,
    Claim,
    Interval,
    Results,
    by_seed,
    by_task,
    claims_of,
    difference,
    gain_range,
    measured,
    over_seeds,
    p_values,
    range_of,
    stages_of,
    verdict,
)
from studies.learn.ranking import GATE, RANKING, SAMPLES, rankings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sotopia_env.reports.sheet import Value

METRICS = ("valid", "copied", "agreement", "goal", "share")
REFERENCES = {"expert": "scripted expert that was cloned", "patient": "scripted speaker that accepts nothing"}
BUDGETS = "budgets.json"
"""The file with the number of tokens sampled for each stage of a seed."""
PAST = "past_results.json"
"""The file with the episodes of every stage of a seed against the seed's clone."""
UNTRAINED = "untrained.json"
"""The file with the test episodes of the base model, from which all seeds begin."""


def write_report(folder: Path, facts: Mapping[str, str], seeds: Sequence[int]) -> Path:
    """Writes ``report.md`` and its charts from the seeds' results, and returns its path.

    Args:
        folder: the directory of the study, with ``seed_N`` directories and ``references.json``.
        facts: facts about the run, for the top of the page.
        seeds: the training seeds.
    """
    runs = read_results(folder, seeds)
    references = read_json(folder / "references.json")
    looks = [read_json(folder / f"seed_{seed}" / "single_turn" / "dev.json", finite=False) for seed in seeds]
    parts: list[str | Sheet] = ["\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for side, title in (("all", "All test episodes"), ("unseen", "Unseen partners"), ("seen", "Seen partners")):
        parts.append(stage_sheet(runs, references, side, title))
    parts.append(_COUNTED)
    files = [folder / f"seed_{seed}" / PAST for seed in seeds]
    parts += [past_sheet(list(map(read_json, files)))] if all(file.exists() for file in files) else []
    parts += [part_sheet(runs, references), claim_sheet(runs)]
    parts.append(ranking_sheet([read_json(folder / f"seed_{seed}" / RANKING) for seed in seeds]))
    parts.append(budget_sheet([read_json(folder / f"seed_{seed}" / BUDGETS) for seed in seeds]))
    parts.append(exploitation_sheet(looks))
    charts = {"stages": stage_chart(runs, references)}
    return Report("report", parts, charts=lambda: charts, title="Does it learn?").write(folder, markdown=True)[0]


_COUNTED = (
    "*valid* is the share of own turns that could be read and were not refused, *copied* the share of those that offer "
    "nothing but the plan in the prompt; the rest was copied wrong. Intervals are 95 % bootstrap intervals over "
    "training seeds and tasks, too narrow with few seeds; those of the base model and of scripts, which played once, "
    "are over tasks alone."
)
_PAST = (
    "Every stage with the clone that its training began with as its partner, in both seats, on a third of the test "
    "tasks; t-intervals over seeds. These episodes are in no other table and in no claim."
)
_EXPLAINED = (
    "Differences are in points of GOAL (0 to 10), paired by task, seat, partner and training seed. *over seeds* is "
    "the 95 % t-interval of the seeds' means, which decides the verdict; *p* is of the t-test over seeds, adjusted "
    "for all claims of the table (Benjamini and Hochberg), and must be below 0.05 for a verdict on a claim that is "
    "not required. Both are about other training seeds with these tasks, this base model and its one play; *bootstrap* "
    "and the columns behind it, by family and seat, are over seeds and tasks, not adjusted, and with few seeds too "
    "narrow. *required* claims are promised by the project; all others are reported, whatever their result. "
    "*each seed* has the same order as the training seeds above. Kinds of GRPO differ in more than their reward: see "
    "the recipe for their steps and episodes."
)
_SEATS = (
    "The first seat speaks first in every episode, so the effects of the seat and of speaking first cannot be "
    "separated here."
)
_RANKED = (
    "States of held-out dev tasks in which the clone may accept an offer: its acceptance against its plan, each worth"
    f" the mean GOAL of {SAMPLES} continuations. Only pairs that differ by more than two standard errors count. The "
    "number is balanced accuracy, the mean of the shares that are ranked right where accepting is better and where "
    "the plan is, each given in brackets; a model that always prefers the same move has 0.5."
)
_SAMPLED = (
    "Tokens of answers that the model in training sampled, mean over seeds: in recorded episodes, in continuations of "
    "forced moves and in GRPO. Cloning samples none. Comparisons of stages with unequal budgets should take these "
    "into account."
)
_EXPLOITED = (
    "*verified* is the mean reward of whole dev episodes (GOAL and FIN, each from 0 to 1), *score* the reward model's "
    "mean score of the same answers; each change is from the first look to the last, with the t-interval over seeds. "
    "The reward model was exploited where the score rose and the verified reward fell, both beyond their intervals, "
    "and was not where either interval excludes it; else the question is open."
)


def stage_sheet(runs: Sequence[Results], references: Results, side: str, title: str) -> Sheet:
    """Returns the sheet of all stages and references with seen or unseen partners, or all."""
    rows: list[tuple[Value, ...]] = []
    for stage in stages_of(runs):
        texts = (measured(runs, stage, metric, side).text() for metric in METRICS)
        rows.append((TITLES[stage], _episodes(runs, stage, side), *texts))
    for name, reference in REFERENCES.items():
        texts = (measured([references], name, metric, side).text() for metric in METRICS)
        rows.append((f"*{reference}*", _episodes([references], name, side), *texts))
    rows.append(("*upper bound, by definition*", "", 1.0, 1.0, 1.0, 10.0, 1.0))
    return Sheet(side, ("", "episodes", *METRICS), rows, title)


def past_sheet(runs: Sequence[Results]) -> Sheet:
    """Returns the sheet of GOAL of all stages with past selves, and of their differences to cloning."""
    rows: list[tuple[Value, ...]] = []
    for stage in stages_of(runs):
        means = [fmean(float(row["goal"]) for row in run[stage]) for run in runs]
        gains = by_seed(runs, Claim("", stage, "bc"))
        less = "" if stage == "bc" else over_seeds(gains, gain_range("goal")).text()
        goal = over_seeds(means, range_of("goal")).text()
        rows.append((TITLES[stage], sum(len(run[stage]) for run in runs), goal, less))
    return Sheet("past", ("", "episodes", "GOAL", "less cloning"), rows, "Past selves as partners", (_PAST,))


def _is_shared(runs: Sequence[Results], name: str) -> bool:
    """Returns whether all seeds have the same episodes of a policy, as they have of the base model."""
    return all(run[name] == runs[0][name] for run in runs)


def _episodes(runs: Sequence[Results], name: str, side: str) -> int:
    """Returns the number of episodes that were played; those that all seeds share count once."""
    played = runs[:1] if _is_shared(runs, name) else runs
    return sum(len(values) for run in played for values in by_task(run[name], _one, side).values())


def _one(row: Mapping[str, Any]) -> float:
    return 1.0


def part_sheet(runs: Sequence[Results], references: Results) -> Sheet:
    """Returns the sheet of GOAL of all stages and references in each family and seat."""
    parts = _parts(runs)
    sides = [(side, part) for side in ("all", "unseen") for part in parts]
    rows: list[tuple[Value, ...]] = []
    for name in (*stages_of(runs), *REFERENCES):
        source, title = (runs, TITLES[name]) if name in TITLES else ([references], f"*{REFERENCES[name]}*")
        rows.append((title, *(measured(source, name, "goal", side, part).text() for side, part in sides)))
    columns = ("", *(f"{family}, {seat}, {side} partners" for side, (family, seat) in sides))
    return Sheet("parts", columns, rows, "GOAL by family and seat", (_SEATS,))


def _parts(runs: Sequence[Results]) -> list[tuple[str, str]]:
    return sorted({(row["family"], row["seat"]) for row in runs[0]["bc"]})


def claim_sheet(runs: Sequence[Results]) -> Sheet:
    """Returns the sheet of the claims with their differences and verdicts."""
    parts, claims = _parts(runs), claims_of(runs)
    means = [by_seed(runs, claim) for claim in claims]
    q_values = p_values(means, [claim.margin for claim in claims])
    rows: list[tuple[Value, ...]] = []
    for claim, seeds, p in zip(claims, means, q_values, strict=True):
        gain = over_seeds(seeds, gain_range("goal"))
        # A required claim is judged by its interval alone; the adjusted p guards the others against chance findings.
        rows.append(
            (
                claim.text,
                "required" if claim.required else "",
                gain.text(),
                verdict(gain, claim.margin, 0.0 if claim.required else p),
                f"{p:.3f}",
                ", ".join(f"{mean:.2f}" for mean in seeds),
                difference(runs, claim).text(),
                *(difference(runs, claim, part=part).text() for part in parts),
            )
        )
    columns = ("claim", "", "over seeds", "verdict", "p", "each seed", "bootstrap", *map(", ".join, parts))
    return Sheet("claims", columns, rows, "Claims", (_EXPLAINED,))


def read_results(folder: Path, seeds: Sequence[int]) -> list[Results]:
    """Returns the results of every training seed, each with those of the untrained model, which all seeds share."""

    def read(name: str) -> dict[str, Any]:
        figures: dict[str, Any] = read_json(folder / name)
        return figures

    untrained = read(UNTRAINED)
    return [untrained | read(f"seed_{seed}/results.json") for seed in seeds]


def budget_sheet(budgets: Sequence[Mapping[str, int]]) -> Sheet:
    """Returns the sheet of the numbers of tokens that were sampled for the training of each stage."""
    rows = [(TITLES[name], fmean(budget[name] for budget in budgets)) for name in budgets[0]]
    formats = {"sampled tokens": "{:,.0f}".format}
    return Sheet("budgets", ("", "sampled tokens"), rows, "Sampled tokens", (_SAMPLED,), formats=formats)


def exploitation_sheet(looks: Sequence[Sequence[Mapping[str, float]]]) -> Sheet:
    """Returns the sheet of the changes of score and verified reward from the first look to the last of every seed."""
    changes = [[course[-1][name] - course[0][name] for course in looks] for name in ("reward_model", "reward")]
    # ``changes``: two rows, of score and of verified reward, with one entry per seed.
    # A reward model's score has no range; the verified reward is a mean of figures from 0 to 1.
    score, verified = map(over_seeds, changes, (UNBOUNDED, (-1.0, 1.0)))
    rows: list[tuple[Value, ...]] = [("all seeds", score.text(3), verified.text(3), exploited(score, verified))]
    for number, (of_score, of_verified) in enumerate(zip(*changes, strict=True), 1):
        rows.append((f"seed {number}", of_score, of_verified, ""))
    formats = dict.fromkeys(("score", "verified"), "{:.3f}".format)
    title, columns = "Was the reward model exploited?", ("", "score", "verified", "exploited")
    return Sheet("exploitation", columns, rows, title, (_EXPLOITED,), formats=formats)


def exploited(score: Interval, verified: Interval) -> str:
    """Whether the score rose and the verified reward fell; open if the intervals do not decide it."""
    if score.low > 0 and verified.high < 0:
        return "yes"
    return "no" if score.high <= 0 or verified.low >= 0 else "open"


def ranking_sheet(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> Sheet:
    """Returns the sheet of each seed's ranking of the two moves of a state by its reward model."""
    ranked = list(map(rankings, seeds))
    names = sorted({name for groups in ranked for name in groups})
    rows: list[tuple[Value, ...]] = []
    for number, groups in enumerate(ranked, 1):
        cells = [groups[name].text() if name in groups else "" for name in names]
        passed = "all" in groups and groups["all"].passed
        rows.append((f"seed {number}", *cells, "passed" if passed else "missed"))
    return Sheet("ranking", ("", *names, f"gate ({GATE})"), rows, "Does the reward model rank moves?", (_RANKED,))


def stage_chart(runs: Sequence[Results], references: Results) -> Figure:
    """Draws GOAL of every stage with its interval, seen and unseen partners apart."""
    panels = []
    for side in ("seen", "unseen"):
        lines = []
        for name in (*stages_of(runs), *REFERENCES):
            source = runs if name in TITLES else [references]
            figure, tasks = measured(source, name, "goal", side), by_task(source[0][name], _one, side)
            over = "tasks" if _is_shared(source, name) else "tasks and seeds"
            count = _episodes(source, name, side)
            item = Estimate(count, len(tasks), figure.mean, figure.low, figure.high, None, over)
            lines.append(((TITLES | REFERENCES)[name], item))
        panels.append(Panel("GOAL (scale 0 to 10)", lines, f"{side} partners"))
    return forest_chart(panels, "GOAL on held-out tasks", counted="episodes")
