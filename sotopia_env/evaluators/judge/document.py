r"""The JSON document through which a judge or an interviewed participant reads an episode.

:func:`sotopia_env.foundation.quoting.quote` writes every text as a JSON string literal on one line, with control
tokens, line ends of every alphabet and characters that reorder text as ``\uXXXX``. Lines begin only with the document's
own structure. So no text can end its string, begin a turn or leave the document, and a JSON parser returns the exact
utterance.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.descriptions import describe_facts, describe_space, describe_worth
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.world.action import ACTION_TYPES
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, replay_turns
from sotopia_env.world.observation import OWN_FIELDS, briefing, describe
from sotopia_env.world.perception.witness import exit_of, over, perspective, witnesses
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

_PROFILE = tuple(field for field in OWN_FIELDS if field != "secret")


@dataclass(frozen=True, slots=True)
class Document:
    """A document and the mark of the lines around it.

    Attributes:
        text: JSON with one agent, one turn or one question per line.
        mark: 16 hex digits of the hash of the text, which text inside cannot know, so it cannot imitate the end.
        omitted: the number of the oldest turns that are left out.
    """

    text: str
    mark: str
    omitted: int = 0


def document(
    episode: Episode,
    *,
    viewer: str | None = None,
    omitted: int = 0,
    questions: Sequence[str] = (),
    turns_only: bool = False,
) -> Document:
    """Returns the document of an episode.

    Args:
        episode: the episode; silent turns are included.
        viewer: the id of an agent, to restrict the document to its knowledge and perception; ``None`` for everything.
        omitted: the number of the oldest turns (of those that the viewer perceived) to leave out. The document states
            it.
        questions: questions to add, which are numbered from 1.
        turns_only: whether to leave out the rules, and everything about the agents except their names.

    Raises:
        UnknownNameError: the task has no agent ``viewer``.
        InvalidValueError: ``omitted`` is greater than the number of turns.
    """
    task = episode.task
    if viewer is not None and viewer not in task.names:
        raise UnknownNameError(field="viewer", got=viewer, valid=task.agents)
    perceived = perceived_turns(episode, viewer)
    reactive = episode.rules.turn_order is TurnOrder.REACTIVE
    times = Counter(turn.round for turn, _ in perceived) if reactive else None
    turns = [_turn(turn, audience, viewer, times) for turn, audience in perceived]
    if not 0 <= omitted <= len(turns):
        raise InvalidValueError(field="omitted", expected=f"0 to {len(turns)} turns", got=omitted)
    # The values are JSON already, so that every part controls its own lines.
    parts = {
        "situation": quote(task.scenario.context),
        **(
            {"agents": _names_only(task)}
            if turns_only
            else {**_rules(task), **_facts(task, viewer), "agents": _agents(task, viewer)}
        ),
        **({"omitted_turns": str(omitted)} if omitted else {}),
        "turns": _rows(turns[omitted:]),
        "end": _json(episode.stop.value if episode.stop else None),
    }
    if questions:
        parts["questions"] = _rows([_json({"number": n, "goal": text}) for n, text in enumerate(questions, start=1)])
    text = "{\n" + ",\n".join(f"{quote(key)}: {part}" for key, part in parts.items()) + "\n}"
    return Document(text, hashlib.sha256(text.encode()).hexdigest()[:16], omitted)


def perceived_turns(episode: Episode, viewer: str | None = None) -> list[tuple[Turn, tuple[str, ...]]]:
    """Returns the turns in order, each with its audience: the *other* agents that perceived it.

    The rules of perception are those of observations (:mod:`sotopia_env.world.perception.witness`).

    Args:
        episode: the episode.
        viewer: the id of an agent, to restrict the result to the turns that it witnessed, as it perceived them.
    """
    turns, agents = episode.plain_turns, episode.task.agents
    leaves = {agent: exit_of(turns, agent) for agent in agents}
    if viewer is not None:
        if episode.stop is None:
            # Seats do not perceive the turns of a veiled round before it is over; only the state says whether it is.
            turns = turns[: over(turns, replay_turns(episode).round, None)]
        turns = tuple(perspective(viewer, turn) for turn in turns if witnesses(viewer, turn, leaves[viewer]))
    others = ([agent for agent in agents if agent != turn.actor] for turn in turns)
    return [
        (turn, tuple(agent for agent in audience if witnesses(agent, turn, leaves[agent])))
        for turn, audience in zip(turns, others, strict=True)
    ]


def _turn(turn: Turn, audience: tuple[str, ...], viewer: str | None, times: Mapping[int, int] | None = None) -> str:
    """One turn as one line; ``times`` are the numbers of turns by time, in reactive order.

    Action types are ours, so they need no escapes.
    """
    action = turn.action
    # Participants do not know for certain who else was present.
    seen_by = f', "seen_by": {_names(audience)}' if viewer is None else ""
    moment = "" if times is None else f', "time": {turn.round + 1}'
    # Most ticks of the clock have one turn; a simultaneous round has one of every seat.
    if turn.veiled and (times is None or times[turn.round] > 1):
        moment += ', "simultaneous": true'
    return (
        f'{{"turn": {turn.index + 1}, "agent": {quote(turn.actor)}, "type": "{action.action_type.value}", '
        f'"argument": {quote(action.argument)}, "to": {_names(action.to)}{seen_by}{moment}{_move(turn)}}}'
    )


def _move(turn: Turn) -> str:
    """The move, unless it is another agent's secret one, and its effect."""
    if turn.effect is None:
        return ""
    move = "" if turn.action.move is None else f', "move": {_json(turn.action.move.to_json())}'
    return f'{move}, "effect": {quote(turn.effect)}'


