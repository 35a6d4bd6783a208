"""A task with an interview, and answers to it, for the tests of several folders."""

from __future__ import annotations

import json
from typing import Any

from sotopia_env.chat_model.protocol import ChatRequest
from sotopia_env.world import Scenario, Task
from sotopia_env.world.interview import Interview
from tests.sotopia_env.factories import task

RIGHT = "The hall is haunted by an oboist."
WRONG = ("The hall is promised to bakers.", "The hall is flooded every autumn.", "The hall is listed for demolition.")
BALLOT = {
    "protocol": {"kind": "ballot", "options": ["hall", "garden"], "rule": "majority"},
    "worth": [
        {"options": {"hall": 4, "garden": 1}},
        {"options": {"hall": 2, "garden": -3}},
        {"options": {"hall": 0, "garden": 5}},
    ],
}
INTERVIEW: dict[str, Any] = {
    "template": "fair",
    "domain": "small society",
    "roles": ["sender", "receiver", "receiver"],
    "goal_types": [["competition", "cooperation"], ["information acquisition"], ["relationship building"]],
    "questions": [{"about": 0, "text": "What is it with the hall?", "answer": RIGHT, "wrong": WRONG}],
    "goal_tests": [{"seat": 0, "goal": 0, "terms": {"option": ["hall"]}}, {"seat": 2, "goal": 0, "worth_at_least": 5}],
}
GOALS = (("Get the hall chosen.", "Keep the peace."), ("Learn why.",), ("Sit outside.",))


def fair(name: str = "fair/0", outcome: dict[str, Any] | None = BALLOT, **fields: Any) -> Task:
    """Three seats; the first one has private information, and two goals have an exact test."""
    seats: list[dict[str, Any]] = [{"goals": goals} for goals in GOALS]
    seats[0]["private_info"] = f"{RIGHT} Nobody must know."
    interview = INTERVIEW | ({} if outcome else {"goal_tests": []}) | fields
    raw = {
        "id": interview["template"],
        "context": "A fair.",
        "seats": seats,
        "outcome": outcome,
        "interview": interview,
    }
    of = task(3, id=name, scenario=Scenario.model_validate(raw))
    assert isinstance(of.scenario.interview, Interview)
    return of


def question_of(text: str) -> dict[str, str]:
    """The options of a multiple-choice question in a request's text, by letter; none for a question on a goal."""
    lines = [line.partition(": ") for line in text.splitlines() if line[1:3] == ": " and line[0] in "ABCDEFGH"]
    return {letter: json.loads(option) for letter, _, option in lines}


def answering(request: ChatRequest, choice: str = RIGHT, goal: str = "yes") -> str:
    """A model's answer to an interview's request: ``choice`` by its letter, ``goal`` to every question on a goal."""
    texts = [message["content"] for message in request.messages if "The situation is over" in message["content"]]
    options = question_of(texts[-1])
    return json.dumps({"answer": next((letter for letter, text in options.items() if text == choice), goal)})
