"""The JSON schema of a language model's answer: the actions that its seat may take now, with the open moves."""

from __future__ import annotations

from typing import Any

from sotopia_env.outcomes import Menu
from sotopia_env.world.observation import Observation


def action_schema(observation: Observation) -> dict[str, Any]:
    """Returns the JSON schema of the actions that a seat may take, in the strict form that servers ask for.

    In a task with a protocol ``move`` is one of the moves open now, or null for none.
    """
    fields: dict[str, Any] = {
        "action_type": {"type": "string", "enum": [kind.value for kind in observation.available]},
        "argument": {"type": "string"},
    }
    if observation.briefing.recipients:
        names = [partner.name for partner in observation.briefing.partners]
        fields["to"] = {"type": "array", "items": {"type": "string", "enum": names}}
    if observation.briefing.protocol:
        fields["move"] = _move_schema(observation.moves)
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


def _move_schema(moves: Menu | None) -> dict[str, Any]:
    if not moves:
        return {"type": "null"}
    schema = moves.json_schema()
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
