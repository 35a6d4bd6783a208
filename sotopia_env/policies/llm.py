"""The policy that plays a seat with a language model.

The model reads what its seat may know, and answers with one JSON action. Three things can go wrong, and each has a
path of its own. Text that is no possible action, and a move that is not open, are complained about and asked for again,
a few times; what happens then is declared beforehand and recorded with the turn: text that is no action comes to
nothing or to leaving, and of an action whose move alone is not open the words are heard, while the move is a recorded
violation. A conversation that does not fit loses its oldest turns, visibly. A call that fails for good ends the episode
with the reason: it is never a silent turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest
from sotopia_env.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    PolicyError,
    name_hint,
)
from sotopia_env.policies.agent_prompt import (
    AgentPrompt,
    ContextWindow,
    Format,
    approximate_tokens,
    brief,
    complaint,
    fewer_turns,
)
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.examples import ExampleSource, read_examples, read_template
from sotopia_env.policies.interviews import answer_schema, read_choice, request_text
from sotopia_env.policies.policy import Decision
from sotopia_env.world.action import NO_ACTION, Action, ActionType, ParseFailure, parse_possible
from sotopia_env.world.answers import InterviewQuestion, InterviewReply
from sotopia_env.world.episode import EpisodeError, Generation
from sotopia_env.world.observation import ChatMessage, Observation

Consequence = Literal["none", "forfeit"]
"""What text that stays unusable comes to: a turn in which nothing is done, or leaving."""
_CONSEQUENCES: tuple[Consequence, ...] = get_args(Consequence)
_SEED_BITS = (1 << 31) - 1  # every server's seed holds 31 bits, not every one more


@dataclass(frozen=True, slots=True, eq=False)  # a model is the connection that it is, not an equal one
class LLMPolicy:
    """Plays a seat with a chat model.

    Attributes:
        model: answers; made by :func:`sotopia_env.chat_model.make_model`, or anything else that keeps its protocol.
        format: ``chat`` (a conversation, each turn extending the last), ``single`` (one prompt, as SOTOPIA-π's) or
            ``brief`` (a short conversation without instructions, for tiny models).
        temperature: of sampling, 0 to 2; ``None`` leaves it to the server.
        max_tokens: limit on each answer; ``None`` leaves it to the model.
        reasks: how often unusable text, or a move that is not open, is complained about and asked for again.
        on_unusable: what it comes to when the last answer was no action: ``none`` or ``forfeit`` (to leave). One whose
            move alone is not open is taken as it is: its words are heard, its move is a violation.
        examples: few-shot examples, see :data:`~sotopia_env.policies.examples.ExampleSource`.
        context_limit: tokens that prompt and answer may have together. Without it the model's server is relied upon to
            refuse what is too long, which costs a request every time.
        count_tokens: counts the tokens of a text; by default a quarter of its characters.
        template: of the ``single`` format, as text or as the path of a file, with the placeholder ``{{observation}}``.
        send_seed: whether the server gets the turn's seed.
        logprobs: whether token ids and log-probabilities are wanted in the record.
        name: of the policy in records; the model's by default.
    """

    model: ChatModel
    format: Format = field(default="chat", kw_only=True)
    temperature: float | None = field(default=1.0, kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    reasks: int = field(default=2, kw_only=True)
    on_unusable: Consequence = field(default="none", kw_only=True)
    examples: ExampleSource = field(default=(), kw_only=True, repr=False)
    context_limit: int | None = field(default=None, kw_only=True)
    count_tokens: Callable[[str], int] | None = field(default=None, kw_only=True, repr=False)
    template: str | Path | None = field(default=None, kw_only=True, repr=False)
    send_seed: bool = field(default=False, kw_only=True)
    logprobs: bool = field(default=False, kw_only=True)
    name: str = field(default="", kw_only=True)
    _prompt: AgentPrompt = field(init=False, repr=False)
    _window: ContextWindow = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, ChatModel):
            raise InvalidValueError(f"model: expected a chat model, as make_model returns one, got {self.model!r}")
        if self.on_unusable not in _CONSEQUENCES:
            raise InvalidValueError(f"on_unusable: {name_hint(str(self.on_unusable), _CONSEQUENCES)}")
        _check_whole("reasks", self.reasks, 0)
        if self.max_tokens is not None:
            _check_whole("max_tokens", self.max_tokens, 1)
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise InvalidValueError(f"temperature: expected a number from 0 to 2, got {self.temperature!r}")
        prompt = AgentPrompt(self.format, read_template(self.template), read_examples(self.examples))
        count = self.count_tokens or approximate_tokens
        object.__setattr__(self, "_prompt", prompt)
        object.__setattr__(self, "_window", ContextWindow(self.context_limit, self.max_tokens, count))
        object.__setattr__(self, "name", self.name or self.model.name)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model with its own parameters, all settings, and the hash of every prompt text."""
        plain = ("format", "temperature", "max_tokens", "reasks", "on_unusable", "context_limit")
        settings = {key: getattr(self, key) for key in (*plain, "send_seed", "logprobs")}
        counted = getattr(self.count_tokens, "__qualname__", type(self.count_tokens).__name__)
        return {
            **settings,
            "model": self.model.name,
            "model_parameters": dict(self.model.parameters),
            "count_tokens": counted if self.count_tokens else approximate_tokens.__name__,
            "examples": len(self._prompt.examples),
            "prompts": dict(self._prompt.hashes),
        }

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns what the model decides, with its text, what it cost and how often it was asked again.

        Raises:
            PolicyError: the model could not be asked, or the conversation does not fit even when it is shortened.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses every request.
        """
        started = time.perf_counter()
        replies: list[ChatReply] = []
        complaints: list[ChatMessage] = []
        while True:
            frame = self._frame(observation, seed, len(complaints) // 2)
            reply, dropped = await self._ask(observation, complaints, frame)
            replies.append(reply)
            answer = read_reply(reply, observation)
            problem = problem_of(answer, observation)
            if not problem or len(replies) > self.reasks:
                break
            complaints += complaint(_writable(reply.text), problem)
        generation = _generation(replies, answer, dropped, time.perf_counter() - started)
        action = answer if isinstance(answer, Action) else self._forfeit(observation)
        return Decision(action, generation, _failures(replies))

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the model's answer to one question behind its own conversation; none where no text is one.

        Raises:
            PolicyError: the model could not be asked, or the conversation does not fit even when it is shortened.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses every request.
        """
        text, complaints = request_text(observation, question), list[ChatMessage]()
        while True:
            frame = replace(
                self._frame(observation, seed, len(complaints) // 2),
                role="judge",
                schema=answer_schema(question),
                logprobs=False,
                accepts=lambda reply: isinstance(read_choice(reply.text, question.keys), int),
            )
            reply, _ = await self._ask(observation, complaints, frame, text)
            choice = read_choice(reply.text, question.keys)
            if isinstance(choice, int):
                return InterviewReply(choice)
            reason = _writable(brief(choice.reason))
            if frame.reask == self.reasks:
                return InterviewReply(reason=f"no usable answer after {self.reasks + 1}; the last one: {reason}")
            complaints += complaint(_writable(reply.text), reason, "interview_reask")

    def _forfeit(self, observation: Observation) -> Action:
        leaves = self.on_unusable == "forfeit" and ActionType.LEAVE in observation.available
        return Action(ActionType.LEAVE) if leaves else NO_ACTION

    async def _ask(
        self, observation: Observation, complaints: Sequence[ChatMessage], frame: ChatRequest, question: str = ""
    ) -> tuple[ChatReply, int]:
        """The model's answer to the observation, a question and the ``complaints``; and how many turns were left out.

        ``frame`` is the request without messages.
        """

        def messages(count: int) -> list[ChatMessage]:
            *earlier, last = self._prompt.messages(observation, count)
            # In one message with the latest news: many chat templates refuse two of one role in a row.
            content = "\n\n".join(filter(None, (last["content"], question)))
            return [*earlier, {"role": last["role"], "content": content}, *complaints]

        turns = len(observation.turns)
        dropped = self._window.dropped(turns, messages)
        while True:
            try:
                return await self.model.complete(replace(frame, messages=tuple(messages(dropped)))), dropped
            except ContextLengthError as error:
                fewer = fewer_turns(turns, dropped)
                if fewer is None:
                    raise PolicyError(f"{self.name}: {error} (with {dropped} of {turns} turns left out)") from error
                dropped = fewer
            except ModelRefusedError:
                raise  # no later turn and no other episode would fare better
            except ModelCallError as error:
                raise PolicyError(f"{self.name}: {error}") from error

    def _frame(self, observation: Observation, seed: int, reask: int) -> ChatRequest:
        return ChatRequest(
            (),
            role="agent",
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=seed & _SEED_BITS if self.send_seed else None,
            schema=action_schema(observation, self.max_tokens),  # the model decides whether its server enforces it
            logprobs=self.logprobs,
            replicate=seed,  # two samples of one prompt are two samples, whatever a cache makes of them
            reask=reask,
            label=f"{observation.agent} turn {observation.turn}",
        )


def _check_whole(what: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidValueError(f"{what}: expected a whole number, {least} or more, got {value!r}")


def read_reply(reply: ChatReply, observation: Observation) -> Action | ParseFailure:
    """Returns the action in a reply, or why there is none that this seat could take now.

    Whether its move is open is another question: see :func:`problem_of`.
    """
    answer = parse_possible(reply.text, observation.available, observation.briefing.recipients)
    if isinstance(answer, Action):
        return answer
    cut = "; the answer was cut off at its limit of tokens" if reply.finish_reason == "length" else ""
    return ParseFailure(_writable(brief(answer.reason + cut)))


def problem_of(answer: Action | ParseFailure, observation: Observation) -> str:
    """Returns why an answer deserves a re-ask: it is no action, or its move is not open now; empty where neither is."""
    if isinstance(answer, ParseFailure):
        return answer.reason
    problem = observation.move_problem(answer)
    return "" if problem is None else f"move: {_writable(brief(problem.removeprefix('move: ')))}"


def _writable(text: str) -> str:
    """The text with lone surrogates, which no file can hold, as question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _failures(replies: Sequence[ChatReply]) -> tuple[EpisodeError, ...]:
    failures = [failure for reply in replies if not reply.cached for failure in reply.failures]
    return tuple([EpisodeError(kind=kind, message=_writable(message)) for kind, message in failures])


def _generation(
    replies: Sequence[ChatReply], answer: Action | ParseFailure, dropped: int, latency: float
) -> Generation:
    last = replies[-1]
    return Generation(
        text=_writable(last.text),
        parse_failure=answer.reason if isinstance(answer, ParseFailure) else None,
        reasks=len(replies) - 1,
        usage=sum((reply.usage for reply in replies[1:]), replies[0].usage),
        latency=latency,
        token_ids=last.token_ids,
        logprobs=last.logprobs,
        model=last.model,
        reasoning=_writable(last.reasoning),
        dropped_turns=dropped,
    )
