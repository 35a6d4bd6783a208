"""Episodes of the study, played to the end: one that fails ends the stage, instead of being missed in its figures."""

from __future__ import annotations

from collections.abc import Sequence

from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.episode import Episode, Evaluator


def play_all(
    plans: Sequence[EpisodePlan], evaluator: Evaluator | None = None, run_dir: str | None = None
) -> tuple[Episode, ...]:
    """Returns the episodes of all plans, in their order.

    Args:
        plans: what to play.
        evaluator: scores the episodes.
        run_dir: where they are recorded; what stands there is not played again.

    Raises:
        RuntimeError: an episode failed.
    """
    run = run_episodes(plans, evaluator=evaluator, run_dir=run_dir, concurrency=512, progress=False)
    if run.failures:
        raise RuntimeError(f"{len(run.failures)} of {len(plans)} episodes failed: {run.failures[0].message}")
    return run.episodes


def seat_of(episode: Episode, policy: str) -> str:
    """The agent that a policy played."""
    return next(info.agent for info in episode.policies if info.name == policy)
