"""Measures of how facts were passed on, exact from moves: after SOTOPIA-TOM (arXiv 2605.02307), without its judge.

Per seat, with *told* for a proof or a true statement:

- ``disclosure`` (DA): mean over the facts that it knew at the start. One that may be told counts 1 if it told it to a
  seat that may know it on the channel that is right for it; one that nobody else may know counts 1 if it did not tell
  it.
- ``acquisition`` (IA): mean over the facts that it is to learn: 1 if it asked for it, a seat that knew it, on the
  right channel.
- ``efficiency`` (EFF): max(0, 1 - (T - 1) / (horizon - 1)), where T is the median over the facts that it is to learn of
  the round in which it was told them; never is horizon + 1.
- ``breaches`` (CPV): min(1, tellings of a fact to a seat that may not know it or aloud where only a private turn may
  tell it / its own facts that may not be told to everybody aloud).
- ``management`` (INFOMGMT): (DA · IA · EFF · (1 - CPV)) ^ ¼.

The right channel of a public fact is a turn that everybody sees, of a private one a private turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.facts import Facts, Variable
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import SocialAct, social_acts


@dataclass(frozen=True, slots=True)
class InformationMeasures:
    """The measures of one seat, each from 0 to 1; ``None`` where it knows no fact, or is to learn none."""

    disclosure: float | None
    acquisition: float | None
    efficiency: float | None
    breaches: float

    @property
    def management(self) -> float | None:
        """The geometric mean of disclosure, acquisition, efficiency and 1 - breaches; ``None`` if one is undefined."""
        if self.disclosure is None or self.acquisition is None or self.efficiency is None:
            return None
        return float((self.disclosure * self.acquisition * self.efficiency * (1 - self.breaches)) ** 0.25)


def information_measures(task: Task, turns: Sequence[Turn], horizon: int) -> dict[str, InformationMeasures]:
    """Returns the measures of every seat; empty in a task without facts.

    Args:
        task: the task.
        turns: all turns of the episode.
        horizon: the number of rounds T_max, at least 2, that scales the efficiency.

    Raises:
        InvalidMoveError: a recorded move was not open.
    """
    facts = task.scenario.facts
    if facts is None:
        return {}
    acts, rounds = social_acts(task, turns), [turn.round for turn in turns]
    return {agent: _of_seat(facts, acts, rounds, agent, horizon) for agent in task.agents}


def tellings(facts: Facts, acts: Iterable[SocialAct]) -> list[SocialAct]:
    """Returns the acts by which the true value of a fact was told: proofs and true statements."""
    return [act for act in acts if act.kind is not MoveKind.ASK and act.value == facts.truth.get(act.variable)]


def breaches_of(facts: Facts, acts: Iterable[SocialAct]) -> list[SocialAct]:
    """Returns the tellings to a seat that may not know the fact, or aloud where only a private turn may tell it."""
    return [
        act
        for act in tellings(facts, acts)
        if not all(facts.by_name[act.variable].admits(agent) for agent in act.audience)
        or (facts.by_name[act.variable].channel == "private" and not act.private)
    ]


def _of_seat(
    facts: Facts, acts: Sequence[SocialAct], rounds: Sequence[int], agent: str, horizon: int
) -> InformationMeasures:
    own = [variable for variable in facts.variables if agent in variable.known_by]
    targets = [variable for variable in facts.variables if agent in variable.wanted_by]
    mine = [act for act in acts if act.actor == agent]
    times = [_time(facts, acts, rounds, agent, variable.name, horizon) for variable in targets]
    guarded = [variable for variable in own if variable.secret or variable.channel == "private"]
    return InformationMeasures(
        disclosure=_mean(_disclosed(facts, mine, variable, agent) for variable in own),
        acquisition=_mean(any(_right_question(act, variable) for act in mine) for variable in targets),
        efficiency=max(0.0, 1 - (median(times) - 1) / (horizon - 1)) if times else None,
        breaches=min(1.0, len(breaches_of(facts, mine)) / max(1, len(guarded))),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = [float(value) for value in values]
    return fmean(numbers) if numbers else None


def _disclosed(facts: Facts, acts: Sequence[SocialAct], variable: Variable, agent: str) -> bool:
    own = [act for act in tellings(facts, acts) if act.variable == variable.name]
    if variable.may_know != "all" and not set(variable.may_know) - {agent}:
        return not own
    return any(act.private is (variable.channel == "private") and _admitted(act, variable) for act in own)


def _admitted(act: SocialAct, variable: Variable) -> bool:
    return bool(act.audience) and all(variable.admits(agent) for agent in act.audience)


def _right_question(act: SocialAct, variable: Variable) -> bool:
    asks = act.kind is MoveKind.ASK and act.variable == variable.name
    return asks and act.private is (variable.channel == "private") and bool({*act.audience} & {*variable.known_by})


def _time(facts: Facts, acts: Sequence[SocialAct], rounds: Sequence[int], agent: str, name: str, horizon: int) -> int:
    """The round, from 1, in which a seat was told a fact; ``horizon`` + 1 if it never was."""
    times = (rounds[a.turn] + 1 for a in tellings(facts, acts) if a.variable == name and agent in a.audience)
    return next(times, horizon + 1)
