"""Situations for training and testing a policy: tasks × seats × partners × seeds.

Every other seat has a partner of its own, by role if you like, or is played by the policy in training as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from sotopia_env import tasks
from sotopia_env.chat_model import ChatModel, make_model
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import FieldError, InvalidValueError, PolicyError, Verbatim
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_policy, task_rules
from sotopia_env.naming.seats import OTHER, SELF, partners_of, seats_named
from sotopia_env.policies import Decision, Policy
from sotopia_env.runs.plan import DEFAULT_RULES
from sotopia_env.world import Observation, Rules, Task, TaskSet, TurnOrder

PAST = "past"
"""In place of a policy: one of the past selves of the policy in training."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One episode to be played by the focal policy.

    Attributes:
        task: the task of the episode.
        seat: the focal agent's id.
        partners: the policies of other seats. The focal policy plays the seats without one too, and learns from what it
            does in each of them in a row of that seat alone.
        seed: the seed of turn order and partners.
        rules: the turn order and limits.
        shared: whether seats of one task may be played in one episode, by the policy in training.
    """

    task: Task
    seat: str
    partners: Mapping[str, Policy]
    seed: int = 0
    rules: Rules = DEFAULT_RULES
    shared: bool = False

    @property
    def learners(self) -> tuple[str, ...]:
        """The seats of the focal policy, the focal seat among them."""
        return tuple(agent for agent in self.task.agents if agent not in self.partners)

    @property
    def seating(self) -> Hashable:
        """What the situations share that can be played as one episode, each in a seat of its own."""
        policies = tuple((agent, id(policy)) for agent, policy in sorted(self.partners.items()))
        return (self.task.content_hash, policies, self.seed, self.rules)

    @property
    def partner(self) -> str:
        """The names of the others: one, if all are the same, or by agent id."""
        others = [agent for agent in self.task.agents if agent != self.seat]
        names = {agent: self.partners[agent].name if agent in self.partners else SELF for agent in others}
        alike = len({*names.values()}) == 1
        return names[others[0]] if alike else ", ".join(f"{agent}: {name}" for agent, name in names.items())


@dataclass(frozen=True)
class Ladder:
    """In place of a partner that is drawn when the episode is played (:mod:`sotopia_training.grpo.self_play`).

    Attributes:
        rungs: policies or :data:`PAST` or :data:`SELF`, each with its share.
        key: names the draw; seats with the same key have the same partner.
    """

    rungs: tuple[tuple[Policy | str, float], ...]
    key: str
    name: str = "ladder"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Raises :class:`PolicyError`, because no partner was drawn."""
        raise PolicyError(f"{self.name}: expected a partner to be drawn before the episode is played")


class LadderRung(Settings):
    """One of the partners of a seat.

    Attributes:
        policy: its name or path; ``past``, a past self; or ``self``, the policy in training.
        share: the share of the groups of episodes, relative to the other shares; 1 where others have one.
    """

    policy: str
    share: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _of_a_name(cls, value: Any) -> Any:
        return {"policy": value} if isinstance(value, str) else value


class PastSelves(Settings):
    """Settings of the pool of past selves.

    Attributes:
        every: the number of optimiser steps between two members.
        size: the number of members, which are the newest past selves.
        priority: the exponent of a member's weight, which is the policy's rate of losses to it to this power; 0 draws
            all members with equal probability.
    """

    every: int = Field(default=25, ge=1)
    size: int = Field(default=4, ge=1)
    priority: float = Field(default=1.0, ge=0)


def _by_seat(partners: Any) -> Any:
    """Returns partners by the names of seats: a policy or a list without a name is for all other seats."""
    by_name = partners if isinstance(partners, Mapping) else {OTHER: partners}
    if isinstance(partners, Mapping) and "policy" in partners:
        by_name = {OTHER: [partners]}
    return {name: (rungs,) if isinstance(rungs, str) else rungs for name, rungs in by_name.items()}


