"""Report on a model in this process: what it is made of, and a turn of it in every task family."""

from __future__ import annotations

import asyncio
import time

from sotopia_env import tasks
from sotopia_env.chat_model.probing import FeatureResult
from sotopia_env.chat_model.protocol import Described
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.policies import LLMPolicy, Policy
from sotopia_env.world import Rules
from sotopia_env.world.play.table import Table


async def check_model(policy: Policy, seed: int = 0) -> list[FeatureResult]:
    """Returns the features of a policy's model, then its legal turns by family.

    A turn is legal if it can be read and its move is open. All turns are sampled at once, so the seconds of a turn are
    those of a batch.

    Args:
        policy: a policy of a model in this process.
        seed: the seed of the tasks and of sampling.

    Raises:
        InvalidValueError: the policy has no model in this process.
        ModelCallError: the model cannot be loaded or cannot answer.
    """
    model = policy.model if isinstance(policy, LLMPolicy) else None
    if not isinstance(model, Described):
        raise InvalidValueError(
            field="model", expected="a model in this process, or the address of a server", got=policy.name
        )
    rows = [FeatureResult(name, result, detail) for name, result, detail in model.features()]
    start = time.monotonic()
    families = list(tasks.FAMILIES)
    faults = await asyncio.gather(*(_first_fault(policy, family, seed) for family in families))
    seconds = (time.monotonic() - start) / len(families)
    problems = [f"{family}: {fault}" for family, fault in zip(families, faults, strict=True) if fault]
    legal = len(families) - len(problems)
    detail = f"{legal} of {len(families)} families, {seconds:.1f} s a turn, loading included"
    rows.append(FeatureResult("legal turns", "no" if problems else "yes", "; ".join([detail, *problems])))
    return rows


async def _first_fault(policy: Policy, family: str, seed: int) -> str:
    """Why the first turn in a task of a family is not legal; empty if it is."""
    (task,) = tasks.generate(family, 1, seed=seed)
    table = Table(task, Rules(max_turns=1), seed=seed)
    await table.step(policy)
    item = table.episode().turns[0]
    generation = item.generation
    if generation is not None and generation.parse_failure is not None:
        return f"unreadable ({generation.parse_failure})"
    return item.turn.violation or ""
