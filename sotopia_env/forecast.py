"""What a run would ask of its models, at most, found out without asking them.

Every policy is shown the opening of its task, and the evaluator an episode without turns, with a stand-in for the
model that never gives a usable answer: what they then ask, re-asks included, is the most that a turn or an evaluation
can need. Turns add to later prompts no more than their longest utterance. A token is counted for every two bytes of
UTF-8 text, about twice what tokenizers find in English.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model import ChatModel, ChatReply, ChatRequest, Price, RemoteModel, Role
from sotopia_env.dynamics import Rules, TurnOrder, initial_state
from sotopia_env.episode import Evaluator, Transcript
from sotopia_env.errors import EvaluationError
from sotopia_env.observation import observe
from sotopia_env.plan import EpisodePlan
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.run_directory import RUN, read_run
from sotopia_env.run_models import ModelOptions, RunModels
from sotopia_env.scenario import Task

if TYPE_CHECKING:
    from sotopia_env.run_request import RunRequest

BYTES_PER_TOKEN = 2
FRAME = 64
"""Tokens around an utterance in a prompt: who says it, and that it was said."""
SCRIPTED = 512
"""Tokens of a turn of a policy without a model."""
_ECHO = 4_000
_REMEDY: Mapping[Role, str] = {"agent": "--max-completion-tokens", "judge": "judge:MODEL?max_tokens=…"}


@dataclass(slots=True)
class Demand:
    """Sums over calls: how many, and tokens of prompts and answers; ``completion`` is ``None`` when unlimited."""

    calls: int = 0
    prompt: int = 0
    completion: int | None = 0

    def add(self, other: Demand, times: int = 1, growth: int | None = 0) -> None:
        """Adds ``times`` as much of another one, whose prompts have grown by ``growth`` tokens each, in sum."""
        self.calls += other.calls * times
        self.prompt += other.prompt * times + other.calls * (growth or 0)
        unlimited = self.completion is None or other.completion is None or growth is None
        self.completion = None if unlimited else self.completion + other.completion * times  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """The most that one model may be asked on one account.

    Attributes:
        model: its name.
        role: on whose account.
        demand: calls and tokens.
        price: of its tokens, where it is known.
    """

    model: str
    role: Role
    demand: Demand
    price: Price | None

    @property
    def cost(self) -> float | None:
        """US dollars; ``None`` when the price is not known or answers have no limit."""
        if self.price is None or self.demand.completion is None:
            return None
        return self.price.of(self.demand.prompt, self.demand.completion)

    def __str__(self) -> str:
        said = f"{self.role} {self.model}: at most {self.demand.calls} calls"
        if self.demand.completion is None:
            return f"{said}; tokens without limit, since its answers have none ({_REMEDY[self.role]})"
        cost = "price unknown" if self.cost is None else f"at most ${self.cost:.4f}"
        return f"{said}, {self.demand.prompt} prompt tokens, {self.demand.completion} answer tokens, {cost}"


@dataclass
class Rehearsal:
    """Stands in for a model: notes what it would have been asked, and answers nothing that can be used."""

    model: ChatModel
    noted: list[ChatRequest] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's, so that plans have the same keys."""
        return self.model.parameters

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Notes the request."""
        self.noted.append(request)
        length = _ECHO if request.max_tokens is None else min(_ECHO, request.max_tokens * 4)
        return ChatReply(text="-" * length)

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()

    @property
    def price(self) -> Price | None:
        """The model's, where it is known."""
        return self.model.price if isinstance(self.model, RemoteModel) else None


