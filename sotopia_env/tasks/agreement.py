"""When two sides have agreed: one machine for every family that makes deals from speech.

A family supplies a reader, which turns one utterance into acts (:class:`Offer`, :class:`Accept`, …). The machine keeps
each side's standing offer and closes a deal by these rules:

* Only the arguments of ``speak`` and ``action`` count. Gestures, silence and leaving never assent; leaving after a
  deal does not undo it, and a leaver's own open offer lapses.
* A turn that the partner was not shown does not count.
* A new offer of a side replaces its old one. A counter-offer leaves the partner's offer standing.
* A deal needs the *other* side's assent to an offer that stands: a bare acceptance, an acceptance that repeats the same
  terms, or an offer (not a question) of exactly the same terms. Acceptance of other terms is a counter-offer;
  acceptance while nothing stands is none.
* A rejection ends the partner's standing offer; a withdrawal ends the own one.
* An acceptance that the same turn takes back, changes, or blurs (``Unclear``) is none; what stands beside it must be
  harmless (:mod:`sotopia_env.tasks.asides`). Two different offers in one turn, or one that the turn blurs, leave no
  offer standing.
* With several issues, an offer may name some of them. Assent to it settles these; the deal is closed when all are
  settled. A package is indivisible: to accept a part of it is a counter-offer of that part. Reopening a settled
  issue before the deal is closed unsettles it.
* A closed deal binds. Later retractions, offers and cheers change nothing, unless one side offers new terms and the
  other accepts them *by repeating them*; then the new terms replace the old.
* In simultaneous order, what both sides did in one round was unseen when they did it; offers of a round can be
  accepted from the next round on.

Whatever is ambiguous is no agreement, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sotopia_env.tasks.family import Terms
from sotopia_env.tasks.running import RunningReader
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn


@dataclass(frozen=True, slots=True)
class Offer:
    """The speaker proposes ``terms``; with several issues it may name some of them only.

    ``asked`` marks a question ("How about 80?"). It is an offer, but never assents to an equal offer of the partner's:
    it may only echo it ("80? Hmm.").
    """

    terms: Terms
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """The speaker assents: to what stands (``None``), or to ``terms`` it repeats."""

    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """The speaker turns the partner's offer down; one with ``terms`` only an offer of just these."""

    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The speaker takes its own offer back."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """The speaker touches on terms in a way that cannot be read one way only; ``reason`` says how.

    ``terms`` are the values it names, where it names some: beside an offer of other values they leave none standing.
    With ``spoils`` the speaker blurs its own offer of this turn, which then does not stand.
    """

    reason: str
    terms: Terms | None = None
    spoils: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The speaker names ``terms`` beside its assent ("Deal! See you on July 1."): harmless if these are agreed."""

    terms: Terms


Act = Offer | Accept | Reject | Withdraw | Unclear | Repeat
"""What one utterance does; a reader returns them in the order of the text."""

Reader = Callable[[str, ActionType, str], Sequence[Act]]
"""``(argument, action type, actor) -> acts``: a pure function of one utterance. Cache it (``functools.lru_cache``)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the turns so far amount to.

    Attributes:
        agreed: whether a complete deal stands.
        terms: what was agreed; empty when nothing was.
        reason: why there is a deal, or why there is none.
        offer_turn: index of the turn with the offer that was accepted (the last one, with several issues).
        assent_turn: index of the turn that closed the deal.
        standing: per side, the offer that its partner could accept now.
        offers: per side, every offer it made, oldest first.
        settled: issues both sides have assented to while others are open.
    """

    agreed: bool = False
    terms: Terms = field(default_factory=dict)
    reason: str = "nobody made an offer"
    offer_turn: int | None = None
    assent_turn: int | None = None
    standing: tuple[Terms | None, Terms | None] = (None, None)
    offers: tuple[tuple[Terms, ...], tuple[Terms, ...]] = ((), ())
    settled: Terms = field(default_factory=dict)
    _offer_turns: tuple[int, int] = (-1, -1)


_NOTHING = Reading()
_SPOKEN = (ActionType.SPEAK, ActionType.ACTION)


