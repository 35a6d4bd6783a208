"""Answers to prompts cut from episodes, in TRL: SOTOPIA-RL's single-turn GRPO (arXiv 2508.03905, §4.2)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.records import read_record
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.world import Action, Observation
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.recorded import observations
from sotopia_env.world.play.table import Table
from sotopia_training.data.samples import RowMaker, stream_dataset
from sotopia_training.data.sources import source_rows
from sotopia_training.grpo.sampling import trainer_sample
from sotopia_training.grpo.settings import GRPOSettings
from sotopia_training.grpo.token_seat import TokenSeat
from sotopia_training.models.loading import check_quantization, find_model
from sotopia_training.models.tokenizers import answer_text, prompt_ids
from sotopia_training.reward.scorer import RewardScorer, read_note
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase
    from trl.trainer.grpo_trainer import GRPOTrainer

logger = logging.getLogger(__name__)


class SingleTurn:
    """Single-turn GRPO: samples answers to prompts from episodes, and rewards them by the reward model."""

    self_play = head = None

    def __init__(self, settings: GRPOSettings, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase) -> None:
        """Checks the reward model's settings, without loading its weights.

        Args:
            settings: the settings of the stage.
            prompt: the prompt settings of the policy.
            tokenizer: the tokenizer of the policy, whose end token ends finished answers; that of the reward model may
                be another one.

        Raises:
            InvalidValueError: the reward model does not exist, or was trained with other prompts than the policy's.
        """
        self._settings = settings
        self._prompt = prompt
        self._tokenizer = tokenizer
        assert settings.reward.model is not None
        self._scored_by = find_model(settings.reward.model)
        note = read_note(self._scored_by)
        check_quantization(note.model)
        if note.prompt.format != prompt.format:
            raise InvalidValueError(
                field="reward.model",
                expected=f"one trained on prompts of the policy's format {prompt.format!r}",
                got=Verbatim(f"{settings.reward.model}, trained on {note.prompt.format!r}"),
            )
        if note.prompt.max_length < prompt.max_length:
            raise InvalidValueError(
                field="reward.model",
                expected=f"one that reads the {prompt.max_length} tokens of the policy's prompts and answers",
                got=Verbatim(f"{settings.reward.model}, which reads {note.prompt.max_length}"),
            )

    @cached_property
    def _scorer(self) -> RewardScorer:
        return RewardScorer.load(self._scored_by)

    def rows(self, folder: Path) -> Dataset:
        """Returns the prompts in ``folder``; the first process writes them, and the others read them."""
        from datasets import load_from_disk

        if not folder.is_dir():
            records = prompt_records(self._settings, self._prompt, self._tokenizer)
            building, whole = folder.with_name(f"{folder.name}.building"), folder.with_name(f"{folder.name}.whole")
            for stale in (building, whole):  # left by a killed process
                shutil.rmtree(stale, ignore_errors=True)
            try:
                stream_dataset(records, _features(), building).save_to_disk(str(whole))
            finally:
                shutil.rmtree(building, ignore_errors=True)  # corrected settings must not reuse refused rows
            # Renamed when complete: a killed process leaves no incomplete folder of this name.
            whole.rename(folder)
        return load_from_disk(str(folder))

    def parts(self) -> dict[str, Any]:
        """Returns the trainer's ``rollout_func`` and ``reward_funcs``; loads the reward model."""
        logger.info("answers are scored by %s", self._scorer.source)
        return {"rollout_func": self.answer, "reward_funcs": [self.reward]}

    def answer(self, prompts: Sequence[Sequence[ChatMessage]], trainer: GRPOTrainer) -> dict[str, Any]:
        """Returns one answer to each prompt; TRL's ``rollout_func``."""
        ids = [prompt_ids(self._tokenizer, prompt) for prompt in prompts]
        # No reuse: an answer is not continued, so its keys and values are of no further use.
        answers, logprobs = trainer_sample(trainer, reuse=False)(ids)
        # The importance correction compares the sampler's log-probabilities with those of the model in training.
        return {"prompt_ids": ids, "completion_ids": answers, "logprobs": logprobs if trainer.use_vllm else None}

    def reward(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        state: Sequence[str],
        seat: Sequence[str],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """Returns the reward model's scores, and the penalty for impossible answers; TRL's reward function.

        With the gate, an answer gets only the penalty if the environment would refuse it or its move, or if it was cut
        off. The function logs the scores, and the shares of possible answers, of answers that were cut off, and of
        those that the gate refused for either reason.
        """
        # The gate exists because the reward model was never trained on such answers: its scores of them are arbitrary,
        # and a policy learns to write those that it happens to score highly.
        reward, end = self._settings.reward, self._tokenizer.eos_token_id
        answers = [completion[0]["content"] for completion in completions]
        whole = [bool(len(ids)) and ids[-1] == end for ids in completion_ids]
        fine = [_possible(*row) for row in zip(answers, whole, state, seat, strict=True)]
        scored = [index for index in range(len(answers)) if not reward.gate or (fine[index] and whole[index])]
        opinions = self._scorer.opinions([(prompts[index], answers[index], whole[index]) for index in scored])
        values: list[float | None] = [reward.invalid] * len(answers)
        for index, opinion in zip(scored, opinions, strict=True):
            # ``None`` stays ``None``: TRL leaves the answer out of its group.
            values[index] = opinion if fine[index] or opinion is None else opinion + reward.invalid
            if opinion is not None:
                log_metric("reward_model/score", opinion)
        for index in range(len(answers)):
            log_metric("reward_model/valid", float(fine[index]))
            log_metric("reward_model/unfinished", float(not whole[index]))
            log_metric("reward_model/refused", float(index not in scored))
        return values

    def score(self, episodes: Sequence[TokenSeat]) -> Sequence[float]:
        """Returns the reward model's score of every answer in some episodes."""
        return self._scorer.rate([pair for episode in episodes for pair in self._answers(episode)])

    def _answers(self, episode: TokenSeat) -> Iterator[tuple[Sequence[ChatMessage], str]]:
        prompt = AgentPrompt(self._prompt.format)
        texts = {
            turn.turn: answer_text(self._tokenizer, episode.completion[turn.start : turn.end]) for turn in episode.focal
        }
        for observation, index in observations(episode.record, episode.agent):
            if index in texts:
                yield prompt.messages(observation), texts[index]


def prompt_records(
    settings: GRPOSettings, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase
) -> Iterator[dict[str, Any]]:
    """Yields the data set's rows: prompts of the episodes, with the state that they were cut from.

    Raises:
        InvalidValueError: as :func:`sotopia_training.data.sources.source_rows`.
    """

    def count(messages: Sequence[ChatMessage], completion: str) -> int:
        return len(prompt_ids(tokenizer, messages)) + prompt.max_answer  # the answer is not known yet

    maker = RowMaker(prompt, count)
    for row in source_rows(settings.data, maker, settings.evaluation_tasks):
        assert row.state is not None
        yield {
            "prompt": list(row.prompt),
            "task": row.task,
            "seat": row.seat,
            "partner": row.partner,
            "turn": row.turn,
            "state": row.state.model_dump_json(),
        }
    logger.info("prompts: %s", maker.counts.text())
    if lost := maker.counts.lost(prompt):
        logger.warning("prompts: %s", lost)


def _possible(answer: str, whole: bool, state: str, seat: str) -> bool:
    """Whether the environment would have accepted the answer and its move in the state of its prompt."""
    observation = _observation(state, seat)
    action = observation.parse(answer, "stop" if whole else "length")
    return isinstance(action, Action) and observation.move_problem(action) is None


@lru_cache(maxsize=256)  # all answers of a group have the same state
def _observation(state: str, seat: str) -> Observation:
    return Table.resume(read_record(Episode, state, "state")).observe(seat)


def _features() -> Any:
    from datasets import Features, Value

    text = Value("string")
    names = dict.fromkeys(("task", "seat", "partner", "state"), text)
    return Features({"prompt": [{"role": text, "content": text}], "turn": Value("int32"), **names})
