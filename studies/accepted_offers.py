"""The shares of open offers that a policy accepts, by their worth to its seat, and of its own offers that lose.

python -m studies.accepted_offers runs/a runs/b --policy clone

GOAL and FIN say what a deal is worth; this says whether a policy reads what an offer is worth before it accepts or
makes it. A negotiator accepts a gain in its last turn, after which there is none, and never accepts or offers a loss.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sotopia_env.foundation.errors import SotopiaError, UnknownNameError
from sotopia_env.outcomes.move import MoveKind
from sotopia_env.reports.sheet import Sheet, Value, show_percent
from sotopia_env.storage import read_run
from sotopia_env.world.dynamics import StopReason
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.table import Table

COLUMNS = ("gain, last turn", "gain, before", "loss, last turn", "loss, before")
"""What the best offer is worth that the seat could accept, more or less than no agreement, and when."""
OFFERED = "own offers that lose"
"""Of its new offers: those that would be worth less to the seat than no agreement."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a policy decided about offers.

    Attributes:
        accepted: for each of :data:`COLUMNS`, whether the offer was accepted, of every own turn of that kind.
        losing: of every new offer of its own, whether it would be a loss. A proposal that settles the episode is none.
    """

    accepted: tuple[list[bool], ...] = field(default_factory=lambda: tuple([] for _ in COLUMNS))
    losing: list[bool] = field(default_factory=list)


Accepted = dict[str, Decisions]
"""The decisions of each policy."""


def add_accepted(episode: Episode, accepted: Accepted, policies: Sequence[str] = ()) -> None:
    """Adds the turns of an episode in which a seat could accept an offer, or made one.

    A proposal that settles the episode repeats the terms of an open offer, and accepts it. Open offers that are worth
    exactly as much as no agreement are left out.

    Args:
        episode: an episode with tables of worths.
        accepted: what is added to.
        policies: the policies whose turns count; all by default.
    """
    table, end, protocol = Table.resume(episode), len(episode.turns) - 1, episode.task.protocol
    for seat in episode.policies:
        if policies and seat.name not in policies:
            continue
        view, own = table.observe(seat.agent), accepted.setdefault(seat.name, Decisions())
        worth, standing = view.briefing.worth, None
        for index, turn in enumerate(episode.plain_turns):
            if turn.actor != seat.agent:
                continue
            move = turn.action.move
            kind = move and move.kind
            settled = index == end and episode.stop is StopReason.SETTLED
            accepts = kind is MoveKind.ACCEPT or (kind is MoveKind.PROPOSE and settled)
            gains = view.offer_gains(index)
            best = max((gains.get(number, 0.0) for number in view.answerable(index)), default=0.0)
            if best != 0.0:
                own.accepted[2 * (best < 0) + (view.own_turns_left(index) > 1)].append(accepts)
            if move is None or kind is not MoveKind.PROPOSE or settled or protocol is None or worth is None:
                continue
            terms = protocol.space.normalise(move.content)
            if protocol.kind == "agreement" and terms != standing:  # what is proposed again is no new offer
                own.losing.append(worth.value(protocol.space, terms, seat.agent) < worth.disagreement)
                standing = terms


def accepted_sheet(accepted: Accepted, titles: Iterable[tuple[str, str]] = ()) -> Sheet:
    """Returns a row for each policy: the share of such turns in which it accepted, and their number.

    Args:
        accepted: the turns of each policy.
        titles: the policies to show with their titles; all under their names by default.
    """
    rows: list[tuple[Value, ...]] = []
    for name, title in titles or [(name, name) for name in sorted(accepted)]:
        if name in accepted:
            own = accepted[name]
            *shares, losing = (sum(kind) / len(kind) if kind else None for kind in (*own.accepted, own.losing))
            rows.append((title, *shares, sum(map(len, own.accepted)), losing, len(own.losing)))
    columns = ("accepted %", *COLUMNS, "turns", OFFERED, "own offers")
    return Sheet("accepted", columns, rows, formats=dict.fromkeys((*COLUMNS, OFFERED), show_percent))


def main() -> int:
    """Reads the command line, prints the table and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of runs")
    parser.add_argument("--policy", action="append", default=[], help="a policy to show; all by default; repeatable")
    options = parser.parse_args()
    accepted: Accepted = {}
    try:
        for run in options.runs:
            for episode in read_run(run):
                add_accepted(episode, accepted)
        for name in options.policy:
            if name not in accepted:
                raise UnknownNameError(field="policy", got=name, valid=sorted(accepted))
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {error}\n")
        return 2
    titles = [(name, name) for name in options.policy]
    sys.stdout.write(accepted_sheet(accepted, titles).text() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
