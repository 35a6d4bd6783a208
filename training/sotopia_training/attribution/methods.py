"""Utterance rewards: the share of an episode's score for each turn of one seat (SOTOPIA-RL, §4.1 and appendix G).

An *attributor* rates the importance of each turn for one dimension as a number A from 0 to 1
(:mod:`sotopia_training.attribution.by_outcome`, :mod:`sotopia_training.attribution.by_model`). A *method* turns these
ratings into the attribution of each turn:

========  =========================================================================================================
method    A of turn t
========  =========================================================================================================
uniform   1: every turn receives the whole score
singular  1 for the key turn, 0 for the others; the key turn is the one that the attributor names, else its most
          important turn (the earliest of equals); 0 for all if every A is 0
scaled    A_t / sum of all A, so that the rewards sum to the score; 1 / number of turns if every A is 0
direct    A_t, unchanged
========  =========================================================================================================

The reward is r_t = G · A_t, where G is the seat's score. With ``sign="signed"`` G is the unchanged score, and 0 is
neutral on every dimension:

* range from 0 up (GOAL, BEL, KNO): r_t in [0, G];
* range up to 0 (SEC, SOC): r_t in [G, 0]; the turn that revealed the secret receives the loss, the others 0;
* range around 0 (REL, FIN): as in the first case if G is positive, as in the second if it is negative.

A fifth method, ``turn_reward``, divides nothing: the reward is the attributor's own turn reward, signed and in units of
the score (:mod:`sotopia_env.evaluators.turn_rewards`), for attributors that have one.

With ``sign="shifted"`` the lower bound of a range is subtracted, if it is below 0, from the score, so that r_t is in
[0, width]. No reward is negative then, but in an episode with the lowest score all rewards are 0.

A turn is attributable when the seat *did* something in it: it spoke, gestured, acted or left. Leaving counts, because
it is a decision of the policy that a reward model must be able to score (appendix G also asks about the end of the
conversation). Silent turns are not attributable, nor are turns whose text was not a possible action: the other seats
perceived nothing in them.

Turns without a score or an attribution are *missing*: they are left out and counted, never treated as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol, Self

from pydantic import BeforeValidator, Field

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.world import Dimension
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import RANGES, dimension


def _present_name(method: object) -> object:
    return "turn_reward" if method == "gain" else method  # its name in earlier files


Method = Annotated[Literal["uniform", "singular", "scaled", "direct", "turn_reward"], BeforeValidator(_present_name)]
METHODS: tuple[Method, ...] = ("uniform", "singular", "scaled", "direct")
"""The methods of SOTOPIA-RL, which divide the score."""
Sign = Literal["signed", "shifted"]
NO_ATTRIBUTOR = "none"
"""The recorded attributor of uniform attributions, which need none."""

TurnKey = tuple[str, str, int]
"""Key of the episode, agent id, index of the turn in the episode."""


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one seat's turns for one score, as an attributor rates it.

    Attributes:
        by_turn: A from 0 to 1 for exactly the attributable turns, by index in the episode.
        key: the index of the most important turn; ``None`` if the attributor was not asked for it.
        rewards: the turn rewards in units of the score; ``None`` if the attributor has none.
    """

    by_turn: Mapping[int, float]
    key: int | None = None
    rewards: Mapping[int, float] | None = None

    @classmethod
    def of_rewards(cls, rewards: Mapping[int, float], blame: bool) -> Self:
        """Returns the importance of turns with these turn rewards, as :func:`relative` defines it."""
        return cls(relative(rewards, blame), rewards=rewards)


@dataclass(frozen=True, slots=True)
class Unattributed:
    """A missing attribution; all reasons of one kind start with the same few words."""

    reason: str


@dataclass(frozen=True, slots=True)
class SeatScore:
    """The score of one seat on one dimension, which is to be attributed to the seat's turns.

    Attributes:
        dimension: one of the seven by its full name, or a custom one.
        value: the score in the dimension's native range.
        low: the lowest value of the range.
        high: the highest value of the range.
        instruction: the instruction to the judges of a custom dimension; empty for the seven.
    """

    dimension: str
    value: float
    low: int
    high: int
    instruction: str = ""

    def base(self, sign: Sign) -> float:
        """Returns G, the factor that turns A into a reward; see the module."""
        return self.value - self.low if sign == "shifted" and self.low < 0 else self.value


