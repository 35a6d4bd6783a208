"""Games of hidden roles: exact chances of random seats, and rules that cannot be played."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.foundation.validation import explain
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.policies.speakers.guesser import Guesser
from sotopia_env.reports.compare import compare
from sotopia_env.tasks.families.registry import family
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from studies.role_games.chances import (
    DAY,
    GAMES,
    NIGHT,
    UNTIL_ONE_SIDE_IS_GONE,
    double_factorials,
    exact,
    mafia_chance,
    mafia_share,
)


@pytest.mark.parametrize("seats", range(2, 10))
def test_one_mafioso_wins_with_the_chance_of_double_factorials(seats: int) -> None:
    assert mafia_chance(1, seats - 1) == double_factorials(seats)


@pytest.mark.parametrize("deal", GAMES, ids=lambda deal: "-".join(f"{n}{role}" for role, n in deal.items()))
def test_random_seats_win_as_often_as_the_recursion_says(deal: dict[str, int]) -> None:
    share, error = mafia_share(deal, 1_500, seed=7)
    assert abs(share - float(exact(deal))) < 3 * error


SPEC: dict[str, Any] = {
    "protocol": {
        "kind": "roles",
        "roles": {"mafioso": {"team": "mafia"}, "villager": {"team": "town"}},
        "phases": [DAY, NIGHT],
        "wins": UNTIL_ONE_SIDE_IS_GONE,
    },
    "worth": [{"options": {"town": 0, "mafia": 1}}, *[{"options": {"town": 1, "mafia": 0}}] * 3],
}


@pytest.mark.parametrize(
    ("path", "value", "field", "word"),
    [
        (("phases", 1, "who"), [], "protocol.phases.1.who", "nobody can act"),
        (("phases", 1, "who"), ["wolf"], "protocol.phases.1.who", "wolf"),
        (("wins",), UNTIL_ONE_SIDE_IS_GONE[:1], "protocol.roles.mafioso", "without a win condition"),
        (("wins", 0, "winner"), "city", "protocol.wins.0.winner", "city"),
        (("phases", 0, "effect"), "", "protocol.phases.0.effect", "chosen"),
    ],
)
def test_rules_that_cannot_be_played_name_the_field(path: tuple[Any, ...], value: Any, field: str, word: str) -> None:
    spec = copy.deepcopy(SPEC)
    part = spec["protocol"]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(ValidationError) as error:
        OutcomeSpec.model_validate(spec)
    assert explain(error.value, (), spec).startswith(field)
    assert word in explain(error.value, (), spec)


def test_rules_survive_a_round_trip() -> None:
    spec = OutcomeSpec.model_validate(SPEC)
    assert OutcomeSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_two_seats_with_a_role_that_is_meant_for_one_are_refused() -> None:
    task = family("werewolf").generate(0, 0, "hard").model_dump(mode="json")
    facts = json.loads(task["scenario"]["facts"])
    villager = next(variable for variable in facts["variables"] if variable["value"] == "villager")
    villager["value"] = "seer"
    facts["deals"][0]["values"] = sorted(variable["value"] for variable in facts["variables"])
    task["scenario"]["facts"] = json.dumps(facts)
    with pytest.raises(ValidationError, match="2 seats have the role 'seer'") as error:
        Task.model_validate(task)
    assert "1 as outcome.protocol.roles.seer.seats" in explain(error.value)


def test_a_phase_whose_role_nobody_has_is_refused() -> None:
    task = family("mafia").generate(0, 0, "easy").model_dump(mode="json")
    outcome = json.loads(task["scenario"]["outcome"])
    outcome["protocol"]["roles"]["witch"] = {"team": "town"}
    outcome["protocol"]["phases"].append({"name": "brew", "who": ["witch"], "move": "target", "effect": "protect"})
    task["scenario"]["outcome"] = json.dumps(outcome)
    with pytest.raises(ValidationError, match=r"nobody can act in this phase.*brew"):
        Task.model_validate(task)


def test_results_are_compared_by_role() -> None:
    episodes = []
    for index in range(4):
        table = Table(family("jester").generate(index, 0, "easy"), seed=index, key=str(index))
        asyncio.run(table.play(Guesser()))
        asyncio.run(table.evaluate(VerifiedOutcome()))
        episodes.append(table.episode())
    result = compare(episodes, by="role", metrics=["goal"]).by
    assert result is not None
    means = {mean.level: mean.estimate for mean in result.means}
    assert set(means) == {"mafioso", "jester", "detective", "citizen"}
    # Three citizens of a game share its outcome: four games are four units.
    assert (means["citizen"].n, means["citizen"].clusters) == (12, 4)
