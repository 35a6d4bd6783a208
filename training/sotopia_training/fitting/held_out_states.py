"""Agreement with the teacher in states of validation scenarios, and the loss on moves apart from that on words.

About three of forty answer tokens decide an episode, so the loss and the token accuracy of a clone hardly show whether
it plays like its teacher. After every validation the model answers held-out states without sampling, and its actions
are compared with the teacher's (:mod:`sotopia_training.data.agreement`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from sotopia_env.foundation.files import read_lines, write_text_atomically
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.world import Action, Observation
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.table import Table
from sotopia_training.data.agreement import match_figures, move_match
from sotopia_training.data.samples import TrainingRow
from sotopia_training.fitting.answer_parts import move_tokens
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.tokenizers import answer_ids, answer_text, prompt_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


class HeldOutState(Record):
    """A state of a validation scenario, and the teacher's answer in it.

    Attributes:
        state: the episode before the turn.
        seat: the agent id of the seat that answers.
        prompt: the messages of the prompt.
        completion: the teacher's answer.
    """

    state: Episode
    seat: str
    prompt: tuple[dict[str, str], ...]
    completion: str


def write_states(rows: Iterable[TrainingRow], scenarios: Collection[str], count: int, file: Path) -> None:
    """Writes up to ``count`` states of these scenarios, evenly spread over the rows."""
    held_out = [row for row in rows if row.scenario in scenarios and row.state is not None]
    chosen = held_out[:: max(1, len(held_out) // count)][:count]
    states = [
        HeldOutState(
            state=row.state,
            seat=row.seat,
            prompt=tuple({"role": item["role"], "content": item["content"]} for item in row.prompt),
            completion=row.completion,
        )
        for row in chosen
        if row.state is not None
    ]
    write_text_atomically(file, "".join(state.model_dump_json() + "\n" for state in states))


def read_states(file: Path) -> list[HeldOutState]:
    """Returns the states of a file of :func:`write_states`; none if there is no file."""
    return [read_record(HeldOutState, line, where) for where, line in read_lines(file)] if file.is_file() else []


class HeldOutStates:
    """States in which a model in training is compared with its teacher."""

    def __init__(self, states: Sequence[HeldOutState], tokenizer: PreTrainedTokenizerBase, max_answer: int) -> None:
        """Tokenises the states.

        Args:
            states: the states.
            tokenizer: the model's tokenizer.
            max_answer: the maximum number of tokens of an answer.
        """
        self._tokenizer, self._max_answer = tokenizer, max_answer
        self._prompts = [prompt_ids(tokenizer, cast(Sequence[ChatMessage], state.prompt)) for state in states]
        self._answers = [answer_ids(tokenizer, state.completion) for state in states]
        self._moves = [move_tokens(tokenizer, state.completion) for state in states]
        self._observations = [Table.resume(state.state).observe(state.seat) for state in states]
        self._teachers = [_action(view, s.completion) for view, s in zip(self._observations, states, strict=True)]

    def figures(self, model: PreTrainedModel) -> dict[str, float]:
        """Returns ``agreement/kind``, ``agreement/value``, ``loss/moves`` and ``loss/words``."""
        sampling = Sampling(self._max_answer, temperature=0)
        sampled = BatchedGenerator(model, self._tokenizer, sampling).generate(self._prompts, [0] * len(self._prompts))
        texts = [answer_text(self._tokenizer, answer.ids) for answer in sampled]
        matches = [
            move_match(_action(view, text), teacher, view.briefing.space)
            for view, text, teacher in zip(self._observations, texts, self._teachers, strict=True)
            if teacher is not None
        ]
        return {f"agreement/{name}": value for name, value in match_figures(matches).items()} | self._losses(model)

    def _losses(self, model: PreTrainedModel) -> dict[str, float]:
        parts: dict[str, list[float]] = {"moves": [], "words": []}
        for prompt, answer, moves in zip(self._prompts, self._answers, self._moves, strict=True):
            for loss, is_move in zip(_token_losses(model, prompt, answer), moves, strict=True):
                parts["moves" if is_move else "words"].append(loss)
        return {f"loss/{name}": fmean(values) for name, values in parts.items() if values}

    def callback(self, trainer: Any) -> TrainerCallback:
        """Returns the trainer's callback, which logs the figures after every validation."""
        from transformers import Trainer, TrainerCallback

        states = self

        class Compare(TrainerCallback):
            def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                figures = states.figures(trainer.accelerator.unwrap_model(trainer.model))
                Trainer.log(trainer, figures)  # not TRL's, which adds what is due in the next report of a step

        return Compare()


def _token_losses(model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """Returns the loss of each answer token."""
    import torch

    ids = torch.tensor([[*prompt, *answer]], device=model.device)  # (1, tokens)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()  # (answer tokens, vocabulary)
    model.train(was_training)
    losses: list[float] = torch.nn.functional.cross_entropy(logits, ids[0, len(prompt) :], reduction="none").tolist()
    return losses


def _action(observation: Observation, text: str) -> Action | None:
    """Returns the action of an answer; ``None`` if it is not a possible one."""
    action = observation.parse(text)
    return action if isinstance(action, Action) and observation.move_problem(action) is None else None
