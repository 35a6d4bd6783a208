"""Which situations a policy is trained or tested in: tasks × seats × partners × seeds, as settings and as a list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from sotopia_env import tasks
from sotopia_env.chat_model import make_model
from sotopia_env.chat_model.pool import RunModels
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies.policy import Policy
from sotopia_env.runs.plan import DEFAULT_RULES
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet
from training.stage.settings import Settings


@dataclass(frozen=True, slots=True)
class Situation:
    """One episode to be played by the focal policy.

    Attributes:
        task: what it is about.
        seat: the focal agent's id.
        partner: sits in every other seat.
        seed: of turn order and partners.
        rules: order and limits.
    """

    task: Task
    seat: str
    partner: Policy
    seed: int = 0
    rules: Rules = DEFAULT_RULES


class SituationSettings(Settings):
    """A list of situations.

    Attributes:
        tasks: a task file; takes the place of ``families``.
        families: verified families, by name.
        level: their difficulty.
        count: how many tasks are generated.
        task_seed: of the generated tasks.
        partners: policies by name or path, e.g. ``linear:horizon=4``, the directory of a trained model (a past self),
            or a language model on a server (frozen).
            They take turns: each task is played with each seat against one of them, the next task against the next.
        max_turns: of an episode; ``None`` leaves it to the scenario and the default of 20.
        both_seats: whether the focal policy sits in every seat in turn, or only in the first.
        seed: of turn order and partners.
    """

    tasks: str | None = None
    families: tuple[str, ...] = ()
    level: str = "medium"
    count: int = Field(default=100, ge=1)
    task_seed: int = Field(default=0, ge=0)
    partners: tuple[str, ...] = Field(min_length=1)
    max_turns: int | None = Field(default=None, ge=1)
    both_seats: bool = True
    seed: int = Field(default=0, ge=0)


def read_tasks(settings: SituationSettings) -> Sequence[Task]:
    """Returns the tasks.

    Raises:
        InvalidValueError: neither or both of ``tasks`` and ``families`` are given, or one cannot be read.
    """
    if bool(settings.tasks) == bool(settings.families):
        raise InvalidValueError("situations: expected either tasks (a file) or families, got neither or both")
    if settings.tasks:
        return list(tasks.load(settings.tasks))
    return list(tasks.generate(settings.families, settings.count, settings.task_seed, settings.level))


def situations(
    settings: SituationSettings, given: Sequence[Task] | TaskSet | None = None, models: RunModels | None = None
) -> list[Situation]:
    """Returns the situations in a fixed order.

    Args:
        settings: which.
        given: the tasks, where they are not to be read.
        models: makes the models on servers that partners are, with their addresses and limits.
    """
    partners = [make(spec, models or make_model) for spec in settings.partners]
    rules = Rules() if settings.max_turns is None else replace(Rules(), max_turns=settings.max_turns)
    found = []
    for number, task in enumerate(read_tasks(settings) if given is None else given):
        for seat in task.agents if settings.both_seats else task.agents[:1]:
            partner = partners[number % len(partners)]
            found.append(Situation(task, seat, partner, _seed(settings.seed, task, seat), rules))
    return found


def _seed(seed: int, task: Task, seat: str) -> int:
    digest = hashlib.sha256(f"{seed}:{task.content_hash}:{seat}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
