"""Replications: their files, the numbers that follow from what was chosen, and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sotopia_env import Rules, Table, tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.yaml_text import read_yaml, to_yaml
from sotopia_env.naming.policies import make_policy
from sotopia_env.people.replications import NAMES, beside_people, read_replication
from sotopia_env.people.studies.files import read_text, to_text
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.episode import Episode
from tests.sotopia_env.cli.test_interviews import sotopia


def played(name: str, policy: str, n: int) -> list[Episode]:
    design, episodes = read_replication(name).design, []
    for task in tasks.generate(design.tasks, n, 0, design.level):
        table = Table(task, Rules(), seed=0, key=task.id)
        asyncio.run(table.play(make_policy(policy)))
        episodes.append(table.episode())
    return episodes


def means(name: str, policy: str, n: int) -> dict[str, float]:
    plan = read_replication(name)
    rows = json.loads(beside_people(name, plan, played(name, policy, n)).json())["rows"]
    return {key: row.get(f"{policy}_mean") for key, row in zip(plan.figures, rows, strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_says_where_its_figures_are_from_and_is_a_study(name: str) -> None:
    plan = read_replication(name)
    assert {f.people.source for f in plan.figures.values() if f.people} == set(plan.sources)
    # Stakes, wording, repetition and people: what differs is said, or that nothing is known of it.
    assert len(plan.differs) >= 4
    study = plan.study(name)
    assert read_text(to_text(study)) == study
    assert len(next(iter(tasks.generate(study.tasks, 1, 0, study.level))).agents) >= 2


def test_shares_follow_from_what_was_chosen() -> None:
    assert means("ultimatum", "cheater", 3) == {"offer": 0, "rejected": 0, "rejected_low": 0}
    assert means("ultimatum", "cooperator", 3) == {"offer": 0.5, "rejected": 0, "rejected_low": None}
    assert means("trust", "cooperator", 3) == {"sent": 1, "returned": 0.5}
    # Nothing was sent, so that nothing could be returned: no share of 0.
    assert means("trust", "best-responder", 3) == {"sent": 0, "returned": None}
    assert means("public-goods", "copycat", 1) == {"first": 1, "last": 1, "strangers": 1}


def test_games_count_in_their_region_alone() -> None:
    shares = means("121-games", "equilibrium", 121)
    assert (shares["harmony"], shares["prisoner"]) == (1, 0)
    # Mixed equilibria of snowdrift games: (S - 5) / (S - 5 + T - 10), whose mean over the region is one half.
    assert shares["snowdrift"] == pytest.approx(0.5, abs=0.2)


def test_a_role_counts_where_its_seat_has_it() -> None:
    rows = means("mini-mafia", "bayesian", 12)
    assert rows["villager"] == rows["detective"] == rows["mafioso"] is not None
    assert rows["v"] is None


def test_people_are_shown_as_they_were_published_and_counts_with_an_exact_interval() -> None:
    text = beside_people("mini-mafia", read_replication("mini-mafia"), played("mini-mafia", "uniform", 2)).text()
    assert "0.10; 2 of 21; 0.01 to 0.30" in text  # scipy.stats.binomtest(2, 21).proportion_ci(): 0.0117, 0.3038
    assert "± 1.14" in text


def test_an_interval_stays_within_what_can_be_chosen() -> None:
    # Half is the most that can be returned: .5 × .025 ** (1 / 4) by Clopper and Pearson, and not above .5.
    report = beside_people("trust", read_replication("trust"), played("trust", "cooperator", 4))
    returned = json.loads(report.json())["rows"][1]
    assert returned["cooperator_low"] == pytest.approx(0.5 * 0.025**0.25)
    assert returned["cooperator_high"] == 0.5


def test_games_without_all_choices_and_failures_are_counted() -> None:
    task = next(iter(tasks.generate("trust-published", 1, 0, "hard")))
    table = Table(task, Rules(max_turns=1), seed=0, key="short")
    asyncio.run(table.play(make_policy("cooperator")))
    done = played("trust", "cooperator", 2)
    failures = [
        FailureRecord(key=key, task=task.id, policies=("smol", "smol"), kind="Timeout", message="")
        for key in ("lost", done[0].key)
    ]
    report = json.loads(beside_people("trust", read_replication("trust"), [*done, table.episode()], failures).json())
    # A failed episode that was played since is not missing.
    assert (report["failed"], report["unfinished"]) == ({"smol": 1}, {"cooperator": 1})


def test_episodes_of_other_tasks_are_left_out_or_refused() -> None:
    plan, others = read_replication("trust"), played("ultimatum", "uniform", 2)
    assert "2 episodes of other tasks" in beside_people("trust", plan, played("trust", "uniform", 2) + others).text()
    with pytest.raises(InvalidValueError, match="trust-published"):
        beside_people("trust", plan, others)


def test_mistakes_in_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    values = read_yaml(Path(str(read_replication.__code__.co_filename)).with_name("trust.yaml"))
    path.write_text(to_yaml(values), encoding="utf-8")
    assert read_replication(str(path)) == read_replication("trust")
    for change, problem in (
        ({"source": "nobody", "mean": 0.5}, "johnson"),
        ({"source": "johnson"}, "a mean, a count, or both ends"),
        ({"source": "johnson", "low": 0.1, "high": 0.2}, "what they are"),
        ({"source": "johnson", "count": [3, 2]}, "of how many"),
        ({"source": "johnson", "low": 0.2, "high": 0.1, "interval": "95 %"}, "at most high"),
    ):
        values["figures"]["sent"]["people"] = change
        path.write_text(to_yaml(values), encoding="utf-8")
        with pytest.raises(InvalidValueError, match=problem):
            read_replication(str(path))
    with pytest.raises(UnknownNameError, match="ultimatum"):
        read_replication("ultimatm")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seats": (5,)}, "figures.sent: expected seats from 0 to 1"),
        ({"only": {"seat": 5, "options": [0]}}, "figures.sent: expected seats from 0 to 1"),
        ({"only": {"seat": 0, "options": [99]}}, "only.options"),
        ({"at": (), "share": True}, "choices of amounts"),
        ({"at": (0, 1)}, "a number for each of the 3 options"),
        ({"where": {"Q": (0, 1)}}, "does not have the parameter"),
    ],
)
def test_a_figure_that_does_not_fit_its_tasks_is_refused(change: dict[str, Any], problem: str) -> None:
    plan = read_replication("trust")
    figure = type(plan.figures["sent"]).model_validate({**plan.figures["sent"].model_dump(), **change})
    with pytest.raises(InvalidValueError, match=problem):
        beside_people("trust", plan.model_copy(update={"figures": {"sent": figure}}), played("trust", "uniform", 1))


def test_choices_are_not_counted_in_games_without_choices() -> None:
    plan = read_replication("mini-mafia")
    figure = type(next(iter(plan.figures.values())))(label="offers", at=(0, 1))
    with pytest.raises(InvalidValueError, match="a game of choices"):
        beside_people(
            "mini-mafia", plan.model_copy(update={"figures": {"x": figure}}), played("mini-mafia", "uniform", 1)
        )


def test_the_command_plays_continues_and_writes_a_study(tmp_path: Path) -> None:
    assert "ultimatum" in sotopia("replicate").output
    run, study = tmp_path / "run", tmp_path / "study.yaml"
    first = sotopia("replicate", "ultimatum", "--out", run, "-n", 2, "--policy", "cheater,uniform").output
    assert "4 played now" in first
    assert "Oosterbeek" in first
    assert (run / "report" / "replication.png").stat().st_size > 1000
    assert (
        "0 played now" in sotopia("replicate", "ultimatum", "--out", run, "-n", 2, "--policy", "cheater,uniform").output
    )
    again = sotopia("replicate", "ultimatum", "--out", run, "-n", 2, "--policy", "cheater,uniform", "--json")
    assert json.loads(again.stdout)["replication"] == "ultimatum"
    sotopia("replicate", "ultimatum", "--study", study, "--partner", "reciprocator")
    assert read_text(study.read_text(encoding="utf-8")).partner == "reciprocator"  # type: ignore[union-attr]
    assert "--study" in sotopia("replicate", "trust", "--partner", "uniform", "--out", run, code=2).output
    misspelt = tmp_path / "misspelt.yaml"
    assert (
        "reciprocator" in sotopia("replicate", "trust", "--study", misspelt, "--partner", "reciprocatr", code=2).output
    )
    assert not misspelt.exists()
    sotopia("replicate", "trust", "--study", misspelt, "--partner", "local/some-model")
    assert "--out" in sotopia("replicate", "trust", code=2).output
    assert "Oosterbeek" in sotopia("replicate", "ultimatum", "--results", run).output
    assert "the design fixes it" in sotopia("replicate", "trust", "--set", "tasks=dilemma", "--out", run, code=2).output
