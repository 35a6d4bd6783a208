"""One seat's view of the table: open offers, votes and claims, as fields and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.menu import Offer
from sotopia_env.outcomes.space import OutcomeSpace, remember

if TYPE_CHECKING:
    from sotopia_env.outcomes.games.rounds import Rounds
    from sotopia_env.outcomes.roles.view import RolesView

NOTHING = "Nothing is on the table."
HIDDEN = ""
"""Represents a secret vote; options are never empty."""


class OpenOffer(NamedTuple):
    """An open offer and the seats that have yet to accept it.

    Attributes:
        offer: its number, proposer and terms, and the seats that have accepted or rejected it.
        required: seats without whose assent it cannot be agreed, in seat order.
        quorum: the number of acceptances that it needs in all.
        open: whether the seat whose view this is may answer it.
    """

    offer: Offer
    required: tuple[str, ...]
    quorum: int
    open: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """The required seats that have not accepted yet."""
        accepted = self.offer.accepted
        return tuple([agent for agent in self.required if agent not in accepted])

    @property
    def more(self) -> int:
        """The number of further acceptances that it needs, those of ``missing`` included."""
        # A required seat's acceptance counts towards the quorum, too: the maximum, not the sum.
        return max(self.quorum - len(self.offer.accepted), len(self.missing))

    def to_json(self) -> dict[str, Any]:
        """Returns the offer as JSON."""
        offer = self.offer
        return {
            "number": offer.number,
            "proposer": offer.proposer,
            "terms": offer.terms,
            "accepted": list(offer.accepted),
            # A set has no order of its own; equal offers must give equal JSON.
            "rejected": sorted(offer.rejected),
            "missing": list(self.missing),
            "more": self.more,
            "private": offer.audience is not None,
            "open": self.open,
        }

    def text(self, space: OutcomeSpace) -> str:
        """One line, such as ``#2 by Ana: price $84 (needs Ben)``."""
        number, proposer, terms, audience, accepted, rejected = self.offer
        key = (self.required, self.quorum, accepted, rejected)
        notes = space.notes.get(key)
        if notes is None:
            notes = remember(space.notes, key, self._notes(space.names))
        private = " to some" if audience is not None else ""
        return f"#{number} by {space.names[proposer]}{private}: {space.describe(terms)} ({notes})"

    def _notes(self, names: Mapping[str, str]) -> str:
        """The seats that have accepted or rejected it, and those that have yet to accept."""
        offer, notes = self.offer, []
        if len(offer.accepted) > 1:
            notes.append(f"accepted by {_listed(names, offer.accepted)}")
        if offer.rejected:
            notes.append(f"rejected by {_listed(names, sorted(offer.rejected))}")
        return "; ".join([*notes, self._needs(names)])

    def _needs(self, names: Mapping[str, str]) -> str:
        missing, more = self.missing, self.more
        # If the quorum needs no seats beyond the required ones, their names are enough.
        if more <= len(missing):
            return f"needs {_listed(names, missing)}"
        named = f", among them {_listed(names, missing)}" if missing else ""
        return f"needs {more} more{named}"


