"""Episodes as rows, one per seat: its policy, the partners, and the scores of one evaluator.

Scores of different evaluators are different quantities, so all rows of one call are by one evaluator
(:func:`choose_evaluator`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.json_text import decode_json
from sotopia_env.outcomes import OutcomeResult
from sotopia_env.records import canonical_json
from sotopia_env.reports.intervals import CASTINGS, PARTICIPANTS, SCENARIOS, UNBOUNDED, VIGNETTES, Bounds
from sotopia_env.reports.turn_counts import TurnCounts, count_turns
from sotopia_env.storage.recordings import PlayKey, recordings
from sotopia_env.world.action import ActionType
from sotopia_env.world.answers import participant_of, settings_of
from sotopia_env.world.dynamics import TurnOrder
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import DIMENSIONS, HIGH, LOW, RANGES
from sotopia_env.world.scenario import Task

OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS = "overall", "success", "surplus_share", "efficiency", "words_per_turn"
_BOUNDS: Mapping[str, Bounds] = {
    **{d.value: RANGES[d] for d in DIMENSIONS},
    OVERALL: (float(LOW.mean(dtype=float)), float(HIGH.mean(dtype=float))),
    SUCCESS: (0, 1),
    SHARE: UNBOUNDED,  # above 1 where an agreement leaves a partner below no deal
    EFFICIENCY: (-math.inf, 1),
    WORDS: (0, math.inf),
}
METRICS: tuple[str, ...] = tuple(_BOUNDS)
"""The metrics of a comparison: the seven dimensions and their mean (native ranges); for verified families the rate of
agreement, the seat's share of the surplus (0 at disagreement, 1 at its best) and the joint efficiency; and the
words that a seat spoke per turn of its own. Custom dimensions are metrics too."""
FACTORS: tuple[str, ...] = ("tag", "scenario", "character", "relationship", "condition", "participant")
"""What the seats of a comparison can be told apart by."""
HEADLINES: tuple[str, ...] = (OVERALL, "goal", SHARE, SUCCESS)
"""The metrics that reports show first, where they have values."""


@dataclass(frozen=True, slots=True)
class SeatResult:
    """The result of one seat of one episode.

    Attributes:
        seats: how many seats the episode has.
        policies: name and parameters (as JSON) of the policy in every seat.
        first: whether the seat acted first.
        by_order: whether the seats act in round-robin order, where acting first may matter.
        family: the procedural family, or the protocol's kind (``agreement``, …) where the task is of none; ``None`` for
            a task without an outcome.
        values: metric to value; a metric that does not apply or was not scored is absent.
        custom: ranges of the custom dimensions among them.
        unscored: why there are no scores, ``None`` when there are.
        outcome_by: the evaluator that computed the verified outcome, ``None`` where there is none.
        policy: label of the policy in the seat.
        partner: label of the policies in the others, joined by ``+`` when they differ.
        vignette: what the scenario is a version of; see :attr:`~sotopia_env.world.Scenario.vignette`.
        casting: names of the characters, in seat order.
        conditions: of the scenario; see :attr:`~sotopia_env.world.Scenario.conditions`.
        levels: of each of :data:`FACTORS`, those that the seat belongs to.
        participant: the person in the seat; empty for all other policies.
        counts: of the seat's turns.
    """

    key: str
    task: str
    scenario: str
    seed: int
    seat: int
    seats: int
    policies: tuple[tuple[str, str], ...]
    first: bool
    by_order: bool
    family: str | None
    values: Mapping[str, float]
    unscored: str | None
    outcome_by: str | None = None
    policy: str = ""
    partner: str = ""
    custom: Mapping[str, Bounds] = field(default_factory=dict)
    vignette: str = ""
    casting: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    participant: str = ""
    counts: TurnCounts = TurnCounts()  # noqa: RUF009 - frozen


def clusters_of(*groups: Sequence[SeatResult]) -> tuple[list[list[str]], str]:
    """Returns the cluster of every row of each group, and what the clusters are: the first with two in every group.

    They are participants where people sat in all seats, else scenarios (the versions of a vignette are one), else
    castings.
    """
    for over, labels in (
        (PARTICIPANTS, [[row.participant for row in rows] for rows in groups]),
        (SCENARIOS, [[row.vignette for row in rows] for rows in groups]),
    ):
        if all(len(set(group)) > 1 and "" not in group for group in labels):
            versions = over == SCENARIOS and any(row.vignette != row.scenario for rows in groups for row in rows)
            return labels, VIGNETTES if versions else over
    one = len({row.scenario for rows in groups for row in rows}) == 1
    return [[row.task if one else row.casting for row in rows] for rows in groups], CASTINGS


def metric_bounds(rows: Iterable[SeatResult]) -> Mapping[str, Bounds]:
    """Returns the range of every metric: those of :data:`METRICS`, then the custom dimensions of the rows.

    Raises:
        InvalidValueError: a custom dimension has two ranges.
    """
    custom: dict[str, Bounds] = {}
    for name, bounds in (item for row in rows for item in row.custom.items()):
        if custom.setdefault(name, bounds) != bounds:
            (low, high), (other_low, other_high) = custom[name], bounds
            raise InvalidValueError(
                f"the episodes score it from {low} to {high} and from {other_low} to {other_high}",
                field="dimension",
                got=name,
                hint="compare the runs one by one",
            )
    return {**_BOUNDS, **dict(sorted(custom.items()))}


def choose_evaluator(
    counts: Mapping[str, int],
    episodes: int,
    evaluator: str | None = None,
    defaults: Iterable[str] = (),
    setting: str = "--evaluator",
    members: Collection[str] = (),
) -> str | None:
    """Returns the one evaluator whose scores are compared; ``None`` when no episode has been evaluated.

    Args:
        counts: in how many episodes there is an evaluation by each evaluator.
        episodes: how many episodes there are.
        evaluator: the choice, by its recorded name or the one given to the run (``judge:MODEL`` without options);
            by default one that all episodes share.
        defaults: evaluators of the runs' configurations; they decide between several that all episodes share.
        setting: name of the user's setting, for the message.
        members: evaluators whose scores another one combines; that one goes before them.

    Raises:
        UnknownNameError: no episode has an evaluation by ``evaluator``.
        InvalidValueError: the episodes share no evaluator, or several and no default decides.
    """
    if evaluator is not None:
        return recorded_evaluator(evaluator, counts)
    if not counts:
        return None
    common = sorted(name for name, count in counts.items() if count == episodes)
    for names in (common, sorted(set(common) & set(defaults)), sorted(set(common) - set(members))):
        if len(names) == 1:
            return names[0]
    listing = ", ".join(f"{name!r} ({count} of {episodes} episodes)" for name, count in sorted(counts.items()))
    many = "several evaluators" if common else "no evaluator"
    raise InvalidValueError(
        f"scores by different evaluators cannot be mixed, and the episodes share {many}: {listing}",
        field="evaluator",
        hint=f"name one with {setting}, or evaluate the rest with `sotopia evaluate RUN --evaluator NAME`",
    )


_TAG = re.compile("#[0-9a-f]{6}")  # at the end of a judge's name, for its options


def recorded_evaluator(name: str, recorded: Collection[str]) -> str:
    """Returns the recorded name of an evaluator that is named as for a run: ``judge:MODEL`` is ``judge(MODEL)#217f3f``.

    Raises:
        UnknownNameError: there is none, or several that differ by their options.
    """
    if name in recorded:
        return name
    parts = (part.partition(":") for part in name.split("+"))
    short = "+".join(f"{kind}({model})" if colon else kind for kind, colon, model in parts)
    matches = [item for item in recorded if _TAG.sub("", item) == short]
    if len(matches) == 1:
        return matches[0]
    raise UnknownNameError(field="evaluator", got=name, valid=sorted(matches or recorded))


def seat_results(episodes: Iterable[Episode], evaluator: str | None = None) -> list[SeatResult]:
    """Returns one row per seat and episode; policies of one name with different parameters get different labels.

    Args:
        episodes: from one or several runs; two records of one episode count once.
        evaluator: whose scores to use; by default the one that all episodes share (:func:`choose_evaluator`). A
            verified outcome by another evaluator is used where this one read none.

    Raises:
        InvalidValueError: no episodes, a seat without a recorded policy, or no evaluator
            that all episodes share.
        UnknownNameError: no episode has an evaluation by ``evaluator``.
    """
    return rows_by_one(episodes, evaluator)[1]


def rows_by_one(
    episodes: Iterable[Episode], evaluator: str | None, defaults: Callable[[], Iterable[str]] = tuple
) -> tuple[str | None, list[SeatResult]]:
    """Returns the evaluator of :func:`choose_evaluator` and the rows of :func:`seat_results` in one pass."""
    plays: dict[PlayKey, dict[str | None, tuple[SeatResult, ...]]] = {}
    counts: Counter[str] = Counter()
    members: set[str] = set()
    for play, episode, _, names in recordings(episodes):
        counts.update(names)
        members.update(name for evaluation in episode.evaluations for name in evaluation.members)
        # Any of them may be meant where none has just this name.
        candidates: Iterable[str | None] = names if evaluator is None else names & {evaluator} or names
        rows = plays.setdefault(play, {None: tuple(_seats(episode, evaluator))})
        rows.update({name: tuple(_seats(episode, name)) for name in candidates})
    if not plays:
        raise InvalidValueError(field="episodes", expected="at least one to compare")
    choice = choose_evaluator(counts, len(plays), evaluator, defaults(), members=members)
    return choice, _with_labels([row for rows in plays.values() for row in rows.get(choice, rows[None])])


def _with_labels(rows: Sequence[SeatResult]) -> list[SeatResult]:
    """Fills in ``policy`` and ``partner``."""
    label_of = policy_labels(row.policies[row.seat] for row in rows)
    results = []
    for row in rows:
        labels = [label_of[policy] for policy in row.policies]
        partners = {label for seat, label in enumerate(labels) if seat != row.seat}
        results.append(replace(row, policy=labels[row.seat], partner="+".join(sorted(partners))))
    return results


def policy_labels(policies: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Returns a label for each name and parameters: the name, and the parameters by which those of one name differ."""
    variants: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, text in policies:
        variants.setdefault(name, {})[text] = decode_json(text)
    return {
        (name, text): f"{name}{_unlike(parameters, list(others.values()))}"
        for name, others in variants.items()
        for text, parameters in others.items()
    }


