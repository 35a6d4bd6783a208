"""A forecast of what a run asks of its models: counts of turns × first prompts × limits. Nothing is sent for it.

Every policy gets the opening of its task, and the evaluator an episode without turns, with a stand-in for the model
that never gives a usable answer. That shows the first prompt of a seat and of the evaluation, and how many questions,
re-asks included, a turn or an evaluation needs at most. How often these are asked follows from the limit on turns.

- From below: each of these questions once, as long as the first prompts. Later prompts are longer, by the turns before
  them, and episodes may end early.
- From above: every re-ask too, every prompt grown by as many answers of the longest length as an episode has turns (or
  filling the model's context, where that is known), and every answer as long as its limit. A token is counted for every
  two bytes of UTF-8 text, about twice what tokenizers find in English.

Requests that fail and are sent again, and fallback models, are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Limits,
    ModelOptions,
    ModelPool,
    Price,
    RemoteModel,
    Role,
    estimate_tokens,
)
from sotopia_env.chat_model.asking import asking_instead
from sotopia_env.chat_model.limits import most_tokens
from sotopia_env.errors import EvaluationError
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.runs.evaluate import is_pending
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.play import evaluate_episode
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
"""Tokens around an utterance in a prompt, such as its speaker's name, at most."""
SCRIPTED = 512
"""Tokens of an utterance of a policy without a model, at most."""
_ECHO = 4_000
"""Tokens of a stand-in's answer, at most: a re-ask repeats it."""
_REMEDY: Mapping[Role, str] = {"agent": "PROVIDER/MODEL:max_tokens=…", "judge": "judge:MODEL:max_tokens=…"}


# --- stand-ins ----------------------------------------------------------------------------------------------------


@dataclass
class StandIn:
    """Stand-in for a model that records its requests and gives no usable answer.

    Attributes:
        model: that it stands for.
        requests: those it got.
        price: of the model's tokens, where it is known.
        longest_prompt: tokens of the model's prompts, likewise.
        longest_answer: tokens of its answers, likewise.
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
        """The model's."""
        return self.model.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's, so that plans have the same keys."""
        return self.model.parameters

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Records the request."""
        self.requests.append(request)
        length = _ECHO if request.max_tokens is None else min(_ECHO, request.max_tokens)
        return ChatReply(text="é" * length)  # counts as one token each

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()


_Question = tuple[StandIn, ChatRequest]


class StandInModels(ModelPool):
    """A pool of stand-ins for the models of a run."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self._stand_ins: list[StandIn] = []

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        """Returns a stand-in for the model that ``spec`` names."""
        self._stand_ins.append(StandIn(super().__call__(spec, "agent", api_base=api_base)))
        return self._stand_ins[-1]

    def asked(self) -> AbstractContextManager[None]:
        """Within this context, models that this pool did not make, those in this process, have stand-ins too."""
        return asking_instead(self._in_place_of)

    def _in_place_of(self, model: ChatModel) -> ChatModel:
        if isinstance(model, StandIn):
            return model
        stand_in = next((item for item in self._stand_ins if item.model is model), None)
        if stand_in is None:
            stand_in = StandIn(model)
            self._stand_ins.append(stand_in)
        return stand_in

    def questions(self) -> list[_Question]:
        """Returns the requests since the last call, each with who got it."""
        questions = [(stand_in, request) for stand_in in self._stand_ins for request in stand_in.requests]
        for stand_in in self._stand_ins:
            stand_in.requests.clear()
        return questions


