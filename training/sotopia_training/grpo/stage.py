"""Group-relative policy optimisation through TRL: single-turn with a reward model, multi-turn in the environment.

Single-turn is the method of SOTOPIA-RL (arXiv 2508.03905, §4.2): the reward model rewards answers to prompts cut from
episodes. Multi-turn plays whole episodes against scripted, frozen or past partners
(:mod:`sotopia_training.grpo.multi_turn`). Both start from an earlier stage's model, which by default is also the
reference of the KL penalty.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import Totals
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import make_evaluator
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.world import Scalarisation
from sotopia_training.data.held_out import check_not_reserved, evaluation_scenarios
from sotopia_training.fitting.loop import TrainingRun, begin, begin_from, completed, load_for_training
from sotopia_training.grpo.dev_episodes import LOOK, DevEpisodes, Score
from sotopia_training.grpo.masked_head import MaskedHead
from sotopia_training.grpo.multi_turn import EpisodeRollout, episode_reward, prompt_rows, trainer_class
from sotopia_training.grpo.sampling import check_sampling
from sotopia_training.grpo.self_play import SelfPlay
from sotopia_training.grpo.settings import GRPOSettings, check, check_rows, trainer_arguments, world_size
from sotopia_training.grpo.single_turn import SingleTurn
from sotopia_training.grpo.situations import Ladder, Situation, situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.loading import find_model, read_prompt_settings
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

logger = logging.getLogger(__name__)


def run(settings: GRPOSettings) -> dict[str, Any]:
    """Trains, or continues training, and writes the model to ``output/model``; does nothing if the stage is complete.

    Returns:
        The figures, as in ``done.json``.

    Raises:
        InvalidValueError: the settings are invalid; raised before a model is loaded.
    """
    complete = completed(_directory(settings))
    if complete is not None:
        return complete
    frame = begin_stage(settings)
    with _models(settings, frame.stage) as models:
        return _train(settings, frame, models)


def _directory(settings: GRPOSettings) -> StageDirectory:
    return StageDirectory(Path(settings.output), f"grpo_{settings.mode.replace('-', '_')}", settings)


def begin_stage(settings: GRPOSettings) -> TrainingRun:
    """Checks the settings and opens the stage's directory; loads only the tokenizer.

    Raises:
        InvalidValueError: the settings are invalid.
    """
    check(settings)
    prompt = answer_settings(settings)
    model_settings = begin_from(settings.model, settings.start_from, prompt)

    def arguments() -> Any:
        values = trainer_arguments(settings, prompt)
        check_sampling(settings, values, prompt)
        return values

    scorer = None if settings.reward.model is None else find_model(settings.reward.model)
    frame = begin(_directory(settings), settings, model_settings, prompt, arguments, scorer)
    if frame.arguments.beta > 0 and settings.reference == "base" and model_settings.adapter is None:
        raise InvalidValueError(
            "'base' needs an adapter to start from", field="reference", hint="start and base are the same model here"
        )
    return frame


def make_trainer(settings: GRPOSettings, frame: TrainingRun, rows: Dataset, parts: Mapping[str, Any]) -> GRPOTrainer:
    """Loads the model and returns its trainer; ``parts`` are TRL's ``rollout_func`` and ``reward_funcs``."""
    model, adapter = load_for_training(frame.model, frame.arguments.gradient_checkpointing)
    trainer = trainer_class()(
        model=model,
        args=frame.arguments,
        train_dataset=rows,
        processing_class=frame.tokenizer,
        peft_config=adapter,
        **parts,
    )
    set_reference(trainer, settings)
    return trainer


def _train(settings: GRPOSettings, frame: TrainingRun, models: _Models) -> dict[str, Any]:
    prompt, tokenizer, stage = frame.prompt, frame.tokenizer, frame.stage

    # Created only for whole episodes, because it refuses prompts of the `single` format.
    def player() -> TokenPlayer:
        evaluator = make_evaluator(settings.reward.evaluator, model_factory=models.maker.judge)
        reward = Scalarisation.of(settings.reward.scalarisation)
        return TokenPlayer(tokenizer, prompt, evaluator, reward, settings.constrained)

    # Errors in the data or of a server are raised here, before a model is loaded.
    mode: _MultiTurn | SingleTurn
    if settings.mode == "multi-turn":
        mode = _MultiTurn(settings, player(), models.maker, frame)
    else:
        mode = SingleTurn(settings, prompt, tokenizer)
    dev = _dev(settings, player, frame, mode.score, models.maker)
    rows = frame.rows(lambda: mode.rows(stage.path / "rows"))
    check_rows(len(rows), frame.arguments)
    # After the rows, so that mistakes in the data are found before a server is contacted.
    models.check()
    trainer = make_trainer(settings, frame, rows, mode.parts())
    if mode.head is not None:
        mode.head.install(trainer)
    for part in (dev, mode.self_play):
        if part is not None:
            trainer.add_callback(part.callback(trainer))
    figures = frame.fit_to_end(trainer, {})
    if dev is not None:
        figures["dev"] = dev.looks
        if settings.keep == "best" and trainer.is_world_process_zero():
            _keep_best(dev, stage)
    if trainer.is_world_process_zero():
        _drop_reference(stage.model)
    return frame.finish(trainer, figures)


