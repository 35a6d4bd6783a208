"""The end of a conversation on a seat's page: the reason, the result, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.people.seat.worth import worth_text
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_env.world.dynamics import StopReason
from sotopia_studio.auth import Principal
from sotopia_studio.live import LiveEpisode
from sotopia_studio.store import episodes, studies
from sotopia_studio.studies.play import dropped_out

_REASONS = {
    StopReason.SETTLED: "It is settled: nothing more can be decided.",
    StopReason.SILENCE: "Nobody said anything any more.",
    StopReason.TURN_LIMIT: "The turn limit was reached.",
}
_BROKEN = {
    "failed": "It broke off: no answer came through for too long. That is not your doing, and what was said is kept.",
    "stopped": "It was stopped by those who run it. What was said is kept.",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a conversation for the person in a seat.

    Attributes:
        reason: why it ended.
        result: what the person gets; empty if that is not known (yet), or not to be shown.
        following: thanks, and what comes next.
        address: the next page; empty if the person may close this one.
        link: the words of the link to it.
    """

    reason: str
    result: str
    following: str
    address: str
    link: str


async def ending_of(connection: AsyncConnection, state: LiveEpisode, agent: str, person: Principal) -> Ending | None:
    """Returns the end of a conversation for the person in a seat; ``None`` as long as it goes on."""
    if not state.ended:
        return None
    study = None
    if state.spec.study:
        study = studies.settings_of(await studies.by_name(connection, state.spec.study))
    shows = not isinstance(study, PlayStudy) or study.show_result
    result = await _result(connection, state, agent) if shows and state.status == "done" else ""
    if isinstance(study, PlayStudy) and person.study:
        done = await studies.done_by(connection, state.spec.study, person.id)
        is_open = await studies.current(connection, state.spec.study, person.id) is not None
        following = f"Thank you for this conversation. {_next_step(study, done + is_open)}"
        return Ending(_reason(state, agent), result, following, "/study", "Go on")
    if person.role == "participant":
        return Ending(_reason(state, agent), result, "Thank you for taking part. You can close this page.", "", "")
    address, link = f"/episodes/{state.id}", "See the episode"
    following = "It can be continued from its last turn." if state.status in _BROKEN and not study else ""
    return Ending(_reason(state, agent), result, following, address, link)


def _reason(state: LiveEpisode, agent: str) -> str:
    stop = state.table.stop
    if stop is None:
        return _BROKEN.get(state.status, "")
    if dropped_out(state, agent):
        return "You did not answer in time."
    names, left = state.spec.task.names, state.table.state.left
    if agent in left:  # for this person, the end, whatever the others did then
        return "You left."
    if stop is not StopReason.LEFT:
        return _REASONS[stop]
    return f"{' and '.join(names[other] for other in state.spec.task.agents if other in left)} left."


async def _result(connection: AsyncConnection, state: LiveEpisode, agent: str) -> str:
    """What the person gets, by the evaluation of the recorded episode."""
    record = await episodes.record_of(connection, state.id)
    outcome = next((item.outcome for item in reversed(record.evaluations) if item.outcome is not None), None)
    if outcome is None:
        return ""
    briefing = state.table.observe(agent).briefing
    payoff = outcome.payoffs[state.spec.task.seat_of[agent]]
    return f"You get {worth_text(briefing, payoff)}."


def _next_step(study: PlayStudy, conversations: int) -> str:
    if study.has_interview:
        return "Next come some questions about it."
    if conversations < study.per_person:
        return "Next comes another conversation, if one is left."
    if study.questionnaire:
        return "Next come some last questions."
    return "Next comes the end of the study, with your completion code."
