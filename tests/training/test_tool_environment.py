"""The environment as TRL's tools: schemas that can be made, the same rules, and an end that cannot be talked past."""

import functools

import pytest
from transformers.utils import get_json_schema

from sotopia_env import tasks
from sotopia_env.dynamics import Rules
from sotopia_env.policies import make
from training.grpo_settings import RewardSettings
from training.situations import Situation, SituationSettings, situations
from training.tool_environment import SocialEnvironment, tool_rows


@pytest.fixture
def wanted():
    return situations(
        SituationSettings(
            families=("bargaining",), level="easy", count=2, partners=("conceder:horizon=2",), max_turns=6
        )
    )


def tools(environment):
    """What TRL takes for tools: every public method but reset and get_reward."""
    names = [name for name in dir(environment) if not name.startswith("_") and name not in ("reset", "get_reward")]
    return [getattr(environment, name) for name in names]


def test_every_public_method_is_a_tool_with_a_schema(wanted):
    found = [get_json_schema(tool)["function"] for tool in tools(SocialEnvironment(wanted))]
    assert [tool["name"] for tool in found] == ["do", "gesture", "leave", "speak"]
    assert all(tool["description"] for tool in found)
    assert found[3]["parameters"]["properties"]["to"]["nullable"]


def test_a_deal_made_with_tools_is_worth_what_the_evaluator_says(wanted):
    environment = functools.partial(SocialEnvironment, wanted, RewardSettings(scalarisation="goal"))()
    row = tool_rows(wanted)[0]
    told = environment.reset(**row)
    task = wanted[0].task
    assert task.scenario.seats[0].private_info in told
    offered = environment.speak("How about $54?").split("$")[1]  # the seller would take 48, the buyer give 78
    price = environment.speak(f"How about ${offered}").split("$")[1].rstrip('."?')
    environment.speak(f"I accept ${price}.")
    assert environment.get_reward() > 0


def test_the_end_is_final_and_a_new_episode_begins_afresh(wanted):
    environment = SocialEnvironment(wanted, RewardSettings(scalarisation="goal"))
    first = environment.reset(situation=0)
    assert "over" in environment.leave()
    assert environment.speak("Wait!") == "The conversation is over."
    assert environment.get_reward() == 0
    assert environment.reset(situation=0) == first


def test_what_no_policy_could_do_no_tool_can(wanted):
    environment = SocialEnvironment(wanted, RewardSettings(scalarisation="goal", invalid=-1.0))
    environment.reset(situation=0)
    assert "not possible" in environment.speak("psst", to=["Bo"])
    assert environment.get_reward() == -1


def test_partners_who_begin_have_spoken_before_the_first_call(wanted):
    environment = SocialEnvironment(wanted)
    assert "said:" not in environment.reset(situation=0)
    assert "said:" in environment.reset(situation=1)


def test_a_private_word_reaches_only_its_hearers():
    task = tasks.generate("group_decision", 1, 3, "easy")[0]
    assert task.scenario.private_messages
    environment = SocialEnvironment([Situation(task, task.agents[0], make("silent"), 0, Rules(max_turns=6))])
    environment.reset(situation=0)
    environment.speak("Between us.", to=[task.characters[1].name])
    turn = next(turn for turn in environment._state.turns if turn.actor == task.agents[0])
    assert turn.action.to == (task.agents[1],)
