"""Forecast and probe of GRPO, in both modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_training.attribution.settings import COUNTERFACTUAL
from sotopia_training.fitting.forecast import TrainingForecast, group_forecast
from sotopia_training.fitting.probe import MeasuredStep, full_rows, measure, probing, row_count
from sotopia_training.grpo.sampling import trainer_sample
from sotopia_training.grpo.settings import GRPOSettings, check, check_rows, trainer_arguments
from sotopia_training.grpo.single_turn import prompt_records
from sotopia_training.grpo.situations import most_turns, situation_count
from sotopia_training.grpo.stage import answer_settings, begin_stage, make_trainer
from sotopia_training.models.loading import find_model
from sotopia_training.models.tokenizers import load_tokenizer, prompt_ids
from sotopia_training.reward.scorer import RewardScorer
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer


def forecast(settings: GRPOSettings, rows: int | None, devices: int) -> TrainingForecast:
    """Returns the forecast; loads at most the tokenizer.

    Args:
        settings: the settings of the stage.
        rows: the number of prompts of the single-turn data; ``None`` counts them.
        devices: the number of devices.

    Raises:
        InvalidValueError: the settings contradict each other, or the data do not exist.
    """
    check(settings)
    prompt = answer_settings(settings) if Path(settings.start_from).exists() else None
    arguments = trainer_arguments(settings, prompt)
    length: float | None = None if prompt is None else prompt.max_length
    answer = None if prompt is None else prompt.max_answer
    if settings.situations is not None:
        rows = situation_count(settings.situations)
        if prompt is not None:
            answer = _sampled(settings, prompt)
    elif rows is None:
        rows, length = _counted(settings, answer_settings(settings))
    check_rows(rows, arguments)
    return group_forecast(arguments, rows, length, answer, devices)


def _counted(settings: GRPOSettings, prompt: PromptSettings) -> tuple[int, float]:
    """Returns the number of prompts, and the mean number of tokens of a prompt and the longest answer."""
    tokenizer = load_tokenizer(find_model(settings.start_from), prompt)
    lengths = [len(prompt_ids(tokenizer, row["prompt"])) for row in prompt_records(settings, prompt, tokenizer)]
    return len(lengths), sum(lengths) / max(1, len(lengths)) + prompt.max_answer


def _sampled(settings: GRPOSettings, prompt: PromptSettings) -> int:
    """Returns the maximum number of tokens that are sampled for an episode."""
    assert settings.situations is not None
    turns = most_turns(settings.situations)
    sampled = min(turns * prompt.max_answer, prompt.max_length)
    # From before turn i, turns i to n are sampled ``samples`` times: n (n + 1) / 2 turns beside the episode's n.
    if settings.reward.turns == COUNTERFACTUAL:
        sampled += sampled * settings.reward.samples * (turns + 1) // 2
    return sampled


def probe(settings: GRPOSettings) -> MeasuredStep:
    """Measures a step in which every answer or episode has the maximum number of tokens.

    Answers are sampled as in the stage and end where the model ends them; the trained rows are then filled up.
    Continuations of ``turns: counterfactual``, masks of ``constrained``, partners and dev episodes are not included.

    Raises:
        InvalidValueError: as :func:`sotopia_training.grpo.stage.run`.
    """
    from datasets import Dataset

    with probing(settings) as shortened:
        frame = begin_stage(shortened)
        scorer = None if settings.reward.model is None else RewardScorer.load(find_model(settings.reward.model))
        count = row_count(frame.arguments)
        prompts = [{"prompt": [{"role": "user", "content": str(number)}]} for number in range(count)]
        rows = full_rows(frame.tokenizer, count, frame.prompt.max_length)
        parts = {"rollout_func": _rollout(settings, frame.prompt, rows), "reward_funcs": [_alternating]}
        step = measure(make_trainer(shortened, frame, Dataset.from_list(prompts), parts), frame.prompt.max_length)
        del scorer  # until here: in the stage, its weights are in memory during training, too
        return step


def _rollout(
    settings: GRPOSettings, prompt: PromptSettings, rows: Sequence[list[int]]
) -> Callable[[Sequence[Any], GRPOTrainer], dict[str, Any]]:
    """Returns TRL's ``rollout_func``, which samples answers inside ``rows``: one at the end, or one in each turn."""
    room = prompt.max_length - prompt.max_answer
    turns = 1
    if settings.situations is not None:
        turns = min(most_turns(settings.situations), max(1, room // prompt.max_answer))

    def rollout(prompts: Sequence[Sequence[Mapping[str, str]]], trainer: GRPOTrainer) -> dict[str, Any]:
        sample, texts = (
            trainer_sample(trainer, reuse=turns > 1),
            [rows[int(prompt[0]["content"])] for prompt in prompts],
        )
        played: list[list[int]] = [[] for _ in texts]
        for turn in range(1, turns + 1):
            news = [row[len(ids) : room * turn // turns] for ids, row in zip(played, texts, strict=True)]
            played = [[*ids, *more] for ids, more in zip(played, news, strict=True)]
            answers, _ = sample(played)
            played = [[*ids, *answer] for ids, answer in zip(played, answers, strict=True)]  # answers may end early
        # The first prompt ends here; everything after it is completion.
        start = room // turns
        completions = [[*ids, *row[len(ids) :]][start:] for ids, row in zip(played, texts, strict=True)]
        logprobs = [[0.0] * len(ids) for ids in completions] if trainer.use_vllm else None
        return {"prompt_ids": [row[:start] for row in texts], "completion_ids": completions, "logprobs": logprobs}

    return rollout


def _alternating(completions: Sequence[Any], **_: Any) -> list[float]:
    """Returns rewards that differ within every group; equal rewards would have no gradients."""
    return [float(number % 2) for number in range(len(completions))]
