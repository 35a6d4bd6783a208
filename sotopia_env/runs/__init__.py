"""Runs: many episodes planned, played, resumed, evaluated and forecast."""

from sotopia_env.runs.evaluate import EvaluationResult, evaluate_run
from sotopia_env.runs.participants import Session, in_order_of
from sotopia_env.runs.plan import DEFAULT_RULES, EpisodePlan, Orders, all_matchups, plan_episodes
from sotopia_env.runs.play import evaluate_episode, play_episode
from sotopia_env.runs.rollout import RunResult, run_episodes
from sotopia_env.runs.spec import EpisodeOptions, PlayOptions, RunSpec, TaskOptions, WorkOptions

__all__ = [
    "DEFAULT_RULES",
    "EpisodeOptions",
    "EpisodePlan",
    "EvaluationResult",
    "Orders",
    "PlayOptions",
    "RunResult",
    "RunSpec",
    "Session",
    "TaskOptions",
    "WorkOptions",
    "all_matchups",
    "evaluate_episode",
    "evaluate_run",
    "in_order_of",
    "plan_episodes",
    "play_episode",
    "run_episodes",
]
