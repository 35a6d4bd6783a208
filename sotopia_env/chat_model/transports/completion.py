"""Parsing of a chat completion's body, from any transport."""

from __future__ import annotations

import re
from typing import Any

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.chat_model.transports.attempt import FailedAttempt

_OPENING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_TOKEN_ID = re.compile(r"token_id:(\d+)$")  # vLLM's return_tokens_as_token_ids


def read_completion(body: Any, latency: float) -> ChatReply:
    """Returns the reply in an OpenAI chat completion.

    Args:
        body: the decoded JSON, or an object that is read the same way (``[]`` and ``.get``).
        latency: seconds the attempt took.

    Raises:
        FailedAttempt: it is no chat completion.
    """
    try:
        return _read(body, latency)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FailedAttempt(
            "malformed", f"the answer is no chat completion ({type(error).__name__}: {error})", doubtful=True
        ) from None


def _read(body: Any, latency: float) -> ChatReply:
    choice = body["choices"][0]
    message = choice["message"]
    text, thinking = split_reasoning(_text(message.get("content")) or _text(message.get("refusal")))
    reasoning = (_text(message.get("reasoning_content")) or _text(message.get("reasoning"))).strip()
    token_ids, logprobs = _tokens(choice)
    prompt_tokens, completion_tokens = _usage(body.get("usage") or {}, bool(text or thinking or reasoning))
    prompt_ids, model = body.get("prompt_token_ids"), str(body.get("model") or "")
    return ChatReply(
        text=text.lstrip() if reasoning else text,  # servers that cut the thinking out leave its line ends
        reasoning=reasoning or thinking,
        finish_reason=str(choice.get("finish_reason") or ""),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        latency=latency,
        model=model if model.isascii() else model.encode("utf-8", "replace").decode("utf-8"),
        token_ids=token_ids,
        logprobs=logprobs,
        prompt_token_ids=tuple(int(i) for i in prompt_ids) if prompt_ids else None,
    )


def _usage(usage: Any, has_text: bool) -> tuple[int | None, int | None]:
    """The tokens of prompt and answer; 0 for a prompt, or for a text, is what servers say that do not count."""
    prompt, completion = _count(usage.get("prompt_tokens")) or None, _count(usage.get("completion_tokens"))
    is_counted = completion or (prompt and not has_text)
    return prompt, completion if is_counted else None


def _count(value: Any) -> int | None:
    tokens = None if value is None else int(value)
    if tokens is not None and tokens < 0:
        raise ValueError(f"usage: expected a number of tokens, got {tokens}")
    return tokens


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return "".join(part["text"] for part in value if part.get("type") == "text")  # content in parts


def _tokens(choice: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """The sampled token ids and their log-probabilities, as vLLM, SGLang, llama.cpp and OpenAI give them."""
    block, ids = choice.get("logprobs"), choice.get("token_ids")
    if not block and not ids:
        return None, None
    entries = (block.get("content") if block else None) or []
    logprobs = tuple(float(entry["logprob"]) for entry in entries) or None
    if not ids and entries:
        ids = [_token_id(entry) for entry in entries]
    return (tuple(int(i) for i in ids) if ids and None not in ids else None), logprobs


def _token_id(entry: Any) -> int | None:
    number = entry.get("id")  # llama.cpp
    if isinstance(number, int):
        return number
    match = _TOKEN_ID.match(entry["token"])
    return int(match.group(1)) if match else None


def split_reasoning(text: str) -> tuple[str, str]:
    """Returns the utterance and the thinking before it.

    A leading ``<think>…</think>`` block (or several) is thinking; one that is never closed leaves no utterance. Some
    templates open the block in the prompt, so the text has only its end: then everything before the end is thinking,
    unless the text begins with JSON or a code fence, where the tag is part of the utterance.
    """
    if "<" not in text:
        return text, ""
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text)
    if opening is None and (closing is None or text.lstrip()[:1] in "{[`"):
        return text, ""
    start = opening.end() if opening else 0
    if closing is None:
        return "", text[start:].strip()
    thinking = text[start : closing.start()].strip()
    rest, more = split_reasoning(text[closing.end() :]) if opening else (text[closing.end() :], "")
    return rest.lstrip(), f"{thinking}\n{more}".strip()
