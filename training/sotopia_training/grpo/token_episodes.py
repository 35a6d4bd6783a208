"""Whole episodes as token sequences: the focal policy's sampled tokens, the partners' turns between them, and a mask.

An episode is one sequence that only grows: prompt ids, then sampled ids, then the newly tokenised conversation up to
the next answer, and so on. The trained tokens are the sampled tokens; no text is rendered and tokenised twice. Partners
are policies of :mod:`sotopia_env`; the turns of many episodes are sampled in one batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sotopia_env.chat_model import ChatReply
from sotopia_env.foundation.errors import FATAL, EvaluationError, InvalidValueError, SotopiaError
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.llm import read_reply
from sotopia_env.world import DIMENSIONS, Action, Dimension, Evaluator, Observation
from sotopia_env.world.action import NO_ACTION, ActionType, ParseFailure
from sotopia_env.world.dynamics import EpisodeState
from sotopia_env.world.episode import Episode, Evaluation, Generation, PolicyInfo
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import ABBREVIATIONS, RewardVector
from sotopia_training.grpo.situations import Situation
from sotopia_training.models.tokenizers import answer_text, glue_ids, prompt_ids
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LogProbs = Sequence[Sequence[float | None]]
"""Log-probability of every sampled token under the sampler, by answer; ``None`` if the sampler does not return it."""
Schemas = Sequence[Mapping[str, Any] | None]
"""The JSON schema that constrains each answer; ``None`` for free text."""


class Sample(Protocol):
    """A batch sampler."""

    def __call__(
        self, prompts: list[list[int]], schemas: Schemas | None = None
    ) -> tuple[Sequence[Sequence[int]], LogProbs | None]:
        """Returns sampled ids, with the end token if it was sampled, and their log-probabilities.

        Log-probabilities are returned if they may differ from those of the model in training (vLLM).

        Args:
            prompts: the token ids of each prompt.
            schemas: the schema of each prompt's answer; ``None`` for free text.
        """
        ...


_ANSWER: ChatMessage = {"role": "assistant", "content": "{}"}
"""Replaces the answer when the glue after it is rendered, because a template may trim the blanks of a real one."""


@dataclass(frozen=True, slots=True)
class FocalTurn:
    """One turn of the focal policy.

    Attributes:
        turn: the index of the turn in the episode.
        start: the index of its first sampled token in the completion.
        end: the index after its last sampled token.
        failure: the reason why its text was not a possible action; empty if it was one.
        schema: the schema that constrained its text; ``None`` for free text.
    """

    turn: int
    start: int
    end: int
    failure: str = ""
    schema: Mapping[str, Any] | None = None


@dataclass(slots=True)
class TokenEpisode:
    """An episode in progress or complete.

    Attributes:
        situation: the situation of the episode.
        table: plays the episode.
        prompt: the token ids before the first answer.
        completion: the token ids after the prompt, including those of partners.
        mask: 1 for each token of ``completion`` that the focal policy sampled, 0 for the others.
        logprobs: the log-probabilities of the tokens of ``completion`` under the sampler: ``None`` if it does not
            return them, 0 for tokens of others.
        focal: the focal policy's turns.
        too_long: whether the next answer had no room, so that the focal seat had to leave.
        failure: the reason why the episode has no scores, if a partner or the evaluator failed. Such an episode is not
            trained on.
        evaluation: the evaluator's scores, when available.
    """

    situation: Situation
    table: Table
    prompt: list[int] = field(default_factory=list)
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    focal: list[FocalTurn] = field(default_factory=list)
    too_long: bool = False
    failure: str = ""
    evaluation: Evaluation | None = None
    _messages_read: int = 0

    @property
    def state(self) -> EpisodeState:
        """The episode's state."""
        return self.table.state

    @property
    def observation(self) -> Observation:
        """The focal seat's current observation."""
        return self.table.observe(self.situation.seat)

    @property
    def record(self) -> Episode:
        """The episode as it would be on disk, with its evaluation."""
        focal, partner = self.situation.seat, self.situation.partner
        policies = [PolicyInfo(agent=a, name="focal" if a == focal else partner.name) for a in self.table.task.agents]
        evaluations = () if self.evaluation is None else (self.evaluation,)
        return self.table.episode().model_copy(update={"policies": tuple(policies), "evaluations": evaluations})

    @property
    def vector(self) -> RewardVector:
        """The focal seat's seven scores, with 0 for missing ones, none of which the reward needs.

        Raises:
            EvaluationError: the episode has no evaluation, or is unscored.
        """
        if self.evaluation is None:
            reason = self.failure or "not evaluated"
            raise EvaluationError(f"episode of task {self.situation.task.id!r}: {reason}")
        return self.evaluation.vector(self.situation.seat, ())

    @property
    def scores(self) -> dict[str, float]:
        """The focal seat's scores by abbreviation, for dimensions that have one; empty without a reward."""
        if self.failure or self.evaluation is None:
            return {}
        scores = self.evaluation.by_agent.get(self.situation.seat, {})
        return {ABBREVIATIONS[dimension]: scores[dimension].value for dimension in DIMENSIONS if dimension in scores}

    @property
    def valid(self) -> float | None:
        """The share of the focal turns in which the model itself wrote a possible action with a possible move.

        ``none`` counts if the model wrote it, but not if it replaces an unusable answer, and nor does leaving because
        the next answer would not fit. ``None`` without any turn.
        """
        return 1 - sum(bool(turn.failure) for turn in self.focal) / len(self.focal) if self.focal else None


