"""Prompts for a language model in a seat: the observation, few-shot examples, complaints, and the turns to leave out.

There are four formats:

* ``chat`` is a conversation in which the seat's own texts are the assistant's messages, byte for byte; each turn's
  messages extend the previous ones, so a server's prefix cache hits.
* ``single`` is one user message with the information of SOTOPIA-π's prompt (arXiv 2403.08715, appendix B.3), as
  models fine-tuned on that format expect.
* ``brief`` is a conversation without instructions, a tenth as long, for models of a few million parameters, which learn
  instructions by training or not at all. It lists goals, private information, the seat's worth, the range of possible
  agreements, the turns, the reason why the seat's answer or move did not count, the turn's number, the number of the
  seat's turns left, and the move that accepts each open offer, with what the seat gains or loses by it compared with no
  agreement. The rest of the table follows from the effects of the moves.
* ``tools`` is ``chat`` with functions to call instead of a JSON form (:mod:`sotopia_env.policies.function_calls`).
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, get_args

from sotopia_env.foundation.errors import InvalidValueError, check_whole
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape, escape_line, quote
from sotopia_env.outcomes.descriptions import issue_outline
from sotopia_env.outcomes.facts import SeatFacts
from sotopia_env.outcomes.issues import NumberIssue
from sotopia_env.outcomes.valuation import WorthForm
from sotopia_env.outcomes.worth import rungs_text
from sotopia_env.policies.examples import PLACEHOLDER, Example
from sotopia_env.policies.function_calls import functions_of, instruction, with_calls
from sotopia_env.policies.prompt_sample import sample_observations
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.observation import LEFT_OUT, Briefing, ChatMessage, Observation, render_action
from sotopia_env.world.perception.briefing import briefing_text

load = reader(__package__)

Format = Literal["chat", "single", "brief", "tools"]
FORMATS: tuple[Format, ...] = get_args(Format)
KEPT_TURNS = 4
"""The latest turns, which are never left out."""
# Turns are left out by fours, so that the prompts of several consecutive turns share a prefix.
_STEP = 4
# Limits in characters: an endless answer, or a reason that quotes it, must not fill the context of the re-ask.
_ECHO = 4_000
_REASON = 500
# The role and the delimiters that a chat template adds to each message.
_TOKENS_PER_MESSAGE = 4
_BRIEFING_PROMPTS = ("briefing", "answer", "move", "private", "timing")
_LONG_PROMPTS = (*_BRIEFING_PROMPTS, "agent_reask", "agent_example")
_TOOL_PROMPTS = ("answer_tools", "binding", "agent_functions", "agent_reask_tools")
_PROMPTS: Mapping[Format, tuple[str, ...]] = {
    "chat": _LONG_PROMPTS,
    "single": _LONG_PROMPTS,
    "brief": ("agent_brief", "agent_reask", "agent_example"),
    "tools": ("briefing", "timing", *_TOOL_PROMPTS, "agent_example"),
}


_PLAYED = ("template", "examples", "agent_example", "agent_reask", "agent_reask_tools")
"""Texts of prompts that are sent in play alone."""


@lru_cache(maxsize=64)  # the same few texts for every episode's record
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """Converts observations to messages.

    Attributes:
        format: ``chat``, ``single``, ``brief`` or ``tools``.
        template: the template of the user message in the ``single`` format.
        examples: few-shot examples, added before the observation as pairs of a user's and an assistant's message.
    """

    format: Format = "chat"
    template: str = PLACEHOLDER
    examples: tuple[Example, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidValueError(field="format", got=self.format, valid=FORMATS)
        if self.format != "single" and self.template != PLACEHOLDER:
            raise InvalidValueError(f"only the format 'single' has one, not {self.format!r}", field="template")

    @property
    def trained_hashes(self) -> Mapping[str, str]:
        """Those of :attr:`hashes` whose texts training renders, too: no examples, no re-asks, no other template."""
        return {name: value for name, value in self.hashes.items() if name not in _PLAYED}

    @property
    def hashes(self) -> Mapping[str, str]:
        """The first 12 hex digits of the SHA-256 of every text that messages are made of, by name.

        ``sample`` is that of :func:`sample_text`: what code writes into messages has no file of its own.
        """
        texts = {name: prompt_text(name) for name in _PROMPTS[self.format]} | {"template": self.template}
        texts["examples"] = canonical_json([example.model_dump(mode="json") for example in self.examples])
        texts["sample"] = sample_text(self.format)
        return {name: _hash(text) for name, text in texts.items()}

    def messages(self, observation: Observation, dropped: int = 0) -> list[ChatMessage]:
        """Returns the conversation, without the ``dropped`` oldest turns."""
        examples = self._example_messages()
        if self.format == "single":
            return [*examples, _user(fill(self.template, observation=observation.text_without(dropped)))]
        brief = self.format == "brief"
        system, *turns = _brief_messages(observation, dropped) if brief else observation.messages_without(dropped)
        if self.format == "tools":
            # The briefing ends with the description of the JSON form, which function calls replace.
            head = system["content"].removesuffix(observation.briefing.answer)
            system = {"role": "system", "content": head + instruction(observation.briefing)}
        return [system, *examples, *turns]

    def _example_messages(self) -> list[ChatMessage]:
        frame = load("agent_example")
        return [
            message
            for example in self.examples
            for message in (_user(fill(frame, observation=escape(example.observation))), _assistant(example.answer))
        ]


_BEGIN, _NOTHING = "(begin)", "(nothing)"
_UNUSABLE, _REFUSED, _MOVE_REFUSED = "that could not be read", "that was not possible", "your move did not count"


def _brief_messages(observation: Observation, dropped: int) -> list[ChatMessage]:
    """The ``brief`` conversation; as in the longer formats, each turn's prompt extends the previous one."""
    briefing = observation.briefing
    names = {briefing.agent: briefing.name} | {partner.agent: partner.name for partner in briefing.partners}
    messages: list[ChatMessage] = [{"role": "system", "content": _brief_system(briefing)}]
    news = [LEFT_OUT.format(dropped).strip()] if dropped else []
    for turn in _in_order_of_notice(observation.turns[dropped:], briefing.agent):
        if turn.actor != briefing.agent:
            news.append(render_action(turn.actor, turn.action, names, turn.effect))
            continue
        # The number must be the one that the seat's prompt showed then (`Observation.turn`): rounds, if veiled.
        number = (turn.round if turn.veiled else turn.index) + 1
        call = _call(messages, news, _cue(observation, number, turn.index))
        own = observation.own_message(turn)
        messages += (call, _assistant(own.text))
        news = _own_consequence(turn, own.failure)
    return [*messages, _call(messages, news, _cue(observation, observation.turn))]


