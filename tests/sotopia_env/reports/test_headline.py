"""The sentence that opens a comparison: who is ahead, by how much, and what the data leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sotopia_env.reports.compare import Comparison, compare
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.views.headline import headline
from sotopia_env.runs import plan_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_env.reports.test_compare import scored
from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task

LEVEL, EVEN, LOW = (6.0, 4.0, 6.0, 4.0), (5.0, 5.0, 5.0, 5.0), (0.0, 0.1, 0.0, 0.1)


def compared(strength: Mapping[str, Sequence[float]], scenarios: int = 4) -> Comparison:
    """Every policy with every other one; the score of a policy depends on itself and the scenario alone."""
    speakers = [Speaker(name) for name in strength]
    plans = plan_episodes([make_task(f"s{i}") for i in range(scenarios)], all_matchups(speakers))
    episodes = [
        scored(plan, tuple(strength[policy.name][int(plan.task.scenario.id[1])] for policy in plan.policies))
        for plan in plans
    ]
    return compare(episodes, metrics=["goal"])


@pytest.mark.parametrize(
    ("strength", "beginning", "parts"),
    [
        ({"a": EVEN, "c": LOW}, "a is ahead of c in goal, by 4.95 (95 % interval ", [" to "]),
        ({"a": LEVEL, "b": EVEN}, "a and b cannot be told apart in goal: their difference is 0.00 (95 % ", [" to "]),
        ({"a": LEVEL, "b": EVEN, "c": LOW}, "a is ahead of c in goal, by 4.95", ["; it cannot be told apart from b."]),
        ({"a": (8.0, 8.2, 8.0, 8.2), "b": EVEN, "c": LOW}, "a is ahead of b and c in goal, by 3.10", ["the nearest."]),
    ],
)  # fmt: skip
def test_the_sentence_claims_what_the_ranks_claim(
    strength: Mapping[str, Sequence[float]], beginning: str, parts: Sequence[str]
) -> None:
    result = compared(strength)
    sentence = headline(result)
    assert sentence.startswith(beginning)
    assert all(part in sentence for part in parts)
    report = comparison_report(result)
    assert report.headline == sentence
    assert sentence in report.text()


def test_nothing_is_claimed_from_one_scenario_or_of_one_policy() -> None:
    assert "cannot be told apart in goal" in headline(compared({"a": EVEN, "c": LOW}, scenarios=1))
    assert "without an interval" in headline(compared({"a": EVEN, "c": LOW}, scenarios=1))
    assert headline(compared({"a": LEVEL})).startswith("a has a mean goal of 5.00 (95 % interval ")
