"""The JSON schema of a language model's answer: the actions that its seat may take now, with the open moves.

Everything that the schema admits, :func:`~sotopia_env.world.action.parse_possible` reads. Servers turn a schema into a
grammar, each with its own subset of JSON Schema, so only keywords are used that they share: no ``pattern``, which some
match against the whole text and others only if it has anchors.
"""

from __future__ import annotations

from typing import Any

from sotopia_env.outcomes import Menu
from sotopia_env.world.action import WORDLESS
from sotopia_env.world.observation import Briefing, Observation

LONGEST_ARGUMENT = 1_000
"""Most characters of an argument in the schema, about 170 words. Without a limit a weak model never closes the string;
llama.cpp takes no more than 2,000 repetitions."""
_CHARACTERS_PER_TOKEN = 2  # English has four: half of the tokens of an answer are left to the move


def action_schema(observation: Observation, max_tokens: int | None = None) -> dict[str, Any]:
    """Returns the JSON schema of the actions that a seat may take now.

    Words with one of the open moves, words alone or to some, or neither (``none`` and ``leave``). Each form has the
    strict shape that servers ask for: every key is required and no other is allowed. Keys without a value are absent
    and the others in the order of :func:`~sotopia_env.world.action.to_json`, as in the answers that models learn from.

    Args:
        observation: of the seat.
        max_tokens: limit on the answer; the words are limited so that their object can be closed within it.
    """
    longest = LONGEST_ARGUMENT
    if max_tokens is not None:
        longest = max(1, min(longest, _CHARACTERS_PER_TOKEN * max_tokens))
    speaking = [kind.value for kind in observation.available if kind not in WORDLESS]
    wordless = [kind.value for kind in observation.available if kind in WORDLESS]
    words = {"type": "string", "maxLength": longest}
    said, moves = _kinds(speaking, {**words, "minLength": 1}), _moves(observation.moves)
    forms = [_object({**_kinds(speaking, words), "move": {"anyOf": moves}})] if moves else []
    forms.append(_object(said))
    if observation.briefing.recipients:
        forms.append(_object({**said, "to": _recipients(observation.briefing)}))
    return {"anyOf": [*(forms if speaking else ()), *([_object(_kinds(wordless))] if wordless else ())]}


def _moves(menu: Menu | None) -> list[dict[str, Any]]:
    """The schemas of the open moves; empty where none is."""
    schema = menu.json_schema() if menu else {"anyOf": []}
    forms: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return forms


def _recipients(briefing: Briefing) -> dict[str, Any]:
    """The schema of ``to``, for words alone: a private offer counts only if it reaches all whose assent it needs."""
    names = [partner.name for partner in briefing.partners]
    return {"type": "array", "items": {"type": "string", "enum": names}, "maxItems": len(names)}


_NO_WORDS = {"type": "string", "enum": [""]}


def _kinds(kinds: list[str], words: dict[str, Any] = _NO_WORDS) -> dict[str, Any]:
    return {"action_type": {"type": "string", "enum": kinds}, "argument": words}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
