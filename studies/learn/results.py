"""Results of one policy in the test episodes: the figures of the report, one record for each episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.outcomes import MoveKind
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, RecordedTurn
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task
from studies.learn.episodes import play_all, seat_of
from studies.learn.recipe import Recipe
from studies.learn.tasks import PLAN


def results(policy: Policy, tasks: Sequence[Task], recipe: Recipe, seed: int) -> list[dict[str, Any]]:
    """Returns the figures of every episode of ``policy`` in both seats, on a third of the tasks with seen partners."""
    rows = []
    for side, partners in (("seen", recipe.training_partners), ("unseen", recipe.test_partners)):
        mine = tasks[0::3] if side == "seen" else [task for number, task in enumerate(tasks) if number % 3]
        # Each partner plays its own tasks, so that all of them are met without multiplying the episodes.
        for number, settings in enumerate(partners):
            played = _played(policy, settings, mine[number :: len(partners)], recipe, seed)
            rows += [{"seen": side == "seen", "partner": settings.partition(":")[0], **row} for row in played]
    return rows


def past_results(
    policy: Policy, past: Policy, tasks: Sequence[Task], recipe: Recipe, seed: int
) -> list[dict[str, Any]]:
    """Returns the figures of every episode of ``policy`` with a past self, in both seats."""
    return [{"partner": past.name, **row} for row in _played(policy, past, tasks, recipe, seed)]


def _played(
    policy: Policy, partner: Policy | str, tasks: Sequence[Task], recipe: Recipe, seed: int
) -> list[dict[str, Any]]:
    plans = plan_episodes(tasks, [(policy, partner)], rules=recipe.rules, seed=seed)
    return [figures(episode, policy.name) for episode in play_all(plans, VerifiedOutcome())]


def figures(episode: Episode, policy: str) -> dict[str, Any]:
    """Returns the figures of an episode, for the seat of ``policy``."""
    seat = seat_of(episode, policy)
    own = [item for item in episode.turns if item.turn.actor == seat]
    refused = [item for item in own if item.turn.violation is not None or _unread(item)]
    evaluation = episode.evaluation()
    assert evaluation is not None
    assert evaluation.outcome is not None
    plan = episode.task.scenario.seats[episode.task.seat_of[seat]].private_data[PLAN]
    return {
        "task": episode.task.id,
        "family": episode.task.scenario.shared_data["family"],
        "seat": seat,
        # A turn whose move was refused is not valid, even if its words were heard.
        "valid": 1 - len(refused) / max(1, len(own)),
        "copied": 1 - sum(_miscopied(item.turn, plan) for item in own) / max(1, len(own)),
        "agreement": float(evaluation.outcome.agreed),
        "goal": float(evaluation.by_agent[seat][Dimension.GOAL].value),
        "share": float(evaluation.outcome.shares[episode.task.seat_of[seat]]),
    }


def _miscopied(turn: Turn, plan: JsonValue) -> bool:
    """Whether the turn offers anything other than the plan in the prompt, whether or not the offer counted."""
    move = (turn.attempted or turn.action).move
    return move is not None and move.kind is MoveKind.PROPOSE and move.content != plan


def _unread(item: RecordedTurn) -> bool:
    return item.generation is not None and item.generation.parse_failure is not None
