"""Taskset and environment for verifiers 0.4 and prime-rl, whose id is ``sotopia-verifiers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from sotopia_env.adapters.seat import Seats, TextSeat
from sotopia_env.adapters.seat_reward import check_kind
from sotopia_env.foundation.errors import check_whole
from sotopia_env.foundation.extras import extra
from sotopia_env.naming import make_evaluator, make_policy, task_set
from sotopia_env.naming.seats import SELF, check_seat_names
from sotopia_env.world import Rules, TaskSet
from sotopia_env.world.reward import Scalarisation

with extra("verifiers"):
    import verifiers.v1 as vf


class TasksetConfig(vf.TasksetConfig):
    """The tasks: ``tasks``, ``n`` and ``level`` are those of ``sotopia rollout``.

    Attributes:
        focal: the seat that is trained; ``None`` makes a row for every seat of every task.
    """

    tasks: str = "bargaining"
    n: int = Field(100, ge=1)
    level: str = "medium"
    seed: int = Field(0, ge=0)
    focal: int | None = None


class TaskData(vf.TaskData):
    """A seat of a task, and the seed of its episodes."""

    sotopia: str
    focal: int
    seed: int


class SotopiaTaskset(vf.Taskset[vf.Task[TaskData, vf.State, vf.TaskConfig], TasksetConfig]):
    """The seats of a task set."""

    @property
    def tasks(self) -> TaskSet:
        """The tasks."""
        return task_set(self.config.tasks, self.config.n, self.config.seed, self.config.level)

    def load(self) -> Any:
        """Yields a row for every seat."""
        config = self.config
        for number, task in enumerate(self.tasks):
            seats = range(len(task.agents))
            if config.focal is not None:
                check_whole("focal", config.focal, 0, len(seats) - 1)
                seats = range(config.focal, config.focal + 1)
            for focal in seats:
                row = {"sotopia": task.model_dump_json(), "focal": focal, "seed": config.seed + number}
                yield vf.Task(TaskData(name=f"{task.id}/agent_{focal}", **row), config.task)


_READERS: Mapping[str, Callable[[str], object]] = {
    "partner": make_policy,
    "evaluator": make_evaluator,
    "scalarisation": Scalarisation.of,
    "turns": check_kind,
}


def _agent() -> vf.AgentConfig:
    return vf.AgentConfig(runtime={"type": "subprocess"})


class EnvConfig(vf.EnvConfig):
    """The agents of verifiers, one for each seat, and the policies that play the other seats.

    Attributes:
        agent_0: the agent in seat 0, and so on: ``agent_8`` is the agent in seat 8.
        self_play: whether all agents play, each with its own trace; otherwise the one in the row's seat plays.
        partner: the policy in the other seats, or policies by the names of seats (:mod:`sotopia_env.naming.seats`),
            where ``self`` lets the agent of that seat play and learn in the same episode.
        max_turns: limit on the turns of all seats; by default that of the scenario, or 20.
        turns: what the rewards of turns are changes of, ``standing`` or ``belief``.
        reasks: how often a text that is not an action is answered with the reason.
    """

    agent_0: vf.AgentConfig = _agent()
    agent_1: vf.AgentConfig = _agent()
    agent_2: vf.AgentConfig = _agent()
    agent_3: vf.AgentConfig = _agent()
    agent_4: vf.AgentConfig = _agent()
    agent_5: vf.AgentConfig = _agent()
    agent_6: vf.AgentConfig = _agent()
    agent_7: vf.AgentConfig = _agent()
    agent_8: vf.AgentConfig = _agent()
    self_play: bool = False
    partner: str | dict[str, str] = "boulware"
    max_turns: int | None = Field(None, ge=1)
    evaluator: str | None = None
    scalarisation: str | None = None
    turns: str = "standing"
    reasks: int = Field(2, ge=0)

    @field_validator("partner", "evaluator", "scalarisation", "turns")
    @classmethod
    def _check_name(cls, name: str | dict[str, str] | None, info: ValidationInfo) -> str | dict[str, str] | None:
        # A misspelt name would be an error of every episode, after which vf-eval reports success.
        for one in name.values() if isinstance(name, dict) else () if name is None else (name,):
            if one != SELF:
                _READERS[str(info.field_name)](one)
        return name


class SotopiaVerifiersEnv(vf.Env[EnvConfig]):
    """One episode: an agent of verifiers in one seat, or in several."""

    def __init__(self, config: EnvConfig) -> None:
        super().__init__(config)
        if isinstance(config.partner, dict):  # checked here: an error of every episode would be reported as success
            check_seat_names(self.taskset.tasks, config.partner, "partner")

    async def run(self, task: vf.Task[Any], agents: vf.Agents) -> None:
        """Plays and scores the episode; every trace gets its reward, its scores and ``info["turn_rewards"]``."""
        config, data = self.config, task.data
        partner = SELF if config.self_play else config.partner
        options = config.model_dump(include={"evaluator", "scalarisation", "reasks", "turns"})
        rules = Rules(max_turns=config.max_turns)
        seats = Seats.against(data.sotopia, partner, [data.focal], rules=rules, seed=data.seed, **options)
        async with AsyncExitStack() as stack:
            exchanges = {}
            for agent, seat in seats.items():
                row = vf.TaskData(idx=data.idx, name=data.name, system_prompt=seat.table.observe(agent).system)
                interaction = getattr(agents, agent).interaction(vf.Task(row))
                exchanges[agent] = await stack.enter_async_context(interaction)
            while acting := await seats.play():
                segment = await exchanges[acting[0].agent].turn(acting[0].news()[-1]["content"])
                if segment.terminated:  # a limit of verifiers: what was agreed until then counts
                    break
                acting[0].take(segment.last_reply, _finish_reason(exchanges[acting[0].agent].trace))
            if any(exchange.trace.errors for exchange in exchanges.values()):
                return  # a model failed: the episode is not ok, and has no reward
            await seats.end()
            for agent, seat in seats.items():
                _record(exchanges[agent].trace, seat)


def _finish_reason(trace: Any) -> str:
    """Why the server ended the latest answer: ``stop``, ``length`` or ``tool_calls``; empty if it did not say."""
    calls = [call for call in trace.calls if call.error is None]
    return (calls[-1].finish_reason or "") if calls else ""


def _record(trace: Any, seat: TextSeat) -> None:
    info, rewards = seat.info, seat.answer_rewards
    trace.record_reward("reward", seat.result.paid())
    trace.record_metrics({**seat.scores, "turns": info["turns"], "unusable": info["reasks"]})
    trace.info["stop"] = info["stop"]
    if rewards is not None:
        trace.info["turn_rewards"] = list(rewards)
