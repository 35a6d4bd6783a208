"""A person's view of a seat, and reading the action from its form.

All content comes from the seat's own :class:`~sotopia_env.world.Observation`, so a page cannot show information that
the seat may not have. The instructions for models are left out. Pages must escape every text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import ItemsIssue, Menu, Move, MoveKind, NumberIssue
from sotopia_env.outcomes.menu import NO_STATEMENTS
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.space import OPTION
from sotopia_env.outcomes.worth import AdditiveWorth, BallotWorth, TableWorth
from sotopia_env.world import Action, Observation
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.perception.briefing import Briefing

OFFER, CLAIM = "offer", "claim"
"""Values of the field ``move`` for moves with further fields."""
STATE = "state "
"""The beginning of a statement field's value for an option, whose number follows."""
WORDS: Mapping[ActionType, str] = {
    ActionType.SPEAK: "Say",
    ActionType.NON_VERBAL: "Show (a gesture, a look)",
    ActionType.ACTION: "Do",
    ActionType.NONE: "Say nothing this turn",
    ActionType.LEAVE: "Leave the conversation",
}
"""The action types in words for people."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn on a page.

    Attributes:
        number: from 1.
        agent: id of the agent that acted.
        name: name of the agent's character.
        seat: index of the seat, which determines the colour.
        kind: the action type.
        words: the speech, gesture or deed.
        aside: names of the addressees of a private action; empty for a public one.
        effect: the effect of a move, in the protocol's words.
        problem: why the action or its move did not count.
        mine: whether the turn is the reader's own.
    """

    number: int
    agent: str
    name: str
    seat: int
    kind: str
    words: str
    aside: tuple[str, ...]
    effect: str
    problem: str
    mine: bool = False


def turn_view(turn: Turn, names: Mapping[str, str], reader: str = "") -> TurnView:
    """Returns a turn as ``reader`` may see it; without a reader, as a researcher sees it."""
    is_own = turn.actor == reader
    sees_all = is_own or not reader or turn.hidden is None
    action = turn.action
    return TurnView(
        number=turn.index + 1,
        agent=turn.actor,
        name=names[turn.actor],
        seat=list(names).index(turn.actor),
        kind=action.action_type.value,
        words=action.argument,
        aside=tuple(names[agent] for agent in action.to),
        # `hidden` is the effect as others may know it, such as of a secret vote.
        effect=(turn.effect if sees_all else turn.hidden) or "",
        problem=(turn.violation or "") if is_own or not reader else "",
        mine=is_own,
    )