def _unlike(parameters: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> str:
    """The parameters that are not the same in all variants, as in a policy's name; empty for a single variant."""
    keys = sorted({key for item in variants for key in item})
    unlike = [key for key in keys if any(item.get(key, ...) != variants[0].get(key, ...) for item in variants)]
    own = {key: parameters[key] for key in unlike if key in parameters}
    parts = [f"{key}={value if isinstance(value, str) else canonical_json(value)}" for key, value in own.items()]
    return f":{','.join(parts)}" if parts else ""


def seated_policies(episode: Episode) -> tuple[tuple[str, str], ...]:
    """Returns name and settings (as JSON) of the policy in every seat; all people are one policy.

    Raises:
        InvalidValueError: a seat has no recorded policy.
    """
    policies = {info.agent: (info.name, canonical_json(settings_of(info))) for info in episode.policies}
    if set(policies) != set(episode.task.agents):
        raise InvalidValueError(
            field="policies",
            expected=f"one for each of {', '.join(episode.task.agents)}",
            got=list(policies),
            where=Where(record=f"episode {episode.key!r}"),
        )
    return tuple(policies[agent] for agent in episode.task.agents)


def _seats(episode: Episode, evaluator: str | None) -> Iterator[SeatResult]:
    evaluation = None if evaluator is None else episode.evaluation(evaluator)
    outcome_by, outcome = _outcome(episode, evaluator)
    policies = seated_policies(episode)
    people = {info.agent: participant_of(info) for info in episode.policies}
    for seat, agent in enumerate(episode.task.agents):
        scores = _scores(evaluation, agent)
        yield SeatResult(
            key=episode.key,
            task=episode.task.id,
            scenario=episode.task.scenario.id,
            seed=episode.seed,
            seat=seat,
            seats=len(policies),
            policies=policies,
            first=bool(episode.turns) and episode.turns[0].turn.actor == agent,
            by_order=bool(episode.turns) and episode.rules.turn_order is TurnOrder.ROUND_ROBIN,
            family=_family(episode.task),
            values={**scores, **_outcome_values(outcome, seat), **_words(episode, agent)},
            unscored=None if scores else unscored_reason(evaluation, evaluator, agent),
            outcome_by=outcome_by,
            custom={} if evaluation is None else {d.name: (d.low, d.high) for d in evaluation.dimensions},
            vignette=episode.task.scenario.vignette,
            casting=", ".join(episode.task.names.values()),
            conditions=episode.task.scenario.conditions,
            levels=_levels(episode.task, seat) | {"participant": (people[agent],) if people[agent] else ()},
            participant=people[agent],
            counts=count_turns(item for item in episode.turns if item.turn.actor == agent),
        )


def _levels(task: Task, seat: int) -> dict[str, tuple[str, ...]]:
    scenario = task.scenario
    condition = ", ".join(f"{name}={value}" for name, value in sorted(scenario.conditions.items()))
    kinds = {relationship.kind.value for _, relationship in task.relationships_of(seat)}
    return {
        "tag": tuple(dict.fromkeys(scenario.tags)),
        "scenario": (scenario.id,),
        "character": (task.characters[seat].name,),
        "relationship": ("+".join(sorted(kinds)),),
        "condition": (condition,) if condition else (),
    }


def _family(task: Task) -> str | None:
    """The task's procedural family, or the kind of its protocol where nobody named one."""
    spec = task.scenario.outcome
    return None if spec is None else str(task.scenario.shared_data.get("family", spec.protocol.kind))


def _outcome(episode: Episode, evaluator: str | None) -> tuple[str | None, OutcomeResult | None]:
    """The evaluator's own outcome, or else the latest of another one: outcomes are facts, not opinions."""
    outcomes = [(e.evaluator, e.outcome) for e in episode.evaluations if e.outcome is not None]
    own = [item for item in outcomes if item[0] == evaluator]
    return (own or outcomes)[-1] if outcomes else (None, None)


def _scores(evaluation: Evaluation | None, agent: str) -> dict[str, float]:
    if evaluation is None or evaluation.unscored is not None:
        return {}
    by_dimension = evaluation.by_agent.get(agent, {})
    scores = {d.value: float(by_dimension[d].value) for d in DIMENSIONS if d in by_dimension}
    if len(scores) == len(DIMENSIONS):
        scores[OVERALL] = math.fsum(scores.values()) / len(DIMENSIONS)
    return scores | {d.name: float(by_dimension[d.name].value) for d in evaluation.dimensions if d.name in by_dimension}


def unscored_reason(evaluation: Evaluation | None, evaluator: str | None, agent: str) -> str:
    """Returns why there is no score for ``agent`` by ``evaluator``, whose evaluation it is."""
    if evaluation is None:
        return f"not evaluated by {evaluator}" if evaluator else "not evaluated"
    return evaluation.unscored or f"{evaluation.evaluator}: no score for {agent}"


def _outcome_values(outcome: OutcomeResult | None, seat: int) -> dict[str, float]:
    if outcome is None:
        return {}
    return {SUCCESS: float(outcome.agreed), SHARE: outcome.shares[seat], EFFICIENCY: outcome.efficiency}


def _words(episode: Episode, agent: str) -> dict[str, float]:
    actions = [item.turn.action for item in episode.turns if item.turn.actor == agent]
    if not actions:
        return {}
    spoken = sum(len(a.argument.split()) for a in actions if a.action_type is ActionType.SPEAK)
    return {WORDS: spoken / len(actions)}
