"""Parsing of the body of a chat completion, for all transports."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any

from sotopia_env.chat_model.protocol import ChatReply, TokenChoice
from sotopia_env.chat_model.transports.attempt import FailedAttempt, is_page, page_message, raise_if_error
from sotopia_env.foundation.answer_text import (
    FILTERED_REASON,
    SPENT_REASON,
    UnclearError,
    UnclosedError,
    divide,
    is_cut_off,
    is_filtered,
    is_interrupted,
)
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.world.observation import FunctionCall

_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "thinking")
"""Fields of messages: most servers; vLLM, Ollama, OpenRouter; OpenRouter; litellm; Ollama's own protocol."""
_MESSAGE_FIELDS = ("content", *_REASONING_FIELDS)
_TEXTS = ("text", "output_text")
"""Kinds of parts: most servers; gateways to the Responses API."""
_THOUGHTS = ("thinking", "reasoning", "reasoning.text", "reasoning.summary", "summary_text", "reasoning_text")
"""Kinds of parts: Mistral and Anthropic; OpenRouter and others; parts of these."""
_PART_FIELDS = ("text", "thinking", "reasoning", "content", "summary")
_MOST_TOKENS = 10**9
_LONGEST_LABEL = 200
_TOKEN_ID = re.compile(r"token_id:(\d+)$")  # vLLM's return_tokens_as_token_ids


def decode_answer(raw: bytes) -> Any:
    """Returns the decoded body of an answer; an unrequested stream of events is joined to one completion.

    Raises:
        FailedAttempt: the body is neither JSON nor such a stream.
    """
    try:
        return decode_json(raw)
    except ValueError as error:
        text, problem = raw.decode("utf-8", "replace"), error
    if is_page(text):
        raise FailedAttempt("malformed", page_message(text), status=200, retryable=False, final=True)
    if text.lstrip().startswith(("data:", "event:", ":")):
        return _joined_events(text)
    beginning = f": {text[:_LONGEST_LABEL]!r}" if text.strip() else ", but empty"
    raise FailedAttempt("malformed", f"the answer is not JSON ({problem}){beginning}", status=200, doubtful=True)


def _joined_events(text: str) -> dict[str, Any]:
    """Returns the completion in a stream of server-sent events (``data: {…}`` lines), unless its end is missing."""
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    try:
        events = [decode_json(line) for line in lines if line and line != "[DONE]"]
        choices = [event["choices"][0] for event in events if event.get("choices")]
        deltas = [choice.get("delta") or {} for choice in choices]
        message = {name: [part for delta in deltas for part in _parts(delta.get(name))] for name in _MESSAGE_FIELDS}
        reason = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise FailedAttempt("malformed", f"the answer is not a stream of JSON ({error})", doubtful=True) from None
    raise_if_error(next((event for event in events if event.get("error")), None))
    if reason is None and "[DONE]" not in lines:
        raise FailedAttempt("malformed", "the answer is a stream of events without an end", doubtful=True)
    merged = {key: value for event in events for key, value in event.items() if value is not None}
    return {**merged, "choices": [{"message": message, "finish_reason": reason}]}


def read_completion(body: Any, latency: float) -> ChatReply:
    """Returns the reply in an OpenAI chat completion.

    Args:
        body: the decoded JSON, or an object with the same interface (``[]`` and ``.get``).
        latency: the duration of the attempt in seconds.

    Raises:
        FailedAttempt: ``body`` is not a chat completion.
        ContextLengthError: ``body`` is an error about the length of the conversation.
    """
    raise_if_error(body)
    try:
        return _read(body, latency)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FailedAttempt(
            "malformed", f"the answer is not a chat completion ({type(error).__name__}: {error})", doubtful=True
        ) from None


def _read(body: Any, latency: float) -> ChatReply:
    choice = body["choices"][0]
    raise_if_error(choice if choice.get("error") else None)  # OpenRouter: a provider's failure after the first words
    message = choice["message"]
    finish_reason, content = label_of(choice.get("finish_reason")), _text(message.get("content"))
    if is_interrupted(finish_reason):
        raise FailedAttempt("server", f"the server ended the answer: {finish_reason}", status=200, doubtful=True)
    refusal = "" if content else _text(message.get("refusal"))
    text, thinking = split_reasoning(content or refusal)
    marked = [_text(message.get(name), _THOUGHTS) for name in _REASONING_FIELDS]
    reasoning = next(filter(None, [*marked, _thinking(message.get("content"))]), "").strip()
    token_ids, logprobs = _tokens(choice)
    calls = _calls(message)
    prompt_tokens, completion_tokens = _usage(body.get("usage") or {}, bool(text or thinking or reasoning or calls))
    prompt_ids = body.get("prompt_token_ids") or choice.get("prompt_token_ids")  # vLLM; SGLang
    return ChatReply(
        text=text.lstrip() if reasoning else text,  # servers that cut out the reasoning leave its line breaks
        calls=calls,
        reasoning=reasoning or thinking,
        finish_reason="refusal" if refusal else finish_reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        latency=latency,
        model=label_of(body.get("model")),
        token_ids=token_ids,
        logprobs=logprobs,
        alternatives=_alternatives(choice),
        prompt_token_ids=tuple(int(i) for i in prompt_ids) if prompt_ids else None,
    )


