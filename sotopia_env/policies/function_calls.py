"""The ``tools`` format: actions as function calls, for models that were post-trained to call functions.

A turn is one call of one function. Calls are converted to JSON actions, so parser and records are those of the other
formats; later prompts show the action as a call again, and the turns since then as its result. The functions are the
same on every turn, so that each prompt extends the previous one; the observation says which moves are open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.outcomes import ChoiceIssue, ItemsIssue, MoveKind, NumberIssue
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.move import LONGEST_CLAIM, STATEMENTS
from sotopia_env.world.action import MAX_WAIT, WORDLESS, Action, ActionType, parse
from sotopia_env.world.observation import Briefing, ChatMessage, FunctionCall, Observation, ToolCall

load = reader(__package__)

_WORDS, _TO, _WAIT = "words", "to", "wait"


class _Function(NamedTuple):
    """The action that a function stands for, optionally with a move whose content is the argument ``content``."""

    kind: ActionType = ActionType.SPEAK
    move: MoveKind | None = None
    content: str = ""


FUNCTIONS: Mapping[str, _Function] = {
    "say": _Function(),
    "gesture": _Function(ActionType.NON_VERBAL),
    "act": _Function(ActionType.ACTION),
    "propose": _Function(move=MoveKind.PROPOSE, content="terms"),
    "accept": _Function(move=MoveKind.ACCEPT, content="offer"),
    "reject": _Function(move=MoveKind.REJECT, content="offer"),
    "withdraw": _Function(move=MoveKind.WITHDRAW, content="offer"),
    "vote": _Function(move=MoveKind.VOTE, content="option"),
    "claim": _Function(move=MoveKind.CLAIM, content="answer"),
    "choose": _Function(move=MoveKind.CHOOSE, content="option"),
    "state": _Function(move=MoveKind.STATE, content="values"),
    "show": _Function(move=MoveKind.SHOW, content="variables"),
    "ask": _Function(move=MoveKind.ASK, content="variables"),
    "wait": _Function(ActionType.NONE),
    "leave": _Function(ActionType.LEAVE),
}
"""All functions by name; a task offers those of its protocol, and with facts those of statements."""
_OF_PROTOCOL = {
    "agreement": (MoveKind.PROPOSE, MoveKind.ACCEPT, MoveKind.REJECT, MoveKind.WITHDRAW),
    "ballot": (MoveKind.VOTE,),
    "claims": (MoveKind.CLAIM,),
    "choices": (MoveKind.CHOOSE,),
}
_NAMES = {(function.kind, function.move): name for name, function in FUNCTIONS.items()}


def functions_of(observation: Observation) -> tuple[dict[str, Any], ...]:
    """Returns the functions of an acting seat, each with its name, description and JSON schema of its arguments."""
    briefing = observation.briefing
    moves = (None, *_moves(briefing))
    described = dict(line.split(": ", 1) for line in load("agent_functions").splitlines())
    return tuple(
        {"name": name, "description": described[name], "parameters": _parameters(function, briefing)}
        for name, function in FUNCTIONS.items()
        if function.kind in observation.available and function.move in moves
    )


def _moves(briefing: Briefing) -> tuple[MoveKind, ...]:
    # A seat that may know no variable has none that it could speak of.
    statements = STATEMENTS if briefing.facts is not None and briefing.facts.variables else ()
    return (*_binding(briefing), *statements)


def _binding(briefing: Briefing) -> tuple[MoveKind, ...]:
    contract = isinstance(briefing.rules, ChoicesRules) and briefing.rules.contract
    return (*_OF_PROTOCOL.get(briefing.protocol, ()), *(_OF_PROTOCOL["agreement"] if contract else ()))


def instruction(briefing: Briefing) -> str:
    """Returns the instruction to answer with a function call, which replaces :attr:`Briefing.answer`."""
    moves = ", ".join(kind.value for kind in _binding(briefing))
    binding = fill(load("binding"), moves=moves) if moves else ""
    answer = fill(load("answer_tools"), name=escape_line(briefing.name), binding=binding)
    return f"{answer}\n{briefing.timing}" if briefing.timing else answer


def _parameters(function: _Function, briefing: Briefing) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    # Optional, unlike all other arguments: most turns are public, and leave the time to the turn order.
    options: dict[str, Any] = {_WAIT: {"type": "integer", "minimum": 1, "maximum": MAX_WAIT}} if briefing.timing else {}
    if function.move is not None:
        properties[function.content] = _content(function.move, briefing)
    if function.kind not in WORDLESS:
        properties[_WORDS] = {"type": "string"}
        # A binding move goes to everybody.
        if briefing.recipients and (function.move is None or function.move in STATEMENTS):
            names = [partner.name for partner in briefing.partners]
            options[_TO] = {"type": "array", "items": {"type": "string", "enum": names}}
    return {**_object(properties), "properties": properties | options}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _value(issue: NumberIssue | ChoiceIssue | ItemsIssue, names: Mapping[str, str]) -> dict[str, Any]:
    """The schema of an issue's value; shorter than in :mod:`~.answer_schema`, because every prompt contains it."""
    if issue.kind == "choice":
        return {"type": "string", "enum": [*issue.options]}
    if issue.kind == "items":
        pieces = {agent: {"type": "integer", "description": escape_line(name)} for agent, name in names.items()}
        return {**_object(pieces), "description": f"{issue.count} to be divided"}
    return {"type": "number" if issue.decimals else "integer", "description": escape_line(issue.limits_text())}


