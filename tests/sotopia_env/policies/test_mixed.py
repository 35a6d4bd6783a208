"""Another policy in every seat, or in every episode."""

from __future__ import annotations

from collections import Counter

import pytest

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies import LLMPolicy, MixedPolicy, Mixture
from sotopia_env.policies.policy import policy_identity
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.testing import ScriptedChatModel, check_policy
from sotopia_env.world.dynamics import Rules
from tests.errors import raises
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import decide, observed


def model(name: str) -> LLMPolicy:
    answer = f'{{"action_type": "speak", "argument": "I am {name}."}}'
    return LLMPolicy(ScriptedChatModel(lambda request: answer, name=name))


def test_each_seat_is_played_by_its_own_model():
    first, second = model("a/one"), model("b/two")
    mixed = MixedPolicy({"agent_0": first, "agent_1": second})
    (episode,) = run_episodes([EpisodePlan(task(), (mixed, mixed), Rules(max_turns=4))], progress=False).episodes
    assert [t.turn.action.argument for t in episode.turns] == ["I am a/one.", "I am b/two."] * 2
    assert {info.name for info in episode.policies} == {"mixed(a/one+b/two)"}
    assert mixed.parameters["agent_1"]["name"] == "b/two"
    swapped = MixedPolicy({"agent_0": second, "agent_1": first}, name=mixed.name)
    assert policy_identity(swapped) != policy_identity(mixed)


def test_a_seat_without_a_policy_is_named():
    with raises(UnknownNameError, field="seats", got="agent_1", nearest="agent_0"):
        decide(MixedPolicy({"agent_0": make("silent")}), observed(task(), "Hi."))


def test_it_keeps_the_promises_of_a_policy():
    seats = {
        f"agent_{seat}": make(name) for seat, name in enumerate(("linear", "sharer", "splitter", "random", "silent"))
    }
    check_policy(MixedPolicy(seats), repeatable=True)


def test_a_mixture_draws_by_its_weights():
    mixture = Mixture([make("silent"), make("leaver"), make("random")], [6, 3, 0])
    drawn = Counter(mixture.draw(1, "task", number).name for number in range(900))
    assert set(drawn) == {"silent", "leaver"}
    assert 540 < drawn["silent"] < 660
    even = Counter(Mixture([make("silent"), make("leaver")]).draw(1, number).name for number in range(400))
    assert 160 < even["silent"] < 240


def test_a_mixture_is_a_function_of_seed_task_repeat_and_seat():
    mixture = Mixture([make(name) for name in ("silent", "leaver", "random", "linear")])
    played = list(tasks.generate("bargaining", 40, seed=0))
    names = [tuple(p.name for p in mixture.seating(t, 7)) for t in played]
    assert names == [tuple(p.name for p in mixture.seating(t, 7)) for t in played]
    assert names != [tuple(p.name for p in mixture.seating(t, 8)) for t in played]
    assert names != [tuple(p.name for p in mixture.seating(t, 7, repeat=1)) for t in played]
    assert any(first != second for first, second in names)
    assert {name for pair in names for name in pair} == {"silent", "leaver", "random", "linear"}
    (three_or_more,) = tasks.generate("group_decision", 1, seed=0)
    assert len(mixture.seating(three_or_more, 7)) == len(three_or_more.agents)


def test_the_record_names_the_policy_that_was_drawn():
    mixture = Mixture([make("silent"), make("leaver")])
    plans = [EpisodePlan(t, mixture.seating(t, 3), seed=3) for t in tasks.generate("bargaining", 8, seed=0)]
    episodes = run_episodes(plans, progress=False).episodes
    assert {info.name for episode in episodes for info in episode.policies} == {"silent", "leaver"}


@pytest.mark.parametrize(
    ("make_it", "field"),
    [
        (lambda: MixedPolicy({}), "seats"),
        (lambda: MixedPolicy({"agent_0": "silent"}), "seats"),
        (lambda: Mixture([]), "policies"),
        (lambda: Mixture([make("silent")], [1, 2]), "weights"),
        (lambda: Mixture([make("silent")], [0]), "weights"),
        (lambda: Mixture([make("silent"), make("random")], [1, -1]), "weights"),
        (lambda: Mixture([make("silent")], [float("nan")]), "weights"),
    ],
)
def test_arguments_are_checked(make_it, field):
    with raises(InvalidValueError, field=field):
        make_it()
