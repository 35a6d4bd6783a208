"""Dev episodes: whole episodes played with the policy in training, scored independently of its reward model.

The reward of dev episodes is verified; the score of the reward model is learnt. If the latter rises while the former
falls, the policy exploits the reward model. Training then ends (``patience``), and the best model by dev reward is
saved.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_training.grpo.sampling import largest_count, samples_through_trl, through_trl
from sotopia_training.grpo.settings import DevSettings
from sotopia_training.grpo.situations import Situation, situations
from sotopia_training.grpo.token_episodes import Sample, Schemas, TokenPlayer
from sotopia_training.grpo.token_seat import TokenSeat
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.key_values import Prefixes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

logger = logging.getLogger(__name__)
Looks = list[dict[str, float]]
LOOK = "dev_look.json"
"""File beside the best model so far, with the figures of its dev episodes."""
Score = Callable[[Sequence[TokenSeat]], Sequence[float]]
"""A reward model's score of each answer in some episodes."""
Figures = dict[str, float]


def generator_sample(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_answer: int, temperature: float, seed: int
) -> Sample:
    """Returns a function that samples from a model with fixed seeds: the same calls give the same answers."""
    sampling = Sampling(max_answer, temperature, max_batch=128)
    # The stored prefixes live as long as this sampler: the weights do not change during an evaluation.
    generator = BatchedGenerator(model, tokenizer, sampling, prefixes=Prefixes(sampling.max_tokens))
    calls = 0

    def sample(prompts: list[list[int]], schemas: Schemas | None = None) -> tuple[list[list[int]], None]:
        nonlocal calls
        calls += 1
        # Every call and row has a separate seed; rows are fewer than 2**20.
        seeds = [(seed << 32) + (calls << 20) + row for row in range(len(prompts))]
        return [list(answer.ids) for answer in generator.generate(prompts, seeds, schemas)], None

    return sample


def figures(episode: TokenSeat) -> Figures:
    """Returns an episode's reward, scores and facts; without a reward, only that it is unscored."""
    if episode.reward is None:
        return {"unscored": 1.0}
    return {"reward": episode.reward, **episode.scores, **episode.facts}


