"""Agreements in words: the strict parser of a language model's answer, and the equivalent moves.

Nothing is repaired or guessed. The terms must be a point of the task's outcome space, and for every seat whose assent
is needed the answer must cite a turn of that seat, with words, that shows it. The task's own protocol decides whether
the assents suffice: each is converted to the equivalent move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sotopia_env.evaluators.judge.prompt import closed_object
from sotopia_env.evaluators.judge.verdict import Refusal, object_members, read_object, refusal, text_problem
from sotopia_env.foundation.errors import EvaluationError, FieldError, excerpt, json_excerpt
from sotopia_env.outcomes import InvalidMoveError, Menu, Move, MoveKind
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.result import SpokenAgreement
from sotopia_env.outcomes.space import OPTION
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table


def agreement_schema(task: Task, turns: int) -> dict[str, Any]:
    """Returns the JSON schema of an answer about an episode with this number of turns."""
    number = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": max(turns, 1)}, {"type": "null"}]}
    # The terms have the schema of an offer, in a ballot, too: its space is one choice.
    terms = Menu(propose=True, space=protocol_of(task).space).json_schema()["properties"][MoveKind.PROPOSE.value]
    agreement = closed_object({"terms": terms, "turns": closed_object(dict.fromkeys(task.agents, number))})
    return closed_object({"reasoning": {"type": "string"}, "agreement": {"anyOf": [agreement, {"type": "null"}]}})


def protocol_of(task: Task) -> AnyProtocol:
    """Returns the protocol of a task in which words can express an agreement or a decision.

    Raises:
        EvaluationError: the task has no outcome, or its outcome depends on claims instead of agreement.
    """
    protocol = task.protocol
    if protocol is None:
        raise EvaluationError(f"task {task.id!r}: expected one with an outcome that can be agreed on, got none")
    if not protocol.space.issues:
        raise EvaluationError(f"task {task.id!r}: expected an outcome that can be agreed on, got {protocol.kind}")
    return protocol


def read_agreement(text: str, episode: Episode) -> SpokenAgreement | Refusal:
    """Returns the agreement in a model's answer, or the reason why the answer is refused."""
    answer = read_object(text, [turn.action.argument for turn in episode.plain_turns])
    if isinstance(answer, Refusal):
        return answer
    problems: list[str] = []
    parts = object_members(answer, ("reasoning", "agreement"), "the answer", problems)
    if "reasoning" in parts and (problem := text_problem("reasoning", parts["reasoning"])):
        problems.append(problem)
    agreement = parts.get("agreement")
    if problems or agreement is None:
        return refusal(problems) or SpokenAgreement(agreed=False, reasoning=parts["reasoning"])
    details = object_members(agreement, ("terms", "turns"), "agreement", problems)
    terms = _terms(details.get("terms"), episode.task, problems)
    turns = _citations(details.get("turns"), episode, problems)
    return refusal(problems) or _sufficient(
        SpokenAgreement(agreed=True, terms=terms, turns=turns, reasoning=parts["reasoning"]), episode
    )


def _terms(value: Any, task: Task, problems: list[str]) -> dict[str, Any]:
    try:
        return protocol_of(task).space.normalise(value)
    except InvalidMoveError as error:
        problems.append(f"agreement.terms: {error}")
        return {}


def _citations(value: Any, episode: Episode, problems: list[str]) -> dict[str, int]:
    numbers = object_members(value, episode.task.agents, "agreement.turns", problems)
    cited = {agent: number for agent, number in numbers.items() if number is not None}
    for agent, number in cited.items():
        if problem := _citation_problem(agent, number, episode.plain_turns):
            problems.append(f"agreement.turns.{agent}: {problem}")
    return cited


def _citation_problem(agent: str, number: Any, turns: Sequence[Turn]) -> str:
    # ``isinstance`` would accept ``true``, because bool is a subclass of int.
    if type(number) is not int:
        return str(FieldError(expected="the number of a turn, or null", got=json_excerpt(number)))
    turn = next((turn for turn in turns if turn.index + 1 == number), None)
    if turn is None:
        return f"there is no turn {excerpt(number)}; give one of the turns of {agent}"
    if turn.actor != agent:
        return f"turn {number} is a turn of {turn.actor}; give one of the turns of {agent}"
    return "" if turn.action.argument.strip() else f"turn {number} carries no words"


def _sufficient(agreement: SpokenAgreement, episode: Episode) -> SpokenAgreement | Refusal:
    protocol = protocol_of(episode.task)
    # The protocol itself decides, by the same moves as in a verified outcome, so that both have the same rules.
    settlement = protocol.outcome(final_table(episode.task, as_moves(agreement, episode))[0])
    if settlement.decided:
        return agreement
    cited = ", ".join(agreement.turns) or "nobody"
    return Refusal(
        f"agreement.turns: the assent of {cited} is not enough here; cite a turn for every other seat whose assent is "
        "needed, or say that nothing was agreed (null)"
    )


def as_moves(agreement: SpokenAgreement, episode: Episode) -> tuple[Turn, ...]:
    """Returns the turns of the episode, in which the turns that show assent have the equivalent moves.

    The move is a public offer of the terms (equal offers of all required seats are an agreement, in any order), or a
    vote for the option. Assents after the settlement are ignored.
    """
    protocol = protocol_of(episode.task)
    move = _move(protocol, agreement.terms)
    turns = list(episode.plain_turns)
    positions = {turn.index + 1: position for position, turn in enumerate(turns)}
    for number in sorted(agreement.turns.values()):
        position = positions[number]
        if protocol.settled(final_table(episode.task, turns[:position])[0]):
            break
        # Public: a private offer would count only if it reached every seat whose assent is needed.
        turns[position] = replace(turns[position], action=replace(turns[position].action, to=(), move=move))
    return tuple(turns)


def _move(protocol: AnyProtocol, terms: Mapping[str, Any]) -> Move:
    ballot = MoveKind.VOTE in protocol.kinds
    return Move(MoveKind.VOTE, terms[OPTION]) if ballot else Move(MoveKind.PROPOSE, dict(terms))


def with_outcome(agreement: SpokenAgreement, episode: Episode, reader: str) -> SpokenAgreement:
    """Returns the agreement with its outcome, computed from the task's worths.

    Args:
        agreement: the agreement that the model read.
        episode: the episode.
        reader: the name of the model, which the reason of the outcome mentions.

    Raises:
        InvalidTaskError: the task has more outcomes than can be counted exactly.
    """
    task = episode.task
    outcome = outcome_of(task, as_moves(agreement, episode) if agreement.agreed else episode.plain_turns)
    reason = f"in the reading of {reader}, nothing was agreed in words."
    if agreement.agreed:
        cited = ", ".join(f"{task.names[agent]} in turn {number}" for agent, number in agreement.turns.items())
        terms = protocol_of(task).space.describe(agreement.terms)
        reason = f"in the reading of {reader}, agreed in words on {terms} ({cited})."
    return agreement.model_copy(update={"outcome": outcome.model_copy(update={"reason": reason})})
