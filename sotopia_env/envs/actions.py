"""Actions as callers pass them to ``step``: records, texts, mappings, indices, masks and JSON moves, read once."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np

from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.world.action import ACTION_TYPES, Action, ActionType, optional_move
from sotopia_env.world.scenario import Task

_ACTION_KEYS = ("action_type", "argument", "to", "move", "wait")


_EXPECTED = 'an Action, a text or a mapping {"action_type": …, "argument": …, "to": …, "move": …}'


def read_action(value: object, agent: str, task: Task) -> Action | str:
    """Reads an argument of ``step``; a text is returned unchanged, for the table to parse by the moves open now.

    Args:
        value: an :class:`Action`, a model's text that holds one as JSON, or a mapping with ``action_type`` (a type's
            value, or its index in :data:`~sotopia_env.world.action.ACTION_TYPES`), ``argument`` (text, ``""`` by
            default), ``to`` and ``move``. ``to`` is a mask of 0 and 1 with one entry per seat, or agent ids or
            character names. A mask that selects no seat, or every seat but ``agent``, addresses all; the agent's own
            entry is ignored. ``move`` is a :class:`~sotopia_env.outcomes.Move`, a mapping such as ``{"accept": 2}``
            or the JSON text of one; ``""`` and ``None`` mean no move. ``wait`` is a whole number; 0 and ``None`` leave
            it to the turn order.
        agent: the id of the acting agent.
        task: the task, whose agents may be addressed.

    Raises:
        InvalidActionError: ``value`` has another form; the message names the accepted ones.
    """
    if isinstance(value, Action | str):
        return value
    if not isinstance(value, Mapping):
        raise InvalidActionError(field="action", expected=_EXPECTED, got=value)
    for key in value:
        if key not in _ACTION_KEYS:
            raise InvalidActionError("unknown key", field="action", got=key, valid=_ACTION_KEYS)
    if "action_type" not in value:
        raise InvalidActionError("action_type is missing", field="action", expected=_EXPECTED)
    argument = value.get("argument", "")
    if not isinstance(argument, str):
        raise InvalidActionError(field="argument", expected="text", got=argument)
    kind, to = _read_type(value["action_type"]), _read_recipients(value.get("to"), agent, task)
    wait = value.get("wait")
    # Numbers from arrays become plain ones, as records need them; the action refuses everything else.
    if isinstance(wait, int | np.integer) and not isinstance(wait, bool):
        wait = int(wait) or None
    return Action(kind, str(argument), to, optional_move(value.get("move")), wait)


def _read_type(value: object) -> ActionType:
    if isinstance(value, str):
        for kind in ACTION_TYPES:
            if kind.value == value:
                return kind
        raise InvalidActionError(field="action_type", got=value, valid=[kind.value for kind in ACTION_TYPES])
    # ``True`` is 1 in Python, but as an index it is a mistake.
    try:
        index = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        index = -1
    if not 0 <= index < len(ACTION_TYPES):
        expected = f"a name or an index from 0 to {len(ACTION_TYPES) - 1}"
        raise InvalidActionError(field="action_type", expected=expected, got=value)
    return ACTION_TYPES[index]


def _read_recipients(value: object, agent: str, task: Task) -> tuple[str, ...]:
    if value is None:
        return ()
    agents = task.agents
    # An array of another shape is not converted, so it is refused below.
    items = value.tolist() if isinstance(value, np.ndarray) and value.shape == (len(agents),) else value
    items = [items] if isinstance(items, str) else items
    if isinstance(items, (list, tuple)) and all(isinstance(item, str) for item in items):
        return tuple(dict.fromkeys(_agent_id(item, task) for item in items))
    if not isinstance(items, (list, tuple)) or len(items) != len(agents) or not all(_is_bit(item) for item in items):
        raise InvalidActionError(
            field="to", expected=f"a mask of 0 and 1 with {len(agents)} entries, or agent ids or names", got=value
        )
    recipients = tuple(other for other, bit in zip(agents, items, strict=True) if bit and other != agent)
    # Selecting all others is not a private action, which some scenarios forbid.
    return () if len(recipients) == len(agents) - 1 else recipients


def _is_bit(item: object) -> bool:
    return isinstance(item, (bool, int, np.integer, np.bool_)) and item in (0, 1)


def _agent_id(name: str, task: Task) -> str:
    if name in task.names:
        return str(name)
    for agent, character_name in task.names.items():
        if character_name == name:
            return agent
    raise InvalidActionError(field="to", got=name, valid=[*task.agents, *task.names.values()])
