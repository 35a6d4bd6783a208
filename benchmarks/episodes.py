"""Cost of a turn, every observation rendered and rules evaluated, beside PettingZoo's tictactoe."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from pettingzoo.classic import tictactoe_v3

from benchmarks.measure import Figure, cpu_rounds
from sotopia_env import sotopia_moves_v0, sotopia_v0, tasks
from sotopia_env.envs.moves_env import SotopiaMovesEnv
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.outcomes import Move, MoveKind, OutcomeSpace
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Evaluator
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision, Policy

_COUNTER = itertools.count()
WORDS = (
    *("price", "deal", "good", "lamp", "maybe", "friend", "today", "offer", "small"),
    *("kind", "weather", "garden", "think", "fair", "please", "help", "nice", "bad"),
)


def utterance() -> str:
    """A sentence that never occurred before, so that no cache over texts can help."""
    n = next(_COUNTER)
    words = [WORDS[(n * k + k) % len(WORDS)] for k in (1, 3, 7, 11, 5)]
    return f"I {words[0]} the {words[1]} number {n}, {words[2]} and {words[3]}, is that {words[4]}?"


def tictactoe() -> int:
    """One game as PettingZoo's documentation plays it: ``last``, masked sample, ``step``; returns its moves."""
    env = tictactoe_v3.env()
    env.reset(seed=1)
    moves = 0
    for agent in env.agent_iter():
        observation, _, termination, truncation, _ = env.last()
        move = None if termination or truncation else env.action_space(agent).sample(observation["action_mask"])
        moves += move is not None
        env.step(move)
    return moves


def environment(turns: int) -> Callable[[], int]:
    """Episodes of ``turns`` turns through the wrapped AEC environment, verified scores, every text new."""
    task = tasks.generate("bargaining", 1, seed=1)[0]
    env = sotopia_v0.env(task=task, max_turns=turns, evaluator=VerifiedOutcome())
    # Written beforehand: the cost of making sentences is not that of the environment.
    script = iter([utterance() for _ in range(400_000)])

    def episode() -> int:
        env.reset(seed=1)
        count = 0
        for _ in env.agent_iter():
            _, _, termination, truncation, _ = env.last()
            action = None if termination or truncation else Action(ActionType.SPEAK, next(script))
            count += action is not None
            env.step(action)
        return count

    return episode


def moves(space: OutcomeSpace, turns: int) -> Iterator[Move]:
    """Endless episodes of two seats: on every fourth turn a refusal, on the last one an acceptance, else an offer.

    No two offers that meet are equal, which would be an agreement.
    """
    # Shuffled and cycled, so that equal offers are as far apart as the space allows.
    terms = list(space.outcomes())
    random.Random(1).shuffle(terms)
    offers = itertools.cycle([Move(MoveKind.PROPOSE, offer) for offer in terms])
    while True:
        # Of the latest offer.
        number = 0
        for turn in range(turns):
            if turn == turns - 1:
                yield Move(MoveKind.ACCEPT, number)
            elif turn % 4 == 3:
                yield Move(MoveKind.REJECT, number)
            else:
                number += 1
                yield next(offers)


def negotiation(turns: int) -> Callable[[], int]:
    """As :func:`environment`, with a move on every turn."""
    task = tasks.generate("bargaining", 1, seed=1)[0]
    assert task.protocol is not None
    env = sotopia_v0.env(task=task, max_turns=turns, evaluator=VerifiedOutcome())
    script = iter([utterance() for _ in range(400_000)])
    move = moves(task.protocol.space, turns)

    def episode() -> int:
        env.reset(seed=1)
        count = 0
        for _ in env.agent_iter():
            observation, _, termination, truncation, info = env.last()
            # A benchmark of refused moves would measure the wrong path.
            if "violation" in info or not observation["table"]:
                raise RuntimeError("a move did not count")
            over = termination or truncation
            action = None if over else Action(ActionType.SPEAK, next(script), (), next(move))
            count += action is not None
            env.step(action)
        if count != turns:
            raise RuntimeError(f"expected {turns} turns, got {count}")
        return count

    return episode


def numeric(env: Any, all_seats: bool) -> Callable[[], int]:
    """Episodes of bargaining in numbers with uniformly drawn open actions; counts the turns of all seats."""
    rng = np.random.default_rng(1)

    def draw(mask: Any) -> int:
        return int(rng.choice(np.flatnonzero(mask)))

    def alone() -> int:
        _, info = env.reset()
        over = False
        while not over:
            _, _, over, _, info = env.step(draw(info["action_mask"]))
        return len(env.episode().turns)

    def together() -> int:
        env.reset()
        for _ in env.agent_iter():
            observation, _, over, _, _ = env.last()
            env.step(None if over else draw(observation["action_mask"]))
        return len(env.unwrapped.episode().turns)

    return together if all_seats else alone


class Reader:
    """Reads its whole prompt and says a new sentence."""

    name = "reader"
    parameters: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self._script = iter([utterance() for _ in range(400_000)])

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Says the next sentence of the script; the prompt must not be empty."""
        if not observation.text:
            raise RuntimeError("the prompt is empty")
        return Decision(Action(ActionType.SPEAK, next(self._script)))


def rollouts(policy: Policy, evaluator: Evaluator) -> Callable[[], int]:
    """Batches of 20-turn episodes through ``run_episodes``, one after the other."""
    task_set = tasks.generate("bargaining", 8, seed=2)
    plans = list(plan_episodes(task_set, [(policy, policy)], rules=Rules(max_turns=20, max_silent_turns=0)))

    def batch() -> int:
        result = asyncio.run(run_episodes(plans, evaluator=evaluator, concurrency=1, progress=False))
        return sum(len(episode.turns) for episode in result.episodes)

    return batch


def figures() -> list[Figure]:
    """Cost per turn at 20 and 400 turns, in talk alone and with a move on every turn."""
    cost = cpu_rounds(
        {
            "tictactoe": tictactoe,
            "talk 20": environment(20),
            "talk 400": environment(400),
            "moves 20": negotiation(20),
            "moves 400": negotiation(400),
            "rollout": rollouts(Reader(), VerifiedOutcome()),
            "numbers, one seat": numeric(SotopiaMovesEnv(partner="linear"), all_seats=False),
            "numbers, all seats": numeric(sotopia_moves_v0.env(), all_seats=True),
        }
    )
    base = cost["tictactoe"]
    costs = ", ".join(f"{name} {value:.0f} µs" for name, value in cost.items())
    talk, trade, rollout = cost["talk 20"], cost["moves 20"], cost["rollout"]

    def turn(name: str, value: float) -> Figure:
        # The smallest real model takes a second for a turn; a thousandth of it is nothing that anybody waits for.
        ratio = f"{value / base:.2f} of a move of tictactoe"
        return Figure(f"{name}: CPU per turn", value / 1000, "ms", 1, note=ratio)

    return [
        turn("AEC, 20 turns of talk", talk),
        turn("AEC, 20 turns with moves", trade),
        turn("run_episodes, 20 turns of talk", rollout),
        Figure("AEC, talk: cost per turn at 400 turns / at 20", cost["talk 400"] / talk, "x", 1.5, note=costs),
        Figure("AEC, moves: cost per turn at 400 turns / at 20", cost["moves 400"] / trade, "x", 1.5),
        Figure(
            "agreements in numbers: CPU per turn, all seats / one seat",
            cost["numbers, all seats"] / cost["numbers, one seat"],
            "x",
            2,
            note=f"{cost['numbers, all seats']:.0f} and {cost['numbers, one seat']:.0f} µs",
        ),
    ]
