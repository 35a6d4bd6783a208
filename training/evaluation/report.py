"""Report of an evaluation: policies by partners, policies by judges, paired differences to a baseline.

A policy's results are those of its seats in episodes whose other seats all hold the partner. A difference is between
episodes of the same task, seat, first speaker and seed, and every scenario has the same weight
(:func:`sotopia_env.reports.estimate`); p-values are adjusted over all differences of the report (Benjamini-Hochberg).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.files import csv_text, write_text_atomically
from sotopia_env.policies import Policy
from sotopia_env.records import canonical_json
from sotopia_env.reports import (
    METHOD,
    Estimate,
    SeatResult,
    adjusted,
    difference_estimate,
    estimate,
    metric_bounds,
    new_figure,
    save_png,
    seat_results,
    show_estimate,
    show_number,
)
from sotopia_env.storage import RUN, read_failures, read_manifest, read_run

_Key = tuple[str, int, bool, int]  # task, seat, whether it began, seed
_Rows = dict[_Key, list[SeatResult]]
_Identity = tuple[str, str]  # a policy's name and its parameters as JSON


@dataclass(frozen=True, slots=True)
class Pairing:
    """A policy with a partner, and the run of their episodes.

    Attributes:
        policy_spec: name of the policy in the settings.
        partner_spec: name of the partner in the settings.
        policy: the evaluated policy.
        partner: policy of the other seats.
        run: run directory.
    """

    policy_spec: str
    partner_spec: str
    policy: Policy
    partner: Policy
    run: Path


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean of a policy's metric with a partner, by a judge.

    Attributes:
        estimate: ``None`` if there is no value.
        missing: seats without a value: unscored, or without this metric.
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
        pairs: number of the policy's seats with a counterpart, of the ``seats`` with a value.
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
    """The content of a report.

    Attributes:
        baseline: name of the baseline.
        cells: by policy, partner, judge and metric.
        gains: of every policy except the baseline.
        failed: number of failed episodes, by run directory.
    """

    baseline: str
    cells: list[Cell] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)


def _identity(policy: Policy) -> _Identity:
    return policy.name, canonical_json(dict(policy.parameters))


def _key(row: SeatResult) -> _Key:
    return row.task, row.seat, row.first, row.seed


def focal_rows(rows: Iterable[SeatResult], policy: _Identity | None, partner: _Identity) -> dict[_Identity, _Rows]:
    """Returns the rows of episodes whose other seats all hold ``partner``, by the policy in the seat.

    Args:
        rows: of one judge.
        policy: only this policy; ``None`` for all.
        partner: name and parameters.
    """
    by_policy: dict[_Identity, _Rows] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        others = {other for seat, other in enumerate(row.policies) if seat != row.seat}
        if others == {partner} and policy in (None, row.policies[row.seat]):
            by_policy[row.policies[row.seat]][_key(row)].append(row)
    return by_policy


def findings(
    pairings: Sequence[Pairing], judges: Sequence[str], metrics: Sequence[str], baseline: str, baseline_name: str | None
) -> Findings:
    """Returns cells and gains.

    Args:
        pairings: whose runs hold evaluations by all judges.
        judges: names.
        metrics: names.
        baseline: name of a policy in the settings, a run directory, or a directory with several.
        baseline_name: name of its policy in records; ``None`` if there is one.

    Raises:
        InvalidValueError: the baseline's runs hold no comparable episodes, or several policies.
    """
    own = {pairing.policy_spec: pairing.policy.name for pairing in pairings}
    result = Findings(own.get(baseline, ""))
    for judge in judges:
        rows = {(p.policy_spec, p.partner_spec): _rows_of(p, judge) for p in pairings}
        against: dict[str, _Rows] = {}
        for spec, pairing in {p.partner_spec: p for p in pairings}.items():
            if baseline in own:
                against[spec] = rows[baseline, spec]
            else:
                name, against[spec] = _baseline_rows(Path(baseline), baseline_name, judge, pairing)
                result.baseline = f"{name} ({baseline})"
        for pairing in pairings:
            own_rows = rows[pairing.policy_spec, pairing.partner_spec]
            for metric in metrics:
                result.cells.append(_cell(pairing, judge, metric, own_rows))
                gain = _gain(pairing, judge, metric, own_rows, against[pairing.partner_spec])
                if gain is not None and pairing.policy_spec != baseline:
                    result.gains.append(gain)
    result.gains = _adjusted(result.gains)
    result.failed = {str(p.run): count for p in pairings if (count := _failed(p.run))}
    return result


def _rows_of(pairing: Pairing, judge: str) -> _Rows:
    policy, partner = _identity(pairing.policy), _identity(pairing.partner)
    return focal_rows(seat_results(read_run(pairing.run), judge), policy, partner)[policy]


def _failed(run: Path) -> int:
    complete = {episode.key for episode in read_run(run)}
    return len({failure.key for failure in read_failures(run)} - complete)


def _baseline_rows(directory: Path, policy_name: str | None, judge: str, pairing: Pairing) -> tuple[str, _Rows]:
    """Name and rows of the one policy that played with the pairing's partner in the runs below ``directory``."""
    partner = _identity(pairing.partner)
    candidates: dict[_Identity, _Rows] = {}
    runs = [directory] if (directory / RUN).is_file() else sorted(file.parent for file in directory.glob(f"**/{RUN}"))
    for run in runs:
        try:
            rows = seat_results(read_run(run), judge)
        except UnknownNameError as error:
            raise InvalidValueError(f"{run} has no scores by this judge: {error}", field="baseline") from None
        for seated, own in focal_rows(rows, None, partner).items():
            if policy_name in (None, seated[0]):
                _check_rules(run, pairing.run)
                candidates.setdefault(seated, {}).update(own)
    others = {seated: own for seated, own in candidates.items() if seated != partner} or candidates
    if len(others) != 1:
        names = ", ".join(sorted(name for name, _ in others)) or "none"
        raise InvalidValueError(
            field="baseline",
            expected=f"one policy with partner {pairing.partner.name!r} in the runs of {directory}",
            got=names,
            hint="baseline_name says which",
        )
    ((seated, own),) = others.items()
    return seated[0], own


