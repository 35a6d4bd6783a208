"""Episodes: their records, their evaluations, and the JSON Lines files that store them.

An :class:`Episode` embeds its task and can be replayed from its line alone (:func:`replay`). It may hold several
evaluations. An evaluation that failed is *unscored* with a reason, never zero.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, TypeVar, runtime_checkable

from pydantic import AfterValidator, Field, model_validator

from sotopia_env.foundation.checksums import CheckedRecord, read_checked, with_checksum
from sotopia_env.foundation.errors import DamagedRecordError, EvaluationError, InvalidValueError, Verbatim, Where
from sotopia_env.foundation.files import read_lines, write_text_atomically
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.records import JsonObject, Record, TextMap
from sotopia_env.foundation.versions import code_version
from sotopia_env.outcomes.result import OutcomeResult, SpokenAgreement
from sotopia_env.world.action import Advice
from sotopia_env.world.answers import Belief, InterviewAnswer
from sotopia_env.world.dynamics import EpisodeState, Rules, StopReason, Turn, initial_state, transition
from sotopia_env.world.perception.conversation import OwnMessage
from sotopia_env.world.reward import DIMENSIONS, CustomDimension, Dimension, RewardVector, check_score, reward_vector
from sotopia_env.world.scenario import Task

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 2
"""Increased, with a line in the changelog, whenever an old record could be misread."""


def _only_version(value: int) -> int:
    if value != SCHEMA_VERSION:
        raise InvalidValueError(f"this code reads version {SCHEMA_VERSION}", got=value, hint="play the run again")
    return value


SchemaVersion = Annotated[int, AfterValidator(_only_version)]
"""The version of a record on disk: only :data:`SCHEMA_VERSION` is read."""

_UNCHECKED = (
    "no checksum, so an earlier version or another program wrote this record; whether its words, moves and scores are "
    "those of the game is not checked, here and in other lines without one"
)
# A rambling model must not fill the rest of its own context.
_LONGEST_UNUSABLE = 4_000


class Usage(Record):
    """Tokens and US dollars spent on a text; zeros without a language model, ``None`` for an unknown number."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int | None:
        """Prompt and answer together."""
        return _sum(self.prompt_tokens, self.completion_tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=_sum(self.prompt_tokens, other.prompt_tokens),
            completion_tokens=_sum(self.completion_tokens, other.completion_tokens),
            cost=_sum(self.cost, other.cost),
        )


_N = TypeVar("_N", int, float)


def _sum(first: _N | None, second: _N | None) -> _N | None:
    """The sum; unknown if either part is, so that an unknown cost never counts as free."""
    return None if first is None or second is None else first + second


class Generation(Record):
    """The text behind an action.

    Attributes:
        text: the raw text the policy wrote, from which its action was read; empty for policies that choose actions
            directly.
        parse_failure: why ``text`` is not an action, when it is not.
        reasks: the number of times that the policy was asked again.
        latency: seconds from observation to action.
        token_ids: the sampled token ids, if the policy knows them.
        logprobs: log-probability of each sampled token.
        model: name and version of the language model that wrote ``text``, as its server answered.
        reasoning: the model's reasoning before ``text``, if the server returns it; no other seat ever sees it.
        dropped_turns: the number of oldest turns left out of the prompt, because all would not fit.
        candidates: the number of actions from which this one was chosen; ``usage`` counts them all. An action that
            could not be produced is not counted, but recorded as an error of the episode.
        advice: what a person was advised to do; ``None`` without an adviser.
    """

    text: str = ""
    parse_failure: str | None = None
    reasks: int = 0
    usage: Usage = Usage()
    latency: float = 0.0
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    model: str = ""
    reasoning: str = ""
    dropped_turns: int = 0
    candidates: int = 1
    advice: Advice | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def message(self) -> OwnMessage | None:
        """The text, byte for byte, as an earlier message of its writer; ``None``: the action's JSON is used instead.

        JSON is used for an action without a text, or with one that could open a control token of a chat template. Text
        that is not an action is kept, up to 4,000 characters and escaped. Only the seat that wrote it may see it.
        """
        if self.parse_failure is not None:
            text = self.text if len(self.text) <= _LONGEST_UNUSABLE else f"{self.text[:_LONGEST_UNUSABLE]}…"
            return OwnMessage(escape(text), self.parse_failure)
        # A control token in the text could end the message in a chat template; JSON escapes it.
        return OwnMessage(self.text) if self.text and escape(self.text) == self.text else None


