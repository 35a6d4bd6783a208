"""Lengths are counted before a run begins: each limit that cannot hold what a task needs is told with the mend."""

import asyncio
import logging
import re

import pytest

from sotopia_env import naming, tasks
from sotopia_env.policies import LLMPolicy
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world import Rules


class CountingModel(ScriptedChatModel):
    """A model whose tokens are characters."""

    def prompt_tokens(self, messages, tools=()):
        return sum(len(message["content"]) for message in messages) + len(str(tools)) * bool(tools)

    def answer_tokens(self, text):
        return len(text)


@pytest.fixture
def warnings(caplog):
    """Plays and returns the warnings."""
    caplog.set_level(logging.WARNING, logger="sotopia_env.runs")

    def play(model=CountingModel, family="bargaining", **settings):
        caplog.clear()
        policy = LLMPolicy(model(lambda request: '{"action_type": "none", "argument": ""}'), name="seated", **settings)
        plans = plan_episodes(
            tasks.generate(family, 3, seed=1), [(policy, naming.make_policy("linear"))], rules=Rules(max_turns=2)
        )
        asyncio.run(run_episodes(plans, progress=False))
        return [record.getMessage() for record in caplog.records if "seated" in record.getMessage()]

    return play


def test_a_limit_too_small_for_a_move_is_reported_with_a_sufficient_one(warnings):
    [warning] = warnings(max_tokens=40)
    assert "6 of 6" in warning  # three tasks, from both seats
    mended = int(re.search(r"give max_tokens=(\d+)", warning)[1])
    assert warnings(max_tokens=mended) == []


def test_a_prompt_that_never_fits_is_reported_with_a_sufficient_length(warnings):
    [warning] = warnings(max_tokens=200, context_limit=600)
    mended = int(re.search(r"give max_length=(\d+)", warning)[1])
    assert warnings(max_tokens=200, context_limit=mended) == []


def test_functions_count_too(warnings):
    assert len(warnings(format="tools", max_tokens=200, context_limit=3200)) == 1
    assert warnings(format="chat", max_tokens=200, context_limit=3200) == []


def test_there_is_no_warning_without_a_tokenizer_or_moves(warnings):
    assert warnings(ScriptedChatModel, max_tokens=4) == []
    assert warnings(max_tokens=None) == []
