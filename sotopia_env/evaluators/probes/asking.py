"""Probes on a recorded episode: the questions of every seat, and their answers at one moment or after every turn.

Policies keep no state between calls, so a probe is one more question to a policy about an observation that its seat
had. It is put after the play, to the record: nothing that is asked can change a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sotopia_env.evaluators.respondents import Respondents, absence
from sotopia_env.foundation.errors import DamagedRecordError, Verbatim
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes.facts import Distribution, Facts, PublicVariable, beliefs
from sotopia_env.world.answers import Belief, BeliefReply, Configured, beliefs_of
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import turn_seed
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task

Moments = Literal["end", "turns", "none"]
"""When seats are asked: at the end, at the start and after every turn, or never."""
MOMENTS: tuple[Moments, ...] = get_args(Moments)


@dataclass(frozen=True, slots=True)
class SeatQuestions:
    """The questions of a seat, which are the same at every moment.

    Attributes:
        unknown: the variables with a value that do not follow from its briefing.
        targets: the names of those that it is to learn: that name the seat as ``wanted_by``, or, in a task in which no
            variable names anybody, that it may know.
        secrets: the names of those that it may not know.
        control: a variable whose value it knows from the briefing; ``None`` if it knows none.
        prior: the belief that the briefing alone gives, by variable.
    """

    unknown: tuple[PublicVariable, ...]
    targets: tuple[str, ...]
    secrets: tuple[str, ...]
    control: PublicVariable | None
    prior: dict[str, Distribution]

    @property
    def variables(self) -> tuple[PublicVariable, ...]:
        """All that the seat is asked about, the control question last."""
        return self.unknown if self.control is None else (*self.unknown, self.control)


def questions_of(task: Task) -> dict[str, SeatQuestions]:
    """Returns the questions of every seat by agent id; empty for a task without facts. Made once per task."""
    facts = task.scenario.facts
    if facts is None:
        return {}
    if "probe questions" not in task.memo:
        task.memo["probe questions"] = {agent: _seat_questions(facts, agent) for agent in task.agents}
    questions: dict[str, SeatQuestions] = task.memo["probe questions"]
    return questions


def _seat_questions(facts: Facts, agent: str) -> SeatQuestions:
    knowledge = facts.knowledge(facts.initial(agent))
    by_name = {v.name: PublicVariable(v.name, v.options, v.kind, v.of, v.text, v.evidence) for v in facts.variables}
    unknown = [v for v in facts.variables if v.value is not None and v.name not in knowledge]
    declared = any(v.wanted_by for v in facts.variables)
    return SeatQuestions(
        tuple(by_name[v.name] for v in unknown),
        tuple(v.name for v in unknown if (agent in v.wanted_by if declared else v.admits(agent))),
        tuple(v.name for v in unknown if not v.admits(agent)),
        next((by_name[name] for name in knowledge), None),
        {**beliefs(unknown, facts.deals, knowledge)},
    )


async def probe(episode: Episode, respondents: Respondents, moments: Moments, samples: int) -> tuple[Belief, ...]:
    """Returns the beliefs of all seats of a recorded episode, in the order of moments, seats and variables.

    Args:
        episode: the episode.
        respondents: the policies of the seats.
        moments: when they are asked.
        samples: the number of answers to draw where a policy has no probabilities at hand.

    Raises:
        DamagedRecordError: the record contradicts the rules.
        PolicyError: a respondent could not be asked.
    """
    questions = questions_of(episode.task)
    answers: list[Belief] = []
    if moments == "none" or not questions:
        return ()
    # Found once: a policy is compared with the record by all of its parameters.
    policies = {agent: respondents.policy(episode, agent) for agent in questions}
    names = {agent: respondents.name(episode, agent) for agent in questions}
    for table in _tables(episode, every=moments == "turns"):
        turns = len(table.state.turns)
        # One moment after the other: a view on an episode advances, and servers find the earlier prompt in their cache.
        replies = await all_at_once(
            _replies(episode, policies[agent], table.observe(agent), turns, one.variables, samples)
            for agent, one in questions.items()
        )
        for (agent, one), group in zip(questions.items(), replies, strict=True):
            answers += [
                _belief(agent, names[agent], turns, variable, variable is one.control, reply)
                for variable, reply in zip(one.variables, group, strict=True)
            ]
    return tuple(answers)


def _tables(episode: Episode, every: bool) -> Iterator[Table]:
    """Yields one table in the state at the end, and with ``every`` also in all states before."""
    table = Table(episode.task, episode.rules, episode.seed)
    for item in episode.turns:
        if every:
            yield table
        turn = item.turn
        table.answer(turn.actor, turn.attempted or turn.action, item.generation)  # the rules refuse an attempt again
    if table.state.turns != episode.plain_turns:
        raise DamagedRecordError(
            field=f"episode {episode.key!r}", expected="the turns that its actions lead to", got=Verbatim("others")
        )
    yield table


async def _replies(
    episode: Episode,
    policy: Configured | None,
    observation: Observation,
    turns: int,
    variables: Sequence[PublicVariable],
    samples: int,
) -> Sequence[BeliefReply]:
    agent = observation.agent
    if policy is None:
        return [BeliefReply(reason=absence(episode, agent), asked=False) for _ in variables]
    seed = turn_seed(episode.seed, turns, episode.task.seat_of[agent])
    return await beliefs_of(policy, observation, variables, seed, samples)


def _belief(agent: str, by: str, turns: int, variable: PublicVariable, control: bool, reply: BeliefReply) -> Belief:
    return Belief(
        respondent=agent,
        by=by,
        turns=turns,
        variable=variable.name,
        control=control,
        options=variable.options,
        shares=tuple([reply.probabilities[one] for one in variable.options]) if reply.probabilities else (),
        samples=reply.samples,
        reason=reply.reason,
        asked=reply.asked,
    )
