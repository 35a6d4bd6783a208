"""The page of a seat without a studio: what a person reads, what they can do, and who acts for them."""

from __future__ import annotations

from sotopia_env import Table, tasks
from sotopia_env.people.seat.assistance import Help, RecordedAdvice, Steering
from sotopia_env.people.seat.page import seat_page
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType, Advice
from sotopia_env.world.episode import Generation

SAID = Action(ActionType.SPEAK, "The red one is mine.")


def test_only_the_seat_that_acts_has_a_form() -> None:
    table = Table(tasks.generate("bargaining", 1, 0)[0], seed=0)
    (first,) = table.acting
    (second,) = set(table.task.agents) - {first}
    page, other = (seat_page(table, agent, acting=agent == first, ended=False) for agent in (first, second))
    assert page.actions
    assert page.terms
    assert page.scale is not None
    assert other.actions == other.moves == other.terms == ()
    table.answer(first, SAID, Generation())
    told = seat_page(table, second, acting=True, ended=False, deadline=60.0)
    assert [(card.text, card.mine) for card in told.turns] == [(SAID.argument, False)]
    assert (told.count, told.deadline) == (1, 60.0)


def test_an_assistant_acts_until_the_person_takes_over() -> None:
    advice = Advice(policy="boulware", mode="act", action=SAID, seconds=0.0)
    given = RecordedAdvice(agent="agent_0", turn=2, advice=advice)
    assert Help.of([given], 2).plays("agent_0")
    assert not Help.of([given], 3).plays("agent_0")  # it was about an earlier turn
    taken = Help.of([given, Steering(agent="agent_0", is_by_person=True)], 2)
    assert not taken.plays("agent_0")
    assert Help.of([given], 2).steered("agent_1", True).plays("agent_0")
    assert taken.steered("agent_0", False).played("agent_0")[0] == SAID
    followed = taken.followed("agent_0", SAID, is_copied=True)
    assert followed is not None
    assert (followed.response, followed.is_copied) == ("same", True)
