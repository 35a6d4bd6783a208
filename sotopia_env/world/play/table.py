"""The running episode: whose turn it is, the observations and answers of every seat, and the record.

A table is played from outside, one answer at a time, or by policies (:meth:`Table.step`, :meth:`Table.play`), or both::

    table = Table(task, Rules(max_turns=10), seed=3)
    while await table.play({"agent_1": partner}):  # until agent_0, who has no policy, must act
        failure = table.answer("agent_0", write(table.observe("agent_0").messages))
    await table.evaluate(evaluator)
    table.episode()

The PettingZoo and Gymnasium environments, runs and TRL's tools are all built on this class.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sotopia_env.foundation.errors import (
    FATAL,
    EvaluationError,
    InvalidActionError,
    InvalidValueError,
    PolicyError,
    UnknownNameError,
    check_members,
    excerpt,
)
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.world.action import Action, ParseFailure
from sotopia_env.world.answers import Belief
from sotopia_env.world.dynamics import (
    EpisodeState,
    Rules,
    StopReason,
    check_recipients,
    initial_state,
    transition,
)
from sotopia_env.world.episode import (
    Episode,
    EpisodeError,
    Evaluation,
    Evaluator,
    Generation,
    PolicyInfo,
    RecordedTurn,
    replay,
    replay_turns,
)
from sotopia_env.world.observation import Observation, OwnMessage, SeatView
from sotopia_env.world.play.policy import Decision, Policy, turn_seed
from sotopia_env.world.scenario import Task

DEFAULT_RULES = Rules()


class Table:
    """One episode from the first turn to the verdict. It can be pickled between turns.

    Attributes:
        state: the state of the episode; immutable, replaced by every turn.
        lines: every turn as others see it, rendered once for all seats.
        key: the identity of the record within a run.
        beliefs: the answers of people to probes (:mod:`sotopia_env.evaluators.probes.form`), for the record.
        notes: what agents wrote down after the end, for the record.
    """

    __slots__ = (
        "_before", "_errors", "_evaluations", "_generations", "_own", "_pending", "_seated", "_started", "_turns",
        "_views",
        "beliefs", "key", "lines", "notes", "state",
    )  # fmt: skip

    def __init__(
        self,
        task: Task,
        rules: Rules = DEFAULT_RULES,
        seed: int = 0,
        *,
        key: str = "",
        policies: Iterable[PolicyInfo] = (),
    ) -> None:
        """Starts an episode.

        Args:
            task: the task to play.
            rules: the turn order and the limits.
            seed: the seed of the turn order and of the policies; any non-negative integer.
            key: the identity of the record within a run.
            policies: the actors outside this table, for the record; policies that it asks are added (:meth:`seat`).

        Raises:
            InvalidValueError: the rules do not fit the task, the seed is not a non-negative integer, or an argument
                has the wrong type.
        """
        _check_type("task", "a Task", task, Task)
        _check_type("rules", "Rules", rules, Rules)
        _check_type("key", "a text", key, str)
        self.state: EpisodeState = initial_state(task, rules, seed)
        self.key = key
        self.lines: list[str] = []
        self.beliefs: list[Belief] = []
        self.notes: dict[str, str] = {}
        self._views: dict[str, SeatView] = {}
        self._own: dict[str, dict[int, OwnMessage]] = {}  # each agent's own texts, shown to that agent only
        self._pending: dict[str, Decision] = {}  # answers of a veiled round that is not complete yet
        self._generations: dict[int, Generation] = {}
        self._turns: list[RecordedTurn] = []
        self._errors: list[EpisodeError] = []
        self._evaluations: tuple[Evaluation, ...] = ()
        self._seated: dict[str, PolicyInfo] = {policy.agent: policy for policy in policies}
        self._before = 0.0  # seconds played before this table was created
        self._started = time.perf_counter()

    @classmethod
    def resume(cls, episode: Episode) -> Table:
        """Returns the table of a recorded episode, finished or not, in its state after the last turn.

        Raises:
            DamagedRecordError: the record contradicts the rules.
            InvalidValueError: ``episode`` is not an episode record.
        """
        _check_type("episode", "an Episode", episode, Episode)
        table = cls(episode.task, episode.rules, episode.seed, key=episode.key, policies=episode.policies)
        table.state = replay_turns(episode) if episode.stop is None else replay(episode)  # played by the rules again
        table._turns = list(episode.turns)
        for item in episode.turns:
            table._note_message(item.turn.actor, item.turn.index, item.generation)
        table._errors, table._evaluations = list(episode.errors), episode.evaluations
        table.beliefs, table.notes = list(episode.beliefs), dict(episode.notes)
        table._before = episode.duration
        return table

    def fork(self, turn: int, action: Action | None = None) -> Table:
        """Returns a new table with the episode's state before turn ``turn``; this table is not changed.

        Args:
            turn: the index of a turn, or the number of turns so far.
            action: an action to take at once for the agent whose turn it is; none by default.

        Raises:
            InvalidValueError: the episode has no such turn.
            InvalidActionError: the episode has ended at that turn, or a recipient is not an agent of the task.
        """
        table = Table.resume(self.episode().before(turn))
        if action is not None:
            table.answer(next(iter(table.acting), ""), action)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.episode(), self._pending)  # views and caches are built again when needed

    @property
    def task(self) -> Task:
        """The task being played."""
        return self.state.task

    @property
    def stop(self) -> StopReason | None:
        """Why the episode ended; ``None`` while it is running."""
        return self.state.stop

    @property
    def acting(self) -> tuple[str, ...]:
        """The agents who must answer now: one, or all who act in a veiled round and have not yet answered."""
        waiting = self.state.waiting
        if not self.state.rules.turn_order.veiled:
            return waiting[:1]
        return tuple([agent for agent in waiting if agent not in self._pending]) if self._pending else waiting

    @property
    def turns(self) -> Sequence[RecordedTurn]:
        """The turns so far, each with the text it was read from, if any."""
        self._make_records()
        return self._turns

    def _make_records(self) -> None:
        for turn in self.state.turns[len(self._turns) :]:
            self._turns.append(RecordedTurn(turn=turn, generation=self._generations.get(turn.index)))

    @property
    def errors(self) -> Sequence[EpisodeError]:
        """The external errors that policies have recovered from, each with the index of the turn it belongs to."""
        return self._errors

    @property
    def pending(self) -> Mapping[str, Decision]:
        """The answers of a veiled round that waits for other seats: agent id to decision; empty otherwise."""
        return MappingProxyType(self._pending)

    @property
    def evaluation(self) -> Evaluation | None:
        """The latest evaluation; ``None`` if there is none."""
        return self._evaluations[-1] if self._evaluations else None

    def observe(self, agent: str) -> Observation:
        """Returns everything that ``agent`` may know now, and the part that is new to it, as fields, text and messages.

        Raises:
            UnknownNameError: ``agent`` is not an agent of the task.
        """
        view = self._views.get(agent) if isinstance(agent, str) else None
        if view is None:
            if not isinstance(agent, str):
                raise UnknownNameError(field="agent", got=agent, valid=self.task.agents)
            own = self._own.setdefault(agent, {})
            view = self._views[agent] = SeatView(self.task, self.state.rules, agent, self.lines, own)
        return view.observe(self.state)

    def answer(self, agent: str, action: Action | str, generation: Generation | None = None) -> ParseFailure | None:
        """Takes the action of ``agent``; in a veiled round, its part of the round.

        A text that is not an action changes nothing, so the agent can be asked again. To continue without an action,
        answer with :data:`~sotopia_env.world.action.NO_ACTION` and a ``generation`` that says why.

        Args:
            agent: one of :attr:`acting`.
            action: an action, or a model's text that holds one.
            generation: the text that the action was read from, for the record; by default ``action``, if it is a text.

        Returns:
            Why the text is not an action that is possible now, or ``None`` if the action was taken.

        Raises:
            InvalidActionError: it is not the agent's turn, or a recipient is not an agent of the task; nothing changes.
            InvalidValueError: the action or the generation has the wrong type; nothing changes.
        """
        if generation is not None:
            _check_type("generation", "a Generation", generation, Generation)
        if agent not in self.acting:
            raise self._not_acting(agent)
        if not isinstance(action, str):
            _check_type("action", "an Action or a text", action, Action)
            self._take(agent, Decision(action, generation))
            return None
        answer = self.observe(agent).parse(action)  # read by what is open to the seat now
        if isinstance(answer, ParseFailure):
            return answer
        self._take(agent, Decision(answer, generation or Generation(text=action)))
        return None

    def take(self, agent: str, decision: Decision) -> None:
        """Takes a policy's decision for ``agent``, one of :attr:`acting`, with the errors it was recovered from.

        Raises:
            InvalidActionError: it is not the agent's turn, or a recipient is not an agent of the task; nothing changes.
            PolicyError: it is not a decision.
        """
        if agent not in self.acting:
            raise self._not_acting(agent)
        self._take(agent, decision)

    def _not_acting(self, agent: object) -> InvalidActionError:
        if self.state.stop is not None:
            return InvalidActionError(f"the episode has ended ({self.state.stop.value})", field="agent", got=agent)
        expected = f"one whose turn it is ({', '.join(self.acting)})"
        return InvalidActionError(field="agent", expected=expected, got=agent)

    def _take(self, agent: str, decision: Decision) -> None:
        if not isinstance(decision, Decision):
            raise PolicyError(f"expected a Decision from the policy, got {type(decision).__name__}")
        if not isinstance(decision.action, Action):
            raise PolicyError(f"expected a Decision with an Action from the policy, got {excerpt(decision)}")
        if self.state.waiting[0] != agent:
            # Checked now: when the round is carried out, the error would be raised from another agent's answer.
            check_recipients(self.task, decision.action)
            self._pending[agent] = decision
            return
        # Answers of a veiled round arrive in any order but take effect in seat order, so that the record does not
        # depend on which policy is fastest. Each takes effect as soon as those of all earlier seats have.
        self._carry_out(decision)
        while self._pending and self.state.waiting and self.state.waiting[0] in self._pending:
            self._carry_out(self._pending.pop(self.state.waiting[0]))

    def _carry_out(self, decision: Decision) -> None:
        index = len(self.state.turns)
        # Earlier evaluations are discarded, since they do not include this turn.
        self.state, self._evaluations = transition(self.state, decision.action), ()
        if decision.generation is not None:
            self._generations[index] = decision.generation
            self._note_message(self.state.turns[-1].actor, index, decision.generation)
        if decision.errors:
            self._errors += [error.model_copy(update={"turn": index}) for error in decision.errors]

    def _note_message(self, agent: str, index: int, generation: Generation | None) -> None:
        message = None if generation is None else generation.message
        if message is not None:
            self._own.setdefault(agent, {})[index] = message

    def seat(self, policies: Policy | Mapping[str, Policy]) -> Mapping[str, Policy]:
        """Notes in the record which policies play, and returns them by seat; none is asked.

        Args:
            policies: a mapping from agent id to policy, or one policy for every seat.

        Raises:
            UnknownNameError: an agent is not one of the task.
            InvalidValueError: a value is not a policy.
        """
        seats = policies if isinstance(policies, Mapping) else dict.fromkeys(self.task.agents, policies)
        for agent, policy in seats.items():
            if agent not in self.task.names:
                raise UnknownNameError(field="policies", got=agent, valid=self.task.agents)
            # A policy that is already noted is not described again on every step.
            if agent not in self._seated or self._seated[agent].name != getattr(policy, "name", None):
                check_members("policies", "a policy, or a mapping of agents to policies", policy, Policy)
                self._seated[agent] = PolicyInfo(agent=agent, name=policy.name, parameters=dict(policy.parameters))
        return seats

    async def ask(self, policies: Policy | Mapping[str, Policy]) -> dict[str, Decision]:
        """Asks each policy whose turn it is, once, and returns the decisions without taking them.

        The policies of one veiled round are asked concurrently.

        Args:
            policies: as in :meth:`seat`, whose exceptions are raised before any policy is asked.

        Returns:
            Agent id to decision; empty if the episode has ended, or only seats without a policy are to act.

        Raises:
            PolicyError: a policy produced no action.
        """
        seats, state = self.seat(policies), self.state
        agents, turn = [agent for agent in self.acting if agent in seats], _turns_before(state)
        requests = [
            seats[agent].act(self.observe(agent), turn_seed(state.seed, turn, state.task.seat_of[agent]))
            for agent in agents
        ]
        # A single policy is awaited directly: an asyncio task costs 9 µs, and a scripted turn takes about 30.
        decisions = await all_at_once(requests) if len(requests) > 1 else [await request for request in requests]
        return dict(zip(agents, decisions, strict=True))

    async def step(self, policies: Policy | Mapping[str, Policy]) -> dict[str, Decision]:
        """Asks each policy whose turn it is, once, and takes what they decide: one turn, or the policies' part of a
        veiled round.

        Args:
            policies: as in :meth:`seat`.

        Returns:
            The decisions, as :meth:`ask` returns them; empty if no policy was to act.

        Raises:
            PolicyError: a policy produced no action; earlier turns are kept, and the step can be repeated.
        """
        decisions = await self.ask(policies)
        for agent, decision in decisions.items():
            self._take(agent, decision)
        # Records are made after each step and not at the end: many episodes end at about the same time, and making
        # their records then would block the event loop.
        self._make_records()
        return decisions

    async def play(self, policies: Policy | Mapping[str, Policy]) -> tuple[str, ...]:
        """Repeats :meth:`step` until it is the turn of a seat without a policy, or the episode has ended.

        Args:
            policies: as in :meth:`seat`.

        Returns:
            :attr:`acting`: empty when the episode has ended.

        Raises:
            InvalidValueError: a value in ``policies`` is not a policy; no policy was asked.
            PolicyError: a policy produced no action; earlier turns are kept, and play can be resumed.
        """
        while await self.step(policies):
            pass
        return self.acting

    async def evaluate(self, evaluator: Evaluator) -> Evaluation:
        """Returns the evaluator's verdict, which stays in the record until another turn is taken.

        Raises:
            InvalidValueError: ``evaluator`` is not an evaluator.
            EvaluationError: the evaluator returned no verdict; the record says why the episode is unscored.
            BudgetExceededError: a model's budget is spent.
            ModelRefusedError: a model refuses every request.
        """
        check_members("evaluator", "an evaluator", evaluator, Evaluator)
        try:
            return self._record(evaluator, await evaluator.evaluate(self.episode()))
        except FATAL:
            raise
        except EvaluationError as error:
            self._unscore(evaluator, str(error))
            raise
        # Every other exception becomes a reason, because evaluators are third-party code.
        except Exception as error:
            reason = f"{evaluator.name}: {type(error).__name__}: {error}"
            self._unscore(evaluator, reason)
            raise EvaluationError(reason) from error

    def _unscore(self, evaluator: Evaluator, reason: str) -> None:
        parameters = dict(evaluator.parameters)
        self._record(evaluator, Evaluation(evaluator=evaluator.name, parameters=parameters, unscored=reason))

    def _record(self, evaluator: Evaluator, verdict: Evaluation) -> Evaluation:
        if not isinstance(verdict, Evaluation):
            raise EvaluationError(f"{evaluator.name}: expected an Evaluation, got {type(verdict).__name__}")
        stranger = next((agent for agent in verdict.by_agent if agent not in self.task.names), None)
        if stranger is not None:
            raise EvaluationError(f"{evaluator.name}: scores for {stranger!r}, who is not an agent of the task")
        self._evaluations = (*[e for e in self._evaluations if e.evaluator != verdict.evaluator], verdict)
        return verdict

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        state = self.state
        return Episode(
            key=self.key,
            task=state.task,
            rules=state.rules,
            seed=state.seed,
            policies=tuple([self._seated[agent] for agent in state.task.agents if agent in self._seated]),
            turns=tuple(self.turns),
            stop=state.stop,
            evaluations=self._evaluations,
            beliefs=tuple(self.beliefs),
            notes=dict(self.notes),
            errors=tuple(self._errors),
            duration=self._before + time.perf_counter() - self._started,
        )


def _check_type(field: str, expected: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidValueError(field=field, expected=expected, got=value)


def _turns_before(state: EpisodeState) -> int:
    """The number of turns before this one; in a veiled order, the number before its round."""
    count = len(state.turns)
    # A seat's seed must not depend on how many seats of the same round have answered before it.
    if state.rules.turn_order.veiled:
        while count and state.turns[count - 1].round == state.round:
            count -= 1
    return count


def _restore(episode: Episode, pending: dict[str, Decision]) -> Table:
    table = Table.resume(episode)
    table._pending = pending
    return table
