"""Parsers and writers of the texts in SOTOPIA's files: actions, markup in scenarios and goals, first observations."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import one_line
from sotopia_env.world.action import NO_ACTION, Action, ActionType

_SPEECH = 'said: "'
_NOTHING, _LEFT = "did nothing", "left the conversation"
_AND_LEFT = f'" and {_LEFT}'  # ours: the reference code drops words of leave
_FORMS: Mapping[str, ActionType] = {f"[{kind.value}] ": kind for kind in (ActionType.NON_VERBAL, ActionType.ACTION)}
_PRIVATE, _PRIVATE_END = "[private to ", "] "
UNKNOWN = "Unknown"


def action_of(text: str, ids: Mapping[str, str]) -> Action:
    """Returns the action in a text of an episode's messages.

    Args:
        text: the text, such as ``said: "Hello."``. Speech extends to the last quote and may contain quotes and lines.
        ids: agent ids by name, for the recipients of private actions.

    Raises:
        DamagedRecordError: the text has none of the known forms, or a recipient is not a participant.
    """
    to, words = _recipients(text.removeprefix(" "), ids)
    if words.startswith(_SPEECH):
        argument, kind = words[len(_SPEECH) :], ActionType.SPEAK
        if argument.endswith(_AND_LEFT):
            argument, kind = argument.removesuffix(_AND_LEFT) + '"', ActionType.LEAVE
        # The last quote, as speech may contain quotes; speech without a closing quote is used as it is.
        end = argument.rfind('"')
        return Action(kind, argument if end < 0 else argument[:end], to)
    if words.strip() in (_NOTHING, _LEFT):
        return NO_ACTION if words.strip() == _NOTHING else Action(ActionType.LEAVE)
    for form, kind in _FORMS.items():
        if words.startswith(form.rstrip()):
            return Action(kind, words[len(form) :], to)
    forms = ", ".join((_NOTHING, f'{_SPEECH}…"', *(f"{form}…" for form in _FORMS), _LEFT))
    raise DamagedRecordError(expected=f"an action in one of the forms {forms}", got=text)


def _recipients(text: str, ids: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    if not text.startswith(_PRIVATE):
        return (), text
    names, _, words = text[len(_PRIVATE) :].partition(f"]{_PRIVATE_END}")
    # The reference code formats the recipients as a Python list, whose quotes depend on apostrophes in the names.
    try:
        recipients = [ids[name] for name in ast.literal_eval(f"{names}]")]
    except (KeyError, ValueError, SyntaxError, TypeError):
        raise DamagedRecordError(expected=f"recipients among {list(ids)}", got=names) from None
    return tuple(recipients), words


def action_text(action: Action, names: Mapping[str, str]) -> str:
    """Returns the text of an action; ``names`` are the participants' names by agent id."""
    aside = f"{_PRIVATE}{[names[agent] for agent in action.to]}{_PRIVATE_END}" if action.to else ""
    match action.action_type:
        case ActionType.NONE:
            return _NOTHING
        case ActionType.LEAVE:
            return f"{_SPEECH}{action.argument}{_AND_LEFT}" if action.argument.strip() else _LEFT
        case ActionType.SPEAK:
            return f'{aside}{_SPEECH}{action.argument}"'
        case kind:
            return f"{aside}[{kind.value}] {action.argument}"


# --- markup ----------------------------------------------------------------------------------------------------------

_VIEWER = re.compile(r"""<p\s+viewer=["']?([\w-]+)["']?\s*>(.*?)</p>""", re.DOTALL)
_TAGS = "extra_info|strategy_hint|clarification_hint"
# Matches elements without another tag inside: hints occur inside extra information and must be removed first.
_INNERMOST = re.compile(rf"<({_TAGS})>((?:(?!</?(?:{_TAGS})>).)*)</\1>", re.DOTALL)
_STRAY = re.compile(rf"</?(?:{_TAGS})>")
_EMPTY_PARENTHESES = re.compile(r"[ \t]*\(\s*\)")
_LINE_END = re.compile(r"\s*\n\s*")
_ENTRY = re.compile(r"[^:.;]{1,40}: ")


@dataclass(frozen=True, slots=True)
class Marked:
    """The parts of a text with markup.

    Attributes:
        text: the text outside of the markup, for all its readers.
        private: the text for single seats, by viewer (``agent_0``); ``environment`` is for evaluators only.
        info: additional information for the goal's owner.
        hints: hints for the goal's owner.
    """

    text: str
    private: Mapping[str, str]
    info: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


def scenario_parts(text: str) -> Marked:
    """Returns a scenario's public text and its private parts by viewer."""
    private: dict[str, str] = {}
    for viewer, words in _VIEWER.findall(text):
        private[viewer] = f"{private.get(viewer, '')} {words.strip()}".strip()
    return Marked(_VIEWER.sub("", text).strip() if private else text, private)


def goal_parts(text: str) -> Marked:
    """Returns a goal's text, its extra information and its hints."""
    rest, marks = text, list[tuple[str, str]]()
    while match := _INNERMOST.search(rest):
        marks.append((match[1], clean(match[2])))
        rest = f"{rest[: match.start()]} {rest[match.end() :]}"
    info = tuple(words for tag, words in marks if tag == "extra_info" and words)
    hints = tuple(words for tag, words in marks if tag != "extra_info" and words)
    return Marked(clean(rest) if rest != text or _STRAY.search(text) else _joined_lines(text), {}, info, hints)