class AgreementReader:
    """Reads two-party agreements from turns.

    Reading is a pure function of the turns. The object only remembers where it was in transcripts it has seen, so that
    reading a growing transcript turn by turn costs the same per turn at any length.
    """

    __slots__ = ("_agents", "_issues", "_read_acts", "_running")

    def __init__(self, agents: tuple[str, str], read_acts: Reader, issues: Sequence[str] = ()) -> None:
        """Creates the reader.

        Args:
            agents: the ids of the two sides; results are in this order.
            read_acts: the family's reader of one utterance.
            issues: the keys that complete terms have; empty when every offer is complete in itself.
        """
        self._agents = agents
        self._read_acts = read_acts
        self._issues = frozenset(issues)
        self._running = RunningReader(_NOTHING, lambda reading, turn: self._advance(reading, turn, reading))

    def read(self, turns: Sequence[Turn]) -> Reading:
        """Returns what ``turns`` amount to; turns of others than the two sides are passed over."""
        if turns and turns[0].veiled:
            return self._read_rounds(turns)
        return self._running.read(turns)

    def _advance(self, reading: Reading, turn: Turn, visible: Reading) -> Reading:
        action = turn.action
        if action.action_type not in _SPOKEN:
            if action.action_type is ActionType.LEAVE and turn.actor in self._agents and not reading.agreed:
                seat = self._agents.index(turn.actor)
                return replace(reading, standing=_put(reading.standing, seat, None))
            return reading
        if turn.actor not in self._agents:
            return reading
        seat = self._agents.index(turn.actor)
        if action.to and self._agents[1 - seat] not in action.to:
            return reading
        acts = self._read_acts(action.argument, action.action_type, turn.actor)
        return _Step(reading, visible, seat, turn.index, self._issues).run(acts) if acts else reading

    def _read_rounds(self, turns: Sequence[Turn]) -> Reading:
        reading = visible = _NOTHING
        round_ = -1
        for turn in turns:
            if turn.round != round_:
                round_, visible = turn.round, reading
            reading = self._advance(reading, turn, visible)
        return reading


def _put(pair: tuple[Any, Any], seat: int, value: Any) -> tuple[Any, Any]:
    return (value, pair[1]) if seat == 0 else (pair[0], value)


