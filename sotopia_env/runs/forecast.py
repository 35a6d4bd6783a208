"""A forecast of what a run asks of its models: at most, and if nothing goes wrong. Nothing is sent for it.

Every policy gets the opening of its task, and the evaluator an episode without turns, with a stand-in for the model
that never gives a usable answer: its requests, re-asks included, are the most that a turn or an evaluation can need.
Turns add to later prompts no more than their longest utterance. A token is counted for every two bytes of UTF-8 text,
about twice what tokenizers find in English.

A request may have to be paid for although it brought nothing: an answer that is empty, malformed or cut off. So the
bound counts each call as often as it may be sent, once more for every retry, and again for every fallback model. What
a server refuses (a rate limit, a conversation that is too long) costs nothing and is not counted, nor is what finds out
during an outage whether a model answers again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.chat_model import ChatRequest, Price, Role, estimate_tokens
from sotopia_env.chat_model.limits import most_tokens
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.errors import EvaluationError
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.runs.evaluate import is_pending
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.runs.rehearsal import Rehearsal, RehearsedModels, Way
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import RUN, named
from sotopia_env.world.dynamics import Rules, TurnOrder, initial_state
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task

if TYPE_CHECKING:
    from sotopia_env.runs.parts import Part
    from sotopia_env.runs.spec import ResolvedRun, RunSpec

FRAME = 64
"""Tokens around an utterance in a prompt, such as its speaker's name."""
SCRIPTED = 512
"""Tokens of a turn of a policy without a model, at most."""
USUAL: Mapping[Role, int] = {"agent": 60, "judge": 800}
"""Tokens of an answer as a rule, for the expectation."""
_USUAL_FRAME = 12
_REMEDY: Mapping[Role, str] = {"agent": "PROVIDER/MODEL:max_tokens=…", "judge": "judge:MODEL:max_tokens=…"}
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
        prompts = "prompt tokens without limit, since other answers have none"
        cost = self.cost(self.bound)
        price = "price unknown" if self.price is None else "cost without limit" if cost is None else f"${cost:.4f}"
        prompts = prompts if prompt is None else f"{prompt} prompt tokens"
        within = "" if self.context is None else f" to a context of {self.context} tokens"
        times = f"sent up to {self.bound.requests} times{within}"
        return f"{prompts}, {self.bound.completion} answer tokens, {price} ({times})"


@dataclass(slots=True)
class _TurnDemand:
    """Demand on one model for one turn or one evaluation of an episode without turns."""

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


_Demands = Mapping[_Key, _TurnDemand]


