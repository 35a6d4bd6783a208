"""League: policies, such as the past selves of one training, meet in every role; a table says who beats whom as what.

Two policies meet in every task for each of its *sides*, a seat with its allies: one has the side, the other all other
seats. A policy beats the other as this side if its seats get more on average; equal rewards count half. The episodes
are an ordinary run, so that `sotopia compare` ranks the same policies.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from sotopia_env import naming
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.naming.seats import role_of, sides
from sotopia_env.policies import Policy
from sotopia_env.reports.intervals import estimate
from sotopia_env.reports.seat_results import SHARE, seat_results
from sotopia_env.reports.sheet import ESTIMATE, Report, Sheet
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.spec import TaskOptions
from sotopia_env.storage import read_run
from sotopia_env.world import Task
from sotopia_env.world.episode import Episode
from sotopia_training.stage.access import run_with_models
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
Score = tuple[str, str, str, float, str]
"""Policy, its side, the other policy, whether it got more (1, ½ or 0), and the task."""


class LeagueSettings(TaskOptions):
    """Settings of a league.

    Attributes:
        policies: policies by name or path. The output of a GRPO stage stands for its past selves and its model.
        evaluator: scores the episodes.
        output: the directory of the run and the table.
    """

    policies: tuple[str, ...] = Field(min_length=1)
    evaluator: str = "verified"
    output: str


def members(names: Iterable[str]) -> list[str]:
    """Returns the names of policies, with the past selves of GRPO stages, oldest first."""
    result = []
    for name in names:
        selves = sorted(Path(name).glob("pool/step_*[0-9]"), key=lambda path: int(path.name.removeprefix("step_")))
        result += [*(f"{path}:name={path.name}" for path in selves), name]
    return list(dict.fromkeys(result))


def run(settings: LeagueSettings) -> None:
    """Plays the league, or what is missing of it, and writes `league.md` and `league.csv`.

    Raises:
        InvalidValueError: there are fewer than two policies, two with one name, or a task in which nobody is against
            anybody.
    """
    models, names = ModelPool(settings.models), members(settings.policies)
    policies = [naming.make_policy(name, models, settings.manner) for name in names]
    if len({policy.name for policy in policies}) < max(2, len(policies)):
        got = Verbatim(", ".join(policy.name for policy in policies))
        raise InvalidValueError(
            field="policies", expected="two or more with different names", got=got, hint="rename one of them (name=…)"
        )
    judge = naming.make_evaluator(settings.evaluator, model_factory=models.judge)
    plans = list(_plans(settings, settings.task_set(), policies))
    stage = StageDirectory(Path(settings.output), "league", settings)
    if stage.is_complete():
        return
    stage.open()
    folder = stage.path / "run"
    options: dict[str, Any] = {"concurrency": settings.concurrency, "timeout": settings.timeout}

    async def play(stop: Any) -> Any:
        return await run_episodes(plans, evaluator=judge, run_dir=folder, stop=stop, ledger=models.ledger, **options)

    run_with_models(models, stage.path, play)
    sheet = league(scores(read_run(folder), judge.name), [policy.name for policy in policies])
    scored = {episode.key for episode in read_run(folder) if next(scores([episode], judge.name), None)}
    sheet = replace(sheet, notes=(*sheet.notes, *_unscored(plans, scored)))
    page = replace(sheet.crossed(("policy", "as"), "against"), notes=sheet.notes)
    report = Report("league", [page], [sheet], sheet.records(), title="League")
    report.write(stage.path, markdown=True)
    stage.finish({"episodes": len(plans), "league": sheet.records()})
    logger.info("league: %s", stage.path / "league.md")


def _unscored(plans: Iterable[EpisodePlan], scored: Collection[str]) -> Iterator[str]:
    """Yields a note on the episodes that failed or have no scores, by policy, if there are any."""
    counts = Counter(name for plan in plans if plan.key not in scored for name in {one.name for one in plan.policies})
    if counts:
        listing = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
        yield f"Without scores, and in no row: {listing}. Each is an episode of two policies."


def _plans(settings: LeagueSettings, tasks: Iterable[Task], policies: Sequence[Policy]) -> Iterator[EpisodePlan]:
    keys = set()
    for task in tasks:
        if len(sides(task)) < 2:
            raise InvalidValueError(field="tasks", expected="seats that are against each other", got=task.id)
        for side, (one, other) in itertools.product(sides(task), itertools.permutations(policies, 2)):
            seating = tuple(one if agent in side else other for agent in task.agents)
            for repeat in range(settings.repeats):
                plan = EpisodePlan(task, seating, settings.rules, settings.seed, repeat)
                # With two sides, every episode comes up twice: as the one side against the other, and the reverse.
                if plan.key not in keys:
                    keys.add(plan.key)
                    yield plan


def scores(episodes: Iterable[Episode], evaluator: str) -> Iterator[Score]:
    """Yields who got more in each scored episode, from the view of every policy that has all seats of one side."""
    for episode in episodes:
        rows = {f"agent_{row.seat}": row for row in seat_results([episode], evaluator)}
        rewards = {agent: row.values.get(SHARE, row.values.get("goal")) for agent, row in rows.items()}
        names = {policy.agent: policy.name for policy in episode.policies}
        for side in sides(episode.task):
            own, others = ([agent for agent in rewards if (agent in side) is which] for which in (True, False))
            (policy, *mixed), (other, *more) = ({names[agent] for agent in group} for group in (own, others))
            if mixed or more or policy == other or None in rewards.values():
                continue  # one policy on both sides, several on one, or unscored, which is no loss of anybody
            margin = fmean(rewards[agent] or 0.0 for agent in own) - fmean(rewards[agent] or 0.0 for agent in others)
            role = "+".join(sorted({role_of(episode.task, agent) for agent in side}))
            yield policy, role, other, 0.5 if abs(margin) < 1e-9 else float(margin > 0), episode.task.id


def league(results: Iterable[Score], policies: Sequence[str]) -> Sheet:
    """Returns the table, with a row for each policy, its side and the other policy."""
    cells: dict[tuple[str, str, str], tuple[list[float], list[str]]] = {}
    for policy, role, other, more, task in results:
        values, tasks = cells.setdefault((policy, role, other), ([], []))
        values.append(more)
        tasks.append(task)
    order = sorted(cells, key=lambda cell: (policies.index(cell[0]), cell[1], policies.index(cell[2])))
    rows = [(*cell, estimate(*cells[cell], (0, 1), "tasks")) for cell in order]
    return Sheet("league", ("policy", "as", "against", ESTIMATE), rows, title="Who beats whom, as what", notes=_NOTES)


_NOTES = (
    "The share of episodes in which the policy, in the seats of this side, got more on average than the other in all "
    "other seats; equal rewards count half. With 95 % intervals over tasks, each for itself: they are not adjusted for "
    "the number of rows. A rank is `sotopia compare` on the run.",
)
