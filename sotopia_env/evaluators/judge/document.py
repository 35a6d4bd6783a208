r"""An episode as the one JSON document that a judge or an interviewed participant reads.

Every text in it went through :func:`sotopia_env.world.quoting.quote`, so it stands on one line inside a JSON string
literal with control tokens, line ends of every alphabet and characters that reorder text written as ``\uXXXX``.
Structure alone begins lines. No text can therefore end its string, begin a turn or leave the document, and a JSON
parser gives back exactly what was said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.world.action import ACTION_TYPES, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Transcript
from sotopia_env.world.observation import OWN_FIELDS, briefing, describe
from sotopia_env.world.quoting import quote
from sotopia_env.world.scenario import Task

_PROFILE = tuple(field for field in OWN_FIELDS if field != "secret")


@dataclass(frozen=True, slots=True)
class Document:
    """A document and the mark of the lines around it.

    Attributes:
        text: JSON; one agent, one turn, one question a line.
        mark: 16 hex digits of the text's hash. Text inside cannot know it, so it cannot pose as the end.
        omitted: how many of the oldest turns are left out.
    """

    text: str
    mark: str
    omitted: int = 0


def document(
    transcript: Transcript, *, viewer: str | None = None, omitted: int = 0, questions: Sequence[str] = ()
) -> Document:
    """Returns the document of a transcript.

    Args:
        transcript: the episode; silent turns stay in it.
        viewer: an agent, to hold only what this one knew and witnessed; ``None`` holds everything.
        omitted: leaves out so many of the oldest turns (of those the viewer witnessed); their number is shown.
        questions: what is asked, numbered from 1.

    Raises:
        UnknownNameError: the task has no agent ``viewer``.
        InvalidValueError: there are not so many turns to leave out.
    """
    task = transcript.task
    if viewer is not None and viewer not in task.names:
        raise UnknownNameError(f"viewer: {name_hint(viewer, task.agents)}")
    turns = [_turn(turn, seen, viewer) for turn, seen in witnessed(transcript, viewer)]
    if not 0 <= omitted <= len(turns):
        raise InvalidValueError(f"omitted: expected 0 to {len(turns)} turns, got {omitted!r}")
    parts = {
        "situation": quote(task.scenario.context),
        "agents": _agents(task, viewer),
        **({"omitted_turns": str(omitted)} if omitted else {}),
        "turns": _rows(turns[omitted:]),
        "end": _json(transcript.stop.value if transcript.stop else None),
    }
    if questions:
        parts["questions"] = _rows([_json({"number": n, "goal": text}) for n, text in enumerate(questions, start=1)])
    text = "{\n" + ",\n".join(f"{quote(key)}: {part}" for key, part in parts.items()) + "\n}"
    return Document(text, hashlib.sha256(text.encode()).hexdigest()[:16], omitted)


def witnessed(transcript: Transcript, viewer: str | None = None) -> list[tuple[Turn, tuple[str, ...]]]:
    """Returns the turns, in order, each with the *other* agents that perceived it.

    A private turn is perceived by its recipients; an open one by everybody who had not left before (in a simultaneous
    round: before the round).

    Args:
        transcript: the episode.
        viewer: keeps only this agent's own turns and those it perceived.
    """
    left: dict[str, int] = {}
    found = []
    for turn in transcript.turns:
        gone = {agent for agent, round_ in left.items() if not turn.veiled or round_ < turn.round}
        seen = turn.action.to or tuple(a for a in transcript.task.agents if a != turn.actor and a not in gone)
        if viewer is None or viewer == turn.actor or viewer in seen:
            found.append((turn, seen))
        if turn.action.action_type is ActionType.LEAVE:
            left[turn.actor] = turn.round
    return found


def _turn(turn: Turn, seen: tuple[str, ...], viewer: str | None) -> str:
    """One turn as one line; types are ours and need no escapes."""
    action = turn.action
    # Who else was in the room is more than a participant can be sure of.
    seen_by = f', "seen_by": {_names(seen)}' if viewer is None else ""
    veiled = ', "simultaneous": true' if turn.veiled else ""
    return (
        f'{{"turn": {turn.index + 1}, "agent": {quote(turn.actor)}, "type": "{action.action_type.value}", '
        f'"argument": {quote(action.argument)}, "to": {_names(action.to)}{seen_by}{veiled}}}'
    )


def _names(agents: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(quote, agents)) + "]"


def _agents(task: Task, viewer: str | None) -> str:
    """Everybody as far as the viewer knows them; rendered once per task."""
    key = ("judge document", viewer)
    if key not in task.memo:
        task.memo[key] = _rows(map(_json, _everybody(task) if viewer is None else _known_to(task, viewer)))
    found: str = task.memo[key]
    return found


def _everybody(task: Task) -> list[dict[str, Any]]:
    return [_full(task, seat) for seat in range(len(task.agents))]


def _full(task: Task, seat: int) -> dict[str, Any]:
    character, side = task.characters[seat], task.scenario.seats[seat]
    others = [other for other in range(len(task.agents)) if other != seat]
    return {
        "id": task.agents[seat],
        "name": character.name,
        "profile": describe(character, _PROFILE),
        "secret": character.secret,
        "goals": side.goals,
        "private_info": side.private_info,
        "relationships": [_relationship(task, seat, other) for other in others],
    }


def _relationship(task: Task, seat: int, other: int) -> dict[str, Any]:
    relationship = task.relationship(seat, other)
    return {"with": task.agents[other], "kind": relationship.kind.value, "backstory": relationship.backstory}


def _known_to(task: Task, viewer: str) -> list[dict[str, Any]]:
    """What the briefing told one agent, in seat order."""
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
    """One line of JSON in which every string, keys included, is quoted by :func:`quote`."""
    match value:
        case str():
            return quote(value)
        case None:
            return "null"
        case int():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f"{quote(key)}: {_json(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(_json, value)) + "]"
