"""A person who makes moves at the terminal: menus in words, terms issue by issue, and a whole episode of each kind."""

from __future__ import annotations

import asyncio
import sys

import pexpect
import pytest

from sotopia_env.policies import HumanPolicy
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, StopReason, initial_state, transition
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import outcome_of
from tests.sotopia_env.outcome_tasks import ballot, contract, riddle, sale
from tests.sotopia_env.policies.doubles import act, observed
from tests.sotopia_env.policies.test_llm_moves import OFFER, action


def keyboard(*answers):
    """A policy whose person types these lines, and everything it reads."""
    lines, screen = list(answers), []

    def read(prompt):
        screen.append(prompt)
        if not lines:
            raise EOFError
        return lines.pop(0)

    return HumanPolicy(read, screen.append), screen


def typed(observation, *answers):
    policy, screen = keyboard(*answers)
    return act(policy, observation), screen


TERMS = {"price": 84, "start": "June 1", "firewood": {"agent_0": 2, "agent_1": 1}}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["speak", "Hm.", ""], action(argument="Hm.")),
        (["speak", "Deal.", "2"], action({"accept": 1}, "Deal.")),
        (["speak", "", "2"], action({"accept": 1}, "")),
        (["speak", "No.", "3"], action({"reject": 1}, "No.")),
        (["speak", "", "", "speak", "Hm.", ""], action(argument="Hm.")),  # neither words nor a move: from the start
        (["speak", "So.", "1", "84", "june 1", "2"], action({"propose": TERMS}, "So.")),
        (["speak", "So.", "1", "$84.00", "1", "2"], action({"propose": TERMS}, "So.")),
        (["action", "Shrugs.", "9", "two", "2"], Action(ActionType.ACTION, "Shrugs.", move=action({"accept": 1}).move)),
        (["leave"], Action(ActionType.LEAVE)),
        (["speak", "Hm.", "1", "84"], Action(ActionType.LEAVE)),  # the input ends
    ],
)
def test_answers(answers, expected):
    assert typed(observed(contract(), OFFER), *answers)[0] == expected


def test_the_menu_is_in_words_and_the_instructions_for_models_are_not_there():
    _, screen = typed(observed(contract(), OFFER), "speak", "Hm.", "")
    text = "\n".join(screen)
    assert "action_type" not in text
    assert '{"accept"' not in text
    assert "On the table:\n  #1 by Ada Testa: price $84" in text
    terms = "(price $84, start June 1, firewood: Ada Testa 1, Bram Testa 2)"
    assert screen[3:5] == [
        "Moves are binding, words alone are not. Open to you:\n"
        f"  1 = make an offer\n  2 = accept Ada Testa's offer #1 {terms}\n  3 = reject Ada Testa's offer #1 {terms}",
        "Which move? (Enter for none) ",
    ]


def test_terms_are_asked_for_issue_by_issue_with_ranges_options_and_defaults():
    choice, screen = typed(observed(contract(), OFFER), "speak", "", "1", "", "2", "")
    assert choice == action({"propose": {**OFFER.move.content, "start": "June 15"}}, "")
    assert screen[-4:] == [
        "price (a number from $0 to $394 in steps of $1; Enter for $84): ",
        "start (1 = June 1, 2 = June 15; Enter for June 1): ",
        "firewood: how many of 3 for Ada Testa? (0 to 3; Enter for 1) ",
        "firewood: Ada Testa 1, Bram Testa 2.",
    ]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (["500", "84", "1", "1"], ("price", '"500"', "$394")),
        (["84.4", "84", "1", "1"], ("price", "$84")),
        (["", "84", "1", "1"], ("price",)),
        (["lots", "84", "1", "1"], ("price", '"lots"')),
        (["84", "June 2", "1", "1"], ("start", '"June 1"')),
        (["84", "3", "1", "1"], ("start", '"June 1"')),
        (["84", "1", "4", "1"], ("firewood", "3")),
        (["84", "1", "-1", "1"], ("firewood", "0")),
        (["84", "1", "1.5", "1"], ("firewood", "0 to 3")),
    ],
)
def test_wrong_values_are_explained_and_asked_for_again(answers, words):
    choice, screen = typed(observed(contract()), "speak", "", "1", *answers)
    assert choice.move.content["price"] == 84
    (line,) = [text for text in screen if text.startswith("That cannot be offered: ")]
    assert all(word in line for word in words)


