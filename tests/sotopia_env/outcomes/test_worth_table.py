"""The table of worths: its rungs are the worth itself, name the seat's own end of a range, and can be switched off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sotopia_env import tasks
from sotopia_env.outcomes.issues import NumberIssue
from sotopia_env.outcomes.space import OutcomeSpace
from sotopia_env.outcomes.worth import AdditiveWorth, worth_table
from sotopia_env.policies.agent_prompt import FORMATS, AgentPrompt
from sotopia_env.world import Rules
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.observation import observe
from tests.sotopia_env.world.scenarios import say

NAMES = {"agent_0": "Ada Testa", "agent_1": "Bram Testa"}


def number(low: int, high: int, **worth: float) -> tuple[NumberIssue, OutcomeSpace, AdditiveWorth]:
    issue = NumberIssue(name="price", low=low, high=high, unit="$")
    gain = worth.pop("gain")
    return issue, OutcomeSpace((issue,), NAMES), AdditiveWorth(issues={"price": {"per_unit": gain}}, **worth)


@given(
    low=st.integers(-50, 50),
    width=st.integers(0, 300),
    gain=st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0]),
    constant=st.integers(-200, 200),
    without=st.sampled_from([-10.0, 0.0, 2.5, 7.0]),
)
def test_the_rungs_of_a_number_are_its_worth_from_the_best_to_the_worst(low, width, gain, constant, without):
    issue, space, worth = number(low, low + width, gain=gain, constant=constant, no_agreement=without)
    rungs = worth_table(space, worth, "agent_0").rungs["price"]
    assert 1 <= len(rungs) <= 5
    values = [worth.value(space, {"price": rung.value}) for rung in rungs]
    assert [rung.worth for rung in rungs] == values == sorted(values, reverse=True)
    every = [worth.value(space, {"price": value}) for value in issue.values(space.names)]
    assert (values[0], values[-1]) == (max(every), min(every))
    # The last price without a loss is among them, and only a price that gains nothing is called that.
    without_loss = [value for value in every if value >= without]
    assert not without_loss or min(without_loss) in values
    assert all(rung.worth == without for rung in rungs if rung.note == "no gain")
    assert gain == 0 or width == 0 or [rungs[0].note, rungs[-1].note] == ["best", "worst"]


@pytest.mark.parametrize("family", [name for name in tasks.FAMILIES if name not in ("mini_mafia", "briefing")])
def test_every_seat_has_the_parts_of_all_its_issues(family):
    (task,) = tasks.generate(family, 1, seed=5)
    for seat, agent in enumerate(task.agents):
        briefing = observe(initial_state(task, Rules(), 0), agent).briefing
        worth = task.scenario.outcome.worth[seat]
        if not isinstance(worth, AdditiveWorth):
            assert briefing.worths is None
            continue
        space, table = task.protocol.space, briefing.worths
        assert list(table.rungs) == [issue.name for issue in space.issues]
        best = table.constant + sum(max(rung.worth for rung in rungs) for rungs in table.rungs.values())
        outcomes = [worth.value(space, terms, agent) for terms in space.outcomes()] if space.size < 50_000 else [best]
        assert best == pytest.approx(max(outcomes))
        assert table.disagreement == worth.disagreement


@pytest.mark.parametrize("format_", FORMATS)
def test_prompts_hold_the_worths_of_open_offers_unless_the_rules_switch_them_off(format_):
    (task,) = tasks.generate("bargaining", 1, seed=3)
    texts = {}
    for worths in (True, False):
        state = initial_state(task, Rules(worths=worths), 0)
        price = task.scenario.outcome.issues[0].value_at(7)
        state = transition(state, say("This?", propose={"price": price}))
        observation = observe(state, "agent_1")
        value = task.scenario.outcome.worth[1].value(task.protocol.space, {"price": price}, "agent_1")
        assert observation.offer_worths() == observation.offer_gains() == ({1: value} if worths else {})
        assert observation.acting
        assert ActionType.SPEAK in observation.available
        texts[worths] = "\n".join(message["content"] for message in AgentPrompt(format_).messages(observation))
    for word in ("(best)", "(no gain)", "(worst)"):
        assert word in texts[True]
        assert word not in texts[False]
    assert value < 0
    assert f"loses {-value:.15g}" in texts[True] or f"#1 {value:.15g}" in texts[True]


def test_another_seats_worths_are_in_no_observation():
    (task,) = tasks.generate("bargaining", 1, seed=3)
    state = transition(initial_state(task, Rules(), 0), say("This?", propose={"price": 100}))
    seats = [observe(state, agent) for agent in task.agents]
    assert seats[0].offer_worths() != seats[1].offer_worths()
    for own, other in (seats, seats[::-1]):
        assert f"#1 {other.offer_worths()[1]:.15g}" not in own.text
