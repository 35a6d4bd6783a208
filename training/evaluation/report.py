"""What an evaluation says: policies by partners, policies by judges, paired differences to a baseline.

Only the seats in which the evaluated policy sat, with nobody but the partner in the others, count for it. A difference
is between episodes of the same task, seat, first speaker and seed, and every scenario weighs the same
(:func:`sotopia_env.reports.compare.estimate`); p-values are adjusted over all differences of the report
(Benjamini-Hochberg).
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.files import write_text_atomically
from sotopia_env.policies.policy import Policy
from sotopia_env.records import canonical_json
from sotopia_env.reports.charts import new_figure, save_png
from sotopia_env.reports.compare import Estimate, estimate
from sotopia_env.reports.seat_results import SeatResult, seat_results
from sotopia_env.reports.tables import show_estimate, show_number
from sotopia_env.storage.directory import read_failures, read_run
from sotopia_env.storage.manifest import RUN, read_manifest

_Key = tuple[str, int, bool, int]  # task, seat, whether it began, seed
_Rows = dict[_Key, list[SeatResult]]
_Seated = tuple[str, str]  # a policy's name and its parameters as JSON


@dataclass(frozen=True, slots=True)
class Pairing:
    """A policy with a partner, and where their episodes lie.

    Attributes:
        policy_spec: as the settings name the policy.
        partner_spec: likewise.
        policy: that is evaluated.
        partner: in the other seats.
        run: run directory.
    """

    policy_spec: str
    partner_spec: str
    policy: Policy
    partner: Policy
    run: Path


@dataclass(frozen=True, slots=True)
class Cell:
    """What a policy reaches with a partner, by a judge.

    Attributes:
        estimate: ``None`` where there is no value.
        missing: seats without a value: unscored, or of a kind that has none.
    """

    policy: str
    partner: str
    judge: str
    metric: str
    estimate: Estimate | None
    missing: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean of a policy minus the baseline with the same partner, by the same judge.

    Attributes:
        pairs: how many seats of the policy have a counterpart, of ``seats`` that have a value.
        q: p-value adjusted over all gains of the report.
    """

    policy: str
    partner: str
    judge: str
    metric: str
    estimate: Estimate
    pairs: int
    seats: int
    q: float | None = None


@dataclass(slots=True)
class Findings:
    """All that a report shows.

    Attributes:
        baseline: name of the baseline.
        cells: by policy, partner, judge and metric.
        gains: of every policy but the baseline.
        failed: episodes that could not be finished, by run directory.
    """

    baseline: str
    cells: list[Cell] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)


def _seated(policy: Policy) -> _Seated:
    return policy.name, canonical_json(dict(policy.parameters))


def _key(row: SeatResult) -> _Key:
    return row.task, row.seat, row.first, row.seed


def focal_rows(rows: Iterable[SeatResult], policy: _Seated | None, partner: _Seated) -> dict[_Seated, _Rows]:
    """Returns the rows of seats whose other seats all hold ``partner``, by the policy in the seat.

    Args:
        rows: of one judge.
        policy: only this one; ``None`` for all.
        partner: name and parameters.
    """
    found: dict[_Seated, _Rows] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        others = {seated for seat, seated in enumerate(row.seated) if seat != row.seat}
        if others == {partner} and policy in (None, row.seated[row.seat]):
            found[row.seated[row.seat]][_key(row)].append(row)
    return found


