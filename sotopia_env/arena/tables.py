"""The tables of a card: ratings, pairs, matrix, process, exploitability, failures; and mirror, cross and human play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.arena.card import Card, label_of
from sotopia_env.arena.missing import RatedPlay, rated_play
from sotopia_env.arena.opponents import alike
from sotopia_env.arena.process import PROCESS
from sotopia_env.arena.rating import LEAST_SCORED, TASKS, bradley_terry, needs, rate, superiority
from sotopia_env.arena.rows import HUMAN, CardRow, policy_name
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.intervals import UNBOUNDED, Estimate, estimate
from sotopia_env.reports.seat_results import metric_bounds
from sotopia_env.reports.sheet import Missing, Sheet, Value

_DILIGENCE = ("outcome_optimality", "due_diligence")
_MOST_PAIRS = 28  # eight policies
_AGREED = "agreement rate [95 %] n"
_BY_TASK = "Each task counts once, whatever the number of its seats; the CSV has 95 % intervals over tasks."


class PoolTables:
    """The tables of the rated policies against the pool.

    Attributes:
        card: the card.
        rows: the rows of the rated policies against the pool.
        play: their rating, also with their failures as the worst payoff.
        rating: that of the seats with a payoff.
        order: the rated policies, the strongest first.
        label: the label of every policy.
        pool: the members of the pool that were met.
    """

    def __init__(self, card: Card) -> None:
        self.card, self.label = card, labels(card)
        self.rows = card.of_play("pool")
        self.play = rated_play(card, "pool")
        self.rating = self.play.rating
        self.order = self.rating.policies
        self.pool = [identity for identity in card.suite.pool_identities if identity in self.label]

    def sheets(self, power: bool) -> list[Sheet]:
        """Returns the tables, with that of :func:`~sotopia_env.arena.rating.needs` if ``power``."""
        sheets = [self.ratings(), self.beats(), self.matrix(), self.dimensions(), self.process(), self.exploited()]
        sheets += [self.roles()] if any(row.role for row in self.rows) else []
        return [*sheets, self.failures(), *([self.power()] if power else [])]

    def ratings(self) -> Sheet:
        """The strengths with groups, ranks and Elo points."""
        clean = self.card.of_play("pool", clean=True)
        return _ratings(
            "ratings",
            "Ratings",
            self.play,
            self.rows,
            clean,
            self.label,
            "n: seats. strength: mean payoff minus that of all rated policies. rank: what the differences leave open, "
            "all of them together at 95 %. elo: Bradley-Terry from wins beside the same opponent, task and seat.",
            *_alike_notes(self.rows, self.label),
        )

    def beats(self) -> Sheet:
        """How often each policy gets more than each other."""
        rows: list[tuple[Value, ...]] = []
        for (a, b), gap in list(self.rating.gaps.items())[:_MOST_PAIRS]:
            # Without the seats that failed, a difference can have the wrong sign.
            ranked = {a, b} <= {*self.rating.ranks}
            difference = (gap, gap.p) if ranked else (_unranked(self.play, a, b), None)
            wins = superiority(self.rows, a, b) or Missing("no matched seats")
            rows.append((self.label[a], self.label[b], wins, *difference))
        return Sheet(
            "pairs",
            ("policy", "other", "beats", "difference", "p"),
            rows,
            title="Pairs",
            labels={"beats": "P(gets more) [95 %] n", "difference": "difference [95 %] n"},
            notes=(
                "P(gets more): beside the same opponent, task, seat, order and seed; ties count half. Intervals and p "
                "are of each pair alone; the ranks allow for the number of pairs.",
                *(
                    [f"The first {_MOST_PAIRS} of {len(self.rating.gaps)} pairs."]
                    * (len(self.rating.gaps) > _MOST_PAIRS)
                ),
            ),
        )

    def matrix(self) -> Sheet:
        """The mean payoff beside each opponent of the pool."""
        lines = {
            self.label[policy]: [
                clustered([row for row in self._own(policy) if row.opponent == opponent]) for opponent in self.pool
            ]
            for policy in self.order
        }
        return _task_means("matrix", "Mean payoff by opponent", [self.label[o] for o in self.pool], lines)

    def _means(self, name: str, title: str, names: Sequence[str], notes: tuple[str, ...] = ()) -> Sheet:
        used = [item for item in names if any(item in row.values for row in self.rows)]
        lines = {self.label[p]: [clustered(self._own(p), item) for item in used] for p in self.order if used}
        return _task_means(name, title, used, lines, *notes)

    def _own(self, policy: str) -> list[CardRow]:
        return [row for row in self.rows if row.policy == policy]

    def dimensions(self) -> Sheet:
        """The mean scores and outcomes."""
        hidden = {*PROCESS, *_DILIGENCE, "robust", "lucky", "ineffective", "negligent"}
        names = list(dict.fromkeys(name for row in self.rows for name in row.values if name not in hidden))
        return self._means("dimensions", "Dimensions and outcomes", names)

    def roles(self) -> Sheet:
        """The mean payoff of each policy in each role, as the only one of its kind among the opponents."""
        names = sorted({row.role for row in self.rows})
        lines: list[tuple[Value, ...]] = [
            (self.label[policy], *[clustered([row for row in self._own(policy) if row.role == role]) for role in names])
            for policy in self.order
        ]
        note = "All seats of a game have one outcome, so the unit is the task, whatever the number of its seats."
        return Sheet("roles", ("policy", *names), lines, title="Payoff by role", notes=(note,))

    def process(self) -> Sheet:
        """The means of measures of how the policies played."""
        return self._means(
            "process",
            "Process",
            [*_DILIGENCE, *PROCESS],
            (
                "opening: share of the own best outcome in the first offer. reservation shown: 1 if the own offers "
                "went down to the reservation value. reservation error: distance between it and what an observer "
                "estimates from the own offers, small if it leaked. interests shown: correlation of the own worths "
                "with those that a frequency model estimates from the own offers. said otherwise: agreements in words "
                "that the next move was not for. disclosure: questions on the own secrets that the others answered "
                "right. Optimality and diligence: tasks with one issue.",
            ),
        )

    def exploited(self) -> Sheet:
        """The opponents that get most from each policy, and those that leave it least."""
        rows: list[tuple[Value, ...]] = []
        for policy in self.order:
            own = self._own(policy)
            best, gain, least = _best_response(own)
            rows.append((self.label[policy], self.label.get(best, "n/a"), gain, least))
        return Sheet(
            "exploitability",
            ("policy", "exploiter", "takes", "leaves"),
            rows,
            title="Exploitability",
            labels={
                "exploiter": "best opponent of the pool",
                "takes": "it gets [95 %] n",
                "leaves": "the policy gets [95 %] n",
            },
            notes=(
                "The opponent that gets most is chosen on one half of the tasks and measured on the other, both ways: "
                "the greatest of several means would be too great.",
            ),
        )

    def failures(self) -> Sheet:
        """Failed turns, tokens, cost and latency."""
        rows: list[tuple[Value, ...]] = []
        for policy in self.order:
            own = [row for row in self.card.rows if row.policy == policy]
            turns, texts = sum(row.turns for row in own), sum(row.texts for row in own)
            expected = self.card.suite.expected(policy)
            failed = sum(self.card.failures_of(policy).values())
            seconds = _total([row.seconds for row in own if row.texts])
            rows.append(
                (
                    self.label[policy],
                    f"{sum(row.payoff is not None for row in self._own(policy))} of {expected}",
                    failed,
                    turns,
                    sum(row.illegal for row in own),
                    sum(row.invalid for row in own),
                    _total([row.tokens for row in own if row.texts]),
                    _total([row.cost for row in own if row.texts]),
                    seconds / texts if seconds is not None and texts else None,
                )
            )
        columns = ("policy", "scored", "failed", "turns", "illegal", "invalid", "tokens", "cost", "latency")
        return Sheet("failures", columns, rows, title="Failures and cost", folding=columns[2:],
                     labels={"latency": "seconds per answer", "scored": "scored seats", "invalid": "unreadable",
                             "failed": "failed episodes"})  # fmt: skip

    def power(self) -> Sheet:
        """The numbers of tasks and episodes that differences need."""
        own = self._own(self.order[0])
        per_task = len({row.key for row in own}) / self.rating.tasks
        rows: list[tuple[Value, ...]] = [
            (need.difference, need.tasks, need.episodes) for need in needs(self.rating, per_task)
        ]
        if not rows:
            reason = "needs two rated policies whose difference varies between tasks: play another, or more tasks"
            rows = [(Missing(reason), None, None)]
        return Sheet(
            "power",
            ("difference", "tasks", "episodes"),
            rows,
            title="Power",
            labels={"episodes": "episodes per policy"},
            notes=(
                "For a power of at least 80 % of the test that decides ranks, at 5 % for all pairs together; from the "
                "median standard error of the differences here.",
            ),
        )


def labels(card: Card) -> dict[str, str]:
    """Returns the label of every policy of a card."""
    return label_of({*(row.policy for row in card.rows), *(row.opponent for row in card.rows)})


def _alike_notes(rows: Sequence[CardRow], label: Mapping[str, str]) -> list[str]:
    """That the mean counts opponents that moved alike several times, for the policies of which this is so."""
    notes = []
    for opponents, policies in alike(rows).items():
        names, who = (", ".join(sorted(label[item] for item in items)) for items in (opponents, policies))
        times = f"count one opponent {len(opponents)} times"
        notes.append(f"Same results beside {names} in every seat: the means {times} for {who}.")
    return notes


def _unranked(play: RatedPlay, *policies: str) -> Missing:
    """The reason why a policy has no rank, or a pair no difference."""
    share = min(play.shares.get(policy, 1.0) for policy in policies)
    if share >= LEAST_SCORED:
        return Missing("the others have too few seats scored")
    return Missing(f"{100 * share:.0f} % of its seats scored, needs {100 * LEAST_SCORED:.0f} %")


def _ratings(
    name: str,
    title: str,
    play: RatedPlay,
    rows: Sequence[CardRow],
    clean: Sequence[CardRow],
    label: Mapping[str, str],
    *notes: str,
) -> Sheet:
    """The strengths in one kind of play; ``clean`` are the rows without those whose opponent failed."""
    rating, alone = play.rating, Missing("one policy")
    order = rating.policies
    elo = bradley_terry(rows, order) if len(order) > 1 else {}
    clean_means = _clean_means(rows, clean)
    lines: list[tuple[Value, ...]] = []
    for policy in order:
        rank = rating.ranks.get(policy)
        standing = (_unranked(play, policy),) * 2 if rank is None else (rating.groups[policy], rank.places)
        strengths = [item.strengths[policy] if elo else alone for item in (rating, play.at_worst)]
        points = _elo(elo[policy]) if elo else alone
        means = (rating.means[policy], strengths[0], play.at_worst.means[policy].mean, strengths[1])
        lines.append((label[policy], *standing, *means, clean_means.get(policy), points))
    return Sheet(
        name,
        ("policy", "group", "rank", "mean", "strength", "worst_mean", "worst_strength", "clean_mean", "elo"),
        lines,
        title=title,
        labels={
            "strength": "strength [95 %] n",
            "mean": "mean payoff [95 %] n",
            "worst_mean": "mean with failures",
            "worst_strength": "strength with failures [95 %] n",
            "clean_mean": "without opponents' failures",
        },
        notes=(*notes, *_failure_notes(play, label)),
        hidden=() if play.failures else ("worst_mean", "worst_strength"),
    )


def _failure_notes(play: RatedPlay, label: Mapping[str, str]) -> list[str]:
    if not play.failures:
        return []
    counts = ", ".join(f"{label[policy]} {n}" for policy, n in sorted(play.failures.items()))
    return [
        f"Own failures ({counts}) are left out of mean, strength and elo, and have the worst payoff in the two columns "
        "with failures. Ranks and groups separate only policies that both ratings separate."
    ]


def _clean_means(rows: Sequence[CardRow], clean: Sequence[CardRow]) -> Mapping[str, float]:
    """The means of :func:`rate`; empty if the clean rows do not connect the policies, or lack an opponent or a task."""
    opponents, tasks = ([{getattr(r, name) for r in side if r.payoff is not None} for side in (rows, clean)]
                        for name in ("opponent", "task"))  # fmt: skip
    if opponents[0] != opponents[1] or tasks[0] != tasks[1]:
        return {}  # easier opponents would pass for what the policy owes to no failures
    try:
        rating = rate(clean)
    except InvalidValueError:
        return {}
    return {policy: item.mean for policy, item in rating.means.items()}


def play_tables(card: Card) -> list[Sheet]:
    """Returns the tables of mirror play, of cross play between rated policies, and of play with people."""
    label = labels(card)
    return [_mirror(card, label), _cross(card, label), _people(card, label)]


def _mirror(card: Card, label: Mapping[str, str]) -> Sheet:
    return _plain("mirror", "Mirror play (against itself)", card.of_play("mirror"), label)


def _cross(card: Card, label: Mapping[str, str]) -> Sheet:
    """Cross play, rated where the policies have met enough others to tell apart a policy from its opponent."""
    name, title, rows = "cross", "Cross play (rated policies against each other)", card.of_play("cross")
    try:
        play = rated_play(card, "cross")
    except InvalidValueError:
        note = "Not rated: strengths in cross play need two tasks, and three policies that have met each other."
        return _plain(name, title, rows, label, note)
    return _ratings(
        name,
        title,
        play,
        rows,
        card.of_play("cross", clean=True),
        label,
        "Means are over the rated policies as opponents, and not over the pool: they change when a policy is added.",
    )


def _plain(name: str, title: str, rows: Sequence[CardRow], label: Mapping[str, str], *notes: str) -> Sheet:
    """Plain means by policy."""
    lines: list[tuple[Value, ...]] = []
    for policy in sorted({row.policy for row in rows}, key=label.__getitem__):
        own = [row for row in rows if row.policy == policy]
        clean = [row for row in own if not row.opponent_failed]
        lines.append((label[policy], clustered(own), clustered(clean), clustered(own, "success")))
    headings = {"payoff": "payoff [95 %] n", "clean": "without opponents' failures", "agreed": _AGREED}
    return Sheet(name, ("policy", "payoff", "clean", "agreed"), lines, title=title, labels=headings, notes=notes)


def _people(card: Card, label: Mapping[str, str]) -> Sheet:
    """What people get beside each policy, rated or not, and what the policy gets."""
    rows = card.of_play("human")
    lines: list[tuple[Value, ...]] = []
    for other in sorted({_other(row) for row in rows}, key=label.__getitem__):
        people = [row for row in rows if policy_name(row.policy) == HUMAN and row.opponent == other]
        policy = [row for row in rows if row.policy == other and policy_name(row.opponent) == HUMAN]
        lines.append((label[other], clustered(people), clustered(policy), clustered(people or policy, "success")))
    return Sheet(
        "human",
        ("partner", "people", "payoff", "agreed"),
        lines,
        title="Play with people",
        labels={"people": "people get [95 %] n", "payoff": "the partner gets [95 %] n", "agreed": _AGREED},
        notes=(
            "All people count as one policy. Their partners need not be rated. Intervals are over tasks: they hold for "
            "these people, and not for other people.",
        ),
    )


def _other(row: CardRow) -> str:
    """The policy beside a person, which may be a person."""
    return row.opponent if policy_name(row.policy) == HUMAN else row.policy


def clustered(rows: Sequence[CardRow], name: str = "") -> Estimate | None:
    """Returns the mean over tasks of the payoff, or of a measure, with its interval; ``None`` without values."""
    values = [(row.values.get(name) if name else row.payoff, row.task) for row in rows]
    return _over_tasks([(value, task) for value, task in values if value is not None], name)


def _over_tasks(values: Sequence[tuple[float, str]], name: str = "") -> Estimate | None:
    # Payoffs have no bounds here, because their metric may be an open one.
    bounds = metric_bounds(()).get(name, UNBOUNDED)
    return estimate([value for value, _ in values], [task for _, task in values], bounds, TASKS) if values else None


def _task_means(
    name: str, title: str, columns: Sequence[str], lines: Mapping[str, Sequence[Estimate | None]], *notes: str
) -> Sheet:
    """Means in the text; the CSV also has the ends of their intervals."""
    ends = tuple(f"{column}_{end}" for column in columns for end in ("low", "high"))
    rows: list[tuple[Value, ...]] = [
        (
            policy,
            *(None if item is None else item.mean for item in items),
            *(end for item in items for end in ((None, None) if item is None else (item.low, item.high))),
        )
        for policy, items in lines.items()
    ]
    labels = {column: column.replace("_", " ") for column in columns} if name != "matrix" else {}
    return Sheet(
        name,
        ("policy", *columns, *ends),
        rows,
        title=title,
        labels=labels,
        notes=(*notes, _BY_TASK),
        hidden=ends,
    )


def _elo(points: Estimate) -> str:
    if points.low is None or points.high is None:
        return f"{points.mean:.0f} [n/a: {'one task' if points.clusters < 2 else 'the same in every task'}]"
    return f"{points.mean:.0f} [{points.low:.0f}, {points.high:.0f}]"


def _total(values: Sequence[Any]) -> Any:
    return None if not values or None in values else sum(values)


def _best_response(rows: Sequence[CardRow]) -> tuple[str, Estimate | None, Estimate | None]:
    """The opponent that gets most, its payoff and the policy's own, by cross-validation over halves of the tasks."""
    tasks = sorted({row.task for row in rows})
    halves = [set(tasks[::2]), set(tasks[1::2])]
    held_out: list[CardRow] = []
    for chosen_on, measured_on in (halves, halves[::-1]):
        best = _greatest([row for row in rows if row.task in chosen_on])
        held_out += [row for row in rows if row.task in measured_on and row.opponent == best]
    takes = [(row.opponent_payoff, row.task) for row in held_out if row.opponent_payoff is not None]
    return _greatest(rows), _over_tasks(takes), clustered(held_out)


def _greatest(rows: Sequence[CardRow]) -> str:
    by_opponent: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        if row.opponent_payoff is not None:
            by_opponent.setdefault(row.opponent, []).append((row.opponent_payoff, row.task))
    means = {name: _over_tasks(values) for name, values in sorted(by_opponent.items())}
    # Policies of the pool that move alike are equal but for rounding: the first name is shown.
    rounded = {name: round(item.mean, 9) for name, item in means.items() if item is not None}
    return max(rounded, key=rounded.__getitem__, default="")
