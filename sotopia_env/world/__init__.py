"""The world: situations, actions, rules, observations, rewards and episodes; pure functions and frozen records."""

from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Evaluator, Score
from sotopia_env.world.observation import Observation
from sotopia_env.world.reward import DIMENSIONS, Dimension, Scalarisation
from sotopia_env.world.scenario import Character, Relationship, Scenario, Seat, Task
from sotopia_env.world.taskset import TaskSet
from sotopia_env.world.turn_order import TurnOrder

__all__ = [
    "DIMENSIONS",
    "Action",
    "Character",
    "Dimension",
    "Evaluator",
    "Observation",
    "Relationship",
    "Rules",
    "Scalarisation",
    "Scenario",
    "Score",
    "Seat",
    "Task",
    "TaskSet",
    "TurnOrder",
]