def _cue(observation: Observation, number: int, index: int | None = None) -> str:
    """The last line of a user's message: the turn, the seat's turns left, and the moves that accept open offers."""
    if index is None and not observation.acting:
        return f"(turn {number})"
    gains = observation.offer_gains(index)
    answers = "".join(
        f', open: {{"accept": {offer}}}{_gain_text(gains[offer]) if offer in gains else ""}'
        for offer in observation.answerable(index)
    )
    left = observation.own_turns_left(index)
    turns = "your last turn" if left == 1 else f"own turns left: {left}"
    return f"(turn {number}, {turns}{answers})"


def _gain_text(gain: float) -> str:
    """An offer's worth less that of no agreement, with a word in place of the sign."""
    return f" gains {gain:.15g}" if gain > 0 else f" loses {-gain:.15g}" if gain < 0 else " gains nothing"


def _brief_system(briefing: Briefing) -> str:
    worth = "" if briefing.worth is None else f"Worth: {_worth_text(briefing.worth, briefing)}."
    outline = briefing.outline
    if briefing.worths is not None and briefing.space is not None:
        # The table has the limits and the direction, unless all values are worth as much.
        rungs = briefing.worths.rungs
        outline = "; ".join(
            issue_outline(issue, briefing.worth, limits=len(rungs[issue.name]) == 1) for issue in briefing.space.issues
        )
    space = f"Range: {outline}." if outline else ""
    notes = f"Notes: {quote(briefing.notes)}" if briefing.notes else ""
    private = " ".join(filter(None, (briefing.private_info, notes, worth, space, _facts_line(briefing.facts))))
    return escape(fill(load("agent_brief"), goals=" ".join(briefing.goals), private=private)).strip()


