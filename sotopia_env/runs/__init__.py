"""Runs: many episodes planned, played, resumed, evaluated and forecast."""

from sotopia_env.runs.evaluate import evaluate_run
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.runs.spec import RunSpec

__all__ = [
    "RunSpec",
    "evaluate_run",
    "plan_episodes",
    "run_episodes",
]