def clean(text: str) -> str:
    """Returns a text as one line, without unclosed tags and without parentheses that contained only markup."""
    return _joined_lines(_EMPTY_PARENTHESES.sub("", _STRAY.sub(" ", text)).strip())


def _joined_lines(text: str) -> str:
    """The lines of a text joined to one; list entries are separated by semicolons."""
    lines = _LINE_END.split(text) if "\n" in text else [text]
    parts = [f"{line};" if _is_listed(line, successor) else line for line, successor in itertools.pairwise(lines)]
    return one_line(" ".join([*parts, lines[-1]]))


def _is_listed(line: str, successor: str) -> bool:
    """Whether ``line`` needs a separator: it has no punctuation, or both are entries such as ``Company: X, Inc.``."""
    return bool(line) and (line[-1] not in ".,;:!?" or bool(_ENTRY.match(line) and _ENTRY.match(successor)))


def goal_text(goal: str, info: str, hints: Sequence[str]) -> str:
    """Returns a goal with the markup of :func:`goal_parts`."""
    marks = [f" <extra_info>{info}</extra_info>"] if info else []
    return goal + "".join([*marks, *(f" <strategy_hint>{hint}</strategy_hint>" for hint in hints)])


# --- the opening of an observation -----------------------------------------------------------------------------------

_SCENARIO, _PARTICIPANTS, _START = "Scenario: ", "Participants: ", "Conversation Starts:"


@dataclass(frozen=True, slots=True)
class Opening:
    """A seat's first observation: the scenario, and the backgrounds and goals that the seat knew, by name."""

    scenario: str
    backgrounds: Mapping[str, str]
    goals: Mapping[str, str]


def opening_of(text: str, names: Sequence[str]) -> Opening:
    """Returns the opening in a seat's first observation.

    Raises:
        DamagedRecordError: the observation does not contain a scenario.
    """
    # Parsed by the heads of known sections, each of which counts once: authors' texts have lines, colons and blank
    # lines, and may repeat a head.
    heads = {_SCENARIO: "scenario", _PARTICIPANTS: "participants", _START: "start"}
    heads |= {f"{name}'s {what}: ": f"{what} of {name}" for name in names for what in ("background", "goal")}
    parts: dict[str, str] = {}
    field = ""
    for raw in text.strip().split("\n"):
        line = raw.strip()
        head = next((head for head in heads if f"{line} ".startswith(head) and heads[head] not in parts), None)
        if head is not None:
            field = heads[head]
            parts[field] = line[len(head) :] if f"{line} " != head else ""
        elif field:
            parts[field] += f"\n{line}"
    if not parts.get("scenario", "").strip():
        raise DamagedRecordError(field="messages.0", expected="an observation with a line 'Scenario: …'")
    texts = {field: part.strip() for field, part in parts.items()}
    return Opening(
        texts["scenario"],
        {name: texts.get(f"background of {name}", "") for name in names},
        {name: texts.get(f"goal of {name}", "") for name in names},
    )


def opening_text(opening: Opening) -> str:
    """Returns the first observation of a seat."""
    lines = ["", "Here is the context of this interaction:", f"{_SCENARIO}{opening.scenario}"]
    lines += [f"{_PARTICIPANTS}{' and '.join(opening.goals)}"]
    lines += [f"{name}'s background: {text}" for name, text in opening.backgrounds.items()]
    lines += [f"{name}'s goal: {text}" for name, text in opening.goals.items()]
    return "\n".join([*lines, _START, ""])


# --- a dialogue as one text ------------------------------------------------------------------------------------------


def interactions_of(text: str, names: Sequence[str]) -> list[tuple[int, str]]:
    """Returns the seat and text of each turn in ``social_interactions``.

    A turn begins after a blank line, with a name and a form of action. A turn that opens a quote ends only with a
    quote, so speech may contain blank lines.

    Raises:
        DamagedRecordError: the text does not begin with a turn.
    """
    turns: list[tuple[int, str]] = []
    for block in text.strip().split("\n\n") if text.strip() else ():
        turn = _turn_of(block, names)
        is_open = bool(turns) and turns[-1][1].startswith(_SPEECH) and not turns[-1][1].rstrip().endswith('"')
        if turn is None or is_open:
            if not turns:
                raise DamagedRecordError(
                    field="social_interactions", expected=f"one of {list(names)} and an action", got=block
                )
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n\n{block}")
        else:
            turns.append(turn)
    return turns


def _turn_of(block: str, names: Sequence[str]) -> tuple[int, str] | None:
    # Longer names first: one name may be the beginning of another, as "Ann Lee" is of "Ann Leeds".
    for seat, name in sorted(enumerate(names), key=lambda entry: -len(entry[1])):
        if block.startswith(name):
            words = block[len(name) :].removeprefix(":").removeprefix(" ")
            if words.startswith((_SPEECH, _NOTHING, _LEFT, _PRIVATE, *(form.rstrip() for form in _FORMS))):
                return seat, words
    return None


def interactions_text(turns: Sequence[tuple[str, Action]], names: Mapping[str, str]) -> str:
    """Returns the text of ``social_interactions`` for turns of (agent id, action); idle turns are omitted."""
    lines = []
    for agent, action in turns:
        if action.action_type is not ActionType.NONE:
            # The reference code writes the colon after the name for these two types only.
            colon = ":" if action.action_type in _FORMS.values() else ""
            lines.append(f"{names[agent]}{colon} {action_text(action, names)}")
    return "\n\n".join(lines)
