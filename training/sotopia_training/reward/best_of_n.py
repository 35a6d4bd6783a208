"""A trained reward model as the scorer of best-of-N, named by its directory.

As in SOTOPIA-RL (arXiv 2508.03905, table 9)::

    sotopia rollout --policy "best-of-8(runs/bc by runs/rm)" --policy conceder --tasks bargaining --out runs/best

The candidates of all episodes in flight are sampled in one batch (:mod:`sotopia_training.models.policy`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError
from sotopia_env.policies import Decision
from sotopia_env.world import Observation
from sotopia_training.models.loading import adapter_base, find_model
from sotopia_training.models.trained_model import identity
from sotopia_training.reward.scorer import NOTE, RewardScorer, read_note


@dataclass(frozen=True, slots=True, eq=False)
class TrainedScorer:
    """Scores decisions with a reward model, which is loaded with the first decision; created by :func:`load`.

    Attributes:
        path: the model's directory.
        name: the scorer's name in records.
        batch_size: the number of answers scored at once.
    """

    path: Path
    name: str
    batch_size: int = 64
    _loaded: list[RewardScorer] = field(default_factory=list, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _identity: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        base = adapter_base(self.path)
        # A local base is identified by its weights: another machine may have it at another path.
        base_identity = identity(base) if base is not None and Path(base).is_dir() else base
        note = read_note(self.path)
        settings = {"prompt": note.prompt.model_dump(mode="json"), "quantization": note.model.quantization}
        record = {"weights": identity(self.path), "base": base_identity, "dtype": note.model.dtype, **settings}
        object.__setattr__(self, "_identity", record)  # the dataclass is frozen

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's identity, without paths."""
        return {"model": dict(self._identity)}

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns the score of each decision.

        Raises:
            PolicyError: a decision is too long even without the oldest turns.
            ModelRefusedError: the model cannot be loaded.
        """
        scorer = self._loaded[0] if self._loaded else await asyncio.to_thread(self._load)
        return await scorer.score(observation, decisions)

    def _load(self) -> RewardScorer:
        with self._lock:
            if not self._loaded:
                try:
                    scorer = RewardScorer.load(self.path, batch_size=self.batch_size)
                except InvalidValueError as error:  # ends the run: every later turn would fail, too
                    raise ModelRefusedError(str(error), kind="bad_request") from error
                self._loaded.append(scorer)
            return self._loaded[0]


def load(path: str | Path, *, batch_size: int = 64, name: str = "") -> TrainedScorer:
    """Returns the scorer of a reward model's directory; its weights are loaded with the first decision.

    Args:
        path: the output of the reward model's stage, or the directory of the model.
        batch_size: the number of answers scored at once.
        name: the scorer's name in records; by default the name of the directory.

    Raises:
        InvalidValueError: the directory does not contain a reward model.
    """
    if not holds_reward_model(path):
        raise InvalidValueError(expected=f"a reward model of train_rm ({NOTE})", where=path)
    directory = find_model(path)
    parts = [part for part in directory.resolve().parts if part != "model"]
    return TrainedScorer(directory, name or parts[-1], batch_size)


def holds_reward_model(path: str | Path) -> bool:
    """Whether a directory, or ``model/`` in it, contains a reward model; does not read weights."""
    try:
        return (find_model(path) / NOTE).is_file()
    except InvalidValueError:
        return False


load.opens = holds_reward_model  # type: ignore[attr-defined]  # part of the interface of entry points in `sotopia.scorers`
