"""A model in this process as a chat model, which can play, judge, answer interviews and write.

Requests that wait at the same time are sampled in one batch, and models of one directory share their weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from sotopia_env.chat_model import ChatReply, ChatRequest
from sotopia_env.foundation.errors import ContextLengthError, InvalidValueError
from sotopia_env.foundation.extras import install_command
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.policy import turn_seed
from sotopia_training.models.batching import Batcher
from sotopia_training.models.constraints import is_available
from sotopia_training.models.function_calls import calling_prompt_ids, calls_in
from sotopia_training.models.generation import Sampling
from sotopia_training.models.gguf_files import smol_directory
from sotopia_training.models.loading import read_prompt_settings
from sotopia_training.models.tokenizers import PLAIN, answer_ids, answer_text, load_tokenizer, prompt_ids
from sotopia_training.models.trained_model import (
    Device,
    TrainedModel,
    holds_causal_lm,
    shared_batcher,
)
from sotopia_training.stage.settings import DtypeName, PromptSettings, Quantization

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Constrained = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalChatModel:
    """A :class:`~sotopia_env.chat_model.ChatModel` in this process; created by :func:`load_model`.

    Attributes:
        model: the model on disk.
        batcher: samples answers; requests with another temperature or limit use a separate batcher on the same weights.
        tokenizer: the tokenizer of the model.
        max_length: the maximum number of tokens of a prompt and its answer.
        name: the model's name in records.
        constrained: whether a request's schema constrains decoding (:mod:`sotopia_training.models.constraints`).
    """

    model: TrainedModel
    batcher: Batcher
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    max_length: int
    name: str
    constrained: bool = False
    _batchers: dict[Sampling, Batcher] = field(default_factory=dict, init=False, repr=False)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's identity and its sampling, without paths."""
        sampling = self.batcher.sampling
        return {
            **self.model.parameters,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "max_length": self.max_length,
            "constrained": self.constrained,
        }

    def features(self) -> Sequence[tuple[str, Literal["yes", "no"], str]]:
        """See :class:`~sotopia_env.chat_model.protocol.Described`."""
        tokenizer = self.tokenizer
        own = tokenizer.chat_template != PLAIN
        # Words of other players are escaped, so that none of them is a control token of this tokenizer.
        risky = [token for token in tokenizer.all_special_tokens if escape(token) == token]
        schema = "answers follow the schema of their turn" if self.constrained else "pip install llguidance"
        settings = self.model.settings
        precision = settings.dtype if settings.quantization == "none" else f"{settings.quantization} ({settings.dtype})"
        return [
            ("weights", "yes", f"{self.model.identity}, {precision} on {self.model.device}"),
            ("template", _yes(own), "" if own else "a plain form, as for base models"),
            ("tokens", _yes(not risky), f"not escaped: {', '.join(risky)}" if risky else "control tokens are escaped"),
            ("context", "yes", f"{self.max_length:,} tokens for prompt and answer"),
            ("schema", _yes(self.constrained), schema),
        ]

    def prompt_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Returns the number of tokens of a conversation with functions, up to the beginning of the answer."""
        return len(self._prompt_ids(messages, tools))

    def answer_tokens(self, text: str) -> int:
        """Returns the number of tokens of an answer with this text, including the end token."""
        return len(answer_ids(self.tokenizer, text))

    def _prompt_ids(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        if tools:
            return calling_prompt_ids(self.tokenizer, messages, tools)
        return prompt_ids(self.tokenizer, messages)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """See :class:`~sotopia_env.chat_model.ChatModel`; the same request gets the same answer.

        Raises:
            ContextLengthError: prompt and answer do not fit.
            ModelRefusedError: the model cannot be loaded.
        """
        ids, batcher = self._prompt_ids(request.messages, request.tools), self._batcher(request)
        answer = batcher.sampling.max_new_tokens
        if len(ids) + answer > self.max_length:
            raise ContextLengthError(
                f"a prompt of {len(ids)} tokens leaves no room for an answer of {answer} tokens in {self.max_length}",
            )
        seed = turn_seed(request.replicate, request.reask, 1) if request.reask else request.replicate
        schema = request.schema if self.constrained else None
        sampled = await (batcher.sample(ids, seed) if schema is None else batcher.sample(ids, seed, schema))
        text = answer_text(self.tokenizer, sampled.ids[:-1] if sampled.finished else sampled.ids)
        return ChatReply(
            text,
            finish_reason="stop" if sampled.finished else "length",
            prompt_tokens=len(ids),
            completion_tokens=len(sampled.ids),
            cost=0.0,
            model=self.name,
            token_ids=sampled.ids if request.logprobs else None,
            logprobs=sampled.logprobs if request.logprobs else None,
            calls=calls_in(text) if request.tools else (),
            failures=(("unconstrained", sampled.unconstrained),) if sampled.unconstrained else (),
        )

    async def shares(self, request: ChatRequest, answers: Sequence[Sequence[str]]) -> Sequence[Sequence[float]]:
        """See :class:`~sotopia_env.chat_model.protocol.WeighsAnswers`; at the request's temperature.

        Raises:
            ContextLengthError: the prompt and an answer do not fit.
            ModelRefusedError: the model cannot be loaded.
        """
        prompt, batcher = self._prompt_ids(request.messages, request.tools), self._batcher(request)
        groups = [[answer_ids(self.tokenizer, text) for text in group] for group in answers]
        longest = max(len(ids) for group in groups for ids in group)
        if len(prompt) + longest > self.max_length:
            raise ContextLengthError(
                f"a prompt of {len(prompt)} tokens leaves no room for an answer in {self.max_length}"
            )
        return await all_at_once(batcher.shares(prompt, group) for group in groups)

    def _batcher(self, request: ChatRequest) -> Batcher:
        sampling = self.batcher.sampling
        requested = replace(
            sampling,
            temperature=sampling.temperature if request.temperature is None else request.temperature,
            max_new_tokens=request.max_tokens or sampling.max_new_tokens,
        )
        if requested == sampling:
            return self.batcher
        return self._batchers.get(requested) or self._batchers.setdefault(
            requested, shared_batcher(self.model, self.tokenizer, requested)
        )

    async def close(self) -> None:
        """Does nothing: the weights are freed with the last model that uses them."""


def _yes(answer: bool) -> Literal["yes", "no"]:
    return "yes" if answer else "no"


def load_model(
    path: str | Path,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    max_length: int | None = None,
    quantization: Quantization = "none",
    dtype: DtypeName = "auto",
    device: Device = "auto",
    max_batch: int = 64,
    constrained: Constrained = "auto",
    name: str = "",
    prompt: PromptSettings | None = None,
) -> LocalChatModel:
    """Returns the chat model of a directory.

    Everything that does not need the weights is checked here; they are loaded with the first request.

    Args:
        path: a stage's output, or the directory of an adapter or model.
        temperature: the temperature of requests that set none; 0 takes the likeliest token.
        top_p: the limit on the probability; see :class:`~sotopia_training.models.generation.Sampling`.
        max_tokens: the limit on answers to requests that set none; by default that of training.
        max_length: the maximum number of tokens of a prompt and its answer; by default the model's context.
        quantization: ``nf4`` loads the base in 4 bit.
        dtype: the data type of the weights; ``auto`` is the fast one of the device: bfloat16 or float32.
        device: the device; ``auto`` is a GPU if one is available.
        max_batch: the maximum number of prompts that are decoded together.
        constrained: whether answers are constrained to the schema of their request, which needs the extra
            ``constrained``; ``auto`` does so if it is installed.
        name: the model's name in records; by default the name of the directory (of its parent if it is called
            ``model``).
        prompt: the prompt settings; by default those beside the weights.

    Raises:
        InvalidValueError: the model does not exist, its tokenizer cannot be used, an option is invalid, or an answer
            leaves no room for a prompt.
    """
    model = TrainedModel.find(path, quantization=quantization, dtype=dtype, device=device)
    settings = read_prompt_settings(model.path) if prompt is None else prompt
    context = model.context()
    length = max_length or context or settings.max_length
    limit = min(length, context or length)
    sampling = Sampling(settings.max_answer if max_tokens is None else max_tokens, temperature, top_p, max_batch)
    if sampling.max_new_tokens >= limit:
        raise InvalidValueError(
            f"an answer of {sampling.max_new_tokens} leaves no room for a prompt in {limit}", field="max_tokens"
        )
    tokenizer = load_tokenizer(model.tokenizer_path, settings)
    batcher = shared_batcher(model, tokenizer, sampling)
    name = name or directory_name(Path(path))
    return LocalChatModel(model, batcher, tokenizer, limit, name, is_constrained(constrained))


_Factory = TypeVar("_Factory", bound=Callable[..., Any])


def passes_on(target: Callable[..., Any]) -> Callable[[_Factory], _Factory]:
    """Returns a decorator of a factory that passes its ``**options`` on: its signature has the target's keywords.

    Names such as ``runs/bc:temperature=0.7`` are checked against the signature, which then names each option.
    """

    def decorated(factory: _Factory) -> _Factory:
        signature = inspect.signature(factory, eval_str=True)
        own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        keywords = [
            item
            for item in inspect.signature(target, eval_str=True).parameters.values()
            if item.kind is item.KEYWORD_ONLY
        ]
        more = [item for item in keywords if item.name not in signature.parameters]
        factory.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return factory

    return decorated


def is_constrained(choice: Constrained) -> bool:
    """Returns whether decoding is constrained.

    Raises:
        InvalidValueError: ``choice`` is invalid, or ``on`` without llguidance.
    """
    if choice not in get_args(Constrained):
        raise InvalidValueError(field="constrained", got=choice, valid=get_args(Constrained))
    if choice == "on" and not is_available():
        raise InvalidValueError("'on' needs llguidance", field="constrained", hint=install_command("constrained"))
    return choice != "off" and is_available()


def directory_name(path: Path) -> str:
    """Returns the name of a model's directory, of its parent if it is called ``model``."""
    parts = [part for part in path.resolve().parts if part != "model"]
    return parts[-1] if parts else "model"


load_model.opens = holds_causal_lm  # type: ignore[attr-defined]  # part of the interface of entry points in `sotopia.models`


@passes_on(load_model)
def smol(**options: Any) -> LocalChatModel:
    """Returns SmolLM2-135M-Instruct as a chat model, the model named ``smol``; options as in :func:`load_model`."""
    return load_model(smol_directory(), **{"name": "smol", **options})
