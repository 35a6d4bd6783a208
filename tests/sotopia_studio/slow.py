"""A policy that thinks for a while, so that a run can be stopped in the middle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from sotopia_env.world import Action, Observation
from sotopia_env.world.play.policy import Decision


class Slow:
    """Says the same after a moment."""

    name = "slow"
    parameters: Mapping[str, Any] = {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a greeting."""
        await asyncio.sleep(0.02)
        return Decision(Action("speak", "Hello."))  # type: ignore[arg-type]


class Pensive(Slow):
    """Thinks for longer than any client waits."""

    name = "pensive"

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns a greeting after a minute."""
        await asyncio.sleep(3600)
        return await super().act(observation, seed)


class Heavy(Slow):
    """Takes as long to build as a model in the same process."""

    name = "heavy"

    def __init__(self, seconds: float = 4.0) -> None:
        """Blocks its thread."""
        self.parameters = {"seconds": seconds}
        time.sleep(seconds)
