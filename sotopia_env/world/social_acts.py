"""Social acts: every statement, proof and question of an episode, with the class of each statement.

A class follows from what the speaker knew at the time of the turn, and for promises and accusations also from what
turned out to be true. It is computed at the end and for researchers only: no observation contains one. Nothing is read
from words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.facts import ActClass, Variable, beliefs
from sotopia_env.outcomes.menu import names_in
from sotopia_env.outcomes.protocols.protocol import Choices
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import Folded, folded


@dataclass(frozen=True, slots=True)
class SocialAct:
    """One statement, proof or question about one variable.

    Attributes:
        turn: the index of its turn.
        actor: the agent id of the speaker.
        kind: ``state``, ``show`` or ``ask``.
        variable: the name of the variable.
        value: the value that was stated or shown; ``None`` for a question.
        audience: the agent ids of the others who witnessed it.
        private: whether it was addressed to some of the others only.
        classes: of a statement; empty for a proof and a question.
    """

    turn: int
    actor: str
    kind: MoveKind
    variable: str
    value: str | None
    audience: tuple[str, ...]
    private: bool
    classes: tuple[ActClass, ...] = ()

    @property
    def label(self) -> str:
        """The variable and the classes, such as ``role of Ana: lie, wrong``; empty without a class."""
        return f"{self.variable}: {', '.join(self.classes)}" if self.classes else ""


def social_acts(task: Task, turns: Sequence[Turn]) -> tuple[SocialAct, ...]:
    """Returns the social acts of an episode in order; none in a task without facts.

    Args:
        task: the task.
        turns: all turns of the episode; as long as a choice may still be made, a promise about it is ``void``.

    Raises:
        InvalidMoveError: a recorded move was not open.
    """
    protocol = task.protocol
    if not isinstance(protocol, WithFacts):
        return ()
    items = list(folded(task, turns))
    end = items[-1].table if items else protocol.initial()
    choices = {agent: protocol.choices(end, agent) for agent in task.agents}
    return tuple([act for item in items for act in _acts(protocol, item, choices)])


def act_labels(task: Task, turns: Sequence[Turn]) -> Mapping[int, str]:
    """Returns the classes of the statements of each turn as one line for researchers, by the index of the turn."""
    labels: dict[int, list[str]] = {}
    for act in social_acts(task, turns):
        if act.label:
            labels.setdefault(act.turn, []).append(act.label)
    return {turn: "; ".join(parts) for turn, parts in labels.items()}


def _acts(protocol: WithFacts, item: Folded, choices: Mapping[str, Choices]) -> Iterator[SocialAct]:
    turn, move = item.turn, item.turn.action.move
    if move is None:
        return
    recipients = turn.audience
    others = [agent for agent in protocol.agents if agent != turn.actor and agent not in item.basis.absent]
    present = tuple([agent for agent in others if recipients is None or agent in recipients])
    for kind, content in move.statements:
        for name in names_in(content):
            value = _value(protocol, kind, content, name)
            classes = _classes(protocol, item, name, value, choices) if kind is MoveKind.STATE and value else ()
            yield SocialAct(turn.index, turn.actor, kind, name, value, present, recipients is not None, classes)


def _value(protocol: WithFacts, kind: MoveKind, content: Any, name: str) -> str | None:
    if kind is MoveKind.ASK:
        return None
    value: str = content[name] if kind is MoveKind.STATE else protocol.facts.truth[name]
    return value


def _classes(
    protocol: WithFacts, item: Folded, name: str, value: str, choices: Mapping[str, Choices]
) -> tuple[ActClass, ...]:
    facts, actor = protocol.facts, item.turn.actor
    variable: Variable = facts.by_name[name]
    if variable.kind == "choice" and variable.of == actor:
        # It is about the choice that was due at the turn: a later round has a choice of its own.
        choice = choices[actor][len(protocol.choices(item.basis, actor)) - 1]
        return (ActClass.VOID if choice is None else ActClass.KEPT if choice == value else ActClass.BROKEN,)
    # What a speaker can conclude from a deal it knows, too: a villager who claims another role lies.
    chance = beliefs([variable], facts.deals, protocol.knowledge(item.basis, actor))[name][value]
    honesty = ActClass.HONEST if chance == 1 else ActClass.LIE if chance == 0 else ActClass.UNFOUNDED
    if variable.kind == "role" and variable.of != actor:
        return (honesty, ActClass.RIGHT if facts.truth[name] == value else ActClass.WRONG)
    return (honesty,)
