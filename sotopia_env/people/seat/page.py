"""The content of the page on which a person in a seat reads and acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sotopia_env.outcomes.descriptions import describe_worth
from sotopia_env.people.seat.conversation import TableCard, TurnCard, table_card, turn_card
from sotopia_env.people.seat.form import (
    StatementField,
    TermField,
    action_choices,
    move_choices,
    statement_fields,
    term_fields,
)
from sotopia_env.people.seat.worth import (
    IssueScale,
    SeatWorth,
    WorthScale,
    issue_scales,
    offer_worths,
    worth_scale,
    worth_text,
    worths_hidden,
)
from sotopia_env.world import Observation
from sotopia_env.world.action import ActionType
from sotopia_env.world.play.table import Table


@dataclass(frozen=True, slots=True)
class SeatPage:
    """The content of a seat's page.

    Attributes:
        observation: the seat's observation, from which the other fields are derived.
        name: the character's name.
        turns: the turns that the seat has witnessed.
        table: the state of the protocol, as far as the seat may know it; ``None`` without one.
        count: number of turns so far, including those that the seat did not witness; a form sends it back.
        acting: whether it is the person's turn.
        ended: whether the conversation is over.
        actions: the available action types, with labels for people.
        moves: the available moves: value of the field and label.
        terms: fields of an offer; empty if no offer is possible.
        statements: fields of what can be said about facts; empty in a task without facts.
        scale: what the seat can get; ``None`` where that depends on what it may not know.
        rule: its worth in words, as models read it, where the rules leave out scales and the worths of offers.
        issues: which values of the issues are better for the seat.
        worths: the worth of every open offer, by its number.
        deadline: the person's deadline, in seconds since the epoch.
        leaving: whether the person wishes to leave and it is not yet their turn.
        consequence: what follows if they leave, in words.
    """

    observation: Observation
    name: str
    turns: tuple[TurnCard, ...]
    table: TableCard | None
    count: int
    acting: bool
    ended: bool
    actions: tuple[tuple[str, str], ...]
    moves: tuple[tuple[str, str], ...]
    terms: tuple[TermField, ...]
    statements: tuple[StatementField, ...]
    scale: WorthScale | None
    rule: str
    issues: tuple[IssueScale, ...]
    worths: Mapping[int, SeatWorth]
    deadline: float | None
    leaving: bool
    consequence: str


def seat_page(
    table: Table,
    agent: str,
    *,
    acting: bool,
    ended: bool,
    deadline: float | None = None,
    leaving: bool = False,
    in_study: bool = False,
) -> SeatPage:
    """Returns the current content of a seat's page.

    Args:
        table: the episode so far.
        agent: the seat.
        acting: whether it is the person's turn.
        ended: whether the conversation is over, also if it broke off.
        deadline: the end of the time limit of the turn, in seconds since the epoch.
        leaving: whether the person has said that they wish to leave.
        in_study: whether something follows the conversation.
    """
    observation, names = table.observe(agent), table.task.names
    # Observations list moves even between turns; a form that cannot be sent would only mislead.
    menu = observation.moves if acting else None
    worths = offer_worths(observation)
    return SeatPage(
        observation=observation,
        name=names[agent],
        turns=tuple(turn_card(turn, names, viewer=agent) for turn in observation.turns),
        table=None if observation.table is None else table_card(observation.table, worths),
        count=len(table.turns),
        acting=acting,
        ended=ended,
        actions=tuple(action_choices(observation)) if acting else (),
        moves=tuple(move_choices(menu, terms=False)) if menu else (),
        terms=tuple(term_fields(observation, menu)) if menu and menu.propose else (),
        statements=tuple(statement_fields(menu)) if menu else (),
        scale=worth_scale(observation.briefing),
        rule=_rule(table, agent) if worths_hidden(observation.briefing) else "",
        issues=tuple(issue_scales(observation.briefing)),
        worths=worths,
        deadline=deadline if acting else None,
        leaving=leaving and not ended,
        consequence=_consequence(table, observation, in_study),
    )


def _rule(table: Table, agent: str) -> str:
    spec = table.task.scenario.outcome
    return "" if spec is None else describe_worth(spec, table.task.seat_of[agent], table.task.names)


def _consequence(table: Table, observation: Observation, in_study: bool) -> str:
    """What follows if the person leaves; it holds at every moment of the conversation."""
    briefing = observation.briefing
    if ActionType.LEAVE in table.state.rules.action_types:
        words = ["Your character leaves at its next turn: at once, if it is its turn now."]
        words.append("That ends the conversation." if len(table.task.agents) == 2 else "The others may go on.")
    else:
        words = ["Nobody can leave before the end here: your character says nothing any more."]
    if briefing.worth is not None and briefing.protocol == "agreement":
        words.append(f"Without an agreement you get {worth_text(briefing, briefing.worth.disagreement)}.")
    words += ["Then the study goes on."] if in_study else []
    return " ".join([*words, "What has been said is kept."])
