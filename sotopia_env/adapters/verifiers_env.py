"""Taskset, environment and harness for verifiers 0.4 and prime-rl, whose id is ``sotopia-verifiers``."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import Any

from sotopia_env.credit import standing_rewards
from sotopia_env.envs.episode_reward import EpisodeReward
from sotopia_env.errors import PolicyError
from sotopia_env.extras import extra
from sotopia_env.naming import make_evaluator, make_policy, task_set
from sotopia_env.policies import Decision
from sotopia_env.records import read_record
from sotopia_env.table import Table
from sotopia_env.world import DIMENSIONS, NO_ACTION, Generation, Observation, ParseFailure, Rules, Scalarisation
from sotopia_env.world import Task as SotopiaTask

with extra("verifiers"):
    import httpx
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire


class TasksetConfig(vf.TasksetConfig):
    """The tasks: ``tasks``, ``n`` and ``level`` are those of ``sotopia rollout``.

    Attributes:
        focal: the seat that is trained; ``None`` makes a row for every seat of every task.
    """

    tasks: str = "bargaining"
    n: int = 100
    level: str = "medium"
    seed: int = 0
    focal: int | None = None


class TaskData(vf.TaskData):
    """A seat of a task, and the seed of its episodes."""

    sotopia: str
    focal: int
    seed: int


class SotopiaTaskset(vf.Taskset[vf.Task[TaskData, vf.State, vf.TaskConfig], TasksetConfig]):
    """The seats of a task set."""

    def load(self) -> Any:
        """Yields a row for every seat."""
        config = self.config
        for number, task in enumerate(task_set(config.tasks, config.n, config.seed, config.level)):
            for focal in range(len(task.agents)) if config.focal is None else [config.focal]:
                row = {"sotopia": task.model_dump_json(), "focal": focal, "seed": config.seed + number}
                yield vf.Task(TaskData(name=f"{task.id}/agent_{focal}", **row), config.task)


def _agent() -> vf.AgentConfig:
    return vf.AgentConfig(runtime={"type": "subprocess"})


class EnvConfig(vf.EnvConfig):
    """The agents of verifiers, and what plays the seats that they do not play.

    Attributes:
        agent_0: the agent in seat 0.
        agent_1: the agent in seat 1.
        self_play: whether both agents play, each with its own trace; otherwise the one in the row's seat plays.
        partner: the policy in the other seats.
        reasks: how often a text that is not an action is answered with the reason.
    """

    agent_0: vf.AgentConfig = _agent()
    agent_1: vf.AgentConfig = _agent()
    self_play: bool = False
    partner: str = "boulware"
    max_turns: int = 20
    evaluator: str | None = None
    scalarisation: str | None = None
    reasks: int = 2


class _ExchangeEndedError(PolicyError):
    """A limit of verifiers ended the exchange with an agent."""


class _Interaction:
    """The policy of an agent of verifiers. ``ends`` has, for every sampled text, whether it ended a turn."""

    name = "verifiers"

    def __init__(self, interaction: vf.Interaction, reasks: int) -> None:
        self.interaction, self.parameters, self.ends = interaction, {"reasks": reasks}, list[bool]()

    async def act(self, observation: Observation, seed: int) -> Decision:
        message, failure = observation.news, ""
        for left in range(self.parameters["reasks"], -1, -1):
            segment = await self.interaction.turn(message)
            if segment.terminated:
                raise _ExchangeEndedError("the exchange with the agent has ended")
            action = observation.parse(segment.last_reply)
            self.ends.append(not isinstance(action, ParseFailure) or not left)
            if not isinstance(action, ParseFailure):
                return Decision(action, Generation(text=segment.last_reply))
            failure = action.reason
            message = f"That is not an action: {failure}"
        return Decision(NO_ACTION, Generation(text=segment.last_reply, parse_failure=failure))


class SotopiaEnv(vf.Env[EnvConfig]):
    """One episode: an agent of verifiers in one seat, or in two."""

    async def run(self, task: vf.Task[Any], agents: vf.Agents) -> None:
        """Plays and scores the episode; every trace gets its reward, its scores and ``info["turn_rewards"]``."""
        config, data = self.config, task.data
        table = Table(read_record(SotopiaTask, data.sotopia, "task"), Rules(max_turns=config.max_turns), data.seed)
        evaluator = None if config.evaluator is None else make_evaluator(config.evaluator)
        scalarisation = None if config.scalarisation is None else Scalarisation.of(config.scalarisation)
        payment = EpisodeReward.of(table.task, evaluator, scalarisation)
        names = table.task.agents[:2] if config.self_play else (table.task.agents[data.focal],)
        async with AsyncExitStack() as stack:
            played = {}
            for name in names:
                row = vf.TaskData(idx=data.idx, name=data.name, system_prompt=table.observe(name).system)
                exchange = await stack.enter_async_context(getattr(agents, name).interaction(vf.Task(row)))
                played[name] = _Interaction(exchange, config.reasks)
            partner = make_policy(config.partner)
            with suppress(_ExchangeEndedError):  # what was agreed until then counts
                await table.play({name: played.get(name, partner) for name in table.task.agents})
            if any(policy.interaction.trace.errors for policy in played.values()):
                return  # a model failed: the episode is not ok, and has no reward
            await table.evaluate(payment.evaluator)
            for name, policy in played.items():
                _record(policy, table, name, payment)


def _record(policy: _Interaction, table: Table, agent: str, payment: EpisodeReward) -> None:
    evaluation, trace = table.evaluation, policy.interaction.trace
    assert evaluation is not None
    seat = table.task.seat_of[agent]
    paid = payment.pay(evaluation, agent, lambda _: evaluation.outcome.shares[seat] if evaluation.outcome else 0.0)
    trace.record_reward("reward", paid.reward)
    trace.record_metrics({d.value: value for d, value in zip(DIMENSIONS, paid.vector, strict=True)})
    trace.record_metrics({"turns": len(table.turns), "unusable": policy.ends.count(False)})
    trace.info["stop"] = None if table.stop is None else table.stop.value
    if payment.basis == "verified" and payment.scalarisation is not None:
        rewards = iter(standing_rewards(table.episode(), agent, payment.scalarisation).values)
        # One for each sampled text: one that was not an action, and was asked for again, has no turn.
        trace.info["turn_rewards"] = [next(rewards) if end else None for end in policy.ends]


class InProcessHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model from the worker itself, where verifiers' own ``null`` harness starts a program for every turn."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        *_: Any,
        **__: Any,
    ) -> vf.ProgramResult:
        """Sends the conversation to verifiers' interception server, which asks the model and fills the trace."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        messages += (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt or ())
        )
        async with httpx.AsyncClient(timeout=None, headers={"authorization": f"Bearer {secret}"}) as client:
            url = f"{endpoint}/chat/completions"
            answer = await client.post(url, json={"model": ctx.model, "messages": messages})
        return vf.ProgramResult(
            exit_code=int(answer.is_error), stdout="", stderr=answer.text if answer.is_error else ""
        )


__all__ = ["InProcessHarness", "SotopiaEnv", "SotopiaTaskset"]