def test_a_move_that_is_refused_is_asked_for_again():
    task = sale(3, private_messages=True)
    choice, screen = typed(observed(task), "speak", "Psst.", "agent_1", "1", "5", "")
    assert choice == Action(ActionType.SPEAK, "Psst.", ("agent_1",))
    assert any("That move is not possible: a private offer must reach" in text for text in screen)


def test_an_empty_claim_is_asked_for_again():
    choice, screen = typed(observed(riddle()), "speak", "", "1", "", "Bo Li")
    assert choice == action({"claim": "Bo Li"}, "")
    assert any(text.startswith("That cannot be claimed: ") for text in screen)


# ---------------------------------------------------------------------------------------------------------------------
# Whole episodes
def play(task, *people, rules=None):
    """An episode between people who type; returns its record."""
    policies = [keyboard(*lines)[0] for lines in people]
    state = initial_state(task, rules or Rules(), 0)
    while state.actor is not None:
        observation = observe(state, state.actor)
        decision = asyncio.run(policies[task.agents.index(state.actor)].act(observation, 0))
        state = transition(state, decision.action)
    return Episode.of_state(state)


SPEAK = "speak"
EPISODES = {
    "a counter-offer is accepted": (
        contract(),
        [[SPEAK, "84?", "1", "84", "1", "3", SPEAK, "Fine.", "2"], [SPEAK, "No: 150.", "1", "150", "2", "1"]],
        {"price": 150, "start": "June 15", "firewood": {"agent_0": 1, "agent_1": 2}},
    ),
    "an offer is rejected, withdrawn and made again": (
        sale(),
        [
            [SPEAK, "", "1", "10", SPEAK, "", "1", "20", SPEAK, "", "2", SPEAK, "30", "1", "30"],
            [SPEAK, "No", "3", "action", "Waits.", "", SPEAK, "Well?", "", SPEAK, "Yes", "2"],
        ],
        {"price": 30},
    ),
    "a vote is changed": (
        ballot(3),
        [[SPEAK, "", "1", SPEAK, "The park then.", "2"], [SPEAK, "", "2"], ["none", SPEAK, "", "2"]],
        {"option": "park"},
    ),
    "a wrong claim is followed by the right one": (
        riddle(),
        [[SPEAK, "", "1", "ana lee", SPEAK, "", "1", "bo  li"], [SPEAK, "", "1", "Bo Li"]],
        {"claims": {"agent_0": "Bo Li", "agent_1": "Bo Li"}},
    ),
}


@pytest.mark.parametrize(("task", "people", "terms"), EPISODES.values(), ids=EPISODES)
def test_whole_episodes(task, people, terms):
    episode = play(task, *people)
    assert not [turn.violation for turn in episode.plain_turns if turn.violation]
    assert (episode.stop, outcome_of(task, episode.plain_turns).terms) == (StopReason.SETTLED, terms)


TERMINAL = """
import asyncio
from sotopia_env.policies import HumanPolicy
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import observe
from tests.sotopia_env.outcome_tasks import sale
state = initial_state(sale(), Rules(), 0)
while state.actor is not None:
    state = transition(state, asyncio.run(HumanPolicy().act(observe(state, state.actor), 0)).action)
print("END", state.stop.value, state.turns[-1].effect)
"""


def test_at_a_real_terminal():
    child = pexpect.spawn(sys.executable, ["-c", TERMINAL], encoding="utf-8", timeout=30, echo=False)
    for prompt, line in (
        ("What do you do", "2"),
        ("What do you say", "How about 40?"),
        ("Which move", "1"),
        ("price (a number from $0.00 to $100.00 in steps of $0.50): ", "140"),
        ("$100.00", "40"),
        ("2 = speak", "speak"),
        ("What do you say", ""),
        ("2 = accept Ada Testa's offer", "2"),
    ):
        child.expect_exact(prompt)
        child.sendline(line)
    child.expect_exact("END settled accepts #1 (price $40.00)")
    child.close()
