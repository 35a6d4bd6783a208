"""Episodes as rows, one per seat: the policy, its partners, and the scores by one evaluator.

Scores by different evaluators are different quantities, so all rows of a call have scores by the same evaluator
(:func:`choose_evaluator`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.json_text import canonical_json, decode_json
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.reports.intervals import UNBOUNDED, Bounds
from sotopia_env.reports.turn_counts import TurnCounts, count_turns
from sotopia_env.storage.evaluator_names import Parameters, evaluator_labels, recorded_evaluator
from sotopia_env.storage.recordings import PlayKey, recordings
from sotopia_env.world.action import ActionType
from sotopia_env.world.answers import participant_of, settings_of
from sotopia_env.world.episode import VERIFIED, Episode, Evaluation
from sotopia_env.world.reward import DIMENSIONS, HIGH, LOW, RANGES, Dimension
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS = "overall", "success", "surplus_share", "efficiency", "words_per_turn"
_BOUNDS: Mapping[str, Bounds] = {
    **{d.value: RANGES[d] for d in DIMENSIONS},
    OVERALL: (float(LOW.mean(dtype=float)), float(HIGH.mean(dtype=float))),
    SUCCESS: (0, 1),
    SHARE: UNBOUNDED,  # above 1 if an agreement gives a partner less than no agreement would
    EFFICIENCY: (-math.inf, 1),
    WORDS: (0, math.inf),
}
NOT_SCORED = (SUCCESS, SHARE, EFFICIENCY, WORDS)
"""Metrics that follow from the episode itself, so a seat has them even if no evaluator scored it."""
METRICS: tuple[str, ...] = tuple(_BOUNDS)
"""The metrics of a comparison: the seven dimensions and their mean, in native ranges; for verified families the
agreement rate, the seat's share of the surplus (0 for disagreement, 1 for its best outcome) and the joint efficiency;
and the seat's spoken words per own turn. Custom dimensions are metrics too."""
FACTORS: tuple[str, ...] = ("tag", "scenario", "character", "relationship", "condition", "participant", "role")
"""The properties by which seats can be grouped into levels."""
_VERIFIED_HEADLINES = ("goal", SHARE, SUCCESS, OVERALL)
_JUDGED_HEADLINES = (OVERALL, "goal", SHARE, SUCCESS)


@dataclass(frozen=True, slots=True)
class SeatResult:
    """The result of one seat of one episode.

    Attributes:
        content: the hash of the task's content.
        rules: the rules of the episode that are not the task, with the limit that holds, as JSON; not the order, which
            is ``first``.
        seats: the number of seats of the episode.
        policies: the name and the parameters (as JSON) of the policy in every seat.
        first: whether the seat acted first.
        by_order: whether seats act in round-robin order, in which acting first may matter.
        family: the procedural family, or the protocol's kind (``agreement``, …) if the task is not of a family;
            ``None`` for a task without an outcome.
        values: the value of each metric; a metric that does not apply or was not scored is absent.
        custom: the ranges of the custom dimensions in ``values``.
        scored_by: the label of the evaluator, with the options that tell it from others of its name.
        unscored: why the seat has no scores; ``None`` if it has.
        outcome_by: the evaluator that computed the verified outcome; ``None`` without one.
        verified: whether the GOAL in ``values`` was computed from the moves.
        policy: the label of the policy in the seat.
        partner: the labels of the policies in the other seats, joined by ``+`` if they differ.
        vignette: the vignette that the scenario is a version of; see :attr:`~sotopia_env.world.Scenario.vignette`.
        casting: the names of the characters, in seat order: the same names are the same people.
        conditions: the conditions of the scenario; see :attr:`~sotopia_env.world.Scenario.conditions`.
        levels: the levels of each of :data:`FACTORS` that the seat belongs to.
        participant: the code of the person in the seat; empty for other policies.
        people: the codes of all people in the episode, sorted: each affects the results of all seats.
        failed: whether the episode failed, so that it has no values at all.
        counts: the counts of the seat's turns.
    """

    key: str
    task: str
    content: str
    rules: str
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
    verified: bool = False
    policy: str = ""
    partner: str = ""
    custom: Mapping[str, Bounds] = field(default_factory=dict)
    vignette: str = ""
    casting: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    participant: str = ""
    people: tuple[str, ...] = ()
    failed: bool = False
    scored_by: str = ""
    counts: TurnCounts = TurnCounts()  # noqa: RUF009 - frozen


