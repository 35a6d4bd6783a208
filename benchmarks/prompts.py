"""Share of each chat prompt that repeats the one before, which a key-value cache can serve."""

from __future__ import annotations

from benchmarks.measure import Figure
from sotopia_env import tasks
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import SeatView
from sotopia_env.world.scenario import Task

# Lengths of spoken turns in characters, as two negotiating models produce them.
SENTENCES = (
    "Good morning! I saw your notice and I am curious about it.",
    "It has been in my family for years and works as on the first day.",
    "That is good to hear. Would you come down a little for a quick sale?",
    "I could come down a little, if you carry it yourself.",
)


def shares(task_count: int = 20) -> tuple[float, float]:
    """Two means over all turns after a seat's first, in characters of the messages' contents.

    The first is the share of the prompt before. The second adds the seat's own answer to it, which a server that caches
    generated text has, too.
    """
    episodes = [_episode(task) for name in tasks.FAMILIES for task in tasks.generate(name, task_count, seed=5)]
    turns = [turn for episode in episodes for turn in episode]
    return tuple(sum(share) / len(turns) for share in zip(*turns, strict=True))  # type: ignore[return-value]


def _episode(task: Task) -> list[tuple[float, float]]:
    rules = Rules(max_turns=20, max_silent_turns=0)
    state = initial_state(task, rules, 0)
    views = {agent: SeatView(task, rules, agent) for agent in task.agents}
    before: dict[str, list[str]] = {}
    rows = []
    while state.stop is None:
        actor = state.waiting[0]
        now = [message["content"] for message in views[actor].observe(state).messages]
        if actor in before:
            old = before[actor]
            if now[: len(old)] != old:
                raise RuntimeError("a prompt does not extend the one before")
            # ``now[len(old)]`` is the seat's own answer, which follows the earlier prompt.
            size, prefix = sum(map(len, now)), sum(map(len, old))
            rows.append((prefix / size, (prefix + len(now[len(old)])) / size))
        before[actor] = now
        state = transition(state, Action(ActionType.SPEAK, SENTENCES[len(state.turns) % len(SENTENCES)]))
    return rows


def figures() -> list[Figure]:
    """Share of the prompt that repeats on 20-turn episodes of all families."""
    prompt, with_answer = shares()
    return [
        Figure("chat prompt: share of the prompt before", prompt, "", 0.9, at_most=False),
        Figure("chat prompt: share of the prompt and answer before", with_answer, "", 0.9, at_most=False),
    ]
