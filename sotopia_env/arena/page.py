"""A card as a report, also as one HTML file: ratings with groups, matrix, process, failures, cost and hashes."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.arena.card import CARD_FILE, Card, label_of
from sotopia_env.arena.process import PROCESS
from sotopia_env.arena.rating import TASKS, Rating, bradley_terry, needs, rate, superiority
from sotopia_env.arena.rows import Row, policy_name
from sotopia_env.errors import InvalidValueError
from sotopia_env.files import write_text_atomically
from sotopia_env.quoting import disarm_line
from sotopia_env.reports import Estimate, Missing, Panel, Report, Sheet, Value, forest_chart
from sotopia_env.reports.charts import figure_bytes, heat_chart
from sotopia_env.reports.intervals import estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DILIGENCE = ("outcome_optimality", "due_diligence")
_MOST_PAIRS = 28  # eight policies


def card_report(card: Card, *, power: bool = False) -> Report:
    """Returns the report of a card.

    Args:
        card: the card.
        power: whether to add the number of tasks that differences need.

    Raises:
        InvalidValueError: nothing can be rated, or a policy has fewer than half of its episodes.
    """
    view = _View(card)
    sheets = [view.ratings(), view.beats(), view.matrix(), view.dimensions(), view.process(), view.exploited()]
    sheets += [view.failures(), *view.other_play(), *([view.power()] if power else [])]
    return Report(
        name="card",
        parts=[view.heading(), *sheets, view.provenance()],
        sheets=sheets,
        charts=view.charts,
        title=f"Arena {card.suite.name}, version {card.suite.version}",
    )


def write_card(card: Card, folder: Path, *, power: bool = False) -> list[Path]:
    """Writes the card as Markdown, JSON, one HTML file, CSV and SVG charts; returns the paths.

    Raises:
        InvalidValueError: nothing can be rated, or the folder cannot be written to.
    """
    report = card_report(card, power=power)
    paths = report.write(folder, ("svg",), markdown=True)
    page, data = folder / "card.html", folder / CARD_FILE
    write_text_atomically(page, html_page(report))
    write_text_atomically(data, card.model_dump_json() + "\n")
    return [*paths, page, data]


def html_page(report: Report) -> str:
    """Returns a report as one HTML file that needs no other."""
    charts = [figure_bytes(figure, "svg").decode() for figure in report.charts().values()]
    # Without the XML declaration and the document type, which are not allowed inside a page.
    drawings = [svg[svg.index("<svg") :] for svg in charts]
    first, *rest = [_html(part) for part in report.parts]
    body = "\n".join([f"<h1>{_escaped(report.title)}</h1>", first, *drawings, *rest])
    style = (
        "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}td,th{padding:.2rem .6rem;text-align:right;"
        "border-bottom:1px solid #ccc}td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
    )
    head = f'<meta charset="utf-8"><title>{_escaped(report.title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html(part: str | Sheet) -> str:
    if isinstance(part, str):
        return "".join(f"<p>{_escaped(line)}</p>" for line in part.splitlines() if line)
    header, lines, notes = part.visible()
    if not lines:
        return ""
    rows = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in line)}</tr>\n" for line in lines)
    names = "".join(f'<th scope="col">{_escaped(name)}</th>' for name in header)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>\n{rows}</tbody></table>"
    return f"<h2>{_escaped(part.title)}</h2>{table}" + "".join(f"<p>{_escaped(note)}</p>" for note in notes)


def _escaped(text: str) -> str:
    return html.escape(disarm_line(text))


class _View:
    """The sheets and charts of a card."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.rows = card.of_play("pool")
        if not self.rows:
            raise InvalidValueError(
                "no policy has met every opponent of the pool", field="policies", hint="`sotopia arena run` plays them"
            )
        self.rating: Rating = rate(self.rows)
        self.order = self.rating.policies
        self.label = label_of({*(row.policy for row in card.rows), *(row.opponent for row in card.rows)})
        self.pool = [identity for identity in card.suite.pool_identities if identity in self.label]

    def heading(self) -> str:
        suite, rating = self.card.suite, self.rating
        return (
            f"{suite.about}\n"
            f"Policies rated: {len(self.order)}; {len(self.pool)} reference opponents, {rating.tasks} tasks, "
            f"{len({row.key for row in self.rows})} episodes. Payoff: {suite.metric}, of the policy's own seat.\n"
            "Ratings estimate the mean payoff over this pool and these kinds of task, not over other opponents. "
            f"Intervals are 95 %, over tasks (sandwich, Student's t with {rating.tasks - 1} degrees of freedom). "
            "Policies in one group cannot be told apart from its first; read no order within a group."
        )

    def ratings(self) -> Sheet:
        """The strengths with groups, ranks and Elo points."""
        alone = Missing("one policy")
        elo = bradley_terry(self.rows, self.order) if len(self.order) > 1 else {}
        clean = self._clean_means()
        rows: list[tuple[Value, ...]] = []
        for policy in self.order:
            rank = self.rating.ranks[policy]
            strength = self.rating.strengths[policy] if elo else alone
            values = (self.rating.groups[policy], rank.places, self.rating.means[policy], strength)
            rows.append((self.label[policy], *values, clean.get(policy), _elo(elo[policy]) if elo else alone))
        return Sheet(
            "ratings",
            ("policy", "group", "rank", "mean", "strength", "clean_mean", "elo"),
            rows,
            title="Ratings",
            labels={
                "strength": "strength [95 %] n",
                "mean": "mean payoff [95 %] n",
                "clean_mean": "without opponents' failures",
            },
            notes=(
                "strength: mean payoff minus that of all rated policies. rank: what the differences leave open, all of "
                "them together at 95 %. elo: Bradley-Terry from wins beside the same opponent, task and seat.",
            ),
        )

    def _clean_means(self) -> Mapping[str, float]:
        rows = self.card.of_play("pool", clean=True)
        if len({row.task for row in rows}) < 2:
            return {}
        try:
            rating = rate(rows)
        except InvalidValueError:  # what is left does not connect the policies
            return {}
        return {policy: item.mean for policy, item in rating.means.items()}

    def beats(self) -> Sheet:
        """How often each policy gets more than each other."""
        rows = [
            (self.label[a], self.label[b], superiority(self.rows, a, b) or Missing("no matched seats"), gap, gap.p)
            for (a, b), gap in list(self.rating.gaps.items())[:_MOST_PAIRS]
        ]
        return Sheet(
            "pairs",
            ("policy", "other", "beats", "difference", "p"),
            rows,
            title="Pairs",
            labels={"beats": "P(gets more) [95 %] n", "difference": "difference [95 %] n"},
            notes=("P(gets more): beside the same opponent, task, seat, order and seed; ties count half.",),
        )

    def matrix(self) -> Sheet:
        """The mean payoff beside each opponent of the pool."""
        rows = [
            (self.label[policy], *(self._mean([r for r in self.rows if (r.policy, r.opponent) == (policy, opponent)])
                                   for opponent in self.pool))
            for policy in self.order
        ]  # fmt: skip
        columns = ("policy", *(self.label[opponent] for opponent in self.pool))
        return Sheet("matrix", columns, rows, title="Mean payoff by opponent")

    @staticmethod
    def _mean(rows: Sequence[Row], name: str = "") -> float | None:
        values = [row.values.get(name) if name else row.payoff for row in rows]
        numbers = [value for value in values if value is not None]
        return sum(numbers) / len(numbers) if numbers else None

    def _means(self, name: str, title: str, names: Sequence[str], notes: tuple[str, ...] = ()) -> Sheet:
        used = [item for item in names if any(item in row.values for row in self.rows)]
        rows = [(self.label[p], *(self._mean(self._own(p), item) for item in used)) for p in self.order]
        labels = {item: item.replace("_", " ") for item in used}
        return Sheet(name, ("policy", *used), rows if used else [], title=title, labels=labels, notes=notes)

    def _own(self, policy: str) -> list[Row]:
        return [row for row in self.rows if row.policy == policy]

    def dimensions(self) -> Sheet:
        """The mean scores and outcomes."""
        hidden = {*PROCESS, *_DILIGENCE, "robust", "lucky", "ineffective", "negligent"}
        names = list(dict.fromkeys(name for row in self.rows for name in row.values if name not in hidden))
        return self._means("dimensions", "Dimensions and outcomes", names)

    def process(self) -> Sheet:
        """The means of measures of how the policies played."""
        return self._means(
            "process",
            "Process",
            [*_DILIGENCE, *PROCESS],
            (
                "opening: share of the own best outcome in the first offer. reservation shown: 1 if the own offers "
                "went down to the reservation value. interests shown: correlation of the own worths with those that a "
                "frequency model estimates from the own offers. Optimality and diligence: tasks with one issue.",
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
            labels={"exploiter": "best opponent of the pool", "takes": "it gets", "leaves": "the policy gets"},
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
            failed = sum(self.card.failures_of(policy_name(policy)).values())
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

    def other_play(self) -> list[Sheet]:
        """Mirror, cross and human play, each apart."""
        sheets = []
        for play, title in (("mirror", "Mirror play (against itself)"), ("cross", "Cross play (rated policies)"),
                            ("human", "Play with people")):  # fmt: skip
            rows = [row for row in self.card.of_play(play) if row.payoff is not None]
            clean = [row for row in rows if not row.opponent_failed]
            lines: list[tuple[Value, ...]] = [
                (self.label[policy], _clustered([r for r in rows if r.policy == policy]),
                 _clustered([r for r in clean if r.policy == policy]),
                 self._mean([r for r in rows if r.policy == policy], "success"))
                for policy in self.order
                if any(r.policy == policy for r in rows)
            ]  # fmt: skip
            labels = {"payoff": "payoff [95 %] n", "clean": "without opponents' failures", "agreed": "agreement rate"}
            sheets.append(Sheet(play, ("policy", "payoff", "clean", "agreed"), lines, title=title, labels=labels))
        return sheets

    def power(self) -> Sheet:
        """The numbers of tasks and episodes that differences need."""
        own = self._own(self.order[0])
        per_task = len({row.key for row in own}) / self.rating.tasks
        rows = [(need.difference, need.tasks, need.episodes) for need in needs(self.rating, per_task)]
        return Sheet(
            "power",
            ("difference", "tasks", "episodes"),
            rows,
            title="Power",
            labels={"episodes": "episodes per policy"},
            notes=("For a power of 80 % at 5 %, from the median standard error of the differences here.",),
        )

    def provenance(self) -> str:
        suite = self.card.suite
        return (
            f"Suite {suite.name} version {suite.version}, hash {suite.content_hash}, seed {suite.seed}, "
            f"{len(suite.hashes)} tasks of {suite.tasks!r} ({suite.level}), orders {suite.orders}, "
            f"evaluator {suite.evaluator}, behaviour of the pool {suite.behaviour}. "
            f"Played by sotopia-env {', '.join(self.card.code)}."
        )

    def charts(self) -> dict[str, Figure]:
        """The strengths, and the matrix."""
        alone = len(self.order) == 1
        values = self.rating.means if alone else self.rating.strengths
        lines = [(f"{self.rating.groups[p]}: {self.label[p]}", values[p]) for p in self.order]
        suite = self.card.suite
        heading = f"Arena {suite.name} {suite.version}: against the pool (group: policy)"
        unit = suite.metric if alone else f"{suite.metric} minus the mean of the rated policies"
        panel = Panel(unit, lines, reference=None if alone else 0.0)
        cells = {
            (self.label[p], self.label[o]): _clustered(own)
            for p in self.order
            for o in self.pool
            if (own := [r for r in self.rows if (r.policy, r.opponent) == (p, o) and r.payoff is not None])
        }
        names = [self.label[p] for p in self.order], [self.label[o] for o in self.pool]
        heat = heat_chart({"": cells}, *names, axes_labels=("policy", "opponent"), unit=f"mean {suite.metric}")
        return {"ratings": forest_chart([panel], heading), "matrix": heat}


def _clustered(rows: Sequence[Row]) -> Any:
    if not rows:
        return None
    return estimate([row.payoff or 0.0 for row in rows], [row.task for row in rows], over=TASKS)


def _elo(points: Estimate) -> str:
    if points.low is None or points.high is None:
        return f"{points.mean:.0f}"
    return f"{points.mean:.0f} [{points.low:.0f}, {points.high:.0f}]"


def _total(values: Sequence[Any]) -> Any:
    return None if not values or None in values else sum(values)


def _best_response(rows: Sequence[Row]) -> tuple[str, float | None, float | None]:
    """The opponent that gets most, its payoff and the policy's own, by cross-validation over halves of the tasks."""
    tasks = sorted({row.task for row in rows})
    halves = [set(tasks[::2]), set(tasks[1::2])]
    takes, leaves = [], []
    for chosen_on, measured_on in (halves, halves[::-1]):
        best = _greatest([row for row in rows if row.task in chosen_on])
        held_out = [row for row in rows if row.task in measured_on and row.opponent == best]
        takes += [row.opponent_payoff for row in held_out if row.opponent_payoff is not None]
        leaves += [row.payoff for row in held_out if row.payoff is not None]
    means = [sum(values) / len(values) if values else None for values in (takes, leaves)]
    return _greatest(rows), means[0], means[1]


def _greatest(rows: Sequence[Row]) -> str:
    by_opponent: dict[str, list[float]] = {}
    for row in rows:
        if row.opponent_payoff is not None:
            by_opponent.setdefault(row.opponent, []).append(row.opponent_payoff)
    return max(by_opponent, key=lambda name: sum(by_opponent[name]) / len(by_opponent[name]), default="")
