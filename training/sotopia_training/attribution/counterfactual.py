"""Counterfactual turn rewards of recorded episodes: state values, measured with continuations, in a journal.

A state value is the mean score of ``samples`` continuations: each resumes the episode from the state and lets the
recorded policies play to the end, with separate random draws (:mod:`sotopia_env.world.play.continuations`). The reward
of a turn is the value of the state after it minus that of the state before it, in units of the score
(:mod:`sotopia_env.evaluators.turn_rewards`). The rewards of a seat's own turns have no fixed sum, because the turns of
others change its value, too. A state may also end with a *forced* action, which was not recorded
(:meth:`sotopia_env.world.play.table.Table.fork`).

Cost: the continuations of an episode of T turns have about ``samples`` · T² / 2 turns, each of which asks a policy, as
in a run. The journal has one line per state, and no state is measured twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.progress import Progress
from sotopia_env.evaluators.turn_rewards import measured_rewards
from sotopia_env.foundation.errors import FATAL, InvalidValueError, SotopiaError, Verbatim
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Record
from sotopia_env.naming import make_evaluator
from sotopia_env.naming.recorded import policy_of
from sotopia_env.policies import Policy
from sotopia_env.storage import Journal
from sotopia_env.world.episode import Episode, Evaluation, PolicyInfo, Usage, replay
from sotopia_env.world.play.continuations import Continuations
from sotopia_training.attribution.methods import Importance, SeatScore, Unattributed, attributable_turns
from sotopia_training.attribution.settings import COUNTERFACTUAL, CounterfactualSettings
from sotopia_training.stage.access import work_with_models

# --- states and continuations -------------------------------------------------------------------------------------


def states_of(episode: Episode) -> Iterator[Episode]:
    """Yields every state of an episode, from before its first turn to its end."""
    return (episode.before(turn) for turn in range(len(episode.turns) + 1))


class Measurement(Continuations):
    """Continuations by the recorded policies, which measure the values of states.

    Attributes:
        settings: the settings of the measurement.
        models: the language models of policies and judges.
    """

    def __init__(self, settings: CounterfactualSettings, models: ModelPool) -> None:
        """Creates the evaluator; policies are created on first use and shared.

        Raises:
            UnknownNameError: ``settings.evaluator`` does not exist.
        """
        evaluator = make_evaluator(settings.evaluator, model_factory=models.judge)
        super().__init__(self._policy, evaluator, settings.seed)
        self.settings, self.models = settings, models
        self._policies: dict[str, Policy] = {}

    @property
    def identity(self) -> str:
        """The settings, besides the states, that determine the values of states, as text."""
        evaluator = [self.evaluator.name, dict(self.evaluator.parameters)]
        return canonical_json([self.settings.samples, self.settings.seed, evaluator])

    def check(self, episode: Episode) -> None:
        """Checks that the values of an episode's states can be measured.

        Raises:
            InvalidValueError: the task has no outcome, or a policy cannot be recreated from its record.
            DamagedRecordError: the record does not replay.
        """
        if episode.task.protocol is None:
            raise InvalidValueError(
                field=COUNTERFACTUAL,
                expected="episodes of verified tasks, whose continuations can be scored",
                got=Verbatim(f"{episode.key!r} of task {episode.task.id!r}, which has no outcome"),
                hint="use an attributor that is a language model",
            )
        # A record that does not replay would fail only after other states were paid for.
        replay(episode)
        self.seats(episode)

    def _policy(self, info: PolicyInfo) -> Policy:
        # Policies with equal names may differ in their parameters.
        identity = canonical_json([info.name, info.parameters])
        if identity not in self._policies:
            try:
                self._policies[identity] = policy_of(info, self.models, specs=self.settings.policies)
            except InvalidValueError as error:
                hint = error.hint or f"name policy {info.name!r} under {COUNTERFACTUAL}.policies"
                raise InvalidValueError.of(error, within=COUNTERFACTUAL, hint=hint) from None
        return self._policies[identity]


# --- values -------------------------------------------------------------------------------------------------------


class StateValue(Record):
    """The scores of the continuations of one state, whose mean is its value.

    Attributes:
        of: a hash of the state and the measurement.
        episode: the key of the episode.
        turn: the number of turns of the state.
        scores: the scores of the continuations in their order, by agent id and dimension; a single one for a state in
            which the episode has ended.
        turns: the number of turns that the continuations added.
        tokens: the number of tokens that models used for them; ``None`` if a server did not count them.
        missing: the reason for the absence of scores; ``None`` if there are scores.
    """

    of: str
    episode: str
    turn: int
    scores: dict[str, dict[str, tuple[float, ...]]] = Field(default_factory=dict)
    turns: int = 0
    tokens: int | None = 0
    missing: str | None = None


class StateValues:
    """The values of states, measured by continuations and stored in a journal."""

    def __init__(self, path: Path, continuations: Measurement) -> None:
        """Opens the file ``path``; existing values are kept, including those of other settings."""
        self._continuations = continuations
        self._journal = Journal(path, StateValue, lambda value: value.of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def scores(self, state: Episode, seat: str, dimension: str) -> tuple[float, ...] | Unattributed:
        """Returns the scores of a seat in the continuations of a measured state, or the reason for their absence."""
        value = self._journal.get(self._identity(state))
        if value is None or value.missing is not None:
            return Unattributed("not measured" if value is None else f"not measured: {value.missing}")
        evaluator = self._continuations.evaluator.name
        return value.scores.get(seat, {}).get(dimension) or Unattributed(f"{evaluator} does not score {dimension}")

    def cost(self) -> dict[str, int | None]:
        """Returns the number of measured states, and the turns and tokens of their continuations."""
        values = list(self._journal.values())
        turns = sum(value.turns for value in values)
        unknown = any(value.tokens is None for value in values)
        # An unknown count makes the sum unknown: it is not counted as 0.
        tokens = None if unknown else sum(value.tokens or 0 for value in values)
        return {"states": len(values), "turns": turns, "tokens": tokens}

    def _identity(self, state: Episode) -> str:
        seats = [[info.agent, info.name, info.parameters] for info in state.policies]
        # Without the key and the evaluations: equal states of different episodes share a value.
        record = state.model_dump_json(include={"rules", "seed", "turns"})
        text = canonical_json([state.task.content_hash, seats, record, self._continuations.identity])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def measure(self, states: Iterable[Episode], total: int) -> None:
        """Measures the states that have no value yet; values that were measured before an error are kept.

        Args:
            states: the states to measure.
            total: their number, for the progress bar.

        Raises:
            InvalidValueError: a policy cannot be recreated from its record.
            BudgetExceededError: the limit is reached.
            ModelRefusedError: a model refuses every request.
            KeyboardInterrupt: a signal requested the stop.
        """
        models = self._continuations.models
        progress = Progress(total, 0, None, "states", models.ledger)
        pending, concurrency = self._pending(states, progress), self._continuations.settings.concurrency
        work_with_models(pending, self._work, models, self._journal.path.parent, progress, concurrency)

    def _pending(self, states: Iterable[Episode], progress: Progress) -> Iterator[tuple[Episode, str]]:
        """Yields each state without scores once, with its identity; failed measurements are repeated."""
        under_way: set[str] = set()
        for state in states:
            # Different episodes may share states, at least the first one.
            of = self._identity(state)
            value = self._journal.get(of)
            if of in under_way or (value is not None and value.missing is None):
                progress.advance(1)
            else:
                under_way.add(of)  # not in the journal before it is measured
                yield state, of

    async def _work(self, pending: tuple[Episode, str]) -> bool:
        value = await self._measured(*pending)
        # Failed measurements are recorded, too, so that their reason is known; they are repeated on continuation.
        self._journal.append(value)
        return value.missing is None

    async def _measured(self, state: Episode, of: str) -> StateValue:
        value = StateValue(of=of, episode=state.key, turn=len(state.turns))
        try:
            ends = await self._continuations.samples(state, self._continuations.settings.samples)
        except FATAL:
            raise
        except SotopiaError as error:  # a model failed, or a judge could not score
            return value.model_copy(update={"missing": str(error)})
        played = [item for end in ends for item in end.turns[value.turn :]]  # only the added turns
        usage = sum((item.generation.usage for item in played if item.generation is not None), Usage())
        scores = _scores(end.evaluations[-1] for end in ends)
        return value.model_copy(update={"scores": scores, "turns": len(played), "tokens": usage.tokens})


def _scores(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, tuple[float, ...]]]:
    scores: dict[str, dict[str, tuple[float, ...]]] = {}
    for evaluation in evaluations:
        for score in evaluation.scores:
            of_seat, name = scores.setdefault(score.agent, {}), str(score.dimension)
            of_seat[name] = (*of_seat.get(name, ()), score.value)
    return scores


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Rates turns by their counterfactual turn rewards; see the module.

    Attributes:
        values: the measured values of all states of the episodes.
    """

    values: StateValues
    name: str = COUNTERFACTUAL

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Always true: the dimensions that can be scored are known only from the measured states."""
        return True

    def attribute(
        self, episode: Episode, seat: str, score: SeatScore, blame: bool = False
    ) -> Importance | Unattributed:
        """Returns the turn rewards of every attributable turn, and A from them."""
        samples: dict[int, tuple[float, ...]] = {}
        spans = {turn: turn + 1 for turn in attributable_turns(episode, seat)}
        for end in sorted({*spans, *spans.values()}):
            scores = self.values.scores(episode.before(end), seat, score.dimension)
            if isinstance(scores, Unattributed):
                return scores
            samples[end] = scores
        return Importance.of_rewards(measured_rewards(samples, spans).by_turn, blame)
