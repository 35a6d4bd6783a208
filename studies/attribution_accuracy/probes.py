"""Probes: recorded episodes with one forced action, whose worth is measured.

Several actions are forced in a state of a recorded episode: the recorded one, and those that other policies take there.
Each probe is played to the end once and evaluated; attributors rate the resulting episode. The true worth of the action
is measured separately, by other continuations (:mod:`sotopia_training.attribution.counterfactual`): it is the action's
counterfactual turn reward (:mod:`sotopia_env.evaluators.turn_rewards`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from sotopia_training.attribution.counterfactual import Measurement, StateValues
from sotopia_training.attribution.methods import Unattributed

from sotopia_env.evaluators.turn_rewards import paired_changes
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Record
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.policies import Policy
from sotopia_env.storage import Journal
from sotopia_env.tasks import family_of
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.table import Table

NO_FAMILY = "other"
"""The family name of tasks that no generator made."""


class Probe(Record):
    """One forced action, with the evaluated episode that follows from it.

    Attributes:
        turn: the index of the forced turn.
        episode: the evaluated episode.
        forced: whether the action was forced; otherwise the turn is a recorded one.
    """

    turn: int
    episode: Episode
    forced: bool = True

    @property
    def key(self) -> tuple[str, str, int]:
        """Key of the episode, seat and turn."""
        return self.episode.key, self.seat, self.turn

    @property
    def seat(self) -> str:
        """Agent id of the seat that took the action."""
        return self.episode.turns[self.turn].turn.actor

    @property
    def family(self) -> str:
        """Name of the task's family."""
        family = family_of(self.episode.task)
        return NO_FAMILY if family is None else family.name

    @property
    def situation(self) -> str:
        """What the turn is compared in: the state, for forced actions, else the episode and the seat."""
        return self.episode.key.rpartition(".")[0] if self.forced else f"{self.episode.key}:{self.seat}"

    @property
    def before(self) -> Episode:
        """The state in which the action was forced."""
        return self.episode.before(self.turn)

    @property
    def after(self) -> Episode:
        """The state after the action."""
        return self.episode.before(self.turn + 1)


class _EpisodeProbes(Record):
    """The probes of one recorded episode."""

    source: str
    probes: tuple[Probe, ...]


class ProbeMaker:
    """Creates probes and stores them in a journal with one line per recorded episode; no probe is played twice.

    Attributes:
        continuations: plays the probes.
    """

    def __init__(self, continuations: Measurement, alternatives: Sequence[Policy], states: int, seed: int) -> None:
        """Creates the maker.

        Args:
            continuations: plays the probes; its evaluator gives the scores that are attributed.
            alternatives: the policies whose actions are forced, besides the recorded actions.
            states: the maximum number of states per episode; they are drawn uniformly from those whose recorded turn
                was not silent.
            seed: the seed of the draws.
        """
        self.continuations, self._alternatives = continuations, alternatives
        self._states, self._seed = states, seed

    async def make(self, episodes: Iterator[Episode], path: Path) -> list[Probe]:
        """Returns the probes of all episodes; those that the journal at ``path`` holds are not played again."""
        with Journal(path, _EpisodeProbes, lambda record: record.source) as journal:
            for episode in episodes:
                if episode.key not in journal:
                    journal.append(_EpisodeProbes(source=episode.key, probes=tuple(await self._probes(episode))))
            return [probe for record in journal.values() for probe in record.probes]

    async def _probes(self, episode: Episode) -> list[Probe]:
        generator = random.Random(f"{self._seed} {episode.key}")
        turns = [item.turn.index for item in episode.turns if item.turn.action.action_type is not ActionType.NONE]
        probes: list[Probe] = []
        for turn in sorted(generator.sample(turns, min(self._states, len(turns)))):
            probes += await self._probes_at(episode, turn, generator)
        return probes

    async def _probes_at(self, episode: Episode, turn: int, generator: random.Random) -> list[Probe]:
        table, recorded = Table.resume(episode.before(turn)), episode.turns[turn].turn
        actions = [recorded.attempted or recorded.action, *await self._alternative_actions(table, generator)]
        states = _distinct([table.fork(turn, action).episode() for action in actions])
        # Draws 0 to samples - 1 measure the truth; the next one keeps the attributors' episode independent of it.
        draw = self.continuations.settings.samples
        keys = [f"{episode.key}.t{turn}.a{number}" for number in range(len(states))]
        keyed = [state.model_copy(update={"key": key}) for key, state in zip(keys, states, strict=True)]
        played = await all_at_once(self.continuations.play(state, draw) for state in keyed)
        return [Probe(turn=turn, episode=item) for item in played]

    async def _alternative_actions(self, table: Table, generator: random.Random) -> list[Action]:
        observation = table.observe(table.acting[0])
        return [(await policy.act(observation, generator.getrandbits(62))).action for policy in self._alternatives]


def _distinct(states: Sequence[Episode]) -> list[Episode]:
    """Returns the states whose last action is not silence; if several differ only in words, the first of them."""
    by_act: dict[str, Episode] = {}
    for state in states:
        action = state.turns[-1].turn.action
        if action.action_type is not ActionType.NONE:
            move = None if action.move is None else action.move.to_json()
            by_act.setdefault(canonical_json([action.action_type.value, action.to, move]), state)
    return list(by_act.values())


# --- the truth ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth:
    """The measured worth of an action, in units of the score.

    Attributes:
        changes: the turn reward in each pair of continuations with the same random draws.
    """

    changes: tuple[float, ...]

    @property
    def advantage(self) -> float:
        """The mean of the changes: the counterfactual turn reward."""
        return fmean(self.changes)

    @property
    def sign(self) -> int:
        """1 or -1 if the advantage is more than two standard errors from 0; 0 if it is undecided."""
        # 1e-9: without noise the standard error is 0, and rounding errors must not decide.
        error = stdev(self.changes) / len(self.changes) ** 0.5 if len(self.changes) > 1 else 0.0
        decided = abs(self.advantage) > max(2 * error, 1e-9)
        return (1 if self.advantage > 0 else -1) if decided else 0

    def less(self, other: Truth) -> Truth:
        """Returns the difference from another action in the same state."""
        # Paired: both have the same continuations before the action and the same draws after it, which cancels noise.
        return Truth(tuple(one - two for one, two in zip(self.changes, other.changes, strict=True)))


def truth_of(probe: Probe, values: StateValues, dimension: str) -> Truth | Unattributed:
    """Returns the worth of a probe's action to the seat that took it, or the reason why it was not measured.

    Args:
        probe: the probe, whose states were measured.
        values: the values of the states.
        dimension: the dimension of the scores.
    """
    before = values.scores(probe.before, probe.seat, dimension)
    after = values.scores(probe.after, probe.seat, dimension)
    if isinstance(before, Unattributed):
        return before
    if isinstance(after, Unattributed):
        return after
    changes = paired_changes(before, after)
    assert changes is not None, "every state has the same number of continuations, except the end of an episode"
    return Truth(changes)
