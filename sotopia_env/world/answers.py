"""Questions to the participants of an episode, and the answers as they are recorded.

Two kinds of questions are put to the policy of a seat, with its own observation and outside the play:

* A question of the interview after the end (AgentSense §3.4). A reply selects one option or states why it does not. A
  respondent who was asked about private information and did not answer counts as wrong; if no one could be asked, the
  value is unknown.
* A *probe*: a closed question on a variable, at any moment. The reply, a *belief*, is a probability for every option,
  or states why there is none: an unknown belief is never taken to be uniform.

A question never contains the right answer; the record of an interview's answer, which only evaluators read, does.
"""

from __future__ import annotations

import inspect
import math
import string
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, Self, cast, runtime_checkable

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, PolicyError, excerpt
from sotopia_env.foundation.records import Record
from sotopia_env.outcomes.facts import Distribution, PublicVariable
from sotopia_env.world.observation import Observation


class View(StrEnum):
    """The perspective of a respondent on a goal."""

    SELF = "self"
    OTHER = "other"
    EXTERNAL = "external"


YES, NO = "yes", "no"
YES_NO = (YES, NO)
_INTERVIEW_SAMPLES = 8
"""The number of answers that a policy draws which states beliefs by shares."""
MOST_OPTIONS = len(string.ascii_uppercase)
"""The maximum number of options that letters can name."""


@dataclass(frozen=True, slots=True)
class InterviewQuestion:
    """A question to one seat after the end.

    Attributes:
        about: id of the agent whose goal or private information it is about.
        text: the goal, or the question.
        options: the answers to choose from: ``yes`` and ``no`` for a goal.
    """

    about: str
    text: str
    options: tuple[str, ...] = YES_NO

    def __post_init__(self) -> None:
        if not 2 <= len(self.options) <= MOST_OPTIONS:
            raise InvalidValueError(field="options", expected=f"2 to {MOST_OPTIONS}", got=len(self.options))

    @property
    def on_goal(self) -> bool:
        """Whether it asks if a goal was reached."""
        return self.options == YES_NO

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that select the options: ``yes`` and ``no``, or letters from A on."""
        return YES_NO if self.on_goal else tuple(string.ascii_uppercase[: len(self.options)])


@dataclass(frozen=True, slots=True)
class InterviewReply:
    """The reply to a question.

    Attributes:
        choice: index of an option; ``None`` for no answer.
        reason: the reason for a missing answer; empty if there is one.
        asked: whether there was a respondent who could have answered.
    """

    choice: int | None = None
    reason: str = ""
    asked: bool = True

    def __post_init__(self) -> None:
        # Exactly one of the two: a choice needs no reason, and a missing choice must have one.
        if (self.choice is None) is not bool(self.reason):
            raise InvalidValueError(expected="either a choice or the reason for its absence", got=self)


class Configured(Protocol):
    """An object with a name and parameters, such as a policy."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes its behaviour, as JSON."""
        ...


PARTICIPANT = "participant"
"""The parameter that says which person a policy is. It is not a setting: people are compared as one policy."""


def participant_of(policy: Configured) -> str:
    """Returns which person a policy is; empty for all others."""
    return str(policy.parameters.get(PARTICIPANT, ""))


def settings_of(policy: Configured) -> dict[str, Any]:
    """Returns the parameters of a policy without the person's."""
    return {name: value for name, value in policy.parameters.items() if name != PARTICIPANT}


