"""How much of each chat prompt repeats the one before, so that a key-value cache can serve it."""

from __future__ import annotations

import json

from benchmarks.measure import Figure
from sotopia_env import tasks
from sotopia_env.action import Action, ActionType
from sotopia_env.dynamics import Rules, initial_state, transition
from sotopia_env.observation import SeatView

# Lengths of spoken turns in characters, as two negotiating models produce them.
SENTENCES = (
    "Good morning! I saw your notice and I am curious about it.",
    "It has been in my family for years and works as on the first day.",
    "That is good to hear. Would you come down a little for a quick sale?",
    "I could come down a little, if you carry it yourself.",
)


def reuse(task_count: int = 20) -> float:
    """Mean over turns after the first: characters of the prompt before, kept as a prefix, over characters now."""
    shares = []
    for name in tasks.FAMILIES:
        for task in tasks.generate(name, task_count, seed=5):
            shares += _episode(task)
    return sum(shares) / len(shares)


def _episode(task) -> list[float]:  # type: ignore[no-untyped-def]
    rules = Rules(max_turns=20, max_silent_turns=0)
    state = initial_state(task, rules, 0)
    views = {agent: SeatView(task, rules, agent) for agent in task.agents}
    before: dict[str, str] = {}
    shares = []
    while state.stop is None:
        actor = state.waiting[0]
        now = "".join(json.dumps(message) for message in views[actor].observe(state).messages)
        if actor in before:
            if not now.startswith(before[actor]):
                raise RuntimeError("a prompt does not extend the one before")
            shares.append(len(before[actor]) / len(now))
        before[actor] = now
        state = transition(state, Action(ActionType.SPEAK, SENTENCES[len(state.turns) % len(SENTENCES)]))
    return shares


def figures() -> list[Figure]:
    """Share of the prompt reused from turn to turn on 20-turn episodes of all families."""
    return [Figure("share of the chat prompt reused from turn to turn", reuse(), "", 0.95, at_most=False)]
