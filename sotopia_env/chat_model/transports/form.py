"""The form of a request: the fields that are sent to a server, adapted after its refusals.

Servers with OpenAI's protocol accept different fields. Each difference is a row of :data:`FEATURES`, with the possible
forms of one field, from the most effective to none, and a pattern for error messages that refuse it. The first refusal
moves all later requests of the route to the next form; it is logged once.
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
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.world.observation import ChatMessage

load = reader(__package__)

logger = logging.getLogger(__name__)

Structured = Literal["auto", "on", "off"]
"""``auto``: ask the server to enforce schemas, in weaker forms after a refusal; ``on``: require it; ``off``: never."""
_MODES = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The form of a request; every field has one of the values in :data:`FEATURES`.

    Attributes:
        schema: the kind of ``response_format``. ``json_schema``: OpenAI's form with a schema; ``json_object``: any JSON
            object, with the schema in an additional field and in the prompt; ``json_only``: any JSON object, with the
            schema only in the prompt; ``absent``: no ``response_format``.
        bounds: ``sent``: the schema limits lengths and ranges; ``absent``: it does not, since Azure's rules for strict
            schemas exclude these keywords, and OpenAI's exclude some of them.
        token_ids: ``return_token_ids`` (vLLM's field for token ids), or ``absent``.
        logprobs: ``top_logprobs``: log-probabilities with the best token at each position, without which
            llama-cpp-python sends none; ``logprobs``: log-probabilities only; ``absent``: neither.
        tool_choice: ``required``: the answer must be a call; ``auto``: the model may answer with text instead.
        limit: the name of the field with the limit on the answer.
        temperature: ``sent`` or ``absent``.
        seed: ``sent`` or ``absent``.
        blank: ``sent``: earlier answers without text are sent as they were; ``filled``: a placeholder is sent instead.
        system: ``system``: as a separate message; ``merged``: at the beginning of the user's first message.
    """

    schema: str = "json_schema"
    bounds: str = "sent"
    token_ids: str = "return_token_ids"
    logprobs: str = "top_logprobs"
    tool_choice: str = "required"
    limit: str = "max_tokens"
    temperature: str = "sent"
    seed: str = "sent"
    blank: str = "sent"
    system: str = "system"


class Feature(NamedTuple):
    """One difference between servers.

    Attributes:
        name: the field of :class:`RequestForm`.
        values: the values of the field, in the order in which they are tried.
        refusal: matches error messages that refuse the field.
        is_in: returns whether a request needs the field.
    """

    name: str
    values: tuple[str, ...]
    refusal: re.Pattern[str]
    is_in: Callable[[ChatRequest], bool]


_NOT_ACCEPTED = (
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|extra (?:inputs|fields)|only the default|deprecated"
    r"|(?:not|n't)\s+(?:be\s+)?(?:\w+\s+)?(?:support|allow|permit|enabl|accept)|invalid (?:argument|parameter|field)"
)


def _refusal_of(names: str) -> re.Pattern[str]:
    """Returns a pattern for messages that contain one of the names and say that something is not accepted."""
    return re.compile(rf"(?=.*(?:{names}))(?=.*(?:{_NOT_ACCEPTED}))", re.IGNORECASE)


_BOUNDS = ("minLength", "maxLength", "minimum", "maximum", "multipleOf", "minItems", "maxItems")
_ROOT = "action"  # the key of an answer whose schema is not an object, in the object around it
_BEFORE_ROOT = re.compile(rf'\s*{{\s*"{_ROOT}"\s*:\s*')

_PLACEHOLDER = "(no text)"


def _is_blank(message: ChatMessage) -> bool:
    return message["role"] == "assistant" and not message["content"].strip() and "tool_calls" not in message


FEATURES: tuple[Feature, ...] = (
    # OpenAI: "Invalid schema for response_format 'answer': In context=('properties', 'argument'), 'maxLength' is not
    # permitted." It names the keyword, in contrast to a refusal of the whole schema.
    Feature(
        "bounds",
        ("sent", "absent"),
        re.compile(rf"['\"`](?:{'|'.join(_BOUNDS)})['\"`]"),
        lambda request: request.schema is not None,
    ),
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
        # litellm's proxy only passes on "error code: 422". It must mean this field: all others that are sent belong to
        # OpenAI's protocol.
        re.compile(rf"{_refusal_of('return_token_ids').pattern}|error code: 422", re.IGNORECASE),
        lambda request: request.logprobs,
    ),
    # Not only unknown fields: servers also refuse more than 5 or 20 alternatives ("top_logprobs must be at most 5").
    Feature(
        "logprobs",
        ("top_logprobs", "logprobs", "absent"),
        re.compile("logprobs", re.IGNORECASE),
        lambda request: request.logprobs,
    ),
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
    # Anthropic: "messages: text content blocks must be non-empty", "all messages must have non-empty content except for
    # the optional final assistant message"; Bedrock: "The text field in the ContentBlock object … is blank".
    Feature(
        "blank",
        ("sent", "filled"),
        re.compile(r"non-?empty|must not be (?:empty|blank)|is (?:blank|empty)|cannot be empty", re.IGNORECASE),
        lambda request: any(map(_is_blank, request.messages)),
    ),
    Feature(
        "system",
        ("system", "merged"),
        re.compile(
            rf"(?=.*(?:system|developer) (?:role|message|prompt|instruction))(?=.*(?:{_NOT_ACCEPTED}))"
            r"|only (?:user|assistant).{0,40}roles are supported|roles must alternate",
            re.IGNORECASE,
        ),
        lambda request: request.messages[0]["role"] == "system",
    ),
)
"""The differences between servers; the first row with a matching refusal applies, so narrower names come first."""
_SILENT = ("token_ids", "logprobs")  # not logged as warnings: their absence shows in the answer
_OF_THE_REQUEST = (400, 404, 405, 406, 415, 422, 500, 501)  # statuses with which servers refuse a field