class RecordedTurn(Record):
    """A turn with the text behind it."""

    turn: Turn
    generation: Generation | None = None


class PolicyInfo(Record):
    """The policy in a seat."""

    agent: str
    name: str
    parameters: JsonObject = Field(default_factory=dict)


VERIFIED = "verified"
"""The source of scores that were computed from the moves."""
COUNTS_OF_WORDS = "rules"
"""The evaluator, in records of earlier versions, whose scores were counts of words. They are in no result."""


class Score(Record):
    """One agent's score on one dimension, with the reasoning that led to it.

    ``dimension`` is one of the seven, or the name of a custom dimension that the evaluation declares. ``spread`` is the
    largest minus the smallest score if several judges gave one.
    """

    agent: str
    # Left to right, so that a built-in name becomes a ``Dimension`` and not a custom name.
    dimension: Annotated[Dimension | str, Field(union_mode="left_to_right")]
    value: float
    reasoning: str = ""
    source: str = ""
    spread: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.dimension, Dimension):
            check_score(self.dimension, self.value)
        return self

    @property
    def counts_words(self) -> bool:
        """Whether the score, or one that it combines (``mean(verified, rules)``), is a count of words."""
        return COUNTS_OF_WORDS in self.source and COUNTS_OF_WORDS in re.split(r"[(), ]+", self.source)


class Evaluation(Record):
    """The verdict of one evaluator on one episode: scores, or the reason for their absence.

    ``members`` names the evaluators whose evaluations this one combines, if these are in the record, too.
    ``answers`` are those of an interview, ``beliefs`` and ``trust`` those to probes, including unanswered questions; an
    unscored evaluation holds them, too.
    ``outcome`` is computed from the moves; ``agreement`` is a model's reading of the words.
    """

    evaluator: str
    parameters: JsonObject = Field(default_factory=dict)
    members: tuple[str, ...] = ()
    dimensions: tuple[CustomDimension, ...] = ()
    scores: tuple[Score, ...] = ()
    unscored: str | None = None
    outcome: OutcomeResult | None = None
    comment: str = ""
    answers: tuple[InterviewAnswer, ...] = ()
    beliefs: tuple[Belief, ...] = ()
    trust: tuple[Belief, ...] = Field(default=(), exclude_if=lambda value: not value)
    agreement: SpokenAgreement | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = [(score.agent, score.dimension) for score in self.scores]
        if len(set(keys)) != len(keys):
            raise InvalidValueError("an agent has two scores on one dimension", field="scores")
        declared = {dimension.name: dimension for dimension in self.dimensions}
        for score in self.scores:
            if not isinstance(score.dimension, Dimension):
                check_score(score.dimension, score.value, declared)
        return self

    @cached_property
    def by_agent(self) -> Mapping[str, Mapping[Dimension | str, Score]]:
        """Scores by agent id and dimension (the name, for a custom one), without counts of words."""
        grouped: dict[str, dict[Dimension | str, Score]] = {}
        for score in self.scores:
            if not score.counts_words:
                grouped.setdefault(score.agent, {})[score.dimension] = score
        return grouped

    @property
    def unmeasured(self) -> tuple[Dimension, ...]:
        """Those of the seven dimensions on which no agent has a score."""
        return tuple(d for d in DIMENSIONS if not any(d in scores for scores in self.by_agent.values()))

    def vector(self, agent: str, needed: Iterable[Dimension] = DIMENSIONS) -> RewardVector:
        """Returns an agent's reward vector; 0 on dimensions that are not needed and have no score.

        Raises:
            EvaluationError: the evaluation is unscored, or lacks the agent or one of the needed dimensions.
        """
        if self.unscored is not None:
            raise EvaluationError(f"{self.evaluator}: unscored ({self.unscored})")
        scores = self.by_agent.get(agent, {})
        missing = [d.value for d in needed if d not in scores]
        if missing:
            raise EvaluationError(f"{self.evaluator}: no score for {agent} on {', '.join(missing)}")
        # The 0 stands for dimensions that the caller does not read; needed ones were checked above.
        return reward_vector({d: scores[d].value if d in scores else 0.0 for d in DIMENSIONS})