def _calls(message: Any) -> tuple[FunctionCall, ...]:
    """Returns the function calls in a message; some servers send the arguments as an object instead of JSON text."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return tuple([FunctionCall(name=str(one["name"]), arguments=_json_text(one.get("arguments"))) for one in functions])


def _json_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {})


def _usage(usage: Any, has_text: bool) -> tuple[int | None, int | None]:
    """Returns the number of tokens in prompt and answer; ``None`` for those that the server did not count."""
    # Servers that do not count tokens report 0, which is impossible for a prompt and for an answer with text.
    if not hasattr(usage, "get"):
        return None, None
    prompt, completion = _count(usage.get("prompt_tokens")) or None, _count(usage.get("completion_tokens"))
    is_counted = completion or (prompt and not has_text)
    return prompt, completion if is_counted else None


def _count(value: Any) -> int | None:
    """Returns a number of tokens, or ``None`` for an invalid one, which does not make the answer unusable."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS
    return int(value) if is_number else None


def label_of(value: Any) -> str:
    """Returns a name sent by a server, such as its model's, as one line that is truncated and safe to display."""
    text = str(value or "")[:_LONGEST_LABEL]
    return escape_line(text.encode("utf-8", "replace").decode("utf-8"))


def _parts(value: Any) -> list[Any]:
    """Returns content as parts: text is one part, of the kind ``text``."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [value] if isinstance(value, dict) else list(value or ())


def _text(value: Any, kinds: Collection[str] = ()) -> str:
    """Returns the text of the parts of these kinds; a part may have parts itself."""
    if isinstance(value, str):
        return value
    parts = [part for part in _parts(value) if part.get("type") in (*_TEXTS, *kinds)]
    return "".join(part["text"] if part["type"] in _TEXTS else _text(_inside(part), kinds) for part in parts)


def _inside(part: Any) -> Any:
    return next((part[name] for name in _PART_FIELDS if part.get(name)), "")


def _thinking(content: Any) -> str:
    """Returns the parts of content that are thoughts, as Mistral and Anthropic send them."""
    return _text([part for part in _parts(content) if part.get("type") not in _TEXTS], _THOUGHTS)


def _tokens(choice: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """Returns the sampled token ids and their log-probabilities, as sent by vLLM, SGLang, llama.cpp and OpenAI."""
    block, ids = choice.get("logprobs"), choice.get("token_ids")
    if not block and not ids:
        return None, None
    entries = (block.get("content") if block else None) or []
    logprobs = tuple(float(entry["logprob"]) for entry in entries) or None
    if not ids and entries:
        ids = [_token_id(entry) for entry in entries]
    return (tuple(int(i) for i in ids) if ids and None not in ids else None), logprobs


def _alternatives(choice: Any) -> tuple[TokenChoice, ...] | None:
    """Returns the tokens with the best ones at their positions; ``None`` where the server sends at most one of them."""
    entries = (choice.get("logprobs") or {}).get("content") or []
    if all(len(entry.get("top_logprobs") or ()) < 2 for entry in entries):
        return None
    return tuple([TokenChoice(str(entry["token"]), _best(entry.get("top_logprobs") or ())) for entry in entries])


def _best(tokens: Any) -> dict[str, float]:
    probabilities: dict[str, float] = {}
    for token in tokens:
        # Different tokens may have one text.
        text = str(token["token"])
        probabilities[text] = probabilities.get(text, 0.0) + math.exp(min(0.0, float(token["logprob"])))
    return probabilities


def _token_id(entry: Any) -> int | None:
    number = entry.get("id")  # llama.cpp
    if isinstance(number, int):
        return number
    match = _TOKEN_ID.match(entry["token"])
    return int(match.group(1)) if match else None


def split_reasoning(text: str) -> tuple[str, str]:
    """Returns the utterance, and the thoughts before it (:mod:`sotopia_env.foundation.answer_text` has the rule).

    If a text is a thought that is not closed, the utterance is empty. Another text whose thoughts are unclear stays
    whole, for the reader of the answer to refuse.
    """
    try:
        answer, thinking, _ = divide(text)
    except UnclosedError as error:
        return ("", error.thinking) if not error.before.strip() else (text, "")
    except UnclearError:
        return text, ""
    return (text, "") if answer == text else (answer.lstrip(), thinking)


def empty_reason(reply: ChatReply) -> str:
    """Returns why an answer has no text, with the setting that helps."""
    reason = f"the answer has no text (finish reason {reply.finish_reason!r})"
    if is_filtered(reply.finish_reason):
        return f"{reason}: {FILTERED_REASON}"
    if is_cut_off(reply.finish_reason):
        return f"{reason}: {SPENT_REASON}"
    if reply.reasoning:
        return f"{reason}: only reasoning came; check the server's reasoning parser, or switch the reasoning off"
    return reason
