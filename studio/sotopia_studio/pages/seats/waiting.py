"""What a person reads while the others have the turn: who is thinking, slow, absent, or cannot be reached, in words."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from sotopia_env.world import TurnOrder
from sotopia_studio.live import LiveEpisode
from sotopia_studio.store.jobs import Delay
from sotopia_studio.work.standing import Standing

# The same words whoever sits there: nothing may tell a person's seat from a program's as long as both answer.
_DELAYS = {
    "queued": "The server is busy. The conversation goes on by itself as soon as it can.",
    "interrupted": "The server was interrupted. The conversation goes on by itself within half a minute, and nothing "
    "is lost.",
    "retrying": "{names} cannot be reached: no answer comes through. The server tries again every few seconds, and "
    "nothing is lost. You may wait or leave.",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the conversation waits.

    Attributes:
        state: ``thinking``; ``slow`` (for longer than usual); ``absent`` (a person whose page is closed); ``expected``
            (a person who has not come yet); or the delay of the server: ``queued``, ``interrupted``, ``retrying``.
        words: for the person who waits.
        since: the time from which they have been waiting, in seconds since the epoch.
    """

    state: Literal["thinking", "slow", "absent", "expected"] | Delay
    words: str
    since: float


def wait_of(live: LiveEpisode, agent: str, standing: Standing) -> Wait:
    """Returns why the conversation waits, for the person in the seat ``agent``."""
    # In reactive order, who acts now is an appointment that the others do not know of.
    is_open = live.table.state.rules.turn_order is not TurnOrder.REACTIVE
    acting = [other for other in live.table.acting if other != agent] if is_open else []
    names = _names(live, acting)
    verb = "is" if len(acting) == 1 else "are"
    if standing.delay:
        return Wait(standing.delay, _DELAYS[standing.delay].format(names=names), standing.since)
    if acting and live.expected.issuperset(acting):
        has = "has" if len(acting) == 1 else "have"
        return Wait("expected", f"{names} {has} not come yet. The conversation goes on when they do.", standing.since)
    if acting and standing.absent.issuperset(acting):
        return Wait("absent", f"{names} {verb} not connected.{_consequence(live)}", standing.since)
    if standing.slow:
        words = f"{names} {verb} still thinking, for longer than usual. You may wait or leave."
        return Wait("slow", words, standing.since)
    return Wait("thinking", f"{names} {verb} thinking …", standing.since)


def absences(live: LiveEpisode, agent: str, standing: Standing) -> list[str]:
    """Returns in words who has left for good, and who is not connected though nobody waits for them."""
    if live.ended:
        return []
    left = [other for other in live.spec.task.agents if other in live.table.state.left and other != agent]
    away = [other for other in live.spec.task.agents if other in standing.absent and other not in (agent, *left)]
    waits = agent not in live.awaited
    lines = [f"{_names(live, left)} left the conversation and will not answer."] if left else []
    if away and not (waits and set(live.table.acting) <= set(away)):
        lines.append(f"{_names(live, away)} {'is' if len(away) == 1 else 'are'} not connected at the moment.")
    return lines


def _names(live: LiveEpisode, agents: list[str]) -> str:
    names = [live.spec.task.names[agent] for agent in agents]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "The others"


def _consequence(live: LiveEpisode) -> str:
    if live.deadline is None:
        return " The conversation waits."
    minutes = max(1, -(-int(live.deadline - time.time()) // 60))
    effect = "the character leaves" if live.spec.on_timeout == "leave" else "the turn passes"
    return f" If no answer comes within {minutes} min, {effect}."
