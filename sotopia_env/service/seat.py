"""The page of a person's seat in a live episode."""

from __future__ import annotations

from dataclasses import dataclass

from sotopia_env.people.seat_form import TermField, TurnView, action_choices, move_choices, term_fields, turn_view
from sotopia_env.service.live import LiveEpisode
from sotopia_env.world import Observation, TurnOrder


@dataclass(frozen=True, slots=True)
class SeatPage:
    """The content of a seat's page.

    Attributes:
        observation: the seat's observation, from which the other fields are derived.
        name: the character's name.
        turns: the turns that the seat has witnessed.
        count: number of turns so far, including those that the seat did not witness; a form sends it back.
        acting: whether it is the person's turn.
        thinking: names of the others whose turn it is.
        ended: whether the conversation is over.
        actions: the available action types, with labels for people.
        moves: the available moves: value of the field and label.
        terms: fields of an offer; empty if no offer is possible.
        deadline: the person's deadline, in seconds since the epoch.
    """

    observation: Observation
    name: str
    turns: tuple[TurnView, ...]
    count: int
    acting: bool
    thinking: tuple[str, ...]
    ended: bool
    actions: tuple[tuple[str, str], ...]
    moves: tuple[tuple[str, str], ...]
    terms: tuple[TermField, ...]
    deadline: float | None


def seat_page(live: LiveEpisode, agent: str) -> SeatPage:
    """Returns the present content of a seat's page."""
    observation = live.table.observe(agent)
    names = live.spec.task.names
    acting = agent in live.awaited
    is_reactive = live.table.state.rules.turn_order is TurnOrder.REACTIVE
    # Observations list moves even between turns; a form that cannot be sent would only mislead.
    menu = observation.moves if acting else None
    return SeatPage(
        observation=observation,
        name=names[agent],
        turns=tuple(turn_view(turn, names, agent) for turn in observation.turns),
        count=len(live.table.turns),
        acting=acting,
        # In reactive order, who acts now is an appointment that the others do not know of.
        thinking=() if live.ended or is_reactive else tuple(names[o] for o in live.table.acting if o != agent),
        ended=live.ended,
        actions=tuple(action_choices(observation)) if acting else (),
        moves=tuple(move_choices(menu)) if menu else (),
        terms=tuple(term_fields(observation, menu)) if menu and menu.propose else (),
        deadline=live.deadline if acting else None,
    )
