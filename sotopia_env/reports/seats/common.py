"""The seats over which policies are compared in a metric: who is ranked, and the seats that all of them have.

A group begins with two policies. Its seats (task, rules, seat and partner) are those in which at least two of its
members were scored, and every member must have a score in at least 95 % of them; a seat of which one repeat of four has
a score counts as a quarter. The *means* of the group are over the seats that all members have; a policy with fewer
would change them too much, so it is not in the group and has no rank. Of all pairs to begin with, the one that leads to
most results is taken.

The *difference* of two policies, and thus their order, is over the seats that these two share, whoever else was
compared: a policy that is added or that fails changes neither. Where its partners are not those of the others, it may
begin a larger group, outside of which others have no rank.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from sotopia_env.foundation.json_text import canonical_json, decode_json
from sotopia_env.reports.seat_results import SeatResult, lacks, shared_seat

Key = tuple[object, ...]
LEAST_SHARE = 0.95
"""The least share of the common seats in which a policy must be scored to be ranked."""


@dataclass(frozen=True, slots=True)
class CommonSeats:
    """The policies that are ranked by a metric, and the seats over which their means are.

    Attributes:
        policies: the policies that are ranked; empty if no two share a seat.
        partners: the partners in the common seats.
        matched: the number of results of these policies in common seats, without repeats.
        seats: the number of all their results, without repeats.
        others: the other policies with their partners; the mean of each is over all its own seats.
        left_out: what is not compared: a policy, the reason, the number of its seats.
    """

    policies: tuple[str, ...]
    partners: tuple[str, ...]
    matched: int
    seats: int
    others: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, str, int], ...] = ()


def common_seats(
    rows: Sequence[SeatResult], policies: Sequence[str], metric: str
) -> tuple[CommonSeats, frozenset[Key]]:
    """Returns the description of the common seats, and their keys (:func:`shared_seat`)."""
    played: dict[str, Counter[Key]] = defaultdict(Counter)
    scores: dict[str, Counter[Key]] = defaultdict(Counter)
    for row in rows:
        # A metric that does not apply to a result is neither a score nor missing.
        played[row.policy][shared_seat(row)] += lacks(row, metric) or metric in row.values
        if metric in row.values:
            scores[row.policy][shared_seat(row)] += 1
    # The share of a seat's repeats that have a score.
    scored = {policy: {key: n / played[policy][key] for key, n in own.items()} for policy, own in scores.items()}
    widest, group = _group(scored, policies)
    common = frozenset(set.intersection(*(set(scored[policy]) for policy in group))) if group else frozenset()
    own = [row for row in rows if row.policy in group and shared_seat(row) in common]
    others = [(p, tuple(sorted({row.partner for row in rows if row.policy == p}))) for p in policies if p not in group]
    description = CommonSeats(
        policies=group,
        partners=tuple(sorted({row.partner for row in own})),
        matched=len(common) * len(group),
        seats=sum(len(scored[policy]) for policy in group),
        others=tuple(others),
        left_out=tuple(_left_out(policies, group, widest, common, played, scored)),
    )
    return description, common


def _group(scored: Mapping[str, Mapping[Key, float]], policies: Sequence[str]) -> tuple[Set[Key], tuple[str, ...]]:
    """The seats that at least two policies of a group share, and the group: the one with most results."""
    valued = [policy for policy in policies if policy in scored]
    shared = {pair: scored[pair[0]].keys() & scored[pair[1]].keys() for pair in itertools.combinations(valued, 2)}
    groups = [_joined(pair, scored, valued) for pair, common in shared.items() if common]
    # Of groups with as many results, the one with more policies: policies are mostly compared beside fewer partners.
    _, group, widest = max(groups, key=lambda item: (item[0], len(item[1])), default=(0.0, (), frozenset[Key]()))
    return widest, group


def _joined(
    pair: Sequence[str], scored: Mapping[str, Mapping[Key, float]], policies: Sequence[str]
) -> tuple[float, tuple[str, ...], Set[Key]]:
    """The number of results, the policies and the seats of the group that begins with a pair."""
    group, every = list(pair), scored[pair[0]].keys() | scored[pair[1]].keys()
    seats = scored[pair[0]].keys() & scored[pair[1]].keys()

    def results(policy: str, seats: Set[Key]) -> float:
        return math.fsum(scored[policy].get(key, 0.0) for key in seats)

    for policy in sorted(set(policies) - set(pair), key=lambda p: (-results(p, seats), p)):
        wider = seats | (every & scored[policy].keys())
        if all(results(member, wider) >= LEAST_SHARE * len(wider) for member in (*group, policy)):
            group.append(policy)
            seats, every = wider, every | scored[policy].keys()
    total = math.fsum(results(member, seats) for member in group)
    return total, tuple(policy for policy in policies if policy in group), seats


def _left_out(
    policies: Iterable[str],
    group: Sequence[str],
    widest: Set[Key],
    common: Set[Key],
    played: Mapping[str, Collection[Key]],
    scored: Mapping[str, Collection[Key]],
) -> Iterable[tuple[str, str, int]]:
    for policy in policies:
        has, values = set(played.get(policy, ())), set(scored.get(policy, ()))
        if policy in group:
            counts = {"unscored": len(has - values), "without a score of all others": len(values - common)}
        else:
            missing = widest - values
            counts = {"unscored": len(missing & has), f"of {len(widest)} not played": len(missing - has)}
        yield from ((policy, reason, count) for reason, count in counts.items() if count)


def unlike_seats(rows: Iterable[SeatResult]) -> tuple[str, ...]:
    """Returns a sentence for tasks of one id that differ in content or were played under other rules."""
    contents: dict[str, set[str]] = defaultdict(set)
    rules: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        contents[row.task].add(row.content)
        rules[row.task].add(row.rules)
    several = [task for task, own in contents.items() if len(own) > 1]
    ruled = set().union(*(own for own in rules.values() if len(own) > 1))
    sentences = [
        f"{len(several)} tasks have the id of a task with other content, such as {task!r}" for task in several[:1]
    ]
    if ruled:
        settings = [decode_json(text) for text in sorted(ruled)]
        names = [name for name in settings[0] if any(item.get(name) != settings[0][name] for item in settings)]
        values = "; ".join(f"{name} {_either([item.get(name) for item in settings])}" for name in names)
        sentences.append(f"tasks were played under several rules ({values})")
    return tuple(f"{sentence}: such seats are not the same and are never compared" for sentence in sentences)


def _either(values: Sequence[object]) -> str:
    return " or ".join(dict.fromkeys(canonical_json(value) for value in values))
