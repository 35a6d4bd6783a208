"""Facts: what is refused with which sentence, what follows from a deal, and worths that depend on facts."""

from typing import Any

import pytest

from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.worth import FactsWorth

AGENTS = ["agent_0", "agent_1", "agent_2"]
HOUR = {"name": "hour", "options": ["one", "two"], "value": "two", "known_by": ["agent_0"]}
ROLES = [
    {
        "name": f"role of {seat}",
        "options": ["wolf", "seer", "sheep"],
        "kind": "role",
        "of": f"agent_{seat}",
        "value": value,
    }
    for seat, value in enumerate(["sheep", "wolf", "seer"])
]
DEAL = {"variables": ["role of 0", "role of 1", "role of 2"], "values": ["sheep", "wolf", "seer"]}


def facts(*variables: dict[str, Any], **fields: Any) -> Facts:
    result = Facts.model_validate({"variables": list(variables), **fields})
    result.check(AGENTS)
    return result


BAD = [
    ([{**HOUR, "known_by": []}], {}, ["hour", "nobody can know", "name a seat"]),
    ([{**HOUR, "may_know": ["agent_1", "agent_2"]}], {}, ["secret that everybody may know", "leave out 'may_know'"]),
    ([{**HOUR, "wanted_by": ["agent_2"], "may_know": ["agent_1"]}], {}, ["learn what it may not know", "agent_2"]),
    ([{**HOUR, "known_by": ["agent_7"]}], {}, ["known_by", "agent_7", "agent_0"]),
    ([{**HOUR, "value": "tree"}], {}, ["value", "tree", "one"]),
    ([{**HOUR, "value": None}], {}, ["value", "the true option"]),
    ([{**HOUR, "options": ["two"]}], {}, ["options"]),
    ([{**HOUR, "options": ["two", "two"]}], {}, ["options", "two"]),
    ([{**HOUR, "kind": "choice", "of": "agent_0"}], {}, ["value", "still to be made"]),
    ([{**HOUR, "kind": "role"}], {}, ["of", "agent id"]),
    ([{**HOUR, "aims": {"agent_0": "three"}}], {}, ["aims", "three", "one"]),
    ([HOUR, HOUR], {}, ["variables", "hour"]),
    ([HOUR], {"norms": ["honesty", "honesty"]}, ["norms", "honesty"]),
    ([HOUR], {"norms": ["candour"]}, ["norms", "honesty", "promises"]),
    ([HOUR], {"norms": [{"name": "candour", "text": "that", "against": ["fib"]}]}, ["against", "honest", "lie"]),
    (ROLES, {"deals": [{**DEAL, "values": ["sheep", "wolf"]}]}, ["values", "3"]),
    (ROLES, {"deals": [{**DEAL, "values": ["sheep", "sheep", "wolf"]}]}, ["values of its variables"]),
    (ROLES, {"deals": [{**DEAL, "informs": {"king": ["wolf"]}}]}, ["informs", "king", "seer"]),
    (ROLES, {"deals": [DEAL, DEAL]}, ["two deals"]),
    (
        [HOUR, *ROLES[1:]],
        {"deals": [{**DEAL, "variables": ["hour", "role of 1", "role of 2"]}]},
        ["everybody may know"],
    ),
]


@pytest.mark.parametrize(("variables", "fields", "parts"), BAD)
def test_impossible_facts_are_refused_with_what_to_do(variables, fields, parts):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the parts of the message are compared below
        facts(*variables, **fields)
    assert [part for part in parts if part not in str(error.value)] == []


def test_the_order_in_which_a_deal_lists_its_values_tells_nothing():
    assert facts(*ROLES, deals=[DEAL]) == facts(*ROLES, deals=[{**DEAL, "values": ["wolf", "sheep", "seer"]}])


def test_the_holder_of_an_informed_role_knows_what_follows():
    game = facts(*ROLES, deals=[{**DEAL, "informs": {"seer": ["wolf"]}}])
    assert game.view("agent_2").knowledge == {"role of 0": "sheep", "role of 1": "wolf", "role of 2": "seer"}
    assert game.view("agent_0").knowledge == {"role of 0": "sheep"}
    assert game.view("agent_0").beliefs()["role of 1"] == {"wolf": 0.5, "seer": 0.5, "sheep": 0.0}


def test_a_seat_reads_of_no_secret_that_it_may_not_know():
    game = facts({**HOUR, "may_know": ["agent_1"]}, {**HOUR, "name": "day"})
    assert [list(game.view(agent).variables) for agent in AGENTS] == [["hour", "day"], ["hour", "day"], ["day"]]
    assert game.view("agent_0").duties == {"hour": (("agent_0", "agent_1"), "all")}
    assert game.view("agent_1").duties == {}


def test_a_worth_of_facts_is_the_sum_over_true_values():
    worth = FactsWorth(
        facts={"hour": {"one": {"walk": 2}, "two": {"drive": 0.1, "walk": 0.3}}, "day": {"one": {"walk": 0.1}}}
    )
    truth = {"hour": "two", "day": "one"}
    assert worth.resolved(["walk", "drive"], truth).options == {"walk": 0.4, "drive": 0.1}
    even = {"hour": {"one": 0.5, "two": 0.5}, "day": {"one": 1.0, "two": 0.0}}
    assert worth.gains("walk", even) == pytest.approx(1.25)
