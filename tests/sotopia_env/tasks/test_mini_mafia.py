"""Mini-Mafia against its closed forms, and the scripts that speak in it."""

import asyncio
import math
from fractions import Fraction

import pytest

from sotopia_env.naming.policies import make_policy
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN, role_of, town_chance
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import social_acts

GAMES = 600


def seats(task: Task) -> dict[int, str]:
    """The agent of every role: mafioso, detective and villager."""
    labels = list(task.scenario.shared_data["roles"].values())  # type: ignore[union-attr]
    return {labels.index(seat.private_data["role"]): f"agent_{i}" for i, seat in enumerate(task.scenario.seats)}


async def town_wins(level: str, *names: str, games: int = GAMES) -> float:
    """The share of games in which the mafioso is arrested; ``names`` are scripts of mafioso, detective and villager."""
    tasks, policies, wins = list(generate("mini_mafia", 150, 5, level)), [make_policy(name) for name in names], 0
    for game in range(games):
        task = tasks[game % len(tasks)]
        agents = seats(task)
        table = Table(task, seed=game)
        await table.play({agents[role]: policies[role] for role in (HIDDEN, INFORMED, PLAIN)})
        assert not [turn for turn in table.state.turns if turn.violation]
        assert task.protocol is not None
        wins += task.protocol.outcome(table.state.table).terms["option"] == task.names[agents[HIDDEN]]
    return wins / games


ANY = {role: [other for other in range(3) if other != role] for role in range(3)}
CLOSED_FORMS = [
    # All vote at random; only the detective knows; the mafioso knows the detective besides; a villager that knows.
    ("medium", ("uniform", "uniform", "uniform"), Fraction(1, 3), [ANY[0], ANY[1], ANY[2]]),
    ("medium", ("mute", "mute", "mute"), Fraction(7, 12), [ANY[0], [HIDDEN], ANY[2]]),
    ("hard", ("mute", "mute", "mute"), Fraction(1, 2), [[INFORMED], [HIDDEN], ANY[2]]),
    ("medium", ("mute", "honest", "bayesian:doubt=0"), Fraction(1), [ANY[0], [HIDDEN], [HIDDEN]]),
    ("easy", ("deceiver", "honest", "honest"), Fraction(1), [ANY[0], [HIDDEN], [HIDDEN]]),
    # Two stories, of which the villager's own role refutes one half of the time.
    ("medium", ("deceiver", "honest", "bayesian"), Fraction(19, 24), None),
]


@pytest.mark.parametrize(("level", "names", "chance", "votes"), CLOSED_FORMS)
def test_the_town_wins_as_often_as_the_closed_form_says(level, names, chance, votes):
    if votes is not None:
        assert town_chance(votes) == chance
    share = asyncio.run(town_wins(level, *names))
    assert abs(share - chance) <= 2 * math.sqrt(chance * (1 - chance) / GAMES)


def test_a_game_has_nine_turns_and_a_vote_that_no_seat_can_cast_for_itself():
    task = generate("mini_mafia", 1, 0)[0]
    assert task.scenario.max_turns == 9
    table = Table(task)
    asyncio.run(table.play(make_policy("uniform")))
    assert len(table.state.turns) == 9
    assert all(turn.action.move is None for turn in table.state.turns[:6])
    assert all(turn.action.move.content != task.names[turn.actor] for turn in table.state.turns[6:])


def test_the_change_of_a_bayesian_belief_is_a_martingale():
    """Among seats that lie as often as is assumed, the mean belief in the truth's rivals is that of the start."""
    doubt, total = 0.5, 0.0
    liar = make_policy(f"deceiver:lies={doubt}")
    listener = make_policy(f"bayesian:doubt={doubt}")
    for game in range(300):
        task = generate("mini_mafia", 1, 0, "medium", start=game)[0]
        agent = seats(task)[PLAIN]
        table = Table(task, seed=game)
        while len(table.state.turns) < 6:
            asyncio.run(table.step(liar))
        first = table.observe(agent).briefing.partners[0]
        label = task.scenario.shared_data["roles"]["hidden"]
        total += listener.beliefs(table.observe(agent))[role_of(first.name)][label] - 0.5
    assert abs(total / 300) < 2 * 0.5 / math.sqrt(300)


def test_no_briefing_names_a_role_that_its_seat_does_not_know():
    for task in generate("mini_mafia", 30, 1, "medium"):
        facts = task.scenario.facts
        assert facts is not None
        agents = seats(task)
        assert facts.view(agents[PLAIN]).knowledge.keys() == {role_of(task.names[agents[PLAIN]])}
        assert facts.view(agents[INFORMED]).knowledge == facts.truth
        worths = task.scenario.outcome.worth
        assert worths[task.seat_of[agents[PLAIN]]] == worths[task.seat_of[agents[INFORMED]]]


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
@pytest.mark.parametrize(("name", "promises"), [("honest", "kept"), ("oracle", "kept"), ("deceiver", "broken")])
def test_announced_votes_are_kept_by_the_honest_and_broken_by_liars(level: str, name: str, promises: str):
    for game, task in enumerate(generate("mini_mafia", 4, 3, level)):
        plain, announced = (Table(task, seed=game) for _ in range(2))
        asyncio.run(plain.play(make_policy(name)))
        asyncio.run(announced.play(make_policy(f"{name}:announces=true")))
        classes = [
            act.classes for act in social_acts(task, announced.state.turns) if act.variable.startswith("vote of")
        ]
        assert {one for group in classes for one in group} & {"kept", "broken", "void"} == {promises}
        assert not [act for act in social_acts(task, plain.state.turns) if {"kept", "broken"} & {*act.classes}]