class Forecast:
    """Adds up what the plans of a run may ask.

    Args:
        rehearsals: the models that the plans' policies and the evaluator were made with.
    """

    def __init__(self, rehearsals: Sequence[Rehearsal]) -> None:
        self._rehearsals = rehearsals
        self._sums: dict[tuple[str, Role], Demand] = defaultdict(Demand)

    def of(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> list[ModelForecast]:
        """Returns one forecast for each model and account."""
        asyncio.run(self._rehearse(plans, evaluator))
        prices = {rehearsal.name: rehearsal.price for rehearsal in self._rehearsals}
        return [ModelForecast(m, role, demand, prices[m]) for (m, role), demand in self._sums.items()]

    async def _rehearse(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> None:
        verdicts: dict[str, dict[tuple[str, Role], Demand]] = {}
        for plan in plans:
            seats = [await self._opening(plan, seat) for seat in range(len(plan.task.agents))]
            turns = turn_limit(plan.task, plan.rules)
            growth = max(
                (_longest(seat) for seat in seats), key=lambda tokens: float("inf") if tokens is None else tokens
            )
            for seat, taken in _turns_of_seats(seats, turns, plan.rules):
                spoken = None if growth is None else growth * sum(taken)
                for key, demand in seat.items():
                    self._sums[key].add(demand, len(taken), spoken)
            if evaluator is not None:
                known = plan.task.content_hash
                if known not in verdicts:
                    verdicts[known] = await self._verdict(plan.task, evaluator)
                for key, demand in verdicts[known].items():
                    self._sums[key].add(demand, 1, None if growth is None else growth * turns)

    async def _opening(self, plan: EpisodePlan, seat: int) -> dict[tuple[str, Role], Demand]:
        """What the policy in ``seat`` asks for one turn when nothing has been said yet."""
        policy, agent = plan.policies[seat], plan.task.agents[seat]
        if not isinstance(policy, HumanPolicy):
            await policy.act(observe(initial_state(plan.task, plan.rules, plan.episode_seed), agent), 0)
        return self._noted()

    async def _verdict(self, task: Task, evaluator: Evaluator) -> dict[tuple[str, Role], Demand]:
        with suppress(EvaluationError):  # a judge without an answer; what it asked is noted
            await evaluator.evaluate_async(Transcript(task, ()))
        return self._noted()

    def _noted(self) -> dict[tuple[str, Role], Demand]:
        found: dict[tuple[str, Role], Demand] = defaultdict(Demand)
        for rehearsal in self._rehearsals:
            for request in rehearsal.noted:
                size = sum(len(message["content"].encode()) for message in request.messages)
                one = Demand(1, size // BYTES_PER_TOKEN + FRAME * len(request.messages), request.max_tokens)
                found[rehearsal.name, request.role].add(one)
            rehearsal.noted.clear()
        return found


def turn_limit(task: Task, rules: Rules) -> int:
    """Returns the most turns that an episode can have."""
    limit, seats = rules.turn_limit(task), len(task.agents)
    if limit is None:
        return (rules.max_rounds or 0) * seats
    return -(-limit // seats) * seats if rules.turn_order is TurnOrder.SIMULTANEOUS else limit


def _longest(seat: Mapping[tuple[str, Role], Demand]) -> int | None:
    """Tokens that one turn of a seat adds to later prompts; ``None`` when there is no limit."""
    if not seat:
        return SCRIPTED + FRAME
    if any(demand.completion is None for demand in seat.values()):
        return None
    return max(-(-(demand.completion or 0) // max(1, demand.calls)) for demand in seat.values()) + FRAME


_Seat = Mapping[tuple[str, Role], Demand]


def _turns_of_seats(seats: Sequence[_Seat], turns: int, rules: Rules) -> Iterator[tuple[_Seat, list[int]]]:
    """Every seat that asks a model, with the indices of the turns it may take at most.

    Two seats take turns; among more, whoever stays may also take those of seats that leave.
    """
    for number, seat in enumerate(seats):
        if not seat:
            continue
        if len(seats) > 2:
            yield seat, list(range(turns))
        elif rules.turn_order is TurnOrder.ROUND_ROBIN:
            yield seat, list(range((number - rules.first_seat) % 2, turns, 2))
        else:
            yield seat, list(range(1 if turns % 2 == 0 else 0, turns, 2))


def forecast(request: RunRequest, out: Path) -> list[str]:
    """Returns in lines what a run would ask at most; nothing is sent, and nothing is written.

    Raises:
        InvalidValueError: the run cannot be meant, or ``out`` holds another one.
    """
    rehearsed = _RehearsedModels(request.models)
    plans, evaluator = request.plans(rehearsed), request.judge(rehearsed)
    there = {episode.key for episode in read_run(out)} if (out / RUN).is_file() else set()
    todo = [plan for plan in plans if plan.key not in there]
    found = Forecast(rehearsed.rehearsals).of(todo, evaluator)
    lines = [f"{len(plans)} episodes planned, {len(plans) - len(todo)} are there, {len(todo)} would be played"]
    lines += [str(each) for each in found] or ["no model would be asked"]
    if found:
        costs = [each.cost for each in found]
        known = "unknown" if None in costs else f"at most ${sum(cost or 0.0 for cost in costs):.4f}"
        retries = request.models.retries if isinstance(request.models.retries, int) else request.models.retries.retries
        lines.append(f"in all {known}; calls that fail are sent again up to {retries} times, which may cost extra")
    return [*lines, "nothing was sent"]


class _RehearsedModels(RunModels):
    """Makes stand-ins for the models that a run would ask."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self.rehearsals: list[Rehearsal] = []

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        self.rehearsals.append(Rehearsal(super().__call__(spec, "agent", api_base=api_base)))
        return self.rehearsals[-1]
