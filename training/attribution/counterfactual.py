"""Counterfactual credit: what each turn was worth, measured by playing on from recorded states.

A *state* is the record of an episode up to some turn. Its value is the mean score of ``samples`` continuations: each
takes the table up again as it stood and lets the recorded policies play to the end, with random draws of its own. The
gain of turn t is

    gain_t = value of the state after turn t - value of the state before turn t

in the units of the score: what the seat may expect with the turn, less what it may expect of what its policy does there
on average, as VinePPO (Kazemnejad et al., arXiv 2410.01679) measures it for steps of reasoning. The estimate is
unbiased and needs no model. The gains of all turns, everybody's, add up to the score less the value of the first state.
A state may also end with a *forced* action (:func:`forced`), which nobody took.

Continuation k draws alike in every state of an episode (equal seeds at equal turns), so that the difference of two
values is due to what was done and not to luck. The turn order remains that of the record.

Cost: the continuations of an episode of T turns take about ``samples`` · T² / 2 turns, and policies are asked for each
as in a run. The values are kept in a file that only grows, a line for each state: none is measured twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from pydantic import Field

from sotopia_env.chat_model import ModelPool
from sotopia_env.concurrency import Progress
from sotopia_env.errors import FATAL, InvalidValueError, SotopiaError, Verbatim
from sotopia_env.evaluators import all_at_once
from sotopia_env.files import AppendOnlyFile, read_lines
from sotopia_env.naming import POLICY_NAMES, make_evaluator, make_policy
from sotopia_env.policies import Decision, Policy, policy_identity, turn_seed
from sotopia_env.records import Record, canonical_json, read_record
from sotopia_env.table import Table
from sotopia_env.world import Action, Episode, Evaluation, Observation, PolicyInfo, Usage, replay
from training.attribution.credits import Importance, Missing, SeatScore, attributable_turns, relative
from training.attribution.settings import COUNTERFACTUAL, CounterfactualSettings
from training.data.samples import state_before
from training.stage.access import work_with_models

# --- states -------------------------------------------------------------------------------------------------------


def forced(state: Episode, action: Action) -> Episode:
    """Returns the state after ``action`` of the agent who is to act in ``state``.

    Raises:
        InvalidActionError: the episode has ended, or a recipient is no agent of the task.
    """
    table = Table.resume(state)
    table.answer(next(iter(table.acting), ""), action)
    return table.episode()


def states_of(episode: Episode) -> Iterator[Episode]:
    """Yields every state of an episode, from before its first turn to its end."""
    for turn in range(len(episode.turns) + 1):
        yield state_before(episode, turn)


# --- policies -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Redrawn:
    """A policy with the random draws of one continuation."""

    policy: Policy
    draw: int
    seed: int

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.policy.parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        return await self.policy.act(observation, turn_seed(self.seed + seed, self.draw, 0))


def remade(info: PolicyInfo, specs: Mapping[str, str], models: ModelPool) -> Policy:
    """Returns the policy that a record names.

    Args:
        info: of the record.
        specs: how policies are named whose record does not say enough, by the name in the record.
        models: makes the language models.

    Raises:
        InvalidValueError: it cannot be made again with the recorded parameters.
    """
    spec = specs.get(info.name) or _spec(info)
    advice = f"name it under {COUNTERFACTUAL}.policies"
    try:
        policy = make_policy(spec, models)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"policy {info.name!r} cannot be made again ({error})", field=COUNTERFACTUAL, hint=advice
        ) from None
    recorded, identity = canonical_json([info.name, info.parameters]), policy_identity(policy)
    if identity != recorded:
        raise InvalidValueError(
            field=COUNTERFACTUAL, expected=f"{spec!r} to be policy {recorded}", got=identity, hint=advice
        )
    return policy


def _spec(info: PolicyInfo) -> str:
    options = info.parameters.items() if info.name in POLICY_NAMES else ()
    return info.name + "".join(f"{',' if n else ':'}{key}={value}" for n, (key, value) in enumerate(options))


# --- continuations ------------------------------------------------------------------------------------------------


class Continuations:
    """Plays on from states, with the policies of their records.

    Attributes:
        settings: of the measurement.
        models: the language models among policies and judges.
        evaluator: of the continuations.
    """

    def __init__(self, settings: CounterfactualSettings, models: ModelPool) -> None:
        """Prepares; policies are made when they are needed.

        Raises:
            UnknownNameError: there is no such evaluator.
        """
        self.settings, self.models = settings, models
        self.evaluator = make_evaluator(settings.evaluator, model_factory=models.judge)
        self._policies: dict[str, Policy] = {}

    @property
    def identity(self) -> str:
        """What the values of states depend on besides the states."""
        evaluator = [self.evaluator.name, dict(self.evaluator.parameters)]
        return canonical_json([self.settings.samples, self.settings.seed, evaluator])

    def check(self, episode: Episode) -> None:
        """Checks that the values of an episode's states can be measured.

        Raises:
            InvalidValueError: nothing in its task can be verified, or a policy cannot be made again.
            DamagedRecordError: its record does not replay.
        """
        if episode.task.protocol is None:
            raise InvalidValueError(
                field=COUNTERFACTUAL,
                expected="episodes of verified tasks, whose score every continuation has as well",
                got=Verbatim(f"{episode.key!r} of task {episode.task.id!r}, which has no outcome"),
                hint="attribute it by a model",
            )
        replay(episode)
        self.seats(episode)

    def seats(self, episode: Episode) -> dict[str, Policy]:
        """Returns the policies of an episode by agent id, each made once.

        Raises:
            InvalidValueError: one cannot be made again, or a seat has none.
        """
        seats = {info.agent: info for info in episode.policies}
        for agent in episode.task.agents:
            if agent not in seats:
                raise InvalidValueError(
                    field=COUNTERFACTUAL,
                    expected=f"a policy in every seat of {episode.key!r}",
                    got=Verbatim(f"none for {agent}"),
                )
        return {agent: self._policy(info) for agent, info in seats.items()}

    def _policy(self, info: PolicyInfo) -> Policy:
        identity = canonical_json([info.name, info.parameters])
        if identity not in self._policies:
            self._policies[identity] = remade(info, self.settings.policies, self.models)
        return self._policies[identity]

    async def play(self, state: Episode, draw: int) -> Episode:
        """Returns one continuation of a state, evaluated.

        Args:
            state: to go on from.
            draw: number of the continuation, at least 0; fixes the random draws of all policies.

        Raises:
            SotopiaError: a policy or the evaluator failed.
        """
        table, seed = Table.resume(state), self.settings.seed
        await table.play({agent: _Redrawn(policy, draw, seed) for agent, policy in self.seats(state).items()})
        await table.evaluate(self.evaluator)
        return table.episode()


# --- values -------------------------------------------------------------------------------------------------------


class StateValue(Record):
    """What the continuations of a state came to.

    Attributes:
        of: identity of the state and of the measurement.
        episode: key of the episode.
        turn: how many turns the state has.
        scores: of the continuations in their order, by agent id and dimension; a single one where the episode had
            ended.
        turns: played for it.
        tokens: that models used for it; ``None`` where a server did not count them.
        missing: why there are no scores.
    """

    of: str
    episode: str
    turn: int
    scores: dict[str, dict[str, tuple[float, ...]]] = Field(default_factory=dict)
    turns: int = 0
    tokens: int | None = 0
    missing: str | None = None


class StateValues:
    """The values of states: measured by playing, in memory to be looked up, on disk to outlive the process."""

    def __init__(self, path: Path, continuations: Continuations) -> None:
        """Opens the file ``path``; it keeps what was measured before, also by other settings."""
        self._continuations = continuations
        self._values: dict[str, StateValue] = {}
        self._file = AppendOnlyFile(path, exclusive=True)
        for where, line in read_lines(path):
            value = read_record(StateValue, line, where)
            self._values[value.of] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def scores(self, state: Episode, seat: str, dimension: str) -> tuple[float, ...] | Missing:
        """Returns the scores of a seat in the continuations of a measured state, or why there are none."""
        value = self._values.get(self._identity(state))
        if value is None or value.missing is not None:
            return Missing("not measured" if value is None else f"not measured: {value.missing}")
        evaluator = self._continuations.evaluator.name
        return value.scores.get(seat, {}).get(dimension) or Missing(f"{evaluator} does not score {dimension}")

    def cost(self) -> dict[str, int | None]:
        """Returns how many states have a value, and the turns and tokens of their continuations."""
        values = self._values.values()
        turns = sum(value.turns for value in values)
        unknown = any(value.tokens is None for value in values)
        tokens = None if unknown else sum(value.tokens or 0 for value in values)
        return {"states": len(values), "turns": turns, "tokens": tokens}

    def _identity(self, state: Episode) -> str:
        seats = [[info.agent, info.name, info.parameters] for info in state.policies]
        record = state.model_dump_json(include={"rules", "seed", "turns"})
        text = canonical_json([state.task.content_hash, seats, record, self._continuations.identity])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def measure(self, states: Iterable[Episode], total: int) -> None:
        """Measures the states that have no value yet.

        Args:
            states: whose value is wanted.
            total: how many these are, for the progress bar.

        Raises:
            InvalidValueError: a policy cannot be made again.
            BudgetExceededError: the limit is reached; values until then are kept.
            ModelRefusedError: a model refuses every request; likewise.
            KeyboardInterrupt: a signal asked for the end; likewise.
        """
        models = self._continuations.models
        progress = Progress(total, 0, None, "states", models.ledger)
        pending, concurrency = self._pending(states, progress), self._continuations.settings.concurrency
        work_with_models(pending, self._work, models, self._file.path.parent, progress, concurrency)

    def _pending(self, states: Iterable[Episode], progress: Progress) -> Iterator[tuple[Episode, str]]:
        """The states without a value, each once; those whose value is missing come again."""
        under_way: set[str] = set()
        for state in states:
            of = self._identity(state)
            value = self._values.get(of)
            if of in under_way or (value is not None and value.missing is None):
                progress.advance(1)
            else:
                under_way.add(of)
                yield state, of

    async def _work(self, pending: tuple[Episode, str]) -> bool:
        value = await self._measured(*pending)
        self._file.append(f"{value.model_dump_json()}\n".encode())
        self._values[value.of] = value
        return value.missing is None

    async def _measured(self, state: Episode, of: str) -> StateValue:
        draws = range(1 if state.stop is not None else self._continuations.settings.samples)
        value = StateValue(of=of, episode=state.key, turn=len(state.turns))
        try:
            ends = await all_at_once(self._continuations.play(state, draw) for draw in draws)
        except FATAL:
            raise
        except SotopiaError as error:  # a model that failed, a judge that could not score
            return value.model_copy(update={"missing": str(error)})
        played = [item for end in ends for item in end.turns[value.turn :]]
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
    """The attributor: gains between measured values; see the module.

    Attributes:
        values: in which every state of the episodes is measured.
    """

    values: StateValues
    name: str = COUNTERFACTUAL

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether it can say anything of such a score: that is known when the states are measured."""
        return True

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns the gains of every attributable turn, and A from them."""
        means: dict[int, float] = {}
        turns = attributable_turns(episode, seat)
        for end in sorted({*turns, *(turn + 1 for turn in turns)}):
            scores = self.values.scores(state_before(episode, end), seat, score.dimension)
            if isinstance(scores, Missing):
                return scores
            means[end] = fmean(scores)
        gains = {turn: means[turn + 1] - means[turn] for turn in turns}
        return Importance(relative(gains, blame), gains=gains)
