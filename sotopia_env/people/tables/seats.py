"""The columns of what happened to a person in a seat: outcome, worth, reason of the end, scores, seconds.

Nothing here knows a study: the columns describe the episodes of any run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.outcomes import ChoiceIssue, ItemsIssue, NumberIssue
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.people.tables.columns import Cell, Column
from sotopia_env.world import Task
from sotopia_env.world.action import Advice
from sotopia_env.world.episode import Episode, RecordedTurn
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.reward import DIMENSIONS, RANGES, Dimension

MOVES, RULES, SERVER, RECORD = (
    "the moves of the episode",
    "the task",
    "the clock of the server",
    "the record of the episode",
)
"""Sources of values, for codebooks."""


@dataclass(frozen=True, slots=True)
class PlayedSeat:
    """A seat of an episode, which may still be running.

    Attributes:
        episode: the episode.
        agent: the seat.
        outcome: the outcome of its moves; ``None`` while it is running, or in a task without an outcome.
    """

    episode: Episode
    agent: str
    outcome: OutcomeResult | None = None

    @classmethod
    def of(cls, episode: Episode, agent: str) -> PlayedSeat:
        """Returns the seat of an episode with the outcome of its moves, which is exact whoever evaluated it."""
        if episode.stop is None or episode.task.scenario.outcome is None:
            return cls(episode, agent)
        try:
            return cls(episode, agent, outcome_of(episode.task, episode.plain_turns))
        except InvalidTaskError:  # more outcomes than can be counted exactly: there is no best one to compare with
            return cls(episode, agent)

    @property
    def seat(self) -> int:
        """The index of the seat."""
        return self.episode.task.seat_of[self.agent]

    @property
    def own(self) -> list[RecordedTurn]:
        """The seat's own turns."""
        return [item for item in self.episode.turns if item.turn.actor == self.agent]

    @property
    def disagreement(self) -> float | None:
        """What the seat gets without an agreement; ``None`` without an outcome."""
        spec = self.episode.task.scenario.resolved_outcome
        return None if spec is None else spec.worth[self.seat].disagreement

    def score(self, dimension: Dimension) -> float | None:
        """The seat's score on a dimension, by the latest evaluation that has one."""
        for evaluation in reversed(self.episode.evaluations):
            if score := evaluation.by_agent.get(self.agent, {}).get(dimension):
                return score.value
        return None


def seconds_of(item: RecordedTurn) -> float | None:
    """Returns the seconds from an observation to the action; ``None`` if they were not measured."""
    latency = None if item.generation is None else item.generation.latency
    return round(latency, 3) if latency else None


def _outcome(read: Callable[[OutcomeResult, int], Cell]) -> Callable[[PlayedSeat], Cell]:
    return lambda played: None if played.outcome is None else read(played.outcome, played.seat)


def _others(read: Callable[[Episode, str], object]) -> Callable[[PlayedSeat], Cell]:
    """One cell for all other seats, in seat order, separated by commas."""

    def cell(played: PlayedSeat) -> Cell:
        others = [agent for agent in played.episode.task.agents if agent != played.agent]
        return ", ".join(str(read(played.episode, agent)) for agent in others)

    return cell


def policy_name(episode: Episode, agent: str) -> str:
    """Returns the name of the policy in a seat; empty if the record does not say."""
    return next((policy.name for policy in episode.policies if policy.agent == agent), "")


def _partner_worth(played: PlayedSeat) -> Cell:
    payoffs = [] if played.outcome is None else list(played.outcome.payoffs)
    return ", ".join(f"{payoff:g}" for seat, payoff in enumerate(payoffs) if seat != played.seat) or None


def _score_column(dimension: Dimension) -> Column[PlayedSeat]:
    low, high = RANGES[dimension]
    meaning = f"score on {dimension.value} by the latest evaluation that has one"
    return Column(
        f"score.{dimension.value}", meaning, "number", lambda s: s.score(dimension), f"{low} to {high}", "an evaluator"
    )


def advice_of(item: RecordedTurn) -> Advice | None:
    """Returns the advice that a person had in a turn; ``None`` without an assistant."""
    return None if item.generation is None else item.generation.advice


def _responses(played: PlayedSeat) -> list[str]:
    """What the person did after each advice."""
    return [a.response for item in played.own if (a := advice_of(item)) is not None and not a.problem]


def _assistance(played: PlayedSeat, name: str) -> Cell:
    settings = next((policy.parameters for policy in played.episode.policies if policy.agent == played.agent), {})
    return str(settings[name]) if name in settings else None


