"""Actions: the five types, the move that binds, the space of utterances, and the reader of model text.

The five action types are those of SOTOPIA (arXiv 2310.11667) §2.2; recipients (private actions) are those of
SOTOPIA-S4 §3. Words persuade; only a move (:mod:`sotopia_env.outcomes`) that comes with them is binding.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from sotopia_env.foundation.answer_text import Answer, UnclearError, own_answer, why_unreadable
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, Verbatim, json_excerpt
from sotopia_env.foundation.json_text import ANSWER_DECODER
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import InvalidMoveError, Move
from sotopia_env.outcomes.amounts import fold
from sotopia_env.outcomes.move import read_move

MAX_ARGUMENT_LENGTH = 16_384
"""Longest argument, in characters; longer ones are refused, never cut."""
MAX_RECIPIENTS = 1_024
MAX_WAIT = 10_000
"""Longest wait, in ticks of the logical clock."""


def move_json(move: Move) -> str:
    """Returns the move as JSON text; terms keep their order, which in normal form is that of the issues."""
    return json.dumps(move.to_json(), ensure_ascii=False)


class ActionType(StrEnum):
    """The kinds of action; the order of members is the order of the discrete action space."""

    NONE = "none"
    SPEAK = "speak"
    NON_VERBAL = "non-verbal communication"
    ACTION = "action"
    LEAVE = "leave"


# Trained agents know these indices: append new types, never reorder them.
ACTION_TYPES: tuple[ActionType, ...] = tuple(ActionType)
_BY_VALUE: dict[str, ActionType] = {kind.value: kind for kind in ActionType}
WORDLESS = (ActionType.NONE, ActionType.LEAVE)
"""The types that need no words and carry no move; words with ``leave`` are spoken before leaving."""

# On disk a move is JSON text, so that files that mix protocols keep one column type; both forms are read.
MoveField = Annotated[
    Move | None,
    BeforeValidator(lambda value: value if value is None or isinstance(value, Move) else read_move(value)),
    PlainSerializer(lambda move: None if move is None else move_json(move), return_type=str | None),
]


@dataclass(frozen=True, slots=True)
class Action:
    """One agent's action.

    Attributes:
        action_type: which of the five kinds, as a member of :class:`ActionType` or its value.
        argument: the utterance, gesture or deed, never altered: any Unicode text up to
            :data:`MAX_ARGUMENT_LENGTH` characters. ``none`` and ``leave`` need no text. Text with ``leave`` is spoken
            to everybody before leaving; text with ``none``, or private text with ``leave``, is dropped when the action
            is taken.
        to: agent ids of the recipients of a private action; empty means everybody.
        move: the commitment made along with the words, in a task with a protocol; ``argument`` may then be empty. A
            mapping such as ``{"accept": 1}`` is read as one.
        wait: in reactive order, the time after which the agent acts next, in ticks of the logical clock, whatever
            happens before; by default it acts some time after an action reached it. Other orders ignore it, and other
            agents never see it.

    Raises:
        InvalidActionError: a field has an invalid value.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    action_type: ActionType = ActionType.SPEAK
    argument: str = ""
    to: tuple[str, ...] = ()
    move: MoveField = None
    wait: Annotated[int | None, Field(exclude_if=operator.not_)] = None

    # The constructor that dataclasses generate takes more than the attributes hold: names of types, and mappings.
    if TYPE_CHECKING:

        def __init__(
            self,
            action_type: ActionType | str = ActionType.SPEAK,
            argument: str = "",
            to: tuple[str, ...] = (),
            move: Move | Mapping[str, object] | None = None,
            wait: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.action_type, ActionType):
            kind = _BY_VALUE.get(self.action_type) if isinstance(self.action_type, str) else None
            if kind is None:
                raise InvalidActionError(field="action_type", got=self.action_type, valid=_BY_VALUE)
            # A plain text is accepted, too; this is how a frozen dataclass sets a field.
            object.__setattr__(self, "action_type", kind)
        if problem := _text_problem(self.argument):
            raise problem
        if not isinstance(self.to, tuple) or not all(isinstance(name, str) for name in self.to):
            raise InvalidActionError(field="to", expected="a tuple of agent ids", got=self.to)
        if self.move is not None and not isinstance(self.move, Move):
            if not isinstance(self.move, Mapping):
                raise InvalidActionError(field="move", expected="a Move, a mapping or None", got=type(self.move))
            object.__setattr__(self, "move", read_move(self.move))
        if self.wait is not None and (problem := _wait_problem(self.wait)):
            raise problem

    @property
    def silent(self) -> bool:
        """Whether it has neither words nor a move; blank words count as silence, since no agent could perceive them."""
        # Everybody notices that somebody leaves, with words or without.
        return self.action_type is not ActionType.LEAVE and self.move is None and not self.argument.strip()