def findings(
    pairings: Sequence[Pairing], judges: Sequence[str], metrics: Sequence[str], baseline: str, baseline_name: str | None
) -> Findings:
    """Returns cells and gains.

    Args:
        pairings: whose runs hold evaluations by all judges.
        judges: names.
        metrics: names.
        baseline: a policy as the settings name it, a run directory, or a directory with several.
        baseline_name: which policy of these, as records call it; ``None`` where there is one.

    Raises:
        InvalidValueError: the baseline's runs hold nothing to compare with, or several policies.
    """
    own = {pairing.policy_spec: pairing.policy.name for pairing in pairings}
    found = Findings(own.get(baseline, ""))
    for judge in judges:
        rows = {(p.policy_spec, p.partner_spec): _rows_of(p, judge) for p in pairings}
        against: dict[str, _Rows] = {}
        for spec, pairing in {p.partner_spec: p for p in pairings}.items():
            if baseline in own:
                against[spec] = rows[baseline, spec]
            else:
                name, against[spec] = _foreign(Path(baseline), baseline_name, judge, pairing)
                found.baseline = f"{name} ({baseline})"
        for pairing in pairings:
            ours = rows[pairing.policy_spec, pairing.partner_spec]
            for metric in metrics:
                found.cells.append(_cell(pairing, judge, metric, ours))
                gain = _gain(pairing, judge, metric, ours, against[pairing.partner_spec])
                if gain is not None and pairing.policy_spec != baseline:
                    found.gains.append(gain)
    found.gains = _adjusted(found.gains)
    found.failed = {str(p.run): count for p in pairings if (count := _failed(p.run))}
    return found


def _rows_of(pairing: Pairing, judge: str) -> _Rows:
    policy, partner = _seated(pairing.policy), _seated(pairing.partner)
    return focal_rows(seat_results(read_run(pairing.run), judge), policy, partner)[policy]


def _failed(run: Path) -> int:
    done = {episode.key for episode in read_run(run)}
    return len({failure.key for failure in read_failures(run)} - done)


def _foreign(place: Path, wanted: str | None, judge: str, pairing: Pairing) -> tuple[str, _Rows]:
    """The one policy that met our partner in the runs below ``place``, and its rows."""
    partner = _seated(pairing.partner)
    met: dict[_Seated, _Rows] = {}
    runs = [place] if (place / RUN).is_file() else sorted(file.parent for file in place.glob(f"**/{RUN}"))
    for run in runs:
        try:
            rows = seat_results(read_run(run), judge)
        except UnknownNameError as error:
            raise InvalidValueError(f"baseline: {run} has no scores by this judge: {error}") from None
        for seated, own in focal_rows(rows, None, partner).items():
            if wanted in (None, seated[0]):
                _check_rules(run, pairing.run)
                met.setdefault(seated, {}).update(own)
    found = {seated: own for seated, own in met.items() if seated != partner} or met
    if len(found) != 1:
        names = ", ".join(sorted(name for name, _ in found)) or "none"
        raise InvalidValueError(
            f"baseline: expected one policy with partner {pairing.partner.name!r} in the runs of {place}, found "
            f"{names}; baseline_name says which"
        )
    ((seated, own),) = found.items()
    return seated[0], own


def _check_rules(theirs: Path, ours: Path) -> None:
    first, second = (
        {replace(rules, first_seat=0) for rules in read_manifest(run).config.rules} for run in (theirs, ours)
    )
    if first != second:
        raise InvalidValueError(
            f"baseline: {theirs} was played by other rules than {ours}; see config.rules in run.json"
        )


def _values(rows: _Rows, metric: str) -> dict[_Key, tuple[float, str, int]]:
    """Mean value, scenario and number of seats of each key."""
    found = {}
    for key, group in rows.items():
        values = [row.values[metric] for row in group if metric in row.values]
        if values:
            found[key] = (math.fsum(values) / len(values), group[0].scenario, len(values))
    return found


def _cell(pairing: Pairing, judge: str, metric: str, rows: _Rows) -> Cell:
    every = [row for group in rows.values() for row in group]
    having = [row for row in every if metric in row.values]
    found = estimate([row.values[metric] for row in having], [row.scenario for row in having]) if having else None
    return Cell(pairing.policy.name, pairing.partner.name, judge, metric, found, len(every) - len(having))


