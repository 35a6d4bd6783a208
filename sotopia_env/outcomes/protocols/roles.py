"""The protocol of a game of hidden roles: phases of talk, votes and targets, until a team has won.

The rules in detail:

- A phase is over when each of its actors has taken its turns, and what was chosen takes effect then. A seat that makes
  no move in its turn chooses nobody; within the phase, a choice can be changed as long as the seat has turns left.
- An eliminated seat acts no more and sees on. A seat that leaves is eliminated, and nothing is told about it.
- Whoever is protected is saved from every ``kill`` until the next one is over, whether it would have hit or not.
- After each phase, and when a seat leaves, the conditions are tested in their order; then follows the next phase in
  which somebody can act, in the same cycle or the next.
- What is revealed becomes known to those to whom it is told, as evidence is (:mod:`.statements`).
- A lot depends on the names, the votes and what all know to have happened, so an episode that is played again ends
  alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.outcomes.issues import Seats, read_option
from sotopia_env.outcomes.menu import NO_MOVES, Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.protocols.protocol import Due, Effect, Protocol, Settlement
from sotopia_env.outcomes.roles.rules import Phase, RolesRules
from sotopia_env.outcomes.roles.view import GameEvent, RolesView
from sotopia_env.outcomes.space import OPTION
from sotopia_env.outcomes.specification import OutcomeSpec
from sotopia_env.outcomes.table import TableView

_KINDS = {"vote": MoveKind.VOTE, "target": MoveKind.CHOOSE}


class RolesState(NamedTuple):
    """The game so far.

    Attributes:
        cycle: the number of the cycle, from 0.
        phase: the index of the phase.
        taken: the turns that each seat has taken in this phase.
        picks: the agent id that each seat has chosen in this phase, or ``None``.
        living: the seats that are not eliminated, in seat order.
        evidence: the variables that were disclosed to each seat.
        earlier: when a phase last took place, what a seat chose in it: index of the phase, actor, target, and cycle.
        protected: the seats that are protected.
        events: what has happened, in order.
        winner: the team that has won; empty if none has.
        over: whether the game is over.
    """

    cycle: int
    phase: int
    taken: tuple[int, ...]
    picks: tuple[str | None, ...]
    living: tuple[str, ...]
    evidence: tuple[frozenset[str], ...]
    earlier: tuple[tuple[int, str, str, int], ...] = ()
    protected: frozenset[str] = frozenset()
    events: tuple[GameEvent, ...] = ()
    winner: str = ""
    over: bool = False


class RolesProtocol(Protocol[RolesState]):
    """The protocol of a game of hidden roles; the module's docstring states the rules."""

    kind = "roles"
    kinds = frozenset(_KINDS.values())
    phased = True

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        super().__init__(spec, names)
        assert isinstance(spec.protocol, RolesRules)
        self.rules, self.holders = spec.protocol, spec.protocol.holders
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}
        self._agent_of = {name: agent for agent, name in self.names.items()}
        self._team_of = {agent: self.rules.roles[role].team for agent, role in self.holders.items()}
        self._allies = {
            agent: frozenset(other for other in self.agents if self._team_of[other] == team)
            for agent, team in self._team_of.items()
        }

    def initial(self) -> RolesState:
        """The state before the first phase."""
        seats = len(self.agents)
        nothing = (frozenset[str](),) * seats
        state = RolesState(0, -1, (0,) * seats, (None,) * seats, self.agents, nothing)
        return self._next(state)

    # --- who acts, and who sees it --------------------------------------------------------------------------------

    def _phase(self, state: RolesState) -> Phase:
        return self.rules.phases[state.phase]

    def _actors(self, state: RolesState, phase: Phase) -> tuple[str, ...]:
        """The seats that act in a phase, in its order."""
        agents = self.agents
        if phase.order == "rotating":
            start = state.cycle % len(agents)
            agents = agents[start:] + agents[:start]
        return tuple([a for a in agents if a in state.living and phase.includes(self.holders[a])])

    def due(self, state: RolesState) -> Due | None:
        """See :meth:`Protocol.due`; a cycle takes as many rounds as its phases have turns, whether anybody can act."""
        if state.over:
            return None
        phase = self._phase(state)
        agents = tuple([a for a in self._actors(state, phase) if state.taken[self._seat_of[a]] < phase.turns])
        begun = min([state.taken[self._seat_of[agent]] for agent in agents])
        before = sum(earlier.turns for earlier in self.rules.phases[: state.phase])
        return Due(state.cycle * self._rounds + before + begun, agents, phase.turns - begun)

    @property
    def _rounds(self) -> int:
        return sum(phase.turns for phase in self.rules.phases)

    def audience(self, state: RolesState, seat: str) -> frozenset[str] | None:
        """See :meth:`Protocol.audience`: all, the team of the seat, or the seat itself."""
        sees = "all" if state.over else self._phase(state).sees
        return None if sees == "all" else self._allies[seat] if sees == "team" else frozenset((seat,))

    def evidence(self, state: RolesState) -> tuple[frozenset[str], ...]:
        """See :meth:`Protocol.evidence`."""
        return state.evidence

    # --- moves ----------------------------------------------------------------------------------------------------

    def _options(self, state: RolesState, seat: str) -> tuple[str, ...]:
        """The names of the seats that ``seat`` can choose in this phase; empty if none is due."""
        if state.over:
            return ()
        phase = self._phase(state)
        done = state.taken[self._seat_of[seat]] >= phase.turns
        if phase.move == "talk" or done or seat not in self._actors(state, phase):
            return ()
        last = {target for index, actor, target, cycle in state.earlier
                if not phase.repeat and (index, actor) == (state.phase, seat) and cycle == state.cycle - 1}  # fmt: skip
        barred = {"all": frozenset[str](), "others": {seat}, "foes": self._allies[seat]}[phase.targets] | last
        return tuple([self.names[agent] for agent in state.living if agent not in barred])

    def menu(self, state: RolesState, seat: str) -> Menu:
        """A vote or a target, if one is due."""
        options = self._options(state, seat)
        if not options:
            return NO_MOVES
        if self._phase(state).move == "target":
            return Menu(choose=options, space=self.space)
        return Menu(vote=options, unvote=state.picks[self._seat_of[seat]] is not None, space=self.space)

    def apply(
        self,
        state: RolesState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: RolesState | None = None,
    ) -> tuple[RolesState, Effect]:
        """See :meth:`Protocol.apply`; who sees the turn is decided by the phase."""
        self._check_seat(seat)
        if state.over:
            raise InvalidMoveError("the game is over", hint="no move is open any more")
        if seat not in state.living:
            raise InvalidMoveError("an eliminated seat cannot make a move")
        phase, options = self._phase(state), self._options(state, seat)
        if not options or move.kind is not _KINDS[phase.move]:
            expected = f"a {_KINDS[phase.move].value}" if options else "words alone in this phase"
            raise InvalidMoveError("the move is not open", field=f"move.{move.kind.value}", expected=expected)
        if move.content is None and move.kind is MoveKind.VOTE:
            if state.picks[self._seat_of[seat]] is None:
                raise InvalidMoveError("null takes a vote back, and you have not voted", field="move.vote")
            return self._with_pick(state, seat, None), Effect(move, "takes the vote back", self._hidden(phase))
        name = read_option(move.content, options, f"move.{move.kind.value}")
        done = f"votes for {name}" if phase.move == "vote" else f"chooses to {phase.effect} {name}"
        effect = Effect(Move(move.kind, name), done, self._hidden(phase))
        return self._with_pick(state, seat, self._agent_of[name]), effect

    def _hidden(self, phase: Phase) -> str | None:
        if phase.ballot == "open":
            return None
        return "votes (hidden until the phase is over)" if phase.ballot == "sealed" else "votes (secretly)"

    def _with_pick(self, state: RolesState, seat: str, target: str | None) -> RolesState:
        index = self._seat_of[seat]
        return state._replace(picks=(*state.picks[:index], target, *state.picks[index + 1 :]))

    # --- the end of a phase -----------------------------------------------------------------------------------------

    def advance(self, state: RolesState, seat: str) -> RolesState:
        """Counts the turn of a seat, and ends the phase after the last one."""
        if state.over or seat not in self._actors(state, self._phase(state)):
            return state
        index = self._seat_of[seat]
        taken = (*state.taken[:index], state.taken[index] + 1, *state.taken[index + 1 :])
        return self._closed_if_complete(state._replace(taken=taken))

    def leave(self, state: RolesState, seat: str) -> RolesState:
        """Eliminates the seat; what it has chosen in this phase does not count."""
        self._check_seat(seat)
        if state.over or seat not in state.living:
            return state
        state = self._with_pick(state, seat, None)
        living = tuple([agent for agent in state.living if agent != seat])
        event = GameEvent(state.cycle, "", "left", seat)
        state = self._decided(state._replace(living=living, events=(*state.events, event)))
        return state if state.over else self._closed_if_complete(state)

    def _closed_if_complete(self, state: RolesState) -> RolesState:
        phase = self._phase(state)
        if any(state.taken[self._seat_of[agent]] < phase.turns for agent in self._actors(state, phase)):
            return state
        return self._next(self._decided(self._closed(state, phase), phase.name))

    def _next(self, state: RolesState) -> RolesState:
        """The state at the beginning of the next phase in which somebody can act."""
        while not state.over:
            phase = state.phase + 1
            if phase == len(self.rules.phases):
                phase, state = 0, state._replace(cycle=state.cycle + 1)
            state = state._replace(phase=phase)
            if state.cycle == self.rules.cycles:
                state = self._at_the_limit(state)
            elif state.cycle + 1 >= self._phase(state).since and self._actors(state, self._phase(state)):
                break
        seats = len(self.agents)
        return state._replace(taken=(0,) * seats, picks=(None,) * seats)

    def _at_the_limit(self, state: RolesState) -> RolesState:
        winner = next((win.winner for win in self.rules.wins if win.when == "cycles"), "")
        return state._replace(over=True, winner=winner)

    def _closed(self, state: RolesState, phase: Phase) -> RolesState:
        """The state after a phase took effect."""
        if phase.move == "talk":
            return state
        chosen = [(a, target) for a, target in zip(self.agents, state.picks, strict=True) if target is not None]
        others = [row for row in state.earlier if row[0] != state.phase]
        state = state._replace(earlier=(*others, *[(state.phase, a, target, state.cycle) for a, target in chosen]))
        if phase.effect == "inspect":
            return self._inspected(state, phase, chosen)
        targets = self._hit(state, phase, chosen)
        if phase.effect == "protect":
            return state._replace(protected=state.protected | {*targets})
        if phase.effect == "kill":
            targets = [agent for agent in targets if agent not in state.protected]
            state = state._replace(protected=frozenset())
        return self._eliminated(state, phase, targets)

    def _hit(self, state: RolesState, phase: Phase, chosen: list[tuple[str, str]]) -> list[str]:
        """The seats that a phase hits: each target, or the one with the most votes."""
        counts = Counter(target for _, target in chosen)
        if phase.move == "target" or not counts:
            return [agent for agent in self.agents if agent in counts]
        tied = sorted(self.names[target] for target, count in counts.items() if count == max(counts.values()))
        if len(tied) > 1 and phase.ties == "none":
            return []
        # From what all know and from the votes themselves, so that the lot gives away nothing else.
        public = [event[:-1] for event in state.events if event.seen is None]
        lot = random.Random(canonical_json([self.names, state.cycle, phase.name, chosen, public]))
        return [self._agent_of[lot.choice(tied)]]

    def _eliminated(self, state: RolesState, phase: Phase, targets: list[str]) -> RolesState:
        told = [GameEvent(state.cycle, phase.name, "eliminated", agent, self._told(phase, agent)) for agent in targets]
        news = told or [GameEvent(state.cycle, phase.name, "nobody", "")]
        if phase.move == "vote" and phase.ballot != "secret":
            news += self._votes(state, phase)
        evidence = state.evidence
        for agent in targets:
            evidence = self._disclosed(evidence, self.agents, agent, phase)
        living = tuple([agent for agent in state.living if agent not in targets])
        return state._replace(living=living, events=(*state.events, *news), evidence=evidence)

    def _votes(self, state: RolesState, phase: Phase) -> Iterable[GameEvent]:
        """The votes, each for those who witness the turns of its voter."""
        audiences = {agent: self.audience(state, agent) for agent in self._actors(state, phase)}
        for seen in dict.fromkeys(audiences.values()):
            votes = tuple([
                pick if agent in audiences and audiences[agent] == seen else None
                for agent, pick in zip(self.agents, state.picks, strict=True)
            ])  # fmt: skip
            yield GameEvent(state.cycle, phase.name, "votes", "", "", votes, seen)

    def _inspected(self, state: RolesState, phase: Phase, chosen: Iterable[tuple[str, str]]) -> RolesState:
        for actor, target in chosen:
            told = GameEvent(
                state.cycle, phase.name, "inspected", target, self._told(phase, target), (), frozenset((actor,))
            )
            evidence = self._disclosed(state.evidence, (actor,), target, phase)
            state = state._replace(events=(*state.events, told), evidence=evidence)
        return state

    def _told(self, phase: Phase, agent: str) -> str:
        """What is told about a seat: its role, its team, or nothing."""
        return {"none": "", "team": self._team_of[agent], "role": self.holders[agent]}[phase.reveal]

    def _disclosed(
        self, evidence: tuple[frozenset[str], ...], to: Collection[str], agent: str, phase: Phase
    ) -> tuple[frozenset[str], ...]:
        names = self.rules.disclosed(agent, phase.reveal)
        return tuple([own | names if a in to else own for a, own in zip(self.agents, evidence, strict=True)])

    def _decided(self, state: RolesState, phase: str = "") -> RolesState:
        """The state after the conditions were tested."""
        left = Counter(self._team_of[agent] for agent in state.living)
        hit = {self._team_of[event.seat] for event in state.events
               if (event.cycle, event.phase, event.kind) == (state.cycle, phase, "eliminated")}  # fmt: skip
        for win in self.rules.wins:
            met = {
                "eliminated": not left[win.team],
                "parity": left[win.team] > 0 and 2 * left[win.team] >= len(state.living),
                "chosen": phase == win.phase and win.team in hit,
                "cycles": False,
            }
            if met[win.when]:
                return state._replace(over=True, winner=win.winner)
        # Nobody can act any more, so nothing could ever be decided.
        return state if state.living else state._replace(over=True)

    # --- the outcome ------------------------------------------------------------------------------------------------

    def settled(self, state: RolesState) -> bool:
        """Whether the game is over."""
        return state.over

    def outcome(self, state: RolesState) -> Settlement:
        """The team that has won."""
        if not state.winner:
            reason = "The game ended without a winner." if state.over else "The game did not come to its end."
            return Settlement(False, reason=reason)
        who = ", ".join(self.names[agent] for agent in self.agents if self._team_of[agent] == state.winner)
        # A team wins by what was done to seats, not by anybody's assent.
        return Settlement(True, {OPTION: state.winner}, f"The winner is {state.winner} ({who}).")

    def table(self, state: RolesState, seat: str | None) -> TableView:
        """Who is left, what has happened, and what is to be done, as far as ``seat`` may see it."""
        reason = self.outcome(state).reason if state.over else ""
        return TableView(self.kind, state.over, self.space, result=reason, game=self._view(state, seat))

    def _view(self, state: RolesState, seat: str | None) -> RolesView:
        events = tuple([event for event in state.events if seat is None or event.seen is None or seat in event.seen])
        if state.over:
            return RolesView(self.agents, state.living, events, state.cycle)
        phase = self._phase(state)
        audiences = {agent: self.audience(state, agent) for agent in self._actors(state, phase)}
        due = tuple([a for a, seen in audiences.items() if seat is None or seen is None or seat in seen])
        if not due:
            return RolesView(self.agents, state.living, events, state.cycle)
        picks = tuple([
            pick if agent in due and (phase.ballot == "open" or seat in (None, agent)) else None
            for agent, pick in zip(self.agents, state.picks, strict=True)
        ])  # fmt: skip
        return RolesView(self.agents, state.living, events, state.cycle, phase.name, phase.effect, due, picks)