_UNITS = "in the units of the task's worths"
SEAT: tuple[Column[PlayedSeat], ...] = (
    Column("task", "name of the task", "text", lambda s: s.episode.task.id, source=RULES),
    Column("scenario", "name of the scenario", "text", lambda s: s.episode.task.scenario.id, source=RULES),
    Column("agent", "the person's seat", "text", lambda s: s.agent, "agent_0, agent_1, …", RULES),
    Column("character", "the person's character", "text", lambda s: s.episode.task.names[s.agent], source=RULES),
    Column("partners", "policies in the other seats", "text", _others(policy_name), "human: a person", RECORD),
    Column(
        "outcome.stop",
        "reason for which the conversation ended; empty while it is running or if it failed",
        "choice",
        lambda s: s.episode.stop.value if s.episode.stop else None,
        "settled, left, silence, turn limit",
        RECORD,
    ),
    Column("outcome.turns", "turns of all seats", "number", lambda s: len(s.episode.turns), "from 0", RECORD),
    Column(
        "outcome.agreed",
        "whether something was agreed, decided or correctly claimed",
        "yes/no",
        _outcome(lambda o, _: o.agreed),
        source=MOVES,
    ),
    Column(
        "outcome.reason",
        "reason for the outcome, or for its absence; empty in a task of too many outcomes",
        "text",
        _outcome(lambda o, _: o.reason),
        source=MOVES,
    ),
    Column(
        "outcome.terms",
        "the agreed terms",
        "JSON",
        _outcome(lambda o, _: canonical_json(o.terms) if o.agreed else None),
        source=MOVES,
    ),
    Column(
        "outcome.worth",
        "what the outcome is worth to the person's seat",
        "number",
        _outcome(lambda o, seat: o.payoffs[seat]),
        _UNITS,
        MOVES,
    ),
    Column(
        "outcome.worth_without",
        "what the seat gets without an agreement",
        "number",
        lambda s: s.disagreement,
        _UNITS,
        RULES,
    ),
    Column(
        "outcome.partner_worth",
        "what the outcome is worth to the other seats, in seat order",
        "text",
        _partner_worth,
        _UNITS,
        MOVES,
    ),
    Column(
        "outcome.share",
        "(worth - worth without) / (best worth - worth without) of the person's seat",
        "number",
        _outcome(lambda o, seat: o.shares[seat]),
        "0: no agreement, 1: the seat's best; below 0 is worse than none",
        MOVES,
    ),
    Column(
        "outcome.efficiency",
        "surplus of all seats over the largest possible one",
        "number",
        _outcome(lambda o, _: o.efficiency),
        "at most 1",
        MOVES,
    ),
    Column(
        "outcome.fairness",
        "1 - (largest share - smallest share), with shares limited to 0 to 1",
        "number",
        _outcome(lambda o, _: o.fairness),
        "0 to 1",
        MOVES,
    ),
    Column(
        "own.turns",
        "turns of the person's seat",
        "number",
        lambda s: len(s.own),
        "from 0",
        RECORD,
    ),
    Column(
        "own.refused",
        "actions and moves of the seat that were not allowed",
        "number",
        lambda s: sum(item.turn.violation is not None for item in s.own),
        "from 0",
        RECORD,
    ),
    Column(
        "own.seconds",
        "time that the person took for all own turns",
        "number",
        lambda s: round(sum(seconds_of(item) or 0.0 for item in s.own), 3) or None,
        "seconds",
        SERVER,
    ),
    Column(
        "assistance",
        "assistance of the person",
        "choice",
        lambda s: _assistance(s, "assistance"),
        "propose, advise, act; empty: none",
        RECORD,
    ),
    Column("assistance.policy", "the policy that assists", "text", lambda s: _assistance(s, "adviser"), source=RECORD),
    Column("assistance.advised", "own turns with advice", "number", lambda s: len(_responses(s)), "from 0", RECORD),
    Column(
        "assistance.followed",
        "own turns in which the proposed move was made, by the person or the assistant",
        "number",
        lambda s: sum(r in ("same", "move", "played") for r in _responses(s)),
        "from 0",
        RECORD,
    ),
    *map(_score_column, DIMENSIONS),
)
"""Columns of a seat that every task has."""


def seat_columns(tasks: Iterable[Task], turns: int = 0) -> tuple[Column[PlayedSeat], ...]:
    """Returns the columns of seats: :data:`SEAT`, one for each agreed issue of the tasks, and one for each turn's time.

    Args:
        tasks: the tasks that were played.
        turns: the number of turns of the longest episode.
    """
    outcomes = [task.scenario.outcome for task in tasks]
    issues = {issue.name: issue for spec in outcomes if spec is not None for issue in spec.issues}
    return (*SEAT, *map(_issue_column, issues.values()), *map(_turn_column, range(1, turns + 1)))


def _issue_column(issue: NumberIssue | ChoiceIssue | ItemsIssue) -> Column[PlayedSeat]:
    def cell(played: PlayedSeat) -> Cell:
        if played.outcome is None or not played.outcome.agreed:
            return None
        value = played.outcome.terms.get(issue.name)
        return canonical_json(value) if isinstance(value, dict) else value

    if isinstance(issue, NumberIssue):
        unit = f"{issue.low} to {issue.high} in steps of {issue.step} {issue.unit}".strip()
        return Column(f"terms.{issue.name}", f"agreed {issue.name}", "number", cell, unit, MOVES)
    if isinstance(issue, ChoiceIssue):
        return Column(f"terms.{issue.name}", f"agreed {issue.name}", "choice", cell, ", ".join(issue.options), MOVES)
    meaning = f"agreed division of the {issue.name}: pieces by seat"
    return Column(f"terms.{issue.name}", meaning, "JSON", cell, f"{issue.count} pieces in all", MOVES)


def _turn_column(number: int) -> Column[PlayedSeat]:
    def cell(played: PlayedSeat) -> Cell:
        turns = played.episode.turns
        is_own = number <= len(turns) and turns[number - 1].turn.actor == played.agent
        return seconds_of(turns[number - 1]) if is_own else None

    meaning = f"time that the person took for turn {number}; empty if it was another seat's"
    return Column(
        f"turn_{number}.seconds", meaning, "number", cell, "seconds", SERVER, turn=number, variable="turn.seconds"
    )


def longest(episodes: Sequence[Episode]) -> int:
    """Returns the number of turns of the longest episode; 0 without episodes."""
    return max((len(episode.turns) for episode in episodes), default=0)
