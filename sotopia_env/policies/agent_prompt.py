"""What a language model in a seat is told: the observation, examples, complaints, and what is left out to make it fit.

Three formats. ``chat`` is a conversation in which the seat's own actions are the assistant's messages; each turn's
messages extend the previous ones, so a server's prefix cache hits. ``single`` is one user message with the information
of SOTOPIA-π's prompt (arXiv 2403.08715, appendix B.3), as models fine-tuned on that format expect. ``brief`` is a
conversation with nothing but goals, private information, who did what and the turn's number, for models of a few
million parameters: a tenth of the length, and no instructions, which such a model learns by training or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError, field_validator

from sotopia_env.errors import InvalidValueError, name_hint
from sotopia_env.prompts import fill, load
from sotopia_env.records import JsonObject, Record, canonical_json, explain
from sotopia_env.world.action import ParseFailure, parse, to_json
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.observation import LEFT_OUT, ChatMessage, Observation, render_action
from sotopia_env.world.quoting import disarm, quote

Format = Literal["chat", "single", "brief"]
FORMATS: tuple[Format, ...] = get_args(Format)
KEPT_TURNS = 4
"""The latest turns, which are never left out."""
_STEP = 4  # turns are left out by fours, so that the messages of several turns on end share a prefix
_ECHO = 4_000
_REASON = 500
_PLACEHOLDER = "{{observation}}"
_TOKENS_PER_MESSAGE = 4
_PROMPTS = ("briefing", "answer", "private", "agent_reask", "agent_example", "agent_brief")


class Example(Record):
    """One situation and a good answer to it, shown to the model before its own.

    Attributes:
        observation: the situation as text, such as ``Observation.text``.
        action: the answer, an object with ``action_type``, ``argument`` and maybe ``to``, or its JSON text.
    """

    observation: str
    action: JsonObject

    @field_validator("action")
    @classmethod
    def _is_an_action(cls, value: dict[str, Any]) -> dict[str, Any]:
        action = parse(canonical_json(value))
        if isinstance(action, ParseFailure):
            raise ValueError(f"expected an action, but {action.reason}")
        return value

    @property
    def answer(self) -> str:
        """The action as a model is to write it."""
        action = parse(canonical_json(self.action))
        assert not isinstance(action, ParseFailure)
        return to_json(action)


_EXAMPLES: TypeAdapter[tuple[Example, ...]] = TypeAdapter(tuple[Example, ...])
ExampleSource = Sequence[Example | tuple[str, str]] | Path
"""Examples, pairs of observation text and action JSON, or a JSON file with a list of objects with these two keys."""


def read_examples(source: ExampleSource) -> tuple[Example, ...]:
    """Returns the examples in ``source``, checked.

    Raises:
        InvalidValueError: the file cannot be read, or something in it is no example; says which.
    """
    where = f"examples {source}" if isinstance(source, Path) else "examples"
    try:
        if isinstance(source, Path):
            return _EXAMPLES.validate_python(json.loads(_read(source, "examples")))
        pairs = [{"observation": e[0], "action": e[1]} if isinstance(e, tuple) and len(e) == 2 else e for e in source]
        return _EXAMPLES.validate_python(pairs)
    except ValidationError as error:
        raise InvalidValueError(f"{where}: {explain(error)}") from None
    except json.JSONDecodeError as error:
        raise InvalidValueError(f"{where}: expected a JSON list of examples, got no JSON ({error})") from None


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"{what} {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"{what} {path}: expected UTF-8 text") from None


def read_template(source: str | Path | None) -> str:
    """Returns the text of a template for the ``single`` format; ``None`` is the observation and nothing else.

    Args:
        source: the text itself, or the path of a file. It holds ``{{observation}}`` and no other placeholder.

    Raises:
        InvalidValueError: the file cannot be read, or the placeholders are not as they must be.
    """
    if source is None:
        return _PLACEHOLDER
    where = f"template {source}" if isinstance(source, Path) else "template"
    text = _read(source, "template").rstrip("\n") if isinstance(source, Path) else source
    found = sorted(set(re.findall(r"\{\{\w+\}\}", text)))
    if found != [_PLACEHOLDER]:
        raise InvalidValueError(f"{where}: expected the placeholder {_PLACEHOLDER}, got {', '.join(found) or 'none'}")
    return text


@lru_cache(maxsize=64)  # the same few texts for every episode's record
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """Turns observations into messages.

    Attributes:
        format: ``chat``, ``single`` or ``brief``.
        template: of the user message in the ``single`` format.
        examples: shown before the observation, as pairs of a user's and an assistant's message.
    """

    format: Format = "chat"
    template: str = _PLACEHOLDER
    examples: tuple[Example, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidValueError(f"format: {name_hint(str(self.format), FORMATS)}")
        if self.format != "single" and self.template != _PLACEHOLDER:
            raise InvalidValueError(f"template: only the format 'single' has one, got format {self.format!r}")

    @property
    def hashes(self) -> Mapping[str, str]:
        """The first 12 hex digits of the SHA-256 of every text that messages are made of, by name."""
        texts = {name: load(name) for name in _PROMPTS} | {"template": self.template}
        texts["examples"] = canonical_json([example.model_dump(mode="json") for example in self.examples])
        return {name: _hash(text) for name, text in texts.items()}

    def messages(self, observation: Observation, dropped: int = 0) -> list[ChatMessage]:
        """Returns the conversation, without the ``dropped`` oldest turns."""
        if self.format != "single":
            brief = self.format == "brief"
            told = _brief_messages(observation, dropped) if brief else observation.messages_without(dropped)
            return [told[0], *self._shown_examples(), *told[1:]] if self.examples else told
        text = observation.text_without(dropped)
        return [*self._shown_examples(), _user(fill(self.template, observation=text))]

    def _shown_examples(self) -> list[ChatMessage]:
        frame = load("agent_example")
        return [
            message
            for example in self.examples
            for message in (_user(fill(frame, observation=example.observation)), _assistant(example.answer))
        ]


_BEGIN, _NOTHING, _REFUSED = "(begin)", "(nothing)", "(that was not possible)"


def _brief_messages(observation: Observation, dropped: int) -> list[ChatMessage]:
    """The ``brief`` conversation; like the longer ones, each turn's extends the one before."""
    briefing = observation.briefing
    names = {briefing.agent: briefing.name} | {partner.agent: partner.name for partner in briefing.partners}
    told = disarm(fill(load("agent_brief"), goals=" ".join(briefing.goals), known=briefing.private_info)).strip()
    messages: list[ChatMessage] = [{"role": "system", "content": told}]
    news = [LEFT_OUT.format(dropped).strip()] if dropped else []
    for turn in _as_they_became_known(observation.turns[dropped:], briefing.agent):
        if turn.actor != briefing.agent:
            news.append(render_action(turn.actor, turn.action, names))
            continue
        number = (turn.round if turn.veiled else turn.index) + 1
        messages += (_call(messages, news, number), _assistant(to_json(turn.action, names)))
        news = [_REFUSED] if turn.violation else []
    return [*messages, _call(messages, news, observation.turn)]