def _names(agents: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(quote, agents)) + "]"


def _names_only(task: Task) -> str:
    return _rows([_json({"id": agent, "name": name}) for agent, name in task.names.items()])


def _rules(task: Task) -> dict[str, str]:
    """The public rules of the protocol; empty for a task without a protocol."""
    spec = task.scenario.outcome
    return {} if spec is None else {"rules": quote(describe_space(spec, task.names))}


def _facts(task: Task, viewer: str | None) -> dict[str, str]:
    """The variables of the task with their true values and who knows them; for a viewer, what its briefing says."""
    facts, protocol = task.scenario.facts, task.protocol
    if facts is None or not isinstance(protocol, WithFacts):
        return {}
    if viewer is not None:
        return {"facts": quote(describe_facts(protocol.views[viewer], task.names))}
    knowledge = {agent: protocol.views[agent].knowledge for agent in task.agents}
    rows = [
        {
            "name": variable.name,
            "options": variable.options,
            "true_value": variable.value,
            "known_at_the_start_by": [agent for agent, values in knowledge.items() if variable.name in values],
            "may_be_known_by": [agent for agent in task.agents if variable.admits(agent)],
            "in_private_only": variable.channel == "private",
        }
        for variable in facts.variables
    ]
    norms = [_json(norm.text) for norm in facts.expectations]
    return {"facts": _rows(map(_json, rows)), **({"norms": _rows(norms)} if norms else {})}


def _agents(task: Task, viewer: str | None) -> str:
    """All agents, with the information that the viewer has about them; rendered once per task."""
    key = ("judge document", viewer)
    if key not in task.memo:
        task.memo[key] = _rows(map(_json, _everybody(task) if viewer is None else _from_briefing(task, viewer)))
    text: str = task.memo[key]
    return text


def _everybody(task: Task) -> list[dict[str, Any]]:
    return [_full(task, seat) for seat in range(len(task.agents))]


def _full(task: Task, seat: int) -> dict[str, Any]:
    character, side, spec = task.characters[seat], task.scenario.seats[seat], task.scenario.outcome
    others = [other for other in range(len(task.agents)) if other != seat]
    return {
        "id": task.agents[seat],
        "name": character.name,
        "profile": describe(character, _PROFILE),
        "secret": character.secret,
        "goals": side.goals,
        "private_info": side.private_info,
        **({} if spec is None else {"worth": describe_worth(spec, seat, task.names)}),
        "relationships": [_relationship(task, seat, other) for other in others],
    }


def _relationship(task: Task, seat: int, other: int) -> dict[str, Any]:
    relationship = task.relationship(seat, other)
    return {"with": task.agents[other], "kind": relationship.kind.value, "backstory": relationship.backstory}


def _from_briefing(task: Task, viewer: str) -> list[dict[str, Any]]:
    """The content of one agent's briefing, in seat order."""
    seat, brief = task.agents.index(viewer), briefing(task, viewer, ACTION_TYPES)
    entries = {viewer: _full(task, seat)}
    for partner in brief.partners:
        bond = {"with": viewer, "kind": partner.kind.value, "backstory": partner.backstory}
        entries[partner.agent] = {
            "id": partner.agent,
            "name": partner.name,
            "profile": partner.profile,
            "relationships": [bond],
        }
    return [entries[agent] for agent in task.agents]


def _rows(rows: Iterable[str]) -> str:
    lines = ",\n".join(rows)
    return f"[\n{lines}\n]" if lines else "[]"


def _json(value: Any) -> str:
    """One line of JSON in which every string, including keys, is quoted by :func:`quote`."""
    match value:
        case str():
            return quote(value)
        case None:
            return "null"
        case int() | float():
            return json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{quote(key)}: {_json(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(_json, value)) + "]"
