"""Moves through ``step``: every form that is read, what is refused, what a violation leaves, and who sees what."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from sotopia_env import sotopia_v0
from sotopia_env.envs.pettingzoo_env import SotopiaEnv, SotopiaParallelEnv
from sotopia_env.envs.spaces import MoveSpace
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.dynamics import StopReason
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import FixedEvaluator
from tests.sotopia_env.envs.test_environment import snapshot
from tests.sotopia_env.world.scenarios import offer, say, verified_task


def started(kind="agreement", seats=2, private=False, constructor=SotopiaEnv, **more):
    env = constructor(task=verified_task(kind, seats, private), **{"evaluator": "verified", **more})
    env.reset(seed=0)
    return env


TERMS = {"price": 7, "start": "June 1"}
FORMS = [
    Move(MoveKind.PROPOSE, TERMS),
    {"propose": TERMS},
    {"propose": {"START": "june 1", "price": "$7.00"}},
    '{"propose": {"price": 7, "start": "June 1"}}',
    np.str_('{"propose": {"price": 7, "start": "June 1"}}'),
]


@pytest.mark.parametrize("constructor", [SotopiaEnv, SotopiaParallelEnv])
@pytest.mark.parametrize("form", FORMS)
def test_every_documented_form_of_a_move_is_read(form, constructor):
    env = started(constructor=constructor)
    action = {"action_type": "speak", "argument": "How about seven?", "move": form}
    env.step(action if constructor is SotopiaEnv else {"agent_0": action})
    turn = env.episode_state.turns[0]
    assert (turn.action, turn.violation) == (say("How about seven?", propose=TERMS), None)
    assert "price $7, start June 1" in env.observe("agent_1")["table"]
    assert '{"accept": 1}' in env.observe("agent_1")["moves"]
    assert env.observe("agent_0")["moves"] == ""


@pytest.mark.parametrize("nothing", ["", None, {}, "null", "  "])
def test_an_empty_move_means_no_move(nothing):
    env = started()
    env.step({"action_type": 1, "argument": "Hm.", "move": nothing})
    assert env.episode_state.turns[0].action == say("Hm.")


@pytest.mark.parametrize(
    ("move", "fields"),
    [
        (5, {"field": "move"}),
        ([1], {"field": "move"}),
        (np.array([1, 2]), {"field": "move"}),
        ("accept 1", {"field": "move"}),
        ({"accept": 1, "reject": 2}, {"field": "move"}),
        ('{"accept": 1, "accept": 1}', {"field": "move"}),
        ({"acept": 1}, {"field": "move", "nearest": "accept"}),
        ({"accept": "one"}, {"field": "move.accept"}),
        ({"propose": {}}, {"field": "move.propose"}),
        ({"propose": {"price": float("nan")}}, {"field": "move.propose"}),
        (object(), {"field": "move"}),
    ],
)
def test_a_malformed_move_is_refused_and_changes_nothing(move, fields):
    env = started()
    before = snapshot(env)
    with raises(InvalidActionError, **fields) as error:
        env.step({"action_type": 1, "argument": "Hm.", "move": move})
    assert "\n" not in str(error.value)
    assert data_equivalence(snapshot(env), before)


def test_a_move_that_is_not_open_leaves_the_words_and_says_why():
    env = started()
    table = env.episode_state.table
    env.step({"action_type": 1, "argument": "Agreed!", "move": {"accept": 3}})
    assert "accept: offer #3 is not open" in env.infos["agent_0"]["violation"]
    assert "violation" not in env.infos["agent_1"]
    assert env.episode_state.table is table
    assert "Agreed!" in env.observe("agent_1")["history"]
    assert "did not count" not in env.observe("agent_1")["text"]
    assert "did not count" in env.observe("agent_0")["text"]
    env.step(say())
    assert "Your words were heard, but your move did not count" in env.observe("agent_0")["text"]
    assert "offer #3 is not open" in env.observation("agent_0").messages[-1]["content"]
    env.step(say("Sorry.", propose=TERMS))
    assert "violation" not in env.infos["agent_0"]
    assert "did not count" not in env.observe("agent_0")["text"]


def test_in_a_task_without_a_protocol_a_move_is_a_violation():
    env = started("", evaluator=FixedEvaluator())
    env.step({"action_type": 1, "argument": "Agreed!", "move": {"accept": 3}})
    assert "nothing to agree on formally" in env.infos["agent_0"]["violation"]
    assert env.episode_state.turns[0].action == say("Agreed!")


@pytest.mark.parametrize("end_when_settled", [True, False])
def test_a_settlement_ends_the_episode_unless_the_rules_continue_it(end_when_settled):
    env = started(end_when_settled=end_when_settled, max_turns=6, render_mode="ansi")
    env.step(say("Seven?", propose=TERMS))
    env.step(say("Fine.", accept=1))
    if not end_when_settled:
        assert env.observe("agent_0")["moves"] == "  No move is open."
        for _ in range(4):
            env.step(say("Thanks."))
    assert env.episode_state.stop is (StopReason.SETTLED if end_when_settled else StopReason.TURN_LIMIT)
    assert env.terminations["agent_0"] is end_when_settled
    assert env.infos["agent_0"]["outcome"]["agreed"] is True
    assert env.infos["agent_0"]["outcome"]["payoff"] == 15 - 7 + 0
    assert env.render().endswith("Agreed on #1: price $7, start June 1.\n")


def test_end_when_settled_is_a_truth_value():
    with raises(ValueError, field="end_when_settled", got="no"):
        started(end_when_settled="no")


@pytest.mark.parametrize("rendered_first", [False, True])
def test_a_secret_vote_is_announced_to_all_and_its_option_to_its_owner_only(rendered_first):
    env = started("secret ballot", 3, render_mode="ansi")
    for agent, option in zip(env.possible_agents, ("zoo", "lake"), strict=False):
        if rendered_first:
            env.render()
        env.step(say(f"{agent} has chosen.", vote=option))
        for viewer in env.possible_agents:
            texts = [*map(str, env.observe(viewer).values()), repr(env.observation(viewer).turns)]
            texts += [message["content"] for message in env.observation(viewer).messages[1:]]
            content = "\n".join(texts).replace(env.observation(viewer).briefing.head, "")
            content = content.split("Moves open to you")[0]
            assert (f"votes for {option}" in content) == (viewer == agent)
            assert ("votes (secretly)" in env.observe(viewer)["history"]) == (viewer != "agent_0" or agent != "agent_0")
        for everything in (env.render(), env.state()["history"], env.state()["table"]):
            assert option in everything
            assert "secret" not in everything
    assert "Ada Testa (secret)" in env.observe("agent_2")["table"]
    assert "Ada Testa for zoo" in env.observe("agent_0")["table"]
    env.step(say("Me too.", vote="zoo"))
    assert env.episode_state.stop is StopReason.SETTLED
    assert "Ada Testa for zoo, Bram Testa for lake" in env.observe("agent_2")["table"]
    assert env.render().endswith("Decided by plurality: zoo (zoo 2, lake 1).\n")


def test_a_private_offer_is_known_to_its_recipients_only():
    env = started("quorum", 3, private=True)
    env.step(say("Between us?", "agent_1", propose=offer(13, "June 15")))
    for _ in range(2):
        for viewer, knows in (("agent_0", True), ("agent_1", True), ("agent_2", False)):
            view = env.observation(viewer)
            content = "\n".join(map(str, env.observe(viewer).values())).replace(view.briefing.head, "")
            content += repr((view.table, view.moves, view.turns)) + repr(env.infos[viewer])
            content += "".join(message["content"] for message in view.messages[1:])
            assert ("$13" in content) == knows
            assert ("'price': 13" in content) == knows
        env.step(say("Well."))
    env.step(say("I do not know.", accept=1) if env.agent_selection == "agent_2" else say())
    assert "not open" in env.infos["agent_2"].get("violation", "") or env.agent_selection != "agent_0"
    assert "$13" not in env.infos["agent_2"].get("violation", "")


def test_the_space_of_moves_contains_every_readable_move():
    space = MoveSpace(seed=1)
    for text in ("", '{"accept": 2}', '{"vote": null}', '{"propose": {"price": 84}}', '{"claim": "Ana – “Lee”"}'):
        assert text in space
    for text in ("accept", '{"accept": 0}', '{"accept": 1, "reject": 1}', '{"speak": "x"}', 5, None, {"accept": 2}):
        assert text not in space
    assert space.sample() == ""
    assert space == MoveSpace()
    assert repr(space) == "MoveSpace(16384)"


def test_crossing_offers_of_one_parallel_round_settle_it():
    env = sotopia_v0.parallel_env(task=verified_task("agreement"), evaluator=FixedEvaluator())
    env.reset(seed=0)
    _, _, terminations, _, infos = env.step({agent: say("Seven!", propose=TERMS) for agent in env.agents})
    assert all(terminations.values())
    assert infos["agent_1"]["outcome"]["agreed"]
    assert infos["agent_0"]["stop_reason"] == "settled"
