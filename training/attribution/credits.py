"""Utterance rewards: how much of an episode's score each turn of one seat is given (SOTOPIA-RL, §4.1 and appendix G).

An *attributor* says how important each turn was for one dimension: a number A from 0 to 1 per turn
(:mod:`training.attribution.by_outcome`, :mod:`training.attribution.by_model`). A *method* makes of it what the turn
is given:

========  =========================================================================================================
method    A of turn t
========  =========================================================================================================
uniform   1: every turn is given the whole score
singular  1 for the key turn, 0 for the others; the key is what the attributor names, else its most important turn
          (the earliest of equals); with no important turn, 0 for all
scaled    A_t / sum of all A, so that the rewards sum to the score; with no important turn, 1 / number of turns
direct    A_t as the attributor says
gain      the reward itself: the change of the score that the turn brought, where the attributor measures one
========  =========================================================================================================

The reward is r_t = G · A_t, where G is the seat's score; of ``gain`` it is the gain, whatever its sign. With
``sign="signed"`` G is the score as it stands, and 0 is neither good nor bad on every dimension:

* range from 0 up (GOAL, BEL, KNO): credit, r_t in [0, G];
* range up to 0 (SEC, SOC): blame, r_t in [G, 0]; who gave the secret away gets the loss, the other turns get nothing;
* range around 0 (REL, FIN): credit when G is positive, blame when it is negative.

With ``sign="shifted"`` G is the score above the bottom of a range that begins below 0 (so r_t in [0, width]). Nothing
is negative then, but in an episode that went as badly as possible all turns are alike.

A turn is attributable when the seat *did* something in it: it spoke, gestured, acted or left. Leaving counts, because
it is a decision that the policy makes and a reward model must know (appendix G asks for the end of the conversation
too). Silent turns do not, nor do turns whose text was no possible action: nobody perceived anything in them.

What has no score or no attribution is *missing*: left out and counted, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.files import read_lines
from sotopia_env.records import Record, read_record
from sotopia_env.world import RANGES, ActionType, Dimension, Episode, Evaluation, dimension

Method = Literal["uniform", "singular", "scaled", "direct", "gain"]
METHODS: tuple[Method, ...] = ("uniform", "singular", "scaled", "direct")
"""The methods of SOTOPIA-RL, which divide the score."""
Sign = Literal["signed", "shifted"]
NOBODY = "none"
"""The attributor of uniform attributions: none was asked."""

TurnKey = tuple[str, str, int]
"""Key of the episode, agent id, index of the turn in the episode."""


@dataclass(frozen=True, slots=True)
class Importance:
    """What an attributor found.

    Attributes:
        by_turn: A from 0 to 1 for exactly the attributable turns, by index in the episode.
        key: the most important of them, where the attributor was asked for it.
        gains: the change of the score that each of them brought, in its units, where the attributor measures that.
    """

    by_turn: Mapping[int, float]
    key: int | None = None
    gains: Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no attribution; ``reason`` begins with a few words that are the same for all of a kind."""

    reason: str


@dataclass(frozen=True, slots=True)
class SeatScore:
    """What is attributed: the score of one seat on one dimension.

    Attributes:
        dimension: one of the seven by its full name, or a custom one.
        value: in the dimension's native range.
        low: lowest value of the range.
        high: highest value of the range.
        instruction: what the judges of a custom dimension were asked; empty for the seven.
    """

    dimension: str
    value: float
    low: int
    high: int
    instruction: str = ""

    def base(self, sign: Sign) -> float:
        """What the turns' A are multiplied with; see the module."""
        return self.value - self.low if sign == "shifted" and self.low < 0 else self.value


class Attributor(Protocol):
    """Says how important the turns of a seat were for its score, without asking a model."""

    @property
    def name(self) -> str:
        """The attributor's name in records and settings."""
        ...

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether it has anything to say about this dimension of this episode."""
        ...

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns A for every attributable turn.

        Args:
            episode: as recorded.
            seat: an agent id.
            score: what is attributed.
            blame: the score is a loss: important is what brought it about.
        """
        ...