@dataclass(frozen=True, slots=True)
class Votes:
    """One seat's view of the votes of a ballot; the lists are built when they are read.

    Attributes:
        agents: agent ids in seat order.
        cast: the option of each seat, ``None`` without a vote, :data:`HIDDEN` for a vote that the viewer may not see.
        absent: the seats that have left.
    """

    agents: tuple[str, ...]
    cast: tuple[str | None, ...]
    absent: frozenset[str]

    @property
    def voted(self) -> tuple[str, ...]:
        """The agents that have voted."""
        return tuple([agent for agent, vote in zip(self.agents, self.cast, strict=True) if vote is not None])

    @property
    def waiting(self) -> tuple[str, ...]:
        """The present agents that have not voted."""
        seats = zip(self.agents, self.cast, strict=True)
        return tuple([agent for agent, vote in seats if vote is None and agent not in self.absent])

    @property
    def options(self) -> dict[str, str]:
        """Agent id to option, where it is known."""
        # ``HIDDEN`` is the empty text, so secret votes are left out like missing ones.
        return {agent: vote for agent, vote in zip(self.agents, self.cast, strict=True) if vote}

    def to_json(self) -> dict[str, Any]:
        """Returns the votes as JSON."""
        return {"voted": list(self.voted), "waiting": list(self.waiting), "options": self.options}

    def lines(self, names: Mapping[str, str]) -> list[str]:
        """One line for the votes that were cast, and one for the missing votes."""
        votes = [
            f"{names[agent]} for {vote}" if vote else f"{names[agent]} (secret)"
            for agent, vote in zip(self.agents, self.cast, strict=True)
            if vote is not None
        ]
        if not votes:
            return []
        lines = [f"Votes: {', '.join(votes)}."]
        waiting = self.waiting
        return [*lines, f"No vote yet: {_listed(names, waiting)}."] if waiting else lines


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims so far.

    Attributes:
        claimed: agent id to the number of claims made; known to all.
        tries_left: agent id to claims left, for the seats whose claims the viewer may see: its own, or all.
        wrong: agent id to wrong claims, for the same seats.
        right: which of the same seats have claimed the answer.
    """

    claimed: Mapping[str, int] = field(hash=False)
    tries_left: Mapping[str, int] = field(hash=False)
    wrong: Mapping[str, tuple[str, ...]] = field(hash=False)
    right: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the claims as JSON."""
        wrong = {agent: list(claims) for agent, claims in self.wrong.items()}
        return {
            "claimed": dict(self.claimed),
            "tries_left": dict(self.tries_left),
            "wrong": wrong,
            "right": list(self.right),
        }

    def lines(self, names: Mapping[str, str]) -> list[str]:
        """One line per seat that has claimed."""
        lines = []
        for agent, count in self.claimed.items():
            line = f"{names[agent]}: {count} claim{'s' * (count != 1)}"
            if agent in self.right:
                # A seat that was right cannot claim again, so its right claim is its last one.
                line += ", the last one right"
            elif self.wrong.get(agent):
                wrong = ", ".join(map(quote, self.wrong[agent]))
                line += f", wrong: {wrong}; tries left: {self.tries_left[agent]}"
            lines += [line] if count else []
        return lines


class TableView(NamedTuple):
    """One seat's view of the table: offers, votes, claims, choices or a game of roles.

    Attributes:
        kind: the kind of the protocol.
        settled: whether the table can no longer change.
        space: the outcome space, for names and texts; not part of the JSON.
        knowledge: the values that the seat knows by now, by variable; without a seat, all; ``None`` without facts.
        evidence: the variables of ``knowledge`` whose values were proved to the seat.
    """

    kind: str
    settled: bool
    space: OutcomeSpace
    offers: tuple[OpenOffer, ...] = ()
    votes: Votes | None = None
    claims: Claims | None = None
    result: str = ""
    knowledge: Mapping[str, str] | None = None
    evidence: tuple[str, ...] = ()
    rounds: Rounds | None = None
    game: RolesView | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the table as JSON."""
        fields: dict[str, Any] = {"kind": self.kind, "settled": self.settled, "result": self.result}
        fields |= {} if self.knowledge is None else {"knowledge": dict(self.knowledge)}
        if self.votes is not None:
            return fields | {"votes": self.votes.to_json()}
        if self.claims is not None:
            return fields | {"claims": self.claims.to_json()}
        if self.rounds is not None:
            fields |= {"choices": self.rounds.to_json()}
        if self.game is not None:
            return fields | {"game": self.game.to_json()}
        return fields | {"offers": [offer.to_json() for offer in self.offers]}

    @property
    def proofs(self) -> list[str]:
        """One line for each value that was proved to the seat; what it knew at the start is in its briefing."""
        knowledge = self.knowledge or {}
        return [f"Proved to you: {name} = {knowledge[name]}." for name in self.evidence]

    @property
    def text(self) -> str:
        """Short lines; ``Nothing is on the table.`` when it is empty."""
        space = self.space
        names, lines = space.names, [offer.text(space) for offer in self.offers]
        lines += self.votes.lines(names) if self.votes is not None else []
        lines += self.claims.lines(names) if self.claims is not None else []
        lines += self.rounds.lines(names) if self.rounds is not None else []
        lines += self.game.lines(names) if self.game is not None else []
        lines += self.proofs
        lines += [self.result] if self.result else []
        return "\n".join(lines) or NOTHING


def _listed(names: Mapping[str, str], agents: tuple[str, ...] | list[str]) -> str:
    return ", ".join([names[agent] for agent in agents])