def _check_rules(baseline: Path, own: Path) -> None:
    first, second = (
        {replace(rules, first_seat=0) for rules in read_manifest(run).config.rules} for run in (baseline, own)
    )
    if first != second:
        raise InvalidValueError(
            f"{baseline} was played by other rules than {own}", field="baseline", hint="see config.rules in run.json"
        )


def _values(rows: _Rows, metric: str) -> dict[_Key, tuple[float, str, int]]:
    """Mean value, scenario and number of seats of each key."""
    by_key = {}
    for key, group in rows.items():
        values = [row.values[metric] for row in group if metric in row.values]
        if values:
            by_key[key] = (math.fsum(values) / len(values), group[0].scenario, len(values))
    return by_key


def _cell(pairing: Pairing, judge: str, metric: str, rows: _Rows) -> Cell:
    every = [row for group in rows.values() for row in group]
    valued = [row for row in every if metric in row.values]
    values, scenarios = [row.values[metric] for row in valued], [row.scenario for row in valued]
    mean = estimate(values, scenarios, metric_bounds(valued)[metric]) if valued else None
    return Cell(pairing.policy.name, pairing.partner.name, judge, metric, mean, len(every) - len(valued))


def _gain(pairing: Pairing, judge: str, metric: str, own: _Rows, baseline: _Rows) -> Gain | None:
    first, second = _values(own, metric), _values(baseline, metric)
    common = [key for key in first if key in second]
    if not common:
        if first and second:
            raise InvalidValueError(
                f"none of its episodes with partner {pairing.partner.name!r} is of the same task, seat, first "
                "speaker and seed as one of these",
                field="baseline",
                hint="it was played with other settings",
            )
        return None
    bounds = metric_bounds(row for rows in (own, baseline) for group in rows.values() for row in group)[metric]
    gaps = [first[key][0] - second[key][0] for key in common]
    difference = difference_estimate(gaps, [first[key][1] for key in common], bounds)
    pairs, seats = (sum(first[key][2] for key in keys) for keys in (common, first))
    return Gain(pairing.policy.name, pairing.partner.name, judge, metric, difference, pairs, seats)


def _adjusted(gains: Sequence[Gain]) -> list[Gain]:
    q_values = adjusted([gain.estimate.p for gain in gains])
    return [replace(gain, q=q) for gain, q in zip(gains, q_values, strict=True)]


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
    result = findings(pairings, judges, metrics, baseline, baseline_name)
    plots = [_plot(result, metric, judges, folder / f"{metric}.png") for metric in metrics]
    write_text_atomically(folder / "report.md", _markdown(result, judges, metrics, heading, plots))
    write_text_atomically(folder / "scores.csv", _csv(result.cells))
    write_text_atomically(folder / "gains.csv", _csv(result.gains))
    return {
        "baseline": result.baseline,
        "scores": [_flat(cell) for cell in result.cells],
        "gains": [_flat(gain) for gain in result.gains],
    }


def _markdown(
    result: Findings, judges: Sequence[str], metrics: Sequence[str], heading: str, plots: Sequence[Path]
) -> str:
    parts = ["# Evaluation", heading, _notes(result)]
    for judge in judges:
        for metric in metrics:
            cells = {(c.partner, c.policy): c for c in result.cells if (c.judge, c.metric) == (judge, metric)}
            parts += [f"## {metric} by {judge}: partner × policy", _grid("partner", cells)]
    if len(judges) > 1:
        for partner in dict.fromkeys(cell.partner for cell in result.cells):
            for metric in metrics:
                grid = {(c.judge, c.policy): c for c in result.cells if (c.partner, c.metric) == (partner, metric)}
                parts += [f"## {metric} with {partner}: judge × policy", _grid("judge", grid)]
    parts += [f"## Paired differences to {result.baseline}", _gains(result.gains), _consistency(result.gains, metrics)]
    parts += [f"![{path.stem}]({path.name})" for path in plots]
    return "\n\n".join(part for part in parts if part) + "\n"


