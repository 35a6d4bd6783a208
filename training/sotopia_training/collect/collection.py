"""Collection of training episodes: expert with expert, a model with itself, or an agent with a partner.

The second step of SOTOPIA-π (arXiv 2403.08715, section 4): each round has 100 scenarios, and ten pairs of characters
play each of them. The result is an ordinary run directory, which can be resumed and compared; it also contains the
tasks and the settings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from sotopia_env import naming
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming.seats import SELF, check_seat_names, partners_of
from sotopia_env.policies import Policy
from sotopia_env.reports.seat_results import OVERALL, SHARE, seat_results
from sotopia_env.runs import evaluate_run, run_episodes
from sotopia_env.runs.evaluate import EvaluationResult
from sotopia_env.runs.plan import EpisodePlan, Orders
from sotopia_env.runs.rollout import RunResult
from sotopia_env.runs.spec import PlayOptions, WorkOptions
from sotopia_env.storage import read_run
from sotopia_env.world import Evaluator, Rules, TaskSet
from sotopia_training.collect.task_generation import SourceName, TaskSettings, make_tasks
from sotopia_training.stage.access import run_with_models
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
_METRICS = ("goal", "financial_and_material_benefits", SHARE, OVERALL)


class PlaySettings(PlayOptions):
    """Settings of play, which several collections of one pipeline share.

    ``orders`` is ``both`` by default: every pair plays one episode per first seat. The paper plays ten episodes with
    ten pairs, as ``alternate`` does. In self-play one policy holds all seats.

    Attributes:
        max_failed: the share of the episodes that may fail; if more fail, the stage is not complete.
    """

    orders: Orders = "both"
    max_failed: float = Field(default=0.0, ge=0, le=1)


class CollectionSettings(Settings):
    """Settings of one collection.

    Attributes:
        agent: a policy by name, as ``sotopia rollout`` takes it: a scripted one, ``PROVIDER/MODEL``, or the directory
            of a trained model.
        partner: the policy in the other seats, or policies by the names of seats (:mod:`sotopia_env.naming.seats`),
            where ``self`` is the agent; by default the agent plays with itself.
        tasks: the tasks to play.
        evaluator: scores every episode when it ends; ``none`` leaves that to a later stage.
        play: the settings of play; its limit and turn order precede those of a task file.
        rules_of: the source whose ``rules`` of play apply, if it is a YAML task file; by default ``tasks.given``.
        output: the run directory.
    """

    agent: str
    partner: str | dict[str, str] | None = None
    tasks: TaskSettings = TaskSettings()
    evaluator: str = "verified"
    play: PlaySettings = PlaySettings()
    rules_of: SourceName | None = None
    output: str

    @property
    def rules(self) -> Rules:
        """The order and limits of play: those of ``play``, or else those in a YAML task file."""
        source = self.rules_of or self.tasks.given or ""
        return naming.task_rules(source, **self.play.rule_options)


def partner_names(partner: str | Mapping[str, str] | None) -> list[str]:
    """Returns the names of the policies of a setting ``partner``, without the agent itself."""
    names = [partner] if isinstance(partner, str) else list((partner or {}).values())
    return [name for name in names if name != SELF]


@dataclass(frozen=True)
class Participants:
    """Policies and evaluator as objects; ``None`` creates the one that the settings name.

    Attributes:
        agent: the focal policy.
        partner: the policy of the other seats, or policies by the names of seats.
        evaluator: the evaluator of the episodes.
    """

    agent: Policy | None = None
    partner: Policy | Mapping[str, Policy] | None = None
    evaluator: Evaluator | None = None


def run(settings: CollectionSettings, participants: Participants = Participants()) -> None:
    """Collects episodes into ``output``; continues an interrupted collection, and does nothing if it is complete.

    Raises:
        InvalidValueError: a setting is invalid; raised before the first episode.
        SotopiaError: the budget is spent, or too many episodes failed; the same call continues.
    """
    stage = StageDirectory(Path(settings.output), "collection", settings)
    if stage.is_complete():
        return
    models = ModelPool(settings.play.models)
    # Before the directory is created: a misspelt name leaves no files.
    participants = _participants(settings, models, participants)
    stage.open()
    tasks = make_tasks(settings.tasks, stage.path)
    plans = _plans(settings, tasks, participants)
    logger.info("%s: %d episodes of %d tasks are played", stage.path, len(plans), len(tasks))
    result = _play(settings, plans, participants.evaluator, models)
    judge = participants.evaluator
    figures = {"planned": result.planned, "failed": len(result.failures), "unscored": result.unscored}
    figures |= run_figures(settings.output, judge.name if judge else None)
    stage.finish(figures)
    logger.info("%s: complete; %s", stage.path, _summary(figures))


def _participants(settings: CollectionSettings, models: ModelPool, overrides: Participants) -> Participants:
    manner: Mapping[str, Any] = settings.play.manner

    def make(policy: Policy | None, spec: str) -> Policy:
        return policy if policy is not None else naming.make_policy(spec, models, manner)

    agent, partner = make(overrides.agent, settings.agent), overrides.partner
    # Without a partner the agent plays all seats: a second copy of its model would double the memory.
    if partner is None and isinstance(settings.partner, str):
        partner = make(None, settings.partner)
    elif partner is None and isinstance(settings.partner, dict):
        partner = {name: agent if spec == SELF else make(None, spec) for name, spec in settings.partner.items()}
    evaluator = overrides.evaluator or naming.make_optional_evaluator(settings.evaluator, model_factory=models.judge)
    return Participants(agent, partner, evaluator)


def _plans(settings: CollectionSettings, tasks: TaskSet, participants: Participants) -> list[EpisodePlan]:
    agent, partner, play = participants.agent, participants.partner, settings.play
    assert agent is not None
    if not isinstance(partner, Mapping):
        return play.plans(tasks, [(agent,) if partner is None else (agent, partner)], settings.rules)
    check_seat_names(tasks, partner, "partner")
    plans: dict[str, EpisodePlan] = {}
    alternates = play.orders == "alternate"
    # Every seating is listed here, so that none is rotated; and each task is planned alone.
    fixed = play.model_copy(update={"both_seats": False, "orders": "first" if alternates else play.orders})
    for number, task in enumerate(tasks):
        first = number % len(task.agents) if alternates else settings.rules.first_seat
        rules = replace(settings.rules, first_seat=first)
        for seat in task.agents if play.both_seats else task.agents[:1]:
            by_agent = {seat: agent, **partners_of(task, seat, partner)}
            seating = [by_agent[other] for other in task.agents]
            plans |= {plan.key: plan for plan in fixed.plans([task], [seating], rules)}
    return list(plans.values())


def _play(
    settings: CollectionSettings, plans: list[EpisodePlan], evaluator: Evaluator | None, models: ModelPool
) -> RunResult:
    play = settings.play

    async def work(stop: Stop) -> RunResult:
        return await run_episodes(
            plans,
            evaluator=evaluator,
            run_dir=settings.output,
            concurrency=play.concurrency,
            timeout=play.timeout,
            stop=stop,
            ledger=models.ledger,
        )

    result = run_with_models(models, Path(settings.output), work)
    # Failed episodes are not in the run, so the same command plays them again.
    if len(result.failures) > play.max_failed * result.planned:
        first = result.failures[0]
        raise SotopiaError(
            f"{settings.output}: {len(result.failures)} of {result.planned} episodes failed, the first with "
            f"{first.kind}: {first.message}; the same command tries them again, or raise play.max_failed"
        )
    return result


def run_figures(run: str | Path, evaluator: str | None = None) -> dict[str, Any]:
    """Returns the size of a run and, with an evaluator, the mean scores of each of its policies.

    These are GOAL, FIN, the signed share of the possible gain, the share of ``losing_deals`` (worse for the seat than
    none; GOAL pays both alike), and the overall score.
    """
    turns = [len(episode.turns) for episode in read_run(run)]
    figures: dict[str, Any] = {"episodes": len(turns), "turns": sum(turns)}
    if evaluator is None:
        return figures
    by_policy: dict[str, dict[str, list[float]]] = {}
    for row in seat_results(read_run(run), evaluator):
        values = {metric: row.values[metric] for metric in _METRICS if metric in row.values}
        if SHARE in values:
            values["losing_deals"] = float(values[SHARE] < 0)
        for metric, value in values.items():
            by_policy.setdefault(row.policy, {}).setdefault(metric, []).append(value)
    means = {
        policy: {metric: round(fmean(values), 4) for metric, values in metrics.items()}
        for policy, metrics in by_policy.items()
    }
    return {**figures, "scores": means}


class RatingSettings(WorkOptions):
    """Settings of the evaluation of an existing run.

    Attributes:
        run: the directory of the run, whose episodes receive the evaluations.
        evaluator: the name of the evaluator.
        max_unscored: the share of the episodes that may remain unscored; if more do, the stage is not complete.
        output: the stage's directory.
    """

    run: str
    evaluator: str
    max_unscored: float = Field(default=0.1, ge=0, le=1)
    output: str


def rate(settings: RatingSettings, evaluator: Evaluator | None = None) -> None:
    """Evaluates a run; continues an interrupted evaluation, and does nothing if it is complete.

    Args:
        settings: the settings of the stage.
        evaluator: used instead of ``settings.evaluator``.

    Raises:
        InvalidValueError: the run or the evaluator does not exist.
        SotopiaError: the budget is spent, or too many episodes remain unscored; the same call continues.
    """
    stage = StageDirectory(Path(settings.output), "rating", settings)
    if stage.is_complete():
        return
    models = ModelPool(settings.models)
    judge = evaluator or naming.make_optional_evaluator(settings.evaluator, model_factory=models.judge)
    if judge is None:
        raise InvalidValueError("an unrated run cannot be filtered", field="evaluator", got="none")
    stage.open()
    logger.info("%s: %s rates the episodes of %s", stage.path, judge.name, settings.run)

    async def work(stop: Stop) -> EvaluationResult:
        return await evaluate_run(
            settings.run,
            judge,
            concurrency=settings.concurrency,
            timeout=settings.timeout,
            stop=stop,
            ledger=models.ledger,
        )

    result = run_with_models(models, stage.path, work)
    if result.unscored > settings.max_unscored * result.episodes:
        raise SotopiaError(
            f"{settings.run}: {result.unscored} of {result.episodes} episodes are unscored, the first because "
            f"{result.reason}; the same command asks again, or raise max_unscored"
        )
    figures = {"episodes": result.episodes, "unscored": result.unscored, **run_figures(settings.run, judge.name)}
    stage.finish(figures)
    logger.info("%s: complete; %s", stage.path, _summary(figures))


def _summary(figures: Mapping[str, Any]) -> str:
    """Returns the figures in one line."""
    scores = figures.get("scores", {}).items()
    means = [
        f"{policy}: " + ", ".join(f"{name} {mean:.2f}" for name, mean in by_metric.items())
        for policy, by_metric in scores
    ]
    return "; ".join([", ".join(f"{name} {value}" for name, value in figures.items() if name != "scores"), *means])


__all__ = [
    "CollectionSettings",
    "Participants",
    "PlaySettings",
    "RatingSettings",
    "partner_names",
    "rate",
    "run",
    "run_figures",
]
