"""What a run would ask of its models, found out without asking them: at most, and if nothing goes wrong.

Every policy is shown the opening of its task, and the evaluator an episode without turns, with a stand-in for the
model that never gives a usable answer: what they then ask, re-asks included, is the most that a turn or an evaluation
can need. Turns add to later prompts no more than their longest utterance. A token is counted for every two bytes of
UTF-8 text, about twice what tokenizers find in English.

A request may have to be paid for although it brought nothing: an answer that is empty, malformed or cut off. So the
bound counts each call as often as it may be sent, once more for every retry, and again for every fallback model. What
a server refuses (a rate limit, a conversation that is too long) costs nothing and is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model import ChatModel, ChatReply, ChatRequest, Price, RemoteModel, Role, estimate_tokens
from sotopia_env.chat_model.limits import most_tokens
from sotopia_env.chat_model.pool import ModelOptions, RunModels
from sotopia_env.errors import EvaluationError
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import RUN
from sotopia_env.world.dynamics import Rules, TurnOrder, initial_state
from sotopia_env.world.episode import Evaluator, Transcript
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task

if TYPE_CHECKING:
    from sotopia_env.runs.request import RunRequest

FRAME = 64
"""Tokens around an utterance in a prompt: who says it, and that it was said."""
SCRIPTED = 512
"""Tokens of a turn of a policy without a model, at most."""
USUAL: Mapping[Role, int] = {"agent": 60, "judge": 800}
"""Tokens of an answer as a rule, for the expectation."""
_USUAL_FRAME = 12
_ECHO = 4_000
_REMEDY: Mapping[Role, str] = {"agent": "--max-completion-tokens", "judge": "judge:MODEL?max_tokens=…"}
_Key = tuple[str, Role]


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@dataclass(slots=True)
class Demand:
    """Sums over calls.

    Attributes:
        calls: questions that are asked.
        requests: how often these are sent.
        prompt: tokens of the prompts of all requests; ``None`` when there is no bound.
        completion: tokens of the answers, likewise.
    """

    calls: int = 0
    requests: int = 0
    prompt: int | None = 0
    completion: int | None = 0

    def add(self, other: Demand, times: int = 1, growth: int | None = 0, most: int | None = None) -> None:
        """Adds another one.

        Args:
            other: what is added.
            times: how often.
            growth: by how many tokens its prompts have grown, over all these times; ``None`` for no bound.
            most: tokens that one prompt can have; ``None`` when that is not known.
        """
        self.calls += other.calls * times
        self.requests += other.requests * times
        prompt = _sum(None if other.prompt is None else other.prompt * times, growth and other.requests * growth)
        if most is not None:
            ceiling = most * other.requests * times
            prompt = ceiling if prompt is None else min(prompt, ceiling)
        self.prompt = _sum(self.prompt, prompt)
        self.completion = _sum(self.completion, None if other.completion is None else other.completion * times)


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """What one model may be asked on one account.

    Attributes:
        model: its name.
        role: on whose account.
        bound: the most.
        expected: if nothing goes wrong, every turn is taken and answers are as long as usual.
        price: of its tokens, where it is known.
        context: tokens a prompt can have, where that is known or a policy's ``context_limit`` says it.
    """

    model: str
    role: Role
    bound: Demand
    expected: Demand
    price: Price | None
    context: int | None = None

    def cost(self, demand: Demand) -> float | None:
        """US dollars; ``None`` when the price is not known or there is no bound."""
        if self.price is None or demand.prompt is None or demand.completion is None:
            return None
        return self.price.of(demand.prompt, demand.completion)

    def __str__(self) -> str:
        most = f"{self.role} {self.model}: at most {self.bound.calls} calls, {self._tokens()}"
        if not self.expected.calls:
            return f"{most}; none unless another model fails"
        cost = self.cost(self.expected)
        return (
            f"{most}; about {self.expected.calls} calls, {self.expected.prompt} prompt tokens and "
            f"{self.expected.completion} answer tokens{'' if cost is None else f', ${cost:.4f}'} if nothing goes wrong"
        )

    def _tokens(self) -> str:
        if self.bound.completion is None:
            return f"tokens without limit, since its answers have none ({_REMEDY[self.role]})"
        prompt = self.bound.prompt
        said = "prompt tokens without limit, since other answers have none" if prompt is None else ""
        cost = self.cost(self.bound)
        price = "price unknown" if self.price is None else "cost without limit" if cost is None else f"${cost:.4f}"
        said = said or f"{prompt} prompt tokens"
        within = "" if self.context is None else f" to a context of {self.context} tokens"
        times = f"sent up to {self.bound.requests} times{within}"
        return f"{said}, {self.bound.completion} answer tokens, {price} ({times})"


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
        length = _ECHO if request.max_tokens is None else min(_ECHO, request.max_tokens)
        return ChatReply(text="é" * length)  # counts as one token each

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()

    @property
    def ways(self) -> tuple[Way, ...]:
        """The model itself, and then its fallbacks."""
        if not isinstance(self.model, RemoteModel):
            return (Way(self.name, None, 1, None, None),)
        return tuple(
            Way(
                route.transport.name,
                route.price,
                1 + route.retries.retries,
                route.transport.longest_prompt,
                route.transport.longest_answer,
            )
            for route in self.model.routes
        )


@dataclass(frozen=True, slots=True)
class Way:
    """A model that may come to answer.

    Attributes:
        name: the model's.
        price: of its tokens, where it is known.
        attempts: how often one call may be sent to it.
        longest_prompt: tokens a prompt can have, where that is known.
        longest_answer: tokens an answer can have, where that is known.
    """

    name: str
    price: Price | None
    attempts: int
    longest_prompt: int | None
    longest_answer: int | None


@dataclass(slots=True)
class _Asked:
    """What is asked of one model for one turn or one evaluation, when nothing has been said yet."""

    bound: Demand = field(default_factory=Demand)
    expected: Demand = field(default_factory=Demand)
    longest_prompt: int | None = None
    longest_answer: int | None = 0
    usual_answer: int = 0

    def add(self, request: ChatRequest, way: Way, first: bool, context: int | None) -> None:
        limits = [limit for limit in (request.max_tokens, way.longest_answer, context) if limit is not None]
        answer = min(limits, default=None)
        prompt = most_tokens(request) + FRAME * len(request.messages)
        everything = None if answer is None else answer * way.attempts
        self.bound.add(Demand(1, way.attempts, prompt * way.attempts, everything))
        windows = [limit for limit in (way.longest_prompt, context) if limit is not None]
        if windows:
            self.longest_prompt = max(min(windows), self.longest_prompt or 0)
        self.longest_answer = (
            None if answer is None or self.longest_answer is None else max(self.longest_answer, answer)
        )
        if first and not request.reask:
            usual = min(USUAL[request.role], *limits) if limits else USUAL[request.role]
            self.expected.add(Demand(1, 1, estimate_tokens(request), usual))
            self.usual_answer = usual


_Seat = Mapping[_Key, _Asked]


class Forecast:
    """Adds up what the plans of a run may ask.

    Args:
        rehearsals: the models that the plans' policies and the evaluator were made with.
    """

    def __init__(self, rehearsals: Sequence[Rehearsal]) -> None:
        self._rehearsals = rehearsals
        self._bounds: dict[_Key, Demand] = {}
        self._expected: dict[_Key, Demand] = {}
        self._contexts: dict[_Key, int] = {}

    def of(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> list[ModelForecast]:
        """Returns one forecast for each model and account."""
        asyncio.run(self._rehearse(plans, evaluator))
        prices = {way.name: way.price for rehearsal in self._rehearsals for way in rehearsal.ways}
        return [
            ModelForecast(key[0], key[1], bound, self._expected[key], prices[key[0]], self._contexts.get(key))
            for key, bound in self._bounds.items()
        ]

    async def _rehearse(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> None:
        verdicts: dict[str, _Seat] = {}
        for plan in plans:
            seats = [await self._opening(plan, seat) for seat in range(len(plan.task.agents))]
            turns = turn_limit(plan.task, plan.rules)
            longest, usual = _longest(seats), _usual(seats)
            for seat, taken in _turns_of_seats(seats, turns, plan.rules):
                before = sum(taken)
                self._add(seat, len(taken), longest and longest * before, usual * before)
            if evaluator is not None:
                known = plan.task.content_hash
                if known not in verdicts:
                    verdicts[known] = await self._verdict(plan.task, evaluator)
                self._add(verdicts[known], 1, longest and longest * turns, usual * turns)

    def _add(self, asked: _Seat, times: int, most: int | None, usual: int) -> None:
        """Adds what is asked so many times, of prompts that have grown by so many tokens in sum."""
        for key, one in asked.items():
            if one.longest_prompt is not None:
                self._contexts[key] = max(one.longest_prompt, self._contexts.get(key, 0))
            self._bounds.setdefault(key, Demand()).add(one.bound, times, most, one.longest_prompt)
            self._expected.setdefault(key, Demand()).add(one.expected, times, usual, one.longest_prompt)

    async def _opening(self, plan: EpisodePlan, seat: int) -> _Seat:
        """What the policy in ``seat`` asks for one turn when nothing has been said yet."""
        policy, agent = plan.policies[seat], plan.task.agents[seat]
        if not isinstance(policy, HumanPolicy):
            await policy.act(observe(initial_state(plan.task, plan.rules, plan.episode_seed), agent), 0)
        return self._noted(max(_contexts(policy.parameters), default=None))

    async def _verdict(self, task: Task, evaluator: Evaluator) -> _Seat:
        with suppress(EvaluationError):  # a judge without an answer; what it asked is noted
            await evaluator.evaluate_async(Transcript(task, ()))
        return self._noted(None)

    def _noted(self, context: int | None) -> _Seat:
        found: dict[_Key, _Asked] = {}
        for rehearsal in self._rehearsals:
            for request in rehearsal.noted:
                for number, way in enumerate(rehearsal.ways):
                    found.setdefault((way.name, request.role), _Asked()).add(request, way, number == 0, context)
            rehearsal.noted.clear()
        return found


def _contexts(settings: object) -> Iterator[int]:
    """Every ``context_limit`` in parameters, of policies that others are made of too."""
    if isinstance(settings, Mapping):
        limit = settings.get("context_limit")
        if isinstance(limit, int):
            yield limit
        for part in settings.values():
            yield from _contexts(part)
    elif isinstance(settings, list | tuple):
        for part in settings:
            yield from _contexts(part)


def turn_limit(task: Task, rules: Rules) -> int:
    """Returns the most turns that an episode can have."""
    limit, seats = rules.turn_limit(task), len(task.agents)
    if limit is None:
        return (rules.max_rounds or 0) * seats
    return -(-limit // seats) * seats if rules.turn_order is TurnOrder.SIMULTANEOUS else limit


def _longest(seats: Sequence[_Seat]) -> int | None:
    """Tokens that one turn adds to later prompts at most; ``None`` when there is no bound."""
    answers = [asked.longest_answer for seat in seats for asked in seat.values()]
    if None in answers:
        return None
    scripted = SCRIPTED if not all(seats) else 0
    return max(scripted, *(answer or 0 for answer in answers), 0) + FRAME


def _usual(seats: Sequence[_Seat]) -> int:
    """Tokens that one turn adds to later prompts as a rule."""
    return max((asked.usual_answer for seat in seats for asked in seat.values()), default=USUAL["agent"]) + _USUAL_FRAME


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


def foresee(request: RunRequest, out: Path) -> tuple[int, int, list[ModelForecast]]:
    """Returns how many episodes are planned, how many of them are still to be played, and what these would ask.

    Raises:
        InvalidValueError: the run cannot be meant, or ``out`` holds another one.
    """
    rehearsed = _RehearsedModels(request.models)
    plans, evaluator = request.plans(rehearsed), request.judge(rehearsed)
    there = {episode.key for episode in read_run(out)} if (out / RUN).is_file() else set()
    todo = [plan for plan in plans if plan.key not in there]
    return len(plans), len(todo), Forecast(rehearsed.rehearsals).of(todo, evaluator)


def forecast(request: RunRequest, out: Path) -> list[str]:
    """Returns in lines what a run would ask; nothing is sent, and nothing is written.

    Raises:
        InvalidValueError: the run cannot be meant, or ``out`` holds another one.
    """
    planned, todo, found = foresee(request, out)
    lines = [f"{planned} episodes planned, {planned - todo} are there, {todo} would be played"]
    lines += [str(each) for each in found] or ["no model would be asked"]
    if found:
        lines.append(_in_all(found))
        lines += _stops(request.models)
    return [*lines, "nothing was sent"]


def _in_all(found: Sequence[ModelForecast]) -> str:
    def cost(demands: Mapping[int, Demand]) -> float | None:
        costs = [found[number].cost(demand) for number, demand in demands.items()]
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    most = cost({number: each.bound for number, each in enumerate(found)})
    about = cost({number: each.expected for number, each in enumerate(found) if each.expected.calls})
    if any(each.bound.completion is None or each.bound.prompt is None for each in found):
        said = "in all without limit"
    else:
        said = "in all unknown" if most is None else f"in all at most ${most:.4f}"
    usual = "" if about is None else f"; about ${about:.4f} if nothing goes wrong"
    return f"{said}, with every re-ask, paid failure and fallback{usual}"


def _stops(options: ModelOptions) -> list[str]:
    limits = [] if options.max_cost is None else [f"${options.max_cost:g} (--max-cost)"]
    limits += [] if options.max_tokens is None else [f"{options.max_tokens} tokens (--max-tokens)"]
    return [f"the run stops before it would pass {' or '.join(limits)}"] if limits else []


class _RehearsedModels(RunModels):
    """Makes stand-ins for the models that a run would ask."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self.rehearsals: list[Rehearsal] = []

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        self.rehearsals.append(Rehearsal(super().__call__(spec, "agent", api_base=api_base)))
        return self.rehearsals[-1]
