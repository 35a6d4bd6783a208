"""A fixed conversation of two seats, by which a change of what code writes into prompts is noticed.

Prompt files are hashed one by one (:attr:`sotopia_env.policies.agent_prompt.AgentPrompt.hashes`); tables of worths, the
lines of turns, effects and failures are written by code. The conversation has an agreement on a number, a choice and
items, a fact and a norm, private words, an answer that could not be read, a move that was refused, an offer at a loss
and one at a gain, and the seat's last turn. A change that it does not show, as one of ballots alone, goes unnoticed.
"""

from __future__ import annotations

import json

from sotopia_env.world.action import NO_ACTION, Action
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Generation
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task

_OUTCOME = {
    "protocol": {"kind": "agreement", "needs": "all", "standing": "own"},
    "issues": [
        {"name": "price", "kind": "number", "low": 10, "high": 90, "step": 5, "unit": "$"},
        {"name": "day", "kind": "choice", "options": ["Monday", "Friday"]},
        {"name": "firewood", "kind": "items", "count": 2},
    ],
    "worth": [
        {
            "constant": 60,
            "issues": {"price": {"per_unit": -1}, "day": {"Monday": 0, "Friday": 4}, "firewood": {"each": 2}},
            "no_agreement": 3,
        },
        {
            "constant": -30,
            "issues": {"price": {"per_unit": 1}, "day": {"Monday": 6, "Friday": 0}, "firewood": {"each": 1}},
        },
    ],
}
_HALVES = {"firewood": {"agent_0": 1, "agent_1": 1}}
_FACTS = {
    "variables": [{"name": "condition", "options": ["sound", "worn"], "value": "worn", "known_by": ["agent_0"]}],
    "norms": ["honesty"],
}
_PERSON = {"age": 41, "gender": "woman", "pronouns": "she/her", "occupation": "gardener"}
_TASK = {
    "id": "prompt-sample",
    "scenario": {
        "id": "prompt-sample",
        "context": "Two neighbours talk over a wheelbarrow.",
        "private_messages": True,
        "seats": [
            {"goals": ["Buy the wheelbarrow."], "private_info": "You have a lawn to lay on Saturday."},
            {"goals": ["Sell the wheelbarrow."]},
        ],
        "outcome": json.dumps(_OUTCOME),
        "facts": json.dumps(_FACTS),
    },
    "characters": [
        {**_PERSON, "first_name": "Ida", "last_name": "Okoro", "secret": "Borrowed it once without asking."},
        {**_PERSON, "first_name": "Tom", "last_name": "Varga"},
    ],
    "relationships": [{"seats": [0, 1], "kind": "stranger"}],
}


def sample_observations() -> tuple[Observation, ...]:
    """Returns what the first seat of the sample observes in each of its four turns.

    Observations extend a conversation that they share, so that two threads must not have the same ones.
    """
    table = Table(Task.model_validate(_TASK), Rules(max_turns=8))
    actions = (
        Action(argument="Good morning.", move={"propose": {"price": 20, "day": "Friday", **_HALVES}}),
        Action(argument="Too little.", move={"propose": {"price": 80, "day": "Monday", **_HALVES}}),
        NO_ACTION,
        Action(argument="Then this.", to=("agent_0",), move={"propose": {"price": 45, "day": "Friday", **_HALVES}}),
        Action(argument="I take that back.", move={"withdraw": 9}),
        NO_ACTION,
    )
    observed = []
    for number, action in enumerate(actions):
        agent = f"agent_{number % 2}"
        if number % 2 == 0:
            observed.append(table.observe(agent))
        unread = action is NO_ACTION and number % 2 == 0
        table.answer(agent, action, Generation(text="well", parse_failure="no JSON object") if unread else None)
    return (*observed, table.observe("agent_0"))
