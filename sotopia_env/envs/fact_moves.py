"""The numeric form of a task with facts: knowledge and statements as numbers, statements and votes by index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sotopia_env.envs.moves import NumericForm, check_agreement
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, Verbatim
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.menu import names_in
from sotopia_env.tasks import phrase
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Task

WAIT, LEAVE, FIRST_MOVE = 0, 1, 2
"""Actions: say nothing, leave; from ``FIRST_MOVE`` on votes, then statements, proofs and questions."""


class NumericFacts:
    """The observations, actions and masks of one seat of a task with facts, as numbers.

    Variables are numbered in the order in which the seat reads them, options as each variable lists them.

    Observation, float32: the share of the seat's turns that is left; for each variable and option the probability given
    what the seat knows; for each the share of the partners who stated it last; for each variable the share of partners
    who asked for it; for each option of the ballot the share of votes that the seat sees. What a task does not have is
    0. Actions: :data:`WAIT`, :data:`LEAVE`, a vote for each option, a statement of each option of each variable, a
    proof and a question of each variable. Each goes to everybody.

    Args:
        variables: the maximum number of variables.
        values: the maximum number of options of a variable.
        options: the maximum number of options of a ballot.

    Attributes:
        actions: the number of actions.
        size: the length of an observation.
    """

    def __init__(self, variables: int, values: int, options: int) -> None:
        self._limits = variables, values, options
        self.actions = FIRST_MOVE + options + variables * (values + 2)
        self.size = 1 + variables * (2 * values + 1) + options
        self._indices = self.action_space()

    def observation_space(self) -> spaces.Space[NDArray[np.float32]]:
        """Returns a new space of observations."""
        return spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def action_space(self) -> spaces.Space[Any]:
        """Returns a new space of actions."""
        return spaces.Discrete(self.actions)

    def check(self, task: Task) -> None:
        """Raises :class:`InvalidValueError` unless the task has facts that fit into the form."""
        if task.scenario.facts is None:
            raise InvalidValueError(field="task", expected="tasks with facts, like the others", got=task.id)
        if any(size > limit for size, limit in zip(_sizes(task), self._limits, strict=True)):
            expected = "at most {} variables of {} options, and {} options of a ballot".format(*self._limits)
            raise InvalidValueError(field="task", expected=expected, got=Verbatim(f"more in {task.id!r}"))

    def numbers(self, observation: Observation) -> NDArray[np.float32]:
        """Returns the observation as numbers."""
        variables, values, options = self._limits
        facts, table = observation.briefing.facts, observation.table
        assert facts is not None
        assert table is not None
        beliefs = facts.beliefs(table.knowledge)
        chances, requests = np.zeros((variables, values)), np.zeros(variables)
        statements = np.zeros_like(chances)
        latest, questions = _statements(observation)
        for row, (name, variable) in enumerate(facts.variables.items()):
            chances[row, : len(variable.options)] = [beliefs[name][option] for option in variable.options]
            for _, value in (pair for pair in latest.items() if pair[0][1] == name):
                statements[row, variable.options.index(value)] += 1
            requests[row] = sum(question == name for _, question in questions)
        seats, left = max(1, len(observation.briefing.partners)), observation.own_turns_left()
        votes = np.zeros(options)
        for position, option in enumerate(_options(observation)):
            votes[position] = sum(v == option for v in table.votes.options.values()) if table.votes else 0
        time = [left / max(1, left + observation.own_turns)]
        parts = (time, chances.ravel(), statements.ravel() / seats, requests / seats, votes / (seats + 1))
        return np.concatenate(parts).astype(np.float32)

    def mask(self, observation: Observation) -> NDArray[np.bool_]:
        """Returns which actions are open; bool, shape (actions,). Only ``WAIT`` when the seat is not to act."""
        mask = np.zeros((self.actions,), dtype=np.bool_)
        mask[WAIT] = True
        mask[LEAVE] = ActionType.LEAVE in observation.available
        menu = observation.moves
        if menu is not None:
            open_moves = {*menu._replace(propose=False, space=None).moves()}
            for index in range(FIRST_MOVE, self.actions):
                mask[index] = self._move(observation, index) in open_moves
        return mask

    def action(self, observation: Observation, index: Any) -> Action:
        """Returns the action of an index, with scripted words beside its move.

        Raises:
            InvalidActionError: ``index`` is not a whole number (of Python or NumPy) in the range.
        """
        if not self._indices.contains(index):
            raise InvalidActionError(field="action", expected=f"0 to {self.actions - 1}", got=index)
        if index == LEAVE:
            return Action(ActionType.LEAVE)
        move = None if index == WAIT else self._move(observation, int(index))
        return NO_ACTION if move is None else Action(argument=phrase(observation, move, observation.turn), move=move)

    def _move(self, observation: Observation, index: int) -> Move | None:
        """The move of an index; ``None`` if the task has none there."""
        _, values, options = self._limits
        facts = observation.briefing.facts
        assert facts is not None
        index -= FIRST_MOVE
        if index < options:
            choices = _options(observation)
            return Move(MoveKind.VOTE, choices[index]) if index < len(choices) else None
        row, column = divmod(index - options, values + 2)
        if row >= len(facts.variables):
            return None
        variable = [*facts.variables.values()][row]
        if column < values:
            names = variable.options
            return Move(MoveKind.STATE, {variable.name: names[column]}) if column < len(names) else None
        return Move(MoveKind.SHOW if column == values else MoveKind.ASK, variable.name)


def _sizes(task: Task) -> tuple[int, int, int]:
    facts, spec = task.scenario.facts, task.scenario.outcome
    assert facts is not None
    options = len(spec.protocol.options) if spec is not None and spec.protocol.kind == "ballot" else 0
    return len(facts.variables), max(len(variable.options) for variable in facts.variables), options


def _options(observation: Observation) -> tuple[str, ...]:
    rules = observation.briefing.rules
    return rules.options if rules is not None and rules.kind == "ballot" else ()


def _statements(observation: Observation) -> tuple[dict[tuple[str, str], str], set[tuple[str, str]]]:
    """The latest value that each partner stated of each variable, and who asked for which variable."""
    values: dict[tuple[str, str], str] = {}
    questions: set[tuple[str, str]] = set()
    for turn in observation.turns:
        move = turn.action.move
        for kind, content in () if move is None or turn.actor == observation.agent else move.statements:
            if kind is MoveKind.STATE:
                values |= {(turn.actor, name): value for name, value in content.items()}
            elif kind is MoveKind.ASK:
                questions |= {(turn.actor, name) for name in names_in(content)}
    return values, questions


def numeric_form(tasks: Iterable[Task], offers: int) -> NumericForm | NumericFacts:
    """Returns the numeric form of tasks: that of facts where the first task declares them, else that of an agreement.

    Raises:
        InvalidValueError: a task does not fit the form of the others, or ``offers`` has an invalid value.
    """
    samples = list(tasks)
    with_facts = [task for task in samples if task.scenario.facts is not None]
    if not with_facts or samples[0] is not with_facts[0]:
        for task in samples:
            check_agreement(task)
        return NumericForm(offers)
    variables, values, options = map(max, *map(_sizes, with_facts), (1, 2, 0))
    form = NumericFacts(variables, values, options)
    for task in samples:
        form.check(task)
    return form
