"""Forecast of the calls, tokens and cost of a run: turns × first prompts × limits. Nothing is sent to a model.

Every policy receives the opening of its task, and the evaluator an episode without turns, with a stand-in for the model
that never gives a usable answer. The recorded requests show the first prompt of a seat and of the evaluation, and the
maximum number of requests for one turn or one evaluation, including re-asks. The turn limit gives their number.

- Lower estimate: one request per turn, each with a prompt of the first prompt's length. Later prompts are longer,
  since they contain the earlier turns; on the other hand, episodes may end early.
- Upper bound: every re-ask is sent, every prompt also contains an answer of maximum length for each turn of the episode
  (or fills the model's context, if its size is known), and every answer has the maximum length. One token is counted
  for every two bytes of UTF-8 text, about twice the number that tokenizers give for English.

Requests that are sent again after a failure, and fallback models, are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model import ChatModel, ChatReply, ChatRequest
from sotopia_env.chat_model.asking import replacing_models
from sotopia_env.chat_model.limits import Limits, estimate_tokens, most_tokens
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.protocol import Role
from sotopia_env.chat_model.remote import RemoteModel
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.runs.evaluate import is_pending
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import RUN, named
from sotopia_env.world.dynamics import Rules, initial_state
from sotopia_env.world.episode import Episode, Evaluator, PolicyInfo
from sotopia_env.world.observation import observe
from sotopia_env.world.play.notes import notes_of
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

if TYPE_CHECKING:
    from sotopia_env.runs.parts import Part
    from sotopia_env.runs.spec import ResolvedRun, RunSpec

FRAME = 64
"""Maximum number of tokens around an utterance in a prompt, such as the speaker's name."""
SCRIPTED = 512
"""Maximum number of tokens in an utterance of a policy without a model."""
_ECHO = 4_000
"""Maximum number of tokens in the answer of a :class:`StandIn`, which a re-ask repeats."""
_REMEDY: Mapping[Role, str] = {"agent": "PROVIDER/MODEL:max_tokens=…", "judge": "judge:MODEL:max_tokens=…"}


# --- stand-ins ----------------------------------------------------------------------------------------------------


@dataclass
class StandIn:
    """Replaces a model, records its requests and gives no usable answer.

    Attributes:
        model: the model that is replaced.
        requests: the requests received so far.
        price: the price of the model's tokens, if known.
        longest_prompt: the maximum number of tokens in a prompt of the model, if known.
        longest_answer: the maximum number of tokens in an answer of the model, if known.
    """

    model: ChatModel
    requests: list[ChatRequest] = field(default_factory=list)
    price: Price | None = None
    longest_prompt: int | None = None
    longest_answer: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, RemoteModel):
            route = self.model.routes[0]
            self.price = route.price
            self.longest_prompt, self.longest_answer = route.transport.longest_prompt, route.transport.longest_answer

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's parameters, so that plans have the same keys as in the real run."""
        return self.model.parameters

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Records the request."""
        self.requests.append(request)
        length = _ECHO if request.max_tokens is None else min(_ECHO, request.max_tokens)
        # "é" has two bytes in UTF-8, which the upper bound counts as one token.
        return ChatReply(text="é" * length)

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()


_Question = tuple[StandIn, ChatRequest]


class StandInModels(ModelPool):
    """A pool of :class:`StandIn` models in place of the models of a run."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self._stand_ins: list[StandIn] = []

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        """Returns a :class:`StandIn` for the model that ``spec`` names."""
        self._stand_ins.append(StandIn(super().__call__(spec, "agent", api_base=api_base)))
        return self._stand_ins[-1]

    def replacing(self) -> AbstractContextManager[None]:
        """Returns a context in which models from outside this pool, such as local ones, have stand-ins, too."""
        return replacing_models(self._in_place_of)

    def _in_place_of(self, model: ChatModel) -> ChatModel:
        if isinstance(model, StandIn):
            return model
        stand_in = next((item for item in self._stand_ins if item.model is model), None)
        if stand_in is None:
            stand_in = StandIn(model)
            self._stand_ins.append(stand_in)
        return stand_in

    def questions(self) -> list[_Question]:
        """Returns the requests since the last call, each with its receiver."""
        questions = [(stand_in, request) for stand_in in self._stand_ins for request in stand_in.requests]
        for stand_in in self._stand_ins:
            stand_in.requests.clear()
        return questions