class Attributor(Protocol):
    """Rates the importance of a seat's turns for its score, without asking a model."""

    @property
    def name(self) -> str:
        """The attributor's name in records and settings."""
        ...

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the attributor can rate this dimension of this episode."""
        ...

    def attribute(
        self, episode: Episode, seat: str, score: SeatScore, blame: bool = False
    ) -> Importance | Unattributed:
        """Returns A for every attributable turn.

        Args:
            episode: the recorded episode.
            seat: the agent id of the seat.
            score: the score to attribute.
            blame: whether the score is a loss; A then rates how far a turn caused it.
        """
        ...


class Attribution(Record):
    """One turn's reward on one dimension.

    Attributes:
        episode: the key of the episode.
        task: the id of the task.
        scenario: the key of the scenario; see :func:`sotopia_env.tasks.open_scenario.task_key`.
        content: the ``turns_hash`` of the episode; ``None`` in records of versions that did not write it.
        seat: the agent id of the seat.
        turn: the index of the turn in the episode.
        dimension: one of the seven by its full name, or a custom one.
        attributor: the name of the attributor; ``none`` for uniform attributions.
        method: the method that was applied to the ratings of the attributor.
        attribution: A, from 0 to 1; ``None`` for ``turn_reward``.
        score: the seat's score in its native range.
        reward: r of the turn.
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
    """Returns the full name of one of the seven, given by name or abbreviation; other names are returned unchanged."""
    try:
        return dimension(name).value
    except UnknownNameError:
        # Custom dimensions are declared by the evaluations, which have not been read yet.
        return name


def attributable_turns(episode: Episode, seat: str) -> tuple[int, ...]:
    """Returns the indices of the turns in which the seat did something; see the module.

    Raises:
        UnknownNameError: the episode has no such seat.
    """
    if seat not in episode.task.agents:
        raise UnknownNameError(field="seat", got=seat, valid=episode.task.agents)
    turns = (item.turn for item in episode.turns)
    return tuple(t.index for t in turns if t.actor == seat and t.action.action_type is not ActionType.NONE)


def seat_score(episode: Episode, seat: str, name: str, evaluator: str | None = None) -> SeatScore | Unattributed:
    """Returns a seat's score on a dimension, or the reason for its absence.

    Args:
        episode: an evaluated episode.
        seat: the agent id of the seat.
        name: a dimension, as :func:`dimension_name` returns it.
        evaluator: the name of the evaluation to read; the latest evaluation by default.
    """
    evaluation = episode.evaluation(evaluator)
    if evaluation is None:
        return Unattributed("not evaluated" + (f" by {evaluator}" if evaluator else ""))
    if evaluation.unscored is not None:
        return Unattributed(f"unscored: {evaluation.unscored}")
    score = evaluation.by_agent.get(seat, {}).get(_key(name))
    if score is None:
        return Unattributed(f"no score on {name}")
    return SeatScore(name, score.value, *_scale(name, evaluation))


def _key(name: str) -> Dimension | str:
    return Dimension(name) if name in RANGES else name


def _scale(name: str, evaluation: Evaluation) -> tuple[int, int, str]:
    if name in RANGES:
        return (*RANGES[Dimension(name)], "")
    custom = next(item for item in evaluation.dimensions if item.name == name)
    return custom.low, custom.high, custom.instruction