class SituationSettings(Settings):
    """Settings of a list of situations.

    Attributes:
        tasks: a task file, instead of ``families``; the ``rules`` of play in a YAML file apply.
        families: the names of verified families.
        level: the difficulty of generated tasks.
        count: the number of generated tasks.
        task_seed: the seed of the generated tasks.
        partners: policies by name or path, e.g. ``linear:horizon=4``, the directory of a trained model (frozen), or a
            language model on a server; ``self``, the policy in training, which then learns in that seat too; or
            ``past``, one of its past selves. Either a list for all other seats, or lists by the names of seats
            (:mod:`sotopia_env.naming.seats`): agent ids, roles, ``ally``, ``opponent``, ``bystander`` and ``other``.
            The partners of a list alternate between tasks: all episodes of a task have one, and those of the next task
            have the next. With ``past`` or a ``share`` in it, one is drawn for every group of episodes.
        past: the pool of past selves.
        learners: the seats that the policy in training plays in turn, by agent id or role; every seat if it is empty.
        max_turns: the limit on turns of an episode; ``None`` uses that of the file's rules, the scenario's, or 20.
        worths: whether seats read tables of worths; ``None`` uses the file's rules, or yes.
        seed: the seed of turn order and partners, and of the draws.
    """

    tasks: str | None = None
    families: tuple[str, ...] = ()
    level: str = "medium"
    count: int = Field(default=100, ge=1)
    task_seed: int = Field(default=0, ge=0)
    partners: Annotated[dict[str, tuple[LadderRung, ...]], BeforeValidator(_by_seat)]
    past: PastSelves = PastSelves()
    learners: tuple[str, ...] = ()
    max_turns: int | None = Field(default=None, ge=1)
    worths: bool | None = None
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _present_form(cls, values: Any) -> Any:
        return present_form(values) if isinstance(values, Mapping) else values

    def has(self, partner: str) -> bool:
        """Whether :data:`SELF` or :data:`PAST` is among the partners."""
        return any(rung.policy == partner for rungs in self.partners.values() for rung in rungs)

    @model_validator(mode="after")
    def _check_partners(self) -> SituationSettings:
        for name, rungs in self.partners.items():
            if not rungs:
                raise InvalidValueError(
                    field="partners", expected="at least one policy", got=Verbatim(f"none for {name}")
                )
        return self


def present_form(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns settings with ``self_play`` or ``both_seats``, as earlier versions wrote them, in the present form.

    Raises:
        InvalidValueError: a group of partners has a share and no policies, or the reverse; or there are partners twice.
    """
    values = dict(values)
    if values.pop("both_seats", True) is False:
        values.setdefault("learners", ("agent_0",))
    if not isinstance(values.get("self_play", {}), Mapping):
        return {name: value for name, value in values.items() if name != "self_play" or value is not None}
    if not (self_play := values.pop("self_play", None)):
        return values
    if values.get("partners"):
        raise InvalidValueError("partners are there twice", field="self_play", hint="write all of them in partners")
    past = {"share": 1, **self_play.get("past", {})}
    rungs = [{"policy": PAST, "share": past.pop("share")}] if past["share"] else []
    for name in ("scripts", "frozen"):
        group = self_play.get(name, {})
        share, policies = group.get("share", 0), group.get("policies", ())
        if bool(share) != bool(policies):
            got = Verbatim(f"a share of {share:g} for {len(policies)} policies")
            raise InvalidValueError(field=f"self_play.{name}", expected="policies and a share above 0", got=got)
        rungs += [{"policy": policy, "share": share / len(policies)} for policy in policies]
    return {**values, "partners": rungs, "past": {name: value for name, value in past.items() if name != "share"}}


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
    return sum(len(seats_named(task, settings.learners)) for task in read_tasks(settings))


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

    Raises:
        FieldError: a partner does not exist, or has no such option.
    """
    rules, rungs, shared = _rules(settings), settings.partners, settings.has(SELF)
    names = dict.fromkeys(rung.policy for ladder in rungs.values() for rung in ladder)
    # One object for all seats and tasks: a model is loaded once, and equal partners are recognised by it.
    policies = {spec: spec if spec in (SELF, PAST) else _partner(spec, models or make_model) for spec in names}
    result = []
    for number, task in enumerate(read_tasks(settings) if task_list is None else task_list):
        chosen = _chosen(rungs, policies, number)
        for seat in seats_named(task, settings.learners):
            by_agent = partners_of(task, seat, chosen)
            partners = {agent: policy for agent, policy in by_agent.items() if not isinstance(policy, str)}
            # One episode has one seed, whoever of its seats learns from it.
            seed = _seed(settings.seed, task, "" if shared else seat)
            result.append(Situation(task, seat, partners, seed, rules, shared))
    return result


def _partner(spec: str, models: Callable[..., ChatModel]) -> Policy:
    try:
        return make_policy(spec, models)
    except FieldError as error:
        raise type(error).of(error, within="partners") from None


def _chosen(
    rungs: Mapping[str, Sequence[LadderRung]], policies: Mapping[str, Policy | str], number: int
) -> dict[str, Policy | str]:
    """Returns the partners of task ``number`` by the names of seats."""
    chosen: dict[str, Policy | str] = {}
    for name, ladder in rungs.items():
        if any(rung.policy == PAST or rung.share is not None for rung in ladder):
            shares = tuple((policies[rung.policy], rung.share or 1.0) for rung in ladder)
            chosen[name] = Ladder(shares, f"{number}:{name}")
        else:
            # As digits of a number, so that every combination of the lists occurs.
            number, rung = divmod(number, len(ladder))
            chosen[name] = policies[ladder[rung].policy]
    return chosen


def _seed(seed: int, task: Task, seat: str) -> int:
    digest = hashlib.sha256(f"{seed}:{task.content_hash}:{seat}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