def means(rows: Sequence[Figures]) -> Figures:
    """Returns the mean of every figure over the episodes with it.

    Raises:
        EvaluationError: no episode could be scored.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if "reward" not in names:
        raise EvaluationError(f"dev: none of {len(rows)} episodes could be scored")
    return {name: fmean(row[name] for row in rows if name in row) for name in names}


class DevEpisodes:
    """Plays dev episodes, saves the best model, and ends training; the figures are on disk for a resumed run.

    Attributes:
        looks: the figures of all evaluations, oldest first, each with its ``step``.
        situations: the situations of the dev episodes.
    """

    def __init__(
        self,
        settings: DevSettings,
        player: TokenPlayer,
        folder: Path,
        sampling: tuple[int, float],
        score: Score | None = None,
        models: ModelPool | None = None,
    ) -> None:
        """Creates the situations and reads the figures of earlier evaluations.

        Args:
            settings: the settings of dev episodes.
            player: plays and evaluates the episodes.
            folder: the directory of the stage.
            sampling: the longest answer in tokens, and the temperature.
            score: returns a reward model's scores of the answers.
            models: creates partners that are models on servers.
        """
        self._settings = settings
        self._player = player
        self.situations: list[Situation] = situations(settings.situations, models=models)
        self._file = folder / "dev.json"
        self._best = folder / "best"
        self._sampling = sampling
        self._score = score
        self.looks: Looks = read_json(self._file, finite=False) if self._file.is_file() else []

    def look(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, step: int) -> Figures:
        """Plays the dev episodes with ``model`` in this process only, and records their figures."""
        sample = generator_sample(model, tokenizer, *self._sampling, seed=self._settings.situations.seed)
        return self._note(self._player.play(self.situations, sample), step)

    def look_together(self, trainer: Any, step: int) -> Figures:
        """Plays the dev episodes, a part in each process of a distributed run, and records the same figures in all."""
        from accelerate.utils import gather_object

        # With equal figures, all processes make the same decisions to stop and to save, even if a partner on a server
        # is not deterministic.
        accelerator = trainer.accelerator
        # Every process plays another part of the episodes.
        part = self.situations[accelerator.process_index :: accelerator.num_processes]
        if samples_through_trl(trainer):
            sample = through_trl(trainer, self._sampling[1])
        else:
            model = accelerator.unwrap_model(trainer.model)
            sample = generator_sample(model, trainer.processing_class, *self._sampling, self._settings.situations.seed)
        episodes = self._player.play(part, sample, lambda count: largest_count(count, trainer))
        return self._note(episodes, step, gather_object)

    def _note(
        self, episodes: Sequence[TokenSeat], step: int, gather: Callable[[list[Any]], list[Any]] = list
    ) -> Figures:
        # The mean over all processes' episodes, not the mean of the processes' means.
        record = {"step": float(step), **means(gather([figures(episode) for episode in episodes]))}
        if self._score is not None:
            scored = [episode for episode in episodes if not episode.failure]
            opinions = gather(list(self._score(scored)))
            if opinions:  # empty if every episode ended before the policy's first turn
                record["reward_model"] = fmean(opinions)
        # A resumed run may repeat steps, whose earlier figures it replaces.
        self.looks = [*(look for look in self.looks if look["step"] < step), record]
        logger.info("dev, step %d: %s", step, ", ".join(f"{k} {v:.3f}" for k, v in record.items() if k != "step"))
        return record

    @property
    def best(self) -> Path | None:
        """Directory of the best model so far; ``None`` before the first evaluation."""
        return self._best if self._best.is_dir() else None

    @property
    def _best_reward(self) -> float:
        """The reward of the best model on disk."""
        # Not from ``looks``: a resumed run may measure other figures if a partner is a model on a server.
        file = self._best / LOOK
        return float(read_json(file, finite=False)["reward"]) if file.is_file() else float("-inf")

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` evaluations did not improve the reward."""
        if self._settings.patience is None or not self.looks:
            return False
        # ``index`` finds the first of equal maxima: an equal reward is not an improvement.
        rewards = [look["reward"] for look in self.looks]
        return len(rewards) - 1 - rewards.index(max(rewards)) >= self._settings.patience

    def callback(self, trainer: Any) -> TrainerCallback:
        """Returns the trainer's callback."""
        from transformers import TrainerCallback

        dev = self

        class Look(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                # The first evaluation, before any step, is the baseline that training must improve on.
                if not dev.looks:
                    dev._look(trainer, state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step % dev._settings.every == 0:
                    # Logging would cancel the report of the step itself, which is due after this.
                    is_due = control.should_log
                    dev._look(trainer, state.global_step)
                    control.should_log = is_due
                    control.should_training_stop = control.should_training_stop or dev.exhausted

        return Look()

    def _look(self, trainer: Any, step: int) -> None:
        record = self.look_together(trainer, step)
        trainer.log({f"dev/{name}": value for name, value in record.items() if name != "step"})
        # ``>=``: of equally good models, the later one has trained longer.
        if record["reward"] >= self._best_reward:
            unfinished = self._best.with_suffix(".unfinished")
            trainer.save_model(str(unfinished))  # in every process: sharded weights are gathered
            if trainer.is_world_process_zero():
                write_text_atomically(unfinished / LOOK, json.dumps(record) + "\n")
                # Written under another name and then renamed, so that a kill never leaves an incomplete best model.
                shutil.rmtree(self._best, ignore_errors=True)
                unfinished.rename(self._best)
            trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            write_text_atomically(self._file, json.dumps(self.looks, indent=2) + "\n")
