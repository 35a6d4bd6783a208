"""Requests and answers of judges, for the tests of this folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sotopia_env.chat_model.protocol import ChatRequest
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.reward import RANGES

SEVEN = {dimension.value: span for dimension, span in RANGES.items()}
DATA = re.compile(r"DATA ([0-9a-f]{16}) begins\n(.*?)\nDATA \1 ends\n", re.DOTALL)


class ClosingModel(ScriptedChatModel):
    """Counts how often it is closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


def data_of(request: ChatRequest) -> dict[str, Any]:
    """The document in a request."""
    match = DATA.search(request.messages[1]["content"])
    assert match is not None
    return json.loads(match.group(2))


def requirements(request: ChatRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The agents and the dimensions whose scores are wanted, by the schema."""
    verdicts = request.schema["properties"]["verdicts"]
    agents = tuple(verdicts["required"])
    return agents, tuple(verdicts["properties"][agents[0]]["required"])


def verdict(
    agents: Sequence[str] = ("agent_0", "agent_1"),
    dimensions: Sequence[str] = tuple(SEVEN),
    score: Callable[[str, str], Any] = lambda agent, name: SEVEN[name][0],
    quoting: str = "",
) -> str:
    """A well-formed verdict; by default every score is the lowest of its range, and the last reasoning quotes."""
    table: Mapping[str, Any] = {
        agent: {name: {"reasoning": f"{agent} on {name}", "score": score(agent, name)} for name in dimensions}
        for agent in agents
    }
    table[agents[-1]][dimensions[-1]]["reasoning"] += f": {quoting}" if quoting else ""
    return json.dumps({"verdicts": table})


def honest(request: ChatRequest) -> str:
    """The verdict that a request asks for, all scores the lowest."""
    return verdict(*requirements(request))
