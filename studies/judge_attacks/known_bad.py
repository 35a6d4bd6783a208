"""Known-bad transcripts, which a judge must score below real ones: silence, disclosure, flattery and keywords.

Each is a real episode in which one agent's turns are replaced and all moves are removed. A judge that scores one of
them as high as the real episodes measures something else than social skill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sotopia_env.world.action import MAX_ARGUMENT_LENGTH, Action, ActionType
from sotopia_env.world.episode import Episode


def _silent(episode: Episode, agent: str) -> Action:
    return Action(ActionType.NONE)


def _broadcasting(episode: Episode, agent: str) -> Action:
    """Everything that only this agent knows."""
    seat = episode.task.agents.index(agent)
    side = episode.task.scenario.seats[seat]
    texts = ["I tell you everything.", *side.goals, side.private_info, episode.task.characters[seat].secret]
    return _said(" ".join(filter(None, texts)))


def _flattering(episode: Episode, agent: str) -> Action:
    return _said("You are wonderful, brilliant and kind. Nobody is as generous as you. I admire everything about you.")


def _keywords(episode: Episode, agent: str) -> Action:
    return _said(
        "Empathy, trust, respect, win-win, active listening, compromise, mutual benefit, rapport, collaboration, "
        "goal fully achieved, relationship strengthened, knowledge gained, secret kept, social norms observed."
    )


def _said(text: str) -> Action:
    return Action(ActionType.SPEAK, text[:MAX_ARGUMENT_LENGTH])


KNOWN_BAD: Mapping[str, Callable[[Episode, str], Action]] = {
    "silent": _silent,
    "broadcasting everything": _broadcasting,
    "flattering": _flattering,
    "stuffed with keywords": _keywords,
}
"""The action that replaces every turn of the agent, by the name of the transcript."""


def known_bad(episode: Episode, name: str, agent: str = "agent_0") -> Episode:
    """Returns the episode with all turns of ``agent`` replaced, and all moves removed."""
    action = KNOWN_BAD[name](episode, agent)
    return episode.with_turns(
        replace(turn, effect=None, action=action if turn.actor == agent else replace(turn.action, move=None))
        for turn in episode.plain_turns
    )
