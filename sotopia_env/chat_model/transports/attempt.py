"""Failed attempts at a request: their kinds, and how HTTP responses are classified."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

from sotopia_env.chat_model.retries import retry_after
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.foundation.errors import ContextLengthError, ModelFailure
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.quoting import escape_line

RETRYABLE: frozenset[ModelFailure] = frozenset({"rate_limit", "server", "timeout", "connection", "malformed", "empty"})
"""Failures that may not occur again; a refused key or request is refused every time."""

_KIND_OF_STATUS: Mapping[int, ModelFailure] = {
    401: "auth",
    402: "rate_limit",
    403: "auth",
    408: "timeout",
    409: "server",
    429: "rate_limit",
}
# Failures that every other request would share: an unknown model, or a key that is not accepted. Some servers use
# another status than 404 and 401 for them, so the error's code or type is checked, but not its message, which may quote
# the request.
_FINAL_CODE = re.compile(
    r"model[_ ]?not[_ ]?found|invalid[_ ]?model|no[_ ]such[_ ]model"
    r"|api[_ ]?key[_ ]?invalid|(?:invalid|incorrect)[_ ]?api[_ ]?key",
    re.IGNORECASE,
)
_GATEWAY_TIMEOUTS = (408, 504, 524)  # the model behind the gateway may have answered and billed the request
_NO_QUOTA = ("insufficient_quota", "billing_hard_limit_reached")  # codes of a 429 that waiting does not solve, as a 402
TOO_LONG: tuple[tuple[str, str], ...] = (
    ("OpenAI and many others, as a code", r"context[_ ]length[_ ]exceeded|exceed_context_size"),
    ("OpenAI, DeepSeek, OpenRouter, Mistral, older vLLM", r"maximum context length"),
    ("OpenAI, newer models", r"exceeds the context window|input tokens exceed the configured limit"),
    ("vLLM 0.6 to 0.14", r"longer than the (?:maximum )?model|too long to fit into the model"),
    ("vLLM 0.15 and later", r"(?:model'?s )?context length is only|maximum input length of"),
    ("SGLang", r"longer than the model's context length|exceeds? the (?:maximum )?allowed length"),
    ("TGI", r"inputs?`? (?:tokens|length).{0,40}must (?:be|have)"),
    ("llama.cpp", r"exceeds? the (?:available )?context (?:size|window|length)"),
    ("LM Studio", r"context length of only|greater than the context length"),
    ("Ollama, when it does not truncate", r"input length exceeds|exceeds maximum context"),
    ("Anthropic", r"prompt is too long|input length and `?max_tokens`? exceed context limit"),
    ("Gemini and Vertex AI", r"input token count"),
    ("Bedrock", r"input is too long for requested model|too many input tokens|input is too long"),
    ("Mistral", r"too large for model with \d+ maximum"),
    ("xAI", r"maximum prompt length is \d+"),
    ("Groq", r"reduce the length of the (?:messages|input|prompt|conversation)"),
    ("GitHub Copilot", r"prompt token count of \d+ exceeds"),
    ("MiniMax", r"context window exceeds limit"),
    ("Moonshot (Kimi)", r"exceeded model token limit"),
    ("Alibaba (Qwen)", r"range of input length should be"),
    ("Zhipu (GLM)", r"prompt exceeds max length|prompt \u8d85\u957f"),
    ("Cohere", r"too many tokens"),
    ("Together, Fireworks", r"`?inputs`? tokens \+ `?max_new_tokens`?|prompt is longer than"),
    ("gateways", r"exceeds? (?:the )?(?:model'?s )?maximum context|exceeds? the model's context|context window"),
)
"""What servers say of a conversation that is too long: their names, and a pattern for their message or code.

Sources: the servers' source and documentation, and collections of messages in LiteLLM and in the packages pi-ai
(``overflow.ts``) and letta (``error_utils.py``). A refusal with another message is noticed by the length of its request
(:mod:`sotopia_env.chat_model.route`).
"""
_TOO_LONG = re.compile("|".join(pattern for _, pattern in TOO_LONG), re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:maximum context length (?:is|of)|context length is only|maximum prompt length is|token limit:"
    r"|maximum model length of|context length \(?|context length of only"
    r"|context size \(|must be <=|> |number of tokens allowed \(|for model with)\s*(\d[\d,]*)",
    re.IGNORECASE,
)
_MAX_MESSAGE = 300


class FailedAttempt(Exception):  # noqa: N818 - an event that the retries handle; it never leaves this package
    """An attempt that returned no usable answer.

    Attributes:
        kind: the kind of failure.
        status: the HTTP status; ``None`` if the server did not answer.
        retryable: whether another attempt may succeed.
        wait: the seconds that the server asks to wait; ``None`` if it does not say.
        final: whether every other request to the model would fail in the same way.
        explicit: whether ``final`` follows from the server's error code and not only from the status.
        doubtful: whether the server may bill the attempt despite the failure.
    """

    def __init__(
        self,
        kind: ModelFailure,
        message: str,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        wait: float | None = None,
        final: bool = False,
        explicit: bool = False,
        doubtful: bool = False,
        hint: str = "",
    ) -> None:
        # The hint is added after truncation, so that it is always complete.
        super().__init__(one_line(redact(message)) + hint)
        self.kind: ModelFailure = kind
        self.status = status
        self.retryable = kind in RETRYABLE if retryable is None else retryable
        self.wait = wait
        self.final = final
        self.explicit = explicit
        self.doubtful = doubtful


def one_line(text: str) -> str:
    """Returns a server's text as one line of at most 300 characters, without control characters."""
    line = escape_line(" ".join(text.split()))
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"