class Attribution(Record):
    """One turn's reward on one dimension.

    Attributes:
        episode: key of the episode.
        task: id of the task.
        scenario: see :func:`sotopia_env.tasks.task_key`.
        content: what happened in the episode, its ``turns_hash``; ``None`` where nobody noted it.
        seat: agent id.
        turn: index of the turn in the episode.
        dimension: one of the seven by its full name, or a custom one.
        attributor: who said what was important; ``none`` for uniform attributions.
        method: what was made of it.
        attribution: A, from 0 to 1; ``None`` for ``gain``.
        score: the seat's score in its native range.
        reward: r.
    """

    episode: str
    task: str
    scenario: str
    content: str | None = None
    seat: str
    turn: int = Field(ge=0)
    dimension: str
    attributor: str
    method: Method
    attribution: float | None = Field(ge=0, le=1)
    score: float = Field(allow_inf_nan=False)
    reward: float = Field(allow_inf_nan=False)


def dimension_name(name: str) -> str:
    """Returns the full name of one of the seven, given by name or abbreviation; any other name as it stands."""
    try:
        return dimension(name).value
    except UnknownNameError:
        return name  # a custom dimension; whether any episode has it is known once they are read


def attributable_turns(episode: Episode, seat: str) -> tuple[int, ...]:
    """Returns the indices of the turns in which the seat did something; see the module.

    Raises:
        UnknownNameError: the episode has no such seat.
    """
    if seat not in episode.task.agents:
        raise UnknownNameError(field="seat", got=seat, valid=episode.task.agents)
    turns = (item.turn for item in episode.turns)
    return tuple(t.index for t in turns if t.actor == seat and t.action.action_type is not ActionType.NONE)


def seat_score(episode: Episode, seat: str, name: str, evaluator: str | None = None) -> SeatScore | Missing:
    """Returns a seat's score on a dimension, or why there is none.

    Args:
        episode: evaluated.
        seat: an agent id.
        name: a dimension, as :func:`dimension_name` returns it.
        evaluator: whose; the latest evaluation by default.
    """
    evaluation = episode.evaluation(evaluator)
    if evaluation is None:
        return Missing("not evaluated" + (f" by {evaluator}" if evaluator else ""))
    if evaluation.unscored is not None:
        return Missing(f"unscored: {evaluation.unscored}")
    score = evaluation.by_agent.get(seat, {}).get(_key(name))
    if score is None:
        return Missing(f"no score on {name}")
    return SeatScore(name, score.value, *_scale(name, evaluation))


def _key(name: str) -> Dimension | str:
    return Dimension(name) if name in RANGES else name


def _scale(name: str, evaluation: Evaluation) -> tuple[int, int, str]:
    if name in RANGES:
        return (*RANGES[Dimension(name)], "")
    custom = next(item for item in evaluation.dimensions if item.name == name)
    return custom.low, custom.high, custom.instruction


def attributed(method: Method, importance: Importance | None, turns: Sequence[int]) -> dict[int, float]:
    """Returns A of every turn by a method; the table in the module is its whole contract.

    Args:
        method: one of :data:`METHODS`.
        importance: what the attributor found; ``None`` for ``uniform``, which asks nobody.
        turns: the attributable turns, at least one.

    Raises:
        UnknownNameError: there is no such method.
        InvalidValueError: the importance is not of exactly these turns, or outside [0, 1].
    """
    if method not in METHODS:
        raise UnknownNameError(field="method", got=method, valid=METHODS)
    if method == "uniform":
        return dict.fromkeys(turns, 1.0)
    checked = _checked(importance, turns)
    if method == "singular":
        key = checked.key if checked.key is not None else max(turns, key=lambda turn: (checked.by_turn[turn], -turn))
        named = checked.key is not None or checked.by_turn[key] > 0
        return {turn: float(named and turn == key) for turn in turns}
    if method == "scaled":
        total = sum(checked.by_turn.values())
        return {turn: checked.by_turn[turn] / total if total > 0 else 1 / len(turns) for turn in turns}
    return {turn: checked.by_turn[turn] for turn in turns}


_EPSILON = 1e-9


def relative(gains: Mapping[int, float], blame: bool) -> dict[int, float]:
    """Returns A of gains (of losses, where the score is one): over the largest; 0 for all when none is above 0."""
    sided = {turn: -gain if blame else gain for turn, gain in gains.items()}
    largest = max(sided.values(), default=0.0)
    if largest <= _EPSILON:
        return dict.fromkeys(gains, 0.0)
    return {turn: min(1.0, max(0.0, gain) / largest) for turn, gain in sided.items()}