def _gain(pairing: Pairing, judge: str, metric: str, ours: _Rows, theirs: _Rows) -> Gain | None:
    first, second = _values(ours, metric), _values(theirs, metric)
    common = [key for key in first if key in second]
    if not common:
        if first and second:
            raise InvalidValueError(
                f"baseline: none of its episodes with partner {pairing.partner.name!r} is of the same task, seat, "
                "first speaker and seed as one of these; it was played with other settings"
            )
        return None
    found = estimate([first[key][0] - second[key][0] for key in common], [first[key][1] for key in common])
    pairs, seats = (sum(first[key][2] for key in keys) for keys in (common, first))
    return Gain(pairing.policy.name, pairing.partner.name, judge, metric, found, pairs, seats)


def _adjusted(gains: Sequence[Gain]) -> list[Gain]:
    from scipy import stats

    tested = [gain.estimate.p for gain in gains if gain.estimate.p is not None]
    adjusted = iter(stats.false_discovery_control(tested, method="bh").tolist() if tested else ())
    return [replace(gain, q=None if gain.estimate.p is None else next(adjusted)) for gain in gains]


# --- as text ------------------------------------------------------------------------------------------------------


def write_report(
    folder: Path,
    pairings: Sequence[Pairing],
    judges: Sequence[str],
    metrics: Sequence[str],
    *,
    baseline: str,
    baseline_name: str | None = None,
    heading: str = "",
) -> dict[str, Any]:
    """Writes ``report.md``, two CSV files and the plots; returns the figures for ``done.json``.

    Raises:
        InvalidValueError: see :func:`findings`.
    """
    found = findings(pairings, judges, metrics, baseline, baseline_name)
    plots = [_plot(found, metric, judges, folder / f"{metric}.png") for metric in metrics]
    write_text_atomically(folder / "report.md", _markdown(found, judges, metrics, heading, plots))
    write_text_atomically(folder / "scores.csv", _csv(found.cells))
    write_text_atomically(folder / "gains.csv", _csv(found.gains))
    return {
        "baseline": found.baseline,
        "scores": [_flat(cell) for cell in found.cells],
        "gains": [_flat(gain) for gain in found.gains],
    }


def _markdown(
    found: Findings, judges: Sequence[str], metrics: Sequence[str], heading: str, plots: Sequence[Path]
) -> str:
    parts = ["# Evaluation", heading, _notes(found)]
    for judge in judges:
        for metric in metrics:
            cells = {(c.partner, c.policy): c for c in found.cells if (c.judge, c.metric) == (judge, metric)}
            parts += [f"## {metric} by {judge}: partner × policy", _grid("partner", cells)]
    if len(judges) > 1:
        for partner in dict.fromkeys(cell.partner for cell in found.cells):
            for metric in metrics:
                mine = {(c.judge, c.policy): c for c in found.cells if (c.partner, c.metric) == (partner, metric)}
                parts += [f"## {metric} with {partner}: judge × policy", _grid("judge", mine)]
    parts += [f"## Paired differences to {found.baseline}", _gains(found.gains), _held(found.gains, metrics)]
    parts += [f"![{path.stem}]({path.name})" for path in plots]
    return "\n\n".join(part for part in parts if part) + "\n"


