"""Group-relative policy optimisation through TRL: single-turn with a reward model, multi-turn in the environment.

Single-turn is SOTOPIA-RL's (arXiv 2508.03905, §4.2): answers to prompts cut from episodes, worth what the reward model
says. Multi-turn plays whole episodes against scripted, frozen or past partners; see :mod:`training.multi_turn`. Both
begin from an earlier stage's model, which by default is also what KL is measured against.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env import tasks
from sotopia_env.action import Action, parse
from sotopia_env.chat_model.ledger import Totals
from sotopia_env.errors import InvalidValueError
from sotopia_env.evaluators import make as make_evaluator
from sotopia_env.observation import ChatMessage
from sotopia_env.run_models import RunModels
from training.casting import task_key
from training.dev_episodes import DevEpisodes, Score
from training.fitting import (
    begin_from,
    check_trained_model,
    finish_stage,
    fit_model,
    load_for_training,
    open_stage,
    quiet,
    training_arguments,
)
from training.grpo_settings import GRPOSettings, check, world_size
from training.memory import check_memory
from training.model_access import ModelAccess
from training.models import check_quantization, find_model, load_tokenizer, prompt_ids, read_prompt_settings
from training.multi_turn import EpisodeRollout, episode_reward, prompt_rows, trainer_class
from training.reward_scorer import read_note
from training.samples import RowMaker, stream_dataset
from training.settings import ModelSettings, PromptSettings
from training.situations import Situation, situations
from training.sources import source_rows
from training.stage import StageDirectory
from training.token_episodes import TokenEpisode, TokenPlayer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from training.reward_scorer import RewardScorer

logger = logging.getLogger(__name__)


def run(settings: GRPOSettings) -> None:
    """Trains, or continues, or does nothing if it is done; the model ends up in ``output/model``.

    Raises:
        InvalidValueError: something cannot be as it was asked for; before any model is loaded.
    """
    train(settings)


def train(settings: GRPOSettings) -> dict[str, Any]:
    """As :func:`run`, and returns the figures that are kept in ``done.json``."""
    check(settings)
    prompt = answer_settings(settings)
    model_settings = begin_from(settings.model, settings.start_from, prompt)
    stage = StageDirectory(Path(settings.output), f"grpo_{settings.mode.replace('-', '_')}", settings)
    done = open_stage(stage, model_settings)
    if done is not None:
        return done
    quiet()
    tokenizer = load_tokenizer(model_settings.base, prompt.format)
    logger.info("memory: an estimated %s", check_memory(model_settings.base, settings, prompt).text())

    with _models(settings, stage) as models:
        return _train(settings, model_settings, prompt, tokenizer, stage, models)


def _train(
    settings: GRPOSettings,
    model_settings: ModelSettings,
    prompt: PromptSettings,
    tokenizer: PreTrainedTokenizerBase,
    stage: StageDirectory,
    models: _Models,
) -> dict[str, Any]:
    def player() -> TokenPlayer:  # of whole episodes, which prompts of the `single` format cannot be played with
        evaluator = make_evaluator(settings.reward.evaluator, model_factory=models.maker.judge)
        return TokenPlayer(tokenizer, prompt, evaluator)

    # What is wrong with the data or with a server is said here, before anything heavy is loaded.
    work: _MultiTurn | _SingleTurn
    if settings.mode == "multi-turn":
        work = _MultiTurn(settings, player(), models.maker)
    else:
        work = _SingleTurn(settings, prompt, tokenizer)
    dev = _dev(settings, player, prompt, stage, work.score, models.maker)
    arguments = _arguments(settings, stage, prompt)
    with arguments.main_process_first(desc="rows"):
        rows = work.rows(stage.path / "rows")
    models.check()
    parts = work.parts()

    model, adapter = load_for_training(model_settings, settings.fit.gradient_checkpointing)
    trainer = trainer_class()(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=adapter,
        **parts,
    )
    check_trained_model(model, model_settings)
    set_reference(trainer, settings)
    if dev is not None:
        trainer.add_callback(dev.callback(trainer))
    figures = dict(fit_model(trainer, stage, settings.fit))
    if dev is not None:
        figures["dev"] = dev.looks
        if settings.keep == "best" and trainer.is_world_process_zero():
            _keep_best(dev, stage)
    if trainer.is_world_process_zero():
        _drop_reference(stage.model)
    finish_stage(trainer, stage, prompt, figures)
    return figures


def answer_settings(settings: GRPOSettings) -> PromptSettings:
    """Returns the earlier stage's prompt settings, with the answer's length that was asked for."""
    prompt = read_prompt_settings(find_model(settings.start_from))
    if settings.max_answer is None:
        return prompt
    if settings.max_answer >= prompt.max_length:
        raise InvalidValueError(
            f"max_answer: expected fewer tokens than max_length {prompt.max_length}, got {settings.max_answer}"
        )
    return prompt.model_copy(update={"max_answer": settings.max_answer})


def _arguments(settings: GRPOSettings, stage: StageDirectory, prompt: PromptSettings) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is pinned to the version it was written for
    from trl.trainer.grpo_config import GRPOConfig

    vllm: dict[str, Any] = {} if settings.vllm == "none" else {"use_vllm": True, "vllm_mode": settings.vllm}
    if vllm and settings.mode == "multi-turn":
        # Whole episodes carry no log-probabilities of the server's, so its correction has nothing to work with.
        vllm["vllm_importance_sampling_correction"] = False
    return training_arguments(
        settings.fit,
        stage,
        False,
        GRPOConfig,
        num_generations=settings.num_generations,
        steps_per_generation=settings.steps_per_generation,
        max_completion_length=prompt.max_answer,
        temperature=settings.temperature,
        beta=settings.beta,
        scale_rewards=settings.scale_rewards,
        loss_type=settings.loss,
        log_completions=False,
        **vllm,
    )


def set_reference(trainer: Any, settings: GRPOSettings) -> None:
    """Makes the KL reference what the settings say, where TRL would take another one.

    TRL measures against what training starts from: a frozen copy of the adapter, or of all weights. With
    ``reference: base`` the copy of the adapter is emptied, which leaves the bare base.

    Raises:
        InvalidValueError: the bare base is asked for where all weights are trained, or TRL made no reference.
    """
    if settings.beta == 0:
        return
    configs = getattr(trainer.model, "peft_config", None)
    if settings.reference == "start":
        if (
            configs is not None
            and "ref" not in configs
            and settings.lora is not None
            and _begins_with_adapter(settings)
        ):
            raise InvalidValueError("reference: TRL keeps no copy of the adapter to measure KL against")
        return
    if configs is None or "ref" not in configs:
        raise InvalidValueError("reference: 'base' needs an adapter to begin from; here start and base are one model")
    for name, parameter in trainer.model.named_parameters():
        if ".ref." in name and "lora_B" in name:
            parameter.data.zero_()


def _begins_with_adapter(settings: GRPOSettings) -> bool:
    return (find_model(settings.start_from) / "adapter_config.json").is_file()


def _drop_reference(model: Path) -> None:
    """Removes the frozen copy of the adapter that TRL saves beside the trained one."""
    shutil.rmtree(model / "ref", ignore_errors=True)


def _keep_best(dev: DevEpisodes, stage: StageDirectory) -> None:
    if dev.best is None:
        raise InvalidValueError("keep: no dev episodes were played, so there is no best model")
    shutil.rmtree(stage.model)
    shutil.copytree(dev.best, stage.model)


def _dev(
    settings: GRPOSettings,
    player: Callable[[], TokenPlayer],
    prompt: PromptSettings,
    stage: StageDirectory,
    score: Score | None,
    models: RunModels,
) -> DevEpisodes | None:
    if settings.dev is None:
        return None
    sampling = (prompt.max_answer, settings.dev.temperature or settings.temperature)
    return DevEpisodes(settings.dev, player(), settings.reward, stage.path, sampling, score, models)


class _Models:
    """Models on servers, in the seats of partners and judges.

    Attributes:
        maker: makes them; the processes of a distributed run share the limits.
    """

    def __init__(self, access: ModelAccess, folder: Path) -> None:
        self.maker = RunModels(access.models().options.share(world_size(), Totals()))
        self._folder = folder if world_size() == 1 else folder / f"process_{os.environ['RANK']}"

    def check(self) -> None:
        """Finds out whether every model is there, and begins the ledger."""
        if self.maker.names:
            asyncio.run(self.maker.check())
            self._folder.mkdir(parents=True, exist_ok=True)
            self.maker.open(self._folder)


@contextmanager
def _models(settings: GRPOSettings, stage: StageDirectory) -> Iterator[_Models]:
    models = _Models(settings.access, stage.path)
    try:
        yield models
    finally:
        asyncio.run(models.maker.close())


# --- what differs between the modes --------------------------------------------------------------------------------


class _MultiTurn:
    """Whole episodes in the environment."""

    score: Score | None = None

    def __init__(self, settings: GRPOSettings, player: TokenPlayer, models: RunModels) -> None:
        assert settings.situations is not None
        self._situations = situations(settings.situations, models=models)
        refuse_evaluation_situations(self._situations, settings.evaluation_tasks)
        self._rollout = EpisodeRollout(player, self._situations, settings.reward)

    def rows(self, folder: Path) -> Dataset:
        from datasets import Dataset

        return Dataset.from_list(prompt_rows(self._situations))

    def parts(self) -> dict[str, Any]:
        return {"rollout_func": self._rollout, "reward_funcs": [episode_reward]}


def refuse_evaluation_situations(found: Sequence[Situation], evaluation_tasks: str | None) -> None:
    """Raises :class:`InvalidValueError` if a situation's scenario is one of the file's, which are for evaluation."""
    if evaluation_tasks is None:
        return
    kept = {task_key(task) for task in tasks.load(evaluation_tasks)}
    for situation in found:
        if task_key(situation.task) in kept:
            raise InvalidValueError(f"situations: the scenario of task {situation.task.id!r} is kept for evaluation")


class _SingleTurn:
    """Answers to prompts from episodes, worth what the reward model says."""

    def __init__(self, settings: GRPOSettings, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase) -> None:
        self._settings = settings
        self._prompt = prompt
        self._tokenizer = tokenizer
        assert settings.reward.model is not None
        self._scored_by = find_model(settings.reward.model)
        check_quantization(read_note(self._scored_by).model)

    @cached_property
    def _scorer(self) -> RewardScorer:
        from training.reward_scorer import RewardScorer

        gate = self._settings.reward.invalid if self._settings.reward.gate else None
        return RewardScorer.load(self._scored_by, penalty=gate)

    def rows(self, folder: Path) -> Dataset:
        """The prompts in ``folder``, where the first process writes them, one by one, and the others find them."""
        from datasets import load_from_disk

        if not folder.is_dir():
            building, whole = folder.with_name(f"{folder.name}.building"), folder.with_name(f"{folder.name}.whole")
            for left in (building, whole):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            stream_dataset(self._rows(), _features(), building).save_to_disk(str(whole))
            shutil.rmtree(building)
            whole.rename(folder)
        return load_from_disk(str(folder))

    def _rows(self) -> Iterator[dict[str, Any]]:
        reserve = self._prompt.max_answer

        def count(messages: Sequence[ChatMessage], completion: str) -> int:
            return len(prompt_ids(self._tokenizer, messages)) + reserve  # the answer is not known yet

        maker = RowMaker(self._prompt, count)
        for row in source_rows(self._settings.data, maker, self._settings.evaluation_tasks):
            yield {
                "prompt": list(row.prompt),
                "task": row.task,
                "seat": row.seat,
                "partner": row.partner,
                "turn": row.turn,
            }
        logger.info("prompts: %s", maker.counts.text())

    def parts(self) -> dict[str, Any]:
        logger.info("answers are scored by %s", self._scorer.source)
        return {"reward_funcs": [self.reward]}

    def reward(
        self, prompts: Any, completions: Any, completion_ids: Any, log_metric: Any, **_: Any
    ) -> list[float | None]:
        """TRL's reward function: the reward model's opinion, and the penalty for impossible answers.

        Logged are the opinion of the answers it was asked about, and the shares of possible answers, of answers that
        were cut off, and of those that the gate refused for either reason.
        """
        reward = self._settings.reward
        values = self._scorer(prompts, completions, completion_ids)
        possible = [isinstance(parse(completion[0]["content"]), Action) for completion in completions]
        end = self._scorer.tokenizer.eos_token_id
        for value, fine, ids in zip(values, possible, completion_ids, strict=True):
            finished = bool(len(ids)) and ids[-1] == end
            refused = reward.gate and not (fine and finished)  # its value is the penalty, no opinion of the model's
            log_metric("reward_model/valid", float(fine))
            log_metric("reward_model/unfinished", float(not finished))
            log_metric("reward_model/refused", float(refused))
            if value is not None and not refused:
                log_metric("reward_model/score", value)
        if reward.gate:
            return values
        return [
            value if fine or value is None else value + reward.invalid
            for value, fine in zip(values, possible, strict=True)
        ]

    def score(self, episodes: Sequence[TokenEpisode]) -> Sequence[float]:
        """The reward model's opinion on every answer in some episodes."""
        return self._scorer.rate([pair for episode in episodes for pair in self._answers(episode)])

    def _answers(self, episode: TokenEpisode) -> Iterator[tuple[Sequence[ChatMessage], str]]:
        from sotopia_env.policies.agent_prompt import AgentPrompt
        from training.samples import observations

        prompt = AgentPrompt(self._prompt.format)
        texts = {
            turn.turn: str(self._tokenizer.decode(episode.completion[turn.start : turn.end], skip_special_tokens=True))
            for turn in episode.focal
        }
        for observation, index in observations(episode.record, episode.situation.seat):
            if index in texts:
                yield prompt.messages(observation), texts[index]


def _features() -> Any:
    from datasets import Features, Value

    text = Value("string")
    message = {"role": text, "content": text}
    return Features({"prompt": [message], "task": text, "seat": text, "partner": text, "turn": Value("int32")})


__all__ = ["GRPOSettings", "run", "set_reference", "train"]
