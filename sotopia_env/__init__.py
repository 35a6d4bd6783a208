"""SOTOPIA as a multi-agent reinforcement-learning environment.

``sotopia_v0.env()`` is the PettingZoo environment, ``gymnasium.make("sotopia_env/Sotopia-v0")`` the single-agent
view. Reading order: scenario, action, dynamics, observation, reward, environment. Importing the package opens no
file of the user's, no socket, and loads neither a language-model client nor a deep-learning library.
"""

from sotopia_env import sotopia_v0
from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.moved import name_moved_modules
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.action import ACTION_TYPES, NO_ACTION, Action, ActionType, ParseFailure, parse
from sotopia_env.world.dynamics import EpisodeState, Rules, SilenceRule, StopReason, Turn
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score, read_episodes
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision, Policy
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import DIMENSIONS, RANGES, Dimension, Scalarisation
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task
from sotopia_env.world.taskset import Cast, TaskSet, sample_tasks
from sotopia_env.world.turn_order import TurnOrder

name_moved_modules()
sotopia_v0.register_environments()

__all__ = [
    "ACTION_TYPES",
    "DIMENSIONS",
    "NO_ACTION",
    "RANGES",
    "Action",
    "ActionType",
    "Cast",
    "Character",
    "Decision",
    "Dimension",
    "Episode",
    "EpisodeState",
    "Evaluation",
    "Evaluator",
    "Move",
    "MoveKind",
    "Observation",
    "ParseFailure",
    "Policy",
    "Relationship",
    "RelationshipKind",
    "Rules",
    "Scalarisation",
    "Scenario",
    "Score",
    "Seat",
    "SilenceRule",
    "SotopiaError",
    "StopReason",
    "Table",
    "Task",
    "TaskSet",
    "Turn",
    "TurnOrder",
    "parse",
    "read_episodes",
    "sample_tasks",
    "sotopia_v0",
]