class EpisodeError(Record):
    """An external failure that was recovered from during play, such as a call that succeeded when it was repeated.

    Attributes:
        kind: the kind of failure, such as a :data:`~sotopia_env.foundation.errors.ModelFailure`.
        message: one sentence about the failure.
        turn: the index of the turn that was waiting for the call.
    """

    kind: str
    message: str
    turn: int | None = None


class Episode(CheckedRecord):
    """Reset to end of one task, self-contained and replayable.

    Attributes:
        key: deterministic identity within a run.
        stop: why it ended; ``None`` only while it is running.
        errors: the external errors that were recovered from, in the order of turns.
        beliefs: what people answered to probes (:mod:`sotopia_env.evaluators.probes.form`); no part of the play.
        notes: what each agent wrote down after the end, for the next episode with the same people; no part of the play.
        checksum: empty in memory; in a file, the hash of the record as it was written (:func:`to_line`).
    """

    schema_version: SchemaVersion = SCHEMA_VERSION
    code_version: str = Field(default_factory=code_version)
    key: str = ""
    task: Task
    rules: Rules = Rules()
    seed: int = 0
    policies: tuple[PolicyInfo, ...] = ()
    turns: tuple[RecordedTurn, ...] = ()
    stop: StopReason | None = None
    evaluations: tuple[Evaluation, ...] = ()
    errors: tuple[EpisodeError, ...] = ()
    beliefs: tuple[Belief, ...] = Field(default=(), exclude_if=lambda value: not value)  # other lines stay as they were
    notes: TextMap = Field(default_factory=dict, exclude_if=lambda value: not value)
    duration: float = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Files may have been edited or merged: every agent they name must have a seat in the task.
        agents = {*self.task.agents}
        names = {name for t in self.turns for name in (t.turn.actor, *t.turn.action.to)}
        names |= {b.respondent for b in (*self.beliefs, *(b for e in self.evaluations for b in e.beliefs))}
        names |= {score.agent for e in self.evaluations for score in e.scores}
        names |= {answer.about for e in self.evaluations for answer in e.answers}
        if strangers := sorted(names - agents):
            raise InvalidValueError("not an agent of the task", field="turns, evaluations", got=strangers[0])
        for outcome in filter(None, [evaluation.outcome for evaluation in self.evaluations]):
            if not len(outcome.payoffs) == len(outcome.shares) == len(agents):
                raise InvalidValueError(field="evaluations", expected=f"payoffs and shares for {len(agents)} agents")
        return self

    @classmethod
    def of_state(cls, state: EpisodeState) -> Episode:
        """Returns the record of a (finished or running) episode given only its state."""
        turns = tuple([RecordedTurn(turn=turn) for turn in state.turns])
        return cls(task=state.task, rules=state.rules, seed=state.seed, turns=turns, stop=state.stop)

    @property
    def plain_turns(self) -> tuple[Turn, ...]:
        """The turns without the texts behind them."""
        return tuple([item.turn for item in self.turns])

    def own_messages(self, agent: str) -> Mapping[int, OwnMessage]:
        """Returns an agent's own texts, by the index of its turns; no other agent may see them."""
        own = [item for item in self.turns if item.turn.actor == agent and item.generation is not None]
        messages = {item.turn.index: item.generation.message for item in own if item.generation is not None}
        return {index: message for index, message in messages.items() if message is not None}

    def with_turns(self, turns: Iterable[Turn]) -> Episode:
        """Returns the episode with other turns, which have no texts behind them."""
        return self.model_copy(update={"turns": tuple(RecordedTurn(turn=turn) for turn in turns)})

    @property
    def turns_hash(self) -> str:
        """Hash of the turns and the end (16 hex digits); :attr:`key` identifies only the plan."""
        return hashlib.sha256(self.model_dump_json(include={"turns", "stop"}).encode()).hexdigest()[:16]

    def before(self, turn: int) -> Episode:
        """Returns the state before turn ``turn``: an unfinished episode of the turns until then, without evaluations.

        Args:
            turn: index of a turn; the number of turns gives the final state, with the episode's stop reason.

        Raises:
            InvalidValueError: the episode has no such turn.
        """
        if not 0 <= turn <= len(self.turns):
            raise InvalidValueError(field="turn", expected=f"0 to {len(self.turns)}", got=turn)
        # Errors and beliefs are dropped with the evaluations: all belong to the whole episode.
        stop = self.stop if turn == len(self.turns) else None
        rest = dict.fromkeys(("evaluations", "errors", "beliefs"), ())
        return self.model_copy(update={"turns": self.turns[:turn], "stop": stop, "notes": {}, **rest})

    def with_evaluation(self, evaluation: Evaluation) -> Episode:
        """Returns the episode with one more evaluation; one by the same name is replaced. Turns are untouched."""
        others = tuple(e for e in self.evaluations if e.evaluator != evaluation.evaluator)
        return self.model_copy(update={"evaluations": (*others, evaluation)})

    def evaluation(self, name: str | None = None) -> Evaluation | None:
        """The evaluation called ``name``, by default the latest; ``None`` without one."""
        return next((e for e in reversed(self.evaluations) if name in (None, e.evaluator)), None)