def error_message(body: str) -> tuple[str, str]:
    """Returns the message and code in an error body of OpenAI, older vLLM, FastAPI or TGI, a web page or plain text."""
    if not body.strip():
        return "empty body", ""
    if is_page(body):
        return page_message(body), ""
    try:
        data = decode_json(body)
    except ValueError:
        return body, ""
    error = (data.get("error") or data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return str(error), ""
    message = error.get("message") or _details(error.get("detail")) or body
    return str(message), f"{error.get('code', '')} {error.get('type', '')}"


def _details(detail: Any) -> str:
    """Returns FastAPI's list of problems, or its plain text."""
    # The field ``input`` of a problem is left out, since it may contain a whole prompt.
    if not isinstance(detail, list):
        return str(detail or "")
    problems = [one for one in detail if isinstance(one, dict)]
    return "; ".join(f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg', '')}" for one in problems)


def is_page(body: str) -> bool:
    """Whether a body is a web page."""
    return body.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))


def page_message(body: str) -> str:
    """Returns the message for a body that is a web page, with the title of the page."""
    title = re.search(r"<title[^>]*>([^<]*)", body, re.IGNORECASE)
    name = f" ({' '.join(title.group(1).split())!r})" if title and title.group(1).strip() else ""
    return f"this is a web page, not an API{name}"


def raise_for_status(
    status: int, message: str, code: str, headers: Mapping[str, Any], base: str | None = None
) -> NoReturn:
    """Raises the exception for an HTTP error status.

    Args:
        status: the status of the response.
        message: the message in its body.
        code: the code and type in its body, if any.
        headers: the headers of the response.
        base: the server's base URL as the user wrote it, for a hint if it seems incomplete; ``None`` for no hint.

    Raises:
        ContextLengthError: the server says that the conversation is too long.
        FailedAttempt: everything else.
    """
    # OpenAI's 429 for one request above the tokens of a minute, which no waiting helps.
    is_too_large = status == 429 and "request too large for" in message.lower()
    if is_too_large or (status in (400, 413, 422, 500) and _TOO_LONG.search(f"{code} {message}")):
        raise ContextLengthError(
            f"the conversation is longer than the model's context: {one_line(redact(message))}", _limit(message)
        )
    kind = _KIND_OF_STATUS.get(status) or ("server" if status >= 500 else "bad_request")
    exhausted = status == 402 or (kind == "rate_limit" and any(word in code for word in _NO_QUOTA))
    explicit = status in (400, 401, 403, 404) and _FINAL_CODE.search(code) is not None
    moved = 300 <= status < 400
    if moved and (target := headers.get("Location")):
        message = f"to Location {target}; use the address that does not redirect"
    raise FailedAttempt(
        kind,
        f"HTTP {status}: {message}",
        status=status,
        retryable=False if exhausted else None,
        wait=retry_after(headers),
        final=status in (401, 404, 405) or moved or explicit or exhausted,
        explicit=explicit,
        doubtful=status in _GATEWAY_TIMEOUTS,
        hint=_base_hint(base) if status in (404, 405) else "",
    )


def _base_hint(base: str | None) -> str:
    is_bare = base is not None and not urlsplit(base).path.strip("/")
    return f"; servers usually have their API under a path, such as {base}/v1" if is_bare else ""


def raise_if_error(answer: Any) -> None:
    """Raises the exception for an answer with status 200 whose body is an error, as some gateways send.

    Raises:
        ContextLengthError: the server says that the conversation is too long.
        FailedAttempt: the body is another error.
    """
    error = answer.get("error") if isinstance(answer, dict) else None
    if not error or answer.get("choices"):
        return
    message, code = error_message(json.dumps(answer))
    # Gateways put the upstream status into ``code``.
    number = error.get("code") if isinstance(error, dict) else None
    status = number if isinstance(number, int) and 400 <= number < 600 else 404 if _FINAL_CODE.search(code) else 500
    raise_for_status(status, message, code, {})


def _limit(message: str) -> int | None:
    match = _LIMIT.search(message)
    return int(match.group(1).replace(",", "")) if match else None
