"""Probes: episodes that part from a recorded one with an action whose worth is measured.

From a state of a recorded episode several actions are forced: the recorded one, and those that other policies would
take there. Each is played on to the end once and evaluated; that is what an attributor sees. The truth about the action
is measured apart from it, by other continuations (:mod:`training.attribution.counterfactual`)::

    advantage = value of the state after the action - value of the state before it
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from sotopia_env.policies import Policy
from sotopia_env.records import Record, canonical_json
from sotopia_env.storage import Journal
from sotopia_env.table import Table
from sotopia_env.tasks import family_of
from sotopia_env.waiting import all_at_once
from sotopia_env.world import Action, ActionType, Episode
from training.attribution.counterfactual import Measurement, StateValues
from training.attribution.credits import Missing

OTHER = "other"
"""The family of tasks that no generator made."""


class Probe(Record):
    """One forced action, played on to the end.

    Attributes:
        turn: index of the forced turn.
        episode: the episode with it, evaluated.
    """

    turn: int
    episode: Episode

    @property
    def seat(self) -> str:
        """Agent id of who acted."""
        return self.episode.turns[self.turn].turn.actor

    @property
    def family(self) -> str:
        """Name of the task's family."""
        family = family_of(self.episode.task)
        return OTHER if family is None else family.name

    @property
    def situation(self) -> str:
        """The same for all actions that were forced in one state."""
        return self.episode.key.rpartition(".")[0]

    @property
    def before(self) -> Episode:
        """The state in which the action was forced."""
        return self.episode.before(self.turn)

    @property
    def after(self) -> Episode:
        """The state after it."""
        return self.episode.before(self.turn + 1)


class _Probed(Record):
    """The probes of one recorded episode."""

    source: str
    probes: tuple[Probe, ...]


class ProbeMaker:
    """Makes probes and keeps them on disk, a line for each recorded episode: none is played twice.

    Attributes:
        continuations: play the probes.
    """

    def __init__(self, continuations: Measurement, alternatives: Sequence[Policy], states: int, seed: int) -> None:
        """Prepares.

        Args:
            continuations: play the probes; their evaluator is that of the scores to be attributed.
            alternatives: policies whose actions are forced, beside the recorded ones.
            states: of each episode, at most; drawn evenly from those in which somebody did something.
            seed: of the draws.
        """
        self.continuations, self._alternatives = continuations, alternatives
        self._states, self._seed = states, seed

    async def make(self, episodes: Iterator[Episode], path: Path) -> list[Probe]:
        """Returns the probes of all episodes; those that ``path`` has are taken from there."""
        with Journal(path, _Probed, lambda probed: probed.source) as journal:
            for episode in episodes:
                if episode.key not in journal:
                    journal.append(_Probed(source=episode.key, probes=tuple(await self._probes(episode))))
            return [probe for probed in journal.values() for probe in probed.probes]

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
        # The draw after those of the measurement: what an attributor sees is no part of the truth.
        draw = self.continuations.settings.samples
        keys = [f"{episode.key}.t{turn}.a{number}" for number in range(len(states))]
        keyed = [state.model_copy(update={"key": key}) for key, state in zip(keys, states, strict=True)]
        played = await all_at_once(self.continuations.play(state, draw) for state in keyed)
        return [Probe(turn=turn, episode=item) for item in played]

    async def _alternative_actions(self, table: Table, generator: random.Random) -> list[Action]:
        observation = table.observe(table.acting[0])
        return [(await policy.act(observation, generator.getrandbits(62))).action for policy in self._alternatives]


def _distinct(states: Sequence[Episode]) -> list[Episode]:
    """The states after which somebody did something; of those that differ in words alone the first."""
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
    """What an action is worth, in the units of the score.

    Attributes:
        gains: by continuation: the score after the action, less the one before it with the same luck.
    """

    gains: tuple[float, ...]

    @property
    def advantage(self) -> float:
        """The mean gain."""
        return fmean(self.gains)

    @property
    def sign(self) -> int:
        """1 or -1 where the advantage lies more than two standard errors from 0; else 0, it is not decided."""
        error = stdev(self.gains) / len(self.gains) ** 0.5 if len(self.gains) > 1 else 0.0
        decided = abs(self.advantage) > max(2 * error, 1e-9)
        return (1 if self.advantage > 0 else -1) if decided else 0

    def less(self, other: Truth) -> Truth:
        """The difference to another action in the same state."""
        return Truth(tuple(one - two for one, two in zip(self.gains, other.gains, strict=True)))


def truth_of(probe: Probe, values: StateValues, dimension: str, samples: int) -> Truth | Missing:
    """Returns what a probe's action is worth to who took it, or why that was not measured.

    Args:
        probe: whose states are measured.
        values: of these states.
        dimension: of the score.
        samples: number of continuations; a state that has ended has only one, which stands for all.
    """
    before = values.scores(probe.before, probe.seat, dimension)
    after = values.scores(probe.after, probe.seat, dimension)
    if isinstance(before, Missing):
        return before
    if isinstance(after, Missing):
        return after
    ends = after * samples if len(after) < samples else after
    return Truth(tuple(end - start for start, end in zip(before, ends, strict=True)))
