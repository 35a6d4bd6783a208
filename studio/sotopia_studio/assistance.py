"""Assistants of people: asking them for advice, and letting them act or not.

Advice is a job of its own beside the play, so that a slow assistant delays nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import FATAL
from sotopia_env.people.seat.assistance import RecordedAdvice, Steering
from sotopia_env.policies.combined.advised import advice_on
from sotopia_env.runs.play import attempt
from sotopia_env.world.play.policy import Decision, Policy, turn_seed
from sotopia_studio.live import CLOSED, LiveEpisode
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import events
from sotopia_studio.store.engine import Database
from sotopia_studio.store.event_records import ADVICE, STEERING

_PATIENCE = 120.0
"""Seconds after which an assistant that does not answer has no advice for this turn."""


async def advise(database: Database, live: LiveEpisode, advisers: Mapping[str, Policy]) -> None:
    """Appends the advice for every person whose turn it is, as far as the turn is still theirs.

    Args:
        database: the database.
        live: the episode.
        advisers: the policies that advise, by the person's seat.
    """
    for agent in live.advised:
        advice = await _advice(live, agent, advisers[agent])
        async with database.write() as connection:
            now = await LiveEpisode.load(connection, live.id, lock=True)
            if now.status in CLOSED or len(now.table.turns) != advice.turn or agent not in now.advised:
                continue  # the person was faster, or has taken over
            # Only the deadline changes: an assistant that acts does so after its pause, by the clock of late answers.
            columns = {}
            if advice.advice.mode == "act" and not advice.advice.problem:
                columns = {"deadline": time.time() + live.spec.assistants[agent].pause}
            await events.append(connection, live.id, now.number, [(ADVICE, advice.model_dump_json())], columns)


async def _advice(live: LiveEpisode, agent: str, policy: Policy) -> RecordedAdvice:
    turn, assistance = len(live.table.turns), live.spec.assistants[agent]
    begun = time.monotonic()
    seed = turn_seed(live.spec.seed, turn, live.spec.task.seat_of[agent])
    # An assistant that fails must not end the conversation: the person goes on without its advice.
    try:
        outcome: object = await attempt(policy.act(live.table.observe(agent), seed), _PATIENCE)
    except FATAL as error:  # a budget that is spent ends advice, and no conversation
        outcome = error
    decision = outcome if isinstance(outcome, Decision | Exception) else TypeError("it returned no decision")
    advice = advice_on(assistance.policy, assistance.mode, decision, time.monotonic() - begun)
    generation = decision.generation if isinstance(decision, Decision) else None
    return RecordedAdvice(agent=agent, turn=turn, advice=advice, generation=generation)


async def steer(connection: AsyncConnection, live: LiveEpisode, agent: str, *, is_by_person: bool) -> None:
    """Lets a person take over from an assistant that acts, or lets it act again; the clock of the turn starts anew.

    Raises:
        ConflictError: the seat has no assistant that acts, or the conversation has ended.
    """
    assistance = live.spec.assistants.get(agent)
    if live.ended or assistance is None or assistance.mode != "act":
        raise ConflictError("there is no assistant that acts for you here; reload the page")
    event = Steering(agent=agent, is_by_person=is_by_person)
    live.number = await events.append(connection, live.id, live.number, [(STEERING, event.model_dump_json())])
    live.help = live.help.steered(agent, is_by_person)
    if agent in live.awaited:
        await live.append(connection)
