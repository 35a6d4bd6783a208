"""A person's view of a seat, and reading the action from its form.

All content comes from the seat's own :class:`~sotopia_env.world.Observation`, so a page cannot show information that
the seat may not have. The instructions for models are left out. Pages must escape every text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import ItemsIssue, Menu, Move, MoveKind, NumberIssue, OutcomeSpace
from sotopia_env.outcomes.menu import NO_STATEMENTS
from sotopia_env.outcomes.move import read_move
from sotopia_env.world import Action, Observation
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn

OFFER, CLAIM = "offer", "claim"
"""Values of the field ``move`` for moves with further fields."""
_OPEN_ISSUE = "an offer needs a value for every issue"
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
        note: what follows from the value, for people.
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
    note: str = ""


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


def move_choices(menu: Menu, terms: bool = True) -> list[tuple[str, str]]:
    """Returns the open moves that bind: the value of the field ``move``, and its label.

    Args:
        menu: the open moves.
        terms: whether labels repeat the terms of offers; not needed on a page that shows the offers.
    """
    choices = _binding(menu).choices(terms)
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
            fields += _item_fields(observation, name, issue, menu.space.names, parts)
        else:
            fields.append(TermField(name, issue.name, "choice", _shown(value), options=tuple(issue.options)))
    return fields


def _item_fields(
    observation: Observation, name: str, issue: ItemsIssue, names: Mapping[str, str], parts: Mapping[str, Any]
) -> Iterator[TermField]:
    """The field of every seat's pieces; of two seats, the reader's only, since the other one gets the rest."""
    for agent, person in names.items():
        label, pieces, note = f"{issue.name} for {person}", _shown(parts.get(agent)), f"of {issue.count}"
        if len(names) == 2:
            if agent != observation.agent:
                continue
            rest = next(other for key, other in names.items() if key != agent)
            label, note = f"{issue.name} for you", f"the rest for {rest}"
        yield TermField(f"{name}.{agent}", label, "number", pieces, "0", str(issue.count), "1", note=note)


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
    move = read_form_move(observation, fields)
    if kind not in (ActionType.NONE.value, ActionType.LEAVE.value) and not words and move is None:
        raise InvalidActionError("write something, or choose a move", field="argument")
    action = Action(ActionType(kind), words, tuple(dict.fromkeys(to)), move)
    problem = observation.move_problem(action)
    if problem is not None:
        raise InvalidActionError(problem, field="move")
    return action


def read_form_move(observation: Observation, fields: Mapping[str, str]) -> Move | None:
    """Returns the move in the fields of a person's form; ``None`` for words alone.

    Raises:
        InvalidActionError: the move is not complete, or not available any more; the message is for the person.
    """
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
    return {issue.name: read_term(menu.space, index, fields) for index, issue in enumerate(menu.space.issues)}


def read_term(space: OutcomeSpace, index: int, fields: Mapping[str, str]) -> Any:
    """Returns the value of one issue in the fields of an offer.

    Args:
        space: the outcome space.
        index: the index of the issue.
        fields: the fields of the person's form.

    Raises:
        InvalidValueError: the value is missing or invalid; the message is for the person.
    """
    issue, name = space.issues[index], f"issue{index}"
    if isinstance(issue, ItemsIssue):
        return _read_items(issue, [(agent, fields.get(f"{name}.{agent}")) for agent in space.names])
    text = fields.get(name, "").strip()
    if not text:
        raise InvalidActionError(_OPEN_ISSUE, field=issue.name)
    return issue.read(text, space.names)


def _read_items(issue: ItemsIssue, texts: list[tuple[str, str | None]]) -> dict[str, int]:
    if not any(text and text.strip() for _, text in texts):
        raise InvalidActionError(_OPEN_ISSUE, field=issue.name)
    pieces = {agent: _whole(text or "") for agent, text in texts}
    # A form for two seats has the reader's field alone.
    absent = [agent for agent, text in texts if text is None]
    if len(texts) == 2 and len(absent) == 1:
        pieces[absent[0]] = issue.count - sum(pieces.values())
    return pieces


def _whole(text: str) -> int:
    text = text.strip() or "0"
    if not (text.isdecimal() and len(text) < 10):
        raise InvalidActionError(field="offer", expected="whole numbers of pieces", got=text[:40])
    return int(text)


def form_fields(observation: Observation, action: Action) -> dict[str, str | list[str]]:
    """Returns the fields of a person's form that hold an action: what :func:`read_action` reads back as it.

    Args:
        observation: the observation of the seat.
        action: an action that is possible now; a move that is not open is left out.
    """
    fields: dict[str, str | list[str]] = {"action_type": action.action_type.value, "argument": action.argument}
    fields |= {"to": list(action.to), "move": ""}
    menu, move = observation.moves, action.move
    if not menu or move is None:
        return fields
    binding = move.binding
    if binding is not None and binding.kind is MoveKind.PROPOSE and menu.propose and menu.space is not None:
        terms = menu.space.normalise(binding.content)
        return fields | {"move": OFFER, **_term_values(menu.space.issues, terms)} | _statement_values(menu, move)
    if binding is not None and binding.kind is MoveKind.CLAIM and menu.claim:
        return fields | {"move": CLAIM, "claim": str(binding.content)} | _statement_values(menu, move)
    numbers = [index for index, (_, choice) in enumerate(_binding(menu).choices()) if choice == binding]
    return fields | {"move": str(numbers[0]) if binding and numbers else ""} | _statement_values(menu, move)


def _term_values(issues: Sequence[Any], terms: Mapping[str, Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for index, issue in enumerate(issues):
        value = terms[issue.name]
        parts = value.items() if isinstance(issue, ItemsIssue) else [("", value)]
        values |= {f"issue{index}{'.' if agent else ''}{agent}": str(part) for agent, part in parts}
    return values


def _statement_values(menu: Menu, move: Move) -> dict[str, str]:
    values: dict[str, str] = {}
    for field in statement_fields(menu):
        for kind, content in move.statements:
            if kind is MoveKind.STATE and field.label in content:
                values[field.name] = f"{STATE}{menu.statements.state[field.label].index(content[field.label])}"
            elif kind is not MoveKind.STATE and field.label in ([content] if isinstance(content, str) else content):
                values[field.name] = kind.value
    return values


def move_words(observation: Observation, move: Move | None) -> str:
    """Returns a move in words for people: ``offer: price $84``; empty without one."""
    if move is None:
        return ""
    menu, binding = observation.moves, move.binding
    words = [f"{kind.value} {content}" for kind, content in move.statements]
    if binding is not None and binding.kind is MoveKind.PROPOSE and menu and menu.space is not None:
        words.insert(0, f"offer: {menu.space.describe(menu.space.normalise(binding.content))}")
    elif binding is not None:
        labels = [label for label, choice in (_binding(menu).choices() if menu else ()) if choice == binding]
        words.insert(0, labels[0] if labels else f"{binding.kind.value} {binding.content}")
    return "; ".join(words)


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that an assistant proposes to the person in a seat.

    Attributes:
        words: what the character would say or do.
        manner: the kind of the action for people, if it is not speech; empty for speech.
        move: the move in words; empty without one.
        to: names of those who would hear it; empty for everybody.
        fields: the fields of the form that hold the action.
    """

    words: str
    manner: str
    move: str
    to: str
    fields: Mapping[str, str | list[str]]

    @classmethod
    def of(cls, observation: Observation, action: Action) -> Proposal:
        """Returns an action as the page of a seat shows it."""
        manner = "" if action.action_type is ActionType.SPEAK else WORDS[action.action_type]
        names = {partner.agent: partner.name for partner in observation.briefing.partners}
        to = ", ".join(names[agent] for agent in action.to if agent in names)
        move = move_words(observation, action.move)
        return cls(action.argument.strip(), manner, move, to, form_fields(observation, action))

    @property
    def texts(self) -> dict[str, str]:
        """The fields with one value each, as :func:`read_action` takes them."""
        return {name: value for name, value in self.fields.items() if isinstance(value, str)}
