"""Games of hidden roles in the environments: phases decide who acts, the night is not seen, the dead are paid."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from pettingzoo.test import api_test, parallel_api_test  # type: ignore[import-untyped]

from sotopia_env import sotopia_v0
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies.speakers.guesser import Guesser
from sotopia_env.tasks.families.registry import ROLES, family
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.episode import Episode, replay
from sotopia_env.world.observation import observe
from sotopia_env.world.play.table import Table
from studies.role_games.night import count

LEVELS = ("easy", "medium", "hard")


def table(name: str, level: str = "medium", order: str = "round-robin", index: int = 0) -> Table:
    return Table(family(name).generate(index, 0, level), Rules(turn_order=order), index)  # type: ignore[arg-type]


def game_of(state: EpisodeState) -> Any:
    protocol = state.task.protocol
    assert protocol is not None
    return protocol.table(state.table, None).game


def with_role(state: EpisodeState, role: str) -> list[str]:
    return [agent for agent in state.task.agents if state.task.scenario.role_of(agent) == role]


@pytest.mark.parametrize("order", ["round-robin", "random", "simultaneous"])
@pytest.mark.parametrize("name", ROLES)
def test_a_game_ends_with_a_winner_and_its_record_replays(name: str, order: str) -> None:
    played = table(name, "hard", order)
    asyncio.run(played.play(Guesser()))
    verdict = asyncio.run(played.evaluate(VerifiedOutcome()))
    record = Episode.model_validate_json(played.episode().model_dump_json())
    assert replay(record) == played.state
    assert played.stop is not None
    assert not played.stop.truncated
    assert verdict.outcome is not None
    winner = verdict.outcome.terms["option"]
    rules: Any = played.task.scenario.outcome.protocol  # type: ignore[union-attr]
    for agent, payoff in zip(played.task.agents, verdict.outcome.payoffs, strict=True):
        assert payoff == (rules.roles[played.task.scenario.role_of(agent)].team == winner)


def test_an_eliminated_seat_acts_no_more_and_sees_on() -> None:
    played = table("mafia", "hard")
    asyncio.run(played.play(Guesser()))
    state = initial_state(played.task, played.state.rules, played.state.seed)
    for turn in played.state.turns:
        assert turn.actor in game_of(state).living
        state = transition(state, turn.action)
    dead = next(agent for agent in state.task.agents if agent not in game_of(state).living)
    last = [turn for turn in state.turns if turn.seen is None][-1]
    assert last.actor != dead
    assert last.index in [turn.index for turn in observe(state, dead).turns]


@pytest.mark.parametrize("wrap", ["aec", "parallel"])
def test_the_contracts_of_pettingzoo_hold_and_the_eliminated_are_paid(wrap: str) -> None:
    task = family("werewolf").generate(1, 0, "easy")
    if wrap == "parallel":
        parallel_api_test(sotopia_v0.parallel_env(task=task, turn_order="simultaneous"), num_cycles=200)
        return
    env = sotopia_v0.env(task=task)
    api_test(env, num_cycles=300)
    env.reset(seed=3)
    generator, totals = random.Random(5), {}
    for agent in env.agent_iter(2_000):
        _, reward, terminated, truncated, _ = env.last()
        if terminated or truncated:
            totals[agent] = reward
            env.step(None)
            continue
        menu = env.unwrapped.observation(agent).moves
        moves = [m for m in (menu.moves() if menu else []) if m.kind in (MoveKind.VOTE, MoveKind.CHOOSE)]
        env.step(Action(ActionType.SPEAK, "Hm.", move=generator.choice(moves) if moves else None))
    assert len(totals) == 8
    assert len(game_of(env.unwrapped.episode_state).living) < 8
    assert 0 < sum(reward > 0 for reward in totals.values()) < 8


def test_those_who_sleep_read_the_same_whatever_happens_by_night() -> None:
    result = count(400)
    assert result["observations"] >= 400
    assert result["different"] == 0


def test_a_team_sees_its_night_and_nobody_else_does() -> None:
    played = table("werewolf", "easy")
    wolves = with_role(played.state, "wolf")
    while "whisper" not in played.state.task.protocol.table(played.state.table, None).text:  # type: ignore[union-attr]
        played.answer(played.acting[0], Action(ActionType.NONE))
    assert played.acting == (wolves[0],)
    played.answer(wolves[0], Action(ActionType.SPEAK, "The miller tonight."))
    texts = {agent: played.observe(agent).text for agent in played.task.agents}
    assert [agent for agent, text in texts.items() if "miller" in text] == wolves


def test_a_seer_learns_a_role_and_a_doctor_saves() -> None:
    played = table("werewolf", "hard")
    (seer,), (doctor,), wolves = (with_role(played.state, role) for role in ("seer", "doctor", "wolf"))
    victim = with_role(played.state, "villager")[0]
    names = played.task.names
    targets = {seer: (MoveKind.CHOOSE, wolves[0]), doctor: (MoveKind.CHOOSE, victim)}
    for actor in (seer, doctor, *wolves, *wolves):
        assert played.acting == (actor,)
        kind, target = targets.get(actor, (MoveKind.VOTE, victim))
        may_move = bool(played.observe(actor).moves.binds)  # type: ignore[union-attr]
        move = Move(kind, names[target]) if may_move else None
        played.answer(actor, Action(ActionType.SPEAK, "", move=move))
    assert victim in game_of(played.state).living
    role = f"role of {names[wolves[0]]}"
    for agent in played.task.agents:
        knowledge = played.observe(agent).table.knowledge  # type: ignore[union-attr]
        assert (role in knowledge) is (agent in (seer, *wolves))  # type: ignore[operator]


def test_a_fork_of_the_night_goes_on_like_the_episode() -> None:
    played = table("mafia", "medium", index=2)
    asyncio.run(played.play(Guesser()))
    night = next(turn.index for turn in played.state.turns if turn.seen is not None)
    fork = played.fork(night)
    assert fork.acting == (played.state.turns[night].actor,)
    asyncio.run(fork.play(Guesser()))
    assert fork.state == played.state


def test_reactive_order_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="phases"):
        table("mafia", order="reactive")