@dataclass(frozen=True, slots=True)
class TermField:
    """One field of an offer.

    Attributes:
        name: name of the form's field.
        label: the issue, for people.
        kind: ``number`` or ``choice``.
        value: initial value, from the newest offer on the table.
        low: the lowest number.
        high: the highest number.
        step: the difference between two numbers.
        unit: unit of the number.
        options: the options of a choice.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    low: str = ""
    high: str = ""
    step: str = ""
    unit: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementField:
    """One field of a form for what is said about a variable.

    Attributes:
        name: name of the form's field.
        label: the variable.
        choices: values of the field and their labels: nothing, each value that may be stated, a proof, a question.
    """

    name: str
    label: str
    choices: tuple[tuple[str, str], ...]


def action_choices(observation: Observation) -> list[tuple[str, str]]:
    """Returns the action types that the seat may use now, each with its label."""
    return [(kind.value, WORDS[kind]) for kind in observation.available]


def move_choices(menu: Menu) -> list[tuple[str, str]]:
    """Returns the open moves that bind: the value of the field ``move``, and its label."""
    choices = _binding(menu).choices()
    return [
        # The menu has no move for choices that need further fields: the offer, which is first if possible, and the
        # claim.
        (str(index) if move is not None else OFFER if menu.propose and index == 0 else CLAIM, label)
        for index, (label, move) in enumerate(choices)
    ]


def _binding(menu: Menu) -> Menu:
    """The menu without statements, which have fields of their own."""
    return menu._replace(statements=NO_STATEMENTS)


def statement_fields(menu: Menu) -> list[StatementField]:
    """Returns a field for each variable that the seat can speak of; it may fill several, and make a move as well."""
    statements, fields = menu.statements, []
    for index, name in enumerate(_variables(menu)):
        values = enumerate(statements.state.get(name, ()))
        choices = [("", "say nothing of it"), *((f"{STATE}{number}", f"say: {value}") for number, value in values)]
        choices += [(MoveKind.SHOW.value, "prove what it is")] if name in statements.show else []
        choices += [(MoveKind.ASK.value, "ask for it")] if name in statements.ask else []
        fields.append(StatementField(f"fact{index}", name, tuple(choices)))
    return fields


def _variables(menu: Menu) -> list[str]:
    return list(dict.fromkeys([*menu.statements.state, *menu.statements.show, *menu.statements.ask]))


def term_fields(observation: Observation, menu: Menu) -> list[TermField]:
    """Returns the fields of an offer, filled with the terms of the newest offer; ``menu`` must allow one."""
    assert menu.space is not None  # offers are about something
    offers = [] if observation.table is None else [standing.offer for standing in observation.table.offers]
    newest: Mapping[str, Any] = max(offers, key=lambda offer: offer.number).terms if offers else {}
    fields: list[TermField] = []
    for index, issue in enumerate(menu.space.issues):
        name, value = f"issue{index}", newest.get(issue.name)
        if isinstance(issue, NumberIssue):
            low, high, step = str(issue.low), str(issue.high), str(issue.step)
            fields.append(TermField(name, issue.name, "number", _shown(value), low, high, step, issue.unit))
        elif isinstance(issue, ItemsIssue):
            parts = value if isinstance(value, Mapping) else {}
            for agent, person in menu.space.names.items():
                label = f"{issue.name} for {person} (of {issue.count})"
                pieces = _shown(parts.get(agent))
                fields.append(TermField(f"{name}.{agent}", label, "number", pieces, "0", str(issue.count), "1"))
        else:
            fields.append(TermField(name, issue.name, "choice", _shown(value), options=tuple(issue.options)))
    return fields


def worth_text(briefing: Briefing, value: float) -> str:
    """Returns a worth to the seat with its unit: that of the only issue if the worth counts in it, else points."""
    issue = briefing.space.issues[0] if briefing.space is not None and len(briefing.space.issues) == 1 else None
    if isinstance(briefing.worth, AdditiveWorth) and isinstance(issue, NumberIssue):
        gain = briefing.worth.issues[issue.name]["per_unit"]
        # A worth with more decimals than the grid, such as by a constant, would be rounded.
        if issue.unit and abs(gain) == 1 and round(value, issue.decimals) == value:
            return issue.amount_text(value)
    return f"{value:g} point{'s' * (abs(value) != 1)}"


def offer_worths(observation: Observation) -> dict[int, str]:
    """Returns what every open offer is worth to the seat, with the unit, by the number of the offer."""
    offers = [] if observation.table is None else [standing.offer for standing in observation.table.offers]
    return {offer.number: words for offer in offers if (words := _terms_worth(observation, offer.terms))}


def move_worth(observation: Observation, fields: Mapping[str, str]) -> str:
    """Returns in words what the move in a form would be worth to the seat; empty where that is not settled by it.

    Args:
        observation: the observation of the seat.
        fields: the fields of the person's form, as for :func:`read_action`.

    Raises:
        InvalidValueError: the move is not complete, or not possible now; the message is for the person.
    """
    move, briefing = _read_move(observation, fields), observation.briefing
    if move is None or briefing.worth is None or briefing.space is None:
        return ""
    terms = None
    if move.kind is MoveKind.PROPOSE:
        terms = briefing.space.normalise(move.content)
    elif move.kind is MoveKind.ACCEPT and observation.table is not None:
        terms = next(item.offer.terms for item in observation.table.offers if item.offer.number == move.content)
    elif move.kind is MoveKind.VOTE and move.content is not None:
        terms = {OPTION: move.content}
    words = "" if terms is None else _terms_worth(observation, terms)
    without = worth_text(briefing, briefing.worth.disagreement)
    agreed, agreement = ("decided", "a decision") if briefing.protocol == "ballot" else ("agreed", "an agreement")
    return words and f"{words} to you, if it is {agreed}; {without} without {agreement}"


def _terms_worth(observation: Observation, terms: Mapping[str, Any]) -> str:
    briefing = observation.briefing
    # Other worths depend on facts or answers, which the seat may not know.
    if briefing.space is None or not isinstance(briefing.worth, AdditiveWorth | TableWorth | BallotWorth):
        return ""
    return worth_text(briefing, briefing.worth.value(briefing.space, terms, observation.agent))


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def read_action(observation: Observation, fields: Mapping[str, str], to: Sequence[str] = ()) -> Action:
    """Returns the action in the fields of a person's form.

    Raises:
        InvalidActionError: the action is not possible now; the message is for the person.
    """
    kind = fields.get("action_type", "") or ActionType.SPEAK.value
    if kind not in [item.value for item in observation.available]:
        raise InvalidActionError(field="action_type", got=kind, valid=[item.value for item in observation.available])
    words = fields.get("argument", "").strip()
    move = _read_move(observation, fields)
    if kind not in (ActionType.NONE.value, ActionType.LEAVE.value) and not words and move is None:
        raise InvalidActionError("write something, or choose a move", field="argument")
    action = Action(ActionType(kind), words, tuple(dict.fromkeys(to)), move)
    problem = observation.move_problem(action)
    if problem is not None:
        raise InvalidActionError(problem, field="move")
    return action


def _read_move(observation: Observation, fields: Mapping[str, str]) -> Move | None:
    menu = observation.moves
    if not menu:
        return None
    binding, parts = _read_binding(menu, fields), _read_statements(menu, fields)
    if binding is None:
        return Move.of_parts(parts)
    return Move(binding.kind, binding.content, tuple(parts))


def _read_statements(menu: Menu, fields: Mapping[str, str]) -> list[tuple[MoveKind, Any]]:
    values: dict[str, str] = {}
    names: dict[MoveKind, list[str]] = {MoveKind.SHOW: [], MoveKind.ASK: []}
    for field in statement_fields(menu):
        choice = fields.get(field.name, "")
        if choice not in dict(field.choices):
            raise InvalidActionError("this statement is not available any more", field=field.label)
        if choice.startswith(STATE):
            values[field.label] = menu.statements.state[field.label][int(choice.removeprefix(STATE))]
        elif choice:
            names[MoveKind(choice)].append(field.label)
    parts: list[tuple[MoveKind, Any]] = [(MoveKind.STATE, values)] if values else []
    return parts + [(kind, listed if len(listed) > 1 else listed[0]) for kind, listed in names.items() if listed]


def _read_binding(menu: Menu, fields: Mapping[str, str]) -> Move | None:
    value = fields.get("move", "")
    if not value:
        return None
    if value == OFFER and menu.propose:
        return Move(MoveKind.PROPOSE, _read_terms(menu, fields))
    if value == CLAIM and menu.claim:
        return read_move({MoveKind.CLAIM.value: fields.get("claim", "").strip()})
    choices = _binding(menu).choices()
    if value.isdecimal() and len(value) < 6 and int(value) < len(choices):
        return choices[int(value)][1]
    raise InvalidActionError("this move is not available any more", field="move")


def _read_terms(menu: Menu, fields: Mapping[str, str]) -> dict[str, Any]:
    assert menu.space is not None
    terms: dict[str, Any] = {}
    for index, issue in enumerate(menu.space.issues):
        name = f"issue{index}"
        if isinstance(issue, ItemsIssue):
            terms[issue.name] = {agent: _whole(fields.get(f"{name}.{agent}", "")) for agent in menu.space.names}
        else:
            text = fields.get(name, "").strip()
            if not text:
                raise InvalidActionError("an offer needs a value for every issue", field=issue.name)
            terms[issue.name] = issue.read(text, menu.space.names)
    return terms


def _whole(text: str) -> int:
    text = text.strip() or "0"
    if not (text.isdecimal() and len(text) < 10):
        raise InvalidActionError(field="offer", expected="whole numbers of pieces", got=text[:40])
    return int(text)
