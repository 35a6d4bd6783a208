"""Tabulates the play of recorded runs by policy and partner: scores, losing deals and turns that do not count.

python -m studies.play_figures runs/a runs/b --policy cloned --seat 0

GOAL pays a deal that is worse than none like no deal, so FIN and the share of losing deals are shown beside it. Means
weigh every task equally, with 95 % intervals over tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from sotopia_env.foundation.errors import SotopiaError, UnknownNameError
from sotopia_env.reports.intervals import estimate
from sotopia_env.reports.seat_results import SHARE, SUCCESS, SeatResult, metric_bounds, seat_results
from sotopia_env.reports.sheet import Sheet, Value, show_percent
from sotopia_env.storage import read_run

SCORES = ("goal", "financial_and_material_benefits", SHARE)
COLUMNS = ("policy", "partner", "episodes", "GOAL", "FIN", "share", "deals", "losing deals", "turns", "refused turns")


def figures(rows: Iterable[SeatResult], policies: Sequence[str] = (), seat: int | None = None) -> Sheet:
    """Returns a row for each policy and partner.

    Losing deals are those with a negative share of the possible gain, of all episodes. Refused turns are texts that are
    not an action and moves that are not allowed, of all own turns.

    Args:
        rows: the seats of episodes of a verified family.
        policies: the policies to show; all by default.
        seat: the position of the seat to show; all by default.

    Raises:
        UnknownNameError: no seat has such a policy; policies of one name with other parameters are told apart by them.
    """
    rows = list(rows)
    names = sorted({row.policy for row in rows})
    for name in policies:
        if name not in names:
            raise UnknownNameError(field="policy", got=name, valid=names)
    groups: dict[tuple[str, str], list[SeatResult]] = {}
    for row in rows:
        if (not policies or row.policy in policies) and seat in (None, row.seat):
            groups.setdefault((row.policy, row.partner), []).append(row)
    percent = dict.fromkeys(("deals", "losing deals", "refused turns"), show_percent)
    return Sheet("play", COLUMNS, [(*pair, *_values(own)) for pair, own in sorted(groups.items())], formats=percent)


def _values(rows: Sequence[SeatResult]) -> tuple[Value, ...]:
    tasks, bounds = [row.task for row in rows], metric_bounds(rows)
    scores = [estimate([row.values[name] for row in rows], tasks, bounds[name]) for name in SCORES]
    turns = sum(row.counts.turns for row in rows)
    refused = sum(row.counts.illegal + (row.counts.invalid or 0) for row in rows)
    deals = sum(row.values[SUCCESS] for row in rows) / len(rows)
    losing = sum(row.values[SHARE] < 0 for row in rows) / len(rows)
    return (len(rows), *scores, deals, losing, turns, refused / turns if turns else None)


def main() -> int:
    """Reads the command line, prints the table and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="directories of runs with one evaluator")
    parser.add_argument("--policy", action="append", default=[], help="a policy to show; all by default; repeatable")
    parser.add_argument("--seat", type=int, help="position of the seat to show, from 0; all by default")
    options = parser.parse_args()
    try:
        rows = seat_results(episode for run in options.runs for episode in read_run(run))
        sheet = figures(rows, options.policy, options.seat)
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {error}\n")
        return 2
    sys.stdout.write(sheet.markdown() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
