"""The study: plays every policy in each seat of two games, and puts its acts beside their closed forms.

The partners state nothing, so that what the others believe changes by the policy's own turns alone. Their beliefs are
those of one observer with a declared rule, who answers with each seat's view: the table depends on no partner's skill.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import typer
from pydantic import Field

from sotopia_env.cli.rollout import play_spec
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_policy
from sotopia_env.reports.intervals import METHOD, estimate
from sotopia_env.reports.seat_results import SeatResult, metric_bounds, seat_results
from sotopia_env.reports.sheet import Missing, Report, Sheet, Value
from sotopia_env.runs.spec import RunSpec
from sotopia_env.storage import read_run
from studies.social_acts.closed_forms import closed_form

Act = Literal["truth_telling", "promise_keeping", "persuasion", "asking", "secrecy", "relationship"]
"""The acts of the table, which are dimensions of the evaluator ``facts``."""
ABSENT: Mapping[Act, str] = {
    "truth_telling": "it stated nothing",
    "promise_keeping": "it promised nothing, or did not choose",
    "persuasion": "nobody was asked",
    "asking": "it had nothing to learn",
    "secrecy": "it had nothing to keep",
    "relationship": "nobody said what they would entrust to it",
}
"""Why a seat has no value of an act."""


class Game(Settings):
    """The tasks in which some acts are measured.

    Attributes:
        tasks: a source of tasks.
        level: the level of generated tasks.
        acts: the acts.
        models: the names of policies that play the first ``models_n`` scenarios only.
        models_n: the number of these.
    """

    tasks: str
    level: str = "medium"
    acts: tuple[Act, ...] = Field(min_length=1)
    models: tuple[str, ...] = ()
    models_n: int = Field(default=6, ge=2)


class SocialActsSettings(Settings):
    """Settings of the study.

    Attributes:
        games: the games; each act belongs to one of them.
        partner: the name of the policy in all other seats.
        observer: the name of the policy whose beliefs the others' are taken to be.
        seed: the seed of tasks and episodes.
        scripts: the names of policies that play ``n`` scenarios of each game.
        n: the number of scenarios of a script.
        with_models: whether the games' models play, too.
        output: the directory of the runs and of the report.
    """

    games: tuple[Game, ...] = Field(min_length=1)
    partner: str = "mute"
    observer: str = "bayesian:doubt=0.5"
    seed: int = Field(default=0, ge=0)
    scripts: tuple[str, ...] = Field(min_length=1)
    n: int = Field(default=100, ge=2)
    with_models: bool = True
    output: str

    def specs(self, game: Game) -> Iterator[tuple[str, RunSpec]]:
        """Yields the name and the specification of every run of a game."""
        # Only persuasion needs the beliefs after every turn.
        moment = "turns" if "persuasion" in game.acts else "end"
        models = game.models if self.with_models else ()
        for name, policies, n in (("scripts", self.scripts, self.n), ("models", models, game.models_n)):
            if policies:
                yield (
                    f"{game.tasks}-{name}",
                    RunSpec(
                        matchups=tuple(f"{policy} vs {self.partner}" for policy in policies),
                        tasks=game.tasks,
                        level=game.level,
                        n=n,
                        seed=self.seed,
                        evaluator=f"facts:probe={moment},interviewee=({self.observer})",
                    ),
                )


def run(settings: SocialActsSettings) -> Report:
    """Plays what is missing, prints the table and writes it; returns it.

    Raises:
        InvalidValueError: a setting is invalid, or the directory holds another study.
        UnknownNameError: a task, a policy or the observer does not exist.
    """
    report = social_acts_report(settings, {game: list(_rows(settings, game)) for game in settings.games})
    report.write(settings.output, markdown=True)
    typer.echo(report.text(), nl=False)
    return report


def _rows(settings: SocialActsSettings, game: Game) -> Iterator[SeatResult]:
    """Yields the results of the seats of the policies, without those of their partners."""
    partner = make_policy(settings.partner).name
    for name, spec in settings.specs(game):
        folder = Path(settings.output) / name
        play_spec(spec, folder)
        for row in seat_results(read_run(folder)):
            others = [policy for seat, (policy, _) in enumerate(row.policies) if seat != row.seat]
            if set(others) == {partner}:
                yield row


def social_acts_report(settings: SocialActsSettings, rows: Mapping[Game, Sequence[SeatResult]]) -> Report:
    """Returns the table of the acts of every policy, and the one of their closed forms."""
    names = [make_policy(name).name for name in settings.scripts]
    names = list(dict.fromkeys([*names, *(row.policy for group in rows.values() for row in group)]))
    own = {name: {g: [row for row in group if row.policy == name] for g, group in rows.items()} for name in names}
    acts = [(act, game) for game in settings.games for act in game.acts]
    lines = [(*_played(group), *(_cell(group[game], act) for act, game in acts)) for group in own.values()]
    exact = [tuple(_exact(game, name, act) for act, game in acts) for name in names]
    columns = tuple(act for act, _ in acts)
    labels: dict[str, str] = {act: act.replace("_", "-") for act in columns}
    labels["no_action"] = "turns without a legal action"
    where = "; ".join(f"{', '.join(labels[act] for act in g.acts)}: {g.tasks}, {g.level}" for g in settings.games)
    table = Sheet(
        "acts",
        ("policy", "scenarios", "no_action", *columns),
        [(name, *line) for name, line in zip(names, lines, strict=True)],
        title="Acts: mean [95 %] seats",
        labels=labels,
        notes=(f"{where}. Partners: {settings.partner}. Beliefs of the others: {settings.observer}.", METHOD),
    )
    forms = Sheet(
        "closed_forms",
        ("policy", *columns),
        [(name, *line) for name, line in zip(names, exact, strict=True)],
        title="Closed forms",
        labels=labels,
        formats=dict.fromkeys(columns, lambda value: f"{value:.4f}"),
    )
    return Report("report", [table, forms], [table, forms], title="Social acts")


def _played(groups: Mapping[Game, Sequence[SeatResult]]) -> tuple[str, str]:
    """The numbers of scenarios by game, and how many of the policy's turns were no legal action."""
    counts = [row.counts for group in groups.values() for row in group]
    failures = sum(count.illegal + (count.invalid or 0) for count in counts)
    scenarios = ", ".join(str(len({row.scenario for row in group})) for group in groups.values())
    return scenarios, f"{failures} of {sum(count.turns for count in counts)}"


def _cell(rows: Sequence[SeatResult], act: Act) -> Value:
    if not rows:
        return Missing("not played")
    values = [(row.values[act], row.scenario) for row in rows if act in row.values]
    if not values:
        unscored = next((row.unscored for row in rows if row.unscored), None)
        return Missing(unscored or ABSENT[act])
    return estimate([value for value, _ in values], [scenario for _, scenario in values], metric_bounds(rows)[act])


def _exact(game: Game, policy: str, act: Act) -> Value:
    value = closed_form(game.tasks, game.level, policy, act)
    return Missing("none") if value is None else float(value)
