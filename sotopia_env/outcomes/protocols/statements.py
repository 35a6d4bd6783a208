"""Statements beside any protocol: what is asserted, shown and asked, and what every seat knows by now.

The rules in detail:

- ``state`` asserts values, true or not. It changes nothing that anybody knows.
- ``show`` discloses true values, certified by the environment, to the witnesses of the turn. A seat can show only what
  it knows itself, and only variables with ``evidence``.
- ``ask`` asks for values. It obliges nobody.
- One turn may have a statement of each kind, and a move of the task's protocol beside them. If a part is refused, so is
  the whole move.
- In a veiled round a seat shows what it knew before the round; a seat that has left learns nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from sotopia_env.outcomes.facts import Facts, PublicVariable, SeatFacts, Values
from sotopia_env.outcomes.issues import Seats, read_option
from sotopia_env.outcomes.menu import NO_MOVES, Menu, Statable, names_in, statement_text
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind, statement_content
from sotopia_env.outcomes.protocols.protocol import AnyProtocol, Choices, Due, Effect, Protocol, Settlement
from sotopia_env.outcomes.space import OutcomeSpace
from sotopia_env.outcomes.table import TableView

_MOST_REMEMBERED = 4_096


class FactsState(NamedTuple):
    """The state of the task's protocol, and what was disclosed to every seat.

    Attributes:
        inner: the state of the protocol.
        disclosures: by seat, the variables whose values were disclosed to it at the start or since.
        absent: the seats that have left.
    """

    inner: Any
    disclosures: tuple[frozenset[str], ...]
    absent: frozenset[str] = frozenset()


class WithFacts(Protocol[FactsState]):
    """A protocol with statements about facts beside its moves; the module's docstring states the rules.

    Attributes:
        inner: the protocol that decides the outcome.
        views: what each seat reads about facts before the first turn, by agent id.
    """

    facts: Facts

    def __init__(self, inner: AnyProtocol, facts: Facts) -> None:
        self.inner, self.facts = inner, facts
        self.kind, self.kinds, self.rule = inner.kind, inner.kinds, inner.rule
        self.agents, self.names, self.space = inner.agents, inner.names, inner.space
        self.valuations, self.phased = inner.valuations, inner.phased
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}
        self._knowledge: dict[frozenset[str], Values] = {}
        self._statements: dict[tuple[str, frozenset[str]], Statable] = {}

    @cached_property
    def views(self) -> Mapping[str, SeatFacts]:
        """What each seat reads about facts before the first turn, by agent id."""
        return {agent: self.facts.view(agent) for agent in self.agents}

    @cached_property
    def _initial(self) -> tuple[frozenset[str], ...]:
        return tuple(self.facts.initial(agent) for agent in self.agents)

    def initial(self) -> FactsState:
        """The state before the first turn."""
        return FactsState(self.inner.initial(), self._initial)

    def knowledge(self, state: FactsState, seat: str) -> Values:
        """Returns the values that ``seat`` knows, by variable: disclosed to it, or concluded from these."""
        names = state.disclosures[self._seat_of[seat]]
        if names not in self._knowledge:
            # Knowledge recurs from turn to turn and from episode to episode of a task.
            if len(self._knowledge) >= _MOST_REMEMBERED:
                self._knowledge.clear()
            self._knowledge[names] = self.facts.knowledge(names)
        return self._knowledge[names]

    def _variables(self, state: FactsState, seat: str) -> dict[str, PublicVariable]:
        """The variables that a seat can name: those it may know, and those that were shown to it all the same."""
        visible = dict(self.views[seat].variables)
        for name in sorted(state.disclosures[self._seat_of[seat]] - visible.keys()):
            visible[name] = self.facts.by_name[name].public
        return visible

    def menu(self, state: FactsState, seat: str) -> Menu:
        """The moves of the protocol and the statements."""
        menu = self.inner.menu(state.inner, seat)
        if seat in state.absent:
            return NO_MOVES
        return menu._replace(space=menu.space or self.space, statements=self._statable(state, seat))

    def _statable(self, state: FactsState, seat: str) -> Statable:
        key = (seat, state.disclosures[self._seat_of[seat]])
        if key not in self._statements:
            if len(self._statements) >= _MOST_REMEMBERED:
                self._statements.clear()
            self._statements[key] = self._open_statements(state, seat)
        return self._statements[key]

    def _open_statements(self, state: FactsState, seat: str) -> Statable:
        knowledge, variables = self.knowledge(state, seat), self._variables(state, seat)
        return Statable(
            {name: variable.options for name, variable in variables.items()},
            tuple([name for name, variable in variables.items() if name in knowledge and variable.evidence]),
            tuple([name for name, v in variables.items() if name not in knowledge and v.of != seat]),
        )

    def apply(
        self,
        state: FactsState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: FactsState | None = None,
    ) -> tuple[FactsState, Effect]:
        """See :meth:`Protocol.apply`; who sees the turn learns what is shown in it."""
        self._check_seat(seat)
        binding, parts = move.binding, move.statements
        if not parts:
            inner, effect = self._bind(state, seat, move, visible_to, basis)
            return self._with(state, inner), effect
        if seat in state.absent:
            raise InvalidMoveError("a seat that has left cannot make a move")
        read = [(kind, self._read(kind, content, basis or state, seat)) for kind, content in parts]
        text = statement_text(read, self.facts.truth)
        after = self._with_evidence(state, read, visible_to)
        if binding is None:
            return after, _combined(None, read, text)
        inner, effect = self._bind(state, seat, binding, visible_to, basis)
        return self._with(after, inner), _combined(effect, read, text)

    def _with(self, state: FactsState, inner: Any) -> FactsState:
        """The state with another state of the protocol, and with what that discloses."""
        if inner is state.inner:
            return state
        if evidence := self.inner.evidence(inner):
            disclosures = [own | more for own, more in zip(state.disclosures, evidence, strict=True)]
            return state._replace(inner=inner, disclosures=tuple(disclosures))
        return state._replace(inner=inner)

    def _bind(
        self, state: FactsState, seat: str, move: Move, visible_to: Collection[str] | None, basis: FactsState | None
    ) -> tuple[Any, Effect]:
        return self.inner.apply(state.inner, seat, move, visible_to, None if basis is None else basis.inner)

    def _with_evidence(
        self, state: FactsState, parts: list[tuple[MoveKind, Any]], visible_to: Collection[str] | None
    ) -> FactsState:
        evidence = frozenset(name for kind, content in parts if kind is MoveKind.SHOW for name in names_in(content))
        if not evidence:
            return state
        audience = self.agents if visible_to is None else visible_to
        disclosures = [
            names | evidence if agent in audience and agent not in state.absent else names
            for agent, names in zip(self.agents, state.disclosures, strict=True)
        ]
        return state._replace(disclosures=tuple(disclosures))

    def _read(self, kind: MoveKind, content: Any, state: FactsState, seat: str) -> Any:
        """The content of a statement in normal form: names and options as they are declared."""
        variables = self._variables(state, seat)
        field = f"move.{kind}"
        if not variables:
            raise InvalidMoveError("there is nothing that you could speak of here", field=field)
        content = statement_content(kind, content)
        names = list(dict.fromkeys(read_option(name, variables, field) for name in names_in(content)))
        if isinstance(content, dict):
            if len(names) < len(content):
                raise InvalidMoveError("a variable is named twice", field=field, got=list(content))
            pairs = zip(names, content.values(), strict=True)
            return {name: read_option(value, variables[name].options, f"{field}.{name}") for name, value in pairs}
        if kind is MoveKind.SHOW:
            self._check_evidence(names, variables, self.knowledge(state, seat))
        return names if len(names) > 1 else names[0]

    def _check_evidence(self, names: list[str], variables: Mapping[str, PublicVariable], knowledge: Values) -> None:
        for name in names:
            if name not in knowledge:
                raise InvalidMoveError(
                    "only what you know yourself can be shown",
                    field="move.show",
                    got=name,
                    valid=[n for n in knowledge if variables[n].evidence],
                    hint="'state' asserts a value, and 'ask' asks for it",
                )
            if not variables[name].evidence:
                raise InvalidMoveError(
                    "there is no evidence to show", field="move.show", got=name, hint="'state' asserts a value"
                )

    def advance(self, state: FactsState, seat: str) -> FactsState:
        """See :meth:`Protocol.advance`."""
        return self._with(state, self.inner.advance(state.inner, seat))

    def due(self, state: FactsState) -> Due | None:
        """See :meth:`Protocol.due`."""
        return self.inner.due(state.inner)

    def audience(self, state: FactsState, seat: str) -> frozenset[str] | None:
        """See :meth:`Protocol.audience`."""
        return self.inner.audience(state.inner, seat)

    def choices(self, state: FactsState, seat: str) -> Choices:
        """See :meth:`Protocol.choices`."""
        return self.inner.choices(state.inner, seat)

    def leave(self, state: FactsState, seat: str) -> FactsState:
        """See :meth:`Protocol.leave`."""
        after = self._with(state, self.inner.leave(state.inner, seat))
        return after._replace(absent=state.absent | {seat})

    def settled(self, state: FactsState) -> bool:
        """Whether the protocol is settled."""
        return self.inner.settled(state.inner)

    def outcome(self, state: FactsState) -> Settlement:
        """The outcome of the protocol."""
        return self.inner.outcome(state.inner)

    def payoffs(self, state: FactsState, turns: int = 0) -> tuple[float, ...]:
        """The payoffs of the protocol."""
        return self.inner.payoffs(state.inner, turns)

    def table(self, state: FactsState, seat: str | None) -> TableView:
        """The table of the protocol, with the values that ``seat`` knows."""
        view = self.inner.table(state.inner, seat)
        if seat is None:
            return view._replace(knowledge=self.facts.truth)
        number = self._seat_of[seat]
        news = state.disclosures[number] - self._initial[number]
        knowledge = self.knowledge(state, seat)
        return view._replace(knowledge=knowledge, evidence=tuple([name for name in knowledge if name in news]))


def _combined(effect: Effect | None, parts: list[tuple[MoveKind, Any]], text: str) -> Effect:
    if effect is None:
        move = Move.of_parts(parts)
        assert move is not None
        return Effect(move, text)
    move = Move(effect.move.kind, effect.move.content, tuple(parts))
    hidden = None if effect.hidden is None else f"{effect.hidden}; {text}"
    # The placeholder of the terms is in the protocol's phrase, which therefore comes first.
    return effect._replace(move=move, phrase=f"{effect.phrase}; {text}", hidden=hidden)


class Discussion(Protocol[None]):
    """The protocol of a task with facts and without an outcome: nothing binds, so nothing is decided."""

    kind = "discussion"
    kinds = frozenset(())

    def __init__(self, names: Seats) -> None:
        self.names, self.agents, self.space = dict(names), tuple(names), OutcomeSpace((), dict(names))
        self.valuations = ()

    def initial(self) -> None:
        """There is nothing to keep."""
        return

    def menu(self, state: None, seat: str) -> Menu:
        """No binding move."""
        return NO_MOVES

    def apply(
        self,
        state: None,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: None = None,
    ) -> tuple[None, Effect]:
        """Refuses every binding move."""
        raise InvalidMoveError("there is nothing to agree on formally here", field=f"move.{move.kind}")

    def leave(self, state: None, seat: str) -> None:
        """Changes nothing."""

    def settled(self, state: None) -> bool:
        """Never."""
        return False

    def outcome(self, state: None) -> Settlement:
        """Nothing is decided."""
        return Settlement(False, reason="There was nothing to decide.")

    def payoffs(self, state: None, turns: int = 0) -> tuple[float, ...]:
        """Nobody gains or loses."""
        return (0.0,) * len(self.agents)

    def table(self, state: None, seat: str | None) -> TableView:
        """An empty table."""
        return TableView(self.kind, False, self.space)
