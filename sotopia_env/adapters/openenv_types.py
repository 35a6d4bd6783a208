"""OpenEnv's action and observation of a seat, and a client for them."""

from __future__ import annotations

from typing import Any

from sotopia_env.foundation.extras import extra

with extra("openenv"):
    from openenv.core.client_types import StepResult
    from openenv.core.env_client import EnvClient
    from openenv.core.env_server import Action, Observation, State
    from pydantic import ConfigDict, Field


class SotopiaAction(Action):
    """An action: the fields of the package's own JSON, or the text of a model.

    Clients that read a model's JSON themselves send its fields, as verifiers' taskset does; others send ``text``.
    Fields of any name and type are taken, so that a model's mistake is answered with the reason within the episode and
    not by a protocol error.
    """

    model_config = ConfigDict(extra="allow")

    action_type: Any = Field(None, description="none, speak, non-verbal communication, action or leave")
    argument: Any = Field(None, description="the words, the gesture or the deed")
    to: Any = Field(None, description="names of the only recipients; everybody by default")
    move: Any = Field(None, description="one of the moves open to the seat")
    text: Any = Field(None, description="the text of a model, in place of all other fields")
    finish_reason: Any = Field(None, description="why the server ended the text, such as stop or length")
    metadata: Any = Field(default_factory=dict, description="OpenEnv's own; not read")

    @property
    def answer(self) -> str | dict[str, Any]:
        """The action as :meth:`sotopia_env.adapters.seat.TextSeat.say` takes it."""
        return self.text if isinstance(self.text, str) else self.model_dump(exclude_none=True, exclude={"metadata"})

    @property
    def ending(self) -> str:
        """Why the server ended ``text``, in its own term; empty if the client does not say."""
        return self.finish_reason if isinstance(self.text, str) and isinstance(self.finish_reason, str) else ""


class SotopiaObservation(Observation):
    """What the seat observes.

    ``reward`` is 0 until the end, when it is the reward of the episode. A step that a failing partner interrupts has no
    observation: it is answered with an error, and can be sent again.

    Attributes:
        messages: the new messages, for a chat model; the first ones begin with the system's.
        briefing: the first of them without the form of an answer, for models that act by calling tools; empty after the
            first observation.
        turn_reward: the reward of the seat's own turn, available at its next turn
            (:func:`sotopia_env.evaluators.turn_rewards.standing_rewards`); ``None`` if the text was not an action, and
            for tasks without an outcome.
        scores: the scores by dimension, without those that nothing measured; empty before the end.
    """

    messages: list[dict[str, str]]
    briefing: str = ""
    turn_reward: float | None = None
    scores: dict[str, float] = Field(default_factory=dict)


class SotopiaClient(EnvClient[SotopiaAction, SotopiaObservation, State]):
    """A session of a server: ``reset(tasks="bargaining", seed=3)``, then ``step(action)`` until ``done``."""

    def _step_payload(self, action: SotopiaAction) -> dict[str, Any]:
        return action.model_dump(exclude_none=True)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SotopiaObservation]:
        reward, done = payload.get("reward"), payload.get("done", False)
        observation = SotopiaObservation(**payload["observation"], reward=reward, done=done)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
