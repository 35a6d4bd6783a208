"""The episodes of a run: tasks × policies in seats × speaking orders × repeats, each with a fixed identity.

A plan is cheap, pure data; :mod:`sotopia_env.runs.rollout` plays it. Two plans with the same task content, policies,
rules, seed and repeat have the same key on every machine, so a run can be resumed anywhere.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Verbatim, check_whole
from sotopia_env.foundation.json_text import canonical_json, decode_json, first_difference
from sotopia_env.naming import make_policy
from sotopia_env.storage.manifest import Named, RunConfig, RunManifest, named
from sotopia_env.world.answers import Configured
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.interview import Role
from sotopia_env.world.play.policy import Policy, policy_identity
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

DEFAULT_RULES = Rules()
"""Round-robin, 20 turns unless the scenario says otherwise."""
Orders = Literal["first", "both", "alternate"]
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """One episode to be played.

    Attributes:
        task: the task to play.
        policies: the policy in each seat, in seat order.
        rules: the order and limits of play.
        seed: the run's seed; any non-negative integer.
        repeat: the number of this repetition, from 0.
        key: the deterministic identity: a readable prefix, then 16 hex digits of a hash over the task's content, the
            policies' names and parameters by seat, rules, seed and repeat.
        episode_seed: the seed of turn order and policies. It depends on (seed, task content, repeat) only, so that all
            policies are compared under the same randomness.
    """

    task: Task
    policies: tuple[Policy, ...]
    rules: Rules = DEFAULT_RULES
    seed: int = 0
    repeat: int = 0
    key: str = field(init=False)
    episode_seed: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.policies) != len(self.task.agents):
            raise InvalidValueError(
                field="policies",
                expected=f"{len(self.task.agents)}, one per seat of task {self.task.id!r}",
                got=len(self.policies),
            )
        for name in ("seed", "repeat"):
            value = getattr(self, name)
            check_whole(name, value, 0)
        if self.rules.first_seat >= len(self.policies):
            raise InvalidValueError(
                field="first_seat", expected=f"0 to {len(self.policies) - 1}", got=self.rules.first_seat
            )
        object.__setattr__(self, "key", _key(self.task, self.policies, self.rules, self.seed, self.repeat))
        object.__setattr__(self, "episode_seed", _episode_seed(self.task, self.seed, self.repeat))


def _key(task: Task, policies: Sequence[Configured], rules: Rules, seed: int, repeat: int) -> str:
    identity = [task.content_hash, [policy_identity(policy) for policy in policies], _rules_text(rules), seed, repeat]
    digest = hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:16]
    # The prefix is for readers only; its parts are cut so that keys can be file names.
    names = "+".join(_slug(policy.name)[:20] for policy in policies)[:60]
    return f"{_slug(task.id)[:40]}.{names}.r{repeat}.{digest}"


# A plan has thousands of episodes with the same few rules.
@lru_cache(maxsize=256)
def _rules_text(rules: Rules) -> str:
    # A rule is named where it differs from what held before there was such a rule: keys of earlier runs stay.
    later = ["worths"] * rules.worths + ["carry"] * (not rules.carry)
    return json.dumps({name: value for name, value in asdict(rules).items() if name not in later}, sort_keys=True)


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-") or "x"


def _episode_seed(task: Task, seed: int, repeat: int) -> int:
    digest = hashlib.sha256(f"{seed}:{repeat}:{task.content_hash}".encode()).digest()
    return int.from_bytes(digest[:6], "big")  # 48 bits stay exact in every JSON reader


Matchup = Sequence[Policy | str]
"""Policies or their names (:func:`sotopia_env.naming.make_policy`): one for all seats, two (focal and partner), or one
for each seat."""


def all_matchups(policies: Sequence[Policy], self_play: bool = True) -> list[tuple[Policy, ...]]:
    """Returns every policy against every other one, each once as focal, and against itself when ``self_play``."""
    pairs = itertools.product(policies, repeat=2)
    return [pair for pair in pairs if self_play or policy_identity(pair[0]) != policy_identity(pair[1])]


def plan_episodes(
    tasks: Iterable[Task],
    matchups: Iterable[Matchup],
    *,
    repeats: int = 1,
    seed: int = 0,
    rules: Rules = DEFAULT_RULES,
    both_seats: bool = True,
    orders: Orders = "first",
    by_role: bool = False,
) -> list[EpisodePlan]:
    """Returns the plan: every task with every matchup, in a fixed order, no episode twice.

    Args:
        tasks: the tasks of the episodes.
        matchups: the policies that play each other. ``(a, b)`` puts a in seat 0 and b in seat 1; in a task with more
            seats a is the focal policy and b takes all other seats. ``(a,)`` puts a in every seat. A matchup with one
            policy per seat assigns them in order.
        repeats: how often each episode is played, each time with another seed; at least 1.
        seed: the run's seed.
        rules: the order and limits of play; ``orders`` varies ``first_seat``.
        both_seats: whether to include the swapped assignment; with more than two seats, the focal policy takes every
            seat in turn.
        orders: which seat acts first in round-robin order: ``first`` follows ``rules``, ``both`` plays one episode
            with each seat first, ``alternate`` changes the first seat from task to task.
        by_role: whether ``(a, b)`` puts a in all senders' seats and b in all receivers' seats instead (AgentSense
            §4.2); with ``both_seats``, also the reverse.

    Raises:
        InvalidValueError: there is nothing to play, ``repeats`` is below 1, a matchup fits no task, ``orders`` is not
            ``first`` without round-robin order, or ``by_role`` is set for a task without roles.
    """
    check_whole("repeats", repeats, 1)
    if orders not in get_args(Orders):
        raise InvalidValueError(field="orders", got=orders, valid=get_args(Orders))
    if orders != "first" and rules.turn_order is not TurnOrder.ROUND_ROBIN:
        raise InvalidValueError(
            f"only round-robin order has a first seat, not {rules.turn_order.value!r}", field="orders"
        )
    pairings = [tuple(make_policy(policy) for policy in matchup) for matchup in matchups]
    plans: dict[str, EpisodePlan] = {}
    for number, task in enumerate(tasks):
        for seating, order in itertools.product(
            _seatings(task, pairings, both_seats, by_role), _rules(task, number, rules, orders)
        ):
            for repeat in range(repeats):
                # Matchups can overlap: a policy against itself is the same episode in both seat assignments.
                plan = EpisodePlan(task, seating, order, seed, repeat)
                plans.setdefault(plan.key, plan)
    if not plans:
        raise InvalidValueError("nothing to play", field="tasks, matchups", expected="at least one of each")
    return list(plans.values())


def _rules(task: Task, number: int, rules: Rules, orders: Orders) -> list[Rules]:
    """Returns the rules for playing a task, one for each first seat."""
    seats = len(task.agents)
    if orders == "first":
        return [rules]
    return [replace(rules, first_seat=seat) for seat in ([number % seats] if orders == "alternate" else range(seats))]


def _by_role(task: Task, senders: Policy, receivers: Policy) -> tuple[Policy, ...]:
    interview = task.scenario.interview
    if interview is None or not interview.roles:
        raise InvalidValueError(
            field="by_role",
            expected="tasks with senders and receivers",
            got=task.id,
        )
    return tuple(senders if role is Role.SENDER else receivers for role in interview.roles)


def _seatings(
    task: Task, matchups: list[tuple[Policy, ...]], both_seats: bool, by_role: bool
) -> Iterator[tuple[Policy, ...]]:
    seats = len(task.agents)
    for matchup in matchups:
        if len(matchup) == 1:
            yield matchup * seats
        elif by_role and len(matchup) == 2:
            yield _by_role(task, *matchup)
            if both_seats:
                yield _by_role(task, *reversed(matchup))
        elif len(matchup) == seats:
            # The assignment is rotated, so that each policy takes every seat once.
            turns = range(seats) if both_seats else range(1)
            yield from (matchup[-turn:] + matchup[:-turn] if turn else matchup for turn in turns)
        elif len(matchup) == 2:
            focal, partner = matchup
            for seat in range(seats) if both_seats else range(1):
                yield (*(partner,) * seat, focal, *(partner,) * (seats - seat - 1))
        else:
            sizes = "1 or 2" if seats == 2 else f"1, 2 or {seats}"
            raise InvalidValueError(
                field="matchup",
                expected=f"{sizes} policies for the {seats} seats of task {task.id!r}",
                got=len(matchup),
            )


def run_config(plans: Sequence[EpisodePlan], evaluator: Named | None) -> RunConfig:
    """Returns the configuration of a run with these plans."""
    policies = {policy_identity(policy): policy for plan in plans for policy in plan.policies}
    tasks = {plan.task.content_hash for plan in plans}
    return RunConfig(
        policies=tuple(named(policy) for _, policy in sorted(policies.items())),
        matchups=tuple(sorted({_matchup(plan.policies) for plan in plans})),
        evaluator=evaluator,
        rules=tuple(dict.fromkeys(plan.rules for plan in plans)),
        seed=tuple(sorted({plan.seed for plan in plans})),
        repeats=len({plan.repeat for plan in plans}),
        tasks=len(tasks),
        tasks_hash=set_hash(tasks),
        episodes=len(plans),
        plan_hash=set_hash({plan.key for plan in plans}),
    )


def planned_check(plans: Sequence[EpisodePlan]) -> Callable[[Episode, RunManifest], None]:
    """Returns a function that raises :class:`DamagedRecordError` for a recorded episode that is not part of the run.

    The key alone is not trusted: task, seed, rules and policies of the record must be those of the plan with this
    key. Matchups that an earlier command played in the same tasks have no plan; their keys are computed again.
    """
    by_key = {plan.key: plan for plan in plans}
    sources = {(plan.task.content_hash, plan.episode_seed): (plan.seed, plan.repeat) for plan in plans}
    rules = {plan.rules for plan in plans}

    def is_of_other_matchups(episode: Episode, manifest: RunManifest) -> bool:
        source = sources.get((episode.task.content_hash, episode.seed))
        matchup = _matchup(episode.policies)
        if source is None or episode.rules not in rules or all(matchup not in c.matchups for c in manifest.configs):
            return False
        identities = {policy_identity(policy) for policy in manifest.policies}
        same = all(policy_identity(policy) in identities for policy in episode.policies)
        return same and episode.key == _key(episode.task, episode.policies, episode.rules, *source)

    def check(episode: Episode, manifest: RunManifest) -> None:
        plan = by_key.get(episode.key)
        if plan is None:
            if manifest.added and is_of_other_matchups(episode, manifest):
                return
            field, expected, got = "key", "one of the run's", repr(episode.key)
        else:
            planned, recorded = _planned_content(plan), _recorded_content(episode)
            if planned == recorded:
                return
            field, expected, got = first_difference(f"episode {episode.key!r}", planned, recorded)
        raise DamagedRecordError(
            field=field,
            expected=expected,
            got=Verbatim(got),
            hint="the record was changed or belongs to another run; remove its line to play the episode again",
        )

    return check


def _matchup(policies: Sequence[Configured]) -> str:
    return " vs ".join(policy.name for policy in policies)


def _planned_content(plan: EpisodePlan) -> Any:
    policies = [{"name": policy.name, "parameters": dict(policy.parameters)} for policy in plan.policies]
    return _content(plan.task, plan.episode_seed, plan.rules, policies)


def _recorded_content(episode: Episode) -> Any:
    policies = [{"name": info.name, "parameters": info.parameters} for info in episode.policies]
    return _content(episode.task, episode.seed, episode.rules, policies)


def _content(task: Task, seed: int, rules: Rules, policies: Any) -> Any:
    content = {"task": task.content_hash, "seed": seed, "rules": asdict(rules), "policies": policies}
    # A record has been through JSON, which turns tuples into lists and keys into strings; a plan has not.
    return decode_json(canonical_json(content))


def set_hash(texts: set[str]) -> str:
    """Returns a hash of texts, independent of their order (16 hex digits)."""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