def _text_problem(text: object) -> InvalidActionError | None:
    """The reason why ``text`` cannot be an argument, or ``None``."""
    if not isinstance(text, str):
        return InvalidActionError(field="argument", expected="text", got=json_excerpt(text))
    if len(text) > MAX_ARGUMENT_LENGTH:
        expected = f"at most {MAX_ARGUMENT_LENGTH} characters"
        return InvalidActionError(field="argument", expected=expected, got=len(text))
    if not text.isascii():
        # Half of a surrogate pair can be neither written to a file nor sent to a model.
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            got = Verbatim(f"a lone surrogate at character {error.start}")
            return InvalidActionError(field="argument", expected="Unicode text", got=got)
    return None


def _wait_problem(wait: object) -> InvalidActionError | None:
    """The reason why ``wait`` cannot be a time, or ``None``."""
    if isinstance(wait, int) and not isinstance(wait, bool) and 1 <= wait <= MAX_WAIT:
        return None
    return InvalidActionError(field="wait", expected=f"a whole number from 1 to {MAX_WAIT}", got=wait)


NO_ACTION = Action(ActionType.NONE)


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A model's text that is not an action; ``reason`` says precisely why, and can be shown to the model."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    reason: str


_KEYS = ("action_type", "move", "argument", "to", "wait")
_LONGEST_NAME = 400  # a huge text is cut before it is normalised


def parse(text: str, recipients: Mapping[str, str] | None = None, finish_reason: str = "") -> Action | ParseFailure:
    """Reads the one action object ``{"action_type", "move", "argument", "to", "wait"}`` from model text.

    The object may be bare, in a code fence, or after thoughts and words; only a close may follow it
    (:mod:`sotopia_env.foundation.answer_text` has the rule, and how thoughts are marked). Nothing is repaired and
    nothing is guessed: two different actions, an unknown type or key, a missing argument are failures with a reason. A
    move may be an object, the JSON text of one, or ``null`` for no move; the protocol decides whether it is open.

    Args:
        text: the model's output.
        recipients: every name that may appear in ``to`` (agent ids and character names) to its agent id; ``None``
            keeps the names as written. Names match whatever their case, blanks and Unicode form.
        finish_reason: why the server ended the text; nothing is taken from one that was cut off inside or after words.

    Returns:
        The action, or the reason why the text is not one.

    Raises:
        InvalidValueError: ``text`` is not a string; a model's text that is not an action raises nothing.
    """
    return _parse(text, recipients, finish_reason)


def parse_possible(
    text: str,
    available: Collection[ActionType],
    recipients: Mapping[str, str],
    finish_reason: str = "",
    utterances: Iterable[str] = (),
) -> Action | ParseFailure:
    """Reads an action as :func:`parse` does; an action that the seat could not take now is a failure with a reason.

    Args:
        text: the model's output.
        available: the action types the seat may use.
        recipients: every name that may appear in ``to``, to its agent id; empty where private actions are not possible.
        finish_reason: why the server ended the text.
        utterances: the words of others. An object that one of them contains is a quotation and no action, unless the
            text is this object alone and was not cut off: others must not forbid a seat an action by naming it.
    """
    # ``None`` keeps names as written, so that the refusal below can say that none are possible.
    action = _parse(text, recipients or None, finish_reason, utterances)
    if isinstance(action, ParseFailure):
        return action
    if action.action_type not in available:
        valid = [kind.value for kind in available]
        return _failure(field="action_type", got=action.action_type.value, valid=valid)
    if action.to and not recipients:
        return ParseFailure('to: private actions are not possible here; leave out "to"')
    return action


