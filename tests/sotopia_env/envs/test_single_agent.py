"""One focal seat among partner policies."""

import asyncio
import warnings

import pytest

from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.errors import EvaluationError, InvalidActionError, InvalidValueError, PolicyError
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import replay
from tests.sotopia_env.envs.env_doubles import ORDERS, FixedEvaluator, Partner, options, say


def single(seats=2, partner=None, focal_seat=0, **more):
    return SotopiaSingleAgentEnv(partner=partner or Partner(), focal_seat=focal_seat, **options(seats, **more))


def play(env, seed=0):
    env.reset(seed=seed)
    while True:
        _, reward, terminated, truncated, info = env.step(say("focal"))
        if terminated or truncated:
            return reward, info


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("focal", [0, 1, 2])
def test_partners_sit_in_all_other_seats_and_only_there(order, focal):
    env = single(3, focal_seat=focal, turn_order=order, max_turns=9)
    play(env)
    for item in env.episode().turns:
        assert (item.turn.action.argument == "focal") == (item.turn.actor == f"agent_{focal}")
    assert replay(env.episode())


@pytest.mark.parametrize("focal", [0, 1])
@pytest.mark.parametrize("first_seat", [0, 1])
def test_both_speaking_orders_are_possible_from_either_seat(focal, first_seat):
    env = single(focal_seat=focal, first_seat=first_seat, max_turns=4)
    observation, info = env.reset(seed=0)
    assert info["acting"]
    assert observation["turn"] == (1 if focal == first_seat else 2)
    play(env)
    assert env.episode().turns[0].turn.actor == f"agent_{first_seat}"


def test_the_seed_fixes_tasks_and_partners_and_differs_between_turns():
    def words(seed):
        env = single(3, max_turns=12)
        play(env, seed)
        return [item.turn.action.argument for item in env.episode().turns if item.turn.actor != "agent_0"]

    assert words(4) == words(4)
    assert words(4) != words(5)
    assert len(set(words(4))) == 8


def test_each_seat_can_have_a_partner_of_its_own():
    env = single(3, partner={0: Partner(), 2: Partner(leaves=True)}, focal_seat=1)
    env.reset(seed=0)
    env.step(say())
    assert env.episode().turns[2].turn.action.action_type is ActionType.LEAVE


WRONG = [
    ({"focal_seat": 2}, "focal_seat: expected 0 to 1, got 2"),
    ({"focal_seat": True}, "focal_seat: expected 0 to 1, got True"),
    ({"focal_seat": "0"}, "focal_seat: expected 0 to 1, got '0'"),
    ({"partner": 5}, "partner: expected a policy or the name of one, got 5"),
    ({"partner": Partner}, "partner: expected a policy"),
    ({"partner": {0: Partner()}}, r"partner: expected a policy for each of the seats \[1\], got \[0\]"),
    ({"partner": {1: Partner(), 2: Partner()}}, r"each of the seats \[1\], got \[1, 2\]"),
    ({"partnr": Partner()}, "environment option: "),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_arguments_are_answered_in_one_sentence(wrong, message):
    with pytest.raises(InvalidValueError, match=message):
        SotopiaSingleAgentEnv(**{"partner": Partner(), **options(), **wrong})


def test_the_default_partner_draws_its_actions_and_repeats_them_for_a_seed():
    def words(seed):
        env = SotopiaSingleAgentEnv(**options(max_turns=8, max_silent_turns=0))
        play(env, seed)
        return [item.turn.action for item in env.episode().turns if item.turn.actor == "agent_1"]

    assert words(3) == words(3)


def test_an_episode_that_ends_before_the_focal_agent_acts_pays_at_the_first_step():
    env = single(partner=Partner(leaves=True), first_seat=1)
    _, info = env.reset(seed=0)
    assert info["stop_reason"] == "left"
    _, reward, terminated, truncated, info = env.step(say())
    assert (reward, terminated, truncated) == (pytest.approx(24 / 7), True, False)
    assert len(env.episode().turns) == 1
    with pytest.raises(InvalidActionError, match=r"call reset\(\) first"):
        env.step(say())


def test_when_the_focal_agent_leaves_the_others_play_on_to_the_end():
    env = single(3, max_turns=7)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(Action(ActionType.LEAVE))
    assert (reward, terminated, truncated) == (pytest.approx(24 / 7), False, True)
    assert info["has_left"]
    assert [item.turn.actor for item in env.episode().turns][1:] == ["agent_1", "agent_2"] * 3


def test_unreadable_actions_are_refused_and_the_episode_goes_on():
    env = single()
    env.reset(seed=0)
    with pytest.raises(InvalidActionError, match="expected an Action or a mapping"):
        env.step("hello")
    assert env.episode().turns == ()
    env.step(say())
    assert len(env.episode().turns) == 2


def test_stepping_before_reset_or_after_the_end_is_refused():
    env = single(max_turns=2)
    for _ in range(2):
        with pytest.raises(InvalidActionError, match=r"call reset\(\) first"):
            env.step(say())
        play(env)


def test_a_partner_that_fails_is_an_error_and_ends_the_episode():
    """Guards the predecessor's outage that looked like a shy agent."""
    env = single(partner=Partner(fails=True))
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="the model is down"):
        env.step(say())
    with pytest.raises(InvalidActionError, match=r"call reset\(\) first"):
        env.step(say("must not become the partner's words"))
    with pytest.raises(PolicyError, match="the model is down"):
        single(partner=Partner(fails=True), first_seat=1).reset(seed=0)


def test_a_failed_evaluation_raises_or_is_flagged():
    env = single(max_turns=2, evaluator=FixedEvaluator(error="ill"))
    with pytest.raises(EvaluationError, match="ill"):
        play(env)
    reward, info = play(single(max_turns=2, evaluator=FixedEvaluator(error="ill"), on_unscored="zero"))
    assert (reward, info["unscored"]) == (0.0, "ill")


def test_partners_that_wait_are_waited_for_also_inside_a_running_loop():
    env = single(partner=Partner(wait=0.001), max_turns=4)
    assert play(env)[0] == pytest.approx(24 / 7)

    async def notebook():
        return play(env)[0]

    assert asyncio.run(notebook()) == pytest.approx(24 / 7)
    env.close()
    env.close()
    assert play(env)[0] == pytest.approx(24 / 7)


def test_a_forgotten_close_leaves_no_open_loop():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        env = single(max_turns=2)
        play(env)
        del env


def test_the_typed_observation_is_the_focal_agents():
    env = single(focal_seat=1)
    env.reset(seed=0)
    assert env.observation().agent == "agent_1"
    assert env.observation().acting
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
