"""A judge's verdicts on how facts were passed on, beside the exact measures of the same episodes.

``python -m studies.social_acts.judged RUN`` reads a run of briefings that a judge has evaluated with ``judged.yaml``,
and prints for each policy the mean of the exact measures of SOTOPIA-TOM and of the judge's, all from 0 to 1, and their
rank correlation over seats.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

import typer

from sotopia_env.evaluators.information import information_measures
from sotopia_env.reports.agreement import spearman
from sotopia_env.reports.sheet import Missing, Sheet, Value
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode

MEASURES = ("disclosure", "acquisition", "breaches")
"""The measures that a judge is asked for, as attributes of the exact ones."""
SCALE = 10
"""The highest score of the judge."""


def verdict_table(episodes: Iterable[Episode]) -> Sheet:
    """Returns the table over episodes; a measure that the judge did not score in any seat is missing."""
    exact: dict[tuple[str, str], list[float]] = defaultdict(list)
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    seats: dict[str, int] = defaultdict(int)
    for episode in episodes:
        rounds = max((turn.round for turn in episode.plain_turns), default=0) + 1
        names = {info.agent: info.name for info in episode.policies}
        for agent, measures in information_measures(episode.task, episode.plain_turns, max(2, rounds)).items():
            seats[names[agent]] += 1
            for name in MEASURES:
                value, verdict = getattr(measures, name), _verdict(episode, agent, name)
                if value is not None:
                    exact[names[agent], name].append(value)
                    pairs[names[agent], name] += [(value, verdict / SCALE)] if verdict is not None else []
    rows: list[tuple[Value, ...]] = []
    for policy, count in seats.items():
        cells = [cell for name in MEASURES for cell in _means(exact[policy, name], pairs[policy, name])]
        rows.append((policy, count, *cells))
    notes = tuple(
        f"{name}: {_agreement([pair for policy in seats for pair in pairs[policy, name]])}" for name in MEASURES
    )
    columns = tuple(column for name in MEASURES for column in (name, f"judged_{name}"))
    labels = {column: column.replace("_", " ") for column in columns}
    return Sheet("judged", ("policy", "seats", *columns), rows, title="Exact and judged", labels=labels, notes=notes)


def _verdict(episode: Episode, agent: str, name: str) -> float | None:
    scores = [e.by_agent.get(agent, {}).get(f"judged_{name}") for e in episode.evaluations if e.unscored is None]
    return next((float(score.value) for score in reversed(scores) if score is not None), None)


def _means(values: list[float], pairs: list[tuple[float, float]]) -> tuple[Value, Value]:
    judged = fmean(verdict for _, verdict in pairs) if pairs else Missing("not judged")
    return fmean(values) if values else Missing("nothing to measure"), judged


def _agreement(pairs: list[tuple[float, float]]) -> str:
    rho = spearman([value for value, _ in pairs], [verdict for _, verdict in pairs])
    if rho is None:
        return "no rank correlation: too few seats, or one of the two does not vary"
    return f"rank correlation {rho.value:.2f} over {len(pairs)} seats"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="directory of the run")
    typer.echo(verdict_table(read_run(parser.parse_args().run)).text())
