"""Questions to a judge with a strict parser of answers and a limited number of re-asks; evaluators that ask them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from sotopia_env.chat_model.asking import Complaint, ShortenedRequest
from sotopia_env.chat_model.asking import ask as ask_model
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.evaluators.judge.prompt import Prompt
from sotopia_env.evaluators.judge.verdict import Refusal
from sotopia_env.foundation.answer_text import ending_problem
from sotopia_env.foundation.errors import (
    ContextLengthError,
    EvaluationError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    check_number,
    check_whole,
)
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.episode import Episode, Evaluation

T = TypeVar("T")
LAST_TURNS = 2
"""The number of the latest turns that are never left out."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Settings of questions to a model.

    Attributes:
        temperature: the sampling temperature, 0 to 2.
        reasks: the number of re-asks after answers that are refused.
        max_tokens: the limit on an answer, in tokens; ``None`` leaves it to the model.
        replicate: distinguishes otherwise equal judges, for a response cache.
    """

    temperature: float = 0.0
    reasks: int = 2
    max_tokens: int | None = None
    replicate: int = 0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, 0, 2)
        check_whole("reasks", self.reasks, 0)
        check_whole("replicate", self.replicate, 0)
        if self.max_tokens is not None:
            check_whole("max_tokens", self.max_tokens, 1)


@dataclass(frozen=True, slots=True)
class JudgeAnswer(Generic[T]):
    """The result of a question.

    Attributes:
        value: the parsed answer; ``None`` if every answer was refused.
        refusal: why the last answer was refused; empty if it was accepted.
        reasks: the number of re-asks.
        model: the name and version of the model that the server reported.
        omitted: the number of the oldest turns that were left out to make the question fit.
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
) -> JudgeAnswer[T]:
    """Asks until an answer is accepted or the re-asks are used up.

    Args:
        model: the judge.
        prompts: returns the question without the given number of oldest turns. Turns are left out only if the question
            does not fit the model, a quarter of the remaining ones at a time.
        turns: the number of turns in the complete question.
        read: parses an answer.
        manner: the settings of the question.
        label: the name of the question in the ledger.

    Raises:
        EvaluationError: a call failed permanently, or even the latest turns do not fit.
        BudgetExceededError: the ledger's limit is reached.
        ModelRefusedError: the model refuses every question.
    """

    def result_of(reply: ChatReply) -> T | Refusal:
        # The complaint must name the cause: the JSON error at the end of a cut answer would not help the model.
        problem = ending_problem(reply.text, reply.finish_reason)
        return Refusal(problem) if problem else read(reply.text)

    def accepted(reply: ChatReply) -> tuple[T | None, str]:
        result = result_of(reply)
        return (None, result.reason) if isinstance(result, Refusal) else (result, "")

    def prompt(omitted: int, complaints: Sequence[Complaint]) -> ShortenedRequest:
        question = prompts(omitted)
        request = ChatRequest(
            # Only the last complaint: each re-ask begins from the question, without the refused answers.
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
        # At least one turn, so that the loop ends, and never the last ones.
        return None if rest <= LAST_TURNS else omitted + min(max(1, rest // 4), rest - LAST_TURNS)

    try:
        result = await ask_model(model, prompt, accepted, reasks=manner.reasks, shorten=shorten)
    except ContextLengthError as error:
        raise EvaluationError(f"{model.name}: the episode does not fit the model ({error})") from error
    except ModelRefusedError:
        raise  # every other question would be refused, too
    except ModelCallError as error:
        raise EvaluationError(f"{model.name}: the call failed ({error.kind}): {error}") from error
    omitted = prompts(result.omitted).document.omitted
    return JudgeAnswer(result.value, result.reason, len(result.replies) - 1, result.reply.model, omitted)


def remarks(answers: Iterable[JudgeAnswer[Any]]) -> str:
    """Returns a comment on the models that answered, the re-asks, and the turns that were left out."""
    answers = list(answers)
    models = ", ".join(dict.fromkeys(answer.model for answer in answers if answer.model))
    reasks = sum(answer.reasks for answer in answers)
    omitted = max((answer.omitted for answer in answers), default=0)
    parts = [f"answered by {models}" if models else "", f"re-asks: {reasks}" if reasks else ""]
    parts += [f"the {omitted} oldest turns are left out; all would not fit" if omitted else ""]
    return "; ".join(part for part in parts if part)


def check_model(model: object) -> ChatModel:
    """Returns ``model``, or raises :class:`InvalidValueError` if it is not a chat model."""
    # A class has the methods of the protocol, too, but is not an instance of it.
    if not isinstance(model, ChatModel) or isinstance(model, type):
        raise InvalidValueError(field="model", expected="a chat model (chat_model.make_model makes one)", got=model)
    return model


def tag(parameters: Mapping[str, Any]) -> str:
    """Returns 6 hex digits that distinguish evaluators of one name by their parameters."""
    return hashlib.sha256(canonical_json(parameters).encode()).hexdigest()[:6]


class AskingEvaluator:
    """Base of evaluators that ask models."""

    _name: str
    _parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name in records, which differs between evaluators with different models or settings."""
        return self._name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The models, all settings, and a hash of the prompts."""
        return self._parameters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the evaluation of an episode."""
        raise NotImplementedError

    async def close(self) -> None:
        """Closes the models."""
        raise NotImplementedError


class ModelEvaluator(AskingEvaluator):
    """Base of evaluators that ask one model about the turns of an episode.

    Its name is ``KIND(MODEL)#`` and six digits of a hash of the parameters, without the wording of prompts.

    Attributes:
        model: the model.
        manner: the settings of the questions.
    """

    def __init__(
        self, kind: str, model: ChatModel, manner: Manner, prompt: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        """Stores the settings.

        Args:
            kind: the kind of evaluator, which begins its name.
            model: the model.
            manner: the settings of the questions.
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
    ) -> JudgeAnswer[T]:
        """Asks a question about an episode; see :func:`ask`."""
        label = f"{self._name}: {episode.task.id}, seed {episode.seed}"
        return await ask(self.model, prompts, len(episode.plain_turns), read, self.manner, label)

    async def close(self) -> None:
        """Closes the model."""
        await self.model.close()