# --- one model ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ModelForecast:
    """Forecast of the use of one model in one role.

    Attributes:
        model: the name of the model.
        role: the role, by which costs are accounted.
        price: the price of the model's tokens, if known.
        calls: the number of calls if every turn is taken and every answer is usable.
        most_calls: the number of calls with every re-ask.
        first_prompt: the approximate number of tokens in the longest first prompt.
        prompt: the number of prompt tokens in ``calls`` if every prompt were as long as the first one.
        most_prompt: the maximum number of prompt tokens in ``most_calls``; ``None`` if unbounded.
        most_answer: the maximum number of answer tokens in ``most_calls``; ``None`` if unbounded.
    """

    model: str
    role: Role
    price: Price | None
    calls: int = 0
    most_calls: int = 0
    first_prompt: int = 0
    prompt: int = 0
    most_prompt: int | None = 0
    most_answer: int | None = 0

    @property
    def cost(self) -> float | None:
        """The cost of the prompts of ``calls`` in US dollars; ``None`` if the price is unknown."""
        return None if self.price is None else self.price.of(self.prompt, 0)

    @property
    def most_cost(self) -> float | None:
        """The maximum cost in US dollars; ``None`` if the price is unknown or the use is unbounded."""
        if self.price is None or self.most_prompt is None or self.most_answer is None:
            return None
        return self.price.of(self.most_prompt, self.most_answer)

    def __str__(self) -> str:
        remedy = f" (set {_REMEDY[self.role]})" if self.most_answer is None else ""
        return (
            f"{self.role} {self.model}: {self.calls} calls, {self.most_calls} with every re-ask; first prompts of "
            f"about {self.first_prompt} tokens; from {self.prompt} to {_known(self.most_prompt)} prompt tokens, up to "
            f"{_known(self.most_answer)} answer tokens{remedy}; {_costs([self])}"
        )


def _known(tokens: int | None) -> str:
    return "any number of" if tokens is None else str(tokens)


def _costs(rows: Sequence[ModelForecast]) -> str:
    """Returns the cost of some models as text."""
    low, high = [row.cost for row in rows], [row.most_cost for row in rows]
    if None in low:
        return "price unknown"
    return f"from ${sum(filter(None, low)):.4f} " + ("on" if None in high else f"to ${sum(filter(None, high)):.4f}")


# --- counting -----------------------------------------------------------------------------------------------------


