"""The JSON schema of a language model's answer: the actions that its seat may take now, with the open moves.

:func:`~sotopia_env.world.action.parse_possible` reads every answer that the schema admits. Servers compile a schema to
a grammar, and each supports its own subset of JSON Schema, so the schema uses only keywords that they share. It does
not use ``pattern``, which some servers match against the whole text and others only if it has anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sotopia_env.outcomes import Menu
from sotopia_env.world.action import MAX_WAIT, WORDLESS
from sotopia_env.world.observation import Briefing, Observation

LONGEST_ARGUMENT = 1_000
"""The maximum number of characters of an argument in the schema, about 170 words. Without a limit a weak model never
closes the string. llama.cpp accepts at most 2,000 repetitions."""
# English has about four characters per token and the text of a weak model three, so half of the tokens of an answer are
# left for the move.
_CHARACTERS_PER_TOKEN = 1.5


def action_schema(observation: Observation, max_tokens: int | None = None) -> dict[str, Any]:
    """Returns the JSON schema of the actions that a seat may take now.

    An action is words with one of the open moves, words alone to everyone or to some seats, or a type without words
    (``none`` and ``leave``). Each alternative has the strict form that servers require: every key is required and no
    other key is allowed. Keys without a value are absent, and the others are in the order of
    :func:`~sotopia_env.world.action.to_json`, as in the answers that models are trained on.

    Args:
        observation: the seat's observation.
        max_tokens: the limit on the answer; the words are limited so that the object can be closed within it.
    """
    longest = LONGEST_ARGUMENT
    if max_tokens is not None:
        longest = max(1, min(longest, int(_CHARACTERS_PER_TOKEN * max_tokens)))
    speaking = [kind.value for kind in observation.available if kind not in WORDLESS]
    wordless = [kind.value for kind in observation.available if kind in WORDLESS]
    words = {"type": "string", "maxLength": longest}
    # Words may be empty only beside a move: an action with neither would be refused.
    utterance, moves = {**words, "minLength": 1}, _moves(observation.moves)
    wait = {"wait": _WAIT} if observation.briefing.timing else {}
    forms = [_form(speaking, words, moves, wait)] if moves else []
    forms.append(_form(speaking, utterance, (), wait))
    if observation.briefing.recipients:
        to = {"to": _recipients(observation.briefing)}
        forms.append(_form(speaking, utterance, (), to | wait))
        # Statements bind nobody, so they may be addressed to some, too.
        if statements := _statements(observation.moves):
            forms.append(_form(speaking, words, statements, to | wait))
    return {"anyOf": [*(forms if speaking else ()), *([_form(wordless, _NO_WORDS, (), wait)] if wordless else ())]}


def _moves(menu: Menu | None) -> list[dict[str, Any]]:
    """The schemas of the open moves; empty if no move is open."""
    schema = menu.json_schema() if menu else {"anyOf": []}
    forms: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return forms


def _statements(menu: Menu | None) -> list[dict[str, Any]]:
    return [] if menu is None else menu.statements.forms()


def _recipients(briefing: Briefing) -> dict[str, Any]:
    """The schema of ``to``, for words and statements: an offer counts only if it reaches all whose assent it needs."""
    names = [partner.name for partner in briefing.partners]
    return {"type": "array", "items": {"type": "string", "enum": names}, "maxItems": len(names)}


_WAIT = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_WAIT}, {"type": "null"}]}
_NO_WORDS = {"type": "string", "enum": [""]}


def _form(
    kinds: list[str], words: dict[str, Any], moves: Sequence[dict[str, Any]], more: dict[str, Any]
) -> dict[str, Any]:
    """The schema of one form of an action, with its keys in order."""
    move = {"move": {"anyOf": [*moves]}} if moves else {}
    fields = {"action_type": {"type": "string", "enum": kinds}, **move, "argument": words, **more}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
