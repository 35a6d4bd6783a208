"""One seat of an episode as tokens: the focal policy's sampled tokens, those of others between its turns, and a mask.

The sequence only grows: prompt ids, then sampled ids, then the newly tokenised conversation up to the next answer, and
so on. The trained tokens are the sampled tokens; no text is rendered and tokenised twice. A :class:`TokenSeat` is a
:class:`~sotopia_env.adapters.TextSeat`, so its partners, its record and its reward are those of every adapter.
:mod:`sotopia_training.grpo.token_episodes` plays many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sotopia_env.adapters import Seats, TextSeat
from sotopia_env.chat_model import ChatReply
from sotopia_env.foundation.errors import FATAL, InvalidValueError, SotopiaError
from sotopia_env.policies import Policy
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.llm import read_reply
from sotopia_env.world import DIMENSIONS, Action, Observation
from sotopia_env.world.action import NO_ACTION, ActionType, ParseFailure
from sotopia_env.world.episode import Episode, Evaluation, Generation
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import ABBREVIATIONS, RewardVector
from sotopia_training.models.tokenizers import answer_text, glue_ids, prompt_ids
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ANSWER: ChatMessage = {"role": "assistant", "content": "{}"}
"""Replaces the answer when the glue after it is rendered, because a template may trim the blanks of a real one."""


@dataclass(frozen=True, slots=True)
class TokenFormat:
    """How conversations become tokens, the same for all seats of a policy.

    Attributes:
        tokenizer: a prefix-preserving tokenizer (:func:`sotopia_training.models.tokenizers.check_tokenizer`).
        prompt: the format and limits; ``single`` renders its history again every turn and is not one sequence.
        constrained: whether answers are sampled under the schema of the possible actions.

    Raises:
        InvalidValueError: the prompt format is ``single``.
    """

    tokenizer: PreTrainedTokenizerBase
    prompt: PromptSettings
    constrained: bool = False

    def __post_init__(self) -> None:
        if self.prompt.format == "single":
            raise InvalidValueError(
                field="format",
                expected="'chat' or 'brief' for whole episodes",
                hint="prompts of 'single' do not extend each other",
            )

    @property
    def end(self) -> int:
        """The id of the token that ends an answer."""
        return int(self.tokenizer.eos_token_id)

    def messages(self, observation: Observation) -> list[ChatMessage]:
        """Returns the conversation that the policy reads."""
        return AgentPrompt(self.prompt.format).messages(observation)

    def schema(self, observation: Observation) -> Mapping[str, Any] | None:
        """Returns the schema of the next answer, the same as in play (:class:`~sotopia_env.policies.LLMPolicy`)."""
        return action_schema(observation, self.prompt.max_answer) if self.constrained else None

    def read(self, answer: Sequence[int], observation: Observation) -> tuple[Decision, str]:
        """Returns the decision in an answer, and the reason why it is not possible; ``""`` if it is."""
        text = answer_text(self.tokenizer, answer)
        action = read_reply(ChatReply(text, finish_reason="stop" if answer[-1] == self.end else "length"), observation)
        if isinstance(action, ParseFailure):
            return Decision(NO_ACTION, Generation(text=text, parse_failure=action.reason)), action.reason
        return Decision(action, Generation(text=text)), observation.move_problem(action) or ""


@dataclass(frozen=True, slots=True)
class FocalTurn:
    """One turn of the focal policy.

    Attributes:
        turn: the index of the turn in the episode.
        start: the position of its first token in the completion.
        end: the position after its last token.
        failure: the reason why the answer was not a possible action; empty if it was one.
        schema: the schema that constrained its text; ``None`` for free text.
        messages: the number of messages that the policy had read before it.
    """

    turn: int
    start: int
    end: int
    failure: str = ""
    schema: Mapping[str, Any] | None = None
    messages: int = 0


@dataclass(slots=True)
class TokenSeat:
    """One seat of an episode, in progress or complete, as one sequence of tokens.

    Attributes:
        seat: the seat.
        format: how its conversation becomes tokens.
        prompt: the token ids before the first answer.
        completion: the token ids after the prompt, including those of partners.
        mask: 1 for each token of ``completion`` that the focal policy sampled, 0 for the others.
        logprobs: the log-probabilities of the tokens of ``completion`` under the sampler: ``None`` if it does not
            return them, 0 for tokens of others.
        focal: the focal policy's turns.
        too_long: whether the next answer had no room, so that the focal seat had to leave.
        failure: the reason why the episode has no reward, if a partner or the evaluator failed. Such an episode is not
            trained on.
        reward: the reward of the episode; ``None`` before :meth:`evaluate` and after a failure.
        fellows: all seats of the episode that the policy plays, this one among them, by agent id.
    """

    seat: TextSeat
    format: TokenFormat
    prompt: list[int] = field(default_factory=list)
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    focal: list[FocalTurn] = field(default_factory=list)
    too_long: bool = False
    failure: str = ""
    reward: float | None = None
    fellows: dict[str, TokenSeat] = field(default_factory=dict)
    _messages_read: int = 0

    def __post_init__(self) -> None:
        self.fellows.setdefault(self.agent, self)

    @classmethod
    def all_of(cls, seats: Seats, format: TokenFormat) -> dict[str, TokenSeat]:
        """Returns every seat of an episode that is played from outside, by agent id."""
        fellows: dict[str, TokenSeat] = {}
        for seat in seats.values():
            cls(seat, format, fellows=fellows)
        return fellows

    @property
    def agent(self) -> str:
        """The agent id of the seat."""
        return self.seat.agent

    @property
    def table(self) -> Table:
        """The episode in play."""
        return self.seat.table

    @property
    def partners(self) -> Mapping[str, Policy]:
        """The policies of the seats that the policy does not play, by agent id."""
        return self.seat.seats.partners

    @property
    def observation(self) -> Observation:
        """The seat's current observation."""
        return self.table.observe(self.agent)

    @property
    def record(self) -> Episode:
        """The record of the episode, with its evaluation."""
        return self.seat.episode()

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluator's scores; ``None`` before :meth:`evaluate` and after a failure."""
        return self.table.evaluation if self.seat.seats.payments else None

    @property
    def vector(self) -> RewardVector | None:
        """The seat's seven scores, with 0 for missing ones, none of which the reward needs; ``None`` without them."""
        return self.seat.vector

    @property
    def scores(self) -> dict[str, float]:
        """The seat's scores by abbreviation, for dimensions that have one; empty without a reward."""
        scores = {} if self.evaluation is None else self.evaluation.by_agent.get(self.agent, {})
        return {ABBREVIATIONS[dimension]: scores[dimension].value for dimension in DIMENSIONS if dimension in scores}

    @property
    def turn_rewards(self) -> tuple[float, ...] | None:
        """:attr:`TextSeat.turn_rewards` of :attr:`focal`, without the reward of leaving because of a full context."""
        rewards = self.seat.turn_rewards
        return None if rewards is None else rewards[: len(self.focal)]

    @property
    def valid(self) -> float | None:
        """The share of the focal turns in which the model itself wrote a possible action with a possible move.

        ``none`` counts if the model wrote it, but not if it replaces an unusable answer, and leaving because the next
        answer would not fit does not count either. ``None`` without any turn.
        """
        return 1 - sum(bool(turn.failure) for turn in self.focal) / len(self.focal) if self.focal else None

    @property
    def facts(self) -> dict[str, float]:
        """Figures for logs: turns, whether it was too long or unscored, valid answers; with an outcome, its share and
        whether it is a losing deal, which is worse for the seat than none.
        """
        facts = {
            "turns": float(len(self.focal)),
            "too_long": float(self.too_long),
            "unscored": float(bool(self.failure)),
        }
        if self.valid is not None:
            facts["valid"] = self.valid
        outcome = self.evaluation.outcome if self.evaluation else None
        if outcome is not None:
            share = outcome.shares[self.table.task.seat_of[self.agent]]
            facts |= {"agreement": float(outcome.agreed), "share": float(share), "losing": float(share < 0)}
        return facts

    @property
    def acting(self) -> bool:
        """Whether the policy has to answer :attr:`sequence`."""
        return not self.too_long and not self.failure and self.agent in self.table.acting

    @property
    def sequence(self) -> list[int]:
        """The token ids so far."""
        return [*self.prompt, *self.completion]

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The schema of the next answer; ``None`` for free text."""
        return self.format.schema(self.observation)

    async def play(self) -> None:
        """Lets the partners act until it is the turn of one of the :attr:`fellows`, and appends the news for them.

        Raises:
            ModelRefusedError: a partner's model refuses all calls.
            BudgetExceededError: a partner's budget is spent.
        """
        fellows = self.fellows.values()
        while True:
            try:
                # Not Seats.play(), which evaluates: a judge is asked about all episodes of a batch at the same time.
                await self.seat.seats.act()
            except FATAL:
                raise
            except SotopiaError as error:
                names = " or ".join(repr(name) for name in dict.fromkeys(p.name for p in self.partners.values()))
                for seat in fellows:
                    seat.failure = f"partner {names}: {error}"
            gone = [seat for seat in fellows if seat.too_long]
            for seat in fellows:
                seat._append_news()
            # If a seat had to leave, others may be next. With the last seat of the policy, the episode ends as it is.
            if [seat for seat in fellows if seat.too_long] == gone or all(seat.too_long for seat in fellows):
                return

    def take(self, answer: Sequence[int], logprobs: Sequence[float | None] | None = None) -> None:
        """Takes the ids of an answer, with the end token if it was sampled, and their log-probabilities."""
        if not answer:  # it has no token that could be trained, so it is recorded as the end token
            answer, logprobs = [self.format.end], None
        decision, failure = self.format.read(answer, self.observation)
        turn, start, schema = len(self.table.turns), len(self.completion), self.schema
        self._extend(answer, 1, [None] * len(answer) if logprobs is None else logprobs)
        self.focal.append(FocalTurn(turn, start, len(self.completion), failure, schema, self._messages_read))
        self.seat.take(decision)

    async def evaluate(self) -> None:
        """Evaluates the episode as it is; if it cannot be scored, :attr:`failure` is the reason.

        Raises:
            ModelRefusedError: an evaluator's model refuses all calls.
            BudgetExceededError: the evaluator's budget is spent.
        """
        if self.failure:
            return
        try:
            await self.seat.end()
            self.reward = self.seat.reward
        except FATAL:
            raise
        except SotopiaError as error:
            self.failure = str(error)

    def before(self, number: int) -> TokenSeat:
        """Returns a copy of the seat in its state before a focal turn, with its fellows, for a continuation."""
        turn = self.focal[number].turn
        copies = TokenSeat.all_of(self.seat.seats.fork(turn), self.format)
        for agent, copy in copies.items():
            self.fellows[agent]._copy_to(copy, turn)
        return copies[self.agent]

    def _copy_to(self, copy: TokenSeat, turn: int) -> None:
        # The copied tokens are not rendered again, so that continuations extend exactly the trained sequence.
        copy.focal = [own for own in self.focal if own.turn < turn]
        following = next((own for own in self.focal if own.turn >= turn), None)
        if following is not None and following.turn == turn:
            end, read = following.start, following.messages
        else:  # its next turn comes later, and what it reads before that is not known yet
            end, read = (copy.focal[-1].end, copy.focal[-1].messages) if copy.focal else (0, 0)
        if read:
            copy.prompt, copy.completion = [*self.prompt], self.completion[:end]
            copy.mask, copy.logprobs, copy._messages_read = self.mask[:end], self.logprobs[:end], read

    def _extend(self, ids: Sequence[int], mask: int, logprobs: Sequence[float | None]) -> None:
        self.completion += ids
        self.mask += [mask] * len(ids)
        self.logprobs += logprobs

    def _append_news(self) -> None:
        """Appends the messages to the seat up to its next answer."""
        is_over = self.table.stop is not None or bool(self.failure)
        # While another seat of the policy acts, nothing is read: more may follow before this seat's next answer.
        if self.too_long or not (is_over or self.acting):
            return
        # The whole conversation is rendered as messages, but only its new part becomes tokens.
        messages = self.format.messages(self.observation)
        if is_over:
            if not self.prompt:
                # Over before its first turn: trainers need a row for it, whose mask is all 0.
                self.prompt = prompt_ids(self.format.tokenizer, messages)
                self._extend([self.format.end], 0, [0.0])
            return
        if not self.prompt:
            self.prompt = prompt_ids(self.format.tokenizer, messages)
        elif len(messages) > self._messages_read:  # not a copy from before a turn, which has read its last message
            glue = self._glue(messages)
            self._extend(glue, 0, [0.0] * len(glue))
        self._messages_read = len(messages)
        if len(self.sequence) + self.format.prompt.max_answer > self.format.prompt.max_length:
            self._leave()

    def _glue(self, messages: Sequence[ChatMessage]) -> list[int]:
        # - 1: from the last message that was read, the user's, on. The answer follows it, and after that the news.
        news = messages[self._messages_read - 1 :]
        following = news[[message["role"] for message in news].index("assistant") + 1 :]
        glue = glue_ids(self.format.tokenizer, [_ANSWER, *following])
        # An answer that was cut off has no end token, which the template has after every answer.
        return glue if self.completion[-1] == self.format.end else [self.format.end, *glue]

    def _leave(self) -> None:
        """The rule for a full context: the seat leaves, and the row ends with the policy's own tokens."""
        self.too_long = True
        self.seat.take(Action(ActionType.LEAVE))
        if self.focal:
            # TRL counts a row without an end token as cut off, so partners' words after the last answer are removed.
            end = self.focal[-1].end
            del self.completion[end:], self.mask[end:], self.logprobs[end:]
        else:
            self._extend([self.format.end], 0, [0.0])
