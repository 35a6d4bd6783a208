"""A recorded episode as text for a person to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sotopia_env.world.dynamics import Rules, TurnOrder
from sotopia_env.world.episode import Episode, Evaluation, RecordedTurn, Score
from sotopia_env.world.observation import render_turn
from sotopia_env.world.quoting import printable
from sotopia_env.world.reward import ABBREVIATIONS, DIMENSIONS
from sotopia_env.world.scenario import Task

__all__ = ["beginning", "conclusion", "printable", "to_text", "turn_text"]


def to_text(episode: Episode) -> str:
    """Returns situation, seats with policies and goals, every turn (private ones say so), end and scores.

    Beside a turn stands what was wrong with it: an action that was not possible, text that was no action, how often
    the policy was asked again, turns that did not fit its model. Under a score stands the judge's reasoning.
    """
    policies = {info.agent: info.name for info in episode.policies}
    lines = [beginning(episode.key, episode.task, episode.seed, policies), ""]
    lines += [turn_text(item, episode.task, episode.rules) for item in episode.turns]
    return printable("\n".join([*lines, "", conclusion(episode)])) + "\n"


def beginning(key: str, task: Task, seed: int, policies: Mapping[str, str]) -> str:
    """Returns situation, and seats with policies and goals, not yet fit for a terminal."""
    lines = [f"episode {key}  task {task.id}  seed {seed}", "", task.scenario.context, ""]
    for agent, seat in zip(task.agents, task.scenario.seats, strict=True):
        lines.append(f"{agent}: {task.names[agent]}, policy {policies.get(agent, 'unknown')}")
        lines += [f"  goal: {goal}" for goal in seat.goals]
    return "\n".join(lines)


def turn_text(item: RecordedTurn, task: Task, rules: Rules) -> str:
    """Returns one turn with what was wrong with it, not yet fit for a terminal."""
    by_round = rules.turn_order is TurnOrder.SIMULTANEOUS
    remarks = "".join(f"  ({remark})" for remark in _remarks(item))
    return render_turn(item.turn, task.names, by_round).rstrip("\n") + remarks


def _remarks(item: RecordedTurn) -> Iterator[str]:
    if item.turn.violation:
        yield f"not possible: {item.turn.violation}"
    said = item.generation
    if said is None:
        return
    if said.parse_failure:
        yield f"not an action: {said.parse_failure}"
    if said.reasks:
        yield f"asked again {said.reasks} times" if said.reasks > 1 else "asked again once"
    if said.dropped_turns:
        yield f"without the {said.dropped_turns} oldest turns, which did not fit"


def conclusion(episode: Episode) -> str:
    """Returns the end and every evaluation, not yet fit for a terminal."""
    lines = [f"Ended: {'not yet' if episode.stop is None else episode.stop.value}"]
    for evaluation in episode.evaluations:
        lines += ["", *_verdict(episode, evaluation)]
    return "\n".join(lines)


def _verdict(episode: Episode, evaluation: Evaluation) -> Iterator[str]:
    yield f"Scores by {evaluation.evaluator}:"
    if evaluation.unscored is not None:
        yield f"  unscored: {evaluation.unscored}"
    for agent, scores in evaluation.by_agent.items():
        shown = "  ".join(f"{ABBREVIATIONS[d]} {scores[d].value:g}" for d in DIMENSIONS if d in scores)
        own = "  ".join(f"{name} {score.value:g}" for name, score in scores.items() if name not in DIMENSIONS)
        yield f"  {episode.task.names[agent]}: {'  '.join(part for part in (shown, own) if part)}"
        yield from (f"    {_name(score)}: {_flat(score)}" for score in scores.values() if score.reasoning)
    if evaluation.outcome is not None:
        shares = ", ".join(f"{share:.2f}" for share in evaluation.outcome.shares)
        yield f"  outcome: {evaluation.outcome.reason} (shares of the surplus by seat: {shares})"
    if evaluation.comment:
        yield f"  {' '.join(evaluation.comment.split())}"


def _name(score: Score) -> str:
    known = next((ABBREVIATIONS[d] for d in DIMENSIONS if d == score.dimension), None)
    return known or str(score.dimension)


def _flat(score: Score) -> str:
    """The reasoning on one line, so that none can pass for a turn or for a score; with the judges' spread."""
    spread = f" (spread {score.spread:g})" if score.spread else ""
    return " ".join(score.reasoning.split()) + spread