class _Step:
    """One turn's acts, applied to a reading; lives for the length of :meth:`run`."""

    __slots__ = (
        "_accept",
        "_asked",
        "_index",
        "_issues",
        "_offer",
        "_reading",
        "_seat",
        "_torn",
        "_touched",
        "_unclear",
        "_visible",
    )

    def __init__(self, reading: Reading, visible: Reading, seat: int, index: int, issues: frozenset[str]) -> None:
        self._reading = reading
        self._visible = visible  # what the actor had seen: another reading than ``reading`` in simultaneous rounds only
        self._seat = seat
        self._index = index
        self._issues = issues
        self._accept: Accept | None = None
        self._offer: Terms | None = None
        self._asked = self._torn = False
        self._unclear: str | None = None
        self._touched: list[Terms] = []

    def run(self, acts: Sequence[Act]) -> Reading:
        for act in acts:
            self._take(act)
        if self._unclear is not None and (self._accept is None or self._accept.terms is None):
            self._note(self._unclear)
            self._accept = None
            if self._torn or any(self._differs(terms) for terms in self._touched):
                self._change(standing=_put(self._reading.standing, self._seat, None))
                self._offer = None
        if self._offer is not None and self._accept is not None:
            self._settle_and_propose(self._accept, self._offer)
        elif self._offer is not None:
            self._propose(self._offer)
        elif self._accept is not None:
            self._assent(self._accept)
        return self._reading

    def _take(self, act: Act) -> None:
        match act:
            case Offer(terms, asked):
                self._take_offer(terms, asked)
            case Accept(terms):
                self._take_accept(act, terms)
            case Reject(terms):
                self._take_reject(terms)
            case Withdraw():
                self._accept = self._offer = None
                self._end(self._seat, "the offer was withdrawn")
            case Unclear(reason, terms, spoils):
                self._unclear, self._accept = reason, None
                self._torn = self._torn or spoils
                if terms is not None:
                    self._touched.append(terms)
            case Repeat(terms):
                self._take_repeat(terms)

    def _take_repeat(self, terms: Terms) -> None:
        accepted = self._accept.terms if self._accept and self._accept.terms is not None else self._partner_offer()
        if self._accept is not None and any((accepted or {}).get(key, ...) != value for key, value in terms.items()):
            self._unclear, self._accept = "assent beside other values", None

    def _differs(self, terms: Terms) -> bool:
        return self._offer is not None and any(self._offer.get(key, value) != value for key, value in terms.items())

    def _take_reject(self, terms: Terms | None) -> None:
        if terms is None or self._offer == terms:
            self._offer = None
        if terms is None or terms == self._partner_offer():
            self._accept = None
            self._end(1 - self._seat, "the standing offer was turned down")

    def _take_offer(self, terms: Terms, asked: bool) -> None:
        if self._accept is not None:
            accepted = self._accept.terms if self._accept.terms is not None else self._partner_offer()
            if accepted is not None and all(accepted.get(key, ...) == value for key, value in terms.items()):
                return  # repeats what is accepted, or a part of it
            if self._overlap(accepted, terms):
                self._accept = None
        if self._differs(terms):
            self._unclear, self._torn = "two different offers in one turn", True
            return
        self._asked = asked
        self._offer = {**(self._offer or {}), **terms}

    def _take_accept(self, accept: Accept, terms: Terms | None) -> None:
        if terms is None:
            partner = self._partner_offer()
            if self._offer == partner:  # "85? Deal." repeats the partner's offer, then assents
                self._offer = None
            # "80. Deal." after another own offer asks for assent and does not give it
            if self._offer is None or not self._overlap(partner, self._offer):
                self._accept = accept
            return
        self._accept, self._unclear = accept, None
        if self._offer is not None and self._overlap(terms, self._offer):
            self._offer = None

    def _overlap(self, first: Terms | None, second: Terms) -> bool:
        """Whether two sets of terms speak of the same issues; always, where terms are complete in themselves."""
        return not self._issues or first is None or bool(set(first) & set(second))

    def _settle_and_propose(self, accept: Accept, offer: Terms) -> None:
        """Assent to some issues and an offer on others, in one turn."""
        terms = accept.terms if accept.terms is not None else self._partner_offer()
        if terms is not None and terms == self._partner_offer():
            self._assent(accept)
            self._propose(offer)
        else:
            self._propose({**(terms or {}), **offer})

    def _change(self, **fields: Any) -> None:
        self._reading = replace(self._reading, **fields)

    def _note(self, reason: str) -> None:
        """Keeps why nothing came of a turn; the reason of a closed deal stays."""
        if not self._reading.agreed:
            self._change(reason=f"turn {self._index + 1}: {reason}")

    def _end(self, seat: int, reason: str) -> None:
        if self._reading.standing[seat] is not None:
            self._change(standing=_put(self._reading.standing, seat, None))
            self._note(reason)
        elif self._reading.agreed and not self._reading.reason.endswith("binds)"):
            self._change(
                reason=f"{self._reading.reason} (taken back in turn {self._index + 1}, but a closed deal binds)"
            )

    def _partner_offer(self) -> Terms | None:
        """The partner's offer that stands and that the actor had seen."""
        seat = 1 - self._seat
        standing = self._visible.standing[seat]
        return standing if standing is not None and standing == self._reading.standing[seat] else None

    def _propose(self, terms: Terms) -> None:
        if terms == self._partner_offer():
            if not self._asked:
                self._assent(Accept(terms))
            return
        if self._reading.agreed and terms == self._reading.terms:
            return  # confirms what was agreed
        own = self._reading.standing[self._seat]
        if self._issues and own is not None and not set(own) & set(terms):
            terms = {**own, **terms}  # further issues added to the own open offer
        reading = self._reading
        settled = {key: value for key, value in reading.settled.items() if terms.get(key, value) == value}
        # Built in full rather than by replace(): offers are the common case, and this is several times faster.
        self._reading = Reading(
            reading.agreed,
            reading.terms,
            reading.reason if reading.agreed else f"turn {self._index + 1}: the last offer was not accepted",
            reading.offer_turn,
            reading.assent_turn,
            _put(reading.standing, self._seat, terms),
            _put(reading.offers, self._seat, (*reading.offers[self._seat], terms)),
            settled,
            _put(reading._offer_turns, self._seat, self._index),
        )

    def _assent(self, accept: Accept) -> None:
        offered, terms = self._partner_offer(), accept.terms
        if self._reading.agreed and terms is None:
            return
        if offered is None or (terms is not None and not self._same(terms, offered)):
            self._miss(offered, terms)
        elif self._reading.agreed and terms == self._reading.terms:
            return
        else:
            self._close({**self._reading.settled, **offered})

    def _same(self, terms: Terms, offered: Terms) -> bool:
        return terms == offered or terms == {**self._reading.settled, **offered}

    def _miss(self, offered: Terms | None, terms: Terms | None) -> None:
        """An acceptance that meets no offer: of other terms it is a counter-offer, else nothing."""
        if terms is None:
            self._note("an acceptance, but no offer stood")
            return
        known = {**self._reading.settled, **(self._reading.terms if self._reading.agreed else {})}
        if offered is None and all(known.get(key, ...) == value for key, value in terms.items()):
            return  # repeats what is agreed or settled
        self._propose(terms)
        if offered is None:
            self._note("an acceptance of terms that nobody offered; taken as an offer")
        elif all(offered.get(key, ...) == value for key, value in terms.items()):
            self._note("only a part of the offer was accepted")
        else:
            self._note("an acceptance of other terms than were offered; taken as a counter-offer")

    def _close(self, terms: dict[str, Any]) -> None:
        offer_turn = self._reading._offer_turns[1 - self._seat]
        if self._issues - set(terms):
            self._change(settled=terms, standing=(None, None))
            missing = ", ".join(sorted(self._issues - set(terms)))
            self._note(f"agreed on {', '.join(sorted(terms))}, but never on {missing}")
            return
        self._change(
            agreed=True,
            terms=terms,
            reason=f"turn {self._index + 1} assents to the offer of turn {offer_turn + 1}",
            offer_turn=offer_turn,
            assent_turn=self._index,
            standing=(None, None),
            settled={},
        )


__all__ = [
    "Accept",
    "Act",
    "AgreementReader",
    "Offer",
    "Reader",
    "Reading",
    "Reject",
    "Repeat",
    "Unclear",
    "Withdraw",
]
