"""Scores of a trained reward model: for best-of-N policies, and as the reward function of GRPO.

The model is loaded in the precision of its training, with dropout off and the score head in float32. A model without a
trained score head is refused: its scores would be random numbers (sotopia-rl trained on such scores).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, PolicyError
from sotopia_env.foundation.files import read_text, write_text_atomically
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.policies import Decision
from sotopia_env.world import Observation
from sotopia_env.world.observation import ChatMessage
from sotopia_training.data.samples import completion_of, fit_prompt
from sotopia_training.models.loading import LOADING, adapter_base, find_model, load_arguments, located
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.reward.text import fitting_ids, scored_ids
from sotopia_training.stage.settings import ModelSettings, PromptSettings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
NOTE = "sotopia_reward_model.json"
"""File beside the weights: loading options and prompt settings of the training."""
_HEAD = "score.weight"


class RewardNote(Record):
    """The content of :data:`NOTE`.

    Attributes:
        model: the loading options of the base; the adapter fits only this precision.
        prompt: the format and limits of the prompts.
    """

    model: ModelSettings
    prompt: PromptSettings


def write_note(directory: Path, model: ModelSettings, prompt: PromptSettings) -> None:
    """Writes :data:`NOTE` beside a reward model."""
    text = RewardNote(model=model, prompt=prompt).model_dump_json(indent=2)
    write_text_atomically(directory / NOTE, text + "\n")


def read_note(directory: Path) -> RewardNote:
    """Returns the note beside a reward model.

    Raises:
        InvalidValueError: the directory does not contain a reward model.
    """
    file = directory / NOTE
    if not file.is_file():
        raise InvalidValueError(expected=f"a reward model of train_rm ({NOTE})", where=directory)
    return read_record(RewardNote, read_text(file), file)


@dataclass
class RewardScorer:
    """Scores answers with a reward model.

    It has three interfaces: :meth:`rate` for pairs, the ``scorer`` of
    :class:`~sotopia_env.policies.combined.best_of_n.BestOfNPolicy`, and a function in TRL's ``reward_funcs``.

    Attributes:
        model: the model in evaluation mode; its adapter is merged if the base is in float32.
        tokenizer: the tokenizer of the model.
        prompt: the format and limits of the prompts.
        source: the directory of the model, for records.
        batch_size: the number of answers scored at once; answers of similar length share a batch.
        too_long: the number of answers so far that were too long to be scored as reward.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    prompt: PromptSettings
    source: str = ""
    batch_size: int = 16
    name: str = "reward-model"
    too_long: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self.__name__ = "reward_model"  # name in TRL's logs

    @classmethod
    def load(cls, path: str | Path, *, batch_size: int = 16) -> RewardScorer:
        """Loads the output of the reward model's stage.

        Args:
            path: the stage's output directory, or the model in it.
            batch_size: the number of answers scored at once.

        Raises:
            InvalidValueError: the directory contains no reward model, or one without a trained score head.
        """
        directory = find_model(path)
        note = read_note(directory)
        tokenizer = load_tokenizer(directory, note.prompt)
        return cls(_load(directory, note.model), tokenizer, note.prompt, str(path), batch_size)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model's directory."""
        return {"model": self.source}

    def rate(self, pairs: Sequence[tuple[Sequence[ChatMessage], str]]) -> list[float]:
        """Returns the score of each (prompt, answer), in their order.

        Raises:
            InvalidValueError: a prompt and its answer are too long.
        """
        scores = self._rate([(prompt, answer, True) for prompt, answer in pairs])
        for (_, answer), score in zip(pairs, scores, strict=True):
            if score is None:
                raise InvalidValueError(
                    f"with its prompt it exceeds the {self.prompt.max_length} tokens that the reward model was "
                    "trained with",
                    field="answer",
                    got=answer,
                )
        return [score for score in scores if score is not None]

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        """Returns the rewards of a GRPO batch; ``None``, which gives no advantage, for an answer that is too long.

        Args:
            prompts: the prompts, as lists of chat messages.
            completions: the completions, as lists with one assistant's message each.
            completion_ids: the tokens of the completions, by this model's tokenizer; a completion without an end token
                was cut off.
            columns: other columns of the data set; ignored.
        """
        ends = [True] * len(prompts)
        if completion_ids is not None:
            ends = [bool(len(ids)) and ids[-1] == self.tokenizer.eos_token_id for ids in completion_ids]
        answers = [item if isinstance(item, str) else item[0]["content"] for item in completions]
        return self.opinions(list(zip(prompts, answers, ends, strict=True)))

    def opinions(self, items: Sequence[tuple[Sequence[ChatMessage], str, bool]]) -> list[float | None]:
        """Returns the score of each (prompt, answer, whether it was finished); ``None`` for one that is too long."""
        scores = self._rate(items)
        self.too_long += scores.count(None)  # counted here only, because rate() raises
        return scores

    async def score(self, observation: Observation, decisions: Sequence[Decision]) -> Sequence[float]:
        """Returns the score of each decision, for best-of-N.

        Raises:
            PolicyError: a decision is too long even without the oldest turns.
        """
        names = {agent: name for name, agent in observation.briefing.recipients.items() if name != agent}
        answers = [completion_of(decision.generation, decision.action, names) for decision in decisions]

        def count(prompt: Sequence[ChatMessage], answer: str) -> int:
            return len(scored_ids(self.tokenizer, prompt, answer))

        fits = [fit_prompt(observation, answer, self.prompt, count) for answer in answers]
        pairs = [(fit[0], answer) for fit, answer in zip(fits, answers, strict=True) if fit is not None]
        if len(pairs) < len(answers):
            raise PolicyError(f"scorer {self.name!r}: a decision is too long for the reward model")
        # In a thread, so that the event loop serves the other episodes meanwhile.
        return await asyncio.to_thread(self.rate, pairs)

    def _rate(self, items: Sequence[tuple[Sequence[ChatMessage], str, bool]]) -> list[float | None]:
        scores: list[float | None] = [None] * len(items)
        todo: list[tuple[int, list[int]]] = []
        for index, (prompt, answer, finished) in enumerate(items):
            ids = fitting_ids(self.tokenizer, prompt, answer, self.prompt.max_length, finished)
            if ids is not None:
                todo.append((index, ids))
        # Longest first: similar lengths share a batch, and a batch that exceeds the memory fails at once.
        todo.sort(key=lambda item: len(item[1]), reverse=True)
        # Best-of-N calls this from several threads; parallel batches would multiply the peak memory.
        with self._lock:
            for start in range(0, len(todo), self.batch_size):
                batch = todo[start : start + self.batch_size]
                for (index, _), value in zip(batch, score_ids(self.model, [ids for _, ids in batch]), strict=True):
                    scores[index] = value
        return scores


