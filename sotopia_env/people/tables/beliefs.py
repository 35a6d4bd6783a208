"""The columns of beliefs: what people and programs take to be true, option by option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sotopia_env.people.tables.columns import Cell, Column
from sotopia_env.people.tables.seats import RECORD, RULES
from sotopia_env.world.answers import Belief, participant_of
from sotopia_env.world.episode import Episode


@dataclass(frozen=True, slots=True)
class OptionBelief:
    """The belief of a seat in one option of a variable; a question without an answer has one without an option.

    Attributes:
        name: the identity of the episode.
        episode: the episode.
        belief: the answer to the question.
        option: the option; empty without an answer.
        share: its probability; ``None`` without an answer.
    """

    name: str
    episode: Episode
    belief: Belief
    option: str = ""
    share: float | None = None


def _participant(row: OptionBelief) -> Cell:
    policies = [policy for policy in row.episode.policies if policy.agent == row.belief.respondent]
    return next((participant_of(policy) for policy in policies), "") or None


BELIEF: tuple[Column[OptionBelief], ...] = (
    Column("episode", "id of the conversation", "text", lambda b: b.name, source=RECORD),
    Column("agent", "the seat that was asked", "text", lambda b: b.belief.respondent, "agent_0, agent_1, …", RECORD),
    Column("participant", "code of the person who was asked; empty for a program", "text", _participant),
    Column("turns", "turns before the question", "number", lambda b: b.belief.turns, "from 0", RECORD),
    Column("variable", "what was asked about", "text", lambda b: b.belief.variable, source=RULES),
    Column(
        "control",
        "whether the seat reads the value in its briefing",
        "yes/no",
        lambda b: b.belief.control,
        source=RULES,
    ),
    Column("option", "the option of the variable", "text", lambda b: b.option or None, source=RULES),
    Column("share", "how probable the seat takes the option to be", "number", lambda b: b.share, "0 to 1", "the form"),
    Column("reason", "why there is no answer", "text", lambda b: b.belief.reason or None, source=RECORD),
)
"""Columns of a belief."""


def option_beliefs(episodes: Iterable[tuple[str, Episode]]) -> Iterator[OptionBelief]:
    """Yields the beliefs in the records of episodes, each given with the name by which tables identify it.

    Evaluators that probe policies record theirs with the evaluation, and people's a second time: those count once.
    """
    for name, episode in episodes:
        probed = [belief for evaluation in episode.evaluations for belief in evaluation.beliefs]
        for belief in dict.fromkeys([*episode.beliefs, *probed]):
            if not belief.shares:
                yield OptionBelief(name, episode, belief)
            for option, share in zip(belief.options, belief.shares, strict=False):
                yield OptionBelief(name, episode, belief, option, share)