def shared_seat(row: SeatResult) -> tuple[object, ...]:
    """The properties that two seats must share for their results to differ only by the policy and by chance."""
    return (row.content, row.rules, row.seat, row.partner)


def lacks(row: SeatResult, metric: str) -> bool:
    """Returns whether the metric is missing: it does not apply to a seat that was scored and has no value."""
    return metric not in row.values and (row.failed if metric in NOT_SCORED else row.unscored is not None)


def metric_bounds(rows: Iterable[SeatResult]) -> Mapping[str, Bounds]:
    """Returns the range of every metric: those of :data:`METRICS`, then the custom dimensions of the rows.

    Raises:
        InvalidValueError: a custom dimension has different ranges in different episodes.
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
    parameters: Parameters | None = None,
) -> str | None:
    """Returns the one evaluator whose scores are compared; ``None`` if no episode has been evaluated.

    Args:
        counts: the number of episodes with an evaluation by each evaluator.
        episodes: the total number of episodes.
        evaluator: the user's choice, by its recorded name or the name in the run's configuration (``judge:MODEL``,
            with options to choose among several of one model); by default one that all episodes share.
        defaults: the evaluators of the runs' configurations, preferred if all episodes share several.
        setting: the name of the user's setting, for the error message.
        members: evaluators whose scores another one combines; the combining evaluator is preferred to them.
        parameters: the parameters of the evaluators, by which options are matched and named.

    Raises:
        UnknownNameError: no episode has an evaluation by ``evaluator``.
        InvalidValueError: the episodes share no evaluator, or several and no default decides.
    """
    if evaluator is not None:
        return recorded_evaluator(evaluator, counts, parameters)
    if not counts:
        return None
    common = sorted(name for name, count in counts.items() if count == episodes)
    # The only evaluator, the only configured one, or the only one that is not a member of another.
    for names in (common, sorted(set(common) & set(defaults)), sorted(set(common) - set(members))):
        if len(names) == 1:
            return names[0]
    labels = evaluator_labels(sorted(counts), parameters or {})
    listing = ", ".join(f"{label!r} ({counts[name]} of {episodes} episodes)" for name, label in labels.items())
    many = "several evaluators" if common else "no evaluator"
    raise InvalidValueError(
        f"scores by different evaluators cannot be mixed, and the episodes share {many}: {listing}",
        field="evaluator",
        hint=f"name one with {setting}, or evaluate the rest with `sotopia evaluate RUN --evaluator NAME`",
    )


def seat_results(episodes: Iterable[Episode], evaluator: str | None = None) -> list[SeatResult]:
    """Returns one row per seat and episode; policies of one name with different parameters get different labels.

    Args:
        episodes: episodes from one or several runs; two records of one episode count once.
        evaluator: the evaluator whose scores to use; by default the one that all episodes share
            (:func:`choose_evaluator`). If it did not compute a verified outcome, another evaluator's is used.

    Raises:
        InvalidValueError: there are no episodes, a seat has no recorded policy, or the episodes do not share one
            evaluator.
        UnknownNameError: no episode has an evaluation by ``evaluator``.
    """
    return rows_by_one(episodes, evaluator)[1]


def rows_by_one(
    episodes: Iterable[Episode], evaluator: str | None, defaults: Callable[[], Iterable[str]] = tuple
) -> tuple[str | None, list[SeatResult]]:
    """Returns the evaluator of :func:`choose_evaluator` and the rows of :func:`seat_results`.

    Episodes are read once and not stored, because a run may not fit into memory. As the choice needs all of them, rows
    by every evaluator that may be chosen are built meanwhile.
    """
    plays: dict[PlayKey, dict[str | None, tuple[SeatResult, ...]]] = {}
    counts: Counter[str] = Counter()
    members: set[str] = set()
    parameters: dict[str, Mapping[str, Any]] = {}
    for play, episode, _, names in recordings(episodes):
        counts.update(names)
        members.update(name for evaluation in episode.evaluations for name in evaluation.members)
        parameters.update({evaluation.evaluator: evaluation.parameters for evaluation in episode.evaluations})
        # If no recorded name equals the user's, any of them may match it without its options.
        candidates: Iterable[str | None] = names if evaluator is None else names & {evaluator} or names
        rows = plays.setdefault(play, {None: tuple(_seats(episode, evaluator))})
        rows.update({name: tuple(_seats(episode, name)) for name in candidates})
    if not plays:
        raise InvalidValueError(field="episodes", expected="at least one to compare")
    choice = choose_evaluator(counts, len(plays), evaluator, defaults(), members=members, parameters=parameters)
    label = evaluator_labels(counts, parameters).get(choice or "", "")
    own = (row for rows in plays.values() for row in rows.get(choice, rows[None]))
    return choice, with_labels([replace(row, scored_by=label) for row in own])


def with_labels(rows: Sequence[SeatResult]) -> list[SeatResult]:
    """Returns the rows with ``policy`` and ``partner`` filled in; a label depends on all policies of the same name."""
    label_of = policy_labels(row.policies[row.seat] for row in rows)
    results = []
    for row in rows:
        labels = [label_of[policy] for policy in row.policies]
        partners = {label for seat, label in enumerate(labels) if seat != row.seat}
        results.append(replace(row, policy=labels[row.seat], partner="+".join(sorted(partners))))
    return results


def policy_labels(policies: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Returns a label for each policy: its name, and the parameters in which policies of this name differ.

    Args:
        policies: pairs of a name and parameters as JSON.
    """
    variants: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, text in policies:
        variants.setdefault(name, {})[text] = decode_json(text)
    return {
        (name, text): f"{name}{_unlike(parameters, list(others.values()))}"
        for name, others in variants.items()
        for text, parameters in others.items()
    }


