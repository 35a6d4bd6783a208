"""Scripts of games: each plays its strategy, in every family and turn order; what they see is enough for them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from sotopia_env import Rules, Table, Task
from sotopia_env.evaluators.games import GameMeasures, broken_kind
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError
from sotopia_env.naming.policies import make_policy
from sotopia_env.outcomes.games.game import Game, game_of
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.people.seat.form import move_choices
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.function_calls import functions_of
from sotopia_env.tasks.families.registry import FAMILIES, MECHANISMS
from sotopia_env.testing import check_policy
from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.social_acts import social_acts
from tests.sotopia_env.envs.env_doubles import ORDERS

GAMES = [name for name in FAMILIES if FAMILIES[name].about]
SCRIPTS = ("promiser", "cooperator", "cheater", "reciprocator", "grim", "copycat", "best-responder", "uniform",
           "tit-for-tat", "honest", "deceiver", "boulware", "random", "silent")  # fmt: skip


def play(task: Task, *names: str, order: str = "round-robin") -> Table:
    table = Table(task, Rules(turn_order=order), seed=1)  # type: ignore[arg-type]
    asyncio.run(table.play(dict(zip(task.agents, map(make_policy, itertools.cycle(names)), strict=False))))
    return table


def rows(table: Table) -> list[tuple[str, ...]]:
    """The options of every round by their place in the menu: C for the first, D for the second."""
    spec = table.task.scenario.outcome
    assert spec is not None
    assert isinstance(spec.protocol, ChoicesRules)
    options = spec.protocol.options
    terms = outcome_of(table.task, table.state.turns).terms
    return ["".join("CD"[options.index(option)] for option in row.values()) for row in terms.get("rounds", [])]  # type: ignore[misc]


def dilemma(index: int = 0, level: str = "easy") -> Task:
    return FAMILIES["dilemma"].generate(index, 3, level)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("promiser", "cheater"), ["CD"] * 5),
        (("grim", "cheater"), ["CD"] + ["DD"] * 4),
        (("copycat", "cheater"), ["CD"] + ["DD"] * 4),
        (("tit-for-tat", "cheater"), ["CD"] + ["DD"] * 4),
        (("copycat", "grim"), ["CC"] * 5),
        (("best-responder", "cooperator"), ["DC"] * 5),
        (("honest", "deceiver"), ["CD"] * 5),
        # It believes an announcement of those alone who did their part in the last round.
        (("reciprocator", "promiser"), ["CC"] * 5),
        (("reciprocator", "best-responder"), ["CD"] + ["DD"] * 4),
    ],
)
def test_strategies_in_the_prisoners_dilemma(names: tuple[str, str], expected: list[str]) -> None:
    assert rows(play(dilemma(), *names)) == expected


def test_a_reciprocator_is_not_deceived_twice() -> None:
    assert rows(play(dilemma(), "reciprocator", "cheater")) == ["CD"] + ["DD"] * 4


@pytest.mark.parametrize("name", GAMES)
def test_every_script_ends_every_game_in_every_order(name: str) -> None:
    task = FAMILIES[name].generate(1, 0, "hard")
    for number, names in enumerate(zip(SCRIPTS, SCRIPTS[3:] + SCRIPTS[:3], strict=True)):
        order = ORDERS[number % len(ORDERS)]
        table = play(task, *names, order=order)
        assert all(turn.violation is None for turn in table.state.turns), (names, order)
        if not {"random", "silent"} & {*names} and order != "reactive":
            assert table.state.stop == "settled", (names, order)


@pytest.mark.parametrize("name", ["promiser", "reciprocator", "grim", "best-responder"])
def test_scripts_of_games_meet_the_contract_of_policies(name: str) -> None:
    check_policy(make_policy(name), repeatable=True)
    check_policy(make_policy(name), task=dilemma(), repeatable=True)


def test_where_payoffs_are_not_open_a_script_decides_by_its_own() -> None:
    task = dilemma(2, "medium")  # chicken
    spec = task.scenario.outcome
    assert spec is not None
    rules = spec.protocol.model_copy(update={"payoffs": "own"})
    closed = task.model_copy(
        update={"scenario": task.scenario.model_copy(update={"outcome": spec.model_copy(update={"protocol": rules})})}
    )
    observation = Table(closed, seed=0).observe("agent_0")
    assert observation.briefing.game is not None
    assert observation.briefing.game.worths[1] is None
    assert "not known to you" in observation.text
    assert play(closed, "grim", "cheater").state.stop == "settled"


def test_promises_are_judged_round_by_round() -> None:
    table = play(dilemma(), "promiser", "cheater")
    classes = [(act.actor, *act.classes) for act in social_acts(table.task, table.state.turns)]
    assert classes == [("agent_0", "kept"), ("agent_1", "broken")] * 5


def measures(table: Table, agent: str) -> dict[str, float]:
    evaluation = asyncio.run(GameMeasures().evaluate(table.episode()))
    return {str(score.dimension): score.value for score in evaluation.scores if score.agent == agent}


def test_measures_of_a_cheater_and_of_its_victim() -> None:
    table = play(dilemma(), "promiser", "cheater")
    assert measures(table, "agent_0") == {
        "cooperation": 1, "best_reply_gap": pytest.approx(0.2), "exploitability": pytest.approx(0.2),
        "broken_win_win": 0, "broken_selfish": 0, "broken_altruistic": 0, "broken_sabotaging": 0,
    }  # fmt: skip
    cheater = measures(table, "agent_1")
    assert cheater["broken_selfish"] == 1
    assert cheater["cooperation"] == cheater["best_reply_gap"] == cheater["exploitability"] == 0
    bargaining = play(FAMILIES["bargaining"].generate(0, 0, "easy"), "boulware")
    with pytest.raises(EvaluationError, match="not a game of choices"):
        asyncio.run(GameMeasures().evaluate(bargaining.episode()))


def test_survival_of_a_stock() -> None:
    task = FAMILIES["commons"].generate(0, 0, "easy")
    assert measures(play(task, "promiser"), "agent_0")["survival"] == 1
    # Three seats that take 20 of 60 leave nothing after the first of four rounds.
    assert measures(play(task, "best-responder"), "agent_0")["survival"] == 0
    assert measures(play(task, "promiser", "cheater"), "agent_1")["broken_selfish"] == 1


STAG = {"payoffs": {"C": {"C": 4, "D": 0}, "D": {"C": 3, "D": 2}}}
PRISONER = {"payoffs": {"C": {"C": 3, "D": 0}, "D": {"C": 5, "D": 1}}}


@pytest.mark.parametrize(
    ("worth", "row", "promise", "kind"),
    [
        (STAG, "CC", "D", "win_win"),  # 4 and 4 in place of 3 and 0
        (STAG, "DC", "C", "sabotaging"),  # 3 and 0 in place of 4 and 4
        (STAG, "DD", "C", "win_win"),  # 2 and 2 in place of 0 and 3: the other loses 1, and the sum rises
        (PRISONER, "CC", "D", "altruistic"),  # 3 and 3 in place of 5 and 0
        (PRISONER, "DC", "C", "selfish"),  # 5 and 0 in place of 3 and 3
        (PRISONER, "DD", "C", "selfish"),  # 1 and 1 in place of 0 and 5
    ],
)
def test_kinds_of_broken_promises(worth: dict[str, Any], row: str, promise: str, kind: str) -> None:
    assert broken_kind(game(worth), 0, tuple(row), promise) == kind


def game(worth: dict[str, Any]) -> Game:
    from tests.sotopia_env.outcomes.games import game as specification

    spec = specification(worth)
    assert isinstance(spec.protocol, ChoicesRules)
    return game_of(spec.protocol, spec.worth)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="plays"):
        make_policy("promiser:plays=nicely")


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_family_with_a_mechanism_is_the_same_tasks_with_other_rules(name: str) -> None:
    stem, _, mechanism = name.partition("-")
    for index in range(4):
        plain, task = (FAMILIES[one].generate(index, 2, "medium") for one in (stem, name))
        assert task.scenario.context == plain.scenario.context
        assert task.characters == plain.characters
        assert task.scenario.outcome != plain.scenario.outcome
        assert task.scenario.conditions == {"mechanism": mechanism}
        assert task.scenario.vignette == plain.scenario.id
        assert play(task, "promiser", "cheater").state.stop == "settled"


def test_mechanisms_change_what_scripts_do() -> None:
    contract = FAMILIES["public_goods-contract"].generate(0, 0, "medium")
    table = play(contract, "cooperator")
    # One offer and three acceptances bind all four for both rounds, whatever they would have done later.
    assert len(table.state.turns) == 4
    assert outcome_of(contract, table.state.turns).payoffs == (64.0,) * 4
    assert outcome_of(contract, play(contract, "cheater").state.turns).payoffs == (40.0,) * 4
    mediation = FAMILIES["dilemma-mediation"].generate(0, 0, "hard")
    assert outcome_of(mediation, play(mediation, "equilibrium").state.turns).efficiency == 1
    plain = FAMILIES["dilemma"].generate(0, 0, "hard")
    assert outcome_of(plain, play(plain, "equilibrium").state.turns).efficiency < 1
    reputation = FAMILIES["dilemma-reputation"].generate(0, 0, "hard")
    assert "Earlier, with others," in Table(reputation, seed=0).observe("agent_0").text


def test_volunteers_in_equilibrium_are_as_many_as_the_closed_form_says() -> None:
    task, n = FAMILIES["volunteer"].generate(0, 0, "hard"), 400  # 100,000 by studies.game_forms
    seats = len(task.agents)
    script, volunteers = make_policy("equilibrium"), 0
    for seed in range(n):
        table = Table(task, Rules(), seed=seed)
        asyncio.run(table.play(script))
        volunteers += rows(table)[0].count("C")
    chance = 1 - 0.5 ** (1 / (seats - 1))
    error = (chance * (1 - chance) / (n * seats)) ** 0.5
    assert abs(volunteers / (n * seats) - chance) < 2 * error


def test_a_person_chooses_by_a_form_and_a_model_by_a_function_or_a_schema() -> None:
    state = initial_state(dilemma(), Rules(), 0)
    for _ in range(2):
        state = transition(state, Action(argument="Well."))
    observation = observe(state, "agent_0")
    assert observation.moves is not None
    options = observation.moves.choose
    assert len(options) == 2
    assert [label for _, label in move_choices(observation.moves)] == [f"choose {option}" for option in options]
    assert '"choose"' in json.dumps(action_schema(observation))
    functions = {function["name"]: function["parameters"] for function in functions_of(observation)}
    assert functions["choose"]["properties"]["option"]["enum"] == [*options]
    assert "propose" not in functions