class Tally:
    """Sums of what the plans of a run may ask.

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
        return self._forecasts()

    def of_episodes(self, episodes: Iterable[Episode], evaluator: Evaluator) -> list[ModelForecast]:
        """Returns one forecast for each model, for an evaluation of played episodes; their prompts are not guessed."""

        async def evaluate() -> None:
            for episode in episodes:
                await evaluate_episode(episode, evaluator)
                self._add(self._recorded(None), 1, 0, 0)

        asyncio.run(evaluate())
        return self._forecasts()

    def _forecasts(self) -> list[ModelForecast]:
        prices = {way.name: way.price for rehearsal in self._rehearsals for way in rehearsal.ways}
        return [
            ModelForecast(key[0], key[1], bound, self._expected[key], prices[key[0]], self._contexts.get(key))
            for key, bound in self._bounds.items()
        ]

    async def _rehearse(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> None:
        verdicts: dict[tuple[str, tuple[int, ...]], _Demands] = {}
        for plan in plans:
            seats = [await self._opening(plan, seat) for seat in range(len(plan.task.agents))]
            turns = turn_limit(plan.task, plan.rules)
            longest, usual = _longest(seats), _usual(seats)
            for seat, indices in _turns_of_seats(seats, turns, plan.rules):
                before = sum(indices)
                self._add(seat, len(indices), longest and longest * before, usual * before)
            if evaluator is not None:
                seating = (plan.task.content_hash, tuple(map(id, plan.policies)))  # an interview asks the policies
                if seating not in verdicts:
                    verdicts[seating] = await self._verdict(plan, evaluator)
                self._add(verdicts[seating], 1, longest and longest * turns, usual * turns)

    def _add(self, demands: _Demands, times: int, most: int | None, usual: int) -> None:
        """Adds ``times`` turns or evaluations, whose prompts have grown by ``most`` and ``usual`` tokens in sum."""
        for key, demand in demands.items():
            if demand.longest_prompt is not None:
                self._contexts[key] = max(demand.longest_prompt, self._contexts.get(key, 0))
            self._bounds.setdefault(key, Demand()).add(demand.bound, times, most, demand.longest_prompt)
            self._expected.setdefault(key, Demand()).add(demand.expected, times, usual, demand.longest_prompt)

    async def _opening(self, plan: EpisodePlan, seat: int) -> _Demands:
        """Demand of the policy in ``seat`` for the first turn."""
        policy, agent = plan.policies[seat], plan.task.agents[seat]
        if not isinstance(policy, HumanPolicy):
            await policy.act(observe(initial_state(plan.task, plan.rules, plan.episode_seed), agent), 0)
        return self._recorded(max(_contexts(policy.parameters), default=None))

    async def _verdict(self, plan: EpisodePlan, evaluator: Evaluator) -> _Demands:
        seats = zip(plan.task.agents, map(named, plan.policies), strict=True)
        infos = tuple(
            PolicyInfo(agent=agent, name=policy.name, parameters=policy.parameters) for agent, policy in seats
        )
        with suppress(EvaluationError):  # the stand-in gives no verdict; its requests are recorded
            await evaluator.evaluate_async(Episode(task=plan.task, rules=plan.rules, policies=infos))
        return self._recorded(None)

    def _recorded(self, context: int | None) -> _Demands:
        demands: dict[_Key, _TurnDemand] = {}
        for rehearsal in self._rehearsals:
            for request in rehearsal.requests:
                for number, way in enumerate(rehearsal.ways):
                    demands.setdefault((way.name, request.role), _TurnDemand()).add(request, way, number == 0, context)
            rehearsal.requests.clear()
        return demands


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


def _longest(seats: Sequence[_Demands]) -> int | None:
    """Tokens that one turn adds to later prompts at most; ``None`` when there is no bound."""
    answers = [demand.longest_answer for seat in seats for demand in seat.values()]
    if None in answers:
        return None
    scripted = SCRIPTED if not all(seats) else 0
    return max(scripted, *(answer or 0 for answer in answers), 0) + FRAME


def _usual(seats: Sequence[_Demands]) -> int:
    """Tokens that one turn adds to later prompts as a rule."""
    return (
        max((demand.usual_answer for seat in seats for demand in seat.values()), default=USUAL["agent"]) + _USUAL_FRAME
    )


def _turns_of_seats(seats: Sequence[_Demands], turns: int, rules: Rules) -> Iterator[tuple[_Demands, list[int]]]:
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


@dataclass(frozen=True, slots=True)
class RunForecast:
    """What a run asks.

    Attributes:
        planned: its episodes.
        todo: those that are still to be played, or evaluated.
        models: what these ask of each model.
        options: the limits of the run.
        evaluation: whether it is of an evaluation of episodes that were played.
    """

    planned: int
    todo: int
    models: tuple[ModelForecast, ...]
    options: ModelOptions
    evaluation: bool = False

    def lines(self) -> list[str]:
        """Returns the forecast in words."""
        done = self.planned - self.todo
        lines = [f"{self.planned} episodes planned, {done} are there, {self.todo} would be played"]
        if self.evaluation:
            lines = [f"{self.planned} episodes, {done} have these scores, {self.todo} would be evaluated"]
        if not self.models:
            return [*lines, "no model would be asked", "nothing was sent"]
        return [*lines, *map(str, self.models), self._total(), *self._limits(), "nothing was sent"]

    def _total(self) -> str:
        most = _sum_costs([model.cost(model.bound) for model in self.models])
        usual = _sum_costs([model.cost(model.expected) for model in self.models if model.expected.calls])
        if any(model.bound.completion is None or model.bound.prompt is None for model in self.models):
            total = "in all without limit"
        else:
            total = "in all unknown" if most is None else f"in all at most ${most:.4f}"
        expectation = "" if usual is None else f"; about ${usual:.4f} if nothing goes wrong"
        return f"{total}, with every re-ask, paid failure and fallback{expectation}"

    def _limits(self) -> list[str]:
        cost, tokens = self.options.max_cost, self.options.max_tokens
        limits = [] if cost is None else [f"max_cost ${cost:g}"]
        limits += [] if tokens is None else [f"max_tokens {tokens}"]
        return [f"the run stops before it would pass {' or '.join(limits)}"] if limits else []


def _sum_costs(costs: Sequence[float | None]) -> float | None:
    return None if None in costs else sum(cost or 0.0 for cost in costs)


def check_prompts(spec: RunSpec, directory: Path, workers: int = 1) -> None:
    """Refuses a limit of tokens per minute that a first prompt of the run exceeds; without such a limit, does nothing.

    Args:
        spec: the run.
        directory: of the run; episodes that it holds are not played again.
        workers: processes among which the limit is divided.

    Raises:
        BudgetExceededError: a prompt has more than a minute's tokens.
    """
    if spec.models.tpm is not None:
        models = RehearsedModels(spec.models.model_copy(update={"tpm": spec.models.tpm // workers}))
        forecast(spec.resolve(models), models, directory)


def forecast(run: ResolvedRun, models: RehearsedModels, directory: Path, part: Part | None = None) -> RunForecast:
    """Returns what a run asks; nothing is sent, and nothing is written.

    Args:
        run: with policies and an evaluator that ask ``models``.
        models: the stand-ins.
        directory: of the run; episodes that it holds are not played again.
        part: the share that is played.

    Raises:
        InvalidValueError: there is nothing to play.
        BudgetExceededError: a first prompt has more than a minute's tokens.
        DamagedRecordError: ``directory`` holds a record that cannot be read.
    """
    plans = run.plans() if part is None else part.of(run.plans())
    places = [directory] if part is None else [directory, part.path(directory)]
    done = {episode.key for place in places if (place / RUN).is_file() for episode in read_run(place)}
    todo = [plan for plan in plans if plan.key not in done]
    return RunForecast(len(plans), len(todo), tuple(Tally(models.rehearsals).of(todo, run.evaluator)), models.options)


def forecast_evaluation(run: Path, evaluator: Evaluator, models: RehearsedModels, force: bool = False) -> RunForecast:
    """Returns what another evaluation of a run asks; nothing is sent, and nothing is written.

    Verdicts of an interrupted evaluation, which it would not ask for again, are not subtracted.

    Args:
        run: its directory.
        evaluator: asks ``models``.
        models: the stand-ins.
        force: whether episodes that have these scores are evaluated too.
    """
    judge = named(evaluator)
    todo = sum(is_pending(episode, judge, force) for episode in read_run(run))
    pending = (episode for episode in read_run(run) if is_pending(episode, judge, force))
    asked = tuple(Tally(models.rehearsals).of_episodes(pending, evaluator))
    return RunForecast(sum(1 for _ in read_run(run)), todo, asked, models.options, evaluation=True)