def _content(move: MoveKind, briefing: Briefing) -> dict[str, Any]:
    if move in STATEMENTS:
        assert briefing.facts is not None
        variables = briefing.facts.variables
        if move is MoveKind.STATE:
            return {"type": "object", "additionalProperties": False, "minProperties": 1} | {
                "properties": {name: {"type": "string", "enum": [*v.options]} for name, v in variables.items()}
            }
        return {"type": "array", "minItems": 1, "items": {"type": "string", "enum": [*variables]}}
    assert briefing.space is not None
    if move is MoveKind.PROPOSE:
        space = briefing.space
        return _object({issue.name: _value(issue, space.names) for issue in space.issues})
    if move is MoveKind.VOTE:
        options = [*briefing.space.issues[0].values(briefing.space.names)]
        return {"anyOf": [{"type": "string", "enum": options}, {"type": "null"}]}
    if move is MoveKind.CHOOSE:
        assert isinstance(briefing.rules, ChoicesRules)
        return {"type": "string", "enum": [*briefing.rules.menu_of(briefing.agent)]}
    if move is MoveKind.CLAIM:
        return {"type": "string", "maxLength": LONGEST_CLAIM}
    return {"type": "integer"}


def action_text(calls: Iterable[FunctionCall]) -> str:
    """Returns the JSON actions that calls stand for, one per line; the parser refuses calls that are not actions."""
    return "\n".join(map(_action_json, calls))


def text_of(answer: str | Mapping[str, Any]) -> str:
    """Returns the text of an answer that is a text, an action as JSON fields, or a call of a function.

    Args:
        answer: a call has a ``name`` and ``arguments``, or these in OpenAI's ``{"function": …}``.
    """
    if isinstance(answer, str):
        return answer
    call = answer.get("function", answer)
    if "name" not in call:
        return json.dumps(answer, ensure_ascii=False)
    arguments = call.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return action_text([FunctionCall(str(call["name"]), text)])


def _action_json(call: FunctionCall) -> str:
    # What cannot be converted is kept as text, which the parser refuses with a reason for the re-ask: the closing
    # parenthesis is a word after whatever object the arguments hold.
    try:
        arguments = decode_json(call.arguments or "{}", strict=False)
    except ValueError:
        return f"{call.name}({call.arguments})"
    if not isinstance(arguments, dict):
        return f"{call.name}({call.arguments})"
    function = FUNCTIONS.get(call.name)
    action: dict[str, Any] = {"action_type": call.name if function is None else function.kind.value}
    if _WORDS in arguments or "argument" not in arguments:
        action["argument"] = arguments.pop(_WORDS, "")
    if _TO in arguments:
        action["to"] = arguments.pop(_TO)
    if function is not None and function.move is not None:
        action["move"] = {function.move.value: arguments.pop(function.content, {})}
    # An argument that contradicts the call gets a name that the parser refuses.
    others = {f"{call.name}.{key}" if key in action else key: value for key, value in arguments.items()}
    return json.dumps({**action, **others}, ensure_ascii=False)


def call_of(text: str) -> FunctionCall | None:
    """Returns the call that stands for the action in a text; ``None`` if the text is not an action."""
    action = parse(text)
    if not isinstance(action, Action) or (action.move is not None and action.move.beside):
        return None  # a call makes one move, so a move with statements beside it stays text
    name = _NAMES[(action.action_type, None)] if action.move is None else action.move.kind.value
    arguments: dict[str, Any] = {}
    if action.move is not None:
        content = action.move.content
        single = action.move.kind in (MoveKind.SHOW, MoveKind.ASK) and isinstance(content, str)
        arguments[FUNCTIONS[name].content] = [content] if single else content
    if action.argument or action.action_type not in WORDLESS:
        arguments[_WORDS] = action.argument
    if action.to:
        arguments[_TO] = [*action.to]
    if action.wait is not None:
        arguments[_WAIT] = action.wait
    return FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def with_calls(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Returns the conversation with the assistant's actions as calls and the user messages after them as results."""
    result: list[ChatMessage] = []
    pending = ""
    for message in messages:
        call = call_of(message["content"]) if message["role"] == "assistant" else None
        if call is not None:
            # Mistral's template demands ids of exactly nine letters and digits.
            pending = f"call{len(result):05d}"
            calls = [ToolCall(id=pending, type="function", function=call._asdict())]
            result.append({"role": "assistant", "content": "", "tool_calls": calls})
        elif pending and message["role"] == "user":
            result.append({"role": "tool", "content": message["content"], "tool_call_id": pending})
            pending = ""
        else:
            result.append(message)
    return result


def with_action_text(reply: ChatReply) -> ChatReply:
    """Returns a reply whose text is the actions that its calls stand for; a reply without calls is unchanged."""
    return replace(reply, text=action_text(reply.calls)) if reply.calls else reply
