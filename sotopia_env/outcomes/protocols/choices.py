"""The protocol of choices: every seat chooses in each round, hidden until all have, for a payoff by table or stock.

The rules in detail:

- A choice is final and hidden until every seat of its stage has chosen; then the next stage, or the next round begins.
- With a random ending, how many rounds are played is fixed with the task and hidden from all seats.
- With ``talks``, a seat may choose once it has taken so many turns in the round.
- With a contract, the seats can agree on a choice for each of them while nobody has chosen in the round. An agreement
  (:mod:`~sotopia_env.outcomes.protocols.agreement`) is enforced: it is played in all rounds that are left.
- A seat that delegates lets the mediator choose for it once all have chosen.
- For a seat that has left, ``absent`` is chosen at once. Without it, or with only one seat left, the game ends, and
  rounds that were not played pay ``no_choice``.
- In a simultaneous round of turns, a seat acts on what it knew before; the first in seat order wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from sotopia_env.outcomes.games.payoffs import AmountsWorth, amount_of
from sotopia_env.outcomes.games.rounds import Rounds
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.issues import Seats, read_option
from sotopia_env.outcomes.menu import NO_MOVES, Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.protocols.agreement import Agreement, AgreementState
from sotopia_env.outcomes.protocols.protocol import Choices, Effect, Protocol, Settlement
from sotopia_env.outcomes.specification import AgreementRules, OutcomeSpec
from sotopia_env.outcomes.table import HIDDEN, TableView
from sotopia_env.outcomes.valuation import exact_decimal

CHOOSE = MoveKind.CHOOSE


class GameState(NamedTuple):
    """The rounds so far.

    Attributes:
        played: the choices of each past round, in seat order, with the mediator's in place of delegations.
        chosen: the choices of each past round as the seats made them.
        pending: the choice of each seat in this round, or ``None``.
        turns: the turns that each seat has taken in this round, up to those after which it may choose.
        paid: the payoff of each seat so far.
        absent: the seats that have left.
        over: whether nothing more can be chosen.
        stock: the level of the stock.
        offers: the contracts that are open; ``None`` where none can be made.
        fresh: the seat whose choice is not counted as a turn of the next round.
    """

    played: tuple[tuple[str, ...], ...]
    chosen: tuple[tuple[str, ...], ...]
    pending: tuple[str | None, ...]
    turns: tuple[int, ...]
    paid: tuple[Fraction, ...]
    absent: frozenset[str] = frozenset()
    over: bool = False
    stock: Fraction = Fraction(0)
    offers: AgreementState | None = None
    fresh: str = ""


class ChoicesProtocol(Protocol[GameState]):
    """The protocol of choices; the module's docstring states the rules."""

    kind = "choices"

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        super().__init__(spec, names)
        assert isinstance(spec.protocol, ChoicesRules)
        self.rules, self.worths, self._length = spec.protocol, spec.worth, spec.protocol.length
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}
        self._options = {agent: self.rules.menu_of(agent) for agent in self.agents}
        self._stages = self.rules.stages or (self.agents,)
        self._prior = {agent: {a for stage in self._stages[:n] for a in stage}
                       for n, members in enumerate(self._stages) for agent in members}  # fmt: skip
        # Contracts are offers about what all choose, so the protocol of agreements carries them out.
        terms = OutcomeSpec.model_construct(protocol=AgreementRules(), issues=self.space.issues, worth=spec.worth)
        self._contracts = Agreement(terms, names) if self.rules.contract else None
        self.kinds = frozenset((CHOOSE,)) | (self._contracts.kinds if self._contracts else frozenset())

    def initial(self) -> GameState:
        """The state before the first round."""
        seats = len(self.agents)
        start = Fraction(exact_decimal(self.rules.stock.start)) if self.rules.stock else Fraction(0)
        offers = self._contracts.initial() if self._contracts else None
        zero = (Fraction(0),) * seats
        return GameState((), (), (None,) * seats, (0,) * seats, zero, stock=start, offers=offers)

    def _due(self, state: GameState) -> tuple[str, ...]:
        """The seats that are to choose now: those of the first stage that is not complete."""
        if state.over:
            return ()
        for stage in self._stages:
            if due := tuple([agent for agent in stage if state.pending[self._seat_of[agent]] is None]):
                return due
        return ()

    def _waits(self, state: GameState, seat: str) -> int:
        """The turns that a seat must still take before it may choose."""
        return self.rules.talks - state.turns[self._seat_of[seat]]

    def _contracts_open(self, state: GameState) -> bool:
        return state.offers is not None and not state.over and all(option is None for option in state.pending)

    def menu(self, state: GameState, seat: str) -> Menu:
        """A choice if one is due, and contracts while nobody has chosen."""
        if state.over or seat in state.absent:
            return NO_MOVES
        menu = NO_MOVES
        if self._contracts is not None and state.offers is not None and self._contracts_open(state):
            menu = self._contracts.menu(state.offers, seat)
        is_due = seat in self._due(state) and self._waits(state, seat) <= 0
        return menu._replace(choose=self._options[seat] if is_due else (), space=menu.space or self.space)

    def apply(
        self,
        state: GameState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: GameState | None = None,
    ) -> tuple[GameState, Effect]:
        """See :meth:`Protocol.apply`; a choice counts regardless of who sees the turn."""
        self._check_seat(seat)
        before = state if basis is None else basis
        self._check_open(before, state, seat)
        if move.kind is not CHOOSE:
            return self._contract(state, seat, move, visible_to, before)
        due = self._due(before)
        if seat not in due:
            done = before.pending[self._seat_of[seat]] is not None
            raise InvalidMoveError(
                "you have chosen in this round; a choice is final" if done else "others choose first in this round"
            )
        if (turns := self._waits(before, seat)) > 0:
            raise InvalidMoveError(f"you may choose after {turns} more of your turns in this round")
        option = read_option(move.content, self._options[seat], "move.choose")
        effect = Effect(Move(CHOOSE, option), f"chooses {option}", "chooses (hidden until all have chosen)")
        return self._advanced(self._with_choice(state, seat, option)._replace(fresh=seat)), effect

    def _check_open(self, before: GameState, state: GameState, seat: str) -> None:
        if seat in state.absent:
            raise InvalidMoveError("a seat that has left cannot make a move")
        if state.over:
            when = "" if before.over else " earlier in this round"
            raise InvalidMoveError(f"the game ended{when}", hint="no move is open any more")

    def _contract(
        self, state: GameState, seat: str, move: Move, visible_to: Collection[str] | None, before: GameState
    ) -> tuple[GameState, Effect]:
        if self._contracts is None or state.offers is None or move.kind not in self.kinds:
            self._refuse_kind(move)
        if not self._contracts_open(before) or not self._contracts_open(state):
            raise InvalidMoveError("a contract is made before anybody chooses", hint="wait for the next round")
        offers, effect = self._contracts.apply(state.offers, seat, move, visible_to, before.offers)
        state = state._replace(offers=offers)
        if offers.agreed:
            terms = offers.agreed[0].terms
            profile = tuple([terms[name] for name in self.names.values()])
            while not state.over:
                state = self._closed(state._replace(pending=profile))
        return state, effect

    def _with_choice(self, state: GameState, seat: str, option: str) -> GameState:
        index = self._seat_of[seat]
        return state._replace(pending=(*state.pending[:index], option, *state.pending[index + 1 :]))

    def _advanced(self, state: GameState) -> GameState:
        """The state after the choices of absent seats, and after the end of the round if all have chosen."""
        while not state.over:
            vacant = next((agent for agent in self._due(state) if agent in state.absent), None)
            if vacant is not None:
                state = self._with_choice(state, vacant, self.rules.absent)
            elif None not in state.pending:
                state = self._closed(state)
            else:
                break
        return state

    def _closed(self, state: GameState) -> GameState:
        """The state after a round in which all have chosen."""
        chosen = tuple([option for option in state.pending if option is not None])
        profile = self.rules.played(chosen)
        gains, stock = self._gains(state, profile)
        number = len(state.played) + 1
        over = number == self._length or self._is_used_up(stock)
        paid = tuple([paid + gain for paid, gain in zip(state.paid, gains, strict=True)])
        return state._replace(
            played=(*state.played, profile),
            chosen=(*state.chosen, chosen),
            pending=(None,) * len(self.agents),
            turns=(0,) * len(self.agents),
            paid=self._with_prize(paid, stock) if over else paid,
            over=over,
            stock=stock,
        )

    def _gains(self, state: GameState, profile: tuple[str, ...]) -> tuple[list[Fraction], Fraction]:
        """The payoffs of a round, and the stock after it."""
        rule = self.rules.stock
        if rule is None:
            return self._table(profile), state.stock
        amounts = rule.received(state.stock, [amount_of(option) for option in profile])
        gains = []
        for seat, worth in enumerate(self.worths):
            assert isinstance(worth, AmountsWorth)
            gains.append(worth.gain_of(seat, amounts))
        return gains, rule.after(state.stock, sum(amounts, Fraction(0)))

    def _table(self, profile: tuple[str, ...]) -> list[Fraction]:
        if profile not in self._tables:
            terms = dict(zip(self.names.values(), profile, strict=True))
            self._tables[profile] = [Fraction(v.exact(self.space, terms), v.scale) for v in self.valuations]
        return self._tables[profile]

    @cached_property
    def _tables(self) -> dict[tuple[str, ...], list[Fraction]]:
        return {}

    def _is_used_up(self, stock: Fraction) -> bool:
        return self.rules.stock is not None and self.rules.stock.flow == "take" and not stock

    def _with_prize(self, paid: tuple[Fraction, ...], stock: Fraction) -> tuple[Fraction, ...]:
        rule = self.rules.stock
        if rule is None or rule.goal is None or stock < exact_decimal(rule.goal):
            return paid
        return tuple([one + Fraction(exact_decimal(rule.prize)) for one in paid])

    def advance(self, state: GameState, seat: str) -> GameState:
        """Counts the turns of seats that may not choose yet."""
        if state.fresh == seat:
            return state._replace(fresh="")
        if state.over or self._waits(state, seat) <= 0:
            return state
        index = self._seat_of[seat]
        return state._replace(turns=(*state.turns[:index], state.turns[index] + 1, *state.turns[index + 1 :]))

    def leave(self, state: GameState, seat: str) -> GameState:
        """Chooses ``absent`` for the seat from now on, or ends the game."""
        self._check_seat(seat)
        if state.over or seat in state.absent:
            return state
        offers = self._contracts.leave(state.offers, seat) if self._contracts and state.offers is not None else None
        state = state._replace(absent=state.absent | {seat}, offers=offers)
        goes_on = self.rules.absent and len(self.agents) - len(state.absent) > 1
        return self._advanced(state) if goes_on else state._replace(over=True)

    def settled(self, state: GameState) -> bool:
        """Whether nothing more can be chosen."""
        return state.over

    def choices(self, state: GameState, seat: str) -> Choices:
        """The choices of ``seat``, one per round that has begun; the last is the one of this round, or ``None``."""
        index = self._seat_of[seat]
        return (*[row[index] for row in state.chosen], state.pending[index])

    def outcome(self, state: GameState) -> Settlement:
        """The rounds that were played."""
        number, total = len(state.played), self._length
        if not number:
            return Settlement(False, reason="No round was played: not every seat chose.")
        rows = [dict(zip(self.names.values(), row, strict=True)) for row in state.played]
        last = "; ".join(f"{name}: {option}" for name, option in rows[-1].items())
        terms = {"rounds": rows} | ({} if self.rules.stock is None else {"stock": float(state.stock)})
        assents = {agent: Move(CHOOSE, state.chosen[-1][seat]) for seat, agent in enumerate(self.agents)}
        if state.offers is not None and state.offers.agreed and self._contracts is not None:
            assents = dict(self._contracts.outcome(state.offers).assents)
        ended = f"{number} of {total} rounds were played. The last one" if total > 1 else "All have chosen"
        return Settlement(True, terms, f"{ended}: {last}.", None, assents)

    def payoffs(self, state: GameState, turns: int = 0) -> tuple[float, ...]:
        """The payoffs of all rounds; those that were not played pay ``no_choice``."""
        # A stock that is used up is played to its end: what it no longer pays is not a missing choice.
        missing = 0 if self._is_used_up(state.stock) else self._length - len(state.played)
        return tuple([
            float(paid + Fraction(valuation.disagreement * missing - valuation.per_turn * turns, valuation.scale))
            for paid, valuation in zip(state.paid, self.valuations, strict=True)
        ])  # fmt: skip

    def table(self, state: GameState, seat: str | None) -> TableView:
        """The rounds, as far as ``seat`` may see them, and the open contracts."""
        view = TableView(self.kind, state.over, self.space, result=self.outcome(state).reason if state.over else "")
        if self._contracts is not None and state.offers is not None and self._contracts_open(state):
            view = view._replace(offers=self._contracts.table(state.offers, seat).offers)
        if seat is not None and self.rules.history != "partners" and state.over:
            view = view._replace(result=f"The game is over after {len(state.played)} of {self._length} rounds.")
        return view._replace(rounds=self._rounds(state, seat))

    def _rounds(self, state: GameState, seat: str | None) -> Rounds:
        sees_all = seat is None or self.rules.history == "partners"
        own = None if seat is None else self._seat_of[seat]
        played = state.chosen if sees_all else tuple(
            tuple(option if index == own else HIDDEN for index, option in enumerate(row)) for row in state.chosen
        )  # fmt: skip
        counts = tuple(Counter(row) for row in state.chosen) if self.rules.history == "strangers" else ()
        due = self._due(state)
        pending = tuple(
            option if option is None or seat is None or index == own or self._is_open(agent, due) else HIDDEN
            for index, (agent, option) in enumerate(zip(self.agents, state.pending, strict=True))
        )
        paid = {
            agent: float(amount)
            for agent, amount in zip(self.agents, state.paid, strict=True)
            if seat is None or agent == seat or (sees_all and self.rules.payoffs == "open")
        }
        level = None if self.rules.stock is None else float(state.stock)
        return Rounds(
            self.agents, played, counts, pending, due, self.rules.rounds, paid, level, self.rules.ending is not None
        )

    def _is_open(self, agent: str, due: tuple[str, ...]) -> bool:
        """Whether the choice of a seat in this round is visible to all: its stage is complete."""
        return bool(due) and agent in self._prior[due[0]]
