"""Questions to a model with one valid form of answer, and a bounded number of re-asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from sotopia_env.chat_model.asking import Complaint, ShortenedRequest
from sotopia_env.chat_model.asking import ask as ask_model
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.errors import (
    ContextLengthError,
    EvaluationError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    check_whole,
)
from sotopia_env.evaluators.judge.prompt import Prompt
from sotopia_env.evaluators.judge.verdict import Refusal
from sotopia_env.records import canonical_json
from sotopia_env.waiting import wait
from sotopia_env.world.episode import Episode, Evaluation

T = TypeVar("T")
LAST_TURNS = 2
"""Number of the latest turns that are never left out."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Settings of questions to a model.

    Attributes:
        temperature: sampling temperature, 0 to 2.
        reasks: number of re-asks after answers that are refused.
        max_tokens: limit on an answer, in tokens; ``None`` leaves it to the model.
        replicate: distinguishes otherwise equal judges, for a response cache.
    """

    temperature: float = 0.0
    reasks: int = 2
    max_tokens: int | None = None
    replicate: int = 0

    def __post_init__(self) -> None:
        numeric = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not (numeric and 0 <= self.temperature <= 2):
            raise InvalidValueError(field="temperature", expected="a number from 0 to 2", got=self.temperature)
        check_whole("reasks", self.reasks, 0)
        check_whole("replicate", self.replicate, 0)
        if self.max_tokens is not None:
            check_whole("max_tokens", self.max_tokens, 1)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The result of a question.

    Attributes:
        value: the parsed answer; ``None`` when none was accepted.
        refusal: why the last one was refused; empty when one was accepted.
        reasks: number of re-asks.
        model: name and version as answered by the server.
        omitted: number of the oldest turns left out for the question to fit.
    """

    value: T | None
    refusal: str
    reasks: int
    model: str
    omitted: int


async def ask(
    model: ChatModel,
    prompts: Callable[[int], Prompt],
    turns: int,
    read: Callable[[str], T | Refusal],
    manner: Manner,
    label: str = "",
) -> Answer[T]:
    """Asks until an answer is accepted or the re-asks are used up.

    Args:
        model: to be asked.
        prompts: returns the question without a number of the oldest turns. Only when the question does not fit the
            model are turns left out, a quarter of the rest at a time.
        turns: number of turns in the whole question.
        read: parses an answer.
        manner: settings of the question.
        label: name of the question in the ledger.

    Raises:
        EvaluationError: a call failed for good, or even the latest turns do not fit.
        BudgetExceededError: the ledger's limit is reached.
        ModelRefusedError: the model refuses every question.
    """

    def result_of(reply: ChatReply) -> T | Refusal:
        is_cut = reply.finish_reason == "length"
        return Refusal("the answer was cut off at the token limit; be brief") if is_cut else read(reply.text)

    def accepted(reply: ChatReply) -> tuple[T | None, str]:
        result = result_of(reply)
        return (None, result.reason) if isinstance(result, Refusal) else (result, "")

    def prompt(omitted: int, complaints: Sequence[Complaint]) -> ShortenedRequest:
        question = prompts(omitted)
        request = ChatRequest(
            messages=question.messages(complaints[-1].reason if complaints else ""),
            role="judge",
            temperature=manner.temperature,
            max_tokens=manner.max_tokens,
            schema=question.schema,
            replicate=manner.replicate,
            label=label,
            accepts=lambda reply: not isinstance(result_of(reply), Refusal),
        )
        return ShortenedRequest(request, omitted)

    def shorten(omitted: int) -> int | None:
        rest = turns - omitted
        return None if rest <= LAST_TURNS else omitted + min(max(1, rest // 4), rest - LAST_TURNS)

    try:
        asked = await ask_model(model, prompt, accepted, reasks=manner.reasks, shorten=shorten)
    except ContextLengthError as error:
        raise EvaluationError(f"{model.name}: the episode does not fit the model ({error})") from error
    except ModelRefusedError:
        raise  # every other question would be refused too
    except ModelCallError as error:
        raise EvaluationError(f"{model.name}: the call failed ({error.kind}): {error}") from error
    omitted = prompts(asked.omitted).document.omitted
    return Answer(asked.value, asked.reason, len(asked.replies) - 1, asked.reply.model, omitted)


def remarks(answers: Iterable[Answer[Any]]) -> str:
    """Returns the models, the re-asks and the turns left out, in words."""
    answers = list(answers)
    models = ", ".join(dict.fromkeys(answer.model for answer in answers if answer.model))
    reasks = sum(answer.reasks for answer in answers)
    omitted = max((answer.omitted for answer in answers), default=0)
    parts = [f"answered by {models}" if models else "", f"re-asks: {reasks}" if reasks else ""]
    parts += [f"the {omitted} oldest turns are left out; all would not fit" if omitted else ""]
    return "; ".join(part for part in parts if part)


def check_model(model: object) -> ChatModel:
    """Returns ``model``, or raises :class:`InvalidValueError` when it is no chat model."""
    if not isinstance(model, ChatModel) or isinstance(model, type):
        raise InvalidValueError(field="model", expected="a chat model (chat_model.make_model makes one)", got=model)
    return model


def tag(parameters: Mapping[str, Any]) -> str:
    """Returns 6 hex digits that distinguish evaluators of one name by their parameters."""
    return hashlib.sha256(canonical_json(parameters).encode()).hexdigest()[:6]


class AskingEvaluator:
    """Base of evaluators with models: ``evaluate`` waits for ``evaluate_async``."""

    _name: str
    _parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name in records, which differs between evaluators that ask models differently."""
        return self._name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The models, all settings, and a hash of the prompts."""
        return self._parameters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns the evaluation without blocking other episodes."""
        raise NotImplementedError

    def evaluate(self, episode: Episode) -> Evaluation:
        """As :meth:`evaluate_async`; blocks an event loop that is running."""
        return wait(self.evaluate_async(episode))

    async def close(self) -> None:
        """Closes the models that are asked."""
        raise NotImplementedError


class ModelEvaluator(AskingEvaluator):
    """Base of evaluators that ask one model about the turns of an episode.

    Its name is ``KIND(MODEL)#`` and six digits that stand for the parameters; the wording of prompts is not among them.

    Attributes:
        model: that is asked.
        manner: how it is asked.
    """

    def __init__(
        self, kind: str, model: ChatModel, manner: Manner, prompt: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        """Prepares.

        Args:
            kind: of evaluator.
            model: that is asked.
            manner: how it is asked.
            prompt: the hash of the prompts.
            parameters: all other settings.
        """
        self.model = check_model(model)
        self.manner = manner
        settings = {"model": model.name, "model_parameters": dict(model.parameters), **(parameters or {})}
        settings |= asdict(manner)
        self._parameters = {**settings, "prompt": prompt}
        self._name = f"{kind}({model.name})#{tag(settings)}"

    async def ask(
        self, episode: Episode, prompts: Callable[[int], Prompt], read: Callable[[str], T | Refusal]
    ) -> Answer[T]:
        """Asks about an episode; see :func:`ask`."""
        label = f"{self._name}: {episode.task.id}, seed {episode.seed}"
        return await ask(self.model, prompts, len(episode.plain_turns), read, self.manner, label)

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()