def _parse(
    text: str, recipients: Mapping[str, str] | None, finish_reason: str, utterances: Iterable[str] = ()
) -> Action | ParseFailure:
    if not isinstance(text, str):
        raise InvalidValueError(field="text", expected="the output of a model, as a str", got=text)
    try:
        return _one_action(own_answer(text, finish_reason, utterances, "action"), recipients)
    except UnclearError as error:
        return ParseFailure(str(error))


def _one_action(answer: Answer, recipients: Mapping[str, str] | None) -> Action | ParseFailure:
    actions: list[Action] = []
    reasons: list[str] = []
    for item in answer.objects:
        if "action_type" not in item:
            keys = ", ".join(quote(key[:40]) for key in list(item)[:6])
            reasons.append(f'a JSON object without the key "action_type" (keys: {keys or "none"})')
            continue
        # One bad action refuses the whole text: choosing among the others would be a guess.
        action = _read_object(item, recipients)
        if isinstance(action, ParseFailure):
            return action
        # Models often write the same object twice, such as in prose and again in a code fence: one action.
        if action not in actions:
            actions.append(action)
    if len(actions) == 1:
        return actions[0]
    if actions:
        return ParseFailure(f"{len(actions)} different actions were given; exactly one is expected")
    return ParseFailure(reasons[0] if reasons else _why_no_object(answer.before))


def _why_no_object(text: str) -> str:
    start = text.find("{")
    if start < 0:
        return 'no JSON object was found; expected {"action_type": …, "argument": …}'
    try:
        ANSWER_DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return why_unreadable(error)
    return "no JSON object was found"


def _failure(problem: str = "", *, got: object, **fields: Any) -> ParseFailure:
    # The model wrote JSON, so it reads ``null`` and ``true`` in the reason, not Python's words for them.
    error = InvalidActionError(problem, got=got, **fields)
    error.got = got if isinstance(got, str) else json_excerpt(got)
    return ParseFailure(str(error))


def _read_object(item: dict[str, Any], recipients: Mapping[str, str] | None) -> Action | ParseFailure:
    for key in item:
        if key not in _KEYS:
            return _failure("unknown key", got=key, valid=_KEYS)
    kind = item["action_type"]
    if not isinstance(kind, str) or kind not in _BY_VALUE:
        return _failure(field="action_type", got=kind, valid=_BY_VALUE)
    action_type = _BY_VALUE[kind]
    argument = item.get("argument", "")
    if problem := _text_problem(argument):
        return ParseFailure(str(problem))
    try:
        move = optional_move(item.get("move"))
    except InvalidMoveError as error:
        return ParseFailure(str(error))
    if move is not None and action_type in WORDLESS:
        return ParseFailure(f"move: comes with speak, non-verbal communication or action, not with {kind!r}")
    # Blanks alone are a text, and count as silence (dynamics): no schema that servers enforce can exclude them.
    if move is None and not argument and action_type not in WORDLESS:
        return ParseFailure(f"argument: {kind!r} needs a text")
    wait = item.get("wait")
    if wait is not None and (problem := _wait_problem(wait)):
        return ParseFailure(str(problem))
    to = _read_recipients(item.get("to"), recipients)
    if isinstance(to, ParseFailure):
        return to
    if to and argument.strip() and action_type is ActionType.LEAVE:
        return ParseFailure('to: everybody hears the words of somebody who leaves; leave out "to"')
    return Action(action_type, argument, to, move, wait)