@runtime_checkable
class Interviewee(Configured, Protocol):
    """A policy that answers questions after the end, as the character in its seat; optional for policies."""

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer to one question.

        Args:
            observation: the seat's observation after the end; the answer may be based on nothing else.
            question: to be answered; no other question is known to the policy.
            seed: the only source of randomness a policy may use.

        Raises:
            PolicyError: the respondent could not be asked, which does not count as an answer.
        """
        ...


async def answer_of(
    policy: Configured, observation: Observation, question: InterviewQuestion, seed: int
) -> InterviewReply:
    """Returns the policy's answer; without one, a reply without a choice.

    A policy that states beliefs and has no method ``answer`` chooses the option of the highest probability.
    """
    if isinstance(policy, Interviewee):
        return await policy.answer(observation, question, seed)
    if hasattr(policy, "believe"):
        replies = beliefs_of(policy, observation, [_as_variable(question)], seed, _INTERVIEW_SAMPLES)
        (reply,) = replies if isinstance(replies, list) else await replies
        return _likeliest(reply, question)
    # ``asked=False``: nobody could answer, so the question does not count as wrong.
    return InterviewReply(reason=f"the policy {policy.name!r} answers no questions", asked=False)


def _as_variable(question: InterviewQuestion) -> PublicVariable:
    return PublicVariable(question.text, question.options, "question", question.about, question.text, evidence=False)


def _likeliest(reply: BeliefReply, question: InterviewQuestion) -> InterviewReply:
    if reply.probabilities is None:
        return InterviewReply(reason=reply.reason, asked=reply.asked)
    shares = [reply.probabilities[option] for option in question.options]
    if shares.count(max(shares)) > 1:
        return InterviewReply(reason="the belief has no one likeliest option")
    return InterviewReply(shares.index(max(shares)))


class InterviewAnswer(Record):
    """One respondent's answer to one question, as recorded.

    Attributes:
        respondent: an agent id, or ``judge_0``, ``judge_1``, … from outside.
        by: name of the policy or the model behind the respondent; empty if unknown.
        about: id of the agent whose goal or private information it is about.
        view: the respondent's perspective on a goal; ``None`` for a question on private information.
        index: the index, from 0, of the goal among the agent's goals or of the question in the interview.
        value: whether the goal was reached, as the respondent sees it, or whether the chosen answer is the right one;
            ``None`` for no answer.
        choice: the chosen answer to a question on private information.
        reason: the reason for the answer, if given; without an answer, the reason for its absence.
        asked: whether there was a respondent who could have answered; a policy that does not answer, or that is
            missing, was never asked.
    """

    respondent: str
    by: str = ""
    about: str
    view: View | None = None
    index: int = Field(ge=0)
    value: bool | None = None
    choice: str | None = None
    reason: str = ""
    asked: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.value is None and not self.reason:
            raise InvalidValueError(field="reason", expected="the reason for the missing answer")
        # A goal's answer is in ``value`` alone; the chosen text is recorded only for multiple choice.
        if (self.choice is not None) is not (self.view is None and self.value is not None):
            raise InvalidValueError(
                field="choice",
                expected="one with every answer on private information, and with no other",
                got=self.choice,
            )
        return self


INFORMATION, ANSWERED, COVERAGE = "information", "information_answered", "information_coverage"
INFORMATION_MEASURES = (INFORMATION, ANSWERED, COVERAGE)
"""Measures of answers on private information, each a mean over questions: the share of right answers among all
questions asked (the paper's accuracy, AgentSense §3.4), the share of right answers among those given, and the share of
questions that were answered."""


def information_values(right: bool | None) -> dict[str, float]:
    """Returns one question's contribution to each measure; a question without an answer counts as not right."""
    # Unanswered questions are left out of ``ANSWERED``, whose mean is over the answered ones.
    values = {INFORMATION: float(right is True), COVERAGE: float(right is not None)}
    return values if right is None else values | {ANSWERED: float(right)}


def is_majority(votes: Sequence[bool]) -> bool:
    """Returns whether more votes say yes than no: a tie is not a majority."""
    return 2 * sum(votes) > len(votes)


TRUST = "trust"
"""The kind of a variable that is what a seat would entrust to another, to ``of``, or to a stranger if that is empty."""
ENDOWMENT = 100
ENTRUSTED = ("0", "25", "50", "75", "100")
"""The options of such a variable: parts of the endowment."""


def entrusting(share: float) -> dict[str, float]:
    """Returns the probabilities of the options of a question about trust whose mean is this share of the endowment."""
    step = min(int(share * (len(ENTRUSTED) - 1)), len(ENTRUSTED) - 2)
    upper = share * (len(ENTRUSTED) - 1) - step
    return dict.fromkeys(ENTRUSTED, 0.0) | {ENTRUSTED[step]: 1 - upper, ENTRUSTED[step + 1]: upper}


_SUMS_TO_ONE = 1e-6


@dataclass(frozen=True, slots=True)
class BeliefReply:
    """The reply to a probe.

    Attributes:
        probabilities: by option; they sum to 1. ``None`` for no answer.
        samples: the number of answers whose shares the probabilities are; 0 where they are exact.
        reason: the reason for a missing answer; empty if there is one.
        asked: whether there was a respondent who could have answered.
    """

    probabilities: Distribution | None = None
    samples: int = 0
    reason: str = ""
    asked: bool = True

    def __post_init__(self) -> None:
        if (self.probabilities is None) is not bool(self.reason):
            raise InvalidValueError(expected="either probabilities or the reason for their absence", got=self)


BeliefReplies = list[BeliefReply] | Coroutine[Any, Any, list[BeliefReply]]
"""Replies, or a coroutine that returns them."""


@runtime_checkable
class Believer(Configured, Protocol):
    """A policy that states its beliefs on variables at any moment; optional for policies."""

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> BeliefReplies:
        """Returns one reply per variable.

        A method of a policy that waits for something, such as a model, is a coroutine (``async def``). One that does
        not is a plain method, because a task of an event loop costs more than the belief of a script.

        Args:
            observation: the seat's observation; the belief may be based on nothing else.
            variables: those that are asked about, each on its own. Of the kind :data:`TRUST` is what the seat would
                entrust to another (:mod:`sotopia_env.evaluators.probes.trust`).
            seed: the only source of randomness a policy may use.
            samples: the number of answers to draw where probabilities are not at hand.

        Raises:
            PolicyError: the respondent could not be asked, which does not count as an answer.
        """
        ...


def beliefs_of(
    policy: Configured, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
) -> BeliefReplies:
    """Returns the policy's beliefs, or a coroutine that does; replies without probabilities if it states none.

    Raises:
        PolicyError: the respondent could not be asked, or its replies are not distributions over the options.
    """
    # Not ``isinstance``: for a protocol it costs as much as the belief of a script.
    if not hasattr(policy, "believe"):
        reason = f"the policy {policy.name!r} states no beliefs"
        return [BeliefReply(reason=reason, asked=False) for _ in variables]
    replies = cast(Believer, policy).believe(observation, variables, seed, samples)
    return _checked(policy, variables, replies) if isinstance(replies, list) else _later(policy, variables, replies)


async def _later(
    policy: Configured, variables: Sequence[PublicVariable], replies: Coroutine[Any, Any, list[BeliefReply]]
) -> list[BeliefReply]:
    return _checked(policy, variables, await replies if inspect.isawaitable(replies) else replies)


def _checked(policy: Configured, variables: Sequence[PublicVariable], replies: object) -> list[BeliefReply]:
    if not isinstance(replies, list) or len(replies) != len(variables):
        expected = f"a list of {len(variables)} beliefs, one per variable"
        raise PolicyError(f"{policy.name}: expected {expected}, got {excerpt(replies)}")
    for variable, reply in zip(variables, replies, strict=True):
        if not isinstance(reply, BeliefReply):
            expected = "BeliefReply(PROBABILITIES), or BeliefReply(reason=TEXT) for no answer"
            raise PolicyError(f"{policy.name}: belief on {variable.name!r}: expected {expected}, got {excerpt(reply)}")
        if reply.probabilities is not None and (problem := _distribution_problem(variable, reply.probabilities)):
            raise PolicyError(f"{policy.name}: belief on {variable.name!r}: {problem}")
    return replies


def _distribution_problem(variable: PublicVariable, probabilities: Distribution) -> str:
    """Why these are not probabilities of the variable's options; empty if they are."""
    options = ", ".join(variable.options)
    if not isinstance(probabilities, Mapping):
        return f"expected a probability for each of {options}, got {excerpt(probabilities)}"
    if set(probabilities) != set(variable.options):
        return f"expected the options {options}, got {', '.join(map(str, probabilities))}"
    try:
        total = math.fsum(probabilities.values())
    except (TypeError, ValueError):  # a text; an infinity
        return f"expected a number for each of {options}, got {excerpt(dict(probabilities))}"
    is_share = all(0 <= share <= 1 + _SUMS_TO_ONE for share in probabilities.values())
    return "" if is_share and abs(total - 1) <= _SUMS_TO_ONE else f"expected probabilities that sum to 1, got {total:g}"


class Belief(Record):
    """One seat's belief on one variable at one moment, as recorded.

    Attributes:
        respondent: the agent id of the seat.
        by: name of the policy that answered; empty if unknown.
        turns: the number of turns of the episode before the question.
        variable: the name of the variable.
        control: whether the seat knows the value from its briefing: the answer shows that it can answer at all.
        options: the options of the variable.
        shares: the probability of each of them, in their order; empty for no answer.
        samples: the number of answers whose shares the probabilities are; 0 where they are exact.
        reason: the reason for a missing answer.
        asked: whether there was a respondent who could have answered.
    """

    respondent: str
    by: str = ""
    turns: int = Field(ge=0)
    variable: str
    control: bool = False
    options: tuple[str, ...]
    shares: tuple[float, ...] = ()
    samples: int = Field(default=0, ge=0)
    reason: str = ""
    asked: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.shares) is bool(self.reason):
            expected = "the reason where probabilities are missing, and nowhere else"
            raise InvalidValueError(field="reason", expected=expected, got=self.reason)
        if self.shares and len(self.shares) != len(self.options):
            raise InvalidValueError(
                field="shares", expected=f"{len(self.options)}, one per option", got=len(self.shares)
            )
        return self

    @cached_property
    def probabilities(self) -> Distribution | None:
        """The probabilities by option; ``None`` for no answer."""
        return dict(zip(self.options, self.shares, strict=True)) if self.shares else None

    def error(self, option: str) -> float:
        """Returns the standard error of the probability of an option; 0 where it is exact.

        One answer for and one against are added, because equal answers would otherwise leave no doubt.
        """
        if self.probabilities is None or not self.samples:
            return 0.0
        share = (self.samples * self.probabilities[option] + 1) / (self.samples + 2)
        return math.sqrt(share * (1 - share) / (self.samples + 2))