class TokenPlayer:
    """Plays situations with a sampling function in the focal seat."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: PromptSettings,
        evaluator: Evaluator | None,
        needed: Sequence[Dimension] = DIMENSIONS,
        constrained: bool = False,
    ) -> None:
        """Creates the player.

        Args:
            tokenizer: a prefix-preserving tokenizer (:func:`sotopia_training.models.tokenizers.check_tokenizer`).
            prompt: the format and limits; ``single`` renders its history again every turn and is not one sequence.
            evaluator: scores finished episodes.
            needed: the dimensions without which an episode has no reward.
            constrained: whether answers are sampled under the schema of the possible actions.

        Raises:
            InvalidValueError: the prompt format is ``single``.
        """
        if prompt.format == "single":
            raise InvalidValueError(
                field="format",
                expected="'chat' or 'brief' for whole episodes",
                hint="prompts of 'single' do not extend each other",
            )
        self._tokenizer = tokenizer
        self._settings = prompt
        self._prompt = AgentPrompt(prompt.format)
        self._evaluator = evaluator
        self._needed = needed
        self._constrained = constrained

    def play(
        self, situations: Sequence[Situation], sample: Sample, row_count: Callable[[int], int] = int
    ) -> list[TokenEpisode]:
        """Returns the episodes in the order of ``situations``, each with its evaluation or the reason for its absence.

        Args:
            situations: the situations of the episodes.
            sample: answers the prompts of all episodes in which it is the focal seat's turn.
            row_count: returns the largest of all processes' counts, if sampling is a collective operation (vLLM, FSDP,
                ZeRO-3).
        """
        episodes = self.begin(situations)
        self.play_on(episodes, sample, row_count)
        return episodes

    def play_on(self, episodes: Sequence[TokenEpisode], sample: Sample, row_count: Callable[[int], int] = int) -> None:
        """Plays episodes in progress to the end and evaluates them; the arguments are those of :meth:`play`."""
        while True:
            acting = [episode for episode in episodes if self.acting(episode)]
            rows = row_count(len(acting))
            if not rows:
                break
            prompts = [[*episode.prompt, *episode.completion] for episode in acting]
            # In a collective operation all processes must sample equally often, and equally many rows; the answers to
            # these additional prompts are dropped.
            spare = [prompts[0] if prompts else [int(self._tokenizer.eos_token_id)]] * (rows - len(prompts))
            schemas = [self._schema(episode) for episode in acting] + [None] * len(spare)
            answers, logprobs = sample([*prompts, *spare], schemas) if self._constrained else sample([*prompts, *spare])
            self.take(acting, answers[: len(acting)], logprobs)
        self.evaluate(episodes)

    def before(self, episode: TokenEpisode, number: int) -> TokenEpisode:
        """Returns a copy of the episode in its state before focal turn ``number``, to be played on."""
        turn = episode.focal[number]
        state = TokenEpisode(
            episode.situation,
            episode.table.fork(turn.turn),
            prompt=[*episode.prompt],
            completion=episode.completion[: turn.start],
            mask=episode.mask[: turn.start],
            logprobs=episode.logprobs[: turn.start],
            focal=episode.focal[:number],
        )
        state._messages_read = len(self._prompt.messages(state.observation))
        return state

    def begin(self, situations: Sequence[Situation]) -> list[TokenEpisode]:
        """Starts the episodes and returns them, each at its focal seat's first turn or already over."""
        episodes = []
        for situation in situations:
            key = f"{situation.task.id}.{situation.seat}.{situation.seed}"
            table = Table(situation.task, situation.rules, situation.seed, key=key)
            episodes.append(TokenEpisode(situation, table))
        self._let_partners_act(episodes)
        for episode in episodes:
            self._append_news(episode)
        return episodes

    @staticmethod
    def acting(episode: TokenEpisode) -> bool:
        """Whether it is the focal seat's turn."""
        return episode.state.stop is None and not episode.too_long and not episode.failure

    def take(
        self, episodes: Sequence[TokenEpisode], answers: Sequence[Sequence[int]], logprobs: LogProbs | None = None
    ) -> None:
        """Applies one answer per acting episode, with its tokens' log-probabilities, and plays on to the next turns."""
        for number, (episode, answer) in enumerate(zip(episodes, answers, strict=True)):
            self._act(episode, list(answer), [None] * len(answer) if logprobs is None else list(logprobs[number]))
        self._let_partners_act(episodes)
        for episode in episodes:
            self._append_news(episode)

    def evaluate(self, episodes: Sequence[TokenEpisode]) -> None:
        """Evaluates finished episodes concurrently; if one cannot be scored, its ``failure`` is the reason.

        Raises:
            ModelRefusedError: an evaluator's model refuses all calls.
            BudgetExceededError: the evaluator's budget is spent.
        """
        evaluator = self._evaluator
        if evaluator is None:
            return

        async def evaluate(episode: TokenEpisode) -> None:
            try:
                evaluation = await evaluator.evaluate(episode.table.episode())
                evaluation.vector(episode.situation.seat, self._needed)  # raises if a score is missing
                episode.evaluation = evaluation
            except FATAL:
                raise
            except SotopiaError as error:
                episode.failure = str(error)

        async def evaluate_all() -> None:
            await asyncio.gather(*(evaluate(episode) for episode in episodes if not episode.failure))

        asyncio.run(evaluate_all())

    def _act(self, episode: TokenEpisode, answer: list[int], logprobs: list[float | None]) -> None:
        # An empty answer has no token that could be trained, so it is recorded as the end token.
        if not answer:
            answer, logprobs = [int(self._tokenizer.eos_token_id)], [None]
        action, failure, generation = self._read(episode, answer)
        start = len(episode.completion)
        episode.completion += answer
        episode.mask += [1] * len(answer)
        episode.logprobs += logprobs
        turn, end = len(episode.state.turns), len(episode.completion)
        episode.focal.append(FocalTurn(turn, start, end, failure, self._schema(episode)))
        episode.table.answer(episode.situation.seat, action, generation)

    def _schema(self, episode: TokenEpisode) -> Mapping[str, Any] | None:
        """Returns the schema of the next answer, the same as in play (:class:`~sotopia_env.policies.LLMPolicy`)."""
        return action_schema(episode.observation, self._settings.max_answer) if self._constrained else None

    def _read(self, episode: TokenEpisode, answer: Sequence[int]) -> tuple[Action, str, Generation]:
        """Returns the action in an answer, the reason why it is not possible (or ``""``), and the record."""
        observation, text = episode.observation, answer_text(self._tokenizer, answer)
        finished = answer[-1] == self._tokenizer.eos_token_id
        action = read_reply(ChatReply(text, finish_reason="stop" if finished else "length"), observation)
        if isinstance(action, ParseFailure):
            return NO_ACTION, action.reason, Generation(text=text, parse_failure=action.reason)
        return action, observation.move_problem(action) or "", Generation(text=text)

    def _let_partners_act(self, episodes: Sequence[TokenEpisode]) -> None:
        asyncio.run(self._partners(episodes))

    async def _partners(self, episodes: Sequence[TokenEpisode]) -> None:
        await asyncio.gather(*(self._partner_turns(episode) for episode in episodes))

    async def _partner_turns(self, episode: TokenEpisode) -> None:
        partner = episode.situation.partner
        others = {agent: partner for agent in episode.table.task.agents if agent != episode.situation.seat}
        try:
            await episode.table.play(others)
        except FATAL:
            raise
        except SotopiaError as error:
            episode.failure = f"partner {partner.name!r}: {error}"

    def _append_news(self, episode: TokenEpisode) -> None:
        """Appends the messages to the focal seat up to its next answer."""
        if episode.state.stop is not None or episode.failure:
            # Over before its first turn: trainers need a row for it, whose mask is all 0.
            if not episode.prompt:
                episode.prompt = prompt_ids(self._tokenizer, self._prompt.messages(episode.observation))
                self._fill(episode)
            return
        messages = self._prompt.messages(episode.observation)
        if not episode.focal:
            episode.prompt = prompt_ids(self._tokenizer, messages)
        else:
            glue = self._glue(episode, messages)
            episode.completion += glue
            episode.mask += [0] * len(glue)
            episode.logprobs += [0.0] * len(glue)
        episode._messages_read = len(messages)
        length = len(episode.prompt) + len(episode.completion)
        if length + self._settings.max_answer > self._settings.max_length:
            self._cut_off(episode)

    def _glue(self, episode: TokenEpisode, messages: Sequence[ChatMessage]) -> list[int]:
        # - 1: from the last message that was read, the user's, on. The answer follows it, and after that the news.
        news = messages[episode._messages_read - 1 :]
        following = news[[message["role"] for message in news].index("assistant") + 1 :]
        glue = glue_ids(self._tokenizer, [_ANSWER, *following])
        # An answer that was cut off has no end token, which the template has after every answer.
        finished = episode.completion[-1] == self._tokenizer.eos_token_id
        return glue if finished else [int(self._tokenizer.eos_token_id), *glue]

    def _fill(self, episode: TokenEpisode) -> None:
        episode.completion, episode.mask, episode.logprobs = [int(self._tokenizer.eos_token_id)], [0], [0.0]

    def _cut_off(self, episode: TokenEpisode) -> None:
        episode.too_long = True
        episode.table.answer(episode.situation.seat, Action(ActionType.LEAVE))
        if episode.focal:
            # TRL counts a row without an end token as cut off, so partners' words after the last answer are removed.
            end = episode.focal[-1].end
            del episode.completion[end:], episode.mask[end:], episode.logprobs[end:]
        else:
            self._fill(episode)
