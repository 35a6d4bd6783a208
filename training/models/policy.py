"""A trained model in a seat: an adapter or model directory as a policy of the environment.

The model is prompted as in training (``sotopia_policy.json`` beside its weights holds the prompt settings), and all
acts that wait at one moment are sampled in one batch. The directory is the policy's name on a command line::

    sotopia rollout --policy runs/bc,conceder --tasks bargaining --out runs/played
    sotopia rollout --policy "runs/bc:temperature=0.7,name=cloned" --policy "best-of-8(runs/bc by runs/rm)" --out runs/b

A model on a server (vLLM, or ``transformers serve``) does not need this module: it is a language model like any other,
``local/NAME:format=…,temperature=…`` with ``--api-base``; use the format in its ``sotopia_policy.json``. Starting such
a server is described in ``docs/training.md``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from sotopia_env.chat_model import ChatReply
from sotopia_env.errors import InvalidValueError, PolicyError, name_hint
from sotopia_env.policies import AgentPrompt, Consequence, Decision, complaint, read_reply, turn_seed
from sotopia_env.world import NO_ACTION, Action, ActionType, ChatMessage, Generation, Observation, ParseFailure, Usage
from training.data.samples import fit_prompt
from training.models.generation import Batcher, Sampled, Sampling
from training.models.loading import answer_text, load_tokenizer, prompt_ids, read_prompt_settings
from training.models.trained_model import Device, Dtype, Quantization, TrainedModel, holds_causal_lm, shared_batcher
from training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True, eq=False)
class LocalPolicy:
    """Plays a seat with a model in this process; made by :func:`load`.

    Attributes:
        batcher: samples answers.
        tokenizer: of the model.
        prompt: format and limits of the prompts.
        model: identity of the model, as JSON; see :class:`~training.models.trained_model.TrainedModel`.
        name: of the policy in records.
        reasks: number of further requests after an unusable answer, each with a complaint. By default none: an
            unusable answer is what the model has learned.
        on_unusable: the consequence when no answer was usable: ``none`` or ``forfeit`` (to leave).
        logprobs: whether token ids and log-probabilities are recorded.
    """

    batcher: Batcher
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    prompt: PromptSettings = field(kw_only=True)
    model: Mapping[str, Any] = field(kw_only=True)
    name: str = field(kw_only=True)
    reasks: int = field(default=0, kw_only=True)
    on_unusable: Consequence = field(default="none", kw_only=True)
    logprobs: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.on_unusable not in get_args(Consequence):
            raise InvalidValueError(f"on_unusable: {name_hint(str(self.on_unusable), get_args(Consequence))}")
        if not isinstance(self.reasks, int) or isinstance(self.reasks, bool) or self.reasks < 0:
            raise InvalidValueError(f"reasks: expected a whole number, 0 or more, got {self.reasks!r}")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's identity, the prompt and the sampling; without paths."""
        sampling = self.batcher.sampling
        return {
            "model": dict(self.model),
            "prompt": {"format": self.prompt.format, "max_length": self.prompt.max_length},
            "prompts": dict(AgentPrompt(self.prompt.format).hashes),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "reasks": self.reasks,
            "on_unusable": self.on_unusable,
            "logprobs": self.logprobs,
        }

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the model's decision, with its text and the number of reasks.

        Raises:
            PolicyError: the conversation does not fit even when it is shortened.
            ModelRefusedError: the model cannot be loaded.
        """
        started = time.perf_counter()
        replies: list[ChatReply] = []
        complaints: list[ChatMessage] = []
        fit = self._fitted(observation, complaints)
        if fit is None:
            raise PolicyError(
                f"{self.name}: instructions and last turns leave no room for an answer of "
                f"{self.batcher.sampling.max_new_tokens} tokens in {self.prompt.max_length}"
            )
        while fit is not None:
            ids, dropped = fit
            attempt = len(replies)
            sampled = await self.batcher.sample(ids, turn_seed(seed, attempt, 1) if attempt else seed)
            replies.append(self._reply(sampled, len(ids)))
            result = read_reply(replies[-1], observation)
            if isinstance(result, Action) or len(replies) > self.reasks:
                break
            complaints += complaint(replies[-1].text, result.reason)
            fit = self._fitted(observation, complaints)  # the last answer stands where a complaint does not fit
        generation = self._generation(replies, result, dropped, time.perf_counter() - started)
        return Decision(result if isinstance(result, Action) else self._consequence(observation), generation)

    def _consequence(self, observation: Observation) -> Action:
        leaves = self.on_unusable == "forfeit" and ActionType.LEAVE in observation.available
        return Action(ActionType.LEAVE) if leaves else NO_ACTION

    def _fitted(self, observation: Observation, complaints: Sequence[ChatMessage]) -> tuple[list[int], int] | None:
        """The prompt's token ids, shortened until an answer fits after it, and the number of turns left out."""
        ids: list[int] = []

        def count(messages: Sequence[ChatMessage], _: str) -> int:
            ids[:] = prompt_ids(self.tokenizer, [*messages, *complaints])
            return len(ids) + self.batcher.sampling.max_new_tokens

        fit = fit_prompt(observation, "", self.prompt, count)
        return None if fit is None else (ids, fit[1])

    def _reply(self, sampled: Sampled, prompt_tokens: int) -> ChatReply:
        ids = sampled.ids[:-1] if sampled.finished else sampled.ids
        return ChatReply(
            answer_text(self.tokenizer, ids),
            finish_reason="stop" if sampled.finished else "length",
            prompt_tokens=prompt_tokens,
            completion_tokens=len(sampled.ids),
            cost=0.0,
            token_ids=sampled.ids,
            logprobs=sampled.logprobs,
        )

    def _generation(
        self, replies: Sequence[ChatReply], result: Action | ParseFailure, dropped: int, latency: float
    ) -> Generation:
        last = replies[-1]
        return Generation(
            text=last.text,
            parse_failure=result.reason if isinstance(result, ParseFailure) else None,
            reasks=len(replies) - 1,
            usage=sum((reply.usage for reply in replies), Usage()),
            latency=latency,
            token_ids=last.token_ids if self.logprobs else None,
            logprobs=last.logprobs if self.logprobs else None,
            model=self.name,
            dropped_turns=dropped,
        )