def _notes(found: Findings) -> str:
    lines = ["Cells: mean [95 % interval] number of seats; every scenario weighs the same."]
    missing = [cell for cell in found.cells if cell.missing]
    if missing:
        most = max(missing, key=lambda cell: cell.missing)
        lines.append(
            f"Seats without a value are left out, never counted as 0; the most, {most.missing}, are those of "
            f"{most.policy} with {most.partner} by {most.judge} ({most.metric})."
        )
    lines += [f"{count} episodes of `{run}` failed and are missing." for run, count in found.failed.items()]
    return " ".join(lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def _grid(down: str, cells: Mapping[tuple[str, str], Cell]) -> str:
    columns = list(dict.fromkeys(policy for _, policy in cells))
    rows = []
    for name in dict.fromkeys(name for name, _ in cells):
        shown = [cells[name, policy].estimate for policy in columns]
        rows.append([name, *("n/a" if item is None else show_estimate(item) for item in shown)])
    return _table([down, *columns], rows)


def _gains(gains: Sequence[Gain]) -> str:
    if not gains:
        return "Nothing else was evaluated."
    rows = [
        (
            f"{gain.policy} with {gain.partner} by {gain.judge}",
            gain.metric,
            show_estimate(gain.estimate),
            _show_p(gain.estimate.p),
            _show_p(gain.q),
            f"{gain.pairs}/{gain.seats}",
        )
        for gain in gains
    ]
    header = ("policy", "metric", "difference [95 % interval] n", "p", "q (BH)", "seats paired")
    return _table(header, rows)


def _held(gains: Sequence[Gain], metrics: Sequence[str]) -> str:
    """Whether a gain holds with every partner and every judge: what one of them alone rewards would not."""
    lines = []
    for policy in dict.fromkeys(gain.policy for gain in gains):
        for metric in metrics:
            mine = [gain.estimate for gain in gains if (gain.policy, gain.metric) == (policy, metric)]
            up = sum(item.low is not None and item.low > 0 for item in mine)
            down = sum(item.high is not None and item.high < 0 for item in mine)
            if mine:
                lines.append(
                    f"- {policy}, {metric}: the interval lies above 0 in {up} and below 0 in {down} of {len(mine)} "
                    f"combinations of partner and judge; the smallest difference is "
                    f"{show_number(min(item.mean for item in mine))}."
                )
    return "\n".join(lines)


def _show_p(value: float | None) -> str:
    return "n/a" if value is None else ("<0.001" if value < 0.001 else f"{value:.3f}")


def _flat(item: Cell | Gain) -> dict[str, Any]:
    names = [name for name in item.__dataclass_fields__ if name != "estimate"]
    found = {name: getattr(item, name) for name in names}
    known = item.estimate
    numbers = ("n", "clusters", "mean", "low", "high", "p")
    return found | {name: None if known is None else getattr(known, name) for name in numbers}


def _csv(items: Sequence[Cell] | Sequence[Gain]) -> str:
    rows = [_flat(item) for item in items]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else ["policy"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _plot(found: Findings, metric: str, judges: Sequence[str], path: Path) -> Path:
    """Bars of the policies, in groups by partner; a panel for each judge."""
    cells = [cell for cell in found.cells if cell.metric == metric and cell.estimate is not None]
    partners = list(dict.fromkeys(cell.partner for cell in found.cells))
    policies = list(dict.fromkeys(cell.policy for cell in found.cells))
    figure = new_figure(2.0 + len(partners) * (0.6 + 0.45 * len(policies)), 3.2 * len(judges) + 0.6)
    for number, judge in enumerate(judges, start=1):
        axes = figure.add_subplot(len(judges), 1, number)
        for column, policy in enumerate(policies):
            mine = [cell for cell in cells if (cell.judge, cell.policy) == (judge, policy)]
            _bars(
                axes,
                [(partners.index(c.partner) + (column + 0.5) / (len(policies) + 1), c) for c in mine],
                policy,
                found,
            )
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks([place + 0.5 * len(policies) / (len(policies) + 1) for place in range(len(partners))], partners)
        axes.set_title(f"{metric} by {judge}")
        if number == 1:
            axes.legend(fontsize="small")
    figure.suptitle("mean and 95 % interval over scenarios, by partner")
    return save_png(figure, path)


def _bars(axes: Any, placed: Sequence[tuple[float, Cell]], policy: str, found: Findings) -> None:
    width = 0.9 / (len({cell.policy for cell in found.cells}) + 1)
    known = [(place, cell.estimate) for place, cell in placed if cell.estimate is not None]
    axes.bar([place for place, _ in known], [item.mean for _, item in known], width=width, label=policy)
    for place, item in known:
        if item.low is not None and item.high is not None:
            axes.vlines(place, item.low, item.high, color="black")
