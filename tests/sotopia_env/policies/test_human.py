"""The person at the terminal, with a script for a keyboard."""

import asyncio
import threading

import pytest

from sotopia_env.policies import HumanPolicy
from sotopia_env.world.action import MAX_ARGUMENT_LENGTH, Action, ActionType
from sotopia_env.world.dynamics import Rules
from tests.sotopia_env.factories import scenario, task
from tests.sotopia_env.policies.doubles import act, observed

SPEAK, LEAVE, NONE = ActionType.SPEAK, ActionType.LEAVE, ActionType.NONE
PRIVATE = task(3, scenario=scenario(3, private_messages=True))


def at_the_keyboard(*answers, of=None, rules=None):
    """What the person does who types these lines and then ends the input, and all that was shown."""
    left, screen = list(answers), []

    def read(prompt):
        screen.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    return act(HumanPolicy(read, screen.append), observed(of or task(), rules=rules)), screen


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["2", "Good day."], Action(SPEAK, "Good day.")),
        (["speak", " Good day. "], Action(SPEAK, "Good day.")),
        ([" Speak ", "Good day."], Action(SPEAK, "Good day.")),
        (["non-verbal communication", "nods"], Action(ActionType.NON_VERBAL, "nods")),
        (["1"], Action(NONE)),
        (["5"], Action(LEAVE)),
        (["two", "", "0", "6", "2.0", "²", "-1", "2", "Hi."], Action(SPEAK, "Hi.")),  # guards S30: asks again
        (["2", "", "   ", "Hi."], Action(SPEAK, "Hi.")),
        (["2", "x" * (MAX_ARGUMENT_LENGTH + 1), "2", "Hi."], Action(SPEAK, "Hi.")),
        ([], Action(LEAVE)),
        (["2"], Action(LEAVE)),
    ],
)
def test_answers(answers, expected):
    assert at_the_keyboard(*answers)[0] == expected


@pytest.mark.parametrize(
    ("answer", "to"),
    [
        ([""], ()),
        (["Bram Testa"], ("agent_1",)),
        (["bram testa, agent_2, Bram Testa"], ("agent_1", "agent_2")),
        (["Nobody", "agent_2"], ("agent_2",)),
    ],
)
def test_recipients(answer, to):
    assert at_the_keyboard("2", "Psst.", *answer, of=PRIVATE)[0] == Action(SPEAK, "Psst.", to)


def test_the_observation_without_the_instructions_for_models_and_the_reasons_are_shown():
    _, screen = at_the_keyboard("shout", "1")
    assert observed(task()).text.startswith(screen[0])
    assert screen[0].endswith("Turn #1 is yours.")
    assert any("got 'shout'" in text for text in screen)


def test_only_available_types_can_be_chosen():
    rules = Rules(action_types=(SPEAK,))
    action, screen = at_the_keyboard("leave", "2", "Hi.", rules=rules)
    assert action == Action(SPEAK, "Hi.")
    assert "leave" not in screen[1]
    assert at_the_keyboard(rules=rules)[0] == Action(NONE)


def test_others_go_on_while_the_person_thinks():
    go_on = threading.Event()

    def read(prompt):
        assert go_on.wait(5)
        return "1"

    async def both():
        thinking = asyncio.create_task(HumanPolicy(read, lambda text: None).act(observed(task()), 0))
        await asyncio.sleep(0.01)
        assert not thinking.done()
        go_on.set()
        return await thinking

    assert asyncio.run(both()).action == Action(NONE)


def test_others_words_cannot_control_the_terminal():
    nasty = task(scenario=scenario(context="A room.\x1b[2J\x07\u202eeno"))
    _, screen = at_the_keyboard("leave", of=nasty)
    assert not [c for text in screen for c in text if c in "\x1b\x07\u202e"]
    assert "\\u001b[2J\\u0007\\u202eeno" in screen[0]
