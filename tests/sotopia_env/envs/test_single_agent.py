"""One focal seat among partner policies."""

import asyncio
import gc
import pickle

import pytest
from gymnasium.utils.env_checker import data_equivalence

from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.foundation.errors import EvaluationError, InvalidActionError, InvalidValueError, PolicyError
from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.move import read_move
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import replay
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import ORDERS, VECTORS, Crowd, FixedEvaluator, Partner, options, say


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
    ({"focal_seat": 2}, "focal_seat"),
    ({"focal_seat": True}, "focal_seat"),
    ({"focal_seat": "0"}, "focal_seat"),
    ({"partner": 5}, "partner"),
    ({"partner": Partner}, "partner"),
    ({"partner": {0: Partner()}}, "partner"),
    ({"partner": {1: Partner(), 2: Partner()}}, "partner"),
    ({"partnr": Partner()}, "partnr"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_wrong_arguments_are_answered_in_one_sentence(wrong, field):
    with raises(InvalidValueError, field=field):
        SotopiaSingleAgentEnv(**{"partner": Partner(), **options(), **wrong})


def test_the_default_partner_draws_its_actions_and_repeats_them_for_a_seed():
    def words(seed):
        env = SotopiaSingleAgentEnv(**options(max_turns=8, max_silent_turns=0))
        play(env, seed)
        return [item.turn.action for item in env.episode().turns if item.turn.actor == "agent_1"]

    assert words(3) == words(3)


def test_the_focal_seat_of_reset_is_that_of_one_episode():
    env = single(partner=Partner(), max_turns=4, first_seat=1)
    for seat, options_of_reset in [(0, None), (1, {"focal_seat": 1}), (0, {}), (0, {"focal_seat": 0})]:
        observation, _ = env.reset(seed=0, options=options_of_reset)
        assert env.observation().agent == f"agent_{seat}"
        assert observation["turn"] == 2 - seat
        *_, info = env.step(say("focal"))
        while "stop_reason" not in info:
            *_, info = env.step(say("focal"))
        focal = [item.turn.actor for item in env.episode().turns if item.turn.action.argument == "focal"]
        assert focal == [f"agent_{seat}"] * 2
        assert tuple(info["reward_vector"]) == VECTORS[f"agent_{seat}"]


def test_the_partners_of_an_episode_fit_its_focal_seat():
    env = single(3, partner={1: Partner(), 2: Partner(leaves=True)}, max_turns=6)
    with raises(InvalidValueError, field="partner"):
        env.reset(options={"focal_seat": 1})
    env.reset(seed=0, options={"focal_seat": 1, "partner": {0: Partner(leaves=True), 2: Partner()}})
    env.step(say("focal"))
    assert [item.turn.action.argument == "focal" for item in env.episode().turns] == [False, True, False]
    assert env.episode().turns[0].turn.action.action_type is ActionType.LEAVE


@pytest.mark.parametrize("value", [2, -1, True, "1"])
def test_a_focal_seat_of_reset_is_checked_before_anything_changes(value):
    env = single()
    env.reset(seed=0)
    before = env.episode()
    with raises(InvalidValueError, field="focal_seat"):
        env.reset(options={"focal_seat": value})
    assert env.episode() == before
    assert env.step(say())[2:4] == (False, False)


def test_the_action_space_is_one_object_that_samples_the_focal_seats_moves():
    env = SotopiaSingleAgentEnv(task="bargaining", partner="silent", max_silent_turns=0)
    space = env.action_space
    for twin in (env, pickle.loads(pickle.dumps(env))):
        assert twin.action_space["move"].sample() == ""
        for seat in (0, 1):
            twin.reset(seed=0, options={"focal_seat": seat})
            moves = {twin.action_space["move"].sample() for _ in range(20)}
            assert len(moves) > 5
            terms = {read_move(move).kind for move in moves if move}
            assert terms == {MoveKind.PROPOSE}
    assert env.action_space is space


def test_an_episode_that_ends_before_the_focal_agent_acts_pays_at_the_first_step():
    env = single(partner=Partner(leaves=True), first_seat=1)
    _, info = env.reset(seed=0)
    assert info["stop_reason"] == "left"
    _, reward, terminated, truncated, info = env.step(say())
    assert (reward, terminated, truncated) == (pytest.approx(24 / 7), True, False)
    assert len(env.episode().turns) == 1
    with pytest.raises(InvalidActionError):
        env.step(say())


def test_when_the_focal_agent_leaves_the_others_play_on_to_the_end():
    env = single(3, max_turns=7)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(Action(ActionType.LEAVE))
    assert (reward, terminated, truncated) == (pytest.approx(24 / 7), False, True)
    assert info["has_left"]
    assert [item.turn.actor for item in env.episode().turns][1:] == ["agent_1", "agent_2"] * 3


def test_unreadable_actions_are_refused_and_the_episode_continues():
    env = single()
    env.reset(seed=0)
    with raises(InvalidActionError, field="action"):
        env.step(5)
    assert env.episode().turns == ()
    env.step(say())
    assert len(env.episode().turns) == 2


def test_stepping_before_reset_or_after_the_end_is_refused():
    env = single(max_turns=2)
    for _ in range(2):
        with pytest.raises(InvalidActionError):
            env.step(say())
        play(env)


def test_a_partner_that_fails_is_an_error_and_ends_the_episode():
    """Guards the predecessor's outage that looked like a shy agent."""
    env = single(partner=Partner(fails=True))
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="the model is down"):
        env.step(say())
    with pytest.raises(InvalidActionError):
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


