"""A policy or a person that is advised by another policy: what was advised, and what came of it, is in the record.

The adviser gets the observation of the seat and nothing else, and only the seat reads its advice. It is written in the
text behind the seat's turn (:attr:`~sotopia_env.world.episode.Generation.advice`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_members
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.world.action import NO_ACTION, Advice, to_json
from sotopia_env.world.answers import BeliefReplies, InterviewQuestion, InterviewReply, answer_of, beliefs_of
from sotopia_env.world.episode import Generation
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.notes import notes_of
from sotopia_env.world.play.policy import Decision, Policy, turn_seed

Mode = Literal["propose", "advise", "act"]
"""What an assistant does for a person, as in :class:`~sotopia_env.world.action.Advice`."""


def mode_of(name: str) -> Mode:
    """Returns the mode of this name, or raises :class:`UnknownNameError`."""
    if name not in (modes := get_args(Mode)):
        raise UnknownNameError(field="assistance", got=name, valid=modes)
    return cast(Mode, name)


def advice_on(policy: str, mode: Mode, outcome: Decision | Exception, seconds: float) -> Advice:
    """Returns the advice in what a policy was asked for; without an action, the reason for that.

    Args:
        policy: the name of the policy that advises.
        mode: what it does for the person.
        outcome: its decision, or the error that came instead.
        seconds: the time that it took.
    """
    advice = Advice(policy=policy, mode=mode, action=NO_ACTION, seconds=round(seconds, 3))
    if not isinstance(outcome, Decision):
        return advice.model_copy(update={"problem": f"{type(outcome).__name__}: {outcome}"})
    changes: dict[str, object] = {"action": outcome.action}
    if (generation := outcome.generation) is not None:
        changes |= {"tokens": generation.usage.tokens, "cost": generation.usage.cost}
        if generation.parse_failure:
            changes["problem"] = f"its answer is not an action: {generation.parse_failure}"
    return advice.model_copy(update=changes)


@runtime_checkable
class Asked(Protocol):
    """A policy that can be asked whether it lets an assistant act, such as a person at the terminal."""

    async def lets(self, observation: Observation, question: str) -> bool:
        """Returns the answer to a question of yes or no about the coming turn."""
        ...


@dataclass(frozen=True, slots=True)
class AdvisedPolicy:
    """Acts as a policy does that has read the advice of another one.

    Attributes:
        policy: decides; a language model reads the advice at the end of its prompt, a person above the menu, and a
            script does not read it.
        adviser: the policy that advises; it is asked in every turn, before ``policy``.
        mode: ``advise``; for an :class:`Asked` policy also ``propose`` (it may take the proposed action as it is) and
            ``act`` (the action is carried out unless it takes over). Other policies cannot be asked.
        name: the name in records.
    """

    policy: Policy
    adviser: Policy
    mode: Mode = "advise"
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        check_members("policy", "a policy", self.policy, Policy)
        check_members("adviser", "a policy", self.adviser, Policy)
        if self.mode != "advise" and not isinstance(self.policy, Asked):
            raise InvalidValueError(field="mode", expected="'advise' for a policy that is not a person", got=self.mode)
        # Also for a person: those with another adviser are another policy in comparisons.
        object.__setattr__(self, "name", self.name or f"advised({self.policy.name} by {self.adviser.name})")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Those of the policy, and the adviser with its own."""
        adviser = {"name": self.adviser.name, "parameters": dict(self.adviser.parameters)}
        own = {"name": self.policy.name, "parameters": dict(self.policy.parameters)}
        return {"policy": own, "adviser": adviser, "mode": self.mode}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the decision of the policy after the advice, or the adviser's where it acts.

        Raises:
            PolicyError: the adviser or the policy could not produce an action.
        """
        started = time.perf_counter()
        # A seed of its own: an adviser that is the same policy would otherwise only repeat the decision.
        advised = await self.adviser.act(observation, turn_seed(seed, 0, 1))
        advice = advice_on(self.adviser.name, self.mode, advised, time.perf_counter() - started)
        line = advice.problem and f"no advice: {advice.problem}"
        names = {agent: name for name, agent in observation.briefing.recipients.items()}
        line = line or to_json(advice.action, names)
        if not advice.problem and await self._takes(observation, line):
            done = advice.model_copy(
                update={"response": "played"} if self.mode == "act" else {"response": "same", "is_copied": True}
            )
            text = advised.generation if self.mode == "act" else None
            return Decision(advised.action, _with(text, done), advised.errors)
        own = await self.policy.act(dataclasses.replace(observation, advice=_line(advice, line)), seed)
        errors = (*advised.errors, *own.errors)
        return Decision(own.action, _with(own.generation, advice.followed_by(own.action)), errors)

    async def _takes(self, observation: Observation, line: str) -> bool:
        if self.mode == "advise" or not isinstance(self.policy, Asked):
            return False
        words, question = {
            "propose": ("proposes", "Take it as it is?"),
            "act": ("is going to do", "Let it act for you?"),
        }[self.mode]
        return await self.policy.lets(observation, f"Your assistant {words}: {line}\n{question}")

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer of the policy itself; nobody advises on answers."""
        return await answer_of(self.policy, observation, question, seed)

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns the notes of the policy itself; those that it had if it takes none."""
        return await notes_of(self.policy, observation, most, seed)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> BeliefReplies:
        """Returns the beliefs of the policy itself."""
        return beliefs_of(self.policy, observation, variables, seed, samples)


def _with(generation: Generation | None, advice: Advice) -> Generation:
    return (generation or Generation()).model_copy(update={"advice": advice})


def _line(advice: Advice, line: str) -> str:
    """The advice as a line of the observation; nothing in it can pose as another line."""
    words = "could give you" if advice.problem else "suggests this answer, which you may follow or not:"
    return f"Your assistant, whom only you can read, {words} {escape_line(line)}\n"
