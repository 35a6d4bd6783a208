"""What the evaluators of this package have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sotopia_env.world.episode import Evaluation, Transcript


class ComputedEvaluator:
    """Base of evaluators that wait for nothing: ``evaluate_async`` is ``evaluate``."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes the scores; nothing, unless a subclass says otherwise."""
        return {}

    def applies(self, transcript: Transcript) -> bool:
        """Whether the transcript is of a kind this evaluator scores; one that does not apply has not failed."""
        return True

    def evaluate(self, transcript: Transcript) -> Evaluation:
        """Returns the evaluation of a transcript.

        Raises:
            EvaluationError: the transcript cannot be scored by this evaluator.
        """
        raise NotImplementedError

    async def evaluate_async(self, transcript: Transcript) -> Evaluation:
        """Returns what :meth:`evaluate` returns; a computation of microseconds has nothing to wait for."""
        return self.evaluate(transcript)