def _as_they_became_known(turns: Sequence[Turn], agent: str) -> Sequence[Turn]:
    """The turns with those of a simultaneous round after the seat's own, which had not seen them."""
    if not any(turn.veiled for turn in turns):
        return turns
    return sorted(turns, key=lambda turn: (turn.round, turn.actor != agent))


def _call(messages: Sequence[ChatMessage], news: Sequence[str], number: int) -> ChatMessage:
    silence = _BEGIN if len(messages) == 1 else _NOTHING
    return _user("\n".join([*(news or [silence]), f"(turn {number})"]))


def _user(text: str) -> ChatMessage:
    return {"role": "user", "content": text}


def _assistant(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def complaint(text: str, reason: str) -> list[ChatMessage]:
    """Returns the two messages of a re-ask: what the model wrote, and why that is not an action.

    The model's words stay in the assistant's message, at most 4,000 characters of them and with no character that could
    open a control token; the reason, which may repeat some, is quoted.
    """
    echo = disarm(text if len(text) <= _ECHO else f"{text[:_ECHO]}…")
    return [_assistant(echo if echo.strip() else "(no text)"), _user(fill(load("agent_reask"), reason=quote(reason)))]


def brief(reason: str) -> str:
    """Returns the reason, cut to 500 characters: it may quote a name as long as the model cared to write."""
    return reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"


def approximate_tokens(text: str) -> int:
    """Returns a quarter of the number of characters, rounded up: near enough for English."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Finds how many of the oldest turns to leave out.

    Attributes:
        limit: tokens that prompt and answer may have together; ``None`` for no limit.
        answer: tokens of these that are kept for the answer; ``None`` keeps 512, or a quarter of a small limit.
        count: tokens of a text; each message costs four more.
    """

    limit: int | None = None
    answer: int | None = None
    count: Callable[[str], int] = approximate_tokens

    def __post_init__(self) -> None:
        if self.limit is None:
            if self.count is not approximate_tokens:
                raise InvalidValueError("count_tokens: expected a context_limit with it, got none")
            return
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 1:
            raise InvalidValueError(f"context_limit: expected a whole number of tokens, 1 or more, got {self.limit!r}")
        if self.answer is not None and self.answer >= self.limit:
            raise InvalidValueError(
                f"limits contradict each other: max_tokens {self.answer} leaves no room in context_limit {self.limit}"
            )

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether the messages leave room for an answer."""
        if self.limit is None:
            return True
        answer = min(512, self.limit // 4) if self.answer is None else self.answer
        return sum(self.count(m["content"]) + _TOKENS_PER_MESSAGE for m in messages) + answer <= self.limit

    def dropped(self, turns: int, messages: Callable[[int], Sequence[ChatMessage]]) -> int:
        """Returns the smallest step at which the messages fit; all but the last four turns where none does.

        Args:
            turns: how many there are.
            messages: the conversation without so many of the oldest turns.
        """
        if self.limit is None or self.fits(messages(0)):
            return 0
        most = max(0, turns - KEPT_TURNS)
        steps: list[int] = [*range(0, most, _STEP), most]
        found: int = bisect_left(steps, True, key=lambda step: self.fits(messages(step)))
        return steps[min(found, len(steps) - 1)]


def fewer_turns(turns: int, dropped: int) -> int | None:
    """Returns how many turns to leave out when ``dropped`` were not enough; ``None`` when no more may be.

    Half of those still shown go, so a conversation of n turns is shortened at most log2(n) times.
    """
    shown = turns - dropped
    return None if shown <= KEPT_TURNS else turns - max(KEPT_TURNS, shown // 2)