def _notes(result: Findings) -> str:
    lines = [
        "Cells: mean [95 % interval] number of seats; every scenario weighs the same.",
        f"{METHOD[0].upper()}{METHOD[1:]}.",
    ]
    missing = [cell for cell in result.cells if cell.missing]
    if missing:
        worst = max(missing, key=lambda cell: cell.missing)
        lines.append(
            f"Seats without a value are left out, never counted as 0; the most, {worst.missing}, are those of "
            f"{worst.policy} with {worst.partner} by {worst.judge} ({worst.metric})."
        )
    lines += [f"{count} episodes of `{run}` failed and are missing." for run, count in result.failed.items()]
    return " ".join(lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def _grid(down: str, cells: Mapping[tuple[str, str], Cell]) -> str:
    columns = list(dict.fromkeys(policy for _, policy in cells))
    rows = []
    for name in dict.fromkeys(name for name, _ in cells):
        estimates = [cells[name, policy].estimate for policy in columns]
        rows.append([name, *("n/a" if item is None else show_estimate(item) for item in estimates)])
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


def _consistency(gains: Sequence[Gain], metrics: Sequence[str]) -> str:
    """States with how many partners and judges each gain holds; an effect of one of them does not hold with all."""
    lines = []
    for policy in dict.fromkeys(gain.policy for gain in gains):
        for metric in metrics:
            estimates = [gain.estimate for gain in gains if (gain.policy, gain.metric) == (policy, metric)]
            up = sum(item.low is not None and item.low > 0 for item in estimates)
            down = sum(item.high is not None and item.high < 0 for item in estimates)
            if estimates:
                lines.append(
                    f"- {policy}, {metric}: the interval lies above 0 in {up} and below 0 in {down} of "
                    f"{len(estimates)} combinations of partner and judge; the smallest difference is "
                    f"{show_number(min(item.mean for item in estimates))}."
                )
    return "\n".join(lines)


def _show_p(value: float | None) -> str:
    return "n/a" if value is None else ("<0.001" if value < 0.001 else f"{value:.3f}")


def _flat(item: Cell | Gain) -> dict[str, Any]:
    names = [name for name in item.__dataclass_fields__ if name != "estimate"]
    numbers = ("n", "clusters", "mean", "low", "high", "p")
    return {name: getattr(item, name) for name in names} | {
        name: None if item.estimate is None else getattr(item.estimate, name) for name in numbers
    }


def _csv(items: Sequence[Cell] | Sequence[Gain]) -> str:
    rows = [_flat(item) for item in items]
    return csv_text(list(rows[0]) if rows else ["policy"], [list(row.values()) for row in rows])


def _plot(result: Findings, metric: str, judges: Sequence[str], path: Path) -> Path:
    """Bars of the policies, in groups by partner; a panel for each judge."""
    cells = [cell for cell in result.cells if cell.metric == metric and cell.estimate is not None]
    partners = list(dict.fromkeys(cell.partner for cell in result.cells))
    policies = list(dict.fromkeys(cell.policy for cell in result.cells))
    figure = new_figure(2.0 + len(partners) * (0.6 + 0.45 * len(policies)), 3.2 * len(judges) + 0.6)
    for number, judge in enumerate(judges, start=1):
        axes = figure.add_subplot(len(judges), 1, number)
        for column, policy in enumerate(policies):
            own_cells = [cell for cell in cells if (cell.judge, cell.policy) == (judge, policy)]
            _bars(
                axes,
                [(partners.index(c.partner) + (column + 0.5) / (len(policies) + 1), c) for c in own_cells],
                policy,
                result,
            )
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks([index + 0.5 * len(policies) / (len(policies) + 1) for index in range(len(partners))], partners)
        axes.set_title(f"{metric} by {judge}")
        if number == 1:
            axes.legend(fontsize="small")
    figure.suptitle("mean and 95 % interval over scenarios, by partner")
    return save_png(figure, path)


def _bars(axes: Any, positions: Sequence[tuple[float, Cell]], policy: str, result: Findings) -> None:
    width = 0.9 / (len({cell.policy for cell in result.cells}) + 1)
    bars = [(x, cell.estimate) for x, cell in positions if cell.estimate is not None]
    axes.bar([x for x, _ in bars], [item.mean for _, item in bars], width=width, label=policy)
    for x, item in bars:
        if item.low is not None and item.high is not None:
            axes.vlines(x, item.low, item.high, color="black")
