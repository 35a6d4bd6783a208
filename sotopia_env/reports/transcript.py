"""Readable texts of recorded episodes, and of episodes that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sotopia_env.foundation.quoting import escape, escape_line, quote
from sotopia_env.outcomes.descriptions import describe_space, describe_worth
from sotopia_env.outcomes.facts import Facts
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.action import ActionType, move_json
from sotopia_env.world.answers import participant_of
from sotopia_env.world.dynamics import Rules, Turn
from sotopia_env.world.episode import Episode, EpisodeError, Evaluation, RecordedTurn, Score
from sotopia_env.world.observation import render_turn
from sotopia_env.world.perception.rendering import indented
from sotopia_env.world.reward import ABBREVIATIONS, DIMENSIONS
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import act_labels, social_acts


def to_text(episode: Episode) -> str:
    """Returns the situation, the seats with policies and goals, every turn, the end and the scores.

    Private turns are marked, and the effect of a move follows its words. A turn has remarks on its problems: an
    impossible action, a move that did not count, text that is not an action, the number of re-asks, turns that did not
    fit into the model's context, and failed calls with their reasons; and the classes of its statements
    (:mod:`~sotopia_env.world.social_acts`). The judge's reasoning is below each score, and
    the reason below an evaluation that failed.
    """
    policies = {info.agent: " ".join(filter(None, (info.name, participant_of(info)))) for info in episode.policies}
    lines = [beginning(episode.key, episode.task, episode.seed, policies), ""]
    by_round, classes = episode.rules.turn_order.veiled, act_labels(episode.task, episode.plain_turns)
    for item in episode.turns:
        remark = classes.get(item.turn.index, "")
        lines.append(_turn(item, episode.task.names, by_round, episode.errors, remark))
    return escape("\n".join([*lines, "", conclusion(episode)])) + "\n"


def failure_text(failure: FailureRecord) -> str:
    """Returns the turns of an episode that failed, and the turn and the reason of the failure.

    A failure record does not contain the task, so agents are shown by their ids instead of their names.
    """
    policies = {f"agent_{seat}": name for seat, name in enumerate(failure.policies)}
    names = {agent: agent for agent in policies}
    lines = [f"episode {escape_line(failure.key)}  task {escape_line(failure.task)}", ""]
    lines += [*(f"{agent}: policy {escape_line(name)}" for agent, name in policies.items()), ""]
    lines += [_turn(item, names, False, failure.errors) for item in failure.turns]
    reason = f"Failed at turn #{len(failure.turns) + 1}: {failure.kind}: {_one_line(failure.message)}"
    return escape("\n".join([*lines, "", reason])) + "\n"


def beginning(key: str, task: Task, seed: int, policies: Mapping[str, str]) -> str:
    """Returns the situation, the rules, and the seats with policies, goals and worths; not escaped for a terminal."""
    lines = [f"episode {escape_line(key)}  task {task.id}  seed {seed}", "", indented(task.scenario.context), ""]
    spec = task.scenario.outcome
    lines += [] if spec is None else [describe_space(spec, task.names), ""]
    lines += [] if task.scenario.facts is None else [*fact_lines(task, task.scenario.facts), ""]
    for number, (agent, seat) in enumerate(zip(task.agents, task.scenario.seats, strict=True)):
        lines.append(f"{agent}: {task.names[agent]}, policy {escape_line(policies.get(agent, 'unknown'))}")
        lines += [f"  goal: {escape_line(goal)}" for goal in seat.goals]
        lines += [] if spec is None else [f"  worth: {describe_worth(spec, number, task.names)}"]
        lines += [f"  notes from before: {quote(task.notes[agent])}"] if agent in task.notes else []
    return "\n".join(lines)


def fact_lines(task: Task, facts: Facts) -> Iterator[str]:
    """Yields every variable with its true value and who knows it; for researchers."""
    knowledge = {agent: facts.view(agent).knowledge for agent in task.agents}
    for variable in facts.variables:
        names = [task.names[agent] for agent in task.agents if variable.name in knowledge[agent]]
        value = "a choice of the episode" if variable.value is None else variable.value
        yield f"{variable.name} = {value}" + (f" (known to {', '.join(names)})" if names else "")


def act_rows(episodes: Iterable[Episode]) -> Iterator[dict[str, Any]]:
    """Yields a row for each statement, proof and question: episode, turn, speaker, variable, value, audience, class."""
    for episode in episodes:
        policies = {info.agent: info.name for info in episode.policies}
        for act in social_acts(episode.task, episode.plain_turns):
            yield {
                "episode": episode.key,
                "task": episode.task.id,
                "turn": act.turn + 1,
                "agent": act.actor,
                "policy": policies.get(act.actor, ""),
                "kind": act.kind.value,
                "variable": act.variable,
                "value": act.value or "",
                "audience": " ".join(act.audience),
                "private": act.private,
                "classes": " ".join(act.classes),
            }


def turn_text(item: RecordedTurn, task: Task, rules: Rules) -> str:
    """Returns one turn with remarks on its problems; not escaped for a terminal."""
    return _turn(item, task.names, rules.turn_order.veiled)


def _turn(
    item: RecordedTurn,
    names: Mapping[str, str],
    by_round: bool,
    errors: Iterable[EpisodeError] = (),
    classes: str = "",
) -> str:
    own = [error for error in errors if error.turn == item.turn.index]
    every = (*([classes] if classes else []), *_remarks(item), *_failed_calls(own))
    remarks = "".join(f"  ({remark})" for remark in every)
    return render_turn(item.turn, names, by_round).rstrip("\n") + remarks


def _failed_calls(errors: Iterable[EpisodeError]) -> Iterator[str]:
    # A call that is retried fails with the same reason several times; it is listed once with its count.
    reasons = Counter(f"{error.kind}: {_one_line(error.message)}" for error in errors)
    for reason, count in reasons.items():
        yield f"{f'{count} calls' if count > 1 else 'a call'} failed: {reason}"


def _one_line(text: str) -> str:
    """The text without line breaks, so that it cannot imitate a turn or a score."""
    return " ".join(text.split())


def _remarks(item: RecordedTurn) -> Iterator[str]:
    if item.turn.violation:
        yield _violation(item.turn, item.turn.violation)
    generation = item.generation
    if generation is None:
        return
    if generation.parse_failure:
        yield f"not an action: {quote(generation.parse_failure)}"
    if generation.reasks:
        yield f"asked again {generation.reasks} times" if generation.reasks > 1 else "asked again once"
    if generation.dropped_turns:
        yield f"without the {generation.dropped_turns} oldest turns, which did not fit"


def _violation(turn: Turn, reason: str) -> str:
    # `turn.action` is the part that counted; `attempted` still contains the refused move.
    move = turn.attempted.move if turn.attempted is not None else None
    if move is None or turn.action.action_type is ActionType.NONE:
        return f"not possible: {quote(reason)}"
    return f"the move {move_json(move)} did not count: {quote(reason)}"


def conclusion(episode: Episode) -> str:
    """Returns the end and every evaluation; not escaped for a terminal."""
    lines = [f"Ended: {'not yet' if episode.stop is None else episode.stop.value}"]
    for evaluation in episode.evaluations:
        lines += ["", *_verdict(episode, evaluation)]
    return "\n".join(lines)


def _verdict(episode: Episode, evaluation: Evaluation) -> Iterator[str]:
    if evaluation.unscored is None:
        yield f"Scores by {escape_line(evaluation.evaluator)}:"
    else:
        yield f"Not scored by {escape_line(evaluation.evaluator)}: {_one_line(evaluation.unscored)}"
    for agent, scores in evaluation.by_agent.items():
        standard = "  ".join(f"{ABBREVIATIONS[d]} {scores[d].value:g}" for d in DIMENSIONS if d in scores)
        custom = "  ".join(f"{name} {score.value:g}" for name, score in scores.items() if name not in DIMENSIONS)
        yield f"  {episode.task.names[agent]}: {'  '.join(part for part in (standard, custom) if part)}"
        yield from (f"    {_name(score)}: {_flat(score)}" for score in scores.values() if score.reasoning)
    if evaluation.by_agent and 0 < len(evaluation.unmeasured) < len(DIMENSIONS):
        names = ", ".join(ABBREVIATIONS[d] for d in evaluation.unmeasured)
        yield f"  not measured: {names} (a judge scores them: evaluator 'judge:MODEL')"
    if evaluation.outcome is not None:
        shares = ", ".join(f"{share:.2f}" for share in evaluation.outcome.shares)
        yield f"  outcome: {escape_line(evaluation.outcome.reason)} (shares of the surplus by seat: {shares})"
    if evaluation.comment:
        yield f"  {_one_line(evaluation.comment)}"


def _name(score: Score) -> str:
    abbreviation = next((ABBREVIATIONS[d] for d in DIMENSIONS if d == score.dimension), None)
    return abbreviation or str(score.dimension)


def _flat(score: Score) -> str:
    """The reasoning on one line, with the spread of the judges' scores."""
    return _one_line(score.reasoning) + (f" (spread {score.spread:g})" if score.spread else "")
