"""The shares of open offers that a policy accepts, by their worth to its seat, in its last turn and before.

python -m studies.accepted_offers runs/a runs/b --policy clone

GOAL and FIN say what a deal is worth; this says whether a policy reads what an offer is worth before it accepts it. A
negotiator accepts a gain in its last turn, after which there is none, and a loss never.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sotopia_env.foundation.errors import SotopiaError, UnknownNameError
from sotopia_env.reports.sheet import Sheet, Value, show_percent
from sotopia_env.storage import read_run
from sotopia_env.world.dynamics import StopReason
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.table import Table

COLUMNS = ("gain, last turn", "gain, before", "loss, last turn", "loss, before")
"""What the best offer is worth that the seat could accept, more or less than no agreement, and when."""
Accepted = dict[str, list[list[bool]]]
"""By policy; for each of :data:`COLUMNS`, whether the offer was accepted, of every own turn of that kind."""


def add_accepted(episode: Episode, accepted: Accepted, policies: Sequence[str] = ()) -> None:
    """Adds the turns of an episode in which a seat could accept an offer.

    A proposal that settles the episode repeats the terms of an open offer, and accepts it. Offers that are worth
    exactly as much as no agreement are left out.

    Args:
        episode: an episode with tables of worths.
        accepted: what is added to.
        policies: the policies whose turns count; all by default.
    """
    table, end = Table.resume(episode), len(episode.turns) - 1
    for seat in episode.policies:
        if policies and seat.name not in policies:
            continue
        view, kinds = table.observe(seat.agent), accepted.setdefault(seat.name, [[] for _ in COLUMNS])
        for index, turn in enumerate(episode.plain_turns):
            gains = view.offer_gains(index)
            best = max((gains.get(number, 0.0) for number in view.answerable(index)), default=0.0)
            if turn.actor != seat.agent or best == 0.0:
                continue
            move = turn.action.move
            settles = index == end and episode.stop is StopReason.SETTLED
            accepts = move is not None and (move.kind.value == "accept" or (move.kind.value == "propose" and settles))
            kinds[2 * (best < 0) + (view.own_turns_left(index) > 1)].append(accepts)


def accepted_sheet(accepted: Accepted, titles: Iterable[tuple[str, str]] = ()) -> Sheet:
    """Returns a row for each policy: the share of such turns in which it accepted, and their number.

    Args:
        accepted: the turns of each policy.
        titles: the policies to show with their titles; all under their names by default.
    """
    rows: list[tuple[Value, ...]] = []
    for name, title in titles or [(name, name) for name in sorted(accepted)]:
        if name in accepted:
            kinds = accepted[name]
            shares = (sum(kind) / len(kind) if kind else None for kind in kinds)
            rows.append((title, *shares, sum(map(len, kinds))))
    return Sheet("accepted", ("accepted %", *COLUMNS, "turns"), rows, formats=dict.fromkeys(COLUMNS, show_percent))


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