def answer_settings(settings: GRPOSettings) -> PromptSettings:
    """Returns the earlier stage's prompt settings, with ``max_answer`` of these settings."""
    prompt = read_prompt_settings(find_model(settings.start_from))
    if settings.max_answer is None:
        return prompt
    if settings.max_answer >= prompt.max_length:
        raise InvalidValueError(
            field="max_answer", expected=f"fewer tokens than max_length {prompt.max_length}", got=settings.max_answer
        )
    return prompt.model_copy(update={"max_answer": settings.max_answer})


def set_reference(trainer: Any, settings: GRPOSettings) -> None:
    """Sets the KL reference of the settings if TRL would use another one.

    TRL's reference is the start of training: a frozen copy of the adapter, or of all weights. With
    ``reference: base`` the adapter's copy is set to zero, which leaves only the base.

    Raises:
        InvalidValueError: ``base`` is set although all weights are trained, or TRL has no copy of the adapter.
    """
    if trainer.args.beta == 0:
        return
    configs = getattr(trainer.model, "peft_config", None)
    if settings.reference == "start":
        if (
            configs is not None
            and "ref" not in configs
            and settings.lora is not None
            and _begins_with_adapter(settings)
        ):
            raise InvalidValueError("TRL keeps no copy of the adapter to measure KL against", field="reference")
        return
    if configs is None or "ref" not in configs:
        raise InvalidValueError("TRL keeps no copy of the adapter that could be emptied", field="reference")
    # The update is the product of A and B, so it is enough to empty B.
    for name, parameter in trainer.model.named_parameters():
        if ".ref." in name and "lora_B" in name:
            parameter.data.zero_()


def _begins_with_adapter(settings: GRPOSettings) -> bool:
    return (find_model(settings.start_from) / "adapter_config.json").is_file()


def _drop_reference(model: Path) -> None:
    """Removes the frozen copy of the adapter, which TRL saves beside the trained one."""
    shutil.rmtree(model / "ref", ignore_errors=True)


def _keep_best(dev: DevEpisodes, stage: StageDirectory) -> None:
    if dev.best is None:
        raise InvalidValueError("'best' needs dev episodes, and none were played", field="keep")
    # Copied, not moved: a run that is killed here must find it again.
    shutil.rmtree(stage.model)
    shutil.copytree(dev.best, stage.model, ignore=shutil.ignore_patterns(LOOK))


def _dev(
    settings: GRPOSettings,
    player: Callable[[], TokenPlayer],
    frame: TrainingRun,
    score: Score | None,
    models: ModelPool,
) -> DevEpisodes | None:
    if settings.dev is None:
        return None
    sampling = (frame.prompt.max_answer, settings.dev.temperature or frame.arguments.temperature)
    dev = DevEpisodes(settings.dev, player(), frame.stage.path, sampling, score, models)
    refuse_evaluation_situations(dev.situations, settings.evaluation_tasks, "dev.situations")
    return dev


class _Models:
    """Partners and judges on servers.

    Attributes:
        maker: creates the models; the processes of a distributed run share the limits.
    """

    def __init__(self, access: ModelOptions, folder: Path) -> None:
        self.maker = ModelPool(access.share(world_size(), Totals()))
        # Each process writes a ledger of its own.
        self._folder = folder if world_size() == 1 else folder / f"process_{os.environ['RANK']}"

    def check(self) -> None:
        """Checks that every model is reachable, and starts the ledger."""
        if self.maker.names:
            asyncio.run(self.maker.check())
            self._folder.mkdir(parents=True, exist_ok=True)
            self.maker.open(self._folder)


@contextmanager
def _models(settings: GRPOSettings, stage: StageDirectory) -> Iterator[_Models]:
    models = _Models(settings.models, stage.path)
    try:
        yield models
    finally:
        asyncio.run(models.maker.close())


# --- what differs between the modes --------------------------------------------------------------------------------


class _MultiTurn:
    """Whole episodes in the environment."""

    score: Score | None = None

    def __init__(self, settings: GRPOSettings, player: TokenPlayer, models: ModelPool, frame: TrainingRun) -> None:
        assert settings.situations is not None
        pool, constrained = frame.stage.path / "pool", settings.constrained
        self._situations = situations(settings.situations, models=models)
        is_drawn = any(isinstance(p, Ladder) for item in self._situations for p in item.partners.values())
        self.self_play = SelfPlay(settings.situations, pool, frame.prompt, constrained) if is_drawn else None
        self.head = MaskedHead(frame.tokenizer) if constrained else None
        refuse_evaluation_situations(self._situations, settings.evaluation_tasks)
        self._rollout = EpisodeRollout(player, self._situations, settings.reward, self.self_play, self.head)

    def rows(self, folder: Path) -> Dataset:
        from datasets import Dataset

        return Dataset.from_list(prompt_rows(self._situations))

    def parts(self) -> dict[str, Any]:
        return {"rollout_func": self._rollout, "reward_funcs": [episode_reward]}


def refuse_evaluation_situations(
    situation_list: Sequence[Situation], evaluation_tasks: str | None, setting: str = "situations"
) -> None:
    """Raises :class:`InvalidValueError` if a situation's scenario is reserved for evaluation."""
    reserved = evaluation_scenarios(evaluation_tasks)
    for situation in situation_list:
        check_not_reserved(task_key(situation.task), reserved, got=situation.task.id, field=setting)
