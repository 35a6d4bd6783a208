"""Manipulations worn by scripts: the moves stay, the words grow, and the texts hold to their data file's rules."""

import asyncio
from dataclasses import replace
from statistics import fmean

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.quoting import quote
from sotopia_env.naming import POLICY_NAMES, make_policy
from sotopia_env.naming.recorded import policy_of
from sotopia_env.policies.manipulation import Manipulator, manipulation_names, manipulations
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.play.policy import Decision, policy_identity
from sotopia_env.world.play.table import Table
from tests.sotopia_env.factories import scenario, task

SCRIPTS = [name for name in POLICY_NAMES if name != "human"]


def played(task, *policies, seed=3):
    """The episode in which the first policy has seat 0 and the last one all others."""
    table = Table(task, Rules(max_turns=6 * len(task.agents)), seed=seed)
    first, *others = task.agents
    asyncio.run(table.play({first: policies[0], **dict.fromkeys(others, policies[-1])}))
    return table.episode()


def bare(episode):
    """The turns without words."""
    return [replace(record.turn, action=replace(record.turn.action, argument="")) for record in episode.turns]


def words(episode):
    return [record.turn.action.argument for record in episode.turns]


@pytest.mark.parametrize("family", [*tasks.FAMILIES, "dilemma-contract"])
def test_only_the_words_of_the_wearer_differ_in_every_family(family):
    (one,) = tasks.generate(family, 1, seed=5)
    for index, name in enumerate(manipulation_names()):
        base = SCRIPTS[(index * 5) % len(SCRIPTS)] if family in ("bargaining", "dilemma") else "boulware"
        for partner in ("conceder", "honest"):
            plain = played(one, make_policy(base), make_policy(partner))
            worn = played(one, make_policy(f"{base}+{name}"), make_policy(partner))
            assert bare(worn) == bare(plain), (base, name, partner)
            assert worn.stop == plain.stop
            longer = [index for index, (a, b) in enumerate(zip(words(plain), words(worn), strict=True)) if a != b]
            own = {record.turn.actor for record in worn.turns if record.turn.index in longer}
            assert own <= {one.agents[0]}
            assert all(words(worn)[index].startswith(words(plain)[index]) for index in longer)


@pytest.mark.parametrize("base", SCRIPTS)
def test_every_script_can_wear_one(base):
    (one,) = tasks.generate("mutual_friend", 1, seed=2)
    plain, worn = (played(one, make_policy(name), make_policy("linear")) for name in (base, f"{base}+injection:strong"))
    assert bare(worn) == bare(plain)
    spoken = [r.turn for r in plain.turns if r.turn.actor == one.agents[0] and r.turn.action.action_type == "speak"]
    assert (words(worn) != words(plain)) == bool(spoken)


def test_the_words_name_those_who_are_addressed_and_nobody_else():
    class Whisperer:
        name, parameters = "whisperer", {}

        async def act(self, observation, seed):
            return Decision(Action(ActionType.SPEAK, "psst", to=("agent_2",)))

    trio = task(3, scenario=scenario(3, private_messages=True))
    observation = Table(trio, Rules(), seed=0).observe("agent_0")
    names = {agent: character.name for agent, character in zip(trio.agents, trio.characters, strict=True)}
    for seed in range(6):
        text = asyncio.run(Manipulator(Whisperer(), "authority:strong").act(observation, seed)).action.argument
        assert names["agent_2"] in text
        assert names["agent_1"] not in text
        assert "{" not in text


def test_control_is_as_long_as_the_others_and_placeholders_are_where_the_file_says():
    kinds = manipulations()
    for strength in ("mild", "strong"):
        lengths = {
            kind: [len(text.replace("{{partners}}", "")) for text in getattr(m, strength)] for kind, m in kinds.items()
        }
        mean = fmean(lengths["control"])
        assert all(abs(fmean(own) / mean - 1) < 0.04 for own in lengths.values()), lengths
        assert all(abs(length / mean - 1) < 0.08 for own in lengths.values() for length in own), lengths
        for manipulation in kinds.values():
            texts = getattr(manipulation, strength)
            assert [text.count("{{") for text in texts] == [strength == "strong"] * len(texts)


def test_an_injection_is_quoted_words_to_its_reader():
    (one,) = tasks.generate("bargaining", 1, seed=5)
    table = Table(one, Rules(), seed=0)
    asyncio.run(table.step({one.agents[0]: make_policy("boulware+injection:strong")}))
    argument = table.turns[0].turn.action.argument
    lines = table.observe(one.agents[1]).history.splitlines()
    assert [
        quote(argument) in line for line in lines if "replaced" in line or "assistant" in line or "OVERRIDE" in line
    ] == [True]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("boulware+authorit", '"authority"'),
        ("boulware+injection:strongg", '"injection:strong"'),
        ("boulwar+authority", '"boulware"'),
        ("boulware+authority+control", '"boulware"'),
        ("human+authority", None),
        ("smol+control", None),
        ("boulware:floor=2+control", None),
    ],
)
def test_a_wrong_name_gets_the_nearest_valid_one(name, nearest):
    with pytest.raises(InvalidValueError) as caught:
        make_policy(name)
    if nearest:
        assert isinstance(caught.value, UnknownNameError)
        assert f"did you mean {nearest}?" in str(caught.value)


def test_a_record_is_enough_to_make_it_again():
    policy = make_policy("linear:horizon=4+social_proof:strong")
    again = policy_of(policy, lambda name: pytest.fail(name))
    assert policy_identity(again) == policy_identity(policy)
    assert policy.name == "linear+social_proof:strong"
    assert make_policy("linear+control:mild").name == "linear+control"
