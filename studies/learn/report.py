"""The report of the study: what every stage is worth on held-out tasks, with intervals, claims and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sotopia_env.files import write_text_atomically
from sotopia_env.json_text import read_json
from studies.learn.claims import (
    TITLES,
    Claim,
    Interval,
    Results,
    by_seed,
    by_task,
    claims_of,
    difference,
    measured,
    over_seeds,
    p_values,
    stages_of,
    verdict,
)
from studies.learn.ranking import GATE, RANKING, SAMPLES, rankings

METRICS = ("valid", "copied", "agreement", "goal", "share", "overall")
REFERENCES = {"expert": "scripted expert that was cloned", "patient": "scripted speaker that accepts nothing"}
BUDGETS = "budgets.json"
"""Tokens that were sampled for the training of each stage of a seed."""
PAST = "past_results.json"
"""The episodes of every stage of a seed with the seed's clone."""
UNTRAINED = "untrained.json"
"""The test episodes of the model that all seeds begin from."""


def write_report(folder: Path, facts: Mapping[str, str], seeds: Sequence[int]) -> Path:
    """Writes ``report.md`` and its pictures from the seeds' results, and returns its path.

    Args:
        folder: of the study, with ``seed_N`` directories in it and ``references.json``.
        facts: about the run, for the top of the page.
        seeds: training seeds.
    """
    runs = read_results(folder, seeds)
    references = read_json(folder / "references.json")
    looks = [read_json(folder / f"seed_{seed}" / "single_turn" / "dev.json", finite=False) for seed in seeds]
    plot_stages(runs, references, folder / "stages.png")
    lines = ["# Does it learn?", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    for side, title in (("all", "All test episodes"), ("unseen", "Unseen partners"), ("seen", "Seen partners")):
        lines += [f"## {title}", "", stage_table(runs, references, side), ""]
    lines += [_COUNTED, ""]
    files = [folder / f"seed_{seed}" / PAST for seed in seeds]
    if all(file.exists() for file in files):
        lines += ["## Past selves as partners", "", past_table(list(map(read_json, files))), "", _PAST, ""]
    lines += ["![GOAL by stage](stages.png)", "", "## GOAL by family and seat", ""]
    lines += [part_table(runs, references), "", _SEATS, ""]
    lines += ["## Claims", "", claim_table(runs), "", _EXPLAINED, ""]
    pairs = [read_json(folder / f"seed_{seed}" / RANKING) for seed in seeds]
    lines += ["## Does the reward model rank moves?", "", ranking_table(pairs), "", _RANKED, ""]
    budgets = [read_json(folder / f"seed_{seed}" / BUDGETS) for seed in seeds]
    lines += ["## What was sampled", "", budget_table(budgets), "", _SAMPLED, ""]
    lines += ["## Was the reward model exploited?", "", exploitation_table(looks), "", _EXPLOITED, ""]
    report = folder / "report.md"
    write_text_atomically(report, "\n".join(lines))
    return report


_COUNTED = (
    "*valid* is the share of own turns that could be read and were not refused, *copied* the share of those that offer "
    "nothing but the plan in the prompt: what falls short of 1 was copied wrong."
)
_PAST = (
    "Every stage with the clone that its training began with as its partner, in both seats, on a third of the test "
    "tasks; t-intervals over seeds. These episodes are in no other table and in no claim."
)
_EXPLAINED = (
    "Differences are in points of GOAL (0 to 10), paired by task, seat, partner and training seed. *over seeds* is "
    "the 95 % t-interval of the seeds' means, by which the verdict goes; *p* is of the t-test over seeds, adjusted "
    "for all claims of the table (Benjamini and Hochberg), and must be below 0.05 for a verdict on a claim that is "
    "not required. Both are about other training seeds with these tasks and this base model; *bootstrap* is over "
    "seeds and tasks, and with few seeds too narrow. *required* are those the project promises; the others are "
    "reported as they come out. *each seed* has the same order as the training seeds above. Kinds of GRPO differ in "
    "more than their reward: see the recipe for their steps and episodes."
)
_SEATS = (
    "The first seat speaks first in every episode, so what is the seat's and what is the first word's cannot be told "
    "apart here."
)
_RANKED = (
    "States of held-out dev tasks in which the clone may accept an offer: its acceptance against its plan, each worth"
    f" the mean GOAL of {SAMPLES} continuations. Only pairs that differ by more than two standard errors count. The "
    "number is balanced accuracy, the mean of the shares that are ranked right where accepting is better and where "
    "the plan is, each given in brackets: whoever always prefers one move has 0.5."
)
_SAMPLED = (
    "Tokens of answers that the model in training sampled, mean over seeds: in recorded episodes, in continuations of "
    "forced moves and in GRPO. Cloning samples none. Whoever compares stages of unequal budgets compares these too."
)
_EXPLOITED = (
    "*verified* is the mean reward of whole dev episodes (GOAL and FIN, each from 0 to 1), *score* what the reward "
    "model made of the same answers; each change is from the first look to the last, with the t-interval over seeds. "
    "The reward model was exploited where the score rose and the verified reward fell, both beyond their intervals, "
    "and was not where either interval excludes it; else the question is open."
)


def stage_table(runs: Sequence[Results], references: Results, side: str) -> str:
    """Returns the table of all stages and references on one side, in Markdown."""
    rows = [["", "episodes", *METRICS]]
    for stage in stages_of(runs):
        played = {json.dumps(run[stage]): by_task(run[stage], _one, side) for run in runs}  # the base's are one for all
        count = sum(len(values) for figures in played.values() for values in figures.values())
        texts = (measured(runs, stage, metric, side).text() for metric in METRICS)
        rows.append([TITLES[stage], str(count), *texts])
    for name, title in REFERENCES.items():
        count = sum(len(values) for values in by_task(references[name], _one, side).values())
        texts = (measured([references], name, metric, side).text() for metric in METRICS)
        rows.append([f"*{title}*", str(count), *texts])
    # `overall` is a mean over seven dimensions, of which the rules bound only some.
    rows.append(["*upper bound, by definition*", "", "1.00", "1.00", "1.00", "10.00", "1.00", "not bounded here"])
    return _markdown(rows)


def past_table(runs: Sequence[Results]) -> str:
    """Returns GOAL of all stages with past selves, and what each has over cloning, in Markdown."""
    rows = [["", "episodes", "GOAL", "less cloning"]]
    for stage in stages_of(runs):
        means = [fmean(float(row["goal"]) for row in run[stage]) for run in runs]
        gains = by_seed(runs, Claim("", stage, "bc"))
        less = "" if stage == "bc" else over_seeds(gains).text()
        rows.append([TITLES[stage], str(sum(len(run[stage]) for run in runs)), over_seeds(means).text(), less])
    return _markdown(rows)


def _one(row: Mapping[str, Any]) -> float:
    return 1.0


def part_table(runs: Sequence[Results], references: Results) -> str:
    """Returns GOAL of all stages and references in each family and seat, in Markdown."""
    parts = _parts(runs)
    sides = [(side, part) for side in ("all", "unseen") for part in parts]
    rows = [["", *(f"{family}, {seat}, {side} partners" for side, (family, seat) in sides)]]
    for name in (*stages_of(runs), *REFERENCES):
        source, title = (runs, TITLES[name]) if name in TITLES else ([references], f"*{REFERENCES[name]}*")
        rows.append([title, *(measured(source, name, "goal", side, part).text() for side, part in sides)])
    return _markdown(rows)


def _parts(runs: Sequence[Results]) -> list[tuple[str, str]]:
    return sorted({(row["family"], row["seat"]) for row in runs[0]["bc"]})


def claim_table(runs: Sequence[Results]) -> str:
    """Returns the claims with their differences and verdicts, in Markdown."""
    parts, claims = _parts(runs), claims_of(runs)
    means = [by_seed(runs, claim) for claim in claims]
    adjusted = p_values(means, [claim.margin for claim in claims])
    rows = [["claim", "", "over seeds", "verdict", "p", "each seed", "bootstrap", *map(", ".join, parts)]]
    for claim, seeds, p in zip(claims, means, adjusted, strict=True):
        gain = over_seeds(seeds)
        rows.append(
            [
                claim.text,
                "required" if claim.required else "",
                gain.text(),
                verdict(gain, claim.margin, 0.0 if claim.required else p),
                f"{p:.3f}",
                ", ".join(f"{mean:.2f}" for mean in seeds),
                difference(runs, claim).text(),
                *(difference(runs, claim, part=part).text() for part in parts),
            ]
        )
    return _markdown(rows)


def read_results(folder: Path, seeds: Sequence[int]) -> list[Results]:
    """Returns the results of every training seed, with those of the untrained model, which is one for all."""

    def read(name: str) -> dict[str, Any]:
        figures: dict[str, Any] = read_json(folder / name)
        return figures

    untrained = read(UNTRAINED)
    return [untrained | read(f"seed_{seed}/results.json") for seed in seeds]


def budget_table(budgets: Sequence[Mapping[str, int]]) -> str:
    """Returns how many tokens were sampled for the training of each stage, in Markdown."""
    rows = [["", "sampled tokens"]]
    rows += [[TITLES[name], f"{fmean(budget[name] for budget in budgets):,.0f}"] for name in budgets[0]]
    return _markdown(rows)


def exploitation_table(looks: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """Returns how score and verified reward changed from the first look to the last of every seed, in Markdown."""
    changes = [[course[-1][name] - course[0][name] for course in looks] for name in ("reward_model", "reward")]
    score, verified = map(over_seeds, changes)
    rows = [["", "score", "verified", "exploited"]]
    rows.append(["all seeds", score.text(3), verified.text(3), exploited(score, verified)])
    for number, (of_score, of_verified) in enumerate(zip(*changes, strict=True), 1):
        rows.append([f"seed {number}", f"{of_score:.3f}", f"{of_verified:.3f}", ""])
    return _markdown(rows)


def exploited(score: Interval, verified: Interval) -> str:
    """Whether the score rose and the verified reward fell; open where the intervals do not tell."""
    if score.low > 0 and verified.high < 0:
        return "yes"
    return "no" if score.high <= 0 or verified.low >= 0 else "open"


def ranking_table(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Returns how well the reward model of each seed ranks two moves of a state, in Markdown."""
    ranked = list(map(rankings, seeds))
    names = sorted({name for groups in ranked for name in groups})
    rows = [["", *names, f"gate ({GATE})"]]
    for number, groups in enumerate(ranked, 1):
        cells = [groups[name].text() if name in groups else "" for name in names]
        passed = "all" in groups and groups["all"].passed
        rows.append([f"seed {number}", *cells, "passed" if passed else "missed"])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# --- pictures ----------------------------------------------------------------------------------------------------


def plot_stages(runs: Sequence[Results], references: Results, path: Path) -> None:
    """Draws GOAL of every stage with its interval, seen and unseen partners apart."""
    from sotopia_env.reports.charts import new_figure, save_png

    names = [*stages_of(runs), *REFERENCES]
    figure = new_figure(9.0, 0.5 * len(names) + 1.4)
    axes = figure.subplots()
    for offset, side, colour in ((-0.17, "seen", "tab:blue"), (0.17, "unseen", "tab:orange")):
        gains = [
            measured(runs, n, "goal", side) if n in TITLES else measured([references], n, "goal", side) for n in names
        ]
        errors = [[f.mean - f.low for f in gains], [f.high - f.mean for f in gains]]
        places = [index + offset for index in range(len(names))]
        axes.errorbar(
            [f.mean for f in gains], places, xerr=errors, fmt="o", color=colour, capsize=3, label=f"{side} partners"
        )
    axes.set_yticks(range(len(names)), [(TITLES | REFERENCES)[name] for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("GOAL on held-out tasks, 0 to 10 (mean, 95 % interval)")
    axes.legend()
    axes.grid(axis="x", alpha=0.3)
    save_png(figure, path)
