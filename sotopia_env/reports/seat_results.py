"""Episodes as rows, one per seat: which policy sat there, with whom, and what one evaluator made of it.

Scores of different evaluators are different quantities. All rows of one call are therefore by one evaluator
(:func:`choose_evaluator`), never by whichever happened to come last.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.records import canonical_json
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import TurnOrder
from sotopia_env.world.episode import Episode, Evaluation, OutcomeResult
from sotopia_env.world.reward import DIMENSIONS

OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS = "overall", "success", "surplus_share", "efficiency", "words_per_turn"
METRICS: tuple[str, ...] = (*(d.value for d in DIMENSIONS), OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS)
"""What can be compared: the seven dimensions and their mean (native ranges); for verified families the rate of
agreement, the seat's share of the surplus (0 at disagreement, 1 at its best) and the joint efficiency; and how many
words a seat spoke per turn of its own."""


@dataclass(frozen=True, slots=True)
class SeatResult:
    """One seat of one episode, as the policy in it did.

    Attributes:
        seats: how many seats the episode has.
        seated: name and parameters (as JSON) of the policy in every seat.
        first: whether the seat acted first.
        by_order: whether the first to act has an advantage or burden of its own: in round-robin order.
        family: the procedural family, ``None`` for a task without a verified outcome.
        values: metric to value; a metric that does not apply or was not scored is absent.
        unscored: why there are no scores, ``None`` when there are.
        outcome_by: the evaluator that read the verified outcome, ``None`` where there is none.
        policy: label of the policy in the seat.
        partner: label of the policies in the others, joined by ``+`` when they differ.
    """

    key: str
    task: str
    scenario: str
    seed: int
    seat: int
    seats: int
    seated: tuple[tuple[str, str], ...]
    first: bool
    by_order: bool
    family: str | None
    values: Mapping[str, float]
    unscored: str | None
    outcome_by: str | None = None
    policy: str = ""
    partner: str = ""


def choose_evaluator(
    counts: Mapping[str, int],
    episodes: int,
    wanted: str | None = None,
    preferred: Iterable[str] = (),
    setting: str = "--evaluator",
) -> str | None:
    """Returns the one evaluator whose scores are compared; ``None`` when no episode has been evaluated.

    Args:
        counts: in how many episodes there is an evaluation by each evaluator.
        episodes: how many episodes there are.
        wanted: the evaluator that was asked for; by default one that all episodes share.
        preferred: evaluators the runs were configured with; they decide between several that all episodes share.
        setting: where the user names one; for the message.

    Raises:
        UnknownNameError: no episode has an evaluation by ``wanted``.
        InvalidValueError: the episodes share no evaluator, or several and none is preferred.
    """
    if wanted is not None:
        if wanted not in counts:
            raise UnknownNameError(f"evaluator: {name_hint(wanted, sorted(counts))}")
        return wanted
    if not counts:
        return None
    shared = sorted(name for name, count in counts.items() if count == episodes)
    favourites = sorted(set(shared) & set(preferred))
    for names in (shared, favourites):
        if len(names) == 1:
            return names[0]
    found = ", ".join(f"{name!r} ({count} of {episodes} episodes)" for name, count in sorted(counts.items()))
    many = "several evaluators" if shared else "no evaluator"
    raise InvalidValueError(
        f"evaluator: scores by different evaluators cannot be mixed, and the episodes share {many}: {found}; "
        f"name one with {setting}, or evaluate the rest with `sotopia evaluate RUN --evaluator NAME`"
    )


def seat_results(episodes: Iterable[Episode], evaluator: str | None = None) -> list[SeatResult]:
    """Returns one row per seat and episode; policies of one name with different parameters get different labels.

    Args:
        episodes: from one or several runs; an episode that occurs twice is an error.
        evaluator: whose scores to use; by default the one that all episodes share (:func:`choose_evaluator`). A
            verified outcome by another evaluator is used where this one read none.

    Raises:
        InvalidValueError: no episodes, two records of one episode, a seat without a recorded policy, or no evaluator
            that all episodes share.
        UnknownNameError: no episode has an evaluation by ``evaluator``.
    """
    return rows_by_one(episodes, evaluator)[1]


def rows_by_one(
    episodes: Iterable[Episode], wanted: str | None, preferred: Callable[[], Iterable[str]] = tuple
) -> tuple[str | None, list[SeatResult]]:
    """Returns the evaluator that was chosen, and the rows as :func:`seat_results`; the episodes are read once."""
    read: list[Mapping[str | None, tuple[SeatResult, ...]]] = []
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for episode in episodes:
        if episode.key in seen:
            raise InvalidValueError(f"episode {episode.key!r} occurs twice; is a run named twice?")
        seen.add(episode.key)
        names = {evaluation.evaluator for evaluation in episode.evaluations}
        counts.update(names)
        asked: Iterable[str | None] = names if wanted is None else (wanted,)
        read.append({name: tuple(_seats(episode, name)) for name in asked or (None,)})
    if not read:
        raise InvalidValueError("nothing to compare: expected at least one episode, got none")
    chosen = choose_evaluator(counts, len(read), wanted, preferred())
    return chosen, _labelled([row for rows in read for row in rows[chosen]])


def _labelled(rows: Sequence[SeatResult]) -> list[SeatResult]:
    """Replaces identities by labels: the name where it is enough, name and parameters where it is not."""
    variants: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        variants[row.seated[row.seat][0]].add(row.seated[row.seat][1])
    labelled = []
    for row in rows:
        labels = [name if len(variants[name]) == 1 else f"{name} {parameters}" for name, parameters in row.seated]
        partners = {label for seat, label in enumerate(labels) if seat != row.seat}
        labelled.append(replace(row, policy=labels[row.seat], partner="+".join(sorted(partners))))
    return labelled


def _seated(episode: Episode) -> tuple[tuple[str, str], ...]:
    policies = {info.agent: (info.name, canonical_json(info.parameters)) for info in episode.policies}
    if set(policies) != set(episode.task.agents):
        raise InvalidValueError(
            f"episode {episode.key!r}: expected a policy for each of {', '.join(episode.task.agents)}, "
            f"got {', '.join(policies) or 'none'}"
        )
    return tuple(policies[agent] for agent in episode.task.agents)


def _seats(episode: Episode, evaluator: str | None) -> Iterator[SeatResult]:
    evaluation = None if evaluator is None else episode.evaluation(evaluator)
    outcome_by, outcome = _outcome(episode, evaluator)
    seated = _seated(episode)
    for seat, agent in enumerate(episode.task.agents):
        scores = _scores(evaluation, agent)
        yield SeatResult(
            key=episode.key,
            task=episode.task.id,
            scenario=episode.task.scenario.id,
            seed=episode.seed,
            seat=seat,
            seats=len(seated),
            seated=seated,
            first=bool(episode.turns) and episode.turns[0].turn.actor == agent,
            by_order=bool(episode.turns) and episode.rules.turn_order is TurnOrder.ROUND_ROBIN,
            family=episode.task.scenario.outcome.family if episode.task.scenario.outcome else None,
            values={**scores, **_outcome_values(outcome, seat), **_words(episode, agent)},
            unscored=None if scores else _why_unscored(evaluation, evaluator, agent),
            outcome_by=outcome_by,
        )


def _outcome(episode: Episode, evaluator: str | None) -> tuple[str | None, OutcomeResult | None]:
    """The outcome that the evaluator read, or else the latest that another one read: it is a fact, not an opinion."""
    found = [(e.evaluator, e.outcome) for e in episode.evaluations if e.outcome is not None]
    own = [item for item in found if item[0] == evaluator]
    return (own or found)[-1] if found else (None, None)


def _scores(evaluation: Evaluation | None, agent: str) -> dict[str, float]:
    if evaluation is None or evaluation.unscored is not None:
        return {}
    by_dimension = evaluation.by_agent.get(agent, {})
    scores = {d.value: float(by_dimension[d].value) for d in DIMENSIONS if d in by_dimension}
    if len(scores) == len(DIMENSIONS):
        scores[OVERALL] = math.fsum(scores.values()) / len(DIMENSIONS)
    return scores


def _why_unscored(evaluation: Evaluation | None, evaluator: str | None, agent: str) -> str:
    if evaluation is None:
        return f"not evaluated by {evaluator}" if evaluator else "not evaluated"
    return evaluation.unscored or f"{evaluation.evaluator}: no score for {agent}"


def _outcome_values(outcome: OutcomeResult | None, seat: int) -> dict[str, float]:
    if outcome is None:
        return {}
    return {SUCCESS: float(outcome.agreement), SHARE: outcome.shares[seat], EFFICIENCY: outcome.efficiency}


def _words(episode: Episode, agent: str) -> dict[str, float]:
    actions = [item.turn.action for item in episode.turns if item.turn.actor == agent]
    if not actions:
        return {}
    spoken = sum(len(a.argument.split()) for a in actions if a.action_type is ActionType.SPEAK)
    return {WORDS: spoken / len(actions)}


__all__ = ["METRICS", "SeatResult", "choose_evaluator", "rows_by_one", "seat_results"]