def attributed(method: Method, importance: Importance | None, turns: Sequence[int]) -> dict[int, float]:
    """Returns A of every turn by a method, as the table in the module defines it.

    Args:
        method: one of :data:`METHODS`.
        importance: the ratings of the attributor; ``None`` for ``uniform``, which needs none.
        turns: the indices of the attributable turns, at least one.

    Raises:
        UnknownNameError: ``method`` is not one of :data:`METHODS`.
        InvalidValueError: the importance does not cover exactly these turns, or is outside [0, 1].
    """
    if method not in METHODS:
        raise UnknownNameError(field="method", got=method, valid=METHODS)
    if method == "uniform":
        return dict.fromkeys(turns, 1.0)
    checked = _checked(importance, turns)
    if method == "singular":
        # ``-turn`` makes the earliest of equally important turns the key.
        key = checked.key if checked.key is not None else max(turns, key=lambda turn: (checked.by_turn[turn], -turn))
        # A model that names a key turn is trusted even if it gave all turns the weight 0.
        has_key = checked.key is not None or checked.by_turn[key] > 0
        return {turn: float(has_key and turn == key) for turn in turns}
    if method == "scaled":
        total = sum(checked.by_turn.values())
        return {turn: checked.by_turn[turn] / total if total > 0 else 1 / len(turns) for turn in turns}
    return {turn: checked.by_turn[turn] for turn in turns}


# Turn rewards are differences of floats: smaller ones are rounding errors, which a division would make important.
_EPSILON = 1e-9


def relative(rewards: Mapping[int, float], blame: bool) -> dict[int, float]:
    """Returns A as each turn reward (with ``blame``, each loss) divided by the largest; 0 for all if none is positive.

    Args:
        rewards: the reward of each turn, in any unit.
        blame: whether the score is a loss, which negative rewards caused.
    """
    sided = {turn: -reward if blame else reward for turn, reward in rewards.items()}
    largest = max(sided.values(), default=0.0)
    if largest <= _EPSILON:
        return dict.fromkeys(rewards, 0.0)
    return {turn: min(1.0, max(0.0, reward) / largest) for turn, reward in sided.items()}


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
        DamagedRecordError: the file does not exist, or a line is not such a record.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    for where, line in read_lines(file):
        yield read_record(Attribution, line, where)


FILE = "attributions.jsonl"


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of one method, with one attributor per dimension.

    Attributes:
        by_turn: the rewards of each turn by dimension; dimensions that are missing for a turn are left out.
        scenarios: the scenario of each episode, by the episode's key.
        contents: the ``turns_hash`` of each episode, by the episode's key, where it was recorded.
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
        method: the method whose rewards are read.
        attributor: the attributor whose rewards are read, or one for each dimension; ``None`` if the file has a single
            attributor for each dimension.
        dimensions: the dimensions to read, by name or abbreviation; all by default.

    Raises:
        DamagedRecordError: the file cannot be read.
        UnknownNameError: the file has no rewards of the method, the attributor or a dimension.
        InvalidValueError: a dimension has several attributors and none is chosen, or a turn has two rewards.
    """
    names = None if dimensions is None else [dimension_name(name) for name in dimensions]
    choices = {dimension_name(k): v for k, v in attributor.items()} if isinstance(attributor, Mapping) else attributor
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
        choice = choices.get(item.dimension) if isinstance(choices, Mapping) else choices
        # Uniform rewards come from no attributor, so a chosen one does not exclude them.
        if choice is not None and item.attributor != choice and method != "uniform":
            continue
        if choice is None and len(attributors[item.dimension]) > 1:
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
    _check_choice(path, method, methods, names, choices, attributors)
    return Rewards(rows, scenarios, contents)


def _check_choice(
    path: str | Path,
    method: Method,
    methods: Mapping[str, None],
    names: Sequence[str] | None,
    choices: Mapping[str, str] | str | None,
    attributors: Mapping[str, Mapping[str, None]],
) -> None:
    if method not in methods:
        raise UnknownNameError(field="method", got=method, valid=methods, where=path)
    for name in names or ():
        if name not in attributors:
            raise UnknownNameError(field="dimension", got=name, valid=attributors, where=path)
    for name, available in attributors.items():
        choice = choices.get(name) if isinstance(choices, Mapping) else choices
        if choice is not None and choice not in available and method != "uniform":
            raise UnknownNameError(field="attributor", got=choice, valid=available, where=path)