def _facts_line(facts: SeatFacts | None) -> str:
    """The variables with their options, the values that the seat knows at the start, and its norms, on one line."""
    if facts is None:
        return ""
    variables = "; ".join(f"{v.name} {'/'.join(v.options)}" for v in facts.variables.values())
    values = "; ".join(f"{name} = {value}" for name, value in facts.knowledge.items())
    norms = "".join(f" It is expected {norm}." for norm in facts.norms)
    return f"Facts: {variables}." + (f" Known: {values}." if values else "") + norms


def _worth_text(worth: WorthForm, briefing: Briefing) -> str:
    """The worth on one line: ``constant 186, price per_unit -1, start June 1 4, June 15 1, firewood each 5``.

    With a table of worths, values stand in place of ``per_unit``, and the table's constant in place of ``constant``.
    """
    fields = worth.model_dump(mode="json", exclude_defaults=True)
    if briefing.worths is not None and briefing.space is not None:
        numbers = [issue for issue in briefing.space.issues if isinstance(issue, NumberIssue)]
        if numbers:  # the table's constant has the worst values of numbers, or with one issue the values have all of it
            constant = {"constant": briefing.worths.constant} if briefing.worths.constant else {}
            fields = constant | {name: value for name, value in fields.items() if name != "constant"}
        fields["issues"] |= {issue.name: rungs_text(issue, briefing.worths.rungs[issue.name]) for issue in numbers}
    return ", ".join(
        _flat("" if key in ("issues", "options", "table") else key, value) for key, value in fields.items()
    )


