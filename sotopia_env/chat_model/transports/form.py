"""The form of a request: the fields a server is sent, and what its refusals teach about them.

Servers that speak OpenAI's protocol differ in what they take. Each difference is a row of :data:`FEATURES`: the forms
in which one thing can be asked for, from the one with the most effect to none, and how servers say that they do not
take it. The first refusal moves all later requests of the route one form on; it is logged once.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sotopia_env.chat_model.protocol import ChatRequest
from sotopia_env.chat_model.transports.attempt import FailedAttempt
from sotopia_env.errors import InvalidValueError
from sotopia_env.prompts import fill, load
from sotopia_env.world.observation import ChatMessage

logger = logging.getLogger(__name__)

Structured = Literal["auto", "on", "off"]
"""Ask the server to enforce schemas, and ask for less where it refuses; insist; never ask."""
_MODES = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class Form:
    """How a request is written; every field has one of the values in :data:`FEATURES`.

    Attributes:
        schema: ``json_schema``: as OpenAI's ``response_format``; ``json_object``: likewise of that type, with the
            schema beside it and in the prompt; ``json_only``: with it in the prompt alone; ``absent``: not at all.
        token_ids: ``return_token_ids`` (vLLM's field for the ids of the tokens), or ``absent``.
        logprobs: ``top_logprobs``: with the best token at each place, without which llama-cpp-python gives none;
            ``logprobs``: without; ``absent``: not at all.
        tool_choice: ``required``: the answer must be a call; ``auto``: the model may write text in its place.
        limit: name of the field with the limit on the answer.
        temperature: ``sent`` or ``absent``.
        seed: likewise.
        system: ``system``: as a message of its own; ``merged``: at the beginning of the user's first one.
    """

    schema: str = "json_schema"
    token_ids: str = "return_token_ids"
    logprobs: str = "top_logprobs"
    tool_choice: str = "required"
    limit: str = "max_tokens"
    temperature: str = "sent"
    seed: str = "sent"
    system: str = "system"


class Feature(NamedTuple):
    """One thing that servers differ in.

    Attributes:
        name: the field of :class:`Form`.
        values: its values, from the first that is tried to the last.
        refusal: how an error message says that the server does not take it.
        is_in: whether a request asks for it.
    """

    name: str
    values: tuple[str, ...]
    refusal: re.Pattern[str]
    is_in: Callable[[ChatRequest], bool]


_NOT_TAKEN = (
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|extra (?:inputs|fields)|only the default|deprecated"
    r"|(?:not|n't)\s+(?:be\s+)?(?:\w+\s+)?(?:support|allow|permit|enabl|accept)|invalid (?:argument|parameter|field)"
)


def _refusal_of(names: str) -> re.Pattern[str]:
    """A message that has one of the names and says that something is not taken."""
    return re.compile(rf"(?=.*(?:{names}))(?=.*(?:{_NOT_TAKEN}))", re.IGNORECASE)


FEATURES: tuple[Feature, ...] = (
    Feature(
        "schema",
        ("json_schema", "json_object", "json_only", "absent"),
        re.compile(
            r"response[_ ]?format|json[_ ]?schema|guided|structured output|grammar|requested parameters|json[_ ]?mode",
            re.IGNORECASE,
        ),
        lambda request: request.schema is not None,
    ),
    Feature(
        "token_ids",
        ("return_token_ids", "absent"),
        # The second is all that litellm's proxy passes on; no other field of ours is outside OpenAI's protocol.
        re.compile(rf"{_refusal_of('return_token_ids').pattern}|error code: 422", re.IGNORECASE),
        lambda request: request.logprobs,
    ),
    Feature("logprobs", ("top_logprobs", "logprobs", "absent"), _refusal_of("logprobs"), lambda r: r.logprobs),
    Feature(
        "tool_choice",
        ("required", "auto"),
        re.compile(r"tool_choice|required", re.IGNORECASE),
        lambda request: bool(request.tools),
    ),
    Feature(
        "limit",
        ("max_tokens", "max_completion_tokens"),
        _refusal_of("max_tokens|max_completion_tokens"),
        lambda request: request.max_tokens is not None,
    ),
    Feature("temperature", ("sent", "absent"), _refusal_of("temperature"), lambda r: r.temperature is not None),
    Feature("seed", ("sent", "absent"), _refusal_of(r"\bseed\b"), lambda request: request.seed is not None),
    Feature(
        "system",
        ("system", "merged"),
        re.compile(
            rf"(?=.*(?:system|developer) (?:role|message|prompt|instruction))(?=.*(?:{_NOT_TAKEN}))"
            r"|only (?:user|assistant).{0,40}roles are supported|roles must alternate",
            re.IGNORECASE,
        ),
        lambda request: request.messages[0]["role"] == "system",
    ),
)
"""What servers differ in; the first row whose refusal fits is taken, so the narrower names come first."""
_SILENT = ("token_ids", "logprobs")  # what an answer lacks is seen in the answer
_OF_THE_REQUEST = (400, 404, 405, 406, 415, 422, 500, 501)  # statuses of a request that is not taken as it is


class Capabilities:
    """What one server takes, as far as it is known.

    Attributes:
        form: of the next request.
    """

    def __init__(self, name: str, structured: Structured = "auto") -> None:
        """Assumes at first that the server takes everything.

        Args:
            name: of the model, for the log.
            structured: whether schemas are enforced by the server.

        Raises:
            InvalidValueError: there is no such mode.
        """
        if structured not in _MODES:
            raise InvalidValueError(field="structured", got=structured, valid=_MODES)
        self.form = Form(schema="absent") if structured == "off" else Form()
        self._name, self._insists = name, structured == "on"

    def learn(self, failure: FailedAttempt, request: ChatRequest, form: Form) -> bool:
        """Returns whether a refused request may be taken in the form that :attr:`form` has now.

        Args:
            failure: of the request.
            request: the question.
            form: in which it was sent; others may have taught another one since.
        """
        if failure.status not in _OF_THE_REQUEST:
            return False
        feature = next((one for one in FEATURES if self._is_refused(one, failure, request, form)), None)
        if feature is None or (feature.name == "schema" and self._insists):
            return False
        value = getattr(form, feature.name)
        if getattr(self.form, feature.name) == value:
            step = feature.values[feature.values.index(value) + 1]
            self.form = replace(self.form, **{feature.name: step})
            level = logging.INFO if feature.name in _SILENT else logging.WARNING
            message = "%s does not take %s %r (%s); from now on: %r"
            logger.log(level, message, self._name, feature.name, value, failure, step)
        return True

    @staticmethod
    def _is_refused(feature: Feature, failure: FailedAttempt, request: ChatRequest, form: Form) -> bool:
        is_last = getattr(form, feature.name) == feature.values[-1]
        return not is_last and feature.is_in(request) and feature.refusal.search(str(failure)) is not None


def settings_of(request: ChatRequest, form: Form) -> dict[str, Any]:
    """Returns the fields of a request beside model and messages."""
    settings: dict[str, Any] = {}
    if request.temperature is not None and form.temperature == "sent":
        settings["temperature"] = request.temperature
    if request.max_tokens is not None:
        settings[form.limit] = request.max_tokens
    if request.seed is not None and form.seed == "sent":
        settings["seed"] = request.seed
    if request.tools:
        settings["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
        settings["tool_choice"] = form.tool_choice
    if request.schema is not None and form.schema != "absent":
        settings["response_format"] = response_format(request.schema, form)
    if request.logprobs:
        settings |= {"logprobs": True} if form.logprobs != "absent" else {}
        settings |= {"top_logprobs": 1} if form.logprobs == "top_logprobs" else {}
        settings |= {"return_token_ids": True} if form.token_ids != "absent" else {}
    return settings


def response_format(schema: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Returns ``response_format`` for a schema: OpenAI's, or llama-cpp-python's ``json_object`` with a schema."""
    if form.schema == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    return {"type": "json_object"} | ({"schema": schema} if form.schema == "json_object" else {})


def messages_of(request: ChatRequest, form: Form) -> Sequence[ChatMessage]:
    """Returns the conversation: with the schema where it belongs in the prompt, without a system message if need be."""
    messages = list(request.messages)
    if request.schema is not None and form.schema in ("json_object", "json_only"):
        text = fill(load("answer_schema"), schema=json.dumps(request.schema, ensure_ascii=False))
        messages = _with_system(messages, text)
    return _merged(messages) if form.system == "merged" else messages


def _with_system(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": text}, *messages]
    return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]


def _merged(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The conversation without a system message: its text begins the user's first message."""
    first, *rest = messages
    if first["role"] != "system":
        return messages
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": first["content"]}, *rest]
    return [{"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
