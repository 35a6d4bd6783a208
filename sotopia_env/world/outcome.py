"""Outcomes of the moves of an episode, measured against the exact reference points of its task.

Nothing here reads words. The table is folded from the recorded moves
(:func:`sotopia_env.world.tables.final_table`); payoffs follow from the seats' worths, shares and efficiency from the
reference points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError, Where
from sotopia_env.outcomes import InvalidMoveError, reference_points
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.reference import ReferencePoints
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table


def references(task: Task) -> ReferencePoints:
    """Returns the exact reference points of ``task``; computed once per task.

    Raises:
        InvalidTaskError: the task has no outcome, or more outcomes than can be counted exactly.
    """
    points = task.memo.get("reference points")
    if points is None:
        spec = task.scenario.resolved_outcome
        if spec is None:
            raise InvalidTaskError(field="task", expected="one with an outcome", got=task.id)
        # The search covers up to 10⁶ outcomes: once per task, never once per episode.
        try:
            points = reference_points(spec, task.names)
        except InvalidValueError as error:
            raise InvalidTaskError.of(error, within="scenario", where=Where(record=f"task {task.id!r}")) from None
        task.memo["reference points"] = points
    result: ReferencePoints = points
    return result


def outcome_of(task: Task, turns: Sequence[Turn]) -> OutcomeResult:
    """Returns the outcome of the moves in ``turns``.

    Args:
        task: the task of the episode.
        turns: the turns of the episode.

    Raises:
        InvalidTaskError: the task has no outcome, too many outcomes, or a recorded move was never open in it.
    """
    # A recorded move that is not open means that the turns and the task do not belong together.
    try:
        table, settled_after = final_table(task, turns)
    except InvalidMoveError as error:
        raise InvalidTaskError.of(error, within="recorded move", where=Where(record=f"task {task.id!r}")) from None
    # Turns after the settlement cost nothing, since they can no longer change the outcome.
    return outcome_at(task, table, len(turns) if settled_after is None else settled_after)


def outcome_at(task: Task, table: Any, turns: int) -> OutcomeResult:
    """Returns the outcome of an episode that ends with ``table``.

    Args:
        task: the task of the episode.
        table: the state of the task's protocol.
        turns: the number of actions until the settlement, or of all actions; a worth may charge for them.
    """
    points, protocol = references(task), _protocol(task)
    settlement = protocol.outcome(table)
    payoffs = protocol.payoffs(table, turns)
    return OutcomeResult(
        agreed=settlement.decided,
        reason=settlement.reason,
        terms=dict(settlement.terms),
        payoffs=payoffs,
        shares=points.shares(payoffs),
        efficiency=points.efficiency(payoffs),
        fairness=points.fairness(payoffs),
    )


def goal_truth(task: Task, outcome: OutcomeResult) -> Mapping[tuple[int, int], bool]:
    """Returns whether each goal with an exact test was reached, by seat and index of the goal.

    Args:
        task: the task of the episode; the result is empty if it has no interview or tests.
        outcome: the outcome of an episode of this task.

    Raises:
        InvalidTaskError: the outcome is not one of this task.
    """
    interview = task.scenario.interview
    tests = () if interview is None else interview.goal_tests
    if tests and len(outcome.payoffs) != len(task.characters):
        raise InvalidTaskError(
            expected=f"an outcome with {len(task.characters)} payoffs",
            got=len(outcome.payoffs),
            where=Where(record=f"task {task.id!r}"),
        )
    return {(test.seat, test.goal): test.holds(outcome) for test in tests}


def _protocol(task: Task) -> AnyProtocol:
    if task.protocol is None:
        raise InvalidTaskError(field="task", expected="one with an outcome", got=task.id)
    return task.protocol
