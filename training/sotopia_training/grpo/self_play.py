"""Partners that are drawn: each group of episodes is played against a policy or a past self of the ladder of each seat.

Past selves are copies of the policy in training, saved at its start and after every ``every`` steps. Those that the
policy loses to more often are drawn more often (prioritised fictitious self-play). A draw depends only on the seed, the
step, the task and the name of the seats, so that all processes, all episodes of a group and all seats of one episode
agree on it. Every past self that is drawn is a separate model in memory, on the device of the policy.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.naming.seats import role_of
from sotopia_env.policies import Policy
from sotopia_training.grpo.situations import PAST, Ladder, Situation, SituationSettings
from sotopia_training.grpo.token_seat import TokenSeat
from sotopia_training.models.chat_model import Constrained
from sotopia_training.models.loading import write_prompt_settings
from sotopia_training.models.policy import load
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import TrainerCallback

_RESULTS = "results.json"


class SelfPlay:
    """Draws partners, saves past selves to disk, and counts what the policy wins and loses against them."""

    def __init__(
        self, settings: SituationSettings, folder: Path, prompt: PromptSettings, constrained: bool = False
    ) -> None:
        """Reads the results; past selves are loaded when they are first drawn.

        Args:
            settings: the partners, the pool, and the seed of the draws.
            folder: the directory of the pool.
            prompt: the prompt settings of the policy, which its past selves share.
            constrained: whether past selves answer under the schema of the possible actions, as the policy does.
        """
        self._constrained: Constrained = "on" if constrained else "off"
        self._past_selves, self._seed, self._saves = settings.past, settings.seed, settings.has(PAST)
        self._folder, self._prompt = folder, prompt
        self._loaded: dict[str, Policy] = {}
        file = folder / _RESULTS
        self.results: list[dict[str, Any]] = read_json(file) if file.is_file() else []

    @property
    def members(self) -> list[Path]:
        """Directories of the past selves, oldest first."""
        return self._saved_selves()[-self._past_selves.size :]

    def _saved_selves(self) -> list[Path]:
        """Returns all past selves on disk, oldest first: the members, and those that were members at a checkpoint."""
        paths = [path for path in self._folder.glob("step_*") if path.suffix != ".unfinished"]
        return sorted(paths, key=_step)

    def loss_rate(self, member: str) -> float:
        """Returns the policy's rate of losses to a past self; 1/2 before the first episode."""
        # Laplace's rule of succession: no past self gets the rate 0, and with it never a chance to be drawn.
        rows = [row for row in self.results if row["member"] == member]
        return (1 + sum(row["lost"] for row in rows)) / (2 + sum(row["episodes"] for row in rows))

    def with_partners(self, situation: Situation, step: int) -> Situation:
        """Returns the situation with the partners drawn for it at this step.

        Raises:
            InvalidValueError: a past self was drawn, and the pool is empty.
        """
        drawn = {
            agent: self._drawn(policy, step) if isinstance(policy, Ladder) else policy
            for agent, policy in situation.partners.items()
        }
        return replace(situation, partners={a: policy for a, policy in drawn.items() if not isinstance(policy, str)})

    def _drawn(self, ladder: Ladder, step: int) -> Policy | str:
        # Not Python's hash(), which differs between processes.
        rng = random.Random(hashlib.sha256(f"{self._seed}:{step}:{ladder.key}".encode()).digest())
        policies, shares = zip(*ladder.rungs, strict=True)
        (policy,) = rng.choices(policies, shares)
        return self._past(rng) if policy == PAST else policy

    def _past(self, rng: random.Random) -> Policy:
        members = self.members
        if not members:
            raise InvalidValueError(field="past", expected=f"past selves in {self._folder}")
        weights = [self.loss_rate(path.name) ** self._past_selves.priority for path in members]
        (path,) = rng.choices(members, weights)
        # Frees the memory of those that have left the pool.
        for stale in self._loaded.keys() - {member.name for member in members}:
            del self._loaded[stale]
        if path.name not in self._loaded:
            self._loaded[path.name] = load(path, name=path.name, constrained=self._constrained)
        return self._loaded[path.name]

    def note(self, episodes: Iterable[TokenSeat], step: int, gather: Callable[[list[Any]], list[Any]]) -> None:
        """Counts the episodes of all processes against past selves, by the role of the policy."""
        names = {path.name for path in self.members}
        results = [
            (partner, role_of(episode.table.task, episode.agent), margin)
            for episode in episodes
            for partner, margin in _margins(episode).items()
            if partner in names
        ]
        groups: dict[tuple[str, str], list[float]] = {}
        for member, role, margin in sorted(gather(results)):
            groups.setdefault((member, role), []).append(margin)
        for (member, role), margins in groups.items():
            counts = {"episodes": len(margins), "won": sum(m > 0 for m in margins), "lost": sum(m < 0 for m in margins)}
            self.results.append({"step": step, "member": member, "role": role, **counts})

    def keep(self, trainer: Any, step: int) -> None:
        """Saves the policy as a past self, and removes those that are no longer needed; called by every process."""
        path = self._folder / f"step_{step}"
        unfinished = path.with_suffix(".unfinished")
        # In every process, because sharded weights are gathered.
        trainer.save_model(str(unfinished))
        if trainer.is_world_process_zero():
            shutil.rmtree(unfinished / "ref", ignore_errors=True)  # the KL reference, which TRL saves as well
            write_prompt_settings(unfinished, self._prompt)
            shutil.rmtree(path, ignore_errors=True)
            unfinished.rename(path)
            for old in set(self._saved_selves()) - self._needed(trainer.args.output_dir):
                shutil.rmtree(old)
            self.save_results()
        trainer.accelerator.wait_for_everyone()

    def _needed(self, checkpoints: str) -> set[Path]:
        """Returns the members, and those at the time of every checkpoint, from which training may resume."""
        # A resumed run must draw from the pool as it was at its checkpoint.
        selves, size = self._saved_selves(), self._past_selves.size
        moments = [int(path.name.rpartition("-")[2]) for path in Path(checkpoints).glob("checkpoint-*")]
        pools = [[path for path in selves if _step(path) <= moment][-size:] for moment in moments]
        return {path for pool in [*pools, selves[-size:]] for path in pool}

    def save_results(self) -> None:
        """Writes the results that determine the draws of past selves."""
        write_text_atomically(self._folder / _RESULTS, json.dumps(self.results) + "\n")

    def rewind(self, trainer: Any, step: int) -> None:
        """Removes results and past selves that are later than the resumed step; saves the policy if none is left."""
        # A resumed run plays its later steps again and would count them twice.
        self.results = [row for row in self.results if row["step"] < step]
        if trainer.is_world_process_zero():
            for path in self._saved_selves():
                if _step(path) > step:
                    shutil.rmtree(path)
        trainer.accelerator.wait_for_everyone()
        if self._saves and (step == 0 or not self.members):
            self.keep(trainer, step)

    def callback(self, trainer: Any) -> TrainerCallback:
        """Returns the trainer's callback."""
        from transformers import TrainerCallback

        pool = self

        class Pool(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                pool.rewind(trainer, state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if pool._saves and state.global_step % pool._past_selves.every == 0:
                    pool.keep(trainer, state.global_step)

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if pool._saves and state.is_world_process_zero:
                    pool.save_results()

        return Pool()


def _margins(episode: TokenSeat) -> dict[str, float]:
    """Returns by how much the seat got more than the seats of each of its partners, by the partner's name."""
    rewards = {agent: float(payment.reward) for agent, payment in episode.seat.seats.payments.items()}
    if episode.failure:
        return {}
    others: dict[str, list[float]] = {}
    for agent, policy in episode.partners.items():
        others.setdefault(policy.name, []).append(rewards[agent])
    return {name: rewards[episode.agent] - fmean(values) for name, values in others.items()}


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_"))
