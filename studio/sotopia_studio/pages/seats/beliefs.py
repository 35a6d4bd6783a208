"""Probes on a seat's page: what the person believes, as sliders, and whom they would trust, beside the turns."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.evaluators.probes.form import Weights, form_beliefs, form_questions
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming.evaluators import probe_of
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.world.answers import TRUST
from sotopia_studio import live
from sotopia_studio.live import LiveEpisode
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import episodes, events, jobs
from sotopia_studio.store.event_records import BELIEFS, RecordedBeliefs
from sotopia_studio.work import evaluating
from sotopia_studio.work.evaluating import EvaluationSpec


def belief_questions(state: LiveEpisode, agent: str) -> tuple[PublicVariable, ...]:
    """Returns what the person in a seat is asked now; empty if nothing, or if they have answered at this moment."""
    task, (moment, trust) = state.spec.task, probe_of(state.spec.evaluator)
    is_moment = moment == "turns" and len(state.table.turns) > 0
    if task.scenario.facts is None or not ((state.ended and moment == "end") or is_moment):
        return ()
    questions = form_questions(task, agent, ended=state.ended, trust=trust)
    now = [belief for belief in state.table.beliefs if belief.turns == len(state.table.turns)]
    # After the end more may be asked than before it, at the same number of turns.
    answered = {belief.variable for belief in now if belief.respondent == agent}
    return () if answered.issuperset(question.name for question in questions) else questions


async def record_beliefs(
    connection: AsyncConnection, state: LiveEpisode, agent: str, fields: Mapping[str, str]
) -> None:
    """Records the sliders of a person; an ended episode is evaluated again, since its evaluation lacked the answers.

    Args:
        connection: a writing transaction.
        state: the episode, loaded in this transaction with its lock.
        agent: the person's seat.
        fields: the fields of the form, named ``belief`` and the numbers of question and option.

    Raises:
        ConflictError: nothing is asked any more.
        InvalidValueError: a field is not a number from 0 to 100.
    """
    questions = belief_questions(state, agent)
    if not questions or fields.get("turn") != str(len(state.table.turns)):
        raise ConflictError("that was asked at another moment; the questions of now, if any, are below")
    weights = {question.name: _weights(question, number, fields) for number, question in enumerate(questions)}
    beliefs = form_beliefs(
        state.spec.task,
        agent,
        weights,
        turns=len(state.table.turns),
        ended=state.ended,
        by=episodes.PERSON,
        trust=probe_of(state.spec.evaluator)[1],
    )
    new = [(BELIEFS, RecordedBeliefs(beliefs=beliefs).model_dump_json())]
    state.number = await events.append(connection, state.id, state.number, new)
    state.table.beliefs += beliefs
    if state.status == "done":
        record = await episodes.record_of(connection, state.id)
        record = record.model_copy(update={"beliefs": (*record.beliefs, *beliefs)})
        await episodes.replace_record(connection, state.id, record)
        spec = EvaluationSpec(episode=state.id, evaluator=state.spec.evaluator)
        await jobs.request(connection, evaluating.EVALUATE, f"{state.id}-beliefs", spec.model_dump_json())
    elif state.table.stop is not None:
        # The worker may be at the end already, without these answers: it must look again.
        await jobs.request(connection, live.ADVANCE, state.id)


def _weights(question: PublicVariable, number: int, fields: Mapping[str, str]) -> Weights:
    if question.kind == TRUST:  # one amount is chosen
        chosen = fields.get(f"belief{number}", "")
        if chosen and chosen not in question.options:
            raise InvalidValueError(field=question.name, expected=f"one of {', '.join(question.options)}", got=chosen)
        return {option: float(option == chosen) for option in question.options}
    weights = {}
    for index, option in enumerate(question.options):
        text = fields.get(f"belief{number}.{index}", "").strip() or "0"
        if not (text.isdecimal() and len(text) < 4 and int(text) <= 100):
            raise InvalidValueError(field=question.name, expected="a number from 0 to 100", got=text[:40])
        weights[option] = int(text)
    return weights
