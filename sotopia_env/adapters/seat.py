"""One seat of an episode as text in and text out: the interface from which all adapters are made.

A :class:`Seat` plays one agent of a task, and its partners play the others::

    seat = Seat.against("bargaining", partner="boulware", seed=7)
    messages = await seat.begin()
    while not seat.done:
        text = model(messages)
        news, done = await seat.say(text)
        messages += [{"role": "assistant", "content": text}, *news]
    seat.reward, seat.turn_rewards
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sotopia_env import naming
from sotopia_env.credit import standing_rewards
from sotopia_env.envs.episode_reward import EpisodeReward
from sotopia_env.errors import InvalidActionError, InvalidValueError, check_members, check_whole
from sotopia_env.policies import Policy
from sotopia_env.policies.function_calls import action_text, functions_of
from sotopia_env.records import read_record
from sotopia_env.table import Table
from sotopia_env.world import (
    NO_ACTION,
    ChatMessage,
    Episode,
    Evaluator,
    FunctionCall,
    Generation,
    PolicyInfo,
    Rules,
    Task,
)
from sotopia_env.world.reward import RewardVector, Scalarisation

Partner = Policy | str
Messages = list[ChatMessage]


class Seat:
    """One seat of one episode. It can be pickled between turns if its partners and its evaluator can; names always can.

    Attributes:
        agent: the agent id of the seat.
        table: the episode.
        reward: the reward of the episode; ``None`` before its :meth:`end`.
        vector: the scores on the seven dimensions in their native ranges, shape (7,); ``None`` before the end.
    """

    def __init__(
        self,
        task: Task,
        agent: str,
        partners: Mapping[str, Partner],
        *,
        rules: Rules | None = None,
        seed: int = 0,
        evaluator: Evaluator | str | None = None,
        scalarisation: str | None = None,
        reasks: int = 2,
        name: str = "model",
    ) -> None:
        """Seats the partners; they act from :meth:`begin` on.

        Args:
            task: the task.
            agent: the agent id of this seat.
            partners: a policy, or its name, for every other agent.
            rules: turn order and limits.
            seed: of the turn order and the partners.
            evaluator: an evaluator or its name; by default the moves of a task with an outcome, else the rules.
            scalarisation: how the reward is computed; by default as in the environments (docs/rewards.md).
            reasks: how often a text that is no action is answered with the reason; the next one counts as doing
                nothing.
            name: the name of the seat's own policy in the record.

        Raises:
            InvalidValueError: an argument is invalid, or the evaluator does not score what the reward needs.
            UnknownNameError: the task has no such agent, or a name is unknown.
        """
        others = {other for other in task.agents if other != agent}
        if len(others) == len(task.agents):
            raise InvalidValueError(field="agent", got=agent, valid=task.agents)
        if set(partners) != others:
            expected = f"a policy for each of {', '.join(sorted(others))}"
            raise InvalidValueError(field="partners", expected=expected, got=sorted(partners))
        check_whole("reasks", reasks, 0)
        self.agent = agent
        opening = Table(task, rules or Rules(), seed).episode()
        self.table = Table.resume(opening.model_copy(update={"policies": (PolicyInfo(agent=agent, name=name),)}))
        self.reward: float | None = None
        self.vector: RewardVector | None = None
        self._partners = dict(partners)
        self._policies = {other: _policy(partner) for other, partner in partners.items()}
        self._evaluator, self._scalarisation = evaluator, scalarisation
        self._payment = self._paid()
        self._reasks, self._failures = reasks, 0

    @classmethod
    def against(
        cls,
        task: Task | Mapping[str, Any] | str,
        partner: Partner | Mapping[int, Partner] = "boulware",
        focal: int = 0,
        **options: Any,
    ) -> Seat:
        """Returns a seat with partners by number of seat.

        Args:
            task: a task; its JSON as an object or a text; or the name of a task set, from which ``seed`` draws one:
                ``"bargaining"``, ``"everyday"``.
            partner: a policy or its name for all other seats, or one for each of them.
            focal: the number of the seat, from 0.
            options: of :class:`Seat`.

        Raises:
            InvalidValueError: an argument is invalid.
            UnknownNameError: a name is unknown.
        """
        if not isinstance(task, Task):
            task = _task(task, int(options.get("seed", 0)))
        check_whole("focal", focal, 0, len(task.agents) - 1)
        numbers = [number for number in range(len(task.agents)) if number != focal]
        by_number = partner if isinstance(partner, Mapping) else dict.fromkeys(numbers, partner)
        if set(by_number) != set(numbers):
            raise InvalidValueError(field="partner", expected=f"one for each of the seats {numbers}", got=[*by_number])
        return cls(task, task.agents[focal], {task.agents[n]: one for n, one in by_number.items()}, **options)

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.table.stop is not None

    @property
    def functions(self) -> tuple[dict[str, Any], ...]:
        """The functions that a model may call in place of writing JSON: name, description and JSON schema."""
        return functions_of(self.table.observe(self.agent))

    @property
    def turn_rewards(self) -> tuple[float, ...] | None:
        """The change of what the seat has secured, for each of its turns, in the unit of :attr:`reward`.

        ``None`` if moves do not determine the reward, as in a task without an outcome. See
        :func:`sotopia_env.credit.standing_rewards`.
        """
        scalarisation = self._payment.scalarisation
        if self._payment.basis != "verified" or scalarisation is None:
            return None
        return standing_rewards(self.episode(), self.agent, scalarisation).values

    def step_reward(self, turns: int, *, by_turn: bool) -> float:
        """Returns what a trainer pays for one step, for libraries with a reward for each.

        Args:
            turns: the number of the seat's turns before the step; an answer that is to be given again is no turn.
            by_turn: whether it is the turn's own reward (:attr:`turn_rewards`), or all of the episode's at its end.
        """
        credits = self.turn_rewards if by_turn else None
        if credits is None:
            return self.reward or 0.0
        return credits[-1] if len(credits) > turns else 0.0

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the episode for logs: why it ended, turns, unusable texts, and what the reward is based on."""
        own = [item for item in self.table.turns if item.turn.actor == self.agent]
        failed = sum(item.generation is not None and item.generation.parse_failure is not None for item in own)
        stop = self.table.stop
        return {
            "stop": stop.value if stop else None, "turns": len(self.table.turns), "own_turns": len(own),
            "failed_turns": failed, **self._payment.info,
        }  # fmt: skip

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        return self.table.episode()

    async def begin(self) -> Messages:
        """Lets the partners act until it is this seat's turn, and returns the conversation so far.

        The first message is the system's. An episode may end before the seat ever acts; :attr:`done` is true then.

        Raises:
            PolicyError: a partner produced no action.
            EvaluationError: the episode ended at once and could not be scored.
        """
        await self._others()
        return list(self.table.observe(self.agent).messages)

    async def say(self, answer: str | Mapping[str, Any]) -> tuple[Messages, bool]:
        """Takes what the model answered, and lets the partners act until it is this seat's turn again.

        Args:
            answer: the text of the model; an action as JSON fields (``action_type``, ``argument``, ``to``, ``move``);
                or a call of one of :attr:`functions` (``name`` and ``arguments``, or OpenAI's ``{"function": …}``).

        Returns:
            The messages that are new to the seat, and whether the episode has ended. If the answer was no action and
            may be given again, the message is the reason.

        Raises:
            InvalidActionError: the episode has ended or not begun.
            PolicyError: a partner produced no action.
            EvaluationError: the episode could not be scored.
        """
        if self.agent not in self.table.acting:
            raise InvalidActionError("it is not this seat's turn", hint="call begin() first, and stop when it is done")
        text = _text(answer)
        failure = self.table.answer(self.agent, text, Generation(text=text, reasks=self._failures))
        if failure is not None and self._failures < self._reasks:
            self._failures += 1
            return [{"role": "user", "content": f"That is not an action: {failure.reason}"}], False
        if failure is not None:
            generation = Generation(text=text, parse_failure=failure.reason, reasks=self._failures)
            self.table.answer(self.agent, NO_ACTION, generation)
        self._failures, self.reward, self.vector = 0, None, None  # an evaluation of an unfinished episode is over
        await self._others()
        return ([] if self.done else [self.table.observe(self.agent).messages[-1]]), self.done

    async def end(self) -> None:
        """Evaluates the episode as it is, even before its end: what was agreed so far counts, and no open offer.

        Raises:
            EvaluationError: it could not be scored.
        """
        evaluation = await self.table.evaluate(self._payment.evaluator)
        outcome, number = evaluation.outcome, self.table.task.seat_of[self.agent]
        payment = self._payment.pay(evaluation, self.agent, lambda _: outcome.shares[number] if outcome else 0.0)
        self.reward, self.vector = float(payment.reward), payment.vector

    async def _others(self) -> None:
        await self.table.play(self._policies)
        if self.table.stop is not None and self.reward is None:
            await self.end()

    def _paid(self) -> EpisodeReward:
        judge = None if self._evaluator is None else naming.make_evaluator(self._evaluator)
        scalarisation = None if self._scalarisation is None else Scalarisation.of(self._scalarisation)
        return EpisodeReward.of(self.table.task, judge, scalarisation)

    def __getstate__(self) -> dict[str, Any]:
        # Policies and evaluators given by name are made again: models hold connections and locks.
        return {**self.__dict__, "_policies": None, "_payment": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._policies = {other: _policy(partner) for other, partner in self._partners.items()}
        self._payment = self._paid()


def rows(tasks: Iterable[Task], partner: str = "boulware", seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the arguments of :meth:`Seat.against` for every seat of every task, as rows of a data set.

    Args:
        tasks: the tasks.
        partner: the name of the policy in all other seats.
        seed: the seed of the first task's episodes; the next task's is one more.
    """
    for number, task in enumerate(tasks):
        for focal in range(len(task.agents)):
            yield {"task": task.model_dump_json(), "partner": partner, "focal": focal, "seed": seed + number}


def _task(source: Mapping[str, Any] | str, seed: int) -> Task:
    """A task from its JSON, or task number ``seed`` of a set, from its beginning again at its end."""
    if isinstance(source, str) and not source.lstrip().startswith("{"):
        tasks = naming.task_set(source, None, seed, "medium")
        return tasks[seed % len(tasks)]
    text = source if isinstance(source, str) else json.dumps(source)
    return read_record(Task, text, "task")


def _policy(partner: Partner) -> Policy:
    if isinstance(partner, str):
        return naming.make_policy(partner)
    check_members("partner", "a policy or the name of one", partner, Policy)
    return partner


def _text(answer: str | Mapping[str, Any]) -> str:
    if isinstance(answer, str):
        return answer
    call = answer.get("function", answer)
    if "name" not in call:
        return json.dumps(answer, ensure_ascii=False)
    arguments = call.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return action_text([FunctionCall(str(call["name"]), text)])