@runtime_checkable
class Evaluator(Protocol):
    """Scores an episode.

    A judge reads its task, its turns and its stop reason; the policies and the texts they wrote are for
    interviews only. ``name`` and ``parameters`` go into the record. The coroutine ``evaluate`` returns scores for some
    or all dimensions, or raises :class:`EvaluationError`; it keeps no state between episodes. Synchronous code calls
    it through :func:`sotopia_env.foundation.waiting.wait`.
    """

    @property
    def name(self) -> str:
        """The evaluator's name in records and on the command line."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes its scores, as JSON."""
        ...

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the evaluation of a finished episode."""
        ...


def replay(episode: Episode) -> EpisodeState:
    """Returns the final state, reached by playing the recorded actions again.

    Raises:
        DamagedRecordError: the record contradicts the rules (another actor's turn, turns after the end, …).
    """
    state = replay_turns(episode)
    # The rules decide when an episode ends: another reason means an edited record.
    if state.stop is not episode.stop:
        raise DamagedRecordError(field=f"episode {episode.key!r}", expected=f"stop {state.stop}", got=episode.stop)
    return state


def replay_turns(episode: Episode) -> EpisodeState:
    """As :func:`replay`, but ignores the recorded stop reason, so the episode may be unfinished."""
    state, where = initial_state(episode.task, episode.rules, episode.seed), f"episode {episode.key!r}"
    for recorded in episode.plain_turns:
        # A refused action is attempted again: the rules must refuse it for the recorded reason.
        try:
            state = transition(state, recorded.attempted or recorded.action)
        except InvalidValueError as error:
            raise DamagedRecordError.of(error, within=f"turns.{recorded.index}", where=where) from None
        # The whole turn is compared, so that an edited effect or violation is found, too.
        if state.turns[-1] != recorded:
            raise DamagedRecordError(expected=str(state.turns[-1]), got=Verbatim(recorded), where=where)
    return state


def read_episodes(path: str | Path) -> Iterator[Episode]:
    """Yields the episodes of a JSON Lines file.

    A last line without a line end belongs to a run that is being written or was killed; it is left out with a logged
    warning. The first record without a checksum is logged once for each file: nobody can say whether it was changed.

    Raises:
        DamagedRecordError: a line is not a valid episode, or was changed after it was written; says where.
    """
    is_logged = False
    for where, line in read_lines(Path(path)):
        episode, is_checked = read_checked(Episode, line, where, to_line)
        is_logged = is_logged or (not is_checked and _warn_unchecked(str(where), Path(path).stat().st_mtime_ns))
        yield episode


@lru_cache(maxsize=1024)
def _warn_unchecked(where: str, changed: int) -> bool:  # a file that has changed is another one
    logger.warning("%s: %s", where, _UNCHECKED)
    return True


def read_episode(line: str, where: Where | str) -> Episode:
    """Returns the episode in one JSON line.

    Raises:
        DamagedRecordError: the line is not a valid episode, or was changed after it was written; begins with ``where``.
    """
    return read_checked(Episode, line, where, to_line)[0]


def write_episodes(path: str | Path, episodes: Iterable[Episode]) -> None:
    """Writes episodes as JSON Lines, atomically."""
    write_text_atomically(Path(path), "".join(to_line(episode) for episode in episodes))


def to_line(episode: Episode) -> str:
    """Returns the episode as one JSON line, newline included."""
    # Many episodes share a task, and it is the larger half of a line.
    memo = episode.task.memo
    if "line" not in memo:
        memo["line"] = episode.task.model_dump_json()
    rest = episode.model_dump_json(exclude={"task", "checksum"})
    return with_checksum(f'{rest[:-1]},"task":{memo["line"]}}}') + "\n"
