"""One transcript of a run as it grows: when its episode ends, the next one that begins is followed."""

from __future__ import annotations

from collections.abc import Callable

from sotopia_env.episode import Episode, RecordedTurn
from sotopia_env.plan import EpisodePlan
from sotopia_env.transcript import beginning, conclusion, printable, turn_text


class LiveTranscript:
    """A :class:`~sotopia_env.episode_player.Watcher` that writes one episode at a time."""

    def __init__(self, say: Callable[[str], object]) -> None:
        """Begins.

        Args:
            say: writes some lines.
        """
        self._say = say
        self._key = ""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """Writes the turn if its episode is the one that is followed."""
        if not self._key and turn.turn.index == 0:  # from the beginning or not at all
            self._key = plan.key
            policies = dict(zip(plan.task.agents, (policy.name for policy in plan.policies), strict=True))
            self._say(printable(beginning(plan.key, plan.task, plan.episode_seed, policies)))
        if plan.key == self._key:
            self._say(printable(turn_text(turn, plan.task, plan.rules)))

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """Writes how it ended, and looks for another episode to follow."""
        if plan.key != self._key:
            return
        self._key = ""
        self._say(printable(conclusion(episode) if episode is not None else f"Not finished: {why}") + "\n")
