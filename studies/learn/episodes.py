"""Plays the episodes of the study; a failed episode ends its stage instead of being missing from the figures."""

from __future__ import annotations

from collections.abc import Sequence

from sotopia_env.foundation.waiting import wait
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.episode import Episode, Evaluator


def play_all(
    plans: Sequence[EpisodePlan], evaluator: Evaluator | None = None, run_dir: str | None = None
) -> tuple[Episode, ...]:
    """Returns the episodes of all plans, in their order.

    Args:
        plans: the episodes to play.
        evaluator: scores the episodes.
        run_dir: the directory of the records; episodes that it already contains are not played again.

    Raises:
        RuntimeError: an episode failed.
    """
    # High concurrency fills the batches of the model in this process.
    run = wait(run_episodes(plans, evaluator=evaluator, run_dir=run_dir, concurrency=512, progress=False))
    if run.failures:
        raise RuntimeError(f"{len(run.failures)} of {len(plans)} episodes failed: {run.failures[0].message}")
    return run.episodes


def seat_of(episode: Episode, policy: str) -> str:
    """Returns the id of the agent that ``policy`` played."""
    return next(info.agent for info in episode.policies if info.name == policy)
