"""Function calls of models in this process: in prompts through the chat template, and in sampled text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.answer_text import UnclearError, read_answer
from sotopia_env.foundation.errors import InvalidValueError, first_line
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.world.observation import ChatMessage, FunctionCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ARGUMENTS = ("arguments", "parameters")
"""Keys of a call's arguments: the first of Hermes, Qwen and Mistral, the second of Llama."""
_TOOL = {"name": "leave", "description": "Leave.", "parameters": {"type": "object", "properties": {}, "required": []}}
_CALL = FunctionCall(name="leave", arguments="{}")
_PROBE: tuple[ChatMessage, ...] = (
    {"role": "system", "content": "You are Ada."},
    {"role": "user", "content": "Turn #1 is yours."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call00002", "type": "function", "function": _CALL._asdict()}],
    },
    {"role": "tool", "content": "Turn #3 is yours.", "tool_call_id": "call00002"},
)


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[ChatMessage],
    tools: Sequence[Mapping[str, Any]],
    add_prompt: bool = True,
) -> str:
    """Returns a conversation with functions as text, by default up to the beginning of the assistant's answer."""
    text = tokenizer.apply_chat_template(
        [_for_template(message) for message in messages],
        tools=[{"type": "function", "function": dict(tool)} for tool in tools] or None,
        add_generation_prompt=add_prompt,
        tokenize=False,
    )
    return str(text)


def calling_prompt_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Returns the token ids of a conversation with functions, up to the beginning of the assistant's answer."""
    # The rendered text has its special tokens already.
    return list(tokenizer(render(tokenizer, messages, tools), add_special_tokens=False)["input_ids"])


def _for_template(message: ChatMessage) -> dict[str, Any]:
    """Returns a message as chat templates read it: with the arguments of calls as objects."""
    if "tool_calls" not in message:
        return dict(message)
    calls = [
        {**call, "function": {**call["function"], "arguments": decode_json(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def calls_in(text: str) -> tuple[FunctionCall, ...]:
    """Returns the calls in a model's text: its JSON objects with a name and arguments, within any tags."""
    try:
        objects = read_answer(text).objects
    except UnclearError:
        return ()
    calls = [(item.get("name"), item[key]) for item in objects for key in _ARGUMENTS if key in item]
    return tuple([FunctionCall(name, json.dumps(arguments)) for name, arguments in calls if isinstance(name, str)])


def check_calls(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Checks that a chat template renders functions, and that :func:`calls_in` reads its form of calls.

    Raises:
        InvalidValueError: the template does not; the message names the problem.
    """
    from jinja2 import TemplateError

    try:
        with_tools, without_tools = (render(tokenizer, _PROBE[:2], tools) for tools in ([_TOOL], []))
        called = render(tokenizer, _PROBE[:3], [_TOOL], add_prompt=False)
        render(tokenizer, _PROBE, [_TOOL])
    except (TemplateError, TypeError) as error:  # a TypeError if the template expects arguments as text
        problem = f"it refuses function calls ({first_line(error)})"
    else:
        # A template without support ignores the functions silently.
        if with_tools == without_tools:
            problem = "it does not render functions"
        elif calls_in(called[len(with_tools) :]) != (_CALL,):
            problem = "it renders function calls in an unknown form"
        else:
            return
    raise InvalidValueError(
        problem,
        field="chat_template",
        where=name,
        hint="choose another format than 'tools', such as 'chat'",
    )
