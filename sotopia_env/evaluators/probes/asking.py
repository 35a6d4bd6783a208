"""Probes on a recorded episode: the questions of every seat, and their answers at one moment or after every turn.

Policies keep no state between calls, so a probe is one more question to a policy about an observation that its seat
had. It is put after the play, to the record: nothing that is asked can change a turn.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sotopia_env.evaluators.probes.trust import trust_questions
from sotopia_env.evaluators.respondents import Respondent, Respondents
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Verbatim
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes.facts import Distribution, Facts, PublicVariable, beliefs
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.world.answers import Belief, BeliefReplies, BeliefReply, beliefs_of
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.policy import turn_seed
from sotopia_env.world.play.recorded import states
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task

Moments = Literal["end", "turns", "none"]
"""When seats are asked: at the end, at the start and after every turn, or never."""
MOMENTS: tuple[Moments, ...] = get_args(Moments)


@dataclass(frozen=True, slots=True)
class SeatQuestions:
    """The questions of a seat: on variables at every moment, and on trust at the end.

    Attributes:
        unknown: the variables with a value that do not follow from its briefing.
        targets: the names of those that it is to learn: that name the seat as ``wanted_by``, or, in a task in which no
            variable names anybody, that it may know.
        secrets: the names of those that it may not know.
        control: a variable whose value it knows from the briefing; ``None`` if it knows none.
        prior: the belief that the briefing alone gives, by variable.
        trust: what it would entrust to each of the others, and to a stranger.
    """

    unknown: tuple[PublicVariable, ...]
    targets: tuple[str, ...]
    secrets: tuple[str, ...]
    control: PublicVariable | None
    prior: dict[str, Distribution]
    trust: tuple[PublicVariable, ...] = ()

    @property
    def variables(self) -> tuple[PublicVariable, ...]:
        """All that the seat is asked about, the control question last."""
        return self.unknown if self.control is None else (*self.unknown, self.control)

    def at(self, is_end: bool) -> tuple[PublicVariable, ...]:
        """All that the seat is asked about at one moment."""
        return (*self.variables, *self.trust) if is_end else self.variables


def questions_of(task: Task) -> dict[str, SeatQuestions]:
    """Returns the questions of every seat by agent id; empty for a task without facts. Made once per task."""
    facts = task.scenario.facts
    if facts is None:
        return {}
    if "probe questions" not in task.memo:
        task.memo["probe questions"] = {
            agent: replace(_seat_questions(facts, agent), trust=trust_questions(task, agent)) for agent in task.agents
        }
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


def coming_choices(task: Task, table: Any) -> tuple[PublicVariable, ...]:
    """Returns the variables whose choice is due and not made in a state of the task's protocol.

    Args:
        task: the task; without facts nothing is asked.
        table: the state of its protocol.
    """
    protocol = task.protocol
    if not isinstance(protocol, WithFacts):
        return ()
    variables = [variable for variable in protocol.facts.variables if variable.kind == "choice"]
    return tuple([one.public for one in variables if tuple(protocol.choices(table, one.of))[-1:] == (None,)])


async def probe(
    episode: Episode,
    respondents: Respondents,
    moments: Moments,
    samples: int,
    *,
    trust: bool = True,
    choices: bool = False,
) -> tuple[Belief, ...]:
    """Returns the answers of all seats of a recorded episode, in the order of moments, seats and variables.

    What a person answered is read from the record (:mod:`~sotopia_env.evaluators.probes.form`). Policies that wait for
    something are asked about all moments at once: a model in this process then reads what their prompts share once.

    Args:
        episode: the episode.
        respondents: the policies of the seats.
        moments: when they are asked.
        samples: the number of answers to draw where a policy has no probabilities at hand.
        trust: whether they are also asked at the end what they would entrust to one another.
        choices: whether they are also asked about coming choices, their own among them.

    Raises:
        DamagedRecordError: the record contradicts the rules.
        PolicyError: a respondent could not be asked.
    """
    questions = questions_of(episode.task)
    if moments == "none" or not questions:
        return ()
    if not trust:
        questions = {agent: replace(one, trust=()) for agent, one in questions.items()}
    seats = [_seat(episode, respondents, agent, one, samples) for agent, one in questions.items()]
    probes: list[tuple[_Seat, int, tuple[PublicVariable, ...]]] = []
    replies: list[list[BeliefReply]] = []
    waiting: dict[int, Coroutine[Any, Any, list[BeliefReply]]] = {}
    for table in tables_of(episode, every=moments == "turns"):
        turns = len(table.state.turns)
        coming = coming_choices(episode.task, table.state.table) if choices else ()
        for seat in seats:
            variables = (*seat.questions.at(turns == len(episode.turns)), *coming)
            answer = seat.answer(table, variables)
            if not isinstance(answer, list):
                waiting[len(replies)] = answer
            probes.append((seat, turns, variables))
            replies.append(answer if isinstance(answer, list) else [])
    if waiting:
        for number, late in zip(waiting, await all_at_once(waiting.values()), strict=True):
            replies[number] = late
    pairs = zip(probes, replies, strict=True)
    return tuple([belief for probed, answer in pairs for belief in probed[0].beliefs(*probed[1:], answer)])


def tables_of(episode: Episode, every: bool = False) -> Iterator[Table]:
    """Yields one table in the state at the end, and with ``every`` also in all states before.

    Raises:
        DamagedRecordError: the record contradicts the rules.
    """
    end, where = len(episode.turns), f"episode {episode.key!r}"
    try:
        for table in states(episode):
            turns = table.state.turns
            if len(turns) == end and turns != episode.plain_turns:
                raise DamagedRecordError(
                    expected="the turns that its actions lead to", got=Verbatim("others"), where=where
                )
            if every or len(turns) == end:
                yield table
    except InvalidValueError as error:  # another actor's turn, a turn after the end
        raise DamagedRecordError.of(error, within="turns", where=where) from None


@dataclass(frozen=True, slots=True)
class _Seat:
    """A seat, and who answers for it: a policy, or the form that a person filled in.

    Attributes:
        form: the person's answers by the number of turns and the name of the variable; empty for a policy.
    """

    who: Respondent
    number: int
    questions: SeatQuestions
    form: Mapping[tuple[int, str], Belief]
    samples: int

    def answer(self, table: Table, variables: Sequence[PublicVariable]) -> BeliefReplies:
        """The replies in the present state of the table, or a coroutine that returns them."""
        turns = len(table.state.turns)
        if self.who.policy is None:
            return [self._written(turns, variable) for variable in variables]
        seed = turn_seed(table.state.seed, turns, self.number)
        return beliefs_of(self.who.policy, table.observe(self.who.agent), variables, seed, self.samples)

    def _written(self, turns: int, variable: PublicVariable) -> BeliefReply:
        belief = self.form.get((turns, variable.name))
        if belief is None:
            return BeliefReply(reason=self.who.absence, asked=False)
        return BeliefReply(belief.probabilities, belief.samples, belief.reason, belief.asked)

    def beliefs(self, turns: int, variables: Sequence[PublicVariable], replies: list[BeliefReply]) -> Iterator[Belief]:
        """The replies as records."""
        for variable, reply in zip(variables, replies, strict=True):
            yield Belief(
                respondent=self.who.agent,
                by=self.who.name,
                turns=turns,
                variable=variable.name,
                control=variable is self.questions.control,
                options=variable.options,
                shares=tuple([reply.probabilities[one] for one in variable.options]) if reply.probabilities else (),
                samples=reply.samples,
                reason=reply.reason,
                asked=reply.asked,
            )


def _seat(episode: Episode, respondents: Respondents, agent: str, questions: SeatQuestions, samples: int) -> _Seat:
    own = [] if respondents.replaces(agent) else [belief for belief in episode.beliefs if belief.respondent == agent]
    for belief in own:
        _check_form(episode, belief)
    form = {(belief.turns, belief.variable): belief for belief in own}
    if form:
        who = Respondent(agent, own[0].by, None, "the person was not asked at this moment")
    else:
        who = respondents.respondent(episode, agent)
    return _Seat(who, episode.task.seat_of[agent], questions, form, samples)


def _check_form(episode: Episode, belief: Belief) -> None:
    """Raises DamagedRecordError unless a person's answer is to a question of the task."""
    facts = episode.task.scenario.facts
    assert facts is not None
    options = {variable.name: variable.options for variable in facts.variables}
    options |= {question.name: question.options for question in questions_of(episode.task)[belief.respondent].trust}
    field = f"episode {episode.key!r}: beliefs of {belief.respondent}"
    if belief.variable not in options:
        raise DamagedRecordError(field=field, got=belief.variable, valid=list(options))
    if belief.options != options[belief.variable]:
        expected = ", ".join(options[belief.variable])
        raise DamagedRecordError(field=f"{field}.{belief.variable}", expected=expected, got=list(belief.options))