class CallCounter:
    """Counter of the calls that the plans of a run, or the evaluation of its episodes, may make."""

    def __init__(self, models: StandInModels) -> None:
        """Creates a counter with all sums at zero.

        Args:
            models: the pool with which the plans' policies and the evaluator were made.
        """
        self._models, self._limits = models, Limits(tpm=models.options.tpm)
        self._rows: dict[tuple[str, Role], ModelForecast] = {}

    async def of_plans(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> tuple[ModelForecast, ...]:
        """Returns the sums for episodes that will be played and evaluated."""
        with self._models.replacing():
            return await self._of_plans(plans, evaluator)

    async def _of_plans(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> tuple[ModelForecast, ...]:
        for plan in plans:
            turns, seats = turn_limit(plan.task, plan.rules), range(len(plan.policies))
            questions = [await self._opening(plan, seat) for seat in seats]
            contexts = [max(_contexts(policy.parameters), default=None) for policy in plan.policies]
            answers = [_least(r.max_tokens, s.longest_answer, contexts[n]) for n in seats for s, r in questions[n]]
            scripted = [] if all(questions) else [SCRIPTED]
            # By its last turn, a prompt has grown by an utterance per turn of the episode, its own seat's included.
            longest = max((answer or 0 for answer in (*answers, *scripted)), default=0) + FRAME
            growth = None if None in answers else longest * turns
            for seat in seats:
                self._add(await self._notes(plan, seat), 1, 1, growth, contexts[seat])
                self._add(questions[seat], *_turns_of(seat, len(seats), turns, plan.rules), growth, contexts[seat])
            if evaluator is not None:
                self._add(await self._verdict(plan, evaluator), 1, 1, growth)
        return tuple(self._rows.values())

    async def of_episodes(self, episodes: Iterable[Episode], evaluator: Evaluator) -> tuple[ModelForecast, ...]:
        """Returns the sums for the evaluation of played episodes, whose prompts are known."""
        with self._models.replacing():
            for episode in episodes:
                await evaluate_episode(episode, evaluator)
                self._add(self._models.questions(), 1, 1, 0)
        return tuple(self._rows.values())

    async def _opening(self, plan: EpisodePlan, seat: int) -> list[_Question]:
        """Returns the requests of the policy in ``seat`` for its first turn."""
        policy, agent = plan.policies[seat], plan.task.agents[seat]
        if not isinstance(policy, HumanPolicy):
            await policy.act(observe(initial_state(plan.task, plan.rules, plan.episode_seed), agent), 0)
        return self._models.questions()

    async def _notes(self, plan: EpisodePlan, seat: int) -> list[_Question]:
        """Returns the requests of the policy in ``seat`` for its notes after the end."""
        policy, carry = plan.policies[seat], plan.rules.carry
        if carry and not isinstance(policy, HumanPolicy):
            first = observe(initial_state(plan.task, plan.rules, plan.episode_seed), plan.task.agents[seat])
            await notes_of(policy, first, carry, 0)
        return self._models.questions()

    async def _verdict(self, plan: EpisodePlan, evaluator: Evaluator) -> list[_Question]:
        seats = zip(plan.task.agents, map(named, plan.policies), strict=True)
        infos = tuple(PolicyInfo(agent=agent, name=item.name, parameters=item.parameters) for agent, item in seats)
        # The evaluation fails, since a stand-in gives no usable verdict, but its requests are recorded.
        with suppress(EvaluationError):
            await evaluator.evaluate(Episode(task=plan.task, rules=plan.rules, policies=infos))
        return self._models.questions()

    def _add(
        self, questions: Sequence[_Question], calls: int, most: int, growth: int | None, context: int | None = None
    ) -> None:
        """Adds requests sent ``calls`` or at most ``most`` times, with prompts that grow by ``growth`` tokens."""
        for stand_in, request in questions:
            key = stand_in.name, request.role
            row = self._rows.setdefault(key, ModelForecast(*key, stand_in.price))
            grown = None if growth is None else most_tokens(request) + growth
            row.most_calls += most
            row.most_prompt = _plus(row.most_prompt, _least(grown, stand_in.longest_prompt, context), most)
            answer = _least(request.max_tokens, stand_in.longest_answer, context)
            row.most_answer = _plus(row.most_answer, answer, most)
            if not request.reask:
                self._limits.check_prompt(request)
                first = estimate_tokens(request)
                row.calls, row.prompt = row.calls + calls, row.prompt + calls * first
                row.first_prompt = max(row.first_prompt, first)


def _plus(total: int | None, each: int | None, times: int) -> int | None:
    return None if total is None or each is None else total + each * times


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def turn_limit(task: Task, rules: Rules) -> int:
    """Returns the maximum number of turns in an episode."""
    limit, seats = rules.turn_limit(task), len(task.agents)
    if limit is None:
        return (rules.max_rounds or 0) * seats
    # A veiled round is always completed: all seats act in a simultaneous one, up to all in a reactive one.
    if rules.turn_order is TurnOrder.REACTIVE:
        return limit + seats - 1
    return -(-limit // seats) * seats if rules.turn_order is TurnOrder.SIMULTANEOUS else limit


def _turns_of(seat: int, seats: int, turns: int, rules: Rules) -> tuple[int, int]:
    """Returns the number of a seat's turns if no agent leaves, and the maximum number.

    With more than two seats, the turns of an agent that left go to the others; with two, the episode ends.
    """
    if rules.turn_order is TurnOrder.ROUND_ROBIN:
        own = len(range((seat - rules.first_seat) % seats, turns, seats))
    else:
        own = -(-turns // seats)
    return own, own if seats == 2 else turns


def _contexts(settings: object) -> Iterator[int]:
    """Yields every ``context_limit`` in parameters, also in those of policies that a policy is made of."""
    if isinstance(settings, Mapping):
        limit = settings.get("context_limit")
        if isinstance(limit, int):
            yield limit
        for part in settings.values():
            yield from _contexts(part)
    elif isinstance(settings, list | tuple):
        for part in settings:
            yield from _contexts(part)


# --- the forecast -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunForecast:
    """Forecast of the calls of a run.

    Attributes:
        planned: the number of episodes.
        todo: the number of episodes that are still to be played or evaluated.
        models: the forecast for each model and role.
        options: the model options of the run, with its limits.
        evaluation: whether this is the forecast of an evaluation of recorded episodes.
    """

    planned: int
    todo: int
    models: tuple[ModelForecast, ...]
    options: ModelOptions
    evaluation: bool = False

    def lines(self) -> list[str]:
        """Returns the forecast as lines of text."""
        done = self.planned - self.todo
        lines = [f"{self.planned} episodes planned: {done} done, {self.todo} to play"]
        if self.evaluation:
            lines = [f"{self.planned} episodes: {done} have these scores, {self.todo} to evaluate"]
        if not self.models:
            return [*lines, "no model would be called", "nothing was sent"]
        total = [f"in all {_costs(self.models)}"] if len(self.models) > 1 else []
        return [*lines, *map(str, self.models), *total, *self._notes(), "nothing was sent"]

    def _notes(self) -> list[str]:
        cost, tokens, fallbacks = self.options.max_cost, self.options.max_tokens, self.options.fallbacks
        again = self.options.retries.retries
        limits = [] if cost is None else [f"max_cost ${cost:g}"]
        limits += [] if tokens is None else [f"max_tokens {tokens}"]
        notes = [f"not counted: failed requests, which are sent again up to {again} times"] if again else []
        notes += [f"not counted: {name}, the fallback for a model that fails for good" for name in fallbacks]
        return [*notes, *([f"the run stops before it exceeds {' or '.join(limits)}"] if limits else [])]


def check_prompts(spec: RunSpec, directory: Path, workers: int = 1) -> None:
    """Checks that no first prompt of the run exceeds the limit of tokens per minute, if there is one.

    Args:
        spec: the specification of the run.
        directory: the directory of the run; episodes that it holds are not played again.
        workers: the number of processes among which the limit is divided.

    Raises:
        BudgetExceededError: a prompt has more tokens than the limit per minute.
    """
    if spec.models.tpm is not None:
        models = StandInModels(spec.models.model_copy(update={"tpm": spec.models.tpm // workers}))
        forecast(spec.resolve(models), models, directory)


def forecast(run: ResolvedRun, models: StandInModels, directory: Path, part: Part | None = None) -> RunForecast:
    """Returns the forecast for a run; nothing is sent, and nothing is written.

    Args:
        run: the run, with policies and an evaluator that call ``models``.
        models: the pool of :class:`StandIn` models.
        directory: the directory of the run; episodes that it holds are not played again.
        part: the share to play; ``None`` for the whole run.

    Raises:
        InvalidValueError: there is nothing to play.
        BudgetExceededError: a first prompt has more tokens than the limit per minute.
        DamagedRecordError: ``directory`` holds a record that cannot be read.
    """
    plans = run.plans() if part is None else part.of(run.plans())
    paths = [directory] if part is None else [directory, part.path(directory)]
    done = {episode.key for path in paths if (path / RUN).is_file() for episode in read_run(path)}
    todo = [plan for plan in plans if plan.key not in done]
    rows = asyncio.run(CallCounter(models).of_plans(todo, run.evaluator))
    return RunForecast(len(plans), len(todo), rows, models.options)


def forecast_evaluation(run: Path, evaluator: Evaluator, models: StandInModels, force: bool = False) -> RunForecast:
    """Returns the forecast for an evaluation of a run on disk; nothing is sent, and nothing is written.

    Stored verdicts of an interrupted evaluation are not subtracted, although they would not be requested again.

    Args:
        run: the directory of the run.
        evaluator: the evaluator, which calls ``models``.
        models: the pool of :class:`StandIn` models.
        force: whether episodes that already have these scores are evaluated, too.
    """
    judge = named(evaluator)
    # The run is read twice, so that only one episode at a time is in memory.
    pending = [is_pending(episode, judge, force) for episode in read_run(run)]
    episodes = (episode for episode in read_run(run) if is_pending(episode, judge, force))
    rows = asyncio.run(CallCounter(models).of_episodes(episodes, evaluator))
    return RunForecast(len(pending), sum(pending), rows, models.options, evaluation=True)