def _flat(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        text = ", ".join(_flat(name, part) for name, part in value.items())
    elif isinstance(value, list):
        text = "; ".join(_flat("", part) for part in value)
    else:
        text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return f"{key} {text}".strip()


def _own_consequence(turn: Turn, failure: str) -> list[str]:
    """The feedback on a seat's own turn that only the seat gets: why it did not count, or whether a claim was right."""
    if failure:
        return [f"({_UNUSABLE}: {quote(failure)})"]
    if turn.violation is not None:
        what = _REFUSED if turn.action.action_type is ActionType.NONE else _MOVE_REFUSED
        return [f"({what}: {quote(turn.violation)})"]
    return [] if turn.hidden is None or turn.effect is None else [f"({escape_line(turn.effect)})"]


def _in_order_of_notice(turns: Sequence[Turn], agent: str) -> Sequence[Turn]:
    """The turns; in each veiled round the seat's own comes first, because it was taken without seeing the others."""
    if not any(turn.veiled for turn in turns):
        return turns
    # The sort is stable, so the other seats' turns of a round stay in order.
    return sorted(turns, key=lambda turn: (turn.round, turn.actor != agent))


def _call(messages: Sequence[ChatMessage], news: Sequence[str], cue: str) -> ChatMessage:
    silence = _BEGIN if len(messages) == 1 else _NOTHING
    return _user("\n".join([*(news or [silence]), cue]))


def _user(text: str) -> ChatMessage:
    return {"role": "user", "content": text}


def _assistant(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def prompt_text(name: str) -> str:
    """Returns a text of agents' prompts, or of the briefing, by the name of its file."""
    return briefing_text(name) if name in _BRIEFING_PROMPTS else load(name)


@cache
def sample_text(format: Format) -> str:
    """Returns what is sent in a fixed conversation (:mod:`sotopia_env.policies.prompt_sample`) as one JSON text."""
    prompt, observations = AgentPrompt(format), sample_observations()
    sent = [prompt.messages(observation) for observation in observations]
    sent += [prompt.messages(observations[-1], dropped=2), complaint("", "no JSON object")]
    if format != "tools":
        return canonical_json(sent)
    return canonical_json([*map(with_calls, sent), *map(functions_of, observations)])


def complaint(text: str, reason: str, prompt: str = "agent_reask") -> list[ChatMessage]:
    """Returns the two messages of a re-ask: the model's text, and the reason why it could not be used.

    The assistant's message repeats at most 4,000 characters of the model's text, without characters that could open a
    control token. The reason is quoted, because it may repeat some of the text.

    Args:
        text: the model's text.
        reason: why it is not an action, or not an answer.
        prompt: the name of the prompt text that gives the reason.
    """
    echo = escape(text if len(text) <= _ECHO else f"{text[:_ECHO]}…")
    return [_assistant(echo if echo.strip() else "(no text)"), _user(fill(load(prompt), reason=quote(reason)))]


def brief(reason: str) -> str:
    """Returns the reason, cut to 500 characters: it may quote a name of any length from the model's text."""
    return reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"


def approximate_tokens(text: str) -> int:
    """Returns a quarter of the number of characters, rounded up: near enough for English."""
    return -(-len(text) // 4)


def conversation_tokens(
    messages: Sequence[ChatMessage],
    tools: Sequence[Mapping[str, Any]] = (),
    count: Callable[[str], int] = approximate_tokens,
) -> int:
    """Returns the number of tokens of a conversation: its texts and functions, and four for each message."""
    texts = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls", ())]
    texts += [json.dumps(tools)] if tools else []
    return sum(map(count, texts)) + sum(count(message["content"]) + _TOKENS_PER_MESSAGE for message in messages)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Finds how many of the oldest turns to leave out.

    Attributes:
        limit: the maximum number of tokens of prompt and answer together; ``None`` for no limit.
        answer: the tokens reserved for the answer; ``None`` reserves 512, or a quarter of a small limit.
        count: returns the number of tokens of a conversation.
    """

    limit: int | None = None
    answer: int | None = None
    count: Callable[[Sequence[ChatMessage]], int] = conversation_tokens

    def __post_init__(self) -> None:
        if self.limit is None:
            return
        check_whole("context_limit", self.limit, 1)
        if self.answer is not None and self.answer >= self.limit:
            raise InvalidValueError(
                "leaves no room for a prompt",
                field="max_tokens",
                expected=f"less than context_limit {self.limit}",
                got=self.answer,
            )

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether the messages leave room for an answer."""
        if self.limit is None:
            return True
        answer = min(512, self.limit // 4) if self.answer is None else self.answer
        return self.count(messages) + answer <= self.limit

    def dropped(self, turns: int, messages: Callable[[int], Sequence[ChatMessage]]) -> int:
        """Returns the smallest number of turns to leave out so that the messages fit; all but four if none does.

        Args:
            turns: the number of turns in the observation.
            messages: returns the conversation without the given number of oldest turns.
        """
        if self.limit is None or self.fits(messages(0)):
            return 0
        most = max(0, turns - KEPT_TURNS)
        # Fewer turns never take more tokens, so a binary search needs only a few renderings of the conversation.
        steps: list[int] = [*range(0, most, _STEP), most]
        first: int = bisect_left(steps, True, key=lambda step: self.fits(messages(step)))
        return steps[min(first, len(steps) - 1)]


def fewer_turns(turns: int, dropped: int) -> int | None:
    """Returns how many turns to leave out if ``dropped`` were not enough; ``None`` if no more may be left out.

    Each call leaves out half of the remaining turns, so a conversation of n turns is shortened at most log2(n) times.
    """
    rest = turns - dropped
    return None if rest <= KEPT_TURNS else turns - max(KEPT_TURNS, rest // 2)
