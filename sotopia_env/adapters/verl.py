"""verl's agent loop over a seat: one output is the part of one seat, with only its own tokens in the mask."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.extras import extra

with extra("verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register


@register("sotopia_seat")
class SeatAgentLoop(AgentLoopBase):
    """Plays the episode of a row (:func:`sotopia_env.adapters.rows`), whose prompt is not read.

    ``reward_score`` is the reward of the episode, ``turn_scores`` holds the reward of each of the seat's turns
    (:mod:`sotopia_env.evaluators.turn_rewards`), of the kind that the row's column ``turns`` names.
    """

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays the episode to its end, or until the response is as long as verl's configuration allows.

        Raises:
            PolicyError: a partner failed for good; verl has no rows without a reward.
            EvaluationError: the evaluator did.
        """
        seat, request = TextSeat.of(row, reasks=0), uuid4().hex
        messages: list[Any] = list(await seat.begin())
        ids = await self.ct_build_initial_tokens(messages)
        mask: list[int] = []
        logprobs: list[float] | None = None
        longest, metrics = self.rollout_config.response_length, {"num_preempted": -1}
        while not seat.done:
            output = await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params=sampling_params
            )
            before = [] if output.log_probs and logprobs is None else logprobs
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                ids, output.token_ids, mask, before, assistant_logprobs=output.log_probs or None
            )
            ids = merged.token_ids
            text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            # What does not fit any more ends the episode: the seat leaves.
            # verl's terms are "completed" and "aborted"; a text that was cut off fills the response.
            ending = getattr(output, "stop_reason", None) or ""
            news, _ = await seat.say(text if len(mask) < longest else {"action_type": "leave"}, ending)
            if seat.done:
                break
            previous = [*messages, {"role": "assistant", "content": text}]
            messages = [*previous, *news]
            merged, mask, logprobs = await self.ct_merge_context_msg(previous, messages, ids, mask, logprobs)
            ids = merged.token_ids
        start = len(ids) - len(mask)
        return AgentLoopOutput(
            prompt_ids=ids[:start],
            response_ids=ids[start:][:longest],
            response_mask=mask[:longest],
            response_logprobs=logprobs[:longest] if logprobs else None,
            reward_score=seat.result.paid(),  # without a score in one row, verl would score the whole batch itself
            num_turns=len(seat.table.turns),
            metrics=metrics,
            extra_fields={"turn_scores": list(seat.turn_rewards or ()), "tool_rewards": []},
        )
