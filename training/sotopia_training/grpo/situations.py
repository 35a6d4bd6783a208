"""Situations for training and testing a policy: tasks × seats × partners × seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from sotopia_env import tasks
from sotopia_env.chat_model import make_model
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError, PolicyError, Verbatim
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_policy, task_rules
from sotopia_env.policies import Decision, Policy
from sotopia_env.runs.plan import DEFAULT_RULES
from sotopia_env.world import Observation, Rules, Task, TaskSet, TurnOrder


@dataclass(frozen=True, slots=True)
class Situation:
    """One episode to be played by the focal policy.

    Attributes:
        task: the task of the episode.
        seat: the focal agent's id.
        partner: the policy of every other seat.
        seed: the seed of turn order and partners.
        rules: the turn order and limits.
    """

    task: Task
    seat: str
    partner: Policy
    seed: int = 0
    rules: Rules = DEFAULT_RULES


class UndrawnPartner:
    """A placeholder for a partner that is drawn when the episode is played (:mod:`sotopia_training.grpo.self_play`)."""

    name = "self-play"
    parameters: Mapping[str, Any] = {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Raises :class:`PolicyError`, because no partner was drawn."""
        raise PolicyError(f"{self.name}: expected a partner to be drawn before the episode is played")


class NamedPartners(Settings):
    """Settings of partners that do not change.

    Attributes:
        share: the share of the groups of episodes, relative to the other shares.
        policies: the names or paths of the policies, which are equally likely.
    """

    share: float = Field(ge=0)
    policies: tuple[str, ...] = ()


class PastSelves(Settings):
    """Settings of the pool of past selves.

    Attributes:
        share: the share of the groups of episodes, relative to the other shares.
        every: the number of optimiser steps between two members.
        size: the number of members, which are the newest past selves.
        priority: the exponent of a member's weight, which is the policy's rate of losses to it to this power; 0 draws
            all members with equal probability.
    """

    share: float = Field(ge=0)
    every: int = Field(default=25, ge=1)
    size: int = Field(default=4, ge=1)
    priority: float = Field(default=1.0, ge=0)


class SelfPlaySettings(Settings):
    """Settings of self-play: the shares of the partners of whole episodes.

    Attributes:
        scripts: the scripted policies.
        frozen: models that do not change, e.g. an earlier stage's directory or a model on a server.
        past: the pool of past selves.
        seed: the seed of the draws.
    """

    scripts: NamedPartners = NamedPartners(share=0)
    frozen: NamedPartners = NamedPartners(share=0)
    past: PastSelves = PastSelves(share=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_members(self) -> SelfPlaySettings:
        for name, group in (("scripts", self.scripts), ("frozen", self.frozen)):
            if bool(group.share) != bool(group.policies):
                raise InvalidValueError(
                    field=name,
                    expected="policies and a share above 0",
                    got=Verbatim(f"a share of {group.share:g} for {len(group.policies)} policies"),
                )
        if not self.scripts.share + self.frozen.share + self.past.share:
            raise InvalidValueError(expected="a share above 0")
        return self


class SituationSettings(Settings):
    """Settings of a list of situations.

    Attributes:
        tasks: a task file, instead of ``families``; the ``rules`` of play in a YAML file apply.
        families: the names of verified families.
        level: the difficulty of generated tasks.
        count: the number of generated tasks.
        task_seed: the seed of the generated tasks.
        partners: policies by name or path, e.g. ``linear:horizon=4``, the directory of a trained model (a past self),
            or a language model on a server (frozen). They alternate between tasks: all episodes of a task have one
            partner, and those of the next task have the next partner.
        self_play: draws the partners in training instead of ``partners``.
        max_turns: the limit on turns of an episode; ``None`` uses that of the file's rules, the scenario's, or 20.
        worths: whether seats read tables of worths; ``None`` uses the file's rules, or yes.
        both_seats: whether the focal policy plays every seat in turn, or only the first.
        seed: the seed of turn order and partners.
    """

    tasks: str | None = None
    families: tuple[str, ...] = ()
    level: str = "medium"
    count: int = Field(default=100, ge=1)
    task_seed: int = Field(default=0, ge=0)
    partners: tuple[str, ...] = ()
    self_play: SelfPlaySettings | None = None
    max_turns: int | None = Field(default=None, ge=1)
    worths: bool | None = None
    both_seats: bool = True
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_partners(self) -> SituationSettings:
        if bool(self.partners) == (self.self_play is not None):
            raise InvalidValueError(field="partners", expected="at least one, or self_play instead")
        return self


def read_tasks(settings: SituationSettings) -> Sequence[Task]:
    """Returns the tasks.

    Raises:
        InvalidValueError: neither or both of ``tasks`` and ``families`` are set, or one cannot be read.
    """
    if bool(settings.tasks) == bool(settings.families):
        raise InvalidValueError(field="situations", expected="either tasks (a file) or families")
    if settings.tasks:
        return list(tasks.load(settings.tasks))
    return list(tasks.generate(settings.families, settings.count, settings.task_seed, settings.level))


def situation_count(settings: SituationSettings) -> int:
    """Returns the number of situations of the settings, without connecting to a server."""
    return sum(len(task.agents) if settings.both_seats else 1 for task in read_tasks(settings))


def most_turns(settings: SituationSettings) -> int:
    """Returns the maximum number of turns of one seat in an episode."""
    rules = _rules(settings)
    return max(_most_turns(rules, task) for task in read_tasks(settings))


def _most_turns(rules: Rules, task: Task) -> int:
    limit = rules.turn_limit(task)
    if limit is None:
        assert rules.max_rounds is not None
        return rules.max_rounds
    # Rounded up: the seats that begin may have one turn more than the others. In reactive order one may have them all.
    return limit if rules.turn_order is TurnOrder.REACTIVE else -(-limit // len(task.agents))


def _rules(settings: SituationSettings) -> Rules:
    return task_rules(settings.tasks or "", max_turns=settings.max_turns, worths=settings.worths)


def situations(
    settings: SituationSettings, task_list: Sequence[Task] | TaskSet | None = None, models: ModelPool | None = None
) -> list[Situation]:
    """Returns the situations in a fixed order.

    Args:
        settings: the settings of the situations.
        task_list: the tasks, instead of those in the settings.
        models: creates partners that are models on servers, with their addresses and limits.
    """
    partners = [make_policy(spec, models or make_model) for spec in settings.partners] or [UndrawnPartner()]
    rules = _rules(settings)
    result = []
    for number, task in enumerate(read_tasks(settings) if task_list is None else task_list):
        for seat in task.agents if settings.both_seats else task.agents[:1]:
            partner = partners[number % len(partners)]
            result.append(Situation(task, seat, partner, _seed(settings.seed, task, seat), rules))
    return result


def _seed(seed: int, task: Task, seat: str) -> int:
    digest = hashlib.sha256(f"{seed}:{task.content_hash}:{seat}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
