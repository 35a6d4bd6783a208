"""Trust: how much the others would entrust to a seat after an episode, against what they would entrust to a stranger.

The question is that of an investment game (Berg, Dickhaut and McCabe, 1995), put on a fork like every probe: nothing
follows from it, and nobody in the episode learns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.world.answers import ENDOWMENT, ENTRUSTED, TRUST, Belief
from sotopia_env.world.scenario import Task

_MOST = 5.0
_QUESTION = (
    f"how many of {ENDOWMENT} coins of your own you would entrust to {{}}, if every coin that you entrust becomes "
    "three, the others stay with you, and the one who gets the three decides alone how many come back"
)


def trust_questions(task: Task, agent: str) -> tuple[PublicVariable, ...]:
    """Returns the questions to ``agent``: one about each of the others, and the last one about a stranger."""
    key = ("trust questions", agent)
    if key not in task.memo:
        others = [other for other in task.agents if other != agent]
        named = [_question(f"endowment to {other}", other, task.names[other]) for other in others]
        task.memo[key] = (*named, _question("endowment to a stranger", "", "a stranger whom you have never met"))
    questions: tuple[PublicVariable, ...] = task.memo[key]
    return questions


def _question(name: str, of: str, trustee: str) -> PublicVariable:
    return PublicVariable(name, ENTRUSTED, TRUST, of, _QUESTION.format(trustee), evidence=False)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the others would entrust to a seat.

    Attributes:
        shares: by agent id, the mean share of the endowment for the seat, and that for a stranger.
        missing: why others are left out; empty if nobody is.
    """

    shares: dict[str, tuple[float, float]]
    missing: str = ""

    @property
    def value(self) -> float | None:
        """From -5, where all would go to a stranger and nothing to the seat, to 5; ``None`` if unknown."""
        return _MOST * fmean(own - stranger for own, stranger in self.shares.values()) if self.shares else None

    def __str__(self) -> str:
        """The amounts that the value is made of."""
        parts = [
            f"{agent} would entrust {ENDOWMENT * own:.1f} of {ENDOWMENT} (to a stranger {ENDOWMENT * stranger:.1f})"
            for agent, (own, stranger) in self.shares.items()
        ]
        return "; ".join([*parts, *filter(None, [self.missing])])


def trust_in(task: Task, agent: str, answers: Sequence[Belief]) -> Trust:
    """Returns the trust of the others in ``agent``.

    Args:
        task: the task.
        agent: the seat.
        answers: the answers of all seats to :func:`trust_questions`. An agent that left its question about the seat or
            the one about a stranger unanswered is left out: without the latter, its trust has no measure.
    """
    by_question = {(answer.respondent, answer.variable): answer for answer in answers}
    shares, missing = {}, []
    for other in task.agents:
        if other == agent:
            continue
        *named, stranger = trust_questions(task, other)
        own = next(question for question in named if question.of == agent)
        pair = [by_question.get((other, question.name)) for question in (own, stranger)]
        values = [_share(answer) for answer in pair if answer is not None and answer.probabilities is not None]
        if len(values) == len(pair):
            shares[other] = (values[0], values[1])
        else:
            reason = next((answer.reason for answer in pair if answer is not None and answer.reason), "was not asked")
            missing.append(f"{other} gave no answer ({reason})")
    return Trust(shares, "; ".join(missing))


def _share(answer: Belief) -> float:
    """The mean share of the endowment that is entrusted."""
    return sum(share * int(option) for option, share in zip(answer.options, answer.shares, strict=True)) / ENDOWMENT
