"""Views of an episode for readers: complete for researchers, or limited to the knowledge of one seat.

The view of a seat is derived from its :class:`~sotopia_env.world.Observation` only. Templates get these views and never
the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sotopia_env.outcomes.table import TableView
from sotopia_env.people.seat.worth import SeatWorth, WorthPart
from sotopia_env.world import Task
from sotopia_env.world.action import ActionType, Advice, move_json
from sotopia_env.world.answers import InterviewAnswer
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Evaluation, RecordedTurn
from sotopia_env.world.perception.briefing import OWN_FIELDS, Briefing, describe
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import RANGES, Dimension
from sotopia_env.world.social_acts import act_labels

COLOURS = 6
"""Hues of seats in the style sheet; they repeat after that."""
STOPS = {
    "settled": "They settled it",
    "left": "Someone left",
    "silence": "They fell silent",
    "turn limit": "The turn limit was reached",
}
_VERBS = {
    ActionType.SPEAK: "",
    ActionType.NON_VERBAL: "gesture",
    ActionType.ACTION: "action",
    ActionType.LEAVE: "left the conversation",
    ActionType.NONE: "did nothing",
}


@dataclass(frozen=True, slots=True)
class SeatCard:
    """A seat in the header of a page.

    Attributes:
        agent: its id.
        colour: number of its hue.
        name: name of its character.
        policy: name of its policy; empty if it is hidden from the viewer.
        profile: the part of the character's profile that is visible to the viewer.
        goals: the goals and private knowledge that are visible to the viewer.
        present: whether it has not left.
    """

    agent: str
    colour: int
    name: str
    policy: str
    profile: str
    goals: tuple[str, ...] = ()
    present: bool = True


@dataclass(frozen=True, slots=True)
class TurnCard:
    """A turn in the transcript.

    Attributes:
        number: the number of the turn, from 1.
        colour: the colour of the seat.
        name: the name of the character.
        kind: ``gesture``, ``action``, ``left the conversation``, ``did nothing``; empty for speech.
        text: the speech, gesture or deed.
        to: names of the addressees of a private action.
        effect: the effect of the move; empty without a valid move.
        refused: the reason why a move or an action did not count.
        attempt: the refused move or action.
        failure: the reason why the policy's text could not be parsed.
        mine: whether it is the viewer's own turn.
        classes: the classes of its statements; for researchers, after the end.
        advice: what the person was advised to do, and what they did; for researchers.
    """

    number: int
    colour: int
    name: str
    kind: str
    text: str
    to: str = ""
    effect: str = ""
    refused: str = ""
    attempt: str = ""
    failure: str = ""
    mine: bool = False
    classes: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class OfferCard:
    """An open offer: its terms as name and value, the seats that have not agreed yet, and its worth to the viewer.

    ``parts`` stands in place of the terms where the viewer's worth has a part for each of them.
    """

    number: int
    colour: int
    name: str
    terms: tuple[tuple[str, str], ...]
    accepted: str
    rejected: str
    missing: str
    more: int
    private: bool
    worth: str = ""
    parts: tuple[WorthPart, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCard:
    """The state of the protocol: offers, or lines about votes and claims, and the result."""

    offers: tuple[OfferCard, ...]
    lines: tuple[str, ...]
    result: str


@dataclass(frozen=True, slots=True)
class ScoreCard:
    """A score on one dimension, with its range and the reason."""

    dimension: str
    value: float
    low: float
    high: float
    reasoning: str


@dataclass(frozen=True, slots=True)
class AnswerCard:
    """An answer of an interview: the respondent, the subject, the goal or question, the answer and its reason."""

    who: str
    about: str
    text: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class EvaluationCard:
    """An evaluation: scores and verified payoff of each seat, and the answers of an interview."""

    evaluator: str
    unscored: str
    comment: str
    outcome: str
    seats: tuple[tuple[SeatCard, tuple[ScoreCard, ...], str], ...]
    answers: tuple[AnswerCard, ...]


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """An episode, complete or from the view of one seat.

    Attributes:
        id: the id of the episode.
        title: name of the task.
        context: the text that everyone reads.
        seats: in order.
        turns: so far.
        table: the state of the protocol; ``None`` without one.
        acting: the seats whose turn it is.
        status: the status of the episode.
        stop: the reason why it ended, in words.
        seat: the viewer's seat; ``None`` for a researcher.
        briefing: the briefing of that seat.
        evaluations: the evaluations of the ended episode.
        event: number of the latest event that the view includes.
        limit: the maximum number of turns.
    """

    id: str
    title: str
    context: str
    seats: tuple[SeatCard, ...]
    turns: tuple[TurnCard, ...]
    table: TableCard | None
    acting: tuple[SeatCard, ...]
    status: str
    stop: str
    seat: str | None
    briefing: Briefing | None
    evaluations: tuple[EvaluationCard, ...]
    event: int
    limit: int

    @property
    def live(self) -> bool:
        """Whether the episode can still change."""
        return self.status in ("queued", "running", "waiting")


def show(
    identity: str,
    table: Table,
    *,
    seat: str | None = None,
    status: str = "done",
    event: int = 0,
    policies: Mapping[str, str] | None = None,
) -> EpisodePage:
    """Returns an episode as a page shows it.

    Args:
        identity: the episode's id.
        table: the episode so far.
        seat: the agent whose knowledge is shown; ``None`` for everything.
        status: the status of the episode.
        event: number of its latest event.
        policies: agent id to the name of its policy.

    Raises:
        UnknownNameError: the task has no such seat.
    """
    observation, protocol = None if seat is None else table.observe(seat), table.task.protocol
    cards = tuple(_seats(table, policies or {}, observation.briefing if observation else None))
    by_agent = {card.agent: card for card in cards}
    if observation is None:
        # A promise is kept or broken only when the choice is made.
        classes = {} if table.stop is None else act_labels(table.task, table.state.turns)
        cards_of_turns = [turn_card(item.turn, table.task.names, item) for item in table.turns]
        turns = tuple(replace(card, classes=classes.get(card.number - 1, "")) for card in cards_of_turns)
    else:
        turns = tuple(turn_card(turn, table.task.names, viewer=seat) for turn in observation.turns)
    whole = None if protocol is None else protocol.table(table.state.table, None)
    view = observation.table if observation else whole
    return EpisodePage(
        id=identity,
        title=table.task.id,
        context=table.task.scenario.context,
        seats=cards,
        turns=turns,
        table=None if view is None else table_card(view),
        acting=() if status in ("done", "failed", "stopped") else tuple(by_agent[agent] for agent in table.acting),
        status=status,
        stop=STOPS[table.stop.value] if table.stop else "",
        seat=seat,
        briefing=observation.briefing if observation else None,
        evaluations=() if seat else tuple(_evaluation(item, table, cards) for item in table.episode().evaluations),
        event=event,
        limit=table.state.rules.turn_limit(table.task) or (table.state.rules.max_rounds or 0) * len(cards),
    )


def _seats(table: Table, policies: Mapping[str, str], briefing: Briefing | None) -> Iterator[SeatCard]:
    task = table.task
    partners = {} if briefing is None else {partner.agent: partner for partner in briefing.partners}
    for number, agent in enumerate(task.agents):
        profile, policy = "", ""
        goals: tuple[str, ...] = ()
        if briefing is None:
            seat = task.scenario.seats[number]
            profile, policy = describe(task.characters[number], OWN_FIELDS), policies.get(agent, "")
            goals = (*seat.goals, *([f"Only they know: {seat.private_info}"] if seat.private_info else []))
        elif agent == briefing.agent:
            profile = briefing.profile
            goals = (*briefing.goals, *([f"Only you know: {briefing.private_info}"] if briefing.private_info else []))
        else:
            profile = partners[agent].text.removeprefix(f"{task.names[agent]}: ")
        yield SeatCard(
            agent, number % COLOURS, task.names[agent], policy, profile, goals, agent not in table.state.left
        )


def turn_card(
    turn: Turn, names: Mapping[str, str], item: RecordedTurn | None = None, viewer: str | None = None
) -> TurnCard:
    """Returns a turn as a page shows it.

    Args:
        turn: the turn, as the viewer has witnessed it.
        names: agent id to the character's name, in seat order.
        item: the record of the turn, which only researchers see.
        viewer: the viewer's seat; ``None`` for a researcher.
    """
    action, attempt = turn.action, turn.attempted
    tried = "" if attempt is None or attempt.move is None else f"{attempt.move.kind.value} {attempt.move.content}"
    if attempt is not None and attempt.action_type is not action.action_type:
        tried = attempt.argument
    failure = item.generation.parse_failure if item is not None and item.generation is not None else None
    silent = not action.argument.strip() and action.action_type is ActionType.SPEAK
    return TurnCard(
        number=turn.index + 1,
        colour=[*names].index(turn.actor) % COLOURS,
        name=names[turn.actor],
        kind="" if silent else _VERBS[action.action_type],
        text=action.argument.strip(),
        to=", ".join(names[agent] for agent in action.to),
        effect=turn.effect or "",
        refused=turn.violation or "",
        attempt=tried,
        failure=failure or "",
        mine=turn.actor == viewer,
        advice="" if item is None or item.generation is None else _advice(item.generation.advice),
    )


_RESPONSES = {
    "played": "carried out for the person",
    "same": "the person did this",
    "move": "the person made this move with other words",
    "other": "the person did something else",
    "": "no response",
}


def _advice(advice: Advice | None) -> str:
    """What an assistant proposed and what the person did, in words; empty without one."""
    if advice is None:
        return ""
    if advice.problem:
        return f"{advice.policy} had no advice ({advice.problem})"
    move = "" if advice.action.move is None else f" {move_json(advice.action.move)}"
    copied = ", copied into the form" if advice.is_copied else ""
    return (
        f"Advice ({advice.mode}) by {advice.policy}: {advice.action.argument.strip()}{move} – "
        f"{_RESPONSES[advice.response]}{copied}"
    )


def table_card(view: TableView, worths: Mapping[int, SeatWorth] = MappingProxyType({})) -> TableCard:
    """Returns the state of a protocol, as far as ``view`` shows it.

    Args:
        view: the table, complete or as one seat sees it.
        worths: the worth of offers to the viewer's seat, by the number of the offer.
    """
    names = view.space.names
    agents = [*names]
    parts = (view.votes, view.claims, view.rounds)
    lines = [line for part in parts if part is not None for line in part.lines(names)]
    lines += view.proofs
    offers = []
    for item in view.offers:
        offer, worth = item.offer, worths.get(item.offer.number, SeatWorth())
        terms = tuple((issue.name, issue.text(offer.terms[issue.name], names)) for issue in view.space.issues)
        offers.append(
            OfferCard(
                number=offer.number,
                colour=agents.index(offer.proposer) % COLOURS,
                name=names[offer.proposer],
                terms=terms,
                accepted=", ".join(names[agent] for agent in offer.accepted),
                rejected=", ".join(names[agent] for agent in sorted(offer.rejected)),
                missing=", ".join(names[agent] for agent in item.missing),
                more=item.more,
                private=offer.audience is not None,
                worth=worth.total,
                parts=worth.parts,
            )
        )
    return TableCard(tuple(offers), tuple(lines), view.result)


def _evaluation(evaluation: Evaluation, table: Table, cards: tuple[SeatCard, ...]) -> EvaluationCard:
    ranges = {dimension.name: (dimension.low, dimension.high) for dimension in evaluation.dimensions}
    seats = []
    for number, card in enumerate(cards):
        scores = tuple(
            ScoreCard(
                str(score.dimension).replace("_", " "),
                score.value,
                *(RANGES[score.dimension] if isinstance(score.dimension, Dimension) else ranges[score.dimension]),
                score.reasoning,
            )
            for score in evaluation.by_agent.get(card.agent, {}).values()
        )
        outcome = evaluation.outcome
        gain = ""
        if outcome is not None:
            gain = f"payoff {outcome.payoffs[number]:g} · {outcome.shares[number]:.0%} of the best"
        seats.append((card, scores, gain))
    outcome = evaluation.outcome
    words = "" if outcome is None else f"{outcome.reason} · efficiency {outcome.efficiency:.0%}"
    answers = tuple(_answer(item, table.task) for item in evaluation.answers if item.asked)
    return EvaluationCard(
        evaluation.evaluator, evaluation.unscored or "", evaluation.comment, words, tuple(seats), answers
    )


def _answer(item: InterviewAnswer, task: Task) -> AnswerCard:
    interview, seat = task.scenario.interview, task.scenario.seats[task.seat_of[item.about]]
    # An answer on private information exists only where the scenario has an interview.
    text = seat.goals[item.index] if item.view or interview is None else interview.questions[item.index].text
    answer = item.choice or {True: "yes", False: "no", None: "no answer"}[item.value]
    who = task.names.get(item.respondent, item.respondent.replace("_", " "))
    return AnswerCard(who, task.names[item.about], text, answer, item.reason)
