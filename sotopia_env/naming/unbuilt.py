"""Stand-ins for the objects of other packages, for processes that check names and forecast costs but play nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.foundation.errors import EvaluationError, SotopiaError
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """In place of a model, policy, scorer or evaluator that was named and not built.

    A forecast (:mod:`sotopia_env.runs.forecast`) asks it as it would ask the object; nothing else may.

    Attributes:
        name: the name, without its options.
        parameters: the options in the name.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns no action: code that is not a language model asks no model."""
        return Decision(NO_ACTION)

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns equal scores."""
        return [0.0] * len(decisions)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Raises :class:`SotopiaError`; in a forecast, a stand-in of the model answers."""
        self._refuse(SotopiaError)

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Raises :class:`EvaluationError`."""
        self._refuse(EvaluationError)

    def _refuse(self, error: type[SotopiaError]) -> NoReturn:
        raise error(f"{self.name} was named in a process that builds no models")

    async def close(self) -> None:
        """Does nothing."""
