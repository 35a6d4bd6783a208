"""Opponents of the pool that are one opponent for some policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sotopia_env.arena.rows import CardRow

_DIGITS = 9
_Results = dict[tuple[object, ...], tuple[float, ...]]


def alike(rows: Sequence[CardRow]) -> dict[tuple[str, ...], list[str]]:
    """Returns the groups of opponents that move alike for some policies, with these policies.

    Opponents move alike for a policy if, in every task, seat, order and seed that it played beside both, both sides got
    the same: so do ``linear`` and ``liar`` beside a policy that reads no words.
    """
    by_policy: defaultdict[str, defaultdict[str, _Results]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.payoff is not None and row.opponent_payoff is not None:
            sides = (round(row.payoff, _DIGITS), round(row.opponent_payoff, _DIGITS), float(row.turns))
            by_policy[row.policy][row.opponent][row.task, row.seat, row.first, row.seed] = sides
    groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for policy in sorted(by_policy):
        for group in _groups(by_policy[policy]):
            groups[group].append(policy)
    return dict(groups)


def _groups(by_opponent: Mapping[str, _Results]) -> list[tuple[str, ...]]:
    """The groups of two or more opponents whose results are equal where both have one."""
    groups: list[list[str]] = []
    for opponent in sorted(by_opponent):
        like = next((g for g in groups if _same(by_opponent[g[0]], by_opponent[opponent])), None)
        if like is None:
            groups.append([opponent])
        else:
            like.append(opponent)
    return [tuple(group) for group in groups if len(group) > 1]


def _same(first: _Results, second: _Results) -> bool:
    common = first.keys() & second.keys()
    return bool(common) and all(first[key] == second[key] for key in common)