def optional_move(value: object) -> Move | None:
    """Returns the move in ``value``; ``None``, blank text, ``"null"`` and an empty object mean no move.

    Raises:
        InvalidMoveError: ``value`` is anything else that is not a move.
    """
    # Models that must fill every field write ``{}``, blanks or ``"null"`` for no move.
    if value is None or (isinstance(value, Mapping) and not value):
        return None
    if isinstance(value, str) and value.strip() in ("", "null"):
        return None
    return read_move(value)


def _read_recipients(value: Any, recipients: Mapping[str, str] | None) -> tuple[str, ...] | ParseFailure:
    if value is None or value == []:
        return ()
    # One name without brackets can mean only one thing.
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return _failure(field="to", expected="a list of names", got=value)
    if len(names) > MAX_RECIPIENTS:
        return _failure(field="to", expected=f"at most {MAX_RECIPIENTS} names", got=len(names))
    if recipients is None:
        return tuple(dict.fromkeys(names))
    agents = [recipients.get(name) or _by_fold(recipients).get(fold(name[:_LONGEST_NAME])) for name in names]
    if None in agents:
        return _failure(field="to", got=names[agents.index(None)], valid=recipients)
    # An id and a name may mean the same agent; each agent is addressed once, in the order of the list.
    return tuple(dict.fromkeys(agent for agent in agents if agent is not None))


def _by_fold(recipients: Mapping[str, str]) -> dict[str, str]:
    # Tasks have no two people whose names have one normal form.
    return {fold(name): agent for name, agent in recipients.items()}


def to_json(action: Action, names: Mapping[str, str] | None = None) -> str:
    """Returns the JSON text that :func:`parse` reads back as ``action``; ``names`` renders recipients by name.

    The move comes before the words: a model that writes this decides first, in a few tokens, and not in the wording.
    """
    # Not json.dumps: quote() also escapes line ends, direction marks and the control tokens of chat templates.
    to = ""
    if action.to:
        to = f', "to": [{", ".join(quote(names[agent] if names else agent) for agent in action.to)}]'
    move = f'"move": {escape(move_json(action.move))}, ' if action.move else ""
    wait = f', "wait": {action.wait}' if action.wait else ""
    return f'{{"action_type": "{action.action_type.value}", {move}"argument": {quote(action.argument)}{to}{wait}}}'


class Advice(Record):
    """The action that a policy proposed to a person for one turn, and what the person did.

    Attributes:
        policy: the name of the policy that advised.
        mode: ``propose`` (the person may copy the action into the form), ``advise`` (the person reads it), or ``act``
            (it is carried out unless the person takes over).
        action: the proposed action.
        problem: the reason why there is no advice; ``action`` is then ``none``.
        seconds: the time that the policy took.
        tokens: tokens of its prompts and answers; ``None`` if unknown.
        cost: their price in US dollars; ``None`` if unknown.
        is_copied: whether the person copied the action into the form.
        response: what the person did: ``played`` (the policy acted for them), ``same``, ``move`` (the same move with
            other words), ``other``; empty as long as they have not acted.
    """

    policy: str
    mode: Literal["propose", "advise", "act"]
    action: Action
    problem: str = ""
    seconds: float = 0.0
    tokens: int | None = 0
    cost: float | None = 0.0
    is_copied: bool = False
    response: Literal["", "played", "same", "move", "other"] = ""

    def followed_by(self, action: Action, *, is_copied: bool = False) -> Advice:
        """Returns the advice with the person's response to it, given the action that the person took."""
        if self.problem:
            return self
        is_same_move = action.move == self.action.move and action.action_type is self.action.action_type
        response = "other" if not is_same_move else "move" if action.argument != self.action.argument else "same"
        # Two utterances without a move have nothing in common but their kind.
        response = "other" if response == "move" and action.move is None else response
        return self.model_copy(update={"response": response, "is_copied": is_copied})