def _checked(importance: Importance | None, turns: Sequence[int]) -> Importance:
    if importance is None or set(importance.by_turn) != set(turns):
        got = None if importance is None else sorted(importance.by_turn)
        raise InvalidValueError(field="importance", expected=f"a value for each of the turns {list(turns)}", got=got)
    if importance.key is not None and importance.key not in turns:
        raise InvalidValueError(field="importance.key", expected=f"one of the turns {list(turns)}", got=importance.key)
    for turn, value in importance.by_turn.items():
        if not 0 <= value <= 1:
            raise InvalidValueError(field=f"importance.{turn}", expected="a number from 0 to 1", got=value)
    return importance


def read_attributions(path: str | Path) -> Iterator[Attribution]:
    """Yields the records of an ``attributions.jsonl``, or of the stage directory that holds one.

    Raises:
        DamagedRecordError: there is none, or a line is no such record.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    for where, line in read_lines(file):
        yield read_record(Attribution, line, where)


FILE = "attributions.jsonl"


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of one method, one attributor to a dimension.

    Attributes:
        by_turn: the rewards of each turn by dimension; a turn may lack a dimension that is missing for it.
        scenarios: the scenario of each episode, by the episode's key.
        contents: what happened in each episode, by its key, where that was noted.
    """

    by_turn: Mapping[TurnKey, Mapping[str, float]]
    scenarios: Mapping[str, str]
    contents: Mapping[str, str] = field(default_factory=dict)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions that some turn has a reward on."""
        return tuple(dict.fromkeys(name for row in self.by_turn.values() for name in row))


def read_rewards(
    path: str | Path,
    method: Method = "direct",
    attributor: str | Mapping[str, str] | None = None,
    dimensions: Sequence[str] | None = None,
) -> Rewards:
    """Reads the rewards of turns.

    Args:
        path: ``attributions.jsonl`` or its stage directory.
        method: whose rewards.
        attributor: which one's, or one for each dimension; ``None`` where the file has a single one for each.
        dimensions: the ones to read, by name or abbreviation; all by default.

    Raises:
        DamagedRecordError: the file cannot be read.
        UnknownNameError: it has nothing by that method, on a dimension, or by that attributor.
        InvalidValueError: a dimension has several attributors and none is chosen, or a turn stands twice.
    """
    names = None if dimensions is None else [dimension_name(name) for name in dimensions]
    chosen = {dimension_name(k): v for k, v in attributor.items()} if isinstance(attributor, Mapping) else attributor
    rows: dict[TurnKey, dict[str, float]] = {}
    scenarios: dict[str, str] = {}
    contents: dict[str, str] = {}
    attributors: dict[str, dict[str, None]] = {}
    methods: dict[str, None] = {}
    for item in read_attributions(path):
        methods[item.method] = None
        if item.method != method or (names is not None and item.dimension not in names):
            continue
        attributors.setdefault(item.dimension, {})[item.attributor] = None
        whose = chosen.get(item.dimension) if isinstance(chosen, Mapping) else chosen
        if whose is not None and item.attributor != whose and method != "uniform":
            continue
        if whose is None and len(attributors[item.dimension]) > 1:
            raise InvalidValueError(
                f"several attributors of {item.dimension} ({', '.join(attributors[item.dimension])})",
                hint="choose one",
                where=path,
            )
        row = rows.setdefault((item.episode, item.seat, item.turn), {})
        if item.dimension in row:
            raise InvalidValueError(
                f"two rewards on {item.dimension} for turn {item.turn} of {item.episode!r}", where=path
            )
        row[item.dimension] = item.reward
        scenarios[item.episode] = item.scenario
        if item.content is not None:
            contents[item.episode] = item.content
    _check_choice(path, method, methods, names, chosen, attributors)
    return Rewards(rows, scenarios, contents)


def _check_choice(
    path: str | Path,
    method: Method,
    methods: Mapping[str, None],
    names: Sequence[str] | None,
    chosen: Mapping[str, str] | str | None,
    attributors: Mapping[str, Mapping[str, None]],
) -> None:
    if method not in methods:
        raise UnknownNameError(field="method", got=method, valid=methods, where=path)
    for name in names or ():
        if name not in attributors:
            raise UnknownNameError(field="dimension", got=name, valid=attributors, where=path)
    for name, available in attributors.items():
        whose = chosen.get(name) if isinstance(chosen, Mapping) else chosen
        if whose is not None and whose not in available and method != "uniform":
            raise UnknownNameError(field="attributor", got=whose, valid=available, where=path)