def score_ids(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> list[float]:
    """Returns the scores of a batch of token rows, read at each row's last token; the head works in float32."""
    import torch

    width = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=model.device)  # (rows, tokens)
    lengths = torch.tensor([len(row) for row in rows], device=model.device)  # (rows,)
    mask = (torch.arange(width, device=model.device)[None] < lengths[:, None]).long()  # (rows, tokens)
    with torch.inference_mode():
        # Not ``model(ids)``: it finds the last token by the padding token, and applies the head in the base's
        # precision.
        hidden = getattr(model, model.base_model_prefix)(input_ids=ids, attention_mask=mask, use_cache=False)[0]
        last = hidden[torch.arange(len(rows), device=model.device), lengths - 1]  # (rows, hidden)
        values: torch.Tensor = last.float() @ model.score.weight.float().T  # (rows, 1)
    return [float(value) for value in values[:, 0]]


# --- loading ------------------------------------------------------------------------------------------------------


def _load(directory: Path, settings: ModelSettings) -> PreTrainedModel:
    import torch

    head, base = _trained_head(directory), adapter_base(directory)
    model = load_classifier(base or str(directory), settings)
    if base is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(directory))
        # A merge rounds to the base's precision and would lose much of the adapter, so it is merged in float32 only.
        exact = settings.quantization == "none" and settings.dtype == "float32"
        model = model.merge_and_unload() if exact else model.base_model.model
    model.score = torch.nn.Linear(head.shape[1], 1, bias=False, dtype=torch.float32, device=model.device)
    model.score.weight.data.copy_(head)
    if settings.quantization == "none":  # 4-bit weights are on their device already
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    return model.eval()


def load_classifier(base: str, settings: ModelSettings, **config: Any) -> PreTrainedModel:
    """Loads a base with a score head, which is new unless ``base`` has one.

    Args:
        base: the directory or hub name of the base.
        settings: precision and quantisation; the head is never quantised, because 4-bit weights cannot be trained.
        config: further fields of the model's configuration.

    Raises:
        InvalidValueError: the base cannot be loaded.
    """
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging as library_logging

    arguments, level = load_arguments(settings), library_logging.get_verbosity()
    if "quantization_config" in arguments:
        arguments["quantization_config"].llm_int8_skip_modules = ["score"]
    library_logging.set_verbosity_error()  # it would warn that the score head is new
    try:
        with LOADING:
            kind = AutoModelForSequenceClassification
            return kind.from_pretrained(located(base), num_labels=1, **arguments, **config)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"no model could be loaded ({str(error).splitlines()[0]})", where=base) from None
    finally:
        library_logging.set_verbosity(level)


def _trained_head(directory: Path) -> torch.Tensor:
    """Returns the score head's weights on disk, of shape (1, hidden).

    Raises:
        InvalidValueError: the directory has no score head.
    """
    from safetensors import safe_open

    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                if name == _HEAD or name.endswith(f".{_HEAD}"):
                    return weights.get_tensor(name).float()
    raise InvalidValueError(
        f"has no trained score head ({_HEAD})", hint="a new one would give random rewards", where=directory
    )