class Capabilities:
    """The known capabilities of one server.

    Attributes:
        form: the form of the next request.
    """

    def __init__(self, name: str, structured: Structured = "auto") -> None:
        """Assumes that the server accepts every field.

        Args:
            name: the name of the model, for the log.
            structured: whether the server is asked to enforce schemas.

        Raises:
            InvalidValueError: ``structured`` is not one of the modes.
        """
        if structured not in _MODES:
            raise InvalidValueError(field="structured", got=structured, valid=_MODES)
        self.form = RequestForm(schema="absent") if structured == "off" else RequestForm()
        self._name, self._insists = name, structured == "on"

    def learn(self, failure: FailedAttempt, request: ChatRequest, form: RequestForm) -> bool:
        """Adapts :attr:`form` to a refusal; returns whether to send the request again in the new form.

        Args:
            failure: the failure of the request.
            request: the request.
            form: the form in which it was sent; concurrent requests may have changed :attr:`form` since.
        """
        if failure.status not in _OF_THE_REQUEST:
            return False
        feature = next((one for one in FEATURES if self._is_refused(one, failure, request, form)), None)
        if feature is None or (feature.name == "schema" and self._insists):
            return False
        value = getattr(form, feature.name)
        # Of many concurrent requests with the same refusal, only the first moves to the next form.
        if getattr(self.form, feature.name) == value:
            step = feature.values[feature.values.index(value) + 1]
            self.form = replace(self.form, **{feature.name: step})
            level = logging.INFO if feature.name in _SILENT else logging.WARNING
            message = "%s does not accept %s %r (%s); from now on: %r"
            logger.log(level, message, self._name, feature.name, value, failure, step)
        return True

    @staticmethod
    def _is_refused(feature: Feature, failure: FailedAttempt, request: ChatRequest, form: RequestForm) -> bool:
        is_last = getattr(form, feature.name) == feature.values[-1]
        return not is_last and feature.is_in(request) and feature.refusal.search(str(failure)) is not None


RESERVED = frozenset(
    {
        *("model", "messages", "temperature", "max_tokens", "max_completion_tokens", "seed", "tools", "tool_choice"),
        *("response_format", "logprobs", "top_logprobs", "return_token_ids", "stream", "n"),
    }
)
"""The fields of a request that this package sets, or whose answer it could not read."""


def settings_of(request: ChatRequest, form: RequestForm) -> dict[str, Any]:
    """Returns the fields of a request other than model and messages."""
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
        settings |= {"top_logprobs": request.alternatives} if form.logprobs == "top_logprobs" else {}
        settings |= {"return_token_ids": True} if form.token_ids != "absent" else {}
    return settings


def response_format(schema: Mapping[str, Any], form: RequestForm) -> dict[str, Any]:
    """Returns ``response_format`` for a schema: OpenAI's, or llama-cpp-python's ``json_object`` with a schema.

    OpenAI and Azure refuse a strict schema whose root is not an object ("Root objects must not be anyOf and must be an
    object"). Such a schema is put into an object with one key, which :func:`unwrapped` removes from the answer.
    """
    if form.schema != "json_schema":
        return {"type": "json_object"} | ({"schema": schema} if form.schema == "json_object" else {})
    schema = schema if form.bounds == "sent" else _unbounded(schema)
    if schema.get("type") != "object":
        schema = {"type": "object", "properties": {_ROOT: schema}, "required": [_ROOT], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def unwrapped(text: str, request: ChatRequest, form: RequestForm) -> str:
    """Returns an answer without the object that :func:`response_format` puts around it; other texts are unchanged."""
    is_wrapped = request.schema is not None and request.schema.get("type") != "object" and form.schema == "json_schema"
    match = _BEFORE_ROOT.match(text) if is_wrapped else None
    if match is None:
        return text
    # The text inside is kept as the model wrote it, since a record holds the model's own words.
    inner = text.rstrip()[match.end() : -1].strip()
    try:
        decode_json(inner, strict=False)  # fails if the answer was cut off, or if the object has other keys, too
    except ValueError:
        return text
    return inner


def _unbounded(schema: Any) -> Any:
    """Returns a schema without limits on lengths and ranges."""
    if isinstance(schema, list | tuple):
        return [_unbounded(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    # Below ``properties``, keys are names of fields and not keywords.
    fields = {"properties": {name: _unbounded(part) for name, part in schema.get("properties", {}).items()}}
    rest = {key: _unbounded(part) for key, part in schema.items() if key not in (*_BOUNDS, "properties")}
    return {key: fields.get(key, rest.get(key)) for key in schema if key not in _BOUNDS}


def messages_of(request: ChatRequest, form: RequestForm) -> Sequence[ChatMessage]:
    """Returns the messages of a request, adapted to the form: with the schema, or without a system message."""
    messages = list(request.messages)
    if request.schema is not None and form.schema in ("json_object", "json_only"):
        text = fill(load("answer_schema"), schema=json.dumps(request.schema, ensure_ascii=False))
        messages = _with_system(messages, text)
    if form.blank == "filled":
        messages = [{**one, "content": _PLACEHOLDER} if _is_blank(one) else one for one in messages]
    return _merged(messages) if form.system == "merged" else messages


def _with_system(messages: list[ChatMessage], text: str) -> list[ChatMessage]:
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": text}, *messages]
    return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]


def _merged(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Returns the conversation without a system message, whose text is prepended to the user's first message."""
    first, *rest = messages
    if first["role"] != "system":
        return messages
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": first["content"]}, *rest]
    return [{"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
