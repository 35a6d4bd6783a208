"""Interviews that an earlier version recorded: their lines are read, and asking again gives the same numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from sotopia_env.interviews import InterviewEvaluator
from sotopia_env.naming import make_evaluator
from sotopia_env.world.answers import BeliefReply
from sotopia_env.world.episode import read_episodes

EPISODES = list(read_episodes(Path(__file__).with_name("recorded.jsonl")))


@pytest.mark.parametrize("episode", EPISODES, ids=[episode.key for episode in EPISODES])
def test_the_answers_and_scores_are_those_that_were_recorded(episode):
    (before,) = episode.evaluations
    again = asyncio.run(make_evaluator("interview", policies=episode.policies).evaluate(episode))
    assert again.answers == before.answers
    assert len(before.answers) == 14
    assert [(score.agent, score.dimension) for score in again.scores] == [(s.agent, s.dimension) for s in before.scores]
    for score, recorded in zip(again.scores, before.scores, strict=True):
        assert score.value == pytest.approx(recorded.value, abs=1e-14)
        assert score.reasoning == recorded.reasoning
    assert again.outcome == before.outcome
    assert again.parameters == before.parameters


class Opinionated:
    """States beliefs and has no method that answers interviews."""

    name = "opinionated"
    parameters: ClassVar[dict[str, str]] = {}

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = shares

    def believe(self, observation, variables, seed, samples):
        (question,) = variables
        if not self.shares:
            return [BeliefReply(reason="no opinion")]
        rest = [0.0] * (len(question.options) - len(self.shares))
        return [BeliefReply(dict(zip(question.options, [*self.shares, *rest], strict=True)))]


@pytest.mark.parametrize(("shares", "yes"), [((0.7, 0.3), True), ((0.3, 0.7), False), ((0.5, 0.5), None), ((), None)])
def test_a_policy_that_states_beliefs_is_interviewed_by_its_likeliest_option(shares, yes):
    episode = EPISODES[0]
    interviewee = Opinionated(shares)
    evaluation = asyncio.run(InterviewEvaluator(interviewee=interviewee).evaluate(episode))
    goals = [answer for answer in evaluation.answers if answer.view is not None]
    assert {answer.value for answer in goals} == {yes}
    assert {answer.by for answer in goals} == {"opinionated"}
    assert all(bool(answer.reason) is (yes is None) for answer in goals)
