"""A scripted informer: tells what it knows to whom it may, asks for what it is to learn, and votes by what it learned.

In each turn it makes the first of these that is left to do: tell everybody what everybody may know, and ask everybody
for the facts that may be spoken of aloud; tell a partner in private what only it may know, and ask it in private.
Values are proved where that is possible, and stated elsewhere. When nothing is left it votes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import Menu, Move, MoveKind
from sotopia_env.outcomes.facts import PublicVariable, SeatFacts, Values
from sotopia_env.outcomes.menu import names_in
from sotopia_env.policies.speakers.belief import assertions, knowledge
from sotopia_env.policies.speakers.speaker import Speaker
from sotopia_env.world.observation import Observation

Sharing = Literal["all", "allowed", "asked", "nothing"]
Asking = Literal["all", "unknown", "nothing"]
_SHARING: tuple[Sharing, ...] = ("all", "allowed", "asked", "nothing")
_ASKING: tuple[Asking, ...] = ("all", "unknown", "nothing")


@dataclass(frozen=True, slots=True)
class Informer(Speaker):
    """Tells and asks about facts, on the channels that the task allows or on none of them, and votes in the end.

    Attributes:
        name: the policy's name.
        doubt: see :class:`Speaker`; by default it believes what is stated.
        shares: ``all`` tells everybody everything; ``allowed`` tells what may be told, to whom it may be told;
            ``asked`` the same, once somebody has asked for it; ``nothing`` tells nothing.
        asks: ``all`` asks for everything that it is to learn, even if it was told it just before, which the measures of
            SOTOPIA-TOM count (:mod:`sotopia_env.evaluators.information`); ``unknown`` asks for what it does not know;
            ``nothing`` asks for nothing.
    """

    name: str = "oracle"
    doubt: float | None = 0.0
    shares: Sharing = "allowed"
    asks: Asking = "all"

    def __post_init__(self) -> None:
        Speaker.__post_init__(self)
        for field, valid in (("shares", _SHARING), ("asks", _ASKING)):
            if getattr(self, field) not in valid:
                raise InvalidValueError(field=f"{self.name}.{field}", got=getattr(self, field), valid=valid)

    def choose(
        self, observation: Observation, facts: SeatFacts, menu: Menu, seed: int
    ) -> tuple[tuple[str, ...], Move | None]:
        """Returns the recipients and the next statement or question, or the vote once nothing is left to say."""
        last, may_vote = observation.own_turns_left() <= 1, bool(menu.vote) and not menu.unvote
        to, move = next(self._statements(observation, facts, menu, seed), ((), None))
        if may_vote and (last or move is None):
            return (), self.vote(observation, menu, seed)
        return to, move

    def _statements(
        self, observation: Observation, facts: SeatFacts, menu: Menu, seed: int
    ) -> Iterator[tuple[tuple[str, ...], Move]]:
        """The statements that are left to make, each with its recipients (none for everybody), the widest first."""
        everybody = tuple(partner.agent for partner in observation.briefing.partners)
        done = _done(observation, everybody)
        for to in ((), *((agent,) for agent in everybody)):
            if to and not observation.briefing.recipients:
                return
            audience = set(to or everybody)
            shared = [name for name in facts.knowledge if self._may_share(observation, facts, name, to)]
            news = [name for name in shared if not audience <= done.get(("share", name), set())]
            questions = [
                variable.name
                for variable in facts.variables.values()
                if self._wants(observation, facts, variable, to)
                and not audience <= done.get(("ask", variable.name), set())
            ]
            announces = self.announces and not to and not any(assertions(observation, own=True))
            promise = self._promise(observation, facts, random.Random(seed), False) if announces else {}
            if parts := _parts(facts, menu, news, questions, promise):
                move = Move.of_parts(parts)
                assert move is not None
                yield to, move

    def _may_share(self, observation: Observation, facts: SeatFacts, name: str, to: tuple[str, ...]) -> bool:
        if self.shares == "all":
            return not to
        if self.shares == "nothing" or (self.shares == "asked" and not _was_asked(observation, name)):
            return False
        agents, channel = facts.duties.get(name, ((), "all"))
        # What everybody may know anywhere is told once, aloud, and anything else to one after another.
        if not to:
            return channel == "all" and not agents
        return name in facts.duties and (not agents or set(to) <= set(agents))

    def _wants(self, observation: Observation, facts: SeatFacts, variable: PublicVariable, to: tuple[str, ...]) -> bool:
        # A seat that is not told what it is to learn asks for every fact that it did not know.
        targets = facts.targets or [v.name for v in facts.variables.values() if v.kind == "fact"]
        if self.asks == "nothing" or variable.name not in targets or variable.name in facts.knowledge:
            return False
        if self.asks == "unknown" and variable.name in knowledge(observation):
            return False
        if variable.channel == "private" or to:
            # In private it asks the one who knows, or each in turn where that is not said.
            return bool(to) and variable.channel == "private" and variable.expert in ("", *to)
        return True


def _parts(
    facts: SeatFacts, menu: Menu, news: list[str], questions: list[str], promise: Values
) -> list[tuple[MoveKind, Any]]:
    """The parts of a move: values and a promise to be stated, values to be proved, and questions."""
    proofs = [name for name in news if name in menu.statements.show]
    values = {**{name: facts.knowledge[name] for name in news if name not in proofs}, **promise}
    parts: list[tuple[MoveKind, Any]] = [(MoveKind.STATE, values)] if values else []
    for kind, names in ((MoveKind.SHOW, proofs), (MoveKind.ASK, questions)):
        parts += [(kind, names if len(names) > 1 else names[0])] if names else []
    return parts


def _done(observation: Observation, everybody: tuple[str, ...]) -> dict[tuple[str, str], set[str]]:
    """By share or question and variable, the partners whom the seat has told or asked."""
    done: dict[tuple[str, str], set[str]] = {}
    for turn in observation.turns:
        if turn.actor == observation.agent and turn.action.move is not None:
            for kind, content in turn.action.move.statements:
                for name in names_in(content):
                    key = ("ask" if kind is MoveKind.ASK else "share", name)
                    done.setdefault(key, set()).update(turn.action.to or everybody)
    return done


def _was_asked(observation: Observation, name: str) -> bool:
    moves = [turn.action.move for turn in observation.turns if turn.actor != observation.agent]
    statements = [statement for move in moves if move is not None for statement in move.statements]
    return any(kind is MoveKind.ASK and name in names_in(content) for kind, content in statements)
