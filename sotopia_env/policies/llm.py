"""The policy that plays a seat with a language model.

The model reads its seat's observation and answers with one JSON action. Three kinds of failure are handled separately:

* If the text is not a possible action, or its move is not open, the model is told why and asked again, a few times. If
  the last answer still is not an action, the turn is ``none`` or ``leave``, as configured; if only its move is not
  open, the words are kept and the move is recorded as a violation. Either way, the turn's record says so.
* A conversation that does not fit the context loses its oldest turns, with a marker in their place.
* A call that fails permanently ends the episode with the reason; it never becomes a silent turn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from sotopia_env.chat_model.asking import AskResult, Complaint, ShortenedRequest, ask
from sotopia_env.chat_model.protocol import (
    ChatModel,
    ChatReply,
    ChatRequest,
    CountsTokens,
    TokenChoice,
    WeighsAnswers,
    check_request,
)
from sotopia_env.foundation.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    PolicyError,
    check_number,
    check_whole,
)
from sotopia_env.foundation.prompts import fill
from sotopia_env.foundation.quoting import escape_line
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.outcomes.facts import Distribution, PublicVariable
from sotopia_env.policies.agent_prompt import (
    KEPT_TURNS,
    AgentPrompt,
    ContextWindow,
    Format,
    approximate_tokens,
    brief,
    complaint,
    conversation_tokens,
    fewer_turns,
)
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.examples import ExampleSource, read_examples, read_template
from sotopia_env.policies.function_calls import functions_of, with_action_text, with_calls
from sotopia_env.policies.interviews import (
    answer_schema,
    belief_form,
    belief_question,
    belief_questions,
    belief_text,
    load,
    read_choice,
    request_text,
)
from sotopia_env.policies.lengths import Lengths, wordless_moves
from sotopia_env.policies.letters import key_shares, mean_shares
from sotopia_env.world.action import NO_ACTION, Action, ActionType, ParseFailure
from sotopia_env.world.answers import MOST_OPTIONS, BeliefReply, InterviewQuestion, InterviewReply
from sotopia_env.world.episode import EpisodeError, Generation
from sotopia_env.world.observation import ChatMessage, Observation
from sotopia_env.world.play.policy import Decision, turn_seed

T = TypeVar("T")
Consequence = Literal["none", "forfeit"]
"""The result of text that stays unusable: a turn in which nothing is done, or leaving."""
_CONSEQUENCES: tuple[Consequence, ...] = get_args(Consequence)
_LEAST_ANSWERS = 2
"""The scores of shares are corrected for their scatter, which a single answer does not show."""
_ALTERNATIVES = 20
"""OpenAI's and vLLM's limit."""
_SEED_BITS = (1 << 31) - 1  # all servers accept seeds of 31 bits, but some accept no more


@dataclass(frozen=True, slots=True, eq=False)  # models are connections and compare by identity
class LLMPolicy:
    """Plays a seat with a chat model.

    Attributes:
        model: the chat model; made by :func:`sotopia_env.chat_model.make_model`, or any object with the same protocol.
        format: ``chat`` (a conversation, each turn extending the last), ``single`` (one prompt, as SOTOPIA-π's),
            ``brief`` (a short conversation without instructions, for tiny models) or ``tools`` (function calls).
        temperature: the sampling temperature, 0 to 2; ``None`` leaves it to the server.
        max_tokens: limit on each answer; ``None`` leaves it to the model.
        reasks: how many times the model is asked again after unusable text or a move that is not open.
        on_unusable: the action to take when no answer could be parsed: ``none``, or ``forfeit`` (to leave). If only the
            move is not open, the words are heard and the move is recorded as a violation.
        examples: few-shot examples, see :data:`~sotopia_env.policies.examples.ExampleSource`.
        context_limit: the maximum number of tokens in prompt and answer together. If it is not given, an overlong
            prompt is noticed only when the server refuses it, which costs a request each time.
        count_tokens: counts the tokens of a text; by default the model counts those of a conversation where it can
            (:class:`~sotopia_env.chat_model.protocol.CountsTokens`), else a quarter of the characters.
        template: for the ``single`` format, a text or the path of a file, with the placeholder ``{{observation}}``.
        send_seed: whether the server gets the turn's seed.
        logprobs: whether token ids and log-probabilities are recorded.
        request: more fields of every request's body, of
            :data:`~sotopia_env.chat_model.protocol.REQUEST_SETTINGS`; only for models on servers.
        name: the name of the policy in records; the model's name by default.
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
    request: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    name: str = field(default="", kw_only=True)
    _prompt: AgentPrompt = field(init=False, repr=False)
    _window: ContextWindow = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # All settings are checked here: a wrong one must not be noticed only after the first paid request.
        if not isinstance(self.model, ChatModel):
            raise InvalidValueError(field="model", expected="a chat model, as make_model returns one", got=self.model)
        if self.on_unusable not in _CONSEQUENCES:
            raise InvalidValueError(field="on_unusable", got=self.on_unusable, valid=_CONSEQUENCES)
        check_whole("reasks", self.reasks, 0)
        if self.max_tokens is not None:
            check_whole("max_tokens", self.max_tokens, 1)
        if self.temperature is not None:
            check_number("temperature", self.temperature, 0, 2)
        check_request(self.request)
        prompt = AgentPrompt(self.format, read_template(self.template), read_examples(self.examples))
        if self.count_tokens is not None and self.context_limit is None:
            raise InvalidValueError(field="count_tokens", expected="a context_limit with it")
        # The dataclass is frozen; these fields are derived from the settings above.
        object.__setattr__(self, "_prompt", prompt)
        object.__setattr__(self, "_window", ContextWindow(self.context_limit, self.max_tokens))
        object.__setattr__(self, "name", self.name or self.model.name)

    def _counter(self, frame: ChatRequest) -> Callable[[Sequence[ChatMessage]], int]:
        """Returns a token counter for conversations under ``frame``'s functions; the model's own if it has one."""
        if self.count_tokens is None and isinstance(self.model, CountsTokens):
            return partial(self.model.prompt_tokens, tools=frame.tools) if frame.tools else self.model.prompt_tokens
        return partial(conversation_tokens, tools=frame.tools, count=self.count_tokens or approximate_tokens)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model with its own parameters, all settings, and the hash of every prompt text."""
        plain = ("format", "temperature", "max_tokens", "reasks", "on_unusable", "context_limit")
        settings = {key: getattr(self, key) for key in (*plain, "send_seed", "logprobs")}
        if self.request:  # only then, so that earlier runs keep their identity
            settings["request"] = dict(self.request)
        by_model = "prompt_tokens" if isinstance(self.model, CountsTokens) else approximate_tokens.__name__
        counted = getattr(self.count_tokens, "__qualname__", type(self.count_tokens).__name__)
        return {
            **settings,
            "model": self.model.name,
            "model_parameters": dict(self.model.parameters),
            "count_tokens": counted if self.count_tokens else by_model,
            "examples": len(self._prompt.examples),
            "prompts": dict(self._prompt.hashes),
        }

    def lengths(self, observation: Observation) -> Lengths | None:
        """Returns the lengths in tokens for this observation; ``None`` for a model without a tokenizer of its own."""
        if not isinstance(self.model, CountsTokens):
            return None
        frame = self._frame(observation, 0)
        # The shortest prompt that may be sent: all but the latest turns can be left out.
        messages = self._prompt.messages(observation, max(0, len(observation.turns) - KEPT_TURNS))
        moves = [self.model.answer_tokens(text) for text in wordless_moves(observation)]
        return Lengths(self._counter(frame)(messages), max(moves, default=0), self.max_tokens, self.context_limit)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the model's decision, with its text, its usage and the number of re-asks.

        Raises:
            PolicyError: the model could not be asked, or the conversation does not fit even when it is shortened.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses every request.
        """
        started = time.perf_counter()

        def read(reply: ChatReply) -> tuple[Action | ParseFailure, str]:
            answer = read_reply(reply, observation)
            return answer, problem_of(answer, observation)

        reask = "agent_reask_tools" if self.format == "tools" else "agent_reask"
        answered = await self._ask(observation, self._frame(observation, seed), read, complaint_prompt=reask)
        generation = _generation(answered, time.perf_counter() - started)
        # An action whose move is not open is kept: its words are heard, and `transition` records the violation.
        action = answered.value if isinstance(answered.value, Action) else self._forfeit(observation)
        return Decision(action, generation, _failures(answered.replies))

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the model's answer to one question, asked after its conversation; empty if no reply was usable.

        Raises:
            PolicyError: the model could not be asked, or the conversation does not fit even when it is shortened.
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses every request.
        """
        answered, _ = await self._choose(observation, question, request_text(observation, question), seed)
        return InterviewReply(answered) if isinstance(answered, int) else InterviewReply(reason=answered)

    async def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> list[BeliefReply]:
        """Returns the model's probabilities of the options, or their shares in ``samples`` independent answers.

        A model in this process gives probabilities (:class:`~sotopia_env.chat_model.protocol.WeighsAnswers`) of the
        options by their names, after one text with all questions. Other models are asked with lettered options: one
        whose server sends the probabilities of several tokens at each position gives those of the letters, as the mean
        over the orders in which each option has each letter once, because models prefer some letters. From the others,
        answers are drawn, with the options in a random order each time. An answer that is unusable after the re-asks is
        left out; fewer than two usable ones are no belief.

        Raises:
            PolicyError, BudgetExceededError, ModelRefusedError: as for :meth:`answer`.
        """
        if isinstance(self.model, WeighsAnswers) and (
            replies := await self._weighed(self.model, observation, variables)
        ):
            return replies
        return await all_at_once(
            self._drawn(observation, variable, turn_seed(seed, number, 0), samples)
            for number, variable in enumerate(variables)
        )

    async def _weighed(
        self, model: WeighsAnswers, observation: Observation, variables: Sequence[PublicVariable]
    ) -> list[BeliefReply]:
        """The probabilities of all options in one request; empty if the conversation does not fit the model."""
        request = self._request(
            observation, self._frame(observation, 0), belief_questions(observation, variables)
        ).request
        request = replace(request, role="judge", tools=(), schema=None, logprobs=False)
        answers = [[belief_form(variable, option) for option in variable.options] for variable in variables]
        try:
            shares = await model.shares(request, answers)
        except ContextLengthError:
            return []  # drawing answers shortens the conversation further, until it fits
        return [BeliefReply(dict(zip(v.options, part, strict=True))) for v, part in zip(variables, shares, strict=True)]

    async def _drawn(self, observation: Observation, variable: PublicVariable, seed: int, samples: int) -> BeliefReply:
        if len(variable.options) > MOST_OPTIONS:
            return BeliefReply(reason=f"more than {MOST_OPTIONS} options, so letters cannot name them", asked=False)
        seeds = [turn_seed(seed, 0, number) for number in range(samples)]
        orders = [random.Random(one).sample(variable.options, len(variable.options)) for one in seeds]
        # The first answer shows whether the server sends probabilities; if not, it is the first of the sample.
        first, tokens = await self._letter(observation, variable, orders[0], seeds[0], _ALTERNATIVES)
        if tokens and (shares := await self._server_shares(observation, variable, orders[0], seeds[0], tokens)):
            return BeliefReply(shares)
        work = zip(orders[1:], seeds[1:], strict=True)
        rest = await all_at_once(self._letter(observation, variable, order, one) for order, one in work)
        answers = [first, *(answer for answer, _ in rest)]
        chosen = [order[answer] for order, answer in zip(orders, answers, strict=True) if isinstance(answer, int)]
        if len(chosen) < _LEAST_ANSWERS:
            refusal = next(answer for answer in answers if isinstance(answer, str))
            return BeliefReply(reason=f"{len(chosen)} of {samples} answers usable; {refusal}")
        return BeliefReply({one: chosen.count(one) / len(chosen) for one in variable.options}, len(chosen))

    async def _letter(
        self, observation: Observation, variable: PublicVariable, order: Sequence[str], seed: int, alternatives: int = 0
    ) -> tuple[int | str, tuple[TokenChoice, ...]]:
        """An answer to one question, or why there is none, and the tokens with the best ones at their positions."""
        question = belief_question(variable, order)
        answer, reply = await self._choose(
            observation, question, belief_text(observation, question), seed, alternatives
        )
        return answer, reply.alternatives or () if isinstance(answer, int) else ()

    async def _server_shares(
        self,
        observation: Observation,
        variable: PublicVariable,
        order: Sequence[str],
        seed: int,
        tokens: tuple[TokenChoice, ...],
    ) -> Distribution | None:
        """The mean probabilities of the options over their rotations; ``None`` if an answer does not tell them."""
        keys, orders = belief_question(variable, order).keys, [(*order[n:], *order[:n]) for n in range(len(order))]
        rest = await all_at_once(self._letter(observation, variable, one, seed, _ALTERNATIVES) for one in orders[1:])
        return mean_shares(orders, [key_shares(one, keys) for one in (tokens, *(one for _, one in rest))])

    def _question(self, observation: Observation, question: InterviewQuestion, seed: int) -> ChatRequest:
        """The frame of a closed question."""
        frame = self._frame(observation, seed)
        return replace(frame, role="judge", tools=(), schema=answer_schema(question), logprobs=False)

    async def _choose(
        self, observation: Observation, question: InterviewQuestion, text: str, seed: int, alternatives: int = 0
    ) -> tuple[int | str, ChatReply]:
        """Returns the index of the option that the model selects, or why no reply was usable, and the last reply."""

        def read(reply: ChatReply) -> tuple[int | None, str]:
            choice = read_choice(reply.text, question.keys, reply.finish_reason, observation.others_words)
            return (choice, "") if isinstance(choice, int) else (None, _writable(brief(choice.reason)))

        frame = replace(self._question(observation, question, seed), accepts=lambda reply: read(reply)[0] is not None)
        if alternatives:
            frame = replace(frame, logprobs=True, alternatives=alternatives)
        answered = await self._ask(observation, frame, read, text, "interview_reask")
        if answered.value is not None:
            return answered.value, answered.reply
        return f"no usable answer after {len(answered.replies)}; the last one: {answered.reason}", answered.reply

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns what the model writes down for the next time; raises as :meth:`answer`."""
        # A line of English has about four characters a token; the limit of an answer may be lower.
        limit = min(filter(None, (self.max_tokens, most // 2)), default=None)
        frame = replace(self._frame(observation, seed), max_tokens=limit, tools=(), schema=None, logprobs=False)
        text = fill(load("notes"), name=escape_line(observation.briefing.name), most=str(most))
        answered = await self._ask(observation, frame, lambda reply: (_writable(reply.text), ""), text)
        return answered.value

    def _forfeit(self, observation: Observation) -> Action:
        leaves = self.on_unusable == "forfeit" and ActionType.LEAVE in observation.available
        return Action(ActionType.LEAVE) if leaves else NO_ACTION

    async def _ask(
        self,
        observation: Observation,
        frame: ChatRequest,
        read: Callable[[ChatReply], tuple[T, str]],
        question: str = "",
        complaint_prompt: str = "agent_reask",
    ) -> AskResult[T]:
        """Asks the model about the observation, or a question on it; ``frame`` is the request without messages."""
        turns = len(observation.turns)

        def prompt(omitted: int, complaints: Sequence[Complaint]) -> ShortenedRequest:
            echoes = [m for c in complaints for m in complaint(_writable(c.text), c.reason, complaint_prompt)]
            return self._request(observation, frame, question, omitted, echoes)

        try:
            return await ask(
                self.model,
                prompt,
                read,
                reasks=self.reasks,
                shorten=lambda dropped: fewer_turns(turns, dropped),
                convert=with_action_text if frame.tools else None,
            )
        except ContextLengthError as error:
            dropped = max(0, turns - KEPT_TURNS)
            raise PolicyError(f"{self.name}: {error} (with {dropped} of {turns} turns left out)") from error
        except ModelRefusedError:
            raise  # every later turn and every other episode would fail, too
        except ModelCallError as error:
            raise PolicyError(f"{self.name}: {error}") from error

    def _request(
        self,
        observation: Observation,
        frame: ChatRequest,
        question: str,
        omitted: int = 0,
        echoes: Sequence[ChatMessage] = (),
    ) -> ShortenedRequest:
        """Returns the request with the conversation, without at least ``omitted`` oldest turns."""

        def messages(count: int) -> list[ChatMessage]:
            *earlier, last = self._prompt.messages(observation, count)
            # In one message with the latest news: many chat templates refuse two messages of one role in a row.
            content = "\n\n".join(filter(None, (last["content"], question)))
            conversation: list[ChatMessage] = [*earlier, {"role": last["role"], "content": content}, *echoes]
            return with_calls(conversation) if frame.tools else conversation

        window = replace(self._window, count=self._counter(frame))
        # `omitted` grows when the server finds the prompt too long; the local count may be too low.
        dropped = max(omitted, window.dropped(len(observation.turns), messages))
        return ShortenedRequest(replace(frame, messages=tuple(messages(dropped))), dropped)

    def _frame(self, observation: Observation, seed: int) -> ChatRequest:
        calls = self.format == "tools"
        return ChatRequest(
            (),
            role="agent",
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=seed & _SEED_BITS if self.send_seed else None,
            tools=functions_of(observation) if calls else (),
            # The model decides whether its server enforces it.
            schema=None if calls else action_schema(observation, self.max_tokens),
            logprobs=self.logprobs,
            extra=self.request,
            replicate=seed,  # so that a cache keeps several samples of one prompt apart
            label=f"{observation.agent} turn {observation.turn}",
        )


def read_reply(reply: ChatReply, observation: Observation) -> Action | ParseFailure:
    """Returns the action in a reply, or why the reply holds no action that this seat could take now.

    Whether its move is open is checked separately; see :func:`problem_of`.
    """
    answer = observation.parse(reply.text, reply.finish_reason)
    return answer if isinstance(answer, Action) else ParseFailure(_writable(brief(answer.reason)))


def problem_of(answer: Action | ParseFailure, observation: Observation) -> str:
    """Returns why to ask again: the answer is not an action, or its move is not open; empty if neither applies."""
    if isinstance(answer, ParseFailure):
        return answer.reason
    problem = observation.move_problem(answer)
    return "" if problem is None else f"move: {_writable(brief(problem.removeprefix('move: ')))}"


def _writable(text: str) -> str:
    """Returns the text with question marks in place of lone surrogates, which cannot be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _failures(replies: Sequence[ChatReply]) -> tuple[EpisodeError, ...]:
    # A cached reply carries the failures of the request that was once sent; they belong to that episode.
    failures = [failure for reply in replies if not reply.cached for failure in reply.failures]
    return tuple([EpisodeError(kind=kind, message=_writable(message)) for kind, message in failures])


def _generation(answered: AskResult[Action | ParseFailure], latency: float) -> Generation:
    last, answer = answered.reply, answered.value
    return Generation(
        text=_writable(last.text),
        parse_failure=answer.reason if isinstance(answer, ParseFailure) else None,
        reasks=len(answered.replies) - 1,
        usage=sum((reply.usage for reply in answered.replies[1:]), answered.replies[0].usage),
        latency=latency,
        token_ids=last.token_ids,
        logprobs=last.logprobs,
        model=last.model,
        reasoning=_writable(last.reasoning),
        dropped_turns=answered.omitted,
    )
