"""A recorded episode as text for a person to read."""

from __future__ import annotations

from collections.abc import Iterator

from sotopia_env.dynamics import TurnOrder
from sotopia_env.episode import Episode, Evaluation, RecordedTurn
from sotopia_env.observation import render_turn
from sotopia_env.reward import ABBREVIATIONS, DIMENSIONS
from sotopia_env.terminal import printable

__all__ = ["printable", "to_text"]


def to_text(episode: Episode) -> str:
    """Returns situation, seats with policies and goals, every turn (private ones say so), end and scores."""
    lines = [
        f"episode {episode.key}  task {episode.task.id}  seed {episode.seed}",
        "",
        episode.task.scenario.context,
        "",
    ]
    lines += [*_seats(episode), "", *_turns(episode), "", f"Ended: {_end(episode)}"]
    for evaluation in episode.evaluations:
        lines += ["", *_verdict(episode, evaluation)]
    return printable("\n".join(lines)) + "\n"


def _end(episode: Episode) -> str:
    return "not yet" if episode.stop is None else episode.stop.value


def _seats(episode: Episode) -> Iterator[str]:
    policies = {info.agent: info.name for info in episode.policies}
    for agent, seat in zip(episode.task.agents, episode.task.scenario.seats, strict=True):
        yield f"{agent}: {episode.task.names[agent]}, policy {policies.get(agent, 'unknown')}"
        yield from (f"  goal: {goal}" for goal in seat.goals)


def _turns(episode: Episode) -> Iterator[str]:
    by_round = episode.rules.turn_order is TurnOrder.SIMULTANEOUS
    for item in episode.turns:
        yield render_turn(item.turn, episode.task.names, by_round).rstrip("\n") + _remarks(item)


def _remarks(item: RecordedTurn) -> str:
    failure = item.generation.parse_failure if item.generation else None
    found = [("not possible", item.turn.violation), ("not an action", failure)]
    return "".join(f"  ({what}: {why})" for what, why in found if why)


def _verdict(episode: Episode, evaluation: Evaluation) -> Iterator[str]:
    yield f"Scores by {evaluation.evaluator}:"
    if evaluation.unscored is not None:
        yield f"  unscored: {evaluation.unscored}"
    for agent, scores in evaluation.by_agent.items():
        shown = "  ".join(f"{ABBREVIATIONS[d]} {scores[d].value:g}" for d in DIMENSIONS if d in scores)
        yield f"  {episode.task.names[agent]}: {shown}"
    if evaluation.outcome is not None:
        shares = ", ".join(f"{share:.2f}" for share in evaluation.outcome.shares)
        yield f"  outcome: {evaluation.outcome.reason} (shares of the surplus by seat: {shares})"