# --- one model ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ModelForecast:
    """What one model may be asked on one account.

    Attributes:
        model: its name.
        role: on whose account.
        price: of its tokens, where it is known.
        calls: questions, if every turn is taken and every answer can be used.
        most_calls: questions, with every re-ask.
        first_prompt: tokens of the longest first prompt, roughly.
        prompt: tokens of the prompts of ``calls``, if these were as long as the first ones.
        most_prompt: tokens of the prompts of ``most_calls``; ``None`` when there is no bound.
        most_answer: tokens of their answers, likewise.
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
        """US dollars of the prompts of ``calls``; ``None`` when the price is not known."""
        return None if self.price is None else self.price.of(self.prompt, 0)

    @property
    def most_cost(self) -> float | None:
        """US dollars at most; ``None`` when the price is not known or there is no bound."""
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
    """The dollars of some models."""
    low, high = [row.cost for row in rows], [row.most_cost for row in rows]
    if None in low:
        return "price unknown"
    return f"from ${sum(filter(None, low)):.4f} " + ("on" if None in high else f"to ${sum(filter(None, high)):.4f}")


# --- counting -----------------------------------------------------------------------------------------------------


class Tally:
    """Sums of what the plans of a run, or the evaluation of its episodes, may ask."""

    def __init__(self, models: StandInModels) -> None:
        """Begins.

        Args:
            models: with which the plans' policies and the evaluator were made.
        """
        self._models, self._limits = models, Limits(tpm=models.options.tpm)
        self._rows: dict[tuple[str, Role], ModelForecast] = {}

    async def of_plans(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> tuple[ModelForecast, ...]:
        """Returns the sums for episodes that are to be played and evaluated."""
        with self._models.asked():
            return await self._of_plans(plans, evaluator)

    async def _of_plans(self, plans: Sequence[EpisodePlan], evaluator: Evaluator | None) -> tuple[ModelForecast, ...]:
        for plan in plans:
            turns, seats = turn_limit(plan.task, plan.rules), range(len(plan.policies))
            questions = [await self._opening(plan, seat) for seat in seats]
            contexts = [max(_contexts(policy.parameters), default=None) for policy in plan.policies]
            answers = [_least(r.max_tokens, s.longest_answer, contexts[n]) for n in seats for s, r in questions[n]]
            scripted = [] if all(questions) else [SCRIPTED]
            longest = max((answer or 0 for answer in (*answers, *scripted)), default=0) + FRAME
            growth = None if None in answers else longest * turns
            for seat in seats:
                self._add(questions[seat], *_turns_of(seat, len(seats), turns, plan.rules), growth, contexts[seat])
            if evaluator is not None:
                self._add(await self._verdict(plan, evaluator), 1, 1, growth)
        return tuple(self._rows.values())

    async def of_episodes(self, episodes: Iterable[Episode], evaluator: Evaluator) -> tuple[ModelForecast, ...]:
        """Returns the sums for the evaluation of played episodes, whose prompts are known."""
        with self._models.asked():
            for episode in episodes:
                await evaluate_episode(episode, evaluator)
                self._add(self._models.questions(), 1, 1, 0)
        return tuple(self._rows.values())

    async def _opening(self, plan: EpisodePlan, seat: int) -> list[_Question]:
        """What the policy in ``seat`` asks for the first turn."""
        policy, agent = plan.policies[seat], plan.task.agents[seat]
        if not isinstance(policy, HumanPolicy):
            await policy.act(observe(initial_state(plan.task, plan.rules, plan.episode_seed), agent), 0)
        return self._models.questions()

    async def _verdict(self, plan: EpisodePlan, evaluator: Evaluator) -> list[_Question]:
        seats = zip(plan.task.agents, map(named, plan.policies), strict=True)
        infos = tuple(PolicyInfo(agent=agent, name=item.name, parameters=item.parameters) for agent, item in seats)
        with suppress(EvaluationError):  # the stand-in gives no verdict; its requests are recorded
            await evaluator.evaluate_async(Episode(task=plan.task, rules=plan.rules, policies=infos))
        return self._models.questions()

    def _add(
        self, questions: Sequence[_Question], calls: int, most: int, growth: int | None, context: int | None = None
    ) -> None:
        """Adds questions that are asked ``calls`` or up to ``most`` times, with prompts that grow by ``growth``."""
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
    """Returns the most turns that an episode can have."""
    limit, seats = rules.turn_limit(task), len(task.agents)
    if limit is None:
        return (rules.max_rounds or 0) * seats
    return -(-limit // seats) * seats if rules.turn_order is TurnOrder.SIMULTANEOUS else limit


def _turns_of(seat: int, seats: int, turns: int, rules: Rules) -> tuple[int, int]:
    """The turns of a seat if nobody leaves, and at most: among more than two, who stays takes those of who left."""
    if rules.turn_order is TurnOrder.ROUND_ROBIN:
        own = len(range((seat - rules.first_seat) % seats, turns, seats))
    else:
        own = -(-turns // seats)
    return own, own if seats == 2 else turns


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


# --- the forecast -------------------------------------------------------------------------------------------------


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
        lines = [f"{self.planned} episodes planned: {done} done, {self.todo} to play"]
        if self.evaluation:
            lines = [f"{self.planned} episodes: {done} have these scores, {self.todo} to evaluate"]
        if not self.models:
            return [*lines, "no model would be asked", "nothing was sent"]
        total = [f"in all {_costs(self.models)}"] if len(self.models) > 1 else []
        return [*lines, *map(str, self.models), *total, *self._notes(), "nothing was sent"]

    def _notes(self) -> list[str]:
        cost, tokens, fallbacks = self.options.max_cost, self.options.max_tokens, self.options.fallbacks
        again = self.options.retries.retries
        limits = [] if cost is None else [f"max_cost ${cost:g}"]
        limits += [] if tokens is None else [f"max_tokens {tokens}"]
        notes = [f"not counted: requests that fail, which are sent again up to {again} times"] if again else []
        notes += [f"not counted: {name}, which is asked when another model fails for good" for name in fallbacks]
        return [*notes, *([f"the run stops before it would pass {' or '.join(limits)}"] if limits else [])]


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
        models = StandInModels(spec.models.model_copy(update={"tpm": spec.models.tpm // workers}))
        forecast(spec.resolve(models), models, directory)


def forecast(run: ResolvedRun, models: StandInModels, directory: Path, part: Part | None = None) -> RunForecast:
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
    rows = asyncio.run(Tally(models).of_plans(todo, run.evaluator))
    return RunForecast(len(plans), len(todo), rows, models.options)


def forecast_evaluation(run: Path, evaluator: Evaluator, models: StandInModels, force: bool = False) -> RunForecast:
    """Returns what another evaluation of a run asks; nothing is sent, and nothing is written.

    Verdicts of an interrupted evaluation, which it would not ask for again, are not subtracted.

    Args:
        run: its directory.
        evaluator: asks ``models``.
        models: the stand-ins.
        force: whether episodes that have these scores are evaluated too.
    """
    judge = named(evaluator)
    pending = [is_pending(episode, judge, force) for episode in read_run(run)]
    episodes = (episode for episode in read_run(run) if is_pending(episode, judge, force))
    rows = asyncio.run(Tally(models).of_episodes(episodes, evaluator))
    return RunForecast(len(pending), sum(pending), rows, models.options, evaluation=True)
