"""The agreement protocol: numbered offers that stay open until they are accepted, rejected, replaced or withdrawn.

The rules in detail:

- An offer is agreed when every seat whose assent is needed, and as many as the quorum asks for, have accepted it. The
  proposer has accepted. An acceptance cannot be taken back while the offer is open, and a rejection of it is final.
- Equal offers to the same seats count together: seats that each bound themselves to the same terms have agreed, in one
  simultaneous round (crossing offers) or one after the other. Repeating one's own open offer keeps its number and
  acceptances. With ``standing: latest``, offering the terms of the last offer accepts it.
- A private offer must reach every seat whose assent it needs. Others notice only a gap in the
  numbers of offers, as they do in the numbers of turns after any private action. An answer to an offer counts, and is
  on the table, for all seats to which the offer is open, even if its turn was private.
- When a seat leaves, its offers and acceptances are removed; after that it sees only whether the others agree.
  Offers that can no longer be agreed are removed. If a seat leaves whose assent every agreement needs, nothing can be
  agreed any more, and the protocol is settled.
- In a simultaneous round only offers made before it can be answered; one that an earlier seat replaced, rejected or
  withdrew in the same round is gone. A seat answers an offer at most once, whatever it knew when it acted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, NoReturn

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.issues import Seats
from sotopia_env.outcomes.menu import NO_MOVES, Menu, Offer
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind, offer_number
from sotopia_env.outcomes.protocols.protocol import Effect, Protocol, Settlement
from sotopia_env.outcomes.space import Terms
from sotopia_env.outcomes.specification import AgreementRules, OutcomeSpec
from sotopia_env.outcomes.table import OpenOffer, TableView

# Looking a member up in its enum costs more than comparing it.
PROPOSE, ACCEPT, REJECT, WITHDRAW = MoveKind.PROPOSE, MoveKind.ACCEPT, MoveKind.REJECT, MoveKind.WITHDRAW
NO_SEATS: frozenset[str] = frozenset()


class AgreementState(NamedTuple):
    """The open offers, and the agreement if there is one.

    Attributes:
        offers: the open offers, by number.
        last: the number of the last offer; 0 before the first.
        absent: the seats that have left.
        agreed: the offer that was agreed, with the equal ones that count together with it; empty before.
    """

    offers: tuple[Offer, ...] = ()
    last: int = 0
    absent: frozenset[str] = NO_SEATS
    agreed: tuple[Offer, ...] = ()


class Agreement(Protocol[AgreementState]):
    """The agreement protocol; the module's docstring states the rules."""

    kind = "agreement"
    kinds = frozenset((PROPOSE, ACCEPT, REJECT, WITHDRAW))

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        super().__init__(spec, names)
        assert isinstance(spec.protocol, AgreementRules)
        needs = spec.protocol.needs
        self.latest = spec.protocol.standing == "latest"
        self.required = frozenset(self.agents) if needs == "all" else frozenset(needs.veto)
        self._in_order = tuple(agent for agent in self.agents if agent in self.required)
        # Every seat with a veto must accept, so fewer acceptances than vetoes cannot suffice.
        self.quorum = len(self.agents) if needs == "all" else max(needs.quorum, len(needs.veto))

    def initial(self) -> AgreementState:
        """An empty table."""
        return AgreementState()

    def menu(self, state: AgreementState, seat: str) -> Menu:
        """Proposals, one answer to each open offer of others, and the withdrawal of the seat's own offer."""
        offers, _, absent, agreed = state
        if agreed or (absent and (seat in absent or self._impossible(absent))):
            return NO_MOVES
        answers: tuple[int, ...] = ()
        own: tuple[int, ...] = ()
        for number, proposer, _, audience, accepted, rejected in offers:
            if proposer == seat:
                own = (*own, number)
            elif audience is not None and seat not in audience:
                # Neither the number nor the terms of a private offer may be seen outside its audience.
                offers = tuple([offer for offer in offers if offer.number != number])
            elif seat not in accepted and seat not in rejected:
                answers = (*answers, number)
        return Menu(propose=True, accept=answers, reject=answers, withdraw=own, space=self.space, offers=offers)

    def apply(
        self,
        state: AgreementState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: AgreementState | None = None,
    ) -> tuple[AgreementState, Effect]:
        """See :meth:`Protocol.apply`."""
        if seat not in self.names:
            self._check_seat(seat)
        if state.agreed or state.absent:
            self._check_open(state, seat)
        kind = move.kind
        if kind is PROPOSE:
            return self._propose(state, seat, move, visible_to)
        if kind is not ACCEPT and kind is not REJECT and kind is not WITHDRAW:
            self._refuse_kind(move)
        offer = self._offer(state, seat, move, state if basis is None else basis)
        act = self._accept if kind is ACCEPT else self._reject if kind is REJECT else self._withdraw
        return act(state, seat, offer)

    def _check_open(self, state: AgreementState, seat: str) -> None:
        if state.agreed:
            raise InvalidMoveError("the agreement is settled", hint="no move is open any more")
        if seat in state.absent:
            raise InvalidMoveError("a seat that has left cannot make a move")
        if self._impossible(state.absent):
            raise InvalidMoveError("a seat has left whose assent every agreement needs", hint="no move is open")

    def _impossible(self, absent: frozenset[str]) -> bool:
        return bool(self.required & absent) or len(self.agents) - len(absent) < self.quorum

    def _can_be_agreed(self, offer: Offer, absent: frozenset[str]) -> bool:
        # The seats that could still accept: they see the offer, are present and have not rejected it.
        able = frozenset(self.agents if offer.audience is None else offer.audience) - absent - offer.rejected
        return self.required <= able and len(able) >= self.quorum

    def _suffice(self, assents: Collection[str]) -> bool:
        return len(assents) >= self.quorum and self.required.issubset(assents)

    def _propose(
        self, state: AgreementState, seat: str, move: Move, visible_to: Collection[str] | None
    ) -> tuple[AgreementState, Effect]:
        terms = self.space.normalise(move.content)
        audience = None if visible_to is None else self._audience(state, seat, visible_to)
        offers, last, absent, _ = state
        move, number, latest = Move(PROPOSE, terms), last + 1, self.latest
        # Proposing is accepting: the proposer is bound by its own offer.
        new = Offer(number, seat, terms, audience, accepted=(seat,))
        others, equal = [], False
        for offer in offers:
            _, proposer, offered, to, _, _ = offer
            # Equal offers are checked for before any is replaced: replacing the seat's own would lose its acceptances,
            # and under ``latest``, replacing another's would turn an assent to its terms into a counter-offer.
            is_own = proposer == seat
            if offered == terms and to == audience:
                equal = True
                if is_own:
                    return state, self._effect(move, f"repeats offer #{offer.number}: {{}}", terms)
                if latest and offer.open_to(seat):
                    phrase = f"accepts #{offer.number} by offering the same ({{}})"
                    return self._after_assent(state, offer, seat), self._effect(move, phrase, terms)
            if not (is_own or latest):
                others.append(offer)
        after = AgreementState((*others, new), number, absent)
        phrase = f"offers (#{number}): {{}}" if audience is None else f"offers to some (#{number}): {{}}"
        return self._with_agreement(after, new) if equal else after, self._effect(move, phrase, terms)

    def _effect(self, move: Move, phrase: str, terms: Terms) -> Effect:
        return Effect(move, phrase, terms=terms, space=self.space)

    def _audience(self, state: AgreementState, seat: str, visible_to: Collection[str]) -> frozenset[str] | None:
        audience = frozenset(visible_to) | {seat}
        for agent in visible_to:
            if agent not in self.names:
                raise UnknownNameError(field="visible_to", got=agent, valid=self.agents)
        # An offer to all seats that are present is public.
        if len(audience | state.absent) == len(self.agents):
            return None
        if missing := [agent for agent in self.agents if agent in self.required - audience]:
            names = ", ".join(self.names[agent] for agent in missing[:6])
            raise InvalidMoveError(
                "a private offer must reach every seat whose assent it needs", hint=f"missing: {names}"
            )
        if len(audience - state.absent) < self.quorum:
            raise InvalidMoveError(f"a private offer must reach as many seats as an agreement needs, {self.quorum}")
        return audience

    def _with_agreement(self, state: AgreementState, offer: Offer) -> AgreementState:
        """The state after an assent to ``offer``, one of the open offers of ``state``."""
        assents = offer.accepted
        # Seats whose offers cross in a simultaneous round have bound themselves to the same terms without accepting
        # each other's offer, so the assents to equal offers count together.
        equals = [one for one in state.offers if (one.terms, one.audience) == (offer.terms, offer.audience)]
        if len(equals) > 1:
            assents = tuple({agent for other in equals for agent in other.accepted})
        if not self._suffice(assents):
            return state
        # With an agreement all other open offers lapse.
        return AgreementState((), state.last, state.absent, agreed=tuple(equals))

    def _offer(self, state: AgreementState, seat: str, move: Move, basis: AgreementState) -> Offer:
        number = offer_number(move.kind, move.content)
        if number is True:
            number = self._only_offer(seat, move.kind, basis)
        # First by what the seat knew when it decided, so that the answer tells it nothing newer.
        before = next((offer for offer in basis.offers if offer.number == number), None)
        if before is None or not _is_open(before, seat, move.kind):
            self._refuse_offer(seat, move.kind, number, before, basis)
        if basis is state:
            return before
        # The offer in ``state`` includes the answers that this and earlier seats have given in the same round.
        offer = next((offer for offer in state.offers if offer.number == number), None)
        if offer is None:
            raise InvalidMoveError(f"offer #{number} was taken off the table earlier in this round", field=move.kind)
        if not _is_open(offer, seat, move.kind):
            self._refuse_offer(seat, move.kind, number, offer, state)
        return offer

    def _only_offer(self, seat: str, kind: MoveKind, basis: AgreementState) -> int:
        offers = _open_offers(basis, seat, kind)
        if len(offers) != 1:
            raise InvalidMoveError(f"true needs exactly one open offer, and {_open_text(offers)}", field=kind)
        return offers[0].number

    def _refuse_offer(
        self, seat: str, kind: MoveKind, number: int, offer: Offer | None, basis: AgreementState
    ) -> NoReturn:
        # A private offer to others must look as if it did not exist.
        if offer is None or not offer.visible_to(seat):
            reason = "is not open"
        elif kind is WITHDRAW:
            reason = "is not your own"
        elif offer.proposer == seat:
            reason = "is your own, which you accepted by proposing it"
        else:
            reason = "has your answer already"
        raise InvalidMoveError(
            f"offer #{number} {reason}", field=kind, hint=_open_text(_open_offers(basis, seat, kind))
        )

    def _accept(self, state: AgreementState, seat: str, offer: Offer) -> tuple[AgreementState, Effect]:
        move, phrase = Move(ACCEPT, offer.number), f"accepts #{offer.number}"
        # The terms of a private offer are left out: other seats may witness this turn.
        if offer.audience is not None:
            return self._after_assent(state, offer, seat), Effect(move, phrase)
        return self._after_assent(state, offer, seat), self._effect(move, f"{phrase} ({{}})", offer.terms)

    def _after_assent(self, state: AgreementState, offer: Offer, seat: str) -> AgreementState:
        accepted = offer._replace(accepted=(*offer.accepted, seat))
        return self._with_agreement(_exchanged(state, offer, accepted), accepted)

    def _reject(self, state: AgreementState, seat: str, offer: Offer) -> tuple[AgreementState, Effect]:
        rejected = offer._replace(rejected=offer.rejected | {seat})
        effect = Effect(Move(REJECT, offer.number), f"rejects #{offer.number}")
        return _exchanged(state, offer, rejected if self._can_be_agreed(rejected, state.absent) else None), effect

    def _withdraw(self, state: AgreementState, seat: str, offer: Offer) -> tuple[AgreementState, Effect]:
        effect = Effect(Move(WITHDRAW, offer.number), f"withdraws #{offer.number}")
        return _exchanged(state, offer, None), effect

    def leave(self, state: AgreementState, seat: str) -> AgreementState:
        """Removes the seat's offers and acceptances, and offers that can no longer be agreed; an agreement stays."""
        self._check_seat(seat)
        if state.agreed or seat in state.absent:
            return state
        absent = state.absent | {seat}
        # Acceptances are removed first: what is left must still be able to gather the assents that it needs.
        staying = [_without(offer, seat) for offer in state.offers if offer.proposer != seat]
        offers = tuple(offer for offer in staying if self._can_be_agreed(offer, absent))
        return AgreementState(offers, state.last, absent)

    def settled(self, state: AgreementState) -> bool:
        """Whether there is an agreement, or none is possible any more because of the seats that have left."""
        return True if state.agreed else bool(state.absent) and self._impossible(state.absent)

    def outcome(self, state: AgreementState) -> Settlement:
        """The agreed terms, with each seat's binding move."""
        if not state.agreed:
            why = (
                "a seat left whose assent was needed"
                if self.settled(state)
                else "no offer was accepted by enough seats"
            )
            return Settlement(False, reason=f"Nothing was agreed: {why}.")
        first = state.agreed[0]
        # ``accepted`` includes proposers; the next line replaces their entry by the proposal.
        assents = {agent: Move(ACCEPT, offer.number) for offer in state.agreed for agent in offer.accepted}
        assents |= {offer.proposer: Move(PROPOSE, offer.terms) for offer in state.agreed}
        numbers = conjunction([f"#{offer.number}" for offer in state.agreed])
        reason = f"Agreed on {numbers}: {self.space.describe(first.terms)}."
        return Settlement(True, first.terms, reason, first.proposer, assents)

    def table(self, state: AgreementState, seat: str | None) -> TableView:
        """The open offers that ``seat`` can see; a seat that has left sees none."""
        settled = self.settled(state)
        result = self._result(state, seat) if settled else ""
        absent = seat in state.absent
        offers = [self._open_offer(offer, seat) for offer in state.offers if seat is None or offer.visible_to(seat)]
        return TableView(self.kind, settled, self.space, () if absent else tuple(offers), result=result)

    def _result(self, state: AgreementState, seat: str | None) -> str:
        # A seat outside the audience of a private offer learns that something was agreed, but not what.
        if state.agreed and seat is not None and (seat in state.absent or not state.agreed[0].visible_to(seat)):
            return "Others have come to an agreement."
        return self.outcome(state).reason

    def _open_offer(self, offer: Offer, seat: str | None) -> OpenOffer:
        is_open = seat is not None and offer.open_to(seat)
        return OpenOffer(offer, self._in_order, self.quorum, is_open)


def _exchanged(state: AgreementState, offer: Offer, successor: Offer | None) -> AgreementState:
    offers = [successor if other is offer else other for other in state.offers]
    return AgreementState(tuple([other for other in offers if other is not None]), state.last, state.absent)


def _without(offer: Offer, seat: str) -> Offer:
    if seat not in offer.accepted:
        return offer
    return offer._replace(accepted=tuple(agent for agent in offer.accepted if agent != seat))


def _is_open(offer: Offer, seat: str, kind: MoveKind) -> bool:
    """Whether ``seat`` may make a move of ``kind`` about ``offer``: withdraw it, or answer it."""
    return offer.proposer == seat if kind is WITHDRAW else offer.open_to(seat)


def _open_offers(state: AgreementState, seat: str, kind: MoveKind) -> list[Offer]:
    return [offer for offer in state.offers if _is_open(offer, seat, kind)]


def _open_text(offers: list[Offer]) -> str:
    numbers = ", ".join(f"#{offer.number}" for offer in offers[:12])
    return f"open to you: {numbers}" if offers else "none is open to you"