def load(
    path: str | Path,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    reasks: int = 0,
    on_unusable: Consequence = "none",
    logprobs: bool = False,
    quantization: Quantization = "none",
    dtype: Dtype = "auto",
    device: Device = "auto",
    max_batch: int = 64,
    name: str = "",
) -> LocalPolicy:
    """Returns the policy of a trained adapter or model.

    Everything that can be checked without the weights is checked here; they are loaded with the first prompt, so a
    complete run does not load them. Policies that use the same model share its weights.

    Args:
        path: a stage's output, or the directory of an adapter or model.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: see :class:`~training.models.generation.Sampling`.
        max_tokens: limit on each answer; by default the limit in training.
        reasks: see :class:`LocalPolicy`.
        on_unusable: likewise.
        logprobs: likewise.
        quantization: ``nf4`` loads the base in 4 bit.
        dtype: of the weights; ``auto`` is bfloat16 on a GPU, float32 elsewhere.
        device: ``auto`` is a GPU if there is one.
        max_batch: prompts that are decoded together.
        name: in records; by default the name of the directory (of its parent if it is called ``model``).

    Raises:
        InvalidValueError: there is no model, its tokenizer cannot be used, an option is invalid, or the model's context
            leaves no room for a prompt.
    """
    model = TrainedModel.find(path, quantization=quantization, dtype=dtype, device=device)
    prompt = read_prompt_settings(model.path)
    sampling = Sampling(prompt.max_answer if max_tokens is None else max_tokens, temperature, top_p, max_batch)
    prompt = prompt.model_copy(update={"max_length": min(prompt.max_length, model.context() or prompt.max_length)})
    if sampling.max_new_tokens >= prompt.max_length:
        raise InvalidValueError(
            f"max_tokens: an answer of {sampling.max_new_tokens} leaves no room for a prompt in {prompt.max_length}"
        )
    tokenizer = load_tokenizer(model.tokenizer_path, prompt)
    return LocalPolicy(
        shared_batcher(model, tokenizer, sampling),
        tokenizer,
        prompt=prompt,
        model=model.parameters,
        name=name or _name(Path(path)),
        reasks=reasks,
        on_unusable=on_unusable,
        logprobs=logprobs,
    )


def _name(path: Path) -> str:
    parts = [part for part in path.resolve().parts if part != "model"]
    return parts[-1] if parts else "model"


load.opens = holds_causal_lm  # type: ignore[attr-defined]  # part of the interface of entry points in `sotopia.policies`
