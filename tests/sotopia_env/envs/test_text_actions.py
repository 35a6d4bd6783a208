"""A model's text as an action of every form of the environment; unusable text is an event of the episode."""

from __future__ import annotations

import gymnasium
import pytest

from sotopia_env import Action, Decision, Move, MoveKind, sotopia_v0
from sotopia_env.foundation.errors import InvalidActionError, PolicyError
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.episode import replay
from tests.errors import raises

HELLO = '<think>So.</think>{"action_type": "speak", "argument": "Hello."}'


def test_text_is_read_and_recorded_one_agent_at_a_time() -> None:
    env = sotopia_v0.env(task="bargaining")
    env.reset(seed=0)
    env.step(HELLO)
    assert "violation" not in env.infos["agent_0"]
    env.step("I would say hello. \ud800")
    assert "no JSON object" in env.infos["agent_1"]["violation"]
    env.step('{"action_type": "speak", "argument": "And?", "move": {"accept": 1}}')
    assert "accept" in env.infos["agent_0"]["violation"]
    env.step({"action_type": "speak", "argument": "Well."})
    assert "violation" not in env.infos["agent_1"]
    episode = env.unwrapped.episode()
    first, second, third, fourth = episode.turns
    assert (first.turn.action.argument, first.generation.text) == ("Hello.", HELLO)
    assert (second.turn.action, second.generation.text) == (NO_ACTION, "I would say hello. ?")
    assert "no JSON object" in second.generation.parse_failure
    assert third.turn.action.argument == "And?"
    assert fourth.generation is None
    replay(episode)


def test_text_in_a_simultaneous_round() -> None:
    env = sotopia_v0.parallel_env(task="bargaining", infos="flags")
    env.reset(seed=0)
    *_, infos = env.step({"agent_0": "nothing", "agent_1": HELLO})
    assert [bool(info["violation"]) for info in infos.values()] == [True, False]
    *_, infos = env.step({"agent_0": HELLO, "agent_1": "nothing"})
    assert [bool(info["violation"]) for info in infos.values()] == [False, True]


def test_text_with_a_partner_and_in_a_vector() -> None:
    env = gymnasium.make("sotopia_env/Sotopia-v0", task="bargaining", partner="linear")
    env.reset(seed=0)
    assert "violation" not in env.step(HELLO)[4]
    assert "no JSON object" in env.step("Hello.")[4]["violation"]
    envs = gymnasium.make_vec("sotopia_env/Sotopia-v0", num_envs=2, task="bargaining", partner="linear")
    envs.reset(seed=0)
    *_, infos = envs.step([HELLO, "Hello."])
    assert infos["_violation"].tolist() == [False, True]
    with raises(InvalidActionError, field="actions", got=1):
        envs.step([HELLO])


def test_moves_and_decisions_are_read_and_checked_at_the_front_door() -> None:
    assert Action(move={"accept": 1}) == Action("speak", move=Move(MoveKind.ACCEPT, 1))
    assert Move("accept", 1).kind is MoveKind.ACCEPT
    for make, fields in (
        (lambda: Move("acept", 1), {"field": "move", "nearest": "accept"}),
        (lambda: Move(3, 1), {"field": "move", "got": 3}),
        (lambda: Action(move={"acept": 1}), {"field": "move", "nearest": "accept"}),
        (lambda: Action(move={"accept": "x"}), {"field": "move.accept", "got": "x"}),
        (lambda: Action(move=3), {"field": "move", "got": "int"}),
    ):
        with raises(InvalidActionError, **fields):
            make()
    for arguments, field in ((("hi",), "action"), ((NO_ACTION, "hi"), "generation")):
        with pytest.raises(PolicyError, match=field):
            Decision(*arguments)