def _unlike(parameters: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> str:
    """The parameters that differ between variants, in the syntax of policy names; empty for a single variant."""
    keys = sorted({key for item in variants for key in item})
    unlike = [key for key in keys if any(item.get(key, ...) != variants[0].get(key, ...) for item in variants)]
    own = {key: parameters[key] for key in unlike if key in parameters}
    parts = [f"{key}={value if isinstance(value, str) else canonical_json(value)}" for key, value in own.items()]
    return f":{','.join(parts)}" if parts else ""


def seated_policies(episode: Episode) -> tuple[tuple[str, str], ...]:
    """Returns the name and the settings (as JSON) of the policy in every seat; all people count as one policy.

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
    rules = _rules(episode)
    for seat, agent in enumerate(episode.task.agents):
        scores = _scores(evaluation, agent)
        yield SeatResult(
            key=episode.key,
            task=episode.task.id,
            content=episode.task.content_hash,
            rules=rules,
            scenario=episode.task.scenario.id,
            seed=episode.seed,
            seat=seat,
            seats=len(policies),
            policies=policies,
            first=bool(episode.turns) and episode.turns[0].turn.actor == agent,
            by_order=bool(episode.turns) and episode.rules.turn_order is TurnOrder.ROUND_ROBIN,
            family=_family(episode.task),
            values={**scores, **_outcome_values(outcome, seat), **_words(episode, agent)},
            # Partial scores count: a seat is unscored only if it has no score at all.
            unscored=None if scores else unscored_reason(evaluation, evaluator, agent),
            outcome_by=outcome_by,
            verified="goal" in scores and _is_verified(evaluation, agent),
            custom={} if evaluation is None else {d.name: (d.low, d.high) for d in evaluation.dimensions},
            vignette=episode.task.scenario.vignette,
            casting=", ".join(episode.task.names.values()),
            conditions=episode.task.scenario.conditions,
            levels=_levels(episode.task, seat) | {"participant": (people[agent],) if people[agent] else ()},
            participant=people[agent],
            people=tuple(sorted({*filter(None, people.values())})),
            counts=count_turns(item for item in episode.turns if item.turn.actor == agent),
        )


def _rules(episode: Episode) -> str:
    """The rules that hold: a limit that was set equals the same limit of the scenario."""
    silence = episode.rules.silence_limit(len(episode.task.agents))
    limits = {"max_turns": episode.rules.turn_limit(episode.task), "max_silent_turns": silence}
    return canonical_json({**asdict(episode.rules), **limits, "first_seat": 0})


def _levels(task: Task, seat: int) -> dict[str, tuple[str, ...]]:
    scenario = task.scenario
    condition = ", ".join(f"{name}={value}" for name, value in sorted(scenario.conditions.items()))
    role = scenario.role_of(f"agent_{seat}")
    kinds = {relationship.kind.value for _, relationship in task.relationships_of(seat)}
    return {
        "tag": tuple(dict.fromkeys(scenario.tags)),
        "scenario": (scenario.id,),
        "character": (task.characters[seat].name,),
        "relationship": ("+".join(sorted(kinds)),),
        "condition": (condition,) if condition else (),
        "role": (role,) if role else (),
    }


def _family(task: Task) -> str | None:
    """The task's procedural family, or the kind of its protocol if it does not name a family."""
    spec = task.scenario.outcome
    return None if spec is None else str(task.scenario.shared_data.get("family", spec.protocol.kind))


def _outcome(episode: Episode, evaluator: str | None) -> tuple[str | None, OutcomeResult | None]:
    """The evaluator's own outcome, or else the latest one: all evaluators compute the same outcome from the moves."""
    outcomes = [(e.evaluator, e.outcome) for e in episode.evaluations if e.outcome is not None]
    own = [item for item in outcomes if item[0] == evaluator]
    return (own or outcomes)[-1] if outcomes else (None, None)


def _scores(evaluation: Evaluation | None, agent: str) -> dict[str, float]:
    if evaluation is None or evaluation.unscored is not None:
        return {}
    by_dimension = evaluation.by_agent.get(agent, {})
    scores = {d.value: float(by_dimension[d].value) for d in DIMENSIONS if d in by_dimension}
    # The mean of fewer dimensions would not be comparable.
    if len(scores) == len(DIMENSIONS):
        scores[OVERALL] = math.fsum(scores.values()) / len(DIMENSIONS)
    return scores | {d.name: float(by_dimension[d.name].value) for d in evaluation.dimensions if d.name in by_dimension}


def _is_verified(evaluation: Evaluation | None, agent: str) -> bool:
    score = None if evaluation is None else evaluation.by_agent.get(agent, {}).get(Dimension.GOAL)
    return score is not None and score.source == VERIFIED


def headlines(rows: Iterable[SeatResult]) -> tuple[str, ...]:
    """Returns the metrics with values that reports show first; policies are ranked by the first of them.

    It is the GOAL score if all of them were computed from the moves, else the mean of the seven dimensions if a judge
    scored all.
    """
    rows = list(rows)
    present = {name for row in rows for name in row.values}
    goals = [row.verified for row in rows if "goal" in row.values]
    names = _VERIFIED_HEADLINES if goals and all(goals) else _JUDGED_HEADLINES
    return tuple(name for name in names if name in present)


def unscored_reason(evaluation: Evaluation | None, evaluator: str | None, agent: str) -> str:
    """Returns why ``evaluation``, by ``evaluator``, does not contain a score for ``agent``."""
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
    words = sum(len(a.argument.split()) for a in actions if a.action_type is ActionType.SPEAK)
    return {WORDS: words / len(actions)}
