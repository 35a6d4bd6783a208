"""Whole episodes played with the policy in training: what it is really worth, whatever its reward model says.

The dev episodes' reward is verified, the reward model's is learnt. When the second goes on rising and the first falls,
the reward model is being hacked: training then ends (``patience``), and the best model by the first is the one kept.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sotopia_env.reward import Scalarisation
from sotopia_env.taskset import write_text_atomically
from training.generation import BatchedGenerator, Sampling
from training.grpo_settings import DevSettings, RewardSettings
from training.situations import Situation, situations
from training.token_episodes import Sample, TokenEpisode, TokenPlayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

logger = logging.getLogger(__name__)
Looks = list[dict[str, float]]
Score = Callable[[Sequence[TokenEpisode]], float]
"""What a reward model makes of the answers in some episodes, on average."""


def generator_sample(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_answer: int, temperature: float, seed: int
) -> Sample:
    """Returns sampling from a model, with seeds of its own: the same calls, the same answers."""
    generator = BatchedGenerator(model, tokenizer, Sampling(max_answer, temperature, max_batch=128))
    calls = 0

    def sample(prompts: list[list[int]]) -> list[list[int]]:
        nonlocal calls
        calls += 1
        seeds = [(seed << 32) + (calls << 20) + row for row in range(len(prompts))]
        return [list(answer.ids) for answer in generator.generate(prompts, seeds)]

    return sample


def summarise(episodes: Sequence[TokenEpisode], reward: Scalarisation) -> dict[str, float]:
    """Returns means over episodes: reward, GOAL, valid answers, and where they are verified agreement and share."""
    found = {
        "reward": fmean(reward(episode.vector) for episode in episodes),
        "goal": fmean(float(episode.vector[-1]) for episode in episodes),
        "valid": fmean(episode.valid for episode in episodes),
    }
    outcomes = [(e.evaluation.outcome, e) for e in episodes if e.evaluation is not None and e.evaluation.outcome]
    if outcomes:
        found["agreement"] = fmean(float(outcome.agreement) for outcome, _ in outcomes if outcome)
        shares = [outcome.shares[e.situation.task.seat_of[e.situation.seat]] for outcome, e in outcomes if outcome]
        found["share"] = fmean(shares)
    return found


class DevEpisodes:
    """Plays, keeps the best model, and says when to stop; its looks are on disk, so a resumed run knows them.

    Attributes:
        looks: what was found, oldest first, each with its ``step``.
    """

    def __init__(
        self,
        settings: DevSettings,
        player: TokenPlayer,
        reward: RewardSettings,
        folder: Path,
        sampling: tuple[int, float],
        score: Score | None = None,
    ) -> None:
        """Prepares; ``sampling`` is the longest answer in tokens and the temperature."""
        self._settings = settings
        self._player = player
        self._reward = Scalarisation.of(reward.scalarisation)
        self._situations: list[Situation] = situations(settings.situations)
        self._file = folder / "dev.json"
        self._best = folder / "best"
        self._sampling = sampling
        self._score = score
        self.looks: Looks = json.loads(self._file.read_text()) if self._file.is_file() else []

    def look(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, step: int) -> dict[str, float]:
        """Plays the dev episodes with ``model`` and notes what came out."""
        sample = generator_sample(model, tokenizer, *self._sampling, seed=self._settings.situations.seed)
        episodes = self._player.play(self._situations, sample)
        found = {"step": float(step), **summarise(episodes, self._reward)}
        if self._score is not None:
            found["reward_model"] = self._score(episodes)
        self.looks = [*(look for look in self.looks if look["step"] < step), found]
        logger.info("dev, step %d: %s", step, ", ".join(f"{k} {v:.3f}" for k, v in found.items() if k != "step"))
        return found

    @property
    def best(self) -> Path | None:
        """Where the best model so far lies; ``None`` before the first look."""
        return self._best if self._best.is_dir() else None

    @property
    def exhausted(self) -> bool:
        """Whether the best look is ``patience`` looks ago."""
        if self._settings.patience is None or not self.looks:
            return False
        rewards = [look["reward"] for look in self.looks]
        return len(rewards) - 1 - rewards.index(max(rewards)) >= self._settings.patience

    def callback(self, trainer: Any) -> TrainerCallback:
        """Returns the trainer's callback."""
        from transformers import TrainerCallback

        dev = self

        class Look(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if not dev.looks:
                    dev._look(trainer, state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step % dev._settings.every == 0:
                    dev._look(trainer, state.global_step)
                    control.should_training_stop = control.should_training_stop or dev.exhausted

        return Look()

    def _look(self, trainer: Any, step: int) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        found = self.look(model, trainer.processing_class, step)
        trainer.log({f"dev/{name}": value for name, value in found.items() if name != "step"})
        better = found["reward"] >= max(look["reward"] for look in self.looks)
        if better:
            unfinished = self._best.with_suffix(".unfinished")
            trainer.save_model(str(unfinished))
            if trainer.is_world_process_zero():
                shutil.rmtree(self._best, ignore_errors=True)
                unfinished.rename(self._best)
        if trainer.is_world_process_zero():
            write_text_atomically(self._file, json.dumps(self.looks, indent=2) + "\n")