def test_a_forgotten_close_leaves_no_open_loop(monkeypatch):
    loops = []
    new_loop = asyncio.new_event_loop
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loops.append(new_loop()) or loops[-1])
    env = single(max_turns=2)
    play(env)
    assert [loop.is_closed() for loop in loops] == [False]
    del env
    gc.collect()
    assert [loop.is_closed() for loop in loops] == [True]


async def played(env, seed):
    observation, info = await env.begin(seed=seed)
    results = [(observation, info)]
    while "stop_reason" not in results[-1][-1]:
        results.append(await env.advance(say("focal")))
    return results


def test_awaited_steps_wait_for_all_partners_at_once_and_are_the_same_steps():
    crowd = Crowd()
    envs = [single(partner=crowd, first_seat=1, max_turns=6) for _ in range(16)]

    async def all_played():
        return await asyncio.gather(*(played(env, seed) for seed, env in enumerate(envs)))

    results = asyncio.run(all_played())
    assert crowd.peak == 16
    for seed, steps in enumerate(results):
        env = single(partner=Crowd(wait=0), first_seat=1, max_turns=6)
        assert data_equivalence(steps, [env.reset(seed=seed), *(env.step(say("focal")) for _ in steps[1:])])
        assert env.episode() == envs[seed].episode()


def test_an_awaited_step_awaits_the_evaluator():
    class Patient(FixedEvaluator):
        async def evaluate(self, episode):
            await asyncio.sleep(0)
            return await super().evaluate(episode)

    env = single(evaluator=Patient(), max_turns=2)
    assert asyncio.run(played(env, 0))[-1][1] == pytest.approx(24 / 7)


def test_awaited_steps_raise_the_same_errors_as_steps():
    failing = single(partner=Partner(fails=True))
    failing.reset(seed=0)
    with pytest.raises(PolicyError, match="the model is down"):
        asyncio.run(failing.advance(say()))
    with pytest.raises(InvalidActionError):
        asyncio.run(failing.advance(say()))
    with pytest.raises(EvaluationError, match="ill"):
        asyncio.run(played(single(max_turns=2, evaluator=FixedEvaluator(error="ill")), 0))


@pytest.mark.parametrize("slow", ["partner", "evaluator"])
def test_a_step_that_is_cancelled_ends_the_episode(slow):
    class Slow(FixedEvaluator):
        async def evaluate(self, episode):
            await asyncio.sleep(60)

    env = single(2, Partner(wait=60 if slow == "partner" else None), evaluator=Slow(), max_turns=2)

    async def give_up():
        await env.begin(seed=0)
        await asyncio.wait_for(env.advance(say()), timeout=0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    with pytest.raises(InvalidActionError):
        env.step(say())


def test_the_typed_observation_is_the_focal_agents():
    env = single(focal_seat=1)
    env.reset(seed=0)
    assert env.observation().agent == "agent_1"
    assert env.observation().acting
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
