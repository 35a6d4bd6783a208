"""Test utilities for packages that use this one: a scripted chat model, a fixed evaluator, and checks.

The checks raise ``AssertionError`` with a message, so they can be called in any test::

    def test_my_policy():
        check_policy(MyPolicy())

No network is needed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sotopia_env import tasks
from sotopia_env.chat_model.limits import estimate_tokens
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, Verbatim, check_members
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.foundation.records import read_record
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, Turn, initial_state, transition
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.observation import DISCLOSURE, OWN_FIELDS, ChatMessage, describe, observe
from sotopia_env.world.play.policy import Decision, Policy, policy_identity, turn_seed
from sotopia_env.world.reward import DIMENSIONS, RANGES, Dimension
from sotopia_env.world.scenario import Character, Seat, Task
from sotopia_env.world.turn_order import TurnOrder

Answer = str | ChatReply | BaseException
"""One answer of a script: a text, a whole reply, or an exception to raise."""
Answering = Callable[[ChatRequest], Answer | Awaitable[Answer]]


class ScriptedChatModel:
    """A chat model that answers from a script, and records the requests.

    Attributes:
        name: the name of the model.
        requests: the requests so far, in order.
    """

    def __init__(
        self,
        script: Iterable[Answer] | Answering,
        *,
        name: str = "scripted/model",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates the model.

        Args:
            script: one answer for each request, in order; or a function from request to answer, which
                may be asynchronous. Exceptions among the answers are raised.
            name: the name of the model.
            parameters: the parameters of the model, for records.
        """
        if isinstance(script, str):
            raise InvalidValueError(field="script", expected="a list of answers or a function", got=script)
        self._answer = script if callable(script) else None
        self._answers = () if callable(script) else tuple(script)
        self.name = name
        self.parameters: Mapping[str, Any] = dict(parameters or {"model": name})
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Returns the next answer; a plain text becomes a reply with token counts estimated from its length.

        Raises:
            InvalidValueError: the script has no further answer, which is an error in the test.
        """
        self.requests.append(request)
        answer = self._next(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, ChatReply):
            return answer
        size, length = estimate_tokens(request), -(-len(answer) // 4)
        return ChatReply(answer, finish_reason="stop", prompt_tokens=size, completion_tokens=length, model=self.name)

    def _next(self, request: ChatRequest) -> Answer | Awaitable[Answer]:
        if self._answer is not None:
            return self._answer(request)
        if len(self.requests) > len(self._answers):
            question = json.dumps(request.messages[-1]["content"][-80:], ensure_ascii=False)
            raise InvalidValueError(
                field="script",
                expected=f"at most {len(self._answers)} requests",
                got=Verbatim(f"number {len(self.requests)}, which ends in {question}"),
            )
        return self._answers[len(self.requests) - 1]

    @property
    def remaining(self) -> int:
        """The number of unused answers; 0 for a function."""
        return max(0, len(self._answers) - len(self.requests))

    async def close(self) -> None:
        """Does nothing."""

    def __repr__(self) -> str:
        return f"ScriptedChatModel({self.name!r})"


@dataclass(frozen=True, slots=True)
class FixedEvaluator:
    """An evaluator that gives every agent the same scores in every episode, or those of its seat.

    Attributes:
        scores: the scores by dimension; a missing dimension gets the middle of its range.
        by_seat: the scores of single seats, in seat order; further seats get ``scores``.
        unscored: a reason for which the evaluator fails and gives no scores.
        name: the name of the evaluator in records.
    """

    scores: Mapping[Dimension, float] = field(default_factory=dict)
    by_seat: Sequence[Mapping[Dimension, float]] = ()
    unscored: str | None = None
    name: str = "fixed"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The scores, by the names of dimensions."""
        values = [{d.value: value for d, value in scores.items()} for scores in (self.scores, *self.by_seat)]
        return {"scores": values[0], "by_seat": values[1:]}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the fixed scores.

        Raises:
            EvaluationError: ``unscored`` is set.
        """
        if self.unscored is not None:
            raise EvaluationError(self.unscored)
        seats = itertools.chain(self.by_seat, itertools.repeat(self.scores))
        scores = [
            Score(agent=agent, dimension=dimension, value=own.get(dimension, sum(RANGES[dimension]) / 2))
            for agent, own in zip(episode.task.agents, seats, strict=False)
            for dimension in DIMENSIONS
        ]
        return Evaluation(evaluator=self.name, parameters=dict(self.parameters), scores=tuple(scores))


def state_after(task: Task, *actions: Action | str, rules: Rules | None = None, seed: int = 0) -> EpisodeState:
    """Returns the state of an episode after these actions, one per turn; a text is a ``speak`` action."""
    state = initial_state(task, rules or Rules(), seed)
    for action in actions:
        state = transition(state, Action(ActionType.SPEAK, action) if isinstance(action, str) else action)
    return state


# ---------------------------------------------------------------------------------------------------------------------
# Contracts
def _sample_tasks() -> list[Task]:
    """Returns a task with two seats, and one with more seats and private actions."""
    return [*tasks.generate("bargaining", 1, seed=0), *tasks.generate("group_decision", 1, seed=0)]


def _check_members(value: object, protocol: type) -> None:
    try:
        check_members(protocol.__name__.lower(), f"a {protocol.__name__}", value, protocol)
    except InvalidValueError as error:
        raise AssertionError(str(error)) from None


def check_policy(policy: Policy, *, task: Task | None = None, turns: int = 6, repeatable: bool = False) -> None:
    """Plays the policy against itself for a few turns in every turn order, and checks its contract.

    Args:
        policy: the policy to check.
        task: the task to play; by default, one task with two seats and one with more.
        turns: the number of turns in each order.
        repeatable: whether to require the same action for the same observation and seed.

    Raises:
        AssertionError: the policy violates the contract; the message says how.
    """
    _check_members(policy, Policy)
    assert isinstance(policy.name, str), f"name: expected text, got {policy.name!r}"
    assert policy.name, "name: expected text, got none"
    policy_identity(policy)
    for sample in [task] if task else _sample_tasks():
        for order in TurnOrder:
            asyncio.run(_check_play(policy, sample, Rules(turn_order=order, max_silent_turns=0), turns, repeatable))


async def _check_play(policy: Policy, task: Task, rules: Rules, turns: int, repeatable: bool) -> None:
    state = initial_state(task, rules, 0)
    for index in range(turns):
        if state.actor is None:
            return
        where = f"{policy.name}, {rules.turn_order.value} order, turn {index + 1}"
        observation, seed = observe(state, state.actor), turn_seed(0, index, task.agents.index(state.actor))
        before = (observation.text, observation.messages)
        decision = await policy.act(observation, seed)
        assert isinstance(decision, Decision), f"{where}: expected a Decision, got {type(decision).__name__}"
        assert (observation.text, observation.messages) == before, f"{where}: the observation was changed"
        if repeatable:
            again = await policy.act(observation, seed)
            assert again.action == decision.action, f"{where}: expected {decision.action} again, got {again.action}"
        problem = observation.move_problem(decision.action)
        assert problem is None, f"{where}: {problem}"
        state = transition(state, decision.action)
        violation = state.turns[-1].violation
        # In a simultaneous round, others' moves of the same round, which the policy cannot know, may close its move.
        late = rules.turn_order.veiled and decision.action.move is not None
        assert violation is None or late, f"{where}: {violation}"


def check_evaluator(evaluator: Evaluator, episode: Episode | None = None) -> Evaluation:
    """Checks an evaluator's contract on a short episode, and returns the evaluation.

    Raises:
        AssertionError: the evaluator violates the contract; the message says how.
        EvaluationError: the evaluator cannot score this episode.
    """
    if episode is None:
        leave = Action(ActionType.LEAVE)
        episode = Episode.of_state(state_after(_sample_tasks()[0], "Good morning.", "The same to you.", leave))
    _check_members(evaluator, Evaluator)
    assert isinstance(evaluator.name, str), f"name: expected text, got {evaluator.name!r}"
    canonical_json(dict(evaluator.parameters))
    result = asyncio.run(evaluator.evaluate(episode))
    assert isinstance(result, Evaluation), f"{evaluator.name}: expected an Evaluation, got {type(result).__name__}"
    assert result.evaluator == evaluator.name, f"expected an evaluation by {evaluator.name!r}, got {result.evaluator!r}"
    strangers = sorted(set(result.by_agent) - set(episode.task.agents))
    assert not strangers, f"{evaluator.name}: scores for {', '.join(strangers)}, who did not take part"
    assert result.scores or result.unscored, f"{evaluator.name}: neither scores nor a reason for their absence"
    assert read_record(Evaluation, result.model_dump_json(), evaluator.name) == result, (
        f"{evaluator.name}: no JSON round trip"
    )
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Leaks and forgeries
_SHORTEST = 6  # shorter texts occur by chance


@dataclass(frozen=True, slots=True)
class Leak:
    """A text that a seat may not know, with its owner and its field in the task."""

    owner: str
    where: str
    text: str


def leaks(state: EpisodeState, agent: str, text: str) -> tuple[Leak, ...]:
    """Returns the private texts of the other seats in ``text`` that ``agent`` may not know in ``state``.

    The result depends on the task and the disclosure rules only, not on observations, so leaks in observations are
    found, too. Numbers and texts shorter than 6 characters are ignored.
    """
    permitted = "\n".join(_permitted(state, agent))
    return tuple(
        leak
        for leak in _private(state.task, agent)
        if len(leak.text) >= _SHORTEST
        and leak.text not in permitted
        # The text may occur literally or in either of the escaped forms.
        and any(form in text for form in (leak.text, quote(leak.text)[1:-1], escape(leak.text)))
    )


def check_no_leaks(state: EpisodeState, agent: str, messages: Sequence[ChatMessage]) -> None:
    """Raises ``AssertionError`` if messages for ``agent`` contain a leak; see :func:`leaks`."""
    secrets = leaks(state, agent, "\n".join(message["content"] for message in messages))
    assert not secrets, f"{agent} is told {secrets[0].where} of {secrets[0].owner}: {secrets[0].text!r}"


def _permitted(state: EpisodeState, agent: str) -> list[str]:
    task, seat = state.task, state.task.agents.index(agent)
    scenario = task.scenario
    texts = [scenario.context, canonical_json(scenario.shared_data), describe(task.characters[seat], OWN_FIELDS)]
    texts += [text for _, text in _seat_texts(scenario.seats[seat])]
    for other in range(len(task.agents)):
        if other != seat:
            relationship = task.relationship(seat, other)
            texts += [relationship.backstory, describe(task.characters[other], DISCLOSURE[relationship.kind])]
    return texts + [turn.action.argument for turn in state.turns if _perceived(state, agent, turn)]


def _perceived(state: EpisodeState, agent: str, turn: Turn) -> bool:
    if turn.actor == agent:
        return True
    over = not turn.veiled or state.stop is not None or turn.round < state.round
    return over and (turn.audience is None or agent in turn.audience)


def _private(task: Task, agent: str) -> list[Leak]:
    """Returns every text about the other seats, and about pairs without ``agent``."""
    texts = []
    for other, character, seat in zip(task.agents, task.characters, task.scenario.seats, strict=True):
        if other != agent:
            texts += [Leak(other, where, text) for where, text in (*_seat_texts(seat), *_profile_texts(character))]
    for pair in task.relationships:
        agents = [task.agents[seat] for seat in pair.seats]
        if agent not in agents:
            texts.append(Leak(" and ".join(agents), "backstory", pair.backstory))
    return texts


def _seat_texts(seat: Seat) -> list[tuple[str, str]]:
    texts = [("goal", goal) for goal in seat.goals] + [("hint", hint) for hint in seat.hints]
    texts += [("private information", seat.private_info)]
    return texts + [("private data", text) for text in _strings(seat.private_data)]


def _profile_texts(character: Character) -> list[tuple[str, str]]:
    texts = [(name, getattr(character, name)) for name in ("occupation", "public_info", "personality", "secret")]
    for name in ("public_attributes", "private_attributes"):
        texts += [(name, text) for text in getattr(character, name).values()]
    return texts


def _strings(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def outside_quotes(text: str) -> str:
    """Returns ``text`` with every JSON string literal on one line replaced by an empty one."""
    return _LITERAL.sub('""', text)


def check_quoted(messages: Sequence[ChatMessage], utterance: str) -> None:
    """Raises ``AssertionError`` if a line of ``utterance`` is outside a quoted literal in any message."""
    for line in filter(None, (line.strip() for line in utterance.splitlines())):
        for message in messages:
            loose = line in outside_quotes(message["content"])
            assert not loose, f"{message['role']}: {line!r} occurs outside quotes"
