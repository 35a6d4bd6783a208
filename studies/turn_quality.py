"""Counts a policy's turns by quality, without scoring episodes: readable, legal, with a move, sensible.

python studies/turn_quality.py --policy "smol:format=chat,max_length=4000,temperature=0.7" --policy random-offers

The policy has the first seat of generated tasks, "linear" the others. A turn is readable if it is an action, legal if
its move is open too, and sensible if its move, once agreed, decided or right, leaves the seat no worse off than no
outcome: no offer, acceptance or vote below that worth, and no claim of a name that the seat has not read. Rejecting an
offer is sensible; words alone, silence and withdrawals are not. For a model with a tokenizer of its own the tokens of
first prompts follow.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import Counter

from sotopia_env import tasks
from sotopia_env.chat_model.protocol import CountsTokens
from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.naming import make_policy
from sotopia_env.outcomes import Move
from sotopia_env.policies import LLMPolicy, Policy
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.world import Observation, Rules, Task
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.recorded import observations
from sotopia_env.world.play.table import Table

KINDS = ("turns", "readable", "legal", "with a move", "sensible")


def is_sensible(move: Move, observation: Observation, task: Task) -> bool:
    """Returns whether a legal move, if it leads to an outcome, leaves its seat no worse off than without one."""
    kind, content, protocol = move.kind.value, move.content, task.protocol
    assert protocol is not None
    valuation = protocol.valuations[protocol.agents.index(observation.agent)]
    if kind == "claim":
        return str(content).casefold() in observation.text.casefold()
    if kind in ("reject", "withdraw") or content is None:
        return kind == "reject"
    if kind == "accept":
        assert observation.table is not None
        offers = {one.offer.number: one.offer.terms for one in observation.table.offers}
        # ``true`` accepts the only open offer.
        terms = offers[content] if content in offers else next(iter(offers.values()))
    else:
        terms = protocol.space.normalise({"option": content} if kind == "vote" else content)
    return valuation.exact(protocol.space, terms) >= valuation.disagreement


def counted(episode: Episode) -> Counter[str]:
    """The first seat's turns by kind."""
    counts: Counter[str] = Counter()
    for observation, index in observations(episode, episode.task.agents[0]):
        item = episode.turns[index]
        generation, move = item.generation, item.turn.action.move
        is_readable = generation is None or generation.parse_failure is None
        is_legal = is_readable and item.turn.violation is None
        has_move = is_legal and move is not None
        sensible = is_legal and move is not None and is_sensible(move, observation, episode.task)
        marks = (True, is_readable, is_legal, has_move, sensible)
        counts.update(kind for kind, mark in zip(KINDS, marks, strict=True) if mark)
    return counts


async def played(policy: Policy, task: Task, options: argparse.Namespace) -> Counter[str]:
    """Plays one task and counts."""
    rules = Rules(max_turns=options.rounds * len(task.agents), worths=options.worths)
    table = Table(task, rules, seed=options.seed)
    partner = make_policy("linear")
    await table.play(dict.fromkeys(task.agents, partner) | {task.agents[0]: policy})
    return counted(table.episode())


def first_prompts(policy: Policy, task_list: list[Task], worths: bool) -> str:
    """Returns mean and maximum of the first prompts' tokens as text; empty for a policy without a tokenizer."""
    if not isinstance(policy, LLMPolicy) or not isinstance(policy.model, CountsTokens):
        return ""
    firsts = (Table(task, Rules(worths=worths), seed=0).observe(task.agents[0]) for task in task_list)
    lengths = [policy.model.prompt_tokens(AgentPrompt(policy.format).messages(first)) for first in firsts]
    return f"first prompt {statistics.mean(lengths):.0f}, at most {max(lengths)} tokens"


async def measure(options: argparse.Namespace) -> None:
    """Prints a line for each policy and family."""
    for spec in options.policy:
        policy = make_policy(spec)
        by_family = {name: list(tasks.generate(name, options.tasks, seed=options.seed)) for name in options.families}
        games = [played(policy, one, options) for many in by_family.values() for one in many]
        # All games at once, so that a model in this process samples in large batches; results keep their order.
        counts = iter(await asyncio.gather(*games))
        total: Counter[str] = Counter()
        for name, many in by_family.items():
            own = sum((next(counts) for _ in many), Counter())
            total += own
            print(f"{name:15} {_line(own)} {first_prompts(policy, many, options.worths)}", flush=True)
        print(f"{'all':15} {_line(total)} {spec}", flush=True)


def _line(counts: Counter[str]) -> str:
    return "".join(f"{kind} {counts[kind]:3}  " for kind in KINDS)


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", required=True, help="as `sotopia rollout` takes it; repeatable")
    parser.add_argument("--families", nargs="+", default=list(tasks.FAMILIES), choices=list(tasks.FAMILIES))
    parser.add_argument("--tasks", type=int, default=2, help="per family")
    parser.add_argument("--rounds", type=int, default=2, help="turns of the measured seat")
    parser.add_argument("--seed", type=int, default=3)
    worths = argparse.BooleanOptionalAction
    parser.add_argument("--worths", action=worths, default=True, help="whether seats read what values are worth")
    try:
        asyncio.run(measure(parser.parse_args()))
    except SotopiaError as error:
        print(f"sotopia: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
