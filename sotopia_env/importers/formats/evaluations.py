"""Conversion of SOTOPIA's rewards and reasoning to evaluations, and back.

SOTOPIA stores a failed evaluation as a bare number or omits it; here it is *unscored*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.world.episode import Evaluation, Score
from sotopia_env.world.reward import DIMENSIONS, Dimension, check_score
from sotopia_env.world.scenario import Task

IMPORTED = "imported"
_OVERALL = "overall_score"


def evaluation_of(rewards: Sequence[Any] | None, reasoning: str, judge: str, seats: int) -> Evaluation:
    """Returns the evaluation in an episode's rewards; without scores it is unscored, with the reason.

    Args:
        rewards: one per seat: ``[overall, {dimension: score}]``, or a bare number if the evaluation failed.
        reasoning: the evaluator's text: a comment, and blocks of ``dimension: text`` for each agent.
        judge: name of the evaluator's model; empty if unknown.
        seats: number of seats in the episode.

    Raises:
        DamagedRecordError: there is not one reward per seat, or a score is out of its range.
    """
    name = f"{IMPORTED}:{judge}" if judge else IMPORTED
    comment, texts = reasoning_of(reasoning, seats)
    if not rewards:
        return Evaluation(evaluator=name, unscored="the file contains no rewards", comment=reasoning)
    if len(rewards) != seats:
        raise DamagedRecordError(field="rewards", expected=f"{seats}, one per agent", got=len(rewards))
    scores = [score for seat in range(seats) for score in _scores(rewards[seat], seat, texts[seat], name)]
    if not scores:
        # The reference code writes a bare 0.0 when an evaluation failed; it must not become a score of 0.
        why = "the file contains bare rewards without scores, which mean that the evaluation failed"
        return Evaluation(evaluator=name, unscored=why, comment=reasoning)
    return Evaluation(evaluator=name, scores=tuple(scores), comment=comment)


def _scores(reward: Any, seat: int, texts: Mapping[str, str], source: str) -> Iterator[Score]:
    if reward is None or isinstance(reward, int | float):
        return
    if not (isinstance(reward, list) and len(reward) == 2 and isinstance(reward[1], dict)):
        expected = "[overall, {dimension: score}], or a number for an evaluation that failed"
        raise DamagedRecordError(field=f"rewards.{seat}", expected=expected, got=reward)
    for dimension in DIMENSIONS:
        value = reward[1].get(dimension.value)
        if value is None:
            continue
        field = f"rewards.{seat}.1.{dimension.value}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DamagedRecordError(field=field, expected="a number", got=value)
        try:
            check_score(dimension, value)
        except InvalidValueError as error:
            raise DamagedRecordError.of(error, within=f"rewards.{seat}.1") from None
        reason = texts.get(dimension.value, "")
        yield Score(agent=f"agent_{seat}", dimension=dimension, value=value, reasoning=reason, source=source)


_COMMENT = "Environment comments: "


def reasoning_of(text: str, seats: int) -> tuple[str, list[dict[str, str]]]:
    """Returns the comment on the episode and, for each seat, the reasoning by dimension."""
    # A heading must be a line of its own, and the seats follow in order: reasoning may quote another heading.
    blocks: list[str] = []
    rest = text
    for seat in range(seats):
        before, head, after = rest.partition(f"\n{_heading(seat)}\n")
        if not head:
            break
        blocks, rest = [*blocks, before], after
    if not blocks:
        return text, [{} for _ in range(seats)]
    texts = [_by_dimension(block) for block in (*blocks[1:], rest)]
    return blocks[0].removeprefix(_COMMENT), [*texts, *({} for _ in range(seats - len(texts)))]


def _heading(seat: int) -> str:
    return f"Agent {seat + 1} comments:"


def _by_dimension(block: str) -> dict[str, str]:
    """The texts of a block by dimension; a text may have several lines and ends where the next dimension's begins."""
    texts: dict[str, str] = {}
    field = ""
    for line in block.removesuffix("\n").split("\n"):
        head, colon, rest = line.partition(": ")
        if colon and head in {d.value for d in DIMENSIONS} and head not in texts:
            field, texts[head] = head, rest
        elif field:
            texts[field] += f"\n{line}"
    return texts


def reasoning_text(evaluation: Evaluation, task: Task) -> str:
    """Returns an evaluation's comment and reasoning as one text."""
    if evaluation.unscored is not None:
        return evaluation.comment
    lines = [f"{_COMMENT}{evaluation.comment}"]
    for seat, agent in enumerate(task.agents):
        scores = evaluation.by_agent.get(agent, {})
        lines += [_heading(seat), *(f"{d.value}: {s.reasoning}" for d, s in scores.items() if isinstance(d, Dimension))]
    return "\n".join([*lines, ""])


def rewards_of(evaluation: Evaluation | None, task: Task) -> list[Any]:
    """Returns the rewards of an evaluation, one per seat: a bare number where there are no scores."""
    by_agent = {} if evaluation is None or evaluation.unscored is not None else evaluation.by_agent
    return [_reward(by_agent.get(agent, {})) for agent in task.agents]


def _reward(scores: Mapping[Dimension | str, Score]) -> Any:
    values = {d.value: scores[d].value for d in DIMENSIONS if d in scores}
    if not values:
        return 0.0
    # The published overall score is the mean of all seven dimensions; of fewer it would not be comparable.
    overall = math.fsum(values.values()) / len(DIMENSIONS) if len(values) == len(DIMENSIONS) else None
    return [overall, values | {_OVERALL: overall}]
